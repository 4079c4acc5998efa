package redlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/clock"
	"github.com/seed-ce352c9b/redlock/internal/lane"
	"github.com/seed-ce352c9b/redlock/internal/quorum"
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
// the time in the error, or when they would have expired without Adopt, which shortens no
// ttl. After nil or ErrLost, further calls return the same and send
// nothing; after ErrNoQuorum they ask the silent nodes again. So defer lock.Release(ctx)
// is right unless the lock is handed to another process (see Adopt).
//
// A release that was sent before Until may have been executed by a node that did not reply. If
// that node replies after Until that the key is missing or holds another value, it either
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
func (k *Lock) Release(ctx context.Context) error {
	k.checkRelease(ctx)
	var r releaseCall
	defer func() { r.end() }()
	r.start(ctx, k)
	r.wait(endOf(ctx))
	return r.err
}

// checkRelease panics for programming errors.
func (k *Lock) checkRelease(ctx context.Context) {
	if k.acquired(); ctx == nil {
		panic("redlock: Release with a nil ctx: pass context.Background(), or a context with a deadline")
	}
}

// A releaseCall is a call of Release: start, wait, and in any case end.
type releaseCall struct {
	k      *Lock
	ctx    context.Context
	traced *tracedCall
	asked  *quorum.Call // nil if the lock's state was final
	err    error
}

// start sends the release, even if Trace.Start panics.
func (r *releaseCall) start(ctx context.Context, k *Lock) {
	r.k, r.ctx, r.err = k, ctx, ErrPanicked // until wait returns
	defer func() { r.asked = k.beginRelease(r.ctx, nil) }()
	if !k.isFinal() { // else nothing is sent
		r.ctx, r.traced = k.l.traceCall(ctx, Call{Method: "Release", Key: k.name.Key, Lock: k})
	}
}

// endOf returns the channel that ends the wait for releases that were started. It is nil if ctx
// is done already, maybe by these releases, if it is KeepAlive's.
func endOf(ctx context.Context) <-chan struct{} {
	if ctx.Err() != nil {
		return nil
	}
	return ctx.Done()
}

// wait sets err once the release is decided, or ctx has ended.
func (r *releaseCall) wait(ended <-chan struct{}) {
	if r.asked == nil {
		r.k.mu.Lock()
		defer r.k.mu.Unlock()
		r.err = r.k.result
		return
	}
	select {
	case <-r.asked.Done():
	case <-ended:
		if !isDone(r.asked.Done()) {
			r.err = r.k.l.ended(r.ctx, &acquireCall{op: OpRelease, name: r.k.name, began: r.asked.Start, attempt: 1, last: &QuorumError{Round: roundOf(r.asked), Err: ErrNoQuorum}})
			return
		}
	}
	r.err = r.k.released(r.asked)
}

// end calls Trace.End, if start has called Trace.Start.
func (r *releaseCall) end() { r.traced.end(nil, r.err) }

// Release releases all locks at once, whatever becomes of each, and joins the errors. To a
// Trace it is one Release of each lock.
func (ks Locks) Release(ctx context.Context) error {
	var errs []error
	for _, r := range ks.release(ctx) {
		errs = append(errs, r.err)
	}
	return errors.Join(errs...)
}

// release sends all releases before it waits for any. A caller of AcquireAll waits for the
// first of its keys that is held: with the last one released first, the others are free then.
// If a callback panics, the others are released all the same, and their calls end.
func (ks Locks) release(ctx context.Context) []releaseCall {
	ks = ks.distinct()
	for _, k := range ks {
		k.checkRelease(ctx)
	}
	calls := make([]releaseCall, len(ks))
	back := ks.fromLast()
	defer func() {
		ended := endOf(ctx)
		lane.Each(0, len(ks), func(i int) {
			defer calls[i].end()
			calls[i].wait(ended)
		})
	}()
	lane.Each(0, len(ks), func(i int) { calls[back[i]].start(ctx, ks[back[i]]) })
	return calls
}

// fromLast returns the indexes of the locks in the reverse order of their keys.
func (ks Locks) fromLast() []int {
	back := make([]int, len(ks))
	for i := range back {
		back[i] = i
	}
	slices.SortFunc(back, func(i, j int) int { return cmp.Compare(ks[j].name.Full, ks[i].name.Full) })
	return back
}

