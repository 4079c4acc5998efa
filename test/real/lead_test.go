package real_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-ce352c9b/redlock"
)

// A realLeader leads under its name until it is told to resign.
type realLeader struct {
	name   string
	terms  chan int64
	resign chan bool
	ended  chan error
}

func (r *realNodes) lead(t testing.TB, ctx context.Context, name string) *realLeader {
	a := &realLeader{name: name, terms: make(chan int64, 10), resign: make(chan bool), ended: make(chan error, 1)}
	l := r.open(t, redlock.Options{Name: name})
	go func() {
		a.ended <- l.Lead(ctx, "job", time.Minute, func(ctx context.Context, lock *redlock.Lock) error {
			a.terms <- lock.Fence()
			select {
			case <-ctx.Done():
			case <-a.resign:
			}
			return nil
		})
	}()
	return a
}

// A realWatcher passes on what Watch yields, and counts how often it asks.
type realWatcher struct {
	seen  chan redlock.Status
	ended chan error
	asks  atomic.Int64
}

func (w *realWatcher) options() redlock.Options {
	return redlock.Options{Trace: redlock.Trace{Round: func(_ context.Context, r redlock.Round) {
		if r.Op == redlock.OpInspect {
			w.asks.Add(1)
		}
	}}}
}

func (w *realWatcher) watch(ctx context.Context, l *redlock.Locker) {
	w.seen, w.ended = make(chan redlock.Status, 100), make(chan error, 1)
	go func() {
		var last error
		for s, err := range l.Watch(ctx, "job") {
			if last = err; err == nil {
				w.seen <- s
			}
		}
		w.ended <- last
	}()
}

// until returns the first status with this holder; "": nobody.
func (w *realWatcher) until(t testing.TB, holder string, limit time.Duration) redlock.Status {
	t.Helper()
	for over := time.After(limit); ; {
		select {
		case s := <-w.seen:
			if s.Held == (holder != "") && s.Holder == holder {
				return s
			}
		case <-over:
			t.Fatalf("Watch has not shown the holder %q after %v", holder, limit)
		}
	}
}

// PUBLISH and SUBSCRIBE of leaders, over real servers of which one is killed: terms grow from leader to leader, and a watcher is
// told of each and asks only then. The control is a watcher whose user may not subscribe, which asks every second.
func TestRealLeadAndWatch(t *testing.T) {
	r := realStart(t, 3)
	late := realStarved(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	told, polling := new(realWatcher), new(realWatcher)
	told.watch(ctx, r.open(t, told.options()))
	polls, stop := context.WithCancel(ctx)
	defer stop()
	mute := r.mute(t, polling.options())
	polling.watch(polls, mute)
	r.realListening(t)
	told.until(t, "", realSlack(time.Second))
	expect := func(a *realLeader, before int64) int64 {
		t.Helper()
		select {
		case term := <-a.terms:
			if s := told.until(t, a.name, woken+4*late()); s.Fence < term || term <= before {
				t.Errorf("%s leads with the term %d, Watch shows %d, want at least that, and more than %d", a.name, term, s.Fence, before)
			}
			return term
		case <-time.After(realSlack(5 * time.Second)):
			t.Fatalf("%s does not lead", a.name)
		}
		return 0
	}
	a := r.lead(t, ctx, "a")
	term := expect(a, 0)
	b := r.lead(t, ctx, "b")
	r.realQueued(t, "job")
	a.resign <- true
	term = expect(b, term)

	// Nothing happens, and nobody asks but the control. By its next question the last announcement of this term has been heard.
	controls := polling.asks.Load()
	realUntil(t, 5*time.Second, "a question of the watcher that polls", func() bool { return polling.asks.Load() > controls })
	began, stats, asks := time.Now(), r.inspections(t), told.asks.Load()
	controls = polling.asks.Load()
	const poll = 1200 * time.Millisecond // longer than the pause of a watcher that hears nothing
	realUntil(t, 5*time.Second, "another one", func() bool { return polling.asks.Load() > controls && time.Since(began) > poll })
	more, control := told.asks.Load()-asks, polling.asks.Load()-controls
	if more > 0 {
		t.Errorf("the watcher asked %d times although nothing had changed", more)
	}
	if got := r.inspections(t) - stats; got > int(control)+1 { // one may be on its way
		t.Errorf("a server was asked %d times while one watcher asked %d times", got, control)
	}
	stop()
	realIs(t, "the Watch that polls", <-polling.ended, context.Canceled)
	mute.Close()

	if err := r.servers[2].Kill(); err != nil {
		t.Fatal(err)
	}
	b.resign <- true
	expect(a, term)
	cancel()
	for what, ended := range map[string]chan error{"Lead of a": a.ended, "Lead of b": b.ended, "Watch": told.ended} {
		select {
		case err := <-ended:
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%s: got %v, want the error of ctx", what, err)
			}
		case <-time.After(realSlack(5 * time.Second)):
			t.Errorf("%s does not end", what)
		}
	}
}

// inspections returns how often Inspect has asked server 0: no other script that runs meanwhile uses ZRANGE.
func (r *realNodes) inspections(t testing.TB) (n int) {
	t.Helper()
	stats, err := r.admin[0].Info(context.Background(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(stats) {
		fmt.Sscanf(line, "cmdstat_zrange:calls=%d", &n)
	}
	return n
}
