package calls_test

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

// stores gives a node what a letter stands for: o the value, m nothing, x another's value. Or the node does not reply to
// the next release: s it hangs, d or a it executes that one.
func (s *stage) stores(i int, what rune, value string) {
	switch what {
	case 'o':
		s.Node(i).Set(job, value, time.Minute)
	case 'm':
		s.Evict(i)
	case 'x':
		s.Foreign(time.Minute, i)
	case 's':
		s.Node(i).Hang()
	case 'd', 'a':
		harness.Unanswered(s.Node(i), "release", job, 1)
	}
}

func TestVerdictOfARelease(t *testing.T) {
	for _, tc := range []struct {
		late   bool // after Until
		want   error
		states string // what each node stores
	}{
		{false, nil, "ooo oom omm mmm oox omx oos oms mms ooomm oommx ommxx"},
		{false, redlock.ErrLost, "oxx mxx xxs xxx ooxxx"},
		{false, redlock.ErrNoQuorum, "oss mss xss oxs sss ooxss ooxxs"},
		{true, nil, "oom"},
		{true, redlock.ErrLost, "mmm xxm mms omm ommxx"},
		{true, redlock.ErrNoQuorum, "mss"},
	} {
		for _, nodes := range strings.Fields(tc.states) {
			for _, join := range []int{0, 1} {
				runStage(t, fmt.Sprintf("%s, after Until: %v, joint from %d", nodes, tc.late, join), len(nodes), func(s *stage) {
					l := s.Locker(redlock.Options{})
					seam.JoinFrom(l, join)
					k := s.Take(l, time.Second)
					time.Sleep(time.Millisecond)
					if tc.late {
						time.Sleep(2 * time.Second) // the keys have expired
					}
					for i, what := range nodes {
						s.stores(i, what, k.Value().Secret())
					}
					err := k.Release(s.Ctx)
					s.Is("Release", err, tc.want)
					harness.CheckIsNot(s, "Release", err, context.DeadlineExceeded)
					if tc.want == redlock.ErrNoQuorum {
						s.Says(err, "expires by 00:00:")
					}
					harness.Check(s, "Valid after Release", k.Valid(), false)
					s.Mend()
					time.Sleep(time.Second)
					for i, what := range nodes {
						want := ""
						if what == 'x' {
							want = otherValue
						}
						harness.Check(s, "value on node "+s.Node(i).Name()+" in the end", s.Values()[i], want)
					}
					s.Clean(l)
				})
			}
		}
	}
}

// Only the silent nodes are asked again.
//
// Attack 65.
func TestAReleaseThatReachesAMinoritySaysWhenTheRestExpires(t *testing.T) {
	onStage(t, 5, func(s *stage) {
		l := s.Locker(redlock.Options{})
		k := s.Take(l, 10*time.Second)
		time.Sleep(time.Millisecond)
		s.Each((*redlocktest.Node).Partition, 2, 3, 4)
		began := time.Now()
		err := k.Release(s.Ctx)
		harness.Check(s, "time of a release that three of five do not answer", time.Since(began), time.Second)
		s.Is("Release by two of five", err, redlock.ErrNoQuorum)
		expiry := began.Add(10*time.Second + 100*time.Millisecond + 2*time.Millisecond) // ttl and drift and rounding
		s.Says(err, "expires by "+expiry.Format("15:04:05.000"), "3 of 5 votes needed")
		harness.Check(s, "Valid after Release", k.Valid(), false)
		s.Is("Release while they are still silent", k.Release(s.Ctx), redlock.ErrNoQuorum)
		s.Is("Extend of a lock that is being released", k.Extend(s.Ctx), redlock.ErrLost)
		s.Each((*redlocktest.Node).Heal, 2, 3, 4)
		time.Sleep(time.Second)
		for i := range 2 {
			harness.Check(s, "releases that node "+s.Node(i).Name()+" heard", len(s.Told(i, "release")), 1)
		}
		s.Carry("after the heal", redlock.Value{}, s.All()...)
		s.Is("Release once they answer", k.Release(s.Ctx), nil)
		s.Clean(l)
	})
}

