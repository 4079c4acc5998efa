package redlock

import (
	"slices"
	"sync"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/pubsub"
	"github.com/seed-ce352c9b/redlock/internal/wait"
	"github.com/seed-ce352c9b/redlock/internal/wire"
)

// The local queues: which callers of this Locker wait, in which order, and who speaks for
// them. What the first of them does is in wait.go, and when it does it in internal/wait.

const (
	// maxHandovers is how often in a row a lock is handed to the next in the same line
	// before it is released for others. More is faster, for a hand-over takes one round
	// and a release two; and the others wait longer.
	maxHandovers = 16

	// linger is how long announcements are listened to after the last waiter left:
	// under contention another will come soon.
	linger = 10 * time.Second

	// maxBefore bounds how many are counted of those who stand before a caller that gives
	// up: where thousands do so at once, each would walk the whole line.
	maxBefore = 100
)

// A waitQueues is the lines of a Locker, by key, and its subscribers.
type waitQueues struct {
	l           *Locker
	subscribers []*pubsub.Subscriber // one per node; nil: it can not be heard
	rules       wait.Rules

	mu        sync.Mutex            // before a subscriber's mu
	queues    map[string]*waitQueue // by full key
	byChannel map[string]*waitQueue // by the channel that is listened to
	sweep     *time.Timer
	sweeping  bool // there are queues without a line
	closed    bool
}

// A waitQueue is where the callers that wait for one key stand, and the plan of the first of
// them. Guarded by waitQueues.mu.
type waitQueue struct {
	name        *wire.LockKey
	first, last *waiter
	plan        wait.Plan   // when the leader asks again
	label       string      // of the entry: that of the first caller to stand here
	entry       string      // in the nodes' queues; "": none yet
	channel     string      // on which the entry is notified; "": the subscribers were not asked to listen
	queued      bool        // the entry may be in a queue
	behind      bool        // it is to go to the end of it
	dequeue     *quorumCall // takes it off; what queues it again goes after that
	handed      int         // how often in a row the lock was handed on in this line
	emptySince  time.Time   // when the last caller left

	lastRound *QuorumError // what the line's last decided round came to; nil: none, or wonBy says more
	wonBy     *quorumCall  // the round by which a caller of the line got the lock; nil: none since
	freeing   string       // the value of the lock of ours whose release began last
}

// wake wakes the leader, if yes, and if there is one.
func (r *waitQueue) wake(yes bool) {
	if yes && r.first != nil {
		r.first.poke()
	}
}

// A waiter is one caller's place in a line. Guarded by waits.mu.
type waiter struct {
	queue      *waitQueue
	prev, next *waiter
	wake       chan struct{} // made before the first wait
	trying     bool          // acts on a wake: if it gives up, the next one is to
	gone       bool          // it has given up
	call       *acquireCall  // whose name, ttl and label do not change
	attempt    *quorumCall   // handed to it; it is to be claimed
	proposal   int64         // of that
	met        wait.Caller   // its ties and its ticket
}

func (m *waiter) poke() {
	select {
	case m.wake <- struct{}{}:
	default: // it will look anyway; also where it has not begun to wait
	}
}

func newWaitQueues(l *Locker) *waitQueues {
	w := &waitQueues{l: l, queues: make(map[string]*waitQueue), byChannel: make(map[string]*waitQueue), subscribers: make([]*pubsub.Subscriber, len(l.lanes))}
	w.rules = wait.Rules{Need: majority(len(l.lanes)), Fair: l.opt.Fair, OwnRetry: l.opt.Retry != nil, Retry: defaultRetry, RetryFirst: retryFirst, RetryMost: retryMost, Rand: l.rand.float}
	for i, ln := range l.lanes {
		if ln.Kind == wire.KindRing {
			continue // a subscription there is to one shard, and panics without any
		}
		if s, ok := ln.Node.(pubsub.Client); ok {
			w.subscribers[i] = pubsub.New(i, s, w)
		}
	}
	return w
}

// close ends listening. It returns what waits for the subscribers' goroutines.
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
				e.Over.Wait()
			}
		}
	}
}

// join puts a caller at the end of the line for a key. Alone there it is to try at
// once.
func (w *waitQueues) join(e *acquireCall) {
	w.mu.Lock()
	defer w.mu.Unlock()
	m, name := &e.waiter, e.name
	m.call, m.met = e, wait.NewCaller(e.began.at)
	r := w.queues[name.Full]
	if r == nil {
		r = &waitQueue{name: name, label: e.label, plan: wait.NewPlan(&w.rules)}
		w.queues[name.Full] = r
	}
	m.queue, m.prev = r, r.last
	if r.last == nil {
		r.first = m
		r.plan.Freed()
	} else {
		r.last.next = m
	}
	r.last = m
}

// leaveQueue takes a caller out of the line, wherever it stands. Acquire defers it, so
// that it runs however Acquire ends: a release can hand an attempt to the caller until
// the caller is marked as gone here, and an attempt that was handed to it by then and
// not claimed is undone here.
//
// If the caller was woken and did not come to an answer, the wake goes to the next one;
// if there is none in this line, to the next in the nodes' queues.
func (l *Locker) leaveQueue(e *acquireCall, won bool) {
	handed, _ := l.queues.claimed(e, true)
	defer func() { // also if Observe panics at what decline sends
		if handed != nil || !won {
			l.expireRegisters(e)
		}
		if b := l.queues.leaveQueue(e); b != nil {
			// After the last attempt there and its rollback: what may be free is told then.
			b.send(e.call, l.lastCleanup(e.name))
		}
	}()
	if handed != nil { // before the next one tries: that goes after the rollback
		l.decline(e, handed)
	}
}

