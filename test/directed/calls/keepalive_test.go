package calls_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/harness"
)

// Attack 62.
func TestAKeptLockIsRenewedAtAboutAThirdOfItsTTL(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		const ttl = 9 * time.Second
		k := s.Take(s.Locker(redlock.Options{}), ttl)
		held, stop := k.KeepAlive(s.Ctx)
		time.Sleep(10 * time.Minute)
		s.IsHeld("after ten minutes", k, held)
		stop()
		sent := s.Told(0, "extend")
		pauses := make(map[time.Duration]bool)
		for i := 1; i < len(sent); i++ {
			d := sent[i].At.Sub(sent[i-1].At)
			if d > ttl/3+oneTrip || d < harness.ValidFor(ttl, 1)/3*9/10-oneTrip {
				t.Errorf("renewal %d came after %v, want 2.67s to 3s", i, d)
			}
			pauses[d.Round(time.Millisecond)] = true
		}
		if n := len(sent); n < 200 || n > 225 || len(pauses) < 50 {
			t.Errorf("renewals in ten minutes: got %d with %d different pauses, want about 210, spread", n, len(pauses))
		}
	})
}

// The loss is told by a timer that depends on nothing that can hang.
//
// Attack 62.
func TestContextsEndGraceBeforeUntil(t *testing.T) {
	for name, fault := range map[string]func(s *stage, i int){
		"all nodes hang":            func(s *stage, i int) { s.Hang(i) },
		"all nodes are dead":        func(s *stage, i int) { s.Node(i).Stop() },
		"all nodes are cut off":     func(s *stage, i int) { s.Node(i).Partition() },
		"no reply arrives":          func(s *stage, i int) { s.Node(i).PartitionReplies() },
		"every reply is lost":       func(s *stage, i int) { s.Node(i).LoseReplies(1000) },
		"every connection is reset": func(s *stage, i int) { s.Node(i).DropReplies(1000) },
		"an extension hangs":        func(s *stage, i int) { s.Once(i, "extend", s.Node(i).Hang) },
		"all nodes answer errors":   func(s *stage, i int) { s.FailNodes(loading, i) },
		"a majority hangs": func(s *stage, i int) {
			if i > 0 {
				s.Hang(i)
			}
		},
	} {
		for _, c := range []struct{ ttl, grace time.Duration }{
			{50 * time.Millisecond, 0}, {9 * time.Second, 0}, {time.Minute, time.Nanosecond}, {50 * time.Millisecond, 10 * time.Millisecond}, {9 * time.Second, 5 * time.Second},
		} {
			runStage(t, fmt.Sprintf("%s, ttl %v, grace %v", name, c.ttl, c.grace), 3, func(s *stage) {
				var seen harness.Observer
				l := s.Locker(redlock.Options{Grace: c.grace, Trace: seen.Trace()})
				k := s.Take(l, c.ttl)
				held, stop := k.KeepAlive(s.Ctx)
				defer stop()
				time.Sleep(c.ttl * 5)
				if got := k.Until(); time.Until(got) < c.ttl/2 {
					s.Fatalf("Until: got %v from now, want a lock that is renewed", time.Until(got))
				}
				for i := range 3 {
					fault(s, i)
				}
				at := s.Ended(held, 2*c.ttl)
				until := k.Until() // a renewal may have been answered before the fault struck
				notice := max(c.grace, time.Millisecond)
				if got := until.Sub(at); got < notice || got > notice+time.Millisecond {
					s.Errorf("the context ended %v before Until, want %v", got, notice)
				}
				s.Is("the context", held.Err(), context.Canceled)
				s.Is("the cause", context.Cause(held), redlock.ErrLost)
				s.Is("Extend", k.Extend(s.Ctx), redlock.ErrLost)
				harness.Check(s, "losses observed", len(seen.Events(redlock.EventLost)), 1)
				if c.grace < time.Millisecond { // too short to do anything in
					harness.Check(s, "valid after the loss was told", k.Valid(), false)
					s.Is("Release", k.Release(s.Ctx), redlock.ErrLost)
					s.Clean(l)
					return
				}
				s.Says(context.Cause(held), "not renewed", "ends at "+until.Format("15:04:05.000"))

				s.Log("the lock is held until Until, and is not extended any more, whoever asks")
				for i := range 3 {
					s.Mend(i)
				}
				time.Sleep(notice / 2)
				s.Is("Extend", k.Extend(s.Ctx), redlock.ErrLost)
				again, _ := k.KeepAlive(s.Ctx)
				s.Is("the cause of another KeepAlive", context.Cause(again), redlock.ErrLost)
				stop()
				time.Sleep(time.Until(until) - 2*time.Millisecond)
				if !k.Valid() || !k.Until().Equal(until) {
					s.Errorf("right before Until: valid %v, Until moved by %v; want a lock that is held as long as before", k.Valid(), k.Until().Sub(until))
				}
				s.Carry("right before Until", k.Value(), 0, 1, 2)
				time.Sleep(2 * time.Millisecond)
				harness.Check(s, "valid at Until", k.Valid(), false)
				harness.Check(s, "losses observed", len(seen.Events(redlock.EventLost)), 1)
				s.Is("Release", k.Release(s.Ctx), redlock.ErrLost)
				time.Sleep(c.ttl/10 + 2*oneTrip) // by a rollback, or by their ttl
				s.Carry("after Until", redlock.Value{}, 0, 1, 2)
				for _, c := range s.Told(0, "rollback", "release") {
					if c.At.Before(until) {
						s.Errorf("a node was told to remove the lock %v before Until", until.Sub(c.At))
					}
				}
				s.Clean(l)
			})
		}
	}
}

