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
	"github.com/seed-ce352c9b/redlock/internal/seam"
	"github.com/seed-ce352c9b/redlock/redlocktest"
)

func TestVerdictOfARelease(t *testing.T) {
	// What each node has at the release: o our value, m nothing, x another's, s it is
	// silent.
	for _, tc := range []struct {
		nodes string
		late  bool // after Until
		want  error
	}{
		{"ooo", false, nil},
		{"oom", false, nil},
		{"omm", false, nil},
		{"mmm", false, nil},
		{"oox", false, nil},
		{"omx", false, nil},
		{"oos", false, nil},
		{"oms", false, nil},
		{"mms", false, nil},
		{"oxx", false, redlock.ErrLost},
		{"mxx", false, redlock.ErrLost},
		{"xxs", false, redlock.ErrLost},
		{"xxx", false, redlock.ErrLost},
		{"oss", false, redlock.ErrNoQuorum},
		{"mss", false, redlock.ErrNoQuorum},
		{"xss", false, redlock.ErrNoQuorum},
		{"oxs", false, redlock.ErrNoQuorum},
		{"sss", false, redlock.ErrNoQuorum},
		{"mmm", true, redlock.ErrLost},
		{"xxm", true, redlock.ErrLost},
		{"mms", true, redlock.ErrLost},
		{"oom", true, nil},
		{"omm", true, redlock.ErrLost},
		{"mss", true, redlock.ErrNoQuorum},
		{"ooomm", false, nil},
		{"oommx", false, nil},
		{"ooxxx", false, redlock.ErrLost},
		{"ooxss", false, redlock.ErrNoQuorum},
		{"ommxx", false, nil},
		{"ommxx", true, redlock.ErrLost},
		{"ooxxs", false, redlock.ErrNoQuorum},
	} {
		name := tc.nodes
		if tc.late {
			name += " after Until"
		}
		verdict := func(t *testing.T, join int) {
			staged(t, len(tc.nodes), func(t *testing.T, c *redlocktest.Cluster) {
				l := lockerOn(t, redlock.Options{}, c.Clients())
				seam.JoinFrom(l, join)
				warmUp(t, c, l)
				k := harness.Try(t, l, "jobs/42", time.Second)
				time.Sleep(time.Millisecond)
				if tc.late {
					time.Sleep(2 * time.Second) // the keys have expired
				}
				for i, what := range tc.nodes {
					n := c.Node(i)
					switch what {
					case 'o':
						n.Set("jobs/42", k.Value(), time.Minute)
					case 'm':
						n.Evict("jobs/42")
					case 'x':
						n.Set("jobs/42", "foreign", time.Minute)
					case 's':
						n.Hang()
					}
				}
				err := k.Release(t.Context())
				if tc.want == nil {
					harness.CheckIs(t, "Release", err)
				} else {
					harness.CheckIs(t, "Release", err, tc.want)
					for _, other := range []error{redlock.ErrLost, redlock.ErrNoQuorum, redlock.ErrHeld, redlock.ErrClosed, context.DeadlineExceeded} {
						if other != tc.want {
							harness.CheckIsNot(t, "Release", err, other)
						}
					}
				}
				if errors.Is(err, redlock.ErrNoQuorum) && !strings.Contains(err.Error(), "expires by 00:00:") {
					t.Errorf("Release by too few: got %v, want a text with the time at which the rest expires", err)
				}
				harness.Check(t, "Valid after Release", k.Valid(), false)
				for i := range c.Len() {
					c.Node(i).Resume()
				}
				time.Sleep(time.Second)
				for i, what := range tc.nodes {
					value, _ := c.Node(i).Get("jobs/42")
					want := ""
					if what == 'x' {
						want = "foreign"
					}
					harness.Check(t, "value on node "+c.Node(i).Name()+" in the end", value, want)
					c.Node(i).Evict("jobs/42")
				}
				harness.CheckClean(t, c, l)
			})
		}
		t.Run(name, func(t *testing.T) { verdict(t, 0) })
		t.Run(name+", joint", func(t *testing.T) { verdict(t, 1) })
	}
}

