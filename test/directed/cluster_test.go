package directed_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/harness"
	"github.com/seed-ce352c9b/redlock/internal/seam"
	"github.com/seed-ce352c9b/redlock/redlocktest"
)

// staged runs f in a bubble with a cluster of n nodes.
func staged(t *testing.T, n int, f func(t *testing.T, c *redlocktest.Cluster)) {
	t.Helper()
	redlocktest.Bubble(t, func(t *testing.T) { f(t, redlocktest.New(t, n)) })
}

// alone is onStage for a test that counts goroutines and so runs beside no other, on nodes that know no script.
func alone(t *testing.T, n int, f func(s *stage)) {
	t.Helper()
	redlocktest.Bubble(t, func(t *testing.T) { f(&stage{harness.NewStage(t, n)}) })
}

func lockerOn(t *testing.T, opt redlock.Options, clients []*redis.Client) *redlock.Locker {
	t.Helper()
	return harness.NewLocker(t, opt, nil, harness.Nodes(clients)...)
}

// warmLocker returns a Locker with clients of its own that has connected to every node and knows
// all scripts.
func warmLocker(t *testing.T, c *redlocktest.Cluster, opt redlock.Options) *redlock.Locker {
	t.Helper()
	l := lockerOn(t, opt, c.Clients())
	warmUp(t, c, l)
	return l
}

// warmUp has the Locker use every node, and then begins the nodes' data and records anew.
func warmUp(t *testing.T, c *redlocktest.Cluster, l *redlock.Locker) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range 2 { // the first may end in timeouts, where nodes are far
		k, err := l.Acquire(ctx, "warm", time.Minute)
		if err != nil {
			t.Fatalf("Acquire of a free lock: got %v, want no error", err)
		}
		time.Sleep(time.Second)
		k.Extend(t.Context())
		time.Sleep(time.Second)
		k.Release(t.Context())
		time.Sleep(time.Second)
		l.Inspect(t.Context(), "warm")
	}
	for i, n := range seam.Peek(l).Nodes {
		if n.Down || n.Owed > 0 {
			t.Fatalf("after the warming-up: node %s is down: %v, owed %d; want used, 0", c.Node(i).Name(), n.Down, n.Owed)
		}
		c.Node(i).FlushAll()
		c.Node(i).Record(true)
	}
}

// warm is warmUp for the stage's nodes.
func (s *stage) warm(l *redlock.Locker) {
	s.Helper()
	warmUp(s.T, s.Cluster, l)
}

// took returns how long f takes.
func took(f func()) time.Duration {
	began := time.Now()
	f()
	return time.Since(began)
}

// within polls every millisecond until ok or the limit, and returns how long that took and whether
// ok was true.
func within(limit time.Duration, ok func() bool) (time.Duration, bool) {
	began := time.Now()
	for !ok() {
		if time.Since(began) >= limit {
			return limit, false
		}
		time.Sleep(time.Millisecond)
	}
	return time.Since(began), true
}

// keyOf returns the key of the lock that a command is about.
func keyOf(args []string) string {
	switch name := strings.ToLower(args[0]); {
	case name == "set" && len(args) > 1:
		return args[1]
	case strings.HasPrefix(name, "eval") && len(args) > 3:
		return args[3]
	}
	return ""
}

// heard returns the verbs of what a node has executed for a key, PINGs included. Record has to be
// on.
func heard(n *redlocktest.Node, key string) (words []string) {
	for _, c := range n.Log() {
		switch w := harness.Verb(c.Args); w {
		case "", "touch", "turn", "wait", "leave", "guard":
		default:
			if w == "ping" || keyOf(c.Args) == key {
				words = append(words, w)
			}
		}
	}
	return words
}

// count returns how many of the words are w.
func count(words []string, w string) (n int) {
	for _, x := range words {
		if x == w {
			n++
		}
	}
	return n
}

// A tap is a go-redis hook around pipelines.
type tap func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error

func (tap) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (tap) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (h tap) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { return h(ctx, cmds, next) }
}

// answersOf returns the votes of the round that an error carries, in New's order.
func answersOf(err error) string {
	var q *redlock.QuorumError
	if !errors.As(err, &q) {
		return fmt.Sprintf("no votes in %v", err)
	}
	var all []string
	for _, v := range q.Round.Votes {
		all = append(all, v.Answer.String())
	}
	return strings.Join(all, " ")
}

// heldUp delays the first commands with this verb for this key, and what follows them on their
// connection.
func heldUp(n *redlocktest.Node, verb, key string, times int, d time.Duration) {
	harness.On(n, verb, key, func(n int, _ []string) {
		if n <= times {
			time.Sleep(d)
		}
	})
}

// unanswered drops the replies to the first commands with this verb for this key: they are
// executed, and the connection is reset.
func unanswered(n *redlocktest.Node, verb, key string, times int) {
	harness.On(n, verb, key, func(nth int, _ []string) {
		if nth <= times {
			n.DropReplies(1)
		}
	})
}
