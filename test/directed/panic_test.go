package directed_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/harness"
	"github.com/seed-ce352c9b/redlock/internal/seam"
	"github.com/seed-ce352c9b/redlock/redlocktest"
)

func TestAPanicInObserveDoesNotStopTheRollback(t *testing.T) {
	staged(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		boom := false
		l := warmLocker(t, c, redlock.Options{Trace: redlock.Trace{Round: func(_ context.Context, _ redlock.Round) {
			if boom {
				boom = false
				panic("boom")
			}
		}}})
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
			l.Run(ctx, job, heldLong, noWork)
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
					Fair:  fair,
					Trace: redlock.Trace{Round: func(_ context.Context, r redlock.Round) { boom(r.Op) }},
					Retry: func(int) time.Duration { boom(retry); return 10 * time.Millisecond },
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
				s.evictKey(job, 0, 1, 2)
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
				Trace: redlock.Trace{Round: func(_ context.Context, r redlock.Round) { boom(r.Op) }},
				Retry: func(int) time.Duration { boom(0); return 10 * time.Millisecond },
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
			l := s.Locker(redlock.Options{NodeTimeout: 50 * time.Millisecond, Trace: redlock.Trace{Round: func(_ context.Context, r redlock.Round) {
				if r.Op == at && armed.CompareAndSwap(true, false) {
					panic("the caller's own")
				}
			}}})
			k := s.Take(l, heldLong)
			s.hang(0, 1)
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
		l := s.Locker(redlock.Options{NodeTimeout: 50 * time.Millisecond, Trace: redlock.Trace{Round: func(_ context.Context, r redlock.Round) {
			if r.Op == redlock.OpRelease && armed.CompareAndSwap(true, false) {
				panic("the caller's own")
			}
		}}})
		keys := []string{"a", "b", "c"}
		var k *redlock.Lock
		for _, key := range keys {
			var err error
			if k, err = l.TryAcquire(s.Ctx, key, heldLong); err != nil {
				t.Fatal(err)
			}
		}
		s.hang(0, 1)
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

// watchOnce returns the first error of a Watch, or nil if it begins well.
func watchOnce(l *redlock.Locker, ctx context.Context, key string) error {
	for _, err := range l.Watch(ctx, key) {
		return err
	}
	return nil
}

// Each mistake of a program is one panic that says what is wrong, before anything is sent.
func TestMistakesOfTheProgramPanic(t *testing.T) {
	staged(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		l := warmLocker(t, c, redlock.Options{})
		k := harness.Try(t, l, "jobs/42", time.Hour)
		time.Sleep(3 * time.Second) // its registers have been given a life
		for i := range 3 {
			c.Node(i).Record(true)
		}
		ctx := t.Context()
		var none context.Context
		fn := noWork
		for _, mistakes := range []struct {
			says  string
			calls map[string]func()
		}{
			{"nil ctx", map[string]func(){
				"TryAcquire":  func() { l.TryAcquire(none, "a", time.Minute) },
				"Acquire":     func() { l.Acquire(none, "a", time.Minute) },
				"Run":         func() { l.Run(none, "a", time.Minute, fn) },
				"Adopt":       func() { l.Adopt(none, "a", "x", time.Minute) },
				"Inspect":     func() { l.Inspect(none, "a") },
				"Watch":       func() { watchOnce(l, none, "a") },
				"Lead":        func() { l.Lead(none, "a", time.Minute, fn) },
				"AcquireAll":  func() { l.AcquireAll(none, []string{"a"}, time.Minute) },
				"AcquireSlot": func() { l.AcquireSlot(none, "a", 2, time.Minute) },
				"LeaveUntil":  func() { k.LeaveUntil(none, time.Time{}) },
				"Extend":      func() { k.Extend(none) },
				"KeepAlive":   func() { k.KeepAlive(none) },
				"Release":     func() { k.Release(none) },
			}},
			{"nil fn", map[string]func(){
				"Run":    func() { l.Run(ctx, "a", time.Minute, nil) },
				"RunAll": func() { l.RunAll(ctx, []string{"a"}, time.Minute, nil) },
				"Lead":   func() { l.Lead(ctx, "a", time.Minute, nil) },
			}},
			{"New or Open", map[string]func(){
				"TryAcquire":        func() { new(redlock.Locker).TryAcquire(ctx, "a", time.Minute) },
				"Acquire":           func() { new(redlock.Locker).Acquire(ctx, "a", time.Minute) },
				"Run":               func() { new(redlock.Locker).Run(ctx, "a", time.Minute, fn) },
				"Adopt":             func() { new(redlock.Locker).Adopt(ctx, "a", "x", time.Minute) },
				"Inspect":           func() { new(redlock.Locker).Inspect(ctx, "a") },
				"Close":             func() { new(redlock.Locker).Close() },
				"TryAcquire of nil": func() { (*redlock.Locker)(nil).TryAcquire(ctx, "a", time.Minute) },
				"Close of nil":      func() { (*redlock.Locker)(nil).Close() },
				"Watch":             func() { watchOnce(new(redlock.Locker), ctx, "a") },
				"Watch of nil":      func() { watchOnce(nil, ctx, "a") },
				"Lead":              func() { new(redlock.Locker).Lead(ctx, "a", time.Minute, fn) },
				"AcquireAll":        func() { new(redlock.Locker).AcquireAll(ctx, []string{"a"}, time.Minute) },
				"AcquireSlot":       func() { new(redlock.Locker).AcquireSlot(ctx, "a", 2, time.Minute) },
				"Held":              func() { new(redlock.Locker).Held() },
			}},
			{"never acquired", map[string]func(){
				"Key":            func() { new(redlock.Lock).Key() },
				"Value":          func() { new(redlock.Lock).Value() },
				"Fence":          func() { new(redlock.Lock).Fence() },
				"Until":          func() { new(redlock.Lock).Until() },
				"Valid":          func() { new(redlock.Lock).Valid() },
				"Extend":         func() { new(redlock.Lock).Extend(ctx) },
				"KeepAlive":      func() { new(redlock.Lock).KeepAlive(ctx) },
				"Release":        func() { new(redlock.Lock).Release(ctx) },
				"LeaveUntil":     func() { new(redlock.Lock).LeaveUntil(ctx, time.Time{}) },
				"Release of nil": func() { (*redlock.Lock)(nil).Release(ctx) },
				"Valid of nil":   func() { (*redlock.Lock)(nil).Valid() },
			}},
		} {
			for name, call := range mistakes.calls {
				func() {
					defer func() {
						got, _ := recover().(string)
						if !strings.HasPrefix(got, "redlock: ") || !strings.Contains(got, mistakes.says) {
							t.Errorf("%s: got the panic %q, want one that begins with redlock: and says %q", name, got, mistakes.says)
						}
					}()
					call()
				}()
			}
		}
		time.Sleep(time.Second)
		for i := range 3 {
			harness.Check(t, "commands of these calls", len(c.Node(i).Log()), 0)
		}
		harness.Check(t, "Valid of the lock", k.Valid(), true)
	})
}