// With two nodes down each extension fails at once, long before the third has replied. The votes that are shown are those of one
// that it has answered.
func TestALossTellsTheVotesOfNodesThatReply(t *testing.T) {
	for _, grace := range []time.Duration{0, 300 * time.Millisecond} {
		onStage(t, 3, func(s *stage) {
			l := s.Locker(redlock.Options{Grace: grace, NodeTimeout: 50 * time.Millisecond})
			err := l.Run(s.Ctx, job, 1500*time.Millisecond, func(ctx context.Context, lock *redlock.Lock) error {
				s.Hang(1, 2)
				s.Slow(10*time.Millisecond, 0)
				<-ctx.Done()
				return nil
			})
			s.Is("Run", err, redlock.ErrLost)
			if v := s.RoundOf(err).Votes; v[0].Answer != redlock.AnswerYes || v[1].Answer != redlock.AnswerUnknown || v[2].Answer != redlock.AnswerUnknown {
				s.Errorf("got the votes of %v, want a yes and two that time out", err)
			}
			s.Says(err, ", after ", " failed extensions, the extension sent ", "before got no majority")
			if n, _ := strconv.Atoi(strings.Fields(strings.Split(err.Error(), ", after ")[1])[0]); n < 5 {
				s.Errorf("got %v, want the number of extensions that failed, more than five", err)
			}
			s.Resume(1, 2)
		})
	}
}

// An fn that returns the cause of its context, as it should, says why the lock was lost, and Run does not say it again.
func TestALossIsToldOnce(t *testing.T) {
	why := errors.New("the work")
	for name, f := range map[string]func(ctx context.Context) error{
		"the cause":          context.Cause,
		"the cause, wrapped": func(ctx context.Context) error { return fmt.Errorf("%w: %w", why, context.Cause(ctx)) },
		"another error":      func(context.Context) error { return why },
		"nil":                func(context.Context) error { return nil },
	} {
		for _, grace := range []time.Duration{0, 300 * time.Millisecond} {
			runStage(t, fmt.Sprint(name, ", grace ", grace), 3, func(s *stage) {
				l := s.Locker(redlock.Options{Grace: grace})
				fn := func(ctx context.Context) error {
					s.Hang(0, 1)
					<-ctx.Done()
					return f(ctx)
				}
				check := func(what string, err error, keys ...string) {
					s.Helper()
					s.Is(what, err, redlock.ErrLost)
					for _, key := range keys {
						if n := strings.Count(err.Error(), "lost "+strconv.Quote(key)); n > 1 { // 0: one of several may be held for a moment longer
							s.Errorf("%s: the loss of %s is told %d times, want once: %v", what, key, n, err)
						}
					}
					if f(context.Background()) == why {
						s.Is(what, err, why)
					}
				}
				err := l.Run(s.Ctx, job, 1500*time.Millisecond, func(ctx context.Context, _ *redlock.Lock) error { return fn(ctx) })
				check("Run", err, job)
				s.Resume(0, 1)
				time.Sleep(time.Second)
				err = l.RunAll(s.Ctx, []string{"a", "b"}, 1500*time.Millisecond, func(ctx context.Context, _ redlock.Locks) error { return fn(ctx) })
				check("RunAll", err, "a", "b")
				s.Resume(0, 1)
				time.Sleep(time.Second)
			})
		}
	}
}

