package lane

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/wire"
)

// This file is what a lane owes to its node: clean-ups that have had no answer, and those
// that were answered while the command they undo was still under way. A stopped server,
// when it wakes, executes what lies in its sockets, even from closed connections; so it
// is not enough that a rollback was sent once. It is sent again after the node has
// answered a PING that left later than what the rollback undoes, and until it is answered.
//
// Sending a clean-up twice does no harm: every value is unique, and a clean-up acts only
// on its own value.

const (
	// maxOwed bounds the commands owed to one node. Beyond it the oldest is dropped;
	// the key that it would have removed expires with its ttl. Halved, that comes after
	// half as many locks were released while the node was down.
	maxOwed = 16384

	// owedLife is how long, beyond its ttl, a command is kept for a node that does not
	// answer. The ttl alone is not enough: it runs from the moment when the node executes
	// the command, which a stopped node does when it wakes, and the register that the node
	// then raises would never expire. Values are unique, so a late rollback does no harm.
	owedLife = wire.RegisterLife

	// lookAgain is the pause between rollbacks of a command that was not answered: a
	// rollback that finds nothing may mean that the command is still under way on another
	// connection. Rollbacks are repeated until that connection has answered or failed, and
	// once more. If the pause is halved, a command that a failed connection still delivers
	// may come after the last rollback.
	lookAgain = 500 * time.Millisecond

	// maxBackoffDoublings bounds the pause after repeated error replies: lookAgain doubled
	// four times is 8 s. Halved, a node that refuses everything gets a batch twice as often;
	// doubled, a key stays for twice as long after the node works again.
	maxBackoffDoublings = 4

	// drainTimeout bounds the wait for the answers to one batch of owed commands. Halved, a
	// slow node is sent more of them again.
	drainTimeout = time.Second
)

// An owedCommand is a clean-up that has to be sent again.
type owedCommand struct {
	question      *wire.Question
	since         time.Time // when it became owed: only a PING that left later counts
	until         time.Time // when it is dropped
	due           time.Time // not to be sent before
	mayArriveLate bool      // what it undoes may still be under way: send it again
	lastBatch     uint64    // the last batch that left before it became owed
	tries         int       // error replies since the node last did what it asks
	heals         bool      // the last of them may go away by itself
}

// owedCommands are the commands owed to one node, oldest first. Guarded by Lane.mu.
type owedCommands struct {
	list     []*owedCommand
	restores map[string]int // by value: how many commands in list put it back
	dropped  int            // how many were dropped because of maxOwed
	heldTill time.Time      // the node has refused a whole batch: what was owed when it was sent waits until then
	heldFrom time.Time      // when that batch was sent
}

func (d *owedCommands) len() int { return len(d.list) }

// add appends a command.
func (d *owedCommands) add(one *owedCommand) {
	d.list = append(d.list, one)
	if back := one.question.Back; back != "" {
		if d.restores == nil {
			d.restores = make(map[string]int)
		}
		d.restores[back]++
	}
}

// drop removes the commands for which gone returns true.
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

// payable reports whether there is a command that the node has not refused since it became
// owed or, if patient is set, has refused by an error that may go away by itself.
func (d *owedCommands) payable(patient bool) bool {
	return slices.ContainsFunc(d.list, func(one *owedCommand) bool {
		return (one.tries == 0 || patient && one.heals) && !d.restoreOwed(one.question.Value)
	})
}

// hurry makes all commands that were refused due now, and those that were held back with
// them. One that the node has answered keeps its pause.
func (d *owedCommands) hurry(now time.Time) {
	d.heldTill = time.Time{}
	for _, one := range d.list {
		if one.tries > 0 && one.due.After(now) {
			one.due = now
		}
	}
}

// again has all commands that were refused sent once more, now, as if they had not been.
func (d *owedCommands) again(now time.Time) {
	d.hurry(now)
	for _, one := range d.list {
		one.tries = 0
	}
}

// from returns when a command may be sent: when it is due, or later if a batch was refused since it
// became owed.
func (d *owedCommands) from(one *owedCommand) time.Time {
	if one.due.Before(d.heldTill) && !one.since.After(d.heldFrom) {
		return d.heldTill
	}
	return one.due
}

// restoreOwed reports whether a restore is owed that puts this value back. The release of
// the value waits for it, however often the node refuses the restore. If the release were
// executed first, it would find the value of the failed adoption in place of its own, and
// nothing would remove its own value when the restore puts it back later.
func (d *owedCommands) restoreOwed(value string) bool { return d.restores[value] > 0 }

// releaseOwed reports whether a release or a rollback of this value is owed. On this node
// an adoption of the value counts as missing. If it were sent, it would replace the value,
// the release would find nothing to remove, and if the adoption failed the value would be
// put back and stay.
func (d *owedCommands) releaseOwed(value string) bool {
	return slices.ContainsFunc(d.list, func(one *owedCommand) bool {
		return one.question.Value == value && (one.question.Kind == wire.AskRelease || one.question.Kind == wire.AskRollback)
	})
}

