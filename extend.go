package redlock

import (
	"context"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/clock"
	"github.com/seed-ce352c9b/redlock/internal/lane"
	"github.com/seed-ce352c9b/redlock/internal/quorum"
	"github.com/seed-ce352c9b/redlock/internal/wire"
)

// An extending is an extension in progress; a lock has at most one.
type extending struct {
	b     *quorum.Call
	leave bool // it is LeaveUntil's: with its result the lock is given up
	done  chan struct{}
	err   error // once done
}

// A failedExtension records an extension that did not renew the lock.
type failedExtension struct {
	b   *quorum.Call // nil if there is none
	why string
}

// open returns how many nodes have not replied so far. Those whose votes came after the verdict have.
func (f *failedExtension) open() (n int) {
	f.b.Read(func(_ []lane.Call, t quorum.Tally, _ time.Duration) { n = t.Open() })
	return n
}

// failedExtensions are those since Until moved. Only two are kept: when nodes are down, an
// extension fails at once, while the votes of the others are on their way. So the last one before
// the end may show a node as pending that has replied all the time.
type failedExtensions struct {
	n       int
	last    failedExtension
	settled failedExtension // the last of those that most nodes had answered when the next one failed
}

func (fs *failedExtensions) add(b *quorum.Call, why string) {
	if fs.last.b != nil {
		fs.settled = fs.tells()
	}
	fs.last = failedExtension{b, why}
	fs.n++
}

// tells returns the one whose votes say most, and of several such the last.
func (fs *failedExtensions) tells() failedExtension {
	if fs.settled.b != nil && fs.settled.open() < fs.last.open() {
		return fs.settled
	}
	return fs.last
}

// Extend renews the lock's ttl, counted from when the extension begins.
//
// It asks all nodes. The lock is extended if a majority replies before Until that they
// still store our value (Redis page, Making the algorithm more reliable: extending the
// lock). Nodes that have forgotten the value get it back. Concurrent calls share extensions.
//
// Extend returns nil if Until has moved forward. It returns a *QuorumError with ErrLost if
// the lock is lost for good, because too many nodes store another value or none, or
// because Until passed; our remaining keys are then removed in the background, and if
// Until passed, the error has the votes of the last extension that failed. With
// ErrNoQuorum, too few nodes replied, and the lock is still held until the old Until. If
// ctx ends the wait, Extend returns its error, and the extension goes on and may still
// succeed. On a closed Locker, it returns ErrClosed.
func (k *Lock) Extend(ctx context.Context) (err error) {
	k.acquired().l.check(ctx)
	ctx, traced := k.l.traceCall(ctx, Call{Method: "Extend", Key: k.name.Key, Lock: k})
	err = ErrPanicked // until it returns
	defer func() { traced.end(nil, err) }()
	if err := k.l.admit(OpExtend, k.name.Key); err != nil {
		return err
	}
	asked := k.l.now()
	for {
		if ctx.Err() != nil {
			return k.l.ended(ctx, &acquireCall{op: OpExtend, name: k.name, began: k.l.now()})
		}
		x, mine, err := k.beginExtend(ctx, time.Time{}, nil)
		if err != nil {
			return err
		}
		counts := mine || x.b.Start.At.After(asked.At) // else it is another caller's, which began before this call
		select {
		case <-x.done:
			if counts {
				return x.err
			}
		case <-k.l.closing:
			return ErrClosed
		case <-ctx.Done():
			if counts && k.isDecided(x) { // and may have ended ctx, if that is KeepAlive's
				<-x.done
				return x.err
			}
			return k.l.ended(ctx, &acquireCall{op: OpExtend, name: k.name, began: x.b.Start, attempt: 1, last: &QuorumError{Round: roundOf(x.b), Err: ErrNoQuorum}})
		}
	}
}

// isDecided reports whether the result of an extension has been applied. Its done is closed
// then, or is about to be.
func (k *Lock) isDecided(x *extending) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.ext != x
}

