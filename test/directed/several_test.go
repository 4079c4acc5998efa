package directed_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/harness"
)

// locked returns the keys of the locks that are on any node.
func (s *stage) locked() (keys []string) {
	for i := range s.Cluster.Len() {
		for _, key := range harness.LocksOn(s.Node(i)) {
			if !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
	}
	slices.Sort(keys)
	return keys
}

func TestAcquireAllTakesOneRoundTripAndOneBatch(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		s.Slow(20*time.Millisecond, 0, 1, 2)
		s.Lasts("AcquireAll", 20*time.Millisecond, func() {
			locks, err := l.AcquireAll(s.Ctx, []string{"c", "a", "b", "a"}, 10*time.Second)
			s.Is("AcquireAll", err, nil)
			var keys []string
			for _, k := range locks {
				keys = append(keys, k.Key())
				if k.Fence() == 0 {
					t.Errorf("%v has no fence", k)
				}
			}
			if want := []string{"c", "a", "b"}; !slices.Equal(keys, want) || !locks.Valid() {
				t.Errorf("got the locks of %v, valid %v, want those of %v", keys, locks.Valid(), want)
			}
			if got := s.locked(); !slices.Equal(got, []string{"a", "b", "c"}) {
				t.Errorf("the nodes have %v", got)
			}
			go locks.Release(s.Ctx)
		})
		time.Sleep(time.Second)
		s.Clean(l)
	})
}

func TestTheEarliestUntilOfSeveralCounts(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		locks, err := l.AcquireAll(s.Ctx, []string{"a", "b"}, 10*time.Second)
		s.Is("AcquireAll", err, nil)
		time.Sleep(time.Second)
		s.Is("Extend", locks[0].Extend(s.Ctx), nil)
		if !locks.Until().Equal(locks[1].Until()) {
			t.Errorf("got %v, want the Until of the one that was not extended", locks.Until())
		}
		held, stop := locks.KeepAlive(s.Ctx)
		defer stop()
		for i := range 3 {
			s.Node(i).Evict("b")
		}
		s.Ended(held, time.Minute)
		s.Is("the cause", context.Cause(held), redlock.ErrLost)
		if locks.Valid() || !locks[0].Valid() {
			t.Error("want one valid lock, and not all")
		}
		s.Is("Release", locks.Release(s.Ctx), redlock.ErrLost)
		s.Clean(l)
	})
}

// A caller that waits for one key holds none of the others, and gets all when that one is released.
func TestAcquireAllHoldsNothingWhileItWaits(t *testing.T) {
	for name, own := range map[string]bool{"for another Locker": false, "for its own Locker": true} {
		t.Run(name, func(t *testing.T) {
			onStage(t, 3, func(s *stage) {
				l, other := s.Locker(redlock.Options{}), s.Locker(redlock.Options{})
				holder := other
				if own {
					holder = l
				}
				k := harness.Try(s, holder, "b", time.Minute)
				got := make(chan redlock.Locks, 1)
				go func() {
					locks, err := l.AcquireAll(s.Ctx, []string{"a", "b", "c"}, 10*time.Second)
					s.Is("AcquireAll", err, nil)
					got <- locks
				}()
				time.Sleep(time.Second)
				if keys := s.locked(); !slices.Equal(keys, []string{"b"}) {
					t.Errorf("while it waits the nodes have %v, want b alone", keys)
				}
				free := harness.Try(s, other, "c", time.Minute)
				s.Is("Release of b, while c is held", k.Release(s.Ctx), nil)
				time.Sleep(time.Second)
				if keys := s.locked(); !slices.Equal(keys, []string{"c"}) {
					t.Errorf("while it waits for the second the nodes have %v, want c alone", keys)
				}
				s.Is("Release of c", free.Release(s.Ctx), nil)
				released := time.Now()
				locks := <-got
				if d := time.Since(released); d > 20*time.Millisecond {
					t.Errorf("it got its locks %v after the last release, want at once", d)
				}
				s.Is("Release", locks.Release(s.Ctx), nil)
				s.Clean(l, other)
			})
		})
	}
}