// owe adds the clean-up of a call to what is owed, to be sent no earlier than after the
// pause, and starts the prober. It needs ln.mu.
func (ln *Lane) owe(c *Call, pause time.Duration) {
	if ln.closed {
		return
	}
	c.owed = true
	tries, heals := 0, false
	if rep := &c.Reply; rep.Answer == wire.Unknown && rep.Sent && !rep.Silent { // refused once
		tries, heals, pause = 1, rep.Err.Transient, lookAgain
	}
	now := time.Now()
	if len(ln.owed.list) >= maxOwed {
		oldest := ln.owed.list[0]
		ln.owed.drop(func(d *owedCommand) bool { return d == oldest })
		ln.owed.dropped++
	}
	ln.owed.add(&owedCommand{question: c.Question.Owed(), since: now, until: now.Add(c.Question.TTL + owedLife), due: now.Add(pause), mayArriveLate: c.Residue.Has(Late), lastBatch: ln.batchesSent, tries: tries, heals: heals})
	ln.ensureProbe()
	if now.Add(pause).Before(ln.pauseEnds) {
		ln.wakeProbe()
	}
}

// dueNow returns the owed commands that may be sent now, oldest first and at most one batch:
// those that became owed before the answered PING left, whose pause has passed, and that
// do not wait for a restore. If they are more than a batch, those that were refused least
// often go first: a batch of some that the node never takes would keep back all others. It
// drops those that have expired. It needs ln.mu.
func (ln *Lane) dueNow(pinged, now time.Time) []*owedCommand {
	ln.owed.drop(func(d *owedCommand) bool { return now.After(d.until) })
	var due []*owedCommand
	refused, bytes := false, 0
	for _, d := range ln.owed.list {
		if !d.since.After(pinged) && !ln.owed.from(d).After(now) && !ln.owed.restoreOwed(d.question.Value) {
			due = append(due, d)
			refused = refused || d.tries > 0
			bytes += d.question.Bytes
		}
	}
	if refused && (len(due) > maxBatchCalls || bytes > MaxBatchBytes) {
		slices.SortStableFunc(due, func(a, b *owedCommand) int { return cmp.Compare(a.tries, b.tries) })
	}
	bytes = 0
	for i, d := range due {
		if i == maxBatchCalls || bytes > MaxBatchBytes {
			return due[:i]
		}
		bytes += d.question.Bytes
	}
	return due
}

// nextDue returns how long it is until an owed command may be sent. It needs ln.mu.
func (ln *Lane) nextDue(now time.Time) time.Duration {
	wait := lookAgain << maxBackoffDoublings
	for _, d := range ln.owed.list {
		if !ln.owed.restoreOwed(d.question.Value) { // otherwise it is sent after that restore
			wait = min(wait, ln.owed.from(d).Sub(now))
		}
	}
	return max(wait, 0)
}

// sendDue sends a batch of owed commands and waits for the answers, at most drainTimeout.
// It reports whether the node answered all of them. If it did not in time, the node is
// down again, and the pipeline counts as stuck until the client gives it back.
func (ln *Lane) sendDue(batch []*owedCommand) bool {
	left := time.Now()
	replies := make(chan []wire.Reply)
	gone := make(chan struct{})
	go func() {
		got := sendOwed(ln.Node, batch)
		select {
		case replies <- got:
		case <-gone: // nobody waits for the replies any more: the commands are sent again, which does no harm
			ln.mu.Lock()
			ln.stuck--
			ln.mu.Unlock()
		}
	}()
	limit := time.NewTimer(drainTimeout)
	defer limit.Stop()
	select {
	case got := <-replies:
		return ln.settleOwed(batch, got, left)
	case <-limit.C:
	case <-ln.stopping:
	}
	close(gone)
	ln.mu.Lock()
	ln.stuck++
	ready := ln.markDown(wire.TimeoutError(drainTimeout), nil)
	ln.mu.Unlock()
	defer ln.tell()
	deliver(ready)
	return false
}

// settleOwed removes the commands that were answered and sets when the others are due. left is
// when they were sent. It reports whether the node answered all of them, even by an error.
func (ln *Lane) settleOwed(batch []*owedCommand, got []wire.Reply, left time.Time) (answered bool) {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	now := time.Now()
	answered = true
	paid := make(map[*owedCommand]bool, len(batch))
	refused, most := 0, 0
	for i, d := range batch {
		ln.noteReply(d.question, &got[i])
		switch r := got[i]; {
		case r.Silent || !r.Sent:
			answered = false
		case r.Answer == wire.Unknown: // LOADING, READONLY and the like: at growing intervals
			refused++
			most = max(most, d.tries)
			d.due = now.Add(lookAgain << min(d.tries, maxBackoffDoublings))
			d.tries++
			d.heals = r.Err.Transient
		case d.mayArriveLate: // what it undoes may still come: with its batch, or just after
			d.mayArriveLate = ln.batchUnderway(d.lastBatch)
			d.due = now.Add(lookAgain)
			d.tries, d.heals = 0, false
		default:
			paid[d] = true
		}
	}
	ln.owed.drop(func(d *owedCommand) bool { return paid[d] })
	if refused == len(batch) { // it would refuse the rest as well
		ln.owed.heldFrom, ln.owed.heldTill = left, now.Add(lookAgain<<min(most, maxBackoffDoublings))
	}
	ln.notifyIdle()
	return answered
}

// batchUnderway reports whether any batch up to this number has not returned. It needs
// ln.mu.
func (ln *Lane) batchUnderway(last uint64) bool {
	for _, b := range ln.batches {
		if b.number <= last {
			return true
		}
	}
	return false
}

// sendOwed sends the commands in one pipeline, and those whose script the node does not
// know a second time, as text. It returns a reply for each.
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
