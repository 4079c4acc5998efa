package queue

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/clock"
	"github.com/seed-ce352c9b/redlock/internal/quorum"
	_ "github.com/seed-ce352c9b/redlock/internal/rapidseed" // the same cases each time
	"github.com/seed-ce352c9b/redlock/internal/wait"
	"github.com/seed-ce352c9b/redlock/internal/wire"

	"pgregory.net/rapid"
)

// A line is the queue of one key and what it ought to hold.
type line struct {
	t       rapid.TB
	w       *Queues
	name    *wire.LockKey
	callers []*Waiter
	handed  *quorum.Call // to the first caller, and not claimed
	placed  int          // callers that wait elsewhere
}

const most = 4 // MaxWaiters

var handOvers int // of the whole test

func ask() *quorum.Call {
	return quorum.New(nil, 0, &wire.LockKey{Full: "k"}, wire.Question{Value: "value"}, clock.Real(), func(quorum.Tally) bool { return false })
}

func newLine(t rapid.TB) *line {
	q := &line{t: t, name: &wire.LockKey{Full: "k"}}
	q.w = New(Config{
		Rules:      wait.Rules{Need: 1, Retry: func(int) time.Duration { return time.Hour }, RetryFirst: time.Hour, RetryMost: time.Hour, Rand: func() float64 { return 0 }},
		MaxWaiters: most,
		Now:        clock.Real,
		UUID:       func() string { return "uuid" },
		Closed:     func() bool { return false },
		Removal:    func(*wire.LockKey, string, time.Duration) *quorum.Call { return ask() },
		Send:       func(*quorum.Call) { t.Error("nobody announces anything") },
	})
	return q
}

func (q *line) join() {
	m := new(Waiter)
	placed := q.placed > 0
	if placed {
		q.placed--
	}
	ahead, ok := q.w.Join(m, q.name, "label", time.Minute, time.Now(), placed)
	if want := len(q.callers)+q.placed < most; ok != want || ok && ahead != len(q.callers) || m.Joined() != want {
		q.t.Fatalf("a caller behind %d, with %d elsewhere: got %d ahead, joined %v; at most %d may wait", len(q.callers), q.placed, ahead, ok, most)
	}
	if ok {
		q.callers = append(q.callers, m)
	}
}

// place counts a caller that waits elsewhere, or if it is not to wait any more, no longer.
func (q *line) place(gives bool) {
	if gives {
		q.w.Give(q.name.Full)
		q.placed--
		return
	}
	ok := q.w.Take(q.name.Full)
	if want := len(q.callers)+q.placed < most; ok != want {
		q.t.Fatalf("a place with %d callers and %d elsewhere: got %v; at most %d may wait", len(q.callers), q.placed, ok, most)
	}
	if ok {
		q.placed++
	}
}

// leave takes a caller out that gives up, as Acquire does.
func (q *line) leave(i int) {
	m := q.callers[i]
	b := q.w.GiveUp(m)
	if i == 0 && b != q.handed || i > 0 && b != nil {
		q.t.Fatalf("caller %d of %d gives up: it was handed %p, want %p for the first", i, len(q.callers), b, q.handed)
	}
	if i == 0 {
		q.handed = nil
	}
	q.callers = slices.Delete(q.callers, i, i+1)
	if removal := q.w.Leave(m, false); len(q.callers) > 0 && removal != nil {
		q.t.Fatalf("%d callers stay: the entry in the nodes' queues is removed", len(q.callers))
	}
}

// try has the first caller act if it is its time, and find another holder.
func (q *line) try() {
	if act, _ := q.w.Next(q.callers[0]); act != wait.Try {
		return
	}
	m := q.callers[0]
	b := q.w.Claim(m)
	if b != q.handed {
		q.t.Fatalf("the first caller claims %p, want %p", b, q.handed)
	}
	q.handed = nil
	q.w.Lost(m, &wait.Lost{Start: time.Now(), Held: true, Holder: "another", Longest: time.Hour})
}

func (q *line) release() {
	b := ask()
	next, n := q.w.HandOver(b, 0, func(m *Waiter) *quorum.Call {
		if m != q.callers[0] {
			q.t.Fatalf("the lock is handed to a caller that is not the first")
		}
		return ask()
	})
	switch {
	case next != nil && (len(q.callers) == 0 || q.handed != nil):
		q.t.Fatalf("handed to nobody, or twice")
	case next != nil && n != wire.Notice{}:
		q.t.Fatalf("the lock is handed on, and the release notifies %+v", n)
	case next == nil && n.Tell == 0:
		q.t.Fatalf("the lock is for everybody, and the release notifies nobody")
	case next != nil:
		handOvers++
		q.handed = next
	}
}

func (q *line) check() {
	if q.w.Waiting(q.name) != (len(q.callers) > 0) {
		q.t.Fatalf("waiting: got %v with %d callers", !(len(q.callers) > 0), len(q.callers))
	}
	for i, m := range q.callers {
		if k := q.w.Known(m, 100); k.Before != i {
			q.t.Fatalf("caller %d: got %d before it", i, k.Before)
		}
		if i == 0 && q.handed == nil {
			continue // asking uses up its wake: try does that
		}
		act, pause := q.w.Next(m)
		switch {
		case i == 0 && act != wait.Try:
			q.t.Fatalf("the first caller was handed an attempt, and does %v", act)
		case i > 0 && (act != wait.Wait || pause >= 0):
			q.t.Fatalf("caller %d is not the first, and does %v after %v", i, act, pause)
		}
	}
}

