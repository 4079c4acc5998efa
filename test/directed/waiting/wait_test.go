package waiting_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/harness"
	"github.com/seed-ce352c9b/redlock/internal/seam"
	"github.com/seed-ce352c9b/redlock/redlocktest"
)

const jobChannel = "{jobs/42}:release"

const (
	pollPause  = 5 * time.Second        // between looks at a held lock whose release would be heard
	retryPause = 250 * time.Millisecond // and where it would not: what Options.Retry comes to
	deafAfter  = 7 * time.Second        // a half-open subscription is noticed
	lingers    = 10 * time.Second       // a subscription outlives its last waiter
)

// A waiting is an Acquire under way.
type waiting struct {
	*stage
	lock  *redlock.Lock
	err   error
	at    time.Time // when it returned
	ended chan struct{}
	stop  context.CancelFunc
}

// waiter begins an Acquire of the stage's lock.
func (s *stage) waiter(l *redlock.Locker, ttl time.Duration, opts ...redlock.AcquireOption) *waiting {
	return s.waiterOf(l, job, ttl, opts...)
}

func (s *stage) waiterOf(l *redlock.Locker, key string, ttl time.Duration, opts ...redlock.AcquireOption) *waiting {
	ctx, stop := context.WithCancel(s.Ctx)
	w := &waiting{stage: s, ended: make(chan struct{}), stop: stop}
	go func() {
		w.lock, w.err = l.Acquire(ctx, key, ttl, opts...)
		w.at = time.Now()
		close(w.ended)
	}()
	return w
}

// settled is a waiter that has found the lock held and hears of its release.
func (s *stage) settled(l *redlock.Locker, ttl time.Duration, opts ...redlock.AcquireOption) *waiting {
	s.Helper()
	w := s.waiter(l, ttl, opts...)
	time.Sleep(200 * time.Millisecond)
	w.waits("after 200 ms")
	s.Record()
	return w
}

func (w *waiting) over() bool {
	select {
	case <-w.ended:
		return true
	default:
		return false
	}
}

func (w *waiting) waits(when string) {
	w.Helper()
	if w.over() {
		w.Fatalf("%s the waiter has returned with %v, want it to wait", when, w.err)
	}
}

// gets checks that the waiter acquires within the limit from a moment on, and
// returns how long it took from then.
func (w *waiting) gets(what string, from time.Time, limit time.Duration) time.Duration {
	w.Helper()
	select {
	case <-w.ended:
	case <-time.After(time.Until(from.Add(limit + time.Minute))):
		w.Fatalf("%s: the waiter has not acquired a minute after the bound of %v", what, limit)
	}
	if w.err != nil {
		w.Fatalf("%s: the waiter got %v, want the lock", what, w.err)
	}
	d := w.at.Sub(from)
	if d > limit || d < 0 {
		w.Errorf("%s: acquired after %v, want at most %v", what, d, limit)
	}
	return d
}

// gives ends the wait by its context and checks what it returns.
func (w *waiting) gives(wants ...error) {
	w.Helper()
	w.stop()
	began := time.Now()
	<-w.ended
	if w.lock != nil {
		w.Fatalf("a cancelled waiter got the lock %s", w.lock.Value())
	}
	if d := w.at.Sub(began); d > 0 {
		w.Errorf("a cancelled waiter returned after %v, want at once", d)
	}
	for _, want := range wants {
		harness.CheckIs(w, "a cancelled waiter", w.err, want)
	}
}

// announce has nodes tell all who listen of the release of a value, as the first of
// those who are told, with nothing behind it.
func (s *stage) announce(value string, nodes ...int) {
	for _, i := range nodes {
		for _, channel := range s.Do(i, "PUBSUB", "CHANNELS", jobChannel+":*").([]any) {
			s.Do(i, "PUBLISH", channel.(string), "1 "+value)
		}
	}
}

// tries is how many acquires of the lock a node was sent since it was last recorded.
func (s *stage) tries(i int) (n int) {
	return len(s.Told(i, "acquire")) + len(s.Told(i, "turn"))
}

// sentBy is how many commands a set of clients has sent to a node.
func (s *stage) sentBy(set, i int) (n int, words []string) {
	for _, c := range s.Node(i).Log() {
		if c.Client == set {
			n++
			words = append(words, harness.Verb(c.Args))
		}
	}
	return n, words
}

func TestAReleaseWakesTheWaiterWithinARoundTrip(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4, 5} {
		runStage(t, "", n, func(s *stage) {
			k := s.Take(s.Locker(redlock.Options{}), heldLong)
			w := s.settled(s.Locker(redlock.Options{}), time.Second)
			time.Sleep(2 * time.Second)
			w.waits("while it is held")
			released := time.Now()
			s.Is("Release", k.Release(s.Ctx), nil)
			// The release's way there, the announcement's way back, a round trip.
			w.gets("a release", released, 2*oneTrip)
			s.Is("Release", w.lock.Release(s.Ctx), nil)
		})
	}
}

// Attack 88.
func TestAMajorityHasToAnnounceOneValue(t *testing.T) {
	onStage(t, 5, func(s *stage) {
		s.Take(s.Locker(redlock.Options{}), heldLong)
		s.settled(s.Locker(redlock.Options{}), time.Second)
		tries := func(what string, want int) {
			s.Helper()
			time.Sleep(5 * time.Millisecond) // less than any pause, more than any round
			for i := range 5 {
				if got := s.tries(i); got != want {
					s.Errorf("%s: node %d was asked %d times, want %d", what, i, got, want)
				}
			}
		}
		s.announce("a", 0, 1)
		tries("announced by a minority", 0)
		s.announce("a", 0, 1, 0, 1)
		tries("again by the same minority", 0)
		s.announce("b", 2, 3)
		tries("another value by another minority", 0)
		s.announce("c", 4)
		tries("and a third by the fifth", 0)
		s.announce("b", 4)
		tries("a majority for one value, whoever's it is", 1)
		s.announce("b", 0, 1)
		tries("the rest of the nodes", 1)
		s.announce("a", 2)
		tries("a majority for the other", 2)
	})
}

func TestAWakeUpIsNoGrant(t *testing.T) {
	onStage(t, 5, func(s *stage) {
		k := s.Take(s.Locker(redlock.Options{}), heldLong)
		w := s.settled(s.Locker(redlock.Options{}), time.Second)
		s.announce(k.Value().Secret(), s.All()...)
		s.announce(k.Value().Secret(), s.All()...)
		time.Sleep(5 * time.Millisecond)
		w.waits("after a forged announcement")
		for i := range 5 {
			if got := s.tries(i); got != 1 {
				s.Errorf("node %d was asked %d times, want once", i, got)
			}
		}
		if !k.Valid() || k.Extend(s.Ctx) != nil {
			s.Error("the holder has lost its lock by a forged announcement")
		}
		s.Carry("held", k.Value(), s.All()...)
	})
}

