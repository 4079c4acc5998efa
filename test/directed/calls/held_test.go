package calls_test

import (
	"errors"
	"fmt"
	"slices"
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
