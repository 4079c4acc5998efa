package waiting_test

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

// adopts is Adopt of the stage's lock that has to succeed.
func (s *stage) adopts(l *redlock.Locker, value redlock.Value, ttl time.Duration) *redlock.Lock {
	s.Helper()
	k, err := l.Adopt(s.Ctx, job, value, ttl)
	if err != nil {
		s.Fatalf("Adopt: got %v, want no error", err)
	}
	return k
}

// adoptsFor is Adopt of the stage's lock that is given up after a while.
func (s *stage) adoptsFor(while time.Duration, l *redlock.Locker, value redlock.Value, ttl time.Duration) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Ctx, while)
	defer cancel()
	s.Is("Adopt", harness.Second(l.Adopt(ctx, job, value, ttl)), context.DeadlineExceeded)
}

func TestAnAdoptedLockIsItsNewHolders(t *testing.T) {
	onStage(t, 5, func(s *stage) {
		a, b, c := s.Locker(redlock.Options{}), s.Locker(redlock.Options{}), s.Locker(redlock.Options{})
		given := s.Take(a, 10*time.Second)
		held, stop := given.KeepAlive(s.Ctx)
		defer stop()
		time.Sleep(time.Second)
		began := time.Now()
		k := s.adopts(b, given.Value(), 20*time.Second)
		if got, want := k.Until(), began.Add(harness.ValidFor(20*time.Second, 1)); !got.Equal(want) {
			s.Errorf("Until: got %v after the call, want %v", got.Sub(began), want.Sub(began))
		}
		if k.Fence() <= given.Fence() || k.Value() == given.Value() {
			s.Errorf("got token %d and value %s, want them greater than, and other than, the giver's %d and %s", k.Fence(), k.Value().Secret(), given.Fence(), given.Value().Secret())
		}
		time.Sleep(oneTrip)
		s.Carry("afterwards", k.Value(), s.All()...)
		s.Is("a third one's TryAcquire", harness.Second(c.TryAcquire(s.Ctx, job, time.Second)), redlock.ErrHeld)

		// The giver.
		if at := s.Ended(held, time.Minute); at.Sub(began) > 10*time.Second/3 {
			s.Errorf("the giver's KeepAlive ended %v after the hand-over, want with the next renewal", at.Sub(began))
		}
		s.Is("its cause", context.Cause(held), redlock.ErrLost)
		harness.Check(s, "the giver's lock is valid", given.Valid(), false)
		s.Is("the giver's Extend", given.Extend(s.Ctx), redlock.ErrLost)
		s.Is("the giver's Release", given.Release(s.Ctx), redlock.ErrLost)
		time.Sleep(3 * time.Second)
		s.Carry("after all of the giver's", k.Value(), s.All()...)
		if left := s.Node(0).TTL(job); left > 20*time.Second-time.Since(began)+oneTrip {
			s.Errorf("the key has %v left, want no more than the new holder gave it", left)
		}

		s.Is("the new holder's Extend", k.Extend(s.Ctx), nil)
		s.Is("the new holder's Release", k.Release(s.Ctx), nil)
		s.Clean(a, b)
	})
}

// Attack 84.
func TestTheGiversFirstExtendOrReleaseAfterTheHandOverIsLost(t *testing.T) {
	for name, call := range map[string]func(*redlock.Lock, context.Context) error{"Extend": (*redlock.Lock).Extend, "Release": (*redlock.Lock).Release} {
		runStage(t, name, 3, func(s *stage) {
			a, b := s.Locker(redlock.Options{}), s.Locker(redlock.Options{})
			given := s.Take(a, 10*time.Second)
			k := s.adopts(b, given.Value(), 10*time.Second)
			s.Is(name, call(given, s.Ctx), redlock.ErrLost)
			time.Sleep(time.Second)
			s.Carry("afterwards", k.Value(), s.All()...)
		})
	}
}

