package redlock

import (
	"slices"
	"strings"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/lane"
	"github.com/seed-ce352c9b/redlock/internal/wire"
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

// setRegisterTTL gives the fence registers of a lock on the given nodes a ttl if they have
// none: those of a lock that may be left to expire, and those that a failed attempt has
// raised. On each node the command follows the call of prev, and is sent again if it is not
// answered. raised has the nodes whose registers are known to be raised; on the others the
// call of prev, a failed attempt, shows it.
func (l *Locker) setRegisterTTL(name *wire.LockKey, ttl time.Duration, nodes, raised lane.Nodes, attempt bool, prev *quorumCall) {
	q := wire.ExpireRegisterQuestion(name, ttl)
	q.Patience = l.patience(ttl)
	for i, ln := range l.lanes {
		if nodes.Has(i) {
			c := &lane.Call{Lane: ln, Question: &q, Index: i, AfterAttempt: attempt}
			if raised.Has(i) {
				c.Residue = lane.Raised
			}
			ln.Ask(c, prev.lastCall(i))
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
	k.l.setRegisterTTL(k.name, k.ttl, nodes, nodes, false, prev)
}

const (
	// registerTTLEvery is the interval in which failed attempts give the registers of one key
	// a ttl: with each attempt, it would double the commands of a contended key.
	registerTTLEvery = time.Minute

	// maxRegisterTTLs bounds the keys that are remembered for that. For others every
	// failed attempt gives its registers a ttl.
	maxRegisterTTLs = 4096
)

// A registerTTL records where the registers of a key were given a ttl since the last
// renewRegisterTTLs. Attempts that fail after that send nothing there, but a node that was
// flushed in between has made new registers. So renewRegisterTTLs gives them a ttl again.
type registerTTL struct {
	name  *wire.LockKey
	given lane.Nodes    // where
	again lane.Nodes    // of these, the nodes whose registers were raised since
	ttl   time.Duration // the longest of the attempts that raised them
	after []*quorumCall // the questions of these attempts that are not finished
}

// expireRegisters makes sure that the registers that a failed call has raised expire. It
// has raised them even where another holds the lock, possibly a foreign client that does
// not know about registers.
func (l *Locker) expireRegisters(e *acquireCall) {
	if e.raised == 0 {
		return
	}
	l.mu.Lock()
	todo := l.registerTTLDue(e)
	l.mu.Unlock()
	l.setRegisterTTL(e.name, e.ttl, todo, e.before, true, e.call)
}

// registerTTLDue returns the nodes on which the registers that the call has
// raised need a ttl now; on the others renewRegisterTTLs gives them one. Needs l.mu.
func (l *Locker) registerTTLDue(e *acquireCall) (todo lane.Nodes) {
	g := l.registerTTLs[e.name.Full]
	if g == nil {
		if l.closed || len(l.registerTTLs) >= maxRegisterTTLs {
			return e.raised
		}
		g = &registerTTL{name: e.name}
		l.registerTTLs[e.name.Full] = g
		if len(l.registerTTLs) == 1 {
			l.renew = restart(l.renew, registerTTLEvery, l.renewRegisterTTLs)
		}
	}
	todo = e.raised &^ g.given
	g.given |= todo
	if again := e.raised &^ todo; again != 0 {
		g.again |= again
		g.ttl = max(g.ttl, e.ttl)
		g.after = append(slices.DeleteFunc(g.after, (*quorumCall).finished), e.call)
	}
	return todo
}

// renewRegisterTTLs is called every registerTTLEvery while registerTTLs is not empty, and by Close.
func (l *Locker) renewRegisterTTLs() {
	l.mu.Lock()
	var due []*registerTTL
	for key, g := range l.registerTTLs {
		delete(l.registerTTLs, key)
		if g.again != 0 {
			due = append(due, g)
		}
	}
	switch {
	case l.closed && l.renew != nil:
		l.renew.Stop()
	case len(due) > 0 && !l.closed:
		for _, g := range due {
			l.registerTTLs[g.name.Full] = &registerTTL{name: g.name, given: g.again}
		}
		l.renew = restart(l.renew, registerTTLEvery, l.renewRegisterTTLs)
	}
	l.mu.Unlock()
	slices.SortFunc(due, func(a, b *registerTTL) int { return strings.Compare(a.name.Full, b.name.Full) }) // so that a simulation can be repeated
	l.sendRegisterTTLs(due)
}

// sendRegisterTTLs sends each node the commands of all keys together.
func (l *Locker) sendRegisterTTLs(due []*registerTTL) {
	qs := make([]wire.Question, len(due))
	for n, g := range due {
		qs[n] = wire.ExpireRegisterQuestion(g.name, g.ttl)
		qs[n].Patience = l.patience(g.ttl)
	}
	for i, ln := range l.lanes {
		var calls []*lane.Call
		var keys []*registerTTL
		for n, g := range due {
			if g.again.Has(i) {
				calls = append(calls, &lane.Call{Lane: ln, Question: &qs[n], Index: i, Residue: lane.Raised})
				keys = append(keys, g)
			}
		}
		ln.AskAll(calls, func(n int) []*lane.Call { return lastCalls(nil, i, keys[n].after) })
	}
}
