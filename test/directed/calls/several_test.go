package calls_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/harness"
)

func TestAcquireAllTakesOneRoundTripAndOneBatch(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		s.Slow(20*time.Millisecond, 0, 1, 2)
		s.Lasts("AcquireAll", 20*time.Millisecond, func() {
			locks, err := l.AcquireAll(s.Ctx, []string{"c", "a", "b", "a"}, 10*time.Second, redlock.WithWait(time.Second))
			s.Is("AcquireAll", err, nil)
			var keys []string
			for _, k := range locks {
				keys = append(keys, k.Key())
				if k.Fence() == 0 {
					t.Errorf("%v has no fence", k)
				}
			}
			if want := []string{"c", "a", "b", "a"}; !slices.Equal(keys, want) || !locks.Valid() {
				t.Errorf("got the locks of %v, valid %v, want those of %v", keys, locks.Valid(), want)
			}
			if got := s.Locked(); !slices.Equal(got, []string{"a", "b", "c"}) {
				t.Errorf("the nodes have %v", got)
			}
			go locks.Release(s.Ctx)
		})
		time.Sleep(time.Second)
		s.Clean(l)
	})
}

// A key that is named twice has two entries and one lock, which is extended, released and reported once.
func TestAKeyThatIsNamedTwice(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		var seen harness.Observer
		l := s.Locker(redlock.Options{Trace: seen.Trace()})
		keys := []string{"b", "a", "b", "b"}
		locks, err := l.AcquireAll(s.Ctx, keys, time.Second)
		s.Is("AcquireAll", err, nil)
		if len(locks) != len(keys) {
			t.Fatalf("got %d locks of %d keys", len(locks), len(keys))
		}
		for i, k := range locks {
			harness.Check(s, "the key", k.Key(), keys[i])
		}
		if locks[2] != locks[0] || locks[3] != locks[0] || locks[1] == locks[0] {
			t.Errorf("got %v, want two locks", locks)
		}
		if !locks.Valid() || !locks.Until().Equal(locks[0].Until()) {
			t.Errorf("valid %v until %v, want that of the two", locks.Valid(), locks.Until())
		}
		held, stop := locks.KeepAlive(s.Ctx)
		harness.Check(s, "the contexts of KeepAlive", strings.Count(fmt.Sprint(held), "WithCancel"), strings.Count(fmt.Sprint(s.Ctx), "WithCancel")+2)
		stop()
		s.Is("Release", locks.Release(s.Ctx), nil)
		harness.Check(s, "releases", len(seen.Ends("Release")), 2)

		why := errors.New("fn's own")
		err = l.RunAll(s.Ctx, keys, time.Second, func(ctx context.Context, locks redlock.Locks) error {
			harness.Check(s, "locks in RunAll", len(locks), len(keys))
			s.EvictKey("b", s.All()...)
			s.Ended(ctx, time.Minute)
			return why
		})
		harness.CheckIs(s, "RunAll", err, why, redlock.ErrLost)
		harness.Check(s, "reports of the loss", strings.Count(err.Error(), `"b"`), 1)
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
		s.EvictKey("b", 0, 1, 2)
		s.Ended(held, time.Minute)
		s.Is("the cause", context.Cause(held), redlock.ErrLost)
		if locks.Valid() || !locks[0].Valid() {
			t.Error("want one valid lock, and not all")
		}
		s.Is("Release", locks.Release(s.Ctx), redlock.ErrLost)
		s.Clean(l)
	})
}

// A caller that overlooks the error of AcquireAll has no locks, and they are not valid.
func TestNoLocksAreNotValid(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		s.Foreign(time.Minute, s.All()...)
		locks, err := l.AcquireAll(s.Ctx, []string{job, "free"}, 10*time.Second, redlock.WithWait(0))
		if s.Is("AcquireAll", err, redlock.ErrHeld); locks.Valid() {
			t.Error("valid: got true, want false")
		}
		s.Is("Release", locks.Release(s.Ctx), nil)
	})
}

