package waiting_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/harness"
	"github.com/seed-ce352c9b/redlock/internal/seam"
)

// A callback panics on the goroutine of a caller that recovers, as a server's handler does.
// The caller has no lock then, so there is none; and the Locker goes on.
func TestAPanicInACallbackLeavesNoLock(t *testing.T) {
	ctx := context.Background()
	tries := func(l *redlock.Locker) { l.TryAcquire(ctx, job, heldLong) }
	waits := func(l *redlock.Locker) { l.Acquire(ctx, job, heldLong) }
	for _, c := range []struct {
		name  string
		at    redlock.Op // the round whose callback panics; 0: Options.Retry
		held  []int      // by another, for whom the caller waits
		ahead bool       // registers are ahead of our clock
		call  func(l *redlock.Locker)
	}{
		{"TryAcquire has won", redlock.OpAcquire, nil, false, tries},
		{"TryAcquire has lost", redlock.OpAcquire, []int{0, 1, 2}, false, tries},
		{"TryAcquire has lost, and has to roll back", redlock.OpAcquire, []int{1, 2}, false, tries},
		{"Acquire has won", redlock.OpAcquire, nil, false, waits},
		{"Acquire has lost", redlock.OpAcquire, []int{0, 1, 2}, false, waits},
		{"Run has won", redlock.OpAcquire, nil, false, func(l *redlock.Locker) { l.Run(ctx, job, heldLong, harness.NoWork) }},
		{"Adopt has won", redlock.OpAdopt, []int{0, 1, 2}, false, func(l *redlock.Locker) { l.Adopt(ctx, job, redlock.ValueOf(otherValue), heldLong) }},
		{"the token is raised by TryAcquire", redlock.OpRaise, nil, true, tries},
		{"the token is raised by Acquire", redlock.OpRaise, nil, true, waits},
		{"Acquire looks", redlock.OpLook, []int{0, 1, 2}, false, waits},
		{"Acquire pauses", 0, []int{0, 1, 2}, false, waits},
	} {
		t.Run(c.name, func(t *testing.T) {
			fairly(t, 3, func(s *stage, fair bool) {
				if fair && c.at == redlock.OpLook {
					return // its waiters try, and do not look
				}
				var p harness.Trap
				opt := p.At(c.at)
				opt.Fair = fair
				l := s.Locker(opt)
				s.Foreign(time.Minute, c.held...)
				if c.ahead {
					s.SetRegister(time.Now().Add(time.Hour).UnixMicro(), s.All()...)
				}
				p.Armed.Store(true)
				harness.Check(s, "the panic goes on to the caller", harness.Panics(func() { c.call(l) }), true)
				time.Sleep(promptly)
				s.Carry("after the panic", redlock.ValueOf(otherValue), c.held...)
				s.Carry("after the panic", redlock.Value{}, slices.DeleteFunc(s.All(), func(i int) bool { return slices.Contains(c.held, i) })...)
				harness.Check(s, "locks that the Locker holds", seam.Peek(l).Held, 0)
				if fair {
					harness.Check(s, "waiters in the queue", len(s.queue(0)), 0)
				}
				s.EvictKey(job, s.All()...)
				next := s.waiter(l, heldLong)
				next.gets("the next call", time.Now(), time.Second)
				s.Is("Release", next.lock.Release(s.Ctx), nil)
				s.Clean(l)
				if d := harness.Took(func() { s.Is("Close", l.Close(), nil) }); d > promptly {
					s.Errorf("Close took %v, want it to wait for nobody", d)
				}
			})
		})
	}
}

// Who stands behind a caller whose callback panics goes on at once.
func TestAPanicInACallbackDoesNotStopTheLine(t *testing.T) {
	for _, at := range []redlock.Op{redlock.OpAcquire, redlock.OpLook, 0} {
		runStage(t, at.String(), 3, func(s *stage) {
			var p harness.Trap
			l := s.Locker(p.At(at))
			k := s.Take(s.Locker(redlock.Options{}), heldLong)
			first := make(chan bool)
			go func() { first <- harness.Panics(func() { l.Acquire(s.Ctx, job, heldLong) }) }()
			time.Sleep(200 * time.Millisecond)
			second := s.waiter(l, heldLong)
			time.Sleep(200 * time.Millisecond)
			p.Armed.Store(true)
			var released time.Time
			if at == redlock.OpAcquire { // the others happen while it is held
				released = s.quietly(k)
			}
			harness.Check(s, "the panic goes on to the caller", <-first, true)
			if at != redlock.OpAcquire {
				released = s.quietly(k)
			}
			second.gets("behind the panic", released, promptly)
			s.Is("Release", second.lock.Release(s.Ctx), nil)
			s.Clean(l)
		})
	}
}
