package calls_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/harness"
)

// The key stays until the time on nodes whose clocks are fast by all that the drift allows, whatever ttl the lock had and
// however often it was renewed, and it does not stay for a ttl that is longer than that.
func TestLeaveUntilKeepsTheKeyUntilTheTime(t *testing.T) {
	for name, c := range map[string]struct {
		ttl, work, stay time.Duration
		sends           bool
	}{
		"beyond the ttl":              {time.Second, 0, time.Minute, true},
		"after renewals":              {time.Second, 10 * time.Second, time.Minute, true},
		"shortly after Until":         {10 * time.Second, 0, 11 * time.Second, true},
		"at Until":                    {10 * time.Second, 0, 0, false},
		"within the ttl":              {10 * time.Second, 0, time.Second, false},
		"within the ttl, renewed":     {10 * time.Second, time.Minute, time.Second, false},
		"for almost as long as it is": {10 * time.Second, 0, 23 * 24 * time.Hour, true},
	} {
		runStage(t, name, 3, func(s *stage) {
			l := s.Locker(redlock.Options{})
			s.Node(0).SetClockRate(1.0099)
			s.Node(1).SetClockRate(1.0099)
			k := s.Take(l, c.ttl)
			held := s.Keep(k)
			time.Sleep(c.work)
			at, until := time.Now().Add(c.stay), k.Until()
			if c.stay == 0 {
				at = until
			}
			if c.sends == !until.Before(at) {
				s.Fatalf("the lock is held until %v, and is to stay until %v", until, at)
			}
			s.Record()
			s.Is("LeaveUntil", k.LeaveUntil(s.Ctx, at), nil)
			if sent := len(s.Told(0, "extend")); sent != 0 != c.sends {
				s.Errorf("%d extensions were sent, want that %v", sent, c.sends)
			}
			if held.Err() == nil || k.Valid() || k.Until().Before(at) {
				s.Errorf("got a context that ends with %v, valid %v, until %v, want the lock given up, and a key until %v", held.Err(), k.Valid(), k.Until(), at)
			}
			s.Is("Release", k.Release(s.Ctx), nil)
			s.Is("LeaveUntil again", k.LeaveUntil(s.Ctx, at), nil)
			s.Is("LeaveUntil of later, again", k.LeaveUntil(s.Ctx, k.Until().Add(time.Second)), redlock.ErrLost)
			s.Is("Extend", k.Extend(s.Ctx), redlock.ErrLost)
			s.Is("Close", l.Close(), nil)
			stays := k.Until()
			time.Sleep(time.Until(stays))
			s.Carry("at the end", k.Value(), 0, 1, 2)
			time.Sleep(max(c.stay, c.ttl)/25 + 5*time.Millisecond)
			s.Carry("afterwards", k.Value())
			for i := range 3 {
				if life := s.Node(i).TTL(jobRegister); life <= 0 {
					s.Errorf("the register of node %d has no ttl, want about a day", i)
				}
			}
		})
	}
}

// Once the time has passed nobody has to be kept out.
func TestLeaveUntilATimeThatHasPassedReleases(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		for _, t := range []time.Time{{}, time.Now().Add(-time.Hour), time.Now()} {
			s.Is("Run", l.Run(s.Ctx, job, 10*time.Second, func(ctx context.Context, lock *redlock.Lock) error {
				return lock.LeaveUntil(ctx, t)
			}), nil)
			s.Carry("afterwards", redlock.Value{}, s.All()...)
		}
		s.Is("Run whose lock was lost", l.Run(s.Ctx, job, 10*time.Second, func(ctx context.Context, lock *redlock.Lock) error {
			s.Foreign(time.Second, 0, 1, 2)
			s.Is("LeaveUntil", lock.LeaveUntil(ctx, time.Time{}), redlock.ErrLost)
			return nil
		}), redlock.ErrLost)
	})
}

