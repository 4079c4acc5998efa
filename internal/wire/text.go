package wire

import (
	"errors"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
)

// The errors of the library that callers match with errors.Is. They are here because no
// error of a node may match them; the root exports them under the same names.
var (
	ErrHeld     = errors.New("redlock: held by another")
	ErrNoQuorum = errors.New("redlock: no quorum")
	ErrLost     = errors.New("redlock: lost")
	ErrClosed   = errors.New("redlock: locker closed")
)

// Short returns a duration as text with the digits that are useful to a reader.
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

// UUIDLen is the length of the text of a uuid, with which every value of this library ends.
const UUIDLen = 36

// LabelOf returns the label of a value, or "" if the value does not have the form of this
// library.
func LabelOf(value string) string {
	if IsOurs(value) {
		return value[:len(value)-UUIDLen-1]
	}
	return ""
}

// IsOurs reports whether a value has the form that this library stores, "label:uuid".
func IsOurs(value string) bool {
	i := len(value) - UUIDLen - 1
	return i >= 0 && value[i] == ':' && uuid.Validate(value[i+1:]) == nil
}

// HolderName returns the name of a holder for texts. It reveals only the label of the value.
func HolderName(value string) string {
	if IsOurs(value) {
		return quoteValue(LabelOf(value))
	}
	return "another client"
}

// NoTTL is the text for a key that never expires.
const NoTTL = "no ttl: not set by a lock library"

// Clip returns s, shortened to about 200 bytes for use in an error text.
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

// quoteValue returns s for use in a text: clipped, and quoted if it is empty or not printable.
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

// An Answer is a node's answer. The zero value, Pending, means that there is none yet.
type Answer uint8

const (
	Pending Answer = iota
	Yes
	No
	Unknown
)