// A loss by time tells which extension failed last, and what the nodes said to it.
func TestALossByTimeTellsTheExtensionThatFailed(t *testing.T) {
	// tells checks an error for a loss, and gives what it carries.
	tells := func(s *stage, err error, votes int, parts ...string) redlock.Round {
		s.Helper()
		s.Is("the loss", err, redlock.ErrLost)
		s.Says(err, parts...)
		if err != nil && strings.Count(err.Error(), "lost") != 1 {
			s.Errorf("got %q, want the word lost once", err)
		}
		round := s.RoundOf(err)
		if round.Op != redlock.OpLost || len(round.Votes) != votes {
			s.Errorf("got the round %+v, want a loss with %d votes", round, votes)
		}
		return round
	}
	const ended = `lost "jobs/42": its validity of 1.48s ended`
	runStage(t, "KeepAlive, Extend, Release and Trace", 3, func(s *stage) {
		var seen harness.Observer
		l := s.Locker(redlock.Options{Trace: seen.Trace()})
		k := s.Take(l, 1500*time.Millisecond)
		held := s.Keep(k)
		s.Node(1).Refuse(true)
		s.Node(2).Hang()
		s.Ended(held, time.Minute)
		want := []string{ended, "the extension sent", "before got no majority (2 of 3 votes needed; node-a:6379 ", "connection refused", "node-c:6379 down: timeout"}
		for what, err := range map[string]error{"KeepAlive": context.Cause(held), "Extend": k.Extend(s.Ctx), "Release": k.Release(s.Ctx)} {
			round := tells(s, err, 3, want...)
			if !errors.Is(err, syscall.ECONNREFUSED) {
				s.Errorf("%s: got %v, want the votes' own errors in its chain", what, err)
			}
			if round.Votes[1].Answer != redlock.AnswerUnknown || round.Votes[2].Answer != redlock.AnswerUnknown {
				s.Errorf("%s: got the votes %v", what, round.Votes)
			}
		}
		for _, e := range seen.Events(redlock.EventLost) {
			tells(s, e.Err, 3, want...)
		}
	})
	runStage(t, "Run", 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		err := l.Run(s.Ctx, job, 1500*time.Millisecond, func(ctx context.Context, lock *redlock.Lock) error {
			s.Hang(0, 1)
			<-ctx.Done()
			return nil
		})
		tells(s, err, 3, ended, "got no majority (2 of 3 votes needed; node-a:6379 down: timeout", "node-b:6379 down: timeout")
	})
	for name, c := range map[string]struct {
		fails func(s *stage, k *redlock.Lock) // before the Extend that finds the loss
		votes int
		says  []string
	}{
		"without KeepAlive": {func(s *stage, k *redlock.Lock) {
			s.FailNodes(loading, 0, 1)
			s.Is("Extend", k.Extend(s.Ctx), redlock.ErrNoQuorum)
			time.Sleep(2 * time.Second)
		}, 3, []string{"the extension sent 2s before got no majority (2 of 3 votes needed; node-a:6379 LOADING"}},
		"no extension failed": {func(*stage, *redlock.Lock) { time.Sleep(2 * time.Second) }, 0, nil},
		"one failed before the last one that succeeded": {func(s *stage, k *redlock.Lock) {
			s.FailNodes(loading, 0, 1)
			s.Is("Extend", k.Extend(s.Ctx), redlock.ErrNoQuorum)
			s.FailNodes("", 0, 1)
			s.Is("Extend", k.Extend(s.Ctx), nil)
			time.Sleep(2 * time.Second)
		}, 0, nil},
		"answered too late": {func(s *stage, k *redlock.Lock) {
			time.Sleep(1400 * time.Millisecond)
			for i := range 3 {
				s.Node(i).Delay(0, 400*time.Millisecond)
			}
		}, 3, []string{"the extension sent 400ms before was answered too late (2 of 3 votes needed; node-a:6379 ", "yes 400ms"}},
	} {
		runStage(t, name, 3, func(s *stage) {
			k := s.Take(s.Locker(redlock.Options{NodeTimeout: 600 * time.Millisecond}), 1500*time.Millisecond)
			c.fails(s, k)
			tells(s, k.Extend(s.Ctx), c.votes, append(c.says, ended)...)
		})
	}
	runStage(t, "not answered yet", 3, func(s *stage) {
		l := s.Locker(redlock.Options{NodeTimeout: 600 * time.Millisecond})
		k := s.Take(l, 1500*time.Millisecond)
		time.Sleep(1200 * time.Millisecond)
		s.Hang(1, 2)
		extend := harness.Background(func() error { return k.Extend(s.Ctx) })
		time.Sleep(time.Millisecond)
		held := s.Keep(k)
		s.Ended(held, time.Minute)
		tells(s, context.Cause(held), 3, ended, "has no majority yet (2 of 3 votes needed; node-a:6379 yes", "node-b:6379 pending, node-c:6379 pending")
		tells(s, <-extend, 3, ended)
	})
}

