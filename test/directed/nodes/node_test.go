package nodes_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/harness"
	"github.com/seed-ce352c9b/redlock/internal/seam"
	"github.com/seed-ce352c9b/redlock/internal/wrapped"
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

// many has n callers take a lock each for ten seconds, spaced apart; the result is how long each
// took. All have to get it.
func (s *stage) many(l *redlock.Locker, prefix string, n int, apart time.Duration) []time.Duration {
	s.Helper()
	var wg sync.WaitGroup
	all := make([]time.Duration, n)
	for i := range n {
		wg.Go(func() {
			all[i] = harness.Took(func() {
				s.Is(fmt.Sprintf("TryAcquire number %d of %d at a time", i, n), harness.Second(l.TryAcquire(s.Ctx, fmt.Sprint(prefix, i), 10*time.Second)), nil)
			})
		})
		time.Sleep(apart)
	}
	wg.Wait()
	return all
}

// gauged returns a Locker whose pipelines to the stage's only node are counted.
func (s *stage) gauged() (*redlock.Locker, *gauge) {
	s.Helper()
	g := &gauge{}
	clients := s.Cluster.Clients()
	clients[0].AddHook(harness.Tap(g.around))
	l := s.Cold(redlock.Options{}, nil, harness.Nodes(clients))
	harness.WarmUp(s, s.Cluster, l)
	g.reset()
	return l, g
}

func TestConcurrentCallersOfANearNodeShareTwoPipelines(t *testing.T) {
	onStage(t, 1, func(s *stage) {
		l, g := s.gauged()
		const callers = 1000
		s.many(l, "k", callers, 0)
		most, sizes := g.read()
		if most > 2 {
			s.Errorf("pipelines under way to a node 0.2 ms away: got %d at once, want at most 2", most)
		}
		sum := 0
		for _, n := range sizes {
			sum += n
		}
		harness.Check(s, "commands of all callers", sum, 2*callers)
		if len(sizes) > callers/50 {
			s.Errorf("pipelines for %d callers at one instant: got %d, want at most %d", callers, len(sizes), callers/50)
		}
		if m := slices.Max(sizes); m > 2*256 {
			s.Errorf("commands in one pipeline: got %d, want at most 512, those of 256 callers", m)
		}
		harness.Check(s, "connections", s.Node(0).Connections() <= 4, true)
	})
}

func TestPipelinesUnderWayFollowTheRoundTrip(t *testing.T) {
	onStage(t, 1, func(s *stage) {
		s.Slow(10*time.Millisecond, 0)
		l, g := s.gauged()
		s.many(l, "first", 16, time.Millisecond) // dials what it needs
		g.reset()
		for i, d := range s.many(l, "alone", 64, time.Millisecond) {
			if d > 10300*time.Microsecond {
				s.Errorf("caller %d, a millisecond after the one before: took %v at a round trip of 10 ms, want one round trip", i, d)
				break
			}
		}
		if most, _ := g.read(); most <= 2 || most > 16 {
			s.Errorf("pipelines under way at a round trip of 10 ms: got %d at once, want 3 to 16", most)
		}
		g.reset()
		s.many(l, "crowd", 400, 50*time.Microsecond)
		if most, _ := g.read(); most != 16 {
			s.Errorf("pipelines under way to a far node under pressure: got %d at once, want 16", most)
		}

		s.Slow(0, 0)
		s.many(l, "near", 1, 0) // the round trip is measured anew
		time.Sleep(50 * time.Millisecond)
		g.reset()
		s.many(l, "close", 400, 10*time.Microsecond)
		if most, _ := g.read(); most > 2 {
			s.Errorf("pipelines under way once the node is near again: got %d at once, want at most 2", most)
		}
	})
}

func TestLargeBatchesAreSplit(t *testing.T) {
	onStage(t, 1, func(s *stage) {
		l, g := s.gauged()
		s.many(l, strings.Repeat("x", 60<<10), 24, 0)
		_, sizes := g.read()
		// Twice the key: the lock's name and the register's. Two such callers fit in
		// 256 KiB, and the first is taken whatever its size.
		if m := slices.Max(sizes); m > 3*2 {
			s.Errorf("commands in one pipeline of callers with 60 KiB keys: got %d, want at most 6", m)
		}
	})
}

func TestFarNodesWarmUpAndAreUsed(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		s.Slow(140*time.Millisecond, s.All()...)
		l := s.Cold(redlock.Options{}, nil, s.Cluster.Nodes())
		ctx, cancel := context.WithTimeout(s.Ctx, 3*time.Second)
		defer cancel()
		k, err := l.Acquire(ctx, job, time.Second)
		if err != nil {
			s.Fatalf("first Acquire at a round trip of 140 ms with ttl 1 s: got %v, want no error within 3 s", err)
		}
		k.Release(s.Ctx)
		time.Sleep(3 * time.Second)
		for i := range 20 {
			d := harness.Took(func() { k = harness.Try(s, l, "jobs/43", time.Second) })
			if i > 5 && d > 141*time.Millisecond { // until then scripts and connections are new
				s.Errorf("TryAcquire %d: took %v, want one round trip of 140 ms", i, d)
			}
			s.Is("Extend at a round trip of 140 ms", k.Extend(s.Ctx), nil)
			s.Is("Release at a round trip of 140 ms", k.Release(s.Ctx), nil)
			for j, n := range seam.Peek(l).Nodes {
				harness.Check(s, fmt.Sprintf("node %d is down after %d locks", j, i+1), n.Down && i > 0, false)
			}
			time.Sleep(200 * time.Millisecond)
		}
		s.Clean(l)
	})
}

