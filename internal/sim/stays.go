package sim

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-ce352c9b/redlock"
)

// The judges for edges.go. They check the nodes every few milliseconds, even while there are faults: how long a value may stay
// on a node depends only on its own holder.

// watchStays judges that no value stays on a node for longer than it would have if nobody had tried to adopt it, that no value
// of our clients is there without a ttl, and that none comes back after its release.
func (w *world) watchStays() {
	const every = 20 * time.Millisecond
	stays := map[stay]sighting{}
	said := map[stay]bool{}
	for {
		w.eachKey(func(node, key int, s stored) {
			if s.value == "" {
				return
			}
			at := stay{node, s.value}
			if text := w.judgeStay(stays, at, key, s); text != "" && !said[at] {
				said[at] = true
				w.wrong("I4", key, "%s has %s = %s %s", nodeName(node), w.s.keyName(key), s.value, text)
			}
		})
		select {
		case <-w.calm:
			return
		case <-time.After(every + w.spread(7, len(stays))):
		}
	}
}

// A stay identifies a value on a node.
type stay struct {
	node  int
	value string
}

// A sighting is how long a value may stay on a node at most, and when it was last seen there.
type sighting struct {
	over, at instant
	excused  bool // the node has lost its record of the expiry
}

// judgeStay returns what is wrong with a value on a node, or "", and updates until when it may be there.
func (w *world) judgeStay(stays map[stay]sighting, at stay, key int, s stored) string {
	const grain = 5 * time.Millisecond
	now := w.now()
	w.mu.Lock()
	defer w.mu.Unlock()
	k, foreign := w.live[at.value], w.foreignValues[at.value]
	over := now + s.left
	if s.left == 0 {
		over = never
		if !foreign {
			return "without a ttl"
		}
	}
	last, known := stays[at]
	most := last.over
	// The expiry of the value that an adoption replaced was lost with the register.
	unknown := w.lostRegister(at.node, key, last.at)
	extended := k != nil && k.edge.extends || foreign && strings.HasPrefix(at.value, ordered) // its owner sets it again
	if !known || over < most || extended || unknown {
		last.over = over
	}
	last.at, last.excused = now, last.excused || unknown
	stays[at] = last
	switch {
	case known && !extended && !unknown && over > most && over-most > grain:
		return fmt.Sprintf("until %v: it was there until %v before somebody tried to adopt it", over, most)
	case k == nil: // an attempt that has not returned or has failed, or a foreign value
	case !k.edge.inherits && !last.excused && s.left > k.TTL+grain:
		return fmt.Sprintf("for %v: its ttl is %v", s.left, k.TTL)
	case k.edge.back < now-time.Second && w.open == 0 && now-w.quiet > w.settled() && !k.edge.torn:
		return fmt.Sprintf("for %v: its release was answered at %v", s.left, k.edge.back)
	}
	return ""
}

// lostRegister reports whether a node has lost the register of a key since then. The caller holds mu.
func (w *world) lostRegister(node, key int, since instant) bool {
	return slices.ContainsFunc(w.h.Losses, func(l Loss) bool {
		return l.Register && l.Node == node && l.Key == key && l.At >= since
	})
}

// An edge is what these judges know about a claim.
type edge struct {
	extends  bool    // its holder may extend it
	inherits bool    // it was adopted, and keeps the remaining ttl of the value before it, if that is longer
	back     instant // when its release was answered: it was ours until then
	gone     bool    // a majority executed a release before Until, but too few of them replied
	tried    instant // when an adoption in another Locker failed
	torn     bool    // a failed adoption that met the release may have restored it for good, as the doc comment of Adopt says
}

func newEdge() edge { return edge{back: never, tried: -never} }

// mayExtend reports whether a task may extend its lock.
func (w *world) mayExtend(task int) bool {
	if task < 0 || task >= len(w.s.Tasks) {
		return false
	}
	switch w.s.Tasks[task].Do {
	case Extend, Keep, Within, Die:
		return true
	}
	return false
}

// inherits records that a claim was adopted.
func (w *world) inherits(k *holding) {
	w.mu.Lock()
	defer w.mu.Unlock()
	k.edge.inherits = true
}

// notAdopted records that an adoption of k's value failed; k may be nil.
func (w *world) notAdopted(k *holding, label string) {
	if k == nil {
		return
	}
	now := w.now()
	w.mu.Lock()
	defer w.mu.Unlock()
	// In the same Locker, a release waits for the restore, or nothing is restored.
	if label == labelOf(k.Value) {
		return
	}
	k.edge.tried = now
	k.edge.torn = k.edge.torn || k.Ended != never
}

// isTorn reports whether a value may remain on some nodes although it was released.
func (w *world) isTorn(value string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	k := w.live[value]
	return k != nil && k.edge.torn
}

// released judges the result of a release.
func (d *taskRun) released(k *holding, called instant, err error) {
	w := d.w
	if !w.s.Edges {
		return
	}
	now, has := w.now(), 0
	for i := range w.c.Len() {
		if w.stored(i, k.Key).value == k.Value {
			has++
		}
	}
	const early = 5 * time.Millisecond // a loss is reported at most this long before Until
	most, inTime := has > w.c.Len()/2, time.Until(k.lock.Until()) > early
	w.mu.Lock()
	k.edge.torn = k.edge.torn || k.edge.tried > called-w.settled()
	excused := k.Forgotten != never || k.Adopting != never
	gone := k.edge.gone
	switch {
	case err == nil:
		k.edge.back = min(k.edge.back, now)
	case errors.Is(err, redlock.ErrNoQuorum):
		k.edge.gone = gone || inTime && !most
	}
	w.mu.Unlock()
	if !errors.Is(err, redlock.ErrLost) || excused {
		return
	}
	switch {
	case inTime && most:
		w.wrong("I4", k.Key, "c%d: the release reports a loss, but %d nodes have %s: %v", k.Client, has, k.Value, err)
	case gone:
		w.wrong("I4", k.Key, "c%d: the release reports a loss, but an earlier one had removed it in time: %v", k.Client, err)
	}
}

// cleansUp reports whether a Locker that was closed at that instant has cleaned up by now: it did not die, and there was no
// fault near that time. The caller holds mu.
func (w *world) cleansUp(at instant) bool {
	if !w.s.Edges || at == never {
		return false
	}
	const near = 3 * time.Second
	return w.now() > at+near && !slices.ContainsFunc(w.s.Faults, func(f Fault) bool { return f.At < at+near && f.At+f.For > at-near })
}
