package waiting_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/harness"
	"github.com/seed-ce352c9b/redlock/internal/seam"
)

// subscriptions is how many channels of a node somebody subscribes to.
func (s *stage) subscriptions(i int) (channels int) {
	return len(s.Do(i, "PUBSUB", "CHANNELS").([]any))
}

// A dialled counts the connections of clients that are made by hand.
type dialled struct {
	n, live atomic.Int64 // all dials, and those whose ctx had not ended
	refuse  atomic.Bool
	cutOff  atomic.Int64 // a connection lives that long, in nanoseconds
}

// earsBy gives nodes whose subscribers dial through d.
func (s *stage) earsBy(d *dialled) (nodes []redlock.Node) {
	ask := s.Cluster.Clients()
	for i, c := range ask {
		n := s.Node(i)
		opt := *c.Options()
		opt.Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) {
			if d.n.Add(1); ctx.Err() == nil {
				d.live.Add(1)
			}
			if d.refuse.Load() {
				return nil, &net.OpError{Op: "dial", Err: fmt.Errorf("connection refused")}
			}
			conn, err := n.Dial(ctx)
			if cutOff := time.Duration(d.cutOff.Load()); err == nil && cutOff > 0 {
				time.AfterFunc(cutOff, func() { conn.Close() })
			}
			return conn, err
		}
		ear := redis.NewClient(&opt)
		s.Cleanup(func() { ear.Close() })
		nodes = append(nodes, ways{c, ear})
	}
	return nodes
}

func TestOneConnectionPerNodeHearsForAllKeysAndWaiters(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		var d dialled
		l := s.LockerWith(redlock.Options{}, nil, s.earsBy(&d))
		holder := s.Locker(redlock.Options{})
		var locks []*redlock.Lock
		var ws []*waiting
		for i := range 20 {
			key := fmt.Sprint("jobs/", i)
			locks = append(locks, harness.Try(s, holder, key, heldLong))
			for range 3 {
				ws = append(ws, s.waiterOf(l, key, heldLong))
			}
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(time.Second)
		harness.Check(s, "connections to hear by", int(d.n.Load()), 3)
		s.channels("while all wait", l, 20)
		for i, k := range locks {
			released := time.Now()
			k.Release(s.Ctx)
			got := 0
			harness.Within(5*time.Millisecond, func() bool {
				got = 0
				for _, w := range ws[3*i : 3*i+3] {
					if w.over() {
						got++
					}
				}
				return got > 0
			})
			if got != 1 {
				s.Errorf("key %d: %d of 3 waiters acquired %v after the release, want 1", i, got, time.Since(released))
			}
		}
		for _, w := range ws {
			w.stop()
			<-w.ended
		}
	})
}

func TestASubscriptionLingersIsUsedAgainAndClosed(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		var d dialled
		l := s.LockerWith(redlock.Options{}, nil, s.earsBy(&d))
		s.Foreign(heldLong, s.All()...)
		w := s.settled(l, heldLong)
		w.gives(context.Canceled)
		time.Sleep(lingers / 2)
		if got := s.subscriptions(1); got != 1 {
			s.Fatalf("subscriptions %v after the last waiter left: got %d, want 1", lingers/2, got)
		}
		for range 5 { // whoever comes back in time is heard at once
			w = s.waiter(l, heldLong)
			time.Sleep(lingers / 2)
			w.gives(context.Canceled)
			time.Sleep(lingers / 2)
		}
		harness.Check(s, "connections over five waits", int(d.n.Load()), 3)
		before := s.Node(1).Connections()
		time.Sleep(2*lingers + time.Second)
		harness.Check(s, "subscriptions long after the last waiter left", s.subscriptions(1), 0)
		if got := s.Node(1).Connections(); got != before-1 {
			s.Errorf("connections: got %d after %d, want the one to hear by closed", got, before)
		}
		if seam.Peek(l).Queues != 0 || seam.Peek(l).Nodes[0].Subscribed != 0 || seam.Peek(l).Channels != 0 {
			s.Errorf("kept: %d lines, %d and %d channels, want none", seam.Peek(l).Queues, seam.Peek(l).Nodes[0].Subscribed, seam.Peek(l).Channels)
		}
		w = s.settled(l, heldLong)
		harness.Check(s, "connections after the next waiter came", int(d.n.Load()), 6)
		w.gives(context.Canceled)
	})
}

