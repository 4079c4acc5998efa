package directed_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/harness"
	"github.com/seed-ce352c9b/redlock/internal/seam"
	"github.com/seed-ce352c9b/redlock/redlocktest"
)

// between are the words from the first `from` to the next `to`, both included.
func between(words []string, from, to string) string {
	i := slices.Index(words, from)
	if i < 0 {
		return "no " + from + " in " + strings.Join(words, " ")
	}
	words = words[i:]
	j := slices.Index(words, to)
	if j < 0 {
		return "no " + to + " in " + strings.Join(words, " ")
	}
	return strings.Join(slices.Compact(words[:j+1]), " ")
}

// A connection that breaks answers an acquire as little as a timeout does: it may
// be under way yet, and a rollback on another connection would overtake it.
func TestRollbackOfWhatHadNoAnswerGoesOutOnlyAfterAPing(t *testing.T) {
	staged(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		l := warmLocker(t, c, redlock.Options{})
		c.Node(0).Set("jobs/42", "foreign", time.Hour)
		c.Node(1).Set("jobs/42", "foreign", time.Hour)
		n := c.Node(2)
		n.Delay(5*time.Millisecond, 5*time.Millisecond) // the verdict is there before its answer
		unanswered(n, "acquire", "jobs/42", 1)
		_, err := l.TryAcquire(t.Context(), "jobs/42", time.Hour)
		harness.CheckIs(t, "TryAcquire", err, redlock.ErrHeld)
		time.Sleep(2 * time.Second)
		harness.Check(t, "what the node hears whose connection broke", between(heard(n, "jobs/42"), "acquire", "rollback"), "acquire ping rollback")
		for i := range 2 {
			c.Node(i).Evict("jobs/42")
		}
		harness.CheckClean(t, c, l)
	})
}

func TestReleaseOfWhatHadNoAnswerGoesOutOnlyAfterAPing(t *testing.T) {
	staged(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		l := warmLocker(t, c, redlock.Options{})
		n := c.Node(2)
		n.Delay(5*time.Millisecond, 5*time.Millisecond)
		unanswered(n, "acquire", "jobs/42", 1)
		k := harness.Try(t, l, "jobs/42", time.Hour)
		harness.CheckIs(t, "Release", k.Release(t.Context()))
		time.Sleep(2 * time.Second)
		harness.Check(t, "what the node hears whose connection broke", between(heard(n, "jobs/42"), "acquire", "release"), "acquire ping release")
		harness.CheckClean(t, c, l)
	})
}

func TestRollbackIsSentAgainUntilItIsAnswered(t *testing.T) {
	for _, lost := range []int{1, 5} {
		staged(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
			l := warmLocker(t, c, redlock.Options{})
			c.Node(0).Set("jobs/42", "foreign", time.Hour)
			c.Node(1).Set("jobs/42", "foreign", time.Hour)
			n := c.Node(2)
			unanswered(n, "rollback", "jobs/42", lost)
			l.TryAcquire(t.Context(), "jobs/42", time.Hour)
			time.Sleep(5 * time.Second)
			words := heard(n, "jobs/42")
			harness.Check(t, fmt.Sprintf("rollbacks where %d had no answer", lost), count(words, "rollback"), lost+1)
			for i, w := range words {
				if w == "rollback" && i > 0 && words[i-1] == "rollback" {
					t.Errorf("what the node hears: got %v, want a PING before every rollback but the first", words)
					break
				}
			}
			for i := range 2 {
				c.Node(i).Evict("jobs/42")
			}
			harness.CheckClean(t, c, l)
		})
	}
}

func TestReleaseIsSentAgainUntilItIsAnswered(t *testing.T) {
	staged(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		l := warmLocker(t, c, redlock.Options{})
		k := harness.Try(t, l, "jobs/42", time.Hour)
		time.Sleep(time.Millisecond)
		n := c.Node(2)
		n.Partition()
		harness.CheckIs(t, "Release", k.Release(t.Context()))
		time.Sleep(9 * time.Minute)
		harness.Check(t, "owed to a node that is cut off", seam.Peek(l).Nodes[2].Owed, 1)
		n.Heal()
		if d, ok := within(time.Second, func() bool { return len(harness.LocksOn(n)) == 0 }); !ok {
			t.Errorf("key on the node after the heal: still there after %v, want it gone within a second", d)
		}
		harness.CheckClean(t, c, l)
	})
}

// An unheard client has PINGs wait until they are let go.
type unheard struct {
	*redis.Client
	gate atomic.Pointer[chan struct{}]
}

