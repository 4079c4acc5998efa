package nodes_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/harness"
	"github.com/seed-ce352c9b/redlock/internal/seam"
)

// registersExpire fails the test if the lock's register on any node has no ttl.
func (s *stage) registersExpire() {
	s.Helper()
	for i := range s.Cluster.Len() {
		if s.Register(i) != 0 && s.Node(i).TTL(jobRegister) <= 0 {
			s.Errorf("node %d: the register stays for ever; the node was told %v", i, harness.Verbs(s.Told(i)))
		}
	}
}

// Whatever becomes of the attempts that raised it.
func TestEveryRegisterIsGivenALife(t *testing.T) {
	opt := redlock.Options{Retry: func(int) time.Duration { return 200 * time.Millisecond }}
	hangs := func(s *stage, l *redlock.Locker) { // another key's call finds out
		s.Hang(2)
		harness.Try(s, l, "other", 100*time.Millisecond).Release(s.Ctx)
	}
	fail := func(s *stage, l *redlock.Locker) { // and a node is flushed before each attempt
		for range 2 {
			for i := range 3 {
				s.Node(i).FlushAll()
			}
			s.Foreign(time.Hour, 0, 1, 2)
			s.Is("TryAcquire", harness.Second(l.TryAcquire(s.Ctx, job, 10*time.Second)), redlock.ErrHeld)
			time.Sleep(time.Second)
		}
	}
	for _, c := range []struct {
		name  string
		do    func(s *stage, l *redlock.Locker)
		after time.Duration // the registers have a life
	}{
		{"raised beside a foreign key, on a node that is down when the lock is released", func(s *stage, l *redlock.Locker) {
			s.Foreign(time.Minute, 2)
			k := s.Take(l, 10*time.Second)
			time.Sleep(10 * time.Millisecond)
			s.Node(2).Refuse(true)
			s.Is("Release", k.Release(s.Ctx), nil)
			time.Sleep(time.Second)
			s.Node(2).Refuse(false)
		}, 2 * time.Minute},
		{"of a lock that is lost by votes within a second", func(s *stage, l *redlock.Locker) {
			s.Foreign(time.Minute, 2)
			held := s.Keep(s.Take(l, 500*time.Millisecond))
			time.Sleep(10 * time.Millisecond)
			s.EvictKey(job, 0, 1)
			<-held.Done()
		}, 2 * time.Minute},
		{"of a lock that has expired", func(s *stage, l *redlock.Locker) {
			s.Foreign(time.Minute, 2)
			k := s.Take(l, 300*time.Millisecond)
			time.Sleep(400 * time.Millisecond)
			s.Is("Extend", k.Extend(s.Ctx), redlock.ErrLost)
		}, 2 * time.Minute},
		{"raised by an attempt before the last one, which did not reach the node", func(s *stage, l *redlock.Locker) {
			s.Foreign(time.Minute, 0, 1, 2)
			ctx := s.Timeout(400 * time.Millisecond)
			time.AfterFunc(10*time.Millisecond, func() { hangs(s, l) })
			s.Is("Acquire", harness.Second(l.Acquire(ctx, job, 10*time.Second)), context.DeadlineExceeded)
			time.Sleep(time.Second)
			s.Resume(2)
		}, 2 * time.Minute},
		{"raised by an attempt before the one that won, which did not reach the node", func(s *stage, l *redlock.Locker) {
			s.Foreign(90*time.Millisecond, 0, 1, 2)
			time.AfterFunc(10*time.Millisecond, func() { hangs(s, l) })
			k := s.Acquire(l, 10*time.Second)
			time.Sleep(5 * time.Second) // the look's touch, too
			s.Is("Release", k.Release(s.Ctx), nil)
			s.Resume(2)
		}, 2 * time.Minute},
		// The second attempt makes the registers anew, within the minute in which the first one has given them a life.
		{"made anew by a second failed attempt, in time", fail, 2 * time.Minute},
		{"made anew by a second failed attempt, at Close", func(s *stage, l *redlock.Locker) {
			fail(s, l)
			s.Is("Close", l.Close(), nil)
		}, 0},
		{"of a foreign key whose adoption is cancelled", func(s *stage, l *redlock.Locker) {
			s.Foreign(time.Minute, 0, 1, 2)
			s.Slow(40*time.Millisecond, 0, 1, 2)
			ctx := s.Timeout(10 * time.Millisecond)
			s.Is("Adopt", harness.Second(l.Adopt(ctx, job, redlock.ValueOf(otherValue), 10*time.Second)), context.DeadlineExceeded)
			time.Sleep(time.Second)
			s.Carry("afterwards", redlock.ValueOf(otherValue), 0, 1, 2)
		}, 0},
	} {
		runStage(t, c.name, 3, func(s *stage) {
			c.do(s, s.Locker(opt))
			time.Sleep(c.after)
			s.registersExpire()
			if s.Register(0) == 0 {
				s.Error("there is no register: this tests nothing")
			}
		})
	}
}

