package calls_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/harness"
	"github.com/seed-ce352c9b/redlock/redlocktest"
)

// At most k hold a slot, all different ones, and everybody gets one.
func TestAtMostKHoldASlot(t *testing.T) {
	for _, k := range []int{1, 2, 5} {
		runStage(t, fmt.Sprint(k), 3, func(s *stage) {
			const workers, runs = 12, 5
			lockers := []*redlock.Locker{s.Locker(redlock.Options{}), s.Locker(redlock.Options{})}
			var mu sync.Mutex
			held := make(map[int]bool)
			var all sync.WaitGroup
			for w := range workers {
				all.Go(func() {
					for range runs {
						lock, slot, err := lockers[w%2].AcquireSlot(s.Ctx, job, k, 10*time.Second)
						if s.Is("AcquireSlot", err, nil); err != nil {
							return
						}
						harness.Check(s, "the key", lock.Key(), fmt.Sprint(job, "#", slot))
						mu.Lock()
						if held[slot] || len(held) == k {
							s.Errorf("got slot %d, and slots %v are held", slot, held)
						}
						held[slot] = true
						mu.Unlock()
						time.Sleep(3 * time.Millisecond)
						mu.Lock()
						delete(held, slot)
						mu.Unlock()
						s.Is("Release", lock.Release(s.Ctx), nil)
					}
				})
			}
			all.Wait()
			time.Sleep(time.Second)
			if keys := s.Locked(); len(keys) > 0 {
				s.Errorf("afterwards the nodes have %v", keys)
			}
			s.Clean(lockers...)
		})
	}
}

// Every free slot is found, in three round trips at most, and any slot that is released wakes the caller.
func TestASlotIsFoundAndWaitedFor(t *testing.T) {
	const k = 8
	onStage(t, 3, func(s *stage) {
		l, other := s.Locker(redlock.Options{}), s.Locker(redlock.Options{})
		held := make(map[int]*redlock.Lock)
		for range k {
			lock, slot, err := l.AcquireSlot(s.Ctx, job, k, time.Hour, redlock.WithWait(0))
			s.Is("AcquireSlot", err, nil)
			held[slot] = lock
		}
		if len(held) != k {
			t.Fatalf("got %d slots, want all %d", len(held), k)
		}
		_, _, err := other.AcquireSlot(s.Ctx, job, k, time.Hour, redlock.WithWait(0))
		s.Is("AcquireSlot with all held", err, redlock.ErrHeld)
		s.Lasts("AcquireSlot with a limit", 100*time.Millisecond, func() {
			_, _, err := other.AcquireSlot(s.Ctx, job, k, time.Hour, redlock.WithWait(100*time.Millisecond))
			s.Is("AcquireSlot with a limit", err, redlock.ErrHeld)
			harness.CheckIsNot(s, "AcquireSlot with a limit", err, context.DeadlineExceeded, context.Canceled)
		})
		for slot := range k {
			time.AfterFunc(10*time.Second, func() { held[slot].Release(s.Ctx) })
			began := time.Now()
			lock, got, err := other.AcquireSlot(s.Ctx, job, k, time.Hour)
			s.Is("AcquireSlot", err, nil)
			if got != slot || time.Since(began) > 10*time.Second+20*time.Millisecond {
				t.Errorf("got slot %d after %v, want the one that was released, %d, at once", got, time.Since(began), slot)
			}
			held[slot] = lock
		}
		done := harness.Background(func() error { _, _, err := other.AcquireSlot(s.Ctx, job, k, time.Hour); return err })
		time.Sleep(time.Second)
		s.Is("Close", other.Close(), nil)
		harness.CheckIs(s, "AcquireSlot that Close ends", <-done, redlock.ErrClosed)
		_, _, err = l.AcquireSlot(s.Ctx, job, 65, time.Hour)
		s.Says(err, "65 slots", "1 to 64")
	})
}

// Whether the call ends while it asks which slots are free, or while it tries them all again, it is told the holder of the
// slot that was tried first.
func TestASlotWhoseCallEndsBeforeItKnowsAllIsToldTheHolder(t *testing.T) {
	const k = 4
	onStage(t, 3, func(s *stage) {
		l, other := s.Locker(redlock.Options{}), s.Locker(redlock.Options{Name: "the-holder"})
		for i := range k {
			harness.Try(s, other, fmt.Sprint(job, "#", i), time.Minute)
		}
		s.Slow(20*time.Millisecond, s.All()...)
		for _, limit := range []time.Duration{30 * time.Millisecond, 50 * time.Millisecond} {
			for range 5 { // the slot that is tried is random
				_, _, err := l.AcquireSlot(s.Ctx, job, k, heldLong, redlock.WithWait(limit))
				s.Is("AcquireSlot", err, redlock.ErrHeld)
				s.Says(err, "held by the-holder, waited "+limit.String())
				time.Sleep(100 * time.Millisecond) // else the next attempt follows the rollbacks of this one
				ctx, cancel := context.WithTimeout(s.Ctx, limit)
				_, _, err = l.AcquireSlot(ctx, job, k, heldLong)
				cancel()
				harness.CheckIs(s, "AcquireSlot", err, context.DeadlineExceeded, redlock.ErrHeld)
				time.Sleep(100 * time.Millisecond)
			}
		}
	})
}

