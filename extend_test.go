package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/harness"
)

// Redis page, Making the algorithm more reliable: "The client should only consider
// the lock re-acquired if it was able to extend the lock into the majority of
// instances, and within the validity time".

// Attack 59.
func TestAnExtensionCountsFromBeforeItsFirstRequest(t *testing.T) {
	for _, slow := range []time.Duration{0, 300 * time.Millisecond, 900 * time.Millisecond} {
		t.Run(fmt.Sprintf("answers after %v", slow), func(t *testing.T) {
			harness.OnStage(t, 3, func(s *harness.Stage) {
				k := s.Take(s.Locker(redlock.Options{}), 10*time.Second)
				time.Sleep(3 * time.Second)
				s.Slow(slow, 0, 1, 2)
				began := time.Now()
				s.Is("Extend", k.Extend(s.Ctx), nil)
				if took := time.Since(began); took < slow {
					t.Fatalf("it took %v, want %v: the test tests nothing", took, slow)
				}
				if got, want := k.Until(), began.Add(harness.ValidFor(10*time.Second, 1)); !got.Equal(want) {
					t.Errorf("Until: got %v after the call, want %v", got.Sub(began), want.Sub(began))
				}
				for i := range 3 {
					if left := s.Node(i).TTL(job) + time.Since(began); left < 10*time.Second {
						t.Errorf("node %d: the key expires %v after the call, want 10s", i, left)
					}
				}
			})
		})
	}
}

// Attack 58.
func TestAnExtensionThatReachesAMinorityLeavesTheOldUntil(t *testing.T) {
	for name, fault := range map[string]func(s *harness.Stage, i int){
		"stopped":      func(s *harness.Stage, i int) { s.Node(i).Stop() },
		"hung":         func(s *harness.Stage, i int) { s.Node(i).Hang() },
		"replies lost": func(s *harness.Stage, i int) { s.Node(i).LoseReplies(9) },
		"loading":      func(s *harness.Stage, i int) { s.Node(i).Fail("LOADING Redis is loading the dataset in memory") },
	} {
		t.Run(name, func(t *testing.T) {
			harness.OnStage(t, 5, func(s *harness.Stage) {
				l := s.Locker(redlock.Options{})
				k := s.Take(l, 10*time.Second)
				until := k.Until()
				time.Sleep(3 * time.Second)
				for _, i := range []int{0, 2, 4} {
					fault(s, i)
				}
				err := k.Extend(s.Ctx)
				s.Is("Extend", err, redlock.ErrNoQuorum)
				s.Says(err, "still held until", "3 of 5 votes needed")
				if got := k.Until(); !got.Equal(until) || !k.Valid() {
					t.Errorf("afterwards: Until %v, valid %v; want %v and true", got, k.Valid(), until)
				}
				s.Carry("afterwards", k.Value(), s.All()...)
				for i := range 5 {
					s.Mend(i)
				}
				s.Reconnect(l)
				s.Is("the next Extend", k.Extend(s.Ctx), nil)
				if !k.Until().After(until) {
					t.Errorf("Until: got %v, want after %v", k.Until(), until)
				}
				s.Is("Release", k.Release(s.Ctx), nil)
				s.Clean(l)
			})
		})
	}
}

// Between the old Until and its answer the key may have expired, been taken and been
// freed: a late yes says nothing.
//
// Attack 81.
func TestAnExtensionThatIsCompleteAfterTheOldUntilIsLost(t *testing.T) {
	harness.OnStage(t, 3, func(s *harness.Stage) {
		l := s.Locker(redlock.Options{NodeTimeout: 450 * time.Millisecond})
		k := s.Take(l, time.Second)
		until := k.Until()
		time.Sleep(800 * time.Millisecond)
		for i := range 3 {
			s.Node(i).Delay(0, 400*time.Millisecond) // executed in time
		}
		err := k.Extend(s.Ctx)
		if !time.Now().After(until) {
			t.Fatal("the answer came before Until: the test tests nothing")
		}
		s.Carry("the nodes extended it", k.Value(), 0, 1, 2)
		s.Is("Extend", err, redlock.ErrLost)
		s.Is("the next Extend", k.Extend(s.Ctx), redlock.ErrLost)
		if k.Valid() || !k.Until().Equal(until) {
			t.Errorf("afterwards: valid %v, Until %v; want false and %v", k.Valid(), k.Until(), until)
		}
		s.Clean(l)
		s.Is("Release", k.Release(s.Ctx), redlock.ErrLost)
	})
	t.Run("though the process slept meanwhile", func(t *testing.T) {
		harness.OnStage(t, 3, func(s *harness.Stage) {
			var h harness.Clocks
			l := s.LockerWith(redlock.Options{}, &h, s.Cluster.Nodes())
			k := s.Take(l, 10*time.Second)
			s.Once(0, "extend", func() { h.MoveWall(10 * time.Second) })
			s.Once(1, "extend", func() { h.MoveWall(10 * time.Second) })
			s.Is("Extend", k.Extend(s.Ctx), redlock.ErrLost)
			s.Clean(l)
		})
	})
}

// Attack 82.
func TestALockThatExpiredAndWasTakenAndFreedIsLost(t *testing.T) {
	t.Run("before the extension", func(t *testing.T) {
		harness.OnStage(t, 3, func(s *harness.Stage) {
			l := s.Locker(redlock.Options{})
			k := s.Take(l, time.Second)
			time.Sleep(1100 * time.Millisecond)
			for i := range 3 { // by a client without fences
				s.Do(i, "SET", job, "theirs", "NX", "PX", "1000")
				s.Do(i, "DEL", job)
				s.Node(i).Record(true)
			}
			s.Is("Extend", k.Extend(s.Ctx), redlock.ErrLost)
			time.Sleep(time.Second)
			for i := range 3 {
				if got := s.Told(i, "extend", "heal"); len(got) > 0 {
					t.Errorf("node %d was told %v, want nothing", i, harness.Verbs(got))
				}
			}
			s.Carry("afterwards", "", 0, 1, 2)
		})
	})
	t.Run("while the extension was under way", func(t *testing.T) {
		harness.OnStage(t, 3, func(s *harness.Stage) {
			l := s.Locker(redlock.Options{NodeTimeout: 450 * time.Millisecond})
			k := s.Take(l, time.Second)
			time.Sleep(900 * time.Millisecond)
			for i := range 3 {
				s.Node(i).Delay(200*time.Millisecond, 0)
			}
			s.Is("Extend", k.Extend(s.Ctx), redlock.ErrLost)
			time.Sleep(5 * time.Second)
			s.Carry("afterwards", "", 0, 1, 2)
		})
	})
}

// Attack 60.
func TestAnothersKeyIsNeverExtended(t *testing.T) {
	t.Run("on a majority", func(t *testing.T) {
		harness.OnStage(t, 5, func(s *harness.Stage) {
			l := s.Locker(redlock.Options{})
			k := s.Take(l, time.Minute)
			s.Foreign(5*time.Second, 0, 2, 4)
			err := k.Extend(s.Ctx)
			s.Is("Extend", err, redlock.ErrLost)
			s.Says(err, "node-a:6379 held")
			if k.Valid() {
				t.Errorf("valid, want lost")
			}
			time.Sleep(time.Second)
			for _, i := range []int{0, 2, 4} {
				if left := s.Node(i).TTL(job); left > 4*time.Second || left < 3*time.Second {
					t.Errorf("node %d: the other's key has %v left, want 4s", i, left)
				}
			}
			s.Carry("ours is removed", "", 1, 3)
		})
	})
	t.Run("on a minority", func(t *testing.T) {
		harness.OnStage(t, 5, func(s *harness.Stage) {
			k := s.Take(s.Locker(redlock.Options{}), time.Minute)
			s.Foreign(5*time.Second, 0, 4)
			s.Is("Extend", k.Extend(s.Ctx), nil)
			time.Sleep(time.Second)
			s.Carry("theirs", otherValue, 0, 4)
			if left := s.Node(0).TTL(job); left > 4*time.Second {
				t.Errorf("the other's key has %v left, want 4s", left)
			}
		})
	})
	t.Run("late, after another's acquisition", func(t *testing.T) {
		harness.OnStage(t, 3, func(s *harness.Stage) {
			clients := s.Cluster.Clients()
			a := s.LockerWith(redlock.Options{}, nil, harness.Nodes(clients))
			b := s.Locker(redlock.Options{})
			old := s.Take(a, 2*time.Second)
			time.Sleep(oneTrip) // the third node's answer, which the extension goes after
			s.Cluster.Cut(clients...)
			s.Is("Extend", old.Extend(s.Ctx), redlock.ErrNoQuorum)
			time.Sleep(2 * time.Second)
			k := s.Take(b, 10*time.Second)
			time.Sleep(time.Second)
			s.Cluster.Mend(clients...) // what was held is delivered now
			time.Sleep(2 * time.Second)
			s.Carry("afterwards", k.Value(), 0, 1, 2)
			for i := range 3 {
				if left := s.Node(i).TTL(job); left > 7*time.Second {
					t.Errorf("node %d: the holder's key has %v left, want 7s", i, left)
				}
			}
			if got := harness.Verbs(s.Told(0, "extend")); len(got) != 1 {
				t.Errorf("late extensions executed: got %v, want one: the test tests nothing", got)
			}
			s.Is("the old Extend", old.Extend(s.Ctx), redlock.ErrLost)
		})
	})
}