// beginExtend sends an extension and calls then with its result. If one is in progress,
// it returns that one instead, mine is false, and then is not called. ctx is only for
// Trace.Round.
//
// Unless leave is zero, the extension is as long as the key is to stay until then, and the
// lock is given up: with the result, or at once if it needs no extension. x is nil then.
func (k *Lock) beginExtend(ctx context.Context, leave time.Time, then func(error)) (x *extending, mine bool, err error) {
	if !k.l.begin() {
		return nil, false, ErrClosed
	}
	defer k.l.end()
	k.mu.Lock()
	if k.ext != nil && k.state == stateHeld {
		defer k.mu.Unlock()
		return k.ext, false, nil
	}
	now := k.l.now()
	ttl := k.ttl
	var after func()
	switch {
	case k.state == stateLost || k.state == stateReleased && k.result != nil:
		err = k.result
	case k.state != stateHeld && k.abandoned && k.release == nil && k.stays(leave, now):
	case k.state != stateHeld:
		err = &QuorumError{Round: Round{Op: OpExtend, Key: k.name.Key}, Err: ErrLost, hint: "it was released"}
	case k.remaining(now) <= 0:
		after = k.lose(nil)
		err = k.result
	case k.lossTold != nil:
		err = k.lossTold
		if !leave.IsZero() {
			after = k.leave()
		}
	case k.stays(leave, now):
		after = k.leave()
	case !leave.IsZero():
		ttl, err = k.ttlUntil(leave, now)
	}
	if err != nil || k.state != stateHeld {
		k.mu.Unlock()
		if after != nil {
			after()
		}
		return nil, false, err
	}
	b := k.l.newQuorumCall(OpExtend, k.name, wire.ExtendQuestion(k.name, *k.value, ttl, k.fence), now, func(t quorum.Tally) bool { return ownershipOf(t) != ownershipPending })
	b.Question.Patience = k.l.patience(k.ttl) // the lock's, also where LeaveUntil stores a longer ttl
	b.Inherit(&k.left)
	if leave.IsZero() && ttl+k.raiseAgain() <= k.name.Life.Slack() { // else the register might outlive the lock by too little
		raised := k.raisedRegisters(now) & k.last.SaidYes()
		for i := range b.Calls {
			b.Calls[i].RegisterKnown = raised.Has(i)
		}
	}
	x = &extending{b: b, leave: !leave.IsZero(), done: make(chan struct{})}
	b.Then = func() { k.extended(context.Background(), x, then) }
	if k.l.opt.Trace.Round != nil {
		b.Then = func() { k.extended(ctx, x, then) }
	}
	b.Late = func(c *lane.Call) { k.heal(b, c) }
	prev := k.last
	restoring := k.l.cleanups.Restoring(k.name)
	k.ext = x
	k.follow(b)
	k.mu.Unlock()
	b.Send(prev, restoring)
	return x, true, nil
}

// extended applies the result of a decided extension to the lock, reports it, and calls
// then, if it is not nil.
func (k *Lock) extended(ctx context.Context, x *extending, then func(error)) {
	b := x.b
	t, _, _ := b.Result()
	var after func()
	k.mu.Lock()
	left, contexts := k.remaining(k.l.now()), keepAliveCtxs(k.keepAlives)
	switch {
	case k.state == stateLost || k.state == stateReleased && k.result != nil:
		x.err = k.result
	case k.state != stateHeld:
		x.err = &QuorumError{Round: roundOf(b), Err: ErrLost, hint: "it was released meanwhile"}
	case left <= 0:
		// Also where a majority still stores our value: between the old Until and the
		// reply the key may have expired, been acquired by another and released.
		if ownershipOf(t) == stillOurs {
			k.failed = failedExtensions{}
			k.failed.add(b, "was answered too late")
		} else {
			k.failed.add(b, "got no majority")
		}
		after = k.lose(nil)
		x.err = k.result
	case k.lossTold != nil && ownershipOf(t) != ownershipLost:
		x.err = k.lossTold // too late: the contexts have ended
	case ownershipOf(t) == stillOurs:
		k.renewed += b.Start.At.Sub(k.start.At)
		k.start, k.valid = b.Start, validity(b.Question.TTL, k.l.opt.Drift) // later than before, since b began later
		k.failed = failedExtensions{}
	case ownershipOf(t) == ownershipLost:
		after = k.lose(b)
		x.err = k.result
	default:
		k.failed.add(b, "got no majority")
		until := k.start.At.Add(k.valid)
		x.err = &QuorumError{Round: roundOf(b), Err: ErrNoQuorum, hint: "still held until " + until.Format("15:04:05.000")}
		if x.leave {
			x.err.(*QuorumError).hint = "left: a majority keeps it until " + until.Format("15:04:05.000") + ", perhaps no longer"
		}
	}
	var cause error
	if k.state == stateLost {
		cause = k.result
	}
	if x.leave && k.state == stateHeld {
		after = k.leave()
	}
	k.ext = nil
	k.mu.Unlock()
	if after != nil {
		contexts.cancel(cause) // before the callbacks below, which may block, and before the call returns
	}
	close(x.done)
	defer func() { // also if the user's Trace panics
		if after != nil {
			after()
		}
		if x.err == nil {
			for i := range b.Calls {
				k.heal(b, &b.Calls[i])
			}
		}
		if then != nil {
			then(x.err)
		}
	}()
	k.l.observe(ctx, b, nil)
	k.l.event(Event{Kind: EventRenewed, Lock: k, Err: x.err, Left: left})
}

