package lane

import (
	"github.com/seed-ce352c9b/redlock/internal/wire"
)

// This file is the order of calls: when a call begins, what it takes over from the calls
// before it, and what happens when it is finished. The functions need ln.mu. They take
// the list of calls that have been finished under this lock so far and return it with
// more calls appended; whoever took the lock casts their votes after unlocking (deliver).

// start begins a call, or makes it wait for the calls before it that are not finished.
func (ln *Lane) start(c *Call, after []*Call) []*Call {
	for _, a := range after {
		switch {
		case a == nil:
		case a.phase == finished:
			c.inherit(a)
		default:
			c.waitFor(a)
		}
	}
	if c.unfinishedBefore > 0 {
		return nil
	}
	return ln.begin(c, nil)
}

// begin starts a call that waits for no other: it queues the call, or finishes it at once
// if sending it would be useless or wrong.
func (ln *Lane) begin(c *Call, ready []*Call) []*Call {
	prior := c.predecessor
	c.predecessor = nil // otherwise each call would keep all those before it in memory
	switch {
	case c.Question.Kind.Cleans():
		// There is nothing to undo on a node to which nothing was sent. A release is sent
		// nevertheless, because it also announces that the lock is free.
		if !c.hasWork() && c.Question.Kind != wire.AskRelease {
			return ln.finish(c, wire.Reply{Answer: wire.No, Err: wire.ErrNotAsked}, ready)
		}
		// If the command that it undoes has had no answer, the clean-up could overtake that
		// command on another connection, so it waits until the node answers a PING. If a
		// restore of the value is owed, the restore would put back what the clean-up removes.
		if c.mayBeOvertaken || ln.owed.restoreOwed(c.Question.Value) {
			return ln.finish(c, wire.Reply{Answer: wire.Unknown, Err: wire.ErrOwed}, ready)
		}
	case c.Voter != nil && c.superseded() && c.Voter.IsOver():
		// No vote is counted any more, and the next question already waits behind this
		// one. If calls come faster than the node answers, only the latest is sent.
		return ln.finish(c, wire.Reply{Answer: wire.Unknown, Err: wire.ErrNotAsked}, ready)
	case c.Question.Kind == wire.AskAdopt && ln.owed.releaseOwed(c.Question.Back):
		return ln.finish(c, wire.Reply{Answer: wire.No, Missing: true, Err: wire.ErrMissing}, ready)
	case c.Question.Kind == wire.AskRaise && prior != nil && prior.Reply.Answer != wire.Yes:
		return ln.finish(c, prior.Reply, ready) // the key does not hold our value: nothing to raise
	}
	return ln.submit(c, ready)
}

// submit queues a call, or finishes it at once with an error if the lane is closed, the
// node is down or the queue is full. The call's time begins here.
func (ln *Lane) submit(c *Call, ready []*Call) []*Call {
	switch {
	case ln.closed:
		return ln.finish(c, wire.Reply{Answer: wire.Unknown, Err: wire.ErrLaneDone}, ready)
	case ln.down != nil:
		return ln.finish(c, wire.Reply{Answer: wire.Unknown, Err: ln.down}, ready)
	case len(ln.queue) >= MaxQueue:
		return ln.finish(c, wire.Reply{Answer: wire.Unknown, Err: wire.ErrBusy}, ready)
	}
	c.phase = queued
	c.plainSet = ln.plainSet && c.Question.Kind == wire.AskAcquire && c.Question.Script == nil
	now := ln.now()
	c.deadline = now.Add(c.Question.Patience.With(ln.rtt))
	ln.armTimer(now, c.deadline)
	ln.queue = append(ln.queue, c)
	ln.startSending()
	return ready
}

// finish makes rep the final reply of a call, works out what the call may have left on
// the node, makes a clean-up owed if it may have had no effect, and begins the calls that
// waited for this one.
//
// A finished call can finish its followers at once, and they theirs. toBegin turns that
// recursion into a loop: only the outermost finish works through it.
func (ln *Lane) finish(c *Call, rep wire.Reply, ready []*Call) []*Call {
	c.phase = finished
	c.Reply = rep
	if c.Voter != nil {
		c.Took = ln.now().Sub(c.Voter.Began())
	}
	c.Residue = c.Residue.Settle(c.Question, &c.Reply)
	if c.Question.Kind.Cleans() && c.hasWork() && ln.duplicate == nil {
		switch {
		case c.owed: // an earlier release of the same value made it owed
		case rep.Answer == wire.Unknown:
			ln.owe(c, 0)
		case c.Residue.Has(Late): // answered, but the command that it undoes may still arrive
			ln.owe(c, lookAgain)
		}
	}
	ready = append(ready, c)
	for _, n := range c.followers {
		n.inherit(c)
		if n.unfinishedBefore--; n.unfinishedBefore == 0 {
			ln.toBegin = append(ln.toBegin, n)
		}
	}
	c.followers, c.inlineFollower[0] = nil, nil
	if ln.beginning {
		return ready // the outermost finish goes on: a long chain must not become a deep stack
	}
	ln.beginning = true
	for i := 0; i < len(ln.toBegin); i++ { // begin may append to it
		ready = ln.begin(ln.toBegin[i], ready)
	}
	clear(ln.toBegin)
	ln.toBegin, ln.beginning = ln.toBegin[:0], false
	return ready
}
