package directed_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/harness"
	"github.com/seed-ce352c9b/redlock/redlocktest"
)

func hangAll(c *redlocktest.Cluster, on bool) {
	for i := range c.Len() {
		if on {
			c.Node(i).Hang()
		} else {
			c.Node(i).Resume()
		}
	}
}

// Close comes while something is under way on nodes that answer and on nodes that
// do not. What leaks goroutines fails the bubble.
//
// Attacks 19, 97.
func TestCloseEndsWhatIsUnderWay(t *testing.T) {
	type call func(ctx context.Context, l *redlock.Locker, k *redlock.Lock) error
	for _, tc := range []struct {
		name string
		hung bool
		call call
		want []error // any of them; nil: no error
	}{
		{"TryAcquire", true, func(ctx context.Context, l *redlock.Locker, k *redlock.Lock) error {
			_, err := l.TryAcquire(ctx, "jobs/43", time.Minute)
			return err
		}, []error{redlock.ErrClosed}},
		{"Acquire that waits", false, func(ctx context.Context, l *redlock.Locker, k *redlock.Lock) error {
			_, err := l.Acquire(ctx, "held", time.Minute)
			return err
		}, []error{redlock.ErrClosed}},
		{"Acquire on hung nodes", true, func(ctx context.Context, l *redlock.Locker, k *redlock.Lock) error {
			_, err := l.Acquire(ctx, "held", time.Minute)
			return err
		}, []error{redlock.ErrClosed}},
		{"Run that waits", false, func(ctx context.Context, l *redlock.Locker, k *redlock.Lock) error {
			return l.Run(ctx, "held", time.Minute, func(context.Context, *redlock.Lock) error {
				return errors.New("fn was called")
			})
		}, []error{redlock.ErrClosed}},
		{"Run that runs", false, func(ctx context.Context, l *redlock.Locker, k *redlock.Lock) error {
			return l.Run(ctx, "jobs/43", time.Minute, func(ctx context.Context, _ *redlock.Lock) error {
				<-ctx.Done()
				return context.Cause(ctx)
			})
		}, []error{redlock.ErrClosed}},
		{"Inspect", true, func(ctx context.Context, l *redlock.Locker, k *redlock.Lock) error {
			_, err := l.Inspect(ctx, "held")
			return err
		}, []error{redlock.ErrClosed}},
		{"Adopt", true, func(ctx context.Context, l *redlock.Locker, k *redlock.Lock) error {
			_, err := l.Adopt(ctx, "held", k.Value(), time.Minute)
			return err
		}, []error{redlock.ErrClosed}},
		{"KeepAlive", false, func(ctx context.Context, l *redlock.Locker, k *redlock.Lock) error {
			held, _ := k.KeepAlive(ctx)
			<-held.Done()
			return context.Cause(held)
		}, []error{redlock.ErrClosed}},
		{"KeepAlive on hung nodes", true, func(ctx context.Context, l *redlock.Locker, k *redlock.Lock) error {
			held, _ := k.KeepAlive(ctx)
			<-held.Done()
			return context.Cause(held)
		}, []error{redlock.ErrClosed}},
		{"Extend", true, func(ctx context.Context, l *redlock.Locker, k *redlock.Lock) error {
			return k.Extend(ctx)
		}, []error{redlock.ErrClosed, redlock.ErrLost}},
		{"Release", true, func(ctx context.Context, l *redlock.Locker, k *redlock.Lock) error {
			return k.Release(ctx)
		}, []error{redlock.ErrNoQuorum, redlock.ErrClosed}},
	} {
		runStaged(t, tc.name, 3, func(t *testing.T, c *redlocktest.Cluster) {
			l := warmLocker(t, c, redlock.Options{NodeTimeout: 200 * time.Millisecond})
			k := harness.Try(t, l, "held", time.Hour)
			time.Sleep(time.Millisecond)
			hangAll(c, tc.hung)
			var wg sync.WaitGroup
			wg.Go(func() {
				err := tc.call(t.Context(), l, k)
				ok := false
				for _, w := range tc.want {
					ok = ok || errors.Is(err, w)
				}
				if !ok {
					t.Errorf("%s that Close ended: got %v, want one of %v", tc.name, err, tc.want)
				}
			})
			time.Sleep(50 * time.Millisecond)
			var err error
			d := took(func() { err = l.Close() })
			if !tc.hung || !errors.Is(err, redlock.ErrNoQuorum) { // of a lock that is still held
				harness.CheckIs(t, "Close", err)
			}
			if tc.hung && d > 400*time.Millisecond {
				t.Errorf("time of Close with all nodes hung: got %v, want at most two node timeouts of 200 ms", d)
			}
			if !tc.hung && d > 2*time.Millisecond { // a release, and the leave of a waiter
				t.Errorf("time of Close with all nodes well: got %v, want at most two milliseconds", d)
			}
			if d, ok := within(time.Second, func() bool {
				done := make(chan struct{})
				go func() { wg.Wait(); close(done) }()
				select {
				case <-done:
					return true
				case <-time.After(time.Millisecond):
					return false
				}
			}); !ok || d > 10*time.Millisecond {
				t.Errorf("end of %s: got %v after Close, want with it", tc.name, d)
			}
			wg.Wait()
			harness.Check(t, "Valid after Close", k.Valid(), false)
			hangAll(c, false)
			if !tc.hung {
				for i := range c.Len() {
					harness.Check(t, "keys on node "+c.Node(i).Name()+" after Close", len(harness.LocksOn(c.Node(i))), 0)
				}
			}
		})
	}
}