// Attacks 40, 42.
func TestANodeThatForgotGetsTheLockBackAndCountsFromTheNextRoundOn(t *testing.T) {
	for name, forgets := range map[string]func(s *harness.Stage, i int){
		"evicted": func(s *harness.Stage, i int) { s.Node(i).Evict(job) },
		"restarted empty": func(s *harness.Stage, i int) {
			s.Node(i).Restart(false)
			s.LoadScripts(i)
		},
	} {
		t.Run(name+": healed, and counted the next time", func(t *testing.T) {
			harness.OnStage(t, 5, func(s *harness.Stage) {
				l := s.Locker(redlock.Options{})
				k := s.Take(l, 20*time.Second)
				time.Sleep(oneTrip)
				forgets(s, 3)
				forgets(s, 4)
				s.Reconnect(l)
				s.Is("Extend", k.Extend(s.Ctx), nil)
				time.Sleep(oneTrip)
				s.Carry("afterwards", k.Value(), s.All()...)
				for i := range 5 {
					if left := s.Node(i).TTL(job); left < 19*time.Second {
						t.Errorf("node %d: the key has %v left, want 20s", i, left)
					}
				}
				s.Node(0).Stop()
				s.Node(1).Stop()
				s.Is("Extend by the healed ones and one more", k.Extend(s.Ctx), nil)
				s.Is("Release", k.Release(s.Ctx), nil)
				s.Clean(l)
			})
		})
	}
	t.Run("not counted at once, and not healed, without a majority that says ours", func(t *testing.T) {
		harness.OnStage(t, 5, func(s *harness.Stage) {
			l := s.Locker(redlock.Options{})
			k := s.Take(l, 20*time.Second)
			until := k.Until()
			time.Sleep(oneTrip)
			s.Node(2).Evict(job) // two say ours, one is missing
			s.Node(3).Stop()
			s.Node(4).Stop()
			s.Is("Extend", k.Extend(s.Ctx), redlock.ErrNoQuorum)
			time.Sleep(time.Second)
			s.Carry("afterwards", "", 2)
			if !k.Until().Equal(until) {
				t.Errorf("Until moved to %v, want %v", k.Until(), until)
			}
		})
	})
	t.Run("nor where its answer comes after the round was decided", func(t *testing.T) {
		harness.OnStage(t, 5, func(s *harness.Stage) {
			k := s.Take(s.Locker(redlock.Options{}), 20*time.Second)
			time.Sleep(oneTrip)
			for _, i := range []int{1, 2, 3} {
				s.Node(i).Stop()
			}
			s.Node(4).Evict(job)
			s.Slow(100*time.Millisecond, 4)
			s.Is("Extend", k.Extend(s.Ctx), redlock.ErrNoQuorum)
			time.Sleep(2 * time.Second)
			if v, ok := s.Node(4).Get(job); ok {
				t.Errorf("node 4 was given %s though one node said ours", v)
			}
		})
	})
	t.Run("where its answer comes after a majority said ours", func(t *testing.T) {
		harness.OnStage(t, 3, func(s *harness.Stage) {
			k := s.Take(s.Locker(redlock.Options{}), 20*time.Second)
			time.Sleep(oneTrip)
			s.Node(2).Evict(job)
			s.Slow(100*time.Millisecond, 2)
			s.Lasts("Extend", 0, func() { s.Is("Extend", k.Extend(s.Ctx), nil) })
			time.Sleep(time.Second)
			s.Carry("afterwards", k.Value(), 0, 1, 2)
		})
	})
	t.Run("another's key there is not overwritten", func(t *testing.T) {
		harness.OnStage(t, 3, func(s *harness.Stage) {
			k := s.Take(s.Locker(redlock.Options{}), 20*time.Second)
			time.Sleep(oneTrip)
			s.Node(2).Evict(job)
			s.Once(2, "heal", func() { s.Foreign(time.Minute, 2) })
			s.Is("Extend", k.Extend(s.Ctx), nil)
			time.Sleep(time.Second)
			s.Carry("the other's", otherValue, 2)
		})
	})
}

// Attacks 40, 51.
func TestALockThatAMajorityForgotIsLostAndNotTakenAnew(t *testing.T) {
	harness.OnStage(t, 5, func(s *harness.Stage) {
		l := s.Locker(redlock.Options{})
		k := s.Take(l, 20*time.Second)
		time.Sleep(oneTrip)
		for _, i := range []int{0, 1, 2} {
			s.Node(i).FlushAll()
		}
		err := k.Extend(s.Ctx)
		s.Is("Extend", err, redlock.ErrLost)
		s.Says(err, "node-a:6379 missing")
		if k.Valid() {
			t.Errorf("valid, want lost")
		}
		time.Sleep(oneTrip * 2)
		s.Carry("afterwards", "", s.All()...)
		s.Clean(l)
	})
	t.Run("by a restart", func(t *testing.T) {
		harness.OnStage(t, 5, func(s *harness.Stage) {
			l := s.Locker(redlock.Options{})
			k := s.Take(l, 20*time.Second)
			for _, i := range []int{0, 1, 2} {
				s.Node(i).Restart(false)
			}
			s.Reconnect(l)
			s.Is("Extend", k.Extend(s.Ctx), redlock.ErrLost)
			s.Clean(l)
		})
	})
	t.Run("by hand", func(t *testing.T) {
		harness.OnStage(t, 3, func(s *harness.Stage) {
			k := s.Take(s.Locker(redlock.Options{}), 20*time.Second)
			for i := range 3 {
				s.Do(i, "DEL", job)
			}
			s.Is("Extend", k.Extend(s.Ctx), redlock.ErrLost)
		})
	})
}

// Attacks 24, 63, 78.
func TestALateExtensionOrHealAfterReleaseLeavesNothing(t *testing.T) {
	t.Run("an extension on its way", func(t *testing.T) {
		harness.OnStage(t, 3, func(s *harness.Stage) {
			l := s.Locker(redlock.Options{})
			k := s.Take(l, 20*time.Second)
			s.Slow(200*time.Millisecond, 0, 1, 2)
			done := harness.Background(func() error { return k.Extend(s.Ctx) })
			time.Sleep(50 * time.Millisecond)
			s.Is("Release", k.Release(s.Ctx), nil)
			s.Is("Extend", <-done, redlock.ErrLost)
			s.Clean(l)
		})
	})
	t.Run("an extension that a hung node executes when it wakes", func(t *testing.T) {
		harness.OnStage(t, 3, func(s *harness.Stage) {
			l := s.Locker(redlock.Options{})
			k := s.Take(l, 20*time.Second)
			time.Sleep(oneTrip)
			s.Node(2).Hang()
			s.Is("Extend", k.Extend(s.Ctx), nil)
			s.Is("Release", k.Release(s.Ctx), nil)
			time.Sleep(time.Minute)
			s.Clean(l)
		})
	})
	t.Run("a heal that a hung node executes when it wakes", func(t *testing.T) {
		harness.OnStage(t, 3, func(s *harness.Stage) {
			l := s.Locker(redlock.Options{})
			k := s.Take(l, 20*time.Second)
			time.Sleep(oneTrip)
			s.Node(2).Evict(job)
			s.Once(2, "heal", s.Node(2).Hang)
			s.Is("Extend", k.Extend(s.Ctx), nil)
			time.Sleep(oneTrip)
			s.Is("Release", k.Release(s.Ctx), nil)
			time.Sleep(10 * time.Second)
			s.Node(2).Resume()
			s.Clean(l)
			if got := s.Told(2, "heal"); len(got) == 0 {
				t.Errorf("no heal was executed: the test tests nothing")
			}
		})
	})
	t.Run("a heal under way", func(t *testing.T) {
		harness.OnStage(t, 3, func(s *harness.Stage) {
			l := s.Locker(redlock.Options{})
			k := s.Take(l, 20*time.Second)
			time.Sleep(oneTrip)
			s.Node(2).Evict(job)
			s.Slow(200*time.Millisecond, 2)
			s.Is("Extend", k.Extend(s.Ctx), nil)
			time.Sleep(250 * time.Millisecond) // the heal has left
			s.Is("Release", k.Release(s.Ctx), nil)
			s.Clean(l)
		})
	})
	t.Run("a missing that is heard of after the release", func(t *testing.T) {
		harness.OnStage(t, 3, func(s *harness.Stage) {
			l := s.Locker(redlock.Options{})
			k := s.Take(l, 20*time.Second)
			time.Sleep(oneTrip)
			s.Node(2).Evict(job)
			s.Slow(200*time.Millisecond, 2)
			s.Is("Extend", k.Extend(s.Ctx), nil)
			s.Is("Release", k.Release(s.Ctx), nil)
			time.Sleep(2 * time.Second)
			if got := s.Told(2, "heal"); len(got) > 0 {
				t.Errorf("the node was healed after the release")
			}
			s.Clean(l)
		})
	})
}