// What a node says after Until to a release that it had before is known to be neither
// ours nor lost: its answer was not heard, and the key has expired since.
func TestReleaseAfterUntilSaysNoMoreThanIsKnown(t *testing.T) {
	for _, tc := range []struct {
		early  bool // the second release comes before Until, too
		want   error
		states string // how each node takes the first release; where it is a, another has the lock before the second
	}{
		{false, redlock.ErrNoQuorum, "odd ddd xdd oxd oss mdd mss xxodd oaa mda"},
		{false, nil, "ommdd"},
		{true, redlock.ErrNoQuorum, "oaa aaa"},
		{true, nil, "odd ddd xdd mdd mda"},
	} {
		for _, nodes := range strings.Fields(tc.states) {
			runStage(t, fmt.Sprintf("%s, again before Until: %v", nodes, tc.early), len(nodes), func(s *stage) {
				k := s.Take(s.Locker(redlock.Options{NodeTimeout: 50 * time.Millisecond}), 2*time.Second)
				time.Sleep(time.Millisecond)
				for i, what := range nodes {
					s.stores(i, what, k.Value().Secret())
				}
				first := k.Release(s.Ctx)
				if tc.want != nil || tc.early {
					s.Is("Release, too few answer", first, redlock.ErrNoQuorum)
				}
				if !tc.early {
					time.Sleep(3 * time.Second)
				}
				for i, what := range nodes {
					s.Node(i).Resume()
					if what == 'a' {
						s.Foreign(time.Minute, i)
					}
				}
				time.Sleep(time.Second)
				k.Release(s.Ctx)
				time.Sleep(time.Millisecond) // the last votes
				err := k.Release(s.Ctx)
				s.Is("Release again", err, tc.want)
				if tc.want == nil {
					return
				}
				s.Says(err, "released it in time or let it expire")
				if strings.Contains(err.Error(), "expires by") {
					s.Errorf("Release again: got %v, want nothing said of what is left", err)
				}
				// All have answered: there is nothing more to learn.
				s.Record()
				if third := k.Release(s.Ctx); third == nil || third.Error() != err.Error() {
					s.Errorf("Release once more: got %v, want %v", third, err)
				}
				time.Sleep(time.Second)
				for i := range nodes {
					harness.Check(s, "commands of a Release that all have answered", len(s.Told(i, "release")), 0)
				}
			})
		}
	}
	for _, anothers := range []bool{false, true} {
		runStage(t, fmt.Sprintf("asked before Until, answered after, another's: %v", anothers), 3, func(s *stage) {
			k := s.Take(s.Locker(redlock.Options{NodeTimeout: 50 * time.Millisecond}), time.Second)
			s.Slow(20*time.Millisecond, s.All()...)
			time.Sleep(time.Until(k.Until()) - 5*time.Millisecond)
			s.Evict(0, 1)
			if anothers {
				s.Foreign(time.Minute, 0, 1)
			}
			s.Is("Release", k.Release(s.Ctx), redlock.ErrNoQuorum)
		})
	}
	runStage(t, "first asked after Until", 3, func(s *stage) {
		k := s.Take(s.Locker(redlock.Options{NodeTimeout: 50 * time.Millisecond}), time.Second)
		time.Sleep(2 * time.Second)
		s.Each(func(n *redlocktest.Node) { harness.Unanswered(n, "release", job, 1) })
		s.Is("Release, nobody answers", k.Release(s.Ctx), redlock.ErrNoQuorum)
		time.Sleep(time.Second)
		s.Is("Release again", k.Release(s.Ctx), redlock.ErrLost)
	})
}