// A callback's panic reaches the caller, and nothing is left.
func TestAPanicWhileASlotIsWaitedForReachesTheCaller(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		var p harness.Trap
		l, other := s.Locker(p.At(0)), s.Locker(redlock.Options{})
		k := harness.Try(s, other, job+"#0", time.Minute)
		time.AfterFunc(2*time.Second, func() { p.Armed.Store(true) })
		harness.Check(s, "AcquireSlot panics", harness.Panics(func() { l.AcquireSlot(s.Ctx, job, 1, time.Second) }), true)
		time.Sleep(time.Second)
		s.Is("Release", k.Release(s.Ctx), nil)
		s.Clean(l, other)
	})
}

// Two slots come free at one instant: the caller that waits for both gets one, and the other one is free.
func TestOneOfTwoSlotsThatComeFreeTogetherIsKept(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l, other := s.Locker(redlock.Options{}), s.Locker(redlock.Options{})
		for range 20 {
			a, b := harness.Try(s, other, job+"#0", time.Minute), harness.Try(s, other, job+"#1", time.Minute)
			got := make(chan *redlock.Lock, 1)
			go func() {
				k, _, err := l.AcquireSlot(s.Ctx, job, 2, time.Minute)
				s.Is("AcquireSlot", err, nil)
				got <- k
			}()
			time.Sleep(3 * time.Second)
			s.Both("Release", b.Release, a.Release, nil)
			k := <-got
			time.Sleep(time.Second)
			if keys := s.Locked(); !slices.Equal(keys, []string{k.Key()}) {
				t.Fatalf("the nodes have %v, want the one that was returned, %s", keys, k.Key())
			}
			s.Is("Release", k.Release(s.Ctx), nil)
			time.Sleep(time.Second)
		}
		s.Clean(l, other)
	})
}

// Whoever holds a slot gets another one, and its number, also if the slot that it holds comes first.
func TestASlotWithinASlot(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		const k = 3
		l := s.Locker(redlock.Options{})
		ctx := s.Ctx
		held := make(map[int]*redlock.Lock)
		for range k {
			lock, slot, err := l.AcquireSlot(ctx, job, k, heldLong)
			if err != nil {
				t.Fatal(err)
			}
			if want := fmt.Sprint(job, "#", slot); lock.Key() != want || held[slot] != nil {
				t.Errorf("got slot %d and the key %q, want a slot that is not held, and %q", slot, lock.Key(), want)
			}
			held[slot] = lock
			ctx, _ = lock.KeepAlive(ctx)
		}
		_, _, err := l.AcquireSlot(ctx, job, k, heldLong)
		s.Is("AcquireSlot within all slots", err, redlock.ErrNested)
		for _, lock := range held {
			s.Is("Release", lock.Release(s.Ctx), nil)
		}
		s.Clean(l)
	})
}

// A slot that nobody can get does not keep the caller from another one that is free, whichever it tries first.
func TestASlotThatNobodyCanGetIsPassedOver(t *testing.T) {
	const k = 4
	for name, spoil := range map[string]func(s *stage, key string){
		"of another type": func(s *stage, key string) { s.Each(func(n *redlocktest.Node) { n.Do("RPUSH", key, "x") }, s.All()...) },
		"held by another": func(s *stage, key string) {
			s.Each(func(n *redlocktest.Node) { n.Set(key, otherValue, time.Hour) }, s.All()...)
		},
		"split among three": func(s *stage, key string) {
			s.Each(func(n *redlocktest.Node) { n.Set(key, otherValue+n.Addr(), time.Hour) }, s.All()...)
		},
		"split among two": func(s *stage, key string) {
			s.Node(0).Set(key, otherValue, time.Hour)
			s.Node(1).Set(key, otherValue+"2", time.Hour)
		},
		"held by one node, and of another type on the next": func(s *stage, key string) {
			s.Node(0).Set(key, otherValue, time.Hour)
			s.Do(1, "RPUSH", key, "x")
		},
	} {
		runStage(t, name, 3, func(s *stage) {
			l := s.Locker(redlock.Options{})
			spoil(s, job+"#2")
			for i := range 40 {
				for _, opts := range [][]redlock.AcquireOption{{redlock.WithWait(0)}, {redlock.WithWait(time.Second)}} {
					began := time.Now()
					lock, slot, err := l.AcquireSlot(s.Ctx, job, k, time.Second, opts...)
					if s.Is(fmt.Sprint("AcquireSlot ", i), err, nil); err != nil {
						continue
					}
					if d := time.Since(began); slot == 2 || d > 100*time.Millisecond {
						s.Errorf("got slot %d after %v, want one that is free, at once", slot, d)
					}
					s.Is("Release", lock.Release(s.Ctx), nil)
				}
			}
		})
	}
}

