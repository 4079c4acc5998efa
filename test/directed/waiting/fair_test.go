package waiting_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/harness"
	"github.com/seed-ce352c9b/redlock/redlocktest"
)

const (
	placeDead = 2 * time.Second  // so long a place in turn counts that nobody refreshes
	queueGone = 16 * time.Second // and after that a queue is gone that nobody is in
)

// fair is a Locker of a name whose waiters take turns.
func (s *stage) fair(name string) *redlock.Locker {
	return s.Locker(redlock.Options{Fair: true, Name: name})
}

// queue is the labels of the places in a node's queue, first to last.
func (s *stage) queue(i int) (labels []string) {
	for _, place := range s.Do(i, "ZRANGE", jobQueue, "0", "-1").([]any) {
		if !strings.HasSuffix(place.(string), "!") {
			labels = append(labels, redlock.ValueOf(place.(string)).Label())
		}
	}
	return labels
}

// queued fails the test unless these labels stand in every node's queue, first to last.
func (s *stage) queued(what string, labels ...string) {
	s.Helper()
	for i := range s.Cluster.Len() {
		if got := s.queue(i); !slices.Equal(got, labels) {
			s.Errorf("%s: queue of node %d: got %v, want %v", what, i, got, labels)
		}
	}
}

// A passage has waiters come, held up in some way, and go through one after the other.
type passage struct {
	name     string
	clocks   []*harness.Clocks // of the Lockers
	nodes    time.Duration     // between one node's clock and the next one's
	between  func(s *stage)    // while all wait
	restarts bool              // of nodes without their data, one after each waiter
}

// Over several Lockers the order is that of arrival, whatever happens to a minority of
// the nodes and to the clients' clocks.
//
// Attack 90.
func TestTurnsAreInOrderOfArrival(t *testing.T) {
	const n = 6
	for _, p := range []passage{
		{name: "nothing happens"},
		{name: "one wall clock is an hour ahead, one an hour behind", clocks: []*harness.Clocks{nil, {WallAhead: time.Hour}, {WallAhead: -time.Hour}}},
		{name: "nodes' clocks are apart, but less than the arrivals", nodes: time.Millisecond},
		{name: "nodes restart without their data, one after the other", restarts: true},
		{name: "all queues are lost at once", between: func(s *stage) {
			s.Each(func(n *redlocktest.Node) { n.Do("DEL", jobQueue) })
			time.Sleep(time.Second) // all have refreshed
		}},
		{name: "two nodes are down", between: func(s *stage) { s.Each((*redlocktest.Node).Stop, 0, 3) }},
		{name: "two nodes hang", between: func(s *stage) { s.Each((*redlocktest.Node).Hang, 1, 2) }},
		{name: "one comes back without its data", between: func(s *stage) {
			s.Node(0).Restart(false)
			time.Sleep(2 * time.Second)
		}},
	} {
		runStage(t, p.name, 5, func(s *stage) {
			for i := range 5 {
				s.Node(i).JumpClock(time.Duration(i) * p.nodes)
			}
			k := s.Take(s.Locker(redlock.Options{}), heldLong)
			var ws []*waiting
			var lockers []*redlock.Locker
			for i := range n / 2 {
				var h *harness.Clocks
				if p.clocks != nil {
					h = p.clocks[i]
				}
				lockers = append(lockers, s.LockerWith(redlock.Options{Fair: true, Name: strconv.Itoa(i)}, h, s.Cluster.Nodes()))
			}
			for i := range n { // each Locker has two waiters, the second came after all the first
				ws = append(ws, s.waiter(lockers[i%len(lockers)], heldLong))
				time.Sleep(5 * time.Millisecond)
			}
			time.Sleep(2 * time.Second)
			if p.between != nil {
				p.between(s)
			}
			var order []int
			var mu sync.Mutex
			var all sync.WaitGroup
			for i, w := range ws {
				all.Go(func() {
					<-w.ended
					if w.err != nil {
						s.Errorf("waiter %d: got %v, want the lock", i, w.err)
						return
					}
					mu.Lock()
					order = append(order, i)
					served := len(order)
					mu.Unlock()
					if p.restarts {
						s.Node(served % 5).Restart(false)
					}
					time.Sleep(50 * time.Millisecond)
					w.lock.Release(s.Ctx)
				})
			}
			k.Release(s.Ctx)
			all.Wait()
			if want := []int{0, 1, 2, 3, 4, 5}; !slices.Equal(order, want) {
				s.Errorf("served: got %v, want %v", order, want)
			}
		})
	}
}