func TestReleaseByTooFewAsksOnlyTheSilentNodesAgain(t *testing.T) {
	staged(t, 5, func(t *testing.T, c *redlocktest.Cluster) {
		l := warmLocker(t, c, redlock.Options{})
		k := harness.Try(t, l, "jobs/42", 10*time.Second)
		time.Sleep(time.Millisecond)
		for _, i := range []int{2, 3, 4} {
			c.Node(i).Partition()
		}
		var err error
		d := took(func() { err = k.Release(t.Context()) })
		harness.Check(t, "time of a release that three of five do not answer", d, time.Second)
		harness.CheckIs(t, "Release by two of five", err, redlock.ErrNoQuorum)
		// ttl and drift and rounding, from the release on
		want := "expires by " + time.Now().Add(-d+10*time.Second+100*time.Millisecond+2*time.Millisecond).Format("15:04:05.000")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Release by two of five: got %v, want a text that has %q", err, want)
		}
		harness.CheckIs(t, "Release while they are still silent", k.Release(t.Context()), redlock.ErrNoQuorum)
		harness.CheckIs(t, "Extend of a lock that is being released", k.Extend(t.Context()), redlock.ErrLost)
		for _, i := range []int{2, 3, 4} {
			c.Node(i).Heal()
		}
		time.Sleep(time.Second)
		for i := range 2 {
			harness.Check(t, "releases that node "+c.Node(i).Name()+" heard", count(heard(c.Node(i), "jobs/42"), "release"), 1)
		}
		harness.CheckIs(t, "Release once they answer", k.Release(t.Context()))
		harness.CheckClean(t, c, l)
	})
}

// What a node says after Until to a release that it had before is known to be neither
// ours nor lost: its answer was not heard, and the key has expired since.
func TestReleaseAfterUntilSaysNoMoreThanIsKnown(t *testing.T) {
	// How each node takes the release before Until: o it answers, x it holds another's
	// value, d it deletes the key and its reply is lost, s it hangs and has it later,
	// m it answers that there is nothing, a as d, and another has it before the second.
	for _, tc := range []struct {
		nodes string
		early bool // the second release comes before Until, too
		want  error
	}{
		{"odd", false, redlock.ErrNoQuorum},
		{"ddd", false, redlock.ErrNoQuorum},
		{"xdd", false, redlock.ErrNoQuorum},
		{"oxd", false, redlock.ErrNoQuorum},
		{"oss", false, redlock.ErrNoQuorum},
		{"mdd", false, redlock.ErrNoQuorum},
		{"mss", false, redlock.ErrNoQuorum},
		{"ommdd", false, nil},
		{"xxodd", false, redlock.ErrNoQuorum},
		{"odd", true, nil},
		{"ddd", true, nil},
		{"xdd", true, nil},
		{"mdd", true, nil},
		{"oaa", false, redlock.ErrNoQuorum},
		{"oaa", true, redlock.ErrNoQuorum},
		{"aaa", true, redlock.ErrNoQuorum},
		{"mda", false, redlock.ErrNoQuorum},
		{"mda", true, nil},
	} {
		runStaged(t, fmt.Sprintf("%s, again before Until: %v", tc.nodes, tc.early), len(tc.nodes), func(t *testing.T, c *redlocktest.Cluster) {
			l := warmLocker(t, c, redlock.Options{NodeTimeout: 50 * time.Millisecond})
			k := harness.Try(t, l, "jobs/42", 2*time.Second)
			time.Sleep(time.Millisecond)
			for i, what := range tc.nodes {
				n := c.Node(i)
				switch what {
				case 'x':
					n.Set("jobs/42", "foreign", time.Minute)
				case 'm':
					n.Evict("jobs/42")
				case 'd', 'a':
					unanswered(n, "release", "jobs/42", 1)
				case 's':
					n.Hang()
				}
			}
			first := k.Release(t.Context())
			if tc.want != nil || tc.early {
				harness.CheckIs(t, "Release, too few answer", first, redlock.ErrNoQuorum)
			}
			if !tc.early {
				time.Sleep(3 * time.Second)
			}
			for i, what := range tc.nodes {
				c.Node(i).Resume()
				if what == 'a' {
					c.Node(i).Set("jobs/42", "foreign", time.Minute)
				}
			}
			time.Sleep(time.Second)
			k.Release(t.Context())
			time.Sleep(time.Millisecond) // the last votes
			err := k.Release(t.Context())
			harness.CheckIsNot(t, "Release again", err, redlock.ErrLost)
			if tc.want == nil {
				harness.CheckIs(t, "Release again", err)
				return
			}
			harness.CheckIs(t, "Release again", err, tc.want)
			if err != nil && (!strings.Contains(err.Error(), "released it in time or let it expire") || strings.Contains(err.Error(), "expires by")) {
				t.Errorf("Release again: got %v, want a text that says what is not known, and nothing of what is left", err)
			}
			// All have answered: there is nothing more to learn.
			for i := range c.Len() {
				c.Node(i).Record(true)
			}
			third := k.Release(t.Context())
			if third == nil || third.Error() != err.Error() {
				t.Errorf("Release once more: got %v, want %v", third, err)
			}
			time.Sleep(time.Second)
			for i := range c.Len() {
				harness.Check(t, "commands of a Release that all have answered", count(heard(c.Node(i), "jobs/42"), "release"), 0)
			}
		})
	}
	for _, anothers := range []bool{false, true} {
		runStaged(t, fmt.Sprintf("asked before Until, answered after, another's: %v", anothers), 3, func(t *testing.T, c *redlocktest.Cluster) {
			l := warmLocker(t, c, redlock.Options{NodeTimeout: 50 * time.Millisecond})
			k := harness.Try(t, l, "jobs/42", time.Second)
			for i := range c.Len() {
				c.Node(i).Delay(10*time.Millisecond, 10*time.Millisecond)
			}
			time.Sleep(time.Until(k.Until()) - 5*time.Millisecond)
			for i := range 2 {
				c.Node(i).Evict("jobs/42")
				if anothers {
					c.Node(i).Set("jobs/42", "foreign", time.Minute)
				}
			}
			err := k.Release(t.Context())
			harness.CheckIsNot(t, "Release", err, redlock.ErrLost)
			harness.CheckIs(t, "Release", err, redlock.ErrNoQuorum)
		})
	}
	runStaged(t, "first asked after Until", 3, func(t *testing.T, c *redlocktest.Cluster) {
		l := warmLocker(t, c, redlock.Options{NodeTimeout: 50 * time.Millisecond})
		k := harness.Try(t, l, "jobs/42", time.Second)
		time.Sleep(2 * time.Second)
		for i := range c.Len() {
			unanswered(c.Node(i), "release", "jobs/42", 1)
		}
		harness.CheckIs(t, "Release, nobody answers", k.Release(t.Context()), redlock.ErrNoQuorum)
		time.Sleep(time.Second)
		harness.CheckIs(t, "Release again", k.Release(t.Context()), redlock.ErrLost)
	})
}

