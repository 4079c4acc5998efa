package sim

import (
	"strings"
	"time"
)

// leftovers judges I4 at the nodes, once the faults are over and every lock is released.
func (w *world) leftovers() {
	settled := w.settled()
	time.Sleep(settled)
	w.eachKey(func(node, key int, s stored) {
		if s.value != "" && (!w.mayStay(s.value) || w.isOthers(s.value)) {
			w.wrong("I4", key, "%v after the last release %s has %s = %s", settled, nodeName(node), keyName(key), s.value)
		}
	})
	// What could not be reached, and what dead processes leave, ends with its ttl.
	ttl := w.s.longest()
	wait := ttl + ttl/10
	if w.s.Ears { // places of those that died; a node's clock is slower by the drift at most
		wait = max(wait, queueLife+queueLife/10-settled)
	}
	time.Sleep(wait)
	w.eachKey(func(node, key int, s stored) {
		if s.value != "" && !w.s.Unsafe {
			w.wrong("I4", key, "a ttl and %v after the last release %s has %s = %s", settled, nodeName(node), keyName(key), s.value)
		}
	})
	for i := range w.c.Len() {
		n := w.c.Node(i)
		for _, name := range n.Keys() {
			switch {
			case name == "{redlock}:boot" && w.s.Guard > 0: // the mark stays
			case name == "once" || !strings.HasSuffix(name, ":fence") && !strings.HasPrefix(name, "k"): // a queue, say
				w.wrong("I4", -1, "%s has %q", n.Name(), name)
			case strings.HasSuffix(name, ":fence") && n.TTL(name) <= 0 && !w.mortalsOnly():
				w.wrong("I4", -1, "%s has %s without a ttl", n.Name(), name)
			}
		}
	}
}

// queueLife is the ttl of a queue, and nobody refreshes it any more.
const queueLife = 15 * time.Second

// settled is how long after the last fault everything is cleaned up that can be reached: a second look at what may come
// late, a connection on which nothing is heard any more (2 s until go-redis gives it up), and the second that go-redis
// leaves between two dials.
func (w *world) settled() time.Duration {
	for _, f := range w.s.Faults {
		switch f.Do {
		case Loading, ReadOnly, OOM: // answered by an error, a clean-up is tried again after up to 16 s
			return 25 * time.Second
		case Deny: // likewise; a storm with these is so short that up to 8 s pass
			return 15 * time.Second
		}
	}
	return 6 * time.Second
}

// audit looks into the nodes while no fault strikes: a value that is there for a second, in a calm that is long enough for
// everything to be cleaned up, is that of a claim.
func (w *world) audit() {
	const every = time.Second
	seen := map[[2]int]string{}
	for w.now() < w.s.Ends() {
		time.Sleep(every + w.spread(4, 0))
		w.mu.Lock()
		calm := w.open == 0 && w.now()-w.quiet > w.settled() && !w.s.Unsafe // else keys may outlive their ttl
		w.mu.Unlock()
		if !calm {
			clear(seen)
			continue
		}
		w.eachKey(func(node, key int, s stored) {
			at := [2]int{node, key}
			if s.value != "" && s.value == seen[at] && !w.mayStay(s.value) && !w.claimed(s.value) {
				w.wrong("I4", key, "%v after the last fault %s still has %s = %s, for %v", w.now()-w.quiet, nodeName(node), keyName(key), s.value, s.left)
			}
			seen[at] = s.value
		})
	}
}

// claimed reports that the value is that of a claim that is not over, or was not a moment ago.
func (w *world) claimed(value string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	k := w.live[value]
	if k == nil {
		return false
	}
	const expiry = 500 * time.Millisecond // what nobody releases stays for the drift and a release for its way
	end := min(k.lock.Until().Sub(w.began), k.Ended)
	if k.Why == "handed over" { // the giver does not know; what is left of it is its own to remove, or its ttl's
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

// mayStay: its process is gone and cannot clean up, its holder left it to expire, or it came back from a disk.
func (w *world) mayStay(value string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if at, gone := w.shutAt[labelOf(value)]; gone && !w.cleansUp(at) {
		return true
	}
	for _, f := range w.s.Faults {
		if f.Do == Revert {
			return true
		}
	}
	k := w.live[value]
	return k != nil && (k.Why == "left to expire" || k.edge.torn) || w.others[value]
}

// mortalsOnly: registers without a ttl are a documented exception where a process ended without a word or was closed
// before it could say it, and where a node came back with what it had before.
func (w *world) mortalsOnly() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.s.Faults {
		if f.Do == Revert {
			return true
		}
	}
	return len(w.shutAt) > 0
}
