package directed_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/harness"
	"github.com/seed-ce352c9b/redlock/internal/seam"
	"github.com/seed-ce352c9b/redlock/redlocktest"
)

func TestAnAdoptedLockIsItsNewHolders(t *testing.T) {
	onStage(t, 5, func(s *stage) {
		a, b, c := s.Locker(redlock.Options{}), s.Locker(redlock.Options{}), s.Locker(redlock.Options{})
		given := s.Take(a, 10*time.Second)
		held, stop := given.KeepAlive(s.Ctx)
		defer stop()
		time.Sleep(time.Second)
		began := time.Now()
		k, err := b.Adopt(s.Ctx, job, given.Value(), 20*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := k.Until(), began.Add(harness.ValidFor(20*time.Second, 1)); !got.Equal(want) {
			t.Errorf("Until: got %v after the call, want %v", got.Sub(began), want.Sub(began))
		}
		if k.Fence() <= given.Fence() {
			t.Errorf("token: got %d, want above the giver's %d", k.Fence(), given.Fence())
		}
		if k.Value() == given.Value() {
			t.Errorf("the value is the giver's, want a new one")
		}
		time.Sleep(oneTrip)
		s.Carry("afterwards", k.Value(), s.All()...)
		_, err = c.TryAcquire(s.Ctx, job, time.Second)
		s.Is("a third one's TryAcquire", err, redlock.ErrHeld)

		// The giver.
		if at := s.Ended(held, time.Minute); at.Sub(began) > 10*time.Second/3 {
			t.Errorf("the giver's KeepAlive ended %v after the hand-over, want with the next renewal", at.Sub(began))
		}
		s.Is("its cause", context.Cause(held), redlock.ErrLost)
		if given.Valid() {
			t.Errorf("the giver's lock is valid")
		}
		s.Is("the giver's Extend", given.Extend(s.Ctx), redlock.ErrLost)
		s.Is("the giver's Release", given.Release(s.Ctx), redlock.ErrLost)
		time.Sleep(3 * time.Second)
		s.Carry("after all of the giver's", k.Value(), s.All()...)
		if left := s.Node(0).TTL(job); left > 20*time.Second-time.Since(began)+oneTrip {
			t.Errorf("the key has %v left, want no more than the new holder gave it", left)
		}

		s.Is("the new holder's Extend", k.Extend(s.Ctx), nil)
		s.Is("the new holder's Release", k.Release(s.Ctx), nil)
		s.Clean(a, b)
	})
}

// Attack 84.
func TestTheGiversFirstExtendOrReleaseAfterTheHandOverIsLost(t *testing.T) {
	for name, call := range map[string]func(s *stage, k *redlock.Lock) error{
		"Extend":  func(s *stage, k *redlock.Lock) error { return k.Extend(s.Ctx) },
		"Release": func(s *stage, k *redlock.Lock) error { return k.Release(s.Ctx) },
	} {
		runStage(t, name, 3, func(s *stage) {
			a, b := s.Locker(redlock.Options{}), s.Locker(redlock.Options{})
			given := s.Take(a, 10*time.Second)
			k, err := b.Adopt(s.Ctx, job, given.Value(), 10*time.Second)
			if err != nil {
				s.Fatal(err)
			}
			s.Is(name, call(s, given), redlock.ErrLost)
			time.Sleep(time.Second)
			s.Carry("afterwards", k.Value(), 0, 1, 2)
		})
	}
}

// Attack 84.
func TestOfTwoThatAdoptAtOnceAtMostOneSucceeds(t *testing.T) {
	for n := 1; n <= 5; n++ {
		for range 2 {
			onStage(t, n, func(s *stage) {
				a := s.Locker(redlock.Options{})
				given := s.Take(a, 10*time.Second)
				time.Sleep(oneTrip)
				var mu sync.Mutex
				var won []*redlock.Lock
				var wg sync.WaitGroup
				var lockers []*redlock.Locker
				for range 4 {
					l := s.Locker(redlock.Options{})
					lockers = append(lockers, l)
				}
				for _, l := range lockers {
					wg.Go(func() {
						k, err := l.Adopt(s.Ctx, job, given.Value(), 10*time.Second)
						mu.Lock()
						defer mu.Unlock()
						if err == nil {
							won = append(won, k)
						} else if !errors.Is(err, redlock.ErrLost) && !errors.Is(err, redlock.ErrNoQuorum) {
							t.Errorf("got %v, want ErrLost", err)
						}
					})
				}
				wg.Wait()
				if len(won) > 1 {
					t.Fatalf("N=%d: %d adopted one lock", n, len(won))
				}
				time.Sleep(3 * time.Second)
				if len(won) == 1 {
					s.Is("the winner's Extend", won[0].Extend(s.Ctx), nil)
					s.Is("the giver's Extend", given.Extend(s.Ctx), redlock.ErrLost)
					s.Is("the winner's Release", won[0].Release(s.Ctx), nil)
				} else { // all put back what they had taken
					s.Is("the giver's Extend", given.Extend(s.Ctx), nil)
					s.Is("the giver's Release", given.Release(s.Ctx), nil)
				}
				s.Clean(lockers...)
			})
		}
	}
}

// Attack 84.
func TestAFailedAdoptionGivesTheLockBack(t *testing.T) {
	for name, fault := range map[string]func(s *stage, i int){
		"refused":          func(s *stage, i int) { s.Node(i).Refuse(true) },
		"hung":             func(s *stage, i int) { s.Node(i).Hang() },
		"cut off":          func(s *stage, i int) { s.Node(i).Partition() },
		"replies lost":     func(s *stage, i int) { s.Once(i, "adopt", func() { s.Node(i).LoseReplies(1) }) },
		"connection reset": func(s *stage, i int) { s.Once(i, "adopt", func() { s.Node(i).DropReplies(1) }) },
		"an error":         func(s *stage, i int) { s.Node(i).Fail("LOADING Redis is loading the dataset in memory") },
	} {
		runStage(t, name, 5, func(s *stage) {
			a, b := s.Locker(redlock.Options{}), s.Locker(redlock.Options{})
			given := s.Take(a, 60*time.Second)
			time.Sleep(oneTrip)
			for _, i := range []int{0, 2, 4} {
				fault(s, i)
			}
			_, err := b.Adopt(s.Ctx, job, given.Value(), 10*time.Second)
			s.Is("Adopt", err, redlock.ErrNoQuorum)
			s.Says(err, "3 of 5 votes needed")
			for i := range 5 {
				s.Mend(i)
			}
			time.Sleep(5 * time.Second)
			s.Carry("afterwards", given.Value(), s.All()...)
			for i := range 5 {
				if left := s.Node(i).TTL(job); left > 55*time.Second || left < 40*time.Second {
					s.Errorf("node %d: the giver's key has %v left, want what was left of its 60s", i, left)
				}
				if got := seam.Peek(b).Nodes[i].Owed; got > 0 {
					s.Errorf("owed to node %d: got %d, want 0", i, got)
				}
			}
			if !given.Valid() {
				s.Errorf("the giver's lock is not valid")
			}
			s.Reconnect(a)
			s.Is("the giver's Extend", given.Extend(s.Ctx), nil)
			s.Is("the giver's Release", given.Release(s.Ctx), nil)
			s.Clean(a, b)
		})
	}
	runStage(t, "cancelled", 3, func(s *stage) {
		a, b := s.Locker(redlock.Options{}), s.Locker(redlock.Options{})
		given := s.Take(a, 60*time.Second)
		time.Sleep(oneTrip)
		s.Slow(100*time.Millisecond, 0, 1)
		ctx, cancel := context.WithTimeout(s.Ctx, 50*time.Millisecond)
		defer cancel()
		_, err := b.Adopt(ctx, job, given.Value(), 10*time.Second)
		s.Is("Adopt", err, context.DeadlineExceeded)
		time.Sleep(3 * time.Second)
		s.Carry("afterwards", given.Value(), 0, 1, 2)
		s.Is("the giver's Extend", given.Extend(s.Ctx), nil)
	})
	runStage(t, "the validity was over", 3, func(s *stage) {
		var h harness.Clocks
		a, b := s.Locker(redlock.Options{}), s.LockerWith(redlock.Options{}, &h, s.Cluster.Nodes())
		given := s.Take(a, 60*time.Second)
		time.Sleep(oneTrip)
		s.Once(0, "adopt", func() { h.MoveWall(time.Minute) })
		_, err := b.Adopt(s.Ctx, job, given.Value(), 10*time.Second)
		s.Is("Adopt", err, redlock.ErrNoQuorum)
		time.Sleep(3 * time.Second)
		s.Carry("afterwards", given.Value(), 0, 1, 2)
	})
}

func TestAReplyLostInAnAdoptionIsMadeUpFor(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		a, b := s.Locker(redlock.Options{}), s.Locker(redlock.Options{})
		given := s.Take(a, 10*time.Second)
		time.Sleep(oneTrip)
		s.Once(0, "adopt", func() { s.Node(0).DropReplies(1) })
		k, err := b.Adopt(s.Ctx, job, given.Value(), 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		s.Carry("all nodes executed it", k.Value(), 0, 1, 2)
		s.Is("the new holder's Extend", k.Extend(s.Ctx), nil)
		s.Is("the new holder's Release", k.Release(s.Ctx), nil)
		s.Clean(b)
	})
}