// Attack 64.
func TestReleaseThatIsOverSendsNothing(t *testing.T) {
	for _, lost := range []bool{false, true} {
		staged(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
			l := warmLocker(t, c, redlock.Options{})
			k := harness.Try(t, l, "jobs/42", time.Minute)
			time.Sleep(time.Millisecond)
			if lost {
				for i := range c.Len() {
					c.Node(i).Set("jobs/42", "foreign", time.Minute)
				}
			}
			first := k.Release(t.Context())
			harness.Check(t, "Release is ErrLost", errors.Is(first, redlock.ErrLost), lost)
			time.Sleep(10 * time.Millisecond)
			for i := range c.Len() {
				c.Node(i).Record(true)
			}
			for range 5 {
				var err error
				d := took(func() { err = k.Release(t.Context()) })
				harness.Check(t, "time of another Release", d, 0)
				harness.Check(t, "its error", err, first)
			}
			time.Sleep(time.Second)
			for i := range c.Len() {
				harness.Check(t, "commands after the first Release", len(c.Node(i).Log()), 0)
				c.Node(i).Evict("jobs/42")
			}
			harness.CheckClean(t, c, l)
		})
	}
}

// Attack 17.
func TestReleaseAndTheCallersContext(t *testing.T) {
	const rtt = 20 * time.Millisecond
	slow := func(t *testing.T, f func(t *testing.T, c *redlocktest.Cluster, l *redlock.Locker, k *redlock.Lock)) {
		t.Helper()
		staged(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
			l := warmLocker(t, c, redlock.Options{})
			for i := range c.Len() {
				c.Node(i).Delay(rtt/2, rtt/2)
			}
			k := harness.Try(t, l, "jobs/42", time.Minute)
			time.Sleep(rtt)
			f(t, c, l, k)
			harness.CheckClean(t, c, l)
		})
	}
	t.Run("done before", func(t *testing.T) {
		slow(t, func(t *testing.T, c *redlocktest.Cluster, l *redlock.Locker, k *redlock.Lock) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			var err error
			d := took(func() { err = k.Release(ctx) })
			harness.CheckIs(t, "Release with a ctx that was done before", err)
			if d < rtt {
				t.Errorf("time of Release with a ctx that was done before: got %v, want the round trip of %v", d, rtt)
			}
		})
	})
	t.Run("done before, in a defer", func(t *testing.T) {
		slow(t, func(t *testing.T, c *redlocktest.Cluster, l *redlock.Locker, k *redlock.Lock) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			func() {
				defer k.Release(ctx)
				<-ctx.Done()
			}()
			for i := range c.Len() {
				harness.Check(t, "keys after the defer", len(harness.LocksOn(c.Node(i))), 0)
			}
		})
	})
	t.Run("done before, all hung", func(t *testing.T) {
		slow(t, func(t *testing.T, c *redlocktest.Cluster, l *redlock.Locker, k *redlock.Lock) {
			for i := range c.Len() {
				c.Node(i).Hang()
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			var err error
			d := took(func() { err = k.Release(ctx) })
			harness.Check(t, "time of Release of a lock of a minute with all nodes hung", d, time.Second)
			harness.CheckIs(t, "Release", err, redlock.ErrNoQuorum)
			harness.CheckIsNot(t, "Release", err, context.Canceled)
			for i := range c.Len() {
				c.Node(i).Resume()
			}
		})
	})
	t.Run("ends during it", func(t *testing.T) {
		slow(t, func(t *testing.T, c *redlocktest.Cluster, l *redlock.Locker, k *redlock.Lock) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
			defer cancel()
			var err error
			d := took(func() { err = k.Release(ctx) })
			harness.Check(t, "time of Release with a ctx that ends during it", d, 5*time.Millisecond)
			harness.CheckIs(t, "Release with a ctx that ends during it", err, context.DeadlineExceeded)
			harness.CheckIsNot(t, "Release with a ctx that ends during it", err, redlock.ErrLost)
			time.Sleep(2 * rtt)
			for i := range c.Len() {
				harness.Check(t, "keys after a release that nobody waited for", len(harness.LocksOn(c.Node(i))), 0)
			}
			harness.CheckIs(t, "the next Release", k.Release(t.Context()))
			for i := range c.Len() {
				harness.Check(t, "releases that a node heard", count(heard(c.Node(i), "jobs/42"), "release"), 1)
			}
		})
	})
}

