package nodes_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/harness"
	"github.com/seed-ce352c9b/redlock/redlocktest"
)

// looked returns of how many releases a node has looked at the register of the stage's lock, and how many there were.
func (s *stage) looked(i int) (looked, releases int) {
	for _, c := range s.Told(i, "release", "rollback") {
		releases++
		if c.Args[2] == "3" {
			looked++
		}
	}
	return looked, releases
}

// A release need not look at a register that one before it has seen, until the renewal a minute later. Names that are used once are
// not remembered, so it is the third release that does not look.
func TestAReleaseLooksAtARegisterOnceAMinute(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		use := func(n int, ttl time.Duration, want int) {
			t.Helper()
			before, _ := s.looked(0)
			for range n {
				s.Is("Release", s.Take(l, ttl).Release(s.Ctx), nil)
				time.Sleep(10 * time.Millisecond) // all nodes have replied
			}
			if after, _ := s.looked(0); after-before != want {
				t.Errorf("of %d releases %d looked at the register, want %d", n, after-before, want)
			}
		}
		use(10, time.Second, 2)
		time.Sleep(time.Minute)
		use(10, time.Second, 0)
		harness.Check(s, "renewals", len(s.Told(0, "touch")), 1)
		// Whoever has a ttl that makes its register live longer looks.
		use(2, 2*time.Hour, 2)
		time.Sleep(3 * time.Minute)
		use(10, time.Second, 1) // it was forgotten
		s.Is("another Locker's Release", s.Take(s.Locker(redlock.Options{}), time.Second).Release(s.Ctx), nil)
		s.Clean(l)
	})
}

// A node that has made the register anew since a release saw it, because it was flushed, has one without a ttl, for a minute at
// most; or until Close.
func TestARegisterThatIsMadeAnewIsGivenALifeWithinAMinute(t *testing.T) {
	for _, closes := range []bool{false, true} {
		onStage(t, 3, func(s *stage) {
			l := s.Locker(redlock.Options{})
			use := func() {
				s.Is("Release", s.Take(l, time.Second).Release(s.Ctx), nil)
				time.Sleep(10 * time.Millisecond)
			}
			for range 3 {
				use()
			}
			s.Each(func(n *redlocktest.Node) { n.FlushAll() })
			use()
			if ttl := s.Node(0).TTL(jobRegister); ttl > 0 || s.Register(0) == 0 {
				t.Errorf("the register %d lives for %v; want one without a ttl, or this test shows nothing", s.Register(0), ttl)
			}
			if closes {
				s.Is("Close", l.Close(), nil)
			} else {
				time.Sleep(time.Minute)
			}
			s.registersExpire()
		})
	}
}

// The renewal comes to a node after the acquire of a lock whose release has left the register to it, however late that acquire is.
func TestARenewalFollowsTheReleaseThatLeftTheRegisterToIt(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		use := func() {
			s.Is("Release", s.Take(l, 10*time.Second).Release(s.Ctx), nil)
			time.Sleep(10 * time.Millisecond)
		}
		use()
		renewed := time.Now().Add(time.Minute) // remembered from the second release on
		use()
		use()
		time.Sleep(time.Until(renewed) - 100*time.Millisecond)
		s.Node(0).FlushAll()
		harness.HeldUp(s.Node(0), "acquire", job, 1, 300*time.Millisecond)
		use()
		time.Sleep(time.Second)
		if s.Register(0) == 0 {
			t.Error("the node has no register: this test shows nothing")
		}
		s.registersExpire()
	})
}

// What shows that the register is there is the lock that a release deletes, and nothing else: not a release that finds another's
// value or none, nor an attempt that has failed.
func TestAReleaseThatFindsNothingHasSeenNoRegister(t *testing.T) {
	for name, spoil := range map[string]func(s *stage, l *redlock.Locker){
		"the lock is gone": func(s *stage, l *redlock.Locker) {
			k := s.Take(l, time.Minute)
			time.Sleep(10 * time.Millisecond)
			s.Each(func(n *redlocktest.Node) { n.FlushAll() })
			s.Is("Release", k.Release(s.Ctx), nil)
		},
		"another has it": func(s *stage, l *redlock.Locker) {
			k := s.Take(l, time.Minute)
			time.Sleep(10 * time.Millisecond)
			s.Each(func(n *redlocktest.Node) { n.FlushAll() })
			s.Foreign(time.Second, s.All()...)
			s.Is("Release", k.Release(s.Ctx), redlock.ErrLost)
			time.Sleep(2 * time.Second)
		},
		"an attempt has failed": func(s *stage, l *redlock.Locker) {
			s.Foreign(time.Second, s.All()...)
			s.Is("TryAcquire", harness.Second(l.TryAcquire(s.Ctx, job, time.Second)), redlock.ErrHeld)
			time.Sleep(2 * time.Second)
			s.Each(func(n *redlocktest.Node) { n.FlushAll() })
		},
	} {
		runStage(t, name, 3, func(s *stage) {
			l := s.Locker(redlock.Options{})
			s.Is("Release", s.Take(l, time.Second).Release(s.Ctx), nil) // the name is remembered from the next one on
			time.Sleep(10 * time.Millisecond)
			spoil(s, l)
			time.Sleep(10 * time.Millisecond)
			before := [3]int{}
			for i := range 3 {
				before[i], _ = s.looked(i)
			}
			s.Is("Release", s.Take(l, time.Second).Release(s.Ctx), nil)
			time.Sleep(10 * time.Millisecond)
			s.registersExpire()
			for i := range 3 {
				if after, n := s.looked(i); after != before[i]+1 {
					t.Errorf("node %d looked at the register in %s of %d releases, want in the last one", i, fmt.Sprint(after, " after ", before[i]), n)
				}
			}
		})
	}
}