// The loss is told a little early; the lock keeps others out until Until all the
// same.
func TestALostLockIsNotFreedBeforeUntil(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		k := s.Take(l, 9*time.Second)
		held := s.Keep(k)
		for i := range 3 {
			s.On(i, "release", func(n int, args []string) {
				if time.Now().Before(k.Until()) {
					t.Errorf("node %d was told to remove the lock %v before Until", i, time.Until(k.Until()))
				}
			})
			s.FailCommand("evalsha", loading, i)
			s.FailCommand("eval", loading, i)
		}
		s.Ended(held, time.Minute)
		time.Sleep(time.Second)
	})
}

// Attack 5.
func TestASuspendedMachineIsToldWithinASecondOfWaking(t *testing.T) {
	for _, kept := range []bool{true, false} {
		runStage(t, fmt.Sprintf("kept alive: %v", kept), 3, func(s *stage) {
			var h harness.Clocks
			l := s.LockerWith(redlock.Options{}, &h, s.Cluster.Nodes())
			b := s.Locker(redlock.Options{})
			k := s.Take(l, 9*time.Second)
			held := s.Ctx
			if kept {
				held = s.Keep(k)
			}
			time.Sleep(2500 * time.Millisecond)
			s.Suspend(&h, time.Hour) // no timer of ours has moved
			woke := time.Now()
			harness.Check(s, "valid right after waking, an hour later", k.Valid(), false)
			if kept {
				if at := s.Ended(held, time.Minute); at.Sub(woke) > time.Second {
					s.Errorf("told %v after waking, want within a second", at.Sub(woke))
				}
				s.Is("the cause", context.Cause(held), redlock.ErrLost)
			}
			other := s.Take(b, time.Minute)
			s.Is("Extend", k.Extend(s.Ctx), redlock.ErrLost)
			s.Is("Release", k.Release(s.Ctx), redlock.ErrLost)
			time.Sleep(5 * time.Second)
			s.Carry("the next holder's", other.Value(), 0, 1, 2)
		})
	}
	runStage(t, "a nap that leaves the lock valid", 3, func(s *stage) {
		var h harness.Clocks
		l := s.LockerWith(redlock.Options{}, &h, s.Cluster.Nodes())
		k := s.Take(l, 9*time.Second)
		held := s.Keep(k)
		for range 20 {
			time.Sleep(4 * time.Second)
			s.Suspend(&h, 3*time.Second)
			time.Sleep(2 * time.Second)
			if lost := held.Err() != nil; lost == k.Valid() {
				s.Errorf("context ended: %v, valid: %v; want one or the other", lost, k.Valid())
			}
			if held.Err() != nil { // allowed: the nodes' clocks went on as well
				return
			}
		}
	})
}