// Attack 70.
func TestAnExtensionRestoresTheFenceRegister(t *testing.T) {
	harness.OnStage(t, 3, func(s *harness.Stage) {
		l := s.Locker(redlock.Options{})
		k := s.Take(l, 20*time.Second)
		time.Sleep(oneTrip)
		for i := range 3 {
			s.Node(i).Evict(jobRegister)
		}
		s.Is("Extend", k.Extend(s.Ctx), nil)
		time.Sleep(oneTrip)
		for i := range 3 {
			if got := s.Register(i); got != k.Fence() {
				t.Errorf("node %d: its register stands at %d, want %d", i, got, k.Fence())
			}
			if left := s.Node(i).TTL(jobRegister); left < 22*time.Hour {
				t.Errorf("node %d: its register lives for %v more, want about a day", i, left)
			}
		}
	})
	t.Run("and does not lower one that is above", func(t *testing.T) {
		harness.OnStage(t, 3, func(s *harness.Stage) {
			k := s.Take(s.Locker(redlock.Options{}), 20*time.Second)
			high := k.Fence() + 1e9
			s.SetRegister(high, 0)
			s.Is("Extend", k.Extend(s.Ctx), nil)
			if got := s.Register(0); got != high {
				t.Errorf("the register stands at %d, want %d", got, high)
			}
		})
	})
}

func TestAnExtensionWhoseContextEndsGoesOn(t *testing.T) {
	harness.OnStage(t, 3, func(s *harness.Stage) {
		k := s.Take(s.Locker(redlock.Options{}), 10*time.Second)
		s.Slow(200*time.Millisecond, 0, 1, 2)
		time.Sleep(time.Second)
		began := time.Now()
		ctx, cancel := context.WithTimeout(s.Ctx, 100*time.Millisecond)
		defer cancel()
		err := k.Extend(ctx)
		s.Is("Extend", err, context.DeadlineExceeded)
		s.Says(err, "2 of 3 votes needed")
		if took := time.Since(began); took != 100*time.Millisecond {
			t.Errorf("it returned after %v, want 100ms", took)
		}
		time.Sleep(time.Second)
		if got, want := k.Until(), began.Add(harness.ValidFor(10*time.Second, 1)); !got.Equal(want) {
			t.Errorf("Until: got %v after the call, want %v", got.Sub(began), want.Sub(began))
		}
		cancel()
		for i := range 3 {
			s.Node(i).Record(true)
		}
		s.Is("Extend with a context that is over", k.Extend(ctx), context.DeadlineExceeded)
		time.Sleep(time.Second)
		if got := s.Told(0); len(got) > 0 {
			t.Errorf("nodes were told %v, want nothing", harness.Verbs(got))
		}
	})
}

// KeepAlive.

// Attack 62.
func TestAKeptLockIsRenewedAtAboutAThirdOfItsTTL(t *testing.T) {
	harness.OnStage(t, 3, func(s *harness.Stage) {
		const ttl = 9 * time.Second
		k := s.Take(s.Locker(redlock.Options{}), ttl)
		held, stop := k.KeepAlive(s.Ctx)
		time.Sleep(10 * time.Minute)
		if held.Err() != nil || !k.Valid() {
			t.Errorf("after ten minutes: context %v, valid %v; want a lock that is held", context.Cause(held), k.Valid())
		}
		stop()
		sent := s.Told(0, "extend")
		pauses := make(map[time.Duration]bool)
		for i := 1; i < len(sent); i++ {
			d := sent[i].At.Sub(sent[i-1].At)
			if d > ttl/3+oneTrip || d < harness.ValidFor(ttl, 1)/3*9/10-oneTrip {
				t.Errorf("renewal %d came after %v, want 2.67s to 3s", i, d)
			}
			pauses[d.Round(time.Millisecond)] = true
		}
		if n := len(sent); n < 200 || n > 225 || len(pauses) < 50 {
			t.Errorf("renewals in ten minutes: got %d with %d different pauses, want about 210, spread", n, len(pauses))
		}
	})
}

// Attack 62.
func TestARenewalThatFailsIsTriedAgain(t *testing.T) {
	harness.OnStage(t, 5, func(s *harness.Stage) {
		l := s.Locker(redlock.Options{})
		k := s.Take(l, 9*time.Second)
		held, stop := k.KeepAlive(s.Ctx)
		defer stop()
		for range 5 { // again and again, for less than two thirds of the validity
			time.Sleep(10 * time.Second)
			for _, i := range []int{0, 1, 2} {
				s.Node(i).Refuse(true)
			}
			time.Sleep(5 * time.Second)
			for _, i := range []int{0, 1, 2} {
				s.Node(i).Refuse(false)
			}
		}
		time.Sleep(10 * time.Second)
		if held.Err() != nil || !k.Valid() {
			t.Errorf("the lock was lost: %v", context.Cause(held))
		}
		s.Is("Release", k.Release(s.Ctx), nil)
		s.Clean(l)
	})
}

// The loss is told by a timer that depends on nothing that can hang.
//
// Attack 62.
func TestTheLossIsToldNoLaterThanUntil(t *testing.T) {
	for name, fault := range map[string]func(s *harness.Stage, i int){
		"all nodes hang":            func(s *harness.Stage, i int) { s.Node(i).Hang() },
		"all nodes are dead":        func(s *harness.Stage, i int) { s.Node(i).Stop() },
		"all nodes are cut off":     func(s *harness.Stage, i int) { s.Node(i).Partition() },
		"no reply arrives":          func(s *harness.Stage, i int) { s.Node(i).PartitionReplies() },
		"every reply is lost":       func(s *harness.Stage, i int) { s.Node(i).LoseReplies(1000) },
		"every connection is reset": func(s *harness.Stage, i int) { s.Node(i).DropReplies(1000) },
		"an extension hangs":        func(s *harness.Stage, i int) { s.Once(i, "extend", s.Node(i).Hang) },
		"all nodes answer errors":   func(s *harness.Stage, i int) { s.Node(i).Fail("LOADING Redis is loading the dataset in memory") },
		"a majority hangs": func(s *harness.Stage, i int) {
			if i > 0 {
				s.Node(i).Hang()
			}
		},
	} {
		for _, ttl := range []time.Duration{50 * time.Millisecond, 9 * time.Second} {
			t.Run(fmt.Sprintf("%s, ttl %v", name, ttl), func(t *testing.T) {
				harness.OnStage(t, 3, func(s *harness.Stage) {
					var seen harness.Observer
					l := s.Locker(redlock.Options{Observe: seen.Observe})
					k := s.Take(l, ttl)
					held, stop := k.KeepAlive(s.Ctx)
					defer stop()
					time.Sleep(ttl * 5)
					if !k.Valid() {
						t.Fatal("lost before anything happened")
					}
					until := k.Until()
					for i := range 3 {
						fault(s, i)
					}
					at := s.Ended(held, 2*ttl)
					// A renewal may have been answered before the fault struck.
					if u := k.Until(); !u.Equal(until) && u.Sub(until) > ttl {
						t.Errorf("Until moved by %v", u.Sub(until))
					} else {
						until = u
					}
					if early := until.Sub(at); early < 0 || early > 2*time.Millisecond {
						t.Errorf("the loss was told %v before Until, want 0 to 1ms", early)
					}
					s.Is("the cause", context.Cause(held), redlock.ErrLost)
					s.Is("the context", held.Err(), context.Canceled)
					if k.Valid() {
						t.Errorf("valid after the loss was told")
					}
					if got := seen.Count(redlock.OpLost); got != 1 {
						t.Errorf("losses observed: got %d, want 1", got)
					}
					s.Is("Extend", k.Extend(s.Ctx), redlock.ErrLost)
					s.Is("Release", k.Release(s.Ctx), redlock.ErrLost)
					s.Clean(l)
				})
			})
		}
	}
}

