package redlock

// check has the first grant of a batch compare the node's mark, or each.
func (f *flight) check(direct bool) {
	checked := false
	for _, c := range f.calls {
		if !c.q.guarded() {
			continue
		}
		c.check = !checked || !direct
		checked = true
	}
}

// doubt takes back grants that were made on a mark that nothing has compared: the first
// of the batch was not executed, and things changed until the next.
func (f *flight) doubt() {
	compared := false
	for i, c := range f.calls {
		switch rep := &f.lands[i].rep; {
		case !c.q.guarded():
		case c.check || c.evaled:
			compared = compared || rep.answer != saidUnknown || rep.err.beyondTheMark()
		case rep.answer == saidYes && !compared:
			*rep = reply{answer: saidUnknown, sent: true, stored: true, err: errUnchecked}
		}
	}
}

var errUnchecked = newNodeError("restart guard: not compared", nil)