// Attack 6.
func TestAWallClockThatIsSetDoesNotKeepALostLock(t *testing.T) {
	runStage(t, "back: nothing changes", 3, func(s *stage) {
		var h harness.Clocks
		l := s.LockerWith(redlock.Options{}, &h, s.Cluster.Nodes())
		k := s.Take(l, 9*time.Second)
		held, stop := k.KeepAlive(s.Ctx)
		time.Sleep(time.Second)
		h.MoveWall(-24 * time.Hour)
		harness.Check(s, "valid", k.Valid(), true)
		time.Sleep(time.Minute)
		s.IsHeld("a minute later", k, held)
		stop()
		until := k.Until()
		time.Sleep(time.Until(until) - time.Microsecond)
		harness.Check(s, "valid right before Until", k.Valid(), true)
		time.Sleep(time.Microsecond)
		harness.Check(s, "valid at Until, which the nodes' clocks have reached", k.Valid(), false)
	})
	runStage(t, "forward: given up", 3, func(s *stage) {
		var h harness.Clocks
		l := s.LockerWith(redlock.Options{}, &h, s.Cluster.Nodes())
		k := s.Take(l, 9*time.Second)
		held := s.Keep(k)
		time.Sleep(1300 * time.Millisecond)
		h.MoveWall(24 * time.Hour)
		set := time.Now()
		harness.Check(s, "valid, though given up", k.Valid(), false)
		if at := s.Ended(held, time.Minute); at.Sub(set) > time.Second {
			s.Errorf("told after %v, want within a second", at.Sub(set))
		}
		s.Is("the cause", context.Cause(held), redlock.ErrLost)
		s.Clean(l)
		s.Is("Release", s.Take(l, time.Second).Release(s.Ctx), nil)
	})
}

// Attack 62.
func TestStopEndsTheRenewalAndNotTheLock(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		k := s.Take(l, 9*time.Second)
		held, stop := k.KeepAlive(s.Ctx)
		time.Sleep(20 * time.Second)
		stop()
		stop()
		s.Is("the context", held.Err(), context.Canceled)
		if errors.Is(context.Cause(held), redlock.ErrLost) {
			t.Errorf("the cause is ErrLost, and nothing was lost")
		}
		s.Record()
		time.Sleep(time.Until(k.Until()) - time.Microsecond)
		if got := s.Told(0, "extend"); len(got) > 0 || !k.Valid() {
			t.Errorf("after stop: %d renewals, valid %v; want none, and held until Until", len(got), k.Valid())
		}
		time.Sleep(time.Second)
		s.Carry("after the ttl", redlock.Value{}, 0, 1, 2)
		s.Is("Release", k.Release(s.Ctx), redlock.ErrLost)
	})
	runStage(t, "and KeepAlive may be called again", 3, func(s *stage) {
		k := s.Take(s.Locker(redlock.Options{}), 9*time.Second)
		_, stop := k.KeepAlive(s.Ctx)
		stop()
		time.Sleep(8 * time.Second)
		held := s.Keep(k)
		time.Sleep(time.Minute)
		s.IsHeld("a minute later", k, held)
	})
}

func TestManyKeepALock(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		k := s.Take(l, 9*time.Second)
		var held []context.Context
		var stops []context.CancelFunc
		for range 10 {
			h, stop := k.KeepAlive(s.Ctx)
			held, stops = append(held, h), append(stops, stop)
		}
		time.Sleep(30 * time.Second)
		if n := len(s.Told(0, "extend")); n > 12 {
			t.Errorf("renewals in 30s: got %d, want about 10: not one each", n)
		}
		for i := range 9 {
			stops[i]()
		}
		time.Sleep(30 * time.Second)
		for i, h := range held {
			if ended := h.Err() != nil; ended != (i < 9) {
				t.Errorf("context %d ended: %v, want %v", i, ended, i < 9)
			}
		}
		h := s.Keep(k)
		s.Hang(0, 1, 2)
		s.Ended(h, time.Minute)
		s.Is("the other context", held[9].Err(), context.Canceled)
		s.Is("the cause", context.Cause(held[9]), redlock.ErrLost)
		s.Is("the cause", context.Cause(h), redlock.ErrLost)
		s.Clean(l)
	})
}

func TestAKeepAliveEndsWithItsParent(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		k := s.Take(s.Locker(redlock.Options{}), 9*time.Second)
		why := errors.New("shutting down")
		ctx, cancel := context.WithCancelCause(s.Ctx)
		held, stop := k.KeepAlive(ctx)
		defer stop()
		time.Sleep(5 * time.Second)
		cancel(why)
		s.Is("the cause", context.Cause(held), why)
		if !k.Valid() {
			t.Errorf("not valid: a context's end does not end the lock")
		}
		sent := len(s.Told(0, "extend"))
		time.Sleep(time.Minute)
		if got := len(s.Told(0, "extend")); got != sent {
			t.Errorf("renewals after the parent's end: got %d, want none", got-sent)
		}
		dead, stop2 := s.Take(s.Locker(redlock.Options{}), 9*time.Second).KeepAlive(ctx)
		defer stop2()
		s.Is("a KeepAlive of a context that is over", context.Cause(dead), why)
	})
}

