package calls_test

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
	"testing/synctest"
	"time"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/harness"
	"github.com/seed-ce352c9b/redlock/internal/seam"
)

type spanKey struct{}

// notes are what a Trace was called with.
type notes struct {
	name string // before each call
	mu   sync.Mutex
	text []string
}

// sorted returns the notes that have all of a text, in alphabetical order: a round of a lock is reported by the goroutine
// that decides it.
func (n *notes) sorted(part string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	got := slices.DeleteFunc(slices.Clone(n.text), func(s string) bool { return !strings.Contains(s, part) || s == " asks rollback" })
	slices.Sort(got)
	return strings.Join(got, "\n")
}

// trace returns a Trace that notes what it is called with, below the span of the context.
func (n *notes) trace() redlock.Trace {
	span := func(ctx context.Context) string { s, _ := ctx.Value(spanKey{}).(string); return s }
	note := func(text string) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.text = append(n.text, text)
	}
	return redlock.Trace{
		Start: func(ctx context.Context, call redlock.Call) context.Context {
			return context.WithValue(ctx, spanKey{}, span(ctx)+"/"+n.name+call.Method)
		},
		Round: func(ctx context.Context, r redlock.Round) { note(span(ctx) + " asks " + r.Op.String()) },
		End: func(ctx context.Context, call redlock.Call, err error) {
			note(fmt.Sprintf("%s ends %s %v", span(ctx), call.Method, err == nil))
		},
	}
}

// Every round belongs to the call that asked for it, and every call that begins ends.
func TestATraceFollowsEveryCall(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		var got notes
		l := s.Cold(redlock.Options{Trace: got.trace()}, nil, s.Cluster.Nodes())
		err := l.Run(s.Ctx, job, heldLong, func(ctx context.Context, k *redlock.Lock) error {
			s.Is("Extend", k.Extend(ctx), nil)
			_, err := l.TryAcquire(context.Background(), job, heldLong)
			s.Is("TryAcquire", err, redlock.ErrHeld)
			return nil
		})
		s.Is("Run", err, nil)
		l.Inspect(s.Ctx, job)
		time.Sleep(time.Second)
		want := []string{
			"/Run/Acquire asks acquire", "/Run/Acquire ends Acquire true",
			"/Run/Extend asks extend", "/Run/Extend ends Extend true",
			"/TryAcquire asks acquire", "/TryAcquire ends TryAcquire false",
			"/Run/Release asks release", "/Run/Release ends Release true", "/Run ends Run true",
			"/Inspect asks inspect", "/Inspect ends Inspect true",
		}
		slices.Sort(want)
		harness.Check(s, "calls and rounds", got.sorted(""), strings.Join(want, "\n"))
	})
}