func TestDownNodeGetsPingsAndNothingElseUntilItAnswersOne(t *testing.T) {
	setsUp := []string{"hello", "client", "auth", "select", "info"} // the commands with which a client sets a connection up
	for _, fault := range []string{"hung", "cut off"} {
		onStage(t, 3, func(s *stage) {
			l := s.Locker(redlock.Options{})
			down := s.Node(2)
			harness.Faults[fault](down)
			harness.Try(s, l, "first", 10*time.Second)
			time.Sleep(time.Second + time.Millisecond)
			harness.Check(s, "a node that let an acquire time out ("+fault+") is down", seam.Peek(l).Nodes[2].Down, true)
			for i := range 100 {
				k := harness.Try(s, l, fmt.Sprint("during", i), time.Second)
				k.Extend(s.Ctx)
				k.Release(s.Ctx)
				time.Sleep(20 * time.Millisecond)
			}
			s.Mend(2)
			time.Sleep(5 * time.Second)
			for _, cmd := range down.Log() {
				if !slices.Contains(setsUp, strings.ToLower(cmd.Args[0])) && strings.Contains(strings.Join(cmd.Args, " "), "during") {
					s.Fatalf("commands that a node that is down gets (%s): got %v, want PING only", fault, cmd)
				}
			}
			harness.Check(s, "PINGs to a node that is down ("+fault+") were sent", harness.Count(harness.Heard(down, ""), "ping") > 0, true)
			harness.Check(s, "the node is down after it answered", seam.Peek(l).Nodes[2].Down, false)
			k := harness.Try(s, l, "after", time.Second)
			time.Sleep(10 * time.Millisecond)
			value, _ := down.Get("after")
			harness.Check(s, "the value on the node that came back", value, k.Value().Secret())
		})
	}
}

// A PING that left before the last timeout says nothing about what the node has been since:
// it stays down until a later one is answered.
func TestOnlyAPingSentAfterTheLastTimeoutClearsANode(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{NodeTimeout: 50 * time.Millisecond})
		n := s.Node(2)
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
		harness.Try(s, l, "first", 10*time.Second) // times out at 50 ms, and PINGs leave
		time.Sleep(30*time.Millisecond - time.Since(began))
		harness.Try(s, l, "second", 10*time.Second)          // on another connection; times out at 80 ms
		time.Sleep(110*time.Millisecond - time.Since(began)) // the PINGs of before that are answered
		harness.Check(s, "PINGs that left before the last timeout are there", harness.Count(harness.Heard(n, ""), "ping") > 0, true)
		harness.Check(s, "the node is down though they were answered", seam.Peek(l).Nodes[2].Down, true)
		time.Sleep(500 * time.Millisecond)
		harness.Check(s, "the node is down half a second later", seam.Peek(l).Nodes[2].Down, true)
		over.Store(true)
		_, up := harness.Within(time.Second, func() bool { return !seam.Peek(l).Nodes[2].Down })
		harness.Check(s, "the node is used again when a later PING is answered", up, true)
	})
}

func TestNodeIsUsedAgainWithinASecondOfComingBack(t *testing.T) {
	for _, name := range []string{"hung", "cut off", "requests lost", "replies lost", "stopped", "refused", "hung, then restarted"} {
		outages := []time.Duration{50 * time.Millisecond, 5 * time.Second}
		if name == "refused" || name == "hung" {
			outages = append(outages, 10*time.Minute)
		}
		for _, outage := range outages {
			runStage(t, fmt.Sprint(name, " ", outage), 3, func(s *stage) {
				// As many connections as Open's clients may have.
				l := s.LockerWith(redlock.Options{}, nil, harness.Nodes(s.Cluster.ClientsWith(func(o *redis.Options) { o.PoolSize = 1024 })))
				n := s.Node(2)
				fault, restarted := strings.CutSuffix(name, ", then restarted")
				harness.Faults[fault](n)
				k := harness.Try(s, l, "during", 3*time.Second)
				time.Sleep(outage)
				k.Release(s.Ctx)
				if restarted {
					n.Restart(true)
				}
				s.Mend(2)
				back, ok := harness.Within(3*time.Second, func() bool {
					k := harness.Try(s, l, "after", 10*time.Second)
					time.Sleep(time.Millisecond)
					value, _ := n.Get("after")
					k.Release(s.Ctx)
					return value == k.Value().Secret()
				})
				if !ok || back > time.Second {
					s.Errorf("used again after its return: got %v (ever: %v), want within a second", back, ok)
				}
				s.Clean(l)
			})
		}
	}
}

