package directed_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/harness"
	"github.com/seed-ce352c9b/redlock/redlocktest"
)

func lifeOf(t *testing.T, c *redlocktest.Cluster, i int) {
	t.Helper()
	n := c.Node(i)
	if _, ok := n.Score("{k}:fence", "f"); ok && n.TTL("{k}:fence") <= 0 {
		t.Errorf("node %d: the register has no life: it stays for ever; heard %v", i, heard(n, "k"))
	} else {
		t.Logf("node %d: score %v life %v", i, ok, n.TTL("{k}:fence"))
	}
}

// Raised where a foreign client holds the key; down when the lock is released.
func TestARegisterRaisedBesideAForeignKeyIsOwedALife(t *testing.T) {
	staged(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		l := warmLocker(t, c, redlock.Options{})
		c.Node(2).Set("k", "foreign", time.Minute)
		k := harness.Try(t, l, "k", 10*time.Second)
		time.Sleep(10 * time.Millisecond)
		c.Node(2).Refuse(true)
		harness.CheckIs(t, "Release", k.Release(t.Context()))
		time.Sleep(time.Second)
		c.Node(2).Refuse(false)
		time.Sleep(2 * time.Minute)
		for i := range 3 {
			lifeOf(t, c, i)
		}
	})
}

// Lost by votes within a second
func TestALostLocksRegistersHaveALife(t *testing.T) {
	staged(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		l := warmLocker(t, c, redlock.Options{})
		c.Node(2).Set("k", "foreign", time.Minute)
		k := harness.Try(t, l, "k", 500*time.Millisecond)
		held, stop := k.KeepAlive(t.Context())
		defer stop()
		time.Sleep(10 * time.Millisecond)
		c.Node(0).Evict("k")
		c.Node(1).Evict("k")
		<-held.Done()
		time.Sleep(2 * time.Minute)
		for i := range 3 {
			lifeOf(t, c, i)
		}
	})
}

// No node is faulty but the ttl is short and a KeepAlive without answers ... expired
func TestAnExpiredLocksRegistersHaveALife(t *testing.T) {
	staged(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		l := warmLocker(t, c, redlock.Options{})
		c.Node(2).Set("k", "foreign", time.Minute)
		k := harness.Try(t, l, "k", 300*time.Millisecond)
		time.Sleep(400 * time.Millisecond)
		harness.CheckIs(t, "Extend", k.Extend(t.Context()), redlock.ErrLost)
		time.Sleep(2 * time.Minute)
		for i := range 3 {
			lifeOf(t, c, i)
		}
	})
}

// Earlier attempt raised it, the last did not reach the node.
func TestTheRegistersOfEarlierAttemptsHaveALife(t *testing.T) {
	staged(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		l := warmLocker(t, c, redlock.Options{Retry: slowRetry})
		for i := range 3 {
			c.Node(i).Set("k", "foreign", time.Minute)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
		defer cancel()
		time.AfterFunc(10*time.Millisecond, func() { hangFor(t, c, l) })
		_, err := l.Acquire(ctx, "k", 10*time.Second)
		t.Log(err)
		time.Sleep(time.Second)
		c.Node(2).Resume()
		time.Sleep(2 * time.Minute)
		for i := range 3 {
			lifeOf(t, c, i)
		}
	})
}

func slowRetry(int) time.Duration { return 200 * time.Millisecond }

// hangFor: another key's call finds out.
func hangFor(t *testing.T, c *redlocktest.Cluster, l *redlock.Locker) {
	c.Node(2).Hang()
	k, _ := l.TryAcquire(t.Context(), "other", 100*time.Millisecond)
	k.Release(t.Context())
}

// An earlier attempt raised it, the winning one did not reach it.
func TestTheRegistersOfAttemptsBeforeTheWinHaveALife(t *testing.T) {
	staged(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		l := warmLocker(t, c, redlock.Options{Retry: slowRetry})
		for i := range 3 {
			c.Node(i).Set("k", "foreign", 90*time.Millisecond)
		}
		time.AfterFunc(10*time.Millisecond, func() { hangFor(t, c, l) })
		k, err := l.Acquire(t.Context(), "k", 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second) // the look's touch, too
		harness.CheckIs(t, "Release", k.Release(t.Context()))
		c.Node(2).Resume()
		time.Sleep(2 * time.Minute)
		for i := range 3 {
			lifeOf(t, c, i)
		}
	})
}

// Failed attempts beside a foreign key, and between them the nodes are flushed: the second attempt
// makes the registers anew, within the minute in which the first one has given them a life.
func TestRegistersThatAreMadeAnewHaveALife(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, l *redlock.Locker){
		"in time":  func(t *testing.T, l *redlock.Locker) { time.Sleep(2 * time.Minute) },
		"at Close": func(t *testing.T, l *redlock.Locker) { harness.CheckIs(t, "Close", l.Close()) },
	} {
		runStaged(t, name, 3, func(t *testing.T, c *redlocktest.Cluster) {
			l := warmLocker(t, c, redlock.Options{})
			for range 2 {
				for i := range 3 {
					c.Node(i).FlushAll()
					c.Node(i).Set("k", "foreign", time.Hour)
				}
				_, err := l.TryAcquire(t.Context(), "k", 10*time.Second)
				harness.CheckIs(t, "TryAcquire", err, redlock.ErrHeld)
				time.Sleep(time.Second)
			}
			end(t, l)
			for i := range 3 {
				if _, ok := c.Node(i).Score("{k}:fence", "f"); !ok {
					t.Fatalf("node %d has no register: this tests nothing", i)
				}
				lifeOf(t, c, i)
			}
		})
	}
}

// Many attempts at a contended key do not send a life for its registers each.
func TestContendedRegistersAreGivenALifeOnceAMinute(t *testing.T) {
	staged(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		l := warmLocker(t, c, redlock.Options{})
		for i := range 3 {
			c.Node(i).Set("k", "foreign", time.Hour)
		}
		const minutes = 5
		attempts := 0
		for began := time.Now(); time.Since(began) < minutes*time.Minute; attempts++ {
			_, err := l.TryAcquire(t.Context(), "k", 10*time.Second)
			harness.CheckIs(t, "TryAcquire", err, redlock.ErrHeld)
			time.Sleep(3 * time.Second)
		}
		touches := 0
		for _, cmd := range c.Node(0).Log() {
			if strings.EqualFold(cmd.Args[0], "evalsha") && cmd.Args[3] == "k" {
				touches++
			}
		}
		if touches == 0 || touches > minutes+2 {
			t.Errorf("%d attempts in %d minutes sent %d lives to a node, want about one a minute", attempts, minutes, touches)
		}
		lifeOf(t, c, 0)
	})
}

// An adoption of a foreign key that is cancelled: nobody else has ever given the register a life.
func TestTheRegisterOfAFailedAdoptionHasALife(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		s.Foreign(time.Minute, s.All()...)
		s.Slow(40*time.Millisecond, s.All()...)
		ctx, cancel := context.WithTimeout(s.Ctx, 10*time.Millisecond)
		defer cancel()
		_, err := l.Adopt(ctx, job, otherValue, 10*time.Second)
		s.Is("Adopt", err, context.DeadlineExceeded)
		time.Sleep(time.Second)
		s.Carry("afterwards", otherValue, s.All()...)
		for i := range 3 {
			if left := s.Node(i).TTL(jobRegister); s.Register(i) == 0 || left <= 0 {
				t.Errorf("node %d: the register stands at %d and lives for %v, want a life", i, s.Register(i), left)
			}
		}
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
