package sim

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"time"
)

// Judge says which promises a history breaks, in the order of time. The judges know the promises and the history.
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

// exclusion is I1: no two claims of a key overlap, as long as a majority carries both.
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

// promised reports whether exclusion is promised to c at that time: a majority carries it, or there is a guard.
func (h *History) promised(c *Claim, at instant) bool {
	return h.Schedule.Guard > 0 || c.Forgotten > at
}

// keeps reports whether I2 promises that whoever begins at start or later gets more than c's fence: a majority of the
// nodes that had a register at the fence or above when c returned have not lost it by the end of that acquisition.
func (h *History) keeps(c *Claim, until instant) bool {
	if h.Schedule.Grows {
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

// fences is I2: greater than those of all who had returned before the winning attempt began, and never the same twice.
func fences(h *History) (bad []Violation) {
	for key, claims := range h.byKey() {
		byGot := slices.Clone(claims)
		slices.SortStableFunc(byGot, func(a, b *Claim) int { return cmp.Compare(a.Got, b.Got) })
		byStart := slices.Clone(claims)
		slices.SortStableFunc(byStart, func(a, b *Claim) int { return cmp.Compare(a.Start, b.Start) })
		var top []*Claim // the greatest fences so far of those that have returned
		i := 0
		for _, c := range byStart {
			for ; i < len(byGot) && byGot[i].Got < c.Start; i++ {
				top = append(top, byGot[i])
			}
			// Losses may take a promise back, so the greatest is not enough; but the newest few are.
			for _, o := range top[max(0, len(top)-8):] {
				if o.Fence >= c.Fence && h.keeps(o, c.Got) {
					bad = append(bad, Violation{At: c.Got, Promise: "I2", Key: key, Text: fmt.Sprintf("the fence of %v is not above that of %v", c, o)})
				}
			}
		}
		seen := map[int64]*Claim{}
		for _, c := range byGot {
			if o := seen[c.Fence]; o != nil && h.keeps(o, c.Got) && h.keeps(c, c.Got) {
				bad = append(bad, Violation{At: c.Got, Promise: "I2", Key: key, Text: fmt.Sprintf("one fence for two: %v and %v", o, c)})
			}
			seen[c.Fence] = c
			if bits.OnesCount64(c.Registers) <= h.Schedule.Nodes/2 && !h.lostRegister(c) {
				bad = append(bad, Violation{At: c.Got, Promise: "I2", Key: key, Text: fmt.Sprintf("%v: only the nodes %b have registers at it", c, c.Registers)})
			}
		}
	}
	return bad
}

// lostRegister reports that a register of the key was lost while the claim was being acquired.
func (h *History) lostRegister(c *Claim) bool {
	for _, l := range h.Losses {
		if l.Register && l.Key == c.Key && l.At >= c.Start && l.At <= c.Got {
			return true
		}
	}
	return false
}

// store is what a store that looks at fences sees: writes of holders are accepted, and one fence is one holder.
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
			bad = append(bad, Violation{At: w.At, Promise: "I2", Key: w.Key, Text: fmt.Sprintf("the store took fence %d after %d", w.Fence, before.Fence)})
		}
		if w.Fence == before.Fence && w.Value != before.Value && h.keeps(lastClaim, w.At) {
			bad = append(bad, Violation{At: w.At, Promise: "I2", Key: w.Key, Text: fmt.Sprintf("the store took fence %d from %s and from %s", w.Fence, before.Value, w.Value)})
		}
		last[w.Key] = w
	}
	return bad
}

// promptly is how long a call may take if a healthy majority is 0.3 ms away: some round trips, for dials and for a raise,
// and the pauses between the attempts of a tie, which are at most a hundredth of the node timeout each. A node timeout is
// 0.2 s and more in these profiles, so whoever waits for one node is found.
const promptly = 60 * time.Millisecond

// tied reports that another asked for the key at about the same instant, and that no node is to spare: where the two take
// parts of each other's majority, the vote of a node that is at fault decides, and it is waited for.
func (h *History) tied(o Op) bool {
	const near = 5 * time.Millisecond
	if s := h.Schedule; s.Nodes-len(s.Prompt) > s.Nodes/2+1 {
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

// prompt is I5: faults of a minority cost nobody time or success.
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
		case took > promptly && h.tied(o):
		case took > promptly:
			bad = append(bad, Violation{At: o.Returned, Promise: "I5", Key: o.Key, Text: fmt.Sprintf("c%d %s took %v, with faults on a minority only", o.Client, o.Name, took)})
		case o.Name == "Extend" && o.Outcome == "no quorum":
			bad = append(bad, Violation{At: o.Returned, Promise: "I5", Key: o.Key, Text: fmt.Sprintf("c%d %s: %s", o.Client, o.Name, o.Text)})
		}
	}
	return bad
}
