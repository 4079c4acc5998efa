package wait

import (
	"math/bits"
	"testing"
	"time"

	"pgregory.net/rapid"

	_ "github.com/seed-ce352c9b/redlock/internal/rapidseed" // the same cases each time
)

// What holds of a Plan whatever happens, in whichever order. Which event makes which pause is in the tables of
// plan_test.go, turns_test.go and turn_test.go.
func TestWhatHoldsOfAPlan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rules(rapid.SampledFrom([]float64{0, 0.5, 0.999}).Draw(t, "random"))
		r.Fair, r.OwnRetry = anyBool.Draw(t, "fair"), anyBool.Draw(t, "own retry")
		l := &life{p: NewPlan(r), now: epoch, all: map[string]uint64{}, firsts: map[string]uint64{}}
		for range 20 { // of 30 events on average
			t.Repeat(rapid.StateMachineActions(l))
		}
	})
}

// A life is a plan to which random events happen: its exported methods.
type life struct {
	p           Plan
	c           Caller
	now         time.Time
	all, firsts map[string]uint64 // by value: the nodes that announced it, and those that told us first
	lifted      bool              // something other than an announcement allows a try while the lock is left to others
	vain        bool              // no try was lost since a look in vain
}

var (
	anyBool  = rapid.Bool()
	anyNode  = rapid.IntRange(0, 2)
	anyTime  = rapid.SampledFrom([]time.Duration{0, 1, ms, 7 * ms, 100 * ms})
	anyTook  = rapid.SampledFrom([]time.Duration{0, 1, ms, 7 * ms, 100 * ms, time.Second, time.Minute}) // the process may have stood still
	anyValue = rapid.SampledFrom([]string{ours, "k" + ours, "l" + ours, "m" + ours, "6ba7b810-9dad-41d1-80b4-00c04fd430c8", "a"})
)

// planned returns what the head does if nothing is due.
func (l *life) planned() (Act, time.Duration) {
	p := l.p
	p.due = false
	return p.Next(l.now)
}

// Check is called after each event. The head acts, or does so after a pause: for ever it does not wait. While the lock is left
// to others it does not try.
func (l *life) Check(t *rapid.T) {
	p := l.p
	act, pause := p.Next(l.now)
	then, _ := p.Next(l.now.Add(pause))
	if (pause > 0) != (act == Wait) || pause > pollHeard || act == Wait && then == Wait {
		t.Fatalf("got act %d after %v, and then %d", act, pause, then)
	}
	left := l.now.Before(p.turns.until)
	if left && (p.rules.Fair || act == Try && !l.lifted) {
		t.Fatalf("got act %d, and the lock is left to others until %v", act, p.turns.until)
	}
	l.lifted = l.lifted && left
}

// woken checks a wake: the head acts earlier than before, or tries at once. Without one it acts as before.
func (l *life) woken(t *rapid.T, before Plan, wake bool) {
	earlier := l.p.due || l.p.at.Before(before.at)
	same := l.p.due == before.due && l.p.at.Equal(before.at) && l.p.try == before.try && l.p.glance == before.glance
	if wake && !earlier || !wake && !same {
		t.Fatalf("wake is %v; the head acts at %v (due %v), and did at %v (%v)", wake, l.p.at, l.p.due, before.at, before.due)
	}
}

// leaves checks that the head looks when the others have had their time, or now if it has no entry in the queues.
func (l *life) leaves(t *rapid.T, queued bool) {
	act, pause := l.planned()
	if left := l.p.turns.until.Sub(l.now); queued && (act != Wait || pause != left) || !queued && act != Look || l.p.try {
		t.Fatalf("the lock is left to others for %v (queued: %v), got act %d after %v", left, queued, act, pause)
	}
}

func (l *life) Later(t *rapid.T) { l.now = l.now.Add(anyTime.Draw(t, "time")) }
func (l *life) NotDue(*rapid.T)  { l.p.NotDue() }
func (l *life) Freed(*rapid.T)   { l.p.Freed(); l.lifted = true }

func (l *life) Sleep(*rapid.T) {
	_, pause := l.p.Next(l.now)
	l.now = l.now.Add(pause)
}

func (l *life) Subscribed(t *rapid.T) {
	before := l.p
	l.woken(t, before, l.p.Subscribed(anyNode.Draw(t, "node"), anyBool.Draw(t, "yes"), l.now))
	act, pause := l.planned()
	if starts := l.p.Hears() && !before.Hears(); starts && act == Wait || !l.p.Hears() && before.Hears() && pause > l.p.rules.RetryFirst {
		t.Fatalf("the subscription starts: %v, or ends, but the head pauses for %v", starts, pause)
	}
}

