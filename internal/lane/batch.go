package lane

import (
	"context"
	"runtime"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ce352c9b/redlock/internal/wire"
)

// A batch is one pipeline under way. Its slices and its pipeline, which is empty after it
// was executed, are reused for later batches.
//
// From nextBatch to complete, the goroutine that sends the batch owns all fields but calls
// and stuck, which expireCalls also uses under Lane.mu. A call in calls may therefore be
// finished, by its deadline, before the reply is read.
type batch struct {
	calls    []*Call
	asked    [][2]wire.Command // the commands of each call
	results  []result          // for each call
	cmds     []redis.Cmder     // all commands, in the order of the calls
	args     []any             // of commands that are made when they are sent alone
	ready    []*Call           // the calls that complete finished, to be delivered
	joints   [numJoints]joint  // the calls that travel in one script (joint.go)
	pipe     redis.Pipeliner
	sent     time.Time // when it left
	number   uint64    // consecutive, 1 for the lane's first
	stuck    bool      // its deadline passed: it does not count in Lane.running any more
	panicked bool      // the client panicked and may still use what it was given
}

// sendLoop sends batches until the queue is empty, or until one of its batches was given up
// and another goroutine has its place. It casts the votes of the calls it finishes.
func (ln *Lane) sendLoop() {
	for {
		ln.mu.Lock()
		b := ln.nextBatch()
		if b == nil {
			ln.running--
			ln.notifyIdle()
			ln.mu.Unlock()
			return
		}
		identify := !ln.identified
		ln.mu.Unlock()

		info, err := b.exec(ln, identify)
		took := time.Since(b.sent)

		ln.mu.Lock()
		ln.clock = time.Now()
		ready := ln.complete(b, info, err, took)
		ln.clock = time.Time{}
		ln.mu.Unlock()
		deliver(ready)
		ln.tell()

		ln.mu.Lock()
		stuck := b.stuck
		ln.recycle(b, ready)
		ln.mu.Unlock()
		if stuck {
			return
		}
		// The callers that this batch answered are about to ask the next question. If they
		// run first, the next batch is larger.
		runtime.Gosched()
	}
}

// nextBatch moves calls from the head of the queue into a batch, within the limits of a
// batch, and starts their deadlines. It returns nil if the queue is empty. It needs ln.mu.
func (ln *Lane) nextBatch() *batch {
	n, bytes := 0, 0
	for n < len(ln.queue) && n < maxBatchCalls && (n == 0 || bytes+ln.queue[n].Question.Bytes <= MaxBatchBytes) {
		bytes += ln.queue[n].Question.Bytes
		n++
	}
	if n == 0 {
		return nil
	}
	var b *batch
	if i := len(ln.spare) - 1; i >= 0 {
		b, ln.spare = ln.spare[i], ln.spare[:i]
	} else {
		b = new(batch)
	}
	b.calls = append(b.calls, ln.queue[:n]...)
	b.sent = time.Now()
	ln.batchesSent++
	b.number = ln.batchesSent
	rest := copy(ln.queue, ln.queue[n:])
	clear(ln.queue[rest:])
	ln.queue = ln.queue[:rest]
	for _, c := range b.calls {
		c.phase = sent
		// The deadline starts anew: the wait in our own queue says nothing about the node.
		c.deadline = b.sent.Add(c.Question.Patience.With(ln.rtt))
		ln.armTimer(b.sent, c.deadline)
	}
	ln.batches = append(ln.batches, b)
	ln.allowJoint(b)
	return b
}

// recycle empties a batch that has returned and keeps it for reuse. It needs ln.mu.
func (ln *Lane) recycle(b *batch, ready []*Call) {
	clear(ready)
	if b.panicked {
		return
	}
	clear(b.calls)
	clear(b.asked)
	clear(b.results)
	clear(b.cmds)
	clear(b.args)
	b.args = b.args[:0]
	b.resetJoints()
	b.calls, b.asked, b.results, b.cmds, b.ready, b.stuck = b.calls[:0], b.asked[:0], b.results[:0], b.cmds[:0], ready[:0], false
	if len(ln.spare) < maxBatches {
		ln.spare = append(ln.spare, b)
	}
}

// A result is the reply that a batch read for a call. It is kept apart from Call.Reply
// because the deadline may finish the call in the meantime.
type result struct {
	reply wire.Reply
	again bool // the node has done nothing for the call: send it again, in its other form
}

