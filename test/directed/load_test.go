package directed_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/harness"
	"github.com/seed-ce352c9b/redlock/internal/seam"
	"github.com/seed-ce352c9b/redlock/redlocktest"
)

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
		for i := range 6000 { // a hundred a second
			key := "held"
			if i%20 == 0 {
				key = fmt.Sprint("new", i)
			}
			var k *redlock.Lock
			var err error
			if d := took(func() { k, err = l.TryAcquire(t.Context(), key, time.Hour) }); d > time.Millisecond {
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
		back, ok := within(2*time.Second, func() bool {
			k := harness.Try(t, l, "after", time.Hour)
			time.Sleep(time.Millisecond)
			value, _ := n.Get("after")
			k.Release(t.Context())
			return value == k.Value()
		})
		if !ok || back > time.Second {
			t.Errorf("used again after it woke: got %v (ever: %v), want within a second", back, ok)
		}
		released := 0
		for _, cmd := range n.Log() {
			switch key := keyOf(cmd.Args); {
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
	const clients = 100
	staged(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		var lockers []*redlock.Locker
		for i := range clients {
			l, err := harness.NewSeamed(redlock.Options{Name: fmt.Sprint("c", i)}, nil, nil, uint64(i), c.Nodes()...)
			if err != nil {
				t.Fatal(err)
			}
			lockers = append(lockers, l)
		}
		defer func() {
			for _, l := range lockers {
				l.Close()
			}
		}()
		var wg sync.WaitGroup
		var mu sync.Mutex
		var won []*redlock.Lock
		for _, l := range lockers {
			wg.Go(func() {
				k, err := l.TryAcquire(t.Context(), "jobs/42", time.Minute)
				if err != nil {
					harness.CheckIs(t, "TryAcquire by one of a hundred at one instant", err, redlock.ErrHeld)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				won = append(won, k)
			})
		}
		wg.Wait()
		if len(won) > 1 {
			t.Errorf("winners of a hundred at one instant: got %d, want at most one", len(won))
		}
		for _, k := range won {
			harness.CheckIs(t, "Release", k.Release(t.Context()))
		}
		time.Sleep(time.Second)

		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		began := time.Now()
		first := time.Duration(0)
		holders := 0
		for _, l := range lockers {
			wg.Go(func() {
				k, err := l.Acquire(ctx, "jobs/43", time.Minute)
				if err != nil {
					harness.CheckIs(t, "Acquire by one of a hundred, which ended when one had won", err, context.Canceled)
					return
				}
				mu.Lock()
				holders++
				if first == 0 {
					first = time.Since(began)
					cancel() // one is enough
				}
				mu.Unlock()
				defer k.Release(context.Background())
				time.Sleep(time.Second)
			})
		}
		wg.Wait()
		if first == 0 || first > 3*time.Second {
			t.Errorf("the first of a hundred that wait has the lock after: got %v (0: none), want within 3 s", first)
		}
		harness.Check(t, "holders", holders, 1)
		harness.CheckClean(t, c, lockers...)
	})
}

// Each of two clients reaches another minority: neither wins, and once the network
// is whole again one does, and then the other.
//
// Attack 30.
func TestClientsWithDisjointMinoritiesGoOnAfterTheHeal(t *testing.T) {
	staged(t, 5, func(t *testing.T, c *redlocktest.Cluster) {
		ca, cb := c.Clients(), c.Clients()
		a, b := lockerOn(t, redlock.Options{Name: "a"}, ca), lockerOn(t, redlock.Options{Name: "b"}, cb)
		for _, l := range []*redlock.Locker{a, b} {
			harness.Try(t, l, "warm", time.Minute).Release(t.Context())
			time.Sleep(10 * time.Millisecond)
		}
		c.Cut(ca[2:]...)
		c.Cut(cb[:3]...)
		var wg sync.WaitGroup
		healed := time.Now().Add(5 * time.Second)
		for _, l := range []*redlock.Locker{a, b} {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				k, err := l.Acquire(ctx, "jobs/42", 2*time.Second)
				harness.CheckIs(t, "Acquire over a partition that heals", err)
				if err != nil {
					return
				}
				if time.Now().Before(healed) {
					t.Errorf("a lock by two of five nodes: got one %v before the heal, want none", time.Until(healed))
				}
				if d := time.Since(healed); d > 4*time.Second {
					t.Errorf("a lock after the heal: got it after %v, want within 4 s", d)
				}
				time.Sleep(10 * time.Millisecond)
				harness.CheckIs(t, "Release", k.Release(t.Context()))
			})
		}
		time.Sleep(time.Until(healed))
		c.Mend(ca[2:]...)
		c.Mend(cb[:3]...)
		wg.Wait()
		harness.CheckClean(t, c, a, b)
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
