package waiting_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/harness"
	"github.com/seed-ce352c9b/redlock/redlocktest"
)

// Callers that give up when the lock is free because of them. Those who wait elsewhere and were refused meanwhile are
// notified of that, though the caller's release or rollback notified nobody.

// listens returns a Locker that listens to the announcements of the stage's lock, which is free again.
func (s *stage) listens() *redlock.Locker {
	s.Helper()
	k := s.Take(s.Locker(redlock.Options{}), heldLong)
	l := s.Locker(redlock.Options{})
	w := s.settled(l, heldLong)
	s.Is("Release", k.Release(s.Ctx), nil)
	<-w.ended
	s.Is("Release", w.lock.Release(s.Ctx), nil)
	time.Sleep(time.Second)
	return l
}

// lucky returns a lock of l, and a waiter behind it that has not asked the nodes for anything yet.
func (s *stage) lucky(l *redlock.Locker) (*redlock.Lock, *waiting) {
	k := s.waiter(l, heldLong)
	time.Sleep(10 * time.Microsecond)
	next := s.waiter(l, heldLong)
	<-k.ended
	return k.lock, next
}

// givesUp ends the wait of w. If w had acquired the lock, it releases it. It returns that moment, or since.
func (s *stage) givesUp(w *waiting, since time.Time) time.Time {
	w.stop()
	<-w.ended
	if w.lock != nil {
		return s.quietly(w.lock)
	}
	return since
}

// A lock that could not be renewed is removed at Until, some time before its ttl ends. That is announced, as a release is.
func TestTheRemovalOfALostLockWakesWaiters(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		k := s.Take(s.Locker(redlock.Options{Grace: 5 * time.Second}), heldLong)
		held := s.Keep(k)
		for _, command := range []string{"evalsha", "eval"} {
			s.FailCommand(command, loading, 0, 1, 2)
		}
		s.Ended(held, heldLong)
		for _, command := range []string{"evalsha", "eval"} {
			s.FailCommand(command, "", 0, 1, 2)
		}
		w := s.settled(s.Locker(redlock.Options{}), heldLong)
		w.passes("the removal", k.Until(), promptly)
	})
}

// The attempt of an AcquireAll has a majority, and ctx ends while it raises the registers. Others were refused because of it.
func TestAnAcquireAllThatGivesUpWakesThoseThatItRefused(t *testing.T) {
	for _, opts := range [][]redlock.AcquireOption{nil, {redlock.WithWait(0)}} {
		onStage(t, 3, func(s *stage) {
			l, other := s.Locker(redlock.Options{}), s.listens()
			s.SetRegister(time.Now().Add(time.Hour).UnixMicro(), 0, 1, 2)
			s.Slow(20*time.Millisecond, 0, 1, 2)
			ctx, cancel := context.WithTimeout(s.Ctx, 38*time.Millisecond)
			defer cancel()
			failed := harness.Background(func() error {
				return harness.Second(l.AcquireAll(ctx, []string{job}, heldLong, opts...))
			})
			time.Sleep(5 * time.Millisecond)
			w := s.waiter(other, heldLong)
			s.Is("AcquireAll", <-failed, context.DeadlineExceeded)
			w.passes("the rollback", time.Now(), 100*time.Millisecond)
		})
	}
}

// An attempt has a majority, and its raise fails. The caller gives up in the pause before it would have tried again.
func TestACallerThatGivesUpInAPauseWakesThoseThatItRefused(t *testing.T) {
	for _, all := range []bool{false, true} {
		onStage(t, 3, func(s *stage) {
			l, other := s.Locker(redlock.Options{}), s.listens()
			for i := range 3 {
				s.SetRegister(time.Now().Add(time.Hour).UnixMicro(), i)
				s.On(i, "raise", func(n int, _ []string) {
					s.SetRegister(time.Now().Add(time.Duration(n+1)*time.Hour).UnixMicro(), i)
				})
			}
			s.Slow(20*time.Millisecond, 0, 1, 2)
			ctx, cancel := context.WithTimeout(s.Ctx, 65*time.Millisecond) // an attempt with two raises takes 60 ms
			defer cancel()
			failed := harness.Background(func() error {
				if all {
					return harness.Second(l.AcquireAll(ctx, []string{job}, heldLong))
				}
				return harness.Second(l.Acquire(ctx, job, heldLong))
			})
			time.Sleep(5 * time.Millisecond)
			w := s.waiter(other, heldLong)
			s.Is("the call", <-failed, context.DeadlineExceeded)
			s.Each(func(n *redlocktest.Node) { n.OnCommand(nil) })
			w.passes("the rollback", time.Now(), 200*time.Millisecond)
		})
	}
}

