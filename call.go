package redlock

import (
	"sync"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/lane"
	"github.com/seed-ce352c9b/redlock/internal/wire"
)

// A quorum call is one question put to all nodes at once, and the count of their
// votes. It has no goroutine of its own: the lanes cast the votes as the answers
// come in, and whoever casts the deciding one carries on from there.
type quorumCall struct {
	l     *Locker
	op    Op
	name  *wire.LockKey
	q     wire.Question
	start instant
	calls []lane.Call // one per node, in New's order

	// decided says from the tally whether the votes to come still matter. Pure.
	decided func(tally) bool

	// gone says how a vote counts that comes now and says that the value is not there;
	// nil: as missing, or as a no.
	countMissing func(missing bool) wire.Answer

	lastForLock bool        // the last question about a lock: registers without a life count as held
	cleanup     bool        // what comes next for the key waits for it: the Locker remembers it until it is done
	previous    *quorumCall // the clean-up of the key that it goes after; nil: none, or it was sent

	mu        sync.Mutex
	tally     tally
	permanent int   // of the unknown votes: errors that time does not heal
	score     int64 // the highest register met
	over      bool  // decided, or abandoned
	took      time.Duration
	open      int                // calls not finished, heals included
	done      chan struct{}      // closed when decided
	then      func()             // called when decided, in the deciding vote's goroutine
	late      func(c *lane.Call) // called for each vote after that
	lock      *Lock              // whose last quorum call this is
}

func (l *Locker) newQuorumCall(op Op, name *wire.LockKey, q wire.Question, start instant, decided func(tally) bool) *quorumCall {
	b := &quorumCall{l: l, op: op, name: name, q: q, start: start, decided: decided, open: len(l.lanes), done: make(chan struct{})}
	b.tally.n = len(l.lanes)
	b.calls = make([]lane.Call, len(l.lanes))
	for i := range b.calls {
		c := &b.calls[i]
		c.Voter, c.Question, c.Index, c.Lane = b, &b.q, i, l.lanes[i]
	}
	return b
}

// send puts the question to all nodes; to each after its last calls of the quorum calls
// before, if there are any. No lock may be held that a vote takes.
func (b *quorumCall) send(before ...*quorumCall) {
	before = b.takePrevious(before)
	lane.Each(0, len(b.calls), func(i int) { b.sendOne(i, before) })
}

// takePrevious adds the clean-up that b goes after, and lets go of it: quorum calls that keep
// those before them would keep them all.
func (b *quorumCall) takePrevious(before []*quorumCall) []*quorumCall {
	if b.previous != nil {
		before = append(before, b.previous)
		b.previous = nil
	}
	return before
}

func (b *quorumCall) sendOne(i int, before []*quorumCall) {
	var room [4]*lane.Call
	b.calls[i].Lane.Ask(&b.calls[i], lastCalls(room[:0], i, before)...)
}

// lastCalls adds the calls that the next one to node i has to wait for.
func lastCalls(calls []*lane.Call, i int, before []*quorumCall) []*lane.Call {
	for _, p := range before {
		calls = append(calls, p.lastCall(i))
	}
	return calls
}

// sendAgain is send, except that what nodes answered in an earlier quorum call stands.
func (b *quorumCall) sendAgain(earlier *quorumCall, before ...*quorumCall) {
	before = b.takePrevious(before)
	lane.Each(0, len(b.calls), func(i int) {
		if earlier != nil {
			if rep, gone, ok := earlier.answered(i); ok {
				b.calls[i].CountedAs = gone
				b.calls[i].Lane.FinishKnown(&b.calls[i], rep)
				return
			}
			b.calls[i].Lane.InheritOwed(&b.calls[i], &earlier.calls[i])
		}
		b.sendOne(i, before)
	})
}

// sendBoth is send, with another quorum call's question right behind.
func (b *quorumCall) sendBoth(next *quorumCall, before ...*quorumCall) {
	before = b.takePrevious(before)
	lane.Each(0, len(b.calls), func(i int) {
		var room [4]*lane.Call
		b.calls[i].Lane.AskBoth(&b.calls[i], &next.calls[i], lastCalls(room[:0], i, before)...)
	})
}

// answered is what node i said and what it counted as if the value was not there; ok is
// false if it said nothing.
func (b *quorumCall) answered(i int) (rep wire.Reply, gone wire.Answer, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := &b.calls[i]
	return c.Reply, c.CountedAs, c.Voted && c.Reply.Answer != wire.Unknown
}

// mayHeal: a majority said ours in this quorum call, and the call's node said missing.
func (b *quorumCall) mayHeal(c *lane.Call) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return c.Voted && c.Reply.Missing && b.tally.extension() == extended
}

// lastCall is the call that the next one to node i has to wait for.
func (b *quorumCall) lastCall(i int) *lane.Call {
	if b == nil {
		return nil
	}
	if f := b.calls[i].Follow.Load(); f != nil {
		return f
	}
	return &b.calls[i]
}

