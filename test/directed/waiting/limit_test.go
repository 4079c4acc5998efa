package waiting_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/harness"
	"github.com/seed-ce352c9b/redlock/redlocktest"
)

// waitedInVain fails the test unless err is the *QuorumError of a wait by WithWait, and of nothing else. It returns its round.
func waitedInVain(s *stage, err, want error) redlock.Round {
	s.Helper()
	s.Is("the error", err, want)
	harness.CheckIsNot(s, "the error", err, context.DeadlineExceeded, context.Canceled)
	round := s.RoundOf(err)
	if len(round.Votes) != s.Cluster.Len() || round.Op != redlock.OpAcquire || round.Key != job {
		s.Errorf("got the round %+v, want one vote of each node about %q", round, job)
	}
	return round
}

// The limit is that of the wait, and not of the work.
func TestWithWaitDoesNotLimitTheWork(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		k := s.Take(s.Locker(redlock.Options{}), heldLong)
		time.AfterFunc(100*time.Millisecond, func() { k.Release(s.Ctx) })
		err := l.Run(s.Ctx, job, time.Second, func(ctx context.Context, lock *redlock.Lock) error {
			time.Sleep(time.Minute)
			if _, limited := ctx.Deadline(); limited || ctx.Err() != nil || !lock.Valid() {
				t.Errorf("the work's context is limited, or has ended: %v", context.Cause(ctx))
			}
			return nil
		}, redlock.WithWait(200*time.Millisecond))
		s.Is("Run", err, nil)
		s.Clean(l)
	})
}

func TestAWaitThatEndsBeforeARoundSaysSo(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		s.Slow(50*time.Millisecond, s.All()...)
		// The first waits longest: if it gave up first, the next might still ask at that instant.
		limits := []time.Duration{22 * time.Millisecond, 20 * time.Millisecond, 20 * time.Millisecond}
		var errs []<-chan error
		for _, limit := range limits {
			errs = append(errs, harness.Background(func() error {
				return harness.Second(l.Acquire(s.Ctx, job, 10*time.Second, redlock.WithWait(limit)))
			}))
			synctest.Wait()
		}
		asked := 0
		for i, limit := range limits {
			err := <-errs[i]
			round := waitedInVain(s, err, redlock.ErrNoQuorum)
			for _, v := range round.Votes {
				if v.Answer != redlock.AnswerPending || v.Node == "" {
					t.Errorf("got the vote %+v, want one of a node that had not replied", v)
				}
			}
			if round.Attempt == 1 {
				asked++
			}
			s.Says(err, "waited "+limit.String()+", ", " pending")
		}
		if asked != 1 {
			t.Errorf("%d callers had asked, want one", asked)
		}
		time.Sleep(time.Second)
		s.Clean(l)
	})
}

func TestWithWaitZeroTriesOnce(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{MaxWaiters: 1})
		s.Is("Run of a free lock", l.Run(s.Ctx, job, time.Second, harness.NoWork, redlock.WithWait(0)), nil)
		k := s.Take(s.Locker(redlock.Options{}), heldLong)
		ctx, cancel := context.WithCancel(s.Ctx)
		waits := harness.Background(func() error { return harness.Second(l.Acquire(ctx, job, time.Second)) })
		synctest.Wait()
		s.Lasts("Acquire", 0, func() {
			_, err := l.Acquire(s.Ctx, job, time.Second, redlock.WithWait(0))
			if round := waitedInVain(s, err, redlock.ErrHeld); round.Value() != k.Value() || round.Attempt != 1 {
				t.Errorf("got the round %+v, want one attempt of its own", round)
			}
		})
		cancel()
		s.Is("the waiter", <-waits, context.Canceled)
		s.Is("Release", k.Release(s.Ctx), nil)
		s.Clean(l)
	})
}

