package redlock

import (
	"errors"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
)

// What texts say of a value, a key and a time; and the errors that no node's error may
// be taken for.

var (
	errHeld     = errors.New("redlock: held by another")
	errNoQuorum = errors.New("redlock: no quorum")
	errLost     = errors.New("redlock: lost")
	errClosed   = errors.New("redlock: locker closed")
)

// short prints a duration with as many digits as a reader has use for.
func short(d time.Duration) string {
	switch {
	case d >= time.Second:
		d = d.Round(10 * time.Millisecond)
	case d >= 10*time.Millisecond:
		d = d.Round(time.Millisecond)
	case d >= time.Millisecond:
		d = d.Round(100 * time.Microsecond)
	default: // 0.4ms reads better than 412µs beside its neighbours
		return strconv.FormatFloat(float64(d)/float64(time.Millisecond), 'f', 1, 64) + "ms"
	}
	return d.String()
}

// uuidLen is the length of a uuid's text, which ends every value of ours.
const uuidLen = 36

// labelOf is the part of a value of ours before its uuid; "": the value is not ours.
func labelOf(value string) string {
	if ours(value) {
		return value[:len(value)-uuidLen-1]
	}
	return ""
}

// ours reports whether a value is "label:uuid".
func ours(value string) bool {
	i := len(value) - uuidLen - 1
	return i >= 0 && value[i] == ':' && uuid.Validate(value[i+1:]) == nil
}

// holderName is what texts say of who stored a value: nothing of it but its label.
func holderName(value string) string {
	if ours(value) {
		return quoteValue(labelOf(value))
	}
	return "another client"
}

// noTTL is told of a key that never expires: every lock library sets a ttl.
const noTTL = "no ttl: not set by a lock library"

// clip bounds what a key or a value takes of an error's text.
func clip(s string) string {
	const most = 200
	if len(s) <= most {
		return s
	}
	cut := most
	for cut > most-utf8.UTFMax && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "..."
}

// quoteValue shows a label plainly where it is plain, and quoted where it is not.
func quoteValue(s string) string {
	s = clip(s)
	for _, r := range s {
		if !strconv.IsPrint(r) || r == utf8.RuneError {
			return strconv.Quote(s)
		}
	}
	if s == "" {
		return `""`
	}
	return s
}

// A wireAnswer is a node's answer. The zero value is none: it has not answered.
type wireAnswer uint8

const (
	saidPending wireAnswer = iota
	saidYes
	saidNo
	saidUnknown
)