func TestConcurrentReleasesAreOne(t *testing.T) {
	staged(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		l := warmLocker(t, c, redlock.Options{})
		k := harness.Try(t, l, "jobs/42", time.Minute)
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * 10 * time.Microsecond)
				harness.CheckIs(t, "one of many concurrent Releases", k.Release(t.Context()))
			})
		}
		wg.Wait()
		time.Sleep(10 * time.Millisecond)
		for i := range c.Len() {
			harness.Check(t, "releases that node "+c.Node(i).Name()+" heard", count(heard(c.Node(i), "jobs/42"), "release"), 1)
		}
		harness.CheckClean(t, c, l)
	})
}

// An early return at the quorum, then a quick release while a slow acquire is under
// way: it goes to that node after its acquire was answered.
//
// Attack 57.
func TestReleaseGoesToASlowNodeAfterItsAcquireWasAnswered(t *testing.T) {
	staged(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		l := warmLocker(t, c, redlock.Options{})
		n := c.Node(2)
		heldUp(n, "acquire", "jobs/42", 1, 50*time.Millisecond) // and what comes on another connection is not
		var k *redlock.Lock
		if d := took(func() { k = harness.Try(t, l, "jobs/42", time.Hour) }); d > time.Millisecond {
			t.Errorf("time of TryAcquire beside a slow node: got %v, want less than a millisecond", d)
		}
		if d := took(func() { harness.CheckIs(t, "Release", k.Release(t.Context())) }); d > time.Millisecond {
			t.Errorf("time of Release beside a slow node: got %v, want less than a millisecond", d)
		}
		time.Sleep(40 * time.Millisecond)
		harness.Check(t, "what the slow node heard before its acquire is executed", strings.Join(heard(n, "jobs/42"), " "), "")
		time.Sleep(20 * time.Millisecond)
		harness.Check(t, "what it heard then", strings.Join(heard(n, "jobs/42"), " "), "acquire release")
		harness.Check(t, "keys on the slow node", len(harness.LocksOn(n)), 0)
		harness.CheckClean(t, c, l)
	})
}

