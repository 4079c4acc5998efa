package wait

import (
	"testing"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/wire"

	"pgregory.net/rapid"
)

// An event is one call of a Plan without Fair, whose random source returns half each time.
type event struct {
	kind   string
	now    time.Time
	node   int
	yes    bool
	nth    string
	value  string
	lost   Lost
	looked Looked
	queued bool // joined, released: our entry is in the nodes' queues
	held   bool // joined: this Locker holds the lock
}

// A history is the dumb twin of a Plan: it keeps every event and no state. Each question is
// answered by reading all events again.
type history []event

// subscribed returns since when a majority was heard; zero: it is not.
func (h history) subscribed() (since time.Time) {
	var nodes [3]bool
	for _, e := range h {
		if e.kind != "subscribed" {
			continue
		}
		nodes[e.node] = e.yes
		n := 0
		for _, yes := range nodes {
			if yes {
				n++
			}
		}
		switch {
		case n < 2:
			since = time.Time{}
		case since.IsZero():
			since = e.now
		}
	}
	return since
}

// announced returns what the last event, an announcement, makes of its value: 0 nothing new, 1 some,
// 2 a majority, 3 a majority that told us first.
func (h history) announced() int {
	// The values that are remembered, each with its announcements, oldest first.
	type heard struct {
		value string
		all   []event
	}
	var values []heard
	level := func(all []event) int {
		var nodes, firsts [3]int
		for _, e := range all {
			nodes[e.node] = 1
			if e.nth == "1" {
				firsts[e.node] = 1
			}
		}
		switch {
		case firsts[0]+firsts[1]+firsts[2] >= 2:
			return 3
		case nodes[0]+nodes[1]+nodes[2] >= 2:
			return 2
		case len(all) > 0:
			return 1
		}
		return 0
	}
	now := 0
	for _, e := range h {
		if e.kind != "announced" {
			continue
		}
		i := 0
		for i < len(values) && values[i].value != e.value {
			i++
		}
		if i == len(values) {
			if len(values) == maxAnnounced {
				values = values[1:]
				i--
			}
			values = append(values, heard{value: e.value})
		}
		before := level(values[i].all)
		values[i].all = append(values[i].all, e)
		now = level(values[i].all)
		if now == before {
			now = 0
		}
	}
	return now
}

// ties returns how many tries in a row were ties.
func (h history) ties() (n int) {
	for _, e := range h {
		switch {
		case e.kind != "lost":
		case IsTie(e.lost.Holder, e.lost.Votes):
			n++
		default:
			n = 0
		}
	}
	return n
}

// pace returns how long the last try that was lost took.
func (h history) pace() (took time.Duration) {
	for _, e := range h {
		if e.kind == "lost" {
			took = max(e.lost.Took, time.Microsecond)
		}
	}
	return took
}

// foreign reports whether the last holder that was seen may not announce its release.
func (h history) foreign() (is bool) {
	for _, e := range h {
		switch e.kind {
		case "lost":
			is = !wire.IsOurs(e.lost.Holder)
		case "won":
			is = false
		}
	}
	return is
}

// unsure reports whether nobody is known to hold the lock: the last holder's release was announced, or the last
// try showed none.
func (h history) unsure() (is bool) {
	for i, e := range h {
		switch e.kind {
		case "announced":
			is = is || h[:i+1].announced() > 0
		case "lost":
			is = e.lost.Holder == ""
		case "won":
			is = false
		}
	}
	return is
}

// vain reports whether the last look was in vain and no pause was made for it since.
func (h history) vain() (is bool) {
	for i, e := range h {
		switch {
		case e.kind == "looked":
			is = !e.looked.Held && !e.looked.Free
		case e.kind == "lost":
			if ties := h[:i+1].ties(); ties == 0 || ties > MaxTies {
				is = false // it was used, or was not there
			}
		}
	}
	return is
}

