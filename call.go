package redlock

import (
	"sync"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/clock"
	"github.com/seed-ce352c9b/redlock/internal/lane"
	"github.com/seed-ce352c9b/redlock/internal/wire"
)

// A quorumCall is one question to all nodes at once, and the count of their votes. It has
// no goroutine of its own: the lanes cast the votes as the replies come in, and the
// goroutine of the deciding vote runs what follows from it.
type quorumCall struct {
	// The question, and what follows from votes. Set before it is sent and constant from then
	// on; send alone resets previous. There is exactly one call per node.
	l     *Locker
	op    Op
	name  *wire.LockKey
	q     wire.Question
	start clock.Instant
	calls []lane.Call // one per node, in New's order

	// decided reports whether the tally decides the question. It is a pure function.
	decided func(tally) bool

	// countAs returns how to count a vote that comes now and says that the node does
	// not store the value. If it is nil, the vote counts as missing or as no.
	countAs func(missing bool) wire.Answer

	lastForLock bool        // the last question about a lock: a node whose register may have been raised counts as one that may hold the value
	cleanup     bool        // later questions for the key follow it; the Locker remembers it until it is finished
	previous    *quorumCall // the clean-up of the key that it follows, or what queued the entry that it removes; nil if there is none, or once it is sent

	then func()             // called once, by the deciding vote, with no lock held
	late func(c *lane.Call) // called for each later vote

	// The count. Guarded by mu. tally counts each call once, and the other two what it does.
	mu        sync.Mutex
	tally     tally
	notified  int   // nodes that notified a waiter of the release
	permanent int   // unknown votes with errors that do not heal with time
	score     int64 // the highest fence register seen

	// The end of the count. Guarded by mu. over is set once, when decided(tally) first holds
	// or the caller gives up; took does not change after that, and later votes are late.
	over bool
	took time.Duration
	done chan struct{} // closed when over is set

	// The end of the calls. Guarded by mu. open only falls to 0 once, since a heal begins
	// while the call that it follows is open; then the lock and the Locker forget b.
	open int   // unfinished calls, heals included
	lock *Lock // whose last quorum call this is
}

// newQuorumCall makes a quorum call that is not sent yet. The nodes have the patience for
// the question's ttl; a question without one gets its Patience from the caller.
func (l *Locker) newQuorumCall(op Op, name *wire.LockKey, q wire.Question, start clock.Instant, decided func(tally) bool) *quorumCall {
	b := &quorumCall{l: l, op: op, name: name, q: q, start: start, decided: decided, open: len(l.lanes), done: make(chan struct{})}
	b.q.Patience = l.patience(q.TTL)
	b.tally.n = len(l.lanes)
	b.calls = make([]lane.Call, len(l.lanes))
	for i := range b.calls {
		c := &b.calls[i]
		c.Voter, c.Question, c.Index, c.Lane = b, &b.q, i, l.lanes[i]
	}
	return b
}

// ask makes q the question of a quorum call that is not sent yet.
func (b *quorumCall) ask(q wire.Question) {
	q.Patience = b.q.Patience
	b.q = q
}

// send sends the question to all nodes. On each node it follows the last calls of the
// quorum calls before, if there are any. The caller must hold no lock that a vote takes.
func (b *quorumCall) send(before ...*quorumCall) { b.sendRelease(nil, nil, before...) }

// sendRelease is like send, but nodes that answered the earlier quorum call, if there is
// one, are not asked again. The question of next, if there is one, goes right behind on
// each node.
func (b *quorumCall) sendRelease(earlier, next *quorumCall, before ...*quorumCall) {
	previous := b.previous
	b.previous = nil // a chain of quorum calls that keep the previous one would never be freed
	lane.Each(0, len(b.calls), func(i int) {
		c := &b.calls[i]
		if earlier != nil {
			if rep, gone, ok := earlier.answered(i); ok {
				c.CountedAs = gone
				c.Lane.FinishKnown(c, rep)
				return
			}
			c.Lane.InheritOwed(c, &earlier.calls[i])
		}
		var room [4]*lane.Call
		after := append(room[:0], previous.LastCall(i))
		for _, p := range before {
			after = append(after, p.LastCall(i))
		}
		if next != nil {
			c.Lane.AskBoth(c, &next.calls[i], after...)
		} else {
			c.Lane.Ask(c, after...)
		}
	})
}

// answered returns the reply of node i and, if the node did not store the value, what that
// counted as. ok is false if the node has not replied.
func (b *quorumCall) answered(i int) (rep wire.Reply, gone wire.Answer, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := &b.calls[i]
	return c.Reply, c.CountedAs, c.Voted && c.Reply.Answer != wire.Unknown
}

// mayHeal reports whether a majority stores our value and the call's node stores none.
func (b *quorumCall) mayHeal(c *lane.Call) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return c.Voted && c.Reply.Missing && b.tally.ownership() == stillOurs
}

// LastCall returns the call that the next call to node i has to follow.
func (b *quorumCall) LastCall(i int) *lane.Call {
	if b == nil {
		return nil
	}
	if f := b.calls[i].Follow.Load(); f != nil {
		return f
	}
	return &b.calls[i]
}

