package calls_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/harness"
)

// Attack 14.
func TestACallWithAContextThatIsOverSendsNothing(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		why := errors.New("the request is gone")
		ctx, cancel := context.WithCancelCause(s.Ctx)
		cancel(why)
		for name, call := range map[string]func() error{
			"TryAcquire": func() error { return harness.Second(l.TryAcquire(ctx, job, time.Second)) },
			"Acquire":    func() error { return harness.Second(l.Acquire(ctx, job, time.Second)) },
			"Adopt":      func() error { return harness.Second(l.Adopt(ctx, job, redlock.ValueOf("x"), time.Second)) },
			"Inspect":    func() error { return harness.Second(l.Inspect(ctx, job)) },
			"Run": func() error {
				return l.Run(ctx, job, time.Second, func(context.Context, *redlock.Lock) error { t.Error("fn was called"); return nil })
			},
		} {
			err := call()
			harness.CheckIs(t, name, err, context.Canceled, why)
			harness.CheckIsNot(t, name, err, redlock.ErrNoQuorum) // nobody was asked
		}
		time.Sleep(time.Second)
		for i := range 3 {
			if got := s.Told(i); len(got) > 0 {
				t.Errorf("node %d was told %v, want nothing", i, got)
			}
		}
	})
}

// Attack 15.
func TestACallThatIsCancelledMidAttemptReturnsAtOnceAndIsRolledBack(t *testing.T) {
	exactly := func(s *stage, want time.Duration, call func() (*redlock.Lock, error)) error {
		s.Helper()
		began := time.Now()
		k, err := call()
		harness.Check(s, "time of the call", time.Since(began), want)
		if k != nil {
			s.Errorf("a lock and an error")
		}
		return err
	}
	for _, name := range []string{"TryAcquire", "Acquire"} {
		runStage(t, name, 5, func(s *stage) {
			l := s.Locker(redlock.Options{})
			s.Slow(100*time.Millisecond, 1, 2, 3)
			s.Hang(4)
			ctx, cancel := context.WithCancel(s.Ctx)
			time.AfterFunc(20*time.Millisecond, cancel)
			err := exactly(s, 20*time.Millisecond, func() (*redlock.Lock, error) {
				if name == "Acquire" {
					return l.Acquire(ctx, job, 10*time.Second)
				}
				return l.TryAcquire(ctx, job, 10*time.Second)
			})
			harness.CheckIs(s, name, err, context.Canceled, redlock.ErrNoQuorum)
			harness.CheckIsNot(s, name, err, context.DeadlineExceeded)
			s.Says(err, "context canceled", "3 of 5 votes needed", "node-a:6379 yes", "node-b:6379 pending", "node-e:6379 pending")
			time.Sleep(2 * time.Second)
			s.Carry("when the slow ones had answered", redlock.Value{}, 0, 1, 2, 3, 4)
			s.Resume(4)
			s.Clean(l)
		})
	}
	runStage(t, "by its deadline", 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		s.Slow(200*time.Millisecond, 0, 1, 2)
		ctx := s.Timeout(50 * time.Millisecond)
		err := exactly(s, 50*time.Millisecond, func() (*redlock.Lock, error) { return l.TryAcquire(ctx, job, 10*time.Second) })
		s.Is("TryAcquire", err, context.DeadlineExceeded)
		s.Clean(l)
	})
	runStage(t, "between two attempts", 3, func(s *stage) {
		l := s.Locker(redlock.Options{Retry: func(int) time.Duration { return time.Hour }})
		s.Foreign(time.Hour, 0, 1, 2)
		ctx := s.Timeout(10 * time.Minute)
		err := exactly(s, 10*time.Minute, func() (*redlock.Lock, error) { return l.Acquire(ctx, job, 10*time.Second) })
		harness.CheckIs(s, "Acquire", err, context.DeadlineExceeded, redlock.ErrHeld)
		s.Says(err, "held by other", "2 of 3 votes needed", "attempt 1")
	})
	runStage(t, "during the raise of the token", 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		s.SetRegister(harness.Micros()+1e9, 0, 1, 2)
		ctx, cancel := context.WithCancel(s.Ctx)
		s.Once(0, "raise", cancel)
		_, err := l.TryAcquire(ctx, job, 10*time.Second)
		s.Is("TryAcquire", err, context.Canceled)
		s.Clean(l)
	})
}

