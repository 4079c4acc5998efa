package waiting_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/harness"
	"github.com/seed-ce352c9b/redlock/internal/seam"
	"github.com/seed-ce352c9b/redlock/redlocktest"
)

// promptly is a bound for what has to happen without any pause: a rollback, an
// announcement, a look of whoever was told as the second, and a try.
const promptly = 20 * time.Millisecond

// quietly releases a lock and does not wait for that.
func (s *stage) quietly(k *redlock.Lock) time.Time {
	go k.Release(s.Ctx)
	return time.Now()
}

// follows releases a lock, and is gets from then on.
func (w *waiting) follows(k *redlock.Lock, what string, limit time.Duration) {
	w.Helper()
	released := time.Now()
	w.Is("Release", k.Release(w.Ctx), nil)
	w.gets(what, released, limit)
}

// passes is gets, and the release of what was acquired.
func (w *waiting) passes(what string, from time.Time, limit time.Duration) (took time.Duration) {
	w.Helper()
	took = w.gets(what, from, limit)
	w.Is("Release", w.lock.Release(w.Ctx), nil)
	return took
}

func TestALockIsHandedToTheNextInLineInOneRound(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4, 5} {
		onStage(t, n, func(s *stage) {
			l := s.Locker(redlock.Options{})
			k := s.Take(l, heldLong)
			other := s.settled(s.Locker(redlock.Options{}), heldLong)
			next := s.settled(l, heldLong)
			released := s.quietly(k)
			next.gets("handed on", released, oneTrip)
			got := next.lock
			if got.Fence() <= k.Fence() || got.Value() == k.Value() || k.Valid() || !got.Valid() {
				s.Errorf("handed on: fence %d after %d, value %s after %s, valid %v after %v; want a greater one, a new one, true after false",
					got.Fence(), k.Fence(), got.Value(), k.Value(), got.Valid(), k.Valid())
			}
			time.Sleep(pollPause / 10) // whoever was told, or saw it free, has asked by now
			other.waits("while the lock is handed on")
			s.Carry("handed on", got.Value(), s.All()...)
			for i := range n {
				cmds := slices.DeleteFunc(s.Told(i), func(c redlocktest.Command) bool { return c.Client != 1 })
				if vs := fmt.Sprint(harness.Verbs(cmds)); vs != "[release acquire zadd leave]" { // the line's place, for it is over
					s.Fatalf("node %d was asked %v, want a release and an attempt right behind", i, vs)
				}
				if args := cmds[0].Args; args[len(args)-1] != "0" {
					s.Errorf("node %d is to tell %q of the release, want nobody", i, args[len(args)-1])
				}
			}
			if other.lock != nil {
				s.Error("two hold the lock")
			}
			// The last of its line tells the others.
			other.passes("behind it", s.quietly(got), promptly)
		})
	}
}

// The next in line does not ask for a lock that the one before it was just handed, also where no announcements are heard.
func TestALockThatIsHandedOnIsAskedForOnce(t *testing.T) {
	for _, heard := range []bool{true, false} {
		onStage(t, 3, func(s *stage) {
			nodes := s.Cluster.Nodes()
			for i := range nodes {
				if !heard {
					nodes[i] = mute{nodes[i]}
				}
			}
			l := s.LockerWith(redlock.Options{}, nil, nodes)
			k := s.Take(l, heldLong)
			var line []*waiting
			for range 5 {
				line = append(line, s.settled(l, heldLong))
			}
			for _, next := range line {
				next.gets("handed on", s.quietly(k), oneTrip)
				k = next.lock
				time.Sleep(promptly)
			}
			for i := range 3 {
				if n := s.tries(i); n != len(line) {
					s.Errorf("heard %v: node %d was asked for the lock %d times, want once for each of %d", heard, i, n, len(line))
				}
			}
			s.Is("Release", k.Release(s.Ctx), nil)
			s.Clean(l)
		})
	}
}