func TestAKeepAliveOfALockThatIsOverHasEnded(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		k := s.Take(l, 9*time.Second)
		before, stop := k.KeepAlive(s.Ctx)
		defer stop()
		s.Is("Release", k.Release(s.Ctx), nil)
		after := s.Keep(k)
		for name, h := range map[string]context.Context{"before": before, "after": after} {
			s.Is("KeepAlive "+name+" the release", h.Err(), context.Canceled)
			if errors.Is(context.Cause(h), redlock.ErrLost) {
				t.Errorf("the cause of KeepAlive %s the release is ErrLost, and nothing was lost", name)
			}
		}
		time.Sleep(time.Minute)
		if got := s.Told(0, "extend"); len(got) > 0 {
			t.Errorf("renewals after the release: got %d, want none", len(got))
		}
		s.Clean(l)
	})
	runStage(t, "lost", 3, func(s *stage) {
		k := s.Take(s.Locker(redlock.Options{}), time.Second)
		time.Sleep(2 * time.Second)
		held := s.Keep(k)
		s.Is("the context", held.Err(), context.Canceled)
		s.Is("the cause", context.Cause(held), redlock.ErrLost)
	})
	runStage(t, "closed", 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		k := s.Take(l, 9*time.Second)
		before, stop := k.KeepAlive(s.Ctx)
		defer stop()
		s.Is("Close", l.Close(), nil)
		s.Is("the cause", context.Cause(before), redlock.ErrClosed)
		after := s.Keep(k)
		if after.Err() == nil {
			s.Errorf("KeepAlive after Close: got a context that is alive")
		}
		s.Carry("afterwards", redlock.Value{}, 0, 1, 2)
	})
}

// A renewal and a release at the same moment leave no key, whichever comes first.
//
// Attack 62.
func TestARenewalAndAReleaseAtOnceLeaveNothing(t *testing.T) {
	for off := time.Duration(0); off < 3*time.Millisecond; off += 100 * time.Microsecond {
		onStage(t, 3, func(s *stage) {
			l := s.Locker(redlock.Options{})
			s.Slow(time.Millisecond, 2)
			k := s.Take(l, time.Second)
			held := s.Keep(k)
			first := make(chan struct{})
			s.Once(0, "extend", func() { close(first) })
			<-first
			time.Sleep(off)
			s.Is("Release", k.Release(s.Ctx), nil)
			s.Is("the context", held.Err(), context.Canceled)
			s.Clean(l)
		})
	}
}

// Work that stops in time does not keep the others waiting until Until.
func TestAReleaseWithinTheGraceFreesTheLockAtOnce(t *testing.T) {
	for name, release := range map[string]func(s *stage, l *redlock.Locker, k *redlock.Lock){
		"Release": func(s *stage, _ *redlock.Locker, k *redlock.Lock) {
			s.Is("Release", k.Release(s.Ctx), nil)
			s.Is("Release again", k.Release(s.Ctx), nil)
		},
		"Close":      func(s *stage, l *redlock.Locker, k *redlock.Lock) { s.Is("Close", l.Close(), nil) },
		"LeaveUntil": func(s *stage, l *redlock.Locker, k *redlock.Lock) { k.LeaveUntil(s.Ctx, k.Until()) },
	} {
		runStage(t, name, 3, func(s *stage) {
			l, other := s.Locker(redlock.Options{Grace: 3 * time.Second}), s.Locker(redlock.Options{})
			k := s.Take(l, 9*time.Second)
			held := s.Keep(k)
			s.FailNodes(loading, 0, 1, 2)
			s.Ended(held, time.Minute)
			until := k.Until()
			s.FailNodes("", 0, 1, 2)
			time.Sleep(time.Second)
			s.Carry("within the grace", k.Value(), 0, 1, 2)
			release(s, l, k)
			harness.Check(s, "valid afterwards", k.Valid(), false)
			if name == "LeaveUntil" {
				time.Sleep(time.Until(until) + 2*oneTrip)
				s.Carry("left to expire, after Until", k.Value(), 0, 1, 2)
				return
			}
			next := s.Take(other, 20*time.Second)
			if !next.Until().Add(-harness.ValidFor(20*time.Second, 1)).Before(until) {
				s.Errorf("the next holder began after the old Until")
			}
			time.Sleep(10 * time.Second)
			s.Carry("the next holder's", next.Value(), 0, 1, 2)
		})
	}
}

