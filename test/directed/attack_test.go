package directed_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/harness"
	"github.com/seed-ce352c9b/redlock/internal/seam"
	"github.com/seed-ce352c9b/redlock/redlocktest"
)

// One of three dies: the two others are a majority, and the lock must be kept.
func TestExtensionsFasterThanAFarNodeAnswersDoNotLoseTheLock(t *testing.T) {
	staged(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		l := warmLocker(t, c, redlock.Options{})
		k := harness.Try(t, l, "k", 10*time.Second)
		held, stop := k.KeepAlive(t.Context())
		defer stop()
		c.Node(2).Delay(100*time.Millisecond, 100*time.Millisecond)
		for end := time.Now().Add(3 * time.Second); time.Now().Before(end); {
			k.Extend(t.Context())
			time.Sleep(5 * time.Millisecond)
		}
		c.Node(1).Stop()
		time.Sleep(30 * time.Second)
		if held.Err() != nil {
			t.Errorf("lost with a majority up: %v", context.Cause(held))
		}
	})
}

type proxyError string

func (e proxyError) Error() string { return string(e) }
func (proxyError) RedisError()     {}

// A proxy that answers for a server whose reply it lost.
func TestAnErrorThatNoServerSaysMayHideAnExecutedCommand(t *testing.T) {
	staged(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		clients := c.Clients()
		on := false
		for _, cl := range clients[1:] {
			cl.AddHook(tap(func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
				err := next(ctx, cmds)
				if on && strings.EqualFold(cmds[0].Name(), "set") {
					for _, cmd := range cmds {
						cmd.SetErr(proxyError("ERR upstream failure"))
					}
					return proxyError("ERR upstream failure")
				}
				return err
			}))
		}
		l := lockerOn(t, redlock.Options{}, clients)
		warmUp(t, c, l)
		on = true
		_, err := l.TryAcquire(t.Context(), "k", time.Minute)
		t.Log(err)
		time.Sleep(10 * time.Second)
		for i := range 3 {
			if v, ok := c.Node(i).Get("k"); ok {
				t.Errorf("node %d: still %s; %v", i, v, heard(c.Node(i), "k"))
			}
		}
	})
}

func TestAPanicInObserveDoesNotStopTheRollback(t *testing.T) {
	staged(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		boom := false
		l := warmLocker(t, c, redlock.Options{Observe: func(redlock.Round) {
			if boom {
				boom = false
				panic("boom")
			}
		}})
		c.Node(1).Set("k", "x", time.Minute)
		c.Node(2).Set("k", "x", time.Minute)
		func() {
			defer func() { t.Log("recovered:", recover()) }()
			boom = true
			l.TryAcquire(t.Context(), "k", time.Minute)
		}()
		time.Sleep(2 * time.Second)
		if v, ok := c.Node(0).Get("k"); ok {
			t.Errorf("a panic in Observe left %s behind", v)
		}
	})
}

// panics reports whether f does.
func panics(f func()) (did bool) {
	defer func() { did = recover() != nil }()
	f()
	return
}

