package directed_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
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
	k, err := l.Acquire(s.Ctx, job, ttl)
	if err != nil {
		s.Fatal(err)
	}
	took[0], left = time.Since(began), time.Until(k.Until())
	began = time.Now()
	s.Is("Extend", k.Extend(s.Ctx), nil)
	took[1] = time.Since(began)
	began = time.Now()
	s.Is("Release", k.Release(s.Ctx), nil)
	took[2] = time.Since(began)
	return took, left
}

// redsync: TryLock 0.4 s, Unlock and Extend 1.7 s.
func TestPeers_OneOfFiveRefuses(t *testing.T) {
	asIfAllWereUp(t, func(s *stage) { s.Node(1).Refuse(true) })
}

// redsync: 5 s each, 2.9 s of a validity of 8 s left.
func TestPeers_OneOfFiveNeverAnswers(t *testing.T) {
	asIfAllWereUp(t, func(s *stage) { s.Node(1).Hang() })
}

func TestPeers_OneOfFiveIsCutOff(t *testing.T) {
	asIfAllWereUp(t, func(s *stage) { s.Node(1).Partition() })
}

// Attack 32.
func TestPeers_TwoOfFiveAreSlowerThanTheTTL(t *testing.T) {
	asIfAllWereUp(t, func(s *stage) { s.Slow(20*time.Second, 3, 4) })
}

func asIfAllWereUp(t *testing.T, fault func(s *stage)) {
	for _, warm := range []bool{true, false} {
		t.Run(fmt.Sprintf("known before: %v", warm), func(t *testing.T) {
			onStage(t, 5, func(s *stage) {
				l := s.Cold(redlock.Options{}, nil, s.Cluster.Nodes())
				if warm {
					l.Inspect(s.Ctx, "warm")
				}
				fault(s)
				for range 5 {
					took, left := s.cycle(l, 8*time.Second)
					for i, d := range took {
						if longest := 5 * oneTrip; d > longest { // with dials
							t.Errorf("%s took %v, want at most %v", []string{"Acquire", "Extend", "Release"}[i], d, longest)
						}
					}
					if left < 7900*time.Millisecond {
						t.Errorf("validity left: got %v, want 7.9s", left)
					}
					time.Sleep(time.Second)
				}
				for i := range 5 {
					s.Mend(i)
				}
				time.Sleep(30 * time.Second) // what is on its way keeps its time
				s.Carry("afterwards", "", s.All()...)
			})
		})
	}
}

// redsync: sends 64 commands to every node in 4.8 s and gives up.
func TestPeers_WaitingForAHeldLock(t *testing.T) {
	onStage(t, 5, func(s *stage) {
		a, b := s.Locker(redlock.Options{}), s.Locker(redlock.Options{})
		k := s.Take(a, time.Hour)
		for i := range 5 {
			s.Node(i).Record(true)
		}
		ctx, cancel := context.WithTimeout(s.Ctx, 4800*time.Millisecond)
		defer cancel()
		began := time.Now()
		_, err := b.Acquire(ctx, job, time.Second)
		if took := time.Since(began); took != 4800*time.Millisecond {
			t.Errorf("gave up after %v, want 4.8s, when its context ended", took)
		}
		s.Is("Acquire", err, context.DeadlineExceeded)
		s.Is("Acquire", err, redlock.ErrHeld)
		if got := len(s.Told(0, "acquire")); got > 40 {
			t.Errorf("attempts: got %d, want at most 40", got)
		}
		time.Sleep(time.Second)
		s.Carry("the holder's", k.Value(), s.All()...)
	})
}

