package queue

import (
	"time"

	"github.com/seed-ce352c9b/redlock/internal/lane"
	"github.com/seed-ce352c9b/redlock/internal/quorum"
	"github.com/seed-ce352c9b/redlock/internal/wait"
)

// What the head does next, and what its looks and tries have shown.

// Next returns what a waiter does next, and for wait.Wait how long it pauses; a negative pause
// lasts until it is woken. A waiter that pauses calls Next again when it is woken.
func (w *Queues) Next(m *Waiter) (wait.Act, time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if m.Wake == nil {
		m.Wake = make(chan struct{}, 1)
	}
	switch {
	case m.queue.first != m:
		return wait.Wait, -1
	case m.attempt != nil:
		return wait.Try, 0
	}
	act, pause := m.queue.plan.Next(time.Now())
	if act == wait.Try {
		m.trying = true
	}
	return act, pause
}

// Looked tells the plan what a look showed.
func (w *Queues) Looked(m *Waiter, look *wait.Looked) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := m.queue
	if look.Held || r.plan.Contended() {
		w.listen(r) // a head that follows one that won looks before it has tried
	}
	if look.Standing.Answered && r.asked { // else a release has moved or removed the entry since
		r.placed = time.Now()
	}
	r.plan.Looked(look, time.Now())
}

// Refused tells the queue of a caller that has just joined it that an attempt that it made before
// was refused. alone reports whether it is alone there: it then tells the queue by Lost
// how that attempt ended, to plan its next try by that.
func (w *Queues) Refused(m *Waiter) (alone bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if alone = m.queue.first == m; alone {
		m.queue.plan.NotDue()
		m.trying = true // if it gives up before the plan is made, the next caller has to try
	}
	return alone
}

// Won tells the queue that its head has acquired the lock by b.
func (w *Queues) Won(m *Waiter, b *quorum.Call) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := m.queue
	m.trying = false
	if w.cfg.Rules.Fair { // for the next head
		r.plan.Learn(Standing(b))
		r.winner = b
	}
	now := time.Now()
	r.plan.Won(b.Start.At, now)
	r.behind = true
	r.result, r.wonBy = nil, b
	r.held, r.heldUntil = b.Question.Value, now.Add(m.ttl)
}

// Lost tells the plan how the head's try failed. A try without a result is not told: the
// caller keeps the wake, so that the next caller tries when this one leaves.
func (w *Queues) Lost(m *Waiter, lost *wait.Lost) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := m.queue
	m.trying = false
	r.held = ""
	w.listen(r)
	r.plan.Lost(&m.met, lost, time.Now())
}

// FreeIn returns after how long a majority of the nodes may be free.
func FreeIn(b *quorum.Call) (d time.Duration) {
	b.Read(func(calls []lane.Call, t quorum.Tally, _ time.Duration) { d = wait.FreeIn(t.Need(), replies(calls)) })
	return d
}

// Standing returns what the round showed of its caller's entry in the nodes' queues.
func Standing(b *quorum.Call) (s wait.Standing) {
	b.Read(func(calls []lane.Call, t quorum.Tally, took time.Duration) {
		s = wait.NewStanding(t.Need(), replies(calls), b.Start.At, took)
	})
	return s
}

// replies returns the replies that were counted.
func replies(calls []lane.Call) []wait.Reply {
	all := make([]wait.Reply, len(calls))
	for i := range calls {
		if c := &calls[i]; c.Voted {
			all[i] = wait.Reply{Reply: c.Reply, Took: c.Took}
		}
	}
	return all
}
