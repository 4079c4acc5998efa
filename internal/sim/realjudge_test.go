package sim

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// A tardiness measures how late the timers of this process are, on all processors: a bound on a real clock must allow for
// that much.
type tardiness struct {
	stop  chan struct{}
	began time.Time
	all   sync.WaitGroup

	mu    sync.Mutex
	beats []beat
}

// A beat is a late timer, in time since the measurement began.
type beat struct{ at, late time.Duration }

func watchTardiness() *tardiness {
	w := &tardiness{stop: make(chan struct{}), began: time.Now()}
	for range 2 * runtime.GOMAXPROCS(0) {
		w.all.Go(w.watch)
	}
	return w
}

func (w *tardiness) watch() {
	const every, notable = 2 * time.Millisecond, 5 * time.Millisecond
	tick := time.NewTimer(every)
	defer tick.Stop()
	for due := time.Now().Add(every); ; due = time.Now().Add(every) {
		tick.Reset(every)
		select {
		case <-tick.C:
		case <-w.stop:
			return
		}
		if late := time.Since(due); late > notable {
			w.mu.Lock()
			w.beats = append(w.beats, beat{time.Since(w.began), late})
			w.mu.Unlock()
		}
	}
}

func (w *tardiness) close() { close(w.stop); w.all.Wait() }

// worst returns the latest beat that was due, or came, between the two instants.
func (w *tardiness) worst(from, to time.Duration) (worst time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, b := range w.beats {
		if b.at >= from && b.at-b.late <= to {
			worst = max(worst, b.late)
		}
	}
	return worst
}

// allowance returns how late a timer may have been at an instant through no fault of the library.
func (w *realWorld) allowance(from, to instant) time.Duration {
	const base, around = 150 * time.Millisecond, time.Second
	since := w.began.Sub(w.tardy.began)
	return base + 4*w.tardy.worst(since+from-around, since+to+around)
}

// A realCount counts what was judged, in one round or in many.
type realCount struct {
	n     map[string]int
	worst map[string]time.Duration
}

func newRealCount() realCount { return realCount{map[string]int{}, map[string]time.Duration{}} }

func (c realCount) most(what string, d time.Duration) { c.worst[what] = max(c.worst[what], d) }

func (c realCount) add(o realCount) {
	for what, n := range o.n {
		c.n[what] += n
	}
	for what, d := range o.worst {
		c.most(what, d)
	}
}

func (c realCount) String() string {
	var parts []string
	for what, n := range c.n {
		parts = append(parts, fmt.Sprintf("%s %d", what, n))
	}
	for what, d := range c.worst {
		parts = append(parts, fmt.Sprintf("%s %v", what, d.Round(10*time.Microsecond)))
	}
	slices.Sort(parts)
	return strings.Join(parts, "\n  ")
}

// judge returns the violations. It uses the judges of the simulation that can be applied to a history in real time.
func (w *realWorld) judge() (bad []Violation, count realCount) {
	h := w.h
	count = newRealCount()
	count.n["rounds"], count.n["I1: acquisitions"] = 1, len(h.Claims)
	for _, o := range h.Ops {
		count.n["call: "+o.Name+", "+o.Outcome]++
	}
	for kind, n := range w.faults {
		count.n["fault: "+string(kind)] = n
	}
	for _, d := range h.Revived {
		count.most("liveness: slowest acquisition after the last fault", d)
	}
	count.n["liveness: releases that a majority announced to somebody"] = w.said.told
	bad = slices.Clone(h.Seen)
	w.excuse()
	bad = append(bad, exclusion(h)...)
	for _, k := range h.Claims {
		if k.End() > k.Got && k.Forgotten > k.Got {
			count.n["I1: judged by intervals"]++
		}
	}
	for _, e := range w.epochs() {
		bad = append(bad, fences(e)...)
		bad = append(bad, store(e)...)
		count.n["I2: fences compared"] += len(e.Claims)
		for _, x := range e.Writes {
			count.n[fmt.Sprintf("I2: write to the store, accepted %v", x.Accepted)]++
		}
		ops, exclusive := e.operations()
		count.n["I1 and I2: operations searched by porcupine"] += len(ops)
		if porcupine.CheckOperationsTimeout(model(exclusive), ops, porcupinePatience) == porcupine.Illegal {
			bad = append(bad, Violation{At: e.Length, Promise: "I1 and I2", Key: e.Claims[0].Key, Text: "porcupine finds no order of the acquisitions in which one holds at a time and fences grow"})
		}
	}
	bad = append(bad, w.storage(count)...)
	bad = append(bad, w.onTime(count)...)
	slices.SortStableFunc(bad, func(a, b Violation) int { return cmp.Compare(a.At, b.At) })
	return bad, count
}