// heal stores the value again on a node that has forgotten it. If a majority of this
// round still stores our value, nobody else can have held the lock since, unless I1 was
// already broken; and SET NX overwrites nothing. The node counts from the next round on,
// since it could have granted the lock to another meanwhile.
func (k *Lock) heal(b *quorum.Call, c *lane.Call) {
	k.mu.Lock()
	var h *lane.Call
	// After the end of the lock, or after a later question, the value would be stored
	// out of order, and nothing would remove it.
	if k.state == stateHeld && k.last == b && k.remaining(k.l.now()) > 0 {
		if b.MayHeal(c) {
			h = b.Heal(c)
		}
	}
	k.mu.Unlock()
	if h != nil {
		h.Lane.Ask(h, c)
	}
}

// A keepAliveCtx is one context of KeepAlive.
type keepAliveCtx struct {
	held   context.Context
	cancel context.CancelCauseFunc
}

type keepAliveCtxs []*keepAliveCtx

// cancel ends the contexts; a nil cause is that of their own stop.
func (vs keepAliveCtxs) cancel(cause error) {
	for _, v := range vs {
		v.cancel(cause)
	}
}

// KeepAlive renews the lock after a third of (its validity less Options.Grace), until stop is
// called, ctx is done, or the lock is released or lost. The first renewal comes earlier, after a
// random half to all of that time. A renewal that too few nodes answer is repeated while the lock
// is valid. stop ends the renewal, not the lock, and may be called more than once. Locks are kept
// alive by timers, not by goroutines of their own.
//
// The context that KeepAlive returns ends when the renewal does. If the lock is lost, its
// cause (context.Cause) is ErrLost, with the votes of the last renewal that failed, and it
// ends no later than Until, even if no node replies any more and even if an extension
// hangs; if the process or the machine slept past Until, it ends within a second of waking.
// If the Locker is closed, the cause is ErrClosed.
//
// With Options.Grace the context of a lock that could not be renewed ends that much before
// Until. It is not renewed any more, but held and Valid until Until, unless Release frees it.
//
// Calls with that context are made under the lock: while it is held, acquiring the same key
// with the same Locker fails with ErrNested, since only its holder could end that wait.
func (k *Lock) KeepAlive(ctx context.Context) (held context.Context, stop context.CancelFunc) {
	k.acquired().l.check(ctx)
	if err := k.l.admit(OpExtend, k.name.Key); err != nil {
		ctx = context.WithoutCancel(ctx) // or its own end might become the cause
		held, cancel := context.WithCancelCause(ctx)
		cancel(err)
		return held, func() {}
	}
	held, cancel := context.WithCancelCause(k.under(ctx))
	v := &keepAliveCtx{held: held, cancel: cancel}
	k.mu.Lock()
	var after func()
	now := k.l.now()
	if k.state == stateHeld && k.remaining(now) <= 0 {
		after = k.lose(nil)
	}
	var end error
	switch {
	case k.state == stateLost || k.state == stateReleased && k.result != nil:
		end = k.result
	case k.state == stateHeld && k.lossTold != nil:
		end = k.lossTold
	case k.state != stateHeld:
		end = errReleased
		if k.l.isClosed() {
			end = ErrClosed
		}
	default:
		k.keepAlives = append(k.keepAlives, v)
		if len(k.keepAlives) == 1 {
			gone := now.Since(k.start)
			k.renew = restart(k.renew, firstRenewAfter(k.window(), k.l.rand.Float())-gone, k.renewNow)
			k.loss = restart(k.loss, k.remaining(now)-noticeOf(k.valid, k.l.opt.Grace), k.checkLoss)
		}
	}
	k.mu.Unlock()
	if after != nil {
		after()
	}
	if end != nil {
		cancel(end)
	}
	return held, func() {
		cancel(nil)
		k.dropKeepAlives()
	}
}