// redsync, redislock: found at the next poll, 50 to 250 ms.
func TestPeers_ReleasedWhileOthersWait(t *testing.T) {
	onStage(t, 5, func(s *stage) {
		a, b := s.Locker(redlock.Options{}), s.Locker(redlock.Options{})
		k := s.Take(a, time.Hour)
		got := make(chan time.Time, 1)
		go func() {
			if _, err := b.Acquire(s.Ctx, job, time.Second); err != nil {
				t.Errorf("Acquire: got %v, want the lock", err)
			}
			got <- time.Now()
		}()
		time.Sleep(10 * time.Second)
		released := time.Now()
		s.Is("Release", k.Release(s.Ctx), nil)
		if late := (<-got).Sub(released); late > 250*time.Millisecond+2*oneTrip {
			t.Errorf("found %v after the release, want within a pause of 250ms", late)
		}
	})
}

// redsync: keys stay for the full ttl, and the error is "failed to acquire".
func TestPeers_ContextCancelledMidAttempt(t *testing.T) {
	onStage(t, 5, func(s *stage) {
		l := s.Locker(redlock.Options{})
		s.Slow(50*time.Millisecond, 2, 3, 4)
		ctx, cancel := context.WithTimeout(s.Ctx, 30*time.Millisecond)
		defer cancel()
		_, err := l.Acquire(ctx, job, time.Hour)
		s.Is("Acquire", err, context.DeadlineExceeded)
		s.Says(err, "node-a:6379 yes", "node-c:6379 pending", "3 of 5 votes needed")
		time.Sleep(200 * time.Millisecond)
		s.Carry("a moment later", "", s.All()...)
		s.Clean(l)
	})
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
			t.Run(fmt.Sprintf("%s, on %d of 3", name, lost), func(t *testing.T) {
				onStage(t, 3, func(s *stage) {
					var seen harness.Observer
					l := s.Locker(redlock.Options{Observe: seen.Observe})
					for i := range lost {
						s.Once(i, "acquire", func() { lose(s, i) })
					}
					k, err := l.Acquire(s.Ctx, job, 5*time.Second)
					if err != nil {
						t.Fatal(err)
					}
					if lost == 1 && seen.Attempts() != 1 {
						t.Errorf("acquired with attempt %d, want the first: two said yes", seen.Attempts())
					}
					for _, r := range seen.Rounds() {
						if h := r.Holder(); h != "" {
							t.Errorf("attempt %d met %s, one of its own", r.Attempt, h)
						}
					}
					s.Is("Release", k.Release(s.Ctx), nil)
					s.Clean(l)
				})
			})
		}
	}
}

// rueidislock: key gone at 5.0 s, holder told at 7.5 s. redsync, Redisson: never.
func TestPeers_NetworkStallsWhileHeld(t *testing.T) {
	onStage(t, 5, func(s *stage) {
		clients := s.Cluster.Clients()
		l := s.LockerWith(redlock.Options{}, nil, harness.Nodes(clients))
		k := s.Take(l, 5*time.Second)
		held, stop := k.KeepAlive(s.Ctx)
		defer stop()
		time.Sleep(17 * time.Second)
		s.Cluster.Cut(clients...)
		at := s.Ended(held, time.Minute)
		s.Is("the cause", context.Cause(held), redlock.ErrLost)
		gone := 0
		for i := range 5 {
			if _, ok := s.Node(i).Get(job); !ok {
				gone++
			}
		}
		if gone > 0 || at.After(k.Until()) {
			t.Errorf("told with %d keys gone and %v after Until, want before", gone, at.Sub(k.Until()))
		}
		s.Cluster.Mend(clients...)
		s.Clean(l)
	})
}