// Vote counts a finished call. Lanes call it once per call, with no lock held.
func (b *quorumCall) Vote(c *lane.Call) {
	if c.Question.Kind == wire.AskHeal {
		b.callDone()
		return
	}
	b.mu.Lock()
	c.Voted = true
	switch r := &c.Reply; {
	case r.Answer == wire.No && b.countMissing != nil:
		b.countNotOurs(c)
	case r.Answer == wire.Yes:
		b.tally.yes++
		if r.Fenced {
			b.tally.fenced++
		}
	case r.Answer == wire.No && r.Missing:
		b.tally.missing++
	case r.Answer == wire.No:
		b.tally.no++
	default:
		b.tally.unknown++
		if r.Err != nil && !r.Err.Transient {
			b.permanent++
		}
	}
	b.score = max(b.score, c.Reply.Score)
	then, late := b.then, b.late
	switch {
	case b.over:
		then = nil
	case b.decided(b.tally):
		b.conclude()
		late = nil
	default:
		then, late = nil, nil
	}
	b.mu.Unlock()
	defer b.callDone() // also if the user's Observe panics
	if then != nil {
		then()
	}
	if late != nil {
		late(c)
	}
}

// countNotOurs counts a vote that says that the value is not there as what that meant when
// it came: one that an earlier quorum call got keeps its meaning. Needs b.mu.
func (b *quorumCall) countNotOurs(c *lane.Call) {
	if c.CountedAs == wire.Pending {
		c.CountedAs = b.countMissing(c.Reply.Missing)
	}
	switch c.CountedAs {
	case wire.Yes:
		b.tally.yes++
	case wire.No:
		b.tally.no++
	default:
		b.tally.unknown++
	}
}

// unclear counts the nodes that have not answered, and those whose answer came too late
// to tell anything.
func (b *quorumCall) unclear() (silent, late int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.calls {
		switch c := &b.calls[i]; {
		case !c.Voted || c.Reply.Answer == wire.Unknown:
			silent++
		case c.CountedAs == wire.Unknown:
			late++
		}
	}
	return silent, late
}

// callDone notes that a call is finished and what follows from its vote was done.
func (b *quorumCall) callDone() {
	b.mu.Lock()
	b.open--
	empty, lock := b.open == 0, b.lock
	b.mu.Unlock()
	if !empty {
		return
	}
	if b.cleanup {
		b.l.cleanedUp(b)
	}
	if lock != nil {
		lock.forget(b)
	}
}

// bind makes b the last quorum call of the lock; false: nothing of b is under way.
func (b *quorumCall) bind(k *Lock) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open == 0 {
		return false
	}
	b.lock = k
	return true
}

// heal puts the value back on the node that said it is missing, as a call that
// the node's next one waits for; nil: that is done already. The caller sends it.
func (b *quorumCall) heal(c *lane.Call) *lane.Call {
	q := wire.HealQuestion(b.name, b.q.Value, b.q.TTL)
	q.Patience = b.q.Patience
	h := &lane.Call{Lane: c.Lane, Voter: b, Question: &q, Index: c.Index}
	if !c.Follow.CompareAndSwap(nil, h) {
		return nil
	}
	b.mu.Lock()
	b.open++
	b.mu.Unlock()
	return h
}

// conclude ends the count. Needs b.mu.
func (b *quorumCall) conclude() {
	b.over = true
	b.took = time.Since(b.start.at)
	close(b.done)
}

// abandon ends the count undecided; false: it had been decided before.
func (b *quorumCall) abandon() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over {
		return false
	}
	b.conclude()
	return true
}

// result is the count, how many of the unknown votes time does not heal, and the
// highest register met.
func (b *quorumCall) result() (t tally, hard int, score int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.tally, b.permanent, b.score
}

// IsOver reports that the count has ended.
func (b *quorumCall) IsOver() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.over
}

// Began is when the quorum call began: before its first question was sent.
func (b *quorumCall) Began() time.Time { return b.start.at }

// IsFinal reports that it is the last question about a lock.
func (b *quorumCall) IsFinal() bool { return b.lastForLock }

// finished reports that no call is under way any more.
func (b *quorumCall) finished() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.open == 0
}

// mayHold is which nodes may hold our value, and where a command that puts it there
// may yet be executed, by the calls finished so far; as bits in New's order.
func (b *quorumCall) mayHold() (holds, doubt uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.calls {
		c := &b.calls[i]
		if !c.Voted {
			continue
		}
		if f := c.Follow.Load(); f != nil {
			holds |= 1 << i // whatever became of the heal
			if b.open == 0 && f.MayArriveLate {
				doubt |= 1 << i
			}
		}
		if c.MayHold {
			holds |= 1 << i
		}
		if c.MayArriveLate {
			doubt |= 1 << i
		}
	}
	return holds, doubt
}

// mayHaveExecuted is which nodes the question may have got to, as bits.
func (b *quorumCall) mayHaveExecuted() (nodes uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.calls {
		if c := &b.calls[i]; !c.Voted || c.Reply.Sent {
			nodes |= 1 << i
		}
	}
	return nodes
}

// raisedRegisters is on which nodes a finished call says that the register may have been
// raised for our value, as bits.
func (b *quorumCall) raisedRegisters() (nodes uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.calls {
		if c := &b.calls[i]; c.Voted && c.Raised {
			nodes |= 1 << i
		}
	}
	return nodes
}

// round is the report of the quorum call as it stands.
func (b *quorumCall) round() Round {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := Round{Op: b.op, Key: b.name.Key, Need: b.tally.need(), Start: b.start.at, Took: b.took, Votes: make([]Vote, len(b.calls))}
	for i := range b.calls {
		c := &b.calls[i]
		v := &r.Votes[i]
		v.Node = c.Lane.Name
		if !c.Voted {
			continue
		}
		v.Answer, v.Holder, v.Took = Answer(c.Reply.Answer), c.Reply.Holder, c.Took
		if c.Reply.Err != nil {
			v.Err = c.Reply.Err
		}
	}
	return r
}