// The same for a failed attempt.
func TestRollbackGoesToASlowNodeAfterItsAcquireWasAnswered(t *testing.T) {
	staged(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		l := warmLocker(t, c, redlock.Options{})
		for i := range 2 {
			c.Node(i).Set("jobs/42", "foreign", time.Second)
		}
		n := c.Node(2)
		heldUp(n, "acquire", "jobs/42", 1, 50*time.Millisecond)
		_, err := l.TryAcquire(t.Context(), "jobs/42", time.Hour)
		harness.CheckIs(t, "TryAcquire", err, redlock.ErrHeld)
		time.Sleep(60 * time.Millisecond)
		harness.Check(t, "what the slow node heard", strings.Join(heard(n, "jobs/42"), " "), "acquire rollback")
		harness.CheckClean(t, c, l)
	})
}

// The release goes after the heal, too, that an extension had sent.
//
// Attack 78.
func TestReleaseGoesAfterTheHeal(t *testing.T) {
	staged(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		l := warmLocker(t, c, redlock.Options{})
		k := harness.Try(t, l, "jobs/42", time.Hour)
		time.Sleep(time.Millisecond)
		n := c.Node(2)
		n.Evict("jobs/42")
		heldUp(n, "heal", "jobs/42", 1, 50*time.Millisecond)
		harness.CheckIs(t, "Extend", k.Extend(t.Context()))
		time.Sleep(10 * time.Millisecond) // the heal has arrived and waits
		harness.CheckIs(t, "Release", k.Release(t.Context()))
		time.Sleep(100 * time.Millisecond)
		harness.Check(t, "what the node heard", strings.Join(heard(n, "jobs/42"), " "), "acquire extend heal release")
		harness.Check(t, "keys on the node", len(harness.LocksOn(n)), 0)
		harness.CheckClean(t, c, l)
	})
}

// A late extension must not bring the key back: it arrives after the release or is
// waited for.
//
// Attack 63.
func TestReleaseBesideKeepAliveAndExtendLeavesNoKey(t *testing.T) {
	for seed := range uint64(40) {
		redlocktest.BubbleFunc(t, func() {
			c := redlocktest.NewSeeded(t, 3, seed)
			l, err := harness.NewSeamed(redlock.Options{NodeTimeout: 90 * time.Millisecond}, nil, nil, seed, c.Nodes()...)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			ctx := context.Background()
			k, err := l.TryAcquire(ctx, "jobs/42", 3*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			c.Node(int(seed%3)).Delay(time.Duration(seed%5)*10*time.Millisecond, 0)
			held, stop := k.KeepAlive(ctx) // renews after 0.9 to 1 s
			release := 850*time.Millisecond + time.Duration(seed)*4*time.Millisecond
			time.Sleep(release - time.Millisecond)
			if seed%2 == 0 {
				c.Node(int(seed+1) % 3).Evict("jobs/42") // a heal is on its way when the release comes
			}
			var wg sync.WaitGroup
			for i := range 4 {
				wg.Go(func() {
					time.Sleep(time.Millisecond + time.Duration(i-2)*70*time.Microsecond)
					k.Extend(ctx)
				})
			}
			time.Sleep(time.Millisecond)
			harness.CheckIs(t, fmt.Sprintf("Release beside Extend and KeepAlive, seed %d", seed), k.Release(ctx))
			harness.Check(t, "the KeepAlive context has ended", held.Err() != nil, true)
			wg.Wait()
			time.Sleep(1500 * time.Millisecond) // not so long that the ttl could hide it
			for i := range c.Len() {
				if keys := harness.LocksOn(c.Node(i)); len(keys) > 0 {
					t.Errorf("seed %d: keys left on node %s: got %v, want none", seed, c.Node(i).Name(), keys)
				}
			}
			harness.CheckIs(t, "Extend after Release", k.Extend(ctx), redlock.ErrLost)
			stop()
		})
	}
}

// Attack 64.
func TestReleaseOfAnExpiredLockIsErrLostAndTouchesNothing(t *testing.T) {
	staged(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		l := warmLocker(t, c, redlock.Options{})
		k := harness.Try(t, l, "jobs/42", 50*time.Millisecond)
		time.Sleep(time.Second)
		other := harness.Try(t, l, "jobs/42", time.Minute)
		time.Sleep(time.Millisecond)
		err := k.Release(t.Context())
		harness.CheckIs(t, "Release of an expired lock that another holds now", err, redlock.ErrLost)
		time.Sleep(time.Second)
		for i := range c.Len() {
			value, _ := c.Node(i).Get("jobs/42")
			harness.Check(t, "value of the next holder on node "+c.Node(i).Name(), value, other.Value())
		}
		harness.Check(t, "the next holder's lock is valid", other.Valid(), true)
		harness.CheckIs(t, "Release by the next holder", other.Release(t.Context()))
		expired := harness.Try(t, l, "jobs/43", 50*time.Millisecond)
		time.Sleep(time.Second)
		harness.CheckIs(t, "Release of an expired lock that nobody holds", expired.Release(t.Context()), redlock.ErrLost)
		harness.CheckClean(t, c, l)
	})
}

