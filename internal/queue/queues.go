// Package queue keeps the callers of one Locker that wait for the same key, in the order in
// which they came.
//
// Only the first of such a local queue, its head, talks to the nodes, by the Plan of package
// wait. For the whole queue it has one entry in the nodes' queues, and one subscription to the
// announcements to that entry. A release in the same Locker may hand the lock to the head.
//
// The package sends no question for the lock: package redlock asks, and tells the queue what
// the nodes replied.
package queue

import (
	"sync"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/clock"
	"github.com/seed-ce352c9b/redlock/internal/lane"
	"github.com/seed-ce352c9b/redlock/internal/pubsub"
	"github.com/seed-ce352c9b/redlock/internal/quorum"
	"github.com/seed-ce352c9b/redlock/internal/wait"
	"github.com/seed-ce352c9b/redlock/internal/wire"
)

// linger is how long a subscription is kept after the last waiter left: under contention
// another comes soon. Halved, more waits begin by subscribing.
const linger = 10 * time.Second

// A Config is what the queues need to know of their Locker. All its functions but Send are
// called with the queues' mutex held: they must call neither the Queues nor a lock's methods.
type Config struct {
	Lanes      []*lane.Lane
	Rules      wait.Rules
	MaxWaiters int // Options.MaxWaiters
	Now        clock.Clock
	UUID       func() string
	Closed     func() bool // reports whether Close has begun

	// Removal returns the question, not sent yet, that removes an entry from the nodes' queues
	// and notifies those behind it. ttl is that of the last caller.
	Removal func(name *wire.LockKey, entry string, ttl time.Duration) *quorum.Call

	// Send sends it where no caller does. It is called with no mutex held.
	Send func(b *quorum.Call)
}

// Queues are the local queues of a Locker, by key, with its subscriptions and its watchers.
// The methods may be called from any number of goroutines.
type Queues struct {
	cfg         Config
	subscribers []*pubsub.Subscriber // one per node; nil: its client cannot subscribe

	mu        sync.Mutex            // before a subscriber's mu
	queues    map[string]*queue     // by full key
	byChannel map[string]*queue     // by the channel that is subscribed to
	watchers  map[string][]*Watcher // of leaders, by channel
	elsewhere map[string]int        // by full key, the callers that count for MaxWaiters and are in no queue
	sweep     *time.Timer
	sweeping  bool // there are queues without a caller
	closed    bool
}

// A queue is the FIFO queue of the callers that wait for one key, with the plan of the
// first of them, the head. Guarded by Queues.mu.
type queue struct {
	name *wire.LockKey

	// The callers, in the order in which they came. first is nil exactly when n is 0.
	first, last *Waiter
	n           int
	plan        wait.Plan     // when the head asks again
	ttl         time.Duration // of the caller that left last
	emptySince  time.Time     // when the last caller left

	// Our entry in the nodes' queues. It has a name once it has a channel or is queued.
	label     string       // of the caller, or the released lock, for which the queue was made
	entry     string       // its name; "": none yet
	channel   string       // on which it is notified; "": not subscribed to
	queued    bool         // it may be in a node's queue
	behind    bool         // it is that of a caller that has got the lock; the next look moves it to the end
	placed    time.Time    // when a majority queued or moved it last; zero: no majority has told since it was asked
	asked     bool         // a look asked last for its place, and no release since
	prolonged time.Time    // when the ttl of the nodes' queues last began anew because of it
	enters    *quorum.Call // the last question that queues it; the one that removes it is sent after this
	dequeue   *quorum.Call // removes it; a question that queues it again is sent after this

	// The locks of this Locker. From heldUntil on, held says nothing.
	held      string // the value of the lock that a caller of the queue got last and holds
	heldUntil time.Time
	winner    *quorum.Call // Fair: the round by which a caller of the queue got the lock last; nil: none since
	comesBack bool         // the caller that found the queue empty last came right after a release
	released  time.Time    // when a lock of ours was released last with nobody here

	// What callers that give up are told. Zero while there are none.
	asking  *quorum.Call // the last round that a head sent; nil: none
	result  error        // of the queue's last decided round; nil: none, or wonBy says more
	wonBy   *quorum.Call // the round by which a caller of the queue got the lock; nil: none since
	freeing string       // the value of the lock of ours whose release began last
}

// wake wakes the head if yes is set and there is one.
func (r *queue) wake(yes bool) {
	if yes && r.first != nil {
		r.first.poke()
	}
}

// holds reports whether a caller of the queue holds the lock, as far as is known.
func (r *queue) holds(now time.Time) bool { return r.held != "" && now.Before(r.heldUntil) }