// Redisson, redsync: long-held locks erode to a bare majority, and the next client
// may take what is left.
//
// Attacks 56, 79.
func TestPeers_NodesRestartWithoutTheirDataDuringALongHold(t *testing.T) {
	onStage(t, 5, func(s *stage) {
		a, b := s.Locker(redlock.Options{}), s.Locker(redlock.Options{})
		k := s.Take(a, 9*time.Second)
		held, stop := k.KeepAlive(s.Ctx)
		defer stop()
		ctx, cancel := context.WithCancel(s.Ctx)
		contender := harness.Background(func() error { _, err := b.Acquire(ctx, job, time.Second); return err })
		for i := range 5 {
			time.Sleep(10 * time.Second)
			s.Node(i).Restart(false)
		}
		time.Sleep(10 * time.Second)
		if held.Err() != nil || !k.Valid() {
			t.Errorf("lost: %v", context.Cause(held))
		}
		cancel()
		err := <-contender
		s.Is("the contender's Acquire", err, context.Canceled)
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

// RedLock.net, redlock-rb, redsync with SetNXOnExtend: silently retaken.
//
// Attack 82.
func TestPeers_ExpiredTakenAndFreedThenExtended(t *testing.T) {
	onStage(t, 5, func(s *stage) {
		a, b := s.Locker(redlock.Options{}), s.Locker(redlock.Options{})
		old := s.Take(a, time.Second)
		time.Sleep(1100 * time.Millisecond)
		between := s.Take(b, time.Second)
		s.Is("Release", between.Release(s.Ctx), nil)
		time.Sleep(oneTrip)
		s.Is("Extend", old.Extend(s.Ctx), redlock.ErrLost)
		if old.Valid() {
			t.Errorf("valid after that")
		}
		time.Sleep(time.Second)
		s.Carry("afterwards", "", s.All()...)
	})
}

// Everybody: counted as two.
//
// Attack 53.
func TestPeers_SameServerListedTwice(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		one, two := s.Cluster.Clients(), s.Cluster.Clients()
		l := s.Cold(redlock.Options{}, nil, harness.Nodes([]*redis.Client{one[0], one[1], two[0]}))
		// The first call may find a majority of two servers before the third name has
		// said whose it is.
		if k, err := l.TryAcquire(s.Ctx, job, 10*time.Second); err == nil {
			k.Release(s.Ctx)
		}
		time.Sleep(time.Second)
		for range 3 {
			k, err := l.TryAcquire(s.Ctx, job, 10*time.Second)
			if err == nil || k != nil {
				t.Fatalf("got %v, %v; want it refused", k, err)
			}
			s.Says(err, "one server", "list every master once")
		}
		time.Sleep(3 * time.Second)
		s.Carry("afterwards", "", s.All()...)
	})
	t.Run("and the third is down: it never makes a majority", func(t *testing.T) {
		onStage(t, 3, func(s *stage) {
			s.Node(1).Stop()
			one, two := s.Cluster.Clients(), s.Cluster.Clients()
			l := s.Cold(redlock.Options{}, nil, harness.Nodes([]*redis.Client{one[0], one[1], two[0]}))
			if k, err := l.TryAcquire(s.Ctx, job, 10*time.Second); err == nil {
				t.Errorf("got %v by one server of two, want none", k.Value())
			}
			time.Sleep(4 * time.Second)
			s.Carry("afterwards", "", s.All()...)
		})
	})
}

// node-redlock: the promise never settles.
func TestPeers_EvenSplit(t *testing.T) {
	for _, n := range []int{2, 4, 6} {
		t.Run(fmt.Sprintf("%d nodes", n), func(t *testing.T) {
			onStage(t, n, func(s *stage) {
				l := s.Locker(redlock.Options{})
				for i := range n / 2 {
					s.Foreign(time.Hour, i)
				}
				for i := n / 2; i < n; i++ {
					s.Node(i).Hang() // as if they never said
				}
				s.Lasts("TryAcquire", 0, func() {
					_, err := l.TryAcquire(s.Ctx, job, 10*time.Second)
					s.Is("TryAcquire", err, redlock.ErrHeld)
				})
				s.Clean(l)
			})
		})
	}
	t.Run("between two that both try", func(t *testing.T) {
		onStage(t, 2, func(s *stage) {
			a, b := s.Locker(redlock.Options{}), s.Locker(redlock.Options{})
			var wg sync.WaitGroup
			for i, l := range []*redlock.Locker{a, b} {
				wg.Go(func() {
					s.Slow(time.Millisecond, i)
					k, err := l.Acquire(s.Ctx, job, 10*time.Second)
					if err != nil {
						t.Errorf("Acquire: got %v, want the lock", err)
						return
					}
					k.Release(s.Ctx)
				})
			}
			wg.Wait()
			s.Clean(a, b)
		})
	})
}

// node-redlock, RedissonRedLock: returned as held.
//
// Attack 1.
func TestPeers_ValidityOverWhenTheQuorumIsComplete(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		var h harness.Clocks
		l := s.LockerWith(redlock.Options{}, &h, s.Cluster.Nodes())
		b := s.Locker(redlock.Options{})
		s.Once(1, "acquire", func() { s.Suspend(&h, 11*time.Second) })
		k, err := l.TryAcquire(s.Ctx, job, 10*time.Second)
		s.Is("TryAcquire", err, redlock.ErrNoQuorum)
		if k != nil {
			t.Errorf("got a lock whose validity is over")
		}
		time.Sleep(time.Second)
		s.Is("another's Acquire", s.Take(b, time.Second).Release(s.Ctx), nil)
		s.Clean(l, b)
	})
}

