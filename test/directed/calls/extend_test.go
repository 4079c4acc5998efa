package calls_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/harness"
	"github.com/seed-ce352c9b/redlock/redlocktest"
)

// Redis page, Making the algorithm more reliable: "The client should only consider
// the lock re-acquired if it was able to extend the lock into the majority of
// instances, and within the validity time".

// Attack 59.
func TestAnExtensionCountsFromBeforeItsFirstRequest(t *testing.T) {
	for _, slow := range []time.Duration{0, 300 * time.Millisecond, 900 * time.Millisecond} {
		runStage(t, fmt.Sprintf("answers after %v", slow), 3, func(s *stage) {
			k := s.Take(s.Locker(redlock.Options{}), 10*time.Second)
			time.Sleep(3 * time.Second)
			s.Slow(slow, 0, 1, 2)
			began := time.Now()
			s.Is("Extend", k.Extend(s.Ctx), nil)
			if took := time.Since(began); took < slow {
				s.Fatalf("it took %v, want %v: the test tests nothing", took, slow)
			}
			if got, want := k.Until(), began.Add(harness.ValidFor(10*time.Second, 1)); !got.Equal(want) {
				s.Errorf("Until: got %v after the call, want %v", got.Sub(began), want.Sub(began))
			}
			for i := range 3 {
				if left := s.Node(i).TTL(job) + time.Since(began); left < 10*time.Second {
					s.Errorf("node %d: the key expires %v after the call, want 10s", i, left)
				}
			}
		})
	}
}

// Attack 58.
func TestAnExtensionThatReachesAMinorityLeavesTheOldUntil(t *testing.T) {
	for _, name := range []string{"stopped", "hung", "replies lost", "loading"} {
		runStage(t, name, 5, func(s *stage) {
			l := s.Locker(redlock.Options{})
			k := s.Take(l, 10*time.Second)
			until := k.Until()
			time.Sleep(3 * time.Second)
			s.Each(harness.Faults[name], 0, 2, 4)
			err := k.Extend(s.Ctx)
			s.Is("Extend", err, redlock.ErrNoQuorum)
			s.Says(err, "still held until", "3 of 5 votes needed")
			if got := k.Until(); !got.Equal(until) || !k.Valid() {
				s.Errorf("afterwards: Until %v, valid %v; want %v and true", got, k.Valid(), until)
			}
			s.Carry("afterwards", k.Value(), s.All()...)
			s.Mend()
			s.Reconnect(l)
			s.Is("the next Extend", k.Extend(s.Ctx), nil)
			if !k.Until().After(until) {
				s.Errorf("Until: got %v, want after %v", k.Until(), until)
			}
			s.Is("Release", k.Release(s.Ctx), nil)
			s.Clean(l)
		})
	}
}

// Between the old Until and its answer the key may have expired, been taken and been
// freed: a late yes says nothing.
//
// Attack 81.
func TestAnExtensionThatIsCompleteAfterTheOldUntilIsLost(t *testing.T) {
	onStage(t, 3, func(s *stage) {
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
	runStage(t, "though the process slept meanwhile", 3, func(s *stage) {
		var h harness.Clocks
		l := s.LockerWith(redlock.Options{}, &h, s.Cluster.Nodes())
		k := s.Take(l, 10*time.Second)
		s.Once(0, "extend", func() { h.MoveWall(10 * time.Second) })
		s.Once(1, "extend", func() { h.MoveWall(10 * time.Second) })
		s.Is("Extend", k.Extend(s.Ctx), redlock.ErrLost)
		s.Clean(l)
	})
}

// Attack 82.
func TestALockThatExpiredAndWasTakenAndFreedIsLost(t *testing.T) {
	runStage(t, "before the extension", 3, func(s *stage) {
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
				s.Errorf("node %d was told %v, want nothing", i, harness.Verbs(got))
			}
		}
		s.Carry("afterwards", redlock.Value{}, 0, 1, 2)
	})
	runStage(t, "while the extension was under way", 3, func(s *stage) {
		l := s.Locker(redlock.Options{NodeTimeout: 450 * time.Millisecond})
		k := s.Take(l, time.Second)
		time.Sleep(900 * time.Millisecond)
		for i := range 3 {
			s.Node(i).Delay(200*time.Millisecond, 0)
		}
		s.Is("Extend", k.Extend(s.Ctx), redlock.ErrLost)
		time.Sleep(5 * time.Second)
		s.Carry("afterwards", redlock.Value{}, 0, 1, 2)
	})
}