// An extension that was sent before the contexts ended is answered after that.
func TestAnExtensionThatIsAnsweredWithinTheGraceChangesNothing(t *testing.T) {
	for name, taken := range map[string]bool{"ours": false, "taken by another": true} {
		runStage(t, name, 3, func(s *stage) {
			l := s.Locker(redlock.Options{Grace: 5 * time.Second, NodeTimeout: 4 * time.Second})
			k := s.Take(l, 21*time.Second)
			held := s.Keep(k)
			s.FailNodes(loading, 0, 1, 2)
			until := k.Until()
			time.Sleep(time.Until(until) - 5100*time.Millisecond)
			if taken {
				s.Foreign(time.Minute, 0, 1, 2)
			}
			s.FailNodes("", 0, 1, 2)
			s.Slow(500*time.Millisecond, 0, 1, 2)
			err := k.Extend(s.Ctx)
			s.Ended(held, time.Millisecond)
			s.Is("the cause", context.Cause(held), redlock.ErrLost)
			s.Is("Extend", err, redlock.ErrLost)
			if !k.Until().Equal(until) {
				s.Errorf("Until moved by %v", k.Until().Sub(until))
			}
			if k.Valid() == taken {
				s.Errorf("valid: got %v, want %v", k.Valid(), !taken)
			}
			s.Slow(0, 0, 1, 2)
			time.Sleep(time.Until(until) + 2*oneTrip)
			s.Carry("after Until", k.Value())
		})
	}
}

// Renewals are scheduled within the validity less Grace.
func TestTwoRenewalsMayFailBeforeTheGraceBegins(t *testing.T) {
	for _, grace := range []time.Duration{0, time.Second, 3 * time.Second, 5500 * time.Millisecond} {
		runStage(t, fmt.Sprintf("grace %v", grace), 3, func(s *stage) {
			l := s.Locker(redlock.Options{Grace: grace})
			k := s.Take(l, 9*time.Second)
			for i := range 3 {
				s.FailCommand("evalsha", loading, i)
				s.On(i, "extend", func(n int, _ []string) { // two of three fail, again and again
					err := loading
					if n%3 == 0 {
						err = ""
					}
					s.FailCommand("evalsha", err, i)
				})
			}
			held := s.Keep(k)
			time.Sleep(time.Minute)
			s.IsHeld("though two of three renewals failed", k, held)
			for i := range 3 {
				s.Mend(i)
				s.FailCommand("evalsha", "", i)
			}
			s.Is("Release", k.Release(s.Ctx), nil)
			s.Clean(l)
		})
	}
}

// The timers stand still while a machine sleeps; what wakes within the grace is told.
func TestAMachineThatWakesWithinTheGraceIsTold(t *testing.T) {
	for name, kept := range map[string]bool{"told after waking": true, "told before the sleep": false} {
		runStage(t, name, 3, func(s *stage) {
			var h harness.Clocks
			l := s.LockerWith(redlock.Options{Grace: 5 * time.Second}, &h, s.Cluster.Nodes())
			k := s.Take(l, 20*time.Second)
			held := s.Keep(k)
			s.FailNodes(loading, 0, 1, 2)
			if kept {
				time.Sleep(2500 * time.Millisecond)
				s.Suspend(&h, 14*time.Second)
				woke := time.Now()
				harness.Check(s, "valid before Until", k.Valid(), true)
				if at := s.Ended(held, time.Minute); at.Sub(woke) > time.Second {
					s.Errorf("told %v after waking, want within a second", at.Sub(woke))
				}
				harness.Check(s, "valid before Until, when told", k.Valid(), true)
			} else {
				s.Ended(held, time.Minute)
				s.Suspend(&h, time.Hour)
			}
			s.Is("the cause", context.Cause(held), redlock.ErrLost)
			time.Sleep(4 * time.Second)
			harness.Check(s, "valid after Until", k.Valid(), false)
			s.Is("Extend", k.Extend(s.Ctx), redlock.ErrLost)
		})
	}
}