func TestTheTokenOfAnAdoptionIsRaisedWhereRegistersAreAhead(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		fast := s.LockerWith(redlock.Options{}, &harness.Clocks{WallAhead: time.Hour}, s.Cluster.Nodes())
		slow := s.LockerWith(redlock.Options{}, &harness.Clocks{WallAhead: -time.Hour}, s.Cluster.Nodes())
		given := s.Take(fast, 10*time.Second)
		k, err := slow.Adopt(s.Ctx, job, given.Value(), 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if k.Fence() <= given.Fence() {
			t.Errorf("token: got %d, want above the giver's %d", k.Fence(), given.Fence())
		}
		back, err := fast.Adopt(s.Ctx, job, k.Value(), 10*time.Second)
		if err != nil || back.Fence() <= k.Fence() {
			t.Errorf("adopted back: got %v and a token that is not above %d", err, k.Fence())
		}
	})
}

func TestAnAdoptionOfWhatIsNotHeldIsLost(t *testing.T) {
	runStage(t, "another value", 3, func(s *stage) {
		a, b := s.Locker(redlock.Options{}), s.Locker(redlock.Options{})
		k := s.Take(a, 10*time.Second)
		time.Sleep(oneTrip)
		_, err := b.Adopt(s.Ctx, job, otherValue, 10*time.Second)
		s.Is("Adopt", err, redlock.ErrLost)
		s.Says(err, "adopt")
		time.Sleep(time.Second)
		s.Carry("afterwards", k.Value(), 0, 1, 2)
		s.Is("the holder's Extend", k.Extend(s.Ctx), nil)
	})
	runStage(t, "nothing", 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		_, err := l.Adopt(s.Ctx, job, otherValue, 10*time.Second)
		s.Is("Adopt", err, redlock.ErrLost)
		s.Says(err, "missing")
		time.Sleep(time.Second)
		s.Carry("afterwards", "", 0, 1, 2)
	})
	runStage(t, "an empty value", 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		_, err := l.Adopt(s.Ctx, job, "", 10*time.Second)
		if err == nil || errors.Is(err, redlock.ErrLost) || !strings.Contains(err.Error(), "value") {
			s.Errorf("got %v, want an error that names the value", err)
		}
		if got := s.Told(0); len(got) > 0 {
			s.Errorf("nodes were told %v, want nothing", harness.Verbs(got))
		}
	})
}