// Whoever was refused because of an attempt for all that failed is told when that is undone.
func TestAFailedAcquireAllWakesThoseThatItRefused(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l, other := s.Locker(redlock.Options{}), s.Locker(redlock.Options{})
		k := harness.Try(s, other, "b", time.Minute)
		for range 20 {
			_, err := l.AcquireAll(s.Ctx, []string{"a", "b"}, 10*time.Second, redlock.WithWait(0))
			s.Is("AcquireAll", err, redlock.ErrHeld)
			began := time.Now()
			a, err := other.Acquire(s.Ctx, "a", 10*time.Second)
			s.Is("Acquire", err, nil)
			if d := time.Since(began); d > 30*time.Millisecond {
				t.Errorf("Acquire of a key that was released took %v", d)
			}
			s.Is("Release", a.Release(s.Ctx), nil)
		}
		s.Is("Release", k.Release(s.Ctx), nil)
		s.Clean(l, other)
	})
}

func TestWhatEndsAcquireAllLeavesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		opt  func(opt *redlock.Options)
		call func(s *stage, l *redlock.Locker) error
		want []error
	}{
		"ctx": {nil, func(s *stage, l *redlock.Locker) error {
			ctx, cancel := context.WithTimeout(s.Ctx, time.Second)
			defer cancel()
			return harness.Second(l.AcquireAll(ctx, []string{"a", "b", "c"}, 10*time.Second))
		}, []error{context.DeadlineExceeded, redlock.ErrHeld}},
		"WithWait": {nil, func(s *stage, l *redlock.Locker) error {
			err := l.RunAll(s.Ctx, []string{"a", "b", "c"}, 10*time.Second, func(context.Context, redlock.Locks) error { return nil }, redlock.WithWait(time.Second))
			harness.CheckIsNot(s, "RunAll", err, context.DeadlineExceeded)
			return err
		}, []error{redlock.ErrHeld}},
		"WithWait(0)": {nil, func(s *stage, l *redlock.Locker) error {
			return harness.Second(l.AcquireAll(s.Ctx, []string{"a", "b", "c"}, 10*time.Second, redlock.WithWait(0)))
		}, []error{redlock.ErrHeld}},
		"Close": {nil, func(s *stage, l *redlock.Locker) error {
			time.AfterFunc(time.Second, func() { l.Close() })
			return harness.Second(l.AcquireAll(s.Ctx, []string{"a", "b", "c"}, 10*time.Second))
		}, []error{redlock.ErrClosed, redlock.ErrHeld}},
		"MaxWaiters": {func(opt *redlock.Options) { opt.MaxWaiters = 1 }, func(s *stage, l *redlock.Locker) error {
			ctx, cancel := context.WithTimeout(s.Ctx, time.Second)
			defer cancel()
			first := harness.Background(func() error { return harness.Second(l.Acquire(ctx, "b", time.Second)) })
			synctest.Wait()
			err := harness.Second(l.AcquireAll(s.Ctx, []string{"a", "b", "c"}, 10*time.Second))
			<-first
			return err
		}, []error{redlock.ErrTooManyWaiters}},
		"a panic": {func(opt *redlock.Options) {
			opt.Trace.Round = func(_ context.Context, r redlock.Round) {
				if r.Op == redlock.OpAcquire && r.Key == "b" {
					panic("the user's own")
				}
			}
		}, func(s *stage, l *redlock.Locker) (err error) {
			defer func() { err = fmt.Errorf("%v", recover()) }()
			return harness.Second(l.AcquireAll(s.Ctx, []string{"a", "b", "c"}, 10*time.Second))
		}, nil},
		"nested": {nil, func(s *stage, l *redlock.Locker) error {
			return l.Run(s.Ctx, "c", time.Second, func(ctx context.Context, _ *redlock.Lock) error {
				return harness.Second(l.AcquireAll(ctx, []string{"a", "c"}, time.Second))
			})
		}, []error{redlock.ErrNested}},
		"no keys": {nil, func(s *stage, l *redlock.Locker) error {
			if err := harness.Second(l.AcquireAll(s.Ctx, make([]string, 65), time.Second)); err == nil {
				t.Error("65 keys: got no error")
			}
			err := harness.Second(l.AcquireAll(s.Ctx, nil, time.Second))
			s.Says(err, "0 keys")
			return err
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			onStage(t, 3, func(s *stage) {
				var opt redlock.Options
				if c.opt != nil {
					c.opt(&opt)
				}
				l, other := s.Locker(opt), s.Locker(redlock.Options{})
				k := harness.Try(s, other, "b", time.Minute)
				err := c.call(s, l)
				if err == nil {
					t.Fatal("got no error")
				}
				if len(c.want) > 0 {
					harness.CheckIs(s, name, err, c.want...)
				}
				time.Sleep(time.Second)
				if keys := s.locked(); !slices.Equal(keys, []string{"b"}) {
					t.Errorf("afterwards the nodes have %v, want b alone", keys)
				}
				s.Is("Release", k.Release(s.Ctx), nil)
				s.Clean(other)
			})
		})
	}
}

