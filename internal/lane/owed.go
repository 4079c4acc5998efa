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
	maxDebts = 16384

	// debtLife is how long beyond its ttl a debt is kept for a node that does not
	// answer. The ttl alone would not do: it runs from when the node executes the
	// command, which a stopped one does when it wakes, and the register that it then
	// raises has no other end. Values are unique, so a late rollback does no harm.
	debtLife = wire.RegisterLife

	// lookAgain is the pause between rollbacks of a command that was not answered:
	// finding nothing may mean that the command is still under way on another
	// connection. They go on until that connection has answered or failed, and once
	// more. Halved, what a failed connection still delivers may escape the last.
	lookAgain = 500 * time.Millisecond

	// maxDoublings bounds how far apart the tries get that a node answers with an
	// error: 16 s.
	maxDoublings = 5

	// probeFirst and probeMost are the pauses between PINGs to a node that is down:
	// short, for it is to be used again within a second of coming back.
	probeFirst = 10 * time.Millisecond
	probeMost  = 200 * time.Millisecond

	// maxProbes bounds the PINGs without an answer. Each holds a connection until
	// the client's own timeout.
	maxProbes = 3

	// drainTimeout bounds one batch of what is owed.
	drainTimeout = time.Second
)

// A debt is one of them.
type debt struct {
	q     *wire.Question
	since time.Time // became owed: only a PING that left later counts
	until time.Time // then it is dropped
	due   time.Time // not before
	doubt bool      // what it undoes may still be under way: look again
	under uint64    // the last flight that left before it became owed
	tries int       // answered by errors so far
}

// debts are a node's, oldest first.
type debts struct {
	list     []*debt
	restores map[string]int // how many of them put this value back
	dropped  int            // for lack of room, since the beginning
}

func (d *debts) Len() int { return len(d.list) }

func (d *debts) add(one *debt) {
	d.list = append(d.list, one)
	if back := one.q.Back; back != "" {
		if d.restores == nil {
			d.restores = make(map[string]int)
		}
		d.restores[back]++
	}
}

// drop strikes off those that gone reports.
func (d *debts) drop(gone func(*debt) bool) {
	d.list = slices.DeleteFunc(d.list, func(one *debt) bool {
		if !gone(one) {
			return false
		}
		if back := one.q.Back; back != "" {
			if d.restores[back]--; d.restores[back] == 0 {
				delete(d.restores, back)
			}
		}
		return true
	})
}

// putsBack reports whether a restore is owed that puts this value back. The release of
// the value waits for it, however often the node refuses the restore: executed first,
// it would find the value of the adoption that failed, and nobody would remove the
// one that comes back later.
func (d *debts) putsBack(value string) bool { return d.restores[value] > 0 }