// Attack 84.
func TestOfTwoThatAdoptAtOnceAtMostOneSucceeds(t *testing.T) {
	for n := 1; n <= 5; n++ {
		for range 2 {
			onStage(t, n, func(s *stage) {
				given := s.Take(s.Locker(redlock.Options{}), 10*time.Second)
				time.Sleep(oneTrip)
				lockers := make([]*redlock.Locker, 4)
				for i := range lockers {
					lockers[i] = s.Locker(redlock.Options{})
				}
				var mu sync.Mutex
				var won []*redlock.Lock
				var wg sync.WaitGroup
				for _, l := range lockers {
					wg.Go(func() {
						k, err := l.Adopt(s.Ctx, job, given.Value(), 10*time.Second)
						mu.Lock()
						defer mu.Unlock()
						if err == nil {
							won = append(won, k)
						} else if !errors.Is(err, redlock.ErrLost) && !errors.Is(err, redlock.ErrNoQuorum) {
							s.Errorf("got %v, want ErrLost", err)
						}
					})
				}
				wg.Wait()
				time.Sleep(3 * time.Second)
				switch len(won) {
				case 0: // all put back what they had taken
					s.Is("the giver's Extend", given.Extend(s.Ctx), nil)
					s.Is("the giver's Release", given.Release(s.Ctx), nil)
				case 1:
					s.Is("the winner's Extend", won[0].Extend(s.Ctx), nil)
					s.Is("the giver's Extend", given.Extend(s.Ctx), redlock.ErrLost)
					s.Is("the winner's Release", won[0].Release(s.Ctx), nil)
				default:
					s.Fatalf("N=%d: %d adopted one lock", n, len(won))
				}
				s.Clean(lockers...)
			})
		}
	}
}

// Attack 84.
func TestAFailedAdoptionGivesTheLockBack(t *testing.T) {
	onAdopt := func(fault func(n *redlocktest.Node)) func(n *redlocktest.Node) {
		return func(n *redlocktest.Node) {
			harness.On(n, "adopt", job, func(nth int, _ []string) {
				if nth == 1 {
					fault(n)
				}
			})
		}
	}
	for name, fault := range map[string]func(n *redlocktest.Node){
		"refused":          harness.Faults["refused"],
		"hung":             harness.Faults["hung"],
		"cut off":          harness.Faults["cut off"],
		"loading":          harness.Faults["loading"],
		"replies lost":     onAdopt(func(n *redlocktest.Node) { n.LoseReplies(1) }),
		"connection reset": onAdopt(func(n *redlocktest.Node) { n.DropReplies(1) }),
	} {
		runStage(t, name, 5, func(s *stage) {
			a, b := s.Locker(redlock.Options{}), s.Locker(redlock.Options{})
			given := s.Take(a, 60*time.Second)
			time.Sleep(oneTrip)
			s.Each(fault, 0, 2, 4)
			_, err := b.Adopt(s.Ctx, job, given.Value(), 10*time.Second)
			s.Is("Adopt", err, redlock.ErrNoQuorum)
			s.Says(err, "3 of 5 votes needed")
			s.Mend()
			time.Sleep(5 * time.Second)
			s.Carry("afterwards", given.Value(), s.All()...)
			for i := range 5 {
				if left := s.Node(i).TTL(job); left > 55*time.Second || left < 40*time.Second {
					s.Errorf("node %d: the giver's key has %v left, want what was left of its 60s", i, left)
				}
				harness.Check(s, fmt.Sprint("owed to node ", i), seam.Peek(b).Nodes[i].Owed, 0)
			}
			harness.Check(s, "the giver's lock is valid", given.Valid(), true)
			s.Reconnect(a)
			s.Is("the giver's Extend", given.Extend(s.Ctx), nil)
			s.Is("the giver's Release", given.Release(s.Ctx), nil)
			s.Clean(a, b)
		})
	}
	for name, adopt := range map[string]func(s *stage, b *redlock.Locker, h *harness.Clocks, value redlock.Value){
		"cancelled": func(s *stage, b *redlock.Locker, _ *harness.Clocks, value redlock.Value) {
			s.Slow(100*time.Millisecond, 0, 1)
			s.adoptsFor(50*time.Millisecond, b, value, 10*time.Second)
		},
		"the validity was over": func(s *stage, b *redlock.Locker, h *harness.Clocks, value redlock.Value) {
			s.Once(0, "adopt", func() { h.MoveWall(time.Minute) })
			s.Is("Adopt", harness.Second(b.Adopt(s.Ctx, job, value, 10*time.Second)), redlock.ErrNoQuorum)
		},
	} {
		runStage(t, name, 3, func(s *stage) {
			var h harness.Clocks
			a, b := s.Locker(redlock.Options{}), s.LockerWith(redlock.Options{}, &h, s.Cluster.Nodes())
			given := s.Take(a, 60*time.Second)
			time.Sleep(oneTrip)
			adopt(s, b, &h, given.Value())
			time.Sleep(3 * time.Second)
			s.Carry("afterwards", given.Value(), s.All()...)
			s.Is("the giver's Extend", given.Extend(s.Ctx), nil)
		})
	}
}

