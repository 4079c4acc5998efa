package redlock

import (
	"time"

	"github.com/seed-ce352c9b/redlock/internal/quorum"
	"github.com/seed-ce352c9b/redlock/internal/wire"
)

// How a lock goes from one holder to the next: within a local queue, or to the waiters of other
// Lockers.

// handOver prepares an attempt for the leader, to be sent right behind the release of a
// lock of this Locker, so that the lock changes hands in one round. It returns nil if the
// lock has to be released for everybody. They are an ordinary release and an ordinary
// attempt: if the attempt overtakes the release, or another client gets in between, the
// attempt fails.
//
// n says whom the release notifies. If it is for everybody, our entry in the nodes' queues
// moves to their end, behind those who waited longer, or is removed if nobody here waits or
// is about to come back.
func (w *waitQueues) handOver(k *Lock, b *quorum.Call) (next *quorum.Call, n wire.Notice) {
	n = wire.ToAll
	seen := max(k.fence, w.l.registerAhead(k.name)) // it takes the Locker's mu, which comes before ours
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.queues[k.name.Full]
	if r == nil {
		return nil, n
	}
	if r.held == k.value {
		r.held = ""
	}
	if r.first != nil {
		r.freeing = k.value
	}
	if r.first == nil || w.l.opt.Fair || w.l.isClosed() {
		return nil, w.notice(r, k, b)
	}
	m := r.first
	start := w.l.now()
	proposal := propose(start, seen)
	// Others wait until the ttl that they have seen passes: nobody tells them of one that
	// passes earlier.
	shorter := m.call.ttl < k.ttl-start.Since(k.start)
	if m.gone || m.trying || m.wake == nil || proposal == 0 || shorter || !r.plan.MayHandOver() {
		r.quiet = false
		r.wake(r.plan.AfterOthers(time.Now()))
		return nil, w.notice(r, k, b)
	}
	value := m.call.label + ":" + w.l.rand.uuid()
	next = w.l.newQuorumCall(OpAcquire, r.name, wire.AcquireQuestion(w.l.guard, r.name, value, m.call.ttl, proposal), start, acquireDecided)
	next.Question.Patience = w.l.patience(m.call.ttl)
	m.attempt, m.proposal, m.trying = next, proposal, true
	r.plan.Handed()
	r.quiet = true
	r.queued = r.entry != "" // nobody else was told: if this fails, leaveQueue tells them
	return next, wire.Notice{}
}

// notice returns whom a release notifies that is for everybody, and what it does with our
// entry. Needs w.mu.
func (w *waitQueues) notice(r *waitQueue, k *Lock, b *quorum.Call) wire.Notice {
	now := time.Now()
	n := wire.ToAll
	r.quiet = false
	r.plan.Releasing(k.value, now)
	if r.first == nil {
		r.released = now
	}
	switch {
	case w.l.opt.Fair && r.plan.Contended():
		n.Tell = 1 // the others would only ask whose turn it is
		fallthrough
	case w.l.opt.Fair:
		if r.first == nil && r.queued && !r.winner.ByAll() { // a node that granted it has removed the entry
			n.Place = r.entry
		}
		r.queued = r.queued && r.first != nil
	case r.first != nil && r.plan.Hears() && !w.l.isClosed():
		n.Place, n.Stay = w.entryOf(r), true
	case r.queued:
		n.Place, n.Stay = r.entry, r.comesBack && !w.l.isClosed()
	}
	if n.Stay {
		r.queued, r.placed, r.behind = true, time.Time{}, false // it is where others were notified: released knows
		if n.Prolong = now.Sub(r.prolonged) >= prolongEvery; n.Prolong {
			r.prolonged = now
		}
	} else if n.Place != "" {
		r.queued, r.dequeue = false, b
	}
	return n
}

// freedQuietly notes that a caller took back an attempt that may have had a majority, and that
// those that it refused were not notified.
func (w *waitQueues) freedQuietly(e *acquireCall) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e.waiter.queue.quiet = true
}

// wakeUp wakes the leader to claim the attempt that was handed to it.
func (w *waitQueues) wakeUp(b *quorum.Call) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r := w.queues[b.Name.Full]; r != nil && r.first != nil {
		r.first.poke()
	}
}

// claimed takes the attempt that was handed to a waiter, and returns nil if there is none. With
// last, nothing is handed to the waiter any more.
func (w *waitQueues) claimed(e *acquireCall, last bool) (*quorum.Call, int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := &e.waiter
	m.gone = m.gone || last
	b := m.attempt
	m.attempt = nil
	return b, m.proposal
}