// Whatever way the callers of a Locker come by a lock: nobody waits in the nodes' queues while
// another Locker has it more than sixteen times in a row. A line that is never empty has it that often.
func TestNobodyWaitsWhileAnotherLockerHasMoreThanItsTurns(t *testing.T) {
	for i, c := range []struct {
		name  string
		lines []int // callers of each Locker
		rests time.Duration
		joint int // from how many on releases share a script
	}{
		{"two that come back at once", []int{1, 1}, 0, 2},
		{"two whose plain releases travel in the joint script", []int{1, 1}, 0, 1},
		{"two that come back a little later", []int{1, 1}, 3 * oneTrip, 2},
		{"eight", []int{1, 1, 1, 1, 1, 1, 1, 1}, 0, 2},
		{"two in each line", []int{2, 2, 2, 2}, 0, 2},
		{"two crowds", []int{4, 4}, 0, 2},
		{"a crowd and two others", []int{8, 1, 1}, 0, 2},
		{"a crowd that rests, and one", []int{3, 1}, oneTrip, 2},
	} {
		if harness.Sparing && i > 1 {
			break
		}
		onStage(t, 3, func(s *stage) {
			var mu sync.Mutex
			var ls []*redlock.Locker
			grants, begun := make([]int, len(c.lines)), make([]int, len(c.lines)) // that each had, in all and when all had settled
			last, run, longest, settled := -1, 0, 0, false
			over := time.Now().Add(250 * time.Millisecond)
			var wg sync.WaitGroup
			for i, n := range c.lines {
				l := s.Locker(redlock.Options{})
				seam.JoinFrom(l, c.joint)
				ls = append(ls, l)
				for range n {
					wg.Go(func() {
						for time.Now().Before(over) {
							k, err := l.Acquire(s.Ctx, job, heldLong)
							if err != nil {
								s.Errorf("%s: Acquire: %v", c.name, err)
								return
							}
							mu.Lock()
							if last != i || !settled {
								last, run = i, 0
							}
							run++
							longest = max(longest, run)
							grants[i]++
							mu.Unlock()
							time.Sleep(50 * time.Microsecond)
							s.Is("Release", k.Release(s.Ctx), nil)
							time.Sleep(c.rests)
						}
					})
				}
			}
			time.Sleep(100 * time.Millisecond)
			mu.Lock()
			settled = true
			copy(begun, grants)
			mu.Unlock()
			wg.Wait()
			if longest > 16 || c.name == "two crowds" && longest < 16 {
				s.Errorf("%s: grants %v, the longest run: got %d, want at most 16, and of crowds as many", c.name, grants, longest)
			}
			for i := range grants {
				if grants[i]-begun[i] < 10 {
					s.Errorf("%s: grants %v, and %v when all had settled: Locker %d is left out", c.name, grants, begun, i)
				}
			}
			s.untraced(ls...)
		})
	}
}

// The waiter to whom the lock is handed gives up: before it is marked, between that
// and its claim, at every instant of the round. Whoever is next, here or elsewhere,
// has the lock without a pause, and nothing is left.
//
// Attack 89.
func TestAHandOverThatIsNotClaimedGoesToTheNext(t *testing.T) {
	const now, marked = -2, -1 // before the release, and once all that it starts has been sent
	instants := []time.Duration{now, marked}
	for after := time.Duration(0); after <= 2*oneTrip; after += oneTrip / time.Duration(harness.Rounds(2, 5)) {
		instants = append(instants, after)
	}
	for _, how := range []string{"elsewhere", "same line", "without a place"} {
		for i, after := range instants {
			onStage(t, 3, func(s *stage) {
				l, m := s.Locker(redlock.Options{}), s.Locker(redlock.Options{})
				var k *redlock.Lock
				var first, second *waiting
				if how == "without a place" {
					// It comes to lead behind one that won at once, and has not asked anybody yet.
					lucky := s.waiter(l, heldLong)
					time.Sleep(10 * time.Microsecond)
					first = s.waiter(l, heldLong)
					<-lucky.ended
					k = lucky.lock
					second = s.waiter(m, heldLong)
					time.Sleep(3 * time.Millisecond)
				} else {
					k = s.Take(l, heldLong)
					first = s.settled(l, heldLong)
					if how == "same line" {
						second = s.settled(l, heldLong)
					} else {
						second = s.settled(m, heldLong)
					}
				}
				if after == now {
					first.stop()
				}
				released := s.quietly(k)
				if after == marked {
					synctest.Wait()
				}
				time.Sleep(max(after, 0))
				first.stop()
				<-first.ended
				if first.lock != nil {
					released = s.quietly(first.lock)
				} else if !errors.Is(first.err, context.Canceled) {
					s.Errorf("the first: got %v, want it cancelled", first.err)
				}
				second.gets(fmt.Sprintf("%s, after %v", how, after), released, promptly)
				time.Sleep(oneTrip)
				s.Carry("handed on", second.lock.Value(), s.All()...)
				s.Is("Release", second.lock.Release(s.Ctx), nil)
				if i%4 == 0 {
					s.untraced(l, m)
				}
			})
		}
	}
}

// A glanced is a context that tells a test whenever its Err is called.
type glanced struct {
	context.Context
	glance func()
}

func (c glanced) Err() error {
	c.glance()
	return c.Context.Err()
}