// beginRelease sends the release, or returns the one in progress. It returns nil if the
// lock's state is final. cause ends KeepAlive's contexts. ctx is only for Trace.Round.
func (k *Lock) beginRelease(ctx context.Context, cause error) *quorum.Call {
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
			t, _, _ := again.Result()
			if silent, _ := again.Unclear(); !again.IsOver() || ownershipOf(t) != inconclusive || silent == 0 {
				k.mu.Unlock()
				return again
			}
		}
	case stateHeld:
		k.releaseSentInTime = k.remaining(k.l.now()) > 0
	}
	earlier := k.release // a release that too few nodes answered, or nil
	k.state = stateReleasing
	ended := k.endKeepAlives()
	// The clean-up is registered before the lock is handed over: if the waiter has just
	// given up, the rollback of its attempt has to follow the release, not precede it.
	// SetQuestion completes its question below.
	b := k.l.newCleanup(OpRelease, k.name, wire.Question{Kind: wire.AskRelease, Value: *k.value, TTL: k.ttl}, &k.left,
		func(t quorum.Tally) bool { return ownershipOf(t) != ownershipPending })
	var next *quorum.Call
	n := wire.ToAll
	if cause == nil && earlier == nil {
		next, n = k.l.handOver(k, b)
	}
	b.SetQuestion(wire.ReleaseQuestion(k.name, *k.value, k.ttl, n))
	asked, again := k.releaseSentInTime, earlier != nil
	b.CountAs = func(missing bool) wire.Answer { return notOurs(missing, k.remaining(k.l.now()) > 0, asked, again) } // Until does not move any more
	b.LastForLock = true
	b.Then = func() { k.released(b) }
	if t := &k.l.opt.Trace; t.Round != nil || t.Event != nil {
		end := k.ending(EventReleased, nil)
		b.Then = func() { k.tellReleased(ctx, b, end) }
	}
	prev := k.last
	k.release = b
	k.follow(b)
	k.mu.Unlock()
	k.l.held.Remove(k)
	ended.cancel(cause)
	if next != nil {
		defer k.l.queues.WakeHead(k.name)
	}
	b.SendRelease(earlier, next, prev)
	return b
}

// isFinal reports whether a release would send nothing.
func (k *Lock) isFinal() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.state == stateReleased || k.state == stateLost
}

// tellReleased reports a decided release, and the end of the lock if end has a kind.
func (k *Lock) tellReleased(ctx context.Context, b *quorum.Call, end Event) {
	end.Err = k.released(b) // before the callbacks, which may panic
	defer k.l.reportEnd(end)
	k.l.observe(ctx, b, nil)
}

// released returns the result of a release that is decided, or that Close no longer waits for.
// It is final unless too few nodes replied.
func (k *Lock) released(b *quorum.Call) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.state == stateReleased {
		return k.result
	}
	t, _, _ := b.Result()
	switch ownershipOf(t) {
	case stillOurs:
		k.state, k.result = stateReleased, nil
		k.l.queues.Released(b)
	case ownershipLost:
		k.state, k.result = stateReleased, &QuorumError{Round: roundOf(b), Err: ErrLost}
	default:
		return &QuorumError{Round: roundOf(b), Err: ErrNoQuorum, hint: k.unreleased(b)}
	}
	return k.result
}

// unreleased returns the hint of a release that too few nodes answered.
func (k *Lock) unreleased(b *quorum.Call) (hint string) {
	silent, late := b.Unclear()
	if late > 0 {
		hint = "nodes that no longer hold it released it in time or let it expire"
	}
	if silent > 0 {
		if hint != "" {
			hint += ", "
		}
		ttl := max(k.ttl, k.stayTTL)
		expires := b.Start.At.Add(ttl + driftOf(ttl, k.l.opt.Drift) + expiryGrain)
		hint += "any remaining key expires by " + expires.Format("15:04:05.000")
		if k.adopted {
			hint += ", unless it was to live longer when it was adopted"
		}
	}
	return hint
}

// undo removes in the background what a quorum call may have stored. On each node it
// follows that call.
func (l *Locker) undo(last *quorum.Call, q wire.Question) {
	// Finished is asked before left: otherwise a yes between the two would be missed.
	if !q.Handed() && last.Finished() {
		if left := last.Left(); left.Any(lane.Holds) == 0 {
			return
		}
	}
	b := l.newCleanup(OpRollback, last.Name, q, new(lane.Residues), allAnswered)
	b.Then = func() { l.observe(context.Background(), b, nil) }
	b.Send(last)
}

func allAnswered(t quorum.Tally) bool { return t.Open() == 0 }

