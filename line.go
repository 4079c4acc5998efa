package redlock

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/pubsub"
	"github.com/seed-ce352c9b/redlock/internal/quorum"
	"github.com/seed-ce352c9b/redlock/internal/wait"
	"github.com/seed-ce352c9b/redlock/internal/wire"
)

// The local queues: which callers of this Locker wait, in which order, and who speaks for
// them. What the first of them does is in wait.go, and when it does it in internal/wait.

const (
	// comesBack is how soon after a release the next caller comes where callers take turns
	// without a pause. The entry then stays in the nodes' queues, at their end, so that this
	// caller need not queue again. Halved, more callers do; doubled, an entry more often
	// comes to be first while nobody waits for it, and others wait for a message longer.
	comesBack = 5 * time.Millisecond

	// freshFor is how long after it was put there an entry is kept without being refreshed,
	// and prolongEvery how often the ttl of the nodes' queues is. Both leave room for two
	// polls of a waiter before the entry expires. Halved, a look costs a node more commands.
	freshFor     = 3500 * time.Millisecond
	prolongEvery = 4 * time.Second

	// linger is how long a subscription is kept after the last waiter left: under contention
	// another comes soon. Halved, more waits begin by subscribing.
	linger = 10 * time.Second

	// maxBefore is how many callers at most are counted before one that gives up, for its
	// error: where thousands give up at once, each would walk the whole queue. Halved, the
	// error of a caller behind more than 50 is less exact.
	maxBefore = 100
)

// A waitQueues holds the local queues of a Locker, by key, and its subscribers.
type waitQueues struct {
	l           *Locker
	subscribers []*pubsub.Subscriber // one per node; nil: its client cannot subscribe
	rules       wait.Rules

	mu        sync.Mutex            // before a subscriber's mu
	queues    map[string]*waitQueue // by full key
	byChannel map[string]*waitQueue // by the channel that is subscribed to
	watchers  map[string][]*watcher // of leaders, by channel
	sweep     *time.Timer
	sweeping  bool // there are queues without a caller
	closed    bool
}

// A waitQueue is the FIFO queue of the callers that wait for one key, with the plan of the
// first of them, the leader. Guarded by waitQueues.mu.
type waitQueue struct {
	name *wire.LockKey

	// The callers, in the order in which they came. first is nil exactly when n is 0.
	first, last *waiter
	n           int
	plan        wait.Plan     // when the leader asks again
	ttl         time.Duration // that the last caller asked for
	emptySince  time.Time     // when the last caller left

	// Our entry in the nodes' queues. It has a name once it has a channel or is queued.
	label     string             // that of the first caller in this queue
	entry     string             // its name; "": none yet
	channel   string             // on which it is notified; "": not subscribed to
	queued    bool               // it may be in a node's queue
	behind    bool               // the next look moves it to the end
	placed    time.Time          // when it was queued or moved last
	prolonged time.Time          // when the ttl of the nodes' queues last began anew because of it
	enters    *quorum.Call // the last question that queues it; the one that removes it is sent after this
	dequeue   *quorum.Call // removes it; a question that queues it again is sent after this

	// The locks of this Locker. From heldUntil on, held says nothing.
	held      string // the value of the lock that a caller of the queue got last and holds
	heldUntil time.Time
	quiet     bool               // the lock may be free because of us, which nobody was notified of, and no attempt has shown a holder since
	winner    *quorum.Call // Fair: the round by which a caller of the queue got the lock last; nil: none since
	comesBack bool               // the last caller came right after a release
	released  time.Time          // when a lock of ours was released last with nobody here

	// What callers that give up are told. Zero while there are none.
	lastRound *QuorumError       // the result of the queue's last decided round; nil: none, or wonBy says more
	wonBy     *quorum.Call // the round by which a caller of the queue got the lock; nil: none since
	freeing   string             // the value of the lock of ours whose release began last
}

// wake wakes the leader if yes is set and there is one.
func (r *waitQueue) wake(yes bool) {
	if yes && r.first != nil {
		r.first.poke()
	}
}

// holds reports whether a caller of the queue holds the lock, as far as is known.
func (r *waitQueue) holds(now time.Time) bool { return r.held != "" && now.Before(r.heldUntil) }

// A waiter is one caller's place in a local queue. Guarded by waitQueues.mu.
type waiter struct {
	queue      *waitQueue
	prev, next *waiter
	wake       chan struct{}      // made before the first wait
	trying     bool               // it acts on a wake: if it gives up, the next caller has to
	gone       bool               // it has given up
	call       *acquireCall       // whose name, ttl and label do not change
	attempt    *quorum.Call // handed to it and not claimed yet
	proposal   int64              // of that
	met        wait.Caller        // its ties and its ticket
}

