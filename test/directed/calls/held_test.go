package calls_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/harness"
)

func TestHeldYieldsTheLocksThatAreHeld(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		keys := func() (keys []string) {
			for k := range l.Held() {
				keys = append(keys, k.Key())
			}
			return keys
		}
		var locks []*redlock.Lock
		for i := range 5 {
			locks = append(locks, harness.Try(s, l, fmt.Sprint("key-", i), time.Duration(i+1)*time.Second))
		}
		s.Is("Release", locks[1].Release(s.Ctx), nil)
		s.Is("LeaveUntil", locks[3].LeaveUntil(s.Ctx, locks[3].Until()), nil)
		if got, want := keys(), []string{"key-0", "key-2", "key-4"}; !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		time.Sleep(time.Second) // the ttl of the first
		if got, want := keys(), []string{"key-2", "key-4"}; !slices.Equal(got, want) {
			t.Errorf("after the first ttl: got %v, want %v", got, want)
		}
		for k := range l.Held() { // one is enough: the other is released within the loop, and not yielded any more
			for other := range l.Held() {
				if other != k {
					s.Is("Release", other.Release(s.Ctx), nil)
				}
			}
		}
		if got, want := keys(), []string{"key-2"}; !slices.Equal(got, want) {
			t.Errorf("after a release within the loop: got %v, want %v", got, want)
		}
		s.Is("Close", l.Close(), nil)
		if got := keys(); len(got) > 0 {
			t.Errorf("after Close: got %v, want none", got)
		}
	})
}

func TestAcquiredIsWhenTheLockWasAcquired(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		s.Slow(20*time.Millisecond, 0, 1, 2)
		began := time.Now()
		k := s.Take(l, 10*time.Second)
		if got := k.Started(); !got.Equal(began) || !k.Until().Equal(began.Add(harness.ValidFor(10*time.Second, 1))) {
			t.Errorf("got %v, until %v, want the start of the attempt, %v, and the validity after it", got, k.Until(), began)
		}
		for range 3 {
			time.Sleep(3 * time.Second)
			s.Is("Extend", k.Extend(s.Ctx), nil)
		}
		if got := k.Started(); !got.Equal(began) {
			t.Errorf("after extensions: got %v, want %v", got, began)
		}
	})
}

func TestAdoptTakesALabel(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		k := s.Take(l, 10*time.Second)
		_, err := l.Adopt(s.Ctx, job, k.Value(), time.Second, redlock.WithWait(time.Second))
		s.Says(err, "WithWait", "Adopt does not wait")
		adopted, err := l.Adopt(s.Ctx, job, k.Value(), time.Second, redlock.WithLabel("taker"))
		s.Is("Adopt", err, nil)
		if got := adopted.Value().Label(); got != "taker" {
			t.Errorf("got the label %q, want the adopter's", got)
		}
	})
}

func TestCloseSaysWhichLocksItCouldNotRelease(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{NodeTimeout: 200 * time.Millisecond})
		free, taken := harness.Try(s, l, "free", 10*time.Second), harness.Try(s, l, "taken", 10*time.Second)
		s.Take(l, 10*time.Second)
		for i := range 3 {
			s.Node(i).Set("taken", otherValue, time.Minute)
		}
		s.Is("Release", free.Release(s.Ctx), nil)
		err := l.Close()
		s.Is("Close", err, redlock.ErrLost)
		var q *redlock.QuorumError
		if !errors.As(err, &q) || q.Round.Key != taken.Key() {
			t.Errorf("got %v, want the error of the release of %q", err, taken.Key())
		}
	})
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{NodeTimeout: 200 * time.Millisecond})
		k := s.Take(l, 10*time.Second)
		s.Node(0).Hang()
		s.Node(1).Hang()
		err := l.Close()
		s.Is("Close", err, redlock.ErrNoQuorum)
		s.Says(err, `release "jobs/42"`, "any remaining key expires by")
		s.Is("Close again", l.Close(), redlock.ErrClosed)
		s.Is("Release", k.Release(s.Ctx), redlock.ErrNoQuorum)
	})
}

// What a program keeps of a lock and of its calls, printed within a struct that does not export it.
func TestNothingKeptInAnUnexportedFieldShowsAValue(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		var seen harness.Observer
		l := s.Locker(redlock.Options{Trace: seen.Trace()})
		k := s.Take(l, time.Hour)
		err := harness.Second(l.TryAcquire(s.Ctx, harness.Job, time.Hour))
		status, inspected := l.Inspect(s.Ctx, harness.Job)
		s.Is("TryAcquire", err, redlock.ErrHeld)
		s.Is("Inspect", inspected, nil)
		held := s.Keep(k)
		time.Sleep(time.Millisecond) // package fmt takes no mutex: nothing may be in progress
		type kept struct{ v any }
		type job struct {
			lock   *redlock.Lock
			locks  redlock.Locks
			l      *redlock.Locker
			events []redlock.Event
			ends   []harness.EndedCall
			status redlock.Status
		}
		for _, v := range []any{k, redlock.Locks{k}, l, held, err, status, &status, status.Round, seen.Events(), seen.Ends("TryAcquire"),
			job{k, redlock.Locks{k}, l, seen.Events(), seen.Ends("TryAcquire"), status}} {
			for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
				for _, got := range []string{fmt.Sprintf(verb, kept{v}), fmt.Sprintf(verb, &kept{v}), fmt.Sprintf(verb, []kept{{v}})} {
					if strings.Contains(got, k.Value().Secret()) || strings.Contains(got, fmt.Sprintf("%x", k.Value().Secret())) {
						s.Errorf("%T by %s shows the value: %.300s", v, verb, got)
					}
				}
			}
		}
	})
}
