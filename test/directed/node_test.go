package directed_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/harness"
	"github.com/seed-ce352c9b/redlock/internal/seam"
	"github.com/seed-ce352c9b/redlock/redlocktest"
)

// A gauge counts pipelines.
type gauge struct {
	mu        sync.Mutex
	now, most int
	sizes     []int // commands in each
}

func (g *gauge) around(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
	g.mu.Lock()
	g.now++
	g.most = max(g.most, g.now)
	g.sizes = append(g.sizes, len(cmds))
	g.mu.Unlock()
	defer func() {
		g.mu.Lock()
		g.now--
		g.mu.Unlock()
	}()
	return next(ctx, cmds)
}

func (g *gauge) reset() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.most, g.sizes = g.now, nil
}

func (g *gauge) read() (most int, sizes []int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.most, slices.Clone(g.sizes)
}

// many has n callers take a lock each, spaced apart; the result is how long each
// took. All have to get it.
func many(t *testing.T, l *redlock.Locker, prefix string, n int, apart time.Duration) []time.Duration {
	t.Helper()
	var wg sync.WaitGroup
	all := make([]time.Duration, n)
	for i := range n {
		wg.Go(func() {
			all[i] = took(func() {
				if _, err := l.TryAcquire(t.Context(), fmt.Sprint(prefix, i), time.Minute); err != nil {
					t.Errorf("TryAcquire number %d of %d at a time: got %v, want no error", i, n, err)
				}
			})
		})
		if apart > 0 {
			time.Sleep(apart)
		}
	}
	wg.Wait()
	return all
}

func TestConcurrentCallersOfANearNodeShareTwoPipelines(t *testing.T) {
	staged(t, 1, func(t *testing.T, c *redlocktest.Cluster) {
		g := &gauge{}
		clients := c.Clients()
		clients[0].AddHook(tap(g.around))
		l := lockerOn(t, redlock.Options{}, clients)
		warmUp(t, c, l)
		g.reset()
		const callers = 1000
		many(t, l, "k", callers, 0)
		most, sizes := g.read()
		if most > 2 {
			t.Errorf("pipelines under way to a node 0.2 ms away: got %d at once, want at most 2", most)
		}
		sum := 0
		for _, n := range sizes {
			sum += n
		}
		harness.Check(t, "commands of all callers", sum, 2*callers)
		if len(sizes) > callers/50 {
			t.Errorf("pipelines for %d callers at one instant: got %d, want at most %d", callers, len(sizes), callers/50)
		}
		if m := slices.Max(sizes); m > 2*256 {
			t.Errorf("commands in one pipeline: got %d, want at most 512, those of 256 callers", m)
		}
		harness.Check(t, "connections", c.Node(0).Connections() <= 4, true)
	})
}

func TestPipelinesUnderWayFollowTheRoundTrip(t *testing.T) {
	staged(t, 1, func(t *testing.T, c *redlocktest.Cluster) {
		g := &gauge{}
		clients := c.Clients()
		clients[0].AddHook(tap(g.around))
		l := lockerOn(t, redlock.Options{}, clients)
		c.Node(0).Delay(5*time.Millisecond, 5*time.Millisecond)
		warmUp(t, c, l)

		many(t, l, "first", 16, time.Millisecond) // dials what it needs
		g.reset()
		for i, d := range many(t, l, "alone", 64, time.Millisecond) {
			if d > 10300*time.Microsecond {
				t.Errorf("caller %d, a millisecond after the one before: took %v at a round trip of 10 ms, want one round trip", i, d)
				break
			}
		}
		if most, _ := g.read(); most <= 2 || most > 16 {
			t.Errorf("pipelines under way at a round trip of 10 ms: got %d at once, want 3 to 16", most)
		}
		g.reset()
		many(t, l, "crowd", 400, 50*time.Microsecond)
		if most, _ := g.read(); most != 16 {
			t.Errorf("pipelines under way to a far node under pressure: got %d at once, want 16", most)
		}

		c.Node(0).Delay(0, 0)
		many(t, l, "near", 1, 0) // the round trip is measured anew
		time.Sleep(50 * time.Millisecond)
		g.reset()
		many(t, l, "close", 400, 10*time.Microsecond)
		if most, _ := g.read(); most > 2 {
			t.Errorf("pipelines under way once the node is near again: got %d at once, want at most 2", most)
		}
	})
}

func TestLargeBatchesAreSplit(t *testing.T) {
	staged(t, 1, func(t *testing.T, c *redlocktest.Cluster) {
		g := &gauge{}
		clients := c.Clients()
		clients[0].AddHook(tap(g.around))
		l := lockerOn(t, redlock.Options{}, clients)
		warmUp(t, c, l)
		g.reset()
		many(t, l, strings.Repeat("x", 60<<10), 24, 0)
		_, sizes := g.read()
		// Twice the key: the lock's name and the register's. Two such callers fit in
		// 256 KiB, and the first is taken whatever its size.
		if m := slices.Max(sizes); m > 3*2 {
			t.Errorf("commands in one pipeline of callers with 60 KiB keys: got %d, want at most 6", m)
		}
	})
}

func TestFarNodesWarmUpAndAreUsed(t *testing.T) {
	staged(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		for i := range c.Len() {
			c.Node(i).Delay(70*time.Millisecond, 70*time.Millisecond)
		}
		l := lockerOn(t, redlock.Options{}, c.Clients())
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		k, err := l.Acquire(ctx, "jobs/42", time.Second)
		if err != nil {
			t.Fatalf("first Acquire at a round trip of 140 ms with ttl 1 s: got %v, want no error within 3 s", err)
		}
		k.Release(t.Context())
		time.Sleep(3 * time.Second)
		for i := range 20 {
			var k *redlock.Lock
			d := took(func() { k, err = l.TryAcquire(t.Context(), "jobs/43", time.Second) })
			if err != nil {
				t.Fatalf("TryAcquire %d at a round trip of 140 ms: got %v, want no error", i, err)
			}
			if i > 5 && d > 141*time.Millisecond { // until then scripts and connections are new
				t.Errorf("TryAcquire %d: took %v, want one round trip of 140 ms", i, d)
			}
			harness.CheckIs(t, "Extend at a round trip of 140 ms", k.Extend(t.Context()))
			harness.CheckIs(t, "Release at a round trip of 140 ms", k.Release(t.Context()))
			for j := range c.Len() {
				if i > 0 && seam.Peek(l).Nodes[j].Down {
					t.Errorf("node %s after %d locks: got down, want used", c.Node(j).Name(), i+1)
				}
			}
			time.Sleep(200 * time.Millisecond)
		}
		harness.CheckClean(t, c, l)
	})
}

