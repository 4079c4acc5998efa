package wait

import (
	"slices"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/wire"
)

// Turns. The waiters of a key have an entry in a queue on each node, one for each Locker. A
// release is announced to the first few entries only, so that it does not wake a crowd of
// which one can win. Without Options.Fair that is all the queues are for: whoever asks takes
// a free lock.
//
// With Options.Fair a node says yes only to the first of its queue. Entries are then
// ordered by tickets. A ticket is the time at which the caller came, in the nodes' time as
// the caller measured it, and is the same on every node and on every try; so the queues
// agree, and a node that forgot its queue gets it back in order. A queue only ever turns a
// yes into a no: whatever is granted is granted by the same step on a majority as without
// it. An entry that is lost, doubled, stale or forged therefore touches neither exclusion
// nor fencing; it costs somebody a turn.

// A Caller is what one caller of Acquire has met while it waits. Its zero value never
// queues, as TryAcquire does not.
type Caller struct {
	came     time.Time // on our steady clock
	ticket   int64     // µs of the nodes' time; 0: not known yet
	answered bool      // a majority answered the last round
	queued   bool      // a majority has once put our entry at the ticket
	free     int       // rounds in a row that found the lock free, but another first
	ties     int       // tries in a row that were ties
}

// NewCaller returns a caller that came at a moment on our steady clock.
func NewCaller(came time.Time) Caller { return Caller{came: came} }

// Place reports whether a fair try may stand at our entry in the queues, and by which ticket it
// takes or refreshes that; 0: it does neither. Only a caller that a majority answered has an
// entry kept: one that cannot win must not hold up those that can. Nor does an entry of ours
// refuse us, once it has our ticket: before, it may have that of an earlier caller.
func (c *Caller) Place() (queued bool, ticket int64) {
	if c.answered {
		ticket = c.ticket
	}
	return ticket != 0 || c.queued, ticket
}

// countTie counts ties in a row, and reports whether the last round still is one.
func (c *Caller) countTie(tie bool) bool {
	if !tie {
		c.ties = 0
		return false
	}
	// A state that lasts is no tie. Leftovers may lie on a minority of the nodes, say, and
	// too few of the others answer: a caller that goes on at once does so forever.
	c.ties++
	return c.ties <= MaxTies
}

// A Reply is one node's reply to a round that queues or looks; the zero Reply stands for a
// node that has not replied.
type Reply struct {
	wire.Reply
	Took time.Duration // from the start of the round
}

// heldFor returns how long the key is still held there, and whether it is.
func (r *Reply) heldFor() (time.Duration, bool) {
	if r.Answer == wire.No && r.Err == nil {
		return wire.ExpiresIn(r.TTL), true
	}
	return 0, false
}

// FreeIn returns after how long a majority of the nodes may be free. Those that have not
// replied may be free now.
func FreeIn(need int, replies []Reply) time.Duration {
	all := make([]time.Duration, len(replies))
	for i := range replies {
		all[i], _ = replies[i].heldFor()
	}
	slices.Sort(all)
	return all[need-1]
}

// A Standing is what a round showed of a waiter's entry in the queues.
type Standing struct {
	Answered bool          // by a majority; if not, the rest but Start and Took is zero
	FreeIn   time.Duration // until the ttl has passed on a majority; 0: it is free
	First    time.Duration // until the entry expires of the waiter whose turn it is; 0: it is nobody's
	Before   int           // entries before ours on a majority
	Clock    int64         // the nodes' time when the round began, in µs, the median; 0: too few told it
	Start    time.Time     // when the round began, on our steady clock
	Took     time.Duration // until it was decided
}

// NewStanding reads the replies to a round that queues. Replies without a time do not count, as
// other rounds have them, unless beside others they grant the caller its turn.
func NewStanding(need int, replies []Reply, start time.Time, took time.Duration) Standing {
	s := Standing{Start: start, Took: took}
	left := make([]time.Duration, len(replies)) // a node that has not replied may be free
	var before []int
	var clocks []int64
	for i := range replies {
		r := &replies[i]
		switch {
		case r.Clock != 0:
			half := r.Took / 2
			clocks = append(clocks, r.Clock-half.Microseconds())
		case r.Answer != wire.Yes:
			continue
		}
		before = append(before, r.Before)
		left[i], _ = r.heldFor()
		if r.Answer == wire.No && r.Err != nil { // it is another's turn
			if f := wire.ExpiresIn(r.TTL); s.First == 0 || f < s.First {
				s.First = f
			}
		}
	}
	if len(before) < need || len(clocks) == 0 {
		return Standing{Start: start, Took: took}
	}
	slices.Sort(clocks)
	slices.Sort(before)
	slices.Sort(left)
	s.Answered = true
	if len(clocks) >= need {
		s.Clock = clocks[len(clocks)/2]
	}
	s.Before = before[need-1]
	s.FreeIn = left[need-1]
	return s
}