// The lock is handed to a waiter while it gives up, and the next one in its queue gives up, too: at once, or when it looks at
// its context. Neither has an entry in the nodes' queues yet, and still the waiter of another Locker is notified.
func TestAHandOverThatNobodyClaimsGoesToOthers(t *testing.T) {
	for i := range 16 {
		at, refuses := i%2, i >= 8 // of callers that act at one instant, either may be the first
		onStage(t, 3, func(s *stage) {
			l := s.Locker(redlock.Options{})
			lucky := s.waiter(l, heldLong)
			time.Sleep(10 * time.Microsecond)
			var released time.Time
			ctx, cancel := context.WithCancel(s.Ctx)
			second, stop := context.WithCancel(s.Ctx)
			looks := 0 // of the second, from the release on
			first := harness.Background(func() error {
				return harness.Second(l.Acquire(glanced{ctx, func() {
					if ctx.Err() != nil && released.IsZero() {
						released = time.Now()
						s.Is("Release", lucky.lock.Release(s.Ctx), nil)
						if looks = 0; at == 0 {
							stop()
						}
					}
				}}, job, heldLong))
			})
			time.Sleep(10 * time.Microsecond)
			next := harness.Background(func() error {
				return harness.Second(l.Acquire(glanced{second, func() {
					if looks++; looks == at {
						stop()
					}
				}}, job, heldLong))
			})
			<-lucky.ended
			looks = -100
			other := s.waiter(s.Locker(redlock.Options{}), heldLong)
			time.Sleep(3 * time.Millisecond)
			limit := promptly
			if refuses {
				s.FailCommand("set", loading, 0, 1, 2) // what is handed over is stored nowhere
				limit += retryPause
			}
			cancel()
			s.Is("Acquire", <-first, context.Canceled)
			s.Is("Acquire", <-next, context.Canceled)
			s.FailCommand("set", "", 0, 1, 2)
			other.passes(fmt.Sprintf("the second gives up at look %d", at), released, limit)
			s.Clean(l)
		})
	}
}

// The holder releases and the waiter's context ends whenever Acquire looks at that
// context. Whatever was handed to the waiter by then is taken back.
func TestAWaiterThatGivesUpGivesBackWhatItWasHanded(t *testing.T) {
	for _, sent := range []bool{true, false} {
		handed := 0
		for at, reached := 1, true; reached; at++ {
			onStage(t, 3, func(s *stage) {
				l := s.Locker(redlock.Options{})
				k := s.Take(l, heldLong)
				ctx, cancel := context.WithCancel(s.Ctx)
				defer cancel()
				looks := 0
				got, err := l.Acquire(glanced{ctx, func() {
					if looks++; looks != at {
						return
					}
					if sent {
						s.Is("Release", k.Release(s.Ctx), nil)
					} else {
						s.quietly(k)
						runtime.Gosched()
					}
					handed += len(s.Told(0, "release"))
					cancel()
				}}, job, heldLong)
				if reached = looks >= at; !reached {
					t.Errorf("look %d of the waiter at its context: got %v, %v without it", at, got, err)
				}
				if got != nil {
					s.Is("Release", got.Release(s.Ctx), nil)
				} else {
					s.Is("a waiter that gave up", err, context.Canceled)
				}
				s.Clean(l)
				if at == 12 {
					reached = false // more than there are on the way to the wait
				}
			})
		}
		if sent && handed == 0 {
			t.Error("nothing was released while the waiter looked at its context")
		}
	}
}

// The release waits for an extension, and what is handed on waits for the release. If the
// waiter gives up before that, the attempt is never sent: it would take the lock from those
// who wait elsewhere.
func TestWhatIsHandedToAWaiterThatGaveUpIsNotSent(t *testing.T) {
	for at, reached := 1, true; reached && at <= 12; at++ {
		onStage(t, 3, func(s *stage) {
			l := s.Locker(redlock.Options{})
			k := s.Take(l, heldLong)
			other := s.settled(s.Locker(redlock.Options{}), heldLong)
			const busy = 50 * time.Millisecond
			for i := range 3 {
				s.Once(i, "extend", func() { time.Sleep(busy) })
			}
			ctx, cancel := context.WithCancel(s.Ctx)
			defer cancel()
			time.AfterFunc(time.Second, cancel)
			looks := 0
			var extended, released <-chan error
			_, err := l.Acquire(glanced{ctx, func() {
				if looks++; looks != at {
					return
				}
				s.Record()
				extended = harness.Background(func() error { return k.Extend(s.Ctx) })
				time.Sleep(busy / 5)
				released = harness.Background(func() error { return k.Release(s.Ctx) })
				time.Sleep(busy / 5)
				cancel()
			}}, job, heldLong)
			s.Is("a waiter that gave up", err, context.Canceled)
			if reached = looks >= at; !reached {
				return
			}
			<-extended
			freed := time.Now()
			s.Is("Release", <-released, nil)
			other.gets("behind one that gave up", freed, promptly)
			time.Sleep(promptly)
			for i := range 3 {
				for _, c := range s.Told(i, "acquire") {
					if c.Client == 1 {
						s.Errorf("look %d: node %d was asked for a lock that nobody waits for any more: %v", at, i, c.Args)
					}
				}
			}
			s.Is("Release", other.lock.Release(s.Ctx), nil)
			s.Clean(l)
		})
	}
}