func (u *unheard) hold() {
	gate := make(chan struct{})
	u.gate.Store(&gate)
}

func (u *unheard) let() { close(*u.gate.Swap(nil)) }

func (u *unheard) Process(ctx context.Context, cmd redis.Cmder) error {
	if gate := u.gate.Load(); gate != nil && cmd.Name() == "ping" {
		<-*gate
	}
	return u.Client.Process(ctx, cmd)
}

// The ttl runs from when a node executes a command, not from when it was sent: what
// is owed outlives it by a day.
func TestDebtIsDroppedAfterItsTime(t *testing.T) {
	t.Parallel()
	// A day of refused PINGs is half a million of them; these are not answered at all.
	for _, tc := range []struct {
		outage time.Duration
		sent   bool
	}{
		{9 * time.Minute, true},
		{24*time.Hour + time.Minute, true}, // ttl and a day are not over
		{24*time.Hour + 3*time.Minute, false},
	} {
		if tc.sent && tc.outage > time.Hour && harness.Rounds(0, 1) == 0 {
			continue // a day of virtual time costs seconds: the shorter run has one
		}
		staged(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
			nodes := c.Nodes()
			far := &unheard{Client: nodes[2].(*redis.Client)}
			nodes[2] = far
			l, err := harness.NewSeamed(redlock.Options{}, nil, nil, harness.Seed(t), nodes...)
			harness.CheckIs(t, "New", err)
			defer l.Close()
			warmUp(t, c, l)
			k := harness.Try(t, l, "jobs/42", 2*time.Minute)
			time.Sleep(time.Millisecond)
			n := c.Node(2)
			n.Stop()
			far.hold()
			harness.CheckIs(t, "Release", k.Release(t.Context()))
			time.Sleep(tc.outage)
			n.Start()
			far.let()
			time.Sleep(5 * time.Second)
			harness.Check(t, fmt.Sprintf("owed release of a lock of two minutes is sent after %v", tc.outage), count(heard(n, "jobs/42"), "release") > 0, tc.sent)
			harness.Check(t, "owed then", seam.Peek(l).Nodes[2].Owed, 0)
			harness.Check(t, "locks on the node then", len(harness.LocksOn(n)), 0)
		})
	}
}

// What cannot be reached expires, registers too, even where nobody is left to tell
// the node so.
func TestRegisterOfADroppedDebtHasALife(t *testing.T) {
	staged(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		l := warmLocker(t, c, redlock.Options{})
		k := harness.Try(t, l, "jobs/42", 2*time.Minute)
		time.Sleep(time.Millisecond)
		c.Node(2).Stop()
		harness.CheckIs(t, "Release", k.Release(t.Context()))
		time.Sleep(13 * time.Minute)
		c.Node(2).Start()
		harness.CheckClean(t, c, l)
	})
}

// One connection of a busy client may be far behind another: its acquire arrives
// when the rollback has long found nothing.
//
// Attack 22.
func TestSecondLookFindsTheAcquireThatCameAfterTheRollback(t *testing.T) {
	for _, late := range []time.Duration{120 * time.Millisecond, 250 * time.Millisecond, 450 * time.Millisecond} {
		staged(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
			l := warmLocker(t, c, redlock.Options{NodeTimeout: 50 * time.Millisecond})
			c.Node(0).Set("jobs/42", "foreign", time.Hour)
			c.Node(1).Set("jobs/42", "foreign", time.Hour)
			n := c.Node(2)
			heldUp(n, "acquire", "jobs/42", 1, late)
			_, err := l.TryAcquire(t.Context(), "jobs/42", time.Hour)
			harness.CheckIs(t, "TryAcquire", err, redlock.ErrHeld)
			time.Sleep(late + 10*time.Millisecond)
			harness.Check(t, fmt.Sprintf("what the node hears of an acquire that is executed after %v", late),
				between(heard(n, "jobs/42"), "rollback", "acquire"), "rollback acquire")
			harness.Check(t, "keys on the node then", len(harness.LocksOn(n)), 1)
			for i := range 2 {
				c.Node(i).Evict("jobs/42")
			}
			harness.CheckClean(t, c, l)
		})
	}
}

