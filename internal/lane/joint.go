package lane

import (
	"time"

	"github.com/seed-ce352c9b/redlock/internal/wire"
)

// This file is the calls of a batch that travel in one script: plain releases and
// rollbacks in one, extensions in another (wire/joint.go).
//
// The joint scripts go first in their pipeline, before calls that were queued earlier. They
// may: a release or an extension begins only when the calls that it follows are finished, so
// none of them is in the batch with it; and what follows it is not in the batch, or is an
// acquire (AskBoth) that has to come after it. The clean-ups of a lock follow each other, and
// so do its extensions, so that no lock is twice in one script.
//
// Only a deletion or an extension in that step is believed. A call that the script did nothing for is asked
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

// The joint scripts.
const (
	jointRelease = iota
	jointExtend
	numJoints
)

// A joint is the part of a batch that travels in one script.
type joint struct {
	wire.Joint
	allowed bool // calls may travel so
	asText  bool // the script goes as text
	// The next reply that jointReply returns: of a release or an extension, and of a rollback.
	next, nextRollback int
}

// A jointState is how the server takes a joint script. Guarded by Lane.mu.
type jointState struct {
	asText  bool      // the server does not know the script: the next one is sent as text
	notTill time.Time // it has refused the script
}

// jointOf returns which joint script a question of this kind may travel in.
func jointOf(k wire.Kind) int {
	if k == wire.AskExtend {
		return jointExtend
	}
	return jointRelease
}

// allowJoint decides whether calls of a batch may be joined. It needs ln.mu.
func (ln *Lane) allowJoint(b *batch) {
	for n := range b.joints {
		s := &ln.joints[n]
		b.joints[n].allowed = ln.minJoint > 0 && !b.sent.Before(s.notTill)
		b.joints[n].asText = s.asText
	}
}

func (b *batch) resetJoints() {
	for n := range b.joints {
		b.joints[n].Reset()
	}
}

// mayJoin reports whether a call may travel in a joint script of its batch.
func (b *batch) mayJoin(c *Call) bool {
	return c.Question.Joins() && !c.alone && !c.asText && b.joints[jointOf(c.Question.Kind)].allowed
}

// join puts the calls that may travel in one script into it, if they are enough, and the
// scripts in front of the commands of the batch.
func (b *batch) join(least int) {
	var able [numJoints]int
	for _, c := range b.calls {
		if b.mayJoin(c) {
			able[jointOf(c.Question.Kind)]++
		}
	}
	for n := range able {
		if able[n] > 0 && able[n] >= least {
			b.joinAll(n)
		}
	}
}

// joinAll puts calls into the n-th joint script.
func (b *batch) joinAll(n int) {
	j := &b.joints[n]
	for _, kind := range []wire.Kind{wire.AskRelease, wire.AskRollback, wire.AskExtend} {
		for _, c := range b.calls {
			if c.Question.Kind == kind && jointOf(kind) == n && b.mayJoin(c) {
				c.joined = true
				j.Add(c.Question, c.RegisterKnown)
			}
		}
	}
	b.cmds = append(b.cmds, j.Command(j.asText))
}

// readJoints reads the replies of the joint scripts; err is the error of the pipeline.
func (b *batch) readJoints(err error) {
	for n := range b.joints {
		j := &b.joints[n]
		if j.Len() > 0 {
			j.Read(err)
		}
		j.next, j.nextRollback = 0, j.Releases()
	}
}

// jointReply returns the result of a joined call. It is called for all of them, in the order
// of the batch.
func (b *batch) jointReply(c *Call) result {
	j := &b.joints[jointOf(c.Question.Kind)]
	n := &j.next
	if c.Question.Kind == wire.AskRollback {
		n = &j.nextRollback
	}
	rep, alone := j.Reply(*n)
	*n++
	return result{reply: rep, again: alone}
}

// jointAnswered takes in how the node took the joint scripts. It needs ln.mu.
func (ln *Lane) jointAnswered(b *batch) {
	for n := range b.joints {
		j, s := &b.joints[n], &ln.joints[n]
		if j.Len() == 0 {
			continue
		}
		var refused time.Duration
		switch j.Refusal() {
		case wire.NotRefused:
			s.asText = s.asText && !j.asText
		case wire.NotKnown:
			s.asText = true
		case wire.RefusedNow:
			refused = noJointFor
		case wire.RefusedEver:
			refused = noJointEver
		}
		if till := b.sent.Add(refused); refused > 0 && till.After(s.notTill) { // another batch may know more
			s.notTill = till
		}
	}
}