// Each public call that asks the nodes begins and ends once, below the call that makes it, also where it is refused before
// anything is sent, and its rounds are its own.
func TestEveryCallIsTracedBelowItsCaller(t *testing.T) {
	failed := errors.New("fn's own")
	no := func(context.Context, *redlock.Lock) error { return failed }
	type calls = []string
	for method, c := range map[string]struct {
		call    func(ctx context.Context, l *redlock.Locker, key string) error
		refused calls // those that begin and end if nothing is sent
		then    calls // those besides, otherwise
		rounds  calls
		keys    bool // it is for several keys
		nests   bool // it may be refused with ErrNested
	}{
		"TryAcquire": {func(ctx context.Context, l *redlock.Locker, key string) error {
			return harness.Second(l.TryAcquire(ctx, key, heldLong))
		}, calls{"/TryAcquire"}, nil, calls{"/TryAcquire acquire"}, false, true},
		"Acquire": {func(ctx context.Context, l *redlock.Locker, key string) error {
			return harness.Second(l.Acquire(ctx, key, heldLong))
		}, calls{"/Acquire"}, nil, calls{"/Acquire acquire"}, false, true},
		"Run": {func(ctx context.Context, l *redlock.Locker, key string) error { return l.Run(ctx, key, heldLong, no) },
			calls{"/Run", "/Run/Acquire"}, calls{"/Run/Release"}, calls{"/Run/Acquire acquire", "/Run/Release release"}, false, true},
		"AcquireAll": {func(ctx context.Context, l *redlock.Locker, key string) error {
			return harness.Second(l.AcquireAll(ctx, []string{"b", key}, heldLong))
		}, calls{"/AcquireAll"}, nil, calls{"/AcquireAll acquire", "/AcquireAll acquire"}, true, true},
		"RunAll": {func(ctx context.Context, l *redlock.Locker, key string) error {
			return l.RunAll(ctx, []string{"b", key}, heldLong, func(context.Context, redlock.Locks) error { return failed })
		}, calls{"/RunAll", "/RunAll/AcquireAll"}, calls{"/RunAll/Release", "/RunAll/Release"},
			calls{"/RunAll/AcquireAll acquire", "/RunAll/AcquireAll acquire", "/RunAll/Release release", "/RunAll/Release release"}, true, true},
		"AcquireSlot": {func(ctx context.Context, l *redlock.Locker, key string) error {
			_, _, err := l.AcquireSlot(ctx, strings.TrimSuffix(key, "#0"), 1, heldLong)
			return err
		}, calls{"/AcquireSlot"}, nil, calls{"/AcquireSlot acquire"}, false, true},
		"RunSlot": {func(ctx context.Context, l *redlock.Locker, key string) error {
			return l.RunSlot(ctx, strings.TrimSuffix(key, "#0"), 1, heldLong, func(context.Context, *redlock.Lock, int) error { return failed })
		}, calls{"/RunSlot", "/RunSlot/AcquireSlot"}, calls{"/RunSlot/Release"}, calls{"/RunSlot/AcquireSlot acquire", "/RunSlot/Release release"}, false, true},
		"Lead": {func(ctx context.Context, l *redlock.Locker, key string) error { return l.Lead(ctx, key, heldLong, no) },
			calls{"/Lead", "/Lead/Run", "/Lead/Run/Acquire"}, calls{"/Lead/Run/Release"}, calls{" announce", " announce", "/Lead/Run/Acquire acquire", "/Lead/Run/Release release"}, false, true},
		"Adopt": {func(ctx context.Context, l *redlock.Locker, key string) error {
			return harness.Second(l.Adopt(ctx, key, redlock.ValueOf(otherValue), heldLong))
		}, calls{"/Adopt"}, nil, calls{"/Adopt adopt"}, false, false},
		"Inspect": {func(ctx context.Context, l *redlock.Locker, key string) error {
			return harness.Second(l.Inspect(ctx, key))
		}, calls{"/Inspect"}, nil, calls{"/Inspect inspect"}, false, false},
		"Watch": {func(ctx context.Context, l *redlock.Locker, key string) (err error) {
			for _, err = range l.Watch(ctx, key) {
				break
			}
			return err
		}, calls{"/Watch"}, calls{"/Watch/Inspect"}, calls{"/Watch/Inspect inspect"}, false, false},
	} {
		for _, how := range []string{"sent", "an invalid key", "closed", "nested"} {
			if how == "nested" && !c.nests {
				continue
			}
			runStage(t, method+", "+how, 3, func(s *stage) {
				var began, ended, rounds, unlike calls
				var mu sync.Mutex
				span := func(ctx context.Context) string { at, _ := ctx.Value(spanKey{}).(string); return at }
				key, want := job+"#0", error(nil)
				l := s.Cold(redlock.Options{Trace: redlock.Trace{
					Start: func(ctx context.Context, call redlock.Call) context.Context {
						mu.Lock()
						defer mu.Unlock()
						at := span(ctx) + "/" + call.Method
						began = append(began, at)
						return context.WithValue(ctx, spanKey{}, at)
					},
					Round: func(ctx context.Context, r redlock.Round) {
						mu.Lock()
						defer mu.Unlock()
						rounds = append(rounds, span(ctx)+" "+r.Op.String())
					},
					End: func(ctx context.Context, call redlock.Call, err error) {
						mu.Lock()
						defer mu.Unlock()
						ended = append(ended, span(ctx))
						of := key
						if strings.HasSuffix(call.Method, "Slot") {
							of = strings.TrimSuffix(key, "#0")
						}
						several := strings.HasSuffix(call.Method, "All")
						if several != c.keys && call.Method != "Release" || several && !slices.Equal(call.Keys, []string{"b", key}) ||
							!several && call.Method != "Release" && call.Key != of || how != "sent" && (err == nil || want != nil && !errors.Is(err, want)) {
							unlike = append(unlike, fmt.Sprintf("%s of %q and %q: %v", call.Method, call.Key, call.Keys, err))
						}
					},
				}}, nil, s.Cluster.Nodes())
				ctx, calls, sent := s.Ctx, c.refused, calls(nil)
				switch how {
				case "sent":
					calls, sent = append(slices.Clone(calls), c.then...), c.rounds
					if method == "Adopt" {
						for i := range 3 {
							s.Node(i).Set(key, otherValue, heldLong)
						}
					}
				case "an invalid key":
					key = ""
				case "closed":
					s.Is("Close", l.Close(), nil)
					want = redlock.ErrClosed
				case "nested":
					k, err := l.TryAcquire(ctx, key, heldLong)
					s.Is("TryAcquire", err, nil)
					var stop func()
					ctx, stop = k.KeepAlive(ctx)
					defer stop()
					want, began, ended, rounds, unlike = redlock.ErrNested, nil, nil, nil, nil
				}
				if err := c.call(ctx, l, key); (err == nil || errors.Is(err, failed)) != (how == "sent") {
					s.Errorf("got %v", err)
				}
				time.Sleep(time.Second) // nobody waits for an announcement
				mu.Lock()
				defer mu.Unlock()
				for _, all := range []struct {
					what      string
					got, want []string
				}{{"begun", began, calls}, {"ended", ended, calls}, {"rounds", rounds, sent}} {
					slices.Sort(all.got)
					slices.Sort(all.want)
					harness.Check(s, all.what, strings.Join(all.got, "\n"), strings.Join(all.want, "\n"))
				}
				if len(unlike) > 0 {
					s.Errorf("got the ends %q, want those of %q with %v", unlike, key, want)
				}
			})
		}
	}
}

// The end of a Run is told of a panic, whether that comes from fn or from a callback during the release.
func TestTheEndOfARunThatPanicsIsTold(t *testing.T) {
	for name, c := range map[string]struct {
		end     func()
		release bool // the End of Release panics
	}{
		"fn panics":             {func() { panic("fn's own") }, false},
		"fn ends its goroutine": {runtime.Goexit, false},
		"End panics":            {func() {}, true},
	} {
		runStage(t, name, 3, func(s *stage) {
			ended := make(chan error, 1)
			l := s.Locker(redlock.Options{Trace: redlock.Trace{End: func(_ context.Context, call redlock.Call, err error) {
				switch {
				case call.Method == "Run":
					ended <- err
				case call.Method == "Release" && c.release:
					panic("the caller's own")
				}
			}}})
			go func() {
				defer func() { recover() }()
				l.Run(s.Ctx, job, heldLong, func(context.Context, *redlock.Lock) error { c.end(); return nil })
			}()
			s.Is("the End of Run", <-ended, redlock.ErrPanicked)
			s.Clean(l)
		})
	}
}