func TestWhatEndsAWaitBeforeItsLimit(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		k := s.Take(s.Locker(redlock.Options{}), heldLong)
		wait := func(ctx context.Context) error {
			return harness.Second(l.Acquire(ctx, job, time.Second, redlock.WithWait(time.Second)))
		}
		why := errors.New("the caller's own")
		ctx, stop := context.WithTimeoutCause(s.Ctx, 100*time.Millisecond, why)
		defer stop()
		s.Lasts("Acquire", 100*time.Millisecond, func() {
			harness.CheckIs(t, "a ctx that ends earlier", wait(ctx), context.DeadlineExceeded, why, redlock.ErrHeld)
		})
		harness.CheckIs(t, "a ctx that has ended", wait(ctx), context.DeadlineExceeded, why)
		leads, follows := harness.Background(func() error { return wait(s.Ctx) }), harness.Background(func() error { return wait(s.Ctx) })
		time.Sleep(100 * time.Millisecond)
		s.Is("Close", l.Close(), nil)
		harness.CheckIs(t, "a leader that Close ends", <-leads, redlock.ErrClosed, redlock.ErrHeld)
		harness.CheckIs(t, "a follower that Close ends", <-follows, redlock.ErrClosed, redlock.ErrHeld)
		s.Is("Release", k.Release(s.Ctx), nil)
		s.Clean()
	})
}

// Half of an even number of nodes store another's value, and the errors of the other half do not heal with time: either half rules
// a majority out. The wait is for the holder, and only then in vain.
func TestAHolderIsWaitedForThoughNoMajorityIsLeft(t *testing.T) {
	const readOnly = "READONLY You can't write against a read only replica."
	for _, n := range []int{2, 4} {
		onStage(t, n, func(s *stage) {
			l := s.Locker(redlock.Options{})
			k := s.Take(s.Locker(redlock.Options{}), heldLong)
			s.FailNodes(readOnly, s.All()[:n/2]...)
			s.Slow(time.Millisecond, s.All()[n/2:]...) // so that the errors come first
			noWork := func(context.Context, *redlock.Lock) error { return nil }
			for what, call := range map[string]func() error{
				"Acquire": func() error { return harness.Second(l.Acquire(s.Ctx, job, time.Second, redlock.WithWait(time.Second))) },
				"Lead":    func() error { return l.Lead(s.Ctx, job, time.Second, noWork, redlock.WithWait(time.Second)) },
				"AcquireAll": func() error {
					return harness.Second(l.AcquireAll(s.Ctx, []string{job}, time.Second, redlock.WithWait(time.Second)))
				},
			} {
				s.Lasts(what, time.Second, func() { waitedInVain(s, call(), redlock.ErrHeld) })
			}
			w := s.waiter(l, time.Second)
			time.Sleep(time.Minute)
			w.waits("while the lock is held")
			s.Is("Release", k.Release(s.Ctx), redlock.ErrNoQuorum)
			time.Sleep(time.Second)
			if !w.over() {
				t.Fatalf("%d nodes: the waiter waits on, though nobody holds the lock", n)
			}
			s.Is("the waiter", w.err, redlock.ErrNoQuorum)
			s.Says(w.err, "READONLY")
		})
	}
}

// The first round of an outage is decided when the node timeout has passed. Who gives up before that is told the votes that there
// are, also behind another caller.
func TestEveryCallerIsToldTheVotesOfTheRoundInProgress(t *testing.T) {
	onStage(t, 5, func(s *stage) {
		l := s.Locker(redlock.Options{})
		s.Hang(0, 1)
		s.FailNodes(loading, 2)
		for range 2 {
			s.waiter(l, 10*time.Second)
			time.Sleep(10 * time.Microsecond)
		}
		time.Sleep(time.Millisecond)
		check := func(what string, err error) {
			s.Helper()
			s.Is(what, err, redlock.ErrNoQuorum)
			var answers []redlock.Answer
			for _, v := range s.RoundOf(err).Votes {
				answers = append(answers, v.Answer)
			}
			if want := []redlock.Answer{redlock.AnswerPending, redlock.AnswerPending, redlock.AnswerUnknown, redlock.AnswerYes, redlock.AnswerYes}; !slices.Equal(answers, want) {
				s.Errorf("%s: got the votes %v, want %v", what, answers, want)
			}
			s.Says(err, "LOADING")
		}
		_, err := l.Acquire(s.Ctx, job, 10*time.Second, redlock.WithWait(20*time.Millisecond))
		check("a limit of the wait", err)
		_, err = l.Acquire(s.Timeout(20*time.Millisecond), job, 10*time.Second)
		check("a ctx that ends", err)
		s.Is("a ctx that ends", err, context.DeadlineExceeded)
	})
}