func (m *waiter) poke() {
	select {
	case m.wake <- struct{}{}:
	default: // it was woken already, or has not begun to wait: it asks the plan in any case
	}
}

func newWaitQueues(l *Locker) *waitQueues {
	w := &waitQueues{l: l, queues: make(map[string]*waitQueue), byChannel: make(map[string]*waitQueue), subscribers: make([]*pubsub.Subscriber, len(l.lanes))}
	w.rules = wait.Rules{Need: majority(len(l.lanes)), Fair: l.opt.Fair, OwnRetry: l.opt.Retry != nil, Retry: defaultRetry, RetryFirst: retryFirst, RetryMost: retryMost, Rand: l.rand.float}
	for i, ln := range l.lanes {
		if ln.Kind == wire.KindRing {
			continue // it would subscribe to one shard, and panics without any
		}
		if s, ok := ln.Node.(pubsub.Client); ok {
			w.subscribers[i] = pubsub.New(i, s, w)
		}
	}
	return w
}

// close ends the subscriptions. It returns a function that waits for the subscribers' goroutines.
func (w *waitQueues) close() (ended func()) {
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

// join puts a caller at the end of the local queue for its key. A caller that is alone there
// tries at once. The error says that Options.MaxWaiters allows no more callers.
func (w *waitQueues) join(e *acquireCall) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	m, name := &e.waiter, e.name
	m.call, m.met = e, wait.NewCaller(e.began.At)
	r := w.queues[name.Full]
	if most := w.l.opt.MaxWaiters; r != nil && most > 0 && r.n >= most {
		return tooManyWaiters(e, most)
	}
	r = w.queueOf(name, e.label)
	e.ahead = r.n
	m.queue, m.prev = r, r.last
	if r.last == nil {
		r.first = m
		now := time.Now()
		r.comesBack = now.Sub(r.released) < comesBack
		r.plan.Joined(r.holds(now), r.queued, now)
		if w.l.opt.Fair && r.plan.Contended() {
			r.plan.Succeed(&m.met, now, w.l.now().At)
		}
	} else {
		r.last.next = m
	}
	r.last = m
	r.n++
	return nil
}

// refused tells the queue of a caller that has just joined it that an attempt outside of the
// queue was refused, or nil. If the caller is alone there, it plans its next try by that.
func (w *waitQueues) refused(ctx context.Context, e *acquireCall, err error) {
	if err == nil {
		return
	}
	w.mu.Lock()
	alone := e.waiter.queue.first == &e.waiter
	if alone {
		e.waiter.queue.plan.Handed()
		e.waiter.trying = true // if it gives up before the plan is made, the next caller has to try
	}
	w.mu.Unlock()
	if alone {
		w.tried(ctx, e, nil, err)
	}
}

// waiting reports whether callers wait for the key.
func (w *waitQueues) waiting(name *wire.LockKey) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.queues[name.Full]
	return r != nil && r.first != nil
}

// queueOf returns the queue for a key. Needs w.mu.
func (w *waitQueues) queueOf(name *wire.LockKey, label string) *waitQueue {
	r := w.queues[name.Full]
	if r == nil {
		r = &waitQueue{name: name, label: label, plan: wait.NewPlan(&w.rules)}
		w.queues[name.Full] = r
	}
	return r
}

// leaveQueue takes a caller out of its local queue, wherever it stands. Acquire defers it, so
// that it runs however Acquire ends. A release can hand an attempt to the caller until the
// caller is marked as gone here; an attempt that was handed to it by then and not claimed is
// undone here.
//
// If the caller was woken and its try has no result, the wake goes to the next caller in this
// queue, or if there is none, to the next entry in the nodes' queues. So does a lock that was
// handed on, or taken back quietly, if no attempt has shown a holder since.
func (l *Locker) leaveQueue(e *acquireCall, won bool) {
	handed, _ := l.queues.claimed(e, true)
	defer func() { // also if the user's Trace panics at what decline sends
		if handed != nil || !won {
			l.expireRegisters(e)
		}
		if b := l.queues.leaveQueue(e, won); b != nil {
			// After the last attempt and its rollback: what is free then is announced.
			b.Send(e.call, l.cleanups.Last(e.name))
		}
	}()
	if handed != nil { // before the next caller tries, which is sent after the rollback
		l.decline(e, handed)
	}
}

