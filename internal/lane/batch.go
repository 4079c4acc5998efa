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
		f := ln.nextBatch()
		if f == nil {
			ln.running--
			ln.notifyIdle()
			ln.mu.Unlock()
			return
		}
		hello := !ln.identified
		ln.mu.Unlock()

		info, err := f.exec(ln, hello)
		took := time.Since(f.sent)

		ln.mu.Lock()
		ready := ln.complete(f, info, err, took)
		ln.mu.Unlock()
		deliver(ready)

		ln.mu.Lock()
		stuck := f.stuck
		ln.recycle(f, ready)
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
	for n < len(ln.queue) && n < maxBatchCalls && (n == 0 || bytes+ln.queue[n].Q.Bytes <= MaxBatchBytes) {
		bytes += ln.queue[n].Q.Bytes
		n++
	}
	if n == 0 {
		return nil
	}
	var f *batch
	if i := len(ln.spare) - 1; i >= 0 {
		f, ln.spare = ln.spare[i], ln.spare[:i]
	} else {
		f = new(batch)
	}
	f.calls = append(f.calls, ln.queue[:n]...)
	f.sent = time.Now()
	ln.batchesSent++
	f.number = ln.batchesSent
	rest := copy(ln.queue, ln.queue[n:])
	clear(ln.queue[rest:])
	ln.queue = ln.queue[:rest]
	for _, c := range f.calls {
		c.phase = sent
		// The wait in our own queue says nothing about the node.
		c.deadline = f.sent.Add(c.Q.Patience.With(ln.rtt))
		ln.arm(f.sent, c.deadline)
	}
	ln.batches = append(ln.batches, f)
	return f
}

// recycle keeps a landed batch for later, empty.
func (ln *Lane) recycle(f *batch, ready []*Call) {
	clear(ready)
	if f.panicked {
		return
	}
	clear(f.calls)
	clear(f.asked)
	clear(f.results)
	clear(f.cmds)
	f.calls, f.asked, f.results, f.cmds, f.ready, f.stuck = f.calls[:0], f.asked[:0], f.results[:0], f.cmds[:0], ready[:0], false
	if len(ln.spare) < maxBatches {
		ln.spare = append(ln.spare, f)
	}
}

// result is what a batch brought for a call; kept apart from call.rep because
// the deadline may have settled the call meanwhile.
type result struct {
	reply wire.Reply
	again bool // not executed: send it again, in the other form
}

// exec sends the batch to the lane's node and reads all answers. hello: asks it first
// what it is.
func (f *batch) exec(ln *Lane, hello bool) (info *wire.Introduction, err error) {
	var who *[2]wire.Command
	if hello {
		who = new([2]wire.Command)
		for i, section := range ln.Kind.Introductions() {
			who[i] = wire.NewCommand([]any{"info", section})
			f.cmds = append(f.cmds, &who[i])
		}
	}
	if ln.guarded {
		f.check(ln.Direct)
	}
	f.asked = slices.Grow(f.asked, len(f.calls))[:len(f.calls)] // at once: go-redis gets pointers into it
	for i, c := range f.calls {
		for j := range c.Q.Cmds {
			if args := c.Q.Args(j, c.asText, c.plain, c.check); args != nil {
				f.asked[i][j] = wire.NewCommand(args)
				f.cmds = append(f.cmds, &f.asked[i][j])
			}
		}
	}
	err = f.exchange(ln.Node)
	_, f.panicked = err.(*wire.PanicError)
	if hello {
		info = wire.Introduce(&who[0], &who[1], err)
	}
	for i, c := range f.calls {
		rep := c.Q.Read(f.asked[i][:], c.plain, err)
		rep.Err = ln.Kind.Advise(rep.Err)
		f.results = append(f.results, result{reply: rep, again: rep.Again(c.Q, c.asText, c.plain)})
	}
	if ln.guarded {
		f.doubt()
	}
	return info, err
}

// exchange has the node's client send the batch.
func (f *batch) exchange(node Client) (err error) {
	defer wire.Recovered(&err)
	ctx := context.Background()
	if f.pipe == nil {
		f.pipe = node.Pipeline()
	}
	_ = f.pipe.BatchProcess(ctx, f.cmds...) // only queues
	_, err = f.pipe.Exec(ctx)
	return err
}

// complete settles the calls of a batch with what it brought.
func (ln *Lane) complete(f *batch, info *wire.Introduction, err error, took time.Duration) []*Call {
	ready := f.ready
	ln.batches = slices.DeleteFunc(ln.batches, func(g *batch) bool { return g == f })
	if f.stuck {
		ln.stuck--
	}
	var way *wire.NodeError // it did not come through: the node is to be probed
	for i := range f.results {
		if rep := &f.results[i].reply; rep.Err != nil && (rep.Silent || !rep.Sent) {
			way = rep.Err
		}
	}
	if way == nil {
		ln.measure(took)
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
	for i, c := range f.calls {
		if c.phase == finished {
			continue // given up; what it may have left behind is owed
		}
		switch {
		case ln.duplicate != nil:
			ready = ln.finish(c, wire.Reply{Answer: wire.Unknown, Sent: true, Stored: f.results[i].reply.Stored, Err: ln.duplicate}, ready)
		case replica != nil && !c.Q.Kind.Cleans():
			rep := f.results[i].reply // one that may be written to has executed it
			ready = ln.finish(c, wire.Reply{Answer: wire.Unknown, Sent: rep.Sent, Silent: rep.Silent, Stored: rep.Stored, Err: replica}, ready)
		case f.results[i].again && !ln.closed:
			c.asText, c.plain = c.Q.Script != nil, c.Q.Script == nil
			ln.plain = ln.plain || c.plain
			c.phase = queued
			again = append(again, c)
		default:
			ready = ln.finish(c, f.results[i].reply, ready)
		}
	}
	if len(again) > 0 {
		ln.queue = append(again, ln.queue...)
	}
	if way != nil && wire.NeverLeft(err) {
		ready = ln.suspect(way, ready)
	}
	if f.stuck {
		ln.launch()
		ln.notifyIdle()
	}
	return ready
}
