package queue

import (
	"time"

	"github.com/seed-ce352c9b/redlock/internal/quorum"
	"github.com/seed-ce352c9b/redlock/internal/wire"
)

// How a lock goes from one holder to the next: within a local queue, or to the waiters of other
// Lockers.

// comesBackWithin is how soon after a release the next caller comes where callers take turns
// without a pause. The entry then stays in the nodes' queues, at their end, so that this
// caller need not queue again. Halved, more callers do; doubled, an entry more often
// comes to be first while nobody waits for it, and others wait for a message longer.
const comesBackWithin = 5 * time.Millisecond

// HandOver prepares an attempt for the head, to be sent right behind the release b of a
// lock of this Locker, so that the lock changes hands in one round. It returns nil if the
// lock has to be released for everybody. Release and attempt are ordinary ones: if the attempt
// overtakes the release, or another client gets in between, the attempt fails.
//
// left is how much of the lock's ttl is left. attempt returns the attempt for the head, or
// nil if there is none; it is called with the queues' mutex held.
//
// n says whom the release notifies. If it is for everybody, our entry in the nodes' queues
// moves to their end, behind those who waited longer, or is removed if nobody here waits or
// is about to come back, or if announcements to it would not be heard. With Options.Fair it keeps
// its place while somebody here waits, or is queued for the head if that has not done so.
func (w *Queues) HandOver(b *quorum.Call, left time.Duration, attempt func(m *Waiter) *quorum.Call) (next *quorum.Call, n wire.Notice) {
	value := b.Question.Value
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.queues[b.Name.Full]
	if r == nil {
		return nil, wire.ToAll
	}
	if r.held == value {
		r.held = ""
	}
	if r.first != nil {
		r.freeing = value
	}
	if r.first == nil || w.cfg.Rules.Fair || w.cfg.Closed() {
		return nil, w.notice(r, value, b)
	}
	m := r.first
	// Others wait until the ttl that they have seen passes: nobody tells them of one that
	// passes earlier.
	shorter := m.ttl < left
	if !m.gone && !m.trying && m.Wake != nil && !shorter && r.plan.MayHandOver() {
		next = attempt(m)
	}
	if next == nil {
		r.wake(r.plan.AfterOthers(time.Now()))
		return nil, w.notice(r, value, b)
	}
	m.attempt, m.trying, m.mine = next, true, next.Question.Value
	r.plan.NotDue()
	return next, wire.Notice{}
}

// notice returns whom the release b of the value notifies, which is for everybody, and what
// it does with our entry. Needs w.mu.
func (w *Queues) notice(r *queue, value string, b *quorum.Call) wire.Notice {
	now := time.Now()
	n := wire.ToAll
	r.plan.Releasing(value, now)
	if r.first == nil {
		r.released = now
	}
	switch {
	case w.cfg.Rules.Fair && r.plan.Contended():
		n.Tell = 1 // the others would only ask whose turn it is
		fallthrough
	case w.cfg.Rules.Fair:
		if r.first == nil && r.queued && !r.winner.ByAll() { // a node that granted it has removed the entry
			n.Place = r.entry
		}
		r.queued = r.queued && r.first != nil
		if n.Ticket = w.enterWith(r, b, now); n.Ticket != 0 {
			n.Place, r.prolonged = w.entryOf(r), now // a release with a ticket always prolongs
		}
	case r.first != nil && r.plan.Hears() && !w.cfg.Closed():
		n.Place, n.Stay = w.entryOf(r), true
	case r.queued:
		n.Place, n.Stay = r.entry, r.comesBack && !w.cfg.Closed()
	}
	if n.Stay {
		r.queued, r.behind, r.asked = true, false, false
		r.placed = time.Time{} // it is where others were notified: Released knows
		n.Prolong = r.prolongs(now)
	} else if n.Place != "" {
		r.queued, r.dequeue = n.Ticket != 0, b // what queues or removes it from now on is sent after the release
	}
	return n
}

// enterWith returns the ticket by which the release b queues the head, so that the head need
// not ask in vain before it is its turn; 0: it asks. If a caller here holds the lock by now, b
// releases one that had expired. Needs w.mu.
func (w *Queues) enterWith(r *queue, b *quorum.Call, now time.Time) (ticket int64) {
	m := r.first
	if m == nil || m.gone || m.trying || !r.behind || r.holds(now) || !r.plan.LeavesToRelease() || w.cfg.Closed() {
		return 0
	}
	if _, ticket = m.met.Place(); ticket != 0 {
		r.queued, r.behind, r.enters = true, false, b
		r.plan.Entered(now)
	}
	return ticket
}

// TakenBack returns whom the end of a caller's attempt notifies that may have had a majority. With
// Options.Fair the nodes that granted it have removed our entry. So if the caller leaves the queue
// now, they queue the next one first: somebody who came later, and is near, would otherwise ask
// before that one.
func (w *Queues) TakenBack(m *Waiter, leaves bool) wire.Notice {
	n := wire.Attempted
	if !leaves || m.queue == nil || !w.cfg.Rules.Fair {
		return n
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	r, next := m.queue, m.next
	if r.first != m || next == nil || next.gone || w.cfg.Closed() {
		return n
	}
	if n.Ticket = r.plan.Ticket(&next.met, w.cfg.Now().At); n.Ticket != 0 {
		n.Place = w.entryOf(r)
		r.queued, r.behind, r.prolonged = true, false, time.Now() // what removes it follows the last clean-up
	}
	return n
}

// Released notes that a lock of this Locker was released by b, and whether a waiter of another
// one was notified. If not, the head tries. The head also tries if the lock was handed on but the
// attempt had already failed, because it overtook the release.
func (w *Queues) Released(b *quorum.Call) {
	value := b.Question.Value
	told, took := b.Told()
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.queues[b.Name.Full]
	switch {
	case b.Question.HandsOn():
		if r != nil && (!r.plan.Hears() || r.first != nil && !r.first.trying) {
			r.plan.Freed()
			r.wake(true)
		}
		return
	case r == nil && told > 0 && !w.closed: // or a caller that comes would not know of the others
		r = w.queueOf(b.Name, wire.LabelOf(value))
		r.plan.Releasing(value, time.Now())
		w.sweepLater(r)
	case r == nil:
		return
	}
	now := time.Now()
	switch {
	case told >= w.cfg.Rules.Need:
		r.placed = now
	case told == 0 && r.first == nil:
		r.queued = false // it is not in the queue where nobody was notified
	}
	r.wake(r.plan.Released(told > 0, r.queued && !r.placed.IsZero(), took, now))
}

// WakeHead wakes the head to claim the attempt that was handed to it.
func (w *Queues) WakeHead(name *wire.LockKey) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r := w.queues[name.Full]; r != nil && r.first != nil {
		r.first.poke()
	}
}

// Claim takes the attempt that was handed to a waiter. It returns nil if there is none.
func (w *Queues) Claim(m *Waiter) *quorum.Call {
	w.mu.Lock()
	defer w.mu.Unlock()
	b := m.attempt
	if m.attempt = nil; b != nil {
		m.queue.asking = b
	}
	return b
}

// GiveUp marks a waiter to which nothing is handed any more. It returns the attempt that was
// handed to it and not claimed, or nil.
func (w *Queues) GiveUp(m *Waiter) *quorum.Call {
	w.mu.Lock()
	defer w.mu.Unlock()
	m.gone = true
	b := m.attempt
	m.attempt = nil
	return b
}
