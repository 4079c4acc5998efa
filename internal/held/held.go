// Package held keeps the list of the locks that a Locker holds. Closing the Locker releases
// them, and a check every half second finds those that expired while the machine slept, and
// those that are held for so long that their fence registers need a ttl.
package held

import (
	"sync"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/clock"
)

const (
	// watchEvery is the interval of checks of the wall clock: while a machine sleeps,
	// the monotonic clock stops, and with it every timer. It bounds how long after
	// waking a loss during the sleep is signalled. Doubled, that is more than the second
	// which KeepAlive promises.
	watchEvery = 500 * time.Millisecond

	// sweepEvery is the number of checks after which expired locks are dropped from the list:
	// half a minute. Until then they only take memory. Halved, a Locker with 100,000 locks
	// checks each of them twice as often.
	sweepEvery = 60

	// registerGrace is how long a lock is held before a command of its own gives its
	// fence registers a ttl. Release and Extend do that anyway; this is for locks that
	// expire. Much shorter, every lock would pay for it.
	registerGrace = time.Second
)

// An Entry is a lock's place in the list. The List's mutex guards it.
type Entry[L comparable] struct {
	prev, next L // zero at the ends
	in         bool
	gated      bool          // the gate counts the key as busy as long as the lock is in the list
	since      clock.Instant // when it was added
}

// A Config tells a List about its locks.
type Config[L comparable] struct {
	Now     clock.Clock
	Entry   func(L) *Entry[L]
	Freed   func(L)            // called when a gated lock leaves the list or by Free, with the List's mutex held
	Grown   func(L)            // called once for a lock that has been in the list for a second
	Expired func(L) (yes bool) // checks a lock; one that has expired is dropped
}

// A List has the locks in order of acquisition, oldest first. It is safe for concurrent use.
type List[L comparable] struct {
	cfg Config[L]

	// Guarded by mu, under which no mutex is taken but what Freed takes.
	mu          sync.Mutex
	closed      bool // no lock is added any more
	first, last L
	young       L // the first that Grown was not called for
	n           int
	watch       *time.Timer   // runs while the list is not empty
	watched     clock.Instant // the last check
	checks      int
}

// New returns an empty List.
func New[L comparable](cfg Config[L]) *List[L] { return &List[L]{cfg: cfg} }

// Add adds a lock to the list. It returns false if the list is closed.
func (h *List[L]) Add(k L) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	var none L
	now := h.cfg.Now()
	*h.cfg.Entry(k) = Entry[L]{prev: h.last, in: true, since: now}
	if h.last != none {
		h.cfg.Entry(h.last).next = k
	} else {
		h.first = k
	}
	h.last = k
	if h.young == none {
		h.young = k
	}
	if h.n++; h.n == 1 {
		h.watched = now
		if h.watch == nil {
			h.watch = time.AfterFunc(watchEvery, h.check)
		} else {
			h.watch.Reset(watchEvery)
		}
	}
	return true
}

// Remove removes a lock from the list, if it is there.
func (h *List[L]) Remove(k L) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var none L
	p := h.cfg.Entry(k)
	if !p.in {
		return
	}
	if h.young == k {
		h.young = p.next
	}
	if p.prev != none {
		h.cfg.Entry(p.prev).next = p.next
	} else {
		h.first = p.next
	}
	if p.next != none {
		h.cfg.Entry(p.next).prev = p.prev
	} else {
		h.last = p.prev
	}
	if p.gated {
		h.cfg.Freed(k)
	}
	*p = Entry[L]{}
	if h.n--; h.n == 0 {
		h.watch.Stop()
	}
}

// Gate has Freed called when the lock leaves the list. It returns false if it has left already.
func (h *List[L]) Gate(k L) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.cfg.Entry(k)
	p.gated = p.in
	return p.in
}

// Free has Freed called for a gated lock at once, since it has expired, and no longer when the lock
// leaves the list.
func (h *List[L]) Free(k L) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p := h.cfg.Entry(k); p.gated {
		p.gated = false
		h.cfg.Freed(k)
	}
}

// All returns the locks in the list.
func (h *List[L]) All() []L {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.all()
}

// all is All. Needs h.mu.
func (h *List[L]) all() (all []L) {
	var none L
	for k := h.first; k != none; k = h.cfg.Entry(k).next {
		all = append(all, k)
	}
	return all
}

// Close ends the checks, and returns the locks in the list. None is added any more.
func (h *List[L]) Close() []L {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	return h.all()
}

// Len returns the number of locks in the list.
func (h *List[L]) Len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.n
}

// check is called by the watch timer, every half second while there are locks.
func (h *List[L]) check() {
	h.mu.Lock()
	if h.closed || h.n == 0 {
		h.mu.Unlock()
		return
	}
	var none L
	now := h.cfg.Now()
	// Timers do not notice that the machine was suspended or the wall clock set forward.
	// Then every lock is checked.
	slept := now.Since(h.watched)-now.At.Sub(h.watched.At) > watchEvery/2
	h.watched = now
	h.checks++
	var all, grown []L
	if slept || h.checks%sweepEvery == 0 {
		all = h.all()
	}
	for h.young != none {
		k := h.young
		if now.Since(h.cfg.Entry(k).since) < registerGrace {
			break
		}
		grown = append(grown, k)
		h.young = h.cfg.Entry(k).next
	}
	h.watch.Reset(watchEvery)
	h.mu.Unlock()

	for _, k := range grown {
		h.cfg.Grown(k)
	}
	for _, k := range all {
		if h.cfg.Expired(k) {
			h.Remove(k)
		}
	}
}

// Unlocked reports whether the mutex could be locked. It is for tests.
func (h *List[L]) Unlocked() bool {
	if !h.mu.TryLock() {
		return false
	}
	h.mu.Unlock()
	return true
}