// setsUp are the commands with which a client sets a connection up.
var setsUp = []string{"hello", "client", "auth", "select", "info"}

func TestDownNodeGetsPingsAndNothingElseUntilItAnswersOne(t *testing.T) {
	for _, fault := range []string{"hang", "partition"} {
		staged(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
			l := warmLocker(t, c, redlock.Options{})
			down := c.Node(2)
			if fault == "hang" {
				down.Hang()
			} else {
				down.Partition()
			}
			harness.Try(t, l, "first", 10*time.Second)
			time.Sleep(time.Second + time.Millisecond)
			harness.Check(t, "a node that let an acquire time out ("+fault+") is down", seam.Peek(l).Nodes[2].Down, true)
			for i := range 100 {
				k := harness.Try(t, l, fmt.Sprint("during", i), time.Second)
				k.Extend(t.Context())
				k.Release(t.Context())
				time.Sleep(20 * time.Millisecond)
			}
			down.Resume()
			down.Heal()
			time.Sleep(5 * time.Second)
			pings, log := 0, down.Log()
			for _, cmd := range log {
				name := strings.ToLower(cmd.Args[0])
				switch {
				case name == "ping":
					pings++
				case slices.Contains(setsUp, name):
				case strings.Contains(strings.Join(cmd.Args, " "), "during"):
					t.Fatalf("commands that a node that is down gets (%s): got %v, want PING only", fault, cmd)
				}
			}
			if pings == 0 {
				t.Errorf("PINGs to a node that is down (%s): got none in %d commands, want some", fault, len(log))
			}
			harness.Check(t, "the node is down after it answered", seam.Peek(l).Nodes[2].Down, false)
			k := harness.Try(t, l, "after", time.Second)
			time.Sleep(10 * time.Millisecond)
			value, _ := down.Get("after")
			harness.Check(t, "the value on the node that came back", value, k.Value())
		})
	}
}

// A PING that left before the last timeout says nothing about what the node has been since:
// it stays down until a later one is answered.
func TestOnlyAPingSentAfterTheLastTimeoutClearsANode(t *testing.T) {
	staged(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		l := warmLocker(t, c, redlock.Options{NodeTimeout: 50 * time.Millisecond})
		n := c.Node(2)
		began := time.Now()
		var over atomic.Bool
		n.OnCommand(func(args []string) {
			since := time.Since(began)
			switch w := harness.Verb(args); {
			case w == "acquire" || w == "ping" && since > 80*time.Millisecond:
				for !over.Load() { // it hangs
					time.Sleep(10 * time.Millisecond)
				}
			case w == "ping":
				time.Sleep(100*time.Millisecond - since)
			}
		})
		harness.Try(t, l, "first", 10*time.Second) // times out at 50 ms, and PINGs leave
		time.Sleep(30*time.Millisecond - time.Since(began))
		harness.Try(t, l, "second", 10*time.Second)          // on another connection; times out at 80 ms
		time.Sleep(110*time.Millisecond - time.Since(began)) // the PINGs of before that are answered
		harness.Check(t, "PINGs that left before the last timeout are there", count(heard(n, ""), "ping") > 0, true)
		harness.Check(t, "the node is down though they were answered", seam.Peek(l).Nodes[2].Down, true)
		time.Sleep(500 * time.Millisecond)
		harness.Check(t, "the node is down half a second later", seam.Peek(l).Nodes[2].Down, true)
		over.Store(true)
		_, up := within(time.Second, func() bool { return !seam.Peek(l).Nodes[2].Down })
		harness.Check(t, "the node is used again when a later PING is answered", up, true)
	})
}

func TestNodeIsUsedAgainWithinASecondOfComingBack(t *testing.T) {
	faults := map[string]struct{ on, off func(n *redlocktest.Node) }{
		"hang":            {(*redlocktest.Node).Hang, (*redlocktest.Node).Resume},
		"partition":       {(*redlocktest.Node).Partition, (*redlocktest.Node).Heal},
		"requests cut":    {(*redlocktest.Node).PartitionRequests, (*redlocktest.Node).Heal},
		"replies cut":     {(*redlocktest.Node).PartitionReplies, (*redlocktest.Node).Heal},
		"stopped":         {(*redlocktest.Node).Stop, (*redlocktest.Node).Start},
		"refused":         {func(n *redlocktest.Node) { n.Refuse(true) }, func(n *redlocktest.Node) { n.Refuse(false) }},
		"hang, then stop": {(*redlocktest.Node).Hang, func(n *redlocktest.Node) { n.Restart(true) }},
	}
	for name, f := range faults {
		outages := []time.Duration{50 * time.Millisecond, 5 * time.Second}
		if name == "refused" || name == "hang" {
			outages = append(outages, 10*time.Minute)
		}
		for _, outage := range outages {
			runStaged(t, fmt.Sprint(name, " ", outage), 3, func(t *testing.T, c *redlocktest.Cluster) {
				// As many connections as Open's clients may have.
				l := lockerOn(t, redlock.Options{}, c.ClientsWith(func(o *redis.Options) { o.PoolSize = 1024 }))
				warmUp(t, c, l)
				n := c.Node(2)
				f.on(n)
				k := harness.Try(t, l, "during", 3*time.Second)
				time.Sleep(outage)
				k.Release(t.Context())
				f.off(n)
				back, ok := within(3*time.Second, func() bool {
					k := harness.Try(t, l, "after", 10*time.Second)
					time.Sleep(time.Millisecond)
					value, _ := n.Get("after")
					k.Release(t.Context())
					return value == k.Value()
				})
				if !ok || back > time.Second {
					t.Errorf("used again after its return: got %v (ever: %v), want within a second", back, ok)
				}
				harness.CheckClean(t, c, l)
			})
		}
	}
}

