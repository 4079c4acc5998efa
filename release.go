package redlock

import (
	"context"

	"github.com/seed-ce352c9b/redlock/internal/wire"
)

// Release releases the lock: every node removes the value if it is ours, and announces
// the release. All nodes are asked, even those that are believed not to store the lock
// (Redis page, The Redlock Algorithm, step 5). Release first stops KeepAlive and ends its
// contexts. On each node it follows the lock's earlier commands; a node that has not
// answered those is sent the release when it replies again.
//
// Release returns when the outcome is decided. It returns nil if a majority of the nodes
// stored the lock or, before Until, had forgotten it; ErrLost if the lock was not ours any
// more; ErrNoQuorum if too few nodes replied, in which case the remaining keys expire by
// the time in the error. After nil or ErrLost, further calls return the same and send
// nothing; after ErrNoQuorum they ask the silent nodes again. So defer lock.Release(ctx)
// is always right.
//
// A release that was sent before Until and not answered may have been executed. If such a
// node replies after Until that the key is missing or holds another value, it either
// released the lock in time or let it expire, and nobody can tell which: its vote counts
// neither way. The same holds for a node that is asked again before Until and then has
// another value. Unless the other nodes decide, Release returns ErrNoQuorum. Once all nodes
// have replied, further calls return the same and send nothing.
//
// After KeepAlive's contexts ended Options.Grace before Until, Release still frees the
// lock at once, and nil means that it was held until then.
//
// A deferred Release drops its error. Where it matters that the lock was held to the end,
// return Release's error as well, or use Run.
//
// If ctx is already done, Release waits all the same; the node timeout bounds that wait.
// If ctx ends during the wait, Release returns its error, and the release goes on in the
// background.
func (k *Lock) Release(ctx context.Context) (err error) {
	if k.acquired(); ctx == nil {
		panic("redlock: Release with a nil ctx: pass context.Background(), or a context with a deadline")
	}
	var traced *tracedCall
	if !k.isFinal() { // else nothing is sent
		started := false
		defer func() {
			if !started { // Trace.Start panics: release all the same
				k.beginRelease(context.Background(), nil)
			}
		}()
		ctx, traced = k.l.traceCall(ctx, "Release", k.name.Key, 0, k)
		started = true
		err = ErrPanicked // until it returns
		defer func() { traced.end(nil, nil, err) }()
	}
	asked := k.beginRelease(ctx, nil)
	if asked == nil {
		k.mu.Lock()
		defer k.mu.Unlock()
		return k.result
	}
	var ended <-chan struct{}
	if ctx.Err() == nil {
		ended = ctx.Done()
	}
	select {
	case <-asked.done:
	case <-ended:
		select {
		case <-asked.done:
		default:
			return k.l.ended(ctx, &acquireCall{op: OpRelease, name: k.name, began: asked.start, attempt: 1, last: &QuorumError{Round: asked.round(), Err: ErrNoQuorum}})
		}
	}
	return k.released(asked)
}

// beginRelease sends the release, or returns the one in progress. It returns nil if the
// lock's state is final. cause ends KeepAlive's contexts. ctx is only for Trace.Round.
func (k *Lock) beginRelease(ctx context.Context, cause error) *quorumCall {
	if k.l.begin() {
		defer k.l.end()
	}
	k.mu.Lock()
	switch k.state {
	case stateReleased, stateLost:
		k.mu.Unlock()
		return nil
	case stateReleasing:
		if again := k.release; again != nil {
			t, _, _ := again.result()
			if silent, _ := again.unclear(); !again.IsOver() || t.extension() != inconclusive || silent == 0 {
				k.mu.Unlock()
				return again
			}
		}
	case stateHeld:
		k.releasedInTime = k.remaining(k.l.now()) > 0
	}
	earlier := k.release // a release that too few nodes answered, or nil
	k.state = stateReleasing
	ended := k.endKeepAlives()
	// The clean-up is registered before the lock is handed over: if the waiter has just
	// given up, the rollback of its attempt has to follow the release, not precede it. Its
	// question is complete after that.
	b := k.l.newCleanup(OpRelease, k.name, wire.Question{Kind: wire.AskRelease, Value: k.value, TTL: k.ttl}, &k.left,
		func(t tally) bool { return t.extension() != extendPending })
	tell, place := wire.NotifyCount, ""
	var next *quorumCall
	if cause == nil && earlier == nil {
		if next, place = k.l.queues.handOver(k); next != nil {
			tell, k.quiet = 0, true
		}
	}
	b.ask(wire.ReleaseQuestion(k.name, k.value, k.ttl, tell, place))
	asked, again := k.releasedInTime, earlier != nil
	b.countAs = func(missing bool) wire.Answer { return notOurs(missing, k.remaining(k.l.now()) > 0, asked, again) } // Until does not move any more
	b.lastForLock = true
	b.then = func() { k.released(b) }
	if t := &k.l.opt.Trace; t.Round != nil || t.Event != nil {
		end := k.ending(EventReleased, nil)
		b.then = func() { k.tellReleased(ctx, b, end) }
	}
	prev := k.last
	k.release = b
	k.follow(b)
	k.mu.Unlock()
	k.l.removeHeld(k)
	ended.cancel(cause)
	if next != nil {
		defer k.l.queues.wakeUp(next)
	}
	b.sendRelease(earlier, next, prev)
	return b
}

// isFinal reports whether a release would send nothing.
func (k *Lock) isFinal() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.state == stateReleased || k.state == stateLost
}

// tellReleased reports a decided release, and the end of the lock if end has a kind.
func (k *Lock) tellReleased(ctx context.Context, b *quorumCall, end Event) {
	end.Err = k.released(b) // before the callbacks, which may panic
	defer k.l.reportEnd(end)
	k.l.observe(ctx, b, nil)
}

// released returns the result of a decided release. It is final unless too few nodes
// replied.
func (k *Lock) released(b *quorumCall) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.state == stateReleased {
		return k.result
	}
	t, _, _ := b.result()
	switch t.extension() {
	case extended:
		k.state, k.result = stateReleased, nil
		k.l.queues.released(k.name, k.quiet)
	case extensionLost:
		k.state, k.result = stateReleased, &QuorumError{Round: b.round(), Err: ErrLost}
	default:
		return &QuorumError{Round: b.round(), Err: ErrNoQuorum, hint: k.unreleased(b)}
	}
	return k.result
}

// unreleased returns the hint of a release that too few nodes answered.
func (k *Lock) unreleased(b *quorumCall) (hint string) {
	silent, late := b.unclear()
	if late > 0 {
		hint = "nodes that no longer hold it released it in time or let it expire"
	}
	if silent > 0 {
		if hint != "" {
			hint += ", "
		}
		expires := b.start.at.Add(k.ttl + driftOf(k.ttl, k.l.opt.Drift) + expiryGrain)
		hint += "any remaining key expires by " + expires.Format("15:04:05.000")
	}
	return hint
}