// A wall clock that is set while somebody stands in a Locker's line, before it has
// ever asked: what counts is when it came.
//
// Attack 90.
func TestAWallClockThatIsSetDuringTheWaitChangesNoTurn(t *testing.T) {
	for _, step := range []time.Duration{time.Hour, -time.Hour} {
		onStage(t, 3, func(s *stage) {
			k := s.Take(s.Locker(redlock.Options{}), heldLong)
			h := &harness.Clocks{}
			a := s.LockerWith(redlock.Options{Fair: true, Name: "a"}, h, s.Cluster.Nodes())
			b, c := s.fair("b"), s.fair("c")
			a1 := s.settled(a, heldLong)
			b1 := s.settled(b, heldLong)
			a2 := s.settled(a, heldLong) // in a's line
			c1 := s.settled(c, heldLong)
			h.MoveWall(step)
			time.Sleep(time.Second)
			a1.gives(context.Canceled)
			time.Sleep(time.Second)
			for _, w := range []*waiting{b1, a2, c1} {
				w.follows(k, "in turn", 20*time.Millisecond)
				k = w.lock
			}
		})
	}
}

// With an even number of nodes half of them are enough to refuse.
func TestAWaiterQueuesOnEveryNode(t *testing.T) {
	for n := 1; n <= 6; n++ {
		onStage(t, n, func(s *stage) {
			s.Foreign(heldLong, s.All()...)
			s.settled(s.fair("a"), heldLong)
			s.settled(s.fair("b"), heldLong)
			time.Sleep(2 * placeDead)
			s.queued("meanwhile", "a", "b")
		})
	}
}

// Attack 90.
func TestADeadHeadIsSkipped(t *testing.T) {
	for _, how := range []string{"cut", "nodes that hang for it", "closed"} {
		runStage(t, how, 3, func(s *stage) {
			k := s.Take(s.Locker(redlock.Options{}), heldLong)
			clients := s.Cluster.Clients()
			dead := s.LockerWith(redlock.Options{Fair: true, Name: "dead"}, nil, harness.Nodes(clients))
			s.settled(dead, heldLong)
			next := s.settled(s.fair("next"), heldLong)
			if got := s.queue(1); !slices.Equal(got, []string{"dead", "next"}) {
				s.Fatalf("queue: got %v", got)
			}
			switch how {
			case "cut":
				s.Cluster.Cut(clients...)
			case "nodes that hang for it":
				s.Cluster.Cut(clients[0], clients[2]) // a majority
			case "closed":
				dead.Close()
			}
			gone := time.Now()
			time.Sleep(10 * time.Millisecond)
			s.Is("Release", k.Release(s.Ctx), nil)
			d := next.gets("behind a dead head", gone, placeDead+3*time.Millisecond+4*oneTrip)
			s.Logf("skipped after %v", d)
		})
	}
}