// A Waiter is one caller's place in a local queue. Its zero value has not joined one. Its
// fields are guarded by Queues.mu, but for Wake, and for what is constant once it has joined.
type Waiter struct {
	Wake chan struct{} // made by the first Next; the waiter then receives from it

	name       *wire.LockKey
	label      string
	ttl        time.Duration
	queue      *queue
	prev, next *Waiter
	trying     bool         // it acts on a wake: if it gives up, the next caller has to
	gone       bool         // it is leaving: nothing is handed to it any more
	mine       string       // the value of its last attempt
	attempt    *quorum.Call // handed to it and not claimed yet
	met        wait.Caller  // its ties and its ticket
}

// Joined reports whether the caller has joined a queue, for the caller itself.
func (m *Waiter) Joined() bool { return m.queue != nil }

// Name returns the lock that the caller wants, which it may want with or without a fence.
func (m *Waiter) Name() *wire.LockKey { return m.name }

// Label returns the label that the caller's values begin with.
func (m *Waiter) Label() string { return m.label }

// TTL returns the ttl that the caller wants.
func (m *Waiter) TTL() time.Duration { return m.ttl }

// Place is wait.Caller.Place, for the head.
func (m *Waiter) Place() (queued bool, ticket int64) { return m.met.Place() }

func (m *Waiter) poke() {
	select {
	case m.Wake <- struct{}{}:
	default: // it was woken already, or has not begun to wait: it asks the plan in any case
	}
}

// New returns the queues of a Locker, without a caller.
func New(c Config) *Queues {
	w := &Queues{cfg: c, queues: make(map[string]*queue), byChannel: make(map[string]*queue), elsewhere: make(map[string]int), subscribers: make([]*pubsub.Subscriber, len(c.Lanes))}
	for i, ln := range c.Lanes {
		if ln.Kind == wire.KindRing {
			continue // it would subscribe to one shard, and panics without any
		}
		if s, ok := ln.Node.(pubsub.Client); ok {
			w.subscribers[i] = pubsub.New(i, s, w)
		}
	}
	return w
}

// Close ends the subscriptions. It returns a function that waits for the subscribers' goroutines.
func (w *Queues) Close() (ended func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	if w.sweep != nil {
		w.sweep.Stop()
	}
	for _, e := range w.subscribers {
		if e != nil {
			e.Close()
		}
	}
	return func() {
		for _, e := range w.subscribers {
			if e != nil {
				e.Goroutines.Wait()
			}
		}
	}
}

// Join puts a caller at the end of the local queue for its key, and returns how many are
// before it. A caller that is alone there tries at once, unless this Locker holds the lock or
// leaves it to others. ok is false, and the caller has not
// joined, if MaxWaiters allows no more callers. placed says that it has a place by Take, which
// it exchanges for one in the queue.
func (w *Queues) Join(m *Waiter, name *wire.LockKey, label string, ttl time.Duration, began time.Time, placed bool) (ahead int, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	m.name, m.label, m.ttl, m.met = name, label, ttl, wait.NewCaller(began)
	if placed {
		w.give(name.Full)
	}
	if w.full(name.Full) {
		return 0, false
	}
	r := w.queueOf(name, label)
	ahead = r.n
	m.queue, m.prev = r, r.last
	if r.last == nil {
		r.first = m
		now := time.Now()
		r.comesBack = now.Sub(r.released) < comesBackWithin
		r.plan.Joined(r.holds(now), r.queued, now)
		if w.cfg.Rules.Fair && r.plan.Contended() {
			r.plan.Succeed(&m.met, false, now, w.cfg.Now().At)
		}
	} else {
		r.last.next = m
	}
	r.last = m
	r.n++
	return ahead, true
}

// full reports whether MaxWaiters allows no more callers that wait for a key. Needs w.mu.
func (w *Queues) full(key string) bool {
	n := w.elsewhere[key]
	if r := w.queues[key]; r != nil {
		n += r.n
	}
	return w.cfg.MaxWaiters > 0 && n >= w.cfg.MaxWaiters
}

// Take counts a caller that waits for a key without being in its queue, until Give or Join. ok is
// false, and it is not counted, if MaxWaiters allows no more callers.
func (w *Queues) Take(key string) (ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if ok = !w.full(key); ok {
		w.elsewhere[key]++
	}
	return ok
}

// Give no longer counts a caller that Take has counted.
func (w *Queues) Give(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.give(key)
}

// give is Give. Needs w.mu.
func (w *Queues) give(key string) {
	if w.elsewhere[key]--; w.elsewhere[key] == 0 {
		delete(w.elsewhere, key)
	}
}

