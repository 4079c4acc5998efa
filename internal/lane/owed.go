package lane

import (
	"context"
	"slices"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/wire"
)

// What is owed to a node: rollbacks and releases that have had no answer. A
// stopped server executes, when it wakes, what lies in its sockets, from closed
// connections too; so it is not enough that a rollback was sent once. It is sent
// again after the node answered a PING that left later than what it undoes, and
// until it is answered.

const (
	// maxDebts bounds what is owed to one node. Beyond it the oldest is dropped
	// and expires with its ttl.
	maxOwed = 16384

	// debtLife is how long beyond its ttl a debt is kept for a node that does not
	// answer. The ttl alone would not do: it runs from when the node executes the
	// command, which a stopped one does when it wakes, and the register that it then
	// raises has no other end. Values are unique, so a late rollback does no harm.
	owedLife = wire.RegisterLife

	// lookAgain is the pause between rollbacks of a command that was not answered:
	// finding nothing may mean that the command is still under way on another
	// connection. They go on until that connection has answered or failed, and once
	// more. Halved, what a failed connection still delivers may escape the last.
	lookAgain = 500 * time.Millisecond

	// maxDoublings bounds how far apart the tries get that a node answers with an
	// error: 16 s.
	maxBackoffDoublings = 5

	// probeFirst and probeMost are the pauses between PINGs to a node that is down:
	// short, for it is to be used again within a second of coming back.
	probeFirst = 10 * time.Millisecond
	probeMax   = 200 * time.Millisecond

	// maxProbes bounds the PINGs without an answer. Each holds a connection until
	// the client's own timeout.
	maxProbes = 3

	// drainTimeout bounds one batch of what is owed.
	drainTimeout = time.Second
)

// A owedCommand is one of them.
type owedCommand struct {
	question      *wire.Question
	since         time.Time // became owed: only a PING that left later counts
	until         time.Time // then it is dropped
	due           time.Time // not before
	mayArriveLate bool      // what it undoes may still be under way: look again
	lastBatch     uint64    // the last batch that left before it became owed
	tries         int       // answered by errors so far
}

// owedCommands are a node's, oldest first.
type owedCommands struct {
	list     []*owedCommand
	restores map[string]int // how many of them put this value back
	dropped  int            // for lack of room, since the beginning
}

func (d *owedCommands) len() int { return len(d.list) }

func (d *owedCommands) add(one *owedCommand) {
	d.list = append(d.list, one)
	if back := one.question.Back; back != "" {
		if d.restores == nil {
			d.restores = make(map[string]int)
		}
		d.restores[back]++
	}
}

// drop strikes off those that gone reports.
func (d *owedCommands) drop(gone func(*owedCommand) bool) {
	d.list = slices.DeleteFunc(d.list, func(one *owedCommand) bool {
		if !gone(one) {
			return false
		}
		if back := one.question.Back; back != "" {
			if d.restores[back]--; d.restores[back] == 0 {
				delete(d.restores, back)
			}
		}
		return true
	})
}

// restoreOwed reports whether a restore is owed that puts this value back. The release of
// the value waits for it, however often the node refuses the restore: executed first,
// it would find the value of the adoption that failed, and nobody would remove the
// one that comes back later.
func (d *owedCommands) restoreOwed(value string) bool { return d.restores[value] > 0 }

// releaseOwed reports whether a release or a rollback of this value is owed. An adoption of
// it counts as missing here: that would put another value in its place, the release would
// find nothing to take away, and if the adoption fails the value comes back for good.
func (d *owedCommands) releaseOwed(value string) bool {
	return slices.ContainsFunc(d.list, func(one *owedCommand) bool {
		return one.question.Value == value && (one.question.Kind == wire.AskRelease || one.question.Kind == wire.AskRollback)
	})
}

// owe notes that a call's cleaning is to be sent again, not before the pause is
// over. Needs ln.mu.
func (ln *Lane) owe(c *Call, pause time.Duration) {
	if ln.closed {
		return
	}
	c.owed = true
	now := time.Now()
	if len(ln.owed.list) >= maxOwed {
		oldest := ln.owed.list[0]
		ln.owed.drop(func(d *owedCommand) bool { return d == oldest })
		ln.owed.dropped++
	}
	ln.owed.add(&owedCommand{question: c.Question, since: now, until: now.Add(c.Question.TTL + owedLife), due: now.Add(pause), mayArriveLate: c.MayArriveLate, lastBatch: ln.batchesSent})
	ln.ensureProbe()
}