// A release between the try that found the lock held and the moment at which
// announcements are heard is announced to nobody.
func TestAReleaseBeforeTheSubscriptionIsFoundByALookAfterIt(t *testing.T) {
	fairly(t, 3, func(s *stage, fair bool) {
		s.Foreign(heldLong, s.All()...)
		l := s.Locker(redlock.Options{Fair: fair})
		freed := make(chan time.Time, 10)
		s.Node(1).OnCommand(func(args []string) {
			if harness.Verb(args) == "subscribe" {
				time.Sleep(700 * time.Millisecond) // pauses have become long
				s.EvictKey(job, 0, 1)
				freed <- time.Now()
			}
		})
		s.Node(2).FailCommand("subscribe", "NOPERM no channel")
		w := s.waiter(l, time.Second)
		// The confirmation's way back, a look, a try.
		time.Sleep(time.Second)
		w.gets("freed before it was heard", <-freed, 3*oneTrip)
	})
}

// The same where a try or a look is under way when hearing begins, which was
// executed before the release: it has seen the lock held, and nothing will be heard.
func TestHearingThatBeginsDuringAQuestionHasTheNodesAskedAgain(t *testing.T) {
	for _, during := range []string{"pttl", "turn"} {
		onStage(t, 3, func(s *stage) {
			s.Foreign(heldLong, s.All()...)
			nodes, subscribers := s.apart()
			s.Cluster.Cut(subscribers...) // nothing is heard yet
			l := s.LockerWith(redlock.Options{Fair: during == "turn"}, nil, nodes)
			var once sync.Once
			cut := make(chan struct{})
			for i := range 3 {
				s.On(i, during, func(n int, args []string) {
					if n == 2 {
						go func() {
							time.Sleep(10 * time.Microsecond) // it is executed, its answer is on its way
							s.Cluster.Cut(nodes[i].(ways).Client.(*redis.Client))
							once.Do(func() { close(cut) })
						}()
					}
				})
			}
			w := s.waiter(l, 5*time.Second)
			<-cut
			time.Sleep(5 * time.Millisecond)
			s.EvictKey(job, 0, 1, 2)
			s.Cluster.Mend(subscribers...)
			time.Sleep(20 * time.Millisecond)
			for i := range 3 {
				if seam.Peek(l).Nodes[i].Subscribed != 1 {
					s.Fatalf("node %d is not heard", i)
				}
			}
			w.waits("while the answers are held up")
			mended := time.Now()
			for _, n := range nodes {
				s.Cluster.Mend(n.(ways).Client.(*redis.Client))
			}
			w.gets("freed during a "+during, mended, 30*time.Millisecond)
		})
	}
}

// ways is a node that is asked by one client and heard by another, so that a test can
// treat the two differently.
type ways struct {
	harness.Client
	ear *redis.Client
}

func (w ways) Subscribe(ctx context.Context, channels ...string) *redis.PubSub {
	return w.ear.Subscribe(ctx, channels...)
}

// apart is nodes with subscribers of their own.
func (s *stage) apart() (nodes []redlock.Node, subscribers []*redis.Client) {
	ask := s.Cluster.Clients()
	subscribers = s.Cluster.Clients()
	for i := range ask {
		nodes = append(nodes, ways{ask[i], subscribers[i]})
	}
	return nodes, subscribers
}

// mute is a node that has no announcements.
type mute struct{ redlock.Node }

// Attack 88.
func TestNothingDependsOnAnnouncements(t *testing.T) {
	const rounds, noperm = 3 * oneTrip, "NOPERM this user has no permissions to access one of the channels used as arguments"
	type mishap func(s *stage) (nodes []redlock.Node, then func()) // then: once the waiter waits
	muted := func(which ...int) mishap {
		return func(s *stage) ([]redlock.Node, func()) {
			nodes := s.Cluster.Nodes()
			for _, i := range which {
				nodes[i] = mute{nodes[i]}
			}
			return nodes, func() {}
		}
	}
	cut := func(which ...int) mishap {
		return func(s *stage) ([]redlock.Node, func()) {
			nodes, subscribers := s.apart()
			return nodes, func() {
				for _, i := range which {
					s.Cluster.Cut(subscribers[i])
				}
			}
		}
	}
	for _, m := range []struct {
		name        string
		mishap      mishap
		wait, bound time.Duration // before the release, and after it
	}{
		{"refused", func(s *stage) ([]redlock.Node, func()) {
			s.FailCommand("subscribe", noperm, 0, 1, 2)
			return s.Cluster.Nodes(), func() {}
		}, 3 * time.Second, retryPause + rounds},
		{"no node has announcements", muted(0, 1, 2), 3 * time.Second, retryPause + rounds},
		{"a majority has none", muted(1, 2), 3 * time.Second, retryPause + rounds},
		{"a minority has none", muted(2), 3 * time.Second, rounds},
		{"Rings", func(s *stage) (nodes []redlock.Node, then func()) {
			for i := range 3 {
				ring := redis.NewRing(&redis.RingOptions{
					Addrs:     map[string]string{"one": s.Node(i).Addr()},
					NewClient: func(*redis.Options) *redis.Client { return s.Cluster.Clients()[i] },
				})
				s.Cleanup(func() { ring.Close() })
				nodes = append(nodes, ring)
			}
			return nodes, func() {}
		}, 3 * time.Second, retryPause + rounds},
		{"cut before", func(s *stage) ([]redlock.Node, func()) {
			nodes, then := cut(0, 1, 2)(s)
			then()
			return nodes, then
		}, 3 * time.Second, retryPause + rounds},
		{"cut while it waits, not noticed yet", cut(0, 2), time.Second, pollPause + rounds},
		{"cut while it waits, and noticed", cut(0, 2), deafAfter + 2*time.Second, retryPause + rounds},
		{"a minority cut", cut(1), time.Second, rounds},
		{"the holder may not publish", func(s *stage) ([]redlock.Node, func()) {
			return s.Cluster.Nodes(), func() { s.FailCommand("publish", noperm, 0, 1, 2) }
		}, 3 * time.Second, pollPause + rounds},
	} {
		t.Run(m.name, func(t *testing.T) {
			fairly(t, 3, func(s *stage, fair bool) {
				k := s.Take(s.Locker(redlock.Options{}), heldLong)
				nodes, then := m.mishap(s)
				w := s.settled(s.LockerWith(redlock.Options{Fair: fair}, nil, nodes), time.Second)
				then()
				time.Sleep(m.wait)
				w.waits("while it is held")
				released := time.Now()
				s.Is("Release", k.Release(s.Ctx), nil)
				w.gets(m.name, released, m.bound)
			})
		})
	}
}

