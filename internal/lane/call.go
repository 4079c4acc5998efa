package lane

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ce352c9b/redlock/internal/wire"
)

// A phase is how far a call has come. Guarded by its lane's mu.
type phase uint8

const (
	waiting phase = iota // for the call before it, on the same node for the same lock
	queued
	sent
	finished // its reply is known, or was given up
)

// A Call is one question to one node. It is finished exactly once: by its answer,
// by its deadline, or without having been sent.
type Call struct {
	Lane     *Lane
	Voter    Voter // gets the vote; nil if nobody counts it
	Question *wire.Question
	Index    int // which node, in New's order

	deadline         time.Time
	followers        []*Call  // wait for this one
	inlineFollower   [1]*Call // for the first of them, mostly the only one
	predecessor      *Call    // the last one before it that was about the same value
	unfinishedBefore int32    // for so many
	phase            phase
	mayBeOvertaken   bool                 // something before it may be executed later than it
	SkipIfRolledBack bool                 // touch: not where the call before it is rolled back, which does the same
	Raised           bool                 // the register may have been raised for our value
	owed             bool                 // what it asks is owed; guarded by ln.mu
	RaisedBefore     bool                 // touch: an attempt before that call has raised the register
	asText           bool                 // its script goes as text
	comparesMark     bool                 // and looks at what the server is, see guard.go
	plainSet         bool                 // SET NX goes without GET
	MayHold          bool                 // our value may be on the node
	MayArriveLate    bool                 // and a command that would put it there may yet be executed
	Voted            bool                 // guarded by b.mu
	CountedAs        wire.Answer          // what a value that is not there counted as, see quorum call.gone; guarded by b.mu
	Reply            wire.Reply           // final once finished
	Took             time.Duration        // since the quorum call's start
	Follow           atomic.Pointer[Call] // the heal that this call's answer asked for
}

// A Voter counts what calls come to. It is asked with the lane's mu held, except that
// Vote is called with no lock held.
type Voter interface {
	Vote(c *Call)
	Began() time.Time
	IsOver() bool  // nobody counts the votes to come
	IsFinal() bool // it is the last question about a lock
}

// A Client is what a lane needs of a client.
type Client interface {
	Process(ctx context.Context, cmd redis.Cmder) error
	Pipeline() redis.Pipeliner
}

// waitFor has the call begin after another is finished. Needs ln.mu.
func (c *Call) waitFor(before *Call) {
	if before.followers == nil {
		before.followers = before.inlineFollower[:0]
	}
	before.followers = append(before.followers, c)
	c.unfinishedBefore++
}

// learn takes over what a call that goes before this one left behind. Needs ln.mu.
func (c *Call) inherit(before *Call) {
	if before.Question.Value == c.Question.Value {
		c.MayHold = c.MayHold || before.MayHold
		c.MayArriveLate = c.MayArriveLate || before.MayArriveLate
		c.mayBeOvertaken = c.mayBeOvertaken || before.Reply.Silent
		c.Raised = c.Raised || before.Raised
		c.owed = c.owed || before.owed && before.Question.Kind == c.Question.Kind
		c.predecessor = before
	}
	if c.SkipIfRolledBack && (before.MayHold || !before.Reply.Sent && !c.RaisedBefore) {
		c.MayHold = false
	}
}

// deliver casts the votes of finished calls. No lane is locked meanwhile.
func deliver(ready []*Call) {
	Each(0, len(ready), func(i int) {
		if c := ready[i]; c.Voter != nil {
			c.Voter.Vote(c)
		}
	})
}

// superseded reports that another call waits behind this one which does not build on
// it. A raise does: it is for nodes that said yes to the acquire.
func (c *Call) superseded() bool {
	yes := false
	for _, n := range c.followers {
		switch n.Question.Kind {
		case wire.AskRaise:
			return false
		case wire.AskLeave, wire.AskExpireRegister: // who has won leaves the queue, or gives registers a life, and wants the lock on every node
		default:
			yes = true
		}
	}
	return yes
}

// Each calls f for i to n-1, for the rest of them also if one does not return: f may cast a
// vote, a vote may decide a round, and then the user's Observe may panic. On the goroutine of
// a caller who recovers from that nothing may be left half done.
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