// A caller that waits for one key holds none of the others, and gets all when that one is released.
func TestAcquireAllHoldsNothingWhileItWaits(t *testing.T) {
	for name, own := range map[string]bool{"for another Locker": false, "for its own Locker": true} {
		runStage(t, name, 3, func(s *stage) {
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
			if keys := s.Locked(); !slices.Equal(keys, []string{"b"}) {
				s.Errorf("while it waits the nodes have %v, want b alone", keys)
			}
			free := harness.Try(s, other, "c", time.Minute)
			s.Is("Release of b, while c is held", k.Release(s.Ctx), nil)
			time.Sleep(time.Second)
			if keys := s.Locked(); !slices.Equal(keys, []string{"c"}) {
				s.Errorf("while it waits for the second the nodes have %v, want c alone", keys)
			}
			s.Is("Release of c", free.Release(s.Ctx), nil)
			released := time.Now()
			locks := <-got
			if d := time.Since(released); d > 20*time.Millisecond {
				s.Errorf("it got its locks %v after the last release, want at once", d)
			}
			s.Is("Release", locks.Release(s.Ctx), nil)
			s.Clean(l, other)
		})
	}
}

// Whoever was refused because of an attempt for all that failed is told when that is undone. The attempt has a majority for a
// while it waits for the node that decides about b.
func TestAFailedAcquireAllWakesThoseThatItRefused(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l, other := s.Locker(redlock.Options{}), s.Locker(redlock.Options{})
		s.Node(0).Set("b", otherValue, time.Minute)
		s.Node(2).Hang()
		failed := harness.Background(func() error {
			return harness.Second(l.AcquireAll(s.Ctx, []string{"a", "b"}, 10*time.Second, redlock.WithWait(0)))
		})
		time.Sleep(100 * time.Millisecond)
		waited := harness.Background(func() error { return harness.Second(other.Acquire(s.Ctx, "a", 10*time.Second)) })
		s.Is("AcquireAll", <-failed, redlock.ErrNoQuorum)
		began := time.Now()
		s.Is("Acquire", <-waited, nil)
		if d := time.Since(began); d > 30*time.Millisecond {
			t.Errorf("Acquire of a key that was released took %v more, want it to be told", d)
		}
	})
}

func TestWhatEndsAcquireAllLeavesNothing(t *testing.T) {
	all := func(ctx context.Context, l *redlock.Locker, opts ...redlock.AcquireOption) error {
		return harness.Second(l.AcquireAll(ctx, []string{"a", "b", "c"}, 10*time.Second, opts...))
	}
	panicky := redlock.Options{Trace: redlock.Trace{Round: func(_ context.Context, r redlock.Round) {
		if r.Op == redlock.OpAcquire && r.Key == "b" {
			panic("the user's own")
		}
	}}}
	for name, c := range map[string]struct {
		opt  redlock.Options
		call func(s *stage, l *redlock.Locker) error
		want []error
	}{
		"ctx": {redlock.Options{}, func(s *stage, l *redlock.Locker) error {
			ctx := s.Timeout(time.Second)
			return all(ctx, l)
		}, []error{context.DeadlineExceeded, redlock.ErrHeld}},
		"WithWait": {redlock.Options{}, func(s *stage, l *redlock.Locker) error {
			err := l.RunAll(s.Ctx, []string{"a", "b", "c"}, 10*time.Second, noWorkAll, redlock.WithWait(time.Second))
			harness.CheckIsNot(s, "RunAll", err, context.DeadlineExceeded)
			return err
		}, []error{redlock.ErrHeld}},
		"WithWait(0)": {redlock.Options{}, func(s *stage, l *redlock.Locker) error { return all(s.Ctx, l, redlock.WithWait(0)) }, []error{redlock.ErrHeld}},
		"Close": {redlock.Options{}, func(s *stage, l *redlock.Locker) error {
			time.AfterFunc(time.Second, func() { l.Close() })
			return all(s.Ctx, l)
		}, []error{redlock.ErrClosed, redlock.ErrHeld}},
		"MaxWaiters": {redlock.Options{MaxWaiters: 1}, func(s *stage, l *redlock.Locker) error {
			ctx := s.Timeout(time.Second)
			first := harness.Background(func() error { return harness.Second(l.Acquire(ctx, "b", time.Second)) })
			synctest.Wait()
			defer func() { <-first }()
			return all(s.Ctx, l)
		}, []error{redlock.ErrTooManyWaiters}},
		"a panic": {panicky, func(s *stage, l *redlock.Locker) error {
			if !harness.Panics(func() { all(s.Ctx, l) }) {
				return nil
			}
			return errors.New("it panics")
		}, nil},
		"nested": {redlock.Options{}, func(s *stage, l *redlock.Locker) error {
			return l.Run(s.Ctx, "c", time.Second, func(ctx context.Context, _ *redlock.Lock) error { return all(ctx, l) })
		}, []error{redlock.ErrNested}},
		"no keys": {redlock.Options{}, func(s *stage, l *redlock.Locker) error {
			s.Says(harness.Second(l.AcquireAll(s.Ctx, make([]string, 65), time.Second)), "65 keys")
			err := harness.Second(l.AcquireAll(s.Ctx, nil, time.Second))
			s.Says(err, "0 keys")
			return err
		}, nil},
	} {
		runStage(t, name, 3, func(s *stage) {
			l, other := s.Locker(c.opt), s.Locker(redlock.Options{})
			k := harness.Try(s, other, "b", time.Minute)
			err := c.call(s, l)
			if err == nil {
				s.Fatal("got no error")
			}
			if len(c.want) > 0 {
				harness.CheckIs(s, name, err, c.want...)
			}
			time.Sleep(time.Second)
			if keys := s.Locked(); !slices.Equal(keys, []string{"b"}) {
				s.Errorf("afterwards the nodes have %v, want b alone", keys)
			}
			s.Is("Release", k.Release(s.Ctx), nil)
			s.Clean(other)
		})
	}
}