func TestAReplyLostInAnAdoptionIsMadeUpFor(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		a, b := s.Locker(redlock.Options{}), s.Locker(redlock.Options{})
		given := s.Take(a, 10*time.Second)
		time.Sleep(oneTrip)
		harness.Unanswered(s.Node(0), "adopt", job, 1)
		k := s.adopts(b, given.Value(), 10*time.Second)
		time.Sleep(3 * time.Second)
		s.Carry("all nodes executed it", k.Value(), s.All()...)
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
		k := s.adopts(slow, given.Value(), 10*time.Second)
		back := s.adopts(fast, k.Value(), 10*time.Second)
		if k.Fence() <= given.Fence() || back.Fence() <= k.Fence() {
			s.Errorf("tokens: got %d, %d, and %d when it was adopted back; want them to grow", given.Fence(), k.Fence(), back.Fence())
		}
	})
}

func TestAnAdoptionOfWhatIsNotHeldIsLost(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		_, err := l.Adopt(s.Ctx, job, redlock.Value{}, 10*time.Second)
		harness.CheckIsNot(s, "Adopt of an empty value", err, redlock.ErrLost)
		s.Says(err, "value")
		harness.Check(s, "commands", len(s.Told(0)), 0)

		_, err = l.Adopt(s.Ctx, job, redlock.ValueOf(otherValue), 10*time.Second)
		s.Is("Adopt of nothing", err, redlock.ErrLost)
		s.Says(err, "adopt", "missing")
		time.Sleep(time.Second)
		s.Carry("afterwards", redlock.Value{}, s.All()...)

		k := s.Take(s.Locker(redlock.Options{}), 10*time.Second)
		time.Sleep(oneTrip)
		s.Is("Adopt of another value", harness.Second(l.Adopt(s.Ctx, job, redlock.ValueOf(otherValue), 10*time.Second)), redlock.ErrLost)
		time.Sleep(time.Second)
		s.Carry("afterwards", k.Value(), s.All()...)
		s.Is("the holder's Extend", k.Extend(s.Ctx), nil)
	})
}

// A node that has forgotten the lock does not count, and gets the new value with the
// first Extend.
func TestANodeThatForgotDoesNotCountInAnAdoption(t *testing.T) {
	onStage(t, 5, func(s *stage) {
		a, b := s.Locker(redlock.Options{}), s.Locker(redlock.Options{})
		given := s.Take(a, 20*time.Second)
		time.Sleep(oneTrip)
		s.Evict(0, 1)
		k := s.adopts(b, given.Value(), 20*time.Second)
		time.Sleep(oneTrip)
		s.Carry("after the hand-over", k.Value(), 2, 3, 4)
		s.Is("Extend", k.Extend(s.Ctx), nil)
		time.Sleep(2 * oneTrip)
		s.Carry("after the first Extend", k.Value(), s.All()...)
		s.Evict(0, 1, 2)
		s.Is("Adopt from two of five", harness.Second(a.Adopt(s.Ctx, job, k.Value(), 20*time.Second)), redlock.ErrLost)
		time.Sleep(time.Second)
		s.Carry("put back", k.Value(), 3, 4)
	})
}