// Attack 97.
func TestCloseDuringAHandOver(t *testing.T) {
	for after := time.Duration(-1); after <= oneTrip; after += oneTrip / 6 {
		onStage(t, 3, func(s *stage) {
			l, m := s.Locker(redlock.Options{}), s.Locker(redlock.Options{})
			k := s.Take(l, heldLong)
			next, behind := s.settled(l, heldLong), s.settled(l, heldLong)
			other := s.settled(m, heldLong)
			s.quietly(k)
			time.Sleep(after)
			closed := time.Now()
			s.Is("Close", l.Close(), nil)
			<-next.ended
			<-behind.ended
			for _, w := range []*waiting{next, behind} {
				if w.err == nil {
					s.Is("Release after Close", w.lock.Release(s.Ctx), nil)
				} else {
					harness.CheckIs(s.T, "Acquire", w.err, redlock.ErrClosed)
				}
			}
			other.gets("closed after "+after.String(), closed, promptly)
			time.Sleep(oneTrip)
			// A node that took back the value before it a moment later has none; no node has that value any more.
			has := 0
			for i, v := range s.Values() {
				switch v {
				case other.lock.Value().Secret():
					has++
				case "":
				default:
					s.Errorf("closed after %v: node %d holds %s, want %s or nothing", after, i, v, other.lock.Value())
				}
			}
			if has < 2 {
				s.Errorf("closed after %v: %d nodes hold the next holder's value, want a majority", after, has)
			}
			s.Is("Release", other.lock.Release(s.Ctx), nil)
			s.untraced(m)
		})
	}
}

func TestAMinorityDoesNotHoldAHandOverUp(t *testing.T) {
	faults := maps.Clone(harness.Faults)
	delete(faults, "slow")
	faults["drops"] = func(n *redlocktest.Node) { n.DropReplies(1) }
	faults["loses"] = func(n *redlocktest.Node) { n.LoseReplies(1) }
	faults["forgotten"] = func(n *redlocktest.Node) { n.Do("SCRIPT", "FLUSH") }
	faults["no key"] = func(n *redlocktest.Node) { n.Evict(job) }
	for what, spoil := range faults {
		for _, n := range []int{3, 5} {
			runStage(t, fmt.Sprintf("%s, %d nodes", what, n), n, func(s *stage) {
				l := s.Locker(redlock.Options{})
				k := s.Take(l, heldLong)
				next := s.settled(l, heldLong)
				s.Each(spoil, s.All()[:n/2]...)
				released := time.Now()
				done := harness.Background(func() error { return k.Release(s.Ctx) })
				next.gets(what, released, oneTrip)
				s.Is("Release", <-done, nil)
				if what == "forgotten" { // there the attempt came before the release, and fails
					time.Sleep(promptly)
					s.Carry(what, next.lock.Value(), s.All()[n/2:]...)
				}
				s.Mend()
				time.Sleep(3 * time.Second) // down nodes are seen to be up again
				s.Is("Release", next.lock.Release(s.Ctx), nil)
				s.Clean(l)
			})
		}
	}
}

// Both are executed, and nobody hears that: the release has no answer, the attempt
// failed, and what it stored is taken back.
func TestAHandOverWithoutAnswersLeavesNothing(t *testing.T) {
	for what, spoil := range map[string]func(n *redlocktest.Node){
		"dropped": func(n *redlocktest.Node) { n.DropReplies(1) },
		"lost":    func(n *redlocktest.Node) { n.LoseReplies(1) },
	} {
		runStage(t, what, 3, func(s *stage) {
			l := s.Locker(redlock.Options{NodeTimeout: 50 * time.Millisecond})
			k := s.Take(l, heldLong)
			waiters := []*waiting{s.settled(l, heldLong), s.settled(s.Locker(redlock.Options{}), heldLong)}
			s.Each(spoil, 0, 1)
			s.Is("Release", k.Release(s.Ctx), redlock.ErrNoQuorum)
			// The line asks again by itself, and has it or whoever asks before.
			if _, ok := harness.Within(2*pollPause, func() bool { return waiters[0].over() || waiters[1].over() }); !ok {
				s.Fatalf("nobody has a free lock %v after the release", 2*pollPause)
			}
			s.quietly(k) // what is owed is paid, or asked again
			time.Sleep(time.Second)
			for range 2 {
				for _, w := range waiters {
					if w.over() && w.lock != nil && w.lock.Valid() {
						s.Is("Release", w.lock.Release(s.Ctx), nil)
						time.Sleep(2 * pollPause)
					}
				}
			}
			for i, w := range waiters {
				if !w.over() || w.err != nil {
					s.Fatalf("waiter %d returned: %v, with %v; want the lock for both, one after the other", i, w.over(), w.err)
				}
			}
			s.Clean(l)
		})
	}
}

