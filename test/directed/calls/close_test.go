package calls_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/harness"
	"github.com/seed-ce352c9b/redlock/redlocktest"
)

// Close comes while something is under way on nodes that answer and on nodes that
// do not. What leaks goroutines fails the bubble.
//
// Attacks 19, 97.
func TestCloseEndsWhatIsUnderWay(t *testing.T) {
	type call func(ctx context.Context, l *redlock.Locker, k *redlock.Lock) error
	keepAlive := func(ctx context.Context, l *redlock.Locker, k *redlock.Lock) error {
		held, _ := k.KeepAlive(ctx)
		<-held.Done()
		return context.Cause(held)
	}
	acquire := func(ctx context.Context, l *redlock.Locker, k *redlock.Lock) error {
		return harness.Second(l.Acquire(ctx, k.Key(), time.Minute))
	}
	closed := []error{redlock.ErrClosed}
	for _, tc := range []struct {
		name string
		hung bool
		call call
		want []error // any of them
	}{
		{"TryAcquire", true, func(ctx context.Context, l *redlock.Locker, k *redlock.Lock) error {
			return harness.Second(l.TryAcquire(ctx, "jobs/43", time.Minute))
		}, closed},
		{"Acquire that waits", false, acquire, closed},
		{"Acquire on hung nodes", true, acquire, closed},
		{"Run that waits", false, func(ctx context.Context, l *redlock.Locker, k *redlock.Lock) error {
			return l.Run(ctx, k.Key(), time.Minute, func(context.Context, *redlock.Lock) error { return errors.New("fn was called") })
		}, closed},
		{"Run that runs", false, func(ctx context.Context, l *redlock.Locker, k *redlock.Lock) error {
			return l.Run(ctx, "jobs/43", time.Minute, func(ctx context.Context, _ *redlock.Lock) error {
				<-ctx.Done()
				return context.Cause(ctx)
			})
		}, closed},
		{"Inspect", true, func(ctx context.Context, l *redlock.Locker, k *redlock.Lock) error {
			return harness.Second(l.Inspect(ctx, k.Key()))
		}, closed},
		{"Adopt", true, func(ctx context.Context, l *redlock.Locker, k *redlock.Lock) error {
			return harness.Second(l.Adopt(ctx, k.Key(), k.Value(), time.Minute))
		}, closed},
		{"KeepAlive", false, keepAlive, closed},
		{"KeepAlive on hung nodes", true, keepAlive, closed},
		{"Extend", true, func(ctx context.Context, l *redlock.Locker, k *redlock.Lock) error {
			return k.Extend(ctx)
		}, []error{redlock.ErrClosed, redlock.ErrLost}},
		{"Release", true, func(ctx context.Context, l *redlock.Locker, k *redlock.Lock) error {
			return k.Release(ctx)
		}, []error{redlock.ErrNoQuorum, redlock.ErrClosed}},
	} {
		runStage(t, tc.name, 3, func(s *stage) {
			l := s.Locker(redlock.Options{NodeTimeout: 200 * time.Millisecond})
			k := s.Take(l, time.Hour)
			time.Sleep(time.Millisecond)
			if tc.hung {
				s.Each((*redlocktest.Node).Hang)
			}
			var ended time.Time
			call := harness.Background(func() error {
				defer func() { ended = time.Now() }()
				return tc.call(s.Ctx, l, k)
			})
			time.Sleep(50 * time.Millisecond)
			var err error
			d := harness.Took(func() { err = l.Close() })
			closed := time.Now()
			if !tc.hung || !errors.Is(err, redlock.ErrNoQuorum) { // of a lock that is still held
				s.Is("Close", err, nil)
			}
			most := 2 * time.Millisecond // a release, and the leave of a waiter
			if tc.hung {
				most = 2 * 200 * time.Millisecond
			}
			if d > most {
				s.Errorf("time of Close with all nodes hung (%v): got %v, want at most %v", tc.hung, d, most)
			}
			err = <-call
			if !slices.ContainsFunc(tc.want, func(want error) bool { return errors.Is(err, want) }) {
				s.Errorf("%s that Close ended: got %v, want one of %v", tc.name, err, tc.want)
			}
			if d := ended.Sub(closed); d > 10*time.Millisecond {
				s.Errorf("end of %s: got %v after Close, want with it", tc.name, d)
			}
			harness.Check(s, "Valid after Close", k.Valid(), false)
			if !tc.hung {
				s.Empty("after Close")
			}
			s.Mend()
		})
	}
}

