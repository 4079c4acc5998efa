// Package quorum asks all nodes one question, counts their votes, and keeps clean-ups in order.
//
// A Call has one lane.Call per node. The layer above says by a pure function of the Tally when
// the question is decided, and what follows; it knows when a lock is valid and which token it
// has. Cleanups keep rollbacks, releases and restores in order: on each node they come before
// the key's next attempt.
package quorum

import (
	"sync"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/clock"
	"github.com/seed-ce352c9b/redlock/internal/lane"
	"github.com/seed-ce352c9b/redlock/internal/wire"
)

// A Call is one question to all nodes at once, and the count of their votes. It has
// no goroutine of its own: the lanes cast the votes as the replies come in, and the
// goroutine of the deciding vote runs what follows from it.
type Call struct {
	// The question, and what follows from votes. Set before it is sent and constant from then
	// on; Send alone resets previous. There is exactly one call per node.
	Op       uint8 // what the question is for, as the layer above numbers it
	Name     *wire.LockKey
	Question wire.Question
	Start    clock.Instant
	Calls    []lane.Call // one per node, in New's order

	// decided reports whether the Tally decides the question. It is a pure function.
	decided func(Tally) bool

	// CountAs returns how to count a vote that comes now and says that the node does
	// not store the value. If it is nil, the vote counts as missing or as no.
	CountAs func(missing bool) wire.Answer

	LastForLock bool      // the last question about a lock: a node whose register may have been raised counts as one that may hold the value
	cleanups    *Cleanups // remember the call until it is finished, and later questions for the key follow it; nil if it is no clean-up
	previous    *Call     // the clean-up of the key that it follows, or what queued the entry that it removes; nil if there is none, or once it is sent

	Looked func(i int)        // called with each node that has deleted the lock, and looked at its register; nil: nobody wants to know
	Then   func()             // called once, by the deciding vote, with no mutex held
	Late   func(c *lane.Call) // called for each later vote

	// The count. Guarded by mu. tally counts each call once; the others sum up the same votes.
	mu        sync.Mutex
	tally     Tally
	notified  int // nodes that notified a waiter of the release
	permanent int // unknown votes with errors that do not heal with time
	scores    scores

	// The end of the count. Guarded by mu. over is set once, when decided(tally) first holds
	// or the caller gives up; took does not change after that, and later votes are late.
	over bool
	took time.Duration
	done chan struct{} // closed when over is set

	// The end of the calls. Guarded by mu. open only falls to 0 once, since a heal begins
	// while the call that it follows is open; then the lock and the clean-ups forget b.
	open  int   // unfinished calls, heals included
	owner Owner // whose last quorum call this is
}

// An Owner is a lock, which is told what becomes of its last Call. No mutex is held then.
type Owner interface {
	Forget(b *Call)      // all calls of b are finished
	Healed(c *lane.Call) // the value is stored again on the node of c
}

// New makes a quorum call that is not sent yet. op is for the layer above alone.
func New(lanes []*lane.Lane, op uint8, name *wire.LockKey, q wire.Question, start clock.Instant, decided func(Tally) bool) *Call {
	b := &Call{Op: op, Name: name, Question: q, Start: start, decided: decided, open: len(lanes), done: make(chan struct{})}
	b.tally.N = len(lanes)
	b.Calls = make([]lane.Call, len(lanes))
	for i := range b.Calls {
		c := &b.Calls[i]
		c.Voter, c.Question, c.Index, c.Lane = b, &b.Question, i, lanes[i]
	}
	return b
}

// SetQuestion makes q the question of a quorum call that is not sent yet.
func (b *Call) SetQuestion(q wire.Question) {
	q.Patience = b.Question.Patience
	b.Question = q
}

// Follow has the call go to each node after prev, which may be nil. It is called before Send.
func (b *Call) Follow(prev *Call) { b.previous = prev }

// Send sends the question to all nodes. On each node it follows the last calls of the
// quorum calls that are passed. The caller must hold no mutex that a vote takes.
func (b *Call) Send(before ...*Call) { b.SendRelease(nil, nil, before...) }