// Where the release has to wait for an earlier call to a node, so does the attempt.
func TestAHandOverWaitsForWhatWasAskedBefore(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		k := s.Take(l, heldLong)
		next := s.settled(l, heldLong)
		s.Once(0, "extend", func() { time.Sleep(50 * time.Millisecond) })
		s.Node(0).Record(true)
		s.Is("Extend", k.Extend(s.Ctx), nil)
		released := s.quietly(k)
		next.gets("while one node is busy", released, oneTrip)
		s.Carry("while one node is busy", next.lock.Value(), 1, 2)
		time.Sleep(60 * time.Millisecond)
		s.Carry("afterwards", next.lock.Value(), s.All()...)
		if got := fmt.Sprint(harness.Verbs(s.Told(0, "extend", "release", "acquire"))); got != "[extend release acquire]" {
			s.Errorf("the busy node was asked %s, want the release before the attempt", got)
		}
		s.Is("Release", next.lock.Release(s.Ctx), nil)
		s.Clean(l)
	})
}

// The attempt overtakes the release on all nodes, for these have forgotten the script,
// and so does the look after it. The release tells nobody; it is known here when it
// is done.
func TestAnAttemptThatOvertakesTheReleaseIsRepeatedAfterIt(t *testing.T) {
	for late := time.Duration(0); late <= 10*time.Millisecond; late += time.Millisecond {
		onStage(t, 3, func(s *stage) {
			l := s.Locker(redlock.Options{})
			k := s.Take(l, heldLong)
			next := s.settled(l, heldLong)
			for i := range 3 {
				s.Do(i, "SCRIPT", "FLUSH")
				s.On(i, "release", func(n int, _ []string) {
					if n == 2 {
						time.Sleep(late)
					}
				})
			}
			next.follows(k, "a release that came late", late+4*oneTrip)
			s.Is("Release", next.lock.Release(s.Ctx), nil)
			s.untraced(l)
		})
	}
}

// ghost is somebody who has a place and hears what he is told, and does nothing.
func (s *stage) ghost(name string, ticket string) {
	s.Helper()
	for i, c := range s.Cluster.Clients() {
		sub := c.Subscribe(s.Ctx, jobChannel+":"+name)
		s.Cleanup(func() { sub.Close() })
		if _, err := sub.Receive(s.Ctx); err != nil {
			s.Fatal(err)
		}
		go func() {
			for range sub.Channel() {
			}
		}()
		s.enters(i, ticket, name, time.Minute)
	}
}

// enters puts an entry into a node's queue that counts for a while.
func (s *stage) enters(i int, ticket, name string, while time.Duration) {
	s.Helper()
	s.Do(i, "ZADD", jobQueue, ticket, name, harness.EndOf(s.Node(i).Now().Add(while).UnixMilli()), name+"!")
}

func TestTheSecondWhoIsToldLooksAfterTheFirst(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		k := s.Take(s.Locker(redlock.Options{}), heldLong)
		w := s.settled(s.Locker(redlock.Options{}), heldLong)
		s.ghost("hung", "1")
		time.Sleep(time.Second)
		d := w.gets("behind one that hangs", s.quietly(k), 3*time.Millisecond)
		if d < 3*oneTrip/2 {
			s.Errorf("the second has it after %v, want the first to be given a few round trips", d)
		}
		s.Is("Release", w.lock.Release(s.Ctx), nil)
	})
}

// What the first was told and did not use is told on by his leaving: to one who is the
// third, and was told nothing.
func TestWhoIsToldAndGivesUpTellsTheNext(t *testing.T) {
	for after := time.Duration(0); after <= 2*oneTrip; after += oneTrip / 6 {
		onStage(t, 3, func(s *stage) {
			k := s.Take(s.Locker(redlock.Options{}), heldLong)
			a, b := s.Locker(redlock.Options{}), s.Locker(redlock.Options{})
			s.ghost("hung", "1")
			first := s.settled(a, heldLong)
			third := s.settled(b, heldLong)
			released := s.quietly(k)
			time.Sleep(after)
			first.stop()
			<-first.ended
			if first.lock != nil {
				released = s.quietly(first.lock)
			}
			third.passes("told by the leaving", released, promptly)
		})
	}
}

// A Locker whose callers come back at once keeps its entry in the queues. If none comes back,
// what it is told is told on.
func TestAnEntryThatNobodyStandsForPassesTheNoticeOn(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		a, b := s.Locker(redlock.Options{}), s.Locker(redlock.Options{})
		k := s.Take(a, heldLong)
		for range 4 { // they take turns
			next := s.settled(b, heldLong)
			s.Is("Release", k.Release(s.Ctx), nil)
			again := s.waiter(a, heldLong)
			<-next.ended
			time.Sleep(promptly)
			s.Is("Release", next.lock.Release(s.Ctx), nil)
			<-again.ended
			k = again.lock
		}
		next := s.settled(b, heldLong)
		s.Is("Release", k.Release(s.Ctx), nil) // and does not come back
		<-next.ended
		for i := range 3 {
			if got := len(s.queue(i)); got != 2 {
				s.Errorf("queue of node %d: got %d entries, want those of the two who may come back", i, got)
			}
		}
		s.ghost("hung", fmt.Sprint(s.Node(0).Now().UnixMicro()))
		last := s.settled(s.Locker(redlock.Options{}), heldLong)
		last.passes("behind one that left its entry", s.quietly(next.lock), promptly)
	})
}