// A node that has forgotten the lock does not count, and gets the new value with the
// first Extend.
func TestANodeThatForgotDoesNotCountInAnAdoption(t *testing.T) {
	onStage(t, 5, func(s *stage) {
		a, b := s.Locker(redlock.Options{}), s.Locker(redlock.Options{})
		given := s.Take(a, 20*time.Second)
		time.Sleep(oneTrip)
		s.Node(0).Evict(job)
		s.Node(1).Evict(job)
		k, err := b.Adopt(s.Ctx, job, given.Value(), 20*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(oneTrip)
		s.Carry("after the hand-over", k.Value(), 2, 3, 4)
		s.Is("Extend", k.Extend(s.Ctx), nil)
		time.Sleep(2 * oneTrip)
		s.Carry("after the first Extend", k.Value(), s.All()...)
	})
	runStage(t, "three of five", 5, func(s *stage) {
		a, b := s.Locker(redlock.Options{}), s.Locker(redlock.Options{})
		given := s.Take(a, 20*time.Second)
		time.Sleep(oneTrip)
		for _, i := range []int{0, 1, 2} {
			s.Node(i).Evict(job)
		}
		_, err := b.Adopt(s.Ctx, job, given.Value(), 20*time.Second)
		s.Is("Adopt", err, redlock.ErrLost)
		time.Sleep(time.Second)
		s.Carry("put back", given.Value(), 3, 4)
	})
}

// An observer releases the lock of a holder that is gone.
func TestALockWhoseHolderIsGoneIsReleasedByWhoAdoptsIt(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		clients := s.Cluster.Clients()
		gone := s.LockerWith(redlock.Options{Name: "gone"}, nil, harness.Nodes(clients))
		s.Take(gone, time.Hour)
		time.Sleep(oneTrip)
		s.Cluster.Cut(clients...)
		observer, next := s.Locker(redlock.Options{}), s.Locker(redlock.Options{})
		status, err := observer.Inspect(s.Ctx, job)
		if err != nil || status.Holder != "gone" {
			t.Fatalf("Inspect: got %q, %v", status.Holder, err)
		}
		k, err := observer.Adopt(s.Ctx, job, status.Value, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if left := s.Node(0).TTL(job); left < 59*time.Minute {
			t.Errorf("the key has %v left: no ttl is ever shortened, want what was left of the hour", left)
		}
		s.Is("Release", k.Release(s.Ctx), nil)
		s.Take(next, time.Second)
		s.Cluster.Mend(clients...)
	})
}