// An observer releases the lock of a holder that is gone.
func TestALockWhoseHolderIsGoneIsReleasedByWhoAdoptsIt(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		clients := s.Cluster.Clients()
		s.Take(s.LockerWith(redlock.Options{Name: "gone"}, nil, harness.Nodes(clients)), time.Hour)
		time.Sleep(oneTrip)
		s.Cluster.Cut(clients...)
		observer := s.Locker(redlock.Options{})
		status, err := observer.Inspect(s.Ctx, job)
		s.Is("Inspect", err, nil)
		harness.Check(s, "the holder", status.Holder, "gone")
		k := s.adopts(observer, status.Value, time.Second)
		if left := s.Node(0).TTL(job); left < 59*time.Minute {
			s.Errorf("the key has %v left: no ttl is ever shortened, want what was left of the hour", left)
		}
		s.Is("Release", k.Release(s.Ctx), nil)
		s.Take(s.Locker(redlock.Options{}), time.Second)
		s.Cluster.Mend(clients...)
	})
}

// twoAdoptionsGivenUp has one Locker adopt the lock k of its own twice at once, and give up both.
// The first replaces the value on every node and its restore takes another 40 ms from now on; the
// second replaces nothing, and has nothing to undo. What is sent from now on travels fast.
func (s *stage) twoAdoptionsGivenUp(l *redlock.Locker, k *redlock.Lock, ttl time.Duration) {
	s.Helper()
	s.Each(func(n *redlocktest.Node) { n.Delay(40*time.Millisecond, 0) })
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() { s.adoptsFor(10*time.Millisecond, l, k.Value(), ttl) })
		time.Sleep(time.Millisecond)
	}
	wg.Wait()
	time.Sleep(35 * time.Millisecond)
	s.Slow(0, s.All()...)
	harness.Check(s, "keys with a clean-up under way", seam.Peek(l).Leaving, 1)
}

// Whatever is sent next of the giver's goes after every restore of its value, not after the last that began.
func TestWhatTheGiverSendsWaitsForEveryRestore(t *testing.T) {
	for name, send := range map[string]func(s *stage, k *redlock.Lock, h *harness.Clocks){
		"a release": func(s *stage, k *redlock.Lock, _ *harness.Clocks) { s.Is("the giver's Release", k.Release(s.Ctx), nil) },
		"an extension": func(s *stage, k *redlock.Lock, _ *harness.Clocks) {
			s.Is("the giver's Extend", k.Extend(s.Ctx), nil)
			s.Is("the giver's Release", k.Release(s.Ctx), nil)
		},
		"the removal of a lost lock, which is a clean-up like any other": func(s *stage, k *redlock.Lock, h *harness.Clocks) {
			h.MoveWall(heldLong)
			s.Is("the giver's Extend", k.Extend(s.Ctx), redlock.ErrLost)
		},
	} {
		runStage(t, name, 3, func(s *stage) {
			var h harness.Clocks
			l := s.LockerWith(redlock.Options{}, &h, s.Cluster.Nodes())
			k := s.Take(l, heldLong)
			time.Sleep(oneTrip)
			s.twoAdoptionsGivenUp(l, k, heldLong)
			send(s, k, &h)
			time.Sleep(5 * time.Second)
			s.Carry("afterwards", redlock.Value{}, s.All()...)
			s.Clean(l)
		})
	}
}

// Also where it is handed to the next in line, who goes right behind the release.
func TestAHandOverWaitsForTheRestore(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		k := s.Take(l, heldLong)
		next := s.settled(l, heldLong)
		s.twoAdoptionsGivenUp(l, k, heldLong)
		next.follows(k, "behind the restore", 100*time.Millisecond)
		time.Sleep(time.Second)
		s.Carry("afterwards", next.lock.Value(), s.All()...)
		s.Is("Release", next.lock.Release(s.Ctx), nil)
		time.Sleep(time.Second)
		s.Clean(l)
	})
}

