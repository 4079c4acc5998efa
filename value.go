package redlock

import (
	"unique"

	"github.com/seed-ce352c9b/redlock/internal/wire"
)

// A Value is what the nodes store for the holder of a lock. This library stores "label:uuid",
// new for every acquisition; a foreign client stores what it likes. It is a secret: with it,
// Adopt takes the lock over, and some clients release theirs. So neither package fmt nor log/slog
// nor an encoding such as JSON shows it; they show what String returns. Only Secret returns it.
//
// Values are comparable. The zero Value is that of no holder.
type Value struct {
	h unique.Handle[string] // a pointer, which package fmt does not follow, not even by a wrong verb
}

// ValueOf returns the Value whose Secret is the given one, for Adopt; of "" it returns the zero
// Value.
func ValueOf(secret string) Value {
	if secret == "" {
		return Value{}
	}
	return Value{unique.Make(secret)}
}

// Secret returns the value itself, for example to hand a lock over to another process. It is not
// for logs.
func (v Value) Secret() string {
	if v.IsZero() {
		return ""
	}
	return v.h.Value()
}

// IsZero reports whether there is no value.
func (v Value) IsZero() bool { return v == Value{} }

// Label returns the part of the value before the uuid: the text of WithLabel or Options.Name.
// If this library has not stored the value, Label returns "": nobody knows which part of a
// foreign value is a secret, as all of redsync's is.
func (v Value) Label() string { return wire.LabelOf(v.Secret()) }

// String returns the label as errors show it, "another client" for a value that this library has
// not stored, or "" for none.
func (v Value) String() string {
	if v.IsZero() {
		return ""
	}
	return wire.HolderName(v.Secret())
}

// MarshalText returns what String returns. No Unmarshal gets the value back.
func (v Value) MarshalText() ([]byte, error) { return []byte(v.String()), nil }