// A loss by time tells which extension failed last, and what the nodes said to it.
func TestALossByTimeTellsTheExtensionThatFailed(t *testing.T) {
	// tells checks an error for a loss, and gives what it carries.
	tells := func(s *harness.Stage, err error, votes int, parts ...string) redlock.Round {
		s.Helper()
		s.Is("the loss", err, redlock.ErrLost)
		if errors.Is(err, redlock.ErrNoQuorum) {
			s.Errorf("got %v, which is also ErrNoQuorum: a lock that is lost is no longer held", err)
		}
		s.Says(err, parts...)
		if err != nil && strings.Count(err.Error(), "lost") != 1 {
			s.Errorf("got %q, want the word lost once", err)
		}
		var q *redlock.QuorumError
		if !errors.As(err, &q) {
			s.Fatalf("got %v, want a QuorumError", err)
		}
		if q.Round.Op != redlock.OpLost || len(q.Round.Votes) != votes {
			s.Errorf("got the round %+v, want a loss with %d votes", q.Round, votes)
		}
		return q.Round
	}
	const ended = `lost "jobs/42": its validity of 1.48s ended`
	t.Run("KeepAlive, Extend, Release and Observe", func(t *testing.T) {
		harness.OnStage(t, 3, func(s *harness.Stage) {
			var seen harness.Observer
			l := s.Locker(redlock.Options{Observe: seen.Observe})
			k := s.Take(l, 1500*time.Millisecond)
			held, stop := k.KeepAlive(s.Ctx)
			defer stop()
			s.Node(1).Refuse(true)
			s.Node(2).Hang()
			s.Ended(held, time.Minute)
			want := []string{ended, "the extension sent", "before got no majority (2 of 3 votes needed; node-a:6379 ", "connection refused", "node-c:6379 down: timeout"}
			for what, err := range map[string]error{"KeepAlive": context.Cause(held), "Extend": k.Extend(s.Ctx), "Release": k.Release(s.Ctx)} {
				round := tells(s, err, 3, want...)
				if !errors.Is(err, syscall.ECONNREFUSED) {
					t.Errorf("%s: got %v, want the votes' own errors in its chain", what, err)
				}
				if round.Votes[1].Answer != redlock.Unknown || round.Votes[2].Answer != redlock.Unknown {
					t.Errorf("%s: got the votes %v", what, round.Votes)
				}
			}
			for _, round := range seen.Rounds() {
				if round.Op == redlock.OpLost && len(round.Votes) != 3 {
					t.Errorf("Observe: got %+v, want the votes", round)
				}
			}
		})
	})
	t.Run("Run", func(t *testing.T) {
		harness.OnStage(t, 3, func(s *harness.Stage) {
			l := s.Locker(redlock.Options{})
			err := l.Run(s.Ctx, job, 1500*time.Millisecond, func(ctx context.Context, lock *redlock.Lock) error {
				s.Node(0).Hang()
				s.Node(1).Hang()
				<-ctx.Done()
				return nil
			})
			tells(s, err, 3, ended, "got no majority (2 of 3 votes needed; node-a:6379 down: timeout", "node-b:6379 down: timeout")
		})
	})
	t.Run("without KeepAlive", func(t *testing.T) {
		harness.OnStage(t, 3, func(s *harness.Stage) {
			l := s.Locker(redlock.Options{})
			k := s.Take(l, 1500*time.Millisecond)
			s.Node(0).Fail("LOADING Redis is loading the dataset in memory")
			s.Node(1).Fail("LOADING Redis is loading the dataset in memory")
			s.Is("Extend", k.Extend(s.Ctx), redlock.ErrNoQuorum)
			time.Sleep(2 * time.Second)
			tells(s, k.Extend(s.Ctx), 3, ended, "the extension sent 2s before got no majority (2 of 3 votes needed; node-a:6379 LOADING")
		})
	})
	t.Run("no extension failed", func(t *testing.T) {
		harness.OnStage(t, 3, func(s *harness.Stage) {
			k := s.Take(s.Locker(redlock.Options{}), 1500*time.Millisecond)
			time.Sleep(2 * time.Second)
			tells(s, k.Extend(s.Ctx), 0, ended)
		})
	})
	t.Run("one failed before the last one that succeeded", func(t *testing.T) {
		harness.OnStage(t, 3, func(s *harness.Stage) {
			k := s.Take(s.Locker(redlock.Options{}), 1500*time.Millisecond)
			s.Node(0).Fail("LOADING Redis is loading the dataset in memory")
			s.Node(1).Fail("LOADING Redis is loading the dataset in memory")
			s.Is("Extend", k.Extend(s.Ctx), redlock.ErrNoQuorum)
			s.Node(0).Fail("")
			s.Node(1).Fail("")
			s.Is("Extend", k.Extend(s.Ctx), nil)
			time.Sleep(2 * time.Second)
			tells(s, k.Extend(s.Ctx), 0, ended)
		})
	})
	t.Run("answered too late", func(t *testing.T) {
		harness.OnStage(t, 3, func(s *harness.Stage) {
			l := s.Locker(redlock.Options{NodeTimeout: 600 * time.Millisecond})
			k := s.Take(l, 1500*time.Millisecond)
			time.Sleep(1400 * time.Millisecond)
			for i := range 3 {
				s.Node(i).Delay(0, 400*time.Millisecond)
			}
			tells(s, k.Extend(s.Ctx), 3, ended, "the extension sent 400ms before was answered too late (2 of 3 votes needed; node-a:6379 ", "yes 400ms")
		})
	})
	t.Run("not answered yet", func(t *testing.T) {
		harness.OnStage(t, 3, func(s *harness.Stage) {
			l := s.Locker(redlock.Options{NodeTimeout: 600 * time.Millisecond})
			k := s.Take(l, 1500*time.Millisecond)
			time.Sleep(1200 * time.Millisecond)
			s.Node(1).Hang()
			s.Node(2).Hang()
			extend := harness.Background(func() error { return k.Extend(s.Ctx) })
			time.Sleep(time.Millisecond)
			held, stop := k.KeepAlive(s.Ctx)
			defer stop()
			s.Ended(held, time.Minute)
			tells(s, context.Cause(held), 3, ended, "has no majority yet (2 of 3 votes needed; node-a:6379 yes", "node-b:6379 pending, node-c:6379 pending")
			tells(s, <-extend, 3, ended)
		})
	})
}

// The loss is told a little early; the lock keeps others out until Until all the
// same.
func TestALostLockIsNotFreedBeforeUntil(t *testing.T) {
	harness.OnStage(t, 3, func(s *harness.Stage) {
		l := s.Locker(redlock.Options{})
		k := s.Take(l, 9*time.Second)
		held, stop := k.KeepAlive(s.Ctx)
		defer stop()
		for i := range 3 {
			i := i
			s.On(i, "rollback", func(n int, args []string) {
				if time.Now().Before(k.Until()) {
					t.Errorf("node %d was told to roll back %v before Until", i, time.Until(k.Until()))
				}
			})
			s.Node(i).FailCommand("evalsha", "LOADING Redis is loading the dataset in memory")
			s.Node(i).FailCommand("eval", "LOADING Redis is loading the dataset in memory")
		}
		s.Ended(held, time.Minute)
		time.Sleep(time.Second)
	})
}

// Attack 5.
func TestASuspendedMachineIsToldWithinASecondOfWaking(t *testing.T) {
	for _, kept := range []bool{true, false} {
		t.Run(fmt.Sprintf("kept alive: %v", kept), func(t *testing.T) {
			harness.OnStage(t, 3, func(s *harness.Stage) {
				var h harness.Clocks
				l := s.LockerWith(redlock.Options{}, &h, s.Cluster.Nodes())
				b := s.Locker(redlock.Options{})
				k := s.Take(l, 9*time.Second)
				held, stop := context.WithCancelCause(s.Ctx)
				if kept {
					var end context.CancelFunc
					held, end = k.KeepAlive(s.Ctx)
					defer end()
				}
				defer stop(nil)
				time.Sleep(2500 * time.Millisecond)
				s.Suspend(&h, time.Hour) // no timer of ours has moved
				woke := time.Now()
				if k.Valid() {
					t.Errorf("valid right after waking, though an hour has passed")
				}
				if kept {
					if at := s.Ended(held, time.Minute); at.Sub(woke) > time.Second {
						t.Errorf("told %v after waking, want within a second", at.Sub(woke))
					}
					s.Is("the cause", context.Cause(held), redlock.ErrLost)
				}
				other := s.Take(b, time.Minute)
				s.Is("Extend", k.Extend(s.Ctx), redlock.ErrLost)
				s.Is("Release", k.Release(s.Ctx), redlock.ErrLost)
				time.Sleep(5 * time.Second)
				s.Carry("the next holder's", other.Value(), 0, 1, 2)
			})
		})
	}
	t.Run("a nap that leaves the lock valid", func(t *testing.T) {
		harness.OnStage(t, 3, func(s *harness.Stage) {
			var h harness.Clocks
			l := s.LockerWith(redlock.Options{}, &h, s.Cluster.Nodes())
			k := s.Take(l, 9*time.Second)
			held, stop := k.KeepAlive(s.Ctx)
			defer stop()
			for range 20 {
				time.Sleep(4 * time.Second)
				s.Suspend(&h, 3*time.Second)
				time.Sleep(2 * time.Second)
				if lost := held.Err() != nil; lost == k.Valid() {
					t.Errorf("context ended: %v, valid: %v; want one or the other", lost, k.Valid())
				}
				if held.Err() != nil {
					return // allowed: the nodes' clocks went on as well
				}
			}
		})
	})
}