// probe sees to it that the prober runs. Needs ln.mu.
func (ln *Lane) ensureProbe() {
	if !ln.probing && !ln.closed {
		ln.probing = true
		go ln.probeLoop()
	}
}

// wakeProbe wakes the prober from its pause. Needs ln.mu or nothing.
func (ln *Lane) wakeProbe() {
	if ln.probing {
		select {
		case ln.probeWake <- struct{}{}:
		default:
		}
	}
}

// A pong is a PING's answer.
type pong struct {
	sent time.Time
	err  error
	took time.Duration
}

// runProbe PINGs the node until it is up and nothing is owed to it. A PING that
// hangs is not waited for; the next one goes out beside it.
func (ln *Lane) probeLoop() {
	pongs := make(chan pong, maxProbes) // room for all: none blocks
	open := 0
	pause := probeFirst
	for {
		if open < maxProbes {
			open++
			go func(sent time.Time) {
				err := ping(ln.Node)
				pongs <- pong{sent: sent, err: err, took: time.Since(sent)}
			}(time.Now())
		}
		p, ok := ln.awaitPong(pongs, max(pause, ln.pingPatience()))
		if ok {
			open--
		}
		switch {
		case ok && p.alive():
			done, wait := ln.resume(p)
			if done {
				return
			}
			pause = probeFirst
			ln.probePause(wait)
		default:
			pause = min(2*pause, probeMax)
			if ok { // refused at once; else the pause has been waited out
				ln.probePause(pause)
			}
		}
		select {
		case <-ln.stopping:
			return
		default:
		}
	}
}

func ping(node Client) (err error) {
	defer wire.RecoverTo(&err)
	c := wire.PingCommand()
	if err := node.Process(context.Background(), &c); err != nil {
		return err
	}
	return c.Err() // a deferred auto-pipeliner only has it queued so far
}

// alive reports whether the node said anything: LOADING and NOAUTH are answers.
func (p pong) alive() bool {
	if p.err == nil {
		return true
	}
	_, said := wire.Explain(p.err)
	return said
}

// await waits for an answer to any PING under way.
func (ln *Lane) awaitPong(pongs <-chan pong, limit time.Duration) (p pong, ok bool) {
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case p = <-pongs:
		return p, true
	case <-t.C:
	case <-ln.probeWake: // something else was answered: ask again now
	case <-ln.stopping:
	}
	return p, false
}

// pingPatience is how long a PING is waited for before another one is sent.
func (ln *Lane) pingPatience() time.Duration {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	return min(max(wire.RoundTrips*ln.rtt, probeFirst), probeMax)
}

// probePause waits for the pause to be over, a sign of life, or the end.
func (ln *Lane) probePause(pause time.Duration) {
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ln.probeWake:
	case <-ln.stopping:
	}
}

// settle uses a PING's answer: what became owed before it left is sent, then the
// node is used again. It reports whether the prober is done and, if not, when to
// go on.
func (ln *Lane) resume(p pong) (done bool, wait time.Duration) {
	for {
		ln.mu.Lock()
		batch := ln.dueNow(p.sent, time.Now())
		ln.mu.Unlock()
		if len(batch) == 0 {
			break
		}
		if !ln.sendDue(batch) {
			return false, probeFirst
		}
	}
	ln.mu.Lock()
	defer ln.mu.Unlock()
	if ln.down != nil {
		if ln.stuck >= maxStuck || ln.downSince.After(p.sent) {
			return false, probeFirst
		}
		ln.down = nil
		if ln.rtt == 0 || p.took < ln.rtt {
			ln.rtt = max(p.took, 1)
		}
	}
	if ln.owed.len() > 0 { // a second look, or what became owed since
		return false, ln.nextDue(time.Now())
	}
	ln.probing = false
	ln.notifyIdle()
	return true, 0
}

