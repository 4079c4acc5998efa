package calls_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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

// warmLocker returns a Locker with clients of its own that has connected to every node and knows
// all scripts.
func warmLocker(t *testing.T, c *redlocktest.Cluster, opt redlock.Options) *redlock.Locker {
	t.Helper()
	l := harness.NewLocker(t, opt, nil, harness.Nodes(c.Clients())...)
	harness.WarmUp(t, c, l)
	return l
}

// Attack 76.
func TestNodeThatHangsForAMinuteUnderLoadCostsLittle(t *testing.T) {
	staged(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		l := warmLocker(t, c, redlock.Options{})
		var locks []*redlock.Lock
		for i := range 20 {
			locks = append(locks, harness.Try(t, l, fmt.Sprint("old", i), time.Hour))
		}
		other := harness.Try(t, l, "held", time.Hour)
		time.Sleep(time.Millisecond)
		before := runtime.NumGoroutine()
		n := c.Node(2)
		n.Hang()
		for _, k := range locks {
			harness.CheckIs(t, "Release", k.Release(t.Context()))
		}
		mostConns, mostGoroutines, mostOwed := 0, 0, 0
		rounds := 6000
		if harness.Sparing {
			rounds = 1200
		}
		for i := range rounds { // a hundred a second
			key := "held"
			if i%20 == 0 {
				key = fmt.Sprint("new", i)
			}
			var k *redlock.Lock
			var err error
			if d := harness.Took(func() { k, err = l.TryAcquire(t.Context(), key, time.Hour) }); d > time.Millisecond {
				t.Fatalf("TryAcquire number %d beside a hung node: took %v, want what the others take", i, d)
			}
			if key == "held" {
				harness.CheckIs(t, "TryAcquire of a held lock beside a hung node", err, redlock.ErrHeld)
			} else if harness.CheckIs(t, "TryAcquire beside a hung node", err); err == nil {
				harness.CheckIs(t, "Release beside a hung node", k.Release(t.Context()))
			}
			mostConns = max(mostConns, n.Connections())
			mostGoroutines = max(mostGoroutines, runtime.NumGoroutine()-before)
			mostOwed = max(mostOwed, seam.Peek(l).Nodes[2].Owed)
			time.Sleep(10 * time.Millisecond)
		}
		if mostConns > 40 {
			t.Errorf("connections to a node that hangs for a minute: got %d, want at most 40", mostConns)
		}
		// The simulated server keeps one for each connection that was ever made to it.
		if mostGoroutines > 300 {
			t.Errorf("goroutines more than before: got %d, want at most 300", mostGoroutines)
		}
		if mostOwed < 20 || mostOwed > 400 {
			t.Errorf("owed to the hung node: got %d, want 20 to 400", mostOwed)
		}
		harness.CheckIs(t, "Release", other.Release(t.Context()))
		n.Record(true)
		n.Resume()
		back, ok := harness.Within(2*time.Second, func() bool {
			k := harness.Try(t, l, "after", time.Hour)
			time.Sleep(time.Millisecond)
			value, _ := n.Get("after")
			k.Release(t.Context())
			return value == k.Value().Secret()
		})
		if !ok || back > time.Second {
			t.Errorf("used again after it woke: got %v (ever: %v), want within a second", back, ok)
		}
		released := 0
		for _, cmd := range n.Log() {
			switch key := harness.KeyOf(cmd.Args); {
			case strings.HasPrefix(key, "old"):
				released++
			case key == "after" && harness.Verb(cmd.Args) == "acquire" && released < 20:
				t.Fatalf("what a node hears that wakes: got a new acquire after %d of 20 owed releases, want all of them before", released)
			}
		}
		harness.CheckClean(t, c, l)
		if n := runtime.NumGoroutine() - before; n > 40 {
			t.Errorf("goroutines more than before, after it woke: got %d, want at most 40", n)
		}
	})
}

// Attack 93.
func TestNamesUsedOnceLeaveNothing(t *testing.T) {
	staged(t, 1, func(t *testing.T, c *redlocktest.Cluster) {
		l := warmLocker(t, c, redlock.Options{})
		const names = 1000 // the simulated server looks at every key at every command
		var wg sync.WaitGroup
		for w := range 100 {
			wg.Go(func() {
				for i := w; i < names; i += 100 {
					k, err := l.TryAcquire(t.Context(), fmt.Sprint("name", i), time.Minute)
					if err != nil {
						t.Errorf("TryAcquire: got %v, want no error", err)
						return
					}
					if i%10 == 0 { // left to expire
						continue
					}
					harness.CheckIs(t, "Release", k.Release(t.Context()))
				}
			})
		}
		wg.Wait()
		time.Sleep(2 * time.Minute)
		harness.Check(t, "registers", len(c.Node(0).Keys()), names)
		harness.CheckClean(t, c, l)
		time.Sleep(26 * time.Hour)
		harness.Check(t, "keys a day later", len(c.Node(0).Keys()), 0)
	})
}

