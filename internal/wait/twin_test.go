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

// due reports whether the lock may be free.
func (h history) due() (yes bool) {
	for i, e := range h {
		switch {
		case e.kind == "freed", e.kind == "announced" && h[:i+1].announced() == 3:
			yes = true
		case e.kind == "handed", e.kind == "tried":
			yes = false
		}
	}
	return yes
}

// deadline returns when the leader acts, and whether by a try.
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
				by(e.now.Add(4*seen.pace() + ms/2))
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
			switch {
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
			p    = NewPlan(rules(0.5))
			c    Caller
			h    history
			now  = epoch
			node = rapid.IntRange(0, 2)
			part = rapid.SampledFrom([]time.Duration{0, 1, ms, 7 * ms, 100 * ms, 10 * time.Second}) // of time
			kind = rapid.SampledFrom([]string{"freed", "handed", "subscribed", "subscribed", "announced", "announced", "announced", "others", "won", "lost", "looked", "next"})
		)
		compare := func() Act {
			act, pause := p.Next(now)
			if wantAct, wantPause := h.next(now); act != wantAct || pause != wantPause {
				t.Fatalf("at %v: got act %d after %v, its twin says %d after %v", now.Sub(epoch), act, pause, wantAct, wantPause)
			}
			return act
		}
		for range rapid.IntRange(1, 40).Draw(t, "events") {
			now = now.Add(part.Draw(t, "later"))
			e := event{kind: kind.Draw(t, "kind"), now: now, node: node.Draw(t, "node")}
			before, wake := p.at, false
			switch e.kind {
			case "freed":
				p.Freed()
			case "handed":
				p.Handed()
			case "subscribed":
				e.yes = rapid.SampledFrom([]bool{true, true, true, false}).Draw(t, "yes")
			case "announced":
				e.nth = rapid.SampledFrom([]string{"1", "2"}).Draw(t, "nth")
				e.value = rapid.StringMatching(`[a-k]`).Draw(t, "value")
			case "won":
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
				wake = p.Announced(e.node, e.nth+" "+e.value, now)
			case "others":
				wake = p.AfterOthers(now)
			}
			at, try := h.deadline()
			if !at.Equal(p.at) || try != p.try || h.due() != p.due {
				t.Fatalf("%+v: got a deadline of %v (try: %v, due: %v), its twin says %v (%v, %v)", e, p.at.Sub(epoch), p.try, p.due, at.Sub(epoch), try, h.due())
			}
			want := false
			switch e.kind {
			case "subscribed", "others":
				want = at.Before(before)
			case "announced":
				want = at.Before(before) || h.announced() == 3
			}
			if wake != want {
				t.Fatalf("%+v: wake is %v, its twin says %v", e, wake, want)
			}
		}
		compare()
	})
}