// A callback panics on the goroutine of a caller that recovers, as a server's handler does.
// The caller has no lock then, so there is none; and the Locker goes on.
func TestAPanicInACallbackLeavesNoLock(t *testing.T) {
	const retry = redlock.Op(0)
	ctx := context.Background()
	for _, c := range []struct {
		name  string
		at    redlock.Op // the round whose Observe panics; retry: Options.Retry
		held  bool       // by another, whom the caller waits for
		ahead bool       // registers are ahead of our clock
		call  func(l *redlock.Locker)
	}{
		{"TryAcquire has won", redlock.OpAcquire, false, false, func(l *redlock.Locker) { l.TryAcquire(ctx, job, heldLong) }},
		{"TryAcquire has lost", redlock.OpAcquire, true, false, func(l *redlock.Locker) { l.TryAcquire(ctx, job, heldLong) }},
		{"Acquire has won", redlock.OpAcquire, false, false, func(l *redlock.Locker) { l.Acquire(ctx, job, heldLong) }},
		{"Acquire has lost", redlock.OpAcquire, true, false, func(l *redlock.Locker) { l.Acquire(ctx, job, heldLong) }},
		{"Run has won", redlock.OpAcquire, false, false, func(l *redlock.Locker) {
			l.Run(ctx, job, heldLong, func(context.Context, *redlock.Lock) error { return nil })
		}},
		{"Adopt has won", redlock.OpAdopt, true, false, func(l *redlock.Locker) { l.Adopt(ctx, job, otherValue, heldLong) }},
		{"the token is raised by TryAcquire", redlock.OpRaise, false, true, func(l *redlock.Locker) { l.TryAcquire(ctx, job, heldLong) }},
		{"the token is raised by Acquire", redlock.OpRaise, false, true, func(l *redlock.Locker) { l.Acquire(ctx, job, heldLong) }},
		{"Acquire looks", redlock.OpLook, true, false, func(l *redlock.Locker) { l.Acquire(ctx, job, heldLong) }},
		{"Acquire pauses", retry, true, false, func(l *redlock.Locker) { l.Acquire(ctx, job, heldLong) }},
	} {
		for _, fair := range []bool{false, true} {
			if fair && c.at == redlock.OpLook {
				continue // its waiters try, and do not look
			}
			onStage(t, 3, func(s *stage) {
				var armed atomic.Bool
				boom := func(op redlock.Op) {
					if op == c.at && armed.CompareAndSwap(true, false) {
						panic("the caller's own")
					}
				}
				l := s.Locker(redlock.Options{
					Fair:    fair,
					Observe: func(r redlock.Round) { boom(r.Op) },
					Retry:   func(int) time.Duration { boom(retry); return 10 * time.Millisecond },
				})
				if c.held {
					s.Foreign(time.Minute, s.All()...)
				}
				if c.ahead {
					for i := range 3 {
						s.Do(i, "ZADD", jobRegister, fmt.Sprint(time.Now().Add(time.Hour).UnixMicro()), "f")
					}
				}
				armed.Store(true)
				if !panics(func() { c.call(l) }) {
					t.Fatalf("%s, fair %v: no panic, want it to go on to the caller", c.name, fair)
				}
				time.Sleep(promptly)
				want := ""
				if c.held {
					want = otherValue
				}
				for i, v := range s.Values() {
					if v != want {
						t.Errorf("%s, fair %v: node %d has %q, want %q", c.name, fair, i, v, want)
					}
				}
				if n := seam.Peek(l).Held; n != 0 {
					t.Errorf("%s, fair %v: the Locker holds %d locks, want none", c.name, fair, n)
				}
				if n := len(s.queue(0)); fair && n != 0 {
					t.Errorf("%s, fair %v: %d stand in the queue, want none", c.name, fair, n)
				}
				for i := range 3 {
					s.Node(i).Evict(job)
				}
				next := s.waiter(l, heldLong)
				next.gets(c.name+", the next call", time.Now(), time.Second)
				s.Is("Release", next.lock.Release(s.Ctx), nil)
				s.Clean(l)
				began := time.Now()
				s.Is("Close", l.Close(), nil)
				if d := time.Since(began); d > promptly {
					t.Errorf("%s, fair %v: Close took %v, want it to wait for nobody", c.name, fair, d)
				}
			})
		}
	}
}

// Who stands behind a caller whose callback panics goes on at once.
func TestAPanicInACallbackDoesNotStopTheLine(t *testing.T) {
	for _, at := range []redlock.Op{redlock.OpAcquire, redlock.OpLook, redlock.Op(0)} {
		onStage(t, 3, func(s *stage) {
			var armed atomic.Bool
			boom := func(op redlock.Op) {
				if op == at && armed.CompareAndSwap(true, false) {
					panic("the caller's own")
				}
			}
			l := s.Locker(redlock.Options{
				Observe: func(r redlock.Round) { boom(r.Op) },
				Retry:   func(int) time.Duration { boom(0); return 10 * time.Millisecond },
			})
			k := s.Take(s.Locker(redlock.Options{}), heldLong)
			first := make(chan bool)
			go func() { first <- panics(func() { l.Acquire(s.Ctx, job, heldLong) }) }()
			time.Sleep(200 * time.Millisecond)
			second := s.waiter(l, heldLong)
			time.Sleep(200 * time.Millisecond)
			armed.Store(true)
			var released time.Time
			if at == redlock.OpAcquire { // the others happen while it is held
				released = s.quietly(k)
			}
			if !<-first {
				t.Errorf("%v: no panic, want it to go on to the caller", at)
			}
			if at != redlock.OpAcquire {
				released = s.quietly(k)
			}
			second.gets(fmt.Sprintf("behind a panic at %v", at), released, promptly)
			s.Is("Release", second.lock.Release(s.Ctx), nil)
			s.Clean(l)
		})
	}
}