func TestKeptAliveLocksCostNoGoroutineEach(t *testing.T) {
	staged(t, 1, func(t *testing.T, c *redlocktest.Cluster) {
		l := warmLocker(t, c, redlock.Options{})
		before := runtime.NumGoroutine()
		const locks = 500 // the simulated server looks at every key at every command
		var wg sync.WaitGroup
		var mu sync.Mutex
		var all []context.Context
		for w := range 100 {
			wg.Go(func() {
				for i := w; i < locks; i += 100 {
					k, err := l.TryAcquire(t.Context(), fmt.Sprint("k", i), 3*time.Minute)
					if err != nil {
						t.Errorf("TryAcquire: got %v, want no error", err)
						return
					}
					held, _ := k.KeepAlive(context.Background())
					mu.Lock()
					all = append(all, held)
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		harness.Check(t, "locks on the list", seam.Peek(l).Held, locks)
		most := 0
		for range 65 { // past the renewal at a third of the ttl
			time.Sleep(time.Second)
			most = max(most, runtime.NumGoroutine()-before)
		}
		if most > 40 {
			t.Errorf("goroutines for %d locks under KeepAlive: got %d more than before, want at most 40", locks, most)
		}
		ended := 0
		for _, held := range all {
			if held.Err() != nil {
				ended++
			}
		}
		harness.Check(t, "KeepAlive contexts that ended", ended, 0)
		harness.CheckIs(t, "Close", l.Close())
		for _, held := range all {
			if !errors.Is(context.Cause(held), redlock.ErrClosed) {
				t.Fatalf("cause of the end of a KeepAlive context: got %v, want ErrClosed", context.Cause(held))
			}
		}
		harness.Check(t, "keys after Close", len(harness.LocksOn(c.Node(0))), 0)
	})
}

// Attack 87.
func TestHundredClientsAtOneInstant(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		var lockers []*redlock.Locker
		for range 100 {
			lockers = append(lockers, s.Cold(redlock.Options{}, nil, s.Cluster.Nodes()))
		}
		var wg sync.WaitGroup
		var winners, holders atomic.Int32
		for _, l := range lockers {
			wg.Go(func() {
				k, err := l.TryAcquire(s.Ctx, job, time.Minute)
				if err != nil {
					s.Is("TryAcquire by one of a hundred at one instant", err, redlock.ErrHeld)
					return
				}
				winners.Add(1)
				time.Sleep(time.Second)
				s.Is("Release", k.Release(s.Ctx), nil)
			})
		}
		wg.Wait()
		if got := winners.Load(); got > 1 {
			t.Errorf("winners of a hundred at one instant: got %d, want at most one", got)
		}
		time.Sleep(time.Second)

		ctx, cancel := context.WithCancel(s.Ctx) // when one has won
		defer cancel()
		began := time.Now()
		for _, l := range lockers {
			wg.Go(func() {
				k, err := l.Acquire(ctx, job, time.Minute)
				if err != nil {
					s.Is("Acquire by one of a hundred", err, context.Canceled)
					return
				}
				if d := time.Since(began); d > 3*time.Second {
					t.Errorf("the first of a hundred that wait has the lock after %v, want within 3 s", d)
				}
				holders.Add(1)
				cancel()
				time.Sleep(time.Second)
				s.Is("Release", k.Release(s.Ctx), nil)
			})
		}
		wg.Wait()
		harness.Check(s, "holders", holders.Load(), 1)
		s.Clean(lockers...)
	})
}

// Each of two clients reaches another minority: neither wins, and once the network
// is whole again one does, and then the other.
//
// Attacks 30, 34.
func TestClientsWithDisjointMinoritiesGoOnAfterTheHeal(t *testing.T) {
	onStage(t, 5, func(s *stage) {
		ca, cb := s.Cluster.Clients(), s.Cluster.Clients()
		a, b := s.LockerWith(redlock.Options{Name: "a"}, nil, harness.Nodes(ca)), s.LockerWith(redlock.Options{Name: "b"}, nil, harness.Nodes(cb))
		s.Cluster.Cut(ca[2:]...)
		s.Cluster.Cut(cb[:3]...)
		healed := time.Now().Add(10 * time.Second)
		var wg sync.WaitGroup
		var inside atomic.Int32
		for _, l := range []*redlock.Locker{a, b} {
			wg.Go(func() {
				k, err := l.Acquire(s.Ctx, job, 2*time.Second)
				if s.Is("Acquire over a partition that heals", err, nil); err != nil {
					return
				}
				if d := time.Since(healed); d < 0 || d > 4*time.Second {
					s.Errorf("a lock %v after the heal, want one within 4 s, and none before: it would be by two of five nodes", d)
				}
				harness.Check(s, "holders", inside.Add(1), 1)
				time.Sleep(10 * time.Millisecond)
				inside.Add(-1)
				s.Is("Release", k.Release(s.Ctx), nil)
			})
		}
		time.Sleep(time.Until(healed))
		s.Cluster.Mend(ca[2:]...)
		s.Cluster.Mend(cb[:3]...)
		wg.Wait()
		s.Clean(a, b)
	})
}

// A program that leaves its locks to their ttl does not keep them all in memory.
func TestExpiredLocksLeaveTheList(t *testing.T) {
	staged(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		l := warmLocker(t, c, redlock.Options{})
		long := harness.Try(t, l, "long", time.Hour)
		var short []*redlock.Lock
		for i := range 20 {
			short = append(short, harness.Try(t, l, fmt.Sprint("short", i), time.Second))
		}
		if got := seam.Peek(l).Held; got != 21 {
			t.Fatalf("locks on the list: got %d, want 21", got)
		}
		time.Sleep(time.Minute)
		harness.Check(t, "locks on the list a minute after 20 of 21 expired", seam.Peek(l).Held, 1)
		harness.CheckIs(t, "Release of an expired lock", short[0].Release(t.Context()), redlock.ErrLost)
		harness.CheckIs(t, "Release", long.Release(t.Context()))
	})
}