// A restore that a node refuses is sent again later; the giver's release must not go to that node
// before.
func TestAReleaseWaitsForARestoreThatIsOwed(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		k := s.Take(l, time.Hour)
		time.Sleep(oneTrip)
		s.Each(func(n *redlocktest.Node) { n.Delay(40*time.Millisecond, 0) })
		s.adoptsFor(10*time.Millisecond, l, k.Value(), time.Hour)
		time.Sleep(50 * time.Millisecond) // the adoption has been executed, the restore is on its way
		s.Node(2).FailCommand("set", "OOM command not allowed when used memory > 'maxmemory'.")
		time.Sleep(200 * time.Millisecond)
		s.Slow(0, s.All()...)
		if got := seam.Peek(l).Nodes[2].Owed; got != 1 {
			s.Fatalf("owed to node 2: got %d, want the restore", got)
		}
		s.Is("the giver's Release", k.Release(s.Ctx), nil)
		time.Sleep(10 * time.Second) // it is tried again meanwhile, and the release not before
		s.Node(2).FailCommand("set", "")
		time.Sleep(time.Minute)
		s.Carry("afterwards", redlock.Value{}, s.All()...)
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
			s.Each(func(n *redlocktest.Node) { n.Delay(0, 40*time.Millisecond) })
			var wg sync.WaitGroup
			for range 2 {
				wg.Go(func() { s.adoptsFor(20*time.Millisecond, l, k.Value(), time.Hour) })
			}
			time.Sleep(10 * time.Millisecond)
			if lost {
				h.MoveWall(2 * time.Hour)
				s.Is("Extend", k.Extend(s.Ctx), redlock.ErrLost)
			}
			k.Release(s.Ctx)
			wg.Wait()
			time.Sleep(5 * time.Second)
			s.Carry("afterwards", redlock.Value{}, s.All()...)
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
			s.Carry("afterwards", redlock.Value{}, s.All()...)
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
	for name, adopt := range map[string]func(s *stage, l *redlock.Locker, k *redlock.Lock){
		"cancelled": func(s *stage, l *redlock.Locker, k *redlock.Lock) {
			s.Slow(40*time.Millisecond, s.All()...)
			s.adoptsFor(10*time.Millisecond, l, k.Value(), longer)
		},
		"replies lost": func(s *stage, l *redlock.Locker, k *redlock.Lock) {
			s.Each(func(n *redlocktest.Node) { harness.Unanswered(n, "adopt", job, 1) }, 0, 1)
			s.Is("Adopt", harness.Second(l.Adopt(s.Ctx, job, k.Value(), longer)), redlock.ErrNoQuorum)
		},
		"hung before they executed it": func(s *stage, l *redlock.Locker, k *redlock.Lock) {
			for i := range 2 {
				s.Once(i, "adopt", s.Node(i).Hang)
			}
			s.Is("Adopt", harness.Second(l.Adopt(s.Ctx, job, k.Value(), longer)), redlock.ErrNoQuorum)
			time.Sleep(2 * time.Second)
		},
		"two missing": func(s *stage, l *redlock.Locker, k *redlock.Lock) {
			s.Evict(0, 1)
			s.Is("Adopt", harness.Second(l.Adopt(s.Ctx, job, k.Value(), longer)), redlock.ErrLost)
		},
	} {
		for _, again := range []int{1, 3} {
			runStage(t, fmt.Sprintf("%s, %d adoptions", name, again), 3, func(s *stage) {
				a, b := s.Locker(redlock.Options{}), s.Locker(redlock.Options{})
				given := s.Take(a, ttl)
				taken := time.Now()
				time.Sleep(oneTrip)
				store := s.All()
				if name == "two missing" {
					store = store[2:]
				}
				for range again {
					adopt(s, b, given)
					s.Mend()
					if len(store) == 3 {
						time.Sleep(time.Second)
					}
				}
				time.Sleep(time.Second)
				s.Carry("afterwards", given.Value(), store...)
				// A node of these tests tells times in whole milliseconds, each rounded down.
				want := ttl - time.Since(taken)
				for _, i := range store {
					if left := s.Node(i).TTL(job); left > want+2*oneTrip || left < want-3*time.Millisecond*time.Duration(again) {
						s.Errorf("node %d: the giver's key has %v left, want %v", i, left, want)
					}
				}
				time.Sleep(ttl + oneTrip - time.Since(taken))
				s.Carry("when the giver's ttl is over", redlock.Value{}, s.All()...)
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
		s.adoptsFor(30*time.Millisecond, b, given.Value(), time.Hour)
		s.Each(harness.Faults["refused"]) // they have executed it, and nobody knows
		time.Sleep(3 * time.Second)
		s.Mend()
		time.Sleep(5 * time.Second)
		s.Carry("afterwards", redlock.Value{}, s.All()...)
		s.Clean(b)
	})
}

// The adoption is executed everywhere, its replies are lost, and it is undone late. Whoever has seen the adopter's ttl is told that
// the lock ends sooner, or has ended.
func TestAFailedAdoptionThatIsUndoneWakesWaiters(t *testing.T) {
	const given = 2 * time.Second
	for name, undone := range map[string]time.Duration{"before the old value's end": 1500 * time.Millisecond, "after it": 2500 * time.Millisecond} {
		runStage(t, name, 3, func(s *stage) {
			giver, l, other := s.Locker(redlock.Options{}), s.Locker(redlock.Options{}), s.Locker(redlock.Options{})
			k := s.Take(giver, given)
			taken := k.Started()
			for i := range 3 {
				n := s.Node(i)
				n.OnCommand(func(args []string) {
					switch harness.Verb(args) {
					case "adopt":
						n.DropReplies(1)
					case "ping": // the restore comes after one
						time.Sleep(time.Until(taken.Add(undone)))
					}
				})
			}
			time.Sleep(time.Second)
			s.Is("Adopt", harness.Second(l.Adopt(s.Ctx, job, k.Value(), heldLong)), redlock.ErrNoQuorum)
			w := s.settled(other, heldLong)
			w.passes("since the lock is free", taken.Add(max(given, undone)), 2*promptly)
		})
	}
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
		first := harness.Background(func() error { return harness.Second(b.Adopt(s.Ctx, job, dead.Value(), time.Hour)) })
		time.Sleep(time.Millisecond)
		s.Slow(0, 1)
		s.Slow(20*time.Millisecond, 0)
		_, err := c.Adopt(s.Ctx, job, dead.Value(), time.Hour)
		if err == nil || <-first == nil {
			s.Fatal("one has adopted it: this tests what both leave behind")
		}
		s.Mend(0, 1)
		time.Sleep(12 * time.Second) // node 2 stays hung: of the others each one counts
		s.Is("Release", s.Take(s.Locker(redlock.Options{}), time.Second).Release(s.Ctx), nil)
		s.Mend(2)
	})
}