// On every node the keys come in one order, however the caller names them: of two callers that meet there one gets all.
func TestAcquireAllAsksInOneOrder(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		for _, keys := range [][]string{{"a", "b", "c"}, {"c", "a", "b"}, {"b", "c", "a"}} {
			s.Node(0).Record(true)
			locks, err := l.AcquireAll(s.Ctx, keys, 10*time.Second)
			s.Is("AcquireAll", err, nil)
			var asked []string
			for _, c := range s.Node(0).Log() {
				if harness.Verb(c.Args) == "acquire" {
					asked = append(asked, c.Args[1])
				}
			}
			if want := []string{"a", "b", "c"}; !slices.Equal(asked, want) {
				t.Errorf("AcquireAll of %v asks for %v, want %v", keys, asked, want)
			}
			s.Is("Release", locks.Release(s.Ctx), nil)
			time.Sleep(time.Second) // what follows a clean-up is sent after it
		}
		s.Clean(l)
	})
}

// Where callers of its Locker wait for one of the keys, an AcquireAll queues behind them before it has asked for any.
func TestAcquireAllDoesNotOvertakeWaiters(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l, other := s.Locker(redlock.Options{}), s.Locker(redlock.Options{})
		k := harness.Try(s, other, "b", time.Minute)
		first := harness.Background(func() error { return l.Run(s.Ctx, "b", time.Minute, harness.NoWork) })
		time.Sleep(time.Second)
		before := s.attempts(0, "a") + s.attempts(0, "b")
		all := harness.Background(func() error { return l.RunAll(s.Ctx, []string{"a", "b"}, time.Minute, noWorkAll) })
		time.Sleep(time.Second)
		if n := s.attempts(0, "a") + s.attempts(0, "b") - before; n > 0 {
			t.Errorf("%d attempts although another caller waits, want none", n)
		}
		s.Is("Release", k.Release(s.Ctx), nil)
		s.Is("the first", <-first, nil)
		s.Is("RunAll", <-all, nil)
		s.Clean(l, other)
	})
}

// attempts returns how many attempts for a key a node has received.
func (s *stage) attempts(node int, key string) (n int) {
	for _, c := range s.Node(node).Log() {
		if verb := harness.Verb(c.Args); (verb == "acquire" || verb == "turn") && harness.About(c.Args, key) {
			n++
		}
	}
	return n
}