// One that can reach only a minority cannot win, and must not hold up those who can.
//
// Attack 90.
func TestWhoIsCutOffFromAMajorityHoldsNobodyUp(t *testing.T) {
	onStage(t, 5, func(s *stage) {
		k := s.Take(s.Locker(redlock.Options{}), heldLong)
		clients := s.Cluster.Clients()
		lame := s.LockerWith(redlock.Options{Fair: true, Name: "lame"}, nil, harness.Nodes(clients))
		w := s.settled(lame, heldLong)
		next := s.settled(s.fair("next"), heldLong)
		s.Cluster.Cut(clients[1:4]...)
		time.Sleep(10 * time.Second)
		s.queued("meanwhile", "next")
		next.follows(k, "behind one that cannot win", 4*oneTrip)
		// Once it reaches them again it has its old place.
		last := s.settled(s.fair("last"), heldLong)
		s.Cluster.Mend(clients...)
		time.Sleep(8 * time.Second)
		w.follows(next.lock, "back", 4*oneTrip)
		last.waits("behind one that came earlier")
	})
}

// Attack 90.
func TestWhoGivesUpOrWinsLeavesAllQueues(t *testing.T) {
	onStage(t, 5, func(s *stage) {
		k := s.Take(s.Locker(redlock.Options{}), heldLong)
		a, b := s.fair("a"), s.fair("b")
		wa, wb := s.settled(a, heldLong), s.settled(b, heldLong)
		wa.gives(context.Canceled, redlock.ErrHeld)
		time.Sleep(oneTrip)
		s.queued("after a gave up", "b")
		s.Is("Release", k.Release(s.Ctx), nil)
		<-wb.ended
		time.Sleep(oneTrip)
		s.queued("after b won")
		s.Is("Release", wb.lock.Release(s.Ctx), nil)
		s.untraced(a, b)
	})
}

// While its own Locker holds a lock for a moment, the next caller does not ask whose turn it is. The
// release queues it, before it tells who is first.
func TestTheReleaseQueuesTheNextCallerOfItsLocker(t *testing.T) {
	const soon = time.Millisecond
	line := func(s *stage) (first, second, other *waiting) {
		k := s.Take(s.Locker(redlock.Options{}), heldLong)
		a := s.fair("a")
		first = s.settled(a, heldLong)
		second = s.waiter(a, heldLong)
		time.Sleep(5 * time.Millisecond) // arrivals that are closer may swap
		other = s.settled(s.fair("x"), heldLong)
		first.follows(k, "the first", 10*oneTrip)
		time.Sleep(soon)
		s.queued("while the first holds the lock", "x")
		return first, second, other
	}
	runStage(t, "it goes before those who came later", 5, func(s *stage) {
		first, second, other := line(s)
		second.follows(first.lock, "the second", 10*oneTrip)
		time.Sleep(oneTrip)
		s.queued("while the second holds the lock", "x")
		other.follows(second.lock, "the other", 10*oneTrip)
		time.Sleep(oneTrip)
		s.queued("in the end")
	})
	runStage(t, "it queues by itself if the lock is held for longer", 5, func(s *stage) {
		first, second, _ := line(s)
		time.Sleep(15 * time.Millisecond)
		s.queued("a while later", "a", "x")
		second.follows(first.lock, "the second", 10*oneTrip)
	})
	runStage(t, "it gives up behind another", 5, func(s *stage) {
		a := s.fair("a")
		k := s.Take(a, heldLong)
		first := s.settled(a, heldLong)
		other := s.settled(s.fair("x"), heldLong)
		second := s.waiter(a, heldLong)
		time.Sleep(5 * time.Millisecond)
		last := s.settled(s.fair("y"), heldLong)
		first.follows(k, "the first", 10*oneTrip) // a release that others were told of: the next one tells only who is first
		time.Sleep(soon)
		other.follows(first.lock, "the other", 10*oneTrip)
		time.Sleep(soon)
		s.queued("while the other holds the lock", "a", "y")
		second.gives(context.Canceled, redlock.ErrHeld)
		time.Sleep(oneTrip)
		s.queued("after it gave up", "y")
		last.follows(other.lock, "the last", 10*oneTrip)
	})
	runStage(t, "with Options.Retry it asks as often as that says", 5, func(s *stage) {
		const often = 20 * time.Millisecond
		a := s.Locker(redlock.Options{Fair: true, Name: "a", Retry: func(int) time.Duration { return often }})
		k := s.Take(a, heldLong)
		first := s.settled(a, heldLong)
		other := s.settled(s.fair("x"), heldLong)
		second := s.waiter(a, heldLong)
		first.follows(k, "the first", 10*oneTrip) // a release that others were told of: the next one tells only who is first
		time.Sleep(soon)
		other.follows(first.lock, "the other", 10*oneTrip)
		time.Sleep(2 * often)
		s.Evict() // and nobody is told
		second.gets("the second", time.Now(), often+10*oneTrip)
	})
	runStage(t, "it gives up at the release", 5, func(s *stage) {
		first, second, other := line(s)
		go first.lock.Release(s.Ctx)
		second.stop()
		other.gets("the other", time.Now(), 20*oneTrip)
		time.Sleep(oneTrip)
		s.queued("afterwards")
	})
}