// SendRelease is like Send, but nodes that answered the earlier quorum call, if there is
// one, are not asked again. If next is not nil, its question follows directly behind on each
// node. At most one of earlier and next is not nil.
func (b *Call) SendRelease(earlier, next *Call, before ...*Call) {
	previous := b.previous
	b.previous = nil // a chain of quorum calls that keep the previous one would never be freed
	lane.Each(0, len(b.Calls), func(i int) {
		c := &b.Calls[i]
		if earlier != nil {
			c.Lane.InheritOwed(c, &earlier.Calls[i]) // also if it has answered: it may look again for a late acquire
			if rep, gone, ok := earlier.Answered(i); ok {
				c.CountedAs, c.RegisterKnown = gone, true // it looks at no register
				c.Lane.FinishKnown(c, rep)
				return
			}
		}
		var room [4]*lane.Call
		after := append(room[:0], previous.LastCall(i))
		for _, p := range before {
			after = append(after, p.LastCall(i))
		}
		if next != nil {
			c.Lane.AskBoth(c, &next.Calls[i], after...)
		} else {
			c.Lane.Ask(c, after...)
		}
	})
}

// Answered returns the reply of node i and, if the node did not store the value, what that
// counted as. ok is false if the node has not replied.
func (b *Call) Answered(i int) (rep wire.Reply, gone wire.Answer, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := &b.Calls[i]
	return c.Reply, c.CountedAs, c.Voted && c.Reply.Answer != wire.Unknown
}

// MayHeal reports whether a majority stores our value and the call's node stores none.
func (b *Call) MayHeal(c *lane.Call) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return c.Voted && c.Reply.Missing && b.tally.Yes >= b.tally.Need()
}

// LastCall returns the call that the next call to node i has to follow.
func (b *Call) LastCall(i int) *lane.Call {
	if b == nil {
		return nil
	}
	if f := b.Calls[i].Healing.Load(); f != nil {
		return f
	}
	return &b.Calls[i]
}

// Vote counts a finished call. Lanes call it once per call and hold no lock.
func (b *Call) Vote(c *lane.Call) {
	if c.Question.Kind == wire.AskHeal {
		b.healed(c)
		return
	}
	b.mu.Lock()
	c.Voted = true
	switch r := &c.Reply; {
	case r.Answer == wire.No && b.CountAs != nil:
		b.countNotOurs(c)
	case r.Answer == wire.Yes:
		b.tally.Yes++
		if r.Fenced {
			b.tally.Fenced++
		}
		if r.Told {
			b.notified++
		}
	case r.Answer == wire.No && r.Missing:
		b.tally.Missing++
	case r.Answer == wire.No:
		b.tally.No++
	default:
		b.tally.Unknown++
		if r.Err != nil && !r.Err.Transient {
			b.permanent++
		}
	}
	b.scores.add(c.Reply.Score)
	then, late := b.Then, b.Late
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
	if r := &c.Reply; b.Looked != nil && !c.RegisterKnown && r.Sent && r.Answer == wire.Yes {
		b.Looked(c.Index)
	}
	defer b.callDone() // also if the user's Trace panics
	if then != nil {
		then()
	}
	if late != nil {
		late(c)
	}
}

// countNotOurs counts a vote of a node that does not store our value as CountAs says.
// A vote that an earlier quorum call counted keeps its meaning. Needs b.mu.
func (b *Call) countNotOurs(c *lane.Call) {
	if c.CountedAs == wire.Pending {
		c.CountedAs = b.CountAs(c.Reply.Missing)
	}
	switch c.CountedAs {
	case wire.Yes:
		b.tally.Yes++
	case wire.No:
		b.tally.No++
	default:
		b.tally.Unknown++
	}
}

// Unclear counts the nodes that have not replied, and those whose reply came too late to
// say whether the lock was released in time.
func (b *Call) Unclear() (silent, late int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.Calls {
		switch c := &b.Calls[i]; {
		case !c.Voted || c.Reply.Answer == wire.Unknown:
			silent++
		case c.CountedAs == wire.Unknown:
			late++
		}
	}
	return silent, late
}

// healed reports a finished heal.
func (b *Call) healed(c *lane.Call) {
	b.mu.Lock()
	k := b.owner
	b.mu.Unlock()
	defer b.callDone()
	if k != nil && c.Reply.Answer == wire.Yes {
		k.Healed(c)
	}
}

// callDone records that a call is finished, including what follows from its vote.
func (b *Call) callDone() {
	b.mu.Lock()
	b.open--
	empty, lock := b.open == 0, b.owner
	b.mu.Unlock()
	if !empty {
		return
	}
	if b.cleanups != nil {
		b.cleanups.finish(b)
	}
	if lock != nil {
		lock.Forget(b)
	}
}

// Bind makes b the last quorum call of the lock. It returns false if b is finished.
func (b *Call) Bind(k Owner) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open == 0 {
		return false
	}
	b.owner = k
	return true
}

