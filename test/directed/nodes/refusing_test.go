package nodes_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/harness"
	"github.com/seed-ce352c9b/redlock/redlocktest"
)

// refusals are ways in which a node does not do what it is asked, by what it replies; "": its connections break.
var refusals = map[string]string{
	"no password":        "NOAUTH Authentication required.",
	"wrong password":     "WRONGPASS invalid username-password pair or user is disabled.",
	"no permission":      "NOPERM this user has no permissions to run the 'set' command",
	"replica":            "READONLY You can't write against a read only replica.",
	"loading":            loading,
	"disk":               "MISCONF Redis is configured to save RDB snapshots, but it is currently not able to persist on disk.",
	"sentinel":           "ERR unknown command 'set', with args beginning with: ",
	"node of a cluster":  "MOVED 6155 10.0.0.7:6379",
	"cluster down":       "CLUSTERDOWN Hash slot not served",
	"proxy":              "DENIED by policy",
	"broken connections": "",
}

// refuses makes a node refuse everything.
func refuses(n *redlocktest.Node, text string) {
	if text == "" {
		n.Refuse(true)
		return
	}
	n.Fail(text)
}

// states returns the states of the nodes, and the clean-ups owed to each.
func states(l *redlock.Locker) (text string) {
	for _, h := range l.Nodes() {
		text += fmt.Sprintf("%v %d ", h.State, h.CleanUps)
	}
	return text
}

// I5: a node that replies with errors is waited for no more than one that is dead.
func TestCloseDoesNotWaitForANodeThatRefuses(t *testing.T) {
	for what, text := range refusals {
		for _, from := range []string{"the start", "the release"} {
			runStage(t, what+" from "+from, 3, func(s *stage) {
				s.Slow(time.Millisecond)
				n := s.Node(2)
				if from == "the start" {
					refuses(n, text)
				}
				l := s.Locker(redlock.Options{})
				k := s.Take(l, time.Hour)
				time.Sleep(100 * time.Millisecond)
				refuses(n, text)
				began := time.Now()
				s.Is("Release", k.Release(s.Ctx), nil)
				time.Sleep(10 * time.Millisecond)
				owed := 0
				if from == "the release" || text == "" {
					owed = 1
				}
				if text != "" {
					harness.Check(s, "states of the nodes, and what is owed", states(l), fmt.Sprint("up 0 up 0 refusing ", owed, " "))
				}
				s.Is("Close", l.Close(), nil)
				if took := time.Since(began); took > 200*time.Millisecond {
					s.Errorf("Release and Close took %v, want not to wait for the node", took)
				}
			})
		}
	}
}

func TestAKeyGoesSoonAfterItsNodeWorksAgain(t *testing.T) {
	for what, text := range refusals {
		for _, traffic := range []bool{false, true} {
			if text == "" {
				continue // a node that is down is asked by PINGs
			}
			runStage(t, fmt.Sprint(what, ", traffic ", traffic), 3, func(s *stage) {
				l := s.Locker(redlock.Options{})
				k := s.Take(l, time.Hour)
				time.Sleep(10 * time.Millisecond)
				s.Node(2).Fail(text)
				s.Is("Release", k.Release(s.Ctx), nil)
				time.Sleep(20 * time.Second)
				s.Node(2).Fail("")
				limit := 8500 * time.Millisecond
				if traffic {
					limit = 20 * time.Millisecond
					s.Is("Release", harness.Try(s, l, "other", 10*time.Second).Release(s.Ctx), nil)
				}
				time.Sleep(limit)
				s.Empty("after the node works again", 2)
				s.Clean(l)
			})
		}
	}
}