// Either a lock with somebody to release it, or an error and a rollback: never
// both, never neither.
//
// Attack 16.
func TestAContextThatEndsWhenTheQuorumIsCompleteGivesALockOrARollback(t *testing.T) {
	var exactly time.Duration
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		began := time.Now()
		s.Take(l, 10*time.Second)
		exactly = time.Since(began)
	})
	for off := -3 * time.Nanosecond; off <= 3; off++ {
		t.Run(fmt.Sprintf("off by %v", off), func(t *testing.T) {
			onStage(t, 3, func(s *stage) { // the same run again
				l := s.Locker(redlock.Options{})
				ctx := s.Timeout(exactly + off)
				k, err := l.TryAcquire(ctx, job, 10*time.Second)
				switch {
				case (k == nil) == (err == nil):
					t.Errorf("got %v, %v; want either a lock or an error", k, err)
				case off < 0 && err == nil, off > 0 && err != nil:
					t.Errorf("got %v; want an error exactly if the context ends first", err)
				case err == nil:
					s.Carry("acquired", k.Value(), s.All()...)
					s.Is("Release", k.Release(s.Ctx), nil)
				default:
					s.Is("TryAcquire", err, context.DeadlineExceeded)
				}
				s.Clean(l)
			})
		})
	}
}

// Held tells that waiting is of use; dead nodes must not hide it, nor noes hide an
// outage. y: free, n: another's, d: down, h: hung.
func TestHeldIsToldFromUnreachable(t *testing.T) {
	for want, all := range map[error]string{
		redlock.ErrHeld:     "nnnnn nnndd ddnnn nnnhh nnnyy nn ny nnyy nh nnhh nnnhhh n",
		redlock.ErrNoQuorum: "nnddd nyydd yyddd ddddd nnhhh yyhhh hhhhh ddyy d",
		nil:                 "yyynn yyydd yyyhh nyyyh",
	} {
		for _, nodes := range strings.Fields(all) {
			runStage(t, nodes, len(nodes), func(s *stage) {
				l := s.Locker(redlock.Options{})
				for i, f := range nodes {
					switch f {
					case 'n':
						s.Foreign(time.Minute, i)
					case 'd':
						s.Node(i).Stop()
					case 'h':
						s.Hang(i)
					}
				}
				least, most := time.Duration(0), oneTrip
				switch nodes {
				case "nnhhh", "yyhhh", "hhhhh": // the hung nodes decide
					least, most = time.Second, time.Second+oneTrip
				case "ny", "nnyy": // a tie, which is tried again a few times
					most += 50 * time.Millisecond
				}
				began := time.Now()
				_, err := l.TryAcquire(s.Ctx, job, 10*time.Second)
				if d := time.Since(began); d < least || d > most {
					s.Errorf("it took %v, want %v to %v", d, least, most)
				}
				s.Is("TryAcquire", err, want)
				if want == redlock.ErrHeld && len(nodes)%2 == 1 {
					s.Says(err, "held by other")
				}
			})
		}
	}
}