// givesUpAfter hands a lock to a waiter that has no entry in the nodes' queues yet, in vain because of what hinders it, and the
// waiter gives up after a while. Another Locker's has the lock within limit.
func givesUpAfter(t *testing.T, nodes int, after, limit time.Duration, hinder, mend func(s *stage)) {
	t.Helper()
	onStage(t, nodes, func(s *stage) {
		k, next := s.lucky(s.Locker(redlock.Options{}))
		other := s.waiter(s.Locker(redlock.Options{}), heldLong)
		time.Sleep(3 * time.Millisecond)
		hinder(s)
		released := s.quietly(k)
		time.Sleep(after)
		mend(s)
		other.passes(fmt.Sprint("given up after ", after), s.givesUp(next, released), limit)
	})
}

// The attempt that was handed over has no majority, and nobody else has one.
func TestAHandOverInVainGoesToOthersIfTheWaiterGivesUp(t *testing.T) {
	refuse := func(err string) func(s *stage) {
		return func(s *stage) { s.Each(func(n *redlocktest.Node) { n.FailCommand("set", err) }, 0, 1) }
	}
	for after := time.Duration(0); after < 4*oneTrip; after += oneTrip / 4 {
		givesUpAfter(t, 3, after, promptly+retryPause, refuse(loading), refuse("")) // it may have asked before the nodes were mended
	}
}

// The attempt that was handed over overtakes the release, and finds the lock held by that one's value. The waiter gives up
// before the release is executed.
func TestAHandOverThatOvertakesGoesToOthersIfTheWaiterGivesUp(t *testing.T) {
	for _, nodes := range []int{1, 3} {
		for after := oneTrip / 2; after < 4*oneTrip; after += oneTrip / 2 {
			givesUpAfter(t, nodes, after, promptly, func(s *stage) {
				for i := range nodes {
					s.Do(i, "SCRIPT", "FLUSH") // so that the release is sent twice
					s.On(i, "release", func(n int, _ []string) {
						if n == 2 {
							time.Sleep(5 * time.Millisecond)
						}
					})
				}
			}, func(*stage) {})
		}
	}
}

// A Locker that has had all its turns leaves the lock to others for a while, and does not ask when they give up. After that,
// it does. With several nodes it asks in any case, since a minority tells it first. An operator deletes the lock here, which
// nothing announces: the release of another Locker's lock would be announced as such, and heard in any case.
func TestALockerThatHadAllItsTurnsHearsOfThoseWhoGiveUp(t *testing.T) {
	onStage(t, 1, func(s *stage) {
		const turns = 16
		l, m := s.Locker(redlock.Options{}), s.Locker(redlock.Options{})
		k := s.Take(l, heldLong)
		var queue []*waiting
		for range turns + 1 {
			queue = append(queue, s.waiter(l, heldLong))
			time.Sleep(time.Millisecond)
		}
		first, second := s.settled(m, heldLong), s.settled(m, heldLong)
		for i := range turns {
			s.Is("Release", k.Release(s.Ctx), nil)
			<-queue[i].ended
			k = queue[i].lock
			time.Sleep(promptly)
		}
		first.gets("after all turns", s.quietly(k), promptly)
		time.Sleep(time.Second)
		s.Evict()
		last := queue[turns]
		last.waits("while nobody says that the lock is free")
		gaveUp := time.Now()
		second.stop()
		last.passes("given up", gaveUp, promptly)
	})
}

// The lock is handed on while a majority of the nodes hangs. The waiter gives up, and then the nodes execute the release, which
// is owed to them.
func TestAHandOverThatIsOwedGoesToOthersIfTheWaiterGivesUp(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		k := s.Take(l, heldLong)
		other := s.settled(s.Locker(redlock.Options{}), heldLong)
		next := s.settled(l, heldLong)
		s.Node(1).Hang()
		s.Node(2).Hang()
		s.quietly(k)
		time.Sleep(1500 * time.Millisecond)
		next.stop()
		<-next.ended
		time.Sleep(500 * time.Millisecond)
		s.Node(1).Resume()
		s.Node(2).Resume()
		other.passes("the owed release", time.Now(), 100*time.Millisecond)
	})
	onStage(t, 3, func(s *stage) { // the same with nodes that refuse: nothing of the attempt is left, whose end would be announced
		l := s.Locker(redlock.Options{})
		k := s.Take(l, heldLong)
		other := s.settled(s.Locker(redlock.Options{}), heldLong)
		next := s.settled(l, heldLong)
		refuse := func(err string) { s.Each(func(n *redlocktest.Node) { n.Fail(err) }, 1, 2) }
		refuse(loading)
		s.quietly(k)
		time.Sleep(oneTrip)
		next.stop()
		<-next.ended
		time.Sleep(time.Second)
		refuse("")
		other.passes("the owed release", time.Now(), 2*time.Second) // it is sent again after half a second, a second, two
	})
}