// What was refused as well as the command that it undoes is not owed.
func TestNothingIsOwedToANodeThatHasRefusedAll(t *testing.T) {
	for what, text := range refusals {
		if text == "" {
			continue
		}
		for _, opt := range []redlock.Options{{}, {Fair: true}, {RestartGuard: 10 * time.Second}} {
			runStage(t, fmt.Sprint(what, " fair ", opt.Fair, " guard ", opt.RestartGuard), 3, func(s *stage) {
				l := s.Locker(opt)
				time.Sleep(25 * time.Second)
				s.Node(0).Fail(text)
				for range 3 {
					k := s.Acquire(l, 10*time.Second)
					s.Is("Extend", k.Extend(s.Ctx), nil)
					s.Is("Release", k.Release(s.Ctx), nil)
					time.Sleep(10 * time.Millisecond)
				}
				harness.Check(s, "states of the nodes, and what is owed", states(l), "refusing 0 up 0 up 0 ")
				s.Node(0).Fail("")
				if opt.RestartGuard == 0 { // the nodes keep its mark
					s.Clean(l)
				}
			})
		}
	}
}

// Beside a SET that was refused, ZADD may have raised the register.
func TestARegisterRaisedBesideARefusedSetGetsATTL(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		s.Node(0).FailCommand("set", refusals["no permission"])
		s.Foreign(time.Hour, 1, 2)
		s.Is("TryAcquire", harness.Second(l.TryAcquire(s.Ctx, job, 10*time.Second)), redlock.ErrHeld)
		if s.Register(0) == 0 {
			s.Fatal("the register was not raised beside a SET that was refused")
		}
		time.Sleep(10 * time.Millisecond)
		if s.Node(0).TTL(jobRegister) == 0 {
			s.Error("the register has no ttl after an attempt that failed")
		}
	})
}

// A node that is farther away than the others decides nothing, so that its votes stay pending. That it refuses is reported all the same.
func TestAFarNodeThatRefusesIsReported(t *testing.T) {
	for what, text := range refusals {
		runStage(t, what, 3, func(s *stage) {
			var seen harness.Observer
			l := s.Locker(redlock.Options{Trace: seen.Trace()})
			s.Slow(10*time.Millisecond, 2) // and the others not at all
			use := func(times int) {
				for range times {
					s.Is("Release", s.Take(l, 10*time.Second).Release(s.Ctx), nil)
					time.Sleep(50 * time.Millisecond)
				}
			}
			use(3)
			harness.Check(s, "events before", len(seen.Events()), 2*3)
			began := time.Now()
			refuses(s.Node(2), text)
			use(10)
			h := l.Nodes()[2]
			want := redlock.NodeRefusing
			if text == "" {
				want = redlock.NodeDown
				s.Node(2).Refuse(false)
			} else if since := h.Since.Sub(began); since < 0 || since > 100*time.Millisecond || h.RoundTrip < 10*time.Millisecond || h.Err == nil {
				s.Errorf("got %+v, want since %v, a round trip above 10 ms, and the error", h, began)
			}
			harness.Check(s, "state", h.State, want)
			s.Node(2).Fail("")
			use(10)
			h = l.Nodes()[2]
			if h.State != redlock.NodeUp || h.Err != nil || h.Since.Before(began) {
				s.Errorf("got %+v, want it to be up since it works again", h)
			}
			var got []redlock.EventKind
			for _, e := range seen.Events() {
				if e.Node != "" {
					got = append(got, e.Kind)
					harness.Check(s, "node", e.Node, s.Node(2).Addr())
				}
			}
			began1 := redlock.EventNodeRefusing
			if text == "" {
				began1 = redlock.EventNodeDown
			}
			if !slices.Equal(got, []redlock.EventKind{began1, redlock.EventNodeUp}) {
				s.Errorf("got %v, want %v and its end", got, began1)
			}
			s.Clean(l)
		})
	}
}