// Who gives up twice is heard twice.
func TestLeavingIsAnnouncedAnewEveryTime(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		a, b := s.Locker(redlock.Options{}), s.Locker(redlock.Options{})
		for range 3 {
			s.Foreign(heldLong, s.All()...)
			first, second := s.settled(a, heldLong), s.settled(b, heldLong)
			s.Evict()
			left := time.Now()
			first.gives(context.Canceled)
			second.passes("told by the leaving", left, 3*oneTrip)
		}
	})
}

// Many who come at one instant stand in another order on every node: no release tells
// anybody by a majority then, and all the same somebody has to come at once.
func TestAReleaseIsFoundThoughTheQueuesDisagree(t *testing.T) {
	// With Fair, tickets order the queues alike, but a node that grants an attempt which fails elsewhere removes its entry.
	for _, n := range []int{3, 4, 5} {
		if harness.Sparing && n > 3 {
			break
		}
		onStage(t, n, func(s *stage) {
			var ls []*redlock.Locker
			for range 6 {
				ls = append(ls, s.LockerWith(redlock.Options{Fair: true}, nil, harness.Nodes(s.Cluster.Clients())))
			}
			for range harness.Rounds(3, 20) {
				s.servesAll("Fair", ls, nil)
				time.Sleep(time.Minute)
			}
		})
	}
	for _, n := range []int{3, 5} {
		onStage(t, n, func(s *stage) {
			k := s.Take(s.Locker(redlock.Options{}), heldLong)
			m := harness.Rounds(8, 20)
			var ls []*redlock.Locker
			for range m {
				ls = append(ls, s.Locker(redlock.Options{}))
			}
			s.servesAll("", ls, k)
		})
	}
}

// servesAll has all Lockers wait for k, or, if that is nil, ask for the free lock at one instant, and checks that after each
// release another one has the lock without a pause.
func (s *stage) servesAll(what string, ls []*redlock.Locker, k *redlock.Lock) {
	s.Helper()
	waiting := make(map[*waiting]bool)
	for _, l := range ls {
		waiting[s.waiter(l, heldLong)] = true
	}
	time.Sleep(500 * time.Millisecond)
	for len(waiting) > 0 {
		released := time.Now()
		if k != nil {
			released = s.quietly(k)
		}
		_, ok := harness.Within(2*promptly, func() bool {
			for w := range waiting {
				if w.over() {
					s.Is("Acquire", w.err, nil)
					k = w.lock
					delete(waiting, w)
					return true
				}
			}
			return false
		})
		if !ok {
			s.Fatalf("%d nodes, %s: nobody of %d has a lock %v after its release", s.Cluster.Len(), what, len(waiting), time.Since(released))
		}
		time.Sleep(10 * time.Millisecond)
	}
	s.Is("Release", k.Release(s.Ctx), nil)
}

// The first in the queue gives up, and the holder never releases the lock.
func TestAFairWaiterThatWasNotFirstKnowsWhenTheLockExpires(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		expiry := time.Now().Add(1500 * time.Millisecond)
		for i := range 3 {
			s.Node(i).Set(job, "dead", 1500*time.Millisecond)
		}
		first := s.settled(s.fair("first"), heldLong)
		next := s.settled(s.fair("next"), heldLong)
		time.Sleep(700 * time.Millisecond) // both have refreshed their entries, and do not again before the expiry
		first.gives(redlock.ErrHeld)
		next.passes("when the ttl has passed", expiry, promptly)
	})
}

// So few nodes have the entry of the next waiter that no majority tells it of the release.
func TestAFairWaiterThatAMinorityTellsTries(t *testing.T) {
	onStage(t, 4, func(s *stage) {
		k := s.Take(s.fair("holder"), heldLong)
		next := s.settled(s.fair("next"), heldLong)
		for i := range 2 {
			s.Do(i, "DEL", jobQueue)
		}
		next.passes("told by two of four", s.quietly(k), promptly)
	})
}

// A fleet that was stopped stands in the queue for a while, and is passed over.
func TestTheDeadArePassedOverHoweverMany(t *testing.T) {
	for _, leaves := range []bool{false, true} {
		onStage(t, 3, func(s *stage) {
			for i := range 3 {
				for j := range 40 {
					s.enters(i, fmt.Sprint(j), fmt.Sprint("dead", j), 15*time.Second)
				}
			}
			holder := s.Locker(redlock.Options{})
			var free func() time.Time
			if leaves {
				s.Foreign(heldLong, s.All()...)
				first := s.settled(holder, heldLong)
				free = func() time.Time {
					s.Evict()
					first.gives()
					return time.Now()
				}
			} else {
				k := s.Take(holder, heldLong)
				free = func() time.Time { return s.quietly(k) }
			}
			w := s.settled(s.Locker(redlock.Options{}), heldLong)
			w.passes(fmt.Sprintf("behind forty who are dead, leaving %v", leaves), free(), 3*oneTrip)
		})
	}
}