// Whatever context Start returns, the error and the cause of a call are those of the caller's ctx, and a call knows under
// which locks it is made.
func TestATracerHidesNothingOfTheCallersContext(t *testing.T) {
	for name, start := range map[string]func(ctx context.Context) (context.Context, context.CancelFunc){
		"a context of its own": func(context.Context) (context.Context, context.CancelFunc) {
			return context.WithValue(context.Background(), spanKey{}, "span"), func() {}
		},
		"one that has ended": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeoutCause(context.WithValue(ctx, spanKey{}, "span"), time.Millisecond, errors.New("the tracer's"))
		},
	} {
		runStage(t, name, 3, func(s *stage) {
			l := s.Locker(redlock.Options{Trace: redlock.Trace{Start: func(ctx context.Context, _ redlock.Call) context.Context {
				ctx, stop := start(ctx)
				s.Cleanup(stop)
				return ctx
			}}})
			why := errors.New("the caller's")
			ending := func() context.Context {
				ctx, end := context.WithCancelCause(s.Ctx)
				time.AfterFunc(time.Second, func() { end(why) })
				return ctx
			}
			k := s.Take(s.Locker(redlock.Options{}), heldLong)
			err := harness.Second(l.Acquire(ending(), job, heldLong))
			harness.CheckIs(s, "Acquire", err, context.Canceled, why, redlock.ErrHeld)
			harness.CheckIsNot(s, "Acquire", err, context.DeadlineExceeded)
			s.Is("Release", k.Release(s.Ctx), nil)
			s.Is("Run", l.Run(ending(), job, heldLong, func(ctx context.Context, _ *redlock.Lock) error {
				harness.Check(t, "the span of fn's context", ctx.Value(spanKey{}), any("span"))
				<-ctx.Done()
				return context.Cause(ctx)
			}), why)
			ctx, stop := context.WithTimeout(s.Ctx, time.Second)
			defer stop()
			s.Is("Run within Run", l.Run(ctx, job, heldLong, func(ctx context.Context, _ *redlock.Lock) error {
				return l.Run(ctx, job, heldLong, harness.NoWork)
			}), redlock.ErrNested)
			s.Clean(l)
		})
	}
}

// A Release of several locks, by hand or by RunAll, is one call for each lock.
func TestReleasesOfSeveralLocksAreTraced(t *testing.T) {
	for name, release := range map[string]func(s *stage, l *redlock.Locker) error{
		"Locks": func(s *stage, l *redlock.Locker) error {
			locks, err := l.AcquireAll(s.Ctx, []string{"a", "b"}, heldLong)
			return errors.Join(err, locks.Release(s.Ctx), locks.Release(s.Ctx))
		},
		"RunAll": func(s *stage, l *redlock.Locker) error {
			return l.RunAll(s.Ctx, []string{"a", "b"}, heldLong, noWorkAll)
		},
	} {
		onStage(t, 3, func(s *stage) {
			var got notes
			l := s.Cold(redlock.Options{Trace: got.trace()}, nil, s.Cluster.Nodes())
			s.Is(name, release(s, l), nil)
			time.Sleep(time.Second)
			want := strings.Repeat("/Release asks release\n", 2) + "/Release ends Release true\n/Release ends Release true"
			harness.Check(s, name, strings.ReplaceAll(got.sorted("elease"), "/RunAll/", "/"), want)
		})
	}
}

// A panic in Start or End of one lock's release keeps no other lock from being released, and every call that began ends.
func TestAPanicInATraceReleasesAllLocks(t *testing.T) {
	for _, at := range []string{"Start", "End"} {
		runStage(t, at, 3, func(s *stage) {
			var p harness.Trap
			began, ended := 0, 0
			l := s.Locker(redlock.Options{Trace: redlock.Trace{
				Start: func(ctx context.Context, c redlock.Call) context.Context {
					if c.Method == "Release" {
						if at == "Start" {
							p.Spring()
						}
						began++
					}
					return ctx
				},
				End: func(_ context.Context, c redlock.Call, _ error) {
					if c.Method == "Release" {
						if ended++; at == "End" {
							p.Spring()
						}
					}
				},
			}})
			locks, err := l.AcquireAll(s.Ctx, []string{"a", "b", "c"}, heldLong)
			s.Is("AcquireAll", err, nil)
			p.Armed.Store(true)
			harness.Check(s, "the panic goes on to the caller", harness.Panics(func() { locks.Release(s.Ctx) }), true)
			time.Sleep(time.Second)
			if keys := s.Locked(); len(keys) > 0 || began != ended || ended < 2 {
				s.Errorf("%d calls began, %d ended, and the nodes have %v", began, ended, keys)
			}
			s.Clean(l)
		})
	}
}

// Start may return a context that ends, or none at all: the caller's alone ends the call.
func TestATracerNeitherEndsNorProlongsACall(t *testing.T) {
	over, cancel := context.WithCancel(context.Background())
	cancel()
	for name, traced := range map[string]context.Context{"nil": nil, "ended": over, "endless": context.Background()} {
		onStage(t, 3, func(s *stage) {
			l := s.Locker(redlock.Options{Trace: redlock.Trace{Start: func(context.Context, redlock.Call) context.Context { return traced }}})
			k := s.Take(l, heldLong)
			s.Is(name+": Extend", k.Extend(s.Ctx), nil)
			ctx := s.Timeout(time.Second)
			s.Lasts(name+": Acquire", time.Second, func() {
				_, err := l.Acquire(ctx, job, heldLong)
				harness.CheckIs(t, name+": Acquire", err, context.DeadlineExceeded, redlock.ErrHeld)
			})
			s.Is(name+": Release", k.Release(s.Ctx), nil)
			err := l.Run(s.Ctx, job, heldLong, func(ctx context.Context, k *redlock.Lock) error { return ctx.Err() })
			s.Is(name+": Run", err, nil)
			s.Clean(l)
		})
	}
}

