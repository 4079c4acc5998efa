package model

// This file contains the possible steps: the commands on the nodes and the decisions of the clients.
// A command is on its way from when it is sent until it is executed, which may be never (it is lost)
// or after everything else (it is late); commands overtake each other. A reply may be counted at any
// time after the execution. So a client's decision is possible as soon as enough has been executed,
// and is never forced: a lost reply, a slow one and one that is not waited for look the same.

// A brancher emits the successors of one state.
type brancher struct {
	w    *World
	s    *state
	emit func(Step, *state, string)
}

// next calls emit for every step that is possible in s, with the state after it and the property that
// it breaks, if any.
func (w *World) next(s *state, emit func(Step, *state, string)) {
	b := &brancher{w, s, emit}
	for i := range w.Roles {
		b.client(i)
		for j := range nodes {
			if !s.node[j].out {
				b.commands(i, j)
			}
		}
	}
	for j := range nodes {
		b.nodeEvents(j)
	}
}

// do emits the state that results when f is applied to s.
func (b *brancher) do(step Step, f func(*state) string) {
	t := *b.s
	broken := f(&t)
	if !b.w.raw {
		b.w.settle(&t)
	}
	b.emit(step, &t, broken)
}

// act emits a step of the client of attempt i.
func (b *brancher) act(i int, k Kind, arg uint8, f func(*state, *attempt) string) {
	b.do(Step{k, int8(i), -1, arg}, func(t *state) string { return f(t, &t.attempt[i]) })
}

// client emits the decisions that the client of attempt i may make.
func (b *brancher) client(i int) {
	switch b.s.attempt[i].phase {
	case idle:
		b.begin(i)
	case acquiring:
		b.countAcquire(i)
		b.giveUp(i)
	case raising:
		b.countRaise(i)
		b.giveUp(i)
	case holding:
		b.holder(i)
	}
}

// begin emits the beginnings of attempt i, one for each proposal.
func (b *brancher) begin(i int) {
	w := b.w
	if !w.mayBegin(b.s, i) {
		return
	}
	lo, hi := uint8(1), w.Fences
	switch {
	case w.Roles[i].Bare && w.Broken != Unregistered:
		lo, hi = 0, 0
	case w.Truth:
		lo = b.s.top() + 1
		hi = lo
	}
	for p := lo; p <= min(hi, maxFence); p++ {
		b.act(i, Begin, p, func(t *state, a *attempt) string {
			a.phase, a.p, a.before = acquiring, p, w.returnedBefore(t)
			return ""
		})
	}
}

// countAcquire emits what a client may conclude from the replies to its acquire.
func (b *brancher) countAcquire(i int) {
	w, a := b.w, &b.s.attempt[i]
	fenced := func(j int) bool { return a.acq[j] == answerFenced }
	ours := func(j int) bool { return a.acq[j] == answerFenced || a.acq[j] == answerYes }
	moved := func(j int) bool { return a.acq[j] == answerFenced || a.acq[j] == answerNoMoved }
	yes := b.s.count(ours) >= w.quorum()
	if w.Roles[i].Bare {
		if yes {
			b.act(i, Fenced, 0, func(t *state, a *attempt) string { return w.returns(t, i, a.p, ours) })
		}
		return
	}
	if b.s.count(fenced) >= w.quorum() || w.Broken == NoRaise && yes || w.Broken == CountApart && yes && b.s.count(moved) >= w.quorum() {
		b.act(i, Fenced, 0, func(t *state, a *attempt) string { return w.returns(t, i, a.p, fenced) })
	}
	if yes && w.Roles[i].Raises > 0 {
		b.sendRaise(i, 0, a.p)
	}
}

// countRaise emits what a client may conclude from the replies to its last raise.
func (b *brancher) countRaise(i int) {
	w, a := b.w, &b.s.attempt[i]
	k := 0
	if a.t[1] != 0 {
		k = 1
	}
	counted := func(j int) bool { return a.raise[k][j] == raiseCounted }
	if b.s.count(counted) >= w.quorum() {
		b.act(i, Raised, 0, func(t *state, a *attempt) string { return w.returns(t, i, a.t[k], counted) })
	}
	if k == 0 && w.Roles[i].Raises > 1 {
		b.sendRaise(i, 1, a.t[0])
	}
}