// A minority in any sort of trouble costs no time: what is asked takes the time of
// the majority-th fastest of the rest.
func TestMinorityInTroubleCostsNoTime(t *testing.T) {
	faults := map[string]func(n *redlocktest.Node){
		"hung":        (*redlocktest.Node).Hang,
		"partitioned": (*redlocktest.Node).Partition,
		"deaf":        (*redlocktest.Node).PartitionRequests,
		"mute":        (*redlocktest.Node).PartitionReplies,
		"stopped":     (*redlocktest.Node).Stop,
		"refusing":    func(n *redlocktest.Node) { n.Refuse(true) },
		"slow":        func(n *redlocktest.Node) { n.Delay(10*time.Second, 10*time.Second) },
		"loading":     func(n *redlocktest.Node) { n.Fail("LOADING Redis is loading the dataset in memory") },
		"restarting":  func(n *redlocktest.Node) { n.OnCommand(func([]string) { n.Restart(false) }) },
	}
	for name, fault := range faults {
		runStaged(t, name, 5, func(t *testing.T, c *redlocktest.Cluster) {
			for i, ms := range []time.Duration{1, 2, 4} {
				c.Node(i).Delay(ms*time.Millisecond, ms*time.Millisecond)
			}
			l := warmLocker(t, c, redlock.Options{})
			fault(c.Node(3))
			fault(c.Node(4))
			// That is 8 ms, and up to 0.14 ms of jitter. A release goes to a node after
			// what was asked there before.
			const least, most = 8 * time.Millisecond, 8200 * time.Microsecond
			for i := range 20 {
				timed := func(what string, f func() error) {
					var err error
					d := took(func() { err = f() })
					if err != nil || d < least || d > most {
						t.Errorf("%s number %d with two of five nodes %s: took %v, error %v; want the third node's 8 ms, no error", what, i, name, d, err)
					}
				}
				var k *redlock.Lock
				timed("TryAcquire", func() (err error) {
					k, err = l.TryAcquire(t.Context(), fmt.Sprint("jobs/", i), time.Second)
					return err
				})
				if k == nil {
					return
				}
				timed("Extend", func() error { return k.Extend(t.Context()) })
				timed("Release", func() error { return k.Release(t.Context()) })
				time.Sleep(30 * time.Millisecond)
			}
			for i := range c.Len() {
				c.Node(i).OnCommand(nil)
			}
		})
	}
}

// A node of a minority is waited for only where the others are split, and its vote
// decides: as long as it answers in time, every time; else once.
func TestAMinorityIsWaitedForWhereItsVoteDecides(t *testing.T) {
	const slow = 900 * time.Millisecond
	for _, tc := range []struct {
		name  string
		fault func(n *redlocktest.Node)
		split bool
		took  [3]time.Duration // of three calls one after the other, about
		err   error
	}{
		{"slow, and the others agree", func(n *redlocktest.Node) { n.Delay(slow/2, slow/2) }, false, [3]time.Duration{0, 0, 0}, nil},
		{"slow, and the others are split", func(n *redlocktest.Node) { n.Delay(slow/2, slow/2) }, true, [3]time.Duration{slow, slow, slow}, nil},
		{"hung, and the others agree", (*redlocktest.Node).Hang, false, [3]time.Duration{0, 0, 0}, nil},
		{"hung, and the others are split", (*redlocktest.Node).Hang, true, [3]time.Duration{time.Second, 0, 0}, redlock.ErrNoQuorum},
	} {
		runStaged(t, tc.name, 3, func(t *testing.T, c *redlocktest.Cluster) {
			l := warmLocker(t, c, redlock.Options{})
			if tc.split {
				c.Node(1).Set("jobs/42", "somebody's remains", time.Hour)
			}
			tc.fault(c.Node(2))
			for i, want := range tc.took {
				var k *redlock.Lock
				var err error
				d := took(func() { k, err = l.TryAcquire(t.Context(), "jobs/42", 10*time.Second) })
				if d < want || d > want+10*time.Millisecond || tc.err == nil && err != nil || tc.err != nil && !errors.Is(err, tc.err) {
					t.Errorf("TryAcquire number %d took %v with %v, want %v with %v", i, d, err, want, tc.err)
				}
				if k != nil {
					k.Release(t.Context())
				}
				time.Sleep(3 * time.Second)
			}
			c.Node(2).Resume()
		})
	}
}

func TestForgottenScriptsAreSentAgainForAllOfABatch(t *testing.T) {
	staged(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		l := warmLocker(t, c, redlock.Options{})
		var locks []*redlock.Lock
		for i := range 40 {
			locks = append(locks, harness.Try(t, l, fmt.Sprint("k", i), time.Minute))
		}
		flush := func() {
			for i := range c.Len() {
				if _, err := c.Node(i).Do("SCRIPT", "FLUSH"); err != nil {
					t.Fatal(err)
				}
				c.Node(i).Record(true)
			}
		}
		all := func(what string, f func(k *redlock.Lock) error) {
			t.Helper()
			var wg sync.WaitGroup
			for _, k := range locks {
				wg.Go(func() { harness.CheckIs(t, what, f(k)) })
			}
			wg.Wait()
			time.Sleep(10 * time.Millisecond)
		}
		flush()
		all("Extend on servers that forgot the scripts", func(k *redlock.Lock) error { return k.Extend(t.Context()) })
		flush()
		all("Release on servers that forgot the scripts", func(k *redlock.Lock) error { return k.Release(t.Context()) })
		k := harness.Try(t, l, "later", time.Minute)
		c.Node(0).Record(true)
		k.Release(t.Context())
		time.Sleep(time.Millisecond)
		for _, cmd := range c.Node(0).Log() {
			harness.Check(t, "how a script goes to a server that knows it again", strings.ToLower(cmd.Args[0]), "evalsha")
		}
		harness.CheckClean(t, c, l)
	})
}

// syntaxError is what a server before 7.0 says to SET with NX and GET.
type syntaxError struct{}

func (syntaxError) Error() string { return "ERR syntax error" }
func (syntaxError) RedisError()   {}

// old makes a client see a server before 7.0.
func old(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
	var rest []redis.Cmder
	var first error
	for _, cmd := range cmds {
		if slices.Contains(cmd.Args(), any("get")) && cmd.Name() == "set" {
			cmd.SetErr(syntaxError{})
			first = syntaxError{}
		} else {
			rest = append(rest, cmd)
		}
	}
	if err := next(ctx, rest); err != nil {
		return err
	}
	return first
}

func TestServersBefore7AreAskedWithoutGet(t *testing.T) {
	staged(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		locker := func() *redlock.Locker {
			clients := c.Clients()
			for _, client := range clients {
				client.AddHook(tap(old))
			}
			return lockerOn(t, redlock.Options{}, clients)
		}
		a, b := locker(), locker()
		k := harness.Try(t, a, "jobs/42", time.Minute)
		_, err := b.TryAcquire(t.Context(), "jobs/42", time.Minute)
		harness.CheckIs(t, "TryAcquire of a held lock on old servers", err, redlock.ErrHeld)
		var q *redlock.QuorumError
		if errors.As(err, &q) {
			harness.Check(t, "the holder's name, which old servers do not tell", q.Round.Holder(), "")
		}
		harness.CheckIs(t, "Release", k.Release(t.Context()))
		time.Sleep(10 * time.Millisecond)
		c.Node(0).Record(true)
		k = harness.Try(t, b, "jobs/42", time.Minute)
		time.Sleep(time.Millisecond)
		harness.Check(t, "what a server known to be old is asked", strings.Join(heard(c.Node(0), "jobs/42"), " "), "heal") // SET K v NX PX
		harness.CheckIs(t, "Release", k.Release(t.Context()))
		harness.CheckClean(t, c, a, b)
	})
}