// Attack 6.
func TestAWallClockThatIsSetDoesNotKeepALostLock(t *testing.T) {
	t.Run("back: nothing changes", func(t *testing.T) {
		harness.OnStage(t, 3, func(s *harness.Stage) {
			var h harness.Clocks
			l := s.LockerWith(redlock.Options{}, &h, s.Cluster.Nodes())
			k := s.Take(l, 9*time.Second)
			held, stop := k.KeepAlive(s.Ctx)
			time.Sleep(time.Second)
			h.MoveWall(-24 * time.Hour)
			if !k.Valid() {
				t.Errorf("not valid, want a lock that is held")
			}
			time.Sleep(time.Minute)
			if held.Err() != nil || !k.Valid() {
				t.Errorf("lost: %v", context.Cause(held))
			}
			stop()
			until := k.Until()
			time.Sleep(time.Until(until) - time.Microsecond)
			if !k.Valid() {
				t.Errorf("not valid right before Until")
			}
			time.Sleep(time.Microsecond)
			if k.Valid() {
				t.Errorf("valid at Until: the wall clock was set back, the nodes' were not")
			}
		})
	})
	t.Run("forward: given up", func(t *testing.T) {
		harness.OnStage(t, 3, func(s *harness.Stage) {
			var h harness.Clocks
			l := s.LockerWith(redlock.Options{}, &h, s.Cluster.Nodes())
			k := s.Take(l, 9*time.Second)
			held, stop := k.KeepAlive(s.Ctx)
			defer stop()
			time.Sleep(1300 * time.Millisecond)
			h.MoveWall(24 * time.Hour)
			set := time.Now()
			if k.Valid() {
				t.Errorf("valid, want given up")
			}
			if at := s.Ended(held, time.Minute); at.Sub(set) > time.Second {
				t.Errorf("told after %v, want within a second", at.Sub(set))
			}
			s.Is("the cause", context.Cause(held), redlock.ErrLost)
			s.Clean(l)
			s.Is("Release", s.Take(l, time.Second).Release(s.Ctx), nil)
		})
	})
}

// Attack 62.
func TestStopEndsTheRenewalAndNotTheLock(t *testing.T) {
	harness.OnStage(t, 3, func(s *harness.Stage) {
		l := s.Locker(redlock.Options{})
		k := s.Take(l, 9*time.Second)
		held, stop := k.KeepAlive(s.Ctx)
		time.Sleep(20 * time.Second)
		stop()
		stop()
		s.Is("the context", held.Err(), context.Canceled)
		if errors.Is(context.Cause(held), redlock.ErrLost) {
			t.Errorf("the cause is ErrLost, and nothing was lost")
		}
		for i := range 3 {
			s.Node(i).Record(true)
		}
		time.Sleep(time.Until(k.Until()) - time.Microsecond)
		if got := s.Told(0, "extend"); len(got) > 0 || !k.Valid() {
			t.Errorf("after stop: %d renewals, valid %v; want none, and held until Until", len(got), k.Valid())
		}
		time.Sleep(time.Second)
		s.Carry("after the ttl", "", 0, 1, 2)
		s.Is("Release", k.Release(s.Ctx), redlock.ErrLost)
	})
	t.Run("and KeepAlive may be called again", func(t *testing.T) {
		harness.OnStage(t, 3, func(s *harness.Stage) {
			k := s.Take(s.Locker(redlock.Options{}), 9*time.Second)
			_, stop := k.KeepAlive(s.Ctx)
			stop()
			time.Sleep(8 * time.Second)
			held, stop := k.KeepAlive(s.Ctx)
			defer stop()
			time.Sleep(time.Minute)
			if held.Err() != nil || !k.Valid() {
				t.Errorf("lost: %v", context.Cause(held))
			}
		})
	})
}

func TestManyKeepALock(t *testing.T) {
	harness.OnStage(t, 3, func(s *harness.Stage) {
		l := s.Locker(redlock.Options{})
		k := s.Take(l, 9*time.Second)
		var held []context.Context
		var stops []context.CancelFunc
		for range 10 {
			h, stop := k.KeepAlive(s.Ctx)
			held, stops = append(held, h), append(stops, stop)
		}
		time.Sleep(30 * time.Second)
		if n := len(s.Told(0, "extend")); n > 12 {
			t.Errorf("renewals in 30s: got %d, want about 10: not one each", n)
		}
		for i := range 9 {
			stops[i]()
		}
		time.Sleep(30 * time.Second)
		for i, h := range held {
			if ended := h.Err() != nil; ended != (i < 9) {
				t.Errorf("context %d ended: %v, want %v", i, ended, i < 9)
			}
		}
		h, stop := k.KeepAlive(s.Ctx)
		defer stop()
		for i := range 3 {
			s.Node(i).Hang()
		}
		s.Ended(h, time.Minute)
		s.Is("the other context", held[9].Err(), context.Canceled)
		s.Is("the cause", context.Cause(held[9]), redlock.ErrLost)
		s.Is("the cause", context.Cause(h), redlock.ErrLost)
		s.Clean(l)
	})
}

func TestAKeepAliveEndsWithItsParent(t *testing.T) {
	harness.OnStage(t, 3, func(s *harness.Stage) {
		k := s.Take(s.Locker(redlock.Options{}), 9*time.Second)
		why := errors.New("shutting down")
		ctx, cancel := context.WithCancelCause(s.Ctx)
		held, stop := k.KeepAlive(ctx)
		defer stop()
		time.Sleep(5 * time.Second)
		cancel(why)
		s.Is("the cause", context.Cause(held), why)
		if !k.Valid() {
			t.Errorf("not valid: a context's end does not end the lock")
		}
		sent := len(s.Told(0, "extend"))
		time.Sleep(time.Minute)
		if got := len(s.Told(0, "extend")); got != sent {
			t.Errorf("renewals after the parent's end: got %d, want none", got-sent)
		}
		dead, stop2 := s.Take(s.Locker(redlock.Options{}), 9*time.Second).KeepAlive(ctx)
		defer stop2()
		s.Is("a KeepAlive of a context that is over", context.Cause(dead), why)
	})
}

func TestAKeepAliveOfALockThatIsOverHasEnded(t *testing.T) {
	harness.OnStage(t, 3, func(s *harness.Stage) {
		l := s.Locker(redlock.Options{})
		k := s.Take(l, 9*time.Second)
		before, stop := k.KeepAlive(s.Ctx)
		defer stop()
		s.Is("Release", k.Release(s.Ctx), nil)
		after, stop := k.KeepAlive(s.Ctx)
		defer stop()
		for name, h := range map[string]context.Context{"before": before, "after": after} {
			s.Is("KeepAlive "+name+" the release", h.Err(), context.Canceled)
			if errors.Is(context.Cause(h), redlock.ErrLost) {
				t.Errorf("the cause of KeepAlive %s the release is ErrLost, and nothing was lost", name)
			}
		}
		time.Sleep(time.Minute)
		if got := s.Told(0, "extend"); len(got) > 0 {
			t.Errorf("renewals after the release: got %d, want none", len(got))
		}
		s.Clean(l)
	})
	t.Run("lost", func(t *testing.T) {
		harness.OnStage(t, 3, func(s *harness.Stage) {
			k := s.Take(s.Locker(redlock.Options{}), time.Second)
			time.Sleep(2 * time.Second)
			held, stop := k.KeepAlive(s.Ctx)
			defer stop()
			s.Is("the context", held.Err(), context.Canceled)
			s.Is("the cause", context.Cause(held), redlock.ErrLost)
		})
	})
	t.Run("closed", func(t *testing.T) {
		harness.OnStage(t, 3, func(s *harness.Stage) {
			l := s.Locker(redlock.Options{})
			k := s.Take(l, 9*time.Second)
			before, stop := k.KeepAlive(s.Ctx)
			defer stop()
			s.Is("Close", l.Close(), nil)
			s.Is("the cause", context.Cause(before), redlock.ErrClosed)
			after, stop := k.KeepAlive(s.Ctx)
			defer stop()
			if after.Err() == nil {
				t.Errorf("KeepAlive after Close: got a context that is alive")
			}
			s.Carry("afterwards", "", 0, 1, 2)
		})
	})
}