// Announced counts each value once for each node.
func (l *life) Announced(t *rapid.T) {
	majority := func(m map[string]uint64, value string) bool { return bits.OnesCount64(m[value]) >= 2 }
	node, value, nth := anyNode.Draw(t, "node"), anyValue.Draw(t, "value"), rapid.SampledFrom([]string{"1", "2"}).Draw(t, "nth")
	before, all, first := l.p, majority(l.all, value), majority(l.firsts, value)
	l.all[value] |= 1 << node
	if nth == "1" {
		l.firsts[value] |= 1 << node
	}
	told, wake := l.p.Announced(node, nth+" "+value, "", l.now)
	l.woken(t, before, wake)
	all, first = majority(l.all, value) && !all, majority(l.firsts, value) && !first
	if told != (all || first) || l.p.due && !before.due && !first {
		t.Fatalf("told %v, due %v; the nodes %b announced it, %b told us first", told, l.p.due, l.all[value], l.firsts[value])
	}
	for _, text := range []string{nth + " " + value, "2 " + value, value} {
		p := l.p
		if told, wake := p.Announced(node, text, "", l.now); told || wake || p != l.p {
			t.Fatalf("%q, which says nothing new: told %v, wake %v, and now %+v", text, told, wake, p)
		}
	}
	p := l.p
	if told, wake := p.Announced(node, nth+"? "+value+" of its own", value+" of its own", l.now); told || wake || p != l.p {
		t.Fatalf("its own attempt: told %v, wake %v, and now %+v", told, wake, p)
	}
}

func (l *life) AfterOthers(t *rapid.T) {
	before := l.p
	l.woken(t, before, l.p.AfterOthers(l.now))
}

func (l *life) Won(t *rapid.T) {
	for range rapid.SampledFrom([]int{1, 1, 1, MaxTurns}).Draw(t, "times") {
		l.p.Won(l.now, l.now)
	}
}

// Lost makes a pause, but for a few ties, and for a look at what may have been released unheard.
func (l *life) Lost(t *rapid.T) {
	lost := Lost{
		Start: l.now.Add(-anyTime.Draw(t, "ago")), Took: anyTook.Draw(t, "took"), Held: anyBool.Draw(t, "held"), Longest: l.p.rules.RetryMost,
		Holder: rapid.SampledFrom([]string{"", "b", ours}).Draw(t, "holder"), Mine: rapid.SampledFrom([]string{"a", "d"}).Draw(t, "mine"),
		Votes: votes(rapid.StringMatching(`[+bc.]{3}`).Draw(t, "votes")),
	}
	l.p.Lost(&l.c, &lost, l.now)
	act, pause := l.planned()
	tie := IsTie(lost.Holder, lost.Votes) && l.c.ties <= MaxTies
	if looks := act == Glance && l.p.Hears() && !l.vain; !tie && !looks && pause < lost.Longest/2 {
		t.Fatalf("got act %d after %v (after a look in vain: %v)", act, pause, l.vain)
	}
	l.vain, l.lifted = false, true
}

// Looked makes a pause if the lock is held, but none that lasts longer than its ttl.
func (l *life) Looked(t *rapid.T) {
	looked := Looked{
		Start: l.now.Add(-anyTime.Draw(t, "ago")), Held: anyBool.Draw(t, "held"), Free: anyBool.Draw(t, "free"), Longest: l.p.rules.RetryMost,
		FreeIn:   rapid.OneOf(anyTime, rapid.Just(time.Hour)).Draw(t, "free in"),
		Holder:   rapid.SampledFrom([]string{"", "b", ours}).Draw(t, "holder"),
		Standing: Standing{Answered: anyBool.Draw(t, "answered"), Before: rapid.IntRange(0, 99).Draw(t, "before")},
	}
	l.p.Looked(&looked, l.now)
	_, pause := l.planned()
	expiry := max(0, looked.Start.Add(looked.FreeIn).Sub(l.now))
	switch {
	case looked.Held && (pause > expiry || pause < min(expiry, looked.Longest/2)):
		t.Fatalf("got a pause of %v, and the lock expires after %v", pause, expiry)
	case !looked.Held && l.now.Before(l.p.turns.until):
		l.leaves(t, true)
	case !looked.Held && pause > l.p.rules.RetryMost:
		t.Fatalf("got a pause of %v at a lock that is free", pause)
	}
	l.vain, l.lifted = !looked.Held && !looked.Free, l.lifted || looked.Held
}

func (l *life) Releasing(t *rapid.T) { l.p.Releasing(anyValue.Draw(t, "value"), l.now) }

func (l *life) Released(t *rapid.T) {
	before, told, queued := l.p, anyBool.Draw(t, "told"), anyBool.Draw(t, "queued")
	switch wake := l.p.Released(told, queued, anyTook.Draw(t, "took"), l.now); {
	case l.p.turns.until.Sub(l.now) > l.p.rules.RetryMost:
		t.Fatalf("the lock is left to others for %v", l.p.turns.until.Sub(l.now))
	case told && wake: // so that the head pauses anew, until the others have had their time
		l.leaves(t, queued)
		l.lifted = false
	default:
		l.woken(t, before, wake)
	}
}

func (l *life) Joined(t *rapid.T) {
	held, queued := anyBool.Draw(t, "held"), anyBool.Draw(t, "queued")
	l.p.Joined(held, queued, l.now)
	if !l.p.rules.Fair && !held && !l.p.turns.open && l.now.Before(l.p.turns.until) {
		l.leaves(t, queued)
	} else if _, pause := l.planned(); !l.p.due && pause > l.p.rules.RetryFirst {
		t.Fatalf("got a pause of %v", pause)
	}
}