// A caller in the queue of a key that too few nodes can grant is not told of its own failed attempts.
func TestAcquireAllDoesNotWakeItself(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		k, err := s.Locker(redlock.Options{}).Acquire(s.Ctx, "a", time.Minute)
		s.Is("Acquire", err, nil)
		ctx := s.Timeout(4 * time.Second)
		failed := harness.Background(func() error { return harness.Second(l.AcquireAll(ctx, []string{"a", "b"}, 10*time.Second)) })
		time.Sleep(time.Second) // it is in the queue of a
		s.Record()
		s.FailCommand("zadd", loading, 0, 1, 2) // from now on its attempts are stored everywhere and fail at the registers
		s.Is("Release", k.Release(s.Ctx), nil)
		s.Is("AcquireAll", <-failed, context.DeadlineExceeded)
		if n := s.attempts(2, "a"); n < 2 || n > 30 {
			t.Errorf("%d attempts in three seconds, want one after each pause, of 125 ms at least", n)
		}
		s.FailCommand("zadd", "", 0, 1, 2)
		s.Clean(l)
	})
}

// Callers that are refused because of each other's places in the queues do not swap them for ever, while all keys are free.
func TestFairAcquireAllsDoNotAskInStep(t *testing.T) {
	const (
		keys, callers = 5, 10
		times         = 8    // chance decides who comes between whom
		most          = 4000 // attempts; some 2,400 are usual, and without pauses 20,000
	)
	n := 0
	for range times {
		onStage(t, 3, func(s *stage) {
			var lockers []*redlock.Locker
			var all sync.WaitGroup
			for range callers / 2 {
				lockers = append(lockers, s.Locker(redlock.Options{Fair: true}))
			}
			for i := range callers {
				var mine []string
				for j := range 3 {
					mine = append(mine, fmt.Sprint("key-", (i+j)%keys))
				}
				all.Go(func() {
					s.Is("RunAll", lockers[i%len(lockers)].RunAll(s.Ctx, mine, 10*time.Second, func(context.Context, redlock.Locks) error {
						time.Sleep(100 * time.Millisecond)
						return nil
					}), nil)
				})
			}
			all.Wait()
			for i := range keys {
				n += s.attempts(0, fmt.Sprint("key-", i))
			}
			s.Clean(lockers...)
		})
		if n > most {
			t.Fatalf("%d attempts until all were served, want at most %d in %d runs", n, most, times)
		}
	}
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
		for _, key := range []string{"a", "b"} {
			err := l.RunAll(s.Ctx, []string{"a", "b"}, time.Second, func(ctx context.Context, locks redlock.Locks) error {
				s.EvictKey(key, 0, 1, 2)
				s.Ended(ctx, time.Minute)
				return why
			})
			harness.CheckIs(s, "RunAll", err, why, redlock.ErrLost)
			s.Says(err, fmt.Sprintf("%q", key))
		}
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
				locks, err := l.AcquireAll(&lateCtx{Context: s.Ctx, n: n}, []string{"a", "b"}, time.Minute)
				return errors.Join(err, locks.Release(s.Ctx))
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
				s.Is(fmt.Sprintf("n=%d: Run of %s afterwards", n, key), l.Run(s.Ctx, key, time.Minute, harness.NoWork, redlock.WithWait(5*time.Second)), nil)
			}
			s.Clean(l, other)
		})
	}
}

// Whenever ctx ends, and wherever the call stands then, its error says so.
func TestAcquireAllThatEndsBetweenTwoLinesIsEndedByItsContext(t *testing.T) {
	for n := 1; n <= 40; n++ {
		onStage(t, 3, func(s *stage) {
			l, other := s.Locker(redlock.Options{}), s.Locker(redlock.Options{})
			a, b := harness.Try(s, other, "a", time.Hour), harness.Try(s, other, "b", time.Hour)
			ended := harness.Background(func() error {
				return harness.Second(l.AcquireAll(&lateCtx{Context: s.Ctx, n: n}, []string{"a", "b"}, time.Minute))
			})
			time.Sleep(time.Second)
			s.Is("Release", a.Release(s.Ctx), nil) // it tries, and is refused at the other key
			s.Is(fmt.Sprintf("n=%d: AcquireAll", n), <-ended, context.Canceled)
			s.Is("Release", b.Release(s.Ctx), nil)
		})
	}
}