// Heal returns a call that stores the value again on the node of c; the node's next call
// follows it. It returns nil if there is one already. The caller sends the call.
func (b *Call) Heal(c *lane.Call) *lane.Call {
	q := wire.HealQuestion(b.Name, b.Question.Value, b.Question.TTL)
	q.Patience = b.Question.Patience
	h := &lane.Call{Lane: c.Lane, Voter: b, Question: &q, Index: c.Index}
	if !c.Healing.CompareAndSwap(nil, h) {
		return nil
	}
	b.mu.Lock()
	b.open++
	b.mu.Unlock()
	return h
}

// conclude ends the count. Needs b.mu.
func (b *Call) conclude() {
	b.over = true
	b.took = time.Since(b.Start.At)
	close(b.done)
}

// Abandon ends the count undecided. It returns false if the count has already ended.
func (b *Call) Abandon() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over {
		return false
	}
	b.conclude()
	return true
}

// Result returns the count, the number of unknown votes with errors that do not heal with
// time, and the highest fence register seen that is believed.
func (b *Call) Result() (t Tally, hard int, score int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.tally, b.permanent, b.scores.highest(b.tally)
}

// ByAll reports whether every node has said yes.
func (b *Call) ByAll() bool {
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.tally.Yes == b.tally.N
}

// Told returns how many nodes notified a waiter of the release, and how long the round took.
func (b *Call) Told() (nodes int, took time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.notified, b.took
}

// Done returns a channel that is closed when the count ends.
func (b *Call) Done() <-chan struct{} { return b.done }

// IsOver reports whether the count has ended.
func (b *Call) IsOver() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.over
}

// Began returns the time at which the call was made, before anything was sent.
func (b *Call) Began() time.Time { return b.Start.At }

// IsFinal reports whether this is the last question about a lock.
func (b *Call) IsFinal() bool { return b.LastForLock }

// Finished reports whether all calls are finished.
func (b *Call) Finished() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.open == 0
}

// Left returns what the calls finished so far, and those before them about the same value,
// may have left on the nodes.
func (b *Call) Left() (left lane.Residues) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.Calls {
		c := &b.Calls[i]
		if !c.Voted {
			continue
		}
		left.Add(1<<i, c.Residue)
		if heal := c.Healing.Load(); heal != nil {
			left.Add(1<<i, lane.Holds) // whatever its result
			if b.open == 0 {
				left.Add(1<<i, heal.Residue)
			}
		}
	}
	return left
}

// Inherit tells the calls what earlier ones may have left on their nodes. It is called before
// Send.
func (b *Call) Inherit(left *lane.Residues) {
	for i := range b.Calls {
		b.Calls[i].Residue = left.On(i)
	}
}

// MayHaveExecuted returns the nodes that may have executed the question.
func (b *Call) MayHaveExecuted() (nodes lane.Nodes) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.Calls {
		if c := &b.Calls[i]; !c.Voted || c.Reply.Sent && !c.Reply.Refused {
			nodes |= 1 << i
		}
	}
	return nodes
}

// MayHaveRaised returns the nodes whose register an attempt may have raised.
func (b *Call) MayHaveRaised() lane.Nodes {
	if b.Question.Token == 0 {
		return 0
	}
	return b.MayHaveExecuted()
}

// MayHaveMajority reports whether a majority of the nodes may store the value of an attempt: those
// that said so, whose reply was lost, and that have not replied yet.
func (b *Call) MayHaveMajority() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for i := range b.Calls {
		if c := &b.Calls[i]; !c.Voted || c.Reply.Stored {
			n++
		}
	}
	return n >= b.tally.Need()
}

// SaidYes returns the nodes that have said yes to an extension in progress. If b is nil, or no
// extension, it returns all nodes.
func (b *Call) SaidYes() (nodes lane.Nodes) {
	if b == nil || b.Question.Kind != wire.AskExtend {
		return ^lane.Nodes(0)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.Calls {
		if c := &b.Calls[i]; c.Voted && c.Reply.Answer == wire.Yes {
			nodes |= 1 << i
		}
	}
	return nodes
}

// Confirmed returns the nodes that have raised the register in a finished extension, and
// those that did not confirm it.
func (b *Call) Confirmed() (raised, doubt lane.Nodes) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.Calls {
		switch c := &b.Calls[i]; {
		case c.Reply.Answer != wire.Yes:
			doubt |= 1 << i
		case !c.RegisterKnown:
			raised |= 1 << i
		}
	}
	return raised, doubt
}

// Read calls f with the calls and their count so far, and how long the count took if it has
// ended. f must not call b.
func (b *Call) Read(f func(calls []lane.Call, t Tally, took time.Duration)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f(b.Calls, b.tally, b.took)
}