// Attacks 44, 50.
func TestErrorsThatTimeDoesNotHealEndAcquireAtOnce(t *testing.T) {
	for _, text := range []string{
		"WRONGTYPE Operation against a key holding the wrong kind of value",
		"NOAUTH Authentication required.",
		"WRONGPASS invalid username-password pair or user is disabled.",
		"NOPERM this user has no permissions to run the 'set' command",
		"READONLY You can't write against a read only replica.",
		"MOVED 3999 10.0.0.3:6379",
		"CROSSSLOT Keys in request don't hash to the same slot",
	} {
		code, _, _ := strings.Cut(text, " ")
		runStage(t, code, 5, func(s *stage) {
			l := s.Locker(redlock.Options{})
			s.FailCommand("set", text, 0, 1, 2)
			s.Lasts("Acquire", 0, func() {
				_, err := l.Acquire(s.Ctx, job, 10*time.Second)
				s.Is("Acquire", err, redlock.ErrNoQuorum)
				s.Says(err, code)
			})
			s.Clean(l)
		})
		runStage(t, code+" on a minority", 5, func(s *stage) {
			l := s.Locker(redlock.Options{})
			s.FailCommand("set", text, 0, 4)
			s.Is("Release", s.Acquire(l, 10*time.Second).Release(s.Ctx), nil)
			s.Clean(l)
		})
	}
	runStage(t, "two of them and one that is down, which may come back", 5, func(s *stage) {
		l := s.Locker(redlock.Options{})
		s.FailCommand("set", "READONLY You can't write against a read only replica.", 0, 1)
		s.Node(2).Stop()
		time.AfterFunc(3*time.Second, s.Node(2).Start)
		s.Is("Release", s.Acquire(l, 10*time.Second).Release(s.Ctx), nil)
	})
	for _, text := range []string{
		loading,
		"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
		"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
		"NOREPLICAS Not enough good replicas to write.",
		"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
		"OOM command not allowed when used memory > 'maxmemory'.",
		"ERR max number of clients reached",
		"ASK 3999 10.0.0.3:6379",
		"TRYAGAIN Multiple keys request during rehashing of slot",
		"CLUSTERDOWN Hash slot not served",
	} {
		code, _, _ := strings.Cut(text, " ")
		runStage(t, code+" is waited out", 5, func(s *stage) {
			l := s.Locker(redlock.Options{})
			s.FailNodes(text, 0, 1, 2)
			_, err := l.TryAcquire(s.Ctx, job, 10*time.Second)
			s.Is("TryAcquire", err, redlock.ErrNoQuorum)
			s.Says(err, "node-a:6379 "+code)
			time.AfterFunc(2*time.Second, func() { s.FailNodes("", 0, 1, 2) })
			began := time.Now()
			k := s.Acquire(l, 10*time.Second)
			if took := time.Since(began); took < 2*time.Second || took > 2500*time.Millisecond {
				s.Errorf("Acquire took %v, want 2s and a pause", took)
			}
			s.Is("Release", k.Release(s.Ctx), nil)
			s.Clean(l)
		})
	}
	runStage(t, "a key of another type is never granted, never deleted", 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		for i := range 3 {
			s.Do(i, "RPUSH", job, "a foreign list")
		}
		_, err := l.Acquire(s.Ctx, job, 10*time.Second)
		s.Is("Acquire", err, redlock.ErrNoQuorum)
		s.Says(err, "WRONGTYPE")
		time.Sleep(2 * time.Second)
		for i := range 3 {
			if got := s.Do(i, "LLEN", job); got != 1 {
				s.Errorf("node %d: the foreign list has %v elements, want 1", i, got)
			}
		}
	})
	runStage(t, "a key without a ttl is never granted, never deleted", 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		s.Foreign(0, 0, 1, 2)
		_, err := l.TryAcquire(s.Ctx, job, 10*time.Second)
		s.Is("TryAcquire", err, redlock.ErrHeld)
		s.Says(err, "held by other")
		time.Sleep(time.Hour)
		s.Carry("an hour later", redlock.ValueOf(otherValue), 0, 1, 2)
	})
}

// Attacks 29, 33.
func TestAllNodesAreNamedWithTheReasonWhenNoneCanBeReached(t *testing.T) {
	for name, f := range map[string]struct {
		fault func(s *stage, i int)
		says  string
		took  time.Duration
	}{
		"refused": {func(s *stage, i int) { s.Node(i).Refuse(true) }, "refused", 0},
		"a hole":  {func(s *stage, i int) { s.Node(i).Partition() }, "timeout", time.Second},
	} {
		runStage(t, name, 3, func(s *stage) {
			for i := range 3 {
				f.fault(s, i)
			}
			l := s.Cold(redlock.Options{}, nil, s.Cluster.Nodes())
			s.Lasts("TryAcquire", f.took, func() {
				_, err := l.TryAcquire(s.Ctx, job, 10*time.Second)
				s.Is("TryAcquire", err, redlock.ErrNoQuorum)
				s.Says(err, "node-a:6379", "node-b:6379", "node-c:6379", f.says)
				harness.CheckIsNot(s, "TryAcquire", err, context.DeadlineExceeded)
			})
			for i := range 3 {
				s.Node(i).Refuse(false)
				s.Node(i).Heal()
			}
			time.Sleep(2500 * time.Millisecond)
			k := s.Take(l, 10*time.Second)
			s.Is("Release", k.Release(s.Ctx), nil)
			s.Clean(l)
		})
	}
}

// A stopped server executes at waking what lies in its sockets: an acquire after
// the rollback that was to undo it.
//
// Attacks 22, 25.
func TestAnAcquireThatIsExecutedAfterItsRollbackLeavesNothing(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		s.Foreign(20*time.Second, 0, 1)
		s.Node(2).Hang()
		_, err := l.TryAcquire(s.Ctx, job, time.Hour)
		s.Is("TryAcquire", err, redlock.ErrHeld)
		time.Sleep(30 * time.Second)
		s.Node(2).Resume()
		s.Clean(l)
		k := s.Take(l, time.Minute)
		s.Carry("the next lock", k.Value(), 0, 1, 2)
		// The old attempt's rollback, however late, does not touch the next lock.
		time.Sleep(10 * time.Second)
		s.Carry("ten seconds later", k.Value(), 0, 1, 2)
	})
}