// Callers that want some keys at once, in any order, and callers that nest Acquire in the order of the keys all come
// through, and no two hold a key at once.
func TestAcquireAllBesideNestedAcquireInAnyOrder(t *testing.T) {
	const keys, workers, runs = 6, 12, 10
	for seed := range uint64(harness.Rounds(4, 200)) {
		onStage(t, 3, func(s *stage) {
			lockers := []*redlock.Locker{s.Locker(redlock.Options{}), s.Locker(redlock.Options{}), s.Locker(redlock.Options{Fair: seed%3 == 2})}
			var mu sync.Mutex
			held := make(map[string]bool)
			work := func(r *rand.Rand, mine []string) {
				mu.Lock()
				for _, key := range mine {
					if held[key] {
						t.Errorf("seed %d: %s is held twice", seed, key)
					}
					held[key] = true
				}
				mu.Unlock()
				time.Sleep(time.Duration(r.IntN(3)) * time.Millisecond)
				mu.Lock()
				for _, key := range mine {
					delete(held, key)
				}
				mu.Unlock()
			}
			errs := make(chan error, workers)
			for w := range workers {
				r := rand.New(rand.NewPCG(seed, uint64(w)))
				l := lockers[w%len(lockers)]
				go func() {
					errs <- func() error {
						for range runs {
							var mine []string
							for _, i := range r.Perm(keys)[:1+r.IntN(4)] {
								mine = append(mine, fmt.Sprint("key-", i))
							}
							ctx, cancel := context.WithTimeout(s.Ctx, 10*time.Minute)
							var err error
							if w%2 == 0 {
								err = l.RunAll(ctx, mine, 10*time.Second, func(context.Context, redlock.Locks) error { work(r, mine); return nil })
							} else {
								slices.Sort(mine)
								err = nest(ctx, l, mine, func() { work(r, mine) })
							}
							cancel()
							if err != nil {
								return err
							}
						}
						return nil
					}()
				}()
			}
			for range workers {
				if err := <-errs; err != nil {
					t.Errorf("seed %d: %v", seed, err)
				}
			}
			time.Sleep(time.Second)
			s.Clean(lockers...)
		})
	}
}

// nest acquires one key within the other.
func nest(ctx context.Context, l *redlock.Locker, keys []string, fn func()) error {
	if len(keys) == 0 {
		fn()
		return nil
	}
	return l.Run(ctx, keys[0], 10*time.Second, func(ctx context.Context, _ *redlock.Lock) error { return nest(ctx, l, keys[1:], fn) })
}