// exec sends the batch to the lane's node and reads all replies into results. If identify
// is set, INFO goes in front and info is the server's answer; nil: it did not answer. err is
// the error of the whole pipeline. exec runs without ln.mu.
func (b *batch) exec(ln *Lane, identify bool) (info *wire.Identity, err error) {
	var who *[2]wire.Command
	if identify {
		who = ln.Kind.IdentifyCommands()
		for i := range who {
			if len(who[i].Args()) > 0 {
				b.cmds = append(b.cmds, &who[i])
			}
		}
	}
	if ln.guarded {
		b.chooseComparing(ln.Direct)
	}
	b.join(ln.minJoint)
	b.asked = slices.Grow(b.asked, len(b.calls))[:len(b.calls)] // at once: go-redis gets pointers into it
	for i, c := range b.calls {
		if c.joined {
			continue
		}
		for j := range c.Question.Cmds {
			if args := b.argsOf(c, j); args != nil {
				b.asked[i][j] = wire.NewCommand(args)
				b.cmds = append(b.cmds, &b.asked[i][j])
			}
		}
	}
	err = b.exchange(ln.Node)
	_, b.panicked = err.(*wire.PanicError)
	if identify {
		info = wire.ReadIdentity(&who[0], &who[1], err)
	}
	b.readJoints(err)
	for i, c := range b.calls {
		if c.joined {
			b.results = append(b.results, b.jointReply(c))
			continue
		}
		rep := c.Question.Read(b.asked[i][:], c.plainSet, err)
		b.results = append(b.results, result{reply: rep, again: rep.WantsOtherForm(c.Question, c.asText, c.plainSet)})
	}
	for i := range b.results {
		b.results[i].reply.Err = ln.Kind.Advise(b.results[i].reply.Err)
	}
	if ln.guarded {
		b.revokeUncompared()
	}
	return info, err
}

// argsOf returns the arguments of the j-th command of a call, or nil if there is none.
func (b *batch) argsOf(c *Call, j int) []any {
	n := len(b.args)
	known := c.RegisterKnown && c.Question.Kind != wire.AskExtend
	switch {
	case j == 0 && !c.asText && c.Question.MadeAlone():
		b.args = c.Question.AppendAlone(b.args, known)
	case j == 0 && known:
		b.args = wire.AppendWithoutRegister(b.args, c.Question.Args(0, c.asText, false, false))
	default:
		return c.Question.Args(j, c.asText, c.plainSet, c.comparesMark)
	}
	return b.args[n:len(b.args):len(b.args)]
}

// exchange sends the commands of the batch by the node's client and waits for the replies.
func (b *batch) exchange(node Client) (err error) {
	defer wire.RecoverTo(&err)
	ctx := context.Background()
	if b.pipe == nil {
		b.pipe = node.Pipeline()
	}
	_ = b.pipe.BatchProcess(ctx, b.cmds...) // only queues
	_, err = b.pipe.Exec(ctx)
	return err
}

// complete finishes the calls of a batch with the results that exec has read, and updates
// what the lane knows of the node. It needs ln.mu and returns the finished calls.
func (ln *Lane) complete(b *batch, info *wire.Identity, err error, took time.Duration) []*Call {
	ready := b.ready
	ln.batches = slices.DeleteFunc(ln.batches, func(g *batch) bool { return g == b })
	if b.stuck {
		ln.stuck--
	}
	var transport *wire.NodeError // set if a command or its reply was lost on the way
	for i := range b.results {
		if rep := &b.results[i].reply; rep.Err != nil && (rep.Silent || !rep.Sent) {
			rep.Err = ln.advise(rep.Err)
			transport = rep.Err
		}
	}
	if transport == nil {
		ln.took, ln.heard = took, ln.now()
		if ln.since.IsZero() {
			ln.since = ln.now()
		}
		ln.updateRTT(took)
		if ln.down != nil {
			ln.wakeProbe() // the node is alive: the prober need not wait any longer
		}
	}
	var replica *wire.NodeError
	if info != nil {
		replica = info.Replica
		ln.identified = replica == nil // a replica is asked again, until it is promoted
		if info.RunID != "" {
			was := ln.duplicate
			if ln.duplicate = ln.servers.add(ln, info.RunID); was == nil && ln.duplicate != nil {
				ln.note(Duplicate, ln.duplicate, time.Time{})
			}
		}
	}
	ln.jointAnswered(b)
	var again []*Call
	for i, c := range b.calls {
		rep, other := &b.results[i].reply, b.results[i].again && !ln.closed
		switch {
		case ln.duplicate != nil:
			*rep = wire.Reply{Answer: wire.Unknown, Sent: true, Stored: rep.Stored, Err: ln.duplicate}
			other = false
		case replica != nil && !c.Question.Kind.Cleans():
			// A replica that accepts writes has executed it.
			*rep = wire.Reply{Answer: wire.Unknown, Sent: rep.Sent, Silent: rep.Silent, Refused: rep.Refused, Stored: rep.Stored, Err: replica}
			other = false
		}
		if ln.duplicate == nil && !other {
			ln.noteReply(c.Question, rep)
		}
		switch {
		case c.phase == finished: // its deadline passed; what it may have left on the node is owed
		case other:
			if c.joined {
				c.joined, c.alone = false, true
			} else {
				c.asText, c.plainSet = c.Question.Script != nil, c.Question.Script == nil
				ln.plainSet = ln.plainSet || c.plainSet
			}
			c.phase = queued
			again = append(again, c)
		default:
			ready = ln.finish(c, *rep, ready)
		}
	}
	if len(again) > 0 {
		ln.queue = append(again, ln.queue...)
	}
	if transport != nil && wire.NeverSent(err) {
		ready = ln.markDown(transport, ready)
	}
	if b.stuck {
		ln.startSending()
		ln.notifyIdle()
	}
	return ready
}
