package redlock

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/wire"
)

// LeaveUntil gives the lock up without releasing it: its key stays on a majority of the
// nodes at least until t, even if this process exits, and Close leaves it there. Use it for
// what may happen once per interval: t is then some time before the next one begins.
//
// If Until is before t, LeaveUntil extends the lock once, by as much as t needs; Until then
// says how long the key stays at least. It never shortens: if Until is t or later, it sends
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
// If ctx ends the wait, LeaveUntil returns its error, and the extension goes on; a ctx that
// was done before does not shorten the wait, which the node timeout bounds. In all these
// cases the lock is given up. It is still held only if t needs a ttl of more than 24 days,
// or of more than Options.RestartGuard, or if the Locker is closed (ErrClosed): Close then
// releases it.
func (k *Lock) LeaveUntil(ctx context.Context, t time.Time) (err error) {
	if err := k.acquired().l.admit(ctx, OpExtend, k.name.Key); err != nil {
		return err
	}
	if !k.l.begin() { // Close waits for the result, instead of releasing the lock meanwhile
		return ErrClosed
	}
	defer k.l.end()
	ctx, traced := k.l.traceCall(ctx, "LeaveUntil", k.name.Key, 0, k)
	err = ErrPanicked // until it returns
	defer func() { traced.end(nil, nil, err) }()
	if !t.After(k.l.now().at) && k.leaveReleased() {
		return k.Release(ctx)
	}
	if ctx.Err() != nil {
		ctx = context.WithoutCancel(ctx)
	}
	for {
		x, mine, err := k.beginExtend(ctx, t, nil)
		if x == nil {
			return err
		}
		select {
		case <-x.done:
			if mine {
				return x.err
			} // else another's extension, of the usual length
		case <-ctx.Done():
			if isDone(x.done) && mine {
				return x.err
			}
			k.giveUp()
			return k.l.ended(ctx, &acquireCall{op: OpExtend, name: k.name, began: x.b.start, attempt: 1, last: &QuorumError{Round: x.b.round(), Err: ErrNoQuorum}})
		}
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

// stays reports whether the key stays until t without an extension. Needs k.mu.
func (k *Lock) stays(t time.Time) bool {
	return !t.IsZero() && !k.start.at.Add(k.valid).Before(t)
}

// ttlUntil returns the ttl with which the key stays until t. Needs k.mu.
func (k *Lock) ttlUntil(t time.Time, now instant) (time.Duration, error) {
	ttl := ttlFor(t.Sub(now.at), k.l.opt.Drift)
	err := k.l.guard.Admits(ttl)
	if ttl > wire.MaxTTL {
		err = fmt.Errorf("redlock: the time is more than %v from now: some servers and proxies count milliseconds in 32 bits", wire.MaxTTL)
	}
	if err != nil {
		err = fmt.Errorf("redlock: leave %q until %s: the lock is still held: %w", wire.Clip(k.name.Key), t.Format(time.RFC3339), err)
	}
	return ttl, err
}

// leave gives the lock up and leaves its key on the nodes. The caller runs after once it has
// unlocked. Needs k.mu.
func (k *Lock) leave() (after func()) {
	k.state, k.abandoned = stateReleased, true
	ended, left := k.endKeepAlives(), k.ending(EventLeft, nil)
	return func() {
		k.l.removeHeld(k)
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