func TestPoisonedAndHugeCommandsDoNotHurtTheirNeighbours(t *testing.T) {
	staged(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		l := warmLocker(t, c, redlock.Options{})
		for i := range c.Len() {
			c.Node(i).Do("RPUSH", "poison", "x")
			for j := range 90 {
				c.Node(i).Do("SET", fmt.Sprintf("{badfence%d}:fence", j), "x", "PX", "600000")
			}
		}
		huge := strings.Repeat("h", 64<<10-3)
		var wg sync.WaitGroup
		for i := range 90 {
			wg.Go(func() {
				switch i % 3 {
				case 0:
					k, err := l.TryAcquire(t.Context(), fmt.Sprint("k", i), time.Minute)
					harness.CheckIs(t, "TryAcquire beside poisoned and huge ones", err)
					if err == nil {
						time.Sleep(10 * time.Millisecond)
						harness.CheckIs(t, "Extend beside poisoned and huge ones", k.Extend(t.Context()))
						harness.CheckIs(t, "Release beside poisoned and huge ones", k.Release(t.Context()))
					}
				case 1:
					key := "poison"
					if i%2 == 0 {
						key = fmt.Sprint("badfence", i)
					}
					k, err := l.TryAcquire(t.Context(), key, time.Minute)
					if k != nil || !errors.Is(err, redlock.ErrNoQuorum) || !strings.Contains(err.Error(), "WRONGTYPE") {
						t.Errorf("TryAcquire of %s, where another type is: got %v, want ErrNoQuorum with WRONGTYPE", key, err)
					}
				case 2:
					k, err := l.TryAcquire(t.Context(), huge+fmt.Sprint(i), time.Minute)
					harness.CheckIs(t, "TryAcquire of a key of 64 KiB", err)
					if err == nil {
						harness.CheckIs(t, "Release of a key of 64 KiB", k.Release(t.Context()))
					}
				}
			})
		}
		wg.Wait()
		time.Sleep(time.Second)
		for i := range c.Len() {
			harness.Check(t, "the list at a poisoned key is still there", len(harness.LocksOn(c.Node(i))), 1)
			c.Node(i).FlushAll()
		}
		harness.CheckClean(t, c, l)
	})
}

// The acquire's second command raises the register although the first was refused.
func TestRegisterBesideAKeyOfAnotherTypeHasALife(t *testing.T) {
	staged(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		l := warmLocker(t, c, redlock.Options{})
		for i := range c.Len() {
			c.Node(i).Do("RPUSH", "poison", "x")
		}
		_, err := l.TryAcquire(t.Context(), "poison", time.Minute)
		harness.CheckIs(t, "TryAcquire of a key of another type", err, redlock.ErrNoQuorum)
		time.Sleep(time.Second)
		for i := range c.Len() {
			c.Node(i).Evict("poison")
		}
		harness.CheckClean(t, c, l)
	})
}

// A connection that dies in the middle of a batch: what was executed and what was
// not look alike, and all of it is undone.
func TestConnectionThatDiesInMidBatchLeavesNothing(t *testing.T) {
	for _, keep := range []bool{true, false} {
		staged(t, 1, func(t *testing.T, c *redlocktest.Cluster) {
			l := warmLocker(t, c, redlock.Options{})
			n := c.Node(0)
			var sets atomic.Int32
			n.OnCommand(func(args []string) {
				if harness.Verb(args) == "acquire" && sets.Add(1) == 40 {
					if keep {
						n.Refuse(true)
						n.Refuse(false)
					} else {
						n.Restart(true)
					}
				}
			})
			var failed atomic.Int32
			var wg sync.WaitGroup
			for i := range 60 {
				wg.Go(func() {
					k, err := l.TryAcquire(t.Context(), fmt.Sprint("k", i), time.Hour)
					if err == nil {
						if value, _ := n.Get(k.Key()); value != k.Value() {
							t.Errorf("an acquired lock's value on the node: got %q, want %q", value, k.Value())
						}
						time.Sleep(time.Second) // till the connection's death is known
						harness.CheckIs(t, "Release", k.Release(t.Context()))
						return
					}
					failed.Add(1)
					harness.CheckIs(t, "TryAcquire on a dying connection", err, redlock.ErrNoQuorum)
					harness.CheckIsNot(t, "TryAcquire on a dying connection", err, redlock.ErrHeld)
					harness.Check(t, "vote of a node whose connection died", answersOf(err), "unknown")
				})
			}
			wg.Wait()
			harness.Check(t, "some calls had no answer", failed.Load() > 0, true)
			harness.CheckClean(t, c, l)
		})
	}
}

func TestMissingAnswerIsUnknownAndNeverNo(t *testing.T) {
	for name, fault := range map[string]func(n *redlocktest.Node){
		"dropped":  func(n *redlocktest.Node) { n.DropReplies(2) },
		"lost":     func(n *redlocktest.Node) { n.LoseReplies(2) },
		"mute":     (*redlocktest.Node).PartitionReplies,
		"deaf":     (*redlocktest.Node).PartitionRequests,
		"hung":     (*redlocktest.Node).Hang,
		"refused":  func(n *redlocktest.Node) { n.Refuse(true) },
		"stopped":  (*redlocktest.Node).Stop,
		"READONLY": func(n *redlocktest.Node) { n.Fail("READONLY You can't write against a read only replica.") },
		"forgetful": func(n *redlocktest.Node) {
			n.FailCommand("ZADD", "OOM command not allowed when used memory > 'maxmemory'.")
		},
	} {
		runStaged(t, name, 3, func(t *testing.T, c *redlocktest.Cluster) {
			l := warmLocker(t, c, redlock.Options{})
			c.Node(0).Set("jobs/42", "foreign", time.Hour)
			fault(c.Node(1))
			fault(c.Node(2))
			k, err := l.TryAcquire(t.Context(), "jobs/42", time.Hour)
			if k != nil {
				t.Fatal("TryAcquire: got a lock that no node agreed to, want none")
			}
			harness.CheckIs(t, "TryAcquire where one node says held and two do not answer", err, redlock.ErrNoQuorum)
			harness.CheckIsNot(t, "TryAcquire where one node says held and two do not answer", err, redlock.ErrHeld)
			if votes := answersOf(err); votes != "no unknown unknown" && votes != "pending unknown unknown" {
				t.Errorf("votes: got %s, want unknown of the two that did not answer", votes)
			}
			for _, i := range []int{1, 2} {
				n := c.Node(i)
				n.DropReplies(0)
				n.LoseReplies(0)
				n.Heal()
				n.Resume()
				n.Refuse(false)
				n.Start()
				n.Fail("")
				n.FailCommand("ZADD", "")
			}
			time.Sleep(time.Second)
			c.Node(0).Evict("jobs/42")
			harness.CheckClean(t, c, l)
		})
	}
}