// A caller that has only looked, because its own Locker holds the lock or leaves it to others, is told the holder, too.
func TestAWaitThatOnlyLookedIsToldTheHolder(t *testing.T) {
	told := func(s *stage, what string, l *redlock.Locker, key string, k *redlock.Lock) {
		s.Helper()
		s.Record()
		_, err := l.Acquire(s.Ctx, key, heldLong, redlock.WithWait(time.Second))
		if round := s.RoundOf(err); !errors.Is(err, redlock.ErrHeld) || round.Value() != k.Value() {
			s.Errorf("%s: got the holder %q in %v, want %q", what, round.Value(), err, k.Value())
		}
		s.Says(err, "held by "+k.Value().Label())
		if n := len(s.Told(0, "acquire")); n > 0 {
			s.Errorf("%s: it tried %d times, and this is about looks", what, n)
		}
	}
	for _, n := range []int{3, 4} {
		onStage(t, n, func(s *stage) {
			l, other := s.Locker(redlock.Options{Name: "l"}), s.Locker(redlock.Options{Name: "other"})
			k := s.Take(other, heldLong)
			w := s.settled(l, heldLong)
			w.follows(k, "the waiter", promptly)
			told(s, "its own Locker holds the lock", l, job, w.lock)
			told(s, "its own Locker holds the lock, and looks again", l, job, w.lock)
			waits := s.settled(other, heldLong)
			waits.follows(w.lock, "the other", promptly)
			told(s, "the lock is left to others", l, job, waits.lock)
			s.Is("Release", waits.lock.Release(s.Ctx), nil)
			s.Clean(l, other)
		})
	}
	onStage(t, 3, func(s *stage) { // a key of another type has no holder, and is in the way all the same
		l := s.Locker(redlock.Options{})
		k := s.Take(s.Locker(redlock.Options{}), heldLong)
		w := s.settled(l, heldLong)
		w.follows(k, "the waiter", promptly)
		s.Evict()
		s.Each(func(n *redlocktest.Node) { n.Do("RPUSH", job, "a list") })
		_, err := l.Acquire(s.Ctx, job, heldLong, redlock.WithWait(20*time.Millisecond))
		s.Is("Acquire behind a list", err, redlock.ErrHeld)
		harness.Check(s, "the holder", s.RoundOf(err).Value(), redlock.Value{})
		s.Evict()
	})
}

func TestLimitsThatAreRefused(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		_, err := l.Acquire(s.Ctx, job, time.Second, redlock.WithWait(-time.Second))
		s.Says(err, "WithWait(-1s)", "negative")
		for _, d := range []time.Duration{0, time.Second} {
			_, err = l.TryAcquire(s.Ctx, job, time.Second, redlock.WithWait(d))
			s.Says(err, "WithWait", "TryAcquire does not wait")
		}
		if _, err := redlock.New(redlock.Options{MaxWaiters: -1}, s.Cluster.Nodes()...); err == nil {
			t.Error("New with a negative Options.MaxWaiters: got no error")
		}
		if sent := s.Told(0, "acquire"); len(sent) > 0 {
			t.Errorf("got %v sent, want nothing", sent)
		}
	})
}

func TestMaxWaitersBoundsTheCallersOfEachKey(t *testing.T) {
	const most = 3
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{MaxWaiters: most})
		other := s.Locker(redlock.Options{})
		k := s.Take(other, heldLong)
		ctx, cancel := context.WithCancel(s.Ctx)
		errs := make(chan error, most)
		for i := range most {
			go func() {
				ctx := ctx
				if i == most-1 {
					ctx = s.Ctx
				}
				errs <- l.Run(ctx, job, time.Second, harness.NoWork)
			}()
			synctest.Wait()
		}
		refused := func(when string) {
			s.Lasts("a call above the cap", 0, func() {
				_, err := l.Acquire(s.Ctx, job, time.Second)
				s.Is(when, err, redlock.ErrTooManyWaiters)
				harness.CheckIsNot(t, when, err, redlock.ErrHeld, redlock.ErrNoQuorum)
				s.Says(err, fmt.Sprintf("%d callers", most), job)
			})
		}
		refused("with as many waiters as are allowed")
		_, err := l.TryAcquire(s.Ctx, job, time.Second)
		s.Is("TryAcquire, which does not wait", err, redlock.ErrHeld)
		_, err = other.Acquire(s.Ctx, "other", time.Second)
		s.Is("Acquire of another key", err, nil)
		cancel() // two leave, and their places are free
		for range most - 1 {
			s.Is("a waiter that leaves", <-errs, context.Canceled)
		}
		waits := make(chan error, most)
		for range most - 1 {
			go func() { waits <- l.Run(s.Ctx, job, time.Second, harness.NoWork) }()
		}
		synctest.Wait()
		refused("after two have left and two have come")
		s.Is("Release", k.Release(s.Ctx), nil)
		for range most - 1 {
			s.Is("a waiter", <-waits, nil)
		}
		s.Is("the last of the first", <-errs, nil)
		s.Is("Run with no waiters", l.Run(s.Ctx, job, time.Second, harness.NoWork), nil)
		s.Clean(l)
	})
}