// A minority in any sort of trouble costs no time: what is asked takes the time of
// the majority-th fastest of the rest.
func TestMinorityInTroubleCostsNoTime(t *testing.T) {
	faults := maps.Clone(harness.Faults)
	faults["restarting"] = func(n *redlocktest.Node) { n.OnCommand(func([]string) { n.Restart(false) }) }
	for name, fault := range faults {
		runStage(t, name, 5, func(s *stage) {
			for i, ms := range []time.Duration{1, 2, 4} {
				s.Slow(2*ms*time.Millisecond, i)
			}
			l := s.Locker(redlock.Options{})
			s.Each(fault, 3, 4)
			for range 20 {
				var k *redlock.Lock
				s.Lasts("TryAcquire", 8*time.Millisecond, func() { k = s.Take(l, time.Second) })
				s.Lasts("Extend", 8*time.Millisecond, func() { s.Is("Extend", k.Extend(s.Ctx), nil) })
				s.Lasts("Release", 8*time.Millisecond, func() { s.Is("Release", k.Release(s.Ctx), nil) })
				time.Sleep(30 * time.Millisecond)
			}
			s.Each(func(n *redlocktest.Node) { n.OnCommand(nil) })
		})
	}
}

// A node of a minority is waited for only where the others are split, and its vote
// decides: as long as it answers in time, every time; else once.
func TestAMinorityIsWaitedForWhereItsVoteDecides(t *testing.T) {
	const slow = 900 * time.Millisecond
	for _, tc := range []struct {
		hung, split bool
		took        [3]time.Duration // of three calls one after the other, about
		err         error
	}{
		{false, false, [3]time.Duration{0, 0, 0}, nil},
		{false, true, [3]time.Duration{slow, slow, slow}, nil},
		{true, false, [3]time.Duration{0, 0, 0}, nil},
		{true, true, [3]time.Duration{time.Second, 0, 0}, redlock.ErrNoQuorum},
	} {
		runStage(t, fmt.Sprintf("hung %v, and the others are split %v", tc.hung, tc.split), 3, func(s *stage) {
			l := s.Locker(redlock.Options{})
			if tc.split {
				s.Foreign(time.Hour, 1)
			}
			s.Slow(slow, 2)
			if tc.hung {
				s.Node(2).Hang()
			}
			for i, want := range tc.took {
				var k *redlock.Lock
				var err error
				d := harness.Took(func() { k, err = l.TryAcquire(s.Ctx, job, 10*time.Second) })
				s.Is("TryAcquire", err, tc.err)
				if d < want || d > want+10*time.Millisecond {
					s.Errorf("TryAcquire number %d took %v, want %v", i, d, want)
				}
				if k != nil {
					k.Release(s.Ctx)
				}
				time.Sleep(3 * time.Second)
			}
			s.Mend(2)
		})
	}
}

func TestForgottenScriptsAreSentAgainForAllOfABatch(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		locks := s.TakeMany(l, "k", 40)
		all := func(what string, f func(k *redlock.Lock) error) {
			s.Helper()
			s.Each(func(n *redlocktest.Node) { n.Do("SCRIPT", "FLUSH") })
			var wg sync.WaitGroup
			for _, k := range locks {
				wg.Go(func() { s.Is(what+" on servers that forgot the scripts", f(k), nil) })
			}
			wg.Wait()
			time.Sleep(10 * time.Millisecond)
		}
		all("Extend", func(k *redlock.Lock) error { return k.Extend(s.Ctx) })
		all("Release", func(k *redlock.Lock) error { return k.Release(s.Ctx) })
		k := harness.Try(s, l, "later", time.Minute)
		s.Record()
		k.Release(s.Ctx)
		time.Sleep(time.Millisecond)
		for _, cmd := range s.Node(0).Log() {
			harness.Check(s, "how a script goes to a server that knows it again", strings.ToLower(cmd.Args[0]), "evalsha")
		}
		s.Clean(l)
	})
}

// A serverError is what go-redis takes for a reply of the server.
type serverError string

func (e serverError) Error() string { return string(e) }
func (serverError) RedisError()     {}

// old makes a client see a server before 7.0, which refuses SET with NX and GET.
func old(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
	const refused = serverError("ERR syntax error")
	var first error
	rest := slices.DeleteFunc(slices.Clone(cmds), func(cmd redis.Cmder) bool {
		gets := cmd.Name() == "set" && slices.Contains(cmd.Args(), any("get"))
		if gets {
			cmd.SetErr(refused)
			first = refused
		}
		return gets
	})
	if err := next(ctx, rest); err != nil {
		return err
	}
	return first
}