// due picks what may be sent now, oldest first. Needs ln.mu.
func (ln *Lane) dueNow(pinged, now time.Time) []*owedCommand {
	ln.owed.drop(func(d *owedCommand) bool { return now.After(d.until) })
	var batch []*owedCommand
	bytes := 0
	for _, d := range ln.owed.list {
		if len(batch) == maxBatchCalls || bytes > MaxBatchBytes {
			break
		}
		if !d.since.After(pinged) && !d.due.After(now) && !ln.owed.restoreOwed(d.question.Value) {
			batch = append(batch, d)
			bytes += d.question.Bytes
		}
	}
	return batch
}

// nextDue is how long until something may be sent. Needs ln.mu.
func (ln *Lane) nextDue(now time.Time) time.Duration {
	wait := lookAgain << maxBackoffDoublings
	for _, d := range ln.owed.list {
		if !ln.owed.restoreOwed(d.question.Value) { // else it goes after that restore
			wait = min(wait, d.due.Sub(now))
		}
	}
	return max(wait, 0)
}

// drain sends a batch of what is owed and waits for the answers, but not for
// long. It reports whether the node answered.
func (ln *Lane) sendDue(batch []*owedCommand) bool {
	replies := make(chan []wire.Reply)
	gone := make(chan struct{})
	go func() {
		got := sendOwed(ln.Node, batch)
		select {
		case replies <- got:
		case <-gone: // what was answered is sent once more, which does no harm
			ln.mu.Lock()
			ln.stuck--
			ln.mu.Unlock()
		}
	}()
	limit := time.NewTimer(drainTimeout)
	defer limit.Stop()
	select {
	case got := <-replies:
		return ln.settleOwed(batch, got)
	case <-limit.C:
	case <-ln.stopping:
	}
	close(gone)
	ln.mu.Lock()
	ln.stuck++
	ready := ln.markDown(wire.TimeoutError(drainTimeout), nil)
	ln.mu.Unlock()
	deliver(ready)
	return false
}

// settleOwed strikes off what was answered.
func (ln *Lane) settleOwed(batch []*owedCommand, got []wire.Reply) (answered bool) {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	now := time.Now()
	answered = true
	paid := make(map[*owedCommand]bool, len(batch))
	for i, d := range batch {
		switch r := got[i]; {
		case r.Silent || !r.Sent:
			answered = false
		case r.Answer == wire.Unknown: // LOADING, READONLY and the like: less and less often
			d.tries++
			d.due = now.Add(lookAgain << min(d.tries, maxBackoffDoublings))
		case d.mayArriveLate: // what puts it there may come later: with its batch, or just behind
			d.mayArriveLate = ln.batchUnderway(d.lastBatch)
			d.due = now.Add(lookAgain)
		default:
			paid[d] = true
		}
	}
	ln.owed.drop(func(d *owedCommand) bool { return paid[d] })
	return answered
}

// underway reports whether a batch up to this number has not come back. Needs
// ln.mu.
func (ln *Lane) batchUnderway(last uint64) bool {
	for _, b := range ln.batches {
		if b.number <= last {
			return true
		}
	}
	return false
}

// sendOwed sends the questions in one pipeline, and once more those whose script
// the node does not know.
func sendOwed(node Client, batch []*owedCommand) []wire.Reply {
	got := make([]wire.Reply, len(batch))
	todo := make([]int, len(batch))
	for i := range todo {
		todo[i] = i
	}
	for _, asText := range []bool{false, true} {
		cmds := make([][2]wire.Command, len(todo))
		for n, i := range todo {
			cmds[n][0] = wire.NewCommand(batch[i].question.Args(0, asText, false, false))
		}
		err := sendPipeline(node, cmds)
		var again []int
		for n, i := range todo {
			got[i] = batch[i].question.Read(cmds[n][:], false, err)
			if got[i].WantsOtherForm(batch[i].question, asText, false) {
				again = append(again, i)
			}
		}
		if todo = again; len(todo) == 0 {
			break
		}
	}
	return got
}

// sendPipeline sends commands in one pipeline.
func sendPipeline(node Client, cmds [][2]wire.Command) (err error) {
	defer wire.RecoverTo(&err)
	ctx := context.Background()
	pipe := node.Pipeline()
	for i := range cmds {
		_ = pipe.Process(ctx, &cmds[i][0]) // only queues
	}
	_, err = pipe.Exec(ctx)
	return err
}