func TestReleaseIsAnnouncedAndRollbackIsNot(t *testing.T) {
	staged(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		l := warmLocker(t, c, redlock.Options{})
		said := make([]chan string, c.Len())
		var wg sync.WaitGroup
		var subs []*redis.PubSub
		for i, client := range c.Clients() {
			sub := client.Subscribe(t.Context(), "{jobs/42}:release:watcher")
			if _, err := sub.Receive(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Node(i).Do("ZADD", jobQueue, "1", "watcher", endOf(c.Node(i).Now().Add(time.Hour).UnixMilli()), "watcher!"); err != nil {
				t.Fatal(err)
			}
			said[i] = make(chan string, 10)
			wg.Go(func() {
				for {
					m, err := sub.ReceiveMessage(context.Background())
					if err != nil {
						return
					}
					said[i] <- m.Payload
				}
			})
			subs = append(subs, sub)
		}
		defer func() {
			for _, sub := range subs {
				sub.Close()
			}
			wg.Wait()
		}()
		c.Node(0).Set("jobs/42", "foreign", time.Second)
		c.Node(1).Set("jobs/42", "foreign", time.Second)
		_, err := l.TryAcquire(t.Context(), "jobs/42", time.Minute)
		harness.CheckIs(t, "TryAcquire", err, redlock.ErrHeld)
		time.Sleep(1500 * time.Millisecond)
		harness.Check(t, "rollbacks that the third node heard", count(heard(c.Node(2), "jobs/42"), "rollback"), 1)
		k := harness.Try(t, l, "jobs/42", time.Minute)
		time.Sleep(time.Millisecond)
		c.Node(1).Evict("jobs/42") // announced there, too
		harness.CheckIs(t, "Release", k.Release(t.Context()))
		time.Sleep(10 * time.Millisecond)
		for i := range said {
			harness.Check(t, "announcements on node "+c.Node(i).Name(), len(said[i]), 1)
			if len(said[i]) > 0 {
				harness.Check(t, "what was announced on node "+c.Node(i).Name(), <-said[i], "1 "+k.Value())
			}
		}
	})
}

