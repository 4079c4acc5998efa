package redlock

import (
	"slices"
	"strings"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/lane"
	"github.com/seed-ce352c9b/redlock/internal/wire"
)

// The Locker's list of held locks: Close releases them, and a look every half
// second finds those that a sleeping machine let expire, and those that are held
// for so long that their fence registers need a life of their own.

// A heldEntry is a lock's place in the list. Guarded by the Locker's mu.
type heldEntry struct {
	prev, next *Lock
	in         bool
	since      instant // when it was put there
}

// A heldList has the locks in order of acquisition, oldest first.
type heldList struct {
	first, last *Lock
	young       *Lock // the first whose registers were not looked after yet
	n           int
	watch       *time.Timer // runs while there are any
	watched     instant     // the last look
	looks       int
}

// sweepEvery is how many looks pass between two that drop expired locks from the
// list: half a minute. They do no harm there but take memory.
const sweepEvery = 60

// addHeld puts a lock on the list; false: the Locker is closed.
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

// removeHeld takes a lock off the list, if it is there.
func (l *Locker) removeHeld(k *Lock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop(k)
}

// drop needs l.mu.
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

// look is the watch's, every half second while locks are held.
func (l *Locker) look() {
	l.mu.Lock()
	h := &l.held
	if l.closed || h.n == 0 {
		l.mu.Unlock()
		return
	}
	now := l.now()
	// The timers know nothing of the time that a machine was suspended for, or that
	// the wall clock was set forward by: then every lock is looked at.
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

// setRegisterTTL gives the registers of a lock a life, if they have none: those of a lock
// that may be left to expire, and those that a failed attempt has raised.
// nodes says which, as bits; there it goes after the calls of prev, and is owed.
// unless: not where these are rolled back.
func (l *Locker) setRegisterTTL(name *wire.LockKey, ttl time.Duration, nodes uint64, unless bool, before uint64, prev *quorumCall) {
	q := wire.ExpireRegisterQuestion(name, ttl)
	q.Patience = l.patience(ttl)
	for i, ln := range l.lanes {
		if nodes&(1<<i) != 0 {
			ln.Ask(&lane.Call{Lane: ln, Question: &q, Index: i, MayHold: true, SkipIfRolledBack: unless, RaisedBefore: before&(1<<i) != 0}, prev.lastCall(i))
		}
	}
}

// setRegisterTTL gives the registers of a held lock a life.
func (k *Lock) setRegisterTTL() {
	k.mu.Lock()
	nodes, prev := k.raised|k.mayHold, k.last
	k.mu.Unlock()
	if prev != nil {
		nodes |= prev.mayHaveExecuted()
	}
	k.l.setRegisterTTL(k.name, k.ttl, nodes, false, 0, prev)
}

const (
	// livesFor is how often failed attempts give the registers of one key a life:
	// those of a contended key would cost as much as the attempts.
	livesFor = time.Minute

	// maxLives bounds the keys that are remembered for that. Beyond it every failed
	// attempt gives its registers a life.
	maxRegisterTTLs = 4096
)

// registerTTL is where the registers of a key were given a life since the last
// renewLives. Attempts that fail since then send none there, but the registers may
// not be the same ones: a node that was flushed in between made them anew. So
// renewLives gives them another one.
type registerTTL struct {
	name  *wire.LockKey
	given uint64        // nodes, as bits
	again uint64        // of these: where registers were raised since
	ttl   time.Duration // the longest of those attempts
	after []*quorumCall // and their questions, as far as they are under way
}

// expireRegisters sees to it that a failed acquire call leaves no register for ever: its attempts
// raise registers also where another holds the lock, be it a client that knows
// nothing of them.
func (l *Locker) expireRegisters(e *acquireCall) {
	if e.raised == 0 {
		return
	}
	l.mu.Lock()
	todo := l.registerTTLDue(e)
	l.mu.Unlock()
	l.setRegisterTTL(e.name, e.ttl, todo, true, e.before, e.call)
}

// registerTTLDue is where the registers that an acquire call has raised need a life now, as bits;
// elsewhere renewLives gives them one. Needs l.mu.
func (l *Locker) registerTTLDue(e *acquireCall) (todo uint64) {
	g := l.registerTTLs[e.name.Full]
	if g == nil {
		if l.closed || len(l.registerTTLs) >= maxRegisterTTLs {
			return e.raised
		}
		g = &registerTTL{name: e.name}
		l.registerTTLs[e.name.Full] = g
		if len(l.registerTTLs) == 1 {
			l.renew = restart(l.renew, livesFor, l.renewRegisterTTLs)
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

// renewRegisterTTLs runs every livesFor while there is anything to remember, and once in
// Close.
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
		l.renew = restart(l.renew, livesFor, l.renewRegisterTTLs)
	}
	l.mu.Unlock()
	slices.SortFunc(due, func(a, b *registerTTL) int { return strings.Compare(a.name.Full, b.name.Full) }) // so that a simulation can be repeated
	l.sendRegisterTTLs(due)
}

// sendRegisterTTLs sends a node the touches of all keys in one batch: none leaves before all are
// queued.
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
			if g.again&(1<<i) != 0 {
				calls = append(calls, &lane.Call{Lane: ln, Question: &qs[n], Index: i, MayHold: true})
				keys = append(keys, g)
			}
		}
		ln.AskAll(calls, func(n int) []*lane.Call { return lastCalls(nil, i, keys[n].after) })
	}
}
