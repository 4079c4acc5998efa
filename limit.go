package redlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/wire"
)

// The options of one acquisition, and the limits of its wait.

// An AcquireOption changes one acquisition.
type AcquireOption func(*acquireOptions)

type acquireOptions struct {
	label   string
	wait    time.Duration // if limited
	limited bool          // WithWait
}

// WithLabel sets the part before the uuid in the lock's value, which Inspect and the
// errors of others show as the holder, or as a waiter (see Status.Queue). The default is
// Options.Name. It has at most 1 KiB and must not contain a NUL byte.
func WithLabel(label string) AcquireOption {
	return func(o *acquireOptions) { o.label = label }
}

// WithWait limits how long Acquire and Run wait for the lock. Unlike a deadline of ctx, it
// does not limit the work of Run.
//
// When the limit has passed, the error is a *QuorumError that matches no context error:
// ErrHeld, with the holder, or ErrNoQuorum, by the last round decided in this Locker's
// queue for the key, whoever asked for it. If none was decided yet, the error is
// ErrNoQuorum, and the votes that are missing are Pending. An attempt in progress is
// abandoned and undone. If ctx ends earlier, the error is that of ctx, and if the Locker is
// closed earlier, it is ErrClosed.
//
// With 0 the call tries once, as TryAcquire does, and is bounded by the node timeout. A
// negative limit is refused, and so is any limit for TryAcquire and Adopt, which do not wait.
func WithWait(limit time.Duration) AcquireOption {
	return func(o *acquireOptions) { o.wait, o.limited = limit, true }
}

// check returns an error if an option is invalid.
func (o *acquireOptions) check() error {
	if o.wait < 0 {
		return fmt.Errorf("redlock: WithWait(%v): it must not be negative (0 means to try once)", o.wait)
	}
	return checkLabel("the label", o.label)
}

// refuseWait returns an error if WithWait was passed to a call that does not wait.
func (o *acquireOptions) refuseWait(call string) error {
	if !o.limited {
		return nil
	}
	return fmt.Errorf("redlock: WithWait(%v) is for Acquire and Run: %s does not wait", o.wait, call)
}

// triesOnce reports whether the call does not wait at all.
func (o *acquireOptions) triesOnce() bool { return o.limited && o.wait == 0 }

// limit returns ctx with the limit of WithWait, if there is one.
func (o *acquireOptions) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	if !o.limited || o.wait == 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, o.wait, errWaited)
}

// errWaited is the cause with which the limit of WithWait ends a wait. Callers never see it.
var errWaited = errors.New("redlock: WithWait")

// waited returns the error of a call whose limit of WithWait has passed.
func (l *Locker) waited(e *acquireCall) error {
	q := new(QuorumError)
	last, before := l.lastKnown(e)
	if last != nil {
		*q = *last
	} else {
		*q = QuorumError{Round: l.unasked(e), Err: ErrNoQuorum}
	}
	if q.hint != "" {
		q.hint += ", "
	}
	q.hint += "waited " + wire.Short(l.now().since(e.began)) + progress(e.attempt, before, e.waiter.queue != nil)
	return q
}

func tooManyWaiters(e *acquireCall, most int) error {
	return fmt.Errorf("%w for %q: %d callers of this Locker, as many as Options.MaxWaiters allows", ErrTooManyWaiters, wire.Clip(e.name.Key), most)
}