// newCleanup prepares a rollback, a release or a restore. left has what finished calls may
// have left on the nodes.
func (l *Locker) newCleanup(op Op, name *wire.LockKey, q wire.Question, left *lane.Residues, decided func(quorum.Tally) bool) *quorum.Call {
	b := l.newQuorumCall(op, name, q, l.now(), decided)
	if q.Kind == wire.AskRelease || q.Kind == wire.AskRollback {
		var known lane.Nodes
		known, b.Looked = l.registers.Releasing(name, q.TTL, b)
		for i := range b.Calls {
			b.Calls[i].RegisterKnown = known.Has(i)
		}
	}
	l.cleanups.Add(b, left)
	return b
}

// LeaveUntil gives the lock up without releasing it: its key stays on a majority of the
// nodes at least until t, even if this process exits, and Close leaves it there. Use it for
// what may happen once per interval: t is then some time before the next one begins.
//
// If Until is before t, LeaveUntil extends the lock once, by as much as t needs; Until then
// says how long the key stays at least. It never shortens: if Until is t or later, it extends
// nothing, and the key stays until its ttl ends. On nodes whose clocks are slow it stays
// longer, by up to Options.Drift of the time until t. If t has passed, LeaveUntil releases
// the lock and returns Release's error.
//
// KeepAlive's contexts end, Valid becomes false, and Release returns nil and sends nothing.
// A Run whose fn calls LeaveUntil counts the lock as held to the end.
//
// The error says what is known if the key may not stay until t. It is a *QuorumError with
// ErrNoQuorum, and the votes, if too few nodes replied to the extension: the key stays until
// the Until that the lock had, and perhaps until t. With ErrLost the lock was lost or
// released before, or Options.Grace had ended its contexts: then the key stays until Until.
// If ctx ends the wait, LeaveUntil returns its error, and the extension goes on, unless it was
// waiting for a renewal in progress, after which it would have been sent: then the key stays
// for no longer than the renewal gives it. A ctx that was done before does not shorten the
// wait, which the node timeout bounds. In all these cases the lock is given up. It is still
// held only if t needs a ttl of more than 24 days, or of more than Options.RestartGuard, or
// if the Locker is closed (ErrClosed): Close then releases it.
func (k *Lock) LeaveUntil(ctx context.Context, t time.Time) error {
	return Locks{k}.leaveUntil(ctx, t)[0].err
}

// LeaveUntil gives all locks up without releasing them, as Lock.LeaveUntil does with one: their
// keys stay on a majority of the nodes at least until t, or, if t has passed, the locks are
// released. All nodes are asked about all locks at once. Until then says how long all keys stay
// at least.
//
// LeaveUntil waits until it is known what becomes of each lock, and joins the errors, which are
// those of Lock.LeaveUntil. The end of one lock does not depend on that of another: if one is
// lost, the keys of the others stay all the same. A lock is still held only in the cases that
// Lock.LeaveUntil names.
//
// A ctx of KeepAlive or RunAll ends when the first of the locks is given up; this does not
// shorten the wait for the others. A RunAll whose fn calls LeaveUntil counts the locks as held
// to the end. To a Trace it is one LeaveUntil of each lock.
func (ks Locks) LeaveUntil(ctx context.Context, t time.Time) error {
	var errs []error
	for _, c := range ks.leaveUntil(ctx, t) {
		errs = append(errs, c.err)
	}
	return errors.Join(errs...)
}

// leaveUntil starts all calls before it waits for any. If a callback panics, the other locks are
// given up all the same, and their calls end.
func (ks Locks) leaveUntil(ctx context.Context, t time.Time) []leaveCall {
	ks = ks.distinct()
	calls := make([]leaveCall, len(ks))
	for i, k := range ks {
		k.acquired().l.check(ctx)
		calls[i] = leaveCall{k: k, ctx: ctx, until: t}
	}
	defer func() {
		ended := endOf(ctx)
		lane.Each(0, len(ks), func(i int) {
			defer calls[i].end()
			calls[i].wait(calls, ended)
		})
	}()
	back := ks.fromLast()
	lane.Each(0, len(ks), func(i int) { calls[back[i]].start() })
	return calls
}

// A leaveCall is a call of LeaveUntil for one lock: start, wait, and in any case end.
type leaveCall struct {
	k       *Lock
	ctx     context.Context
	until   time.Time
	begun   bool // Close waits for its end
	traced  *tracedCall
	x       *extending   // the last extension; nil: none is needed, or possible
	mine    bool         // x is this call's, and not a renewal
	release *releaseCall // in place of an extension
	err     error
}