// The same for a lock that was held: its release is answered at once, and the
// acquire comes later.
//
// Attack 22.
func TestSecondLookFindsTheAcquireThatCameAfterTheRelease(t *testing.T) {
	for _, tc := range []struct {
		name   string
		late   time.Duration
		before func(t *testing.T, k *redlock.Lock, n *redlocktest.Node)
	}{
		{"at once", 300 * time.Millisecond, func(*testing.T, *redlock.Lock, *redlocktest.Node) {}},
		{"after an extension that healed the node", 600 * time.Millisecond, func(t *testing.T, k *redlock.Lock, n *redlocktest.Node) {
			harness.CheckIs(t, "Extend", k.Extend(t.Context()))
			time.Sleep(10 * time.Millisecond)
			harness.Check(t, "heals of the node whose acquire is late", count(heard(n, "jobs/42"), "heal"), 1)
		}},
		{"after two extensions, the second of which the node agreed to", 600 * time.Millisecond, func(t *testing.T, k *redlock.Lock, n *redlocktest.Node) {
			for range 2 {
				harness.CheckIs(t, "Extend", k.Extend(t.Context()))
				time.Sleep(10 * time.Millisecond)
			}
			harness.Check(t, "extensions that the node whose acquire is late hears", count(heard(n, "jobs/42"), "extend"), 2)
		}},
	} {
		runStaged(t, tc.name, 3, func(t *testing.T, c *redlocktest.Cluster) {
			l := warmLocker(t, c, redlock.Options{NodeTimeout: 50 * time.Millisecond})
			n := c.Node(2)
			heldUp(n, "acquire", "jobs/42", 1, tc.late)
			k := harness.Try(t, l, "jobs/42", time.Hour)
			time.Sleep(200 * time.Millisecond)
			harness.Check(t, "the node is down once it answers PINGs", seam.Peek(l).Nodes[2].Down, false)
			tc.before(t, k, n)
			harness.CheckIs(t, "Release", k.Release(t.Context()))
			time.Sleep(tc.late)
			harness.Check(t, "what the node hears", between(heard(n, "jobs/42"), "release", "acquire"), "release ping acquire")
			harness.CheckClean(t, c, l)
		})
	}
}

// An attempt that the caller's ctx ended is undone all the same, and on a node that
// does not answer it is owed.
func TestAbandonedAttemptIsOwedAlthoughTheContextIsDone(t *testing.T) {
	for name, fault := range map[string]func(n *redlocktest.Node){
		"hung":  (*redlocktest.Node).Hang,
		"mute":  (*redlocktest.Node).PartitionReplies,
		"slow":  func(n *redlocktest.Node) { n.Delay(40*time.Millisecond, 40*time.Millisecond) },
		"reset": func(n *redlocktest.Node) { n.DropReplies(1) },
	} {
		runStaged(t, name, 3, func(t *testing.T, c *redlocktest.Cluster) {
			l := warmLocker(t, c, redlock.Options{})
			for i := range 2 {
				fault(c.Node(i))
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			k, err := l.TryAcquire(ctx, "jobs/42", time.Hour)
			if name != "reset" { // those answer in time, with an error
				harness.CheckIs(t, "TryAcquire", err, context.DeadlineExceeded, redlock.ErrNoQuorum)
			}
			harness.Check(t, "a lock", k == nil, true)
			time.Sleep(2 * time.Second)
			for i := range 2 {
				c.Node(i).Resume()
				c.Node(i).Heal()
			}
			harness.CheckClean(t, c, l)
		})
	}
}

// Attack 76.
func TestWhatIsOwedGoesBeforeNewAcquires(t *testing.T) {
	staged(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		l := warmLocker(t, c, redlock.Options{})
		var locks []*redlock.Lock
		for i := range 300 { // more than one batch
			locks = append(locks, harness.Try(t, l, fmt.Sprint("old", i), time.Hour))
		}
		n := c.Node(2)
		n.Hang()
		for _, k := range locks {
			k.Release(t.Context())
		}
		done := make(chan struct{})
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				case <-time.After(10 * time.Millisecond):
					harness.Try(t, l, fmt.Sprint("new", i), time.Hour).Release(t.Context())
				}
			}
		}()
		time.Sleep(1200 * time.Millisecond) // the node timeout of such a ttl is a second
		harness.Check(t, "owed to the hung node", seam.Peek(l).Nodes[2].Owed, 300)
		n.Record(true)
		n.Resume()
		time.Sleep(200 * time.Millisecond)
		close(done)
		<-stopped
		first := make(map[string]time.Time)
		last := make(map[string]time.Time)
		for _, cmd := range n.Log() {
			key := keyOf(cmd.Args)
			if len(key) < 3 {
				continue
			}
			if _, ok := first[key[:3]]; !ok {
				first[key[:3]] = cmd.At
			}
			last[key[:3]] = cmd.At
		}
		if first["new"].IsZero() || last["old"].IsZero() || !last["old"].Before(first["new"]) {
			t.Errorf("what a node hears that wakes: got the last of what is owed at %v, the first new acquire at %v; want all that is owed before", last["old"], first["new"])
		}
		harness.CheckClean(t, c, l)
	})
}

