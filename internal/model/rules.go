package model

// This file is what the commands do to a node, and what time and loss may do.

// move is ZADD GT CH: the register only grows, and the answer is whether it moved.
func (w *World) move(n *node, to uint8) (moved bool) {
	was := n.reg
	switch w.Broken {
	case RegisterShrinks:
		n.reg = to
		return was != to
	case EqualCounts:
		n.reg = max(was, to)
		return was <= to
	}
	n.reg = max(was, to)
	return was < to
}

// adoptOn is lua/adopt.lua: in one step, where the giver's value is stored. The key
// keeps the ttl that it has or gets a longer one; under remembers the one it has.
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

// mayBegin: attempts of one role begin in order, for they are alike. An adopter
// needs a value, which the holder tells, or Inspect.
func (w *World) mayBegin(s *state, i int) bool {
	if g := w.Roles[i].Adopts; g != 0 {
		giver := &s.attempt[g-1]
		if giver.phase != holding && (!w.Early || !giver.live()) {
			return false
		}
	}
	return i == 0 || w.Roles[i] != w.Roles[i-1] || s.attempt[i-1].phase != idle
}

// top is the greatest number so far.
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

// expired: the ttl that the given round of attempt i gave a key may be over. Under
// timing not before that round's validity is (docs/design/algorithm.md, Why I1 holds). What
// an attempt that is over left has no promise to keep.
func (s *state) expired(i int, era uint8) bool {
	a := &s.attempt[i]
	return !a.live() || a.past > era
}

// mayGo: the key on node j may expire, be released or be rolled back.
func (w *World) mayGo(s *state, j int) bool {
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

// crash loses value and register. What is on its way stays on its way.
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

// mayReturn: away for the longest ttl means until the validity of every round that
// was begun before the loss is over.
func (w *World) mayReturn(s *state, j int) bool {
	for i, began := range s.node[j].floor {
		if a := &s.attempt[i]; a.live() && a.past < began {
			return false
		}
	}
	return true
}