// A renewal and a release at the same moment leave no key, whichever comes first.
//
// Attack 62.
func TestARenewalAndAReleaseAtOnceLeaveNothing(t *testing.T) {
	for off := time.Duration(0); off < 3*time.Millisecond; off += 100 * time.Microsecond {
		harness.OnStage(t, 3, func(s *harness.Stage) {
			l := s.Locker(redlock.Options{})
			s.Slow(time.Millisecond, 2)
			k := s.Take(l, time.Second)
			held, stop := k.KeepAlive(s.Ctx)
			defer stop()
			first := make(chan struct{})
			s.Once(0, "extend", func() { close(first) })
			<-first
			time.Sleep(off)
			s.Is("Release", k.Release(s.Ctx), nil)
			s.Is("the context", held.Err(), context.Canceled)
			s.Clean(l)
		})
	}
}

// Options.Grace.

func TestContextsEndGraceBeforeUntil(t *testing.T) {
	for name, fault := range map[string]func(s *harness.Stage, i int){
		"all nodes hang":          func(s *harness.Stage, i int) { s.Node(i).Hang() },
		"an extension hangs":      func(s *harness.Stage, i int) { s.Once(i, "extend", s.Node(i).Hang) },
		"all nodes answer errors": func(s *harness.Stage, i int) { s.Node(i).Fail("LOADING Redis is loading the dataset in memory") },
	} {
		for ttl, grace := range map[time.Duration]time.Duration{50 * time.Millisecond: 10 * time.Millisecond, 9 * time.Second: 5 * time.Second, time.Minute: time.Nanosecond} {
			t.Run(fmt.Sprintf("%s, ttl %v, grace %v", name, ttl, grace), func(t *testing.T) {
				harness.OnStage(t, 3, func(s *harness.Stage) {
					var seen harness.Observer
					l := s.Locker(redlock.Options{Grace: grace, Observe: seen.Observe})
					k := s.Take(l, ttl)
					held, stop := k.KeepAlive(s.Ctx)
					defer stop()
					time.Sleep(ttl * 5)
					if got := k.Until(); time.Until(got) < ttl/2 {
						t.Fatalf("Until: got %v from now, want a lock that is renewed", time.Until(got))
					}
					for i := range 3 {
						fault(s, i)
					}
					at := s.Ended(held, 2*ttl)
					until := k.Until() // a renewal may have been answered before the fault struck
					notice := max(grace, time.Millisecond)
					if got := until.Sub(at); got < notice || got > notice+time.Millisecond {
						t.Errorf("the context ended %v before Until, want %v", got, notice)
					}
					s.Is("the cause", context.Cause(held), redlock.ErrLost)
					if grace < time.Millisecond {
						return // too short to do anything in
					}
					s.Says(context.Cause(held), "not renewed", "ends at "+until.Format("15:04:05.000"))

					t.Log("the lock is held until Until, and is not extended any more, whoever asks")
					for i := range 3 {
						s.Node(i).Resume()
						s.Node(i).Fail("")
					}
					time.Sleep(notice / 2)
					s.Is("Extend", k.Extend(s.Ctx), redlock.ErrLost)
					again, _ := k.KeepAlive(s.Ctx)
					s.Is("the cause of another KeepAlive", context.Cause(again), redlock.ErrLost)
					stop()
					time.Sleep(time.Until(until) - 2*time.Millisecond)
					if !k.Valid() || !k.Until().Equal(until) {
						t.Errorf("right before Until: valid %v, Until moved by %v; want a lock that is held as long as before", k.Valid(), k.Until().Sub(until))
					}
					s.Carry("right before Until", k.Value(), 0, 1, 2)
					time.Sleep(2 * time.Millisecond)
					if k.Valid() {
						t.Errorf("valid at Until")
					}
					if got := seen.Count(redlock.OpLost); got != 1 {
						t.Errorf("losses observed: got %d, want 1", got)
					}
					s.Is("Release", k.Release(s.Ctx), redlock.ErrLost)
					time.Sleep(2 * oneTrip)
					s.Carry("after Until", k.Value())
					for _, c := range s.Told(0, "rollback", "release") {
						if c.At.Before(until) {
							t.Errorf("a node was told to remove the lock %v before Until", until.Sub(c.At))
						}
					}
					s.Clean(l)
				})
			})
		}
	}
}

// Work that stops in time does not keep the others waiting until Until.
func TestAReleaseWithinTheGraceFreesTheLockAtOnce(t *testing.T) {
	for name, release := range map[string]func(s *harness.Stage, l *redlock.Locker, k *redlock.Lock){
		"Release": func(s *harness.Stage, _ *redlock.Locker, k *redlock.Lock) {
			s.Is("Release", k.Release(s.Ctx), nil)
			s.Is("Release again", k.Release(s.Ctx), nil)
		},
		"Close":         func(s *harness.Stage, l *redlock.Locker, k *redlock.Lock) { s.Is("Close", l.Close(), nil) },
		"LeaveToExpire": func(s *harness.Stage, l *redlock.Locker, k *redlock.Lock) { k.LeaveToExpire() },
	} {
		t.Run(name, func(t *testing.T) {
			harness.OnStage(t, 3, func(s *harness.Stage) {
				l, other := s.Locker(redlock.Options{Grace: 3 * time.Second}), s.Locker(redlock.Options{})
				k := s.Take(l, 9*time.Second)
				held, stop := k.KeepAlive(s.Ctx)
				defer stop()
				for i := range 3 {
					s.Node(i).Fail("LOADING Redis is loading the dataset in memory")
				}
				s.Ended(held, time.Minute)
				until := k.Until()
				for i := range 3 {
					s.Node(i).Fail("")
				}
				time.Sleep(time.Second)
				s.Carry("within the grace", k.Value(), 0, 1, 2)
				release(s, l, k)
				if k.Valid() {
					t.Errorf("valid after %s", name)
				}
				if name == "LeaveToExpire" {
					time.Sleep(time.Until(until) + 2*oneTrip)
					s.Carry("left to expire, after Until", k.Value(), 0, 1, 2)
					return
				}
				next := s.Take(other, 20*time.Second)
				if !next.Until().Add(-harness.ValidFor(20*time.Second, 1)).Before(until) {
					t.Errorf("the next holder began after the old Until")
				}
				time.Sleep(10 * time.Second)
				s.Carry("the next holder's", next.Value(), 0, 1, 2)
			})
		})
	}
}

func TestRunWithGraceSaysThatTheLockWasLost(t *testing.T) {
	why := errors.New("fn's own")
	for name, fn := range map[string]func(ctx context.Context) error{
		"fn gives an error of its own": func(ctx context.Context) error { <-ctx.Done(); return why },
		"fn ends well":                 func(ctx context.Context) error { <-ctx.Done(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			harness.OnStage(t, 3, func(s *harness.Stage) {
				l := s.Locker(redlock.Options{Grace: 3 * time.Second})
				var k *redlock.Lock
				var fnErr error
				err := l.Run(s.Ctx, job, 9*time.Second, func(ctx context.Context, lock *redlock.Lock) error {
					k = lock
					for i := range 3 {
						s.Node(i).Fail("LOADING Redis is loading the dataset in memory")
					}
					fnErr = fn(ctx)
					for i := range 3 {
						s.Node(i).Fail("")
					}
					return fnErr
				})
				s.Is("Run", err, redlock.ErrLost)
				if !errors.Is(err, fnErr) && fnErr != nil {
					t.Errorf("Run: got %v, want fn's error in it", err)
				}
				if left := time.Until(k.Until()); left < 2*time.Second {
					t.Errorf("Run returned %v before Until, want it not to wait", left)
				}
				s.Carry("after Run", k.Value())
			})
		})
	}
}