// Attack 64.
func TestReleaseThatIsOverSendsNothing(t *testing.T) {
	for _, lost := range []bool{false, true} {
		onStage(t, 3, func(s *stage) {
			l := s.Locker(redlock.Options{})
			k := s.Take(l, time.Minute)
			time.Sleep(time.Millisecond)
			if lost {
				s.Foreign(time.Minute, s.All()...)
			}
			first := k.Release(s.Ctx)
			harness.Check(s, "Release is ErrLost", errors.Is(first, redlock.ErrLost), lost)
			time.Sleep(10 * time.Millisecond)
			s.Record()
			for range 5 {
				var err error
				d := harness.Took(func() { err = k.Release(s.Ctx) })
				harness.Check(s, "time of another Release", d, 0)
				harness.Check(s, "its error", err, first)
			}
			s.Is("Extend", k.Extend(s.Ctx), redlock.ErrLost)
			harness.Check(s, "Valid after Release", k.Valid(), false)
			time.Sleep(time.Second)
			s.Each(func(n *redlocktest.Node) { harness.Check(s, "commands after the first Release", len(n.Log()), 0) })
			s.Clean(l)
		})
	}
}

// Attack 17.
func TestReleaseAndTheCallersContext(t *testing.T) {
	const rtt = 20 * time.Millisecond
	for name, f := range map[string]func(s *stage, k *redlock.Lock, done context.Context){
		"done before": func(s *stage, k *redlock.Lock, done context.Context) {
			s.Lasts("Release with a ctx that was done before", rtt, func() { s.Is("Release", k.Release(done), nil) })
		},
		"done before, in a defer": func(s *stage, k *redlock.Lock, done context.Context) {
			func() { defer k.Release(done) }()
			s.Empty("after the defer")
		},
		"done before, all hung": func(s *stage, k *redlock.Lock, done context.Context) {
			s.Each((*redlocktest.Node).Hang)
			s.Lasts("Release of a lock of a minute", time.Second, func() {
				err := k.Release(done)
				s.Is("Release", err, redlock.ErrNoQuorum)
				harness.CheckIsNot(s, "Release", err, context.Canceled)
			})
		},
		"ends during it": func(s *stage, k *redlock.Lock, _ context.Context) {
			ctx, cancel := context.WithTimeout(s.Ctx, 5*time.Millisecond)
			defer cancel()
			s.Lasts("Release with a ctx that ends during it", 5*time.Millisecond, func() {
				err := k.Release(ctx)
				s.Is("Release", err, context.DeadlineExceeded)
				harness.CheckIsNot(s, "Release", err, redlock.ErrLost)
			})
			time.Sleep(2 * rtt)
			s.Empty("after a release that nobody waited for")
			s.Is("the next Release", k.Release(s.Ctx), nil)
			for i := range 3 {
				harness.Check(s, "releases that a node heard", len(s.Told(i, "release")), 1)
			}
		},
	} {
		runStage(t, name, 3, func(s *stage) {
			l := s.Locker(redlock.Options{})
			s.Slow(rtt, s.All()...)
			k := s.Take(l, time.Minute)
			time.Sleep(rtt)
			done, cancel := context.WithCancel(s.Ctx)
			cancel()
			f(s, k, done)
			s.Clean(l)
		})
	}
}

func TestConcurrentReleasesAreOne(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		k := s.Take(l, time.Minute)
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * 10 * time.Microsecond)
				s.Is("one of many concurrent Releases", k.Release(s.Ctx), nil)
			})
		}
		wg.Wait()
		time.Sleep(10 * time.Millisecond)
		for i := range 3 {
			harness.Check(s, "releases that node "+s.Node(i).Name()+" heard", len(s.Told(i, "release")), 1)
		}
		s.Clean(l)
	})
}

