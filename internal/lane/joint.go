package lane

import (
	"time"

	"github.com/seed-ce352c9b/redlock/internal/wire"
)

// This file is the calls of a batch that travel in one script: plain releases and
// rollbacks (wire/joint.go).
//
// The joint script goes first in its pipeline, before calls that were queued earlier. It
// may: a release begins only when the calls that it follows are finished, so none of them
// is in the batch with it; and what follows it is not in the batch, or is an acquire
// (AskBoth) that has to come after it. The clean-ups of a lock follow each other, so that no
// lock is twice in one script.
//
// Only a deletion in that step is believed. A call that the script did nothing for is asked
// again by its own script, once. If the reply is lost, each of the calls is silent, and owed.

const (
	// minJoint is how many calls of a batch have to be able to join before they do. For one
	// alone its own script does the same, and tells more.
	minJoint = 2

	// noJointFor is how long a node that has refused the script is not sent it again: its
	// user may be given the permission, a Redis Cluster costs one vain trip a minute.
	noJointFor = time.Minute

	// noJointEver is longer than any process runs.
	noJointEver = 100 * 365 * 24 * time.Hour
)

// JoinFrom sets how many calls of a batch have to be able to join before they do, whatever
// kind of client the node is; 0: they never do. It is for tests and the simulation, and
// must be called before the first call is asked.
func (ln *Lane) JoinFrom(n int) { ln.minJoint = n }

// allowJoint decides whether calls of a batch may be joined. It needs ln.mu.
func (ln *Lane) allowJoint(b *batch) {
	b.joins = ln.minJoint > 0 && !b.sent.Before(ln.noJointTill)
	b.asText = b.joins && ln.jointAsText
}

// join puts the calls that may travel in one script into it, if they are enough, and the
// script in front of the commands of the batch.
func (b *batch) join(least int) {
	if !b.joins {
		return
	}
	n := 0
	for _, c := range b.calls {
		if c.Question.Joins() && !c.alone && !c.asText {
			n++
		}
	}
	if n == 0 || n < least {
		return
	}
	for _, kind := range []wire.Kind{wire.AskRelease, wire.AskRollback} {
		for _, c := range b.calls {
			if c.Question.Kind == kind && c.Question.Joins() && !c.alone && !c.asText && b.joint.Len() < wire.MaxJoint {
				c.joined = true
				b.joint.Add(c.Question)
			}
		}
	}
	b.cmds = append(b.cmds, b.joint.Command(b.asText))
}

// jointReplies reads the reply of the joint script; err is the error of the pipeline. It
// returns a function that returns the result of each joined call, in the order of the batch.
func (b *batch) jointReplies(err error) func(c *Call) result {
	if b.joint.Len() == 0 {
		return nil
	}
	b.joint.Read(err)
	release, rollback := 0, b.joint.Releases()
	return func(c *Call) result {
		n := &release
		if c.Question.Kind == wire.AskRollback {
			n = &rollback
		}
		rep, alone := b.joint.Reply(*n)
		*n++
		return result{reply: rep, again: alone}
	}
}

// jointAnswered takes in how the node took the joint script. It needs ln.mu.
func (ln *Lane) jointAnswered(b *batch) {
	if b.joint.Len() == 0 {
		return
	}
	switch b.joint.Refusal() {
	case wire.NotRefused:
		ln.jointAsText = ln.jointAsText && !b.asText
	case wire.NotKnown:
		ln.jointAsText = true
	case wire.RefusedNow:
		ln.noJointTill = b.sent.Add(noJointFor)
	case wire.RefusedEver:
		ln.noJointTill = b.sent.Add(noJointEver)
	}
}
