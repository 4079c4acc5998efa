package calls_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/harness"
	"github.com/seed-ce352c9b/redlock/internal/seam"
)

// Where no node is asked because a majority is down, the round is observed on the
// goroutine of who asks. A panic there does not keep the question from the other nodes,
// nor any other caller from its vote.
func TestAPanicInObserveDoesNotStopAQuestionHalfWay(t *testing.T) {
	for _, at := range []redlock.Op{redlock.OpRelease, redlock.OpExtend} {
		runStage(t, at.String(), 3, func(s *stage) {
			var p harness.Trap
			l := s.Locker(p.At(at))
			k := s.Take(l, heldLong)
			s.knownToHang(l, k)
			p.Armed.Store(true)
			if at == redlock.OpExtend {
				harness.Check(s, "Extend panics", harness.Panics(func() { k.Extend(s.Ctx) }), true)
			}
			harness.Check(s, "Release panics", harness.Panics(func() { k.Release(s.Ctx) }), at == redlock.OpRelease)
			time.Sleep(20 * time.Millisecond)
			if v, _ := s.Node(2).Get(job); v != "" {
				s.Errorf("the third node still holds %s", v)
			}
			s.Clean(l)
		})
	}
}

// knownToHang has two of three nodes hang, and the lock's Locker know it.
func (s *stage) knownToHang(l *redlock.Locker, k *redlock.Lock) {
	s.Hang(0, 1)
	k.Extend(s.Ctx)
	time.Sleep(2 * time.Second)
	if !seam.Peek(l).Nodes[0].Down || !seam.Peek(l).Nodes[1].Down {
		s.Fatal("the stopped nodes are not down")
	}
}

// Nor does it keep Close from releasing the other locks, and from ending what is ours.
func TestAPanicInObserveDoesNotStopClose(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		var p harness.Trap
		l := s.Locker(p.At(redlock.OpRelease))
		locks, err := l.AcquireAll(s.Ctx, []string{"a", "b", "c"}, heldLong)
		s.Is("AcquireAll", err, nil)
		s.knownToHang(l, locks[0])
		p.Armed.Store(true)
		harness.Check(s, "Close panics", harness.Panics(func() { l.Close() }), true)
		for _, k := range locks {
			if v, _ := s.Node(2).Get(k.Key()); v != "" {
				t.Errorf("the third node still holds %s after Close", k.Key())
			}
		}
		harness.Check(s, "locks that the Locker holds", seam.Peek(l).Held, 0)
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
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		k := s.Take(l, time.Hour)
		time.Sleep(3 * time.Second) // its registers have been given a life
		s.Record()
		ctx := s.Ctx
		var none context.Context
		fn := harness.NoWork
		for _, mistakes := range []struct {
			says  string
			calls map[string]func()
		}{
			{"nil ctx", map[string]func(){
				"TryAcquire":  func() { l.TryAcquire(none, "a", time.Minute) },
				"Acquire":     func() { l.Acquire(none, "a", time.Minute) },
				"Run":         func() { l.Run(none, "a", time.Minute, fn) },
				"Adopt":       func() { l.Adopt(none, "a", redlock.ValueOf("x"), time.Minute) },
				"Inspect":     func() { l.Inspect(none, "a") },
				"Watch":       func() { watchOnce(l, none, "a") },
				"Lead":        func() { l.Lead(none, "a", time.Minute, fn) },
				"AcquireAll":  func() { l.AcquireAll(none, []string{"a"}, time.Minute) },
				"AcquireSlot": func() { l.AcquireSlot(none, "a", 2, time.Minute) },
				"RunSlot":     func() { l.RunSlot(none, "a", 2, time.Minute, noWorkSlot) },
				"LeaveUntil":  func() { k.LeaveUntil(none, time.Time{}) },
				"Extend":      func() { k.Extend(none) },
				"KeepAlive":   func() { k.KeepAlive(none) },
				"Release":     func() { k.Release(none) },
			}},
			{"nil fn", map[string]func(){
				"Run":     func() { l.Run(ctx, "a", time.Minute, nil) },
				"RunAll":  func() { l.RunAll(ctx, []string{"a"}, time.Minute, nil) },
				"RunSlot": func() { l.RunSlot(ctx, "a", 2, time.Minute, nil) },
				"Lead":    func() { l.Lead(ctx, "a", time.Minute, nil) },
			}},
			{"New or Open", map[string]func(){
				"TryAcquire":        func() { new(redlock.Locker).TryAcquire(ctx, "a", time.Minute) },
				"Acquire":           func() { new(redlock.Locker).Acquire(ctx, "a", time.Minute) },
				"Run":               func() { new(redlock.Locker).Run(ctx, "a", time.Minute, fn) },
				"Adopt":             func() { new(redlock.Locker).Adopt(ctx, "a", redlock.ValueOf("x"), time.Minute) },
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
							s.Errorf("%s: got the panic %q, want one that begins with redlock: and says %q", name, got, mistakes.says)
						}
					}()
					call()
				}()
			}
		}
		time.Sleep(time.Second)
		for i := range 3 {
			harness.Check(s, "commands of these calls", len(s.Node(i).Log()), 0)
		}
		harness.Check(s, "Valid of the lock", k.Valid(), true)
	})
}
