package nodes_test

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
// be under way yet, and a rollback or release on another connection would overtake it.
func TestACleanUpOfWhatHadNoAnswerGoesOutOnlyAfterAPing(t *testing.T) {
	for _, cleanUp := range []string{"rollback", "release"} {
		runStage(t, cleanUp, 3, func(s *stage) {
			l := s.Locker(redlock.Options{})
			n := s.Node(2)
			s.Slow(10*time.Millisecond, 2) // the verdict is there before its answer
			harness.Unanswered(n, "acquire", job, 1)
			if cleanUp == "rollback" {
				s.Foreign(time.Hour, 0, 1)
				s.Is("TryAcquire", harness.Second(l.TryAcquire(s.Ctx, job, time.Hour)), redlock.ErrHeld)
			} else {
				s.Is("Release", s.Take(l, time.Hour).Release(s.Ctx), nil)
			}
			time.Sleep(2 * time.Second)
			harness.Check(s, "what the node hears whose connection broke", between(harness.Heard(n, job), "acquire", cleanUp), "acquire ping "+cleanUp)
			s.Clean(l)
		})
	}
}

func TestRollbackIsSentAgainUntilItIsAnswered(t *testing.T) {
	for _, lost := range []int{1, 5} {
		onStage(t, 3, func(s *stage) {
			l := s.Locker(redlock.Options{})
			s.Foreign(time.Hour, 0, 1)
			n := s.Node(2)
			harness.Unanswered(n, "rollback", job, lost)
			l.TryAcquire(s.Ctx, job, time.Hour)
			time.Sleep(5 * time.Second)
			words := harness.Heard(n, job)
			harness.Check(s, fmt.Sprintf("rollbacks where %d had no answer", lost), harness.Count(words, "rollback"), lost+1)
			if strings.Contains(strings.Join(words, " "), "rollback rollback") {
				s.Errorf("what the node hears: got %v, want a PING before every rollback but the first", words)
			}
			s.Clean(l)
		})
	}
}

func TestReleaseIsSentAgainUntilItIsAnswered(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		k := s.Take(l, time.Hour)
		time.Sleep(time.Millisecond)
		n := s.Node(2)
		n.Partition()
		s.Is("Release", k.Release(s.Ctx), nil)
		time.Sleep(9 * time.Minute)
		harness.Check(s, "owed to a node that is cut off", seam.Peek(l).Nodes[2].Owed, 1)
		n.Heal()
		if d, ok := harness.Within(time.Second, func() bool { return len(harness.LocksOn(n)) == 0 }); !ok {
			s.Errorf("key on the node after the heal: still there after %v, want it gone within a second", d)
		}
		s.Clean(l)
	})
}

// An unheard client has PINGs wait until they are let go.
type unheard struct {
	harness.Client
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
	// A day of refused PINGs is half a million of them; these are not answered at all.
	for _, tc := range []struct {
		outage time.Duration
		sent   bool
	}{
		{9 * time.Minute, true},
		{24*time.Hour + time.Minute, true}, // ttl and a day are not over
		{24*time.Hour + 3*time.Minute, false},
	} {
		if tc.outage > time.Hour && (harness.Sparing || tc.sent && harness.Rounds(0, 1) == 0) {
			continue // a day of virtual time costs seconds: the shorter run has one
		}
		onStage(t, 3, func(s *stage) {
			nodes := s.Cluster.Nodes()
			far := &unheard{Client: nodes[2].(*redis.Client)}
			nodes[2] = far
			l, err := harness.NewSeamed(redlock.Options{}, nil, nil, harness.Seed(t), nodes...)
			s.Is("New", err, nil)
			defer l.Close()

			k := s.Take(l, 2*time.Minute)
			time.Sleep(time.Millisecond)
			n := s.Node(2)
			n.Stop()
			far.hold()
			s.Is("Release", k.Release(s.Ctx), nil)
			time.Sleep(tc.outage)
			n.Start()
			far.let()
			time.Sleep(5 * time.Second)
			harness.Check(s, fmt.Sprintf("owed release of a lock of two minutes is sent after %v", tc.outage), harness.Count(harness.Heard(n, job), "release") > 0, tc.sent)
			harness.Check(s, "owed then", seam.Peek(l).Nodes[2].Owed, 0)
			harness.Check(s, "locks on the node then", len(harness.LocksOn(n)), 0)
		})
	}
}