// Vote counts a finished call. Lanes call it once per call and hold no lock.
func (b *quorumCall) Vote(c *lane.Call) {
	if c.Question.Kind == wire.AskHeal {
		b.healed(c)
		return
	}
	b.mu.Lock()
	c.Voted = true
	switch r := &c.Reply; {
	case r.Answer == wire.No && b.countAs != nil:
		b.countNotOurs(c)
	case r.Answer == wire.Yes:
		b.tally.yes++
		if r.Fenced {
			b.tally.fenced++
		}
		if r.Told {
			b.notified++
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
	defer b.callDone() // also if the user's Trace panics
	if then != nil {
		then()
	}
	if late != nil {
		late(c)
	}
}

// countNotOurs counts a vote of a node that does not store our value as countAs says.
// A vote that an earlier quorum call counted keeps its meaning. Needs b.mu.
func (b *quorumCall) countNotOurs(c *lane.Call) {
	if c.CountedAs == wire.Pending {
		c.CountedAs = b.countAs(c.Reply.Missing)
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

// unclear counts the nodes that have not replied, and those whose reply came too late to
// say whether the lock was released in time.
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

// healed reports a finished heal.
func (b *quorumCall) healed(c *lane.Call) {
	b.mu.Lock()
	k := b.lock
	b.mu.Unlock()
	defer b.callDone()
	if k != nil && c.Reply.Answer == wire.Yes {
		b.l.event(Event{Kind: EventHealed, Lock: k, Node: c.Lane.Name})
	}
}

// callDone records that a call is finished, including what follows from its vote.
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

// bind makes b the last quorum call of the lock. It returns false if b is finished.
func (b *quorumCall) bind(k *Lock) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open == 0 {
		return false
	}
	b.lock = k
	return true
}

// heal returns a call that stores the value again on the node of c; the node's next call
// follows it. It returns nil if there is one already. The caller sends the call.
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
	b.took = time.Since(b.start.At)
	close(b.done)
}

// abandon ends the count undecided. It returns false if the count has already ended.
func (b *quorumCall) abandon() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over {
		return false
	}
	b.conclude()
	return true
}

// result returns the count, the number of unknown votes with errors that do not heal with
// time, and the highest fence register seen.
func (b *quorumCall) result() (t tally, hard int, score int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.tally, b.permanent, b.score
}

// byAll reports whether every node has said yes.
func (b *quorumCall) byAll() bool {
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.tally.yes == b.tally.n
}

// told returns how many nodes notified a waiter of the release, and how long the round took.
func (b *quorumCall) told() (nodes int, took time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.notified, b.took
}

// IsOver reports whether the count has ended.
func (b *quorumCall) IsOver() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.over
}

// Began returns the time just before the question was sent.
func (b *quorumCall) Began() time.Time { return b.start.At }

// IsFinal reports whether this is the last question about a lock.
func (b *quorumCall) IsFinal() bool { return b.lastForLock }

// Finished reports whether all calls are finished.
func (b *quorumCall) Finished() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.open == 0
}

// left returns what the calls finished so far, and those before them about the same value,
// may have left on the nodes.
func (b *quorumCall) left() (left lane.Residues) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.calls {
		c := &b.calls[i]
		if !c.Voted {
			continue
		}
		left.Add(1<<i, c.Residue)
		if heal := c.Follow.Load(); heal != nil {
			left.Add(1<<i, lane.Holds) // whatever its result
			if b.open == 0 {
				left.Add(1<<i, heal.Residue)
			}
		}
	}
	return left
}

// inherit makes the calls follow what lies on the nodes already. It is called before send.
func (b *quorumCall) inherit(left *lane.Residues) {
	for i := range b.calls {
		b.calls[i].Residue = left.On(i)
	}
}

// mayHaveExecuted returns the nodes that the question may have reached.
func (b *quorumCall) mayHaveExecuted() (nodes lane.Nodes) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.calls {
		if c := &b.calls[i]; !c.Voted || c.Reply.Sent {
			nodes |= 1 << i
		}
	}
	return nodes
}

// round returns the Round with the votes so far.
func (b *quorumCall) round() Round {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := Round{Op: b.op, Key: b.name.Key, Need: b.tally.need(), Start: b.start.At, Took: b.took, Votes: make([]Vote, len(b.calls))}
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

// saidYes returns the nodes that have said yes to an extension in progress. Where another
// question is the last one, or none, these are all.
func (b *quorumCall) saidYes() (nodes lane.Nodes) {
	if b == nil || b.op != OpExtend {
		return ^lane.Nodes(0)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.calls {
		if c := &b.calls[i]; c.Voted && c.Reply.Answer == wire.Yes {
			nodes |= 1 << i
		}
	}
	return nodes
}

// confirmed returns the nodes that have raised the register in a finished extension, and
// those that did not confirm it.
func (b *quorumCall) confirmed() (raised, doubt lane.Nodes) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.calls {
		switch c := &b.calls[i]; {
		case c.Reply.Answer != wire.Yes:
			doubt |= 1 << i
		case !c.RegisterRaised:
			raised |= 1 << i
		}
	}
	return raised, doubt
}
