package demo

import (
	"fmt"
	"sync"
	"time"

	"github.com/seed-ce352c9b/redlock"
)

// A role is what a worker is currently doing.
type role uint8

const (
	idle role = iota
	waits
	holds
	dead // holding the lock, which it did not release
)

// A state is what the views show: the workers, the events, and the tally. Workers and observers write to it; the views
// read copies. Its methods may be called from any goroutine.
type state struct {
	began time.Time

	mu      sync.Mutex
	workers []workerState
	healths [nodes]nodeState
	events  []event // at least the last maxEvents
	added   int     // number of events so far, including those dropped from events
	tally   tally
	orphan  orphan        // the lock of the last worker that died
	past    []span        // completed activities of nodes and workers, for the timeline
	news    chan struct{} // signals that an event was added
}

// A workerState is the visible state of a worker.
type workerState struct {
	name    string
	role    role
	since   time.Time
	fence   int64
	renewed int
	until   time.Time     // for a dead worker: when its lock expires
	round   redlock.Round // the last round that acquired or extended the lock
}

// A nodeState is the health of a node and when it last changed.
type nodeState struct {
	health health
	since  time.Duration
}

// An orphan is the lock of a worker that died.
type orphan struct {
	of   string // "": none
	died time.Time
}

// An event is one line of output.
type event struct {
	at      time.Duration
	who     string
	text    string
	routine bool // not shown on the screen
	alarm   bool
}

func newState(workers int) *state {
	s := &state{began: time.Now(), news: make(chan struct{}, 1)}
	for i := range workers {
		s.workers = append(s.workers, workerState{name: fmt.Sprintf("worker-%d", i+1), since: s.began})
	}
	return s
}

// maxSpans limits the memory of the timeline: it is enough for an hour with the default four workers.
const maxSpans = 1 << 18

// maxEvents limits the number of events in memory. A view that falls further behind skips the older ones.
const maxEvents = 1000

// add appends an event. The caller holds s.mu.
func (s *state) add(e event) {
	e.at = time.Since(s.began)
	if s.added++; len(s.events) >= 2*maxEvents {
		s.events = append([]event(nil), s.events[maxEvents:]...) // a demo may run forever
	}
	s.events = append(s.events, e)
	select {
	case s.news <- struct{}{}:
	default:
	}
}

// observe is the Trace.Round of a worker's Locker.
func (s *state) observe(worker int, r redlock.Round) {
	switch r.Op {
	case redlock.OpAcquire, redlock.OpExtend:
	default:
		return // a release or a rollback would only hide who voted for the holder
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a := &s.workers[worker]
	if a.role == dead {
		return
	}
	a.round = r
	if r.Op == redlock.OpExtend && yeses(r) >= r.Need {
		a.renewed++
		s.tally.renewals++
		s.add(event{who: a.name, text: "renewed its lock     " + votes(r), routine: true})
	}
}

func yeses(r redlock.Round) int {
	n := 0
	for _, v := range r.Votes {
		if v.Answer == redlock.AnswerYes {
			n++
		}
	}
	return n
}

// wait records that a worker waits for the lock.
func (s *state) wait(worker int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setRole(worker, waits)
}

// setRole ends the worker's current role and begins a new one. The caller holds s.mu.
func (s *state) setRole(worker int, r role) *workerState {
	a := &s.workers[worker]
	now := time.Now()
	if a.role != idle {
		s.note(span{worker: true, lane: worker, from: a.since.Sub(s.began), to: now.Sub(s.began), role: a.role, fence: a.fence})
	}
	a.role, a.since = r, now
	return a
}

// note records a span for the timeline. The caller holds s.mu.
func (s *state) note(p span) {
	if len(s.past) < maxSpans { // a demo may run forever
		s.past = append(s.past, p)
	}
}

// enter records that a worker has acquired the lock and begins its critical section.
func (s *state) enter(worker int, fence int64, valid func() bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tally.enter(worker, fence, valid)
	a := s.setRole(worker, holds)
	a.fence, a.renewed = fence, 0
	if o := s.orphan; o.of != "" {
		s.orphan = orphan{}
		s.add(event{who: a.name, text: fmt.Sprintf("got the lock %s after %s died: its ttl had expired", round(time.Since(o.died)), o.of)})
	}
}

// wrote records that a worker has written the counter and leaves its critical section.
func (s *state) wrote(worker int, from, to int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := &s.workers[worker]
	s.tally.increments++
	s.tally.leave(worker)
	s.add(event{who: a.name, text: fmt.Sprintf("counter %3d -> %3d   %s  fence %d", from, to, votes(a.round), a.fence), routine: true})
	s.setRole(worker, idle)
}

// lose records that a worker learned in time that its lock was lost, and leaves its critical section without writing.
func (s *state) lose(worker int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tally.leave(worker)
	s.tally.lost++
	s.add(event{who: s.workers[worker].name, text: "lost the lock, learned of it in time and wrote nothing", alarm: true})
	s.setRole(worker, idle)
}

// die records that a worker died while it held the lock.
func (s *state) die(worker int, until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tally.leave(worker)
	s.tally.died++
	a := s.setRole(worker, dead)
	a.until = until
	s.orphan = orphan{of: a.name, died: time.Now()}
	s.add(event{who: a.name, text: "DIED holding the lock: nobody releases it", alarm: true})
}

// restart records that a dead worker was started again.
func (s *state) restart(worker int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.setRole(worker, idle)
	a.round = redlock.Round{}
	s.add(event{who: a.name, text: "started again"})
}

// fault records a change of a node's health. left is the number of nodes that are up now.
func (s *state) fault(n *node, h health, left int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := event{who: n.name, alarm: h != up}
	switch h {
	case killed:
		s.tally.killed++
		e.text = "KILLED: refuses connections"
	case hung:
		s.tally.hung++
		e.text = "HUNG: accepts requests, replies to none"
	default:
		s.tally.revived++
		e.text = "back"
	}
	e.text += fmt.Sprintf(" (%d of %d nodes up)", left, nodes)
	s.add(e)
	now := time.Since(s.began)
	if was := s.healths[n.i]; was.health != up {
		s.note(span{lane: n.i, from: was.since, to: now, health: was.health})
	}
	s.healths[n.i] = nodeState{h, now}
}

// trouble records an error that is not one of the injected faults.
func (s *state) trouble(who string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tally.trouble++
	s.add(event{who: who, text: err.Error(), alarm: true})
}

// votes formats a round's votes in the order of the nodes, one word for each.
func votes(r redlock.Round) string {
	s := ""
	for _, v := range r.Votes {
		s += fmt.Sprintf("%-5s", voteWord(v))
	}
	return s
}

// voteWord returns the word for a node's vote.
func voteWord(v redlock.Vote) string {
	switch v.Answer {
	case redlock.AnswerYes:
		return "yes"
	case redlock.AnswerNo:
		return "no"
	case redlock.AnswerPending:
		return "."
	}
	return "-"
}

func round(d time.Duration) time.Duration {
	if d < time.Second {
		return d.Round(time.Millisecond)
	}
	return d.Round(10 * time.Millisecond)
}