// What cannot be reached expires, registers too, even where nobody is left to tell
// the node so.
func TestRegisterOfADroppedDebtHasALife(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		k := s.Take(l, 2*time.Minute)
		time.Sleep(time.Millisecond)
		s.Node(2).Stop()
		s.Is("Release", k.Release(s.Ctx), nil)
		time.Sleep(13 * time.Minute)
		s.Node(2).Start()
		s.Clean(l)
	})
}

// One connection of a busy client may be far behind another: its acquire arrives
// when the rollback or the release has long found nothing.
//
// Attack 22.
func TestSecondLookFindsTheAcquireThatCameAfterTheCleanUp(t *testing.T) {
	late := func(name, want string, late time.Duration, f func(s *stage, l *redlock.Locker, n *redlocktest.Node)) {
		runStage(t, fmt.Sprintf("%s, after %v", name, late), 3, func(s *stage) {
			l, n := s.Locker(redlock.Options{NodeTimeout: 50 * time.Millisecond}), s.Node(2)
			harness.HeldUp(n, "acquire", job, 1, late)
			f(s, l, n)
			time.Sleep(late + 10*time.Millisecond)
			cleanUp, _, _ := strings.Cut(want, " ")
			harness.Check(s, "what the node hears", between(harness.Heard(n, job), cleanUp, "acquire"), want)
			s.Clean(l)
		})
	}
	for _, d := range []time.Duration{120 * time.Millisecond, 250 * time.Millisecond, 450 * time.Millisecond} {
		late("a rollback", "rollback acquire", d, func(s *stage, l *redlock.Locker, n *redlocktest.Node) {
			s.Foreign(time.Hour, 0, 1)
			s.Is("TryAcquire", harness.Second(l.TryAcquire(s.Ctx, job, time.Hour)), redlock.ErrHeld)
		})
	}
	for extensions, d := range []time.Duration{300 * time.Millisecond, 600 * time.Millisecond, 600 * time.Millisecond} {
		late(fmt.Sprintf("a release behind %d extensions", extensions), "release ping acquire", d, func(s *stage, l *redlock.Locker, n *redlocktest.Node) {
			k := s.Take(l, time.Hour)
			time.Sleep(200 * time.Millisecond)
			harness.Check(s, "the node is down once it answers PINGs", seam.Peek(l).Nodes[2].Down, false)
			for range extensions { // the first heals the node, and the second it agrees to
				s.Is("Extend", k.Extend(s.Ctx), nil)
				time.Sleep(10 * time.Millisecond)
			}
			harness.Check(s, "extensions that the node hears", harness.Count(harness.Heard(n, job), "extend"), extensions)
			harness.Check(s, "heals", harness.Count(harness.Heard(n, job), "heal"), min(extensions, 1))
			s.Is("Release", k.Release(s.Ctx), nil)
		})
	}
}

// An attempt that the caller's ctx ended is undone all the same, and on a node that
// does not answer it is owed.
func TestAbandonedAttemptIsOwedAlthoughTheContextIsDone(t *testing.T) {
	for name, fault := range map[string]func(n *redlocktest.Node){
		"hung":         harness.Faults["hung"],
		"replies lost": harness.Faults["replies lost"],
		"slow":         func(n *redlocktest.Node) { n.Delay(40*time.Millisecond, 40*time.Millisecond) },
		"reset":        func(n *redlocktest.Node) { n.DropReplies(1) },
	} {
		runStage(t, name, 3, func(s *stage) {
			l := s.Locker(redlock.Options{})
			s.Each(fault, 0, 1)
			ctx, cancel := context.WithTimeout(s.Ctx, 20*time.Millisecond)
			defer cancel()
			k, err := l.TryAcquire(ctx, job, time.Hour)
			if name != "reset" { // those answer in time, with an error
				harness.CheckIs(s, "TryAcquire", err, context.DeadlineExceeded, redlock.ErrNoQuorum)
			}
			harness.Check(s, "a lock", k == nil, true)
			time.Sleep(2 * time.Second)
			s.Clean(l)
		})
	}
}

