package sim

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Judges of waiting: no waiter is lost, and with Options.Fair they are served in order.

// A waiter is a call that waits for a key.
type waiter struct {
	key   int
	since instant
}

// waits notes that a task's call waits from now on.
func (w *world) waits(d *doing) {
	now := w.now()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue[d.i] = waiter{key: d.Key, since: now}
}

// served notes that it waits no more.
func (w *world) served(d *doing) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.queue, d.i)
}

// Bounds on how long a free lock stays free while somebody waits for it, and the faults are over for so long that
// everything is cleaned up and heard again.
const (
	// idleMost is the rule: who polls asks after a pause of 0.25 s at most; who is told asks at once, and where that comes to
	// nothing, after no longer than that.
	idleMost = 500 * time.Millisecond

	// netMost is where places of dead clients may be those that are told: then the pause finds it that is the net under all
	// announcements. With Fair the dead hold the others up for as long as a place counts, which is less.
	netMost = 5*time.Second + idleMost

	// placesOf is for how long that may be after a death: a place counts for 12 s, and may have been refreshed by what
	// was on its way.
	placesOf = 15 * time.Second

	// heardAgain is how long after a fault every subscription is heard again: one that fell silent is asked after 6 s, given
	// up 1 s later, and made anew within another. Until then the waiters behind it have the net under the announcements.
	heardAgain = 9 * time.Second
)

// watchWaiters is liveness while it goes on: in a calm, a lock that no majority of the nodes has for anybody, and that
// somebody waits for all along, is acquired within the bound.
func (w *world) watchWaiters() {
	const often, seldom = 50 * time.Millisecond, 250 * time.Millisecond // while somebody waits, and else
	free := make([]instant, w.s.Keys)                                   // since when it is
	for w.now() < w.s.Ends() {
		w.mu.Lock()
		every := often
		if len(w.queue) == 0 {
			every = seldom
		}
		w.mu.Unlock()
		time.Sleep(every + w.spread(5, 0))
		for key := range free {
			now := w.now()
			since, waited := w.waited(key, now)
			if !waited || w.anybodys(key) {
				free[key] = now
				continue
			}
			most := idleMost
			w.mu.Lock()
			if now-w.death < placesOf {
				most = netMost
			}
			w.mu.Unlock()
			// A release is on its way, then a look, a try, and what a tie adds.
			const trips = 5
			most += w.quarantine() + trips*2*w.s.Lead
			if idle := now - max(free[key], since); idle > most {
				w.wrong("liveness", key, "%s is free for %v, and somebody waits for it since %v", keyName(key), idle, since)
				free[key] = now
			}
		}
	}
}

// waited reports since when a key has been waited for, if it is calm and nobody has it.
func (w *world) waited(key int, now instant) (since instant, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	calm := w.settled()
	if w.s.Ears {
		calm = max(calm, heardAgain)
	}
	if w.open > 0 || len(w.s.Faults) > 0 && now-w.quiet < calm {
		return 0, false
	}
	if k := w.latest[key]; k != nil && now < k.End() {
		return 0, false
	}
	since = never
	for _, m := range w.queue {
		if m.key == key {
			since = min(since, m.since)
		}
	}
	// What was not there before the calm has nothing to do with it.
	return max(since, w.quiet), since != never
}

// anybodys reports that nobody can acquire the key: a majority of the nodes has it for one value, or so many have values
// that nobody of ours removes that no majority is left.
func (w *world) anybodys(key int) bool {
	count, blocked := map[string]int{}, 0
	most := w.c.Len()/2 + 1
	for i := range w.c.Len() {
		v, ok := w.c.Node(i).Get(keyName(key))
		switch {
		case !ok:
		case w.isOthers(v) || w.isTorn(v):
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

// An arrival is a call that waited: from when, until it was served or gave up.
type arrival struct {
	client, task int
	called, over instant
}

// arrivals are all calls that waited for a key, in order.
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
	// queued is after how long whoever waits stands in the queues: a first try, which tells him the nodes' time, and a
	// second one, both behind what is being taken back of an earlier one. Arrivals closer than that may swap, too.
	queued = 10 * time.Millisecond

	// queuedLate is the same where connections were broken at any time before: each that lies in a pool costs a try, and a
	// longer pause each (real ones are looked at before they are used again).
	queuedLate = 250 * time.Millisecond

	// settledTurns is for how long before somebody comes no fault may have struck: places that were lost are back with the
	// next try, those of the dead lapse.
	settledTurns = 6 * time.Second
)

// turns is the order that Options.Fair promises: nobody who came later, by more than the nodes' clocks disagree, goes before
// the first of another process's line, unless a fault strikes.
func turns(h *History) (bad []Violation) {
	h.Turns = 0
	if !h.Schedule.Fair {
		return nil
	}
	queued := queued
	if slices.ContainsFunc(h.Schedule.Faults, func(f Fault) bool { return f.Do != Wall }) {
		queued = queuedLate
	}
	near := queued
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
		first := false // somebody who came later still waits
		for _, a := range arrivals[c.Key] {
			switch {
			case a.client == c.Client || a.over <= c.Got+queued:
			case a.called > c.Called+near:
				first = first || a.called < c.Got-queued && !h.struckIn(c.Called-settledTurns, c.Got)
			case a.called < c.Called-near && a.called < c.Start-queued && !h.behind(arrivals[c.Key], a, c.Start-queued) && !h.struckIn(a.called-settledTurns, c.Got):
				bad = append(bad, Violation{At: c.Got, Promise: "order", Key: c.Key, Text: fmt.Sprintf("%v came at %v, and goes before c%d, which waits since %v", c, c.Called, a.client, a.called)})
			}
		}
		if first {
			h.Turns++
		}
	}
	return bad
}

// behind reports that another call of its process was before it in the line, at that instant.
func (h *History) behind(all []arrival, a arrival, at instant) bool {
	for _, b := range all {
		if b.client == a.client && b.task != a.task && b.called <= a.called && b.over >= at {
			return true
		}
	}
	return false
}

// struckIn reports that a fault was on that may change the queues. A client's wall clock has no part in them.
func (h *History) struckIn(from, to instant) bool {
	return slices.ContainsFunc(h.Schedule.Faults, func(f Fault) bool {
		// One that has connections die, or processes, is over a little later than it says.
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
