package demo

import (
	"fmt"
	"sync"
	"time"

	"github.com/seed-ce352c9b/redlock"
)

// A role is what a worker is doing.
type role uint8

const (
	idle role = iota
	waits
	holds
	dead // with the lock, which it did not give back
)

// A state is what there is to see: the workers, what happened and what it amounts to. Workers and observers write
// to it, the views read copies. Its methods may be called from any goroutine.
type state struct {
	began time.Time

	mu      sync.Mutex
	workers []workerState
	healths [nodes]nodeState
	events  []event // the last maxEvents at least
	added   int     // events so far, also those that were dropped
	tally   tally
	orphan  orphan        // the lock of the last worker that died
	past    []span        // what the nodes and the workers did, for the timeline; a lane's last is open
	news    chan struct{} // an event was added
}

// An workerState is a worker as it is seen.
type workerState struct {
	name    string
	role    role
	since   time.Time
	fence   int64
	renewed int
	until   time.Time     // dead: when the nodes forget its lock
	round   redlock.Round // the last that asked for the lock or renewed it
}

// A nodeState is what was last done to a node, and when.
type nodeState struct {
	health health
	since  time.Duration
}

type orphan struct {
	of   string // "": there is none
	died time.Time
}

// An event is one line of the story.
type event struct {
	at      time.Duration
	who     string
	text    string
	routine bool // goes without saying on the screen
	alarm   bool
}

func newState(workers int) *state {
	s := &state{began: time.Now(), news: make(chan struct{}, 1)}
	for i := range workers {
		s.workers = append(s.workers, workerState{name: fmt.Sprintf("worker-%d", i+1), since: s.began})
	}
	return s
}

// maxSpans bounds what is remembered for the timeline: an hour of the usual four workers.
const maxSpans = 1 << 18

// maxEvents bounds the events that are remembered. A printer that is further behind than
// that skips some.
const maxEvents = 1000

// add needs s.mu.
func (s *state) add(e event) {
	e.at = time.Since(s.began)
	if s.added++; len(s.events) >= 2*maxEvents {
		s.events = append([]event(nil), s.events[maxEvents:]...) // a demo may run for ever
	}
	s.events = append(s.events, e)
	select {
	case s.news <- struct{}{}:
	default:
	}
}

// observe is a worker's Options.Observe.
func (s *state) observe(worker int, r redlock.Round) {
	switch r.Op {
	case redlock.OpAcquire, redlock.OpExtend:
	default:
		return // what is given back or undone would only hide who voted for the holder
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
		if v.Answer == redlock.Yes {
			n++
		}
	}
	return n
}

// wait: a worker asks for the lock.
func (s *state) wait(worker int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setRole(worker, waits)
}

// setRole needs s.mu.
func (s *state) setRole(worker int, r role) *workerState {
	a := &s.workers[worker]
	now := time.Now()
	if a.role != idle {
		s.note(span{worker: true, lane: worker, from: a.since.Sub(s.began), to: now.Sub(s.began), role: a.role, fence: a.fence})
	}
	a.role, a.since = r, now
	return a
}

// note keeps a span for the timeline. It needs s.mu.
func (s *state) note(p span) {
	if len(s.past) < maxSpans { // a demo may run for ever
		s.past = append(s.past, p)
	}
}

// enter: a worker has the lock and begins.
func (s *state) enter(worker int, fence int64, valid func() bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tally.enter(worker, fence, valid)
	a := s.setRole(worker, holds)
	a.fence, a.renewed = fence, 0
	if o := s.orphan; o.of != "" {
		s.orphan = orphan{}
		s.add(event{who: a.name, text: fmt.Sprintf("got the lock %s after %s died: its ttl was over", round(time.Since(o.died)), o.of)})
	}
}

// wrote: the worker wrote the counter and leaves.
func (s *state) wrote(worker int, from, to int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := &s.workers[worker]
	s.tally.increments++
	s.tally.leave(worker)
	s.add(event{who: a.name, text: fmt.Sprintf("counter %3d -> %3d   %s  fence %d", from, to, votes(a.round), a.fence), routine: true})
	s.setRole(worker, idle)
}

// lose: the worker was told that the lock is lost, wrote nothing and leaves.
func (s *state) lose(worker int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tally.leave(worker)
	s.tally.lost++
	s.add(event{who: s.workers[worker].name, text: "lost the lock, was told in time and wrote nothing", alarm: true})
	s.setRole(worker, idle)
}

// die: the worker is gone and its lock is not.
func (s *state) die(worker int, until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tally.leave(worker)
	s.tally.died++
	a := s.setRole(worker, dead)
	a.until = until
	s.orphan = orphan{of: a.name, died: time.Now()}
	s.add(event{who: a.name, text: "DIED holding the lock: nobody gives it back", alarm: true})
}

// restart: a worker that had died is started again.
func (s *state) restart(worker int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.setRole(worker, idle)
	a.round = redlock.Round{}
	s.add(event{who: a.name, text: "started again"})
}

// fault: something was done to a node.
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
		e.text = "HUNG: takes requests, answers none"
	default:
		s.tally.revived++
		e.text = "back"
	}
	e.text += fmt.Sprintf(" (%d of %d nodes left)", left, nodes)
	s.add(e)
	now := time.Since(s.began)
	if was := s.healths[n.i]; was.health != up {
		s.note(span{lane: n.i, from: was.since, to: now, health: was.health})
	}
	s.healths[n.i] = nodeState{h, now}
}

// trouble: something went wrong that is not part of the play.
func (s *state) trouble(who string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tally.trouble++
	s.add(event{who: who, text: err.Error(), alarm: true})
}

// votes shows a round's votes in the nodes' order, a word for each.
func votes(r redlock.Round) string {
	s := ""
	for _, v := range r.Votes {
		s += fmt.Sprintf("%-5s", voteWord(v))
	}
	return s
}

// voteWord is what a node said.
func voteWord(v redlock.Vote) string {
	switch v.Answer {
	case redlock.Yes:
		return "yes"
	case redlock.No:
		return "no"
	case redlock.Pending:
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