// A subscription that was lost and made anew has missed what was announced between.
//
// Attack 88.
func TestALostSubscriptionIsFollowedByALook(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		s.Foreign(heldLong, s.All()...)
		nodes, subscribers := s.apart()
		l := s.LockerWith(redlock.Options{}, nil, nodes)
		w := s.settled(l, time.Second)
		// The connections of two subscribers break, and new ones are slow to hear. Looks come
		// every 125 to 250 ms meanwhile, and one is just over when the lock becomes free.
		s.Cluster.Cut(subscribers[0], subscribers[1])
		if _, ok := harness.Within(deafAfter+time.Second, func() bool { return seam.Peek(l).Nodes[0].Subscribed+seam.Peek(l).Nodes[1].Subscribed == 0 }); !ok {
			s.Fatal("two cut subscriptions are not noticed")
		}
		time.Sleep(3 * time.Second)
		looks := len(s.Told(2, "pttl", "wait"))
		if _, ok := harness.Within(time.Second, func() bool { return len(s.Told(2, "pttl", "wait")) > looks }); !ok {
			s.Fatal("who does not hear does not look")
		}
		time.Sleep(2 * time.Millisecond)
		freed := time.Now()
		s.EvictKey(job, 0, 1, 2)
		s.Cluster.Mend(subscribers...) // what was held arrives, and is heard
		w.gets("freed while deaf", freed, 5*time.Millisecond)
	})
}

func TestTTLsThatDifferAreOverWhenTheyAreOnAMajority(t *testing.T) {
	fairly(t, 5, func(s *stage, fair bool) {
		began := time.Now()
		for i, ttl := range []time.Duration{4 * time.Second, heldLong, time.Second, 3 * time.Second, heldLong} {
			s.Foreign(ttl, i)
		}
		w := s.waiter(s.Cold(redlock.Options{Fair: fair}, nil, s.Cluster.Nodes()), time.Second)
		w.gets("the third of five", began.Add(4*time.Second), 2*time.Millisecond+4*oneTrip)
	})
}

// Attack 18.
func TestAHolderThatExtendsIsWaitedFor(t *testing.T) {
	fairly(t, 3, func(s *stage, fair bool) {
		clients := s.Cluster.Clients()
		holder := s.LockerWith(redlock.Options{}, nil, harness.Nodes(clients))
		k := s.Take(holder, time.Second)
		_, stop := k.KeepAlive(s.Ctx)
		defer stop()
		w := s.settled(s.Locker(redlock.Options{Fair: fair}), time.Second)
		time.Sleep(20 * time.Second)
		w.waits("while it is extended")
		s.Cluster.Cut(clients...)
		over := time.Now().Add(max(s.Node(0).TTL(job), s.Node(1).TTL(job), s.Node(2).TTL(job)))
		time.Sleep(time.Until(k.Until()))
		w.waits("until Until")
		w.gets("the end of the extended ttl", over.Add(-oneTrip), 2*time.Millisecond+4*oneTrip)
	})
}

// Nobody announces that a foreign key is gone. A look finds it, and in turn the next refresh of our place.
//
// Attack 50.
func TestAForeignHolderIsFoundGoneWithinThePause(t *testing.T) {
	every := func(d time.Duration) func(int) time.Duration { return func(int) time.Duration { return d } }
	for _, c := range []struct {
		opt   redlock.Options
		ttl   time.Duration // 0: none
		bound time.Duration
	}{
		{redlock.Options{}, 0, retryPause},
		{redlock.Options{Fair: true}, 0, time.Second},
		{redlock.Options{}, heldLong, retryPause},
		{redlock.Options{Retry: every(30 * time.Millisecond)}, heldLong, 30 * time.Millisecond},
		{redlock.Options{Retry: every(2 * time.Second)}, heldLong, 2 * time.Second},
	} {
		onStage(t, 3, func(s *stage) {
			for i := range 3 {
				s.Node(i).Set(job, "82e7cf91a7ef4fb7", c.ttl) // as other libraries' values look
			}
			w := s.settled(s.Locker(c.opt), time.Second)
			time.Sleep(15*time.Second + c.bound/3) // longer than an entry of a queue counts
			w.waits("while it is there")
			gone := time.Now()
			s.EvictKey(job, 0, 2)
			w.gets("gone", gone, c.bound+3*oneTrip)
		})
	}
}

// A waiter costs a node a look every 4 to 5 s, with turns every 0.7 to 0.8 s, and a PING
// every 6: some 24 commands a minute, or 90.
func TestWhatAWaiterCosts(t *testing.T) {
	for _, c := range []struct {
		nodes int
		fair  bool
		wait  time.Duration
		most  int
	}{
		{3, false, 10 * time.Second, 10}, {3, false, time.Minute, 30}, {3, false, 10 * time.Minute, 250},
		{3, true, 10 * time.Second, 25}, {3, true, time.Minute, 120}, {3, true, 10 * time.Minute, 950},
		{2, false, time.Minute, 30}, {4, false, time.Minute, 30}, {4, true, time.Minute, 120}, // where half of the nodes can refuse
	} {
		if c.wait > time.Minute && harness.Rounds(0, 1) == 0 {
			continue
		}
		onStage(t, c.nodes, func(s *stage) {
			k := s.Take(s.Locker(redlock.Options{}), c.wait+heldLong)
			l := s.Locker(redlock.Options{Fair: c.fair})
			w := s.waiter(l, heldLong)
			time.Sleep(c.wait)
			w.waits("while it is held")
			defer k.Release(s.Ctx)
			for i := range c.nodes {
				n, words := s.sentBy(2, i)
				if n > c.most || n == 0 {
					s.Errorf("%d nodes, fair %v: %v of waiting cost node %d %d commands, want at most %d: %v", c.nodes, c.fair, c.wait, i, n, c.most, words)
				}
				if i == 0 {
					s.Logf("fair %v: %v of waiting cost %d commands: %v", c.fair, c.wait, n, words)
				}
			}
		})
	}
}

// Nor does it where a node that lost the lock answers before those that have it: a majority shows the holder all the same.
func TestAWaiterLearnsTheHolderThoughANearNodeDoesNotHaveIt(t *testing.T) {
	for _, n := range []int{3, 4, 5, 6} {
		runStage(t, fmt.Sprint(n, " nodes"), n, func(s *stage) {
			k := s.Take(s.Locker(redlock.Options{}), heldLong)
			time.Sleep(oneTrip)
			s.EvictKey(job, 0)
			s.Slow(20*time.Millisecond, s.All()[1:]...)
			l := s.Locker(redlock.Options{})
			w := s.waiter(l, heldLong, redlock.WithWait(time.Minute))
			<-w.ended
			s.Is("a waiter", w.err, redlock.ErrHeld)
			harness.Check(s, "the holder", s.RoundOf(w.err).Value(), k.Value())
			for i := range n {
				if sent, words := s.sentBy(2, i); sent > 36 {
					s.Errorf("a minute of waiting cost node %d %d commands, want at most 36: %v", i, sent, words)
				}
			}
		})
	}
}

// Nor does it where the holder is of the same Locker, or leaves its lock to others.
func TestWhoWaitsBehindALockOfItsOwnLockerCostsNoMore(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		first := s.waiter(l, heldLong)
		time.Sleep(10 * time.Microsecond)
		w := s.waiter(l, time.Second) // it has not asked when it comes to lead
		<-first.ended
		if first.err != nil {
			s.Fatal(first.err)
		}
		time.Sleep(10 * time.Second)
		w.waits("while it is held")
		for i := range 3 {
			if n, words := s.sentBy(1, i); n > 15 { // the holder's, too
				s.Errorf("node %d was sent %d commands, want at most 15: %v", i, n, words)
			}
		}
		// Another takes the lock over and releases it: only an announcement tells.
		k, err := s.Locker(redlock.Options{}).Adopt(s.Ctx, job, first.lock.Value(), heldLong)
		s.Is("Adopt", err, nil)
		time.Sleep(time.Second)
		released := time.Now()
		s.Is("Release", k.Release(s.Ctx), nil)
		w.gets("released elsewhere", released, 4*oneTrip)
	})
}