// A node that grants what it is asked and refuses something else now and then is reported once, not with every batch.
func TestANodeThatRefusesOneKindOfCommandIsReportedOnce(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		var seen harness.Observer
		l := s.Locker(redlock.Options{Trace: seen.Trace()})
		s.Node(1).FailCommand("evalsha", refusals["no permission"])
		for range 100 {
			k := s.Take(l, 10*time.Second)
			time.Sleep(time.Millisecond)
			s.Is("Release", k.Release(s.Ctx), nil)
			time.Sleep(time.Second)
		}
		harness.Check(s, "times reported", len(seen.Events(redlock.EventNodeRefusing)), 1)
		harness.Check(s, "times up", len(seen.Events(redlock.EventNodeUp)), 0)
		s.Node(1).FailCommand("evalsha", "")
		s.Is("Release", s.Take(l, 10*time.Second).Release(s.Ctx), nil)
		time.Sleep(time.Second)
		harness.Check(s, "times up", len(seen.Events(redlock.EventNodeUp)), 1)
		s.Clean(l)
	})
}

// forbid makes a node refuse the keys with a prefix, as by an ACL, until it is called again without one.
func forbid(n *redlocktest.Node, prefix string) {
	n.Fail("")
	if prefix == "" {
		n.OnCommand(nil)
		return
	}
	n.OnCommand(func(args []string) {
		text := ""
		if slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, prefix) }) {
			text = "NOPERM No permissions to access a key"
		}
		n.Fail(text)
	})
}

// nodeEvents are the events of nodes.
func nodeEvents(seen *harness.Observer) (kinds []redlock.EventKind) {
	for _, e := range seen.Events() {
		if e.Node != "" {
			kinds = append(kinds, e.Kind)
		}
	}
	return kinds
}

// A node that refuses one key and grants others is not reported with every call, nor sent each time what it refuses.
func TestANodeThatRefusesOneKeyIsReportedOnce(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		var seen harness.Observer
		l := s.Locker(redlock.Options{Trace: seen.Trace()})
		n := s.Node(2)
		k := harness.Try(s, l, "forbidden", time.Hour)
		time.Sleep(10 * time.Millisecond)
		forbid(n, "forbidden")
		s.Is("Release", k.Release(s.Ctx), nil)
		use := func(times int) {
			for range times {
				s.Is("Release", s.Take(l, 10*time.Second).Release(s.Ctx), nil)
				time.Sleep(10 * time.Millisecond)
			}
		}
		n.Record(true)
		use(2000)
		if tries := harness.Count(harness.Heard(n, "forbidden"), "release"); tries < 3 || tries > 10 {
			s.Errorf("releases that the node refuses in 20 s: got %d, want 3 to 10", tries)
		}
		harness.Check(s, "events", fmt.Sprint(nodeEvents(&seen)), fmt.Sprint([]redlock.EventKind{redlock.EventNodeRefusing, redlock.EventNodeUp, redlock.EventNodeRefusing}))
		forbid(n, "")
		time.Sleep(70 * time.Second)
		use(1)
		harness.Check(s, "events when it is allowed", len(nodeEvents(&seen)), 4)
		harness.Check(s, "states", states(l), "up 0 up 0 up 0 ")
		s.Clean(l)
	})
}

// More than a batch of clean-ups that a node never takes keep back none that it takes.
func TestWhatANodeNeverTakesKeepsBackNothingElse(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		n := s.Node(2)
		locks, good := s.TakeMany(l, "forbidden", 300), s.Take(l, time.Hour)
		time.Sleep(10 * time.Millisecond)
		forbid(n, "forbidden")
		for _, k := range locks {
			s.Is("Release", k.Release(s.Ctx), nil)
		}
		time.Sleep(time.Second)
		n.Refuse(true)
		s.Is("Release", good.Release(s.Ctx), nil)
		time.Sleep(5 * time.Second)
		n.Refuse(false)
		if _, ok := harness.Within(20*time.Second, func() bool { return !slices.Contains(harness.LocksOn(n), job) }); !ok {
			s.Error("the key stays on a node that would remove it")
		}
		forbid(n, "")
		time.Sleep(20 * time.Second)
		s.Clean(l)
	})
}

