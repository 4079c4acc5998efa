package redlock

import (
	"context"

	"github.com/seed-ce352c9b/redlock/internal/wire"
)

// Release gives the lock back: on every node the value is removed if it is ours,
// and the release announced (Redis page, step 5: also where it is believed not to
// be). A renewal by KeepAlive is stopped first, and its contexts end. To each node
// the release goes after what was asked there before; a node that has not answered
// that is owed the release, and gets it when it answers again.
//
// It returns when the outcome is decided: nil if a majority had the lock, or, before
// Until, had it or had forgotten it; ErrLost if the lock was not ours any more;
// ErrNoQuorum if too few nodes answered, then what is left expires on the nodes by
// the time that the error names. After nil or ErrLost every further call returns the
// same and sends nothing; after ErrNoQuorum it asks the silent nodes again. So
// `defer lock.Release(ctx)` is always right.
//
// A release that was sent before Until and not answered may have been executed. If
// such a node says after Until that the key is gone, or another's, it was released in
// time or has expired, and nobody can tell which: the node counts neither way, and so does
// one that has another's value before Until when it is asked again. Release returns
// ErrNoQuorum unless the other nodes decide it. Once all have answered,
// further calls return the same and send nothing.
//
// After the contexts of KeepAlive ended Options.Grace before Until this is a release like
// any other: it frees the lock at once, and nil says that it was held until then.
//
// A deferred Release drops its error: where it matters that the lock was held until
// the end, return Release's error as well, or use Run.
//
// A ctx that is done already does not shorten the wait, which the node timeout
// bounds; one that ends during it does, with its error, and the release goes on.
func (k *Lock) Release(ctx context.Context) error {
	if k.acquired(); ctx == nil {
		panic("redlock: Release with a nil ctx: pass context.Background(), or a context with a deadline")
	}
	asked := k.beginRelease(nil)
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

// beginRelease sends the release, or joins the one under way; nil: it is over for
// good. cause ends KeepAlive's contexts.
func (k *Lock) beginRelease(cause error) *quorumCall {
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
	earlier := k.release // a release that too few answered
	k.state = stateReleasing
	ended := k.endKeepAlives()
	// The clean-up is noted before anything is handed over: the rollback of what is handed
	// to a waiter that has just given up must go after it, and not it after that.
	b := k.l.newCleanup(OpRelease, k.name, wire.ReleaseQuestion(k.name, k.value, k.ttl, wire.NotifyCount, ""), k.mayHold|k.raised, k.mayArriveLate,
		func(t tally) bool { return t.extension() != extendPending })
	tell, place := wire.NotifyCount, ""
	var next *quorumCall
	if cause == nil && earlier == nil {
		if next, place = k.l.queues.handOver(k); next != nil {
			tell, k.quiet = 0, true
		}
	}
	if tell != wire.NotifyCount || place != "" {
		patience := b.q.Patience
		b.q = wire.ReleaseQuestion(k.name, k.value, k.ttl, tell, place)
		b.q.Patience = patience
	}
	asked, again := k.releasedInTime, earlier != nil
	b.countMissing = func(missing bool) wire.Answer { return notOurs(missing, k.remaining(k.l.now()) > 0, asked, again) } // Until does not move any more
	b.lastForLock = true
	b.then = func() {
		defer k.released(b)
		k.l.observe(b, nil)
	}
	prev := k.last
	k.release = b
	k.follow(b)
	k.mu.Unlock()
	k.l.removeHeld(k)
	ended.cancel(cause)
	if next != nil {
		defer k.l.queues.wakeUp(next)
		b.sendBoth(next, prev)
		return b
	}
	b.sendAgain(earlier, prev)
	return b
}

// released is the outcome of a decided release. It is final unless too few answered.
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

// unreleased says what becomes of a lock whose release too few nodes answered.
func (k *Lock) unreleased(b *quorumCall) (hint string) {
	silent, late := b.unclear()
	if late > 0 {
		hint = "where it is gone it was released in time or has expired"
	}
	if silent > 0 {
		if hint != "" {
			hint += ", "
		}
		expires := b.start.at.Add(k.ttl + driftOf(k.ttl, k.l.opt.Drift) + expiryGrain)
		hint += "what is left expires by " + expires.Format("15:04:05.000")
	}
	return hint
}

// LeaveToExpire gives the lock out of hand without releasing it: it stays on the
// nodes until its ttl is over, and Close does not release it either. This is for what
// may happen once per interval: the lock's ttl is the interval. KeepAlive's contexts
// end; Release then returns nil and sends nothing, Valid is false. A Run whose fn calls it
// counts the lock as held to the end. Where the lock was released or lost before, it does
// nothing. A lock that is past its Until cannot be left: it is lost then, and Release
// returns ErrLost.
func (k *Lock) LeaveToExpire() {
	if k.acquired().l.begin() {
		defer k.l.end()
	}
	k.mu.Lock()
	if k.state != stateHeld {
		k.mu.Unlock()
		return
	}
	if k.remaining(k.l.now()) <= 0 {
		after := k.lose(nil)
		k.mu.Unlock()
		after()
		return
	}
	k.state, k.abandoned = stateReleased, true
	ended := k.endKeepAlives()
	k.mu.Unlock()
	k.l.removeHeld(k)
	ended.cancel(nil)
	k.setRegisterTTL() // nobody else gives the registers a life
}