func TestCloseWithAllNodesHungTakesTwoNodeTimeouts(t *testing.T) {
	for timeout, most := range map[time.Duration]time.Duration{0: 2 * time.Second, 50 * time.Millisecond: 100 * time.Millisecond} {
		staged(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
			l := warmLocker(t, c, redlock.Options{NodeTimeout: timeout})
			for i := range 20 {
				harness.Try(t, l, fmt.Sprint("k", i), time.Minute)
			}
			time.Sleep(time.Millisecond)
			hangAll(c, true)
			if d := took(func() { harness.CheckIs(t, "Close", l.Close(), redlock.ErrNoQuorum) }); d > most {
				t.Errorf("time of Close with all nodes hung and node timeout %v: got %v, want at most %v", timeout, d, most)
			}
			hangAll(c, false)
		})
	}
}

func TestEveryCallAfterCloseIsErrClosed(t *testing.T) {
	staged(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		clients := c.Clients()
		l := lockerOn(t, redlock.Options{}, clients)
		warmUp(t, c, l)
		k := harness.Try(t, l, "jobs/42", time.Hour)
		released := harness.Try(t, l, "jobs/43", time.Hour)
		harness.CheckIs(t, "Release", released.Release(t.Context()))
		held, stop := k.KeepAlive(t.Context())
		defer stop()
		harness.CheckIs(t, "Close", l.Close())
		harness.CheckIs(t, "cause of the end of a KeepAlive context", context.Cause(held), redlock.ErrClosed)
		for i := range c.Len() {
			harness.Check(t, "keys on node "+c.Node(i).Name()+" after Close", len(harness.LocksOn(c.Node(i))), 0)
			c.Node(i).Record(true)
		}
		ctx := t.Context()
		harness.CheckIs(t, "a second Close", l.Close(), redlock.ErrClosed)
		_, err := l.TryAcquire(ctx, "a", time.Minute)
		harness.CheckIs(t, "TryAcquire", err, redlock.ErrClosed)
		harness.CheckIsNot(t, "TryAcquire", err, redlock.ErrHeld, redlock.ErrNoQuorum, context.Canceled)
		_, err = l.Acquire(ctx, "a", time.Minute)
		harness.CheckIs(t, "Acquire", err, redlock.ErrClosed)
		_, err = l.Inspect(ctx, "a")
		harness.CheckIs(t, "Inspect", err, redlock.ErrClosed)
		_, err = l.Adopt(ctx, "a", "x", time.Minute)
		harness.CheckIs(t, "Adopt", err, redlock.ErrClosed)
		harness.CheckIs(t, "Run", l.Run(ctx, "a", time.Minute, func(context.Context, *redlock.Lock) error { return nil }), redlock.ErrClosed)
		harness.CheckIs(t, "Watch", watchOnce(l, ctx, "a"), redlock.ErrClosed)
		harness.CheckIs(t, "Watch of no key", watchOnce(l, ctx, ""), redlock.ErrClosed)
		harness.CheckIs(t, "AcquireAll of no keys", harness.Second(l.AcquireAll(ctx, nil, 0)), redlock.ErrClosed)
		_, _, err = l.AcquireSlot(ctx, "", 0, 0)
		harness.CheckIs(t, "AcquireSlot of no slots", err, redlock.ErrClosed)
		harness.CheckIs(t, "Extend", k.Extend(ctx), redlock.ErrClosed)
		again, stop := k.KeepAlive(ctx)
		defer stop()
		harness.CheckIs(t, "cause of a KeepAlive context", context.Cause(again), redlock.ErrClosed)
		harness.CheckIs(t, "Release of a lock that Close released", k.Release(ctx))
		harness.CheckIs(t, "Release of a lock released before", released.Release(ctx))
		time.Sleep(time.Second)
		for i, client := range clients {
			harness.Check(t, "commands of ours after Close", len(c.Node(i).Log()), 0)
			harness.CheckIs(t, "PING by a client given to New", client.Ping(ctx).Err())
		}
	})
}