func TestServersBefore7AreAskedWithoutGet(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		locker := func() *redlock.Locker {
			clients := s.Cluster.Clients()
			for _, client := range clients {
				client.AddHook(harness.Tap(old))
			}
			return s.LockerWith(redlock.Options{}, nil, harness.Nodes(clients))
		}
		a, b := locker(), locker()
		k := s.Take(a, time.Minute)
		_, err := b.TryAcquire(s.Ctx, job, time.Minute)
		s.Is("TryAcquire of a held lock on old servers", err, redlock.ErrHeld)
		var q *redlock.QuorumError
		if errors.As(err, &q) {
			harness.Check(s, "the holder's name, which old servers do not tell", q.Round.Value().Secret(), "")
		}
		s.Is("Release", k.Release(s.Ctx), nil)
		time.Sleep(10 * time.Millisecond)
		s.Record()
		k = s.Take(b, time.Minute)
		time.Sleep(time.Millisecond)
		harness.Check(s, "what a server known to be old is asked", strings.Join(harness.Heard(s.Node(0), job), " "), "heal") // SET K v NX PX
		s.Is("Release", k.Release(s.Ctx), nil)
		s.Clean(a, b)
	})
}

func TestPoisonedAndHugeCommandsDoNotHurtTheirNeighbours(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		s.Each(func(n *redlocktest.Node) {
			n.Do("RPUSH", "poison", "x")
			for j := range 90 {
				n.Do("SET", fmt.Sprintf("{badfence%d}:fence", j), "x", "PX", "600000")
			}
		})
		huge := strings.Repeat("h", 64<<10-3)
		var wg sync.WaitGroup
		for i := range 30 {
			wg.Go(func() {
				k := harness.Try(s, l, fmt.Sprint("k", i), time.Minute)
				time.Sleep(10 * time.Millisecond)
				s.Is("Extend beside poisoned and huge ones", k.Extend(s.Ctx), nil)
				s.Is("Release beside poisoned and huge ones", k.Release(s.Ctx), nil)
			})
			for _, key := range []string{"poison", fmt.Sprint("badfence", i)} {
				wg.Go(func() {
					k, err := l.TryAcquire(s.Ctx, key, time.Minute)
					s.Is("TryAcquire of a key where another type is", err, redlock.ErrNoQuorum)
					s.Says(err, "WRONGTYPE")
					harness.Check(s, "a lock", k == nil, true)
				})
			}
			wg.Go(func() {
				s.Is("Release of a key of 64 KiB", harness.Try(s, l, huge+fmt.Sprint(i), time.Minute).Release(s.Ctx), nil)
			})
		}
		wg.Wait()
		time.Sleep(time.Second)
		s.Each(func(n *redlocktest.Node) {
			harness.Check(s, "the list at a poisoned key is still there", len(harness.LocksOn(n)), 1)
			n.Evict("poison") // beside which the acquire's second command has raised the register
		})
		s.Clean(l)
	})
}

// A connection that dies in the middle of a batch: what was executed and what was
// not look alike, and all of it is undone.
func TestConnectionThatDiesInMidBatchLeavesNothing(t *testing.T) {
	for name, dies := range map[string]func(n *redlocktest.Node){
		"reset":     func(n *redlocktest.Node) { n.Refuse(true); n.Refuse(false) },
		"restarted": func(n *redlocktest.Node) { n.Restart(true) },
	} {
		runStage(t, name, 1, func(s *stage) {
			l := s.Locker(redlock.Options{})
			n := s.Node(0)
			var sets, failed atomic.Int32
			n.OnCommand(func(args []string) {
				if harness.Verb(args) == "acquire" && sets.Add(1) == 40 {
					dies(n)
				}
			})
			won := make(chan *redlock.Lock, 60)
			var wg sync.WaitGroup
			for i := range cap(won) {
				if i == 20 {
					time.Sleep(time.Millisecond) // till the first ones have their locks
				}
				wg.Go(func() {
					k, err := l.TryAcquire(s.Ctx, fmt.Sprint("k", i), time.Hour)
					if err == nil {
						value, _ := n.Get(k.Key())
						harness.Check(s, "an acquired lock's value on the node", value, k.Value().Secret())
						won <- k
						return
					}
					failed.Add(1)
					s.Is("TryAcquire on a dying connection", err, redlock.ErrNoQuorum)
					harness.Check(s, "vote of a node whose connection died", harness.AnswersOf(err), "unknown")
				})
			}
			wg.Wait()
			close(won)
			harness.Check(s, "some calls were answered", len(won) > 0, true)
			harness.Check(s, "some calls had no answer", failed.Load() > 0, true)
			s.Reconnect(l) // those who were answered used a connection that has died since, in the client's pool
			for k := range won {
				wg.Go(func() { s.Is("Release", k.Release(s.Ctx), nil) })
			}
			wg.Wait()
			s.Clean(l)
		})
	}
}

func TestMissingAnswerIsUnknownAndNeverNo(t *testing.T) {
	faults := maps.Clone(harness.Faults)
	faults["slow"] = func(n *redlocktest.Node) { n.Delay(0, 1500*time.Millisecond) }
	faults["dropped"] = func(n *redlocktest.Node) { n.DropReplies(2) }
	faults["lost"] = func(n *redlocktest.Node) { n.LoseReplies(2) }
	faults["READONLY"] = func(n *redlocktest.Node) { n.Fail("READONLY You can't write against a read only replica.") }
	faults["forgetful"] = func(n *redlocktest.Node) {
		n.FailCommand("zadd", "OOM command not allowed when used memory > 'maxmemory'.")
	}
	for name, fault := range faults {
		runStage(t, name, 3, func(s *stage) {
			l := s.Locker(redlock.Options{})
			s.Foreign(time.Hour, 0)
			s.Each(fault, 1, 2)
			k, err := l.TryAcquire(s.Ctx, job, time.Hour)
			harness.Check(s, "a lock", k == nil, true)
			s.Is("TryAcquire where one node says held and two do not answer", err, redlock.ErrNoQuorum)
			if votes := harness.AnswersOf(err); votes != "no unknown unknown" && votes != "pending unknown unknown" {
				s.Errorf("votes: got %s, want unknown of the two that did not answer", votes)
			}
			s.Clean(l)
		})
	}
}