// A call that a panic in Start or End ends leaves nothing, and the Locker goes on.
func TestAPanicInATraceLeavesNoLock(t *testing.T) {
	for method, c := range map[string]struct {
		round redlock.Op // that the call itself tells; 0: none
		call  func(s *stage, l *redlock.Locker, k *redlock.Lock)
	}{
		"TryAcquire": {redlock.OpAcquire, func(s *stage, l *redlock.Locker, _ *redlock.Lock) { l.TryAcquire(s.Ctx, "free", heldLong) }},
		"Acquire":    {redlock.OpAcquire, func(s *stage, l *redlock.Locker, _ *redlock.Lock) { l.Acquire(s.Ctx, "free", heldLong) }},
		"AcquireAll": {redlock.OpAcquire, func(s *stage, l *redlock.Locker, _ *redlock.Lock) {
			l.AcquireAll(s.Ctx, []string{"free", "free"}, heldLong)
		}},
		"Run": {0, func(s *stage, l *redlock.Locker, _ *redlock.Lock) { l.Run(s.Ctx, "free", heldLong, harness.NoWork) }},
		"Adopt": {redlock.OpAdopt, func(s *stage, l *redlock.Locker, _ *redlock.Lock) {
			l.Adopt(s.Ctx, "free", redlock.ValueOf(otherValue), heldLong)
		}},
		"Inspect":    {redlock.OpInspect, func(s *stage, l *redlock.Locker, _ *redlock.Lock) { l.Inspect(s.Ctx, job) }},
		"Extend":     {0, func(s *stage, _ *redlock.Locker, k *redlock.Lock) { k.Extend(s.Ctx) }},
		"Release":    {0, func(s *stage, _ *redlock.Locker, k *redlock.Lock) { k.Release(s.Ctx) }},
		"LeaveUntil": {0, func(s *stage, _ *redlock.Locker, k *redlock.Lock) { k.LeaveUntil(s.Ctx, time.Now().Add(-time.Second)) }},
	} {
		for _, at := range []string{"Start", "Round", "End"} {
			if at == "Round" && c.round == 0 {
				continue // these are observed elsewhere
			}
			runStage(t, at+" in "+method, 3, func(s *stage) {
				var p harness.Trap
				var ended error
				var l *redlock.Locker
				spring := func(what, of string) {
					if l != nil && !seam.Unlocked(l) {
						s.Errorf("%s of %s runs under a mutex", what, of)
					}
					if what == at && of == method {
						p.Spring()
					}
				}
				l = s.Locker(redlock.Options{Trace: redlock.Trace{
					Start: func(ctx context.Context, c redlock.Call) context.Context { spring("Start", c.Method); return ctx },
					End: func(_ context.Context, c redlock.Call, err error) {
						if l != nil { // earlier calls are concurrent
							ended = err
						}
						spring("End", c.Method)
					},
					Round: func(_ context.Context, r redlock.Round) {
						if r.Op == c.round {
							spring("Round", method)
						}
					},
				}})
				k := s.Take(l, heldLong)
				want := ""
				if method == "Adopt" {
					for i := range 3 {
						s.Node(i).Set("free", otherValue, heldLong)
					}
					if at != "End" {
						want = otherValue
					}
				}
				p.Armed.Store(true)
				harness.Check(s, "the panic goes on to the caller", harness.Panics(func() { c.call(s, l, k) }), true)
				if at == "Round" {
					s.Is("End after a panic", ended, redlock.ErrPanicked)
				}
				time.Sleep(time.Second)
				for i := range 3 {
					got, _ := s.Node(i).Get("free")
					harness.Check(s, fmt.Sprint("the value on node ", i), got, want)
					if method == "Release" { // the caller may not look at the lock again
						_, held := s.Node(i).Get(job)
						harness.Check(s, fmt.Sprint("the lock is on node ", i), held, false)
					}
				}
				s.EvictKey("free", 0, 1, 2)
				s.Is("Release", k.Release(s.Ctx), nil)
				s.Clean(l)
			})
		}
	}
}