// twoAdoptionsGivenUp has one Locker adopt the lock k of its own twice at once, and give up both.
// The first replaces the value on every node and its restore takes another 40 ms from now on; the
// second replaces nothing, and has nothing to undo. What is sent from now on travels fast.
func (s *stage) twoAdoptionsGivenUp(l *redlock.Locker, k *redlock.Lock, ttl time.Duration) {
	s.Helper()
	for i := range s.Cluster.Len() {
		s.Node(i).Delay(40*time.Millisecond, 0)
	}
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(s.Ctx, 10*time.Millisecond)
			defer cancel()
			_, err := l.Adopt(ctx, job, k.Value(), ttl)
			s.Is("Adopt", err, context.DeadlineExceeded)
		})
		time.Sleep(time.Millisecond)
	}
	wg.Wait()
	time.Sleep(35 * time.Millisecond)
	for i := range s.Cluster.Len() {
		s.Node(i).Delay(0, 0)
	}
	harness.Check(s, "keys with a clean-up under way", seam.Peek(l).Leaving, 1)
}

// The giver's next question goes after every restore of its value, not after the last that began.
func TestAReleaseWaitsForEveryRestore(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		k := s.Take(l, 20*time.Second)
		time.Sleep(oneTrip)
		s.twoAdoptionsGivenUp(l, k, 20*time.Second)
		s.Is("the giver's Release", k.Release(s.Ctx), nil)
		time.Sleep(5 * time.Second)
		s.Carry("afterwards", "", s.All()...)
		s.Clean(l)
	})
}