// Whoever asks seldom is told all the same: asking keeps the place.
func TestALongRetryDoesNotLoseThePlace(t *testing.T) {
	for _, foreign := range []bool{false, true} {
		onStage(t, 3, func(s *stage) {
			var k *redlock.Lock
			holder := s.Locker(redlock.Options{})
			if foreign {
				for i := range 3 {
					s.Node(i).Set(job, "82e7cf91a7ef4fb7", 3*time.Second)
				}
			} else {
				k = s.Take(holder, heldLong)
			}
			w := s.settled(s.Locker(redlock.Options{Retry: func(int) time.Duration { return time.Hour }}), heldLong)
			if foreign { // taken over before anybody sees it free
				s.Foreign(heldLong, s.All()...)
				time.Sleep(20 * time.Second)
				var err error
				k, err = holder.Adopt(s.Ctx, job, redlock.ValueOf(otherValue), heldLong)
				s.Is("Adopt", err, nil)
			}
			time.Sleep(20 * time.Second)
			w.waits("while it is held")
			w.passes("after a long wait", s.quietly(k), 3*oneTrip)
		})
	}
}

// Nor does it sleep beside a free lock after a try that met nodes in trouble.
func TestALongRetryDoesNotOutlastAnOutage(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		k := s.Take(s.Locker(redlock.Options{}), heldLong)
		w := s.settled(s.Locker(redlock.Options{Retry: func(int) time.Duration { return time.Hour }}), heldLong)
		s.FailCommand("set", loading, 0, 1)
		s.Is("Release", k.Release(s.Ctx), nil)
		time.Sleep(time.Second)
		w.waits("while two of three nodes refuse it")
		s.FailCommand("set", "", 0, 1)
		w.passes("after the outage", time.Now(), 5*time.Second)
	})
}

// Somebody has put something else where the queue is: nobody hears, and nobody asks
// without a pause.
func TestAQueueOfAnotherTypeIsNoReasonToHurry(t *testing.T) {
	for _, fair := range []bool{false, true} {
		for _, nodes := range [][]int{{0, 1, 2}, {1, 2}, {2}} {
			onStage(t, 3, func(s *stage) {
				for _, i := range nodes {
					s.Do(i, "SET", jobQueue, "word")
				}
				if len(nodes) == 1 {
					s.Node(0).Stop()
				}
				k := s.Take(s.Cold(redlock.Options{}, nil, s.Cluster.Nodes()), heldLong)
				s.Record()
				w := s.waiter(s.Cold(redlock.Options{Fair: fair}, nil, s.Cluster.Nodes()), heldLong)
				time.Sleep(10 * time.Second)
				if fair {
					w.stop() // it fails where the queue can not be read
					return
				}
				w.waits("while it is held")
				if got := len(s.Told(1)); got > 400 {
					s.Errorf("spoilt on %v: a node was asked %d times in 10 s, want a few times a second", nodes, got)
				}
				w.passes("spoilt", s.quietly(k), 2*retryPause)
			})
		}
	}
}

// The second of a line takes its place with its first try, which may come before
// anything is listened to: under one name from then on.
func TestAFairLineHasOnePlace(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.fair("one")
		first := s.waiter(l, heldLong)
		time.Sleep(10 * time.Microsecond)
		second := s.waiter(l, heldLong)
		<-first.ended
		time.Sleep(500 * time.Millisecond)
		for i := range 3 {
			if got := s.queue(i); len(got) != 1 || got[0] != "one" {
				s.Errorf("queue of node %d: got %q, want one place", i, got)
			}
		}
		second.passes("in line", s.quietly(first.lock), 5*oneTrip)
		s.untraced(l)
	})
}

// Once Close has begun a release is for others: what was handed to the next in our own
// line would be undone at once, and nobody else was told. The waiter here is late to
// notice Close, and stands in line yet.
func TestNothingIsHandedOnOnceCloseHasBegun(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		stand := make(chan struct{}, 1)
		l := s.Locker(redlock.Options{Trace: redlock.Trace{Round: func(_ context.Context, r redlock.Round) {
			if r.Op == redlock.OpLook {
				select {
				case <-stand:
					time.Sleep(100 * time.Millisecond)
				default:
				}
			}
		}}})
		k := s.Take(l, heldLong)
		next := s.settled(l, heldLong)
		other := s.settled(s.Locker(redlock.Options{}), heldLong)
		looks := len(s.Told(0, "wait", "pttl"))
		stand <- struct{}{}
		if _, ok := harness.Within(2*pollPause, func() bool { return len(s.Told(0, "wait", "pttl")) > looks && len(stand) == 0 }); !ok {
			s.Fatal("the waiter does not look")
		}
		s.Record()
		closed := harness.Background(l.Close)
		time.Sleep(time.Millisecond)
		other.follows(k, "released during Close", promptly)
		s.Is("Close", <-closed, nil)
		<-next.ended
		harness.CheckIs(s.T, "the waiter", next.err, redlock.ErrClosed)
		for i := range 3 {
			for _, c := range s.Told(i, "acquire") {
				if c.Client == 1 {
					s.Errorf("node %d was asked for the lock by a Locker that is being closed", i)
				}
			}
		}
		s.Is("Release", other.lock.Release(s.Ctx), nil)
	})
}