func TestRunAllSaysWhichLocksWereLost(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		why := errors.New("fn's own")
		s.Is("RunAll", l.RunAll(s.Ctx, []string{"a", "b"}, time.Second, func(ctx context.Context, locks redlock.Locks) error {
			time.Sleep(time.Minute)
			if ctx.Err() != nil || !locks.Valid() {
				t.Errorf("after a minute: %v", context.Cause(ctx))
			}
			return nil
		}), nil)
		err := l.RunAll(s.Ctx, []string{"a", "b"}, time.Second, func(ctx context.Context, locks redlock.Locks) error {
			for i := range 3 {
				s.Node(i).Evict("b")
			}
			<-ctx.Done()
			return why
		})
		harness.CheckIs(s, "RunAll", err, why, redlock.ErrLost)
		s.Says(err, `"b"`)
		s.Clean(l)
	})
}

// A lateCtx ends between two lines: Err reports it from the n-th call on, and Done never.
type lateCtx struct {
	context.Context
	calls, n int
}

func (c *lateCtx) Err() error {
	if c.calls++; c.calls < c.n {
		return nil
	}
	return context.Canceled
}

// Whenever ctx ends, nothing that was prepared and not sent stays in the way of the keys.
func TestAcquireAllThatEndsBetweenTwoLinesLeavesTheKeysUsable(t *testing.T) {
	for n := 1; n <= 24; n++ {
		onStage(t, 3, func(s *stage) {
			l, other := s.Locker(redlock.Options{}), s.Locker(redlock.Options{})
			k := harness.Try(s, other, "a", time.Minute)
			ended := harness.Background(func() error {
				ks, err := l.AcquireAll(&lateCtx{Context: s.Ctx, n: n}, []string{"a", "b"}, time.Minute)
				if err == nil {
					err = ks.Release(s.Ctx)
				}
				return err
			})
			time.Sleep(time.Second)
			s.Is("Release", k.Release(s.Ctx), nil)
			time.Sleep(10 * time.Second)
			select {
			case <-ended:
			default:
				t.Fatalf("n=%d: AcquireAll still waits for a free lock", n)
			}
			for _, key := range []string{"a", "b"} {
				ctx, cancel := context.WithTimeout(s.Ctx, 5*time.Second)
				k, err := l.Acquire(ctx, key, time.Minute)
				cancel()
				if err != nil {
					t.Fatalf("n=%d: the key %s afterwards: got %v, want the lock", n, key, err)
				}
				s.Is("Release", k.Release(s.Ctx), nil)
			}
			s.Clean(l, other)
		})
	}
}

// A caller whose Retry panics leaves the queue.
func TestAPanicInRetryOfAcquireAllLeavesTheQueue(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		armed := true
		l, other := s.Locker(redlock.Options{Retry: func(int) time.Duration {
			if armed {
				armed = false
				panic("the user's own")
			}
			return time.Second
		}}), s.Locker(redlock.Options{})
		k := harness.Try(s, other, "a", time.Minute)
		if !panics(func() { l.AcquireAll(s.Ctx, []string{"a", "b"}, time.Minute) }) {
			t.Fatal("no panic, want it to go on to the caller")
		}
		s.Is("Release", k.Release(s.Ctx), nil)
		ctx, cancel := context.WithTimeout(s.Ctx, 5*time.Second)
		defer cancel()
		k, err := l.Acquire(ctx, "a", time.Minute)
		if err != nil {
			t.Fatalf("the key afterwards: got %v, want the lock", err)
		}
		s.Is("Release", k.Release(s.Ctx), nil)
		s.Clean(l, other)
	})
}

// Behind a caller of the same Locker, too, the limit of the wait tells who holds the lock.
func TestAcquireAllBehindAnotherWaiterIsToldTheHolder(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l, other := s.Locker(redlock.Options{}), s.Locker(redlock.Options{})
		k := harness.Try(s, other, "a", time.Minute)
		ctx, cancel := context.WithCancel(s.Ctx)
		first := harness.Background(func() error { return harness.Second(l.Acquire(ctx, "a", time.Minute)) })
		time.Sleep(time.Second)
		_, err := l.AcquireAll(s.Ctx, []string{"a", "b"}, time.Minute, redlock.WithWait(200*time.Millisecond))
		s.Is("AcquireAll", err, redlock.ErrHeld)
		var q *redlock.QuorumError
		if !errors.As(err, &q) || q.Round.Holder() != k.Value() {
			t.Errorf("got %v, want the holder %s", err, k.Value())
		}
		cancel()
		<-first
		s.Is("Release", k.Release(s.Ctx), nil)
		s.Clean(l, other)
	})
}