// A share is what a history says of the turns of the Locker.
type share struct {
	run       int
	open      bool // a release has no result yet
	contended bool
	until     time.Time // the lock is left to others
	left      time.Time // since when, if they have not had it
	usual     time.Duration
}

// ignores reports whether a waiter that gives up is none of the head's business: the Locker has had all its
// turns, and leaves the lock to others.
func (s share) ignores(now time.Time) bool {
	return s.run >= MaxTurns && (s.open || now.Before(s.until))
}

// heard reports whether the last event, an announcement, may bring the head to ask.
func (h history) heard() bool {
	n := len(h) - 1
	return h.announced() >= 2 && (h.others() || !h[:n].share().ignores(h[n].now))
}

// others reports whether the last event, an announcement, is of the release of another Locker's lock.
func (h history) others() bool {
	released := ""
	for _, e := range h {
		if e.kind == "releasing" {
			released = e.value
		}
	}
	e := h[len(h)-1]
	return wire.IsOurs(e.value) && e.value != released
}

func (h history) share() (s share) {
	for i, e := range h {
		seen := h[:i+1]
		switch e.kind {
		case "won":
			s.run++
			s.open, s.until = false, time.Time{}
		case "announced":
			if seen.announced() >= 2 && seen.others() {
				s.run = 0
				if !s.left.IsZero() {
					s.usual, s.left = e.now.Sub(s.left), time.Time{}
				}
			}
			if seen.announced() >= 2 && !s.ignores(e.now) {
				s.open, s.until = false, time.Time{}
			}
		case "looked":
			if l := e.looked; !l.Held && !e.now.Before(s.until) && !(l.Standing.Answered && l.Standing.Before > 0) {
				s.left, s.usual = time.Time{}, 0
				if s.run >= MaxTurns {
					s.run = 0
				}
			}
		case "releasing":
			s.open, s.run = true, max(s.run, 1)
		case "released":
			s.contended = e.yes
			switch {
			case !e.yes:
				s = share{}
			case s.open && s.run >= MaxTurns:
				s.open, s.until, s.left = false, e.now.Add(250*ms), e.now
			case s.open:
				s.open, s.until, s.left = false, e.now.Add(4*max(seen.pace(), ms)+min(max(2*s.usual, 10*ms), 50*ms)), e.now
			}
		}
	}
	return s
}

// leaves reports whether the last event has the head leave the lock to others.
func (h history) leaves() bool {
	before, e := h[:len(h)-1].share(), h[len(h)-1]
	switch e.kind {
	case "releasing":
		return before.run >= MaxTurns
	case "released":
		return e.yes && before.open
	case "joined":
		return e.held || before.open && (before.contended || before.run >= MaxTurns)
	}
	return false
}

// due reports whether the lock may be free.
func (h history) due() (yes bool) {
	for i, e := range h {
		seen := h[:i+1]
		switch {
		case e.kind == "freed", e.kind == "announced" && seen.announced() == 3 && seen.heard(), e.kind == "released" && !e.yes:
			yes = true
		case e.kind == "joined" && !seen.leaves() && !e.now.Before(h[:i].share().until):
			yes = true
		case e.kind == "handed", e.kind == "tried", e.kind == "won", seen.leaves():
			yes = false
		}
	}
	return yes
}

