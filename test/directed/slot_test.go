package directed_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/harness"
)

// At most k hold a slot, all different ones, and everybody gets one.
func TestAtMostKHoldASlot(t *testing.T) {
	for _, k := range []int{1, 2, 5} {
		runStage(t, fmt.Sprint(k), 3, func(s *stage) {
			const workers, runs = 12, 5
			lockers := []*redlock.Locker{s.Locker(redlock.Options{}), s.Locker(redlock.Options{})}
			holds := make(chan int, k) // slots that are held
			used := make([]chan bool, k)
			for i := range used {
				used[i] = make(chan bool, 1)
			}
			errs := make(chan error, workers)
			for w := range workers {
				go func() {
					errs <- func() error {
						for range runs {
							lock, slot, err := lockers[w%2].AcquireSlot(s.Ctx, job, k, 10*time.Second)
							if err != nil {
								return err
							}
							select {
							case holds <- slot:
							default:
								return errors.New("more than k hold a slot")
							}
							select {
							case used[slot] <- true:
							default:
								return fmt.Errorf("slot %d is held twice", slot)
							}
							if want := fmt.Sprint(job, "#", slot); lock.Key() != want {
								return fmt.Errorf("got the key %q, want %q", lock.Key(), want)
							}
							time.Sleep(3 * time.Millisecond)
							<-used[slot]
							<-holds
							if err := lock.Release(s.Ctx); err != nil {
								return err
							}
						}
						return nil
					}()
				}()
			}
			for range workers {
				s.Is("a worker", <-errs, nil)
			}
			time.Sleep(time.Second)
			if keys := s.locked(); len(keys) > 0 {
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
		done := harness.Background(func() error {
			_, _, err := other.AcquireSlot(s.Ctx, job, k, time.Hour)
			return err
		})
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
		tries := 0
		l := s.Locker(redlock.Options{Retry: func(int) time.Duration {
			if tries++; tries > 2 {
				panic("the user's own")
			}
			return time.Second
		}})
		other := s.Locker(redlock.Options{})
		k := harness.Try(s, other, job+"#0", time.Minute)
		func() {
			defer func() {
				if got := recover(); got != "the user's own" {
					t.Errorf("recovered: got %v, want the callback's panic", got)
				}
			}()
			l.AcquireSlot(s.Ctx, job, 1, time.Second)
		}()
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
			released := harness.Background(func() error { return b.Release(s.Ctx) })
			s.Is("Release", a.Release(s.Ctx), nil)
			s.Is("Release", <-released, nil)
			k := <-got
			time.Sleep(time.Second)
			if keys := s.locked(); !slices.Equal(keys, []string{k.Key()}) {
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
			var stop context.CancelFunc
			ctx, stop = lock.KeepAlive(ctx)
			defer stop()
		}
		_, _, err := l.AcquireSlot(ctx, job, k, heldLong)
		s.Is("AcquireSlot within all slots", err, redlock.ErrNested)
		for _, lock := range held {
			s.Is("Release", lock.Release(s.Ctx), nil)
		}
		s.Clean(l)
	})
}