// Attack 76.
func TestWhatIsOwedGoesBeforeNewAcquires(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		locks := s.TakeMany(l, "old", 300) // more than one batch
		n := s.Node(2)
		n.Hang()
		for _, k := range locks {
			k.Release(s.Ctx)
		}
		ctx, stop := context.WithCancel(s.Ctx)
		stopped := harness.Background(func() error {
			for i := 0; ctx.Err() == nil; i++ {
				time.Sleep(10 * time.Millisecond)
				harness.Try(s, l, fmt.Sprint("new", i), time.Hour).Release(s.Ctx)
			}
			return nil
		})
		time.Sleep(1200 * time.Millisecond) // the node timeout of such a ttl is a second
		harness.Check(s, "owed to the hung node", seam.Peek(l).Nodes[2].Owed, 300)
		n.Record(true)
		n.Resume()
		time.Sleep(200 * time.Millisecond)
		stop()
		<-stopped
		var keys []string
		for _, cmd := range n.Log() {
			if key := harness.KeyOf(cmd.Args); len(key) >= 3 {
				keys = append(keys, key[:3])
			}
		}
		if got := slices.Compact(keys); !slices.Equal(got, []string{"old", "new"}) {
			s.Errorf("what a node hears that wakes: got %v, want all that is owed before new acquires", got)
		}
		s.Clean(l)
	})
}

func TestDebtThatErrorsAnswerIsTriedLessAndLessOften(t *testing.T) {
	for _, text := range []string{loading, "READONLY You can't write against a read only replica."} {
		onStage(t, 3, func(s *stage) {
			l := s.Locker(redlock.Options{})
			k := s.Take(l, time.Hour)
			time.Sleep(time.Millisecond)
			n := s.Node(2)
			n.Fail(text)
			s.Is("Release", k.Release(s.Ctx), nil)
			time.Sleep(2 * time.Minute)
			tries := s.Told(2, "release")
			if len(tries) < 5 || len(tries) > 20 {
				s.Fatalf("releases that %.8s answers in two minutes: got %d, want 5 to 20", text, len(tries))
			}
			if d := tries[len(tries)-1].At.Sub(tries[len(tries)-2].At); d < 7*time.Second || d > 9*time.Second {
				s.Errorf("pause between the last two tries: got %v, want 8 s", d)
			}
			harness.Check(s, "PINGs in two minutes are few", harness.Count(harness.Heard(n, ""), "ping") < 40, true)
			harness.Try(s, l, "others", time.Hour).Release(s.Ctx) // the node is asked all the same
			time.Sleep(time.Millisecond)
			harness.Check(s, "acquires of others that the node hears", harness.Count(harness.Heard(n, "others"), "acquire"), 1)
			n.Fail("")
			time.Sleep(16 * time.Second)
			s.Clean(l)
		})
	}
}

// A node may answer PINGs while scripts hang.
func TestNodeThatAnswersPingsAndHangsOnScriptsHurtsNobody(t *testing.T) {
	alone(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		k := s.Take(l, time.Hour)
		time.Sleep(time.Millisecond)
		before := runtime.NumGoroutine()
		n := s.Node(2)
		var hangs atomic.Bool
		hangs.Store(true)
		n.OnCommand(func(args []string) {
			for harness.Verb(args) == "release" && hangs.Load() {
				time.Sleep(10 * time.Millisecond)
			}
		})
		s.Is("Release", k.Release(s.Ctx), nil)
		for i := range 300 {
			var k *redlock.Lock
			d := harness.Took(func() { k = harness.Try(s, l, fmt.Sprint("k", i), time.Hour) })
			if d > time.Millisecond {
				s.Fatalf("TryAcquire beside a node that hangs on scripts: took %v, want what the others take", d)
			}
			if d := harness.Took(func() { s.Is("Release", k.Release(s.Ctx), nil) }); d > time.Millisecond {
				s.Fatalf("Release beside a node that hangs on scripts: took %v, want what the others take", d)
			}
			time.Sleep(100 * time.Millisecond)
		}
		// Each try holds a connection until the client's own two seconds are over; the
		// server here keeps the goroutine of each until the hook lets it go.
		if n := n.Connections(); n > 16 {
			s.Errorf("connections to a node that hangs on scripts for 30 s: got %d, want at most 16", n)
		}
		if g := runtime.NumGoroutine() - before; g > 100 {
			s.Errorf("goroutines more than before: got %d, want at most 100", g)
		}
		hangs.Store(false)
		time.Sleep(2 * time.Second)
		s.Clean(l)
	})
}