func TestAnswerAfterTheTimeoutIsIgnoredAndCleanedUp(t *testing.T) {
	onStage(t, 1, func(s *stage) {
		var seen harness.Observer
		l := s.Locker(redlock.Options{Trace: seen.Trace()})
		s.Node(0).Delay(0, 300*time.Millisecond)
		k, err := l.TryAcquire(s.Ctx, job, time.Second)
		s.Node(0).Delay(0, 0)
		s.Is("TryAcquire answered after 300 ms with a node timeout of 100 ms", err, redlock.ErrNoQuorum)
		harness.Check(s, "a lock", k == nil, true)
		time.Sleep(150 * time.Millisecond) // the owed rollback has been answered, the acquire not
		s.Empty("when the late yes comes")
		time.Sleep(200 * time.Millisecond)
		harness.Check(s, "locks on the list after the late yes", seam.Peek(l).Held, 0)
		for _, r := range seen.Rounds() {
			if r.Op == redlock.OpAcquire {
				harness.Check(s, "the vote that the observer sees", r.Votes[0].Answer, redlock.AnswerUnknown)
			}
		}
		s.Clean(l)
		s.Take(l, time.Second).Release(s.Ctx)
	})
}

// A command that go-redis, or a hook of the user's, never executed has neither value
// nor error, as a nil reply has; and a nil reply is a granted lock.
func TestUntouchedCommandIsNeverAYes(t *testing.T) {
	returns := func(err error) harness.Tap {
		return func(context.Context, []redis.Cmder, redis.ProcessPipelineHook) error { return err }
	}
	for name, h := range map[string]harness.Tap{
		"nil without executing":       returns(nil),
		"error without executing":     returns(errors.New("the hook says no")),
		"redis.Nil without executing": returns(redis.Nil),
		"all but the last command executed": func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
			if len(cmds) == 1 { // a script, and go-redis does not take an empty pipeline
				return next(ctx, cmds)
			}
			return next(ctx, cmds[:len(cmds)-1])
		},
	} {
		runStage(t, name, 3, func(s *stage) {
			var on atomic.Bool
			clients := s.Cluster.Clients()
			for _, client := range clients {
				client.AddHook(harness.Tap(func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
					if on.Load() {
						return h(ctx, cmds, next)
					}
					return next(ctx, cmds)
				}))
			}
			l := s.LockerWith(redlock.Options{}, nil, harness.Nodes(clients))
			held := harness.Try(s, l, "held", time.Minute)
			time.Sleep(time.Millisecond)
			on.Store(true)
			s.grantsNothing(l.TryAcquire(s.Ctx, job, time.Minute))
			if name != "all but the last command executed" {
				until := held.Until()
				s.Is("Extend that was not executed", held.Extend(s.Ctx), redlock.ErrNoQuorum)
				harness.Check(s, "Until after it", held.Until(), until)
				s.Is("Release that was not executed", held.Release(s.Ctx), redlock.ErrNoQuorum)
			}
			on.Store(false)
			time.Sleep(time.Second)
			s.Is("Release once the hook is gone", held.Release(s.Ctx), nil)
			s.Clean(l)
		})
	}
}

// grantsNothing fails the test unless an acquisition failed for want of a quorum, by votes that are neither yes nor no.
func (s *stage) grantsNothing(k *redlock.Lock, err error) {
	s.Helper()
	harness.Check(s, "a lock", k == nil, true)
	s.Is("acquisition", err, redlock.ErrNoQuorum)
	if votes := harness.AnswersOf(err) + " "; strings.Contains(votes, "yes ") || strings.Contains(votes, "no ") {
		s.Errorf("votes of commands that were not executed: got %s, want neither yes nor no", votes)
	}
}