func TestAnswerAfterTheTimeoutIsIgnoredAndCleanedUp(t *testing.T) {
	staged(t, 1, func(t *testing.T, c *redlocktest.Cluster) {
		var rounds []redlock.Round
		var mu sync.Mutex
		l := warmLocker(t, c, redlock.Options{Trace: redlock.Trace{Round: func(_ context.Context, r redlock.Round) {
			mu.Lock()
			defer mu.Unlock()
			rounds = append(rounds, r)
		}}})
		c.Node(0).Delay(0, 300*time.Millisecond)
		k, err := l.TryAcquire(t.Context(), "jobs/42", time.Second)
		c.Node(0).Delay(0, 0)
		harness.CheckIs(t, "TryAcquire answered after 300 ms with a node timeout of 100 ms", err, redlock.ErrNoQuorum)
		harness.Check(t, "a lock", k == nil, true)
		time.Sleep(150 * time.Millisecond) // the owed rollback has been answered, the acquire not
		harness.Check(t, "keys on the node when the late yes comes", len(harness.LocksOn(c.Node(0))), 0)
		time.Sleep(200 * time.Millisecond)
		harness.Check(t, "locks on the list after the late yes", seam.Peek(l).Held, 0)
		mu.Lock()
		for _, r := range rounds {
			if r.Op == redlock.OpAcquire && r.Key == "jobs/42" {
				harness.Check(t, "the vote that the observer sees", r.Votes[0].Answer, redlock.Unknown)
			}
		}
		mu.Unlock()
		harness.CheckClean(t, c, l)
		harness.Try(t, l, "jobs/42", time.Second).Release(t.Context())
	})
}

// A command that go-redis, or a hook of the user's, never executed has neither value
// nor error, as a nil reply has; and a nil reply is a granted lock.
func TestUntouchedCommandIsNeverAYes(t *testing.T) {
	strange := errors.New("the hook says no")
	for name, h := range map[string]tap{
		"nil without executing":       func(context.Context, []redis.Cmder, redis.ProcessPipelineHook) error { return nil },
		"error without executing":     func(context.Context, []redis.Cmder, redis.ProcessPipelineHook) error { return strange },
		"redis.Nil without executing": func(context.Context, []redis.Cmder, redis.ProcessPipelineHook) error { return redis.Nil },
		"all but the last command executed": func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
			if len(cmds) == 1 { // a script, and go-redis does not take an empty pipeline
				return next(ctx, cmds)
			}
			return next(ctx, cmds[:len(cmds)-1])
		},
	} {
		runStaged(t, name, 3, func(t *testing.T, c *redlocktest.Cluster) {
			var on atomic.Bool
			clients := c.Clients()
			for _, client := range clients {
				client.AddHook(tap(func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
					if on.Load() {
						return h(ctx, cmds, next)
					}
					return next(ctx, cmds)
				}))
			}
			l := lockerOn(t, redlock.Options{}, clients)
			warmUp(t, c, l)
			held := harness.Try(t, l, "held", time.Minute)
			time.Sleep(time.Millisecond)
			on.Store(true)
			k, err := l.TryAcquire(t.Context(), "jobs/42", time.Minute)
			if k != nil {
				t.Error("TryAcquire: got a lock that no node agreed to, want none")
			}
			harness.CheckIs(t, "TryAcquire of commands that were not executed", err, redlock.ErrNoQuorum)
			if errors.Is(err, redlock.ErrHeld) || strings.Contains(answersOf(err), "yes") || strings.Contains(answersOf(err), "no ") {
				t.Errorf("votes of commands that were not executed: got %s, want neither yes nor no", answersOf(err))
			}
			if name != "all but the last command executed" {
				until := held.Until()
				harness.CheckIs(t, "Extend that was not executed", held.Extend(t.Context()), redlock.ErrNoQuorum)
				harness.Check(t, "Until after it", held.Until(), until)
				harness.CheckIs(t, "Release that was not executed", held.Release(t.Context()), redlock.ErrNoQuorum)
			}
			on.Store(false)
			time.Sleep(time.Second)
			harness.CheckIs(t, "Release once the hook is gone", held.Release(t.Context()))
			harness.CheckClean(t, c, l)
		})
	}
}

// Where a server refuses a connection go-redis leaves the commands untouched.
func TestServerThatRefusesThePasswordIsNeverAYes(t *testing.T) {
	staged(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		for i := range c.Len() {
			c.Node(i).FailCommand("HELLO", "WRONGPASS invalid username-password pair or user is disabled.")
			c.Node(i).FailCommand("AUTH", "WRONGPASS invalid username-password pair or user is disabled.")
		}
		l := lockerOn(t, redlock.Options{}, c.ClientsWith(func(o *redis.Options) { o.Password = "wrong" }))
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		d := took(func() {
			k, err := l.Acquire(ctx, "jobs/42", time.Minute)
			harness.Check(t, "a lock", k == nil, true)
			harness.CheckIs(t, "Acquire with a wrong password", err, redlock.ErrNoQuorum)
			harness.Check(t, "votes", strings.Contains(answersOf(err), "yes") || strings.Contains(answersOf(err), "no "), false)
			if err == nil || !strings.Contains(err.Error(), "WRONGPASS") {
				t.Errorf("Acquire with a wrong password: got %v, want a text that says WRONGPASS", err)
			}
		})
		if d > time.Second {
			t.Errorf("Acquire with a wrong password: took %v, want it to end at once", d)
		}
	})
}

var errorClasses = []struct {
	text string
	hard bool // time does not heal it
}{
	{"LOADING Redis is loading the dataset in memory", false},
	{"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.", false},
	{"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", false},
	{"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.", false},
	{"NOREPLICAS Not enough good replicas to write.", false},
	{"OOM command not allowed when used memory > 'maxmemory'.", false},
	{"CLUSTERDOWN The cluster is down", false},
	{"TRYAGAIN Multiple keys request during rehashing of slot", false},
	{"ERR max number of clients reached", false},
	{"ERR something nobody has heard of", false},
	{"READONLY You can't write against a read only replica.", true},
	{"NOAUTH Authentication required.", true},
	{"NOPERM this user has no permissions to run the 'set' command", true},
	{"WRONGPASS invalid username-password pair or user is disabled.", true},
}