// What cannot be kept is refused before anything is sent, and the lock is still held.
func TestLeaveUntilATimeBeyondTheLongestTTLIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		opt   redlock.Options
		stays time.Duration
		says  string
	}{
		"24 days":          {redlock.Options{}, 24 * 24 * time.Hour, "more than 576h0m0s"},
		"a thousand years": {redlock.Options{}, 1<<63 - 1, "more than 576h0m0s"},
		"the guard":        {redlock.Options{RestartGuard: time.Minute}, time.Minute, "RestartGuard"},
	} {
		runStage(t, name, 3, func(s *stage) {
			l := s.Locker(c.opt)
			time.Sleep(2 * time.Minute) // the nodes' quarantine
			k := s.Take(l, 10*time.Second)
			err := k.LeaveUntil(s.Ctx, time.Now().Add(c.stays))
			s.Says(err, `leave "jobs/42" until `, "still held", c.says)
			if !k.Valid() || len(s.Told(0, "extend")) > 0 {
				s.Errorf("valid: got %v, extensions: %v, want the lock as it was", k.Valid(), s.Told(0, "extend"))
			}
			s.Is("Release", k.Release(s.Ctx), nil)
			s.Carry("afterwards", redlock.Value{}, 0, 1, 2)
		})
	}
}

// Too few nodes reply: the lock is left all the same, and not released, and the error says for how long it stays.
func TestLeaveUntilWithoutAMajoritySaysWhatIsKnown(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		var k *redlock.Lock
		err := l.Run(s.Ctx, job, 10*time.Second, func(ctx context.Context, lock *redlock.Lock) error {
			k = lock
			s.FailNodes(loading, 1, 2)
			until := lock.Until()
			err := lock.LeaveUntil(ctx, time.Now().Add(time.Minute))
			s.Is("LeaveUntil", err, redlock.ErrNoQuorum)
			s.Says(err, "left: a majority keeps it until "+until.Format("15:04:05.000"), "LOADING")
			if ctx.Err() == nil || lock.Valid() || !lock.Until().Equal(until) {
				t.Errorf("got ctx %v, valid %v, until %v, want the lock given up, and the Until that it had: %v", ctx.Err(), lock.Valid(), lock.Until(), until)
			}
			s.FailNodes("", 1, 2)
			return err
		})
		s.Is("Run", err, redlock.ErrNoQuorum)
		time.Sleep(time.Until(k.Until()))
		s.Carry("at Until", k.Value(), 0, 1, 2)
		time.Sleep(time.Second)
		s.Carry("afterwards", k.Value(), 0)
	})
}

func TestLeaveUntilAndTheEndOfItsContext(t *testing.T) {
	for after, want := range map[time.Duration]error{0: nil, 10 * time.Millisecond: context.Canceled} { // before the call, and during it
		runStage(t, after.String(), 3, func(s *stage) {
			l := s.Locker(redlock.Options{})
			s.Slow(20*time.Millisecond, 0, 1, 2)
			ctx, cancel := context.WithCancel(s.Ctx)
			at := time.Now().Add(time.Minute)
			var k *redlock.Lock
			err := l.Run(ctx, job, 10*time.Second, func(ctx context.Context, lock *redlock.Lock) error {
				k = lock
				time.AfterFunc(after, cancel)
				if after == 0 {
					<-ctx.Done()
				}
				return lock.LeaveUntil(ctx, at)
			})
			s.Is("Run", err, want)
			time.Sleep(time.Until(at))
			s.Carry("at the time", k.Value(), 0, 1, 2)
		})
	}
}

// Close waits for it, instead of releasing what is to stay.
func TestCloseDuringLeaveUntil(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		s.Slow(20*time.Millisecond, 0, 1, 2)
		k := s.Take(l, 10*time.Second)
		at := time.Now().Add(time.Minute)
		left := harness.Background(func() error { return k.LeaveUntil(s.Ctx, at) })
		synctest.Wait()
		s.Is("Close", l.Close(), nil)
		s.Is("LeaveUntil", <-left, nil)
		time.Sleep(time.Until(at))
		s.Carry("at the time", k.Value(), 0, 1, 2)
	})
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		k := s.Take(l, 10*time.Second)
		s.Is("Close", l.Close(), nil)
		s.Is("LeaveUntil", k.LeaveUntil(s.Ctx, time.Now().Add(time.Minute)), redlock.ErrClosed)
		s.Carry("afterwards", redlock.Value{}, 0, 1, 2)
	})
}

// A renewal is in progress when the lock is left: it is shorter, and the longer one follows it.
func TestLeaveUntilDuringARenewal(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		s.Slow(20*time.Millisecond, 0, 1, 2)
		k := s.Take(l, 10*time.Second)
		renewed := harness.Background(func() error { return k.Extend(s.Ctx) })
		synctest.Wait()
		at := time.Now().Add(time.Minute)
		s.Is("LeaveUntil", k.LeaveUntil(s.Ctx, at), nil)
		s.Is("Extend", <-renewed, nil)
		time.Sleep(time.Until(at))
		s.Carry("at the time", k.Value(), 0, 1, 2)
	})
}