// One key's channel is given up while another's stays.
func TestAChannelIsUnsubscribedWhereOthersStay(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		for i := range 3 {
			s.Foreign(heldLong, i)
			s.Node(i).Set("jobs/43", otherValue, heldLong)
		}
		stays := s.waiterOf(l, "jobs/43", heldLong)
		w := s.settled(l, heldLong)
		if got := s.subscriptions(0); got != 2 {
			s.Fatalf("subscriptions: got %d, want 2", got)
		}
		w.gives(context.Canceled)
		time.Sleep(2*lingers + time.Second)
		harness.Check(s, "subscriptions after one left", s.subscriptions(0), 1)
		stays.gives(context.Canceled)
	})
}

// The silence of a half-open link is noticed by a PING that gets no answer, and that of
// a quiet one is not taken for it.
//
// Attack 88.
func TestAQuietLinkIsPingedAndAHalfOpenOneGivenUp(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		s.Foreign(heldLong, s.All()...)
		nodes, ears := s.apart()
		l := s.LockerWith(redlock.Options{}, nil, nodes)
		w := s.settled(l, heldLong)
		time.Sleep(time.Minute)
		pings, subs := 0, 0
		for _, c := range s.Node(0).Log() {
			if c.Client == 2 {
				switch harness.Verb(c.Args) {
				case "ping":
					pings++
				case "subscribe":
					subs++
				}
			}
		}
		if pings < 5 || pings > 12 || subs != 0 { // recorded since it settled
			s.Errorf("a minute of silence: got %d PINGs and %d subscriptions, want one in six seconds and none", pings, subs)
		}
		s.Cluster.Cut(ears[0])
		d, ok := harness.Within(deafAfter+time.Second, func() bool { return seam.Peek(l).Nodes[0].Subscribed == 0 })
		if !ok || d > deafAfter+10*time.Millisecond {
			s.Errorf("a half-open link is noticed after %v, want %v", d, deafAfter)
		}
		s.Cluster.Mend(ears[0])
		if d, ok := harness.Within(4*time.Second, func() bool { return seam.Peek(l).Nodes[0].Subscribed == 1 }); !ok {
			s.Errorf("not heard again %v after the link was mended", d)
		}
		w.gives(context.Canceled)
	})
}

// Attack 88.
func TestDialsForASubscriptionAreBounded(t *testing.T) {
	for what, f := range map[string]func(s *stage, d *dialled){
		"refused":               func(_ *stage, d *dialled) { d.refuse.Store(true) },
		"made only to be cut":   func(_ *stage, d *dialled) { d.cutOff.Store(int64(time.Millisecond)) },
		"no permission":         func(s *stage, _ *dialled) { s.denied("NOPERM no channels") },
		"too many clients":      func(s *stage, _ *dialled) { s.denied("ERR max number of clients reached") },
		"a node without PUBSUB": func(s *stage, _ *dialled) { s.denied("ERR unknown command 'subscribe'") },
	} {
		runStage(t, what, 3, func(s *stage) {
			s.Foreign(heldLong, s.All()...)
			var d dialled
			l := s.LockerWith(redlock.Options{}, nil, s.earsBy(&d))
			f(s, &d)
			w := s.waiter(l, heldLong)
			time.Sleep(time.Minute)
			w.waits("for a minute")
			got := int(d.n.Load()) / 3
			s.Logf("%d dials", got)
			if most := 4 * 60; got > most { // go-redis dials a few times where we dial once
				s.Errorf("dials to a node in a minute: got %d, want at most %d", got, most)
			}
			if refused := what == "no permission" || what == "a node without PUBSUB"; refused && int(d.live.Load()) > 3*3 {
				s.Errorf("dials in a minute to nodes that said no: got %d, want one in half a minute to each", int(d.live.Load()))
			}
			// Once it is allowed, it is heard again: at the latest after a refusal's pause.
			d.refuse.Store(false)
			d.cutOff.Store(0)
			s.denied("")
			bound := 2 * time.Second
			if what == "no permission" || what == "a node without PUBSUB" {
				bound = 31 * time.Second
			}
			if d, ok := harness.Within(bound, func() bool {
				return seam.Peek(l).Nodes[0].Subscribed+seam.Peek(l).Nodes[1].Subscribed+seam.Peek(l).Nodes[2].Subscribed == 3
			}); !ok {
				s.Errorf("not heard %v after it could be", d)
			}
			w.gives(context.Canceled)
		})
	}
}