// A node executes the acquire of a lock that nobody releases after it has given the register a ttl: the connection was far behind.
func TestARegisterThatIsRaisedLateIsGivenALife(t *testing.T) {
	for name, c := range map[string]struct {
		late time.Duration
		do   func(s *stage, k *redlock.Lock)
	}{
		"it expires, and is held for longer than a second": {1840 * time.Millisecond, func(*stage, *redlock.Lock) {}},
		"it is left long after": {600 * time.Millisecond, func(s *stage, k *redlock.Lock) {
			time.Sleep(300 * time.Millisecond)
			s.Is("LeaveUntil", k.LeaveUntil(s.Ctx, time.Now().Add(time.Second)), nil)
		}},
		"it is left while the acquire is being waited for": {600 * time.Millisecond, func(s *stage, k *redlock.Lock) {
			time.Sleep(10 * time.Millisecond)
			s.Is("LeaveUntil", k.LeaveUntil(s.Ctx, time.Now().Add(time.Second)), nil)
		}},
		"it expires behind an extension": {1840 * time.Millisecond, func(s *stage, k *redlock.Lock) {
			time.Sleep(10 * time.Millisecond)
			s.Is("Extend", k.Extend(s.Ctx), nil)
		}},
	} {
		for _, waits := range []bool{false, true} { // the node answers nothing behind the acquire, or it does
			runStage(t, fmt.Sprint(name, ", ", waits), 3, func(s *stage) {
				l := s.Locker(redlock.Options{NodeTimeout: 50 * time.Millisecond})
				harness.HeldUp(s.Node(2), "acquire", job, 1, c.late)
				k := s.Take(l, 4*time.Second)
				if waits {
					time.Sleep(100 * time.Millisecond)
				}
				c.do(s, k)
				time.Sleep(time.Minute)
				if heard := harness.Heard(s.Node(2), job); harness.Count(heard, "acquire") != 1 || s.Register(2) == 0 {
					s.Errorf("the node hears %v, and its register is %d: this tests nothing", heard, s.Register(2))
				}
				s.registersExpire()
			})
		}
	}
}

// Many attempts at a contended key do not send a life for its registers each.
func TestContendedRegistersAreGivenALifeOnceAMinute(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		s.Foreign(time.Hour, 0, 1, 2)
		const minutes = 5
		attempts := 0
		for began := time.Now(); time.Since(began) < minutes*time.Minute; attempts++ {
			s.Is("TryAcquire", harness.Second(l.TryAcquire(s.Ctx, job, 10*time.Second)), redlock.ErrHeld)
			time.Sleep(3 * time.Second)
		}
		if lives := len(s.Told(0, "touch", "rollback")); lives == 0 || lives > minutes+2 {
			t.Errorf("%d attempts in %d minutes sent %d lives to a node, want about one a minute", attempts, minutes, lives)
		}
		s.registersExpire()
	})
}

