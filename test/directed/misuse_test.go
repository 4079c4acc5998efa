package directed_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/harness"
	"github.com/seed-ce352c9b/redlock/internal/seam"
	"github.com/seed-ce352c9b/redlock/redlocktest"
)

// Release in a loop while a majority is down drops what is owed for other locks.
func TestRepeatedReleasesDoNotCrowdOutWhatIsOwedForOthers(t *testing.T) {
	t.Parallel()
	staged(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		l := warmLocker(t, c, redlock.Options{})
		a := harness.Try(t, l, "a", time.Hour)
		k := harness.Try(t, l, "k", time.Hour)
		time.Sleep(10 * time.Millisecond)
		c.Node(1).Stop()
		c.Node(2).Stop()
		a.Release(t.Context())
		k.Release(t.Context())
		before := seam.Peek(l).Nodes[1].Owed
		// As often as there is room for debts, and it would be dropped.
		for range harness.Rounds(300, 16500) {
			k.Release(t.Context())
		}
		if got := seam.Peek(l).Nodes[1].Owed; got != before {
			t.Errorf("owed: got %d after releases that were owed already, want %d", got, before)
		}
		c.Node(1).Start()
		c.Node(2).Start()
		time.Sleep(time.Minute)
		for i := range 3 {
			if _, ok := c.Node(i).Get("a"); ok {
				t.Errorf("node %d still has lock a a minute after it is back: its release was dropped", i)
			}
		}
	})
}

// A restore under way is forgotten when another clean-up of the key begins.
func TestAReleaseWaitsForTheRestoreThoughAnotherCleanUpBegan(t *testing.T) { restoreDisplaced(t, true) }
func TestAReleaseWaitsForTheRestore(t *testing.T)                          { restoreDisplaced(t, false) }
func restoreDisplaced(t *testing.T, displace bool) {
	staged(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		l := warmLocker(t, c, redlock.Options{})
		k := harness.Try(t, l, "k", 20*time.Second)
		o := harness.Try(t, l, "o", 20*time.Second)
		o2, err := l.Adopt(t.Context(), "o", o.Value(), 20*time.Second) // so that the script is known
		if err != nil {
			t.Fatal(err)
		}
		o2.Release(t.Context())
		time.Sleep(time.Second)
		// adopt: reaches all, but is given up; its restore meets a slow way
		c.Node(2).Delay(0, 40*time.Millisecond)
		c.Node(1).Delay(0, 40*time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		_, err = l.Adopt(ctx, "k", k.Value(), 20*time.Second)
		t.Log("adopt:", err)
		ctx2, cancel2 := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel2()
		if displace {
			_, err = l.TryAcquire(ctx2, "k", 20*time.Second)
			t.Log("try:", err)
		}
		c.Node(2).Delay(0, 0)
		c.Node(1).Delay(0, 0)
		err = k.Release(t.Context())
		t.Log("release:", err, heard(c.Node(1), "k"), heard(c.Node(2), "k"))
		time.Sleep(5 * time.Second)
		for i := range 3 {
			if v, ok := c.Node(i).Get("k"); ok {
				t.Errorf("node %d still has %s; heard %v", i, v, heard(c.Node(i), "k"))
			}
		}
	})
}

// Lost is final?
func TestAWallClockSetForwardAndBackLeavesTheLockToClose(t *testing.T) {
	staged(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		var h harness.Clocks
		l, err := harness.NewSeamed(redlock.Options{}, h.Steady, h.Wall, harness.Seed(t), c.Nodes()...)
		if err != nil {
			t.Fatal(err)
		}
		k := harness.Try(t, l, "k", time.Minute)
		h.MoveWall(time.Hour)
		time.Sleep(2 * time.Second)
		v1 := k.Valid()
		h.MoveWall(-time.Hour)
		v2 := k.Valid()
		t.Log("valid", v1, v2, "held", seam.Peek(l).Held)
		held, stop := k.KeepAlive(t.Context())
		defer stop()
		l.Close()
		t.Log("held ctx after Close:", held.Err(), context.Cause(held))
		if held.Err() == nil {
			t.Error("the KeepAlive context did not end with Close")
		}
		for i := range 3 {
			if _, ok := c.Node(i).Get("k"); ok {
				t.Errorf("node %d still has the lock after Close", i)
			}
		}
		<-held.Done()
		t.Log(context.Cause(held))
	})
}

// Extends that were called after one began share it, where it began after them.
func TestConcurrentExtendsShareRounds(t *testing.T) {
	staged(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		l := warmLocker(t, c, redlock.Options{})
		k := harness.Try(t, l, "k", 10*time.Second)
		for i := range 3 {
			c.Node(i).Delay(5*time.Millisecond, 5*time.Millisecond)
		}
		var wg sync.WaitGroup
		d := took(func() {
			for range 100 {
				wg.Go(func() { harness.CheckIs(t, "Extend", k.Extend(t.Context())) })
			}
			wg.Wait()
		})
		if d > 40*time.Millisecond {
			t.Errorf("100 Extends at once, 10 ms away: took %v, want a few rounds", d)
		}
	})
}