// What a release or a rollback undoes is under way to a slow node when it begins: it goes there after that was answered.
func TestACleanUpGoesAfterWhatItUndoes(t *testing.T) {
	// slow holds up the first command with this verb on one node of three, and checks what that one executes.
	slow := func(name, verb, want string, f func(s *stage, l *redlock.Locker, n *redlocktest.Node)) {
		runStage(t, name, 3, func(s *stage) {
			l, n := s.Locker(redlock.Options{}), s.Node(2)
			harness.HeldUp(n, verb, job, 1, 50*time.Millisecond) // what comes on another connection is not held up
			f(s, l, n)
			time.Sleep(100 * time.Millisecond)
			harness.Check(s, "what the slow node heard", strings.Join(harness.Heard(n, job), " "), want)
			s.Empty("the slow node", 2)
			s.Clean(l)
		})
	}
	// Attack 57.
	slow("a release after the acquire", "acquire", "acquire release", func(s *stage, l *redlock.Locker, n *redlocktest.Node) {
		var k *redlock.Lock
		s.Lasts("TryAcquire beside a slow node", 0, func() { k = s.Take(l, time.Hour) })
		s.Lasts("Release beside a slow node", 0, func() { s.Is("Release", k.Release(s.Ctx), nil) })
		time.Sleep(40 * time.Millisecond)
		harness.Check(s, "what the slow node heard before its acquire is executed", strings.Join(harness.Heard(n, job), " "), "")
	})
	slow("a rollback after the acquire", "acquire", "acquire rollback", func(s *stage, l *redlock.Locker, n *redlocktest.Node) {
		s.Foreign(time.Second, 0, 1)
		_, err := l.TryAcquire(s.Ctx, job, time.Hour)
		s.Is("TryAcquire", err, redlock.ErrHeld)
	})
	// Attack 78.
	slow("a release after the heal that an extension sent", "heal", "acquire extend heal release", func(s *stage, l *redlock.Locker, n *redlocktest.Node) {
		k := s.Take(l, time.Hour)
		time.Sleep(time.Millisecond)
		s.Evict(2)
		s.Is("Extend", k.Extend(s.Ctx), nil)
		time.Sleep(10 * time.Millisecond) // the heal has arrived and waits
		s.Is("Release", k.Release(s.Ctx), nil)
	})
}

// A late extension must not bring the key back: it arrives after the release or is
// waited for.
//
// Attack 63.
func TestReleaseBesideKeepAliveAndExtendLeavesNoKey(t *testing.T) {
	for seed := range 40 {
		onStage(t, 3, func(s *stage) {
			l := s.Locker(redlock.Options{NodeTimeout: 90 * time.Millisecond})
			k := s.Take(l, 3*time.Second)
			s.Node(seed%3).Delay(time.Duration(seed%5)*10*time.Millisecond, 0)
			held, stop := k.KeepAlive(s.Ctx) // renews after 0.9 to 1 s
			defer stop()
			time.Sleep(849*time.Millisecond + time.Duration(seed)*4*time.Millisecond)
			if seed%2 == 0 {
				s.Evict((seed + 1) % 3) // a heal is on its way when the release comes
			}
			var wg sync.WaitGroup
			for i := range 4 {
				wg.Go(func() {
					time.Sleep(time.Millisecond + time.Duration(i-2)*70*time.Microsecond)
					k.Extend(s.Ctx)
				})
			}
			time.Sleep(time.Millisecond)
			s.Is(fmt.Sprintf("Release beside Extend and KeepAlive, seed %d", seed), k.Release(s.Ctx), nil)
			harness.Check(s, "the KeepAlive context has ended", held.Err() != nil, true)
			wg.Wait()
			time.Sleep(1500 * time.Millisecond) // not so long that the ttl could hide it
			s.Empty(fmt.Sprintf("seed %d", seed))
			s.Is("Extend after Release", k.Extend(s.Ctx), redlock.ErrLost)
		})
	}
}