// KeepAlive keeps all locks alive. The context ends when any of them is lost or released.
func (ks Locks) KeepAlive(ctx context.Context) (held context.Context, stop context.CancelFunc) {
	ks = ks.distinct()
	stops := make([]context.CancelFunc, len(ks))
	for i, k := range ks {
		ctx, stops[i] = k.KeepAlive(ctx)
	}
	return ctx, func() {
		for _, stop := range stops {
			stop()
		}
	}
}

// restart resets a timer, or starts it if it is nil.
func restart(t *time.Timer, d time.Duration, f func()) *time.Timer {
	d = max(d, 0)
	if t == nil {
		return time.AfterFunc(d, f)
	}
	t.Reset(d)
	return t
}

// endKeepAlives takes the contexts off the lock, for the caller to cancel after unlocking,
// and stops their timers. Needs k.mu.
func (k *Lock) endKeepAlives() keepAliveCtxs {
	vs := k.keepAlives
	k.keepAlives = nil
	if k.renew != nil {
		k.renew.Stop()
		k.loss.Stop()
	}
	return vs
}

// endKeepAlive ends the contexts and the renewal, not the lock.
func (k *Lock) endKeepAlive(cause error) {
	k.mu.Lock()
	ended := k.endKeepAlives()
	k.mu.Unlock()
	ended.cancel(cause)
}

// dropKeepAlives forgets contexts that have ended, and stops the timers with the last one.
// It returns how many are left.
func (k *Lock) dropKeepAlives() (left int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.keepAlives) == 0 {
		return 0 // the loss timer may still run, for Options.Grace
	}
	var keep []*keepAliveCtx
	for _, v := range k.keepAlives {
		if v.held.Err() == nil {
			keep = append(keep, v)
		}
	}
	if k.keepAlives = keep; len(keep) == 0 {
		k.endKeepAlives()
	}
	return len(keep)
}

// renewNow is called by the renew timer. It sends an extension and does not wait for it.
func (k *Lock) renewNow() {
	if k.dropKeepAlives() == 0 {
		return
	}
	_, mine, err := k.beginExtend(context.Background(), time.Time{}, k.renewAgain)
	if err == nil && !mine { // the holder's own Extend is under way
		k.renewIn(k.again)
	}
}

// renewAgain restarts the renew timer after an extension.
func (k *Lock) renewAgain(err error) {
	k.renewIn(func(now clock.Instant) time.Duration {
		if err == nil {
			return renewAfter(k.window(), k.l.rand.Float()) - now.Since(k.start)
		}
		return k.again(now)
	})
}

// window returns how long after start the lock's contexts end unless it is renewed. Needs
// k.mu.
func (k *Lock) window() time.Duration { return window(k.valid, k.l.opt.Grace) }

// again returns the pause before the next renewal after one that failed. Needs k.mu.
func (k *Lock) again(now clock.Instant) time.Duration {
	return renewAgainAfter(window(k.remaining(now), k.l.opt.Grace), k.l.rand.Float())
}

func (k *Lock) renewIn(pause func(now clock.Instant) time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.state == stateHeld && len(k.keepAlives) > 0 {
		k.renew = restart(k.renew, pause(k.l.now()), k.renewNow)
	}
}

// checkLoss is called by the loss timer, which alone decides that time is up and depends
// on nothing that can hang. An extension only moves Until, and the timer notices when it
// fires. With Options.Grace it fires twice: first the contexts end, then the lock.
func (k *Lock) checkLoss() {
	if k.l.begin() {
		defer k.l.end()
	}
	k.mu.Lock()
	var after func()
	if k.state == stateHeld && (len(k.keepAlives) > 0 || k.lossTold != nil) {
		left, lead := k.remaining(k.l.now()), leadOf(k.valid)
		notice := noticeOf(k.valid, k.l.opt.Grace)
		if k.lossTold != nil {
			notice = lead
		}
		switch {
		case left <= lead:
			after = k.lose(nil)
		case left <= notice:
			after = k.warn()
			notice = lead
		}
		if k.state == stateHeld {
			k.loss = restart(k.loss, left-notice, k.checkLoss)
		}
	}
	k.mu.Unlock()
	if after != nil {
		after()
	}
}
