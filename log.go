package redlock

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
)

// What logs and encodings show. A type with fields is a group for log/slog and, with the same
// names, an object in JSON: it has words for the constants of this package, texts for errors, and
// the label for a value. What is empty is left out. Durations are written as the encoding does
// it: JSON counts nanoseconds.

// Format implements fmt.Formatter for all verbs: it formats what String returns.
func (k *Lock) Format(f fmt.State, verb rune) {
	fmt.Fprintf(f, fmt.FormatString(f, verb), k.String())
}

// LogValue returns the key and the fence, if it has one.
func (k *Lock) LogValue() slog.Value {
	if k == nil {
		return slog.AnyValue(nil)
	}
	return group(slog.String("key", k.Key()), unlessZero("fence", k.Fence()))
}

// LogValue returns the fields, with the label of the Value as holder.
func (v Vote) LogValue() slog.Value {
	return group(slog.String("node", v.Node), slog.String("answer", v.Answer.String()), unlessZero("holder", v.Value), errText("err", v.Err), unlessZero("took", v.Took))
}

// LogValue returns the fields.
func (r Round) LogValue() slog.Value {
	return group(slog.String("op", r.Op.String()), slog.String("key", r.Key), slog.Int("need", r.Need), slog.Any("votes", r.Votes), slog.Time("start", r.Start), slog.Duration("took", r.Took))
}

// LogValue returns the fields but for Round, whose errors are also those of Nodes. There is no
// left if the key does not expire.
func (s Status) LogValue() slog.Value {
	return group(slog.String("key", s.Key), slog.Bool("held", s.Held), unlessZero("holder", s.Value), unlessZero("left", max(s.Left, 0)), slog.Int64("fence", s.Fence), slog.Any("queue", s.Queue), slog.Any("nodes", s.Nodes))
}

// LogValue returns the fields, with the label of the Value as holder. There is no left if the
// key does not expire.
func (n NodeStatus) LogValue() slog.Value {
	return group(slog.String("node", n.Node), unlessZero("holder", n.Value), unlessZero("left", max(n.Left, 0)), slog.Int64("fence", n.Fence), errText("err", n.Err))
}

// LogValue returns the fields.
func (h NodeHealth) LogValue() slog.Value {
	return group(slog.String("node", h.Node), slog.String("state", h.State.String()), unlessZero("since", h.Since), errText("err", h.Err), unlessZero("round_trip", h.RoundTrip), errText("mute", h.Mute), unlessZero("clean_ups", h.CleanUps))
}

// LogValue returns the fields.
func (e Event) LogValue() slog.Value {
	return group(slog.String("kind", e.Kind.String()), unlessZero("lock", e.Lock), unlessZero("node", e.Node), errText("err", e.Err), unlessZero("held", e.Held), unlessZero("left", e.Left), unlessZero("down", e.Down))
}

// The JSON of these types is an object of what LogValue returns.

func (k *Lock) MarshalJSON() ([]byte, error)      { return jsonOf(k) }
func (v Vote) MarshalJSON() ([]byte, error)       { return jsonOf(v) }
func (r Round) MarshalJSON() ([]byte, error)      { return jsonOf(r) }
func (s Status) MarshalJSON() ([]byte, error)     { return jsonOf(s) }
func (n NodeStatus) MarshalJSON() ([]byte, error) { return jsonOf(n) }
func (h NodeHealth) MarshalJSON() ([]byte, error) { return jsonOf(h) }
func (e Event) MarshalJSON() ([]byte, error)      { return jsonOf(e) }

// The text of the constants, and of an error, is what logs and JSON show.

func (o Op) MarshalText() ([]byte, error)           { return []byte(o.String()), nil }
func (a Answer) MarshalText() ([]byte, error)       { return []byte(a.String()), nil }
func (k EventKind) MarshalText() ([]byte, error)    { return []byte(k.String()), nil }
func (s NodeState) MarshalText() ([]byte, error)    { return []byte(s.String()), nil }
func (e *QuorumError) MarshalText() ([]byte, error) { return []byte(e.Error()), nil }

// group returns the attributes that are not empty.
func group(as ...slog.Attr) slog.Value {
	return slog.GroupValue(slices.DeleteFunc(as, func(a slog.Attr) bool { return a.Key == "" })...)
}

func unlessZero[T comparable](key string, v T) slog.Attr {
	if v == *new(T) {
		return slog.Attr{}
	}
	return slog.Any(key, v)
}

func errText(key string, err error) slog.Attr {
	if err == nil {
		return slog.Attr{}
	}
	return slog.String(key, err.Error())
}

// jsonOf returns a JSON object of the group that v logs.
func jsonOf(v slog.LogValuer) ([]byte, error) {
	var b bytes.Buffer
	for i, a := range v.LogValue().Group() {
		fmt.Fprintf(&b, "%c%q:", "{,"[min(i, 1)], a.Key)
		text, err := json.Marshal(a.Value.Any())
		if err != nil {
			return nil, err
		}
		b.Write(text)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}