// However callers wait, they count together: at the gate of AcquireAll, behind locks of their own Locker, as in the queue.
func TestMaxWaitersCountsAllWaysOfWaiting(t *testing.T) {
	ways := map[string]func(s *stage, l *redlock.Locker, key string) error{
		"Acquire": func(s *stage, l *redlock.Locker, key string) error {
			return l.Run(s.Ctx, key, time.Second, harness.NoWork)
		},
		"AcquireAll": func(s *stage, l *redlock.Locker, key string) error {
			return l.RunAll(s.Ctx, []string{key}, time.Second, noWorkAll)
		},
	}
	for first, one := range ways {
		for second, other := range ways {
			runStage(t, first+" and "+second, 3, func(s *stage) {
				l := s.Locker(redlock.Options{MaxWaiters: 2})
				locks, err := l.AcquireAll(s.Ctx, []string{job}, heldLong)
				s.Is("AcquireAll", err, nil)
				var waits []<-chan error
				for _, wait := range []func(*stage, *redlock.Locker, string) error{one, other} {
					waits = append(waits, harness.Background(func() error { return wait(s, l, job) }))
					synctest.Wait()
				}
				for range 3 { // at once, and once those at the gate have gone to the queue
					for third, way := range ways {
						s.Lasts("the third, by "+third, 0, func() {
							err := way(s, l, job)
							s.Is("the third, by "+third, err, redlock.ErrTooManyWaiters)
							s.Says(err, "2 callers", job)
						})
					}
					time.Sleep(700 * time.Millisecond)
				}
				s.Is("Release", locks.Release(s.Ctx), nil)
				for _, wait := range waits {
					s.Is("a waiter", <-wait, nil)
				}
				for range 3 { // those that are served give their places back
					locks, err := l.AcquireAll(s.Ctx, []string{job}, heldLong)
					s.Is("AcquireAll", err, nil)
					waits := harness.Background(func() error { return other(s, l, job) })
					synctest.Wait()
					s.Is("Release", locks.Release(s.Ctx), nil)
					s.Is("a waiter", <-waits, nil)
				}
				s.Clean(l)
			})
		}
	}
}

// A caller of AcquireAll that goes from one key to the next counts for that one, and is refused there at once.
func TestMaxWaitersAtTheNextKeyOfAcquireAll(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{MaxWaiters: 1})
		hold := func(key string) redlock.Locks {
			locks, err := l.AcquireAll(s.Ctx, []string{key}, heldLong)
			s.Is("AcquireAll", err, nil)
			return locks
		}
		a, b := hold("a"), hold("b")
		both := harness.Background(func() error { return l.RunAll(s.Ctx, []string{"a", "b"}, time.Second, noWorkAll) })
		synctest.Wait()
		alone := harness.Background(func() error { return l.Run(s.Ctx, "b", time.Second, harness.NoWork) })
		synctest.Wait()
		s.Is("Acquire of a, for which one waits", harness.Second(l.Acquire(s.Ctx, "a", time.Second)), redlock.ErrTooManyWaiters)
		s.Lasts("AcquireAll that comes to b", 0, func() {
			s.Is("Release of a", a.Release(s.Ctx), nil)
			err := <-both
			s.Is("AcquireAll that comes to b", err, redlock.ErrTooManyWaiters)
			s.Says(err, `"b"`)
		})
		s.Is("a, for which nobody waits any more", l.Run(s.Ctx, "a", time.Second, harness.NoWork), nil)
		s.Is("Release of b", b.Release(s.Ctx), nil)
		s.Is("the one that waits for b", <-alone, nil)
		s.Clean(l)
	})
}