// A subscription that breaks is made anew by us, when its pause is over. go-redis would
// do it, too, at once and with a lock held that Close has to wait for.
func TestOnlyWeDialForASubscriptionThatBroke(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		s.Foreign(heldLong, s.All()...)
		const lives, wait = 3 * time.Second, 31 * time.Second
		var d dialled
		d.cutOff.Store(int64(lives))
		l := s.LockerWith(redlock.Options{}, nil, s.earsBy(&d))
		w := s.waiter(l, heldLong)
		time.Sleep(wait)
		w.waits("for half a minute")
		if got, most := int(d.live.Load()), 3*int(1+wait/lives); got > most || got < most/2 {
			s.Errorf("dials for connections that live for %v, in %v: got %d, want one each time, %d", lives, wait, got, most)
		}
		w.gives(context.Canceled)
	})
}

// A call that Close did not wait for, for it took too long, must not begin to listen:
// nobody would end that.
func TestNothingIsListenedToAfterClose(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		s.Foreign(heldLong, s.All()...)
		var d dialled
		l := s.LockerWith(redlock.Options{NodeTimeout: 50 * time.Millisecond, Trace: redlock.Trace{Round: func(_ context.Context, r redlock.Round) {
			if r.Op == redlock.OpAcquire {
				time.Sleep(time.Second) // ten times as long as Close waits
			}
		}}}, nil, s.earsBy(&d))
		w := s.waiter(l, heldLong)
		time.Sleep(time.Millisecond)
		s.Is("Close", l.Close(), nil)
		w.waits("when Close has returned: the test tests nothing;")
		<-w.ended
		if w.err == nil {
			s.Error("Acquire: got a lock of a Locker that is closed")
		}
		time.Sleep(time.Second)
		if got := int(d.n.Load()); got > 0 {
			s.Errorf("dials for subscriptions after Close: got %d, want none", got)
		}
		s.channels("after Close", l, 0)
	})
}

// denied has every SUBSCRIBE answered with an error.
func (s *stage) denied(err string) { s.FailCommand("subscribe", err, s.All()...) }

// channels fails the test unless the Locker hears as many channels of each node, and somebody subscribes to them there.
func (s *stage) channels(what string, l *redlock.Locker, want int) {
	s.Helper()
	for i := range s.Cluster.Len() {
		harness.Check(s, fmt.Sprintf("%s: channels of node %d that are heard", what, i), seam.Peek(l).Nodes[i].Subscribed, want)
		harness.Check(s, fmt.Sprintf("%s: channels of node %d that are subscribed to", what, i), s.subscriptions(i), want)
	}
}

// Keys come and go, and waiters too: in the end what is listened to is
// what is waited for, on one connection a node.
func TestListeningFollowsTheWaitersInAllOrders(t *testing.T) {
	for seed := range uint64(harness.Rounds(1, 2)) {
		onStage(t, 3, func(s *stage) {
			var d dialled
			l := s.LockerWith(redlock.Options{}, nil, s.earsBy(&d))
			r := rand.New(rand.NewPCG(seed, 7))
			keys := []string{"a", "b", "c", "d"}
			for i := range 3 {
				for _, key := range keys {
					s.Node(i).Set(key, otherValue, time.Hour)
				}
			}
			wait := make(map[string]*waiting)
			for range 120 {
				key := keys[r.IntN(len(keys))]
				switch w := wait[key]; {
				case w == nil:
					wait[key] = s.waiterOf(l, key, heldLong)
				default:
					w.gives(context.Canceled)
					delete(wait, key)
				}
				pauses := []time.Duration{0, 20 * time.Microsecond, 150 * time.Microsecond, 25 * time.Millisecond, lingers, 2 * lingers}
				time.Sleep(pauses[r.IntN(len(pauses))])
			}
			if wait["a"] == nil {
				wait["a"] = s.waiterOf(l, "a", heldLong)
			}
			time.Sleep(3*lingers + time.Second)
			s.channels("while some wait", l, len(wait))
			for _, w := range wait {
				w.gives(context.Canceled)
			}
			time.Sleep(3*lingers + time.Second)
			harness.Check(s, "lines that are left", seam.Peek(l).Queues, 0)
			s.channels("in the end", l, 0)
		})
	}
}

