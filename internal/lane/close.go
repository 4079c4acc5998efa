package lane

import (
	"slices"

	"github.com/seed-ce352c9b/redlock/internal/wire"
)

// This file is the end of a lane. A Locker that closes first waits until nothing is under
// way to the node (WhenIdle), for a time that it bounds itself, and then closes the lane.

// notifyIdle calls the function that WhenIdle was given, once, if the lane is idle.
// It needs ln.mu.
func (ln *Lane) notifyIdle() {
	if ln.idle != nil && ln.isIdle() {
		ln.idle(ln.down == nil)
		ln.idle = nil
	}
}

// isIdle reports whether no call is queued or sent and nothing is owed. What is owed to a
// node that is down does not count: it could be paid only after the node came back.
func (ln *Lane) isIdle() bool {
	return len(ln.queue) == 0 && ln.running == 0 && (ln.down != nil || ln.owed.len() == 0)
}

// WhenIdle arranges that f is called once, with ln.mu held, when no call is under way to
// the node and nothing is owed to it, or when the node is down; answered is false if it is
// down. That may be before WhenIdle returns. A later f replaces an earlier one that has
// not been called.
func (ln *Lane) WhenIdle(f func(answered bool)) {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	ln.idle = f
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
