package waiting_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/harness"
)

// registers returns the nodes' fence registers.
func (s *stage) registers() (keys []string) {
	for i := range s.Cluster.Len() {
		for _, key := range s.Node(i).Keys() {
			if strings.HasSuffix(key, ":fence") {
				keys = append(keys, fmt.Sprint(i, key))
			}
		}
	}
	return keys
}

// Whatever is done with locks without a fence, by one Locker or between two: Fence returns 0, no node ever has a register, and
// in the end the nodes have nothing.
func TestLocksWithoutAFenceMakeNoRegisters(t *testing.T) {
	for name, f := range map[string]func(s *stage, l, other *redlock.Locker, opts ...redlock.AcquireOption){
		"one caller, extensions and a heal": func(s *stage, l, _ *redlock.Locker, opts ...redlock.AcquireOption) {
			k, err := l.Acquire(s.Ctx, job, heldLong, opts...)
			s.Is("Acquire", err, nil)
			s.unfenced(k)
			s.Is("Extend", k.Extend(s.Ctx), nil)
			time.Sleep(time.Second)
			s.EvictKey(job, 0)
			s.Is("Extend", k.Extend(s.Ctx), nil)
			time.Sleep(time.Second)
			s.Carry("healed", k.Value(), s.All()...)
			s.Is("Release", k.Release(s.Ctx), nil)
		},
		"many locks in joint scripts": func(s *stage, l, _ *redlock.Locker, opts ...redlock.AcquireOption) {
			locks, err := l.AcquireAll(s.Ctx, []string{"a", "b", "c"}, heldLong, opts...)
			if s.Is("AcquireAll", err, nil); err != nil {
				return
			}
			s.unfenced(locks...)
			for range 2 { // the second one leaves registers alone that have been raised
				harness.Background(func() error { return locks[0].Extend(s.Ctx) })
				harness.Background(func() error { return locks[1].Extend(s.Ctx) })
				s.Is("Extend", locks[2].Extend(s.Ctx), nil)
				time.Sleep(time.Second)
			}
			s.Is("Release", locks.Release(s.Ctx), nil)
		},
		"callers of both who wait, and give up": func(s *stage, l, other *redlock.Locker, opts ...redlock.AcquireOption) {
			k, err := l.Acquire(s.Ctx, job, heldLong, opts...)
			s.Is("Acquire", err, nil)
			for _, l := range []*redlock.Locker{l, other} {
				s.Is("TryAcquire", harness.Second(l.TryAcquire(s.Ctx, job, heldLong, opts...)), redlock.ErrHeld)
				s.Is("Acquire", harness.Second(l.Acquire(s.Timeout(time.Second), job, heldLong, opts...)), context.DeadlineExceeded)
			}
			var waits []<-chan error
			for i := range 6 {
				waits = append(waits, harness.Background(func() error {
					k, err := []*redlock.Locker{l, other}[i%2].Acquire(s.Ctx, job, heldLong, opts...)
					if err != nil {
						return err
					}
					s.unfenced(k)
					time.Sleep(time.Second)
					return k.Release(s.Ctx)
				}))
				time.Sleep(100 * time.Millisecond)
			}
			s.Is("Release", k.Release(s.Ctx), nil)
			for _, wait := range waits {
				s.Is("a waiter", <-wait, nil)
			}
		},
		"a slot and a leader": func(s *stage, l, _ *redlock.Locker, opts ...redlock.AcquireOption) {
			k, _, err := l.AcquireSlot(s.Ctx, job, 2, heldLong, opts...)
			s.Is("AcquireSlot", err, nil)
			s.unfenced(k)
			s.Is("Release", k.Release(s.Ctx), nil)
			s.Is("Lead", l.Lead(s.Ctx, job, heldLong, func(_ context.Context, k *redlock.Lock) error {
				s.unfenced(k)
				return context.Canceled
			}, opts...), context.Canceled)
		},
		"a lock that is left, and one that is lost": func(s *stage, l, _ *redlock.Locker, opts ...redlock.AcquireOption) {
			k, err := l.Acquire(s.Ctx, job, heldLong, opts...)
			s.Is("Acquire", err, nil)
			s.Is("LeaveUntil", k.LeaveUntil(s.Ctx, time.Now().Add(2*heldLong)), nil)
			time.Sleep(3 * heldLong)
			k, err = l.Acquire(s.Ctx, job, heldLong, opts...)
			s.Is("Acquire", err, nil)
			s.EvictKey(job, s.All()...)
			s.Is("Extend", k.Extend(s.Ctx), redlock.ErrLost)
			s.unfenced(k)
		},
	} {
		for setting, opt := range map[string]redlock.Options{"": {}, ", Fair": {Fair: true}, ", guarded": {RestartGuard: 3 * heldLong}} {
			runStage(t, name+setting, 3, func(s *stage) {
				time.Sleep(opt.RestartGuard)
				f(s, s.Locker(opt), s.Locker(opt), redlock.WithoutFence())
				time.Sleep(time.Minute)
				opt.NoFence = true
				l, other := s.Locker(opt), s.Locker(opt)
				f(s, l, other)
				time.Sleep(time.Minute)
				if got := s.registers(); len(got) > 0 {
					s.Errorf("the nodes have the registers %v, want none", got)
				}
				s.EvictKey("{redlock}:boot", s.All()...) // the guard's
				s.Clean(l, other)
			})
		}
	}
}

