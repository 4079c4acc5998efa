package nodes_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/harness"
)

// Situations in which other lock libraries were measured to fail their users, or
// reported to, and what this one does in them.

// cycle acquires, extends and releases, and tells how long each took.
func (s *stage) cycle(l *redlock.Locker, ttl time.Duration) (took [3]time.Duration, left time.Duration) {
	s.Helper()
	began := time.Now()
	k := s.Acquire(l, ttl)
	took[0], left = time.Since(began), time.Until(k.Until())
	began = time.Now()
	s.Is("Extend", k.Extend(s.Ctx), nil)
	took[1] = time.Since(began)
	began = time.Now()
	s.Is("Release", k.Release(s.Ctx), nil)
	took[2] = time.Since(began)
	return took, left
}

// redsync: 5 s each, 2.9 s of a validity of 8 s left.
func TestPeers_OneOfFiveNeverAnswers(t *testing.T) {
	asIfAllWereUp(t, func(s *stage) { s.Node(1).Hang() })
	asIfAllWereUp(t, func(s *stage) { s.Node(1).Refuse(true) })
	asIfAllWereUp(t, func(s *stage) { s.Node(1).Partition() })
}

// Attack 32.
func TestPeers_TwoOfFiveAreSlowerThanTheTTL(t *testing.T) {
	asIfAllWereUp(t, func(s *stage) { s.Slow(20*time.Second, 3, 4) })
}

func asIfAllWereUp(t *testing.T, fault func(s *stage)) {
	for _, warm := range []bool{true, false} {
		runStage(t, fmt.Sprintf("known before: %v", warm), 5, func(s *stage) {
			l := s.Cold(redlock.Options{}, nil, s.Cluster.Nodes())
			if warm {
				l.Inspect(s.Ctx, "warm")
			}
			fault(s)
			for range 5 {
				took, left := s.cycle(l, 8*time.Second)
				for i, d := range took {
					if longest := 5 * oneTrip; d > longest { // with dials
						s.Errorf("%s took %v, want at most %v", []string{"Acquire", "Extend", "Release"}[i], d, longest)
					}
				}
				if left < 7900*time.Millisecond {
					s.Errorf("validity left: got %v, want 7.9s", left)
				}
				time.Sleep(time.Second)
			}
			for i := range 5 {
				s.Mend(i)
			}
			time.Sleep(30 * time.Second) // what is on its way keeps its time
			s.Carry("afterwards", redlock.Value{}, s.All()...)
		})
	}
}

// redsync: "already taken", by itself. rueidislock: waits for its own orphan.
//
// Attack 20.
func TestPeers_AcquireReplyLost(t *testing.T) {
	for name, lose := range map[string]func(n *stage, i int){
		"the connection is reset": func(s *stage, i int) { s.Node(i).DropReplies(2) },
		"nothing is heard":        func(s *stage, i int) { s.Node(i).LoseReplies(2) },
	} {
		for lost := 1; lost <= 3; lost++ {
			runStage(t, fmt.Sprintf("%s, on %d of 3", name, lost), 3, func(s *stage) {
				var seen harness.Observer
				l := s.Locker(redlock.Options{Trace: seen.Trace()})
				for i := range lost {
					s.Once(i, "acquire", func() { lose(s, i) })
				}
				k := s.Acquire(l, 5*time.Second)
				if lost == 1 && seen.Attempts() != 1 {
					s.Errorf("acquired with attempt %d, want the first: two said yes", seen.Attempts())
				}
				for _, r := range seen.Rounds() {
					if h := r.Value(); !h.IsZero() {
						s.Errorf("attempt %d met %s, one of its own", r.Attempt, h)
					}
				}
				s.Is("Release", k.Release(s.Ctx), nil)
				s.Clean(l)
			})
		}
	}
}