// Each event, and what comes with it.
func TestEvents(t *testing.T) {
	const ttl = 3 * time.Second
	for _, c := range []struct {
		name  string
		opt   redlock.Options
		do    func(s *stage, l *redlock.Locker)
		want  []redlock.EventKind
		check func(s *stage, es []redlock.Event)
	}{
		{"released", redlock.Options{}, func(s *stage, l *redlock.Locker) {
			k := s.Take(l, ttl)
			time.Sleep(time.Second)
			s.Is("Extend", k.Extend(s.Ctx), nil)
			time.Sleep(500 * time.Millisecond)
			k.Release(s.Ctx)
			k.Release(s.Ctx)
		}, []redlock.EventKind{redlock.EventRenewed, redlock.EventReleased}, func(s *stage, es []redlock.Event) {
			s.near("left when it was renewed", es[0].Left, harness.ValidFor(ttl, 1)-time.Second)
			s.near("held", es[1].Held, 1500*time.Millisecond)
			s.near("left", es[1].Left, harness.ValidFor(ttl, 1)-500*time.Millisecond)
			s.Is("renewed", es[0].Err, nil)
			s.Is("released", es[1].Err, nil)
		}},
		{"released by Close", redlock.Options{}, func(s *stage, l *redlock.Locker) {
			s.Take(l, ttl)
			l.Close()
		}, []redlock.EventKind{redlock.EventReleased}, nil},
		{"released too late", redlock.Options{}, func(s *stage, l *redlock.Locker) {
			k := s.Take(l, ttl)
			time.Sleep(2 * ttl)
			s.Is("Release", k.Release(s.Ctx), redlock.ErrLost)
		}, []redlock.EventKind{redlock.EventReleased}, func(s *stage, es []redlock.Event) {
			s.Is("released", es[0].Err, redlock.ErrLost)
			s.near("held", es[0].Held, 2*ttl)
			if es[0].Left > 0 {
				s.Errorf("left: got %v, want nothing", es[0].Left)
			}
		}},
		{"left", redlock.Options{}, func(s *stage, l *redlock.Locker) {
			k := s.Take(l, ttl)
			k.LeaveUntil(s.Ctx, k.Until())
			k.Release(s.Ctx)
		}, []redlock.EventKind{redlock.EventLeft}, nil},
		{"renewed and lost", redlock.Options{}, func(s *stage, l *redlock.Locker) {
			held := s.Keep(s.Take(l, ttl))
			s.FailNodes(loading, 0, 1)
			s.Ended(held, time.Minute)
		}, nil, func(s *stage, es []redlock.Event) {
			es = slices.DeleteFunc(es, func(e redlock.Event) bool { return e.Node != "" })
			at := slices.IndexFunc(es, func(e redlock.Event) bool { return e.Kind == redlock.EventLost })
			if at < 3 {
				s.Fatalf("got a loss after %d renewals that failed, want several", at)
			}
			lost := es[at]
			s.Is("lost", lost.Err, redlock.ErrLost)
			s.near("held", lost.Held, harness.ValidFor(ttl, 1))
			for _, e := range es[:at] {
				s.Is("a renewal", e.Err, redlock.ErrNoQuorum)
			}
		}},
		{"lost within the grace, and released", redlock.Options{Grace: time.Second}, func(s *stage, l *redlock.Locker) {
			k := s.Take(l, ttl)
			held := s.Keep(k)
			for i := range 3 {
				s.Once(i, "extend", func() {})
				s.Node(i).FailCommand("evalsha", "ERR no")
			}
			s.Ended(held, time.Minute)
			s.FailCommand("evalsha", "", 0, 1, 2)
			s.Is("Release", k.Release(s.Ctx), nil)
		}, nil, func(s *stage, es []redlock.Event) {
			if n := len(slices.DeleteFunc(es, func(e redlock.Event) bool { return e.Kind == redlock.EventRenewed || e.Node != "" })); n != 1 {
				s.Errorf("ends of the lock: got %d, want 1", n)
			}
		}},
		{"healed", redlock.Options{}, func(s *stage, l *redlock.Locker) {
			k := s.Take(l, ttl)
			s.Node(1).Evict(job)
			s.Is("Extend", k.Extend(s.Ctx), nil)
			time.Sleep(time.Second)
		}, []redlock.EventKind{redlock.EventRenewed, redlock.EventHealed}, func(s *stage, es []redlock.Event) {
			harness.Check(s, "the node", es[1].Node, s.Node(1).Addr())
		}},
		{"a node is down, and up again", redlock.Options{}, func(s *stage, l *redlock.Locker) {
			s.Node(2).Hang()
			k := s.Take(l, heldLong)
			time.Sleep(5 * time.Second)
			s.Node(2).Resume()
			time.Sleep(5 * time.Second)
			k.LeaveUntil(s.Ctx, k.Until())
		}, []redlock.EventKind{redlock.EventNodeDown, redlock.EventNodeUp, redlock.EventLeft}, func(s *stage, es []redlock.Event) {
			harness.Check(s, "the node", es[0].Node, s.Node(2).Addr())
			harness.Check(s, "the node", es[1].Node, s.Node(2).Addr())
			s.Says(es[0].Err, "timeout 1s")
			if d := es[1].Down; d < 4*time.Second || d > 5*time.Second {
				s.Errorf("down for %v, want some 4s", d)
			}
		}},
		{"a node is quarantined", redlock.Options{RestartGuard: 10 * time.Second}, func(s *stage, l *redlock.Locker) {
			leave(s, s.Take(l, ttl))
			s.Node(0).Restart(false)
			s.Reconnect(l)
			for range 3 {
				time.Sleep(4 * time.Second)
				leave(s, s.Take(l, ttl))
			}
		}, nil, func(s *stage, es []redlock.Event) {
			es = slices.DeleteFunc(es, func(e redlock.Event) bool { return e.Node != s.Node(0).Addr() })
			var kinds []redlock.EventKind
			for _, e := range es {
				kinds = append(kinds, e.Kind)
			}
			at := slices.Index(kinds, redlock.EventNodeQuarantined)
			if at < 0 || len(es) != at+2 || es[at+1].Kind != redlock.EventNodeUp {
				s.Fatalf("got %v, want a quarantine and its end", kinds)
			}
			s.Says(es[at].Err, "quarantined ")
			if es[at+1].Down < 3*time.Second {
				s.Errorf("quarantined for %v, want some 4s", es[at+1].Down)
			}
		}},
	} {
		runStage(t, c.name, 3, func(s *stage) {
			var seen harness.Observer
			c.opt.Trace = seen.Trace()
			var l *redlock.Locker
			c.opt.Trace.Event = func(e redlock.Event) {
				if l != nil && !seam.Unlocked(l) {
					s.Errorf("%v is told under a mutex", e.Kind)
				}
				seen.Trace().Event(e)
			}
			l = s.Locker(c.opt)
			c.do(s, l)
			time.Sleep(10 * time.Millisecond)
			es := slices.DeleteFunc(seen.Events(), func(e redlock.Event) bool { return e.Kind == redlock.EventAcquired }) // see below
			var kinds []redlock.EventKind
			for _, e := range es {
				if kinds = append(kinds, e.Kind); e.Kind != redlock.EventHealed && (e.Lock == nil) == (e.Node == "") {
					s.Errorf("%v: got the lock %v and the node %q, want one of them", e.Kind, e.Lock, e.Node)
				}
			}
			if c.want != nil && !slices.Equal(kinds, c.want) {
				s.Fatalf("got %v, want %v", kinds, c.want)
			}
			if c.check != nil {
				c.check(s, es)
			}
		})
	}
}