// Also where something else is wrong with the call.
func TestEveryWrongCallAfterCloseIsErrClosed(t *testing.T) {
	staged(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		l := warmLocker(t, c, redlock.Options{})
		k := harness.Try(t, l, "jobs/42", time.Hour)
		harness.CheckIs(t, "Close", l.Close())
		done, cancel := context.WithCancel(t.Context())
		cancel()
		for _, call := range []struct {
			what string
			ctx  context.Context
			key  string
			ttl  time.Duration
		}{
			{"with a ctx that is done", done, "a", time.Minute},
			{"with an empty key", t.Context(), "", time.Minute},
			{"with a key of ours", t.Context(), "{a}:fence", time.Minute},
			{"with a negative ttl", t.Context(), "a", -1},
		} {
			is := func(method string, err error) {
				t.Helper()
				harness.CheckIs(t, method+" "+call.what, err, redlock.ErrClosed)
				harness.CheckIsNot(t, method+" "+call.what, err, context.Canceled)
			}
			_, err := l.TryAcquire(call.ctx, call.key, call.ttl)
			is("TryAcquire", err)
			_, err = l.Acquire(call.ctx, call.key, call.ttl)
			is("Acquire", err)
			is("Run", l.Run(call.ctx, call.key, call.ttl, func(context.Context, *redlock.Lock) error { return nil }))
			_, err = l.Adopt(call.ctx, call.key, "", call.ttl)
			is("Adopt", err)
			_, err = l.Inspect(call.ctx, call.key)
			is("Inspect", err)
			is("Extend", k.Extend(call.ctx))
			held, stop := k.KeepAlive(call.ctx)
			is("KeepAlive", context.Cause(held))
			stop()
		}
	})
}

func TestClosePaysWhatIsOwedToNodesThatAnswer(t *testing.T) {
	staged(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		l := warmLocker(t, c, redlock.Options{})
		k := harness.Try(t, l, "jobs/42", time.Hour)
		time.Sleep(time.Millisecond)
		unanswered(c.Node(2), "release", "jobs/42", 3)
		harness.CheckIs(t, "Release", k.Release(t.Context()))
		harness.CheckIs(t, "Close", l.Close())
		harness.Check(t, "keys on the node that had not answered", len(harness.LocksOn(c.Node(2))), 0)
		harness.Check(t, "releases that it heard", count(heard(c.Node(2), "jobs/42"), "release") >= 2, true)
	})
}

// A hung node must not hold Close up beyond its bound, nor make it forget the rest.
func TestCloseReleasesOnTheNodesThatAnswer(t *testing.T) {
	staged(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		l := warmLocker(t, c, redlock.Options{})
		for i := range 50 {
			harness.Try(t, l, fmt.Sprint("k", i), time.Hour)
		}
		time.Sleep(time.Millisecond)
		c.Node(2).Hang()
		if d := took(func() { harness.CheckIs(t, "Close", l.Close()) }); d > 2*time.Second {
			t.Errorf("time of Close with one node hung: got %v, want at most two seconds", d)
		}
		for i := range 2 {
			harness.Check(t, "keys on node "+c.Node(i).Name()+" after Close", len(harness.LocksOn(c.Node(i))), 0)
		}
		c.Node(2).Resume()
	})
}