// The longest ttl is longer than the day that a register outlives its lock by. It is
// counted from the last word on the lock all the same, so that whoever is next, and
// slow by hours, has the greater token.
//
// Attack 10.
func TestTokensGrowBehindALockOfTheLongestTTL(t *testing.T) {
	const longest = 24 * 24 * time.Hour
	for name, end := range map[string]func(s *stage, k *redlock.Lock){
		"left to expire": func(s *stage, k *redlock.Lock) { k.LeaveUntil(s.Ctx, k.Until()); time.Sleep(longest) },
		"released": func(s *stage, k *redlock.Lock) {
			s.Is("Release", k.Release(s.Ctx), nil)
			time.Sleep(longest - 12*time.Hour)
		},
	} {
		runStage(t, name, 3, func(s *stage) {
			fast := s.LockerWith(redlock.Options{}, &harness.Clocks{WallAhead: 30 * 24 * time.Hour}, s.Cluster.Nodes())
			k := s.Take(fast, longest)
			if got := s.Node(0).TTL(job); got > longest || got < longest-time.Minute {
				s.Errorf("the key lives for %v, want %v", got, longest)
			}
			end(s, k)
			time.Sleep(time.Millisecond)
			next := s.Take(s.Locker(redlock.Options{}), longest)
			if next.Fence() <= k.Fence() {
				s.Errorf("token: got %d after %d", next.Fence(), k.Fence())
			}
			next.Release(s.Ctx)
		})
	}
}

// Where every register is lost tokens are what the clients' clocks make them: in order
// where these differ by less than the time since the last grant, to the microsecond.
//
// Attack 69.
func TestTokensAfterALossOfAllRegistersAreInOrderWithinTheClocks(t *testing.T) {
	const ttl = time.Second
	for _, late := range []time.Duration{time.Microsecond, 0, -time.Microsecond} {
		onStage(t, 3, func(s *stage) {
			var ha, hb harness.Clocks
			a, b := s.LockerWith(redlock.Options{}, &ha, s.Cluster.Nodes()), s.LockerWith(redlock.Options{}, &hb, s.Cluster.Nodes())
			ha.Stop() // so that both stand at whole microseconds
			hb.Stop()
			ha.Pass(hb.Wall().Sub(ha.Wall()))
			k := s.Take(a, ttl)
			for i := range 3 {
				s.Node(i).Stop()
				s.Node(i).FlushAll()
			}
			time.Sleep(2 * ttl) // they stay away, for longer than any ttl
			for i := range 3 {
				s.Node(i).Start()
			}
			s.Reconnect(b)
			hb.Pass(time.Hour) // since the grant, by a true clock
			hb.MoveWall(late - time.Hour)
			next := s.Take(b, ttl)
			if got, want := next.Fence()-k.Fence(), late.Microseconds(); got != want {
				t.Errorf("clocks that differ by %v less than the time since the grant: the token is %d above the one before, want %d", late, got, want)
			}
		})
	}
}

// lifeOf returns how long the lock's register lives at least and at most, over the nodes.
func (s *stage) lifeOf() (least, most time.Duration) {
	s.Helper()
	for i := range s.Cluster.Len() {
		left := s.Node(i).TTL(jobRegister)
		if least == 0 || left < least {
			least = left
		}
		most = max(most, left)
	}
	return least, most
}

