package waiting_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/harness"
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
				if v.Answer != redlock.Pending || v.Node == "" {
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
			if round := waitedInVain(s, err, redlock.ErrHeld); round.Holder() != k.Value() || round.Attempt != 1 {
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