// A lock that was lost is not left, and one whose contexts Options.Grace has ended expires by itself.
func TestLeaveUntilOfALockThatIsLost(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{Grace: 3 * time.Second})
		var k *redlock.Lock
		s.Is("Run", l.Run(s.Ctx, job, 9*time.Second, func(ctx context.Context, lock *redlock.Lock) error {
			k = lock
			s.FailNodes(loading, 0, 1, 2)
			<-ctx.Done()
			s.FailNodes("", 0, 1, 2)
			s.Is("LeaveUntil", lock.LeaveUntil(ctx, time.Now().Add(time.Minute)), redlock.ErrLost)
			return nil
		}), redlock.ErrLost)
		time.Sleep(time.Until(k.Until()))
		s.Carry("at Until", k.Value(), 0, 1, 2)
		time.Sleep(time.Second)
		s.Carry("afterwards", redlock.Value{}, 0, 1, 2)
		k = s.Take(l, 9*time.Second)
		s.EvictKey(job, 0, 1, 2)
		s.Is("LeaveUntil of a lock that the nodes forgot", k.LeaveUntil(s.Ctx, time.Now().Add(time.Minute)), redlock.ErrLost)
		s.Is("Release", k.Release(s.Ctx), redlock.ErrLost)
		s.Clean(l)
	})
}

// A hookedCtx calls hook when a context below it ends, after that has ended: package context asks for Done then, to forget it.
type hookedCtx struct {
	context.Context
	hook func()
}

func (c *hookedCtx) Done() <-chan struct{} {
	if c.hook != nil {
		c.hook()
	}
	return nil
}

// A call with a context of KeepAlive that ends that context itself returns its own result, not that its context ended.
func TestACallThatEndsItsOwnContextReturnsItsResult(t *testing.T) {
	for name, c := range map[string]struct {
		before func(s *stage)
		call   func(ctx context.Context, k *redlock.Lock) error
		want   error
	}{
		"LeaveUntil": {
			func(*stage) {},
			func(ctx context.Context, k *redlock.Lock) error {
				return k.LeaveUntil(ctx, time.Now().Add(time.Minute))
			},
			nil,
		},
		"an Extend that finds the lock lost": {
			func(s *stage) { s.Foreign(time.Minute, 0, 1) },
			func(ctx context.Context, k *redlock.Lock) error { return k.Extend(ctx) },
			redlock.ErrLost,
		},
	} {
		runStage(t, name, 3, func(s *stage) {
			k := s.Take(s.Locker(redlock.Options{}), 10*time.Second)
			parent := &hookedCtx{Context: s.Ctx}
			held, stop := k.KeepAlive(parent)
			defer stop()
			c.before(s)
			ended := false
			parent.hook = func() {
				ended = held.Err() != nil
				time.Sleep(time.Millisecond) // the context has ended, and the call goes on
			}
			err := c.call(held, k)
			parent.hook = nil
			if !ended {
				s.Error("the call ended its context, but the hook was not called then")
			}
			if s.Is(name, err, c.want); errors.Is(err, context.Canceled) {
				s.Errorf("got %v, want the result of the call", err)
			}
		})
	}
}

