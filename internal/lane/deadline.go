package lane

import (
	"slices"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/wire"
)

// This file is time: the measured round trip, the deadlines of calls, and taking a node
// out of use that missed one. One timer serves the whole lane. Usually it fires when the
// calls for which it was set are long answered, and is set again for the next deadline;
// that is cheaper than a timer for each call. Except where noted, functions need ln.mu.

// updateRTT takes the duration of a batch into the measured round trip, which is a recent
// minimum: load, the size of batches and a first dial do not inflate it. It rises slowly,
// by 1/256 of the difference per batch, when the path has become longer.
func (ln *Lane) updateRTT(took time.Duration) {
	if ln.rtt == 0 || took < ln.rtt {
		ln.rtt = max(took, 1)
	} else {
		ln.rtt += (took - ln.rtt) / 256
	}
}

// armTimer sets the timer to fire at the deadline unless it fires earlier already.
func (ln *Lane) armTimer(now, deadline time.Time) {
	if !ln.timerAt.IsZero() && !deadline.Before(ln.timerAt) {
		return
	}
	ln.timerAt = deadline
	if ln.timer == nil {
		ln.timer = time.AfterFunc(deadline.Sub(now), ln.expireCalls)
	} else {
		ln.timer.Reset(deadline.Sub(now))
	}
}

// expireCalls is called by the timer, without ln.mu. It finishes the calls whose deadline
// has passed and sets the timer for the next ones. A sent call that expires makes the
// node down. A queued call that expires does not: the queue may be long because this
// process is slow or has many callers.
func (ln *Lane) expireCalls() {
	ln.mu.Lock()
	now := time.Now()
	if ln.timerAt.IsZero() || now.Before(ln.timerAt) {
		ln.mu.Unlock() // the timer was set again while it fired
		return
	}
	ln.timerAt = time.Time{}
	var ready []*Call
	var late time.Duration // the patience that a sent call exhausted; 0: none did
	overdue := func(c *Call) bool {
		if c.phase == finished {
			return false
		}
		if now.Before(c.deadline) {
			ln.armTimer(now, c.deadline)
			return false
		}
		return true
	}
	for _, b := range ln.batches {
		expired := false
		for _, c := range b.calls {
			if overdue(c) {
				expired = true
				late = c.Question.Patience.With(ln.rtt)
				ready = ln.finish(c, wire.Reply{Answer: wire.Unknown, Err: ln.advise(wire.TimeoutError(late)), Sent: true, Silent: true, Stored: c.Question.Kind.Stores()}, ready)
			}
		}
		if expired && !b.stuck {
			b.stuck = true
			ln.running--
			ln.stuck++
		}
	}
	for _, c := range slices.Clone(ln.queue) {
		if overdue(c) {
			ready = ln.finish(c, wire.Reply{Answer: wire.Unknown, Err: wire.TimeoutError(c.Question.Patience.With(ln.rtt))}, ready)
		}
	}
	ln.queue = slices.DeleteFunc(ln.queue, func(c *Call) bool { return c.phase == finished })
	if late > 0 {
		ready = ln.markDown(ln.advise(wire.TimeoutError(late)), ready)
	}
	ln.notifyIdle()
	ln.mu.Unlock()
	defer ln.tell()
	deliver(ready)
}

// advise adds to an error of the transport what to do about it if the node has never replied.
func (ln *Lane) advise(e *wire.NodeError) *wire.NodeError {
	if !ln.since.IsZero() {
		return e
	}
	return wire.AdviseFirst(e, ln.overTLS)
}

// markDown takes the node out of use until the prober has had an answer to a PING that
// was sent after this moment. The calls in the queue have not been sent and fail now.
// While the node is down already, markDown keeps the reason but moves downSince.
func (ln *Lane) markDown(why *wire.NodeError, ready []*Call) []*Call {
	if ln.closed {
		return ready
	}
	ln.downSince = time.Now()
	if ln.down == nil {
		ln.change(func() {
			ln.downAt = ln.downSince
			ln.forgetRefusal()
			ln.isDown(why)
		})
	}
	queue := ln.queue
	ln.queue = nil
	for _, c := range queue {
		if c.phase != finished {
			ready = ln.finish(c, wire.Reply{Answer: wire.Unknown, Err: ln.down}, ready)
		}
	}
	ln.ensureProbe()
	ln.notifyIdle()
	return ready
}

// isDown notes why the node is down. It needs ln.mu.
func (ln *Lane) isDown(why *wire.NodeError) {
	ln.downWhy, ln.down = why, wire.NewNodeError("down: "+why.Text, why.Cause)
}

// untilSilent returns the time from now until the node counts as silent: when the oldest
// batch under way is older than after and than wire.RoundTrips round trips. If no batch is
// under way, as between two attempts to send what is owed, that time begins now. The
// caller must not hold ln.mu.
func (ln *Lane) untilSilent(after time.Duration) time.Duration {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	asked := time.Now()
	for _, b := range ln.batches {
		if !b.stuck && b.sent.Before(asked) {
			asked = b.sent
		}
	}
	return time.Until(asked.Add(max(after, wire.RoundTrips*ln.rtt)))
}