// Clean-ups that nodes never take, which are tried in long pauses by then, do not delay one that becomes owed.
func TestWhatNodesNeverTakeDelaysNothingElse(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		bad, good := harness.Try(s, l, "forbidden", time.Hour), s.Take(l, time.Hour)
		time.Sleep(10 * time.Millisecond)
		for i := range s.Cluster.Len() {
			forbid(s.Node(i), "forbidden")
		}
		s.Is("Release", bad.Release(s.Ctx), redlock.ErrNoQuorum)
		time.Sleep(20 * time.Second)
		for i := range s.Cluster.Len() {
			s.Node(i).Refuse(true)
		}
		s.Is("Release of the other", good.Release(s.Ctx), redlock.ErrNoQuorum)
		for i := range s.Cluster.Len() {
			s.Node(i).Refuse(false)
		}
		if took, _ := harness.Within(20*time.Second, func() bool { return !slices.Contains(s.Locked(), job) }); took > 500*time.Millisecond {
			s.Errorf("the lock is gone %v after the nodes are back, want soon", took)
		}
		for i := range s.Cluster.Len() {
			forbid(s.Node(i), "")
		}
		time.Sleep(20 * time.Second)
		s.Clean(l)
	})
}

// A node that works again gets at once all that is owed to it, also if that is more than a batch.
func TestANodeThatWorksAgainGetsAllThatIsOwed(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		n := s.Node(2)
		locks := s.TakeMany(l, "many", 600)
		time.Sleep(10 * time.Millisecond)
		n.Refuse(true)
		for _, k := range locks {
			s.Is("Release", k.Release(s.Ctx), nil)
		}
		n.Fail(loading)
		n.Refuse(false)
		time.Sleep(time.Minute)
		n.Fail("")
		s.Is("Release", s.Take(l, 10*time.Second).Release(s.Ctx), nil)
		time.Sleep(100 * time.Millisecond)
		s.Empty("after the node works again", 2)
		s.Clean(l)
	})
}

// The pause before the last rollback of what may still arrive is kept, also if the node has refused it before and now works again.
func TestARollbackThatWasRefusedKeepsItsPause(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		n := s.Node(2)
		other := harness.Try(s, l, "other", time.Hour)
		time.Sleep(10 * time.Millisecond)
		s.Foreign(time.Hour, 0, 1)
		n.Fail(loading)
		s.Slow(10*time.Millisecond, 2)
		harness.Unanswered(n, "acquire", job, 1)
		s.Is("TryAcquire", harness.Second(l.TryAcquire(s.Ctx, job, time.Hour)), redlock.ErrHeld)
		s.Is("Release", other.Release(s.Ctx), nil)
		time.Sleep(1200 * time.Millisecond)
		n.Fail("")
		time.Sleep(20 * time.Second)
		tries := s.Told(2, "rollback")
		if len(tries) < 3 {
			s.Fatalf("got %d rollbacks, want one that is refused, and two", len(tries))
		}
		if d := tries[len(tries)-1].At.Sub(tries[len(tries)-2].At); d < 500*time.Millisecond {
			s.Errorf("pause before the last rollback: got %v, want 500 ms", d)
		}
		s.Clean(l)
	})
}

// A pingless client loses the PINGs, as one with many dead connections in its pool, or behind a proxy that knows no PING.
type pingless struct{ harness.Client }

func (u *pingless) Process(ctx context.Context, cmd redis.Cmder) error {
	if cmd.Name() == "ping" {
		cmd.SetErr(io.EOF)
		return io.EOF
	}
	return u.Client.Process(ctx, cmd)
}