func TestDebtThatErrorsAnswerIsTriedLessAndLessOften(t *testing.T) {
	for _, text := range []string{"LOADING Redis is loading the dataset in memory", "READONLY You can't write against a read only replica."} {
		staged(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
			l := warmLocker(t, c, redlock.Options{})
			k := harness.Try(t, l, "jobs/42", time.Hour)
			time.Sleep(time.Millisecond)
			n := c.Node(2)
			n.Fail(text)
			harness.CheckIs(t, "Release", k.Release(t.Context()))
			time.Sleep(2 * time.Minute)
			var at []time.Time
			for _, cmd := range n.Log() {
				if harness.Verb(cmd.Args) == "release" {
					at = append(at, cmd.At)
				}
			}
			if len(at) < 5 || len(at) > 16 {
				t.Errorf("releases that %.8s answers in two minutes: got %d, want 5 to 16", text, len(at))
			}
			if len(at) > 5 {
				if d := at[len(at)-1].Sub(at[len(at)-2]); d < 8*time.Second || d > 17*time.Second {
					t.Errorf("pause between the last two tries: got %v, want 8 to 17 s", d)
				}
			}
			harness.Check(t, "PINGs in two minutes are few", count(heard(n, ""), "ping") < 40, true)
			harness.Try(t, l, "others", time.Hour).Release(t.Context()) // the node is asked all the same
			time.Sleep(time.Millisecond)
			harness.Check(t, "acquires of others that the node hears", count(heard(n, "others"), "acquire"), 1)
			n.Fail("")
			time.Sleep(16 * time.Second)
			harness.CheckClean(t, c, l)
		})
	}
}

// A node may answer PINGs while scripts hang.
func TestNodeThatAnswersPingsAndHangsOnScriptsHurtsNobody(t *testing.T) {
	staged(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		l := warmLocker(t, c, redlock.Options{})
		k := harness.Try(t, l, "jobs/42", time.Hour)
		time.Sleep(time.Millisecond)
		before := runtime.NumGoroutine()
		n := c.Node(2)
		var hangs atomic.Bool
		hangs.Store(true)
		n.OnCommand(func(args []string) {
			for harness.Verb(args) == "release" && hangs.Load() {
				time.Sleep(10 * time.Millisecond)
			}
		})
		harness.CheckIs(t, "Release", k.Release(t.Context()))
		for i := range 300 {
			var k *redlock.Lock
			d := took(func() { k = harness.Try(t, l, fmt.Sprint("k", i), time.Hour) })
			if d > time.Millisecond {
				t.Fatalf("TryAcquire beside a node that hangs on scripts: took %v, want what the others take", d)
			}
			if d := took(func() { harness.CheckIs(t, "Release", k.Release(t.Context())) }); d > time.Millisecond {
				t.Fatalf("Release beside a node that hangs on scripts: took %v, want what the others take", d)
			}
			time.Sleep(100 * time.Millisecond)
		}
		// Each try holds a connection until the client's own two seconds are over; the
		// server here keeps the goroutine of each until the hook lets it go.
		if n := n.Connections(); n > 16 {
			t.Errorf("connections to a node that hangs on scripts for 30 s: got %d, want at most 16", n)
		}
		if g := runtime.NumGoroutine() - before; g > 100 {
			t.Errorf("goroutines more than before: got %d, want at most 100", g)
		}
		hangs.Store(false)
		time.Sleep(2 * time.Second)
		harness.CheckClean(t, c, l)
	})
}

func TestDebtsOfSeveralNodesAreAllPaid(t *testing.T) {
	staged(t, 5, func(t *testing.T, c *redlocktest.Cluster) {
		l := warmLocker(t, c, redlock.Options{})
		var locks []*redlock.Lock
		for i := range 20 {
			locks = append(locks, harness.Try(t, l, fmt.Sprint("k", i), time.Hour))
		}
		time.Sleep(time.Millisecond)
		c.Node(3).Hang()
		c.Node(4).Stop()
		for _, k := range locks[:10] {
			harness.CheckIs(t, "Release", k.Release(t.Context()))
		}
		time.Sleep(time.Second)
		c.Node(2).Partition() // now three of five are gone
		for _, k := range locks[10:] {
			harness.CheckIs(t, "Release by two of five", k.Release(t.Context()), redlock.ErrNoQuorum)
		}
		time.Sleep(time.Minute)
		// The releases, and for locks that were held longer than a second the life of
		// their registers, too.
		for i, least := range []int{2: 10, 3: 20, 4: 20} {
			if got := seam.Peek(l).Nodes[i].Owed; got < least || got > 2*least {
				t.Errorf("owed to node %s: got %d, want from %d to %d", c.Node(i).Name(), got, least, 2*least)
			}
		}
		c.Node(3).Resume()
		time.Sleep(time.Second)
		harness.Check(t, "owed to the node that woke first", seam.Peek(l).Nodes[3].Owed, 0)
		c.Node(4).Start()
		c.Node(2).Heal()
		time.Sleep(time.Second)
		harness.CheckClean(t, c, l)
	})
}

