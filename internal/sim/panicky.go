package sim

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/wrapped"
)

// This file simulates user code that panics: callbacks, and clients of nodes.

// A thrown is the value with which simulated code panics.
type thrown string

var errThrown = errors.New("sim: a callback panicked")

// recovered calls f. It returns errThrown if simulated code panics in f.
func recovered(f func() error) (err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case thrown:
			err = errThrown
		default:
			panic(p)
		}
	}()
	return f()
}

// maybePanic panics now and then, as a callback might, but only where the panic can be recovered: in a call from a task. The library
// also calls some callbacks on its own goroutines, where a panic ends the process. Which ones these are is up to the library, so
// maybePanic examines the stack.
func (c *client) maybePanic(what ...uint64) {
	if c.i >= len(c.w.s.Clients) {
		return
	}
	n := c.w.s.Clients[c.i].Panics
	if n > 0 && mix(append(what, c.w.s.Seed, uint64(c.i))...)%uint64(n) == 0 && recoverable() {
		panic(thrown("a callback"))
	}
}

// recoverable reports whether recovered is among the callers.
func recoverable() bool {
	pc := make([]uintptr, 64)
	frames := runtime.CallersFrames(pc[:runtime.Callers(2, pc)])
	for {
		f, more := frames.Next()
		if strings.HasSuffix(f.Function, "/sim.recovered") {
			return true
		}
		if !more {
			return false
		}
	}
}

// trace returns an Options.Trace. Where callbacks panic, all of its functions do, and the contexts of Start never end.
func (c *client) trace() redlock.Trace {
	t := redlock.Trace{Round: c.observe}
	if c.i >= len(c.w.s.Clients) || c.w.s.Clients[c.i].Panics == 0 {
		return t
	}
	boom := func(what uint64, key string) {
		c.maybePanic(what, uint64(time.Now().UnixNano()), hashOf(key))
	}
	t.Start = func(ctx context.Context, call redlock.Call) context.Context {
		boom(1, call.Key)
		return context.WithoutCancel(ctx)
	}
	t.End = func(_ context.Context, call redlock.Call, _ error) {
		if call.Method != "Adopt" { // the adopted lock is released, and the giver's claim, which goes on for the judges, has ended
			boom(2, call.Key)
		}
	}
	t.Event = func(e redlock.Event) {
		if e.Kind != redlock.EventAcquired { // as above
			boom(3, e.Node)
		}
	}
	return t
}

// retry is an Options.Retry that resembles the default.
func (c *client) retry(attempt int) time.Duration {
	c.maybePanic(uint64(attempt), uint64(time.Now().UnixNano()))
	return min(10*ms<<min(attempt-1, 5), 250*ms)
}

// wrapNodes wraps a client's nodes as a user might: in a foreign type, and in one whose calls panic.
func (c *client) wrapNodes() {
	for i, n := range c.nodes {
		t := panickyNode{n, c, i}
		s, ok := n.(subscriber)
		wrapped := c.i < len(c.w.s.Clients) && c.w.s.Clients[c.i].Wrapped
		switch {
		case wrapped:
			c.nodes[i] = t // hides all methods but the two of redlock.Node
		case ok:
			c.nodes[i] = subscribingPanickyNode{t, s}
		default:
			c.nodes[i] = namedPanickyNode{t}
		}
	}
}

type subscriber interface {
	redlock.Node
	Options() *redis.Options
	Subscribe(ctx context.Context, channels ...string) *redis.PubSub
}

// A panickyNode is a node whose calls panic while a fault is active, before or after anything is sent.
type panickyNode struct {
	redlock.Node
	c *client
	i int
}

type namedPanickyNode struct{ panickyNode }

func (t namedPanickyNode) Options() *redis.Options { return t.Node.(pollingNode).Options() }

type subscribingPanickyNode struct {
	panickyNode
	sub subscriber
}

func (t subscribingPanickyNode) Options() *redis.Options { return t.sub.Options() }

func (t subscribingPanickyNode) Subscribe(ctx context.Context, channels ...string) *redis.PubSub {
	t.maybePanic()
	return t.sub.Subscribe(ctx, channels...)
}

func (t panickyNode) maybePanic() {
	w := t.c.w
	w.mu.Lock()
	on := w.throws[[2]int{t.c.i, t.i}] > 0
	w.mu.Unlock()
	if on && mix(w.s.Seed, uint64(t.c.i), uint64(t.i), uint64(w.now()))%4 == 0 {
		panic(thrown("a client"))
	}
}

func (t panickyNode) Process(ctx context.Context, cmd redis.Cmder) error {
	t.maybePanic()
	err := t.Node.Process(ctx, cmd)
	t.maybePanic()
	return err
}

func (t panickyNode) Pipeline() redis.Pipeliner {
	return &wrapped.Pipeline{
		Pipeliner: t.Node.Pipeline(),
		OnExec: func(ctx context.Context, exec func(context.Context) ([]redis.Cmder, error)) ([]redis.Cmder, error) {
			t.maybePanic()
			cmds, err := exec(ctx)
			t.maybePanic()
			return cmds, err
		},
	}
}

func (w *world) throw(f Fault) (end func()) {
	at := [2]int{f.Client % len(w.s.Clients), f.Node % w.c.Len()}
	add := func(n int) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.throws[at] += n
	}
	add(+1)
	return func() { add(-1) }
}
