package lane

import (
	"context"
	"runtime"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ce352c9b/redlock/internal/wire"
)

// A batch is one pipeline under way. Its slices and its pipeline, which is empty
// once executed, are used again.
type batch struct {
	calls    []*Call
	asked    [][2]wire.Command // of each call
	results  []result          // for each call
	cmds     []redis.Cmder     // all of it, in the order of the calls
	ready    []*Call           // to be delivered after landing
	pipe     redis.Pipeliner
	sent     time.Time
	number   uint64 // 1 for the lane's first
	stuck    bool   // given up: it has lost its place among the lane's batches
	panicked bool   // the client panicked, and may not have let go of what it was given
}

// sendLoop sends batches until the queue is empty or its place is gone.
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
		ready := ln.complete(b, info, err, took)
		ln.mu.Unlock()
		deliver(ready)

		ln.mu.Lock()
		stuck := b.stuck
		ln.recycle(b, ready)
		ln.mu.Unlock()
		if stuck {
			return
		}
		// Those whom this batch has answered have something to ask again: let them, and
		// the next one is larger.
		runtime.Gosched()
	}
}

// nextBatch takes the next batch from the queue.
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
		// The wait in our own queue says nothing about the node.
		c.deadline = b.sent.Add(c.Question.Patience.With(ln.rtt))
		ln.armTimer(b.sent, c.deadline)
	}
	ln.batches = append(ln.batches, b)
	return b
}

// recycle keeps a landed batch for later, empty.
func (ln *Lane) recycle(b *batch, ready []*Call) {
	clear(ready)
	if b.panicked {
		return
	}
	clear(b.calls)
	clear(b.asked)
	clear(b.results)
	clear(b.cmds)
	b.calls, b.asked, b.results, b.cmds, b.ready, b.stuck = b.calls[:0], b.asked[:0], b.results[:0], b.cmds[:0], ready[:0], false
	if len(ln.spare) < maxBatches {
		ln.spare = append(ln.spare, b)
	}
}

// result is what a batch brought for a call; kept apart from call.rep because
// the deadline may have settled the call meanwhile.
type result struct {
	reply wire.Reply
	again bool // not executed: send it again, in the other form
}

// exec sends the batch to the lane's node and reads all answers. identify: asks it first
// what it is.
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
	b.asked = slices.Grow(b.asked, len(b.calls))[:len(b.calls)] // at once: go-redis gets pointers into it
	for i, c := range b.calls {
		for j := range c.Question.Cmds {
			if args := c.Question.Args(j, c.asText, c.plainSet, c.comparesMark); args != nil {
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
	for i, c := range b.calls {
		rep := c.Question.Read(b.asked[i][:], c.plainSet, err)
		rep.Err = ln.Kind.Advise(rep.Err)
		b.results = append(b.results, result{reply: rep, again: rep.WantsOtherForm(c.Question, c.asText, c.plainSet)})
	}
	if ln.guarded {
		b.revokeUncompared()
	}
	return info, err
}

// exchange has the node's client send the batch.
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

// complete settles the calls of a batch with what it brought.
func (ln *Lane) complete(b *batch, info *wire.Identity, err error, took time.Duration) []*Call {
	ready := b.ready
	ln.batches = slices.DeleteFunc(ln.batches, func(g *batch) bool { return g == b })
	if b.stuck {
		ln.stuck--
	}
	var way *wire.NodeError // it did not come through: the node is to be probed
	for i := range b.results {
		if rep := &b.results[i].reply; rep.Err != nil && (rep.Silent || !rep.Sent) {
			way = rep.Err
		}
	}
	if way == nil {
		ln.updateRTT(took)
		if ln.down != nil {
			ln.wakeProbe() // alive: the probe need not wait out its pause
		}
	}
	var replica *wire.NodeError
	if info != nil {
		replica = info.Replica
		ln.identified = replica == nil // it is asked again until it is promoted
		if info.RunID != "" {
			ln.duplicate = ln.servers.add(ln, info.RunID)
		}
	}
	var again []*Call
	for i, c := range b.calls {
		if c.phase == finished {
			continue // given up; what it may have left behind is owed
		}
		switch {
		case ln.duplicate != nil:
			ready = ln.finish(c, wire.Reply{Answer: wire.Unknown, Sent: true, Stored: b.results[i].reply.Stored, Err: ln.duplicate}, ready)
		case replica != nil && !c.Question.Kind.Cleans():
			rep := b.results[i].reply // one that may be written to has executed it
			ready = ln.finish(c, wire.Reply{Answer: wire.Unknown, Sent: rep.Sent, Silent: rep.Silent, Stored: rep.Stored, Err: replica}, ready)
		case b.results[i].again && !ln.closed:
			c.asText, c.plainSet = c.Question.Script != nil, c.Question.Script == nil
			ln.plainSet = ln.plainSet || c.plainSet
			c.phase = queued
			again = append(again, c)
		default:
			ready = ln.finish(c, b.results[i].reply, ready)
		}
	}
	if len(again) > 0 {
		ln.queue = append(again, ln.queue...)
	}
	if way != nil && wire.NeverSent(err) {
		ready = ln.markDown(way, ready)
	}
	if b.stuck {
		ln.startSending()
		ln.notifyIdle()
	}
	return ready
}