// excuse records from when on nothing is promised of a claim any more. A claim needs the node that lost its data, unless it is
// proven that it does not: other nodes were seen to store it until its Until, and no extension was decided afterwards that had
// begun before and may have counted that node.
func (w *realWorld) excuse() {
	proven := map[proof]instant{}
	for _, p := range w.proofs {
		proven[proof{value: p.value, forgetting: p.forgetting}] = p.at
	}
	for i, f := range w.forgettings {
		for _, c := range w.h.Claims {
			if c.End() < f.from || c.Start > f.to {
				continue
			}
			at, ok := proven[proof{value: c.Value, forgetting: i}]
			for _, r := range w.renewals {
				if r.label == labelOf(c.Value) && r.key == w.s.keyName(c.Key) && r.start <= f.to && r.seen >= at {
					ok = false
				}
			}
			if !ok {
				c.Forgotten = min(c.Forgotten, f.from)
			}
		}
	}
	// A holder that gets ErrLost because somebody has begun to adopt the lock releases it at once.
	for _, c := range w.h.Claims {
		if w.toldLost[c.Value] && c.Adopting < c.Ended {
			c.Ended, c.Why = c.Adopting, "lost to an adoption"
		}
	}
}

// epochs returns the parts of the history, key by key, in which no node lost data. It is not known on whose registers a
// holder's fence rests, so fences before and after a loss of data are not compared.
func (w *realWorld) epochs() (list []*History) {
	bounds := slices.Clone(w.forgettings)
	slices.SortFunc(bounds, func(a, b forgetting) int { return cmp.Compare(a.from, b.from) })
	bounds = append(bounds, forgetting{from: w.h.Length, to: never})
	from := instant(-1)
	for _, b := range bounds {
		if b.from > from {
			for key := range w.s.Keys {
				if e := w.epoch(key, from, b.from); len(e.Claims) > 0 {
					list = append(list, e)
				}
			}
		}
		from = max(from, b.to)
	}
	return list
}

// epoch returns the claims that began and returned within it, and their holders' writes, as to a store of its own.
func (w *realWorld) epoch(key int, from, to instant) *History {
	e := &History{Schedule: w.s, Length: to}
	mine := map[string]bool{}
	for _, c := range w.h.Claims {
		if c.Key == key && c.Start > from && c.Got < to {
			e.Claims = append(e.Claims, c)
			mine[c.Value] = true
		}
	}
	s := fenced{} // sees the writes in the order of their times, which need not be that of the record
	for _, x := range slices.SortedStableFunc(slices.Values(w.h.Writes), func(a, b Write) int { return cmp.Compare(a.At, b.At) }) {
		if mine[x.Value] && x.At < to {
			if x.Accepted = x.Fence >= s.fence; x.Accepted {
				s = fenced{fence: x.Fence, value: x.Value}
			}
			e.Writes = append(e.Writes, x)
		}
	}
	return e
}

// storage judges the nodes: until a holder's Until, a majority stores its value until then, and has registers at or above its
// fence. Reading takes time, so it only shows where there cannot have been a majority.
func (w *realWorld) storage(count realCount) (bad []Violation) {
	claims := map[string]*Claim{}
	for _, c := range w.h.Claims {
		claims[c.Value] = c
	}
	for _, g := range w.glimpses {
		c := claims[g.value]
		start := g.until - validity(c.TTL) // of the round from which Until counts
		forgot := slices.ContainsFunc(w.forgettings, func(f forgetting) bool { return f.from <= g.taken && f.to >= min(c.Start, start) })
		if forgot || c.Forgotten != never || g.answered <= w.s.Nodes/2 {
			continue
		}
		count.n["I1: looks at the storage"]++
		if g.without > w.s.Nodes/2 && c.End() > g.taken && c.Adopting > g.taken {
			bad = append(bad, Violation{At: g.taken, Promise: "I1", Key: c.Key, Text: fmt.Sprintf("%d nodes do not keep %v until %v", g.without, c, g.until)})
		}
		if g.below > w.s.Nodes/2 {
			bad = append(bad, Violation{At: g.taken, Promise: "I2", Key: c.Key, Text: fmt.Sprintf("%d nodes have a register below that of %v", g.below, c)})
		}
	}
	return bad
}

// onTime judges I3, and how long Close took.
func (w *realWorld) onTime(count realCount) (bad []Violation) {
	for _, x := range w.tellings {
		what, promise := "a context ended", "I3"
		switch {
		case x.key < 0:
			count.n["I4: Close"]++
			what, promise = "it returned", "I4"
		case x.open:
			what = "a context has not ended"
		default:
			count.n["I3: contexts"]++
			count.most("I3: latest context, after Until", x.at-x.until)
		}
		if late := x.at - x.until; late > w.allowance(x.until, x.at) {
			bad = append(bad, Violation{At: x.at, Promise: promise, Key: x.key, Text: fmt.Sprintf("%s %v too late: %s", what, late, x.who)})
		}
	}
	return bad
}

// realLeft returns the goroutines that have the library or a client on their stacks.
func realLeft() (left []string) {
	buf := make([]byte, 16<<20)
	for _, g := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if strings.Contains(g, "seed-ce352c9b/redlock.") || strings.Contains(g, "redis/go-redis") {
			left = append(left, g)
		}
	}
	return left
}
