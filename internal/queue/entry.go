package queue

import (
	"time"

	"github.com/seed-ce352c9b/redlock/internal/quorum"
	"github.com/seed-ce352c9b/redlock/internal/wire"
)

// The entry that a local queue has in the nodes' queues, and the announcements to it.

const (
	// freshFor is how long after a refresh a look leaves our entry in the nodes' queues alone,
	// and prolongEvery how often these queues get a new ttl. Both leave room for two
	// polls of a waiter before the entry expires. Halved, a look costs a node more commands.
	freshFor     = 3500 * time.Millisecond
	prolongEvery = 4 * time.Second
)

// Enqueue returns the name of the entry in the nodes' queues for a question, about to be sent,
// that queues it.
func (w *Queues) Enqueue(m *Waiter) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	m.queue.queued, m.queue.behind = true, false
	return w.entryOf(m.queue)
}

// entryOf returns the name of a queue's entry, and names it if need be. Needs w.mu.
func (w *Queues) entryOf(r *queue) string {
	if r.entry == "" {
		r.entry = r.label + ":" + w.cfg.UUID()
	}
	return r.entry
}

// Asking notes a look or an attempt of a waiter, about to be sent: if an attempt fails and its end
// is announced, that is no news to the waiter. It returns the last question that removes the entry,
// or nil: one that queues the entry is sent after it.
func (w *Queues) Asking(m *Waiter, b *quorum.Call) (removing *quorum.Call) {
	if m.queue == nil { // the caller does not wait, and need not lock a mutex
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	r := m.queue
	r.asking = b
	if b.Question.Kind == wire.AskWait {
		r.enters = b
	}
	if b.Question.Value != "" {
		m.mine = b.Question.Value
	}
	return r.dequeue
}

// Prolongs reports whether a question, about to be sent, is to prolong the ttl of the nodes'
// queues, and notes that it does. attempt is the number of the caller's attempt that asks it.
func (w *Queues) Prolongs(m *Waiter, attempt int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	r, now := m.queue, time.Now()
	if attempt < 3 { // later ones refresh an entry
		return r.prolongs(now)
	}
	r.prolonged = now
	return true
}

// prolongs is Prolongs for a question that refreshes no entry. Needs w.mu.
func (r *queue) prolongs(now time.Time) bool {
	if now.Sub(r.prolonged) < prolongEvery {
		return false
	}
	r.prolonged = now
	return true
}

// Question returns the head's next look, and notes what it does: it queues if announcements
// to the entry would be heard. A glance does so only if it has to. known says whether the callers'
// errors have the holder; if not, or if a release may have outdated that, the look reads it as well.
func (w *Queues) Question(m *Waiter, glance, known bool) wire.Question {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := m.queue
	q := r.look(glance, time.Now())
	if !known || r.plan.Unsure() {
		q.ReadHolder(r.name)
	}
	return q
}

// look is Question without the holder. Needs w.mu.
func (r *queue) look(glance bool, now time.Time) wire.Question {
	if !r.plan.Hears() || glance && r.queued && !r.behind && now.Sub(r.placed) < freshFor {
		return wire.LookQuestion(r.name)
	}
	behind := r.behind || !r.queued
	r.queued, r.behind, r.asked, r.prolonged = true, false, true, now
	r.placed = time.Time{} // Looked knows
	return wire.WaitQuestion(r.name, r.entry, behind)
}

// removeEntry returns the question that removes the entry from the nodes' queues. Needs w.mu.
func (w *Queues) removeEntry(r *queue) *quorum.Call {
	r.queued = false
	r.dequeue = w.cfg.Removal(r.name, r.entry, r.ttl)
	r.dequeue.Follow(r.enters)
	r.enters = nil
	return r.dequeue
}

// listen subscribes to the announcements to the queue's entry, unless it has. Needs w.mu.
func (w *Queues) listen(r *queue) {
	if r.channel != "" {
		return
	}
	r.channel = r.name.Channel + ":" + w.entryOf(r)
	w.byChannel[r.channel] = r
	for _, e := range w.subscribers {
		if e != nil {
			e.Listen(r.channel)
		}
	}
}

// Subscribed implements pubsub.Listener: node i's announcements on a channel are heard from now
// on, or no longer.
func (w *Queues) Subscribed(i int, channel string, yes bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r := w.byChannel[channel]; r != nil {
		r.wake(r.plan.Subscribed(i, yes, time.Now()))
	}
	w.watchersHear(i, channel, yes)
}

// Announced implements pubsub.Listener: node i announced text on a channel.
func (w *Queues) Announced(i int, channel, text string) {
	if b := w.announced(i, channel, text); b != nil {
		w.cfg.Send(b)
	}
}

// announced tells the plan of an announcement. If nobody waits any more, it returns the
// question that removes our entry from the nodes' queues and notifies the next waiters instead.
func (w *Queues) announced(i int, channel, text string) *quorum.Call {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wakeWatchers(channel)
	r := w.byChannel[channel]
	if r == nil {
		return nil
	}
	now := time.Now()
	mine := ""
	if r.first != nil {
		mine = r.first.mine
	}
	told, wake := r.plan.Announced(i, text, mine, now)
	r.wake(wake)
	if !told || r.first != nil || !r.queued || r.holds(now) {
		return nil
	}
	r.comesBack = false
	return w.removeEntry(r)
}