// With Options.FenceLife, the registers live for that long after whatever used the key last, and for less only by a twenty-fourth.
func TestRegistersLiveForTheFenceLife(t *testing.T) {
	const life = 2 * time.Hour
	for _, ttl := range []time.Duration{10 * time.Second, 30 * time.Minute} { // the register's ttl is that of the lock's, too
		for name, do := range map[string]func(s *stage, l *redlock.Locker){
			"released": func(s *stage, l *redlock.Locker) { s.Is("Release", s.Take(l, ttl).Release(s.Ctx), nil) },
			"released by a joint script": func(s *stage, l *redlock.Locker) {
				seam.JoinFrom(l, 1)
				locks, err := l.AcquireAll(s.Ctx, []string{job, "other"}, ttl)
				s.Is("AcquireAll", err, nil)
				s.Is("Release", locks.Release(s.Ctx), nil)
			},
			"extended": func(s *stage, l *redlock.Locker) { s.Is("Extend", s.Take(l, ttl).Extend(s.Ctx), nil) },
			"extended by a joint script": func(s *stage, l *redlock.Locker) {
				seam.JoinFrom(l, 1)
				locks, err := l.AcquireAll(s.Ctx, []string{job, "other"}, ttl)
				s.Is("AcquireAll", err, nil)
				for _, k := range locks {
					go k.Extend(s.Ctx)
				}
			},
			"held for a while": func(s *stage, l *redlock.Locker) { s.Take(l, ttl); time.Sleep(3 * time.Second) },
			"adopted": func(s *stage, l *redlock.Locker) {
				giver := s.Take(s.Locker(redlock.Options{FenceLife: life}), ttl)
				s.Is("Adopt", harness.Second(l.Adopt(s.Ctx, job, giver.Value(), ttl)), nil)
			},
			"taken back": func(s *stage, l *redlock.Locker) {
				s.Foreign(time.Hour, 0, 1)
				s.Is("TryAcquire", harness.Second(l.TryAcquire(s.Ctx, job, ttl)), redlock.ErrHeld)
			},
			"waited for": func(s *stage, l *redlock.Locker) {
				k := s.Take(l, ttl)
				go l.Acquire(s.Ctx, job, ttl)
				time.Sleep(time.Second)
				s.Is("Release", k.Release(s.Ctx), nil)
			},
		} {
			runStage(t, fmt.Sprint(name, ", ", ttl), 3, func(s *stage) {
				l := s.Locker(redlock.Options{FenceLife: life})
				do(s, l)
				time.Sleep(3 * time.Second)
				want := max(ttl, life/24) + life
				if least, most := s.lifeOf(); least < want-life/24-3*time.Second || most > want {
					s.Errorf("the registers live for %v to %v, want at least %v and at most %v", least, most, want-life/24, want)
				}
				s.Is("Close", l.Close(), nil)
			})
		}
	}
}

// A lock that is kept for three times Options.FenceLife has its registers throughout, with at least that life less a
// twenty-fourth.
func TestALockHeldForLongKeepsItsRegisters(t *testing.T) {
	for _, ttl := range []time.Duration{time.Minute, 2 * time.Minute, 10 * time.Minute} {
		runStage(t, ttl.String(), 3, func(s *stage) {
			l := s.Locker(redlock.Options{FenceLife: time.Hour})
			seam.JoinFrom(l, 1) // such extensions leave registers alone for a while
			locks, err := l.AcquireAll(s.Ctx, []string{job, "other"}, ttl)
			s.Is("AcquireAll", err, nil)
			held, stop := locks.KeepAlive(s.Ctx)
			defer stop()
			k := locks[0]
			time.Sleep(3 * time.Second)
			for began := time.Now(); time.Since(began) < 3*time.Hour; time.Sleep(time.Minute) {
				if least, _ := s.lifeOf(); least < time.Until(k.Until())+time.Hour-time.Hour/24 {
					s.Fatalf("after %v the registers live for %v, and the lock for %v", time.Since(began), least, time.Until(k.Until()))
				}
			}
			harness.Check(s, "the cause", context.Cause(held), nil)
			s.Is("Release", locks.Release(s.Ctx), nil)
		})
	}
}

// Of Lockers with different lives, the longest wins, whoever comes last.
func TestTheLongestFenceLifeWins(t *testing.T) {
	for _, shortLast := range []bool{false, true} {
		runStage(t, fmt.Sprint("the short one last ", shortLast), 3, func(s *stage) {
			lockers := []*redlock.Locker{s.Locker(redlock.Options{FenceLife: time.Hour}), s.Locker(redlock.Options{})}
			if shortLast {
				slices.Reverse(lockers)
			}
			for _, l := range lockers {
				k := s.Take(l, 10*time.Second)
				s.Is("Extend", k.Extend(s.Ctx), nil)
				s.Is("Release", k.Release(s.Ctx), nil)
				time.Sleep(2 * time.Second)
			}
			if least, _ := s.lifeOf(); least < 24*time.Hour {
				s.Errorf("the registers live for %v, want at least a day", least)
			}
		})
	}
}