// The error says how many of the slots are held, and shows the votes of one that is.
func TestAnErrorOfAcquireSlotTellsAboutAllSlots(t *testing.T) {
	const k = 3
	onStage(t, 3, func(s *stage) {
		l, other := s.Locker(redlock.Options{}), s.Locker(redlock.Options{Name: "the-holder"})
		got := func(opts ...redlock.AcquireOption) error {
			_, _, err := l.AcquireSlot(s.Ctx, job, k, time.Second, opts...)
			return err
		}
		limits := []time.Duration{0, 50 * time.Millisecond, time.Second}
		holders := []*redlock.Lock{harness.Try(s, other, job+"#0", time.Hour), harness.Try(s, other, job+"#1", time.Hour), harness.Try(s, other, job+"#2", time.Hour)}
		for range 5 { // the slot that is tried is random
			for _, limit := range limits {
				err := got(redlock.WithWait(limit))
				s.Is("all are held", err, redlock.ErrHeld)
				s.Says(err, `redlock: all 3 slots of "`+job+`" are held: acquire "`+job+`#`, "held by the-holder", "2 of 3 votes needed")
				if errors.Is(err, redlock.ErrNoQuorum) || strings.Count(err.Error(), "redlock: ") != 1 {
					t.Errorf("got %v", err)
				}
				if h := s.RoundOf(err).Value().Label(); h != "the-holder" {
					t.Errorf("the round names %q", h)
				}
			}
		}
		ctx := s.Timeout(time.Second)
		_, _, err := l.AcquireSlot(ctx, job, k, time.Second)
		harness.CheckIs(s, "AcquireSlot that ctx ends", err, context.DeadlineExceeded, redlock.ErrHeld)
		s.Says(err, `all 3 slots of "`+job+`" are held: acquire "`+job+`#`, "held by the-holder")

		s.Is("Release", holders[1].Release(s.Ctx), nil)
		time.Sleep(time.Second)
		for i := range 3 {
			s.Do(i, "RPUSH", job+"#1", "x")
		}
		for range 5 {
			for _, limit := range limits {
				err := got(redlock.WithWait(limit))
				s.Is("one has another type", err, redlock.ErrHeld)
				harness.CheckIsNot(s, "one has another type", err, redlock.ErrNoQuorum)
				if limit > 0 {
					s.Says(err, `2 of 3 slots of "`+job+`" are held: acquire`, "held by the-holder", `"`+job+`#1": no quorum`, "WRONGTYPE")
				}
			}
		}
		for _, i := range []int{0, 2} {
			s.Is("Release", holders[i].Release(s.Ctx), nil)
		}
		time.Sleep(time.Second)
		for i := range 3 {
			s.Do(i, "RPUSH", job+"#0", "x")
			s.Do(i, "RPUSH", job+"#2", "x")
		}
		began := time.Now()
		err = got()
		s.Is("all have another type", err, redlock.ErrNoQuorum)
		s.Says(err, `none of 3 slots of "`+job+`" is free: acquire "`+job+`#`, "WRONGTYPE")
		if d := time.Since(began); d > 10*oneTrip {
			t.Errorf("all have another type: it took %v, want at once", d)
		}
	})
}

