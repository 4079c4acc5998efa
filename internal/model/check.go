package model

import "fmt"

// This file contains the properties. They can break only when a client counts a majority,
// so they are checked there and nowhere else.

// returnedBefore returns, as bits, the attempts whose tokens an attempt that begins now must exceed.
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

// asked returns, as bits, the attempts for whose tokens F2 is required, as far as the registers
// decide that. The rules that track single nodes do so for the first attempt's token only.
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

// excuse drops from F2 the tokens for which it is no longer required: this is the condition of I2.
func (w *World) excuse(t *state) {
	asked := w.asked(t)
	for i := range t.attempt {
		t.attempt[i].before &= asked
	}
}

// agreed reports whether i and o are the giver and the taker of an adoption. Exclusion between
// them rests on their agreement.
func (w *World) agreed(i, o int) bool { return w.Roles[i].Adopts == o+1 || w.Roles[o].Adopts == i+1 }

// active reports whether an attempt is within its claim. Without clocks no attempt is.
func (w *World) active(a *attempt) bool { return w.Clocks && a.phase == holding && a.past <= a.claim }

// returns is called when attempt i returns a lock with the token tok; 0: without one. It returns the property
// that this breaks, if any. on reports the nodes that were counted for the token.
func (w *World) returns(t *state, i int, tok uint8, on func(j int) bool) string {
	a := &t.attempt[i]
	var broken string
	breaks := func(c Check, format string, args ...any) {
		if broken == "" && w.Checks&c != 0 {
			broken = fmt.Sprintf(format, args...)
		}
	}
	if a.past > 0 {
		breaks(V, "V: %s returns a lock whose validity has expired", name(i))
	}
	for o := range t.attempt {
		b := &t.attempt[o]
		if o == i || !b.returned() {
			continue
		}
		fences := tok != 0 && b.tok != 0 // only these are compared
		if fences && b.tok == tok {
			breaks(F1, "F1: %s and %s have the token %d", name(o), name(i), tok)
		}
		if fences && a.before>>o&1 != 0 && tok <= b.tok {
			breaks(F2, "F2: %s began after %s had returned with %d, and has %d", name(i), name(o), b.tok, tok)
		}
		if w.agreed(i, o) && w.Roles[i].Adopts == 0 {
			continue
		}
		if w.active(b) && !w.agreed(i, o) {
			breaks(I1, "I1: %s and %s both hold the lock", name(o), name(i))
		}
		if fences && w.Clocks && b.phase == ended && tok <= b.tok {
			breaks(F3, "F3: %s holds the lock after %s, whose token %d is not below its %d", name(i), name(o), b.tok, tok)
		}
	}
	a.tok, a.phase = tok, holding
	if !w.Clocks && w.Roles[i].Extends == 0 {
		a.phase = ended // without clocks only the token of a claim matters
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

// extended is called when attempt i counts a majority for its extension. It returns the property
// that this breaks, if any.
func (w *World) extended(t *state, i int) (broken string) {
	a := &t.attempt[i]
	a.claim = a.round
	if a.overtaken && w.Checks&H != 0 {
		broken = fmt.Sprintf("H: %s continues to hold a lock that another attempt has acquired in between", name(i))
	}
	for o := range t.attempt {
		if b := &t.attempt[o]; o != i && w.Checks&I1 != 0 && w.active(a) && w.active(b) {
			broken = fmt.Sprintf("I1: %s and %s both hold the lock", name(o), name(i))
		}
	}
	return broken
}