// Somebody's remains on a minority, and nodes that are down: nobody can have the lock,
// and no pause may be left out for that.
func TestRemainsOnAMinorityAreNoTieForEver(t *testing.T) {
	for _, fair := range []bool{false, true} {
		for _, n := range []int{2, 3, 4, 5} {
			onStage(t, n, func(s *stage) {
				l := s.Locker(redlock.Options{Fair: fair})
				down := n - n/2 - 1 // a minority
				for i := range down {
					s.Node(i).Stop()
				}
				s.Foreign(heldLong, down) // with it, no majority is left
				w := s.waiter(l, time.Second)
				time.Sleep(10 * time.Second)
				w.waits("without a majority")
				if got := s.tries(n - 1); got > 120 { // pauses of 125 to 250 ms
					s.Errorf("fair %v, %d nodes: %d tries in 10 s, want at most 120", fair, n, got)
				}
				freed := time.Now()
				s.Node(down).Evict(job)
				bound := retryPause
				if fair && n == 2 { // both have answered, and one says that it is held
					bound = time.Second
				}
				w.gets(fmt.Sprintf("fair %v, %d nodes: the remains gone", fair, n), freed, bound+4*oneTrip)
			})
		}
	}
}

func TestTheLineIsServedFirstComeFirstServed(t *testing.T) {
	fairly(t, 3, func(s *stage, fair bool) {
		k := s.Take(s.Locker(redlock.Options{}), heldLong)
		l := s.Locker(redlock.Options{Fair: fair})
		const n = 100
		ws := make([]*waiting, n)
		for i := range ws {
			ws[i] = s.waiter(l, heldLong)
			time.Sleep(time.Microsecond)
		}
		time.Sleep(10 * time.Second)
		sent, words := s.sentBy(2, 0)
		if most := map[bool]int{false: 10, true: 25}[fair]; sent > most {
			s.Errorf("a hundred waiters cost a node %d commands in 10 s, want at most %d: %v", sent, most, words)
		}
		released := time.Now()
		k.Release(s.Ctx)
		for i, w := range ws {
			w.gets("in line", released, 10*oneTrip)
			for _, later := range ws[i+1:] {
				later.waits("before the one that came earlier has released,")
			}
			released = time.Now()
			s.Is("Release", w.lock.Release(s.Ctx), nil)
		}
		s.Clean(l)
	})
}

// untraced: as long as the longest of lingering, places and second looks later, a wait
// has left nothing behind.
func (s *stage) untraced(lockers ...*redlock.Locker) {
	s.Helper()
	s.Clean(lockers...)
	time.Sleep(2*lingers + time.Second)
	for j, l := range lockers {
		if got := seam.Peek(l).Queues; got != 0 {
			s.Errorf("locker %d keeps %d lines, want none", j, got)
		}
	}
	for i := range s.Cluster.Len() {
		for _, key := range s.Node(i).Keys() {
			if key != jobRegister {
				s.Errorf("node %d still has %s", i, key)
			}
		}
		if subs := s.Do(i, "PUBSUB", "CHANNELS").([]any); len(subs) > 0 {
			s.Errorf("node %d still has subscribers of %v", i, subs)
		}
	}
}

func TestWaitersThatAreCancelledLeaveNoTrace(t *testing.T) {
	fairly(t, 3, func(s *stage, fair bool) {
		k := s.Take(s.Locker(redlock.Options{}), heldLong)
		l := s.Locker(redlock.Options{Fair: fair})
		const n = 20
		var ws []*waiting
		for range n {
			ws = append(ws, s.waiter(l, heldLong))
			time.Sleep(time.Microsecond)
		}
		time.Sleep(100 * time.Millisecond)
		// The first has asked: it tells who is in the way. Those behind it have not.
		ws[0].gives(context.Canceled, redlock.ErrHeld)
		s.Says(ws[0].err, "held by", "votes needed", "node-a:6379", "node-c:6379")
		time.Sleep(100 * time.Millisecond)
		ws[1].gives(context.Canceled) // leads since, and knows when to look
		ws[7].gives(context.Canceled)
		for _, w := range ws[8:] { // all at once
			w.stop()
		}
		time.Sleep(time.Millisecond)
		// Exactly while being woken: the release is announced, and the wake goes on.
		for i := range 3 {
			s.On(i, "release", func(int, []string) { ws[2].stop() })
		}
		released := time.Now()
		s.Is("Release", k.Release(s.Ctx), nil)
		<-ws[2].ended
		if ws[2].lock != nil {
			ws[2].lock.Release(s.Ctx)
		}
		ws[3].gets("behind a cancelled one", released, 10*oneTrip)
		s.Is("Release", ws[3].lock.Release(s.Ctx), nil)
		for _, w := range ws[4:7] {
			<-w.ended
			s.Is("Release", w.lock.Release(s.Ctx), w.err)
		}
		s.untraced(l)
	})
}

// The leader is cancelled at every instant of its try after a release: the next in its
// line, or else in another's, has the lock without delay.
//
// Attack 89.
func TestAWakeThatIsNotUsedGoesToTheNext(t *testing.T) {
	for _, elsewhere := range []bool{false, true} {
		for _, fair := range []bool{false, true} {
			for after := time.Duration(0); after <= 2*oneTrip; after += oneTrip / time.Duration(harness.Rounds(2, 6)) {
				onStage(t, 3, func(s *stage) {
					k := s.Take(s.Locker(redlock.Options{}), heldLong)
					a, b := s.Locker(redlock.Options{Fair: fair}), s.Locker(redlock.Options{Fair: fair})
					first := s.settled(a, heldLong)
					next := a
					if elsewhere {
						next = b
					}
					second := s.settled(next, heldLong)
					released := time.Now()
					go k.Release(s.Ctx)
					time.Sleep(after)
					first.stop()
					<-first.ended
					if first.lock != nil {
						released = time.Now()
						first.lock.Release(s.Ctx)
					}
					bound := 20 * time.Millisecond
					second.gets("behind one that was cancelled after "+after.String(), released, bound)
					s.Is("Release", second.lock.Release(s.Ctx), nil)
					if after == oneTrip {
						s.untraced(a, b)
					}
				})
			}
		}
	}
}