func TestANodeThatRepliesIsNotDownForLostPings(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		nodes := s.Cluster.Nodes()
		nodes[2] = &pingless{Client: nodes[2].(*redis.Client)}
		l, err := harness.NewSeamed(redlock.Options{}, nil, nil, harness.Seed(t), nodes...)
		s.Is("New", err, nil)
		defer l.Close()
		k := harness.Try(s, l, "other", time.Hour)
		time.Sleep(10 * time.Millisecond)
		s.Node(2).Fail(loading)
		s.Is("Release", k.Release(s.Ctx), nil)
		time.Sleep(time.Millisecond)
		s.Node(2).Fail("")
		for range 1000 {
			s.Is("Release", s.Take(l, 10*time.Second).Release(s.Ctx), nil)
			time.Sleep(5 * time.Millisecond)
		}
		harness.Check(s, "states", states(l), "up 0 up 0 up 1 ")
		s.Node(2).Refuse(true)
		time.Sleep(2 * time.Second)
		harness.Check(s, "state once it does not reply", l.Nodes()[2].State, redlock.NodeDown)
	})
}

// If a majority refuses what Close sends by errors that may go away, Close sends it again.
func TestCloseIsPatientWithAMajorityThatRefuses(t *testing.T) {
	for what, c := range map[string]struct {
		text string
		long bool
		most time.Duration
	}{
		"for a moment":       {loading, false, 600 * time.Millisecond},
		"for long":           {loading, true, 2 * time.Second},
		"until it is mended": {refusals["no password"], true, 100 * time.Millisecond},
	} {
		runStage(t, what, 3, func(s *stage) {
			l := s.Locker(redlock.Options{})
			s.Take(l, time.Hour)
			time.Sleep(100 * time.Millisecond)
			s.FailNodes(c.text, 0, 1)
			if !c.long {
				time.AfterFunc(10*time.Millisecond, func() { s.FailNodes("", 0, 1) })
			}
			began := time.Now()
			s.Is("Close", l.Close(), redlock.ErrNoQuorum)
			if took := time.Since(began); took > c.most {
				s.Errorf("Close took %v, want %v at most", took, c.most)
			}
			if !c.long {
				s.Empty("after Close", 0, 1, 2)
			}
			s.Mend(0, 1)
		})
	}
}

// Close sends once more what all nodes have refused, in whatever pause that is, also beside what they never take.
func TestCloseSendsAgainWhatWasRefused(t *testing.T) {
	for what, text := range map[string]string{"loading": loading, "no password": refusals["no password"]} {
		runStage(t, what, 3, func(s *stage) {
			l := s.Locker(redlock.Options{})
			bad, k := harness.Try(s, l, "forbidden", time.Hour), s.Take(l, time.Hour)
			time.Sleep(100 * time.Millisecond)
			s.FailNodes(text, 0, 1, 2)
			s.Is("Release", k.Release(s.Ctx), redlock.ErrNoQuorum)
			s.Is("Release of the other", bad.Release(s.Ctx), redlock.ErrNoQuorum)
			time.Sleep(19 * time.Second)
			for i := range s.Cluster.Len() {
				forbid(s.Node(i), "forbidden")
			}
			time.Sleep(time.Second)
			began := time.Now()
			s.Is("Close", l.Close(), nil)
			if took := time.Since(began); took > 50*time.Millisecond {
				s.Errorf("Close took %v", took)
			}
			if got := s.Locked(); !slices.Equal(got, []string{"forbidden"}) {
				s.Errorf("the nodes have %v, want only what they never take", got)
			}
			for i := range s.Cluster.Len() {
				forbid(s.Node(i), "")
			}
		})
	}
}