// Attack 60.
func TestAnothersKeyIsNeverExtended(t *testing.T) {
	runStage(t, "on a majority", 5, func(s *stage) {
		l := s.Locker(redlock.Options{})
		k := s.Take(l, time.Minute)
		s.Foreign(5*time.Second, 0, 2, 4)
		err := k.Extend(s.Ctx)
		s.Is("Extend", err, redlock.ErrLost)
		s.Says(err, "node-a:6379 held")
		if k.Valid() {
			s.Errorf("valid, want lost")
		}
		time.Sleep(time.Second)
		for _, i := range []int{0, 2, 4} {
			if left := s.Node(i).TTL(job); left > 4*time.Second || left < 3*time.Second {
				s.Errorf("node %d: the other's key has %v left, want 4s", i, left)
			}
		}
		s.Carry("ours is removed", redlock.Value{}, 1, 3)
	})
	runStage(t, "on a minority", 5, func(s *stage) {
		k := s.Take(s.Locker(redlock.Options{}), time.Minute)
		s.Foreign(5*time.Second, 0, 4)
		s.Is("Extend", k.Extend(s.Ctx), nil)
		time.Sleep(time.Second)
		s.Carry("theirs", redlock.ValueOf(otherValue), 0, 4)
		if left := s.Node(0).TTL(job); left > 4*time.Second {
			s.Errorf("the other's key has %v left, want 4s", left)
		}
	})
	runStage(t, "late, after another's acquisition", 3, func(s *stage) {
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
				s.Errorf("node %d: the holder's key has %v left, want 7s", i, left)
			}
		}
		if got := harness.Verbs(s.Told(0, "extend")); len(got) != 1 {
			s.Errorf("late extensions executed: got %v, want one: the test tests nothing", got)
		}
		s.Is("the old Extend", old.Extend(s.Ctx), redlock.ErrLost)
	})
}

// Attacks 40, 42.
func TestANodeThatForgotGetsTheLockBackAndCountsFromTheNextRoundOn(t *testing.T) {
	for name, forgets := range map[string]func(s *stage, i int){
		"evicted": func(s *stage, i int) { s.Evict(i) },
		"restarted empty": func(s *stage, i int) {
			s.Node(i).Restart(false)
			s.LoadScripts(i)
		},
	} {
		runStage(t, name+": healed, and counted the next time", 5, func(s *stage) {
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
					s.Errorf("node %d: the key has %v left, want 20s", i, left)
				}
			}
			s.Each((*redlocktest.Node).Stop, 0, 1)
			s.Is("Extend by the healed ones and one more", k.Extend(s.Ctx), nil)
			s.Is("Release", k.Release(s.Ctx), nil)
			s.Clean(l)
		})
	}
	for _, c := range []struct {
		name string
		up   int           // of five nodes, and the last of them forgot
		far  time.Duration // that one
		want error
	}{
		{"not counted at once, and not healed, without a majority that says ours", 3, 0, redlock.ErrNoQuorum},
		{"nor where its answer comes after the round was decided", 2, 100 * time.Millisecond, redlock.ErrNoQuorum},
		{"but where its answer comes after a majority said ours", 5, 100 * time.Millisecond, nil},
	} {
		runStage(t, c.name, 5, func(s *stage) {
			k := s.Take(s.Locker(redlock.Options{}), 20*time.Second)
			until := k.Until()
			time.Sleep(oneTrip)
			forgot := c.up - 1
			s.Evict(forgot)
			for i := c.up; i < 5; i++ {
				s.Node(i).Stop()
			}
			s.Slow(c.far, forgot)
			if c.want == nil {
				s.Lasts("Extend", 0, func() { s.Is("Extend", k.Extend(s.Ctx), nil) })
			} else {
				s.Is("Extend", k.Extend(s.Ctx), c.want)
				harness.Check(s, "Until", k.Until(), until)
			}
			time.Sleep(2 * time.Second)
			harness.Check(s, "the node that forgot was healed", s.Values()[forgot] == k.Value().Secret(), c.want == nil)
		})
	}
	runStage(t, "another's key there is not overwritten", 3, func(s *stage) {
		k := s.Take(s.Locker(redlock.Options{}), 20*time.Second)
		time.Sleep(oneTrip)
		s.Evict(2)
		s.Once(2, "heal", func() { s.Foreign(time.Minute, 2) })
		s.Is("Extend", k.Extend(s.Ctx), nil)
		time.Sleep(time.Second)
		s.Carry("the other's", redlock.ValueOf(otherValue), 2)
	})
}