// Waiting reports whether callers wait for the key.
func (w *Queues) Waiting(name *wire.LockKey) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.queues[name.Full]
	return r != nil && r.first != nil
}

// queueOf returns the queue for a key. Needs w.mu.
func (w *Queues) queueOf(name *wire.LockKey, label string) *queue {
	r := w.queues[name.Full]
	if r == nil {
		r = &queue{name: name, label: label, plan: wait.NewPlan(&w.cfg.Rules)}
		w.queues[name.Full] = r
	}
	return r
}

// Leave takes a caller out of its local queue, wherever it stands. If the caller was woken and
// its try has no result, the wake goes to the next caller in this queue, or if there is none,
// to the next entry in the nodes' queues.
//
// If m was the last waiter, Leave returns the question that removes the entry from the nodes'
// queues, which is to be sent. There is none if m won and its release is going to move or remove
// the entry.
func (w *Queues) Leave(m *Waiter, won bool) *quorum.Call {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := m.queue
	led := r.first == m
	if led {
		r.first = m.next
	} else {
		m.prev.next = m.next
	}
	if r.last == m {
		r.last = m.prev
	} else {
		m.next.prev = m.prev
	}
	m.prev, m.next = nil, nil
	r.n--
	r.ttl = m.ttl
	if m.trying {
		r.plan.Freed()
	}
	if r.first == nil {
		r.asking, r.result, r.wonBy, r.freeing = nil, nil, nil, "" // nobody updates them from now on
	}
	switch {
	case r.first != nil && led:
		if w.cfg.Rules.Fair {
			r.plan.Succeed(&r.first.met, won, time.Now(), w.cfg.Now().At)
		}
		r.first.poke()
	case r.first != nil:
	case r.channel == "" && !r.queued && !r.plan.Contended():
		delete(w.queues, r.name.Full)
	default:
		w.sweepLater(r)
		if r.queued && !(won && (r.comesBack || w.cfg.Rules.Fair)) {
			return w.removeEntry(r)
		}
	}
	return nil
}

// sweepLater has a queue without a caller dropped in a while. Needs w.mu.
func (w *Queues) sweepLater(r *queue) {
	r.emptySince = time.Now()
	switch {
	case w.sweeping || w.closed:
		return
	case w.sweep == nil:
		w.sweep = time.AfterFunc(linger, w.clear)
	default:
		w.sweep.Reset(linger)
	}
	w.sweeping = true
}

// clear drops the queues that have had no caller for linger, and their subscriptions.
func (w *Queues) clear() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sweeping = false
	for key, r := range w.queues {
		switch idle := time.Since(r.emptySince); {
		case r.first != nil:
		case idle >= linger:
			delete(w.queues, key)
			delete(w.byChannel, r.channel)
			for _, e := range w.subscribers {
				if e != nil {
					e.Ignore(r.channel)
				}
			}
		default:
			w.sweeping = true
		}
	}
	if w.sweeping {
		w.sweep.Reset(linger)
	}
}

// Known is what a queue knows of the lock that its callers wait for.
type Known struct {
	Result  error        // the last that KeepResult kept; nil: none, or WonBy says more
	WonBy   *quorum.Call // the round by which a caller of the queue got the lock; nil: none since
	Freeing string       // the value of the lock of this Locker whose release began last
	Asking  *quorum.Call // the last round that a caller of the queue sent, decided or not; nil: none
	Before  int          // the callers before this one
}

// KeepResult keeps the error of a head's decided round for every caller of its queue.
func (w *Queues) KeepResult(m *Waiter, result error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	m.queue.result, m.queue.wonBy = result, nil
}

// Known returns what the caller's queue knows. It counts no more than most callers.
func (w *Queues) Known(m *Waiter, most int) Known {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := m.queue
	k := Known{Result: r.result, WonBy: r.wonBy, Freeing: r.freeing, Asking: r.asking}
	for m = m.prev; m != nil && k.Before < most; m = m.prev {
		k.Before++
	}
	return k
}

// Size returns the number of queues, and of those that are subscribed to, for tests.
func (w *Queues) Size() (queues, channels int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.queues), len(w.byChannel)
}

// Subscription returns whether the client of the i-th node can subscribe, and to how many
// channels the node has confirmed that it is subscribed, for tests.
func (w *Queues) Subscription(i int) (able bool, confirmed int) {
	if e := w.subscribers[i]; e != nil {
		return true, e.Confirmed()
	}
	return false, 0
}

// Unlocked reports whether nobody holds the mutex, for tests.
func (w *Queues) Unlocked() bool {
	if !w.mu.TryLock() {
		return false
	}
	w.mu.Unlock()
	return true
}