// A silent minority costs Close no node timeout, whatever had been asked of it.
func TestCloseDoesNotWaitForASilentMinority(t *testing.T) {
	for _, tc := range []struct {
		name string
		warm bool
		act  func(t *testing.T, c *redlocktest.Cluster, l *redlock.Locker)
		most time.Duration
	}{
		{"silent since the acquire, which was long ago", true, func(t *testing.T, c *redlocktest.Cluster, l *redlock.Locker) {
			c.Node(2).Hang()
			harness.Try(t, l, "jobs/42", time.Hour)
			time.Sleep(500 * time.Millisecond)
		}, time.Millisecond},
		{"silent since the acquire, which was just now", true, func(t *testing.T, c *redlocktest.Cluster, l *redlock.Locker) {
			c.Node(2).Hang()
			harness.Try(t, l, "jobs/42", time.Hour)
		}, 260 * time.Millisecond},
		{"silent since the first contact", false, func(t *testing.T, c *redlocktest.Cluster, l *redlock.Locker) {
			c.Node(2).Hang()
			harness.Try(t, l, "jobs/42", time.Hour)
		}, 260 * time.Millisecond},
		{"silent before the release", true, func(t *testing.T, c *redlocktest.Cluster, l *redlock.Locker) {
			k := harness.Try(t, l, "jobs/42", time.Hour)
			time.Sleep(time.Second)
			c.Node(2).Hang()
			harness.CheckIs(t, "Release", k.Release(t.Context()))
		}, 260 * time.Millisecond},
		{"silent before Close, with a lock held", true, func(t *testing.T, c *redlocktest.Cluster, l *redlock.Locker) {
			harness.Try(t, l, "jobs/42", time.Hour)
			time.Sleep(time.Second)
			c.Node(2).Hang()
		}, 260 * time.Millisecond},
		{"silent when its subscription is made", true, func(t *testing.T, c *redlocktest.Cluster, l *redlock.Locker) {
			harness.Try(t, l, "jobs/42", time.Hour)
			c.Node(2).Hang()
			ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
			defer cancel()
			_, err := l.Acquire(ctx, "jobs/42", time.Hour)
			harness.CheckIs(t, "Acquire of a lock that is held", err, context.DeadlineExceeded)
		}, 260 * time.Millisecond},
		{"silent for so long that it is out of use", true, func(t *testing.T, c *redlocktest.Cluster, l *redlock.Locker) {
			c.Node(2).Hang()
			harness.Try(t, l, "jobs/42", time.Hour)
			time.Sleep(3 * time.Second)
		}, time.Millisecond},
	} {
		runStaged(t, tc.name, 3, func(t *testing.T, c *redlocktest.Cluster) {
			l := lockerOn(t, redlock.Options{}, c.Clients())
			if tc.warm {
				warmUp(t, c, l)
			}
			tc.act(t, c, l)
			if d := took(func() { harness.CheckIs(t, "Close", l.Close()) }); d > tc.most {
				t.Errorf("time of Close: got %v, want at most %v", d, tc.most)
			}
			for i := range 2 {
				harness.Check(t, "keys on node "+c.Node(i).Name()+" after Close", len(harness.LocksOn(c.Node(i))), 0)
			}
			c.Node(2).Resume()
		})
	}
}

// A node that is slow but answers gets its release: it waits for the node's answer to
// the acquire, and Close waits for both.
func TestCloseWaitsForASlowNode(t *testing.T) {
	for _, tc := range []struct {
		name     string
		warm     bool
		way      time.Duration // each way
		released bool          // before Close
	}{
		{"slow all the time", true, 40 * time.Millisecond, true},
		{"slow all the time, and Close releases", true, 40 * time.Millisecond, false},
		{"very far", true, 200 * time.Millisecond, false},
		{"never met before", false, 25 * time.Millisecond, true},
	} {
		runStaged(t, tc.name, 3, func(t *testing.T, c *redlocktest.Cluster) {
			c.Node(2).Delay(tc.way, tc.way)
			l := lockerOn(t, redlock.Options{}, c.Clients())
			if tc.warm {
				warmUp(t, c, l)
			}
			k := harness.Try(t, l, "jobs/42", time.Hour)
			if tc.released {
				harness.CheckIs(t, "Release", k.Release(t.Context()))
			}
			harness.CheckIs(t, "Close", l.Close())
			time.Sleep(time.Second) // what is under way arrives
			for i := range 3 {
				harness.Check(t, "keys on node "+c.Node(i).Name()+" after Close", len(harness.LocksOn(c.Node(i))), 0)
			}
		})
	}
	runStaged(t, "slow of a sudden", 3, func(t *testing.T, c *redlocktest.Cluster) {
		l := warmLocker(t, c, redlock.Options{})
		c.Node(2).Delay(40*time.Millisecond, 40*time.Millisecond)
		harness.CheckIs(t, "Release", harness.Try(t, l, "jobs/42", time.Hour).Release(t.Context()))
		harness.CheckIs(t, "Close", l.Close())
		time.Sleep(time.Second)
		harness.Check(t, "keys on the slow node after Close", len(harness.LocksOn(c.Node(2))), 0)
	})
}