// Attacks 40, 51.
func TestALockThatAMajorityForgotIsLostAndNotTakenAnew(t *testing.T) {
	for name, forgets := range map[string]func(n *redlocktest.Node){
		"flushed":   (*redlocktest.Node).FlushAll,
		"restarted": func(n *redlocktest.Node) { n.Restart(false) },
		"by hand":   func(n *redlocktest.Node) { n.Do("DEL", job) },
	} {
		runStage(t, name, 5, func(s *stage) {
			l := s.Locker(redlock.Options{})
			k := s.Take(l, 20*time.Second)
			time.Sleep(oneTrip)
			s.Each(forgets, 0, 1, 2)
			if name == "restarted" {
				s.Reconnect(l)
			}
			err := k.Extend(s.Ctx)
			s.Is("Extend", err, redlock.ErrLost)
			s.Says(err, "node-a:6379 missing")
			harness.Check(s, "valid", k.Valid(), false)
			time.Sleep(oneTrip * 2)
			s.Carry("afterwards", redlock.Value{}, s.All()...)
			s.Clean(l)
		})
	}
}

// Attacks 24, 63, 78.
func TestALateExtensionOrHealAfterReleaseLeavesNothing(t *testing.T) {
	heals := func(n int) func(s *stage) {
		return func(s *stage) { harness.Check(s, "heals that the node executed", len(s.Told(2, "heal")), n) }
	}
	nothing := func(*stage) {}
	for _, c := range []struct {
		name          string
		missing       bool // on the last node
		before        func(s *stage)
		between, then time.Duration // the extension and the release, and until the node is mended
		after         func(s *stage)
	}{
		{"an extension that a hung node executes when it wakes", false, func(s *stage) { s.Node(2).Hang() }, 0, time.Minute, nothing},
		{"a heal that a hung node executes when it wakes", true, func(s *stage) { s.Once(2, "heal", s.Node(2).Hang) }, oneTrip, 10 * time.Second, heals(1)},
		{"a heal under way", true, func(s *stage) { s.Slow(200*time.Millisecond, 2) }, 250 * time.Millisecond, 0, heals(1)},
		{"a missing that is heard of after the release", true, func(s *stage) { s.Slow(200*time.Millisecond, 2) }, 0, 2 * time.Second, heals(0)},
	} {
		runStage(t, c.name, 3, func(s *stage) {
			l := s.Locker(redlock.Options{})
			k := s.Take(l, 20*time.Second)
			time.Sleep(oneTrip)
			if c.missing {
				s.Evict(2)
			}
			c.before(s)
			s.Is("Extend", k.Extend(s.Ctx), nil)
			time.Sleep(c.between)
			s.Is("Release", k.Release(s.Ctx), nil)
			time.Sleep(c.then)
			s.Clean(l)
			c.after(s)
		})
	}
	runStage(t, "an extension on its way", 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		k := s.Take(l, 20*time.Second)
		s.Slow(200*time.Millisecond, s.All()...)
		done := harness.Background(func() error { return k.Extend(s.Ctx) })
		time.Sleep(50 * time.Millisecond)
		s.Is("Release", k.Release(s.Ctx), nil)
		s.Is("Extend", <-done, redlock.ErrLost)
		s.Clean(l)
	})
}

// Attack 70.
func TestAnExtensionRestoresTheFenceRegister(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		k := s.Take(s.Locker(redlock.Options{}), 20*time.Second)
		time.Sleep(oneTrip)
		s.Each(func(n *redlocktest.Node) { n.Evict(jobRegister) })
		high := k.Fence() + 1e9
		s.SetRegister(high, 0) // which is not lowered
		s.Is("Extend", k.Extend(s.Ctx), nil)
		time.Sleep(oneTrip)
		for i, want := range []int64{high, k.Fence(), k.Fence()} {
			harness.Check(s, fmt.Sprint("register of node ", i), s.Register(i), want)
			if left := s.Node(i).TTL(jobRegister); left < 22*time.Hour {
				s.Errorf("node %d: its register lives for %v more, want about a day", i, left)
			}
		}
	})
}

func TestAnExtensionWhoseContextEndsGoesOn(t *testing.T) {
	onStage(t, 3, func(s *stage) {
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