func TestAnExtensionWaitsForEveryRestore(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		k := s.Take(l, 20*time.Second)
		time.Sleep(oneTrip)
		s.twoAdoptionsGivenUp(l, k, 20*time.Second)
		s.Is("the giver's Extend", k.Extend(s.Ctx), nil)
		s.Is("the giver's Release", k.Release(s.Ctx), nil)
		time.Sleep(5 * time.Second)
		s.Clean(l)
	})
}

// Also where it is handed to the next in line, who goes right behind the release.
func TestAHandOverWaitsForTheRestore(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		k := s.Take(l, heldLong)
		next := s.settled(l, heldLong)
		s.twoAdoptionsGivenUp(l, k, heldLong)
		released := time.Now()
		s.Is("the giver's Release", k.Release(s.Ctx), nil)
		next.gets("behind the restore", released, 100*time.Millisecond)
		time.Sleep(time.Second)
		s.Carry("afterwards", next.lock.Value(), s.All()...)
		s.Is("Release", next.lock.Release(s.Ctx), nil)
		time.Sleep(time.Second)
		s.Clean(l)
	})
}

// The removal of a lost lock is a clean-up like any other: it goes after the restore, too.
func TestTheRemovalOfALostLockWaitsForTheRestore(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		var h harness.Clocks
		l := s.LockerWith(redlock.Options{}, &h, s.Cluster.Nodes())
		k := s.Take(l, 20*time.Second)
		time.Sleep(oneTrip)
		s.twoAdoptionsGivenUp(l, k, 20*time.Second)
		h.MoveWall(time.Minute)
		s.Is("the giver's Extend", k.Extend(s.Ctx), redlock.ErrLost)
		time.Sleep(5 * time.Second)
		s.Carry("afterwards", "", s.All()...)
	})
}

// A restore that a node refuses is sent again later; the giver's release must not go to that node
// before.
func TestAReleaseWaitsForARestoreThatIsOwed(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		k := s.Take(l, time.Hour)
		time.Sleep(oneTrip)
		for i := range 3 {
			s.Node(i).Delay(40*time.Millisecond, 0)
		}
		ctx, cancel := context.WithTimeout(s.Ctx, 10*time.Millisecond)
		defer cancel()
		_, err := l.Adopt(ctx, job, k.Value(), time.Hour)
		s.Is("Adopt", err, context.DeadlineExceeded)
		time.Sleep(50 * time.Millisecond) // the adoption has been executed, the restore is on its way
		s.Node(2).FailCommand("set", "OOM command not allowed when used memory > 'maxmemory'.")
		time.Sleep(200 * time.Millisecond)
		for i := range 3 {
			s.Node(i).Delay(0, 0)
		}
		if got := seam.Peek(l).Nodes[2].Owed; got != 1 {
			t.Fatalf("owed to node 2: got %d, want the restore", got)
		}
		s.Is("the giver's Release", k.Release(s.Ctx), nil)
		time.Sleep(10 * time.Second) // it is tried again meanwhile, and the release not before
		s.Node(2).FailCommand("set", "")
		time.Sleep(time.Minute)
		s.Carry("afterwards", "", s.All()...)
		s.Clean(l)
	})
}