// A key that somebody has set without a ttl, by hand say, and that stays so unless the adoption
// succeeds.
func TestWhatHasNoTTLIsAdoptedWithOne(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		s.Foreign(0, s.All()...)
		s.Slow(40*time.Millisecond, s.All()...)
		s.adoptsFor(10*time.Millisecond, l, redlock.ValueOf(otherValue), 10*time.Second)
		time.Sleep(time.Minute)
		s.Carry("given back", redlock.ValueOf(otherValue), s.All()...)
		s.Each(func(n *redlocktest.Node) { harness.Check(s, "its ttl: none, as before", n.TTL(job), 0) })

		s.Slow(0, s.All()...)
		s.adopts(l, redlock.ValueOf(otherValue), 10*time.Second)
		time.Sleep(oneTrip)
		s.expires("adopted", 10*time.Second)
		time.Sleep(11 * time.Second)
		s.Carry("when the ttl is over", redlock.Value{}, s.All()...)
	})
}

// expires fails the test unless the lock expires on every node, within the ttl.
func (s *stage) expires(what string, ttl time.Duration) {
	s.Helper()
	s.Each(func(n *redlocktest.Node) {
		if left := n.TTL(job); left <= 0 || left > ttl {
			s.Errorf("%s: the key on node %s has %v left, want %v", what, n.Name(), left, ttl)
		}
	})
}

// Our own value can lose its ttl by somebody else's PERSIST; an extension gives it one again.
func TestAnExtensionGivesATTLToWhatHasNone(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		k := s.Take(s.Locker(redlock.Options{}), 10*time.Second)
		time.Sleep(oneTrip)
		s.Each(func(n *redlocktest.Node) { n.Do("PERSIST", job) })
		s.Is("Extend", k.Extend(s.Ctx), nil)
		time.Sleep(oneTrip)
		s.expires("extended", 10*time.Second)
	})
}

