package sim

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// The judges of waiting: no waiter is forgotten, and with Options.Fair waiters are served in order.

// A waiter is a call that waits for any of its keys, or for all at once.
type waiter struct {
	keys  []int
	all   bool
	since instant
}

// waits records that a task's call waits from now on.
func (r *record) waits(task int, m waiter) {
	m.since = r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queue[task] = m
}

// served records that it no longer waits.
func (r *record) served(task int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.queue, task)
}

// isWaiting reports whether a call of a client waits for a key, and has done so since before an instant. The caller holds mu.
func (r *record) isWaiting(client, key int, before instant) bool {
	for task, m := range r.queue {
		if r.h.Schedule.Tasks[task].Client == client && m.since < before && !m.all && slices.Contains(m.keys, key) {
			return true
		}
	}
	return false
}

// These bound how long a lock may stay free while somebody waits for it, once the last fault is so long ago that everything is
// cleaned up and every subscription works again.
const (
	// maxIdle is the rule: a waiter that polls asks again after at most 0.25 s; a waiter that is notified asks at once, and if
	// that fails, it asks again after at most that time.
	maxIdle = 500 * time.Millisecond

	// maxIdleAfterDeath applies if entries of dead clients may be notified instead: then the pause of last resort, behind all
	// announcements, finds the lock free. With Fair, a dead client's entry holds the others up while it counts, which is less.
	maxIdleAfterDeath = 5*time.Second + maxIdle

	// deadEntries is how long after a death that may be so: an entry counts for 12 s, and a command that was on its way may have
	// refreshed it.
	deadEntries = 15 * time.Second

	// heardAgain is how long after a fault every subscription works again: a silent one is checked after 6 s, given up 1 s
	// later, and renewed within another. Until then, its waiters depend on the pause of last resort.
	heardAgain = 9 * time.Second
)

// watchWaiters judges liveness during the run: in a calm, if no majority of the nodes stores the lock for anybody and somebody
// waits for it all the time, it is acquired within the bound.
func (w *world) watchWaiters() {
	const often, seldom = 50 * time.Millisecond, 250 * time.Millisecond // between checks: while somebody waits, and otherwise
	free := make([]instant, w.s.Keys)                                   // since when each key has been free
	allFree := map[int]instant{}                                        // by task: since when all keys of its call have been
	for w.now() < w.s.Ends() {
		w.mu.Lock()
		every := often
		if len(w.queue) == 0 {
			every = seldom
		}
		w.mu.Unlock()
		time.Sleep(every + w.spread(5, 0))
		for key := range free {
			w.judgeAnnounced(key)
			now := w.now()
			since, waited := w.waited(key, now)
			if !waited || w.unavailable(key) {
				free[key] = now
				continue
			}
			if idle := now - max(free[key], since); idle > w.mayIdle(now) {
				w.wrong("liveness", key, "%s has been free for %v, and somebody has been waiting for it since %v", w.s.keyName(key), idle, since)
				free[key] = now
			}
		}
		w.watchAllFree(allFree)
	}
}

// mayIdle returns for how long a lock that is waited for may be free.
func (w *world) mayIdle(now instant) time.Duration {
	most := maxIdle
	w.mu.Lock()
	defer w.mu.Unlock()
	if now-w.death < deadEntries {
		most = maxIdleAfterDeath
	}
	// The travel times of a release, a check, an attempt, and what a tie adds.
	const trips = 5
	return most + w.quarantine() + trips*2*w.s.Latency
}

// isCalm reports whether the last fault is so long ago that everything works. The caller holds mu.
func (w *world) isCalm(now instant) bool {
	calm := w.settled()
	if w.s.Subscribers {
		calm = max(calm, heardAgain)
	}
	return w.open == 0 && (len(w.s.Faults) == 0 || now-w.quiet >= calm)
}

// waited returns since when a key has been waited for; ok is false unless there are no faults and nobody holds the key.
func (w *world) waited(key int, now instant) (since instant, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.isCalm(now) {
		return 0, false
	}
	if k := w.latest[key]; k != nil && now < k.End() {
		return 0, false
	}
	since = never
	for _, m := range w.queue {
		if !m.all && slices.Contains(m.keys, key) {
			since = min(since, m.since)
		}
	}
	// The wait before the calm does not count.
	return max(since, w.quiet), since != never
}

