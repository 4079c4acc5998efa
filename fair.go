package redlock

import (
	"slices"
	"strconv"
	"time"
)

// Turns. With Options.Fair those who wait for a lock stand in a queue on each node,
// one place for the leader of each Locker's line. A node says yes only to the first
// of its queue. Places are ordered by tickets: when the caller came, in the nodes'
// time as the caller measured it, the same ticket on every node and on every try; so
// the queues agree, and a node that forgot its queue gets it back in order.
//
// A queue only ever turns a yes into a no: what is granted is granted by the same
// step on a majority as without it. So no place that is lost, doubled, stale or
// forged touches exclusion or fences; it only costs somebody his turn.

const (
	// placeStale is how long a place counts that is not refreshed: so long a waiter
	// that died holds the others up.
	placeStale = 2 * time.Second

	// placeEvery is the pause between refreshes: two fit into placeStale, and what is
	// left of it is for the way. Shorter, a wait of ten seconds costs more than 25
	// commands to a node.
	placeEvery = 800 * time.Millisecond

	// queueLife is the ttl of a queue: some refreshes, so that unused names leave
	// nothing behind.
	queueLife = 10 * time.Second

	// nearTurn is how many waiters try at a release: the first one at once, the
	// others a step later each, in case that those before have gone.
	nearTurn = 3

	// turnStep is that step, beside several round trips.
	turnStep = 2 * time.Millisecond
)

// turnQuestion is an acquire that minds the queue. place "": it does not queue.
func turnQuestion(name lockKey, value string, ttl time.Duration, proposal int64, place string, ticket int64) question {
	q := question{kind: askTurn, value: value, ttl: ttl, script: turnScript}
	t := ""
	if place != "" {
		t = strconv.FormatInt(ticket, 10)
	}
	queue, seen := name.queue()
	q.add("evalsha", turnScript.sha, "4", name.full, name.fence, queue, seen,
		value, px(ttl), proposal, place, t, placeStale.Milliseconds(), queueLife.Milliseconds())
	return q
}

// leaveQuestion takes a place off the queue.
func leaveQuestion(name lockKey, place string) question {
	q := question{kind: askLeave}
	queue, seen := name.queue()
	q.add("zrem", queue, place)
	q.add("zrem", seen, place)
	return q
}

// A turn is a waiter's standing in the queues.
type turn struct {
	came     int64  // µs on our wall clock; 0: it may not queue, as TryAcquire
	place    string // its member of the queues
	ticket   int64  // µs of the nodes' time; 0: not known yet
	placed   bool   // it may stand in a queue
	answered bool   // the last round was answered by a majority
	free     int    // rounds in a row that found the lock free, but another first
}

// ask is the acquire of one attempt. Only who was answered by a majority refreshes
// its place: one that cannot win must not hold up those who can.
func (l *Locker) askTurn(e *errand, value string, proposal int64) question {
	t := &e.place.turn
	if t.came == 0 || !t.answered || t.ticket == 0 {
		return turnQuestion(e.name, value, e.ttl, proposal, "", 0)
	}
	if t.place == "" {
		t.place = value // as good as any, and tells who it is
	}
	t.placed = true
	return turnQuestion(e.name, value, e.ttl, proposal, t.place, t.ticket)
}

// leaveQueues takes an errand's place off every node, after its last attempt there.
// Where a node does not answer the place goes stale.
func (l *Locker) leaveQueues(e *errand) {
	if !e.place.turn.placed || !l.begin() {
		return
	}
	defer l.end()
	q := leaveQuestion(e.name, e.place.turn.place)
	q.patience = l.patience(e.ttl)
	for i, ln := range l.lanes {
		ln.ask(&call{ln: ln, q: &q, i: i}, e.ballot.lastCall(i))
	}
}

// A standing is what a round told of an errand's turn.
type standing struct {
	answered bool          // by a majority
	held     bool          // on a majority
	left     time.Duration // of the ttl, until a majority is free; or of the first one's place
	before   int           // how many are before us on a majority of the nodes
	ahead    time.Duration // of the nodes' time before our wall clock, the median
}

// standing reads the votes of a round.
func (b *ballot) standing() (s standing) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var first []time.Duration
	left := make([]time.Duration, len(b.calls)) // who has not answered may be free
	var before []int
	var ahead []int64
	for i := range b.calls {
		c := &b.calls[i]
		if !c.voted || c.rep.clock == 0 {
			continue
		}
		half := c.at.Sub(b.start.at) / 2
		ahead = append(ahead, c.rep.clock-b.start.wall-half.Microseconds())
		switch {
		case c.rep.holder != "":
			left[i] = expiresIn(c.rep.left)
		case c.rep.answer == No:
			first = append(first, expiresIn(c.rep.left))
		}
		before = append(before, c.rep.before)
	}
	need := b.t.need()
	if len(ahead) < need {
		return s
	}
	slices.Sort(ahead)
	slices.Sort(before)
	slices.Sort(left)
	s.answered = true
	s.ahead = time.Duration(ahead[len(ahead)/2]) * time.Microsecond
	s.before = before[need-1]
	if s.left = left[need-1]; s.left > 0 {
		s.held = true
	} else if len(first) > 0 {
		s.left = slices.Min(first)
	}
	return s
}

// planTurn sets when the leader asks again after a round that it did not win.
func (w *waits) planTurn(r *room, e *errand) {
	now := time.Now()
	t, s := &e.place.turn, e.ballot.standing()
	t.answered = s.answered
	r.rank, r.pace = s.before, e.ballot.took
	if s.answered {
		r.ahead, r.told = s.ahead, now
	}
	r.try = true
	pause := placeEvery - w.l.spread(placeEvery/8)
	if r.hearing.IsZero() || w.l.opt.Retry != nil || !s.answered {
		pause = min(pause, w.l.retryPause(e))
	}
	switch {
	case !s.answered:
	case t.ticket == 0:
		t.ticket = t.came + s.ahead.Microseconds()
		pause = 0
	case s.held:
		t.free = 0
		pause = min(pause, s.left)
	default: // whoever is first is about to take it, or is gone
		t.free++
		pause = min(pause, s.left, defaultRetry(t.free))
	}
	r.at = now.Add(pause)
}

// succeed has the next leader take its place with its first try, where the one before
// has just learned the nodes' time.
func (w *waits) succeed(r *room) {
	now := time.Now()
	if t := &r.first.turn; t.ticket == 0 && now.Sub(r.told) < placeStale {
		t.ticket, t.answered = t.came+r.ahead.Microseconds(), true
	}
	r.at, r.try = now, true
}

// notNext says of a released lock whether it is another's turn; then the leader has
// moved up by one.
func (w *waits) notNext(r *room) bool {
	if r.rank <= 0 {
		return false
	}
	if r.rank < nearTurn && r.first != nil {
		w.actBy(r, time.Now().Add(time.Duration(r.rank)*(turnStep+4*r.pace)))
	}
	r.rank--
	return true
}