// What we left on stragglers is gone before the next attempt of the same Locker gets
// there.
func TestNextAttemptIsNotBlockedByOurOwnLeftovers(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, l *redlock.Locker, c *redlocktest.Cluster){
		"after Release": func(t *testing.T, l *redlock.Locker, c *redlocktest.Cluster) {
			k, err := l.TryAcquire(t.Context(), "jobs/42", time.Hour)
			harness.CheckIs(t, "TryAcquire directly after Release", err)
			if err == nil {
				harness.CheckIs(t, "Release", k.Release(t.Context()))
			}
		},
		"after a failed attempt": func(t *testing.T, l *redlock.Locker, c *redlocktest.Cluster) {
			c.Node(0).Set("jobs/42", "foreign", 5*time.Minute)
			c.Node(1).Set("jobs/42", "foreign", 5*time.Minute)
			_, err := l.TryAcquire(t.Context(), "jobs/42", time.Hour)
			harness.CheckIs(t, "TryAcquire of a held lock", err, redlock.ErrHeld)
			c.Node(0).Evict("jobs/42")
			c.Node(1).Evict("jobs/42")
			k, err := l.TryAcquire(t.Context(), "jobs/42", time.Hour)
			harness.CheckIs(t, "TryAcquire directly after one that failed", err)
			if err == nil {
				harness.CheckIs(t, "Release", k.Release(t.Context()))
			}
		},
		"after one whose ctx ended": func(t *testing.T, l *redlock.Locker, c *redlocktest.Cluster) {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Millisecond)
			defer cancel()
			if k, err := l.TryAcquire(ctx, "jobs/42", time.Hour); err == nil {
				k.Release(t.Context())
			}
			k, err := l.TryAcquire(t.Context(), "jobs/42", time.Hour)
			harness.CheckIs(t, "TryAcquire directly after one whose ctx ended", err)
			if err == nil {
				harness.CheckIs(t, "Release", k.Release(t.Context()))
			}
		},
	} {
		runStaged(t, name, 3, func(t *testing.T, c *redlocktest.Cluster) {
			l := warmLocker(t, c, redlock.Options{})
			for i := range 60 {
				// One near, one in the middle, one slow, in turns, and slower there than back.
				for j := range c.Len() {
					ms := time.Duration((i+j)%3) * 5 * time.Millisecond
					c.Node(j).Delay(ms, ms/2)
				}
				end(t, l, c)
			}
			harness.CheckClean(t, c, l)
		})
	}
}

// Attack 64.
func TestAReleasedLockIsOver(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		k := s.Take(l, 5*time.Second)
		s.Is("Release", k.Release(s.Ctx), nil)
		time.Sleep(time.Second)
		for i := range 3 {
			s.Node(i).Record(true)
		}
		s.Is("the second Release", k.Release(s.Ctx), nil)
		s.Is("Extend", k.Extend(s.Ctx), redlock.ErrLost)
		if k.Valid() {
			t.Errorf("valid after Release")
		}
		time.Sleep(time.Second)
		if got := s.Told(0); len(got) > 0 {
			t.Errorf("nodes were told %v, want nothing", harness.Verbs(got))
		}
	})
}

// Attack 65.
func TestAReleaseThatReachesAMinoritySaysWhenTheRestExpires(t *testing.T) {
	onStage(t, 5, func(s *stage) {
		l := s.Locker(redlock.Options{})
		k := s.Take(l, 5*time.Second)
		time.Sleep(time.Second)
		for _, i := range []int{0, 1, 2} {
			s.Node(i).Partition()
		}
		err := k.Release(s.Ctx)
		s.Is("Release", err, redlock.ErrNoQuorum)
		s.Says(err, "expires by", "3 of 5 votes needed")
		if k.Valid() {
			t.Errorf("valid after Release")
		}
		for _, i := range []int{0, 1, 2} {
			s.Node(i).Heal()
		}
		time.Sleep(3 * time.Second)
		s.Carry("after the heal", "", s.All()...)
		s.Is("Release asked again", k.Release(s.Ctx), nil)
		s.Clean(l)
	})
}

// Attack 18.
func TestWhatCannotBeReleasedExpiresWithItsTTL(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		clients := s.Cluster.Clients()
		a := s.LockerWith(redlock.Options{}, nil, harness.Nodes(clients))
		s.Take(a, 2*time.Second)
		s.Cluster.Cut(clients...)
		time.Sleep(2*time.Second + time.Millisecond)
		s.Carry("after the ttl", "", 0, 1, 2)
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
			t.Errorf("got a context that ends with %v, valid %v, want both over", held.Err(), k.Valid())
		}
		s.Is("Release", k.Release(s.Ctx), nil)
		s.Is("Close", l.Close(), nil)
		time.Sleep(9 * time.Second)
		s.Carry("shortly before its end", k.Value(), 0, 1, 2)
		_, err := other.TryAcquire(s.Ctx, job, 10*time.Second)
		s.Is("TryAcquire meanwhile", err, redlock.ErrHeld)
		time.Sleep(time.Second)
		s.Carry("afterwards", "", 0, 1, 2)
	})
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		k := s.Take(l, 10*time.Second)
		s.Is("LeaveUntil", k.LeaveUntil(s.Ctx, k.Until()), nil)
		s.Is("Close", l.Close(), nil) // within its first second: nothing else has seen to the registers
		for i := range 3 {
			if life := s.Node(i).TTL(jobRegister); life <= 0 {
				t.Errorf("the register of node %d has no life, want about a day", i)
			}
		}
	})
}