func TestALockThatFnGivesUpItselfWasNotHeldToTheEnd(t *testing.T) {
	staged(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		l := warmLocker(t, c, redlock.Options{})
		err := l.Run(t.Context(), "k", time.Minute, func(ctx context.Context, lock *redlock.Lock) error { return lock.Release(ctx) })
		harness.CheckIs(t, "Run", err, redlock.ErrLost)
		if err != nil && !strings.Contains(err.Error(), "released before") {
			t.Errorf("got %v, want it to say why", err)
		}
	})
}

// Two attempts at once, both given up: the one whose rollback takes longer must not be forgotten for the other.
func TestAnAttemptGoesAfterEveryRollback(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		for i := range 3 {
			s.Node(i).Delay(40*time.Millisecond, 0)
		}
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(s.Ctx, 10*time.Millisecond)
				defer cancel()
				_, err := l.TryAcquire(ctx, job, 20*time.Second)
				s.Is("TryAcquire", err, context.DeadlineExceeded)
			})
			time.Sleep(time.Millisecond)
		}
		wg.Wait()
		time.Sleep(35 * time.Millisecond) // the first one's rollback is on its way, the second one's is done
		for i := range 3 {
			s.Node(i).Delay(0, 0)
		}
		k, err := l.TryAcquire(s.Ctx, job, 20*time.Second)
		s.Is("TryAcquire", err, nil)
		if err == nil {
			s.Is("Release", k.Release(s.Ctx), nil)
		}
		s.Clean(l)
	})
}

// Each mistake of a program is one panic that says what is wrong, before anything is sent.
func TestMistakesOfTheProgramPanic(t *testing.T) {
	staged(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		l := warmLocker(t, c, redlock.Options{})
		k := harness.Try(t, l, "jobs/42", time.Hour)
		time.Sleep(3 * time.Second) // its registers have been given a life
		for i := range 3 {
			c.Node(i).Record(true)
		}
		ctx := t.Context()
		var none context.Context
		fn := func(context.Context, *redlock.Lock) error { return nil }
		for _, mistakes := range []struct {
			says  string
			calls map[string]func()
		}{
			{"nil ctx", map[string]func(){
				"TryAcquire": func() { l.TryAcquire(none, "a", time.Minute) },
				"Acquire":    func() { l.Acquire(none, "a", time.Minute) },
				"Run":        func() { l.Run(none, "a", time.Minute, fn) },
				"Adopt":      func() { l.Adopt(none, "a", "x", time.Minute) },
				"Inspect":    func() { l.Inspect(none, "a") },
				"Extend":     func() { k.Extend(none) },
				"KeepAlive":  func() { k.KeepAlive(none) },
				"Release":    func() { k.Release(none) },
			}},
			{"nil fn", map[string]func(){"Run": func() { l.Run(ctx, "a", time.Minute, nil) }}},
			{"New or Open", map[string]func(){
				"TryAcquire":        func() { new(redlock.Locker).TryAcquire(ctx, "a", time.Minute) },
				"Acquire":           func() { new(redlock.Locker).Acquire(ctx, "a", time.Minute) },
				"Run":               func() { new(redlock.Locker).Run(ctx, "a", time.Minute, fn) },
				"Adopt":             func() { new(redlock.Locker).Adopt(ctx, "a", "x", time.Minute) },
				"Inspect":           func() { new(redlock.Locker).Inspect(ctx, "a") },
				"Close":             func() { new(redlock.Locker).Close() },
				"TryAcquire of nil": func() { (*redlock.Locker)(nil).TryAcquire(ctx, "a", time.Minute) },
				"Close of nil":      func() { (*redlock.Locker)(nil).Close() },
			}},
			{"never acquired", map[string]func(){
				"Key":            func() { new(redlock.Lock).Key() },
				"Value":          func() { new(redlock.Lock).Value() },
				"Fence":          func() { new(redlock.Lock).Fence() },
				"Until":          func() { new(redlock.Lock).Until() },
				"Valid":          func() { new(redlock.Lock).Valid() },
				"Extend":         func() { new(redlock.Lock).Extend(ctx) },
				"KeepAlive":      func() { new(redlock.Lock).KeepAlive(ctx) },
				"Release":        func() { new(redlock.Lock).Release(ctx) },
				"LeaveToExpire":  func() { new(redlock.Lock).LeaveToExpire() },
				"Release of nil": func() { (*redlock.Lock)(nil).Release(ctx) },
				"Valid of nil":   func() { (*redlock.Lock)(nil).Valid() },
			}},
		} {
			for name, call := range mistakes.calls {
				func() {
					defer func() {
						got, _ := recover().(string)
						if !strings.HasPrefix(got, "redlock: ") || !strings.Contains(got, mistakes.says) {
							t.Errorf("%s: got the panic %q, want one that begins with redlock: and says %q", name, got, mistakes.says)
						}
					}()
					call()
				}()
			}
		}
		time.Sleep(time.Second)
		for i := range 3 {
			harness.Check(t, "commands of these calls", len(c.Node(i).Log()), 0)
		}
		harness.Check(t, "Valid of the lock", k.Valid(), true)
	})
}
