package redlock

import (
	"context"
	"reflect"
	"sync"

	"github.com/seed-ce352c9b/redlock/internal/lane"
)

// Traces returns a Trace that calls each of the given ones, End in the reverse order. Each gets
// its own context: to Start the values are those that its own Starts of the calls above have
// returned, and to Round and End those of its own Start, even if two Traces use the same keys.
// The function that Run calls gets the values of all, the first Trace's first. A value that Start
// has got from its context and returns unchanged is not its own. (Whether it is unchanged is
// decided by ==; maps and slices are unchanged if they are the same ones, and functions never are.)
//
// If one of them panics, the others are called all the same, and the panic goes on; after a panic
// in Start, those that have started are told the End with ErrPanicked, and the rest do not start.
func Traces(traces ...Trace) Trace {
	all := &tracesKey{traces}
	var t Trace
	for _, each := range traces {
		if each.Start != nil {
			t.Start = all.start
		}
		if each.Round != nil {
			t.Round = all.round
		}
		if each.End != nil {
			t.End = all.end
		}
		if each.Event != nil {
			t.Event = all.event
		}
	}
	return t
}

// A tracesKey is the Traces, and the key of their contexts.
type tracesKey struct{ each []Trace }

func (all *tracesKey) start(ctx context.Context, call Call) context.Context {
	above, _ := ctx.Value(all).(*tracesCtx)
	c := &tracesCtx{Context: ctx, all: all}
	returned := false
	defer func() {
		if !returned {
			all.endOf(c, call, ErrPanicked)
		}
	}()
	for i, t := range all.each {
		given := ctx
		if above != nil {
			given = ownCtx{ctx, above, above.own[i]}
		}
		own := given
		if t.Start != nil {
			if traced := t.Start(given, call); traced != nil {
				own = tracedCtx{given, context.WithoutCancel(traced)}
			}
		}
		c.given, c.own = append(c.given, given), append(c.own, own)
	}
	returned = true
	return c
}

func (all *tracesKey) end(ctx context.Context, call Call, err error) {
	c, _ := ctx.Value(all).(*tracesCtx)
	if c == nil { // none has a Start
		c = &tracesCtx{all: all}
		for range all.each {
			c.own = append(c.own, ctx)
		}
	}
	all.endOf(c, call, err)
}

// endOf calls End of each that has started.
func (all *tracesKey) endOf(c *tracesCtx, call Call, err error) {
	n := len(c.own)
	lane.Each(0, n, func(i int) {
		if end := all.each[n-1-i].End; end != nil {
			end(c.own[n-1-i], call, err)
		}
	})
}

func (all *tracesKey) round(ctx context.Context, r Round) {
	c, _ := ctx.Value(all).(*tracesCtx)
	lane.Each(0, len(all.each), func(i int) {
		own := ctx
		if c != nil {
			own = c.own[i]
		}
		if round := all.each[i].Round; round != nil {
			round(own, r)
		}
	})
}

func (all *tracesKey) event(e Event) {
	lane.Each(0, len(all.each), func(i int) {
		if event := all.each[i].Event; event != nil {
			event(e)
		}
	})
}

// A tracesCtx is the context of a call, with the values of all contexts that the Traces' Starts
// have returned.
type tracesCtx struct {
	context.Context // of the caller
	all             *tracesKey
	given, own      []context.Context // what each Start got, and what it returned
	known           sync.Map          // the values by key: each would else be looked up in every context of every call above
}

func (c *tracesCtx) Value(key any) any {
	if key == any(c.all) {
		return c
	}
	if v, ok := c.known.Load(key); ok {
		return v
	}
	v := c.find(key)
	c.known.Store(key, v)
	return v
}

func (c *tracesCtx) find(key any) any {
	for i, own := range c.own {
		if v := own.Value(key); !same(v, c.given[i].Value(key)) {
			return v
		}
	}
	return c.Context.Value(key)
}

// An ownCtx is the context of a call within another one, as one of the Traces gets it: it has that
// Trace's values of the call above, unless the caller has replaced them since.
type ownCtx struct {
	context.Context // of the caller
	above           *tracesCtx
	own             context.Context
}

func (c ownCtx) Value(key any) any {
	if v := c.Context.Value(key); !same(v, c.above.Value(key)) {
		return v
	}
	return c.own.Value(key)
}

// same reports whether two values are equal or, where they hold what == cannot compare, whether that
// is one and the same: a context returns what was put into it. Whether two maps have equal contents
// does not matter, since they may be changed later; of two functions nothing is known.
func same(v, w any) bool {
	return reflect.TypeOf(v) == reflect.TypeOf(w) && (v == nil || identical(reflect.ValueOf(v), reflect.ValueOf(w)))
}

// identical is same for values of one type.
func identical(v, w reflect.Value) bool {
	if v.Comparable() && w.Comparable() {
		return v.Equal(w)
	}
	parts, part := 0, reflect.Value.Index
	switch v.Kind() {
	case reflect.Map:
		return v.UnsafePointer() == w.UnsafePointer()
	case reflect.Slice:
		return v.UnsafePointer() == w.UnsafePointer() && v.Len() == w.Len()
	case reflect.Interface:
		v, w = v.Elem(), w.Elem()
		return v.IsValid() && w.IsValid() && v.Type() == w.Type() && identical(v, w)
	case reflect.Struct:
		parts, part = v.NumField(), reflect.Value.Field
	case reflect.Array:
		parts = v.Len()
	default:
		return false
	}
	for i := range parts {
		if !identical(part(v, i), part(w, i)) {
			return false
		}
	}
	return true
}
