package waiting_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/harness"
	"github.com/seed-ce352c9b/redlock/internal/seam"
)

// Leaders that resign take turns: whoever resigned does not win again while others wait.
func TestALeaderThatResignsLetsOthersWin(t *testing.T) {
	for _, subscribed := range []bool{true, false} {
		runStage(t, fmt.Sprintf("subscribed=%v", subscribed), 3, func(s *stage) {
			ctx, cancel := context.WithCancel(s.Ctx)
			var mu sync.Mutex
			var terms []int64
			var leaders []int
			var all sync.WaitGroup
			for i := range 3 {
				nodes := s.Cluster.Nodes()
				for i, n := range nodes {
					if !subscribed {
						nodes[i] = mute{n}
					}
				}
				l := s.LockerWith(redlock.Options{}, nil, nodes)
				all.Go(func() {
					err := l.Lead(ctx, job, heldLong, func(ctx context.Context, lock *redlock.Lock) error {
						defer time.Sleep(600 * time.Millisecond) // all others are back by then
						mu.Lock()
						defer mu.Unlock()
						terms, leaders = append(terms, lock.Fence()), append(leaders, i)
						if !lock.Valid() || ctx.Err() != nil {
							s.Error("a term began without the lock")
						}
						return nil
					})
					harness.CheckIs(s, "Lead", err, context.Canceled)
				})
			}
			time.Sleep(time.Minute)
			cancel()
			all.Wait()
			if len(terms) < 60 {
				s.Errorf("%d terms in a minute, want that nobody waits for long", len(terms))
			}
			for i := range terms[1:] {
				if terms[i] >= terms[i+1] {
					s.Errorf("terms: got %d and then %d, want them to grow", terms[i], terms[i+1])
				}
				if leaders[i] == leaders[i+1] {
					s.Errorf("terms %d and %d of the same leader, want another between them", i, i+1)
				}
			}
		})
	}
}

// What ends Lead, and what does not.
func TestLeadEnds(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		errMine := errors.New("mine")
		terms := 0
		err := l.Lead(s.Ctx, job, 2*time.Second, func(ctx context.Context, lock *redlock.Lock) error {
			if terms++; terms > 1 {
				return errMine
			}
			s.Foreign(time.Second, 0, 1, 2)
			<-ctx.Done()
			return ctx.Err() // the loss does not end Lead, whatever fn returns
		})
		harness.CheckIs(t, "Lead whose fn fails", err, errMine)
		harness.Check(t, "terms", terms, 2)
		s.Clean(l)
		done := harness.Background(func() error {
			return l.Lead(s.Ctx, job, heldLong, func(ctx context.Context, _ *redlock.Lock) error { <-ctx.Done(); return nil })
		})
		time.Sleep(time.Second)
		nested := l.Lead(s.Ctx, job, heldLong, harness.NoWork, redlock.WithWait(0))
		s.Is("Lead of a lock that is held, with a limit", nested, redlock.ErrHeld)
		l.Close()
		if err := <-done; !errors.Is(err, redlock.ErrClosed) && !errors.Is(err, redlock.ErrLost) {
			t.Errorf("Lead on a Locker that is closed: got %v, want ErrClosed", err)
		}
		time.Sleep(time.Second)
		s.Carry("after Close", redlock.Value{}, 0, 1, 2)
	})
}

// An fn that releases the lock itself has resigned: others win before it leads again, and its error ends Lead.
func TestALeaderThatReleasesTheLockItselfHasResigned(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		ctx, cancel := context.WithTimeout(s.Ctx, 3*time.Second)
		defer cancel()
		terms := 0
		err := l.Lead(ctx, job, heldLong, func(ctx context.Context, lock *redlock.Lock) error {
			terms++
			return lock.Release(ctx)
		})
		harness.CheckIs(t, "Lead", err, context.DeadlineExceeded)
		if terms < 5 || terms > 13 {
			t.Errorf("%d terms in 3s, want a pause of 250 to 500ms after each", terms)
		}
		errMine := errors.New("mine")
		ctx = s.Timeout(time.Second)
		err = l.Lead(ctx, job, heldLong, func(ctx context.Context, lock *redlock.Lock) error {
			defer lock.Release(ctx)
			return errMine
		})
		if err != errMine {
			t.Errorf("Lead whose fn fails: got %v, want fn's error alone", err)
		}
		s.Clean(l)
	})
}