// Of two reasons why a node is not up, one ends while the other lasts: it is not reported as up.
func TestANodeIsUpWhenNoReasonLasts(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		var seen harness.Observer
		l := s.Locker(redlock.Options{RestartGuard: 30 * time.Second, Trace: seen.Trace()})
		n := s.Node(2)
		time.Sleep(time.Minute)
		k := harness.Try(s, l, "other", 20*time.Second)
		time.Sleep(10 * time.Millisecond)
		use := func(seconds int) {
			for range seconds {
				s.Is("Release", s.Take(l, 10*time.Second).Release(s.Ctx), nil)
				time.Sleep(time.Second)
			}
		}
		n.Restart(false)
		use(2)
		n.Fail(loading)
		s.Is("Release", k.Release(s.Ctx), nil)
		time.Sleep(10 * time.Millisecond)
		n.Fail("")
		use(3)
		harness.Check(s, "state", l.Nodes()[2].State, redlock.NodeQuarantined)
		n.Refuse(true)
		use(1)
		n.Refuse(false)
		use(3)
		harness.Check(s, "state", l.Nodes()[2].State, redlock.NodeQuarantined)
		use(30)
		got := nodeEvents(&seen)
		if len(got) > 0 && got[0] == redlock.EventNodeDown { // the connections broke as it restarted
			got = got[1:]
		}
		q := redlock.EventNodeQuarantined
		want := []redlock.EventKind{q, redlock.EventNodeRefusing, q, redlock.EventNodeDown, q, redlock.EventNodeUp}
		harness.Check(s, "events", fmt.Sprint(got), fmt.Sprint(want))
		harness.Check(s, "state in the end", l.Nodes()[2].State, redlock.NodeUp)
	})
}

// A node that was down and replies with errors, to PINGs too, is not up, whether it is asked for anything or not; and its
// recovery is noticed.
func TestANodeThatComesBackWithErrorsIsNotUp(t *testing.T) {
	for what, text := range map[string]string{"loading": loading, "no password": refusals["no password"]} {
		for _, idle := range []bool{true, false} {
			runStage(t, fmt.Sprint(what, ", idle ", idle), 3, func(s *stage) {
				var seen harness.Observer
				l := s.Locker(redlock.Options{Trace: seen.Trace()})
				n := s.Node(2)
				use := func() {
					s.Is("Release", s.Take(l, 10*time.Second).Release(s.Ctx), nil)
					time.Sleep(time.Second)
				}
				n.Refuse(true)
				use()
				n.Fail(text)
				n.Refuse(false)
				for range 10 {
					if !idle {
						use()
					}
					time.Sleep(time.Second)
					harness.Check(s, "state", l.Nodes()[2].State, redlock.NodeRefusing)
					s.Says(l.Nodes()[2].Err, text)
				}
				n.Fail("")
				if !idle {
					use()
				}
				time.Sleep(time.Second)
				harness.Check(s, "state in the end", l.Nodes()[2].State, redlock.NodeUp)
				use()
				harness.Check(s, "events", fmt.Sprint(nodeEvents(&seen)), fmt.Sprint([]redlock.EventKind{redlock.EventNodeDown, redlock.EventNodeRefusing, redlock.EventNodeUp}))
				n.Record(true)
				time.Sleep(time.Minute)
				harness.Check(s, "PINGs to a node that is up", harness.Count(harness.Heard(n, harness.Job), "ping"), 0)
				s.Clean(l)
			})
		}
	}
}

// A node that was down, and that is asked nothing while it replies with errors, does not hold up Close.
func TestCloseDoesNotWaitForANodeThatComesBackWithErrors(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		s.Node(2).Refuse(true)
		s.Is("Release", s.Take(l, 10*time.Second).Release(s.Ctx), nil)
		time.Sleep(time.Second)
		s.Node(2).Fail(loading)
		s.Node(2).Refuse(false)
		time.Sleep(time.Second)
		harness.Check(s, "state", l.Nodes()[2].State, redlock.NodeRefusing)
		if took := harness.Took(func() { l.Close() }); took > 10*time.Millisecond {
			s.Errorf("Close took %v", took)
		}
	})
}