// What is owed is sent as scripts, and a restarted server has forgotten them.
func TestDebtsArePaidToAServerThatForgotTheScripts(t *testing.T) {
	staged(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		l := warmLocker(t, c, redlock.Options{})
		var locks []*redlock.Lock
		for i := range 10 {
			locks = append(locks, harness.Try(t, l, fmt.Sprint("k", i), time.Hour))
		}
		time.Sleep(time.Millisecond)
		c.Node(2).Stop()
		for _, k := range locks {
			harness.CheckIs(t, "Release", k.Release(t.Context()))
		}
		time.Sleep(time.Second)
		c.Node(2).Start() // with its data
		harness.CheckClean(t, c, l)
	})
}

// A node that answers PINGs and hangs on acquires would be given one more connection each
// time that it is believed again. At sixty-four it is not believed any more, until some
// of them have ended.
func TestPipelinesThatNeverComeBackAreBounded(t *testing.T) {
	staged(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		const most = 64
		l := lockerOn(t, redlock.Options{NodeTimeout: 10 * time.Millisecond}, c.ClientsWith(func(o *redis.Options) {
			o.PoolSize, o.ReadTimeout, o.ContextTimeoutEnabled = 1000, time.Hour, false
		}))
		warmUp(t, c, l)
		n := c.Node(2)
		var hangs atomic.Bool
		hangs.Store(true)
		n.OnCommand(func(args []string) {
			for harness.Verb(args) == "acquire" && hangs.Load() {
				time.Sleep(10 * time.Millisecond)
			}
		})
		for i := range 100 {
			k := harness.Try(t, l, fmt.Sprint("k", i), time.Hour)
			harness.CheckIs(t, "Release", k.Release(t.Context()))
			time.Sleep(600 * time.Millisecond) // the pause before a second look holds the next PING up, too
		}
		if got := seam.Peek(l).Nodes[2].Stuck; got < most || got > most+4 {
			t.Errorf("pipelines that have not come back: got %d, want about %d", got, most)
		}
		if got := n.Connections(); got > most+16 {
			t.Errorf("connections: got %d, want at most %d", got, most+16)
		}
		harness.Check(t, "the node is down", seam.Peek(l).Nodes[2].Down, true)
		hangs.Store(false)
		if d, ok := within(10*time.Second, func() bool { return !seam.Peek(l).Nodes[2].Down && seam.Peek(l).Nodes[2].Stuck == 0 }); !ok {
			t.Errorf("used again: not %v after they came back", d)
		}
		harness.CheckClean(t, c, l)
	})
}

// Release in a loop while a majority is down drops what is owed for other locks.
func TestRepeatedReleasesDoNotCrowdOutWhatIsOwedForOthers(t *testing.T) {
	t.Parallel()
	staged(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		l := warmLocker(t, c, redlock.Options{})
		a := harness.Try(t, l, "a", time.Hour)
		k := harness.Try(t, l, "k", time.Hour)
		time.Sleep(10 * time.Millisecond)
		c.Node(1).Stop()
		c.Node(2).Stop()
		a.Release(t.Context())
		k.Release(t.Context())
		before := seam.Peek(l).Nodes[1].Owed
		// As often as there is room for debts, and it would be dropped.
		for range harness.Rounds(300, 16500) {
			k.Release(t.Context())
		}
		if got := seam.Peek(l).Nodes[1].Owed; got != before {
			t.Errorf("owed: got %d after releases that were owed already, want %d", got, before)
		}
		c.Node(1).Start()
		c.Node(2).Start()
		time.Sleep(time.Minute)
		for i := range 3 {
			if _, ok := c.Node(i).Get("a"); ok {
				t.Errorf("node %d still has lock a a minute after it is back: its release was dropped", i)
			}
		}
	})
}