// Attack 97.
func TestCloseEndsAllWaits(t *testing.T) {
	fairly(t, 3, func(s *stage, fair bool) {
		s.Take(s.Locker(redlock.Options{}), heldLong)
		l := s.Locker(redlock.Options{Fair: fair})
		var ws []*waiting
		for range 30 {
			ws = append(ws, s.waiter(l, heldLong))
		}
		time.Sleep(100 * time.Millisecond)
		closed := time.Now()
		s.Is("Close", l.Close(), nil)
		if d := time.Since(closed); d > 10*time.Millisecond {
			s.Errorf("Close with waiters took %v, want no time", d)
		}
		for _, w := range ws {
			<-w.ended
			harness.CheckIs(s.T, "a wait that Close ended", w.err, redlock.ErrClosed)
			harness.CheckIsNot(s.T, "a wait that Close ended", w.err, context.Canceled, redlock.ErrLost, redlock.ErrNoQuorum)
		}
		time.Sleep(10 * time.Millisecond)
		if got := s.Cluster.Connections(); got > 2*3*2 { // the holder's
			s.Errorf("%d connections are left open", got)
		}
		for i := range 3 {
			if subs := s.Do(i, "PUBSUB", "CHANNELS").([]any); len(subs) > 0 {
				s.Errorf("node %d still has subscribers of %v", i, subs)
			}
		}
		time.Sleep(lingers + 5*time.Second)
		for i := range 3 {
			for _, key := range s.Node(i).Keys() {
				if key != job && key != jobRegister {
					s.Errorf("node %d still has %s", i, key)
				}
			}
		}
	})
}

// Where time does not heal what stands in the way, nobody waits for those before him.
func TestErrorsThatTimeDoesNotHealEndAllWaitsAtOnce(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		s.FailCommand("set", "NOPERM this user has no permissions to run the 'set' command", 0, 1)
		began := time.Now()
		var ws []*waiting
		for range 50 {
			ws = append(ws, s.waiter(l, heldLong))
		}
		for _, w := range ws {
			<-w.ended
			s.Is("Acquire", w.err, redlock.ErrNoQuorum)
		}
		if d := time.Since(began); d > 50*2*oneTrip {
			s.Errorf("fifty waiters were refused after %v, want a round each", d)
		}
	})
}

// Attack 74.
func TestManyThatTryAtOneInstant(t *testing.T) {
	for _, fair := range []bool{false, true} {
		for _, m := range []int{2, 8, 30} {
			if harness.Sparing && m > 8 || m > harness.Rounds(8, 30) {
				continue
			}
			onStage(t, 5, func(s *stage) {
				var lockers []*redlock.Locker
				for range m {
					lockers = append(lockers, s.Cold(redlock.Options{Fair: fair}, nil, s.Cluster.Nodes()))
				}
				for round := range 3 {
					var ws []*waiting
					for _, l := range lockers {
						ws = append(ws, s.waiter(l, heldLong))
					}
					won := func() (n int) {
						for _, w := range ws {
							if w.over() && w.err == nil {
								n++
							}
						}
						return n
					}
					d, ok := harness.Within(time.Second, func() bool { return won() > 0 })
					if bound := 50 * time.Millisecond; !ok || d > bound {
						s.Fatalf("fair %v: of %d that try at once one wins after %v, want at most %v", fair, m, d, bound)
					}
					time.Sleep(50 * time.Millisecond)
					if n := won(); n != 1 {
						s.Fatalf("%d of %d won, want 1", n, m)
					}
					if round == 0 {
						s.Logf("fair %v: of %d one won after %v, node a was asked %d times", fair, m, d, s.tries(0))
						if got := s.tries(0); got > 8*m {
							s.Errorf("%d that try at once asked a node %d times, want at most eight each", m, got)
						}
					}
					for _, w := range ws { // nobody is left for the next round
						w.stop()
						<-w.ended
						if w.lock != nil {
							w.lock.Release(s.Ctx)
						}
					}
					time.Sleep(10 * time.Millisecond)
				}
			})
		}
	}
}

// After a tie only the one whose value most nodes have goes on at once.
//
// Attack 74.
func TestOfThoseWhoTiedOneGoesOn(t *testing.T) {
	onStage(t, 5, func(s *stage) {
		a, b := s.Locker(redlock.Options{Name: "a"}), s.Locker(redlock.Options{Name: "b"})
		// b's commands reach two nodes first, a's two others, the fifth has a third's.
		s.Foreign(3*time.Millisecond, 4)
		for i := range 5 {
			slow := "b:"
			if i >= 3 {
				slow = "a:"
			}
			s.On(i, "acquire", func(n int, args []string) {
				if n <= 2 && strings.HasPrefix(harness.ValueOf(args), slow) {
					time.Sleep(100 * time.Microsecond)
				}
			})
		}
		s.Foreign(20*time.Millisecond, 2)
		wa, wb := s.waiter(a, heldLong), s.waiter(b, heldLong)
		time.Sleep(2 * time.Millisecond)
		times := func(name string) (at []time.Time) {
			for _, c := range s.Told(0, "acquire") {
				if strings.HasPrefix(harness.ValueOf(c.Args), name) {
					at = append(at, c.At)
				}
			}
			return at
		}
		ta, tb := times("a:"), times("b:")
		if len(ta) < 2 || len(tb) != 1 {
			s.Errorf("within 2 ms of a tie that a is ahead in, a tried %d times and b %d times, want more than once and once", len(ta), len(tb))
		}
		<-wa.ended
		wb.waits("behind the one that went on")
	})
}

func TestRoundsTellHowLongAWaiterHasWaited(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		k := s.Take(s.Locker(redlock.Options{}), heldLong)
		var rec harness.Observer
		w := s.waiter(s.Locker(redlock.Options{Trace: redlock.Trace{Round: rec.Observe}, Retry: func(int) time.Duration { return time.Second }}), heldLong)
		began := time.Now()
		for range 3 {
			time.Sleep(2 * time.Second)
			s.announce("forged", s.All()...)
			s.announce("forged again"+time.Now().String(), s.All()...)
		}
		time.Sleep(time.Second)
		k.Release(s.Ctx)
		w.gets("released", began.Add(7*time.Second), time.Second+2*oneTrip)
		var last redlock.Round
		for _, r := range rec.Rounds() {
			if r.Key != job || r.Op != redlock.OpAcquire && r.Op != redlock.OpLook {
				continue
			}
			if r.Wait < last.Wait || r.Attempt < last.Attempt {
				s.Errorf("%v: wait %v, attempt %d after %v and %d: want them to grow", r.Op, r.Wait, r.Attempt, last.Wait, last.Attempt)
			}
			last = r
		}
		if last.Wait < 7*time.Second || last.Attempt < 4 {
			s.Errorf("the last round: wait %v, attempt %d; want 7s and more than 3", last.Wait, last.Attempt)
		}
		if rec.Count(redlock.OpLook) == 0 {
			s.Error("no look was observed")
		}
	})
}