// Attack 83.
func TestAShorterTTLShortensNobodysLock(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		a, b := s.Locker(redlock.Options{}), s.Locker(redlock.Options{})
		k := s.Take(a, time.Hour)
		for range 3 {
			b.TryAcquire(s.Ctx, job, time.Second)
		}
		time.Sleep(time.Minute)
		for i := range 3 {
			if got := s.Node(i).TTL(job); got < 58*time.Minute {
				t.Errorf("node %d: the holder's key has %v left, want 59m", i, got)
			}
		}
		if !k.Valid() {
			t.Errorf("the lock is not valid any more")
		}
	})
}

func TestALockerIsSharedByManyGoroutines(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		var wg sync.WaitGroup
		counters := make([]int, 4) // guarded by the locks
		for i := range 32 {
			wg.Go(func() {
				key := fmt.Sprintf("shared/%d", i%4)
				k, err := l.Acquire(s.Ctx, key, 10*time.Second)
				if err != nil {
					t.Errorf("Acquire: got %v, want the lock", err)
					return
				}
				counters[i%4]++
				if i%2 == 0 {
					s.Is("Extend", k.Extend(s.Ctx), nil)
				}
				s.Is("Release", k.Release(s.Ctx), nil)
			})
		}
		wg.Wait()
		if !slices.Equal(counters, []int{8, 8, 8, 8}) {
			t.Errorf("got %v, want 8 each", counters)
		}
		s.Clean(l)
	})
}

func TestALockIsSharedByManyGoroutines(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		k := s.Take(l, 5*time.Second)
		var wg sync.WaitGroup
		for i := range 16 {
			wg.Go(func() {
				held := s.Keep(k)
				for range 10 {
					s.Is("Extend", k.Extend(s.Ctx), nil)
					if !k.Valid() || time.Until(k.Until()) <= 0 || held.Err() != nil || k.Fence() == 0 || k.Key() != job {
						t.Errorf("valid: %v, left: %v, held: %v; want a lock that is held", k.Valid(), time.Until(k.Until()), held.Err())
					}
					time.Sleep(time.Duration(i) * 20 * time.Millisecond)
				}
			})
		}
		wg.Wait()
		errs := make([]error, 8)
		for i := range errs {
			wg.Go(func() { errs[i] = k.Release(s.Ctx) })
		}
		wg.Wait()
		for _, err := range errs {
			s.Is("Release", err, nil)
		}
		if n := len(s.Told(0, "release")); n != 1 {
			t.Errorf("releases sent: got %d, want 1", n)
		}
		s.Clean(l)
	})
}

// The process stands still between its last look at the clock and the return of the
// call: nobody can look later than that, and so what is returned says itself that it
// is over.
//
// Attack 2.
func TestALockThatIsReturnedTooLateIsNotValid(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		const ttl, pause = 10 * time.Second, 11 * time.Second
		var observed, stood atomic.Bool
		var readings atomic.Int32 // of the clock, behind Trace: redlock.Trace{Round: the} first is the last look
		l, err := harness.NewSeamed(redlock.Options{Trace: redlock.Trace{Round: func(_ context.Context, r redlock.Round) {
			if r.Op == redlock.OpAcquire {
				observed.Store(true)
			}
		}}}, func() time.Time {
			now := time.Now()
			if observed.Load() && !stood.Load() && readings.Add(1) > 1 {
				now = now.Add(pause)
			}
			return now
		}, nil, 0, s.Cluster.Nodes()...)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		began := time.Now()
		k := s.Take(l, ttl)
		if readings.Load() < 2 {
			t.Fatal("nobody has read the clock behind the last look: the test tests nothing")
		}
		time.Sleep(pause)
		stood.Store(true)
		if got, want := k.Until(), began.Add(harness.ValidFor(ttl, 1)); !got.Equal(want) || k.Valid() {
			t.Errorf("Until: got %v after the call, valid %v; want %v and false", got.Sub(began), k.Valid(), want.Sub(began))
		}
		held := s.Keep(k)
		s.Is("the cause of a KeepAlive context", context.Cause(held), redlock.ErrLost)
		other := s.Take(s.Locker(redlock.Options{}), time.Minute)
		s.Is("Extend", k.Extend(s.Ctx), redlock.ErrLost)
		s.Is("Release", k.Release(s.Ctx), redlock.ErrLost)
		time.Sleep(2 * time.Second)
		s.Carry("the next holder's", other.Value(), s.All()...)
	})
}