func TestTryAcquireMindsTheQueueAndIsNotInIt(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		s.Foreign(heldLong, s.All()...)
		s.settled(s.fair("a"), heldLong)
		other := s.fair("other")
		s.Evict() // free, and nobody knows yet
		_, err := other.TryAcquire(s.Ctx, job, time.Second)
		s.Is("TryAcquire while another waits", err, redlock.ErrHeld)
		s.Says(err, "queued behind a")
		s.queued("meanwhile", "a")
	})
	onStage(t, 3, func(s *stage) {
		s.Foreign(heldLong, s.All()...)
		_, err := s.fair("other").TryAcquire(s.Ctx, job, time.Second)
		s.Is("TryAcquire of a held lock", err, redlock.ErrHeld)
		s.queued("meanwhile")
	})
}

// Who was told of a release may have given up, and what it had asked for is rolled back
// without a word: whoever finds the lock free, and another first, tells that one.
func TestWhoFindsTheLockFreeTellsWhoseTurnItIs(t *testing.T) {
	for name, ask := range map[string]func(s *stage, l *redlock.Locker){
		"TryAcquire": func(s *stage, l *redlock.Locker) {
			_, err := l.TryAcquire(s.Ctx, job, time.Second)
			s.Is("TryAcquire", err, redlock.ErrHeld)
		},
		"Acquire": func(s *stage, l *redlock.Locker) { s.waiter(l, heldLong) },
	} {
		runStage(t, name, 3, func(s *stage) {
			s.Foreign(heldLong, s.All()...)
			first := s.settled(s.fair("first"), heldLong)
			second := s.settled(s.fair("second"), heldLong)
			time.Sleep(100 * time.Millisecond) // far from the next time that they ask of their own accord
			s.Evict()
			free := time.Now()
			ask(s, s.fair("other"))
			first.gets("told", free, promptly)
			if second.over() {
				s.Errorf("the second has it, too")
			}
		})
	}
}

func TestFairAndUnfairExcludeEachOther(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		fair, unfair := s.fair("fair"), s.Locker(redlock.Options{})
		k := s.Take(fair, heldLong)
		_, err := unfair.TryAcquire(s.Ctx, job, time.Second)
		s.Is("TryAcquire without turns", err, redlock.ErrHeld)
		for i := range 3 {
			if got := s.Do(i, "SET", job, "by hand", "NX", "PX", "1000"); got != nil {
				s.Errorf("SET NX by hand on node %d: got %v, want nil", i, got)
			}
		}
		w := s.settled(unfair, heldLong)
		w.follows(k, "without turns", 3*oneTrip)
		wf := s.settled(fair, heldLong)
		wf.follows(w.lock, "in turn", 3*oneTrip)
		s.Is("Release", wf.lock.Release(s.Ctx), nil)
		for i := range 3 {
			s.Do(i, "SET", job, "by hand", "NX", "PX", "3000")
		}
		set := time.Now()
		wf = s.settled(fair, heldLong)
		wf.gets("after a key by hand", set.Add(3*time.Second), 2*time.Millisecond+4*oneTrip)
	})
}

