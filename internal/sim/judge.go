package sim

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"time"
)

// Judge returns the violations of the promises in a history, ordered by time. It knows only the promises and the history.
func Judge(h *History) []Violation {
	bad := slices.Clone(h.Seen)
	for _, judge := range []func(*History) []Violation{exclusion, fences, register, store, prompt, turns} {
		bad = append(bad, judge(h)...)
	}
	slices.SortStableFunc(bad, func(a, b Violation) int { return cmp.Compare(a.At, b.At) })
	return bad
}

func (h *History) byKey() map[int][]*Claim {
	m := map[int][]*Claim{}
	for _, c := range h.Claims {
		m[c.Key] = append(m[c.Key], c)
	}
	return m
}

// exclusion is I1: no two claims to a key overlap while a majority stores both.
func exclusion(h *History) (bad []Violation) {
	if h.Schedule.Unsafe {
		return nil
	}
	for key := range h.Schedule.Keys {
		claims := slices.Clone(h.byKey()[key])
		slices.SortStableFunc(claims, func(a, b *Claim) int { return cmp.Compare(a.Got, b.Got) })
		var open []*Claim
		for _, c := range claims {
			open = slices.DeleteFunc(open, func(o *Claim) bool { return o.End() <= c.Got })
			for _, o := range open {
				if c.End() > c.Got && h.promised(o, c.Got) && h.promised(c, c.Got) {
					bad = append(bad, Violation{At: c.Got, Promise: "I1", Key: key, Text: fmt.Sprintf("two holders: %v and %v", o, c)})
				}
			}
			open = append(open, c)
		}
	}
	return bad
}

// promised reports whether exclusion is promised to c at that time: a majority stores it, or there is a restart guard.
func (h *History) promised(c *Claim, at instant) bool {
	return h.Schedule.Guard > 0 || c.Forgotten > at
}

// keeps reports whether I2 promises that every acquisition whose start is not before c's return gets a fence greater than c's:
// a majority of the nodes that had a register at or above that fence when c returned have not lost it by until.
func (h *History) keeps(c *Claim, until instant) bool {
	if h.Schedule.FencesGrow {
		return true
	}
	nodes := c.Registers
	for _, l := range h.Losses {
		if l.Register && l.Key == c.Key && l.At >= c.Got && l.At <= until {
			nodes &^= 1 << l.Node
		}
	}
	return bits.OnesCount64(nodes) > h.Schedule.Nodes/2
}

// fences is I2: a fence is greater than those of all claims that returned before its winning attempt began, and no fence occurs
// twice. Claims without a fence do not matter.
func fences(h *History) (bad []Violation) {
	for key, claims := range h.byKey() {
		claims = slices.DeleteFunc(claims, func(c *Claim) bool { return c.Fence == 0 })
		byGot := slices.Clone(claims)
		slices.SortStableFunc(byGot, func(a, b *Claim) int { return cmp.Compare(a.Got, b.Got) })
		byStart := slices.Clone(claims)
		slices.SortStableFunc(byStart, func(a, b *Claim) int { return cmp.Compare(a.Start, b.Start) })
		var top []*Claim // claims that have returned so far
		i := 0
		for _, c := range byStart {
			for ; i < len(byGot) && byGot[i].Got < c.Start; i++ {
				top = append(top, byGot[i])
			}
			// A loss may void the promise for some, so comparing with the greatest alone is not enough; but the newest few are.
			for _, o := range top[max(0, len(top)-8):] {
				if o.Fence >= c.Fence && h.keeps(o, c.Got) {
					bad = append(bad, Violation{At: c.Got, Promise: "I2", Key: key, Text: fmt.Sprintf("the fence of %v is not greater than that of %v", c, o)})
				}
			}
		}
		seen := map[int64]*Claim{}
		for _, c := range byGot {
			if o := seen[c.Fence]; o != nil && h.keeps(o, c.Got) && h.keeps(c, c.Got) {
				bad = append(bad, Violation{At: c.Got, Promise: "I2", Key: key, Text: fmt.Sprintf("two claims have the same fence: %v and %v", o, c)})
			}
			seen[c.Fence] = c
			if bits.OnesCount64(c.Registers) <= h.Schedule.Nodes/2 && !h.lostRegister(c) {
				bad = append(bad, Violation{At: c.Got, Promise: "I2", Key: key, Text: fmt.Sprintf("%v: only the nodes %b have registers at or above its fence", c, c.Registers)})
			}
		}
	}
	return bad
}