func TestErrorReplyOfAnyClassIsUnknownAndNothingIsLeft(t *testing.T) {
	for _, tc := range errorClasses {
		code, _, _ := strings.Cut(tc.text, " ")
		runStaged(t, tc.text, 3, func(t *testing.T, c *redlocktest.Cluster) {
			l := warmLocker(t, c, redlock.Options{})
			held := harness.Try(t, l, "held", time.Hour)
			fail := func(text string) {
				for i := range c.Len() {
					c.Node(i).Fail(text)
				}
			}
			time.Sleep(time.Millisecond)
			fail(tc.text)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			var err error
			d := took(func() { _, err = l.Acquire(ctx, "jobs/42", time.Hour) })
			harness.CheckIs(t, "Acquire", err, redlock.ErrNoQuorum)
			harness.CheckIsNot(t, "Acquire", err, redlock.ErrHeld)
			harness.Check(t, "Acquire ends before its ctx", d < time.Second, tc.hard)
			harness.Check(t, "Acquire's error is the ctx's", errors.Is(err, context.DeadlineExceeded), !tc.hard)
			if err == nil || !strings.Contains(err.Error(), code) {
				t.Errorf("Acquire: got %v, want a text that has %s", err, code)
			}
			harness.CheckIs(t, "Extend", held.Extend(t.Context()), redlock.ErrNoQuorum)
			harness.Check(t, "Valid after an extension that errors answered", held.Valid(), true)
			harness.CheckIs(t, "Release", held.Release(t.Context()), redlock.ErrNoQuorum)
			time.Sleep(3 * time.Second)
			fail("")
			time.Sleep(20 * time.Second) // tries of what errors answer are up to 16 s apart
			harness.CheckIs(t, "Release after the errors have ended", held.Release(t.Context()))
			harness.CheckClean(t, c, l)
		})
	}
}

func TestCallsBeyondTheQueueFailAtOnce(t *testing.T) {
	staged(t, 1, func(t *testing.T, c *redlocktest.Cluster) {
		l := warmLocker(t, c, redlock.Options{})
		c.Node(0).Hang()
		before := runtime.NumGoroutine()
		const calls = 18000
		var atOnce, busy, atTimeout atomic.Int32
		var wg sync.WaitGroup
		for i := range calls {
			wg.Go(func() {
				var err error
				d := took(func() { _, err = l.TryAcquire(context.Background(), fmt.Sprint(i), time.Second) })
				switch {
				case !errors.Is(err, redlock.ErrNoQuorum):
					t.Errorf("TryAcquire on a hung node: got %v, want ErrNoQuorum", err)
				case d == 0:
					atOnce.Add(1)
					if strings.Contains(err.Error(), "queue full") {
						busy.Add(1)
					}
				case d == 100*time.Millisecond:
					atTimeout.Add(1)
				default:
					t.Errorf("TryAcquire on a hung node: took %v, want 0 or 100 ms", d)
				}
			})
		}
		wg.Wait()
		// 16,384 wait in the queue, and at most two batches of 256 are under way.
		if n := int(busy.Load()); n < calls-16384-512 || n > calls-16384 {
			t.Errorf("calls refused for want of room: got %d of %d, want all but 16,384 and two batches", n, calls)
		}
		harness.Check(t, "calls that failed at once", atOnce.Load(), busy.Load())
		if n := c.Node(0).Connections(); n > 8 {
			t.Errorf("connections to a hung node after %d calls: got %d, want at most 8", calls, n)
		}
		if n := runtime.NumGoroutine() - before; n > 40 {
			t.Errorf("goroutines more than before %d calls: got %d, want at most 40", calls, n)
		}
		if n := seam.Peek(l).Nodes[0].Owed; n > 512 {
			t.Errorf("owed to a node that got two batches: got %d, want at most 512", n)
		}
		c.Node(0).Resume()
		harness.CheckClean(t, c, l)
	})
}

// With go-redis's own defaults a command whose reply was lost is sent again, up to
// three times, by the client; not ours.
func TestClientsThatRetryDoNotSendOurCommandsAgain(t *testing.T) {
	for name, fault := range map[string]func(n *redlocktest.Node){
		"dropped": func(n *redlocktest.Node) { n.DropReplies(1) },
		"LOADING": func(n *redlocktest.Node) { n.Fail("LOADING Redis is loading the dataset in memory") },
	} {
		runStaged(t, name, 3, func(t *testing.T, c *redlocktest.Cluster) {
			l := lockerOn(t, redlock.Options{NodeTimeout: 2 * time.Second}, c.ClientsWith(func(o *redis.Options) {
				o.MaxRetries, o.DialerRetries, o.ContextTimeoutEnabled = 0, 0, false // their defaults
			}))
			warmUp(t, c, l)
			n := c.Node(2)
			// Up to the first PING: after that we may well send it again ourselves.
			times := func(key, w string) int {
				words := heard(n, key)
				if i := slices.Index(words, "ping"); i >= 0 {
					words = words[:i]
				}
				return count(words, w)
			}
			fault(n)
			k := harness.Try(t, l, "acquired", time.Minute)
			time.Sleep(3 * time.Second) // go-redis waits 8 to 512 ms before it sends again
			harness.Check(t, "acquires executed or refused, of one TryAcquire", times("acquired", "acquire"), 1)
			n.Fail("")

			n.Record(true)
			fault(n)
			harness.CheckIs(t, "Extend", k.Extend(t.Context()))
			time.Sleep(3 * time.Second)
			harness.Check(t, "extends executed or refused, of one Extend", times("acquired", "extend"), 1)
			n.Fail("")

			n.Record(true)
			fault(n)
			harness.CheckIs(t, "Release", k.Release(t.Context()))
			time.Sleep(3 * time.Second)
			harness.Check(t, "releases executed or refused, of one Release", times("acquired", "release"), 1)
			n.Fail("")
			time.Sleep(20 * time.Second)
			harness.CheckClean(t, c, l)
		})
	}
}