// Three schedulers tick 30 ms apart, in any order. Jobs that are shorter than the interval run at every tick, once. A job
// that is longer runs at every tick that finds no job running, once.
func TestOncePerIntervalRunsAtEveryTick(t *testing.T) {
	const interval, ticks = time.Second, 24
	for name, c := range map[string]struct {
		took time.Duration
		runs int
	}{
		"at once":                     {0, ticks},
		"a tenth":                     {interval / 10, ticks},
		"half":                        {interval / 2, ticks},
		"nearly the interval":         {interval * 9 / 10, ticks},
		"a little more than the skew": {40 * time.Millisecond, ticks},
		"one and a half":              {interval * 3 / 2, ticks / 2},
		"two and a half":              {interval * 5 / 2, ticks / 3},
		"ends between two schedulers": {interval + 15*time.Millisecond, ticks * 3 / 4}, // each run begins 30 ms later in its tick, until a tick has passed
	} {
		runStage(t, name, 3, func(s *stage) {
			var runs, running atomic.Int32
			begin := time.Now().Add(time.Second)
			done := make(chan error, 3*ticks)
			for i := range 3 {
				l := s.Locker(redlock.Options{})
				for n := range ticks {
					tick := begin.Add(time.Duration(n) * interval)
					go func() {
						time.Sleep(time.Until(tick) + time.Duration((i+n)%3)*30*time.Millisecond)
						err := l.Run(s.Ctx, job, 400*time.Millisecond, func(ctx context.Context, lock *redlock.Lock) error {
							if running.Add(1) > 1 {
								s.Error("two jobs are running at once")
							}
							runs.Add(1)
							time.Sleep(c.took)
							running.Add(-1)
							return lock.LeaveUntil(ctx, tick.Add(interval/2))
						}, redlock.WithWait(0))
						if errors.Is(err, redlock.ErrHeld) {
							err = nil
						}
						done <- err
					}()
				}
			}
			for range 3 * ticks {
				s.Is("Run", <-done, nil)
			}
			if got := int(runs.Load()); got != c.runs {
				s.Errorf("%d runs at %d ticks, want %d", got, ticks, c.runs)
			}
		})
	}
}

// A lock that LeaveUntil has released, since the time had passed, does not stay until a later time.
func TestLeaveUntilOfALockThatLeaveUntilReleased(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		k := s.Take(l, 10*time.Second)
		s.Is("LeaveUntil of a time that has passed", k.LeaveUntil(s.Ctx, time.Now().Add(-time.Second)), nil)
		s.Carry("afterwards", k.Value())
		s.Is("LeaveUntil of a time before Until", k.LeaveUntil(s.Ctx, time.Now().Add(time.Second)), redlock.ErrLost)
	})
}

// The machine slept, and the keys end before Until: LeaveUntil extends the lock.
func TestLeaveUntilAfterANap(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		var h harness.Clocks
		l := s.LockerWith(redlock.Options{}, &h, s.Cluster.Nodes())
		k := s.Take(l, 10*time.Second)
		s.Suspend(&h, 5*time.Second)
		at := time.Now().Add(8 * time.Second)
		s.Is("LeaveUntil", k.LeaveUntil(s.Ctx, at), nil)
		time.Sleep(time.Until(at))
		s.Carry("at the time", k.Value(), 0, 1, 2)
	})
}

// Several locks are left together, in one round trip, from within RunAll too: the context of RunAll ends with the first.
func TestSeveralLocksAreLeftUntilTheTime(t *testing.T) {
	keys := []string{"a", "b", "a"}
	for name, renewed := range map[string]int{"none stays by itself": -1, "the first does": 0, "the second does": 1} {
		runStage(t, name, 3, func(s *stage) {
			var seen harness.Observer
			l := s.Locker(redlock.Options{Trace: seen.Trace()})
			s.Slow(20*time.Millisecond, s.All()...)
			var left redlock.Locks
			var at time.Time
			s.Is("RunAll", l.RunAll(s.Ctx, keys, 10*time.Second, func(ctx context.Context, locks redlock.Locks) error {
				left, at = locks, time.Now().Add(time.Minute)
				if renewed >= 0 {
					time.Sleep(time.Second)
					s.Is("Extend", locks[renewed].Extend(ctx), nil)
					at = locks[renewed].Until()
					time.Sleep(100 * time.Millisecond) // for what follows an extension: else LeaveUntil opens a second connection beside it
				}
				s.Lasts("LeaveUntil", 20*time.Millisecond, func() { s.Is("LeaveUntil", locks.LeaveUntil(ctx, at), nil) })
				if ctx.Err() == nil || locks.Valid() || locks.Until().Before(at) {
					s.Errorf("the context ends with %v, valid %v, until %v, want the locks given up, and keys until %v", ctx.Err(), locks.Valid(), locks.Until(), at)
				}
				return nil
			}), nil)
			s.Is("Close", l.Close(), nil)
			harness.Check(s, "extensions, with those of the work", seen.Count(redlock.OpExtend), 2)
			harness.Check(s, "calls that are traced", len(seen.Ends("LeaveUntil")), 2)
			time.Sleep(time.Until(at))
			if got := s.Locked(); !slices.Equal(got, []string{"a", "b"}) {
				s.Errorf("at the end the nodes have %v, want both keys", got)
			}
			time.Sleep(time.Until(left[0].Until().Add(time.Minute)))
			if got := s.Locked(); len(got) > 0 {
				s.Errorf("afterwards the nodes have %v", got)
			}
		})
	}
}