// giveUp emits that a client gives up before it has a lock. Only worlds with clocks have this step.
func (b *brancher) giveUp(i int) {
	w, a := b.w, &b.s.attempt[i]
	if !w.Clocks {
		return
	}
	b.act(i, GiveUp, 0, func(_ *state, a *attempt) string { a.phase = failed; return "" })
	if a.phase == raising && w.Broken == NoMeasure && a.past == 0 {
		b.act(i, Pass, 0, func(_ *state, a *attempt) string { a.past++; return "" })
	}
}

// sendRaise emits the raises. The token may be any number above the client's proposals so far. A real
// client also knows the registers from the replies, but replies may be arbitrarily stale.
func (b *brancher) sendRaise(i, k int, above uint8) {
	hi := b.w.Fences
	if b.w.Truth {
		hi = min(b.s.top()+1, maxFence)
	}
	for tok := above + 1; tok <= hi; tok++ {
		b.do(Step{SendRaise, int8(i), -1, tok}, func(t *state) string {
			a := &t.attempt[i]
			a.phase, a.t[k] = raising, tok
			return ""
		})
	}
}

// holder emits the decisions of a client that holds a lock.
func (b *brancher) holder(i int) {
	w, a := b.w, &b.s.attempt[i]
	if a.round < w.Roles[i].Extends {
		b.act(i, SendExtend, a.round+1, func(_ *state, a *attempt) string { a.round++; return "" })
	}
	if a.round > a.claim {
		r := a.round - 1
		yes := b.s.count(func(j int) bool {
			return a.ext[r][j] == extYes || a.ext[r][j] == extHealed && w.Broken == HealCountsAtOnce
		})
		if yes >= w.quorum() {
			b.act(i, Extended, a.round, func(t *state, a *attempt) string { return w.extended(t, i) })
		}
	}
	// Once the round has its majority, and before the next round begins.
	if a.round > 0 && (a.round == a.claim || w.Broken == HealAlone || w.Broken == HealCountsAtOnce) {
		for j := range nodes {
			if a.ext[a.round-1][j] == extMissing {
				b.do(Step{SendHeal, int8(i), int8(j), a.round}, func(t *state) string {
					t.attempt[i].ext[a.round-1][j] = extHealSent
					return ""
				})
			}
		}
	}
	if w.Clocks {
		if a.past < a.claim || w.Broken == LateExtension && a.past <= a.round {
			b.act(i, Pass, a.past, func(_ *state, a *attempt) string { a.past++; return "" })
		}
		b.act(i, End, 0, func(_ *state, a *attempt) string { a.phase = ended; return "" })
	}
}