// Calls that waited long for a place in a batch, behind others, have their node's
// timeout from when they are sent; and a queue that is not served says nothing about
// the node either.
func TestWhatWaitsInOurOwnQueueIsNotHeldAgainstTheNode(t *testing.T) {
	staged(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		l := warmLocker(t, c, redlock.Options{NodeTimeout: 50 * time.Millisecond})
		slow := c.Node(2)
		slow.Record(true)
		slow.OnCommand(func(args []string) {
			if harness.Verb(args) == "acquire" {
				time.Sleep(45 * time.Millisecond) // on that connection
			}
		})
		for i := range 3 { // two pipelines, and what waits behind them
			harness.Try(t, l, "jobs/"+strconv.Itoa(i), 10*time.Second)
		}
		time.Sleep(200 * time.Millisecond)
		for _, cmd := range slow.Log() {
			if harness.Verb(cmd.Args) == "ping" {
				t.Errorf("a node that answers everything in 45 ms was out of use: %v", cmd)
			}
		}
		for i := range 3 {
			if _, there := slow.Get("jobs/" + strconv.Itoa(i)); !there {
				t.Errorf("jobs/%d is not on it", i)
			}
		}
	})
}

// A replica's votes do not count, whether it lets itself be written to or not, and it is
// named with its master. What it stored is removed, and once promoted it votes.
func TestAReplicaIsNamedAndItsVotesDoNotCount(t *testing.T) {
	staged(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		clients := c.Clients()
		var promoted atomic.Bool
		var asked atomic.Int64
		for _, client := range clients[1:] { // a minority that remains is no quorum
			client.AddHook(tap(func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
				err := next(ctx, cmds)
				for _, cmd := range cmds {
					if args := cmd.Args(); args[0] == "info" && args[1] == "replication" {
						asked.Add(1)
						if !promoted.Load() {
							cmd.(interface{ SetVal(any) }).SetVal("# Replication\r\nrole:slave\r\nmaster_host:10.0.0.1\r\nmaster_port:6379\r\n")
						}
					}
				}
				return err
			}))
		}
		l := lockerOn(t, redlock.Options{}, clients)
		var err error
		d := took(func() { _, err = l.Acquire(t.Context(), "jobs/42", time.Minute) })
		harness.CheckIs(t, "Acquire", err, redlock.ErrNoQuorum)
		harness.Check(t, "the replicas' votes", strings.HasSuffix(answersOf(err), " unknown unknown"), true)
		if !strings.Contains(fmt.Sprint(err), "replica of 10.0.0.1:6379: pass its master") {
			t.Errorf("got %q, want the replica and its master named", err)
		}
		harness.Check(t, "Acquire waits for what time does not heal", d > time.Second, false)
		if n, _ := l.Inspect(t.Context(), "jobs/42"); n.Nodes[1].Err == nil || n.Nodes[0].Err != nil {
			t.Errorf("Inspect: got %v and %v, want the replica's answer refused", n.Nodes[0].Err, n.Nodes[1].Err)
		}
		harness.CheckClean(t, c, l)

		promoted.Store(true)
		k := harness.Try(t, l, "jobs/42", time.Minute)
		time.Sleep(time.Second)
		before := asked.Load()
		harness.CheckIs(t, "Extend", k.Extend(t.Context()))
		harness.CheckIs(t, "Release", k.Release(t.Context()))
		harness.CheckClean(t, c, l)
		harness.Check(t, "questions to a master for its role after the first", asked.Load()-before, 0)
	})
}

// A wrapper of unknown kind may follow a MOVED by itself: then it passes.
func TestMovedBehindAWrapperIsWaitedOut(t *testing.T) {
	staged(t, 1, func(t *testing.T, c *redlocktest.Cluster) {
		l, err := redlock.New(redlock.Options{}, hidesAll{c.Clients()[0]})
		harness.CheckIs(t, "New", err)
		defer l.Close()
		c.Node(0).FailCommand("set", "MOVED 3999 10.0.0.3:6379")
		time.AfterFunc(3*time.Second, func() { c.Node(0).FailCommand("set", "") })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = l.Acquire(ctx, "jobs/42", time.Minute)
		harness.CheckIs(t, "Acquire", err, context.DeadlineExceeded, redlock.ErrNoQuorum)
		if !strings.Contains(fmt.Sprint(err), "MOVED 3999 10.0.0.3:6379: a node of a Redis Cluster: pass") {
			t.Errorf("got %q, want what to do about it", err)
		}
		k, err := l.Acquire(t.Context(), "jobs/42", time.Minute)
		harness.CheckIs(t, "Acquire", err)
		harness.CheckIs(t, "Release", k.Release(t.Context()))
	})
}

// hidesAll is a wrapper that does not tell what it is.
type hidesAll struct{ node redlock.Node }

func (h hidesAll) Process(ctx context.Context, cmd redis.Cmder) error {
	return h.node.Process(ctx, cmd)
}
func (h hidesAll) Pipeline() redis.Pipeliner { return h.node.Pipeline() }

// A frail node is a client that panics in one of its methods, while a test says so.
type frail struct {
	*redis.Client
	fails atomic.Pointer[string] // the name of the method; nil: none
}

func (n *frail) fail(method string) {
	if m := n.fails.Load(); m != nil && *m == method {
		var client *redis.Client
		client.Options() // a nil pointer, as in a wrapper with a fault
	}
}

func (n *frail) Process(ctx context.Context, cmd redis.Cmder) error {
	n.fail("Process")
	return n.Client.Process(ctx, cmd)
}

func (n *frail) Pipeline() redis.Pipeliner {
	n.fail("Pipeline")
	return &frailPipeline{n.Client.Pipeline(), n}
}

func (n *frail) Subscribe(ctx context.Context, channels ...string) *redis.PubSub {
	n.fail("Subscribe")
	if m := n.fails.Load(); m != nil && *m == "Receive" {
		return nil // its methods panic
	}
	return n.Client.Subscribe(ctx, channels...)
}

type frailPipeline struct {
	redis.Pipeliner
	n *frail
}

func (p *frailPipeline) BatchProcess(ctx context.Context, cmds ...redis.Cmder) error {
	p.n.fail("BatchProcess")
	return p.Pipeliner.BatchProcess(ctx, cmds...)
}

func (p *frailPipeline) Exec(ctx context.Context) ([]redis.Cmder, error) {
	p.n.fail("before Exec")
	defer p.n.fail("after Exec")
	return p.Pipeliner.Exec(ctx)
}

