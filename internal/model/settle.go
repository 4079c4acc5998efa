package model

// settle erases information that can make no difference any more, so that states that differ only in
// that become equal. Each line says why it makes no difference; none removes a possible step.
func (w *World) settle(s *state) {
	for i := range w.Roles {
		a := &s.attempt[i]
		if a.phase == idle {
			continue
		}
		dead := !a.live()
		if dead { // the times of its claim no longer matter
			a.claim, a.past, a.overtaken = 0, 0, false
			for j := range s.node {
				s.node[j].floor[i] = 0
			}
		}
		if a.phase != acquiring && a.phase != raising {
			a.before = 0 // used only when a lock is returned
		}
		for j := range nodes {
			w.settleOn(s, i, j)
		}
		if !dead {
			continue
		}
		over := func(r int) bool { return s.count(func(j int) bool { return a.ext[r][j] == extSettled }) == nodes }
		if a.round > 0 && over(0) && (a.round == 1 || over(1)) {
			a.round, a.ext = 0, [maxRounds][nodes]uint8{}
		}
		if w.Truth {
			continue // there, numbers stand for the time
		}
		for k := range a.t {
			if s.count(func(j int) bool { return a.raise[k][j] != notDone }) == nodes {
				a.t[k], a.raise[k] = 0, [nodes]uint8{} // only the commands used the number
			}
		}
		if !w.Again && s.count(func(j int) bool { return a.acq[j] >= answerNo }) == nodes {
			a.p = 0 // likewise
		}
	}
	for j := range s.node {
		n := &s.node[j]
		if n.val == 0 {
			n.era, n.under = 0, 0
			continue
		}
		owner := int(n.val) - 1
		if !s.attempt[owner].live() {
			n.era = 0 // the key may be removed at any moment
		}
		if g := w.Roles[owner].Adopts; g == 0 || !s.attempt[g-1].live() {
			n.under = 0
		}
	}
}

// settleOn does the same for the commands of attempt i to node j.
func (w *World) settleOn(s *state, i, j int) {
	a := &s.attempt[i]
	if a.phase != acquiring { // the replies to the acquire are no longer counted
		switch acq := &a.acq[j]; {
		case *acq > answerNo:
			*acq = answerNo
		case *acq == setYes:
			*acq = setNo
		}
	}
	owns := w.mayOwn(s, i, j)
	for k, tok := range a.t {
		raise := &a.raise[k][j]
		switch {
		case tok == 0:
		case a.phase != raising || k == 0 && a.t[1] != 0:
			if *raise != notDone || !owns && w.Broken != RaiseAnywhere {
				*raise = raiseUncounted
			}
		case *raise == notDone && !owns && w.Broken != RaiseAnywhere:
			*raise = raiseUncounted // will find another attempt's value, or none
		}
	}
	for r := range a.round {
		ext := &a.ext[r][j]
		counting := a.phase == holding && r+1 == a.round
		decided := counting && a.claim == a.round
		switch *ext {
		case notDone:
			if !counting && !owns && w.Broken != BlindExtend {
				*ext = extSettled // will not find our value, and the reply is not counted
			}
		case extYes, extNo, extHealed:
			if !counting || decided || *ext == extHealed && w.Broken != HealCountsAtOnce {
				*ext = extSettled
			}
		case extMissing:
			if !counting {
				*ext = extSettled // too late to heal
			}
		}
	}
}

// mayOwn reports whether node j stores the value of attempt i, or may do so later.
func (w *World) mayOwn(s *state, i, j int) bool {
	a, n := &s.attempt[i], &s.node[j]
	if n.val == uint8(i+1) || a.acq[j] == notDone || w.Again {
		return true
	}
	if w.Roles[i].Extends > 0 && (a.live() || a.ext[0][j] == extHealSent || a.ext[1][j] == extHealSent) {
		return true // healed
	}
	return n.val != 0 && w.Roles[n.val-1].Adopts == i+1 // restored
}