func TestAGraceThatLeavesNoTimeToRenewIsRefused(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{Grace: 2 * time.Second})
		for what, call := range map[string]func() error{
			"TryAcquire": func() error { return harness.Second(l.TryAcquire(s.Ctx, job, 3*time.Second)) },
			"Acquire":    func() error { return harness.Second(l.Acquire(s.Ctx, job, 3*time.Second)) },
			"Adopt":      func() error { return harness.Second(l.Adopt(s.Ctx, job, redlock.ValueOf("me:1"), 3*time.Second)) },
			"Run": func() error {
				return l.Run(s.Ctx, job, 3*time.Second, harness.NoWork)
			},
		} {
			err := call()
			if err == nil {
				t.Fatalf("%s: got no error", what)
			}
			s.Says(err, "Options.Grace 2s", "ttl 3s", "greatest usable Grace is 1.917s", "smallest usable ttl is 3.129s")
		}
		if n := len(s.Told(0)); n > 0 {
			t.Errorf("commands sent: got %d, want none", n)
		}
	})
}

// A lock that was not valid for a while, by a wall clock that was ahead, is still one that Close releases.
func TestAWallClockSetForwardAndBackLeavesTheLockToClose(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		var h harness.Clocks
		l := s.LockerWith(redlock.Options{}, &h, s.Cluster.Nodes())
		k := s.Take(l, time.Minute)
		h.MoveWall(time.Hour)
		time.Sleep(2 * time.Second)
		k.Valid()
		h.MoveWall(-time.Hour)
		held := s.Keep(k)
		l.Close()
		s.Is("the context of KeepAlive after Close", held.Err(), context.Canceled)
		s.Carry("after Close", redlock.Value{}, 0, 1, 2)
	})
}

// Extends that were called after one began share it, where it began after them.
func TestConcurrentExtendsShareRounds(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		k := s.Take(s.Locker(redlock.Options{}), 10*time.Second)
		s.Slow(10*time.Millisecond, 0, 1, 2)
		var wg sync.WaitGroup
		if d := harness.Took(func() {
			for range 100 {
				wg.Go(func() { s.Is("Extend", k.Extend(s.Ctx), nil) })
			}
			wg.Wait()
		}); d > 40*time.Millisecond {
			t.Errorf("100 Extends at once, 10 ms away: took %v, want a few rounds", d)
		}
	})
}

// What the README says of renewals, where a third of the ttl would be behind Until.
func TestALargeDriftLeavesTimeToRenew(t *testing.T) {
	for drift, ttl := range map[float64]time.Duration{0.7: 10 * time.Second, 0.8: time.Minute, 0.9: 10 * time.Second} { // the last one is valid for 998 ms
		runStage(t, fmt.Sprint(drift), 3, func(s *stage) {
			k := s.Take(s.Locker(redlock.Options{Drift: drift, NodeTimeout: 100 * time.Millisecond}), ttl)
			held := s.Keep(k)
			time.Sleep(ttl)
			s.IsHeld("after the ttl, with nothing in its way", k, held)
			s.Is("Release", k.Release(s.Ctx), nil)
		})
	}
}

// An extension finds that the lock is lost, or LeaveUntil gives it up: KeepAlive's contexts have ended by the time at which the
// Trace, which may block, is told of the round.
func TestContextsEndBeforeTheTraceIsToldOfTheRound(t *testing.T) {
	for _, lost := range []bool{true, false} {
		onStage(t, 3, func(s *stage) {
			var held context.Context
			var told atomic.Bool
			l := s.Locker(redlock.Options{Trace: redlock.Trace{Round: func(_ context.Context, r redlock.Round) {
				if r.Op == redlock.OpExtend {
					told.Store(true)
					if held.Err() == nil {
						s.Errorf("lost %v: the context has not ended when the round is told", lost)
					}
				}
			}}})
			k := s.Take(l, heldLong)
			held = s.Keep(k)
			cause := context.Canceled
			if lost {
				s.EvictKey(job, 0, 1, 2)
				cause = redlock.ErrLost
				s.Is("Extend", k.Extend(s.Ctx), redlock.ErrLost)
			} else {
				s.Is("LeaveUntil", k.LeaveUntil(s.Ctx, k.Until().Add(time.Minute)), nil)
			}
			time.Sleep(time.Millisecond)
			s.Is("the cause", context.Cause(held), cause)
			harness.Check(s, "the Trace was told of the round", told.Load(), true)
		})
	}
}