// commands emits the commands of attempt i that node j may execute.
func (b *brancher) commands(i, j int) {
	w, a := b.w, &b.s.attempt[i]
	if a.phase == idle {
		return
	}
	act := func(k Kind, arg uint8, f func(*node, *attempt)) {
		b.do(Step{k, int8(i), int8(j), arg}, func(t *state) string { f(&t.node[j], &t.attempt[i]); return "" })
	}
	mine := uint8(i + 1)
	switch {
	case a.acq[j] == notDone && w.Roles[i].Adopts != 0:
		act(AdoptNode, 0, func(n *node, a *attempt) { w.adoptOn(n, a, i, j) })
	case a.acq[j] == notDone:
		act(SetNX, 0, func(n *node, a *attempt) {
			a.acq[j] = setNo
			if n.val == 0 {
				n.val, n.era, a.acq[j] = mine, 0, setYes
			}
			if w.Roles[i].Bare { // no ZADD follows
				a.acq[j] = map[uint8]uint8{setNo: answerNo, setYes: answerYes}[a.acq[j]]
			}
		})
	case a.acq[j] == setNo || a.acq[j] == setYes:
		act(ZAdd, 0, func(n *node, a *attempt) {
			moved := w.move(n, a.p)
			switch {
			case a.acq[j] == setNo && moved && w.Broken == CountApart:
				a.acq[j] = answerNoMoved
			case a.acq[j] == setNo:
				a.acq[j] = answerNo
			case moved:
				a.acq[j] = answerFenced
			default:
				a.acq[j] = answerYes
			}
		})
	}
	if w.Again && a.acq[j] >= answerNo && w.Roles[i].Adopts == 0 {
		// The client has its reply and reads no other.
		if b.s.node[j].val == 0 {
			act(SetAgain, 0, func(n *node, _ *attempt) { n.val, n.era = mine, 0 })
		}
		if b.s.node[j].reg < a.p {
			act(ZAddAgain, 0, func(n *node, a *attempt) { w.move(n, a.p) })
		}
	}
	for k, tok := range a.t {
		if tok != 0 && a.raise[k][j] == notDone {
			act(RaiseNode, uint8(k), func(n *node, a *attempt) {
				a.raise[k][j] = raiseUncounted
				if (n.val == mine || w.Broken == RaiseAnywhere) && w.move(n, tok) {
					a.raise[k][j] = raiseCounted
				}
			})
		}
	}
	for r := uint8(1); r <= a.round; r++ {
		switch a.ext[r-1][j] {
		case notDone:
			act(ExtendNode, r, func(n *node, a *attempt) { w.extendOn(n, a, mine, r, j) })
		case extHealSent:
			act(HealNode, r, func(n *node, a *attempt) {
				a.ext[r-1][j] = extSettled
				if n.val == 0 {
					n.val, n.era, a.ext[r-1][j] = mine, r, extHealed
				}
			})
		}
	}
	if w.Broken == BlindRelease && !a.live() && b.s.node[j].val != 0 {
		act(DeleteBlind, 0, func(n *node, _ *attempt) { n.val = 0 })
	}
}

// nodeEvents emits what may happen to node j without a client, or by a clean-up. A clean-up stays
// pending until it is done, may be executed twice, and checks the owner. In other words, the key of a
// dead attempt may be removed at any moment, as if it expired.
func (b *brancher) nodeEvents(j int) {
	w, n := b.w, &b.s.node[j]
	act := func(k Kind, f func(*node)) {
		b.do(Step{k, -1, int8(j), 0}, func(t *state) string { f(&t.node[j]); return "" })
	}
	if n.out {
		if w.mayReturn(b.s, j) {
			act(Return, func(n *node) { n.out, n.floor = false, [maxAttempts]uint8{} })
		}
		return
	}
	if n.val != 0 {
		if w.mayRemove(b.s, j) {
			act(Remove, func(n *node) {
				n.val = 0
				if w.Broken == RegisterDies {
					n.reg = 0
				}
			})
		}
		o := int(n.val) - 1
		if giver := w.Roles[o].Adopts; giver != 0 && b.s.attempt[o].phase == failed && w.Broken != AdoptDeletes {
			act(Restore, func(n *node) { n.val, n.era, n.under = uint8(giver), n.under, 0 })
		}
	}
	if w.Ill {
		switch {
		case n.health == well && b.s.count(func(j int) bool { return b.s.node[j].health != well }) == 0:
			act(GoIll, func(n *node) { n.reg, n.health = maxFence, ill })
		case n.health == ill && n.mend == 0 && w.mayReadOthers(b.s, j):
			act(ReadOthers, func(n *node) { n.mend = w.readOthers(b.s, j) + 1 })
		case n.health == ill && n.mend > 0:
			act(Mend, func(n *node) { n.reg, n.mend, n.health = n.mend-1, 0, mended })
		}
	}
	if w.mayCrash(b.s, j) {
		b.do(Step{Crash, -1, int8(j), 0}, func(t *state) string { w.crash(t, j); return "" })
	}
}