// A flood of announcements wakes nobody without a reason, and takes no memory.
//
// Attack 88.
func TestAFloodOfAnnouncementsWakesAtMostOncePerValue(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		k := s.Take(s.Locker(redlock.Options{}), heldLong)
		w := s.settled(s.Locker(redlock.Options{}), heldLong)
		for i := range 1000 {
			s.announce(fmt.Sprint("value ", i), i%3) // each by a minority
		}
		for range 1000 {
			s.announce("the same", s.All()...)
		}
		time.Sleep(20 * time.Millisecond)
		if got := s.tries(0); got > 2 {
			s.Errorf("a flood had the waiter try %d times, want at most twice", got)
		}
		released := time.Now()
		s.Is("Release", k.Release(s.Ctx), nil)
		w.gets("after a flood", released, 3*oneTrip)
	})
}

// Announcements of a key in a batch are of that key alone.
//
// Attack 88.
func TestAnAnnouncementIsForOneKey(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l, holder := s.Locker(redlock.Options{}), s.Locker(redlock.Options{})
		var locks []*redlock.Lock
		var ws []*waiting
		keys := []string{"a", "{a}b", "a{b", "b"}
		for _, key := range keys {
			locks = append(locks, harness.Try(s, holder, key, heldLong))
			ws = append(ws, s.waiterOf(l, key, heldLong))
		}
		time.Sleep(time.Second)
		var served []string
		for _, i := range []int{2, 0, 3, 1} {
			released := time.Now()
			s.Is("Release", locks[i].Release(s.Ctx), nil)
			ws[i].gets(keys[i], released, 3*oneTrip)
			for j, w := range ws {
				if w.over() && !slices.Contains(served, keys[j]) {
					served = append(served, keys[j])
				}
			}
		}
		if want := []string{"a{b", "a", "b", "{a}b"}; !slices.Equal(served, want) {
			s.Errorf("served: got %q, want %q", served, want)
		}
	})
}

// A channel that an ACL forbids is set aside alone: the others are heard, on the same connection, and it is tried again.
func TestAForbiddenChannelSilencesNoOther(t *testing.T) {
	const forbidden = "no"
	for _, when := range []string{"first", "last", "all at once"} {
		runStage(t, when, 3, func(s *stage) {
			var d dialled
			l := s.LockerWith(redlock.Options{}, nil, s.earsBy(&d))
			var allowed atomic.Bool
			for i := range 3 {
				n := s.Node(i)
				n.OnCommand(func(args []string) {
					if !strings.EqualFold(args[0], "subscribe") {
						return
					}
					refusal := ""
					if !allowed.Load() && slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "{"+forbidden+"}") }) {
						refusal = "NOPERM this user has no permissions to access one of the channels used as arguments"
					}
					n.FailCommand("subscribe", refusal)
				})
			}
			keys := []string{"a", "b", "c", "d", "e"}
			if when == "first" {
				keys = append([]string{forbidden}, keys...)
			} else {
				keys = append(keys, forbidden)
			}
			var all []*waiting
			for _, key := range keys {
				for i := range 3 {
					s.Node(i).Set(key, otherValue, time.Hour)
				}
				all = append(all, s.waiterOf(l, key, time.Hour))
				if when != "all at once" {
					time.Sleep(200 * time.Millisecond)
				}
			}
			time.Sleep(3 * time.Second)
			s.channels("beside a forbidden one", l, len(keys)-1)
			before := d.live.Load()
			s.Node(1).ResetSubscribers() // all are asked for in one command
			time.Sleep(3 * time.Second)
			s.channels("on a new connection", l, len(keys)-1)
			time.Sleep(time.Minute)
			s.channels("after a minute", l, len(keys)-1)
			if got := d.live.Load() - before; got != 1 {
				s.Errorf("dials after the first: got %d, want one for the connection that broke", got)
			}
			allowed.Store(true)
			time.Sleep(30*time.Second + deafAfter)
			s.channels("allowed", l, len(keys))
			for _, w := range all {
				w.gives(context.Canceled)
			}
		})
	}
}