// Learn keeps the nodes' time that a round showed, for the tickets of those who come next.
func (p *Plan) Learn(s Standing) {
	if s.Answered && s.Clock != 0 {
		p.clock, p.clockReadAt = s.Clock, s.Start
	}
}

// ticket returns the nodes' time at a moment on our steady clock. The wall clock has no part
// in it: it may be set while somebody waits.
func (p *Plan) ticket(came time.Time) int64 {
	return p.clock + came.Sub(p.clockReadAt).Microseconds()
}

// lostTurn plans when c asks again after a fair try that did not get the lock.
func (p *Plan) lostTurn(c *Caller, l *Lost, tie bool, now time.Time) {
	s := l.Standing
	p.Learn(s)
	_, ticket := c.Place()
	c.queued = c.queued || s.Answered && ticket != 0
	c.answered = s.Answered
	pause := wire.TurnEvery - p.rules.spread(wire.TurnEvery/turnSpread)
	if !p.wasSubscribedAt(p.asked) || p.rules.OwnRetry || !s.Answered {
		pause = min(pause, p.rules.retryPause(l.Longest))
	}
	switch {
	case !s.Answered:
	case c.ticket == 0:
		c.ticket = p.ticket(c.came)
		pause = 0
	case tie: // the others' rollbacks are on their way
		pause = min(pause, tieLook*s.Took+p.rules.spread(s.Took))
	case ticket == 0: // the entry was not refreshed, and may have expired
		pause = 0
	case s.FreeIn > 0:
		c.free = 0
		pause = min(pause, s.FreeIn)
	default: // the one whose turn it is is about to take it, or is gone
		c.free++
		if s.First > 0 && p.wasSubscribedAt(p.asked) { // it is notified by us, and we are when it leaves
			c.free = max(c.free, fewFree)
		}
		pause = min(pause, p.rules.Retry(c.free))
		if s.First > 0 { // else it is nobody's turn: too few nodes can be reached
			pause = min(pause, s.First)
		}
	}
	p.act(now.Add(pause), true)
}

// Ticket returns the ticket of c, the next head, if it has one or the nodes' time was learned
// lately, or 0. steady is now on our steady clock.
func (p *Plan) Ticket(c *Caller, steady time.Time) (ticket int64) {
	if c.ticket == 0 && steady.Sub(p.clockReadAt) < wire.TurnLife {
		c.ticket, c.answered = p.ticket(c.came), true
	}
	_, ticket = c.Place()
	return ticket
}

// Succeed has c, the next head, try at once, with a ticket if the head before it has
// learned the nodes' time lately. If that one has won and c has a ticket, c leaves it to the
// release to queue it, and tries if that does not come soon: before, it would ask in vain.
// steady is now on our steady clock.
func (p *Plan) Succeed(c *Caller, won bool, now, steady time.Time) {
	if ticket := p.Ticket(c, steady); won && ticket != 0 && p.LeavesToRelease() {
		// Spread, or its question would meet each release of a lock that is always held for lookFirst.
		now = now.Add(lookFirst + p.rules.spread(lookFirst))
	}
	p.act(now, true)
}

// LeavesToRelease reports whether the next head, while its Locker holds the lock, leaves it to the
// release to queue it. It does not if announcements would not be heard, or if Options.Retry says
// how often it asks.
func (p *Plan) LeavesToRelease() bool { return p.Hears() && !p.rules.OwnRetry }

// Entered notes that a release queues the head, which tries when it is told, or to refresh its
// entry.
func (p *Plan) Entered(now time.Time) {
	p.act(now.Add(wire.TurnEvery-p.rules.spread(wire.TurnEvery/turnSpread)), true)
}