// The giver's release meets the adopter's value. When the adoption fails, the giver's value must
// not come back: nobody would remove it.
func TestAReleaseInTheMidstOfAnAdoptionThatFails(t *testing.T) {
	for _, lost := range []bool{false, true} {
		runStage(t, fmt.Sprintf("the giver has lost it: %v", lost), 3, func(s *stage) {
			var h harness.Clocks
			l := s.LockerWith(redlock.Options{}, &h, s.Cluster.Nodes())
			k := s.Take(l, time.Hour)
			time.Sleep(oneTrip)
			for i := range 3 {
				s.Node(i).Delay(0, 40*time.Millisecond)
			}
			var wg sync.WaitGroup
			for range 2 {
				wg.Go(func() {
					ctx, cancel := context.WithTimeout(s.Ctx, 20*time.Millisecond)
					defer cancel()
					_, err := l.Adopt(ctx, job, k.Value(), time.Hour)
					s.Is("Adopt", err, context.DeadlineExceeded)
				})
			}
			time.Sleep(10 * time.Millisecond)
			if lost {
				h.MoveWall(2 * time.Hour)
				s.Is("Extend", k.Extend(s.Ctx), redlock.ErrLost)
			}
			k.Release(s.Ctx)
			wg.Wait()
			time.Sleep(5 * time.Second)
			s.Carry("afterwards", "", s.All()...)
			s.Clean(l)
		})
	}
}

// What this Locker was told to release, and still owes, it does not adopt: executed while the
// adopter's value is there, the release would take nothing away.
func TestAValueWhoseReleaseIsOwedIsNotAdopted(t *testing.T) {
	for after := time.Duration(0); after < 600*time.Millisecond; after += 100 * time.Millisecond {
		runStage(t, after.String(), 3, func(s *stage) {
			l := s.Locker(redlock.Options{NodeTimeout: time.Second})
			k := s.Take(l, time.Hour)
			time.Sleep(oneTrip)
			s.Node(2).FailCommand("del", "NOPERM this user has no permissions to run the 'del' command")
			s.Is("Release", k.Release(s.Ctx), nil)
			time.Sleep(after)
			s.Node(2).Delay(0, 300*time.Millisecond)
			s.Node(2).FailCommand("del", "")
			_, err := l.Adopt(s.Ctx, job, k.Value(), time.Hour)
			s.Is("Adopt", err, redlock.ErrLost)
			if asked := s.Told(2, "adopt"); len(asked) > 0 && after > 0 { // at first the reply to the release is still on its way
				t.Errorf("a node that is owed the release was asked to adopt the value")
			}
			time.Sleep(10 * time.Second)
			s.Mend(2)
			time.Sleep(10 * time.Second)
			s.Carry("afterwards", "", s.All()...)
			s.Clean(l)
		})
	}
}

// What a failed adoption puts back lives for as long as it would have lived without it: never
// longer, or a dead holder's lock would stand for the adopter's ttl; never shorter, or the giver
// would believe in what has expired.
//
// Attack 84.
func TestAFailedAdoptionGivesBackTheLifeThatWasLeft(t *testing.T) {
	const ttl, longer = 30 * time.Second, 24 * time.Hour
	faults := map[string]func(s *stage, l *redlock.Locker, k *redlock.Lock){
		"cancelled": func(s *stage, l *redlock.Locker, k *redlock.Lock) {
			s.Slow(40*time.Millisecond, s.All()...)
			ctx, cancel := context.WithTimeout(s.Ctx, 10*time.Millisecond)
			defer cancel()
			_, err := l.Adopt(ctx, job, k.Value(), longer)
			s.Is("Adopt", err, context.DeadlineExceeded)
		},
		"replies lost": func(s *stage, l *redlock.Locker, k *redlock.Lock) {
			for i := range 2 {
				s.Once(i, "adopt", func() { s.Node(i).DropReplies(1) })
			}
			_, err := l.Adopt(s.Ctx, job, k.Value(), longer)
			s.Is("Adopt", err, redlock.ErrNoQuorum)
		},
		"hung before they executed it": func(s *stage, l *redlock.Locker, k *redlock.Lock) {
			for i := range 2 {
				s.Once(i, "adopt", func() { s.Node(i).Hang() })
			}
			_, err := l.Adopt(s.Ctx, job, k.Value(), longer)
			s.Is("Adopt", err, redlock.ErrNoQuorum)
			time.Sleep(2 * time.Second)
			for i := range 2 {
				s.Node(i).Resume()
			}
		},
		"two missing": func(s *stage, l *redlock.Locker, k *redlock.Lock) {
			s.Node(0).Evict(job)
			s.Node(1).Evict(job)
			_, err := l.Adopt(s.Ctx, job, k.Value(), longer)
			s.Is("Adopt", err, redlock.ErrLost)
		},
	}
	for name, fault := range faults {
		for _, again := range []int{1, 3} {
			runStage(t, fmt.Sprintf("%s, %d adoptions", name, again), 3, func(s *stage) {
				a, b := s.Locker(redlock.Options{}), s.Locker(redlock.Options{})
				given := s.Take(a, ttl)
				taken := time.Now()
				time.Sleep(oneTrip)
				for range again {
					fault(s, b, given)
					for i := range 3 {
						s.Mend(i)
					}
					if name != "two missing" {
						time.Sleep(time.Second)
					}
				}
				time.Sleep(time.Second)
				for i := range 3 {
					if v, _ := s.Node(i).Get(job); v == "" && name == "two missing" && i < 2 {
						continue
					} else if v != given.Value() && time.Since(taken) < ttl {
						s.Errorf("node %d holds %q, want the giver's value", i, v)
						continue
					}
					// A node of these tests tells times in whole milliseconds, each rounded down.
					want := ttl - time.Since(taken)
					if left := s.Node(i).TTL(job); left > want+2*oneTrip || left < want-3*time.Millisecond*time.Duration(again) {
						s.Errorf("node %d: the giver's key has %v left, want %v", i, left, want)
					}
				}
				time.Sleep(max(0, ttl+oneTrip-time.Since(taken)))
				s.Carry("when the giver's ttl is over", "", s.All()...)
			})
		}
	}
}

