package redlock

import (
	"slices"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/wire"
)

// Places and turns. Whoever waits has a place in a queue on each node, one for each
// Locker's line: a release is announced to the first few of it and to nobody else,
// so that it does not wake a crowd of which one can win. That is all it is for where
// Options.Fair is not set: whoever asks takes a free lock.
//
// With Options.Fair a node says yes only to the first of its queue. Places are then
// ordered by tickets: when the caller came, in the nodes' time as the caller measured
// it, the same ticket on every node and on every try; so the queues agree, and a node
// that forgot its queue gets it back in order. A queue only ever turns a yes into a
// no: what is granted is granted by the same step on a majority as without it. So no
// place that is lost, doubled, stale or forged touches exclusion or fences; it costs
// somebody his turn.

// A turn is a fair waiter's standing in the queues.
type turn struct {
	came     time.Time // on our steady clock; zero: it does not queue, as TryAcquire
	ticket   int64     // µs of the nodes' time; 0: not known yet
	answered bool      // the last round was answered by a majority
	free     int       // rounds in a row that found the lock free, but another first
}

// askTurn is the acquire of one attempt. Only who was answered by a majority has or
// refreshes a place: one that cannot win must not hold up those who can.
func (l *Locker) askTurn(e *acquireCall, value string, proposal int64) wire.Question {
	t := &e.waiter.turn
	switch {
	case t.came.IsZero() || t.ticket == 0:
		return wire.TurnQuestion(l.guard, e.name, value, e.ttl, proposal, "", 0)
	case !t.answered: // nor do we refuse ourselves
		return wire.TurnQuestion(l.guard, e.name, value, e.ttl, proposal, l.queues.entry(e), 0)
	}
	return wire.TurnQuestion(l.guard, e.name, value, e.ttl, proposal, l.queues.entry(e), t.ticket)
}

// turnDecided has a majority answer, also where fewer noes would rule a yes out, as half
// of an even number does: only a majority tells a standing.
func turnDecided(t tally) bool {
	return acquireDecided(t) && (t.yes+t.no >= t.need() || t.open() == 0)
}

// A standing is what a round told of a waiter's turn.
type standing struct {
	answered bool          // by a majority
	freeIn   time.Duration // until the ttl is over on a majority; 0: it is free
	first    time.Duration // until the place is over of the one whose turn it is
	before   int           // how many are before us on a majority
	clock    int64         // the nodes' time when it began, µs, the median
}

// standing reads the votes of a round that queues.
func (b *quorumCall) standing() (s standing) {
	b.mu.Lock()
	defer b.mu.Unlock()
	left := make([]time.Duration, len(b.calls)) // who has not answered may be free
	var before []int
	var clocks []int64
	for i := range b.calls {
		c := &b.calls[i]
		if !c.Voted || c.Reply.Clock == 0 {
			continue
		}
		half := c.Took / 2
		clocks = append(clocks, c.Reply.Clock-half.Microseconds())
		before = append(before, c.Reply.Before)
		switch {
		case c.Reply.Answer != wire.No:
		case c.Reply.Err != nil: // the turn of another
			if f := wire.ExpiresIn(c.Reply.TTL); s.first == 0 || f < s.first {
				s.first = f
			}
		default:
			left[i] = wire.ExpiresIn(c.Reply.TTL)
		}
	}
	need := b.tally.need()
	if len(clocks) < need {
		return standing{}
	}
	slices.Sort(clocks)
	slices.Sort(before)
	slices.Sort(left)
	s.answered = true
	s.clock = clocks[len(clocks)/2]
	s.before = before[need-1]
	s.freeIn = left[need-1]
	return s
}

// learn keeps the nodes' time that a round told, for the tickets of those who come next.
func (r *waitQueue) learn(b *quorumCall) standing {
	s := b.standing()
	if s.answered {
		r.clock, r.clockReadAt = s.clock, b.start.at
	}
	return s
}

// planTurn sets when the leader asks again after a round that it did not win.
func (w *waitQueues) planTurn(r *waitQueue, e *acquireCall, tie bool, longest time.Duration) {
	now := time.Now()
	t, s := &e.waiter.turn, r.learn(e.call)
	t.answered = s.answered
	pause := wire.TurnEvery - w.l.spread(wire.TurnEvery/8)
	if !r.wasSubscribedAt(r.asked) || w.l.opt.Retry != nil || !s.answered {
		pause = min(pause, w.l.retryPause(longest))
	}
	switch {
	case !s.answered:
	case t.ticket == 0:
		t.ticket = r.ticket(t.came)
		pause = 0
	case tie: // what stands in the way is being taken back
		pause = min(pause, tieLook*e.call.took+w.l.spread(e.call.took))
	case s.freeIn > 0:
		t.free = 0
		pause = min(pause, s.freeIn)
	default: // whose turn it is is about to take it, or is gone
		t.free++
		pause = min(pause, defaultRetry(t.free))
		if s.first > 0 { // else it is nobody's: too few nodes are to be had
			pause = min(pause, s.first)
		}
	}
	r.at, r.try = now.Add(pause), true
}

// ticket is the nodes' time of a moment on our steady clock. The wall clock has no part
// in it: it may be set while somebody waits.
func (r *waitQueue) ticket(came time.Time) int64 {
	return r.clock + came.Sub(r.clockReadAt).Microseconds()
}

// succeed has the next leader take its place with its first try, where the one before
// has just learned the nodes' time.
func (w *waitQueues) succeed(r *waitQueue) {
	now := time.Now()
	if t := &r.first.turn; t.ticket == 0 && w.l.now().at.Sub(r.clockReadAt) < wire.TurnLife {
		t.ticket, t.answered = r.ticket(t.came), true
	}
	r.at, r.try = now, true
}
