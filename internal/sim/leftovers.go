package sim

import (
	"strings"
	"time"
)

// leftovers judges I4 at the nodes, after the last fault and the last release.
func (w *world) leftovers() {
	settled := w.settled()
	time.Sleep(settled)
	w.eachKey(func(node, key int, s stored) {
		if s.value != "" && (!w.mayStay(s.value) || w.isForeign(s.value)) {
			w.wrong("I4", key, "%v after the last release %s has %s = %s", settled, nodeName(node), w.s.keyName(key), s.value)
		}
	})
	// What could not be removed, and what dead processes have left, expires with its ttl.
	ttl := w.s.longest()
	wait := ttl + ttl/10
	if w.s.Subscribers { // queue entries of dead clients; a node's clock is slow by at most the drift
		wait = max(wait, queueLife+queueLife/10-settled)
	}
	// A register that a node has made anew since a release saw it last gets its ttl with the next renewal.
	if len(w.s.Faults) > 0 {
		wait = max(wait, registersRenewed)
	}
	time.Sleep(wait)
	w.eachKey(func(node, key int, s stored) {
		if s.value != "" && !w.s.Unsafe {
			w.wrong("I4", key, "a ttl and %v after the last release %s has %s = %s", settled, nodeName(node), w.s.keyName(key), s.value)
		}
	})
	for i := range w.c.Len() {
		n := w.c.Node(i)
		for _, name := range n.Keys() {
			switch {
			case name == "{redlock}:boot" && w.s.Guard > 0: // the mark of the restart guard remains
			case name == "once" || !strings.HasSuffix(name, ":fence") && !strings.HasPrefix(name, "k"): // for example a queue
				w.wrong("I4", -1, "%s has %q", n.Name(), name)
			case w.s.Unfenced && name == w.s.registerName(w.s.Keys-1):
				w.wrong("I4", w.s.Keys-1, "%s has %s, and nobody has ever asked for a fence", n.Name(), name)
			case strings.HasSuffix(name, ":fence") && n.TTL(name) <= 0 && !w.mayLackTTL():
				w.wrong("I4", -1, "%s has %s without a ttl", n.Name(), name)
			}
		}
	}
}

// registersRenewed is how long at most a register has no ttl that a node made anew, with time for the command that gives it one.
const registersRenewed = time.Minute + 5*time.Second

// queueLife is the ttl of a queue that is not refreshed any more.
const queueLife = 15 * time.Second

// settled returns how long after the last fault everything that can be reached is cleaned up. This includes a second check for
// late commands, a half-open connection (go-redis gives it up after 2 s), and the second that go-redis waits between two dials.
func (w *world) settled() time.Duration {
	switch {
	case w.s.strikes(Loading, ReadOnly, OOM, Reject): // a clean-up that was answered by an error is repeated after up to 16 s
		return 25 * time.Second
	case w.s.strikes(Deny): // the same; but in these profiles a storm is so short that the pause is 8 s at most
		return 15 * time.Second
	}
	return 6 * time.Second
}

// audit checks the nodes while there are no faults: a value that stays on a node for a second, in a calm that is long enough
// for all clean-ups, belongs to a claim.
func (w *world) audit() {
	const every = time.Second
	seen := map[[2]int]string{}
	for w.now() < w.s.Ends() {
		time.Sleep(every + w.spread(4, 0))
		w.mu.Lock()
		calm := w.open == 0 && w.now()-w.quiet > w.settled() && !w.s.Unsafe // with unsafe clocks, keys may outlive their ttl
		w.mu.Unlock()
		if !calm {
			clear(seen)
			continue
		}
		w.eachKey(func(node, key int, s stored) {
			at := [2]int{node, key}
			if s.value != "" && s.value == seen[at] && !w.mayStay(s.value) && !w.claimed(s.value) {
				w.wrong("I4", key, "%v after the last fault %s still has %s = %s, for %v", w.now()-w.quiet, nodeName(node), w.s.keyName(key), s.value, s.left)
			}
			seen[at] = s.value
		})
	}
}

// claimed reports whether the value belongs to a claim that has not ended, or ended a short time ago.
func (w *world) claimed(value string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	k := w.live[value]
	if k == nil {
		return false
	}
	const expiry = 500 * time.Millisecond // a key outlives its claim by the drift, or until the release arrives
	end := min(k.lock.Until().Sub(w.began), k.Ended)
	if k.Why == "handed over" || k.Why == leftOrReleased { // the giver does not know; it removes the rest itself, or the ttl does
		end = k.lock.Until().Sub(w.began)
	}
	return w.now() < end+expiry+k.TTL/20
}

func (w *world) eachKey(f func(node, key int, s stored)) {
	for i := range w.c.Len() {
		for key := range w.s.Keys {
			f(i, key, w.stored(i, key))
		}
	}
}

// mayStay reports whether a value may remain: its process is gone and cannot clean up, its holder called LeaveUntil, or it
// was restored from a disk.
func (w *world) mayStay(value string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if at, gone := w.closedAt[labelOf(value)]; gone && !w.cleansUp(at) {
		return true
	}
	k := w.live[value]
	return w.s.strikes(Revert) || k != nil && (k.Why == "left to expire" || k.edge.torn) || w.foreignValues[value]
}

// mayLackTTL reports whether registers without a ttl are allowed. This is documented for a process that ended without a
// clean-up or whose Locker was closed before it could set the ttl, and for a node that came back with old data.
func (w *world) mayLackTTL() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.s.strikes(Revert) || len(w.closedAt) > 0
}