// Where a server refuses a connection go-redis leaves the commands untouched.
func TestServerThatRefusesThePasswordIsNeverAYes(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		s.Each(func(n *redlocktest.Node) {
			for _, command := range []string{"HELLO", "AUTH"} {
				n.FailCommand(command, "WRONGPASS invalid username-password pair or user is disabled.")
			}
		})
		l := s.Cold(redlock.Options{}, nil, harness.Nodes(s.Cluster.ClientsWith(func(o *redis.Options) { o.Password = "wrong" })))
		ctx, cancel := context.WithTimeout(s.Ctx, time.Second)
		defer cancel()
		k, err := l.Acquire(ctx, job, time.Minute)
		s.grantsNothing(k, err)
		s.Says(err, "WRONGPASS")
		s.Is("the ctx, for Acquire ends at once", ctx.Err(), nil)
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
		runStage(t, tc.text, 3, func(s *stage) {
			l := s.Locker(redlock.Options{})
			held := harness.Try(s, l, "held", time.Hour)
			time.Sleep(time.Millisecond)
			s.Each(func(n *redlocktest.Node) { n.Fail(tc.text) })
			ctx, cancel := context.WithTimeout(s.Ctx, time.Second)
			defer cancel()
			_, err := l.Acquire(ctx, job, time.Hour)
			s.Is("Acquire", err, redlock.ErrNoQuorum)
			s.Says(err, code)
			harness.Check(s, "Acquire ends before its ctx", ctx.Err() == nil, tc.hard)
			harness.Check(s, "Acquire's error is the ctx's", errors.Is(err, context.DeadlineExceeded), !tc.hard)
			s.Is("Extend", held.Extend(s.Ctx), redlock.ErrNoQuorum)
			harness.Check(s, "Valid after an extension that errors answered", held.Valid(), true)
			s.Is("Release", held.Release(s.Ctx), redlock.ErrNoQuorum)
			time.Sleep(3 * time.Second)
			s.Mend()
			time.Sleep(20 * time.Second) // tries of what errors answer are up to 16 s apart
			s.Is("Release after the errors have ended", held.Release(s.Ctx), nil)
			s.Clean(l)
		})
	}
}

func TestCallsBeyondTheQueueFailAtOnce(t *testing.T) {
	alone(t, 1, func(s *stage) {
		l := s.Locker(redlock.Options{})
		s.Node(0).Hang()
		before := runtime.NumGoroutine()
		const calls = 18000
		var atOnce, busy, atTimeout atomic.Int32
		var wg sync.WaitGroup
		for i := range calls {
			wg.Go(func() {
				var err error
				d := harness.Took(func() { _, err = l.TryAcquire(context.Background(), fmt.Sprint(i), time.Second) })
				switch {
				case !errors.Is(err, redlock.ErrNoQuorum):
					s.Errorf("TryAcquire on a hung node: got %v, want ErrNoQuorum", err)
				case d == 0:
					atOnce.Add(1)
					if strings.Contains(err.Error(), "queue full") {
						busy.Add(1)
					}
				case d == 100*time.Millisecond:
					atTimeout.Add(1)
				default:
					s.Errorf("TryAcquire on a hung node: took %v, want 0 or 100 ms", d)
				}
			})
		}
		wg.Wait()
		// 16,384 wait in the queue, and at most two batches of 256 are under way.
		if n := int(busy.Load()); n < calls-16384-512 || n > calls-16384 {
			s.Errorf("calls refused for want of room: got %d of %d, want all but 16,384 and two batches", n, calls)
		}
		harness.Check(s, "calls that failed at once", atOnce.Load(), busy.Load())
		if n := s.Node(0).Connections(); n > 8 {
			s.Errorf("connections to a hung node after %d calls: got %d, want at most 8", calls, n)
		}
		if n := runtime.NumGoroutine() - before; n > 40 {
			s.Errorf("goroutines more than before %d calls: got %d, want at most 40", calls, n)
		}
		if n := seam.Peek(l).Nodes[0].Owed; n > 512 {
			s.Errorf("owed to a node that got two batches: got %d, want at most 512", n)
		}
		s.Node(0).Resume()
		s.Clean(l)
	})
}

// With go-redis's own defaults a command whose reply was lost is sent again, up to
// three times, by the client; not ours.
func TestClientsThatRetryDoNotSendOurCommandsAgain(t *testing.T) {
	for name, fault := range map[string]func(n *redlocktest.Node){
		"dropped": func(n *redlocktest.Node) { n.DropReplies(1) },
		"LOADING": harness.Faults["loading"],
	} {
		runStage(t, name, 3, func(s *stage) {
			l := s.LockerWith(redlock.Options{NodeTimeout: 2 * time.Second}, nil, harness.Nodes(s.Cluster.ClientsWith(func(o *redis.Options) {
				o.MaxRetries, o.DialerRetries, o.ContextTimeoutEnabled = 0, 0, false // their defaults
			})))
			n := s.Node(2)
			once := func(verb string, f func()) {
				s.Helper()
				n.Record(true)
				fault(n)
				f()
				time.Sleep(3 * time.Second) // go-redis waits 8 to 512 ms before it sends again
				words := harness.Heard(n, job)
				if i := slices.Index(words, "ping"); i >= 0 {
					words = words[:i] // after the first PING we may well send it again ourselves
				}
				harness.Check(s, verb+" commands executed or refused, of one call", harness.Count(words, verb), 1)
				n.Fail("")
			}
			var k *redlock.Lock
			once("acquire", func() { k = s.Take(l, time.Minute) })
			once("extend", func() { s.Is("Extend", k.Extend(s.Ctx), nil) })
			once("release", func() { s.Is("Release", k.Release(s.Ctx), nil) })
			time.Sleep(20 * time.Second)
			s.Clean(l)
		})
	}
}