func TestQueuesVanishWhereNobodyTakesThemBack(t *testing.T) {
	for _, fair := range []bool{false, true} {
		onStage(t, 3, func(s *stage) {
			s.Foreign(heldLong, s.All()...)
			clients := s.Cluster.Clients()
			w := s.settled(s.LockerWith(redlock.Options{Fair: fair}, nil, harness.Nodes(clients)), heldLong)
			for i := range 3 {
				if d := s.Node(i).TTL(jobQueue); d <= 0 || d > queueGone {
					s.Errorf("ttl of the queue: got %v, want up to %v", d, queueGone)
				}
			}
			s.Cluster.Cut(clients...) // for good
			w.gives(context.Canceled)
			time.Sleep(queueGone)
			for i := range 3 {
				for _, key := range s.Node(i).Keys() {
					if key != job && key != jobRegister {
						s.Errorf("node %d still has %s", i, key)
					}
				}
			}
		})
	}
}

// Places that are forged cost somebody his turn, and nobody the lock.
func TestForgedPlacesLapse(t *testing.T) {
	for what, forge := range map[string]func(s *stage, i int){
		"without an end": func(s *stage, i int) { s.Do(i, "ZADD", jobQueue, "1", "forged") },
		"far in the future": func(s *stage, i int) {
			s.Do(i, "ZADD", jobQueue, "1", "forged")
			s.Do(i, "ZADD", jobQueue, harness.EndOf(s.Node(i).Now().Add(time.Hour).UnixMilli()), "forged!")
		},
		"for ever": func(s *stage, i int) {
			s.Do(i, "ZADD", jobQueue, "-inf", "forged")
			s.Do(i, "ZADD", jobQueue, "+inf", "forged!")
		},
		"within its time": func(s *stage, i int) {
			s.Do(i, "ZADD", jobQueue, "1", "forged")
			s.Do(i, "ZADD", jobQueue, harness.EndOf(s.Node(i).Now().Add(placeDead).UnixMilli()), "forged!")
		},
	} {
		runStage(t, what, 3, func(s *stage) {
			for i := range 3 {
				forge(s, i)
			}
			began := time.Now()
			w := s.waiter(s.fair("a"), heldLong)
			w.gets("behind forged places", began, placeDead+retryPause)
			if got := s.tries(0); got > 30 {
				s.Errorf("asked %d times, want pauses", got)
			}
		})
	}
}

func TestInspectShowsWhoQueuesInOrder(t *testing.T) {
	for _, fair := range []bool{false, true} {
		onStage(t, 3, func(s *stage) {
			s.Foreign(heldLong, s.All()...)
			names := []string{"zeta", "beta", "alpha", "omega"}
			var ws []*waiting
			for i, name := range names {
				opt, opts := redlock.Options{Name: name, Fair: fair}, []redlock.AcquireOption(nil)
				if i%2 == 1 { // labels of calls, and of Lockers
					opt.Name, opts = "", append(opts, redlock.WithLabel(name))
				}
				ws = append(ws, s.settled(s.Locker(opt), heldLong, opts...))
			}
			observer := s.Locker(redlock.Options{})
			st, err := observer.Inspect(s.Ctx, job)
			s.Is("Inspect", err, nil)
			if !slices.Equal(st.Queue, names) {
				s.Errorf("queue: got %v, want %v", st.Queue, names)
			}
			s.Node(1).FlushAll() // a minority
			ws[1].gives(context.Canceled)
			time.Sleep(time.Millisecond)
			st, err = observer.Inspect(s.Ctx, job)
			s.Is("Inspect", err, nil)
			if want := []string{"zeta", "alpha", "omega"}; !slices.Equal(st.Queue, want) {
				s.Errorf("queue: got %v, want %v", st.Queue, want)
			}
		})
	}
}