// A gauge that an acquisition raises, and the end of a lock lowers, is never negative and returns to 0, whatever happens to
// the locks: each of them begins once and then ends once.
func TestLocksThatAreHeldCanBeCounted(t *testing.T) {
	const ttl = 3 * time.Second
	for name, c := range map[string]struct {
		do   func(s *stage, l *redlock.Locker)
		want int // locks acquired
	}{
		"released, twice": {func(s *stage, l *redlock.Locker) {
			k := s.Take(l, ttl)
			s.Is("Release", k.Release(s.Ctx), nil)
			s.Is("Release again", k.Release(s.Ctx), nil)
		}, 1},
		"run": {func(s *stage, l *redlock.Locker) { l.Run(s.Ctx, job, ttl, harness.NoWork) }, 1},
		"run, and fn panics": {func(s *stage, l *redlock.Locker) {
			harness.Panics(func() { l.Run(s.Ctx, job, ttl, func(context.Context, *redlock.Lock) error { panic("fn's own") }) })
		}, 1},
		"several": {func(s *stage, l *redlock.Locker) { l.RunAll(s.Ctx, []string{"a", "b", "a"}, ttl, noWorkAll) }, 2},
		"a slot": {func(s *stage, l *redlock.Locker) {
			l.RunSlot(s.Ctx, job, 3, ttl, func(context.Context, *redlock.Lock, int) error { return nil })
		}, 1},
		"a term": {func(s *stage, l *redlock.Locker) {
			l.Lead(s.Ctx, job, ttl, func(context.Context, *redlock.Lock) error { return errors.New("enough") })
		}, 1},
		"refused": {func(s *stage, l *redlock.Locker) {
			s.Foreign(time.Minute, 0, 1)
			s.Is("TryAcquire", harness.Second(l.TryAcquire(s.Ctx, job, ttl)), redlock.ErrHeld)
			s.Is("AcquireAll", harness.Second(l.AcquireAll(s.Ctx, []string{"a", job}, ttl, redlock.WithWait(0))), redlock.ErrHeld)
		}, 0},
		"left": {func(s *stage, l *redlock.Locker) {
			k := s.Take(l, ttl)
			s.Is("LeaveUntil", k.LeaveUntil(s.Ctx, time.Now().Add(2*ttl)), nil)
			k.Release(s.Ctx)
		}, 1},
		"left when the time had passed": {func(s *stage, l *redlock.Locker) {
			s.Is("LeaveUntil", s.Take(l, ttl).LeaveUntil(s.Ctx, time.Now().Add(-time.Second)), nil)
		}, 1},
		"lost": {func(s *stage, l *redlock.Locker) {
			k := s.Take(l, ttl)
			held := s.Keep(k)
			s.FailNodes(loading, 0, 1)
			s.Ended(held, time.Minute)
			k.Release(s.Ctx)
		}, 1},
		"lost to an adopter": {func(s *stage, l *redlock.Locker) {
			k := s.Take(l, ttl)
			s.Is("Adopt", harness.Second(l.Adopt(s.Ctx, job, k.Value(), ttl)), nil)
			s.Is("Extend", k.Extend(s.Ctx), redlock.ErrLost)
		}, 2},
		"expired": {func(s *stage, l *redlock.Locker) { s.Take(l, ttl); time.Sleep(time.Minute) }, 1},
		"expired, and released late": {func(s *stage, l *redlock.Locker) {
			k := s.Take(l, ttl)
			time.Sleep(time.Minute)
			s.Is("Release", k.Release(s.Ctx), redlock.ErrLost)
		}, 1},
		"released by Close":         {func(s *stage, l *redlock.Locker) { s.Take(l, ttl) }, 1},
		"expired, and then a Close": {func(s *stage, l *redlock.Locker) { s.Take(l, ttl); time.Sleep(2 * ttl) }, 1},
		"released by a Close that too few nodes answer": {func(s *stage, l *redlock.Locker) {
			s.Take(l, ttl)
			s.Node(0).Hang()
			s.Node(1).Hang()
		}, 1},
	} {
		runStage(t, name, 3, func(s *stage) {
			g := gauge{s: s}
			l := s.Locker(redlock.Options{Trace: redlock.Trace{Event: g.event}})
			c.do(s, l)
			l.Close()
			time.Sleep(time.Minute)
			g.is(c.want)
		})
	}
}

// A lock may be released, by one who finds it with Held, while its acquisition is being told.
func TestTheEndOfALockIsToldAfterItsAcquisition(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		var l *redlock.Locker
		told, ended := false, false
		l = s.Locker(redlock.Options{Trace: redlock.Trace{Event: func(e redlock.Event) {
			switch e.Kind {
			case redlock.EventAcquired:
				go func() {
					for k := range l.Held() {
						k.Release(s.Ctx)
					}
				}()
				time.Sleep(time.Second) // virtual: a callback must not block
				told = true
			case redlock.EventReleased:
				if ended = true; !told {
					s.Error("the release was told while the acquisition was being told")
				}
			}
		}}})
		l.TryAcquire(s.Ctx, job, heldLong)
		time.Sleep(time.Second)
		harness.Check(s, "the end was told", ended, true)
	})
}