// RunSlot works in any slot that is free, and keeps it alive; it tells fn and its caller of a loss, and fn's own error.
func TestRunSlot(t *testing.T) {
	const k = 2
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		why := errors.New("fn's own")
		held := make(map[int]bool)
		var inOther error
		s.Is("RunSlot", l.RunSlot(s.Ctx, job, k, time.Second, func(ctx context.Context, lock *redlock.Lock, slot int) error {
			held[slot] = true
			inOther = l.RunSlot(ctx, job, k, time.Second, func(ctx context.Context, lock *redlock.Lock, slot int) error {
				held[slot] = true
				harness.Check(s, "the key", lock.Key(), fmt.Sprint(job, "#", slot))
				s.Is("RunSlot within all slots", l.RunSlot(ctx, job, k, time.Second, noWorkSlot), redlock.ErrNested)
				s.Is("RunSlot of another", l.RunSlot(s.Ctx, job, k, time.Second, noWorkSlot, redlock.WithWait(time.Second)), redlock.ErrHeld)
				time.Sleep(time.Minute)
				if ctx.Err() != nil || !lock.Valid() {
					t.Errorf("after a minute: %v", context.Cause(ctx))
				}
				return why
			})
			return nil
		}), nil)
		if s.Is("RunSlot in the other slot", inOther, why); len(held) != k {
			t.Errorf("got the slots %v, want both", held)
		}
		err := l.RunSlot(s.Ctx, job, k, time.Second, func(ctx context.Context, lock *redlock.Lock, slot int) error {
			s.EvictKey(lock.Key(), s.All()...)
			s.Ended(ctx, time.Minute)
			s.Is("the cause", context.Cause(ctx), redlock.ErrLost)
			return why
		})
		harness.CheckIs(s, "RunSlot that loses its slot", err, why, redlock.ErrLost)
		s.Is("RunSlot whose fn leaves the slot", l.RunSlot(s.Ctx, job, 1, time.Second, func(ctx context.Context, lock *redlock.Lock, slot int) error {
			return lock.LeaveUntil(ctx, time.Now().Add(time.Minute))
		}), nil)
		s.Is("RunSlot of a slot that was left", l.RunSlot(s.Ctx, job, 1, time.Second, noWorkSlot, redlock.WithWait(0)), redlock.ErrHeld)
	})
}

// Two slots come free at the same instant, and both are acquired. The one that is given back is not handed on to the caller itself.
func TestASecondSlotIsGivenBackAtOnce(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		s.Slow(5 * time.Millisecond) // so that both are asked for before either is answered
		twice := 0
		for range 20 {
			l, other := s.Locker(redlock.Options{}), s.Locker(redlock.Options{})
			both := redlock.Locks{harness.Try(s, other, job+"#0", time.Hour), harness.Try(s, other, job+"#1", time.Hour)}
			type slot struct {
				lock *redlock.Lock
				slot int
			}
			got := make(chan slot, 1)
			go func() {
				lock, n, err := l.AcquireSlot(s.Ctx, job, 2, time.Hour)
				s.Is("AcquireSlot", err, nil)
				got <- slot{lock, n}
			}()
			time.Sleep(time.Second)
			s.Record()
			both.Release(s.Ctx)
			one := <-got
			time.Sleep(100 * time.Millisecond)
			words := harness.Heard(s.Node(0), fmt.Sprint(job, "#", 1-one.slot))
			switch n := harness.Count(words, "acquire"); {
			case n > 1:
				s.Fatalf("what a node hears of the slot that is given back: got %v, want one acquire at most", words)
			case n == 1 && harness.Count(words, "release") == 1:
				twice++
			}
			s.Is("Release", one.lock.Release(s.Ctx), nil)
			s.Is("Close", l.Close(), nil)
			s.Is("Close", other.Close(), nil)
		}
		if twice == 0 {
			s.Error("no caller got both slots")
		}
	})
}

// goroutines returns how many goroutines there are in the caller's bubble.
func goroutines() int {
	for buf := make([]byte, 1<<20); ; buf = make([]byte, 2*len(buf)) {
		if n := runtime.Stack(buf, true); n < len(buf) {
			all := string(buf[:n]) // the caller comes first: "goroutine 7 [running, synctest bubble 3]:"
			_, own, _ := strings.Cut(all, "synctest bubble ")
			own, _, _ = strings.Cut(own, "]")
			return strings.Count(all, "synctest bubble "+own+"]")
		}
	}
}

// However many slots a caller waits for, it is one goroutine.
func TestACallerThatWaitsForSlotsIsOneGoroutine(t *testing.T) {
	const k, callers = 64, 5
	onStage(t, 3, func(s *stage) {
		l, other := s.Locker(redlock.Options{}), s.Locker(redlock.Options{})
		for range k {
			if _, _, err := other.AcquireSlot(s.Ctx, job, k, time.Hour); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancel(s.Ctx)
		var waits []<-chan error
		waiting := func(n int) int {
			for range n {
				waits = append(waits, harness.Background(func() error { _, _, err := l.AcquireSlot(ctx, job, k, time.Hour); return err }))
			}
			time.Sleep(10 * time.Second)
			synctest.Wait()
			return goroutines()
		}
		first := waiting(1)                                 // with the subscriptions
		if n := waiting(callers) - first; n > callers*k/4 { // with the connections that they opened
			t.Errorf("%d more callers are %d goroutines, want far fewer than one for each slot", callers, n)
		}
		cancel()
		for _, wait := range waits {
			harness.CheckIs(s, "AcquireSlot", <-wait, context.Canceled, redlock.ErrHeld)
		}
	})
}