// Calls that waited long for a place in a batch, behind others, have their node's
// timeout from when they are sent; and a queue that is not served says nothing about
// the node either.
func TestWhatWaitsInOurOwnQueueIsNotHeldAgainstTheNode(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{NodeTimeout: 50 * time.Millisecond})
		slow := s.Node(2)
		slow.OnCommand(func(args []string) {
			if harness.Verb(args) == "acquire" {
				time.Sleep(45 * time.Millisecond) // on that connection
			}
		})
		for i := range 3 { // two pipelines, and what waits behind them
			harness.Try(s, l, fmt.Sprint("jobs/", i), 10*time.Second)
		}
		time.Sleep(200 * time.Millisecond)
		harness.Check(s, "PINGs to a node that answers everything in 45 ms", harness.Count(harness.Heard(slow, ""), "ping"), 0)
		for i := range 3 {
			_, there := slow.Get(fmt.Sprint("jobs/", i))
			harness.Check(s, fmt.Sprintf("jobs/%d is on it", i), there, true)
		}
	})
}

// A replica's votes do not count, whether it lets itself be written to or not, and it is
// named with its master. What it stored is removed, and once promoted it votes.
func TestAReplicaIsNamedAndItsVotesDoNotCount(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		clients := s.Cluster.Clients()
		var promoted atomic.Bool
		var asked atomic.Int64
		for _, client := range clients[1:] { // a minority that remains is no quorum
			client.AddHook(harness.Tap(func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
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
		l := s.Cold(redlock.Options{}, nil, harness.Nodes(clients))
		var err error
		d := harness.Took(func() { _, err = l.Acquire(s.Ctx, job, time.Minute) })
		s.Is("Acquire", err, redlock.ErrNoQuorum)
		harness.Check(s, "the replicas' votes", strings.HasSuffix(harness.AnswersOf(err), " unknown unknown"), true)
		if !strings.Contains(fmt.Sprint(err), "replica of 10.0.0.1:6379: pass its master") {
			s.Errorf("got %q, want the replica and its master named", err)
		}
		harness.Check(s, "Acquire waits for what time does not heal", d > time.Second, false)
		if n, _ := l.Inspect(s.Ctx, job); n.Nodes[1].Err == nil || n.Nodes[0].Err != nil {
			s.Errorf("Inspect: got %v and %v, want the replica's answer refused", n.Nodes[0].Err, n.Nodes[1].Err)
		}
		s.Clean(l)

		promoted.Store(true)
		k := s.Take(l, time.Minute)
		time.Sleep(time.Second)
		before := asked.Load()
		s.Is("Extend", k.Extend(s.Ctx), nil)
		s.Is("Release", k.Release(s.Ctx), nil)
		s.Clean(l)
		harness.Check(s, "questions to a master for its role after the first", asked.Load()-before, 0)
	})
}

// A wrapper of unknown kind may follow a MOVED by itself: then it passes.
func TestMovedBehindAWrapperIsWaitedOut(t *testing.T) {
	onStage(t, 1, func(s *stage) {
		l, err := redlock.New(redlock.Options{}, hidesAll{s.Cluster.Clients()[0]})
		s.Is("New", err, nil)
		defer l.Close()
		s.Node(0).FailCommand("set", "MOVED 3999 10.0.0.3:6379")
		time.AfterFunc(3*time.Second, func() { s.Node(0).FailCommand("set", "") })
		ctx, cancel := context.WithTimeout(s.Ctx, time.Second)
		defer cancel()
		_, err = l.Acquire(ctx, job, time.Minute)
		harness.CheckIs(s, "Acquire", err, context.DeadlineExceeded, redlock.ErrNoQuorum)
		if !strings.Contains(fmt.Sprint(err), "MOVED 3999 10.0.0.3:6379: a node of a Redis Cluster: pass") {
			s.Errorf("got %q, want what to do about it", err)
		}
		k, err := l.Acquire(s.Ctx, job, time.Minute)
		s.Is("Acquire", err, nil)
		s.Is("Release", k.Release(s.Ctx), nil)
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
	harness.Client
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
	return &wrapped.Pipeline{
		Pipeliner: n.Client.Pipeline(),
		OnQueue:   func(...redis.Cmder) { n.fail("BatchProcess") },
		OnExec: func(ctx context.Context, exec func(context.Context) ([]redis.Cmder, error)) ([]redis.Cmder, error) {
			n.fail("before Exec")
			defer n.fail("after Exec")
			return exec(ctx)
		},
	}
}

func (n *frail) Subscribe(ctx context.Context, channels ...string) *redis.PubSub {
	n.fail("Subscribe")
	if m := n.fails.Load(); m != nil && *m == "Receive" {
		return nil // its methods panic
	}
	return n.Client.Subscribe(ctx, channels...)
}

// A panic in a client's code is a failed answer of that node, which may have been sent.
func TestAPanicOfAClientIsOneNodesFailedAnswer(t *testing.T) {
	for _, method := range []string{"Pipeline", "BatchProcess", "before Exec", "after Exec", "Process", "Subscribe", "Receive"} {
		runStage(t, method, 3, func(s *stage) {
			nodes := s.Cluster.Nodes()
			bad := &frail{Client: s.Cluster.Clients()[0]}
			nodes[0] = bad
			l := s.Cold(redlock.Options{}, nil, nodes)
			k := harness.Try(s, l, "before", time.Minute)
			time.Sleep(time.Second)

			bad.fails.Store(&method)
			s.Is("Extend", k.Extend(s.Ctx), nil)
			s.Is("Release", k.Release(s.Ctx), nil)
			k = s.Take(l, time.Minute)
			alone := s.Cold(redlock.Options{}, nil, []redlock.Node{bad})
			if k, err := alone.TryAcquire(s.Ctx, "alone", time.Minute); err == nil {
				s.Is("Release", k.Release(s.Ctx), nil)
				harness.Check(s, method+" is no part of it", slices.Contains([]string{"Process", "Subscribe", "Receive"}, method), true)
			} else {
				s.Is("TryAcquire", err, redlock.ErrNoQuorum)
				harness.Check(s, "votes", harness.AnswersOf(err), "unknown")
				s.Says(err, "client panicked: runtime error: invalid memory address", ".go:") // what, and where
			}
			waiter := s.Cold(redlock.Options{}, nil, nodes) // it would have to hear the node
			var next *redlock.Lock
			acquired := harness.Background(func() (err error) { next, err = waiter.Acquire(s.Ctx, job, time.Minute); return err })
			s.Node(0).Partition() // so that it is PINGed, too
			time.Sleep(3 * time.Second)
			s.Is("Release", k.Release(s.Ctx), nil)
			s.Is("Acquire", <-acquired, nil)
			s.Is("Release", next.Release(s.Ctx), nil)

			s.Node(0).Heal()
			bad.fails.Store(nil)
			time.Sleep(30 * time.Second) // the pause before a subscription is tried again
			s.Clean(l, waiter)
			harness.Check(s, "owed by the one with this node alone", seam.Peek(alone).Nodes[0].Owed, 0)
			s.Is("Release", harness.Try(s, alone, "afterwards", time.Minute).Release(s.Ctx), nil)
		})
	}
}

// extendsFast takes a lock, and extends it more often than the last node, which is far, replies.
func (s *stage) extendsFast(l *redlock.Locker) *redlock.Lock {
	s.Helper()
	k := s.Take(l, 10*time.Second)
	s.Slow(200*time.Millisecond, 2)
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		s.Is("Extend", k.Extend(s.Ctx), nil)
	}
	return k
}

// One of three dies: the two others are a majority, and the lock must be kept.
func TestExtensionsFasterThanAFarNodeAnswersDoNotLoseTheLock(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		held, stop := s.extendsFast(s.Locker(redlock.Options{})).KeepAlive(s.Ctx)
		defer stop()
		s.Node(1).Stop()
		time.Sleep(30 * time.Second)
		if held.Err() != nil {
			s.Errorf("lost with a majority up: %v", context.Cause(held))
		}
	})
}