// Also to a server that was restarted, and has forgotten the scripts as which debts are sent.
func TestDebtsOfSeveralNodesAreAllPaid(t *testing.T) {
	onStage(t, 5, func(s *stage) {
		l := s.Locker(redlock.Options{})
		locks := s.TakeMany(l, "k", 20)
		s.Node(3).Hang()
		s.Node(4).Stop()
		for _, k := range locks[:10] {
			s.Is("Release", k.Release(s.Ctx), nil)
		}
		time.Sleep(time.Second)
		s.Node(2).Partition() // now three of five are gone
		for _, k := range locks[10:] {
			s.Is("Release by two of five", k.Release(s.Ctx), redlock.ErrNoQuorum)
		}
		time.Sleep(time.Minute)
		// The releases, and for locks that were held longer than a second the life of
		// their registers, too.
		for i, least := range []int{2: 10, 3: 20, 4: 20} {
			if got := seam.Peek(l).Nodes[i].Owed; got < least || got > 2*least {
				s.Errorf("owed to node %s: got %d, want from %d to %d", s.Node(i).Name(), got, least, 2*least)
			}
		}
		s.Mend(3)
		time.Sleep(time.Second)
		harness.Check(s, "owed to the node that woke first", seam.Peek(l).Nodes[3].Owed, 0)
		s.Mend(2, 4)
		time.Sleep(time.Second)
		s.Clean(l)
	})
}

// A node that answers PINGs and hangs on acquires would be given one more connection each
// time that it is believed again. At sixty-four it is not believed any more, until some
// of them have ended.
func TestPipelinesThatNeverComeBackAreBounded(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		const most = 64
		l := s.LockerWith(redlock.Options{NodeTimeout: 10 * time.Millisecond}, nil, harness.Nodes(s.Cluster.ClientsWith(func(o *redis.Options) {
			o.PoolSize, o.ReadTimeout, o.ContextTimeoutEnabled = 1000, time.Hour, false
		})))
		n := s.Node(2)
		var hangs atomic.Bool
		hangs.Store(true)
		n.OnCommand(func(args []string) {
			for harness.Verb(args) == "acquire" && hangs.Load() {
				time.Sleep(10 * time.Millisecond)
			}
		})
		for i := range 100 {
			k := harness.Try(s, l, fmt.Sprint("k", i), time.Hour)
			s.Is("Release", k.Release(s.Ctx), nil)
			time.Sleep(600 * time.Millisecond) // the pause before a second look holds the next PING up, too
		}
		if got := seam.Peek(l).Nodes[2].Stuck; got < most || got > most+4 {
			s.Errorf("pipelines that have not come back: got %d, want about %d", got, most)
		}
		if got := n.Connections(); got > most+16 {
			s.Errorf("connections: got %d, want at most %d", got, most+16)
		}
		harness.Check(s, "the node is down", seam.Peek(l).Nodes[2].Down, true)
		hangs.Store(false)
		if d, ok := harness.Within(10*time.Second, func() bool { return !seam.Peek(l).Nodes[2].Down && seam.Peek(l).Nodes[2].Stuck == 0 }); !ok {
			s.Errorf("used again: not %v after they came back", d)
		}
		s.Clean(l)
	})
}

// Release in a loop while a majority is down drops what is owed for other locks.
func TestRepeatedReleasesDoNotCrowdOutWhatIsOwedForOthers(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		a, k := harness.Try(s, l, "a", time.Hour), harness.Try(s, l, "k", time.Hour)
		time.Sleep(10 * time.Millisecond)
		s.Each((*redlocktest.Node).Stop, 1, 2)
		a.Release(s.Ctx)
		k.Release(s.Ctx)
		before := seam.Peek(l).Nodes[1].Owed
		// As often as there is room for debts, and it would be dropped.
		for range harness.Rounds(300, 16500) {
			k.Release(s.Ctx)
		}
		harness.Check(s, "owed after releases that were owed already", seam.Peek(l).Nodes[1].Owed, before)
		s.Mend(1, 2)
		time.Sleep(time.Minute)
		s.Empty("a minute after the nodes are back")
	})
}

// Nor does a node that has answered owe one more with each release: it looks again because of an acquire that it did
// not answer.
func TestRepeatedReleasesDoNotRepeatASecondLook(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		s.Hang(0)
		k := s.Take(l, time.Hour)
		time.Sleep(2 * time.Second)
		s.Resume(0)
		time.Sleep(2 * time.Second)
		s.Each((*redlocktest.Node).Stop, 1, 2)
		s.Is("Release", k.Release(s.Ctx), redlock.ErrNoQuorum)
		time.Sleep(100 * time.Millisecond)
		harness.Check(s, "owed after a release", seam.Peek(l).Nodes[0].Owed, 1)
		for range 300 {
			k.Release(s.Ctx)
		}
		harness.Check(s, "owed after releases that were answered", seam.Peek(l).Nodes[0].Owed, 1)
		s.Mend(1, 2)
		time.Sleep(time.Minute)
		s.Empty("a minute after the nodes are back")
		s.Clean(l)
	})
}
