package redlock

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/clock"
	"github.com/seed-ce352c9b/redlock/internal/lane"
	"github.com/seed-ce352c9b/redlock/internal/quorum"

	"golang.org/x/sync/errgroup"
)

// silentAfter returns how long a node may leave a question unanswered before Close treats
// it as silent, unless three of its round trips are longer: a quarter of the node
// timeout. Halved, a node that stalls for a moment keeps locks that it would have
// released; doubled, a hung node delays the exit of every process by as much.
func (l *Locker) silentAfter() time.Duration { return l.closeWait() / 8 }

// closeWait returns how long Close waits at most: two node timeouts.
func (l *Locker) closeWait() time.Duration {
	if l.opt.NodeTimeout > 0 {
		return 2 * l.opt.NodeTimeout
	}
	return 2 * maxNodeTimeout
}

// maxCloseErrors bounds the locks whose errors Close joins: if no node replies, it is every
// lock. Halved, the error names fewer.
const maxCloseErrors = 10

// Close ends waiting calls and KeepAlive contexts with ErrClosed, releases the locks that
// are still held, waits for these releases and for pending clean-ups, and closes the clients
// that Open made, but not those that were given to New. It takes at most two node timeouts
// (two seconds by default).
//
// Close returns nil if each of these locks was released and each client closed. Otherwise it
// joins the errors: for each lock that was not released a *QuorumError, as Lock.Release
// returns it (ErrNoQuorum, with the time at which its keys expire, or ErrLost), for at most ten
// of them, and the first client's own error, with the name of the node. The Locker is closed
// all the same.
//
// From then on all methods of the Locker, a second Close included, return ErrClosed,
// whatever else is wrong with the call. So does Lock.Extend, and it is the cause of
// contexts from KeepAlive. Lock.Release returns the result of the release that Close made.
//
// Once a majority of the nodes has replied, Close does not wait for a node that has left a
// question unanswered for a quarter of the node timeout or, if that is longer, for three of
// its round trips. Such a node may keep a key, or store it when it wakes: the key expires
// with its ttl, and on one node alone it excludes nobody.
func (l *Locker) Close() (err error) {
	l.made()
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return ErrClosed
	}
	l.closed = true
	close(l.closing)
	l.mu.Unlock()
	held := l.allHeld()
	for _, k := range held {
		k.endKeepAlive(ErrClosed)
	}
	limit := time.NewTimer(l.closeWait())
	defer limit.Stop()
	// First the calls in progress undo what they have stored, then the locks are released:
	// a failed adoption puts the old value back.
	calls := make(chan struct{})
	go func() { l.busy.Wait(); close(calls) }()
	select {
	case <-calls:
	case <-limit.C:
		limit.Reset(0)
	}
	l.registers.Close()
	l.awaitIdle(limit)
	// Deferred, since the caller's Trace may panic on a release.
	released := make([]*quorum.Call, len(held))
	defer func() { err = l.shutDown(held, released, limit) }()
	lane.Each(0, len(held), func(i int) {
		released[i] = held[i].beginRelease(context.Background(), ErrClosed)
	})
	return nil
}

// shutDown waits for the releases, within the limit, and stops queues, lanes and clients.
func (l *Locker) shutDown(held []*Lock, released []*quorum.Call, limit *time.Timer) error {
	var errs []error
	for i, b := range released {
		if b == nil {
			continue // it had ended before
		}
		select {
		case <-b.Done():
		case <-limit.C:
			limit.Reset(0)
		}
		if err := held[i].released(b); err != nil && held[i].wasReleasedInTime() && len(errs) < maxCloseErrors {
			errs = append(errs, err)
		}
	}
	l.awaitIdle(limit)
	deaf := l.queues.Close()
	for _, ln := range l.lanes {
		ln.Close()
	}
	heard := make(chan struct{})
	go func() { deaf(); close(heard) }()
	select {
	case <-heard:
	case <-time.After(l.silentAfter()): // dialling, which the clients' timeouts bound
	case <-limit.C:
	}
	var clients errgroup.Group // Close waits for the connections of its pool
	for i, c := range l.owned {
		clients.Go(func() error {
			if err := c.Close(); err != nil {
				return fmt.Errorf("redlock: close the client of %s: %w", l.lanes[i].Name, err)
			}
			return nil
		})
	}
	return errors.Join(append(errs, clients.Wait())...)
}

// wasReleasedInTime reports whether the lock was held when its release began.
func (k *Lock) wasReleasedInTime() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.releasedInTime
}

// Held returns the locks that this Locker holds, oldest first, for example to log them before
// Close or to show them. They are those that were held when the iteration began and are still
// valid when they are yielded. The loop may call the Locker and its Locks.
func (l *Locker) Held() iter.Seq[*Lock] {
	l.made()
	return func(yield func(*Lock) bool) {
		for _, k := range l.allHeld() {
			if k.Valid() && !yield(k) {
				return
			}
		}
	}
}

