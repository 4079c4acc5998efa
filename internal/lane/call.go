package lane

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ce352c9b/redlock/internal/wire"
)

// A phase is how far a call has come. It is guarded by the lane's mutex, and only moves
// forward, except from sent back to queued when a command has to be sent in another form.
type phase uint8

const (
	waiting  phase = iota // for calls before it, on the same node for the same lock
	queued                // in the lane's queue
	sent                  // in a batch
	finished              // Reply is final: an answer, a timeout, or an error before sending
)

// A Call is one question to one node. It is finished exactly once: by the node's reply, by
// its deadline, or without having been sent.
//
// One Call per node is allocated for every quorum call, 224 bytes each on 64-bit machines;
// the small fields stand together across the groups to keep it at that. Whoever makes a
// Call sets Lane, Voter, Question and Index and, for a clean-up, what is known to be on
// the node; from Ask on the lane owns all fields but those of the Voter's group.
type Call struct {
	// What is asked, and who counts the result. Constant.
	Lane     *Lane
	Voter    Voter // gets the vote; nil if nobody counts it
	Question *wire.Question
	Index    int // of the node, in the order in which the Locker got them

	// The order of calls and the progress of this one. Guarded by Lane.mu. The call is
	// waiting as long as unfinishedBefore is not 0; followers and predecessor are nil once
	// the call is finished or has begun, so that a chain of calls does not keep itself alive.
	deadline         time.Time
	followers        []*Call  // they wait for this call
	inlineFollower   [1]*Call // the memory of followers for the first one, mostly the only one
	predecessor      *Call    // the last call before this one about the same value
	unfinishedBefore int32
	phase            phase

	// What a clean-up has to do. Guarded by Lane.mu until the call is finished, constant from
	// then on.
	Residue        Residue // of this call and those before it about the same value
	mayBeOvertaken bool    // a call before this one was silent, and may be executed after it
	owed           bool    // the clean-up is in the lane's list of owed commands

	// AfterAttempt is set by the maker of an AskExpireRegister that follows an attempt or a release.
	// The call is needless if the attempt is rolled back, or the release looks at the register, which
	// gives that a ttl as well, or if neither an attempt nor one before it has reached the register.
	AfterAttempt bool

	// RegisterKnown is set by the maker of an AskExtend whose node has raised the register for
	// this lock before and has kept the value since, and by the maker of a release or a rollback
	// whose node need not look whether the register has a ttl (Registers.Releasing).
	RegisterKnown bool

	// The form in which the command is sent. Guarded by Lane.mu until the call is sent, and
	// after that used by its batch alone.
	asText       bool // the script goes as text: the node does not know its hash
	comparesMark bool // the script compares the node's mark with the server (guard.go)
	plainSet     bool // SET NX goes without GET
	joined       bool // it travels in one script with others (joint.go)
	alone        bool // it has, and has to be asked by its own script now

	// The Voter's. Voted and CountedAs are guarded by the quorum call's mutex.
	Voted     bool
	CountedAs wire.Answer // how a release counted the vote if the node did not store our value

	// The result. Guarded by Lane.mu until the call is finished, constant from then on.
	Reply wire.Reply
	Took  time.Duration // from Voter.Began to the end of this call

	Healing atomic.Pointer[Call] // the heal that this call's answer made necessary
}

// A Voter counts the results of calls. It is all that a lane knows of the layer above.
type Voter interface {
	// Vote counts a finished call. It is called exactly once for each call, with no lock
	// held, on the goroutine that finished the call: that of a sender, a timer, the prober
	// or a caller of Ask.
	Vote(c *Call)

	// The others are called with the lane's mutex held and must not call the lane.

	Began() time.Time // when the quorum call began, for Call.Took
	IsOver() bool     // reports whether further votes do not matter any more
	IsFinal() bool    // reports whether this is the last question about a lock
}

// A Client is the part of a go-redis client that a lane uses.
type Client interface {
	Process(ctx context.Context, cmd redis.Cmder) error
	Pipeline() redis.Pipeliner
}

// waitFor makes the call begin after before is finished. It needs ln.mu.
func (c *Call) waitFor(before *Call) {
	if before.followers == nil {
		before.followers = before.inlineFollower[:0]
	}
	before.followers = append(before.followers, c)
	c.unfinishedBefore++
}

// inherit takes over what a finished call before this one left behind on the node, if both
// are about the same value. An AskExpireRegister has none: it is about the register that the call
// before it may have raised, or may still raise. What a failed attempt may still do has a
// rollback. It needs ln.mu.
//
// The Residue tells a clean-up whether there is anything to undo; owed keeps the same
// clean-up from becoming owed twice; predecessor tells a raise whether the acquire succeeded.
func (c *Call) inherit(before *Call) {
	if same := before.Question.Value == c.Question.Value; same || c.Question.Kind == wire.AskExpireRegister && !c.AfterAttempt {
		c.Residue |= before.Residue
		c.mayBeOvertaken = c.mayBeOvertaken || before.Reply.Silent
		c.owed = c.owed || before.owed && before.Question.Kind == c.Question.Kind
		c.predecessor = before
	}
	switch {
	case !c.AfterAttempt:
	case before.Residue.Has(Holds) && !before.RegisterKnown: // the rollback, or the release, does the same
		c.Residue = 0
	case before.Reply.Sent && !before.Reply.Refused:
		c.Residue |= Raised
	}
}

// hasWork reports whether a clean-up has anything to undo on its node. The register of an
// attempt that has left nothing else is no work for its rollback, but for an
// AskExpireRegister; the last question about a lock gives it a ttl.
func (c *Call) hasWork() bool {
	if c.Residue.Has(Raised) && (c.Question.Kind == wire.AskExpireRegister || c.Voter != nil && c.Voter.IsFinal()) {
		return true
	}
	return c.Residue.Has(Holds)
}

// deliver casts the votes of finished calls. The caller must hold no lock: a vote may
// decide a round and ask the next question.
func deliver(ready []*Call) {
	Each(0, len(ready), func(i int) {
		if c := ready[i]; c.Voter != nil {
			c.Voter.Vote(c)
		}
	})
}

// superseded reports whether another call waits behind this one that does not depend on
// its result. A raise depends on it: it is for the nodes that granted the acquire.
func (c *Call) superseded() bool {
	yes := false
	for _, n := range c.followers {
		switch n.Question.Kind {
		case wire.AskRaise:
			return false
		case wire.AskLeave, wire.AskExpireRegister:
			// They follow a lock that was won, which is wanted on every node: no reason to
			// drop the acquire in front of them.
		default:
			yes = true
		}
	}
	return yes
}

// Each calls f(i) to f(n-1). If one of the calls panics, or ends the goroutine, the rest
// are still made: f may cast a vote, a vote may decide a round, and then the user's Trace
// may panic. The caller may recover from that panic, and nothing must be left half done.
func Each(i, n int, f func(i int)) {
	defer func() {
		if i < n {
			Each(i, n, f)
		}
	}()
	for i < n {
		i++
		f(i - 1)
	}
}
