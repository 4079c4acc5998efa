package model

import "fmt"

// This file is what is promised. All of it can only break when a client counts a
// majority, so it is looked at there and nowhere else.

// returnedBefore is whose tokens an attempt that begins now must surpass.
func (w *World) returnedBefore(t *state) (before uint8) {
	first := t.attempt[0].tok
	for j := range t.node {
		n := &t.node[j]
		n.stood = w.Asks == AskSameMajority && first != 0 && n.reg >= first || w.Asks == AskCarriers && n.carries
	}
	for i := range t.attempt {
		if t.attempt[i].returned() {
			before |= 1 << i
		}
	}
	return before & w.asked(t)
}

// asked is whose tokens F2 is asked of, as bits, as far as the registers go. The
// rules that follow single nodes do so for the first attempt's token only.
func (w *World) asked(t *state) (asked uint8) {
	for i := range t.attempt {
		holds := true
		switch tok := t.attempt[i].tok; w.Asks {
		case AskAnyMajority:
			holds = t.count(func(j int) bool { return t.node[j].reg >= tok }) >= w.quorum()
		case AskSameMajority, AskCarriers:
			holds = i == 0 && t.count(func(j int) bool { return t.node[j].stood }) >= w.quorum()
		}
		if holds {
			asked |= 1 << i
		}
	}
	return asked
}

// excuse drops from F2 what is not asked any more: the condition of I2.
func (w *World) excuse(t *state) {
	asked := w.asked(t)
	for i := range t.attempt {
		t.attempt[i].before &= asked
	}
}

// agreed: between giver and taker of an adoption, exclusion is an agreement.
func (w *World) agreed(i, o int) bool { return w.Roles[i].Adopts == o+1 || w.Roles[o].Adopts == i+1 }

// active: within its claim. Without clocks nobody can say.
func (w *World) active(a *attempt) bool { return w.Clocks && a.phase == holding && a.past <= a.claim }

// returns is the moment in which attempt i is returned a lock with the token, and
// what that breaks. on: the nodes that were counted for the token.
func (w *World) returns(t *state, i int, tok uint8, on func(j int) bool) string {
	a := &t.attempt[i]
	var broken string
	breaks := func(c Check, format string, args ...any) {
		if broken == "" && w.Checks&c != 0 {
			broken = fmt.Sprintf(format, args...)
		}
	}
	if a.past > 0 {
		breaks(V, "V: %s is returned a lock whose validity is over", name(i))
	}
	for o := range t.attempt {
		b := &t.attempt[o]
		if o == i || !b.returned() {
			continue
		}
		if b.tok == tok {
			breaks(F1, "F1: %s and %s have the token %d", name(o), name(i), tok)
		}
		if a.before>>o&1 != 0 && tok <= b.tok {
			breaks(F2, "F2: %s began after %s had returned with %d, and has %d", name(i), name(o), b.tok, tok)
		}
		if w.agreed(i, o) && w.Roles[i].Adopts == 0 {
			continue
		}
		if w.active(b) && !w.agreed(i, o) {
			breaks(I1, "I1: %s and %s both hold the lock", name(o), name(i))
		}
		if w.Clocks && b.phase == ended && tok <= b.tok {
			breaks(F3, "F3: %s holds the lock after %s, whose token %d is not below its %d", name(i), name(o), b.tok, tok)
		}
	}
	a.tok, a.phase = tok, holding
	if !w.Clocks && w.Roles[i].Extends == 0 {
		a.phase = ended // without clocks all that counts of a claim is its token
	}
	if i == 0 && w.Asks == AskCarriers {
		for j := range t.node {
			t.node[j].carries = on(j) && !t.node[j].crashed
		}
	}
	for o := range t.attempt {
		b := &t.attempt[o]
		if o == i || b.phase != holding {
			continue
		}
		if w.Roles[i].Adopts == o+1 {
			b.phase = ended // by agreement
			continue
		}
		b.overtaken = w.Checks&H != 0
	}
	return broken
}

// extended is the moment in which attempt i counts a majority for its extension.
func (w *World) extended(t *state, i int) (broken string) {
	a := &t.attempt[i]
	a.claim = a.round
	if a.overtaken && w.Checks&H != 0 {
		broken = fmt.Sprintf("H: %s goes on holding a lock that another was returned in between", name(i))
	}
	for o := range t.attempt {
		if b := &t.attempt[o]; o != i && w.Checks&I1 != 0 && w.active(a) && w.active(b) {
			broken = fmt.Sprintf("I1: %s and %s both hold the lock", name(o), name(i))
		}
	}
	return broken
}