// Redisson, redsync: long-held locks erode to a bare majority, and the next client
// may take what is left.
//
// Attacks 56, 79.
func TestPeers_NodesRestartWithoutTheirDataDuringALongHold(t *testing.T) {
	onStage(t, 5, func(s *stage) {
		a, b := s.Locker(redlock.Options{}), s.Locker(redlock.Options{})
		k := s.Take(a, 9*time.Second)
		held := s.Keep(k)
		ctx, cancel := context.WithCancel(s.Ctx)
		contender := harness.Background(func() error { return harness.Second(b.Acquire(ctx, job, time.Second)) })
		for i := range 5 {
			time.Sleep(10 * time.Second)
			s.Node(i).Restart(false)
		}
		time.Sleep(10 * time.Second)
		s.IsHeld("at the end", k, held)
		cancel()
		s.Is("the contender's Acquire", <-contender, context.Canceled)
		time.Sleep(4 * time.Second)
		s.Carry("back on all nodes", k.Value(), s.All()...)
		for i := range 5 {
			if got := s.Register(i); got < k.Fence() {
				t.Errorf("node %d: its register stands at %d, want at least %d", i, got, k.Fence())
			}
		}
		s.Is("Release", k.Release(s.Ctx), nil)
		s.Clean(a, b)
	})
}

// Everybody: counted as two.
//
// Attack 53.
func TestPeers_SameServerListedTwice(t *testing.T) {
	twice := func(s *stage) *redlock.Locker {
		one, two := s.Cluster.Clients(), s.Cluster.Clients()
		return s.Cold(redlock.Options{}, nil, harness.Nodes([]*redis.Client{one[0], one[1], two[0]}))
	}
	refused := func(s *stage, l *redlock.Locker) {
		k, err := l.TryAcquire(s.Ctx, job, 10*time.Second)
		if k != nil {
			s.Fatalf("got %v, want it refused", k)
		}
		s.Says(err, "one server", "list every master once") // and not only that there is no quorum
	}
	onStage(t, 3, func(s *stage) {
		l := twice(s)
		// The first call may find a majority of two servers before the third name has
		// said whose it is.
		if k, err := l.TryAcquire(s.Ctx, job, 10*time.Second); err == nil {
			k.Release(s.Ctx)
		}
		for range 3 {
			time.Sleep(time.Second)
			refused(s, l)
		}
		time.Sleep(3 * time.Second)
		s.Carry("afterwards", redlock.Value{}, s.All()...)
	})
	runStage(t, "and the third is down: it never makes a majority", 3, func(s *stage) {
		s.Node(1).Stop()
		refused(s, twice(s))
		time.Sleep(4 * time.Second)
		s.Carry("afterwards", redlock.Value{}, s.All()...)
	})
}

// node-redlock only.
func TestPeers_PerNodeVotesInTheError(t *testing.T) {
	onStage(t, 5, func(s *stage) {
		l := s.Locker(redlock.Options{})
		check := func(what string, err, want error, says ...string) {
			s.Is(what, err, want)
			s.Says(err, says...)
			round := s.RoundOf(err)
			if len(round.Votes) != 5 || round.Need != 3 {
				t.Errorf("%s: got %v, want five votes, of which three are needed", what, err)
			}
			for i, v := range round.Votes {
				if v.Node != s.Node(i).Addr() || !strings.Contains(err.Error(), v.String()) {
					t.Errorf("%s: vote %d: got %v, want that of %s, and in the text", what, i, v, s.Node(i).Addr())
				}
			}
		}
		k := s.Take(l, time.Minute)
		time.Sleep(oneTrip)
		_, err := l.TryAcquire(s.Ctx, job, time.Second)
		check("held", err, redlock.ErrHeld, "held by", "node-a:6379 ")
		s.Node(0).Stop()
		s.Node(1).Fail("READONLY You can't write against a read only replica.")
		s.Node(2).Hang()
		err = k.Extend(s.Ctx)
		check("Extend without a quorum", err, redlock.ErrNoQuorum, "READONLY", "timeout")
		s.Foreign(time.Minute, 3, 4)
		s.Node(2).Resume()
		time.Sleep(time.Second)
		s.Foreign(time.Minute, 2)
		err = k.Extend(s.Ctx)
		check("Extend of a lost lock", err, redlock.ErrLost, "node-d:6379 held")
	})
}