// Attack 64.
func TestReleaseOfAnExpiredLockIsErrLostAndTouchesNothing(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		k := s.Take(l, 50*time.Millisecond)
		time.Sleep(time.Second)
		other := s.Take(l, time.Minute)
		time.Sleep(time.Millisecond)
		s.Is("Release of an expired lock that another holds now", k.Release(s.Ctx), redlock.ErrLost)
		time.Sleep(time.Second)
		s.Carry("the next holder's", other.Value(), s.All()...)
		harness.Check(s, "the next holder's lock is valid", other.Valid(), true)
		s.Is("Release by the next holder", other.Release(s.Ctx), nil)
		expired := harness.Try(s, l, "jobs/43", 50*time.Millisecond)
		time.Sleep(time.Second)
		s.Is("Release of an expired lock that nobody holds", expired.Release(s.Ctx), redlock.ErrLost)
		s.Clean(l)
	})
}

// What we left on stragglers is gone before the next attempt of the same Locker gets
// there.
func TestNextAttemptIsNotBlockedByOurOwnLeftovers(t *testing.T) {
	for name, before := range map[string]func(s *stage, l *redlock.Locker){
		"after Release": func(s *stage, l *redlock.Locker) {}, // of the round before
		"after a failed attempt": func(s *stage, l *redlock.Locker) {
			s.Foreign(5*time.Minute, 0, 1)
			_, err := l.TryAcquire(s.Ctx, job, time.Hour)
			s.Is("TryAcquire of a held lock", err, redlock.ErrHeld)
			s.Evict(0, 1)
		},
		"after one whose ctx ended": func(s *stage, l *redlock.Locker) {
			ctx, cancel := context.WithTimeout(s.Ctx, 3*time.Millisecond)
			defer cancel()
			if k, err := l.TryAcquire(ctx, job, time.Hour); err == nil {
				k.Release(s.Ctx)
			}
		},
	} {
		runStage(t, name, 3, func(s *stage) {
			l := s.Locker(redlock.Options{})
			for i := range 60 {
				// One near, one in the middle, one slow, in turns, and slower there than back.
				for j := range 3 {
					ms := time.Duration((i+j)%3) * 5 * time.Millisecond
					s.Node(j).Delay(ms, ms/2)
				}
				before(s, l)
				s.Is("Release", s.Take(l, time.Hour).Release(s.Ctx), nil)
			}
			s.Clean(l)
		})
	}
}

// Attack 18.
func TestWhatCannotBeReleasedExpiresWithItsTTL(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		clients := s.Cluster.Clients()
		a := s.LockerWith(redlock.Options{}, nil, harness.Nodes(clients))
		s.Take(a, 2*time.Second)
		s.Cluster.Cut(clients...)
		time.Sleep(2*time.Second + time.Millisecond)
		s.Carry("after the ttl", redlock.Value{}, 0, 1, 2)
		s.Cluster.Mend(clients...)
	})
}

// A lock that is left until its Until: the key stays, also after Close, and its
// registers end although nobody releases it.
func TestALockLeftToExpireStays(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l, other := s.Locker(redlock.Options{}), s.Locker(redlock.Options{})
		k := s.Take(l, 10*time.Second)
		held, _ := k.KeepAlive(s.Ctx)
		k.LeaveUntil(s.Ctx, k.Until())
		if held.Err() == nil || k.Valid() {
			s.Errorf("got a context that ends with %v, valid %v, want both over", held.Err(), k.Valid())
		}
		s.Is("Release", k.Release(s.Ctx), nil)
		s.Is("Close", l.Close(), nil)
		time.Sleep(9 * time.Second)
		s.Carry("shortly before its end", k.Value(), 0, 1, 2)
		_, err := other.TryAcquire(s.Ctx, job, 10*time.Second)
		s.Is("TryAcquire meanwhile", err, redlock.ErrHeld)
		time.Sleep(time.Second)
		s.Carry("afterwards", redlock.Value{}, 0, 1, 2)
	})
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		k := s.Take(l, 10*time.Second)
		s.Is("LeaveUntil", k.LeaveUntil(s.Ctx, k.Until()), nil)
		s.Is("Close", l.Close(), nil) // within its first second: nothing else has seen to the registers
		for i := range 3 {
			if life := s.Node(i).TTL(jobRegister); life <= 0 {
				s.Errorf("the register of node %d has no life, want about a day", i)
			}
		}
	})
}
