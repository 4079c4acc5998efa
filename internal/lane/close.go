package lane

import (
	"slices"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/wire"
)

// This file is the end of a lane. A Locker that closes first waits until nothing is under
// way to its nodes (AwaitIdle), and then closes the lanes.

// AwaitIdle waits until the nodes have answered everything, or until limit fires, which it
// then resets, so that the next wait ends at once. Once need of the nodes have answered, it
// does not wait for those that are silent: that have left a question unanswered for
// silentAfter and for three of their round trips. Nor does it wait for nodes that refuse what
// is owed to them, unless fewer than need take it: it then waits for those whose errors may go
// away by themselves.
func AwaitIdle(lanes []*Lane, need int, silentAfter time.Duration, limit *time.Timer) {
	if !awaitIdle(lanes, need, silentAfter, limit, false) {
		awaitIdle(lanes, need, 0, limit, true)
	}
}

// awaitIdle is AwaitIdle. patient says that it waits for refusals to go away. over says that need
// of the nodes have answered, or limit has fired.
func awaitIdle(lanes []*Lane, need int, silentAfter time.Duration, limit *time.Timer, patient bool) (over bool) {
	type rested struct {
		ln       *Lane
		answered bool
	}
	idle := make(chan rested, len(lanes))
	busy := make(map[*Lane]bool)
	for _, ln := range lanes {
		busy[ln] = true
		ln.whenIdle(patient, func(answered bool) { idle <- rested{ln, answered} })
	}
	answers := 0
	for len(busy) > 0 {
		var silent <-chan time.Time
		if answers >= need {
			wait := time.Duration(0)
			for ln := range busy {
				wait = max(wait, ln.untilSilent(silentAfter))
			}
			if wait <= 0 {
				return true
			}
			silent = time.After(wait)
		}
		select {
		case r := <-idle:
			delete(busy, r.ln)
			if r.answered {
				answers++
			}
		case <-silent: // or it has replied meanwhile
		case <-limit.C:
			limit.Reset(0)
			return true
		}
	}
	return answers >= need
}

// Retry sends what the node has refused once more, without waiting for its pause to end: the
// Locker closes, and the pause may be longer than that takes.
func (ln *Lane) Retry() {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	if ln.owed.len() > 0 {
		ln.owed.again(time.Now())
		ln.wakeProbe()
	}
}

// notifyIdle calls the function that whenIdle was given, once, if the lane is idle.
// It needs ln.mu.
func (ln *Lane) notifyIdle() {
	if ln.idle != nil && ln.isIdle() {
		ln.idle(ln.down == nil && ln.owed.len() == 0)
		ln.idle = nil
	}
}

// isIdle reports whether no call is queued or sent, and nothing is owed that the node would
// take now: not what it has refused, unless the wait is patient, and nothing if it is down.
func (ln *Lane) isIdle() bool {
	return len(ln.queue) == 0 && ln.running == 0 && (ln.down != nil || !ln.owed.payable(ln.patient))
}

// whenIdle arranges that f is called once, with ln.mu held, when the lane is idle; answered
// is false if the node is down or something stays owed to it. That may be before whenIdle
// returns. A later f replaces an earlier one that has not been called.
func (ln *Lane) whenIdle(patient bool, f func(answered bool)) {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	ln.idle, ln.patient = f, patient
	ln.notifyIdle()
}

// Close finishes all calls that are queued or sent with ErrLaneDone and ends the prober.
// Calls asked later finish with the same error. Pipelines under way are not interrupted:
// they end with the connections of the node's client.
func (ln *Lane) Close() {
	ln.mu.Lock()
	ln.closed = true
	if ln.timer != nil {
		ln.timer.Stop()
	}
	close(ln.stopping)
	var ready []*Call
	for _, c := range slices.Clone(ln.queue) {
		ready = ln.finish(c, wire.Reply{Answer: wire.Unknown, Err: wire.ErrLaneDone}, ready)
	}
	ln.queue = nil
	for _, b := range ln.batches {
		for _, c := range b.calls {
			if c.phase != finished {
				ready = ln.finish(c, wire.Reply{Answer: wire.Unknown, Err: wire.ErrLaneDone, Sent: true, Silent: true, Stored: c.Question.Kind.Stores()}, ready)
			}
		}
	}
	ln.mu.Unlock()
	deliver(ready)
}