// Callers of one key are served in order, one at a time, and what is handed over is claimed by the
// first or taken back by it.
func TestALocalQueueServesInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := newLine(t)
		t.Repeat(map[string]func(*rapid.T){
			"join": func(*rapid.T) { q.join() },
			"leave": func(t *rapid.T) {
				if n := len(q.callers); n > 0 {
					q.leave(rapid.IntRange(0, n-1).Draw(t, "caller"))
				}
			},
			"wait elsewhere": func(t *rapid.T) { q.place(q.placed > 0 && rapid.Bool().Draw(t, "gives")) },
			"try": func(*rapid.T) {
				if len(q.callers) > 0 {
					q.try()
				}
			},
			"release": func(*rapid.T) { q.release() },
			"":        func(*rapid.T) { q.check() },
		})
	})
	if handOvers == 0 {
		t.Error("no lock was handed over")
	}
}

// What the head learnt last is what all its followers are told, until nobody is left.
func TestAllCallersKnowWhatTheLeaderSaw(t *testing.T) {
	q := newLine(t)
	q.join()
	q.join()
	saw := errors.New("held")
	q.w.Lost(q.callers[0], &wait.Lost{Start: time.Now(), Held: true, Holder: "another"}) // it subscribes, so that the queue stays
	q.w.KeepResult(q.callers[0], saw)
	if k := q.w.Known(q.callers[1], 100); k.Result != saw || k.WonBy != nil {
		t.Fatalf("the second caller knows %+v, want %v", k, saw)
	}
	b := ask()
	q.w.Won(q.callers[0], b)
	if k := q.w.Known(q.callers[1], 100); k.Result != nil || k.WonBy != b {
		t.Fatalf("after the first has won the second knows %+v, want the round", k)
	}
	q.leave(0)
	q.leave(0)
	q.join()
	if k := q.w.Known(q.callers[0], 100); k.Result != nil || k.WonBy != nil {
		t.Fatalf("a caller of an empty queue knows %+v", k)
	}
}

// After a try in vain the head reads the ttl, and does not queue again while its entry is fresh and stands where it belongs.
func TestALookAfterATryInVainQueuesOnlyIfItHasTo(t *testing.T) {
	q := newLine(t)
	q.join()
	m := q.callers[0]
	q.w.Next(m) // the first try
	lost := &wait.Lost{Start: time.Now(), Held: true, Holder: "another"}
	q.w.Lost(m, lost)
	r := m.queue
	r.plan.Subscribed(0, true, time.Now())
	next := func(want wait.Act, kind wire.Kind) {
		t.Helper()
		act, _ := q.w.Next(m)
		if act != want {
			t.Fatalf("got act %v, want %v", act, want)
		}
		if got := q.w.Question(m, act == wait.Glance, true).Kind; got != kind {
			t.Fatalf("got a question of kind %v, want %v", got, kind)
		}
	}
	ttl := wire.LookQuestion(q.name).Kind
	looked := func(answered bool) {
		q.w.Looked(m, &wait.Looked{Start: time.Now(), Held: true, FreeIn: time.Hour, Longest: time.Hour, Standing: wait.Standing{Answered: answered}})
	}
	next(wait.Look, wire.AskWait)
	q.w.Lost(m, lost)
	next(wait.Glance, wire.AskWait) // too few nodes told that they have it
	looked(true)
	q.w.Lost(m, lost)
	next(wait.Glance, ttl)
	looked(false) // a ttl says nothing of the queue
	q.w.Lost(m, lost)
	next(wait.Glance, ttl)
	for _, stale := range []func(){
		func() { r.placed = r.placed.Add(-freshFor) },
		func() { r.behind = true },  // the caller before it had its turn
		func() { r.queued = false }, // an announcement came while nobody waited
	} {
		stale()
		q.w.Lost(m, lost)
		next(wait.Glance, wire.AskWait)
		looked(true)
		q.w.Lost(m, lost)
		next(wait.Glance, ttl)
	}
}

// A release queues the next caller with its ticket, but not where a caller of this Locker has got the lock meanwhile: the head may
// be that caller.
func TestOnlyTheReleaseOfTheLockQueuesTheNextCaller(t *testing.T) {
	q := newLine(t)
	q.w.cfg.Rules.Fair = true
	q.join()
	m := q.callers[0]
	r, now := m.queue, time.Now()
	r.plan.Subscribed(0, true, now)
	r.plan.Learn(wait.Standing{Answered: true, Clock: 5_000_000, Start: now})
	r.plan.Succeed(&m.met, true, now, now)
	r.behind, r.held, r.heldUntil = true, "label:uuid", now.Add(time.Minute)
	if got := q.w.enterWith(r, ask(), now); got != 0 {
		t.Errorf("while a lock is held here, the release of another queues a caller with the ticket %d", got)
	}
	r.held = ""
	if got := q.w.enterWith(r, ask(), now); got == 0 {
		t.Error("the release of the lock does not queue the next caller")
	}
}