// A caller whose Retry panics leaves the queue.
func TestAPanicInRetryOfAcquireAllLeavesTheQueue(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		var p harness.Trap
		l, other := s.Locker(p.At(0)), s.Locker(redlock.Options{})
		p.Armed.Store(true)
		k := harness.Try(s, other, "a", time.Minute)
		if !harness.Panics(func() { l.AcquireAll(s.Ctx, []string{"a", "b"}, time.Minute) }) {
			t.Fatal("no panic, want it to go on to the caller")
		}
		s.Is("Release", k.Release(s.Ctx), nil)
		s.Is("Run of the key afterwards", l.Run(s.Ctx, "a", time.Minute, harness.NoWork, redlock.WithWait(5*time.Second)), nil)
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
		harness.Check(s, "the holder", s.RoundOf(err).Value(), k.Value())
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
		var all sync.WaitGroup
		began := time.Now()
		for w := range workers {
			r := rand.New(rand.NewPCG(1, uint64(w)))
			all.Go(func() {
				for range runs {
					var mine []string
					for _, i := range r.Perm(keys)[:each] {
						mine = append(mine, fmt.Sprint("key-", i))
					}
					s.Is("RunAll", l.RunAll(s.Ctx, mine, 10*time.Second, noWorkAll), nil)
				}
			})
		}
		all.Wait()
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
		s.Is("AcquireAll", err, redlock.ErrHeld)
		harness.Check(s, "the holder", s.RoundOf(err).Value(), locks[1].Value())
		waiting := harness.Background(func() error { return l.RunAll(s.Ctx, []string{"b", "c"}, heldLong, noWorkAll) })
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

// Locks that expire without a release stand in the way of no later call, nor of one that waits for them already.
func TestACallerBehindLocksThatHaveExpired(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		run := func() error { return l.RunAll(s.Ctx, []string{"b", "c"}, time.Minute, noWorkAll) }
		soon := func(what string, after time.Time) {
			s.Helper()
			s.Is(what, run(), nil)
			if d := time.Since(after); d < 0 || d > 50*time.Millisecond {
				s.Errorf("%s: done after %v, want a few milliseconds", what, d)
			}
		}
		forgotten := func() redlock.Locks {
			locks, err := l.AcquireAll(s.Ctx, []string{"a", "b"}, time.Second)
			s.Is("AcquireAll", err, nil)
			return locks
		}
		locks := forgotten()
		time.Sleep(time.Until(locks.Until()) - 300*time.Millisecond)
		soon("RunAll that waits until they expire", locks.Until())
		for range 3 {
			soon("RunAll after that", time.Now())
		}
		s.Is("Release", locks.Release(s.Ctx), redlock.ErrLost)

		locks = forgotten()
		time.Sleep(2 * time.Second)
		once, err := l.AcquireAll(s.Ctx, []string{"b", "c"}, time.Minute, redlock.WithWait(0)) // it passes the gate
		s.Is("AcquireAll of one that tries once", err, nil)
		s.Is("Release", once.Release(s.Ctx), nil)
		soon("RunAll after that", time.Now())
		s.Is("Release", locks.Release(s.Ctx), redlock.ErrLost)

		locks = forgotten()
		waits := harness.Background(run)
		time.Sleep(500 * time.Millisecond)
		s.Is("Extend", locks[1].Extend(s.Ctx), nil)
		s.Is("RunAll behind a lock that is extended", <-waits, nil)
		if d := time.Since(locks[1].Until()); d < 0 || d > 50*time.Millisecond {
			t.Errorf("it was done %v after the end of the lock, want a few milliseconds", d)
		}
		s.Is("Release", locks.Release(s.Ctx), redlock.ErrLost)
		s.Clean(l)
	})
}

// The end of ctx ends the wait for all releases, not for the first alone.
func TestTheReleaseOfSeveralLocksEndsWithItsContext(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		locks, err := l.AcquireAll(s.Ctx, []string{"a", "b", "c"}, 10*time.Second)
		s.Is("AcquireAll", err, nil)
		s.Hang(0, 1)
		ctx := s.Timeout(100 * time.Millisecond)
		s.Lasts("Release", 100*time.Millisecond, func() {
			err := locks.Release(ctx)
			harness.CheckIs(s, "Release", err, context.DeadlineExceeded)
			s.Says(err, `"a"`, `"b"`, `"c"`)
		})
		s.Resume(0, 1)
		s.Clean(l)
	})
}