// leaveQueue returns what takes the line's place off the queues, if it was the last one.
func (w *waitQueues) leaveQueue(e *acquireCall) *quorumCall {
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
	if m.trying {
		r.plan.Freed()
	}
	if r.first == nil {
		r.lastRound, r.wonBy, r.freeing = nil, nil, "" // nobody keeps it up to date from now on
	}
	if m.trying && r.handed > 0 && r.first == nil {
		w.entryOf(r)
		r.queued = true // as in handOver, where it had none yet
	}
	switch {
	case r.first != nil && led:
		if w.l.opt.Fair {
			r.plan.Succeed(&r.first.met, time.Now(), w.l.now().at)
		}
		r.first.poke()
	case r.first != nil:
	case r.channel == "" && !r.queued:
		delete(w.queues, r.name.Full)
	default:
		r.emptySince = time.Now()
		if !w.sweeping && !w.closed {
			w.sweeping = true
			w.sweep = restart(w.sweep, linger, w.clear)
		}
		if r.queued {
			r.queued = false
			r.dequeue = w.l.newQuorumCall(OpLeave, r.name, wire.LeaveQuestion(r.name, r.entry, w.l.rand.uuid(), wire.TellWaiters), w.l.now(), allAnswered)
			r.dequeue.q.Patience = w.l.patience(e.ttl)
			return r.dequeue
		}
	}
	return nil
}

// keepRound has everybody in the line know what a decided round of its leader came to.
func (w *waitQueues) keepRound(e *acquireCall, q *QuorumError) {
	if e.waiter.queue == nil { // TryAcquire and Adopt
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	e.waiter.queue.lastRound, e.waiter.queue.wonBy = q, nil
}

// lastKnown is what is known in the line of why a caller does not have the lock, and how many
// stand before the caller there; nil: no round was decided. The wait and the attempt are
// the caller's own.
func (w *waitQueues) lastKnown(e *acquireCall) (q *QuorumError, before int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := e.waiter.queue
	for m := e.waiter.prev; m != nil && before < maxBefore; m = m.prev {
		before++
	}
	switch {
	case r.wonBy != nil:
		q = &QuorumError{Round: r.wonBy.round(), Err: ErrHeld}
		for i := range q.Round.Votes {
			if v := &q.Round.Votes[i]; v.Answer == Yes { // to the one, and a no to the next
				v.Answer, v.Holder = No, r.wonBy.q.Value
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
	q.Round.Wait, q.Round.Attempt = w.l.now().since(e.began), e.attempt
	return q, before
}

// handOver prepares an attempt of the next in line, to be sent right behind the release
// of a lock of this Locker, so that the lock changes hands in one round; nil: it is
// to be released for all. Both are what they always are: if the attempt overtakes the
// release, or somebody comes between, it fails. place is the line's place in the nodes'
// queues, which goes to their end then: who waited longer goes first.
func (w *waitQueues) handOver(k *Lock) (next *quorumCall, place string) {
	seen := max(k.fence, w.l.registerAhead(k.name)) // it takes the Locker's mu, which goes before ours
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.queues[k.name.Full]
	if r == nil || r.first == nil {
		return nil, ""
	}
	r.freeing = k.value
	if w.l.opt.Fair || w.l.isClosed() {
		return nil, ""
	}
	m := r.first
	start := w.l.now()
	proposal := propose(start, seen)
	// Others wait for the end of the ttl that they have seen: nobody tells them of one
	// that ends before.
	shorter := m.call.ttl < k.ttl-start.since(k.start)
	if m.gone || m.trying || m.wake == nil || proposal == 0 || shorter || r.handed >= maxHandovers {
		r.handed = 0
		r.wake(r.plan.AfterOthers(time.Now()))
		return nil, r.entry
	}
	value := m.call.label + ":" + w.l.rand.uuid()
	b := w.l.newQuorumCall(OpAcquire, r.name, wire.AcquireQuestion(w.l.guard, r.name, value, m.call.ttl, proposal), start, acquireDecided)
	b.q.Patience = w.l.patience(m.call.ttl)
	m.attempt, m.proposal, m.trying = b, proposal, true
	r.plan.Handed()
	r.handed++
	r.queued = r.entry != "" // nobody else was told: if this fails, leaving tells them
	return b, ""
}

// wakeUp has the leader claim what was handed to it.
func (w *waitQueues) wakeUp(b *quorumCall) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r := w.queues[b.name.Full]; r != nil && r.first != nil {
		r.first.poke()
	}
}

// claimed takes what was handed to a waiter; nil: nothing was. last: nothing is to be
// handed to it any more.
func (w *waitQueues) claimed(e *acquireCall, last bool) (*quorumCall, int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := &e.waiter
	m.gone = m.gone || last
	b := m.attempt
	m.attempt = nil
	if b == nil && !last {
		m.queue.handed = 0
	}
	return b, m.proposal
}

// entry is the line's place in the nodes' queues, which it has from now on.
func (w *waitQueues) entry(e *acquireCall) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := e.waiter.queue
	r.queued = true
	return w.entryOf(r)
}

// entryOf returns the local queue's entry, which has a name from now on. Needs w.mu.
func (w *waitQueues) entryOf(r *waitQueue) string {
	if r.entry == "" {
		r.entry = r.label + ":" + w.l.rand.uuid()
	}
	return r.entry
}

// dequeueOf is what a question that queues the line has to go after.
func (w *waitQueues) dequeueOf(e *acquireCall) *quorumCall {
	if e.waiter.queue == nil { // TryAcquire stands in no line, and need not wait for a mutex
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return e.waiter.queue.dequeue
}

// clear drops the queues that nobody has come to for a while.
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
