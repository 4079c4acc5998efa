package sim

import (
	"context"
	"math"
	"strings"
	"time"

	"github.com/seed-ce352c9b/redlock"
)

// drift is the documented default of Options.Drift; Until follows from it (docs/design/algorithm.md, Time).
const drift = 0.01

func validity(ttl time.Duration) time.Duration {
	return ttl - time.Duration(math.Ceil(float64(ttl)*drift)) - 2*time.Millisecond
}

// claim records an acquisition when it returns.
func (w *world) claim(c *client, task, key int, called instant, ttl time.Duration, lock *redlock.Lock) *holding {
	k := w.granted(c.i, task, key, called, ttl, lock)
	for i := range w.c.Len() {
		if score, ok := w.c.Node(i).Score(w.s.registerName(key), "f"); ok && int64(score) >= k.Fence {
			k.Registers |= 1 << i
		}
	}
	w.mu.Lock()
	if at, ok := w.lost[k.Value]; ok {
		k.Forgotten = at
	}
	k.edge.extends = w.mayExtend(task)
	w.enterLocked(k)
	w.mu.Unlock()
	w.started(k)
	if late := k.Got - k.Until; late > 0 && !c.stoodStill(w.began.Add(k.Start)) {
		w.wrong("I1", key, "c%d got fence %d %v after its Until", c.i, k.Fence, late)
	}
	w.carried(k)
	return k
}

// labelOf returns the label of a value, which names the process and its Locker.
func labelOf(value string) string {
	label, _, _ := strings.Cut(value, ":")
	return label
}

// excused reports whether the nodes need not store the claim: nodes have lost it, it is being adopted, or the clocks violate the
// assumptions.
func (w *world) excused(k *holding) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.s.Unsafe || k.Forgotten != never || k.Adopting != never || k.Ended != never
}

// carried judges I1 at the nodes: until a holder's Until, a majority of the nodes stores its value, and will do so until then
// by their own clocks.
func (w *world) carried(k *holding) {
	left := time.Until(k.lock.Until())
	if left <= 0 || w.excused(k) {
		return
	}
	n := 0
	for i := range w.c.Len() {
		if s := w.stored(i, k.Key); s.value == k.Value && float64(s.left) >= float64(left)*w.s.rate(i) {
			n++
		}
	}
	if n < w.c.Len()/2+1 {
		w.wrong("I1", k.Key, "c%d has fence %d until %v, but only %d nodes store it until then", k.Client, k.Fence, k.lock.Until().Sub(w.began), n)
	}
}

// onAllHealthy reports whether all healthy nodes store the lock. A lock that was acquired on a bare majority and then loses a
// node to a fault has no majority that could extend it.
func (w *world) onAllHealthy(k *holding) bool {
	for i := range w.c.Len() {
		if v, _ := w.c.Node(i).Get(w.s.keyName(k.Key)); w.s.healthy(i) && v != k.Value {
			return false
		}
	}
	return true
}

// watchLoss judges when the context of KeepAlive or Run ends: no later than the Until of any of its locks, less Options.Grace,
// and as lost only if one of them is. valid reports whether all of them are valid.
func (w *world) watchLoss(c *client, held context.Context, valid func() bool, ks ...*holding) {
	began := time.Now()
	w.mu.Lock()
	for _, k := range ks {
		k.held = held
	}
	w.mu.Unlock()
	context.AfterFunc(held, func() {
		now := time.Now()
		for _, k := range ks {
			if end := k.lock.Until().Add(-w.s.Grace); now.After(end) && now.After(began) {
				w.wrong("I3", k.Key, "c%d: the context of fence %d ended %v too late: after Until, less a grace of %v", c.i, k.Fence, now.Sub(end), w.s.Grace)
			}
		}
		if w.s.Grace == 0 && valid() && outcome(context.Cause(held)) == "lost" {
			w.wrong("I3", ks[0].Key, "c%d: one of %d locks is lost, the first with fence %d, but all are valid", c.i, len(ks), ks[0].Fence)
		}
	})
}

// setWall steps a client's wall clock. A step forward ends locks early, because the machine may have slept: Until is on the
// monotonic clock, so then the holder must rely on Valid and not on Until, and the contexts end within a second.
func (w *world) setWall(c *client, by time.Duration) {
	before := c.lastSet()
	c.setWall(by)
	if by <= 0 {
		return
	}
	now := w.now()
	w.mu.Lock()
	var live []*holding
	for _, k := range w.h.Claims {
		if k.Client == c.i && now < k.Ended {
			k.Ended, k.Why = now, "its wall clock is set"
			live = append(live, w.live[k.Value])
		}
	}
	w.mu.Unlock()
	for _, k := range live {
		left := time.Until(k.lock.Until())
		if start := k.lock.Until().Add(-validity(k.TTL)); left > by || before.After(start) {
			continue // still valid, or the clock was stepped more than once since
		}
		if k.lock.Valid() {
			w.wrong("I3", k.Key, "c%d: the wall clock passed Until by %v, but fence %d is valid", c.i, by-left, k.Fence)
		}
		if held := k.held; held != nil {
			time.AfterFunc(time.Second, func() {
				if held.Err() == nil {
					w.wrong("I3", k.Key, "c%d: a second after the wall clock passed Until, the context of fence %d has not ended", c.i, k.Fence)
				}
			})
		}
	}
}
