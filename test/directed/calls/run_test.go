package calls_test

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
)

func TestRunGivesWhatFnGave(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		why := errors.New("fn's own")
		var k *redlock.Lock
		err := l.Run(s.Ctx, job, time.Second, func(ctx context.Context, lock *redlock.Lock) error {
			k = lock
			time.Sleep(time.Minute) // far beyond the ttl
			if ctx.Err() != nil || !lock.Valid() {
				t.Errorf("lost after a minute: %v", context.Cause(ctx))
			}
			s.Carry("during fn", lock.Value(), 0, 1, 2)
			return why
		})
		if err != why {
			t.Errorf("got %v, want fn's error alone", err)
		}
		if k.Valid() {
			t.Errorf("valid after Run")
		}
		s.Is("Run", l.Run(s.Ctx, job, time.Second, harness.NoWork), nil)
		s.Clean(l)
	})
}

// Attack 85.
func TestRunSaysThatTheLockWasLost(t *testing.T) {
	why := errors.New("fn's own")
	for name, c := range map[string]struct {
		fn   func(ctx context.Context) error
		want []error
	}{
		"fn minds its context":         {func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }, []error{redlock.ErrLost}},
		"fn gives an error of its own": {func(ctx context.Context) error { <-ctx.Done(); return why }, []error{redlock.ErrLost, why}},
		"fn ends well":                 {func(ctx context.Context) error { <-ctx.Done(); return nil }, []error{redlock.ErrLost}},
		"fn does not look":             {func(ctx context.Context) error { time.Sleep(time.Minute); return nil }, []error{redlock.ErrLost}},
	} {
		for _, grace := range []time.Duration{0, 3 * time.Second} {
			runStage(t, fmt.Sprintf("%s, grace %v", name, grace), 3, func(s *stage) {
				l := s.Locker(redlock.Options{Grace: grace})
				var k *redlock.Lock
				harness.CheckIs(s, "Run", l.Run(s.Ctx, job, 9*time.Second, func(ctx context.Context, lock *redlock.Lock) error {
					k = lock
					if grace == 0 {
						s.Hang(0, 1, 2)
					} else {
						s.FailNodes(loading, 0, 1, 2)
					}
					err := c.fn(ctx)
					s.Is("the cause of fn's context", context.Cause(ctx), redlock.ErrLost)
					s.FailNodes("", 0, 1, 2)
					return err
				}), c.want...)
				if name != "fn does not look" && grace > 0 {
					if left := time.Until(k.Until()); left < 2*time.Second {
						s.Errorf("Run returned %v before Until, want it not to wait", left)
					}
					s.Carry("after Run", k.Value())
				}
				s.Clean(l)
			})
		}
	}
	runStage(t, "found out by the release", 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		err := l.Run(s.Ctx, job, 10*time.Second, func(ctx context.Context, lock *redlock.Lock) error {
			s.Foreign(time.Minute, 0, 1, 2)
			return why
		})
		harness.CheckIs(s, "Run", err, redlock.ErrLost, why)
		s.Carry("the other's", redlock.ValueOf(otherValue), 0, 1, 2)
	})
	runStage(t, "fn returns between the loss and its being told", 3, func(s *stage) {
		var h harness.Clocks
		l := s.LockerWith(redlock.Options{}, &h, s.Cluster.Nodes())
		err := l.Run(s.Ctx, job, 10*time.Second, func(ctx context.Context, lock *redlock.Lock) error {
			s.Suspend(&h, time.Hour)
			return nil
		})
		s.Is("Run", err, redlock.ErrLost)
	})
	runStage(t, "a release that too few answer is no loss", 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		err := l.Run(s.Ctx, job, 10*time.Second, func(ctx context.Context, lock *redlock.Lock) error {
			s.Hang(0, 1)
			return nil
		})
		s.Is("Run", err, nil)
		s.Clean(l)
	})
	runStage(t, "not acquired: fn is not called", 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		s.Foreign(time.Hour, 0, 1, 2)
		ctx := s.Timeout(time.Second)
		err := l.Run(ctx, job, 10*time.Second, func(ctx context.Context, lock *redlock.Lock) error {
			s.Errorf("fn was called")
			return nil
		})
		harness.CheckIs(s, "Run", err, context.DeadlineExceeded, redlock.ErrHeld)
	})
}