// unfenced fails the test if a lock has a fence, or a node has a register.
func (s *stage) unfenced(locks ...*redlock.Lock) {
	s.Helper()
	for _, k := range locks {
		harness.Check(s, "Fence", k.Fence(), 0)
		harness.Check(s, "String", k.String(), fmt.Sprintf("lock %q, no fence", k.Key()))
	}
	if got := s.registers(); len(got) > 0 {
		s.Errorf("the nodes have the registers %v, want none", got)
	}
}

// The options of a call decide, and the last of them.
func TestWhetherALockHasAFence(t *testing.T) {
	with, without := redlock.WithFence(), redlock.WithoutFence()
	for _, c := range []struct {
		no   bool
		opts []redlock.AcquireOption
		want bool
	}{
		{false, nil, true},
		{false, []redlock.AcquireOption{without}, false},
		{false, []redlock.AcquireOption{without, with}, true},
		{true, nil, false},
		{true, []redlock.AcquireOption{with}, true},
		{true, []redlock.AcquireOption{with, nil, without}, false},
	} {
		onStage(t, 3, func(s *stage) {
			l := s.Locker(redlock.Options{NoFence: c.no})
			k, err := l.Acquire(s.Ctx, job, heldLong, c.opts...)
			s.Is("Acquire", err, nil)
			harness.Check(s, "has a fence", k.Fence() != 0, c.want)
			harness.Check(s, "has registers", len(s.registers()) != 0, c.want)
			s.Is("Release", k.Release(s.Ctx), nil)
		})
	}
}

// Holders with and without a fence exclude each other, and fences grow past those without one.
func TestMixedHoldersExcludeEachOther(t *testing.T) {
	fairly(t, 3, func(s *stage, fair bool) {
		a, b := s.Locker(redlock.Options{Fair: fair}), s.Locker(redlock.Options{Fair: fair, NoFence: true})
		last := int64(0)
		for range 3 {
			k := s.Take(a, heldLong)
			s.Is("beside a fence", harness.Second(b.TryAcquire(s.Ctx, job, heldLong)), redlock.ErrHeld)
			harness.Check(s, "fences grow", k.Fence() > last, true)
			last = k.Fence()
			s.Is("Release", k.Release(s.Ctx), nil)
			time.Sleep(promptly)
			k = s.Take(b, heldLong)
			s.Is("beside none", harness.Second(a.TryAcquire(s.Ctx, job, heldLong)), redlock.ErrHeld)
			harness.Check(s, "Fence", k.Fence(), 0)
			s.Is("Extend", k.Extend(s.Ctx), nil)
			if st, err := a.Inspect(s.Ctx, job); err != nil || st.Fence < last || st.Value != k.Value() {
				s.Errorf("Inspect: got %v, %v, want the holder without a fence beside the register of the one before, %d", st, err, last)
			}
			s.Is("Release", k.Release(s.Ctx), nil)
			time.Sleep(promptly)
		}
	})
}

