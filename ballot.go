package redlock

import (
	"sync"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/lane"
	"github.com/seed-ce352c9b/redlock/internal/wire"
)

// A ballot is one question put to all nodes at once, and the count of their
// votes. It has no goroutine of its own: the lanes cast the votes as the answers
// come in, and whoever casts the deciding one carries on from there.
type ballot struct {
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
	gone func(missing bool) wire.Answer

	final  bool    // the last question about a lock: registers without a life count as held
	cleans bool    // what comes next for the key waits for it: the Locker remembers it until it is done
	behind *ballot // the clean-up of the key that it goes after; nil: none, or it was sent

	mu    sync.Mutex
	t     tally
	hard  int   // of the unknown votes: errors that time does not heal
	score int64 // the highest register met
	over  bool  // decided, or abandoned
	took  time.Duration
	open  int                // calls not finished, heals included
	done  chan struct{}      // closed when decided
	then  func()             // called when decided, in the deciding vote's goroutine
	late  func(c *lane.Call) // called for each vote after that
	lock  *Lock              // whose last ballot this is
}

func (l *Locker) newBallot(op Op, name *wire.LockKey, q wire.Question, start instant, decided func(tally) bool) *ballot {
	b := &ballot{l: l, op: op, name: name, q: q, start: start, decided: decided, open: len(l.lanes), done: make(chan struct{})}
	b.t.n = len(l.lanes)
	b.calls = make([]lane.Call, len(l.lanes))
	for i := range b.calls {
		c := &b.calls[i]
		c.B, c.Q, c.I, c.Ln = b, &b.q, i, l.lanes[i]
	}
	return b
}

// send puts the question to all nodes; to each after its last calls of the ballots
// before, if there are any. No lock may be held that a vote takes.
func (b *ballot) send(before ...*ballot) {
	before = b.after(before)
	lane.Each(0, len(b.calls), func(i int) { b.sendOne(i, before) })
}

// after adds the clean-up that b goes after, and lets go of it: ballots that keep
// those before them would keep them all.
func (b *ballot) after(before []*ballot) []*ballot {
	if b.behind != nil {
		before = append(before, b.behind)
		b.behind = nil
	}
	return before
}

func (b *ballot) sendOne(i int, before []*ballot) {
	var room [4]*lane.Call
	b.calls[i].Ln.Ask(&b.calls[i], lastCalls(room[:0], i, before)...)
}

// lastCalls adds the calls that the next one to node i has to wait for.
func lastCalls(calls []*lane.Call, i int, before []*ballot) []*lane.Call {
	for _, p := range before {
		calls = append(calls, p.lastCall(i))
	}
	return calls
}

// sendAgain is send, except that what nodes answered in an earlier ballot stands.
func (b *ballot) sendAgain(earlier *ballot, before ...*ballot) {
	before = b.after(before)
	lane.Each(0, len(b.calls), func(i int) {
		if earlier != nil {
			if rep, gone, ok := earlier.answered(i); ok {
				b.calls[i].Gone = gone
				b.calls[i].Ln.Settled(&b.calls[i], rep)
				return
			}
			b.calls[i].Ln.OwedSince(&b.calls[i], &earlier.calls[i])
		}
		b.sendOne(i, before)
	})
}

// sendBoth is send, with another ballot's question right behind.
func (b *ballot) sendBoth(next *ballot, before ...*ballot) {
	before = b.after(before)
	lane.Each(0, len(b.calls), func(i int) {
		var room [4]*lane.Call
		b.calls[i].Ln.AskBoth(&b.calls[i], &next.calls[i], lastCalls(room[:0], i, before)...)
	})
}

// answered is what node i said and what it counted as if the value was not there; ok is
// false if it said nothing.
func (b *ballot) answered(i int) (rep wire.Reply, gone wire.Answer, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := &b.calls[i]
	return c.Rep, c.Gone, c.Voted && c.Rep.Answer != wire.Unknown
}

// mayHeal: a majority said ours in this ballot, and the call's node said missing.
func (b *ballot) mayHeal(c *lane.Call) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return c.Voted && c.Rep.Missing && b.t.extension() == extended
}

// lastCall is the call that the next one to node i has to wait for.
func (b *ballot) lastCall(i int) *lane.Call {
	if b == nil {
		return nil
	}
	if f := b.calls[i].Follow.Load(); f != nil {
		return f
	}
	return &b.calls[i]
}