// What may happen once per interval: fn leaves the lock to expire, and that is how it ends.
func TestRunOfALockThatFnLeavesToExpire(t *testing.T) {
	why := errors.New("fn's own")
	for name, c := range map[string]struct {
		fn   func(ctx context.Context, lock *redlock.Lock) error
		want error
	}{
		"at its end": {func(ctx context.Context, lock *redlock.Lock) error { return lock.LeaveUntil(ctx, lock.Until()) }, nil},
		"and fails":  {func(ctx context.Context, lock *redlock.Lock) error { lock.LeaveUntil(ctx, lock.Until()); return why }, why},
		"and goes on beyond Until": {func(ctx context.Context, lock *redlock.Lock) error {
			lock.LeaveUntil(ctx, lock.Until())
			time.Sleep(time.Minute)
			return nil
		}, nil},
		"but releases it before": {func(ctx context.Context, lock *redlock.Lock) error {
			lock.Release(ctx)
			lock.LeaveUntil(ctx, lock.Until())
			return nil
		}, redlock.ErrLost},
	} {
		runStage(t, name, 3, func(s *stage) {
			l := s.Locker(redlock.Options{})
			var k *redlock.Lock
			s.Is("Run", l.Run(s.Ctx, job, 10*time.Second, func(ctx context.Context, lock *redlock.Lock) error {
				k = lock
				return c.fn(ctx, lock)
			}), c.want)
			if name == "at its end" || name == "and fails" {
				s.Carry("left to expire", k.Value(), s.All()...)
			}
		})
	}
}

// Past Until there is nothing that could be left to expire: the lock is lost.
func TestALockThatIsLeftToExpirePastUntilIsLost(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		var h harness.Clocks
		l := s.LockerWith(redlock.Options{}, &h, s.Cluster.Nodes())
		err := l.Run(s.Ctx, job, 10*time.Second, func(ctx context.Context, lock *redlock.Lock) error {
			s.Suspend(&h, time.Hour)
			lock.LeaveUntil(s.Ctx, lock.Until())
			s.Is("the cause of fn's context", context.Cause(ctx), redlock.ErrLost)
			return nil
		})
		s.Is("Run", err, redlock.ErrLost)
		k := s.Take(l, 10*time.Second)
		s.Suspend(&h, 10*time.Second)
		k.LeaveUntil(s.Ctx, k.Until())
		s.Is("Release", k.Release(s.Ctx), redlock.ErrLost)
		s.Clean(l)
	})
}

// Attack 85.
func TestRunReleasesWhenFnPanicsOrExits(t *testing.T) {
	for name, run := range everyRun {
		runStage(t, name, 3, func(s *stage) {
			l := s.Locker(redlock.Options{})
			var fnCtx context.Context
			func() {
				defer func() { harness.Check(s, "recovered", recover(), "fn's own") }()
				run(s.Ctx, l, func(ctx context.Context) error {
					fnCtx = ctx
					panic("fn's own")
				})
			}()
			if fnCtx.Err() == nil {
				s.Errorf("fn's context is alive after the panic")
			}
			s.Clean(l)
		})
		runStage(t, name+", Goexit", 3, func(s *stage) {
			l := s.Locker(redlock.Options{})
			var wg sync.WaitGroup
			wg.Go(func() {
				run(s.Ctx, l, func(context.Context) error { runtime.Goexit(); return nil })
			})
			wg.Wait()
			s.Clean(l)
		})
	}
}

// everyRun has all calls that acquire, keep alive and release.
var everyRun = map[string]func(ctx context.Context, l *redlock.Locker, fn func(ctx context.Context) error, opts ...redlock.AcquireOption) error{
	"Run": func(ctx context.Context, l *redlock.Locker, fn func(ctx context.Context) error, opts ...redlock.AcquireOption) error {
		return l.Run(ctx, job, 10*time.Second, func(ctx context.Context, _ *redlock.Lock) error { return fn(ctx) }, opts...)
	},
	"RunAll": func(ctx context.Context, l *redlock.Locker, fn func(ctx context.Context) error, opts ...redlock.AcquireOption) error {
		return l.RunAll(ctx, []string{job, "other"}, 10*time.Second, func(ctx context.Context, _ redlock.Locks) error { return fn(ctx) }, opts...)
	},
	"RunSlot": func(ctx context.Context, l *redlock.Locker, fn func(ctx context.Context) error, opts ...redlock.AcquireOption) error {
		return l.RunSlot(ctx, job, 2, 10*time.Second, func(ctx context.Context, _ *redlock.Lock, _ int) error { return fn(ctx) }, opts...)
	},
}

// The release is one call, and its wait ends with ctx, as that of Release does.
func TestRunWaitsForItsReleaseOnce(t *testing.T) {
	const limit = 100 * time.Millisecond
	for name, run := range everyRun {
		runStage(t, name, 3, func(s *stage) {
			releases := 0
			l := s.Locker(redlock.Options{Trace: redlock.Trace{End: func(_ context.Context, c redlock.Call, _ error) {
				if c.Method == "Release" {
					releases++
				}
			}}})
			ctx, cancel := context.WithCancel(s.Ctx)
			var returned time.Time
			s.Is(name, run(ctx, l, func(context.Context) error {
				s.Hang(0, 1)
				returned = time.Now()
				time.AfterFunc(limit, cancel)
				return nil
			}), nil)
			locks := 1
			if name == "RunAll" {
				locks = 2
			}
			if d := time.Since(returned); d != limit || releases != locks {
				t.Errorf("it returned %v after fn, with %d calls of Release, want %d that end with ctx after %v", d, releases, locks, limit)
			}
			s.Clean(l)
		})
	}
}

