package model

import (
	"fmt"
	"strings"
)

// retrace returns the steps that led to a state. Stored states have their nodes in any order, so it
// repeats the path from its beginning while it keeps the order of the nodes.
func (w *World) retrace(st *store, at int, last key, broken string) (state, []Step) {
	way := []key{last}
	for i := uint32(at); i != none; i = st.at(int(i)).parent {
		way = append(way, st.at(int(i)).key)
	}
	s := way[len(way)-1].unpack()
	start := s
	var steps []Step
	for i := len(way) - 2; i >= 0; i-- {
		want, found := way[i], false
		wrong := ""
		if i == 0 {
			wrong = broken
		}
		here := s
		w.next(&here, func(step Step, t *state, b string) {
			if !found && b == wrong && w.pack(t) == want {
				found, s = true, *t
				steps = append(steps, step)
			}
		})
		if !found {
			panic("model: cannot reach a state that was reached before")
		}
	}
	return start, steps
}

// Replay takes the steps one by one and returns the property that the last of them breaks. It returns
// an error if a step is not possible, or if an earlier step breaks a property.
func (w *World) Replay(start state, trace []Step, each func(step Step, before, after *state)) (broken string, err error) {
	s := start
	for i, step := range trace {
		here, found := s, false
		broken = ""
		w.next(&here, func(p Step, t *state, b string) {
			if p == step && !found {
				found, s, broken = true, *t, b
			}
		})
		switch {
		case !found:
			return "", fmt.Errorf("model: step %d of %d, %v, is not possible", i+1, len(trace), step)
		case broken != "" && i < len(trace)-1:
			return "", fmt.Errorf("model: step %d of %d already breaks a property: %s", i+1, len(trace), broken)
		}
		if each != nil {
			each(step, &here, &s)
		}
	}
	return broken, nil
}

// Explain describes a counterexample: one line per step, with the value and the register of each node
// after it.
func (r *Result) Explain() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-58s %s\n", "", r.Start.show())
	broken, err := r.World.Replay(r.Start, r.Trace, func(step Step, before, after *state) {
		fmt.Fprintf(&b, "%-58s %s\n", step.tell(before, after), after.show())
	})
	if err != nil {
		broken = err.Error()
	}
	fmt.Fprintln(&b, broken)
	return b.String()
}

// name returns the name of an attempt: A, B, C.
func name(i int) string { return string(rune('A' + i)) }

func (s *state) show() string {
	var b strings.Builder
	for j := range s.node {
		n := &s.node[j]
		owner := "-"
		if n.val != 0 {
			owner = name(int(n.val) - 1)
		}
		if n.out {
			owner = "away"
		}
		fmt.Fprintf(&b, " n%d[%s %d]", j+1, owner, n.reg)
	}
	return b.String()
}

// tell describes a step in one line.
func (p Step) tell(before, after *state) string {
	who, on := "", ""
	if p.Attempt >= 0 {
		who = name(int(p.Attempt)) + ": "
	}
	if p.Node >= 0 {
		on = fmt.Sprintf(" on n%d", p.Node+1)
	}
	return who + p.what(before, after) + on
}

func (p Step) what(before, after *state) string {
	var a, was *attempt
	if p.Attempt >= 0 {
		a, was = &after.attempt[p.Attempt], &before.attempt[p.Attempt]
	}
	ours := func() string {
		if after.node[p.Node].val == uint8(p.Attempt+1) {
			return "ours"
		}
		return "not ours"
	}
	moved := func() string {
		if before.node[p.Node].reg != after.node[p.Node].reg {
			return "moved"
		}
		return "unchanged"
	}
	switch p.Kind {
	case Begin:
		return fmt.Sprintf("begins, proposes %d", p.Arg)
	case SetNX:
		return "SET NX: " + ours() + ","
	case ZAdd:
		return fmt.Sprintf("ZADD %d: %s,", was.p, moved())
	case AdoptNode:
		return fmt.Sprintf("adopt with %d: %s, %s,", was.p, ours(), moved())
	case Fenced:
		return fmt.Sprintf("counts a majority: acquired with token %d", a.tok)
	case SendRaise:
		return fmt.Sprintf("counts a majority of values only, raises to %d", p.Arg)
	case RaiseNode:
		return fmt.Sprintf("raise to %d: %s, %s,", was.t[p.Arg], ours(), moved())
	case Raised:
		return fmt.Sprintf("counts a raised majority: acquired with token %d", a.tok)
	case GiveUp:
		return "gives up"
	case SendExtend:
		return fmt.Sprintf("sends extension %d", p.Arg)
	case ExtendNode:
		return fmt.Sprintf("extension %d: %s,", p.Arg, ours())
	case Extended:
		return fmt.Sprintf("counts a majority: extended by round %d", p.Arg)
	case SendHeal:
		return fmt.Sprintf("sends a heal of round %d,", p.Arg)
	case HealNode:
		return "heal, SET NX: " + ours() + ","
	case SetAgain:
		return "the acquire's SET NX is executed again,"
	case ZAddAgain:
		return "the acquire's ZADD is executed again and moves the register,"
	case Pass:
		return fmt.Sprintf("the validity of round %d expires", p.Arg)
	case End:
		return "the claim ends (released, lost or past Until)"
	case Remove:
		return fmt.Sprintf("the key of %s is removed (expiry, release or rollback)", name(int(before.node[p.Node].val)-1))
	case Restore:
		return "the failed adoption is undone"
	case DeleteBlind:
		return fmt.Sprintf("a late release deletes the key of %s", name(int(before.node[p.Node].val)-1))
	case Crash:
		return "memory lost"
	case Return:
		return "back in service"
	case GoIll:
		return "somebody writes a huge register"
	case ReadOthers:
		return fmt.Sprintf("an operator reads %d as the greatest register elsewhere, to mend the one", after.node[p.Node].mend-1)
	case Mend:
		return fmt.Sprintf("register mended to %d", after.node[p.Node].reg)
	}
	return fmt.Sprintf("step %d", p.Kind)
}