// If the callback panics that is told of an acquisition, the lock is released.
func TestAPanicAtAnAcquisitionLeavesNoLock(t *testing.T) {
	for name, acquire := range map[string]func(s *stage, l *redlock.Locker){
		"TryAcquire":  func(s *stage, l *redlock.Locker) { l.TryAcquire(s.Ctx, job, heldLong) },
		"Acquire":     func(s *stage, l *redlock.Locker) { l.Acquire(s.Ctx, job, heldLong) },
		"AcquireAll":  func(s *stage, l *redlock.Locker) { l.AcquireAll(s.Ctx, []string{"a", job}, heldLong) },
		"AcquireSlot": func(s *stage, l *redlock.Locker) { l.AcquireSlot(s.Ctx, job, 2, heldLong) },
		"Adopt": func(s *stage, l *redlock.Locker) {
			l.Adopt(s.Ctx, job, s.Take(s.Locker(redlock.Options{}), heldLong).Value(), heldLong)
		},
	} {
		runStage(t, name, 3, func(s *stage) {
			g := gauge{s: s}
			var p harness.Trap
			p.Armed.Store(true)
			l := s.Locker(redlock.Options{Trace: redlock.Trace{Event: func(e redlock.Event) {
				if g.event(e); e.Kind == redlock.EventAcquired {
					p.Spring()
				}
			}}})
			harness.Check(s, "the panic goes on to the caller", harness.Panics(func() { acquire(s, l) }), true)
			time.Sleep(time.Second)
			g.is(1)
			if keys := s.Locked(); len(keys) > 0 {
				s.Errorf("the nodes have %v", keys)
			}
			s.Clean(l)
		})
	}
}

// A gauge counts the locks that a Trace is told of.
type gauge struct {
	s     *stage
	mu    sync.Mutex
	ended map[*redlock.Lock]bool // by lock that has begun
}

func (g *gauge) event(e redlock.Event) {
	g.mu.Lock()
	defer g.mu.Unlock()
	ended, begun := g.ended[e.Lock]
	switch e.Kind {
	case redlock.EventAcquired:
		if begun {
			g.s.Errorf("%v was acquired twice", e.Lock)
		}
		if g.ended == nil {
			g.ended = make(map[*redlock.Lock]bool)
		}
		g.ended[e.Lock] = false
	case redlock.EventLost, redlock.EventReleased, redlock.EventLeft:
		if !begun || ended {
			g.s.Errorf("%v is told as %v: begun %v, ended before %v", e.Lock, e.Kind, begun, ended)
		}
		g.ended[e.Lock] = true
	}
}

// is fails the test unless so many locks have begun, and all of them have ended.
func (g *gauge) is(want int) {
	g.s.Helper()
	synctest.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	harness.Check(g.s, "locks acquired", len(g.ended), want)
	for k, ended := range g.ended {
		if !ended {
			g.s.Errorf("%v has not ended", k)
		}
	}
}

// One server under two names.
func TestADuplicateNodeIsAnEvent(t *testing.T) {
	onStage(t, 2, func(s *stage) {
		var seen harness.Observer
		nodes := s.Cluster.Nodes()
		l := s.Cold(redlock.Options{Trace: seen.Trace()}, nil, append(nodes, s.Cluster.Nodes()[1]))
		l.Inspect(s.Ctx, job)
		es := seen.Events(redlock.EventNodeDuplicate)
		if len(es) != 1 {
			t.Fatalf("got %v, want one", seen.Events())
		}
		s.Says(es[0].Err, "same server as "+s.Node(1).Addr())
	})
}