// Also where something else is wrong with the call.
func TestEveryCallAfterCloseIsErrClosed(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		clients := s.Cluster.Clients()
		l := s.LockerWith(redlock.Options{}, nil, harness.Nodes(clients))
		k := s.Take(l, time.Hour)
		released := harness.Try(s, l, "jobs/43", time.Hour)
		s.Is("Release", released.Release(s.Ctx), nil)
		held, stop := k.KeepAlive(s.Ctx)
		defer stop()
		s.Is("Close", l.Close(), nil)
		s.Is("cause of the end of a KeepAlive context", context.Cause(held), redlock.ErrClosed)
		s.Empty("after Close")
		s.Record()
		s.Is("a second Close", l.Close(), redlock.ErrClosed)
		done, cancel := context.WithCancel(s.Ctx)
		cancel()
		for _, call := range []struct {
			what  string
			ctx   context.Context
			key   string
			value string
			ttl   time.Duration
		}{
			{"with nothing wrong", s.Ctx, "a", "x", time.Minute},
			{"with a ctx that is done", done, "a", "x", time.Minute},
			{"with an empty key", s.Ctx, "", "", time.Minute},
			{"with a key of ours", s.Ctx, "{a}:fence", "", time.Minute},
			{"with a negative ttl", s.Ctx, "a", "", -1},
		} {
			is := func(method string, err error) {
				s.Helper()
				s.Is(method+" "+call.what, err, redlock.ErrClosed)
				harness.CheckIsNot(s, method+" "+call.what, err, context.Canceled)
			}
			is("TryAcquire", harness.Second(l.TryAcquire(call.ctx, call.key, call.ttl)))
			is("Acquire", harness.Second(l.Acquire(call.ctx, call.key, call.ttl)))
			is("Run", l.Run(call.ctx, call.key, call.ttl, func(context.Context, *redlock.Lock) error { return nil }))
			is("Adopt", harness.Second(l.Adopt(call.ctx, call.key, redlock.ValueOf(call.value), call.ttl)))
			is("Inspect", harness.Second(l.Inspect(call.ctx, call.key)))
			is("Watch", watchOnce(l, call.ctx, call.key))
			is("Extend", k.Extend(call.ctx))
			held, stop := k.KeepAlive(call.ctx)
			is("KeepAlive", context.Cause(held))
			stop()
		}
		s.Is("AcquireAll of no keys", harness.Second(l.AcquireAll(s.Ctx, nil, 0)), redlock.ErrClosed)
		_, _, err := l.AcquireSlot(s.Ctx, "", 0, 0)
		s.Is("AcquireSlot of no slots", err, redlock.ErrClosed)
		s.Is("Release of a lock that Close released", k.Release(s.Ctx), nil)
		s.Is("Release of a lock released before", released.Release(s.Ctx), nil)
		time.Sleep(time.Second)
		s.Each(func(n *redlocktest.Node) { harness.Check(s, "commands of ours after Close", len(n.Log()), 0) })
		for _, client := range clients {
			s.Is("PING by a client given to New", client.Ping(s.Ctx).Err(), nil)
		}
	})
}

func TestClosePaysWhatIsOwedToNodesThatAnswer(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		k := s.Take(l, time.Hour)
		time.Sleep(time.Millisecond)
		harness.Unanswered(s.Node(2), "release", job, 3)
		s.Is("Release", k.Release(s.Ctx), nil)
		s.Is("Close", l.Close(), nil)
		harness.Check(s, "keys on the node that had not answered", len(harness.LocksOn(s.Node(2))), 0)
		harness.Check(s, "releases that it heard", harness.Count(harness.Heard(s.Node(2), job), "release") >= 2, true)
	})
}

// Hung nodes must not hold Close up beyond its bound, nor make it forget the rest.
func TestCloseWithHungNodesTakesAtMostTwoNodeTimeouts(t *testing.T) {
	for _, c := range []struct {
		hung          []int
		timeout, most time.Duration
		want          error
	}{
		{[]int{0, 1, 2}, 0, 2 * time.Second, redlock.ErrNoQuorum},
		{[]int{0, 1, 2}, 50 * time.Millisecond, 100 * time.Millisecond, redlock.ErrNoQuorum},
		{[]int{2}, 0, 2 * time.Second, nil},
	} {
		onStage(t, 3, func(s *stage) {
			l := s.Locker(redlock.Options{NodeTimeout: c.timeout})
			s.TakeMany(l, "k", 50)
			s.Each((*redlocktest.Node).Hang, c.hung...)
			if d := harness.Took(func() { s.Is("Close", l.Close(), c.want) }); d > c.most {
				s.Errorf("time of Close with nodes %v hung and node timeout %v: got %v, want at most %v", c.hung, c.timeout, d, c.most)
			}
			if c.want == nil {
				s.Empty("after Close", 0, 1)
			}
			s.Mend()
		})
	}
}

