package redlock

import (
	"time"

	"github.com/seed-ce352c9b/redlock/internal/lane"
)

// The Locker's list of held locks: Close releases them, and a check every half second
// finds those that expired while the machine slept, and those that are held for so long
// that their fence registers need a ttl.

// A heldEntry is a lock's place in the list. Guarded by the Locker's mu.
type heldEntry struct {
	prev, next *Lock
	in         bool
	since      instant // when it was added
}

// A heldList has the locks in order of acquisition, oldest first. Guarded by the Locker's
// mu.
type heldList struct {
	first, last *Lock
	young       *Lock // the first whose registers have not been given a ttl yet
	n           int
	watch       *time.Timer // runs while the list is not empty
	watched     instant     // the last check
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
	slept := now.since(h.watched)-now.at.Sub(h.watched.at) > watchEvery/2
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
		if now.since(k.entry.since) < registerGrace {
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
		nodes |= prev.mayHaveExecuted()
	}
	k.l.registers.Expire(k.name, k.ttl, nodes, prev)
}

// expireRegisters gives the registers that the attempts of a failed call have raised a ttl.
func (l *Locker) expireRegisters(e *acquireCall) {
	if e.raised != 0 {
		l.registers.ExpireFailed(e.name, e.ttl, e.raised, e.before, e.call)
	}
}