// near fails the test unless got is want, but for a few round trips.
func (s *stage) near(what string, got, want time.Duration) {
	s.Helper()
	if d := got - want; d < -5*time.Millisecond || d > 5*time.Millisecond {
		s.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// leave gives a lock up; its key stays until its ttl ends.
func leave(s *stage, k *redlock.Lock) { s.Is("LeaveUntil", k.LeaveUntil(s.Ctx, k.Until()), nil) }

// Of several Traces, each sees what it would see alone, also if they use the same keys, and a panic in one of them does not
// keep the others from being called.
func TestTracesAreCalledAsIfAlone(t *testing.T) {
	type ownKey struct{}
	work := func(s *stage, l *redlock.Locker) {
		s.Is("Run", l.Run(s.Ctx, job, heldLong, func(ctx context.Context, k *redlock.Lock) error {
			ctx = context.WithValue(ctx, ownKey{}, "fn's own")
			return errors.Join(k.Extend(ctx), l.RunAll(ctx, []string{"a", "b"}, heldLong, func(ctx context.Context, _ redlock.Locks) error {
				harness.Check(t, "a value that fn has added", ctx.Value(ownKey{}), any("fn's own"))
				ctx = context.WithValue(ctx, spanKey{}, "fn's own")
				_, err := l.Acquire(ctx, job, heldLong)
				s.Is("Acquire", err, redlock.ErrNested)
				return harness.Second(l.Inspect(ctx, job))
			}))
		}), nil)
		time.Sleep(time.Second)
	}
	onStage(t, 3, func(s *stage) {
		var alone, first notes
		last := notes{name: "last "}
		work(s, s.Cold(redlock.Options{Trace: alone.trace()}, nil, s.Cluster.Nodes()))
		var order []string
		ends := func(name string) redlock.Trace {
			return redlock.Trace{End: func(context.Context, redlock.Call, error) { order = append(order, name) }}
		}
		passive := redlock.Trace{Start: func(ctx context.Context, _ redlock.Call) context.Context {
			return context.WithValue(ctx, ownKey{}, ctx.Value(ownKey{}))
		}}
		trace := redlock.Traces(passive, ends("a"), first.trace(), redlock.Trace{}, last.trace(), ends("b"))
		l := s.Cold(redlock.Options{Trace: trace}, nil, s.Cluster.Nodes())
		work(s, l)
		harness.Check(s, "what the first is told", first.sorted(""), alone.sorted(""))
		harness.Check(s, "what the last is told", last.sorted(""), strings.ReplaceAll(alone.sorted(""), "/", "/last "))
		order = nil
		l.Inspect(s.Ctx, job)
		harness.Check(s, "the order of the ends", strings.Join(order, " "), "b a")
		if redlock.Traces(redlock.Trace{}, redlock.Trace{}).Round != nil {
			s.Error("Traces without a Round have one")
		}
	})
	for _, at := range []string{"Start", "Round", "End", "Event"} {
		runStage(t, "a panic in "+at, 3, func(s *stage) {
			var p harness.Trap
			var began, ended, rounds, events [3]atomic.Int64
			count := func(i int) redlock.Trace {
				spring := func(what string) {
					if i == 1 && what == at {
						p.Spring()
					}
				}
				return redlock.Trace{
					Start: func(ctx context.Context, _ redlock.Call) context.Context {
						spring("Start")
						began[i].Add(1)
						return ctx
					},
					Round: func(context.Context, redlock.Round) { rounds[i].Add(1); spring("Round") },
					End:   func(context.Context, redlock.Call, error) { ended[i].Add(1); spring("End") },
					Event: func(e redlock.Event) {
						if events[i].Add(1); e.Kind == redlock.EventAcquired {
							spring("Event")
						}
					},
				}
			}
			l := s.Locker(redlock.Options{Trace: redlock.Traces(count(0), count(1), count(2))})
			was := began[2].Load() // of what the stage does with a new Locker
			p.Armed.Store(true)
			harness.Check(s, "the panic goes on to the caller", harness.Panics(func() { l.TryAcquire(s.Ctx, job, heldLong) }), true)
			time.Sleep(time.Second)
			for i := range 3 {
				if began[i].Load() != ended[i].Load() {
					s.Errorf("Trace %d: %d calls begun, %d ended", i, began[i].Load(), ended[i].Load())
				}
			}
			if at != "Start" && began[2].Load() != was+1 || rounds[0].Load() != rounds[2].Load() || events[0].Load() != events[2].Load() {
				s.Errorf("the last: %d calls, %d rounds, %d events; the first: %d, %d and %d: want as many", began[2].Load(), rounds[2].Load(), events[2].Load(), began[0].Load(), rounds[0].Load(), events[0].Load())
			}
			s.Clean(l)
		})
	}
}

// Values that cannot be compared with ==, as baggages that are maps: each Trace has its own, fn has the first one's, and what fn
// puts in their place goes before all. An earlier Trace that leaves them as they are hides none.
func TestTracesAndValuesThatCannotBeCompared(t *testing.T) {
	type key struct{}
	type bag struct{ list []string }
	for kind, of := range map[string]struct {
		wrap func(text string) any
		text func(v any) string
	}{
		"map":    {func(text string) any { return map[string]int{text: 1} }, func(v any) string { return slices.Collect(maps.Keys(v.(map[string]int)))[0] }},
		"slice":  {func(text string) any { return []string{text} }, func(v any) string { return v.([]string)[0] }},
		"struct": {func(text string) any { return bag{[]string{text}} }, func(v any) string { return v.(bag).list[0] }},
		"array":  {func(text string) any { return [1]any{bag{[]string{text}}} }, func(v any) string { return v.([1]any)[0].(bag).list[0] }},
		"string": {func(text string) any { return text }, func(v any) string { return v.(string) }},
	} {
		runStage(t, kind, 3, func(s *stage) {
			var given []string
			told := func(ctx context.Context) string { return of.text(ctx.Value(key{})) }
			note := func(text string, c redlock.Call) {
				if c.Method == "Run" || c.Method == "Extend" { // the calls of a new Locker's stage come at once
					given = append(given, text)
				}
			}
			trace := func(name string) redlock.Trace {
				return redlock.Trace{
					Start: func(ctx context.Context, c redlock.Call) context.Context {
						note(name+" "+c.Method+" "+told(ctx), c)
						return context.WithValue(ctx, key{}, of.wrap(told(ctx)+"+"+name))
					},
					End: func(ctx context.Context, c redlock.Call, _ error) {
						note(name+" ends "+c.Method+" "+told(ctx), c)
					},
				}
			}
			s.Ctx = context.WithValue(s.Ctx, key{}, of.wrap("caller"))
			passive := redlock.Trace{Start: func(ctx context.Context, _ redlock.Call) context.Context { return ctx }}
			l := s.LockerWith(redlock.Options{Trace: redlock.Traces(passive, trace("a"), trace("b"))}, nil, s.Cluster.Nodes())
			s.Is("Run", l.Run(s.Ctx, job, heldLong, func(ctx context.Context, k *redlock.Lock) error {
				harness.Check(s, "what fn gets", told(ctx), "caller+a")
				err := k.Extend(ctx)
				return errors.Join(err, k.Extend(context.WithValue(ctx, key{}, of.wrap("fn"))))
			}), nil)
			harness.Check(s, "what the Traces get", strings.Join(given, ", "), strings.Join([]string{
				"a Run caller", "b Run caller",
				"a Extend caller+a", "b Extend caller+b", "b ends Extend caller+b+b", "a ends Extend caller+a+a",
				"a Extend fn", "b Extend fn", "b ends Extend fn+b", "a ends Extend fn+a",
				"b ends Run caller+b", "a ends Run caller+a"}, ", "))
		})
	}
}