// A silent minority costs Close no node timeout, whatever had been asked of it.
func TestCloseDoesNotWaitForASilentMinority(t *testing.T) {
	const justNow, longAgo = 260 * time.Millisecond, time.Millisecond // since the node was asked something
	for _, tc := range []struct {
		name        string
		warm        bool
		early, late func(s *stage, l *redlock.Locker, k *redlock.Lock) // the node hangs between these, or if early is nil before the acquire
		most        time.Duration
	}{
		{"silent since the acquire, which was long ago", true, nil, pause(500 * time.Millisecond), longAgo},
		{"silent since the acquire, which was just now", true, nil, pause(0), justNow},
		{"silent since the first contact", false, nil, pause(0), justNow},
		{"silent before the release", true, pause(time.Second), func(s *stage, l *redlock.Locker, k *redlock.Lock) {
			s.Is("Release", k.Release(s.Ctx), nil)
		}, justNow},
		{"silent before Close, with a lock held", true, pause(time.Second), pause(0), justNow},
		{"silent when its subscription is made", true, pause(0), func(s *stage, l *redlock.Locker, k *redlock.Lock) {
			ctx, cancel := context.WithTimeout(s.Ctx, 1500*time.Millisecond)
			defer cancel()
			s.Is("Acquire of a lock that is held", harness.Second(l.Acquire(ctx, job, time.Hour)), context.DeadlineExceeded)
		}, justNow},
		{"silent for so long that it is out of use", true, nil, pause(3 * time.Second), longAgo},
	} {
		runStage(t, tc.name, 3, func(s *stage) {
			l := s.Cold(redlock.Options{}, nil, s.Cluster.Nodes())
			if tc.warm {
				harness.WarmUp(s, s.Cluster, l)
			}
			if tc.early == nil {
				s.Node(2).Hang()
			}
			k := s.Take(l, time.Hour)
			if tc.early != nil {
				tc.early(s, l, k)
				s.Node(2).Hang()
			}
			tc.late(s, l, k)
			if d := harness.Took(func() { s.Is("Close", l.Close(), nil) }); d > tc.most {
				s.Errorf("time of Close: got %v, want at most %v", d, tc.most)
			}
			s.Empty("after Close", 0, 1)
			s.Mend()
		})
	}
}

func pause(d time.Duration) func(*stage, *redlock.Locker, *redlock.Lock) {
	return func(*stage, *redlock.Locker, *redlock.Lock) { time.Sleep(d) }
}

// A node that is slow but answers gets its release: it waits for the node's answer to
// the acquire, and Close waits for both.
func TestCloseWaitsForASlowNode(t *testing.T) {
	for _, tc := range []struct {
		name     string
		warm     bool
		slow     bool          // while it is met
		way      time.Duration // each way
		released bool          // before Close
	}{
		{"slow all the time", true, true, 40 * time.Millisecond, true},
		{"slow all the time, and Close releases", true, true, 40 * time.Millisecond, false},
		{"very far", true, true, 200 * time.Millisecond, false},
		{"never met before", false, true, 25 * time.Millisecond, true},
		{"slow of a sudden", true, false, 40 * time.Millisecond, true},
	} {
		runStage(t, tc.name, 3, func(s *stage) {
			if tc.slow {
				s.Slow(2*tc.way, 2)
			}
			l := s.Cold(redlock.Options{}, nil, s.Cluster.Nodes())
			if tc.warm {
				harness.WarmUp(s, s.Cluster, l)
			}
			s.Slow(2*tc.way, 2)
			k := s.Take(l, time.Hour)
			if tc.released {
				s.Is("Release", k.Release(s.Ctx), nil)
			}
			s.Is("Close", l.Close(), nil)
			time.Sleep(time.Second) // what is under way arrives
			s.Empty("after Close")
		})
	}
}

// Whatever the instant at which Close comes, the attempt has an owner: its caller
// got an error and it is undone, or a lock and Close releases it.
//
// Attack 97.
func TestCloseRacingWithAWinNeverLeavesALockWithoutAnOwner(t *testing.T) {
	locks, errs := 0, 0
	for step := range 60 {
		after := time.Duration(step) * 5 * time.Microsecond
		onStage(t, 3, func(s *stage) {
			l := s.Locker(redlock.Options{})
			var k *redlock.Lock
			done := harness.Background(func() (err error) { k, err = l.TryAcquire(s.Ctx, job, time.Hour); return err })
			time.Sleep(after)
			s.Is("Close", l.Close(), nil)
			err := <-done
			switch {
			case (k == nil) == (err == nil):
				s.Errorf("TryAcquire beside Close after %v: got lock %v and error %v, want one of them", after, k, err)
			case err != nil:
				errs++
				harness.CheckIs(s, "TryAcquire beside Close", err, redlock.ErrClosed)
			default:
				locks++
				harness.Check(s, "Valid after Close", k.Valid(), false)
			}
			time.Sleep(time.Second)
			s.Empty(fmt.Sprintf("a Close %v after the call", after))
		})
	}
	if locks == 0 || errs == 0 {
		t.Errorf("outcomes: got %d locks and %d errors, want some of both", locks, errs)
	}
}