// unavailable reports whether nobody can acquire the key: a majority of the nodes stores one value, or too many nodes store values
// that nobody removes: foreign and torn ones, and those of processes that have died.
func (w *world) unavailable(key int) bool {
	count, blocked := map[string]int{}, 0
	most := w.c.Len()/2 + 1
	for i := range w.c.Len() {
		v, ok := w.c.Node(i).Get(w.s.keyName(key))
		switch {
		case !ok:
		case w.isForeign(v) || w.isTorn(v) || w.isOrphan(v):
			blocked++
		default:
			count[v]++
		}
	}
	for _, n := range count {
		if n >= most {
			return true
		}
	}
	return w.c.Len()-blocked < most
}

// isOrphan reports whether the process that stored a value died and took nothing back. Two of its attempts may stand on two nodes,
// and neither on a majority.
func (w *world) isOrphan(value string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.closedAt[labelOf(value)] == never
}

// An arrival is a call that waited, and the time until it was served or gave up.
type arrival struct {
	client, task int
	called, over instant
}

// arrivals returns all calls that waited for a key, in order.
func (h *History) arrivals(key int) (all []arrival) {
	served := map[int]*Claim{}
	for _, c := range h.Claims {
		served[c.Task] = c
	}
	for _, o := range h.Ops {
		if o.Key != key || o.Name != "Acquire" && o.Name != "Run" {
			continue
		}
		a := arrival{client: o.Client, task: o.Task, called: o.Called, over: o.Returned}
		if c := served[o.Task]; c != nil && c.Called == o.Called {
			a.over = c.Got
		}
		all = append(all, a)
	}
	slices.SortFunc(all, func(a, b arrival) int { return cmp.Or(cmp.Compare(a.called, b.called), cmp.Compare(a.task, b.task)) })
	return all
}

const (
	// enqueued is how long it takes until a waiter is in the queues: a first attempt, which learns the nodes' time, and a second
	// one, each behind the rollback of an earlier one. Arrivals closer than that may be swapped, too.
	enqueued = 10 * time.Millisecond

	// enqueuedLate is the same if connections were broken at any earlier time: each broken connection in a pool costs an attempt
	// and a longer pause (go-redis checks real connections before it reuses them).
	enqueuedLate = 250 * time.Millisecond

	// settledTurns is how long before an arrival there must be no fault: entries that were lost are back with the next attempt,
	// and those of dead clients expire.
	settledTurns = 6 * time.Second
)

// turns judges the order that Options.Fair promises: unless there is a fault, no caller is served before the first waiter of
// another process that came earlier by more than the difference of the nodes' clocks.
func turns(h *History) (bad []Violation) {
	h.Turns = 0
	if !h.Schedule.Fair {
		return nil
	}
	enqueued := enqueued
	if slices.ContainsFunc(h.Schedule.Faults, func(f Fault) bool { return f.Do != Wall }) {
		enqueued = enqueuedLate
	}
	near := enqueued
	if len(h.Schedule.Ahead) > 0 {
		near += slices.Max(h.Schedule.Ahead) - slices.Min(h.Schedule.Ahead)
	}
	arrivals := map[int][]arrival{}
	for key := range h.Schedule.Keys {
		arrivals[key] = h.arrivals(key)
	}
	for _, c := range h.Claims {
		if c.Task < 0 {
			continue
		}
		first := false // a caller that came later still waits
		for _, a := range arrivals[c.Key] {
			switch {
			case a.client == c.Client || a.over <= c.Got+enqueued:
			case a.called > c.Called+near:
				first = first || a.called < c.Got-enqueued && !h.struckIn(c.Called-settledTurns, c.Got)
			case a.called < c.Called-near && a.called < c.Start-enqueued && !h.behind(arrivals[c.Key], a, c.Start-enqueued) && !h.struckIn(a.called-settledTurns, c.Got):
				bad = append(bad, Violation{At: c.Got, Promise: "order", Key: c.Key, Text: fmt.Sprintf("%v came at %v and was served before c%d, which has waited since %v", c, c.Called, a.client, a.called)})
			}
		}
		if first {
			h.Turns++
		}
	}
	return bad
}

// behind reports whether another call of the same process was ahead of it in the local queue, at that instant.
func (h *History) behind(all []arrival, a arrival, at instant) bool {
	for _, b := range all {
		if b.client == a.client && b.task != a.task && b.called <= a.called && b.over >= at {
			return true
		}
	}
	return false
}

// struckIn reports whether there was a fault that may change the queues. A client's wall clock does not.
func (h *History) struckIn(from, to instant) bool {
	return slices.ContainsFunc(h.Schedule.Faults, func(f Fault) bool {
		// A fault that kills connections or processes has effects for a little longer than For.
		const more = 2 * time.Second
		switch {
		case f.Do == Wall || f.At > to:
			return false
		case f.Do == Jump: // the nodes' clocks disagree from then on
			return true
		}
		return f.At+f.For+more >= from
	})
}