// A user who may do everything but PING.
func TestANodeThatRefusesPingsAloneIsUpOnceItIsUsed(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		var seen harness.Observer
		l := s.Locker(redlock.Options{Trace: seen.Trace()})
		n := s.Node(2)
		n.FailCommand("ping", refusals["no permission"])
		n.Refuse(true)
		s.Is("Release", s.Take(l, 10*time.Second).Release(s.Ctx), nil)
		time.Sleep(time.Second)
		n.Refuse(false)
		time.Sleep(time.Second)
		for range 10 {
			s.Is("Release", s.Take(l, 10*time.Second).Release(s.Ctx), nil)
			time.Sleep(time.Second)
			harness.Check(s, "state", l.Nodes()[2].State, redlock.NodeUp)
		}
		harness.Check(s, "events", fmt.Sprint(nodeEvents(&seen)), fmt.Sprint([]redlock.EventKind{redlock.EventNodeDown, redlock.EventNodeRefusing, redlock.EventNodeUp}))
		n.Record(true)
		time.Sleep(time.Minute)
		harness.Check(s, "PINGs to a node that is up", harness.Count(harness.Heard(n, harness.Job), "ping"), 0)
	})
}

// A node that was silent at first, and whose connections fail since, is down because of that, and no longer because of a timeout.
func TestWhyANodeIsDownIsKeptUpToDate(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		s.Node(2).Hang()
		s.Is("Release", s.Take(l, 10*time.Second).Release(s.Ctx), nil)
		time.Sleep(time.Second)
		s.Says(l.Nodes()[2].Err, "down: timeout")
		s.Node(2).Stop()
		time.Sleep(10 * time.Second)
		s.Says(l.Nodes()[2].Err, "down: ", "connection refused")
		s.Node(2).Start()
		s.Node(2).Hang() // from now on it says less than before
		time.Sleep(10 * time.Second)
		s.Says(l.Nodes()[2].Err, "down: ", "connection refused")
		s.Node(2).Resume()
	})
}

func TestNodesTellsTheStateOfEach(t *testing.T) {
	onStage(t, 5, func(s *stage) {
		l := s.Cold(redlock.Options{}, nil, harness.Nodes(s.Cluster.Clients()))
		harness.Check(s, "before any call", states(l), "unknown 0 unknown 0 unknown 0 unknown 0 unknown 0 ")
		s.Node(1).Fail(refusals["no password"])
		s.Node(3).Stop()
		s.Is("Release", s.Take(l, 10*time.Second).Release(s.Ctx), nil)
		time.Sleep(time.Second)
		harness.Check(s, "after one", states(l), "up 0 refusing 0 up 0 down 0 up 0 ")
		all := l.Nodes()
		for i, h := range all {
			harness.Check(s, "name", h.Node, s.Node(i).Addr())
		}
		s.Says(all[1].Err, "NOAUTH")
		s.Says(all[3].Err, "down: ")
		s.Node(1).Fail("")
		s.Node(3).Start()
		s.Is("Close", l.Close(), nil)
		harness.Check(s, "states after Close", len(l.Nodes()), 5)
	})
}

// A node that does not know a command replies with its arguments, and one of them is the value of the lock that the other
// nodes grant.
func TestTheChainOfANodesErrorHasNoValue(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		var seen harness.Observer
		l := s.Locker(redlock.Options{Trace: seen.Trace()})
		n := s.Node(2)
		s.On(2, "acquire", func(_ int, args []string) {
			n.FailCommand("set", fmt.Sprintf("ERR unknown command 'set', with args beginning with: '%s' '%s' 'nx' ", args[1], args[2]))
		})
		k := s.Take(l, time.Hour)
		time.Sleep(10 * time.Millisecond)
		refusing := seen.Events(redlock.EventNodeRefusing)
		if len(refusing) != 1 {
			s.Fatalf("events %v, want one of a node that refuses", refusing)
		}
		for _, err := range []error{l.Nodes()[2].Err, refusing[0].Err} {
			var re redis.Error
			if !errors.As(err, &re) {
				s.Errorf("errors.As finds no redis.Error in %v", err)
			}
			for ; err != nil; err = errors.Unwrap(err) {
				if strings.Contains(err.Error(), k.Value().Secret()) {
					s.Errorf("%T has the value: %v", err, err)
				}
			}
		}
	})
}