// A release hands the lock on in the way that the next caller wants it: with a token that a majority of the registers has, or
// with none, whatever the one before had.
func TestALockIsHandedOnAsTheNextCallerWantsIt(t *testing.T) {
	for _, fenced := range []bool{true, false} {
		onStage(t, 5, func(s *stage) {
			l := s.Locker(redlock.Options{})
			as := map[bool]redlock.AcquireOption{true: redlock.WithFence(), false: redlock.WithoutFence()}
			k, err := l.Acquire(s.Ctx, job, heldLong, as[!fenced])
			s.Is("Acquire", err, nil)
			next := harness.Background(func() (err error) {
				k, err = l.Acquire(s.Ctx, job, heldLong, as[fenced])
				return err
			})
			time.Sleep(time.Second)
			before := k.Fence()
			at := time.Now()
			go k.Release(s.Ctx)
			s.Is("the next caller", <-next, nil)
			if took := time.Since(at); took > oneTrip {
				s.Errorf("the lock was handed on in %v, want one round", took)
			}
			if got := k.Fence(); (got != 0) != fenced || fenced && got <= before {
				s.Errorf("the fence after %d: got %d, want one: %v", before, got, fenced)
			}
			raised := 0
			for i := range 5 {
				if s.Register(i) == k.Fence() {
					raised++
				}
			}
			if fenced && raised < 3 {
				s.Errorf("%d registers have the fence, want a majority", raised)
			}
			s.Is("Release", k.Release(s.Ctx), nil)
			time.Sleep(time.Second)
			if s.Register(0) != 0 && s.Node(0).TTL(jobRegister) <= 0 {
				s.Error("the register stays for ever")
			}
		})
	}
}

// An adoption without a fence keeps its note in the register, which expires; the token stays what it was. A lock without a fence
// can be adopted with one.
func TestAnAdoptionWithoutAFence(t *testing.T) {
	for _, fenced := range []bool{true, false} {
		onStage(t, 3, func(s *stage) {
			a, b := s.Locker(redlock.Options{NoFence: !fenced}), s.Locker(redlock.Options{NoFence: true})
			given := s.Take(a, 10*time.Second)
			k := s.adopts(b, given.Value(), time.Minute)
			time.Sleep(oneTrip)
			harness.Check(s, "Fence", k.Fence(), 0)
			for i := range 3 {
				harness.Check(s, "the register", s.Register(i), given.Fence())
				if _, there := s.Node(i).Score(jobRegister, "f"); there != fenced {
					s.Errorf("node %d has a token: got %v, want %v", i, there, fenced)
				}
				if ttl := s.Node(i).TTL(jobRegister); ttl < 24*time.Hour || ttl > 26*time.Hour {
					s.Errorf("the register of node %d lives for %v, want a day", i, ttl)
				}
			}
			s.Is("the giver's Release", given.Release(s.Ctx), redlock.ErrLost)
			s.Is("Extend", k.Extend(s.Ctx), nil)
			c := s.Locker(redlock.Options{})
			back := s.adopts(c, k.Value(), time.Minute)
			if back.Fence() <= given.Fence() {
				s.Errorf("adopted with a fence: got %d, want more than %d", back.Fence(), given.Fence())
			}
			s.Is("the Release of who had none", k.Release(s.Ctx), redlock.ErrLost)
			s.Is("Release", back.Release(s.Ctx), nil)
			s.Clean(a, b, c)
		})
		// A failed one puts the old value back, to expire when it would have.
		onStage(t, 3, func(s *stage) {
			a, b := s.Locker(redlock.Options{NoFence: !fenced}), s.Locker(redlock.Options{NoFence: true})
			given := s.Take(a, 10*time.Second)
			s.EvictKey(job, 1, 2)
			s.Is("Adopt", harness.Second(b.Adopt(s.Ctx, job, given.Value(), time.Minute)), redlock.ErrLost)
			time.Sleep(time.Second)
			s.Carry("afterwards", given.Value(), 0)
			if ttl := s.Node(0).TTL(job); ttl > 9*time.Second || ttl < 8*time.Second {
				s.Errorf("the key has %v left, want what it had", ttl)
			}
			if !fenced && s.Node(0).TTL(jobRegister) > 0 {
				s.Error("the register of the note is still there")
			}
		})
	}
}