// Callers of one Locker do not ask the nodes for locks that another of them has: no attempt is refused.
func TestCallersOfOneLockerDoNotRefuseEachOther(t *testing.T) {
	const keys, each, workers, runs = 16, 4, 16, 10
	onStage(t, 3, func(s *stage) {
		var seen harness.Observer
		l := s.Locker(redlock.Options{Trace: seen.Trace()})
		errs, began := make(chan error, workers), time.Now()
		for w := range workers {
			r := rand.New(rand.NewPCG(1, uint64(w)))
			go func() {
				errs <- func() error {
					for range runs {
						var mine []string
						for _, i := range r.Perm(keys)[:each] {
							mine = append(mine, fmt.Sprint("key-", i))
						}
						if err := l.RunAll(s.Ctx, mine, 10*time.Second, func(context.Context, redlock.Locks) error { return nil }); err != nil {
							return err
						}
					}
					return nil
				}()
			}()
		}
		for range workers {
			s.Is("RunAll", <-errs, nil)
		}
		if d := time.Since(began); d > 500*time.Millisecond {
			t.Errorf("it took %v: some waited for longer than until the one before them was done", d)
		}
		time.Sleep(time.Second)
		harness.Check(t, "attempts", seen.Count(redlock.OpAcquire), workers*runs*each)
		harness.Check(t, "rollbacks", seen.Count(redlock.OpRollback), 0)
		s.Clean(l)
	})
}

// Callers of one Locker wait for each other for a limited time, and then by what the nodes say.
func TestACallerBehindLocksOfItsOwnLockerThatAreNotReleased(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{MaxWaiters: 1})
		locks, err := l.AcquireAll(s.Ctx, []string{"a", "b"}, 5*time.Second)
		s.Is("AcquireAll", err, nil)
		s.Lasts("AcquireAll", 200*time.Millisecond, func() {
			_, err = l.AcquireAll(s.Ctx, []string{"b", "c"}, heldLong, redlock.WithWait(200*time.Millisecond))
		})
		var q *redlock.QuorumError
		if s.Is("AcquireAll", err, redlock.ErrHeld); errors.As(err, &q) && q.Round.Holder() != locks[1].Value() {
			t.Errorf("got the error %v, want one that names the holder", err)
		}
		waiting := make(chan error, 1)
		go func() {
			next, err := l.AcquireAll(s.Ctx, []string{"b", "c"}, heldLong)
			if err == nil {
				err = next.Release(s.Ctx)
			}
			waiting <- err
		}()
		synctest.Wait()
		_, err = l.AcquireAll(s.Ctx, []string{"b"}, heldLong)
		s.Is("AcquireAll of one too many", err, redlock.ErrTooManyWaiters)
		synctest.Wait()
		if s.Is("AcquireAll behind locks that expire", <-waiting, nil); locks.Valid() {
			t.Error("it did not wait for them to expire")
		}
		s.Is("Release", locks.Release(s.Ctx), redlock.ErrLost)
		s.Clean(l)

		locks, err = l.AcquireAll(s.Ctx, []string{"a", "b"}, time.Minute)
		s.Is("AcquireAll", err, nil)
		s.Is("LeaveUntil", locks[1].LeaveUntil(s.Ctx, time.Now().Add(time.Second)), nil)
		s.Is("Release", locks.Release(s.Ctx), nil)
		if _, err := l.AcquireAll(s.Ctx, []string{"b"}, heldLong, redlock.WithWait(time.Second)); !errors.Is(err, redlock.ErrHeld) {
			t.Errorf("AcquireAll of a lock that was left: got %v, want ErrHeld", err)
		}
	})
}
