package wire

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
	ErrHeld     = errors.New("redlock: held by another")
	ErrNoQuorum = errors.New("redlock: no quorum")
	ErrLost     = errors.New("redlock: lost")
	ErrClosed   = errors.New("redlock: locker closed")
)

// Short prints a duration with as many digits as a reader has use for.
func Short(d time.Duration) string {
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

// UUIDLen is the length of a uuid's text, which ends every value of ours.
const UUIDLen = 36

// LabelOf is the part of a value of ours before its uuid; "": the value is not ours.
func LabelOf(value string) string {
	if IsOurs(value) {
		return value[:len(value)-UUIDLen-1]
	}
	return ""
}

// Ours reports whether a value is "label:uuid".
func IsOurs(value string) bool {
	i := len(value) - UUIDLen - 1
	return i >= 0 && value[i] == ':' && uuid.Validate(value[i+1:]) == nil
}

// HolderName is what texts say of who stored a value: nothing of it but its label.
func HolderName(value string) string {
	if IsOurs(value) {
		return quoteValue(LabelOf(value))
	}
	return "another client"
}

// NoTTL is told of a key that never expires: every lock library sets a ttl.
const NoTTL = "no ttl: not set by a lock library"

// Clip bounds what a key or a value takes of an error's text.
func Clip(s string) string {
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
	s = Clip(s)
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

// An Answer is a node's answer. The zero value is none: it has not answered.
type Answer uint8

const (
	Pending Answer = iota
	Yes
	No
	Unknown
)