// A giver's life that ends before the restore comes is not begun anew.
func TestAFailedAdoptionPutsBackNothingThatWouldHaveExpired(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		a, b := s.Locker(redlock.Options{}), s.Locker(redlock.Options{})
		given := s.Take(a, time.Second)
		time.Sleep(oneTrip)
		s.Slow(40*time.Millisecond, s.All()...)
		ctx, cancel := context.WithTimeout(s.Ctx, 30*time.Millisecond)
		defer cancel()
		_, err := b.Adopt(ctx, job, given.Value(), time.Hour)
		s.Is("Adopt", err, context.DeadlineExceeded)
		for i := range 3 { // they have executed it, and nobody knows
			s.Node(i).Refuse(true)
		}
		time.Sleep(3 * time.Second)
		for i := range 3 {
			s.Mend(i)
		}
		time.Sleep(5 * time.Second)
		s.Carry("afterwards", "", s.All()...)
		s.Clean(b)
	})
}

// The loser of two who adopt the lock of a dead holder must not keep it from being acquired.
func TestTheLoserOfTwoAdoptersLeavesTheDeadHoldersLife(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		a, b, c := s.Locker(redlock.Options{}), s.Locker(redlock.Options{}), s.Locker(redlock.Options{})
		dead := s.Take(a, 10*time.Second)
		time.Sleep(oneTrip)
		// Each takes one node first; the third node answers neither.
		s.Node(2).Hang()
		s.Slow(20*time.Millisecond, 1)
		first := harness.Background(func() error { _, err := b.Adopt(s.Ctx, job, dead.Value(), time.Hour); return err })
		time.Sleep(time.Millisecond)
		s.Slow(0, 1)
		s.Slow(20*time.Millisecond, 0)
		_, err := c.Adopt(s.Ctx, job, dead.Value(), time.Hour)
		if err == nil || <-first == nil {
			t.Fatal("one has adopted it: this tests what both leave behind")
		}
		s.Mend(0)
		s.Mend(1)
		time.Sleep(12 * time.Second) // node 2 stays hung: of the others each one counts
		next := s.Locker(redlock.Options{})
		k, err := next.TryAcquire(s.Ctx, job, time.Second)
		s.Is("TryAcquire when the dead holder's ttl is over", err, nil)
		if err == nil {
			s.Is("Release", k.Release(s.Ctx), nil)
		}
		s.Mend(2)
	})
}