const noPublish = "NOPERM this user has no permissions to access one of the channels used as arguments"

// A user who may subscribe and not publish, the one who releases included, polls as one who may not subscribe.
func TestWhoMayNotPublishPolls(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		s.FailCommand("publish", noPublish, s.All()...)
		l := s.Locker(redlock.Options{})
		k := s.Take(l, heldLong)
		m := s.Locker(redlock.Options{})
		w := s.settled(m, heldLong)
		time.Sleep(10 * time.Second) // a waiter that hears asks less and less often
		w.follows(k, "without the permission to publish", 300*time.Millisecond)
		for i := range 3 {
			harness.Check(s, "channels that are heard", seam.Peek(m).Nodes[i].Subscribed, 1)
		}
		s.FailCommand("publish", "", s.All()...)
		next := s.settled(l, heldLong)
		time.Sleep(31*time.Second + deafAfter)
		next.follows(w.lock, "with it", promptly)
		s.Is("Release", next.lock.Release(s.Ctx), nil)
		s.Clean(l, m)
	})
}

// A release that could not be announced is reported.
func TestANodeThatRefusesToAnnounceIsReported(t *testing.T) {
	for _, joint := range []int{1, 2} {
		onStage(t, 3, func(s *stage) {
			var seen harness.Observer
			l := s.Locker(redlock.Options{Trace: seen.Trace()})
			seam.JoinFrom(l, joint)
			m := s.Locker(redlock.Options{})
			mutes := func() (n int) {
				for _, h := range l.Nodes() {
					if h.Mute != nil {
						n++
						s.Says(h.Mute, "PUBLISH")
					}
				}
				return n
			}
			pass := func() {
				k := s.Take(l, heldLong)
				w := s.settled(m, heldLong)
				s.Is("Release", k.Release(s.Ctx), nil)
				<-w.ended
				s.Is("Release", w.lock.Release(s.Ctx), nil)
				time.Sleep(oneTrip)
			}
			pass()
			harness.Check(s, "mute nodes before", mutes(), 0)
			k := s.Take(l, heldLong)
			w := s.settled(m, heldLong)
			s.FailCommand("publish", noPublish, 0, 1)
			s.Is("Release", k.Release(s.Ctx), nil)
			<-w.ended
			s.Is("Release", w.lock.Release(s.Ctx), nil)
			harness.Check(s, "mute nodes", mutes(), 2)
			harness.Check(s, "events", len(seen.Events(redlock.EventNodeMute)), 2)
			s.FailCommand("publish", "", 0, 1)
			time.Sleep(time.Minute + deafAfter)
			pass()
			harness.Check(s, "mute nodes afterwards", mutes(), 0)
			s.Clean(l, m)
		})
	}
}

// PUBLISH is refused for the channels of one key and not for those of another, which are released in turn.
func TestANodeThatIsMuteForOneKeyIsReportedOnce(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		var seen harness.Observer
		l, m := s.Locker(redlock.Options{Trace: seen.Trace()}), s.Locker(redlock.Options{})
		muted := 0
		for i := range 20 {
			key := fmt.Sprint("key-", i%2)
			k := harness.Try(s, l, key, time.Minute)
			got := harness.Background(func() error {
				w, err := m.Acquire(s.Ctx, key, time.Minute)
				if err != nil {
					return err
				}
				return w.Release(s.Ctx)
			})
			time.Sleep(time.Second) // m waits
			if i%2 == 1 {
				s.FailCommand("publish", noPublish, 0)
			}
			s.Is("Release", k.Release(s.Ctx), nil)
			time.Sleep(oneTrip)
			s.FailCommand("publish", "", 0)
			s.Is("Acquire and Release", <-got, nil)
			if l.Nodes()[0].Mute != nil {
				muted++
			}
		}
		harness.Check(s, "events", len(seen.Events(redlock.EventNodeMute)), 1)
		harness.Check(s, "releases after which the node was mute", muted, 19)
	})
}