// Vote counts a finished call. Lanes call it once per call, with no lock held.
func (b *ballot) Vote(c *lane.Call) {
	if c.Q.Kind == wire.AskHeal {
		b.leave()
		return
	}
	b.mu.Lock()
	c.Voted = true
	switch r := &c.Rep; {
	case r.Answer == wire.No && b.gone != nil:
		b.countGone(c)
	case r.Answer == wire.Yes:
		b.t.yes++
		if r.Fenced {
			b.t.fenced++
		}
	case r.Answer == wire.No && r.Missing:
		b.t.missing++
	case r.Answer == wire.No:
		b.t.no++
	default:
		b.t.unknown++
		if r.Err != nil && !r.Err.Heals {
			b.hard++
		}
	}
	b.score = max(b.score, c.Rep.Score)
	then, late := b.then, b.late
	switch {
	case b.over:
		then = nil
	case b.decided(b.t):
		b.conclude()
		late = nil
	default:
		then, late = nil, nil
	}
	b.mu.Unlock()
	defer b.leave() // also if the user's Observe panics
	if then != nil {
		then()
	}
	if late != nil {
		late(c)
	}
}

// countGone counts a vote that says that the value is not there as what that meant when
// it came: one that an earlier ballot got keeps its meaning. Needs b.mu.
func (b *ballot) countGone(c *lane.Call) {
	if c.Gone == wire.Pending {
		c.Gone = b.gone(c.Rep.Missing)
	}
	switch c.Gone {
	case wire.Yes:
		b.t.yes++
	case wire.No:
		b.t.no++
	default:
		b.t.unknown++
	}
}

// unclear counts the nodes that have not answered, and those whose answer came too late
// to tell anything.
func (b *ballot) unclear() (silent, late int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.calls {
		switch c := &b.calls[i]; {
		case !c.Voted || c.Rep.Answer == wire.Unknown:
			silent++
		case c.Gone == wire.Unknown:
			late++
		}
	}
	return silent, late
}

// leave notes that a call is finished and what follows from its vote was done.
func (b *ballot) leave() {
	b.mu.Lock()
	b.open--
	empty, lock := b.open == 0, b.lock
	b.mu.Unlock()
	if !empty {
		return
	}
	if b.cleans {
		b.l.left(b)
	}
	if lock != nil {
		lock.forget(b)
	}
}

// bind makes b the last ballot of the lock; false: nothing of b is under way.
func (b *ballot) bind(k *Lock) bool {
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
func (b *ballot) heal(c *lane.Call) *lane.Call {
	q := wire.HealQuestion(b.name, b.q.Value, b.q.Ttl)
	q.Patience = b.q.Patience
	h := &lane.Call{Ln: c.Ln, B: b, Q: &q, I: c.I}
	if !c.Follow.CompareAndSwap(nil, h) {
		return nil
	}
	b.mu.Lock()
	b.open++
	b.mu.Unlock()
	return h
}

// conclude ends the count. Needs b.mu.
func (b *ballot) conclude() {
	b.over = true
	b.took = time.Since(b.start.at)
	close(b.done)
}

// abandon ends the count undecided; false: it had been decided before.
func (b *ballot) abandon() bool {
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
func (b *ballot) result() (t tally, hard int, score int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.t, b.hard, b.score
}

// IsOver reports that the count has ended.
func (b *ballot) IsOver() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.over
}

// Began is when the ballot began: before its first question was sent.
func (b *ballot) Began() time.Time { return b.start.at }

// IsFinal reports that it is the last question about a lock.
func (b *ballot) IsFinal() bool { return b.final }

// finished reports that no call is under way any more.
func (b *ballot) finished() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.open == 0
}

// stored is which nodes may hold our value, and where a command that puts it there
// may yet be executed, by the calls finished so far; as bits in New's order.
func (b *ballot) stored() (holds, doubt uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.calls {
		c := &b.calls[i]
		if !c.Voted {
			continue
		}
		if f := c.Follow.Load(); f != nil {
			holds |= 1 << i // whatever became of the heal
			if b.open == 0 && f.Doubt {
				doubt |= 1 << i
			}
		}
		if c.Holds {
			holds |= 1 << i
		}
		if c.Doubt {
			doubt |= 1 << i
		}
	}
	return holds, doubt
}

// reached is which nodes the question may have got to, as bits.
func (b *ballot) reached() (nodes uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.calls {
		if c := &b.calls[i]; !c.Voted || c.Rep.Sent {
			nodes |= 1 << i
		}
	}
	return nodes
}

// registers is on which nodes a finished call says that the register may have been
// raised for our value, as bits.
func (b *ballot) registers() (nodes uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.calls {
		if c := &b.calls[i]; c.Voted && c.Raised {
			nodes |= 1 << i
		}
	}
	return nodes
}

// round is the report of the ballot as it stands.
func (b *ballot) round() Round {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := Round{Op: b.op, Key: b.name.Key, Need: b.t.need(), Start: b.start.at, Took: b.took, Votes: make([]Vote, len(b.calls))}
	for i := range b.calls {
		c := &b.calls[i]
		v := &r.Votes[i]
		v.Node = c.Ln.Name
		if !c.Voted {
			continue
		}
		v.Answer, v.Holder, v.Took = Answer(c.Rep.Answer), c.Rep.Holder, c.Took
		if c.Rep.Err != nil {
			v.Err = c.Rep.Err
		}
	}
	return r
}