// What says yes after the verdict stays, and is a reserve for what the others forget.
//
// Attack 56.
func TestGrantsThatComeAfterTheVerdictAreAReserve(t *testing.T) {
	onStage(t, 5, func(s *stage) {
		a, b := s.Locker(redlock.Options{}), s.Locker(redlock.Options{})
		s.Slow(80*time.Millisecond, 3, 4)
		var k *redlock.Lock
		s.Lasts("TryAcquire", 0, func() { k = s.Take(a, 10*time.Second) })
		s.Carry("at the verdict", k.Value(), 0, 1, 2)
		time.Sleep(100 * time.Millisecond)
		s.Carry("afterwards", k.Value(), s.All()...)
		s.Slow(0, 3, 4)
		s.Node(0).FlushAll()
		s.Node(2).FlushAll()
		_, err := b.TryAcquire(s.Ctx, job, time.Minute)
		s.Is("TryAcquire of another, with two of the first three empty", err, redlock.ErrHeld)
		time.Sleep(time.Second)
		s.Is("Extend", k.Extend(s.Ctx), nil)
		time.Sleep(oneTrip)
		s.Carry("healed", k.Value(), s.All()...)
		s.Is("Release", k.Release(s.Ctx), nil)
		s.Clean(a, b)
	})
}

// TryAcquire that gives up in the pause after a tie does not say that ctx ended it.
func TestAContextThatEndsInThePauseAfterATieIsTold(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		s.Node(0).Set(job, "x", time.Minute)
		s.Node(1).Set(job, "y", time.Minute)
		ctx := s.Timeout(4 * time.Millisecond) // the pause is at least 5
		harness.CheckIs(t, "TryAcquire", harness.Second(l.TryAcquire(ctx, job, time.Minute)), context.DeadlineExceeded)
	})
}

// Two attempts at once, both given up: the one whose rollback takes longer must not be forgotten
// for the other.
func TestAnAttemptGoesAfterEveryRollback(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		for i := range 3 {
			s.Node(i).Delay(40*time.Millisecond, 0)
		}
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				ctx := s.Timeout(10 * time.Millisecond)
				_, err := l.TryAcquire(ctx, job, 20*time.Second)
				s.Is("TryAcquire", err, context.DeadlineExceeded)
			})
			time.Sleep(time.Millisecond)
		}
		wg.Wait()
		time.Sleep(35 * time.Millisecond) // the first one's rollback is on its way, the second one's is done
		for i := range 3 {
			s.Node(i).Delay(0, 0)
		}
		s.Is("Release", s.Take(l, 20*time.Second).Release(s.Ctx), nil)
		s.Clean(l)
	})
}

// What the README says of ties. Nobody has a majority: two nodes have somebody
// else's value each, for as long as their rollbacks take, and one has ours.
//
// Attack 74.
func TestATieIsTriedAgain(t *testing.T) {
	tie := func(s *stage, life time.Duration) {
		s.Node(0).Set(job, otherValue, life)
		s.Node(1).Set(job, "a third:00000000-0000-4000-8000-000000000000", life)
	}
	runStage(t, "until it is had", 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		tie(s, 4*time.Millisecond) // the pause is at least 5
		s.Is("Release", s.Take(l, 10*time.Second).Release(s.Ctx), nil)
		s.Clean(l)
	})
	for _, c := range []struct {
		name     string
		put      func(s *stage)
		nodes    int
		attempts int
	}{
		{"four times at most", func(s *stage) { tie(s, time.Hour) }, 3, 4},
		{"and not where one holder has a majority", func(s *stage) { s.Foreign(time.Hour, 0, 1) }, 3, 1},
		{"of which half refuses first", func(s *stage) {
			s.Foreign(time.Hour, 0, 1, 2)
			s.Slow(time.Millisecond, 0, 1)
			s.Slow(2*time.Millisecond, 2)
		}, 4, 1},
	} {
		runStage(t, c.name, c.nodes, func(s *stage) {
			l := s.Locker(redlock.Options{})
			c.put(s)
			_, err := l.TryAcquire(s.Ctx, job, 10*time.Second)
			s.Is("TryAcquire", err, redlock.ErrHeld)
			harness.Check(s, "attempts", s.RoundOf(err).Attempt, c.attempts)
		})
	}
}