// A lock is not reentrant: who asks for it again under the lock would wait for itself.
func TestALockIsNotReentrant(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l, other := s.Locker(redlock.Options{}), s.Locker(redlock.Options{})
		under := func(context.Context, *redlock.Lock) error { t.Error("the inner fn is called"); return nil }
		refused := func(what string, ctx context.Context, fence int64) {
			t.Helper()
			s.Record()
			ctx, stop := context.WithTimeout(ctx, time.Second)
			defer stop()
			_, acquire := l.Acquire(ctx, job, time.Second)
			_, try := l.TryAcquire(ctx, job, time.Minute)
			run := l.Run(ctx, job, time.Second, under)
			for name, err := range map[string]error{"Acquire": acquire, "TryAcquire": try, "Run": run} {
				harness.CheckIs(t, what+": "+name, err, redlock.ErrNested)
				harness.CheckIsNot(t, what+": "+name, err, redlock.ErrHeld, redlock.ErrNoQuorum, context.Canceled)
				s.Says(err, `redlock: acquire "jobs/42": `, fmt.Sprintf("fence %d", fence), "not reentrant")
			}
			if sent := s.Told(0, "acquire"); len(sent) > 0 {
				t.Errorf("%s: got %v sent, want nothing", what, sent)
			}
		}
		began := time.Now()
		s.Is("Run", l.Run(s.Ctx, job, 10*time.Second, func(ctx context.Context, lock *redlock.Lock) error {
			refused("within Run", ctx, lock.Fence())
			derived, stop := context.WithTimeout(context.WithoutCancel(ctx), time.Hour)
			defer stop()
			refused("by a derived context", derived, lock.Fence())
			s.Is("Run of another key", l.Run(ctx, "other", time.Second, func(ctx context.Context, _ *redlock.Lock) error {
				refused("within Run of another key within Run", ctx, lock.Fence())
				return nil
			}), nil)
			held, end := lock.KeepAlive(context.Background())
			defer end()
			refused("by a context of KeepAlive", held, lock.Fence())
			if !lock.Valid() {
				t.Error("the outer lock is not valid any more")
			}
			// What is not detected: another Locker, another chain of calls.
			_, err := other.TryAcquire(ctx, job, time.Second)
			s.Is("TryAcquire by another Locker", err, redlock.ErrHeld)
			_, err = l.TryAcquire(s.Ctx, job, time.Second)
			s.Is("TryAcquire with another context", err, redlock.ErrHeld)
			return nil
		}), nil)
		if d := time.Since(began); d > 20*time.Millisecond {
			t.Errorf("it took %v, want nobody to wait", d)
		}
		for _, end := range []struct {
			how string
			f   func(lock *redlock.Lock)
		}{
			{"released", func(lock *redlock.Lock) { s.Is("Release", lock.Release(s.Ctx), nil) }},
			{"lost", func(lock *redlock.Lock) {
				s.EvictKey(job, 0, 1, 2)
				s.Is("Extend", lock.Extend(s.Ctx), redlock.ErrLost)
			}},
		} {
			err := l.Run(s.Ctx, job, 10*time.Second, func(ctx context.Context, lock *redlock.Lock) error {
				end.f(lock)
				k, err := l.Acquire(context.WithoutCancel(ctx), job, time.Second)
				s.Is("Acquire once the outer lock is "+end.how, err, nil)
				s.Is("Release", k.Release(s.Ctx), nil)
				return nil
			})
			s.Is("Run of a lock that is "+end.how, err, redlock.ErrLost)
		}
		s.Is("Run", l.Run(s.Ctx, job, time.Second, func(ctx context.Context, lock *redlock.Lock) error {
			k, err := l.Adopt(ctx, job, lock.Value(), time.Second) // it does not wait
			s.Is("Adopt of the lock itself", err, nil)
			k.LeaveUntil(s.Ctx, k.Until())
			return nil
		}), redlock.ErrLost)
		time.Sleep(time.Second)
		s.Clean(l)
	})
}

// Attack 85.
func TestRunWithAContextThatEndsReleasesAllTheSame(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		ctx, cancel := context.WithCancel(s.Ctx)
		err := l.Run(ctx, job, 10*time.Second, func(ctx context.Context, lock *redlock.Lock) error {
			cancel()
			<-ctx.Done()
			return ctx.Err()
		})
		s.Is("Run", err, context.Canceled)
		if strings.Contains(err.Error(), "lost") {
			t.Errorf("got %v, and nothing was lost", err)
		}
		time.Sleep(2 * oneTrip)
		s.Carry("afterwards", redlock.Value{}, 0, 1, 2)
		s.Clean(l)
	})
}

func TestALockThatFnGivesUpItselfWasNotHeldToTheEnd(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		err := s.Locker(redlock.Options{}).Run(s.Ctx, job, time.Minute, func(ctx context.Context, lock *redlock.Lock) error { return lock.Release(ctx) })
		s.Is("Run", err, redlock.ErrLost)
		s.Says(err, "released before")
	})
}