// A thousand wait for one key in one process: all are served in order, and each costs
// little beside its goroutine.
func TestAThousandWaiters(t *testing.T) {
	const n = 1000
	// Not beside other tests, whose memory would count.
	redlocktest.Bubble(t, func(t *testing.T) {
		s := &stage{harness.NewStage(t, 1)}
		s.LoadScripts(0)
		for _, fair := range []bool{false, true} {
			k := s.Take(s.Locker(redlock.Options{}), heldLong)
			l := s.Locker(redlock.Options{Fair: fair})
			s.Node(0).Record(false)
			served := make([]int, 0, n)
			var mu sync.Mutex
			var all sync.WaitGroup
			size := func() (heap, stacks int64) {
				runtime.GC()
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				return int64(m.HeapAlloc), int64(m.StackInuse)
			}
			heap, stacks := size()
			for i := range n {
				all.Go(func() {
					k, err := l.Acquire(s.Ctx, job, heldLong)
					if err != nil {
						s.Errorf("waiter %d: got %v, want the lock", i, err)
						return
					}
					mu.Lock()
					served = append(served, i)
					mu.Unlock()
					if err := k.Release(s.Ctx); err != nil {
						s.Errorf("waiter %d: Release: got %v", i, err)
					}
				})
				if i%100 == 0 {
					synctest.Wait()
				}
			}
			time.Sleep(time.Second)
			heap2, stacks2 := size()
			s.Logf("fair %v: a waiter takes %d bytes of heap and %d of stack", fair, (heap2-heap)/n, (stacks2-stacks)/n)
			// Other tests run beside this one, and the test's own closures count.
			if got := (heap2 - heap) / n; got > 2<<10 {
				s.Errorf("a waiter takes %d bytes of heap, want at most 2 KiB", got)
			}
			if got := s.Cluster.Connections(); got > 3*8 {
				s.Errorf("%d connections, want a few", got)
			}
			if got := seam.Peek(l).Queues; got != 1 {
				s.Errorf("%d lines, want 1", got)
			}
			s.Is("Release", k.Release(s.Ctx), nil)
			all.Wait()
			if len(served) != n {
				s.Fatalf("served: got %d, want %d", len(served), n)
			}
			// Within a hundred that came at one instant the order is the scheduler's.
			for i, w := range served {
				if i/100 > w/100+1 || w/100 > i/100+1 {
					s.Fatalf("served as number %d: waiter %d", i, w)
				}
			}
		}
	})
}

// Close, or the end of ctx, between the verdict and the return is the caller's error, too.
func TestAcquireThatEndsBehindItsVerdictSaysSo(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(l *redlock.Locker, cancel func())
		want []error
	}{
		"Close": {func(l *redlock.Locker, _ func()) { go l.Close(); time.Sleep(10 * time.Millisecond) }, []error{redlock.ErrClosed}},
		"ctx":   {func(_ *redlock.Locker, cancel func()) { cancel() }, []error{context.Canceled, redlock.ErrHeld}},
	} {
		runStage(t, name, 3, func(s *stage) {
			s.Foreign(heldLong, s.All()...)
			ctx, cancel := context.WithCancel(s.Ctx)
			var l *redlock.Locker
			l = s.Locker(redlock.Options{NodeTimeout: 50 * time.Millisecond, Trace: redlock.Trace{Round: func(_ context.Context, r redlock.Round) {
				if r.Op == redlock.OpAcquire {
					c.end(l, cancel)
				}
			}}})
			harness.CheckIs(s, "Acquire", harness.Second(l.Acquire(ctx, job, heldLong)), c.want...)
		})
	}
}

// Whatever a callback does, it holds up nobody but its own caller.
func TestNoCallbackRunsUnderALockOfOurs(t *testing.T) {
	for _, fair := range []bool{false, true} {
		for _, heard := range []bool{false, true} {
			onStage(t, 3, func(s *stage) {
				var l *redlock.Locker
				var retries, rounds atomic.Int32
				free := func(what string, count *atomic.Int32) {
					if l == nil {
						return
					}
					if count.Add(1); !seam.Unlocked(l) {
						t.Errorf("fair %v, heard %v: %s is called under a lock", fair, heard, what)
					}
				}
				nodes := s.Cluster.Nodes()
				if !heard {
					for i, n := range nodes {
						nodes[i] = mute{n}
					}
				}
				l = s.LockerWith(redlock.Options{
					Fair:  fair,
					Retry: func(int) time.Duration { free("Retry", &retries); return 100 * time.Millisecond },
					Trace: redlock.Trace{Round: func(_ context.Context, _ redlock.Round) { free("Observe", &rounds) }},
				}, nil, nodes)
				k := s.Take(s.Locker(redlock.Options{}), heldLong)
				first := s.waiter(l, heldLong)
				time.Sleep(10 * time.Microsecond)
				second := s.waiter(l, heldLong)
				time.Sleep(2 * time.Second)
				s.quietly(k)
				first.gets("released", time.Now(), time.Second)
				s.quietly(first.lock)
				second.gets("released again", time.Now(), time.Second)
				if retries.Load() == 0 || rounds.Load() == 0 {
					t.Errorf("Retry was called %d times, Observe %d times, want both to be called", retries.Load(), rounds.Load())
				}
			})
		}
	}
}

// Many callers of one process wait for one key, by Acquire and by Run, and only the first of them asks the nodes. All are told
// what it saw when their ctx ends or their limit has passed, and every wait is traced.
func TestEveryCallerOfALineIsToldWhatTheLeaderSaw(t *testing.T) {
	const callers, patience = 50, time.Second
	for _, limit := range []string{"ctx", "WithWait"} {
		t.Run(limit, func(t *testing.T) {
			fairly(t, 3, func(s *stage, fair bool) {
				var seen harness.Observer
				l := s.Locker(redlock.Options{Fair: fair, Trace: seen.Trace()})
				k := s.Take(s.Locker(redlock.Options{Name: "the-holder"}), heldLong)
				ctx := s.Timeout(patience)
				opts, says := []redlock.AcquireOption(nil), []string{"deadline exceeded after 1s", "held by the-holder (2 of 3 votes needed; "}
				if limit == "WithWait" {
					ctx, opts, says = s.Ctx, []redlock.AcquireOption{redlock.WithWait(patience)}, []string{"held by the-holder, waited 1s, "}
				}
				waitedInVain := func(err error) redlock.Round {
					if limit == "WithWait" {
						s.Is("the wait", err, redlock.ErrHeld)
						harness.CheckIsNot(s, "the wait", err, context.DeadlineExceeded, context.Canceled)
					} else {
						harness.CheckIs(s, "the wait", err, redlock.ErrHeld, context.DeadlineExceeded)
					}
					round := s.RoundOf(err)
					if round.Value() != k.Value() || len(round.Votes) != 3 || round.Op != redlock.OpAcquire || round.Key != job {
						s.Errorf("got the round %+v, want three votes for %s", round, k.Value())
					}
					return round
				}
				errs := make(chan error, callers)
				began := time.Now()
				for i := range callers {
					go func() {
						if i%2 == 0 {
							errs <- harness.Second(l.Acquire(ctx, job, heldLong, opts...))
							return
						}
						errs <- l.Run(ctx, job, heldLong, func(context.Context, *redlock.Lock) error {
							s.Error("fn was called")
							return nil
						}, opts...)
					}()
				}
				leaders := 0
				for range callers {
					err := <-errs
					round := waitedInVain(err)
					s.Says(err, says...)
					if round.Attempt > 0 {
						leaders++
					} else if round.Wait != patience {
						s.Errorf("%v: got the wait %v, want the caller's own: %v", err, round.Wait, patience)
					}
				}
				harness.Check(s, "time until all have returned", time.Since(began), patience)
				if limit == "ctx" { // with limits of their own, the next may ask when the first gives up
					harness.Check(s, "callers that say that they have asked", leaders, 1)
				}
				vain, ahead := seen.Ends("Acquire"), 0
				harness.Check(s, "waits in vain that were traced", len(vain), callers)
				for _, c := range vain {
					ahead += c.Ahead
					waitedInVain(c.Err)
					if c.Took != patience || c.Key != job || c.Lock != nil {
						s.Errorf("traced %+v, want a wait of %v for %s", c, patience, k.Value())
					}
					if limit == "ctx" && (c.Attempts > 0) != (c.Ahead == 0) {
						s.Errorf("traced %d attempts of a caller behind %d others, want them of the first alone", c.Attempts, c.Ahead)
					}
				}
				harness.Check(s, "callers before each, in sum", ahead, callers*(callers-1)/2)
				s.Is("Release", k.Release(s.Ctx), nil)
				s.Clean(l)
			})
		})
	}
}