// All others: none, or a counter on one master.
//
// Attack 68.
func TestPeers_FencingTokenGrowsAcrossQuorums(t *testing.T) {
	onStage(t, 5, func(s *stage) {
		last := int64(0)
		for i, down := range [][]int{{0, 1}, {2, 3}, {4, 0}, {1, 2}, {3, 4}, {0, 2}, {1, 3}, {2, 4}, {3, 0}, {4, 1}} {
			// Each client has another clock, and reaches another majority.
			l := s.LockerWith(redlock.Options{}, &harness.Clocks{WallAhead: time.Duration(-i) * time.Minute}, s.Cluster.Nodes())
			for _, n := range down {
				s.Node(n).Partition()
			}
			k, err := l.Acquire(s.Ctx, job, time.Second)
			if err != nil {
				t.Fatal(err)
			}
			if k.Fence() <= last {
				t.Errorf("without %v: got token %d after %d", down, k.Fence(), last)
			}
			last = k.Fence()
			k.Release(s.Ctx)
			for _, n := range down {
				s.Node(n).Heal()
			}
			time.Sleep(3 * time.Second)
		}
	})
}

// None in the family tells.
func TestPeers_WhoHoldsItAndForHowLong(t *testing.T) {
	onStage(t, 5, func(s *stage) {
		a, b := s.Locker(redlock.Options{}), s.Locker(redlock.Options{})
		k, err := a.TryAcquire(s.Ctx, job, 10*time.Second, redlock.WithLabel("nightly"))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		s.Node(0).Stop()
		st, err := b.Inspect(s.Ctx, job)
		s.Is("Inspect", err, nil)
		if !st.Held || st.Holder != "nightly" || st.Fence != k.Fence() || st.Left > 8*time.Second || st.Left < 7*time.Second {
			t.Errorf("got %+v, want held by nightly for 8s", st)
		}
		_, err = b.TryAcquire(s.Ctx, job, time.Second)
		s.Is("TryAcquire", err, redlock.ErrHeld)
		s.Says(err, "held by nightly")
	})
}

// node-redlock only.
func TestPeers_PerNodeVotesInTheError(t *testing.T) {
	onStage(t, 5, func(s *stage) {
		l := s.Locker(redlock.Options{})
		check := func(what string, err, want error, says ...string) {
			s.Is(what, err, want)
			s.Says(err, says...)
			var q *redlock.QuorumError
			if !errors.As(err, &q) || len(q.Round.Votes) != 5 || q.Round.Need != 3 {
				t.Errorf("%s: got %v, want a QuorumError with five votes", what, err)
				return
			}
			for i, v := range q.Round.Votes {
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