// Whatever the instant at which Close comes, the attempt has an owner: its caller
// got an error and it is undone, or a lock and Close releases it.
//
// Attack 97.
func TestCloseRacingWithAWinNeverLeavesALockWithoutAnOwner(t *testing.T) {
	locks, errs := 0, 0
	for step := range 60 {
		staged(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
			l := lockerOn(t, redlock.Options{}, c.Clients())
			k0 := harness.Try(t, l, "warm", time.Minute)
			k0.Release(t.Context())
			time.Sleep(50 * time.Millisecond)
			var wg sync.WaitGroup
			var k *redlock.Lock
			var err error
			wg.Go(func() { k, err = l.TryAcquire(t.Context(), "jobs/42", time.Hour) })
			time.Sleep(time.Duration(step) * 5 * time.Microsecond)
			harness.CheckIs(t, "Close", l.Close())
			wg.Wait()
			switch {
			case (k == nil) == (err == nil):
				t.Errorf("TryAcquire beside Close after %d µs: got lock %v and error %v, want one of them", 5*step, k, err)
			case err != nil:
				errs++
				harness.CheckIs(t, "TryAcquire beside Close", err, redlock.ErrClosed)
			default:
				locks++
				harness.Check(t, "Valid after Close", k.Valid(), false)
			}
			time.Sleep(time.Second)
			for i := range c.Len() {
				harness.Check(t, fmt.Sprintf("keys on node %s after a Close %d µs after the call", c.Node(i).Name(), 5*step), len(harness.LocksOn(c.Node(i))), 0)
			}
		})
	}
	if locks == 0 || errs == 0 {
		t.Errorf("outcomes: got %d locks and %d errors, want some of both", locks, errs)
	}
}

// Attack 16.
func TestCloseRacingWithAContextThatEndsAtTheWin(t *testing.T) {
	for step := range 40 {
		staged(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
			l := lockerOn(t, redlock.Options{}, c.Clients())
			harness.Try(t, l, "warm", time.Minute).Release(t.Context())
			time.Sleep(50 * time.Millisecond)
			ctx, cancel := context.WithTimeout(t.Context(), 120*time.Microsecond+time.Duration(step)*3*time.Microsecond)
			defer cancel()
			k, err := l.TryAcquire(ctx, "jobs/42", time.Hour)
			if (k == nil) == (err == nil) {
				t.Errorf("TryAcquire whose ctx ends at the quorum: got lock %v and error %v, want one of them", k, err)
			}
			if k != nil {
				harness.CheckIs(t, "Release", k.Release(t.Context()))
			}
			harness.CheckClean(t, c, l)
		})
	}
}

func TestClientsOfOpenAreClosedAndThoseOfNewAreNot(t *testing.T) {
	staged(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		clients := c.Clients()
		l := lockerOn(t, redlock.Options{}, clients)
		warmUp(t, c, l)
		before := c.Connections()
		harness.CheckIs(t, "Close", l.Close())
		harness.Check(t, "connections of clients given to New, after Close", c.Connections(), before)
		for _, client := range clients {
			harness.CheckIs(t, "SET by a client given to New", client.Set(t.Context(), "x", "y", time.Minute).Err())
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
	_, err = l.TryAcquire(t.Context(), "jobs/42", time.Minute)
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
	staged(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		const pause = 5 * time.Millisecond
		stand := false
		l := warmLocker(t, c, redlock.Options{Trace: redlock.Trace{Round: func(_ context.Context, r redlock.Round) {
			if stand && r.Op == redlock.OpAcquire {
				time.Sleep(pause) // the attempt has failed, and is not undone yet
			}
		}}})
		for i := range 2 {
			c.Node(i).Set("jobs/42", "foreign", time.Hour)
		}
		stand = true
		done := harness.Background(func() error { _, err := l.TryAcquire(t.Context(), "jobs/42", time.Hour); return err })
		time.Sleep(time.Millisecond)
		harness.Check(t, "keys of ours on the third node", len(harness.LocksOn(c.Node(2))), 1)
		harness.CheckIs(t, "Close", l.Close())
		harness.Check(t, "keys of ours on the third node after Close", len(harness.LocksOn(c.Node(2))), 0)
		harness.CheckIs(t, "TryAcquire", <-done, redlock.ErrHeld)
	})
}