// A panic in a client's code is a failed answer of that node, which may have been sent.
func TestAPanicOfAClientIsOneNodesFailedAnswer(t *testing.T) {
	for _, method := range []string{"Pipeline", "BatchProcess", "before Exec", "after Exec", "Process", "Subscribe", "Receive"} {
		runStaged(t, method, 3, func(t *testing.T, c *redlocktest.Cluster) {
			nodes := harness.Nodes(c.Clients())
			bad := &frail{Client: c.Clients()[0]}
			nodes[0] = bad
			l, err := redlock.New(redlock.Options{}, nodes...)
			harness.CheckIs(t, "New", err)
			defer l.Close()
			k := harness.Try(t, l, "before", time.Minute)
			time.Sleep(time.Second)

			bad.fails.Store(&method)
			harness.CheckIs(t, "Extend", k.Extend(t.Context()))
			harness.CheckIs(t, "Release", k.Release(t.Context()))
			k = harness.Try(t, l, "meanwhile", time.Minute)
			alone, err := redlock.New(redlock.Options{}, bad)
			harness.CheckIs(t, "New", err)
			defer alone.Close()
			if k, err := alone.TryAcquire(t.Context(), "alone", time.Minute); err == nil {
				harness.CheckIs(t, "Release", k.Release(t.Context()))
				harness.Check(t, method+" is no part of it", slices.Contains([]string{"Process", "Subscribe", "Receive"}, method), true)
			} else {
				harness.CheckIs(t, "TryAcquire", err, redlock.ErrNoQuorum)
				harness.Check(t, "votes", answersOf(err), "unknown")
				if text := fmt.Sprint(err); !strings.Contains(text, "client panicked: runtime error: invalid memory address") || !strings.Contains(text, ".go:") {
					t.Errorf("got %q, want what panicked, and where", text)
				}
			}
			// A waiter, of another Locker that would have to hear the node.
			waiter, err := redlock.New(redlock.Options{}, nodes...)
			harness.CheckIs(t, "New", err)
			defer waiter.Close()
			next := harness.Background(func() error {
				k, err := waiter.Acquire(t.Context(), "meanwhile", time.Minute)
				if err == nil {
					err = k.Release(t.Context())
				}
				return err
			})
			c.Node(0).Partition() // so that it is PINGed, too
			time.Sleep(3 * time.Second)
			harness.CheckIs(t, "Release", k.Release(t.Context()))
			harness.CheckIs(t, "Acquire", <-next)

			c.Node(0).Heal()
			bad.fails.Store(nil)
			time.Sleep(30 * time.Second) // the pause before a subscription is tried again
			harness.CheckClean(t, c, l, waiter)
			harness.Check(t, "owed by the one with this node alone", seam.Peek(alone).Nodes[0].Owed, 0)
			k = harness.Try(t, alone, "afterwards", time.Minute)
			harness.CheckIs(t, "Release", k.Release(t.Context()))
		})
	}
}

// One of three dies: the two others are a majority, and the lock must be kept.
func TestExtensionsFasterThanAFarNodeAnswersDoNotLoseTheLock(t *testing.T) {
	staged(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		l := warmLocker(t, c, redlock.Options{})
		k := harness.Try(t, l, "k", 10*time.Second)
		held, stop := k.KeepAlive(t.Context())
		defer stop()
		c.Node(2).Delay(100*time.Millisecond, 100*time.Millisecond)
		for end := time.Now().Add(3 * time.Second); time.Now().Before(end); {
			k.Extend(t.Context())
			time.Sleep(5 * time.Millisecond)
		}
		c.Node(1).Stop()
		time.Sleep(30 * time.Second)
		if held.Err() != nil {
			t.Errorf("lost with a majority up: %v", context.Cause(held))
		}
	})
}

type proxyError string

func (e proxyError) Error() string { return string(e) }

func (proxyError) RedisError() {}

// A proxy that answers for a server whose reply it lost.
func TestAnErrorThatNoServerSaysMayHideAnExecutedCommand(t *testing.T) {
	staged(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		clients := c.Clients()
		on := false
		for _, cl := range clients[1:] {
			cl.AddHook(tap(func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
				err := next(ctx, cmds)
				if on && strings.EqualFold(cmds[0].Name(), "set") {
					for _, cmd := range cmds {
						cmd.SetErr(proxyError("ERR upstream failure"))
					}
					return proxyError("ERR upstream failure")
				}
				return err
			}))
		}
		l := lockerOn(t, redlock.Options{}, clients)
		warmUp(t, c, l)
		on = true
		_, err := l.TryAcquire(t.Context(), "k", time.Minute)
		t.Log(err)
		time.Sleep(10 * time.Second)
		for i := range 3 {
			if v, ok := c.Node(i).Get("k"); ok {
				t.Errorf("node %d: still %s; %v", i, v, heard(c.Node(i), "k"))
			}
		}
	})
}

// A far node replies well within the time that it is given, and callers try one key
// more often than its round trip.
func TestAttemptsFasterThanAFarNodeAnswersDoNotQueueBehindIt(t *testing.T) {
	staged(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		l := warmLocker(t, c, redlock.Options{})
		holder := harness.Try(t, lockerOn(t, redlock.Options{}, c.Clients()), "k", time.Minute)
		c.Node(2).Delay(100*time.Millisecond, 100*time.Millisecond)
		attempts := 0
		for end := time.Now().Add(5 * time.Second); time.Now().Before(end); attempts++ {
			l.TryAcquire(t.Context(), "k", 30*time.Second)
			time.Sleep(time.Millisecond)
		}
		if got := count(heard(c.Node(2), "k"), "acquire"); got > attempts/10 {
			t.Errorf("acquires sent to the far node: got %d of %d, want one in each round trip", got, attempts)
		}
		// Now a near node dies, and the lock is free.
		holder.Release(t.Context())
		c.Node(1).Stop()
		time.Sleep(10 * time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		var err error
		d := took(func() { _, err = l.TryAcquire(ctx, "k", 30*time.Second) })
		harness.CheckIs(t, "TryAcquire", err)
		if d > time.Second {
			t.Errorf("TryAcquire took %v, want about a round trip of 200ms", d)
		}
	})
}

// A lock is extended more often than a far node replies, and then released: no extension waits
// there before the release.
func TestExtensionsFasterThanAFarNodeAnswersDoNotOutliveTheRelease(t *testing.T) {
	staged(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		l := warmLocker(t, c, redlock.Options{})
		k := harness.Try(t, l, "k", 10*time.Second)
		c.Node(2).Delay(100*time.Millisecond, 100*time.Millisecond)
		for end := time.Now().Add(3 * time.Second); time.Now().Before(end); {
			harness.CheckIs(t, "Extend", k.Extend(t.Context()))
			time.Sleep(5 * time.Millisecond)
		}
		harness.CheckIs(t, "Release", k.Release(t.Context()))
		time.Sleep(2 * time.Second)
		if v, ok := c.Node(2).Get("k"); ok {
			t.Errorf("the far node, two seconds after Release: got %q, want nothing", v)
		}
	})
}