// A watcher is told of each leader by an announcement, and hardly asks otherwise.
func TestAWatcherIsToldOfEachLeader(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		type seen struct {
			status redlock.Status
			err    error
			at     time.Time
		}
		w := s.Locker(redlock.Options{})
		ctx, cancel := context.WithCancel(s.Ctx)
		told := make(chan seen, 100)
		go func() {
			defer close(told)
			for status, err := range w.Watch(ctx, job) {
				told <- seen{status, err, time.Now()}
			}
		}()
		expect := func(what, holder string, began time.Time, within time.Duration) {
			t.Helper()
			got := <-told
			if got.err != nil || got.status.Held != (holder != "") || got.status.Holder != holder {
				t.Errorf("%s: got %v, %v, want %q", what, got.status, got.err, holder)
			}
			if d := got.at.Sub(began); d > within {
				t.Errorf("%s was told after %v, want %v", what, d, within)
			}
		}
		expect("nobody", "", time.Now(), 10*oneTrip)
		time.Sleep(time.Second)
		for _, name := range []string{"a", "b"} {
			l := s.Locker(redlock.Options{Name: name})
			lead, resign := context.WithCancel(s.Ctx)
			starts := make(chan time.Time, 1)
			done := harness.Background(func() error {
				return l.Lead(lead, job, heldLong, func(ctx context.Context, _ *redlock.Lock) error {
					starts <- time.Now()
					<-ctx.Done()
					return nil
				})
			})
			time.Sleep(3 * time.Second)
			expect("the leader", name, <-starts, 10*oneTrip)
			s.Record()
			time.Sleep(10 * time.Second)
			if n := len(s.Told(0, "inspect")); n > 12 {
				t.Errorf("a node was asked %d times in 10s", n)
			}
			began := time.Now()
			resign()
			harness.CheckIs(t, "Lead", <-done, context.Canceled)
			expect("the end of the term", "", began, 10*oneTrip)
		}
		cancel()
		if last := <-told; !errors.Is(last.err, context.Canceled) {
			t.Errorf("at the end: got %v, want the error of ctx", last.err)
		}
		if _, more := <-told; more {
			t.Error("more after the end")
		}
		time.Sleep(20 * time.Second)
		for i, n := range seam.Peek(w).Nodes {
			harness.Check(t, "subscriptions to node "+s.Node(i).Name(), n.Subscribed, 0)
		}
	})
}

// Without announcements, and of a leader that crashed, a watcher learns by the ttl and by asking.
func TestAWatcherLearnsOfACrash(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		w := s.Locker(redlock.Options{})
		s.Foreign(3*time.Second, s.All()...)
		var states []bool
		began := time.Now()
		for status, err := range w.Watch(s.Ctx, job) {
			if s.Is("Watch", err, nil); err != nil {
				break
			}
			if states = append(states, status.Held); !status.Held {
				break
			}
		}
		if len(states) != 2 || !states[0] {
			t.Errorf("got %v, want held and then free", states)
		}
		if d := time.Since(began); d > 3*time.Second+20*time.Millisecond {
			t.Errorf("told after %v, want the ttl", d)
		}
	})
}

// A leader whose fn panics, or ends its goroutine, has resigned: the lock is free, and those who watch are told at once.
func TestALeaderThatPanicsHasResigned(t *testing.T) {
	for name, end := range map[string]func(){"panic": func() { panic("the user's own") }, "Goexit": runtime.Goexit} {
		onStage(t, 3, func(s *stage) {
			l, w := s.Locker(redlock.Options{}), s.Locker(redlock.Options{})
			var ended time.Time
			done := make(chan any, 1)
			go func() {
				defer func() { done <- recover() }()
				time.Sleep(3 * time.Second) // the watcher hears all nodes by then
				l.Lead(s.Ctx, job, heldLong, func(context.Context, *redlock.Lock) error {
					time.Sleep(3 * time.Second)
					ended = time.Now()
					end()
					return nil
				})
			}()
			var states []bool
			for status, err := range w.Watch(s.Ctx, job) {
				s.Is("Watch", err, nil)
				if states = append(states, status.Held); len(states) > 1 && !status.Held {
					break
				}
			}
			if d := time.Since(ended); len(states) != 3 || d > 10*oneTrip {
				t.Errorf("%s: told of %v, the last %v after the end of the term, want it at once", name, states, d)
			}
			if got := <-done; name == "panic" && got != "the user's own" {
				t.Errorf("%s: recovered: got %v, want the user's own", name, got)
			}
			s.Clean(l, w)
		})
	}
}

// The context or Close that ends a watch comes while the nodes are asked: its error is the last one all the same, and
// nothing is told twice.
func TestAWatchEndsWithTheErrorOfWhatEndedIt(t *testing.T) {
	for _, failing := range []bool{false, true} {
		for name, want := range map[string]error{"ctx": context.Canceled, "Close": redlock.ErrClosed} {
			runStage(t, fmt.Sprintf("%s, failing=%v", name, failing), 3, func(s *stage) {
				ctx, cancel := context.WithCancel(s.Ctx)
				defer cancel()
				var l *redlock.Locker
				asked := 0
				round := func(_ context.Context, r redlock.Round) {
					if r.Op != redlock.OpInspect || r.Key != job {
						return
					}
					if asked++; asked != 3 {
						return
					}
					if name == "ctx" {
						cancel()
						return
					}
					go l.Close()
					time.Sleep(time.Millisecond) // Close has begun
				}
				l = s.Locker(redlock.Options{Trace: redlock.Trace{Round: round}})
				if failing {
					s.FailNodes(loading, 0, 1, 2)
				}
				var told []error
				for _, err := range l.Watch(ctx, job) {
					told = append(told, err)
				}
				if len(told) != 2 || !errors.Is(told[1], want) {
					s.Errorf("got %q, want what the nodes replied, once, and then %v", told, want)
				}
			})
		}
	}
}