func TestAReleaseWaitsForTheRestore(t *testing.T) {
	for _, displaced := range []bool{false, true} { // a restore under way is forgotten when another clean-up of the key begins
		runStage(t, fmt.Sprint("another clean-up began: ", displaced), 3, func(s *stage) {
			l := s.Locker(redlock.Options{})
			k := s.Take(l, 20*time.Second)
			time.Sleep(time.Second)
			s.Each(func(n *redlocktest.Node) { n.Delay(0, 40*time.Millisecond) }, 1, 2) // the restore meets a slow way
			s.adoptsFor(10*time.Millisecond, l, k.Value(), 20*time.Second)
			if displaced {
				ctx, cancel := context.WithTimeout(s.Ctx, time.Millisecond)
				defer cancel()
				l.TryAcquire(ctx, job, 20*time.Second)
			}
			s.Slow(0, 1, 2)
			k.Release(s.Ctx)
			time.Sleep(5 * time.Second)
			s.Carry("afterwards", redlock.Value{}, s.All()...)
		})
	}
}

// An adoption never shortens the ttl, and a LeaveUntil in progress may lengthen it: the error of a Release that a majority did
// not answer names no earlier time than that at which the keys end.
func TestAnUnansweredReleaseSaysWhenItsKeysExpire(t *testing.T) {
	expires := func(s *stage, err error) time.Time {
		_, at, ok := strings.Cut(err.Error(), "any remaining key expires by ")
		if !ok {
			s.Fatalf("got %v, want when its keys expire", err)
		}
		d, err := time.Parse("15:04:05.000", at[:12])
		s.Is("the time", err, nil)
		y, m, day := time.Now().Date()
		return time.Date(y, m, day, d.Hour(), d.Minute(), d.Second(), d.Nanosecond(), time.Now().Location())
	}
	runStage(t, "adopted", 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		giver := s.Take(s.Locker(redlock.Options{}), time.Hour)
		k, err := l.Adopt(s.Ctx, job, giver.Value(), 10*time.Second)
		s.Is("Adopt", err, nil)
		s.Hang(1, 2)
		err = k.Release(s.Ctx)
		s.Is("Release", err, redlock.ErrNoQuorum)
		if ends := time.Now().Add(s.Node(1).TTL(job)); ends.After(expires(s, err)) && !strings.Contains(err.Error(), "unless it was to live longer when it was adopted") {
			s.Errorf("got %v, and a key lives until %v", err, ends)
		}
		s.Resume(1, 2)
		s.Clean(l)
	})
	runStage(t, "left", 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		k := s.Take(l, 10*time.Second)
		time.Sleep(time.Second)
		s.Each((*redlocktest.Node).PartitionReplies, 0, 1, 2)
		left := harness.Background(func() error { return k.LeaveUntil(s.Ctx, time.Now().Add(time.Hour)) })
		time.Sleep(100 * time.Millisecond)
		err := k.Release(s.Ctx)
		s.Is("Release", err, redlock.ErrNoQuorum)
		if ends := time.Now().Add(s.Node(1).TTL(job)); ends.After(expires(s, err)) {
			s.Errorf("got %v, and a key lives until %v", err, ends)
		}
		s.Is("LeaveUntil", <-left, redlock.ErrLost)
		s.Clean(l)
	})
}

// Who may not give a register a ttl makes none that nothing gives one later.
func TestAnAdoptionThatMayNotExpireTheRegisterMakesNone(t *testing.T) {
	for _, unfenced := range []bool{false, true} {
		onStage(t, 3, func(s *stage) {
			a, b := s.Locker(redlock.Options{}), s.Locker(redlock.Options{NoFence: unfenced})
			given := s.Take(a, 10*time.Second)
			s.Each(func(n *redlocktest.Node) { n.Evict(jobRegister) })
			s.FailCommand("pexpire", "NOPERM this user has no permissions to run the 'pexpire' command", s.All()...)
			s.Is("Adopt", harness.Second(b.Adopt(s.Ctx, job, given.Value(), time.Minute)), redlock.ErrNoQuorum)
			if got := s.registers(); len(got) > 0 {
				s.Errorf("the nodes have the registers %v, want none", got)
			}
			s.FailCommand("pexpire", "", s.All()...)
		})
	}
}