// An extension that was sent before the contexts ended is answered after that.
func TestAnExtensionThatIsAnsweredWithinTheGraceChangesNothing(t *testing.T) {
	for name, taken := range map[string]bool{"ours": false, "taken by another": true} {
		t.Run(name, func(t *testing.T) {
			harness.OnStage(t, 3, func(s *harness.Stage) {
				l := s.Locker(redlock.Options{Grace: 5 * time.Second, NodeTimeout: 4 * time.Second})
				k := s.Take(l, 21*time.Second)
				held, stop := k.KeepAlive(s.Ctx)
				defer stop()
				for i := range 3 {
					s.Node(i).Fail("LOADING Redis is loading the dataset in memory")
				}
				until := k.Until()
				time.Sleep(time.Until(until) - 5100*time.Millisecond)
				if taken {
					s.Foreign(time.Minute, 0, 1, 2)
				}
				for i := range 3 {
					s.Node(i).Fail("")
				}
				s.Slow(500*time.Millisecond, 0, 1, 2)
				err := k.Extend(s.Ctx)
				s.Ended(held, time.Millisecond)
				s.Is("the cause", context.Cause(held), redlock.ErrLost)
				s.Is("Extend", err, redlock.ErrLost)
				if !k.Until().Equal(until) {
					t.Errorf("Until moved by %v", k.Until().Sub(until))
				}
				if k.Valid() == taken {
					t.Errorf("valid: got %v, want %v", k.Valid(), !taken)
				}
				s.Slow(0, 0, 1, 2)
				time.Sleep(time.Until(until) + 2*oneTrip)
				s.Carry("after Until", k.Value())
			})
		})
	}
}

// Renewals are scheduled within the validity less Grace.
func TestTwoRenewalsMayFailBeforeTheGraceBegins(t *testing.T) {
	for _, grace := range []time.Duration{0, time.Second, 3 * time.Second, 5500 * time.Millisecond} {
		t.Run(fmt.Sprintf("grace %v", grace), func(t *testing.T) {
			harness.OnStage(t, 3, func(s *harness.Stage) {
				l := s.Locker(redlock.Options{Grace: grace})
				k := s.Take(l, 9*time.Second)
				for i := range 3 {
					s.Node(i).FailCommand("evalsha", "LOADING Redis is loading the dataset in memory")
					s.On(i, "extend", func(n int, _ []string) {
						if n == 3 {
							s.Node(i).FailCommand("evalsha", "")
						}
					})
				}
				held, stop := k.KeepAlive(s.Ctx)
				defer stop()
				time.Sleep(time.Minute)
				if held.Err() != nil || !k.Valid() {
					t.Errorf("after two renewals failed: %v", context.Cause(held))
				}
			})
		})
	}
}

// The timers stand still while a machine sleeps; what wakes within the grace is told.
func TestAMachineThatWakesWithinTheGraceIsTold(t *testing.T) {
	for name, kept := range map[string]bool{"told after waking": true, "told before the sleep": false} {
		t.Run(name, func(t *testing.T) {
			harness.OnStage(t, 3, func(s *harness.Stage) {
				var h harness.Clocks
				l := s.LockerWith(redlock.Options{Grace: 5 * time.Second}, &h, s.Cluster.Nodes())
				k := s.Take(l, 20*time.Second)
				held, stop := k.KeepAlive(s.Ctx)
				defer stop()
				for i := range 3 {
					s.Node(i).Fail("LOADING Redis is loading the dataset in memory")
				}
				if kept {
					time.Sleep(2500 * time.Millisecond)
					s.Suspend(&h, 14*time.Second)
					woke := time.Now()
					if !k.Valid() {
						t.Errorf("not valid before Until")
					}
					if at := s.Ended(held, time.Minute); at.Sub(woke) > time.Second {
						t.Errorf("told %v after waking, want within a second", at.Sub(woke))
					}
					if !k.Valid() {
						t.Errorf("not valid before Until, when told")
					}
				} else {
					s.Ended(held, time.Minute)
					s.Suspend(&h, time.Hour)
				}
				s.Is("the cause", context.Cause(held), redlock.ErrLost)
				time.Sleep(4 * time.Second)
				if k.Valid() {
					t.Errorf("valid after Until")
				}
				s.Is("Extend", k.Extend(s.Ctx), redlock.ErrLost)
			})
		})
	}
}

func TestAGraceThatLeavesNoTimeToRenewIsRefused(t *testing.T) {
	harness.OnStage(t, 3, func(s *harness.Stage) {
		l := s.Locker(redlock.Options{Grace: 2 * time.Second})
		for what, call := range map[string]func() error{
			"TryAcquire": func() error { return harness.Second(l.TryAcquire(s.Ctx, job, 3*time.Second)) },
			"Acquire":    func() error { return harness.Second(l.Acquire(s.Ctx, job, 3*time.Second)) },
			"Adopt":      func() error { return harness.Second(l.Adopt(s.Ctx, job, "me:1", 3*time.Second)) },
			"Run": func() error {
				return l.Run(s.Ctx, job, 3*time.Second, func(context.Context, *redlock.Lock) error { return nil })
			},
		} {
			err := call()
			if err == nil {
				t.Fatalf("%s: got no error", what)
			}
			s.Says(err, "Options.Grace 2s", "ttl 3s", "greatest usable Grace is 1.917s", "smallest usable ttl is 3.129s")
		}
		if n := len(s.Told(0)); n > 0 {
			t.Errorf("commands sent: got %d, want none", n)
		}
	})
}

// Run.

func TestRunGivesWhatFnGave(t *testing.T) {
	harness.OnStage(t, 3, func(s *harness.Stage) {
		l := s.Locker(redlock.Options{})
		why := errors.New("fn's own")
		var k *redlock.Lock
		err := l.Run(s.Ctx, job, time.Second, func(ctx context.Context, lock *redlock.Lock) error {
			k = lock
			time.Sleep(time.Minute) // far beyond the ttl
			if ctx.Err() != nil || !lock.Valid() {
				t.Errorf("lost after a minute: %v", context.Cause(ctx))
			}
			s.Carry("during fn", lock.Value(), 0, 1, 2)
			return why
		})
		if err != why {
			t.Errorf("got %v, want fn's error alone", err)
		}
		if k.Valid() {
			t.Errorf("valid after Run")
		}
		s.Is("Run", l.Run(s.Ctx, job, time.Second, func(context.Context, *redlock.Lock) error { return nil }), nil)
		s.Clean(l)
	})
}

// Attack 85.
func TestRunSaysThatTheLockWasLost(t *testing.T) {
	why := errors.New("fn's own")
	for _, c := range []struct {
		name string
		fn   func(ctx context.Context) error
		want []error
	}{
		{"fn minds its context", func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }, []error{redlock.ErrLost}},
		{"fn gives an error of its own", func(ctx context.Context) error { <-ctx.Done(); return why }, []error{redlock.ErrLost, why}},
		{"fn does not look", func(ctx context.Context) error { time.Sleep(time.Minute); return nil }, []error{redlock.ErrLost}},
	} {
		t.Run(c.name, func(t *testing.T) {
			harness.OnStage(t, 3, func(s *harness.Stage) {
				l := s.Locker(redlock.Options{})
				err := l.Run(s.Ctx, job, 2*time.Second, func(ctx context.Context, lock *redlock.Lock) error {
					for i := range 3 {
						s.Node(i).Hang()
					}
					err := c.fn(ctx)
					s.Is("the cause of fn's context", context.Cause(ctx), redlock.ErrLost)
					return err
				})
				for _, want := range c.want {
					s.Is("Run", err, want)
				}
				s.Clean(l)
			})
		})
	}
	t.Run("found out by the release", func(t *testing.T) {
		harness.OnStage(t, 3, func(s *harness.Stage) {
			l := s.Locker(redlock.Options{})
			err := l.Run(s.Ctx, job, 10*time.Second, func(ctx context.Context, lock *redlock.Lock) error {
				s.Foreign(time.Minute, 0, 1, 2)
				return why
			})
			s.Is("Run", err, redlock.ErrLost)
			s.Is("Run", err, why)
			s.Carry("the other's", otherValue, 0, 1, 2)
		})
	})
	t.Run("fn returns between the loss and its being told", func(t *testing.T) {
		harness.OnStage(t, 3, func(s *harness.Stage) {
			var h harness.Clocks
			l := s.LockerWith(redlock.Options{}, &h, s.Cluster.Nodes())
			err := l.Run(s.Ctx, job, 10*time.Second, func(ctx context.Context, lock *redlock.Lock) error {
				s.Suspend(&h, time.Hour)
				return nil
			})
			s.Is("Run", err, redlock.ErrLost)
		})
	})
	t.Run("a release that too few answer is no loss", func(t *testing.T) {
		harness.OnStage(t, 3, func(s *harness.Stage) {
			l := s.Locker(redlock.Options{})
			err := l.Run(s.Ctx, job, 10*time.Second, func(ctx context.Context, lock *redlock.Lock) error {
				s.Node(0).Hang()
				s.Node(1).Hang()
				return nil
			})
			s.Is("Run", err, nil)
			s.Clean(l)
		})
	})
	t.Run("not acquired: fn is not called", func(t *testing.T) {
		harness.OnStage(t, 3, func(s *harness.Stage) {
			l := s.Locker(redlock.Options{})
			s.Foreign(time.Hour, 0, 1, 2)
			ctx, cancel := context.WithTimeout(s.Ctx, time.Second)
			defer cancel()
			err := l.Run(ctx, job, 10*time.Second, func(ctx context.Context, lock *redlock.Lock) error {
				t.Errorf("fn was called")
				return nil
			})
			s.Is("Run", err, context.DeadlineExceeded)
			s.Is("Run", err, redlock.ErrHeld)
		})
	})
}