// deadline returns when the head acts, and whether by a try.
func (h history) deadline() (at time.Time, try bool) {
	by := func(t time.Time) {
		if t.Before(at) {
			at, try = t, false
		}
	}
	for i, e := range h {
		seen := h[:i+1]
		switch e.kind {
		case "subscribed":
			before, after := !h[:i].subscribed().IsZero(), !seen.subscribed().IsZero()
			if !before && after {
				by(e.now)
			}
			if before && !after {
				by(e.now.Add(10 * ms))
			}
		case "announced":
			switch seen.announced() {
			case 1:
				by(e.now.Add(8*seen.pace() + ms))
			case 2:
				if seen.heard() {
					by(e.now.Add(4*seen.pace() + ms/2))
				}
			}
		case "releasing":
			if seen.leaves() {
				at, try = e.now.Add(250*ms), false
			}
		case "released", "joined":
			until := seen.share().until
			switch {
			case e.kind == "joined" && e.held:
				at, try = e.now.Add(5*ms), false
			case e.kind == "joined" && seen.leaves():
				at, try = e.now.Add(10*ms), false
			case e.kind == "joined" && !e.now.Before(until), e.kind == "released" && !seen.leaves():
			case e.queued:
				at, try = until, false
			default:
				at, try = e.now, false
			}
		case "others":
			by(e.now.Add(4*seen.pace() + ms/2))
		case "won":
			at, try = e.now.Add(5*ms), false
		case "lost":
			ties, took := seen.ties(), seen.pace()
			switch {
			case ties > 0 && ties <= MaxTies && winsTieBreak(e.lost.Votes, e.lost.Mine):
				at, try = e.now.Add(took/2), true
			case ties > 0 && ties <= MaxTies:
				at, try = e.now.Add(4*took+took/2), false
			case !e.lost.Held || ties > 0 || h[:i].vain():
				at, try = e.now.Add(e.lost.Longest*3/4), true
			case seen.subscribed().IsZero():
				at, try = e.now.Add(e.lost.Longest*3/4), false
			default:
				at, try = e.now, false
			}
		case "looked":
			l := e.looked
			switch until := h[:i].share().until; {
			case !l.Held && e.now.Before(until):
				at, try = until, false
			case l.Held:
				pause := l.Longest * 3 / 4
				since := seen.subscribed()
				if poll := 4500 * ms; !since.IsZero() && !since.After(l.Start) && (!seen.foreign() || poll < pause) {
					pause = poll
				}
				at, try = e.now.Add(pause), false
				if expiry := l.Start.Add(l.FreeIn); expiry.Before(at) {
					at = expiry
				}
				if soon := e.now.Add(250 * ms * 3 / 4); seen.unsure() && soon.Before(at) {
					at, try = soon, true
				}
			case l.Standing.Answered && l.Standing.Before > 0:
				at, try = e.now.Add(min(time.Duration(l.Standing.Before)*(4*seen.pace()+ms), 250*ms)), true
			default:
				at, try = time.Time{}, true
			}
		}
	}
	return at, try
}

func (h history) next(now time.Time) (Act, time.Duration) {
	at, try := h.deadline()
	switch {
	case h.due(), try && !at.After(now):
		return Try, 0
	case !at.After(now):
		return Look, 0
	}
	return Wait, at.Sub(now)
}

func TestAPlanAndItsTwinSayTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var (
			p     = NewPlan(rules(0.5))
			c     Caller
			h     history
			now   = epoch
			node  = rapid.IntRange(0, 2)
			value = rapid.SampledFrom([]string{ours, ours[:len(ours)-1] + "0", ours[:len(ours)-1] + "1"})
			part  = rapid.SampledFrom([]time.Duration{0, 1, ms, 7 * ms, 100 * ms, 10 * time.Second}) // of time
			kind  = rapid.SampledFrom([]string{"freed", "handed", "subscribed", "subscribed", "announced", "announced", "announced", "others", "won", "won", "lost", "looked", "joined", "releasing", "released", "next"})
		)
		compare := func() Act {
			act, pause := p.Next(now)
			if act == Glance { // a look, which queues or does not
				act = Look
			}
			if wantAct, wantPause := h.next(now); act != wantAct || pause != wantPause {
				t.Fatalf("at %v: got act %d after %v, its twin says %d after %v", now.Sub(epoch), act, pause, wantAct, wantPause)
			}
			return act
		}
		for range rapid.IntRange(1, 60).Draw(t, "events") {
			now = now.Add(part.Draw(t, "later"))
			e := event{kind: kind.Draw(t, "kind"), now: now, node: node.Draw(t, "node")}
			before, wake := p.at, false
			switch e.kind {
			case "freed":
				p.Freed()
			case "handed":
				p.NotDue()
			case "subscribed":
				e.yes = rapid.SampledFrom([]bool{true, true, true, false}).Draw(t, "yes")
			case "announced":
				e.nth = rapid.SampledFrom([]string{"1", "2"}).Draw(t, "nth")
				e.value = rapid.OneOf(rapid.StringMatching(`[a-k]`), value).Draw(t, "value")
			case "joined":
				e.held, e.queued = rapid.Bool().Draw(t, "held"), rapid.Bool().Draw(t, "queued")
				p.Joined(e.held, e.queued, now)
			case "releasing":
				e.value = value.Draw(t, "value")
				p.Releasing(e.value, now)
			case "released":
				e.yes, e.queued = rapid.Bool().Draw(t, "notified"), rapid.Bool().Draw(t, "queued")
			case "won":
				for range rapid.SampledFrom([]int{0, 0, 0, 13}).Draw(t, "more") {
					p.Won(now.Add(-ms), now)
					h = append(h, e)
				}
				p.Won(now.Add(-ms), now)
			case "lost":
				e.lost = Lost{
					Start: now.Add(-part.Draw(t, "took")), Held: rapid.Bool().Draw(t, "held"), Took: part.Draw(t, "took"),
					Holder: rapid.SampledFrom([]string{"", "b", ours}).Draw(t, "holder"), Longest: 100 * ms,
					Votes: votes(rapid.StringMatching(`[+bc.]{3}`).Draw(t, "votes")), Mine: rapid.SampledFrom([]string{"a", "d"}).Draw(t, "mine"),
				}
				p.Lost(&c, &e.lost, now)
			case "looked":
				e.looked = Looked{
					Start: now.Add(-part.Draw(t, "took")), Held: rapid.Bool().Draw(t, "held"), Free: rapid.Bool().Draw(t, "free"),
					FreeIn: part.Draw(t, "free in"), Longest: rapid.SampledFrom([]time.Duration{100 * ms, time.Minute}).Draw(t, "longest"),
					Standing: Standing{Answered: rapid.Bool().Draw(t, "answered"), Before: rapid.IntRange(0, 3).Draw(t, "before")},
				}
				p.Looked(&e.looked, now)
			case "next":
				if compare() == Try {
					e.kind = "tried"
				}
			}
			h = append(h, e)
			switch e.kind {
			case "subscribed":
				wake = p.Subscribed(e.node, e.yes, now)
			case "announced":
				_, wake = p.Announced(e.node, e.nth+" "+e.value, now)
			case "released":
				wake = p.Released(e.yes, e.queued, ms, now)
			case "others":
				wake = p.AfterOthers(now)
			}
			at, try := h.deadline()
			if got, want := p.turns, h.share(); got.run != want.run || got.open != want.open || got.contended != want.contended || !got.until.Equal(want.until) || !got.left.Equal(want.left) || got.usual != want.usual {
				t.Fatalf("%+v: got %+v, its twin says %+v", e, got, want)
			}
			if !at.Equal(p.at) || try != p.try || h.due() != p.due {
				t.Fatalf("%+v: got a deadline of %v (try: %v, due: %v), its twin says %v (%v, %v)", e, p.at.Sub(epoch), p.try, p.due, at.Sub(epoch), try, h.due())
			}
			want := false
			switch e.kind {
			case "subscribed", "others":
				want = at.Before(before)
			case "announced":
				want = at.Before(before) || h.announced() == 3 && h.heard()
			case "released":
				want = !e.yes || h.leaves()
			}
			if wake != want {
				t.Fatalf("%+v: wake is %v, its twin says %v", e, wake, want)
			}
		}
		compare()
	})
}