// Where a caller stands when it gives up.
func TestAnErrorSaysWhatItsCallerWaitedFor(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{Name: "ours"})
		other := s.Take(s.Locker(redlock.Options{Name: "the-holder"}), heldLong)
		first := s.settled(l, heldLong)
		second := s.settled(l, heldLong)
		third := s.settled(l, heldLong)
		fourth := s.settled(l, heldLong)
		third.gives(context.Canceled, redlock.ErrHeld)
		s.Says(third.err, "context canceled after 400ms, behind 2 callers of this process: held by the-holder (")
		// From now on another caller of the same process has it.
		first.gets("released", s.quietly(other), promptly)
		time.Sleep(time.Second)
		fourth.gives(context.Canceled, redlock.ErrHeld)
		s.Says(fourth.err, ", behind 1 caller of this process: held by ours (2 of 3 votes needed; ")
		if s.RoundOf(fourth.err).Value() != first.lock.Value() || harness.AnswersOf(fourth.err) != "no no no" {
			t.Errorf("got %v, want the votes of a lock that is held by %s", fourth.err, first.lock.Value())
		}
		fifth := s.settled(l, heldLong)
		second.gives(context.Canceled, redlock.ErrHeld)
		s.Says(second.err, ", without an attempt: held by ours (")
		// The release takes its time.
		for i := range 3 {
			s.Once(i, "release", func() { time.Sleep(100 * time.Millisecond) })
		}
		sixth := s.settled(l, heldLong)
		released := s.quietly(first.lock)
		time.Sleep(50 * time.Millisecond)
		sixth.gives(context.Canceled, redlock.ErrHeld)
		s.Says(sixth.err, ", behind 1 caller of this process: held by ours, being released (")
		fifth.gets("released slowly", released, 100*time.Millisecond+promptly)
		s.Is("Release", fifth.lock.Release(s.Ctx), nil)
		s.Clean(l)
	})
}

// Nothing is told that is not known: no round was decided yet, or only one of a line that
// is long gone.
func TestNothingIsToldOfALockThatNobodyCouldAskFor(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{NodeTimeout: 10 * time.Second})
		s.Foreign(time.Second, s.All()...)
		s.settled(l, heldLong).gives(redlock.ErrHeld)
		time.Sleep(2 * time.Second)
		s.Hang(0, 1, 2)
		s.waiter(l, heldLong)
		time.Sleep(time.Millisecond)
		second := s.waiter(l, heldLong)
		time.Sleep(time.Second)
		second.gives(context.Canceled)
		harness.CheckIsNot(t, "Acquire behind one that has no answer", second.err, redlock.ErrHeld, redlock.ErrNoQuorum)
		if got, want := second.err.Error(), `redlock: acquire "jobs/42": context canceled`; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// That too few nodes answer is told to all, as well.
func TestEveryCallerOfALineIsToldThatThereIsNoQuorum(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		s.FailNodes(loading, 0, 1)
		s.waiter(l, heldLong)
		time.Sleep(time.Second)
		second := s.waiter(l, heldLong)
		time.Sleep(time.Second)
		second.gives(context.Canceled, redlock.ErrNoQuorum)
		s.Says(second.err, "after 1s, behind 1 caller of this process: no quorum (2 of 3 votes needed; ", "LOADING")
	})
}

// Others were refused because of an attempt that had a majority and then failed. They are told that it was undone.
func TestAnAttemptThatIsTakenBackWakesThoseThatItRefused(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l, other := s.Locker(redlock.Options{}), s.listens()
		s.SetRegister(time.Now().Add(time.Hour).UnixMicro(), 0, 1, 2) // so that the attempt has to raise
		s.Slow(20*time.Millisecond, 0, 1, 2)
		ctx := s.Timeout(38 * time.Millisecond)
		failed := harness.Background(func() error { return harness.Second(l.TryAcquire(ctx, job, heldLong)) })
		time.Sleep(5 * time.Millisecond)
		w := s.waiter(other, heldLong)
		s.Is("TryAcquire", <-failed, context.DeadlineExceeded)
		w.gets("the rollback", time.Now(), 100*time.Millisecond)
		w.lock.Release(s.Ctx)
	})
}

// A caller gives up while the question that queues its entry is on its way, and slow. The question that removes the entry
// comes after that.
func TestALeaveFollowsWhatQueues(t *testing.T) {
	for fair, command := range map[bool]string{false: "wait", true: "turn"} {
		onStage(t, 3, func(s *stage) {
			s.Foreign(heldLong, 0, 1, 2)
			s.Slow(20*time.Millisecond, 0, 1, 2) // so that each command has a connection of its own
			l := s.Locker(redlock.Options{Fair: fair})
			w := s.settled(l, heldLong)
			w.stop()
			<-w.ended
			time.Sleep(time.Second)
			arrived := make(chan struct{}, 3)
			for i := range 3 {
				s.On(i, command, func(int, []string) {
					arrived <- struct{}{}
					time.Sleep(50 * time.Millisecond)
				})
			}
			w = s.waiter(l, heldLong)
			next := s.waiter(l, heldLong) // it asks nothing itself
			<-arrived
			w.stop()
			next.stop()
			<-w.ended
			<-next.ended
			time.Sleep(time.Second)
			for i := range 3 {
				if n, err := s.Node(i).Do("ZCARD", "{"+job+"}:queue"); fmt.Sprint(n) != "0" {
					t.Errorf("fair %v: the queue of node %d has %v members, %v, want none", fair, i, n, err)
				}
			}
			s.Clean(l)
		})
	}
}

// Each attempt of some waiters is stored everywhere and fails at the registers, and its end is announced to the first waiters: to its
// own caller, and to the other. They ask in the pauses of Options.Retry all the same, and not as fast as the nodes reply.
func (s *stage) triesInVain(waiters int) (n int) {
	const during = 5 * time.Second
	k := s.Take(s.Locker(redlock.Options{}), heldLong)
	var ws []*waiting
	for range waiters {
		ws = append(ws, s.settled(s.Locker(redlock.Options{}), heldLong))
	}
	s.FailCommand("zadd", loading, 0, 1, 2)
	s.Is("Release", k.Release(s.Ctx), nil)
	before := s.tries(0)
	time.Sleep(during)
	n = s.tries(0) - before
	for _, w := range ws {
		w.gives(context.Canceled)
	}
	return n
}