func TestClientsOfOpenAreClosedAndThoseOfNewAreNot(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		clients := s.Cluster.Clients()
		l := s.LockerWith(redlock.Options{}, nil, harness.Nodes(clients))
		before := s.Cluster.Connections()
		s.Is("Close", l.Close(), nil)
		harness.Check(s, "connections of clients given to New, after Close", s.Cluster.Connections(), before)
		for _, client := range clients {
			s.Is("SET by a client given to New", client.Set(s.Ctx, "x", "y", time.Minute).Err(), nil)
		}
	})
	// The clients that Open makes have a dialer of their own and cannot reach the
	// in-process cluster: this is a server that accepts, says nothing, and sees the
	// connections end.
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var conns, ended sync.WaitGroup
	conns.Add(1)
	var once sync.Once
	ended.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			once.Do(conns.Done)
			ended.Go(func() {
				io.Copy(io.Discard, conn)
				conn.Close()
			})
		}
	})
	l, err := redlock.Open(redlock.Options{NodeTimeout: 20 * time.Millisecond}, ln.Addr().String())
	harness.CheckIs(t, "Open", err)
	_, err = l.TryAcquire(t.Context(), job, time.Minute)
	harness.CheckIs(t, "TryAcquire on a server that says nothing", err, redlock.ErrNoQuorum)
	conns.Wait()
	harness.CheckIs(t, "Close", l.Close())
	ln.Close()
	done := make(chan struct{})
	go func() { ended.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(5 * time.Second):
		t.Error("connections of clients made by Open: got some open 5 s after Close, want all closed")
	}
}

// A call that Close meets on its way back has something to undo yet: Close waits for
// that, or it would never be sent.
func TestCloseWaitsForWhatCallsHaveToUndo(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		const pause = 5 * time.Millisecond
		stand := false
		l := s.Locker(redlock.Options{Trace: redlock.Trace{Round: func(_ context.Context, r redlock.Round) {
			if stand && r.Op == redlock.OpAcquire {
				time.Sleep(pause) // the attempt has failed, and is not undone yet
			}
		}}})
		s.Foreign(time.Hour, 0, 1)
		stand = true
		done := harness.Background(func() error { _, err := l.TryAcquire(s.Ctx, job, time.Hour); return err })
		time.Sleep(time.Millisecond)
		harness.Check(s, "keys of ours on the third node", len(harness.LocksOn(s.Node(2))), 1)
		s.Is("Close", l.Close(), nil)
		harness.Check(s, "keys of ours on the third node after Close", len(harness.LocksOn(s.Node(2))), 0)
		s.Is("TryAcquire", <-done, redlock.ErrHeld)
	})
}

// A loss is signalled a little before Until, and the keys are removed at Until. Close, which mostly follows as soon as the
// holder has learned of the loss, waits for that.
func TestCloseWaitsForTheRemovalOfALockThatWasJustLost(t *testing.T) {
	slowly := redlock.Trace{Event: func(e redlock.Event) {
		if e.Kind == redlock.EventLost {
			time.Sleep(200 * time.Microsecond) // Close comes meanwhile
		}
	}}
	for name, c := range map[string]struct {
		opt   redlock.Options
		early time.Duration // before Until
	}{
		"as it is signalled":    {redlock.Options{Drift: 0.5, Trace: slowly}, time.Millisecond},
		"half a millisecond on": {redlock.Options{Drift: 0.5}, 500 * time.Microsecond},
		"at the end of a grace": {redlock.Options{Drift: 0.5, Grace: 3 * time.Second}, 500 * time.Microsecond},
	} {
		runStage(t, name, 3, func(s *stage) {
			l := s.Locker(c.opt)
			k := s.Take(l, time.Minute)
			held := s.Keep(k)
			time.Sleep(2 * time.Second)
			s.FailNodes(loading, 0, 1, 2)
			<-held.Done() // the lock is not renewed any more
			s.FailNodes("", 0, 1, 2)
			time.Sleep(time.Until(k.Until()) - c.early)
			if k.Valid() {
				s.Fatal("the loss has not been signalled yet")
			}
			s.Is("Close", l.Close(), nil)
			if early := time.Until(k.Until()); early > 0 {
				s.Errorf("Close returned %v before the keys are removed", early)
			}
			s.Carry("after Close", k.Value())
		})
	}
}