// start begins the extension, or the release.
func (c *leaveCall) start() {
	k := c.k
	c.err = ErrPanicked // until wait returns
	c.ctx, c.traced = k.l.traceCall(c.ctx, Call{Method: "LeaveUntil", Key: k.name.Key, Lock: k})
	if err := k.l.admit(OpExtend, k.name.Key); err != nil {
		c.err = err
		return
	}
	if c.begun = k.l.begin(); !c.begun { // else Close waits for the result, instead of releasing the lock meanwhile
		c.err = ErrClosed
		return
	}
	if !c.until.After(k.l.now().At) && k.leaveReleased() {
		c.release = new(releaseCall)
		c.release.start(c.ctx, k)
		return
	}
	if c.ctx.Err() != nil {
		c.ctx = context.WithoutCancel(c.ctx)
	}
	c.extend()
}

func (c *leaveCall) extend() {
	x, mine, err := c.k.beginExtend(c.ctx, c.until, nil)
	if c.x, c.mine = x, mine; x == nil {
		c.err = err
	}
}

// wait sets err once it is known how long the key stays, or ctx has ended. all are the calls for
// the locks that are left together; ended is for a release.
func (c *leaveCall) wait(all []leaveCall, ended <-chan struct{}) {
	if c.release != nil {
		c.release.wait(ended)
	}
	for k := c.k; c.x != nil; {
		select {
		case <-c.x.done:
			if c.mine {
				c.err = c.x.err
				return
			}
			c.extend() // that one was of the usual length
		case <-c.ctx.Done():
			if slices.ContainsFunc(all, (leaveCall).isDecided) { // and may have ended ctx, if that is KeepAlive's
				c.ctx = context.WithoutCancel(c.ctx)
				continue
			}
			k.giveUp()
			c.err = k.l.ended(c.ctx, &acquireCall{op: OpExtend, name: k.name, began: c.x.b.Start, attempt: 1, last: &QuorumError{Round: roundOf(c.x.b), Err: ErrNoQuorum}})
			return
		}
	}
}

// isDecided reports whether the lock's end is decided, or is about to be.
func (c leaveCall) isDecided() bool { return c.x == nil || c.mine && c.k.isDecided(c.x) }

// end calls Trace.End, if start has called Trace.Start.
func (c *leaveCall) end() {
	if c.begun {
		defer c.k.l.end()
	}
	defer func() { c.traced.end(nil, c.err) }()
	if c.release != nil {
		c.release.end() // which may panic
		c.err = c.release.err
	}
}

func isDone(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// leaveReleased reports whether the lock is to be released, and has Run count that as its end.
func (k *Lock) leaveReleased() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.state != stateHeld || k.remaining(k.l.now()) <= 0 {
		return false
	}
	k.abandoned = true
	return true
}

// stays reports whether the key stays until t without an extension. Until alone does not show
// that: if the machine slept, the key ends earlier. A microsecond is the grain of the wall
// clock. Needs k.mu.
func (k *Lock) stays(t time.Time, now clock.Instant) bool {
	return !t.IsZero() && t.Sub(now.At) <= k.remaining(now)+time.Microsecond
}

// ttlUntil returns the ttl of an extension, about to be sent, with which the key stays until t,
// and notes it. Needs k.mu.
func (k *Lock) ttlUntil(t time.Time, now clock.Instant) (time.Duration, error) {
	ttl := ttlFor(t.Sub(now.At), k.l.opt.Drift)
	err := k.l.guard.Admits(ttl)
	if ttl > wire.MaxTTL {
		err = fmt.Errorf("redlock: the time is more than %v from now: some servers and proxies count milliseconds in 32 bits", wire.MaxTTL)
	}
	if err != nil {
		return 0, fmt.Errorf("redlock: leave %q until %s: the lock is still held: %w", wire.Clip(k.name.Key), t.Format(time.RFC3339), err)
	}
	k.stayTTL = max(k.stayTTL, ttl)
	return ttl, nil
}

// leave gives the lock up and leaves its key on the nodes. The caller runs after once it has
// unlocked. Needs k.mu.
func (k *Lock) leave() (after func()) {
	k.state, k.abandoned = stateReleased, true
	ended, left := k.endKeepAlives(), k.ending(EventLeft, nil)
	return func() {
		k.l.held.Remove(k)
		ended.cancel(nil)
		k.setRegisterTTL() // since no release will
		k.l.reportEnd(left)
	}
}

// giveUp is leave for a lock whose extension is in progress.
func (k *Lock) giveUp() {
	k.mu.Lock()
	after := func() {}
	if k.state == stateHeld {
		after = k.leave()
	}
	k.mu.Unlock()
	after()
}