// leaveQueue returns the call that removes the entry from the nodes' queues, if e was the last
// caller. If it won and its release is going to move or remove the entry, there is none.
func (w *waitQueues) leaveQueue(e *acquireCall, won bool) *quorum.Call {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := &e.waiter
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
	r.ttl = e.ttl
	if m.trying {
		r.plan.Freed()
	}
	if r.first == nil {
		r.lastRound, r.wonBy, r.freeing = nil, nil, "" // nobody updates them from now on
	}
	if r.quiet && r.first == nil {
		w.entryOf(r)
		r.queued, r.quiet = true, false // handOver told nobody, and there may be no entry yet
	}
	switch {
	case r.first != nil && led:
		if w.l.opt.Fair {
			r.plan.Succeed(&r.first.met, time.Now(), w.l.now().At)
		}
		r.first.poke()
	case r.first != nil:
	case r.channel == "" && !r.queued && !r.plan.Contended():
		delete(w.queues, r.name.Full)
	default:
		w.sweepLater(r)
		if r.queued && !(won && (r.comesBack || w.l.opt.Fair)) {
			return w.leave(r)
		}
	}
	return nil
}

// sweepLater has a queue without a caller dropped in a while. Needs w.mu.
func (w *waitQueues) sweepLater(r *waitQueue) {
	r.emptySince = time.Now()
	if !w.sweeping && !w.closed {
		w.sweeping = true
		w.sweep = restart(w.sweep, linger, w.clear)
	}
}

// leave returns the call that removes the entry from the nodes' queues. Needs w.mu.
func (w *waitQueues) leave(r *waitQueue) *quorum.Call {
	r.queued = false
	r.dequeue = w.l.newQuorumCall(OpLeave, r.name, wire.LeaveQuestion(r.name, r.entry, w.l.rand.uuid(), wire.NotifyCount), w.l.now(), allAnswered)
	r.dequeue.Question.Patience = w.l.patience(r.ttl)
	r.dequeue.Previous, r.enters = r.enters, nil
	return r.dequeue
}

// keepRound keeps the result of a leader's decided round for every caller of its queue.
func (w *waitQueues) keepRound(e *acquireCall, q *QuorumError) {
	if e.waiter.queue == nil { // TryAcquire and Adopt
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	e.waiter.queue.lastRound, e.waiter.queue.wonBy = q, nil
}

// lastKnown returns why a caller does not have the lock, as far as its queue knows, and how many
// callers are before it, up to maxBefore. The error is nil if no round was decided; its Wait and
// Attempt are the caller's own.
func (w *waitQueues) lastKnown(e *acquireCall) (q *QuorumError, before int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := e.waiter.queue
	for m := e.waiter.prev; m != nil && before < maxBefore; m = m.prev {
		before++
	}
	switch {
	case r.wonBy != nil:
		q = &QuorumError{Round: roundOf(r.wonBy), Err: ErrHeld}
		for i := range q.Round.Votes {
			if v := &q.Round.Votes[i]; v.Answer == Yes { // a yes to the winner is a no to this caller
				v.Answer, v.Holder = No, r.wonBy.Question.Value
			}
		}
	case r.lastRound == nil || r.lastRound == e.last:
		return e.last, before
	default:
		q = new(*r.lastRound)
		q.Round.Votes = slices.Clone(q.Round.Votes)
	}
	if r.freeing != "" && r.freeing == q.Round.Holder() {
		q.hint = "being released"
	}
	q.Round.Wait, q.Round.Attempt = w.l.now().Since(e.began), e.attempt
	return q, before
}

// entry returns the name of the entry in the nodes' queues for a question that queues it.
func (w *waitQueues) entry(e *acquireCall) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := e.waiter.queue
	r.queued = true
	return w.entryOf(r)
}

// entryOf returns the name of a queue's entry, and names it if need be. Needs w.mu.
func (w *waitQueues) entryOf(r *waitQueue) string {
	if r.entry == "" {
		r.entry = r.label + ":" + w.l.rand.uuid()
	}
	return r.entry
}

// entering notes a question, about to be sent, that queues the entry.
func (w *waitQueues) entering(e *acquireCall, b *quorum.Call) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r := e.waiter.queue; r != nil {
		r.enters = b
	}
}

// dequeueOf returns the call after which a question that queues the entry is sent, or nil.
func (w *waitQueues) dequeueOf(e *acquireCall) *quorum.Call {
	if e.waiter.queue == nil { // TryAcquire does not wait, and need not lock a mutex
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return e.waiter.queue.dequeue
}

// clear drops the queues that have had no caller for linger, and their subscriptions.
func (w *waitQueues) clear() {
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
