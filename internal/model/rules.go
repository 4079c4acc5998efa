package model

// This file contains the effect of the commands on a node, and what time and data loss may do.

// move is ZADD GT CH: the register never decreases, and the reply says whether it moved.
func (w *World) move(n *node, to uint8) (moved bool) {
	was := n.reg
	switch w.Broken {
	case RegisterShrinks:
		n.reg = to
		return was != to
	case EqualCounts:
		n.reg = max(was, to)
		return was <= to
	case IllCounts:
		if n.health == ill {
			return true
		}
	}
	n.reg = max(was, to)
	return was < to
}

// adoptOn is lua/adopt.lua: in one step, on a node that stores the giver's value. The key
// keeps its ttl or gets a longer one; under records the era of the ttl that it had.
func (w *World) adoptOn(n *node, a *attempt, i, j int) {
	a.acq[j] = answerNo
	if n.val != uint8(w.Roles[i].Adopts) && (w.Broken != BlindAdopt || n.val == 0) {
		return
	}
	a.acq[j] = answerYes
	if w.move(n, a.p) {
		a.acq[j] = answerFenced
	}
	n.val, n.era, n.under = uint8(i+1), 0, n.era
}

// extendOn is lua/extend.lua.
func (w *World) extendOn(n *node, a *attempt, mine, r uint8, j int) {
	switch {
	case n.val == mine:
		a.ext[r-1][j] = extYes
		n.era = max(n.era, r)
		if w.Broken == ShorterTTL {
			n.era = r
		}
		n.carries = n.carries || mine == 1 && w.Asks == AskCarriers
		if w.Broken != ExtendKeepsFence {
			n.reg = max(n.reg, a.tok)
		}
	case n.val == 0:
		a.ext[r-1][j] = extMissing
	case w.Broken == BlindExtend:
		a.ext[r-1][j] = extYes
	default:
		a.ext[r-1][j] = extNo
	}
}

// mayBegin reports whether attempt i may begin. Attempts of the same role begin in order, because
// they are interchangeable. An adopter needs a value, from the holder or from Inspect.
func (w *World) mayBegin(s *state, i int) bool {
	if g := w.Roles[i].Adopts; g != 0 {
		giver := &s.attempt[g-1]
		if giver.phase != holding && (!w.Early || !giver.live()) {
			return false
		}
	}
	return i == 0 || w.Roles[i] != w.Roles[i-1] || s.attempt[i-1].phase != idle
}

// top returns the greatest number so far.
func (s *state) top() (top uint8) {
	for j := range s.node {
		top = max(top, s.node[j].reg)
	}
	for i := range s.attempt {
		a := &s.attempt[i]
		top = max(top, a.p, a.t[0], a.t[1], a.tok)
	}
	return top
}

// expired reports whether the ttl that the given round of attempt i gave to a key may have expired.
// With clocks, it does not expire before the validity of that round (docs/design/algorithm.md, Why I1
// holds). An attempt that has ended needs its keys no longer.
func (s *state) expired(i int, era uint8) bool {
	a := &s.attempt[i]
	return !a.live() || a.past > era
}

// mayRemove reports whether the key on node j may expire, be released or be rolled back.
func (w *World) mayRemove(s *state, j int) bool {
	n := &s.node[j]
	i := int(n.val) - 1
	giver := w.Roles[i].Adopts
	switch {
	case !w.Clocks || s.attempt[i].phase == ended:
		return true
	case giver == 0 || s.attempt[i].phase == failed && w.Broken == AdoptDeletes:
		return s.expired(i, n.era)
	}
	return s.expired(i, n.era) && s.expired(giver-1, n.under)
}

// mayCrash reports whether node j may lose its memory now.
func (w *World) mayCrash(s *state, j int) bool {
	if s.node[j].crashed || s.count(func(j int) bool { return s.node[j].crashed }) >= w.Crashes {
		return false
	}
	others := func(f func(n *node) bool) int {
		return s.count(func(i int) bool { return i != j && f(&s.node[i]) })
	}
	switch w.Crash {
	case CrashEarly, CrashHeld:
		a := &s.attempt[0]
		under := s.count(func(j int) bool { return a.acq[j] == notDone })
		return a.phase == holding && a.round == 0 && s.node[j].val == 1 && (under == 0 || w.Crash == CrashHeld)
	case CrashMajorityStays:
		for i := range s.attempt {
			a, mine := &s.attempt[i], uint8(i+1)
			stays := others(func(n *node) bool { return n.val == mine && n.era >= a.claim }) >= w.quorum()
			switch {
			case !a.live():
			case a.phase == holding && a.round > a.claim && a.ext[a.round-1][j] == extYes:
				return false
			case s.node[j].val == mine && (a.phase != holding || !stays):
				return false
			}
		}
	}
	return true
}

// mayReadOthers reports whether the registers of the nodes other than j may be read to mend that of
// j: once every attempt that moved it before it fell ill has been decided, which is at most a ttl later.
func (w *World) mayReadOthers(s *state, j int) bool {
	for i := range s.attempt {
		a := &s.attempt[i]
		moved := a.acq[j] == answerFenced || a.raise[0][j] == raiseCounted || a.raise[1][j] == raiseCounted
		if moved && (a.phase == acquiring || a.phase == raising) {
			return w.Broken == MendAtOnce
		}
	}
	return true
}

// readOthers returns the greatest register of the nodes other than j. Two of three are a majority.
func (w *World) readOthers(s *state, j int) (greatest uint8) {
	least := uint8(maxFence)
	for i := range s.node {
		if i != j {
			greatest, least = max(greatest, s.node[i].reg), min(least, s.node[i].reg)
		}
	}
	if w.Broken == MendByFew {
		return least
	}
	return greatest
}

// crash loses value and register. Commands on their way stay on their way.
func (w *World) crash(t *state, j int) {
	t.node[j] = node{crashed: true, out: w.Away}
	if w.Away {
		for i := range t.attempt {
			if a := &t.attempt[i]; a.live() {
				t.node[j].floor[i] = a.round + 1
			}
		}
	}
	w.excuse(t)
}

// mayReturn reports whether node j may come back. To stay away for the longest ttl means to stay
// away until the validity of every round that began before the loss has expired.
func (w *World) mayReturn(s *state, j int) bool {
	for i, began := range s.node[j].floor {
		if a := &s.attempt[i]; a.live() && a.past < began {
			return false
		}
	}
	return true
}