// What may happen once per interval: fn leaves the lock to expire, and that is how it ends.
func TestRunOfALockThatFnLeavesToExpire(t *testing.T) {
	why := errors.New("fn's own")
	for _, c := range []struct {
		name string
		fn   func(lock *redlock.Lock) error
		want error
	}{
		{"at its end", func(lock *redlock.Lock) error { lock.LeaveToExpire(); return nil }, nil},
		{"and fails", func(lock *redlock.Lock) error { lock.LeaveToExpire(); return why }, why},
		{"and goes on beyond Until", func(lock *redlock.Lock) error {
			lock.LeaveToExpire()
			time.Sleep(time.Minute)
			return nil
		}, nil},
		{"but releases it before", func(lock *redlock.Lock) error {
			lock.Release(context.Background())
			lock.LeaveToExpire()
			return nil
		}, redlock.ErrLost},
	} {
		t.Run(c.name, func(t *testing.T) {
			harness.OnStage(t, 3, func(s *harness.Stage) {
				l := s.Locker(redlock.Options{})
				var value string
				began := time.Now()
				err := l.Run(s.Ctx, job, 10*time.Second, func(_ context.Context, lock *redlock.Lock) error {
					value = lock.Value()
					return c.fn(lock)
				})
				s.Is("Run", err, c.want)
				if c.want == nil && time.Since(began) < 9*time.Second {
					s.Carry("left to expire", value, s.All()...)
				}
			})
		})
	}
}

// Past Until there is nothing that could be left to expire: the lock is lost.
func TestALockThatIsLeftToExpirePastUntilIsLost(t *testing.T) {
	harness.OnStage(t, 3, func(s *harness.Stage) {
		var h harness.Clocks
		l := s.LockerWith(redlock.Options{}, &h, s.Cluster.Nodes())
		err := l.Run(s.Ctx, job, 10*time.Second, func(ctx context.Context, lock *redlock.Lock) error {
			s.Suspend(&h, time.Hour)
			lock.LeaveToExpire()
			s.Is("the cause of fn's context", context.Cause(ctx), redlock.ErrLost)
			return nil
		})
		s.Is("Run", err, redlock.ErrLost)
		k := s.Take(l, 10*time.Second)
		s.Suspend(&h, 10*time.Second)
		k.LeaveToExpire()
		s.Is("Release", k.Release(s.Ctx), redlock.ErrLost)
		s.Clean(l)
	})
}

// Attack 85.
func TestRunReleasesWhenFnPanicsOrExits(t *testing.T) {
	harness.OnStage(t, 3, func(s *harness.Stage) {
		l := s.Locker(redlock.Options{})
		var fnCtx context.Context
		func() {
			defer func() {
				if got := recover(); got != "fn's own" {
					t.Errorf("recovered: got %v, want fn's panic", got)
				}
			}()
			l.Run(s.Ctx, job, 10*time.Second, func(ctx context.Context, lock *redlock.Lock) error {
				fnCtx = ctx
				panic("fn's own")
			})
		}()
		if fnCtx.Err() == nil {
			t.Errorf("fn's context is alive after the panic")
		}
		s.Clean(l)
	})
	t.Run("Goexit", func(t *testing.T) {
		harness.OnStage(t, 3, func(s *harness.Stage) {
			l := s.Locker(redlock.Options{})
			var wg sync.WaitGroup
			wg.Go(func() {
				l.Run(s.Ctx, job, 10*time.Second, func(ctx context.Context, lock *redlock.Lock) error {
					runtime.Goexit()
					return nil
				})
			})
			wg.Wait()
			s.Clean(l)
		})
	})
}

// A lock is not reentrant: who asks for it again under the lock would wait for itself.
func TestALockIsNotReentrant(t *testing.T) {
	harness.OnStage(t, 3, func(s *harness.Stage) {
		l, other := s.Locker(redlock.Options{}), s.Locker(redlock.Options{})
		under := func(context.Context, *redlock.Lock) error {
			t.Error("the inner fn is called")
			return nil
		}
		refused := func(what string, ctx context.Context, fence int64) {
			t.Helper()
			for i := range 3 {
				s.Node(i).Record(true)
			}
			ctx, stop := context.WithTimeout(ctx, time.Second)
			defer stop()
			_, acquire := l.Acquire(ctx, job, time.Second)
			_, try := l.TryAcquire(ctx, job, time.Minute)
			run := l.Run(ctx, job, time.Second, under)
			for name, err := range map[string]error{"Acquire": acquire, "TryAcquire": try, "Run": run} {
				harness.CheckIs(t, what+": "+name, err, redlock.ErrNested)
				harness.CheckIsNot(t, what+": "+name, err, redlock.ErrHeld, redlock.ErrNoQuorum, context.Canceled)
				s.Says(err, `redlock: acquire "jobs/42": `, fmt.Sprintf("fence %d", fence), "not reentrant")
			}
			if sent := s.Told(0, "acquire"); len(sent) > 0 {
				t.Errorf("%s: got %v sent, want nothing", what, sent)
			}
		}
		began := time.Now()
		s.Is("Run", l.Run(s.Ctx, job, 10*time.Second, func(ctx context.Context, lock *redlock.Lock) error {
			refused("within Run", ctx, lock.Fence())
			derived, stop := context.WithTimeout(context.WithoutCancel(ctx), time.Hour)
			defer stop()
			refused("by a derived context", derived, lock.Fence())
			s.Is("Run of another key", l.Run(ctx, "other", time.Second, func(ctx context.Context, _ *redlock.Lock) error {
				refused("within Run of another key within Run", ctx, lock.Fence())
				return nil
			}), nil)
			held, end := lock.KeepAlive(context.Background())
			defer end()
			refused("by a context of KeepAlive", held, lock.Fence())
			if !lock.Valid() {
				t.Error("the outer lock is not valid any more")
			}
			// What is not detected: another Locker, another chain of calls.
			_, err := other.TryAcquire(ctx, job, time.Second)
			s.Is("TryAcquire by another Locker", err, redlock.ErrHeld)
			_, err = l.TryAcquire(s.Ctx, job, time.Second)
			s.Is("TryAcquire with another context", err, redlock.ErrHeld)
			return nil
		}), nil)
		if d := time.Since(began); d > 20*time.Millisecond {
			t.Errorf("it took %v, want nobody to wait", d)
		}
		for _, end := range []struct {
			how string
			f   func(lock *redlock.Lock)
		}{
			{"released", func(lock *redlock.Lock) { s.Is("Release", lock.Release(s.Ctx), nil) }},
			{"lost", func(lock *redlock.Lock) {
				for i := range 3 {
					s.Node(i).Evict(job)
				}
				s.Is("Extend", lock.Extend(s.Ctx), redlock.ErrLost)
			}},
		} {
			err := l.Run(s.Ctx, job, 10*time.Second, func(ctx context.Context, lock *redlock.Lock) error {
				end.f(lock)
				k, err := l.Acquire(context.WithoutCancel(ctx), job, time.Second)
				s.Is("Acquire once the outer lock is "+end.how, err, nil)
				s.Is("Release", k.Release(s.Ctx), nil)
				return nil
			})
			s.Is("Run of a lock that is "+end.how, err, redlock.ErrLost)
		}
		s.Is("Run", l.Run(s.Ctx, job, time.Second, func(ctx context.Context, lock *redlock.Lock) error {
			k, err := l.Adopt(ctx, job, lock.Value(), time.Second) // it does not wait
			s.Is("Adopt of the lock itself", err, nil)
			k.LeaveToExpire()
			return nil
		}), redlock.ErrLost)
		time.Sleep(time.Second)
		s.Clean(l)
	})
}

// Attack 85.
func TestRunWithAContextThatEndsReleasesAllTheSame(t *testing.T) {
	harness.OnStage(t, 3, func(s *harness.Stage) {
		l := s.Locker(redlock.Options{})
		ctx, cancel := context.WithCancel(s.Ctx)
		err := l.Run(ctx, job, 10*time.Second, func(ctx context.Context, lock *redlock.Lock) error {
			cancel()
			<-ctx.Done()
			return ctx.Err()
		})
		s.Is("Run", err, context.Canceled)
		if strings.Contains(err.Error(), "lost") {
			t.Errorf("got %v, and nothing was lost", err)
		}
		time.Sleep(2 * oneTrip)
		s.Carry("afterwards", "", 0, 1, 2)
		s.Clean(l)
	})
}