// ticketOf is the ticket of the one place in a node's queue.
func (s *stage) ticketOf(i int, what string) time.Time {
	s.Helper()
	list := s.Do(i, "ZRANGE", jobQueue, "0", "-1").([]any)
	if len(list) != 2 { // the place, and its end
		s.Fatalf("%s: node %d has the queue %v, want one place", what, i, list)
	}
	score, _ := s.Node(i).Score(jobQueue, list[0].(string))
	return time.UnixMicro(int64(score))
}

// A ticket is when its holder came, by the time of the nodes: by the median of the
// majority that answered first, so that one clock of five changes no turn, nor do two that
// err to either side, and less the way there, so that who is far comes no later than who is
// near.
func TestATicketIsWhenItsHolderCameByMostNodes(t *testing.T) {
	for what, off := range map[string][]time.Duration{
		"clocks agree":               {0, 0, 0, 0, 0},
		"one is an hour ahead":       {time.Hour, 0, 0, 0, 0},
		"one is an hour behind":      {0, 0, 0, 0, -time.Hour},
		"one is ahead, one behind":   {-time.Hour, 0, 0, time.Hour, 0},
		"all are an hour ahead":      {time.Hour, time.Hour, time.Hour, time.Hour, time.Hour},
		"all but one are an hour so": {time.Hour, time.Hour, 0, time.Hour, time.Hour},
	} {
		for _, far := range []time.Duration{0, 200 * time.Millisecond} {
			runStage(t, fmt.Sprint(what, ", ", far, " away"), 5, func(s *stage) {
				for i, d := range off {
					s.Node(i).JumpClock(d)
				}
				s.Foreign(heldLong, s.All()...)
				l := s.fair("a")
				s.Slow(far, s.All()...)
				came := time.Now()
				w := s.waiter(l, heldLong)
				time.Sleep(3 * time.Second)
				w.waits("while it is held")
				want := came
				if strings.HasPrefix(what, "all") {
					want = came.Add(time.Hour)
				}
				got := s.ticketOf(3, what)
				if d := got.Sub(want).Abs(); d > time.Millisecond {
					s.Errorf("ticket: got %v after it came, by most nodes, want 0", got.Sub(want))
				}
			})
		}
	}
}

// Whoever comes to lead takes its ticket from the nodes' time that the one before has
// learned, if that was just now: their clocks may have been set since.
func TestATicketIsNotMadeFromWhatWasLearnedLongAgo(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		s.Foreign(24*time.Hour, s.All()...)
		clients := s.Cluster.Clients()
		l := s.LockerWith(redlock.Options{Fair: true, Name: "a"}, nil, harness.Nodes(clients))
		first := s.settled(l, heldLong)
		came := time.Now()
		second := s.waiter(l, heldLong)
		time.Sleep(time.Second)
		s.Cluster.Cut(clients...)
		time.Sleep(2 * placeDead)
		s.Each(func(n *redlocktest.Node) { n.JumpClock(time.Hour) })
		first.stop()
		<-first.ended
		time.Sleep(time.Second)
		s.Cluster.Mend(clients...)
		time.Sleep(2 * placeDead)
		second.waits("while it is held")
		if got := s.ticketOf(1, "after the jump"); got.Sub(came.Add(time.Hour)).Abs() > time.Millisecond {
			s.Errorf("ticket: got %v after it came by the nodes' clocks, want 0", got.Sub(came.Add(time.Hour)))
		}
	})
}

// The first caller of a Locker gives up, and its entry stands for the next one, which came after that of another Locker. The
// nodes refuse the question that would move the entry there, and then the lock is free.
func TestACallerDoesNotInheritATurn(t *testing.T) {
	for late := time.Duration(0); late < 800*time.Millisecond; late += 100 * time.Millisecond {
		onStage(t, 3, func(s *stage) {
			k := s.Take(s.fair("holder"), heldLong)
			a := s.fair("a")
			first := s.settled(a, heldLong)
			other := s.settled(s.fair("b"), heldLong)
			next := s.settled(a, heldLong)
			time.Sleep(time.Second + late)
			s.FailNodes(loading, s.All()...)
			first.gives(context.Canceled)
			time.Sleep(5 * time.Millisecond)
			s.FailNodes("", s.All()...)
			s.quietly(k)
			select {
			case <-other.ended:
			case <-next.ended:
				s.Fatalf("%v: a caller that came later has the lock", late)
			}
			time.Sleep(time.Second)
			next.follows(other.lock, "the next in turn", promptly)
		})
	}
}