// Where no node is asked because a majority is down, the round is observed on the
// goroutine of who asks. A panic there does not keep the question from the other nodes,
// nor any other caller from its vote.
func TestAPanicInObserveDoesNotStopAQuestionHalfWay(t *testing.T) {
	for _, at := range []redlock.Op{redlock.OpRelease, redlock.OpExtend} {
		onStage(t, 3, func(s *stage) {
			var armed atomic.Bool
			l := s.Locker(redlock.Options{NodeTimeout: 50 * time.Millisecond, Observe: func(r redlock.Round) {
				if r.Op == at && armed.CompareAndSwap(true, false) {
					panic("the caller's own")
				}
			}})
			k := s.Take(l, heldLong)
			for i := range 2 {
				s.Node(i).Hang()
			}
			k.Extend(s.Ctx)
			time.Sleep(100 * time.Millisecond) // they are known to be down from now on
			if !seam.Peek(l).Nodes[0].Down || !seam.Peek(l).Nodes[1].Down {
				t.Fatal("the stopped nodes are not down")
			}
			armed.Store(true)
			if at == redlock.OpExtend && !panics(func() { k.Extend(s.Ctx) }) {
				t.Error("Extend: no panic, want it to go on to the caller")
			}
			if did := panics(func() { k.Release(s.Ctx) }); did != (at == redlock.OpRelease) {
				t.Errorf("Release after a panic at %v: it panics: %v", at, did)
			}
			time.Sleep(promptly)
			if v, _ := s.Node(2).Get(job); v != "" {
				t.Errorf("the third node still holds %s after a panic at %v", v, at)
			}
			s.Clean(l)
		})
	}
}

// Nor does it keep Close from releasing the other locks, and from ending what is ours.
func TestAPanicInObserveDoesNotStopClose(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		var armed atomic.Bool
		l := s.Locker(redlock.Options{NodeTimeout: 50 * time.Millisecond, Observe: func(r redlock.Round) {
			if r.Op == redlock.OpRelease && armed.CompareAndSwap(true, false) {
				panic("the caller's own")
			}
		}})
		keys := []string{"a", "b", "c"}
		var k *redlock.Lock
		for _, key := range keys {
			var err error
			if k, err = l.TryAcquire(s.Ctx, key, heldLong); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 2 {
			s.Node(i).Hang()
		}
		k.Extend(s.Ctx)
		time.Sleep(100 * time.Millisecond)
		armed.Store(true)
		if !panics(func() { l.Close() }) {
			t.Error("Close: no panic, want it to go on to the caller")
		}
		for _, key := range keys {
			if v, _ := s.Node(2).Get(key); v != "" {
				t.Errorf("the third node still holds %s after Close", key)
			}
		}
		if n := seam.Peek(l).Held; n != 0 {
			t.Errorf("the Locker holds %d locks, want none", n)
		}
		s.Is("a second Close", l.Close(), redlock.ErrClosed)
	})
}

// TryAcquire that gives up in the pause after a tie does not say that ctx ended it.
func TestAContextThatEndsInThePauseAfterATieIsTold(t *testing.T) {
	staged(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		l := warmLocker(t, c, redlock.Options{})
		c.Node(0).Set("k", "x", time.Minute)
		c.Node(1).Set("k", "y", time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Millisecond)
		defer cancel()
		_, err := l.TryAcquire(ctx, "k", time.Minute)
		if ctx.Err() != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the context's error", err)
		}
	})
}