// takesAway reports whether a release or a rollback of this value is owed. An adoption of
// it counts as missing here: that would put another value in its place, the release would
// find nothing to take away, and if the adoption fails the value comes back for good.
func (d *debts) takesAway(value string) bool {
	return slices.ContainsFunc(d.list, func(one *debt) bool {
		return one.q.Value == value && (one.q.Kind == wire.AskRelease || one.q.Kind == wire.AskRollback)
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
	if len(ln.Owed.list) >= maxDebts {
		oldest := ln.Owed.list[0]
		ln.Owed.drop(func(d *debt) bool { return d == oldest })
		ln.Owed.dropped++
	}
	ln.Owed.add(&debt{q: c.Q, since: now, until: now.Add(c.Q.Ttl + debtLife), due: now.Add(pause), doubt: c.Doubt, under: ln.flown})
	ln.probe()
}

// probe sees to it that the prober runs. Needs ln.mu.
func (ln *Lane) probe() {
	if !ln.probing && !ln.closed {
		ln.probing = true
		go ln.runProbe()
	}
}

// nudge wakes the prober from its pause. Needs ln.mu or nothing.
func (ln *Lane) nudge() {
	if ln.probing {
		select {
		case ln.kick <- struct{}{}:
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
func (ln *Lane) runProbe() {
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
		p, ok := ln.await(pongs, max(pause, ln.pingPatience()))
		if ok {
			open--
		}
		switch {
		case ok && p.alive():
			done, wait := ln.settle(p)
			if done {
				return
			}
			pause = probeFirst
			ln.doze(wait)
		default:
			pause = min(2*pause, probeMost)
			if ok { // refused at once; else the pause has been waited out
				ln.doze(pause)
			}
		}
		select {
		case <-ln.stopping:
			return
		default:
		}
	}
}

func ping(node laneNode) (err error) {
	defer wire.Caught(&err)
	c := wire.NewCommand([]any{"ping"})
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
func (ln *Lane) await(pongs <-chan pong, limit time.Duration) (p pong, ok bool) {
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case p = <-pongs:
		return p, true
	case <-t.C:
	case <-ln.kick: // something else was answered: ask again now
	case <-ln.stopping:
	}
	return p, false
}

// pingPatience is how long a PING is waited for before another one is sent.
func (ln *Lane) pingPatience() time.Duration {
	ln.Mu.Lock()
	defer ln.Mu.Unlock()
	return min(max(wire.RoundTrips*ln.rtt, probeFirst), probeMost)
}

// doze waits for the pause to be over, a sign of life, or the end.
func (ln *Lane) doze(pause time.Duration) {
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ln.kick:
	case <-ln.stopping:
	}
}

// settle uses a PING's answer: what became owed before it left is sent, then the
// node is used again. It reports whether the prober is done and, if not, when to
// go on.
func (ln *Lane) settle(p pong) (done bool, wait time.Duration) {
	for {
		ln.Mu.Lock()
		batch := ln.due(p.sent, time.Now())
		ln.Mu.Unlock()
		if len(batch) == 0 {
			break
		}
		if !ln.drain(batch) {
			return false, probeFirst
		}
	}
	ln.Mu.Lock()
	defer ln.Mu.Unlock()
	if ln.Down != nil {
		if ln.Stuck >= maxStuck || ln.downSince.After(p.sent) {
			return false, probeFirst
		}
		ln.Down = nil
		if ln.rtt == 0 || p.took < ln.rtt {
			ln.rtt = max(p.took, 1)
		}
	}
	if ln.Owed.Len() > 0 { // a second look, or what became owed since
		return false, ln.nextDue(time.Now())
	}
	ln.probing = false
	ln.rest()
	return true, 0
}

// due picks what may be sent now, oldest first. Needs ln.mu.
func (ln *Lane) due(pinged, now time.Time) []*debt {
	ln.Owed.drop(func(d *debt) bool { return now.After(d.until) })
	var batch []*debt
	bytes := 0
	for _, d := range ln.Owed.list {
		if len(batch) == maxBatchCalls || bytes > MaxBatchBytes {
			break
		}
		if !d.since.After(pinged) && !d.due.After(now) && !ln.Owed.putsBack(d.q.Value) {
			batch = append(batch, d)
			bytes += d.q.Bytes
		}
	}
	return batch
}

// nextDue is how long until something may be sent. Needs ln.mu.
func (ln *Lane) nextDue(now time.Time) time.Duration {
	wait := lookAgain << maxDoublings
	for _, d := range ln.Owed.list {
		if !ln.Owed.putsBack(d.q.Value) { // else it goes after that restore
			wait = min(wait, d.due.Sub(now))
		}
	}
	return max(wait, 0)
}

// drain sends a batch of what is owed and waits for the answers, but not for
// long. It reports whether the node answered.
func (ln *Lane) drain(batch []*debt) bool {
	replies := make(chan []wire.Reply)
	gone := make(chan struct{})
	go func() {
		got := payDebts(ln.Node, batch)
		select {
		case replies <- got:
		case <-gone: // what was answered is sent once more, which does no harm
			ln.Mu.Lock()
			ln.Stuck--
			ln.Mu.Unlock()
		}
	}()
	limit := time.NewTimer(drainTimeout)
	defer limit.Stop()
	select {
	case got := <-replies:
		return ln.paid(batch, got)
	case <-limit.C:
	case <-ln.stopping:
	}
	close(gone)
	ln.Mu.Lock()
	ln.Stuck++
	ready := ln.suspect(wire.TimeoutError(drainTimeout), nil)
	ln.Mu.Unlock()
	deliver(ready)
	return false
}

// paid strikes off what was answered.
func (ln *Lane) paid(batch []*debt, got []wire.Reply) (answered bool) {
	ln.Mu.Lock()
	defer ln.Mu.Unlock()
	now := time.Now()
	answered = true
	paid := make(map[*debt]bool, len(batch))
	for i, d := range batch {
		switch r := got[i]; {
		case r.Silent || !r.Sent:
			answered = false
		case r.Answer == wire.Unknown: // LOADING, READONLY and the like: less and less often
			d.tries++
			d.due = now.Add(lookAgain << min(d.tries, maxDoublings))
		case d.doubt: // what puts it there may come later: with its flight, or just behind
			d.doubt = ln.underway(d.under)
			d.due = now.Add(lookAgain)
		default:
			paid[d] = true
		}
	}
	ln.Owed.drop(func(d *debt) bool { return paid[d] })
	return answered
}

// underway reports whether a flight up to this number has not come back. Needs
// ln.mu.
func (ln *Lane) underway(last uint64) bool {
	for _, f := range ln.flights {
		if f.number <= last {
			return true
		}
	}
	return false
}

// payDebts sends the questions in one pipeline, and once more those whose script
// the node does not know.
func payDebts(node laneNode, batch []*debt) []wire.Reply {
	got := make([]wire.Reply, len(batch))
	todo := make([]int, len(batch))
	for i := range todo {
		todo[i] = i
	}
	for _, asText := range []bool{false, true} {
		cmds := make([][2]wire.Command, len(todo))
		for n, i := range todo {
			cmds[n][0] = wire.NewCommand(batch[i].q.Args(0, asText, false, false))
		}
		err := pay(node, cmds)
		var again []int
		for n, i := range todo {
			got[i] = batch[i].q.Read(cmds[n][:], false, err)
			if got[i].Again(batch[i].q, asText, false) {
				again = append(again, i)
			}
		}
		if todo = again; len(todo) == 0 {
			break
		}
	}
	return got
}

// pay sends commands in one pipeline.
func pay(node laneNode, cmds [][2]wire.Command) (err error) {
	defer wire.Caught(&err)
	ctx := context.Background()
	pipe := node.Pipeline()
	for i := range cmds {
		_ = pipe.Process(ctx, &cmds[i][0]) // only queues
	}
	_, err = pipe.Exec(ctx)
	return err
}