// The nodes do not answer for so long that the entries expire. The first answer has the waiter queue again: the lock is still
// held, and its release is announced soon.
func TestAnEntryThatLapsedIsQueuedByTheFirstAnswer(t *testing.T) {
	for late := 300 * time.Millisecond; late < 800*time.Millisecond; late += 100 * time.Millisecond {
		onStage(t, 3, func(s *stage) {
			k := s.Take(s.fair("holder"), heldLong)
			w := s.settled(s.fair("w"), heldLong)
			s.FailNodes(loading, s.All()...)
			time.Sleep(placeDead + time.Second)
			s.FailNodes("", s.All()...)
			time.Sleep(late) // it polls every 250 ms, and every 800 ms once it has an answer
			w.passes("after an outage", s.quietly(k), promptly)
		})
	}
}

// The first caller of a Locker gives its attempt back that the nodes have just granted, which has removed its entry: ctx ends, or
// another of its keys is refused. The next one, which came before that of another Locker, has its turn all the same.
func TestACallerThatGivesBackWhatItWasGrantedCostsTheNextNoTurn(t *testing.T) {
	for how, acquire := range map[string]func(s *stage, l *redlock.Locker, ctx context.Context) error{
		"Acquire, and ctx ends": func(_ *stage, l *redlock.Locker, ctx context.Context) error {
			return harness.Second(l.Acquire(ctx, job, heldLong))
		},
		"AcquireAll, and ctx ends": func(_ *stage, l *redlock.Locker, ctx context.Context) error {
			return harness.Second(l.AcquireAll(ctx, []string{job}, heldLong))
		},
		"AcquireAll, and another key is refused": func(s *stage, l *redlock.Locker, ctx context.Context) error {
			harness.Try(s, s.fair("z"), "z", heldLong)
			return harness.Second(l.AcquireAll(ctx, []string{job, "z"}, heldLong))
		},
	} {
		for _, slow := range []time.Duration{2 * time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond} {
			for _, part := range []time.Duration{1, 3} { // of the way of the reply, in quarters
				runStage(t, fmt.Sprint(how, ", ", slow, ", ", part), 3, func(s *stage) {
					k := s.Take(s.fair("holder"), heldLong)
					a := s.fair("a")
					ctx, cancel := context.WithCancel(s.Ctx)
					defer cancel()
					first := harness.Background(func() error { return acquire(s, a, ctx) })
					time.Sleep(300 * time.Millisecond)
					next := s.waiter(a, heldLong)
					time.Sleep(time.Second)
					other := s.settled(s.fair("b"), heldLong)
					time.Sleep(time.Second)
					s.Each(func(n *redlocktest.Node) { n.Delay(0, slow) }) // announcements are faster
					s.quietly(k)
					for value, held := k.Value().Secret(), true; !held || value == k.Value().Secret(); value, held = s.Node(0).Get(job) {
						time.Sleep(10 * time.Microsecond)
					}
					time.Sleep(part * slow / 4)
					if !strings.Contains(how, "key") {
						cancel()
					}
					select {
					case <-next.ended:
					case <-other.ended:
						s.Fatal("a caller that came later has the lock")
					}
					cancel()
					s.Is("the first", <-first, context.Canceled)
					s.Is("the next in turn", next.err, nil)
					other.follows(next.lock, "the other", 5*slow+200*time.Millisecond) // some round trips and, behind others, a pause
					s.Is("Release", other.lock.Release(s.Ctx), nil)
					time.Sleep(time.Second)
					s.queued("in the end")
				})
			}
		}
	}
}