// What becomes of one of several locks that are left does not concern the others.
func TestSeveralLocksAreLeftWhateverBecomesOfOne(t *testing.T) {
	acquire := func(s *stage, l *redlock.Locker) redlock.Locks {
		locks, err := l.AcquireAll(s.Ctx, []string{"a", "b", "c"}, time.Second)
		s.Is("AcquireAll", err, nil)
		return locks
	}
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		locks := acquire(s, l)
		s.EvictKey("b", s.All()...)
		held, stop := locks.KeepAlive(s.Ctx)
		defer stop()
		err := locks.LeaveUntil(held, time.Now().Add(time.Minute))
		s.Is("LeaveUntil", err, redlock.ErrLost)
		harness.CheckIsNot(s, "LeaveUntil", err, context.Canceled)
		harness.Check(s, "the locks that are lost", strings.Count(err.Error(), "redlock: "), 1)
		s.Says(err, `"b"`)
		time.Sleep(30 * time.Second)
		if got := s.Locked(); !slices.Equal(got, []string{"a", "c"}) {
			t.Errorf("the nodes have %v, want a and c", got)
		}
		s.Is("Release", locks.Release(s.Ctx), redlock.ErrLost)

		time.Sleep(time.Minute)
		locks = acquire(s, l)
		time.Sleep(10 * time.Millisecond) // all nodes have replied
		s.Slow(20*time.Millisecond, s.All()...)
		took := harness.Took(func() { s.Is("LeaveUntil a time that has passed", locks.LeaveUntil(s.Ctx, time.Now()), nil) })
		if limit := 40*time.Millisecond + 2*oneTrip; took > limit { // a second batch may need a connection of its own
			s.Errorf("LeaveUntil a time that has passed took %v, want the locks released at once, within %v", took, limit)
		}
		time.Sleep(time.Second)
		if got := s.Locked(); len(got) > 0 {
			t.Errorf("the nodes have %v, want none", got)
		}
		s.Is("LeaveUntil of none", redlock.Locks(nil).LeaveUntil(s.Ctx, time.Now().Add(time.Minute)), nil)

		locks = acquire(s, l)
		s.Hang(0, 1)
		ctx := s.Timeout(50 * time.Millisecond)
		s.Lasts("LeaveUntil that ctx ends", 50*time.Millisecond, func() {
			harness.CheckIs(s, "LeaveUntil that ctx ends", locks.LeaveUntil(ctx, time.Now().Add(time.Minute)), context.DeadlineExceeded, redlock.ErrNoQuorum)
		})
		if locks[0].Valid() || locks[1].Valid() || locks[2].Valid() {
			t.Error("one of them is still held")
		}
		s.Resume(0, 1)
		s.Is("Close", l.Close(), nil)
		s.Is("LeaveUntil of a Locker that is closed", locks.LeaveUntil(s.Ctx, time.Now().Add(time.Minute)), redlock.ErrClosed)
	})
}

// If a callback panics while several locks are left, the others are left all the same, and each call that began ends.
func TestAPanicWhileSeveralLocksAreLeft(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		var ends []string
		l := s.Locker(redlock.Options{Trace: redlock.Trace{
			Start: func(ctx context.Context, c redlock.Call) context.Context {
				if c.Method == "LeaveUntil" && c.Key == "b" {
					panic("the user's own")
				}
				return ctx
			},
			End: func(_ context.Context, c redlock.Call, err error) {
				if c.Method == "LeaveUntil" {
					ends = append(ends, fmt.Sprint(c.Key, " ", err))
				}
			},
		}})
		locks, err := l.AcquireAll(s.Ctx, []string{"a", "b", "c"}, 10*time.Second)
		s.Is("AcquireAll", err, nil)
		harness.Check(s, "LeaveUntil panics", harness.Panics(func() { locks.LeaveUntil(s.Ctx, time.Now().Add(time.Minute)) }), true)
		harness.Check(s, "the calls that ended", fmt.Sprint(ends), "[a <nil> c <nil>]")
		for i, held := range []bool{false, true, false} {
			harness.Check(s, locks[i].Key()+" is held", locks[i].Valid(), held)
		}
		s.Is("Close", l.Close(), nil)
	})
}