func TestAWaiterThatTakesBackItsAttemptDoesNotWakeItself(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		if n := s.triesInVain(1); n > 45 || n < 5 {
			t.Errorf("%d attempts in five seconds, want one after each pause of its own, of 125 ms at least", n)
		}
	})
}

func TestWaitersWhoseAttemptsFailDoNotWakeEachOtherAllTheTime(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		if n := s.triesInVain(2); n > 2*(40+20) || n < 20 {
			t.Errorf("%d attempts in five seconds, want for each one after each pause of its own, and one in each pause because of the other", n)
		}
	})
}

// Two nodes are loading when the waiter tries, and then it sees by looks alone that another Locker holds the lock. The error says
// that, not that there is no quorum.
func TestALookThatFindsTheLockHeldOutdatesATryWithoutAQuorum(t *testing.T) {
	for _, before := range []int{0, 1} { // callers of the same Locker before the one that gives up
		onStage(t, 3, func(s *stage) {
			s.Take(s.Locker(redlock.Options{}), heldLong)
			l := s.Locker(redlock.Options{})
			s.FailCommand("set", loading, 0, 1)
			for range before {
				s.waiter(l, heldLong)
				time.Sleep(10 * time.Microsecond)
			}
			w := s.waiter(l, heldLong)
			time.Sleep(oneTrip)
			s.FailCommand("set", "", 0, 1)
			if _, ok := harness.Within(pollPause, func() bool { return len(s.Told(0, "wait", "pttl")) > 0 }); !ok {
				s.Fatal("it does not look")
			}
			time.Sleep(2 * oneTrip) // it has the answer, and has not tried again
			w.stop()
			<-w.ended
			s.Is("Acquire", w.err, redlock.ErrHeld)
		})
	}
}

// Two clients that reach one node each try at the moment at which a waiter looks, whom a release has told to. Their attempts fail,
// and nothing announces that, since neither had a majority.
func TestALookThatMeetsAttemptsInVainIsFollowedByATry(t *testing.T) {
	for late := time.Duration(0); late < 5*oneTrip; late += oneTrip {
		onStage(t, 3, func(s *stage) {
			k := s.Take(s.Locker(redlock.Options{}), heldLong)
			var cutOff []*redlock.Locker
			for i := range 2 {
				clients := s.Cluster.Clients()
				cutOff = append(cutOff, s.LockerWith(redlock.Options{NodeTimeout: 20 * time.Millisecond}, nil, harness.Nodes(clients)))
				s.Cluster.Cut(clients[1-i], clients[2])
				// From now on it knows that those are down: its attempts certainly have no majority, and are taken back quietly.
				s.Is("TryAcquire", harness.Second(cutOff[i].TryAcquire(s.Ctx, "another", heldLong)), redlock.ErrNoQuorum)
				harness.HeldUp(s.Node(i), "rollback", job, 1, 20*time.Millisecond)
			}
			w := s.settled(s.Locker(redlock.Options{}), heldLong)
			s.ghost("hung", "1") // so that the waiter is told second, and looks
			time.Sleep(time.Second)
			released := time.Now()
			s.Is("Release", k.Release(s.Ctx), nil)
			time.Sleep(late)
			for _, l := range cutOff {
				go l.TryAcquire(s.Ctx, job, heldLong)
			}
			w.passes(fmt.Sprint("attempts ", late, " after the release"), released, retryPause+promptly)
		})
	}
}

// The same where the release is that of the waiter's own Locker.
func TestALookAfterOurOwnReleaseMeetsAttemptsInVain(t *testing.T) {
	for late := time.Millisecond; late < 30*time.Millisecond; late += 4 * time.Millisecond {
		onStage(t, 3, func(s *stage) {
			l := s.Locker(redlock.Options{})
			k := s.waiter(l, heldLong)
			time.Sleep(10 * time.Microsecond)
			w := s.waiter(l, time.Minute) // so that it is released for everybody
			<-k.ended
			var cutOff []*redlock.Locker
			for i := range 2 {
				clients := s.Cluster.Clients()
				cutOff = append(cutOff, s.LockerWith(redlock.Options{NodeTimeout: 20 * time.Millisecond}, nil, harness.Nodes(clients)))
				s.Cluster.Cut(clients[1-i], clients[2])
				s.Is("TryAcquire", harness.Second(cutOff[i].TryAcquire(s.Ctx, "another", heldLong)), redlock.ErrNoQuorum)
				harness.HeldUp(s.Node(i), "rollback", job, 1, 20*time.Millisecond)
			}
			s.ghost("hung", "1") // it is told, and does nothing
			time.Sleep(time.Second)
			w.waits("while it is held")
			released := time.Now()
			s.Is("Release", k.lock.Release(s.Ctx), nil)
			time.Sleep(late)
			for _, c := range cutOff {
				go c.TryAcquire(s.Ctx, job, heldLong)
			}
			w.passes(fmt.Sprint("attempts ", late, " after the release"), released, 50*time.Millisecond+retryPause+promptly)
		})
	}
}

// Of two waiters the first gets the lock, and the second finds it held. The error of the second does not name the holder that has
// released the lock since.
func TestAnErrorNamesNoHolderWhoseReleaseWasAnnounced(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		k := s.Take(s.Locker(redlock.Options{}), heldLong)
		first, second := s.settled(s.Locker(redlock.Options{}), heldLong), s.settled(s.Locker(redlock.Options{}), heldLong)
		first.follows(k, "the first", promptly)
		time.Sleep(time.Second)
		second.gives(redlock.ErrHeld)
		if got, want := s.RoundOf(second.err).Value(), first.lock.Value(); got != want {
			s.Errorf("holder: got %q, want %q; released: %q", got, want, k.Value())
		}
	})
}

// A caller waits behind a lock of its own Locker, which is released for everybody, and another Locker gets it. The looks of the
// caller show that one, and it need not try to know.
func TestAnErrorNamesNoHolderThatItsOwnLockerReleased(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		k := s.waiter(l, heldLong)
		time.Sleep(10 * time.Microsecond)
		w := s.waiter(l, 10*time.Second, redlock.WithWait(8*time.Second)) // for a shorter time, and so it is passed over
		<-k.ended
		other := s.settled(s.Locker(redlock.Options{}), heldLong)
		time.Sleep(time.Second)
		other.follows(k.lock, "the other", promptly)
		<-w.ended
		s.Is("the caller", w.err, redlock.ErrHeld)
		round := s.RoundOf(w.err)
		if got, want := round.Value(), other.lock.Value(); got != want {
			s.Errorf("holder: got %q, want %q; released: %q", got, want, k.lock.Value())
		}
		harness.Check(s, "attempts", round.Attempt, 0)
	})
}