// Others wait for the end of the ttl that they have seen. A lock of a shorter one is
// not handed on without a word: its holder may die.
// A look queues the leader, and a release behind it that notifies nobody removes the entry. The reply to
// the look comes after both. If another Locker takes the lock then, the leader has to queue again.
func TestAReleaseThatFollowsALookMayRemoveTheEntry(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		k := s.Take(s.Locker(redlock.Options{}), heldLong)
		a, b := s.Locker(redlock.Options{Name: "a"}), s.Locker(redlock.Options{Name: "b"})
		first := s.settled(a, heldLong)
		second := s.waiter(a, pollPause*2) // shorter than what is left of the first: nothing is handed to it
		first.follows(k, "the first", 10*oneTrip)
		s.Slow(2*time.Millisecond, s.All()...)
		time.Sleep(5500 * time.Microsecond) // half a millisecond ago it has sent the look
		s.quietly(first.lock)
		time.Sleep(500 * time.Microsecond)
		other := s.Acquire(b, heldLong) // behind the release, and before the leader knows of that
		time.Sleep(100 * time.Millisecond)
		second.waits("while another Locker has the lock")
		second.follows(other, "the second", promptly)
	})
}

func TestAShorterLockIsNotHandedOnSilently(t *testing.T) {
	for _, c := range []struct {
		name  string
		short time.Duration
		take  func(s *stage, l *redlock.Locker) *redlock.Lock
	}{
		{"than the lock", 500 * time.Millisecond, func(s *stage, l *redlock.Locker) *redlock.Lock { return s.Take(l, heldLong) }},
		{"than the adopted one", 500 * time.Millisecond, func(s *stage, l *redlock.Locker) *redlock.Lock {
			given := s.Take(s.Locker(redlock.Options{}), heldLong)
			time.Sleep(oneTrip)
			k, err := l.Adopt(s.Ctx, job, given.Value(), 500*time.Millisecond)
			s.Is("Adopt", err, nil)
			return k
		}},
		{"than the one that was extended without a reply", 1500 * time.Millisecond, func(s *stage, l *redlock.Locker) *redlock.Lock {
			k := s.Take(l, 10*time.Second)
			time.Sleep(8900 * time.Millisecond)
			for i := range 3 {
				s.Node(i).DropReplies(1)
			}
			s.Is("Extend", k.Extend(s.Ctx), redlock.ErrNoQuorum)
			time.Sleep(100 * time.Millisecond) // for the PINGs
			return k
		}},
	} {
		runStage(t, c.name, 3, func(s *stage) {
			l := s.Locker(redlock.Options{})
			k := c.take(s, l)
			s.waiter(l, c.short) // it will not release
			time.Sleep(10 * time.Millisecond)
			other := s.waiter(s.Locker(redlock.Options{}), heldLong)
			time.Sleep(10 * time.Millisecond)
			released := s.quietly(k)
			other.passes("when the lock is over that was between", released, c.short+100*time.Millisecond)
		})
	}
}

// An attempt that a majority may have granted without being heard may have refused others, who are told that it is gone.
func TestAnAttemptWhoseAnswersWereLostIsTakenBackLoudly(t *testing.T) {
	for _, lost := range []int{2, 3} {
		runStage(t, fmt.Sprint(lost, " answers"), 3, func(s *stage) {
			l, m := s.Locker(redlock.Options{}), s.Locker(redlock.Options{})
			for i := range lost {
				n, asked, cleans := s.Node(i), false, time.Now().Add(2*time.Second)
				n.OnCommand(func(args []string) {
					switch harness.Verb(args) {
					case "acquire":
						if !asked {
							asked = true
							n.DropReplies(1)
						}
					case "ping": // the clean-up comes after one
						time.Sleep(time.Until(cleans))
					}
				})
			}
			s.Is("TryAcquire", harness.Second(m.TryAcquire(s.Ctx, job, heldLong)), redlock.ErrNoQuorum)
			w := s.settled(l, heldLong)
			if _, ok := harness.Within(10*time.Second, func() bool { return s.Values()[0] == "" || w.over() }); !ok {
				s.Fatal("nothing was taken back in 10 s")
			}
			w.gets("taken back", time.Now().Add(-promptly), 2*promptly)
			s.Is("Release", w.lock.Release(s.Ctx), nil)
			s.Clean(l, m)
		})
	}
}
