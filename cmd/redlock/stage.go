package main

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

// A stage is what there is to see: the workers, what happened and what it amounts to.
// Workers and observers write to it, the screen and the printer read copies.
type stage struct {
	began time.Time

	mu      sync.Mutex
	workers []actor
	events  []event // the last mostKept at least
	told    int     // events so far, also those that are forgotten
	tally   tally
	orphan  orphan        // the lock of the last worker that died
	news    chan struct{} // an event was added
}

// An actor is a worker as it is seen.
type actor struct {
	name    string
	role    role
	since   time.Time
	fence   int64
	renewed int
	until   time.Time     // dead: when the nodes forget its lock
	round   redlock.Round // the last that asked for the lock or renewed it
}

type orphan struct {
	of   string // "": there is none
	died time.Time
}

// An event is one line of the story.
type event struct {
	at    time.Duration
	who   string
	text  string
	daily bool // goes without saying on the screen
	grave bool
}

func newStage(workers int) *stage {
	s := &stage{began: time.Now(), news: make(chan struct{}, 1)}
	for i := range workers {
		s.workers = append(s.workers, actor{name: fmt.Sprintf("worker-%d", i+1), since: s.began})
	}
	return s
}

// mostKept bounds the events that are remembered. A printer that is further behind than
// that skips some.
const mostKept = 1000

// tell adds an event. It needs s.mu.
func (s *stage) tell(e event) {
	e.at = time.Since(s.began)
	if s.told++; len(s.events) >= 2*mostKept {
		s.events = append([]event(nil), s.events[mostKept:]...) // a demo may run for ever
	}
	s.events = append(s.events, e)
	select {
	case s.news <- struct{}{}:
	default:
	}
}

// observe is a worker's Options.Observe.
func (s *stage) observe(worker int, r redlock.Round) {
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
		s.tell(event{who: a.name, text: "renewed its lock     " + ballotPaper(r), daily: true})
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
func (s *stage) wait(worker int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cast(worker, waits)
}

// cast needs s.mu.
func (s *stage) cast(worker int, r role) *actor {
	a := &s.workers[worker]
	a.role, a.since = r, time.Now()
	return a
}

// enter: a worker has the lock and begins.
func (s *stage) enter(worker int, fence int64, valid func() bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tally.enter(worker, fence, valid)
	a := s.cast(worker, holds)
	a.fence, a.renewed = fence, 0
	if o := s.orphan; o.of != "" {
		s.orphan = orphan{}
		s.tell(event{who: a.name, text: fmt.Sprintf("got the lock %s after %s died: its ttl was over", round(time.Since(o.died)), o.of)})
	}
}

// wrote: the worker wrote the counter and leaves.
func (s *stage) wrote(worker int, from, to int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := &s.workers[worker]
	s.tally.increments++
	s.tally.leave(worker)
	s.tell(event{who: a.name, text: fmt.Sprintf("counter %3d -> %3d   %s  fence %d", from, to, ballotPaper(a.round), a.fence), daily: true})
	s.cast(worker, idle)
}

// lose: the worker was told that the lock is lost, wrote nothing and leaves.
func (s *stage) lose(worker int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tally.leave(worker)
	s.tally.lost++
	s.tell(event{who: s.workers[worker].name, text: "lost the lock, was told in time and wrote nothing", grave: true})
	s.cast(worker, idle)
}

// die: the worker is gone and its lock is not.
func (s *stage) die(worker int, until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tally.leave(worker)
	s.tally.died++
	a := s.cast(worker, dead)
	a.until = until
	s.orphan = orphan{of: a.name, died: time.Now()}
	s.tell(event{who: a.name, text: "DIED holding the lock: nobody gives it back", grave: true})
}

// rise: a worker that had died is started again.
func (s *stage) rise(worker int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.cast(worker, idle)
	a.round = redlock.Round{}
	s.tell(event{who: a.name, text: "started again"})
}

// fault: something was done to a node.
func (s *stage) fault(n *node, h health, left int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := event{who: n.name, grave: h != up}
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
	s.tell(e)
}

// trouble: something went wrong that is not part of the play.
func (s *stage) trouble(who string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tally.trouble++
	s.tell(event{who: who, text: err.Error(), grave: true})
}

// ballotPaper shows a round's votes in the nodes' order, a word for each.
func ballotPaper(r redlock.Round) string {
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