// lostRegister reports whether a register of the key was lost during the acquisition of the claim.
func (h *History) lostRegister(c *Claim) bool {
	return slices.ContainsFunc(h.Losses, func(l Loss) bool {
		return l.Register && l.Key == c.Key && l.At >= c.Start && l.At <= c.Got
	})
}

// store judges what a store that checks fences sees: it accepts the writes of holders, and every fence belongs to one holder.
func store(h *History) (bad []Violation) {
	claims := map[string]*Claim{}
	for _, c := range h.Claims {
		claims[c.Value] = c
	}
	last := map[int]Write{}
	for _, w := range h.Writes {
		c, before := claims[w.Value], last[w.Key]
		lastClaim := claims[before.Value]
		if !w.Accepted && w.Claimed && !h.Schedule.Unsafe && h.promised(c, w.At) && lastClaim != nil && h.promised(lastClaim, w.At) && h.keeps(lastClaim, w.At) {
			bad = append(bad, Violation{At: w.At, Promise: "I1", Key: w.Key, Text: fmt.Sprintf("a holder's write is refused: %v, after fence %d", c, before.Fence)})
		}
		if !w.Accepted {
			continue
		}
		if w.Fence < before.Fence {
			bad = append(bad, Violation{At: w.At, Promise: "I2", Key: w.Key, Text: fmt.Sprintf("the store accepted fence %d after %d", w.Fence, before.Fence)})
		}
		if w.Fence == before.Fence && w.Value != before.Value && h.keeps(earlier(c, lastClaim), w.At) {
			bad = append(bad, Violation{At: w.At, Promise: "I2", Key: w.Key, Text: fmt.Sprintf("the store accepted fence %d from %s and from %s", w.Fence, before.Value, w.Value)})
		}
		last[w.Key] = w
	}
	return bad
}

// earlier returns the claim that was acquired first.
func earlier(a, b *Claim) *Claim {
	if a.Got <= b.Got {
		return a
	}
	return b
}

// promptLimit is how long a call may take if a healthy majority is 0.3 ms away: some round trips for dials and for a raise, and the
// pauses between the attempts after a tie, which are at most a hundredth of the node timeout each. In these profiles the node
// timeout is at least 0.2 s, so a call that waits for one node is found.
const promptLimit = 60 * time.Millisecond

// tied reports whether another caller asked for the key at about the same instant while no healthy node is to spare: if the two
// take parts of each other's majority, the vote of a faulty node decides, and is waited for.
func (h *History) tied(o Op) bool {
	const near = 5 * time.Millisecond
	if s := h.Schedule; s.Nodes-len(s.FaultyNodes) > s.Nodes/2+1 {
		return false
	}
	for _, p := range h.Ops {
		switch p.Name {
		case "TryAcquire", "TryAcquire with less", "Acquire", "Run", "Adopt":
			if p.Key == o.Key && p.Task != o.Task && (p.Called-o.Called).Abs() < near {
				return true
			}
		}
	}
	return false
}

// prompt is I5: faults on a minority make no call slow or unsuccessful.
func prompt(h *History) (bad []Violation) {
	if !h.Schedule.prompt() {
		return nil
	}
	for _, o := range h.Ops {
		switch o.Name {
		case "TryAcquire", "Extend", "Release":
		default:
			continue
		}
		switch took := o.Returned - o.Called; {
		case took > promptLimit && h.tied(o):
		case took > promptLimit:
			bad = append(bad, Violation{At: o.Returned, Promise: "I5", Key: o.Key, Text: fmt.Sprintf("c%d %s took %v, although only a minority is faulty", o.Client, o.Name, took)})
		case o.Name == "Extend" && o.Outcome == "no quorum":
			bad = append(bad, Violation{At: o.Returned, Promise: "I5", Key: o.Key, Text: fmt.Sprintf("c%d %s: %s", o.Client, o.Name, o.Text)})
		}
	}
	return bad
}