// allHeld returns the locks on the list.
func (l *Locker) allHeld() (all []*Lock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k := l.held.first; k != nil; k = k.entry.next {
		all = append(all, k)
	}
	return all
}

// awaitIdle waits, up to the limit, until the nodes have answered everything. Once a
// majority of them has, it does not wait for silent ones.
func (l *Locker) awaitIdle(limit *time.Timer) {
	lane.AwaitIdle(l.lanes, majority(len(l.lanes)), l.silentAfter(), limit)
}

// begin records a call that may send something, for whose end Close waits. It returns
// false if the Locker is closed.
func (l *Locker) begin() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.busy.Add(1)
	}
	return !l.closed
}

func (l *Locker) end() { l.busy.Done() }

func (l *Locker) isClosed() bool {
	select {
	case <-l.closing:
		return true
	default:
		return false
	}
}

// expired reports whether Until has passed on the monotonic clock. The wall clock alone may
// be set back again, and then Close has to find the lock.
func (k *Lock) expired() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.state != stateHeld || k.l.now().At.Sub(k.start.At) >= k.valid
}

// The Locker's list of held locks: Close releases them, and a check every half second
// finds those that expired while the machine slept, and those that are held for so long
// that their fence registers need a ttl.

// A heldEntry is a lock's place in the list. Guarded by the Locker's mu.
type heldEntry struct {
	prev, next *Lock
	in         bool
	gated      bool          // the Locker's gate counts the key as busy as long as the lock is in the list
	since      clock.Instant // when it was added
}

// A heldList has the locks in order of acquisition, oldest first. Guarded by the Locker's
// mu.
type heldList struct {
	first, last *Lock
	young       *Lock // the first whose registers have not been given a ttl yet
	n           int
	watch       *time.Timer   // runs while the list is not empty
	watched     clock.Instant // the last check
	looks       int
}

// sweepEvery is the number of checks after which expired locks are dropped from the list:
// half a minute. Until then they only take memory.
const sweepEvery = 60

// addHeld adds a lock to the list. It returns false if the Locker is closed.
func (l *Locker) addHeld(k *Lock) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	h := &l.held
	k.entry = heldEntry{prev: h.last, in: true, since: l.now()}
	if h.last != nil {
		h.last.entry.next = k
	} else {
		h.first = k
	}
	h.last = k
	if h.young == nil {
		h.young = k
	}
	if h.n++; h.n == 1 {
		h.watched = l.now()
		h.watch = restart(h.watch, watchEvery, l.look)
	}
	return true
}

// removeHeld removes a lock from the list, if it is there.
func (l *Locker) removeHeld(k *Lock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop(k)
}

// drop is removeHeld. Needs l.mu.
func (l *Locker) drop(k *Lock) {
	h, p := &l.held, &k.entry
	if !p.in {
		return
	}
	if h.young == k {
		h.young = p.next
	}
	if p.prev != nil {
		p.prev.entry.next = p.next
	} else {
		h.first = p.next
	}
	if p.next != nil {
		p.next.entry.prev = p.prev
	} else {
		h.last = p.prev
	}
	if p.gated {
		l.gate.Free(k.name.Full)
	}
	*p = heldEntry{}
	if h.n--; h.n == 0 {
		h.watch.Stop()
	}
}

// look is called by the watch timer, every half second while locks are held.
func (l *Locker) look() {
	l.mu.Lock()
	h := &l.held
	if l.closed || h.n == 0 {
		l.mu.Unlock()
		return
	}
	now := l.now()
	// Timers do not notice that the machine was suspended or the wall clock set forward.
	// Then every lock is checked.
	slept := now.Since(h.watched)-now.At.Sub(h.watched.At) > watchEvery/2
	h.watched = now
	h.looks++
	var all, grown []*Lock
	if slept || h.looks%sweepEvery == 0 {
		for k := h.first; k != nil; k = k.entry.next {
			all = append(all, k)
		}
	}
	for h.young != nil {
		k := h.young
		if now.Since(k.entry.since) < registerGrace {
			break
		}
		grown = append(grown, k)
		h.young = k.entry.next
	}
	h.watch.Reset(watchEvery)
	l.mu.Unlock()

	for _, k := range grown {
		k.setRegisterTTL()
	}
	for _, k := range all {
		k.checkLoss()
		if k.expired() {
			l.removeHeld(k) // Release still works
		}
	}
}

// setRegisterTTL gives the fence registers of a lock a ttl.
func (k *Lock) setRegisterTTL() {
	k.mu.Lock()
	nodes, prev := k.left.Any(lane.Holds|lane.Raised), k.last
	k.mu.Unlock()
	if prev != nil {
		nodes |= prev.MayHaveExecuted()
	}
	k.l.registers.Expire(k.name, k.ttl, nodes, prev)
}

// expireRegisters gives the registers that the attempts of a failed call have raised a ttl.
func (l *Locker) expireRegisters(e *acquireCall) {
	if e.raised != 0 {
		l.registers.ExpireFailed(e.name, e.ttl, e.raised, e.before, e.call)
	}
}
