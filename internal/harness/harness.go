// Package harness has what the test suites of this module share: Lockers with seeds, checks, the names of the
// library's commands, and a Stage, on which the tests in virtual time run.
package harness

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ce352c9b/redlock"
	_ "github.com/seed-ce352c9b/redlock/internal/rapidseed" // the same cases each time
	"github.com/seed-ce352c9b/redlock/internal/seam"
)

// NewSeamed is redlock.New with a steady clock, a wall clock (nil: the real ones) and a seed for everything random.
var NewSeamed = seam.NewLocker.(func(opt redlock.Options, steady, wall func() time.Time, seed uint64, nodes ...redlock.Node) (*redlock.Locker, error))

// NewLocker returns a Locker with a seed of its own. It is closed with the test. nil clocks are the real ones.
func NewLocker(t testing.TB, opt redlock.Options, clocks *Clocks, nodes ...redlock.Node) *redlock.Locker {
	t.Helper()
	return newLocker(t, opt, clocks, Seed(t), nodes)
}

func newLocker(t testing.TB, opt redlock.Options, clocks *Clocks, seed uint64, nodes []redlock.Node) *redlock.Locker {
	t.Helper()
	var steady, wall func() time.Time
	if clocks != nil {
		steady, wall = clocks.Steady, clocks.Wall
	}
	l, err := NewSeamed(opt, steady, wall, seed, nodes...)
	if err != nil {
		t.Fatalf("New: got %v, want no error", err)
	}
	t.Cleanup(func() { l.Close() }) // an error says that the test has closed it already
	return l
}

// Nodes returns clients as nodes.
func Nodes(clients []*redis.Client) []redlock.Node {
	nodes := make([]redlock.Node, len(clients))
	for i, c := range clients {
		nodes[i] = c
	}
	return nodes
}

// Seed returns a seed that no other Locker of the test has, and the same ones in every run of the test. With equal
// seeds, two Lockers with the same name would store the same values, and the nodes could not tell them apart.
func Seed(t testing.TB) uint64 {
	seeds.Lock()
	defer seeds.Unlock()
	name := t.Name()
	next, known := seeds.next[name]
	if !known {
		h := fnv.New64a() // distinct from the seeds of a subtest, which may use the Lockers of its parent
		io.WriteString(h, name)
		next = h.Sum64()
		t.Cleanup(func() {
			seeds.Lock()
			defer seeds.Unlock()
			delete(seeds.next, name)
		})
	}
	seeds.next[name] = next + 1
	return next
}

var seeds = struct {
	sync.Mutex
	next map[string]uint64 // by test
}{next: make(map[string]uint64)}

// Rounds returns how often a test repeats something random: short times, or long times with REDLOCK_LONG.
func Rounds(short, long int) int {
	if os.Getenv("REDLOCK_LONG") != "" {
		return long
	}
	return short
}

// Checks sets how many cases rapid checks, short or long with REDLOCK_LONG, unless -rapid.checks says so. The function that it
// returns takes that back. Tests that call it must not be parallel.
func Checks(short, long int) (restore func()) {
	restore = func() {}
	if f := flag.Lookup("rapid.checks"); f.Value.String() == f.DefValue {
		if Sparing {
			short = (short + 2) / 3
		}
		f.Value.Set(strconv.Itoa(Rounds(short, long)))
		restore = func() { f.Value.Set(f.DefValue) }
	}
	return restore
}

// Check fails the test if got is not want.
func Check[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// CheckIs fails the test unless err is each of want; without want, unless it is nil.
func CheckIs(t testing.TB, what string, err error, want ...error) {
	t.Helper()
	if len(want) == 0 && err != nil {
		t.Errorf("%s: got %v, want no error", what, err)
	}
	for _, w := range want {
		if !errors.Is(err, w) {
			t.Errorf("%s: got %v, want an error that is %v", what, err, w)
		}
	}
}

// CheckIsNot fails the test if err is any of wrong: an error must not claim what did not happen.
func CheckIsNot(t testing.TB, what string, err error, wrong ...error) {
	t.Helper()
	for _, w := range wrong {
		if errors.Is(err, w) {
			t.Errorf("%s: got %v, which is also %v, want not that", what, err, w)
		}
	}
}

// Try is TryAcquire that has to succeed.
func Try(t testing.TB, l *redlock.Locker, key string, ttl time.Duration) *redlock.Lock {
	t.Helper()
	k, err := l.TryAcquire(t.Context(), key, ttl)
	if err != nil {
		t.Fatalf("TryAcquire of a free lock: got %v, want no error", err)
	}
	return k
}

// Background calls f in a goroutine and sends its error.
func Background(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return done
}

// Took returns how long f takes.
func Took(f func()) time.Duration {
	began := time.Now()
	f()
	return time.Since(began)
}

// Within polls every millisecond until ok or the limit, and returns how long that took and whether ok was true.
func Within(limit time.Duration, ok func() bool) (time.Duration, bool) {
	began := time.Now()
	for !ok() {
		if time.Since(began) >= limit {
			return limit, false
		}
		time.Sleep(time.Millisecond)
	}
	return time.Since(began), true
}

// AnswersOf returns the votes of the round that an error carries, in New's order.
func AnswersOf(err error) string {
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

// NoWork is what Run calls where a test is about the call alone.
func NoWork(context.Context, *redlock.Lock) error { return nil }

// A Client has the methods of a *redis.Client that a Locker calls. Wrappers embed it, and not the client, whose 500
// methods would be compiled for each of them.
type Client interface {
	redlock.Node
	Options() *redis.Options
	Subscribe(ctx context.Context, channels ...string) *redis.PubSub
}

// A Tap is a go-redis hook around pipelines.
type Tap func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error

func (Tap) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (Tap) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (h Tap) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { return h(ctx, cmds, next) }
}

// Panics reports whether f does.
func Panics(f func()) (did bool) {
	defer func() { did = recover() != nil }()
	f()
	return
}

// A Trap is a panic of a callback, once it is armed, and only once.
type Trap struct{ Armed atomic.Bool }

// Spring panics if the Trap is armed.
func (p *Trap) Spring() {
	if p.Armed.CompareAndSwap(true, false) {
		panic("the caller's own")
	}
}

// At returns options whose Trace.Round panics at an operation; 0: whose Retry does.
func (p *Trap) At(op redlock.Op) redlock.Options {
	spring := func(now redlock.Op) {
		if now == op {
			p.Spring()
		}
	}
	return redlock.Options{
		Trace: redlock.Trace{Round: func(_ context.Context, r redlock.Round) { spring(r.Op) }},
		Retry: func(int) time.Duration { spring(0); return 10 * time.Millisecond },
	}
}

// Second returns the error of a call that returns two values.
func Second[T any](_ T, err error) error { return err }

// Expires reports whether a key that is left on a node is about to expire: the entry of a waiter on a node that did
// not reply stays in its queue until the queue's TTL expires.
func Expires(key string, ttl time.Duration) bool {
	queue := strings.HasSuffix(key, ":queue")
	return queue && ttl > 0 && ttl <= 15*time.Second || ttl == -2 // -2: it has just expired
}