// A proxy that answers for a server whose reply it lost.
func TestAnErrorThatNoServerSaysMayHideAnExecutedCommand(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		const lost = serverError("ERR upstream failure")
		clients := s.Cluster.Clients()
		for _, cl := range clients[1:] {
			cl.AddHook(harness.Tap(func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
				err := next(ctx, cmds)
				if !strings.EqualFold(cmds[0].Name(), "set") {
					return err
				}
				for _, cmd := range cmds {
					cmd.SetErr(lost)
				}
				return lost
			}))
		}
		l := s.LockerWith(redlock.Options{}, nil, harness.Nodes(clients))
		s.Is("TryAcquire", harness.Second(l.TryAcquire(s.Ctx, job, time.Minute)), redlock.ErrNoQuorum)
		time.Sleep(10 * time.Second)
		s.Empty("ten seconds later")
	})
}

// A far node replies well within the time that it is given, and callers try one key
// more often than its round trip.
func TestAttemptsFasterThanAFarNodeAnswersDoNotQueueBehindIt(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		holder := s.Take(s.Locker(redlock.Options{}), time.Minute)
		s.Slow(200*time.Millisecond, 2)
		attempts := 0
		for end := time.Now().Add(2 * time.Second); time.Now().Before(end); attempts++ {
			l.TryAcquire(s.Ctx, job, 30*time.Second)
			time.Sleep(time.Millisecond)
		}
		if got := len(s.Told(2, "acquire")); got > attempts/10 {
			s.Errorf("acquires sent to the far node: got %d of %d, want one in each round trip", got, attempts)
		}
		// Now a near node dies, and the lock is free.
		holder.Release(s.Ctx)
		s.Node(1).Stop()
		time.Sleep(10 * time.Millisecond)
		if d := harness.Took(func() { s.Take(l, 30*time.Second) }); d > time.Second {
			s.Errorf("TryAcquire took %v, want about a round trip of 200ms", d)
		}
	})
}

// No extension waits at the far node before the release.
func TestExtensionsFasterThanAFarNodeAnswersDoNotOutliveTheRelease(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		s.Is("Release", s.extendsFast(s.Locker(redlock.Options{})).Release(s.Ctx), nil)
		time.Sleep(2 * time.Second)
		s.Empty("two seconds after Release")
	})
}