// A key that somebody has set without a ttl, by hand say, and that stays so unless the adoption
// succeeds.
func TestWhatHasNoTTLIsAdoptedWithOne(t *testing.T) {
	forever := func(s *stage) {
		for i := range 3 {
			s.Node(i).Set(job, otherValue, 0)
		}
	}
	runStage(t, "adopted", 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		forever(s)
		k, err := l.Adopt(s.Ctx, job, otherValue, 10*time.Second)
		s.Is("Adopt", err, nil)
		time.Sleep(oneTrip)
		for i := range 3 {
			if left := s.Node(i).TTL(job); left <= 0 || left > 10*time.Second {
				s.Errorf("node %d: %s has %v left, want the adopter's 10s", i, k.Value(), left)
			}
		}
		time.Sleep(11 * time.Second)
		s.Carry("when the ttl is over", "", s.All()...)
	})
	runStage(t, "given back", 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		forever(s)
		s.Slow(40*time.Millisecond, s.All()...)
		ctx, cancel := context.WithTimeout(s.Ctx, 10*time.Millisecond)
		defer cancel()
		_, err := l.Adopt(ctx, job, otherValue, 10*time.Second)
		s.Is("Adopt", err, context.DeadlineExceeded)
		time.Sleep(time.Minute)
		s.Carry("afterwards", otherValue, s.All()...)
		for i := range 3 {
			if left := s.Node(i).TTL(job); left != 0 {
				s.Errorf("node %d: the key has %v left, want no ttl, as before", i, left)
			}
		}
	})
}

// Our own value can lose its ttl by somebody else's PERSIST; an extension gives it one again.
func TestAnExtensionGivesATTLToWhatHasNone(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		k := s.Take(l, 10*time.Second)
		time.Sleep(oneTrip)
		for i := range 3 {
			s.Do(i, "PERSIST", job)
		}
		s.Is("Extend", k.Extend(s.Ctx), nil)
		time.Sleep(oneTrip)
		for i := range 3 {
			if left := s.Node(i).TTL(job); left <= 0 || left > 10*time.Second {
				t.Errorf("node %d: the key has %v left, want 10s", i, left)
			}
		}
	})
}

// A restore under way is forgotten when another clean-up of the key begins.
func TestAReleaseWaitsForTheRestoreThoughAnotherCleanUpBegan(t *testing.T) { restoreDisplaced(t, true) }

func TestAReleaseWaitsForTheRestore(t *testing.T) { restoreDisplaced(t, false) }

func restoreDisplaced(t *testing.T, displace bool) {
	staged(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		l := warmLocker(t, c, redlock.Options{})
		k := harness.Try(t, l, "k", 20*time.Second)
		o := harness.Try(t, l, "o", 20*time.Second)
		o2, err := l.Adopt(t.Context(), "o", o.Value(), 20*time.Second) // so that the script is known
		if err != nil {
			t.Fatal(err)
		}
		o2.Release(t.Context())
		time.Sleep(time.Second)
		// adopt: reaches all, but is given up; its restore meets a slow way
		c.Node(2).Delay(0, 40*time.Millisecond)
		c.Node(1).Delay(0, 40*time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		_, err = l.Adopt(ctx, "k", k.Value(), 20*time.Second)
		t.Log("adopt:", err)
		ctx2, cancel2 := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel2()
		if displace {
			_, err = l.TryAcquire(ctx2, "k", 20*time.Second)
			t.Log("try:", err)
		}
		c.Node(2).Delay(0, 0)
		c.Node(1).Delay(0, 0)
		err = k.Release(t.Context())
		t.Log("release:", err, heard(c.Node(1), "k"), heard(c.Node(2), "k"))
		time.Sleep(5 * time.Second)
		for i := range 3 {
			if v, ok := c.Node(i).Get("k"); ok {
				t.Errorf("node %d still has %s; heard %v", i, v, heard(c.Node(i), "k"))
			}
		}
	})
}
