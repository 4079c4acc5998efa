package redlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/wire"
)

// A Lock is one acquisition that is, or was, held. It exists only as acquired: it
// has no zero value of use and is never acquired again. Its methods may be called
// from any number of goroutines.
type Lock struct {
	l     *Locker
	name  *wire.LockKey
	value string
	fence int64
	ttl   time.Duration
	entry heldEntry // among the Locker's locks

	mu             sync.Mutex
	start          instant       // what the validity counts from
	valid          time.Duration // for how long
	state          lockState
	last           *quorumCall // the last question about this lock, while any of its calls is under way
	mayHold        uint64      // nodes that may hold the value, as bits; those of last are not in here
	raised         uint64      // nodes whose register the acquisition may have raised
	mayArriveLate  uint64      // and where a command that puts it there may yet be executed
	ext            *extending
	failed         failedExtension // the last one since Until moved
	keepAlives     []*keepAliveCtx // KeepAlive's contexts
	renew          *time.Timer
	loss           *time.Timer
	release        *quorumCall // the release under way, or done
	releasedInTime bool        // the first release was asked before Until; set with rel
	quiet          bool        // it tells nobody: the lock was handed on
	abandoned      bool        // LeaveToExpire ended it, while it was held
	result         error       // of the release or the loss, once final

	// told is the loss that KeepAlive's contexts have ended with. With Options.Grace
	// the lock is still held then, but never extended again.
	lossTold *QuorumError
}

type lockState uint8

const (
	stateHeld lockState = iota
	stateReleasing
	stateReleased // finally: result says how
	stateLost     // finally
)

// acquired is k itself. It panics for a Lock that no acquisition has returned.
func (k *Lock) acquired() *Lock {
	if k == nil || k.l == nil {
		panic("redlock: this Lock was never acquired: use the one that Acquire, TryAcquire, Adopt or Run gives with a nil error")
	}
	return k
}

// Key is the key as it was given to the Locker, without Options.KeyPrefix.
func (k *Lock) Key() string { return k.acquired().name.Key }

// Value is what the nodes store for this holder: "label:uuid", new for every
// acquisition. Adopt takes it to take the lock over.
func (k *Lock) Value() string { return k.acquired().value }

// Fence is the fencing token: strictly greater than that of every holder of the
// key whose acquisition had returned before this one began, whatever clocks and
// delays do, as long as a majority of the nodes keeps its registers. A store that
// refuses writes with a smaller token than it has seen is safe even from a holder
// that sleeps past Until. (Kleppmann, How to do distributed locking, 2016.)
func (k *Lock) Fence() int64 { return k.acquired().fence }

// String names the lock by its key and its fence, and not by its value, which is a
// secret: by it the lock can be taken over.
func (k *Lock) String() string {
	return fmt.Sprintf("lock %q, fence %d", wire.Clip(k.Key()), k.Fence())
}

// Until is when the lock must no longer be believed in, on the steady clock; only
// an answered extension moves it, and only forward. Prefer Valid, which minds the
// wall clock as well.
func (k *Lock) Until() time.Time {
	k.acquired().mu.Lock()
	defer k.mu.Unlock()
	return k.start.at.Add(k.valid)
}

// Valid reports whether the lock is held: now is before Until on the steady and on
// the wall clock, and it was neither released nor lost. What holds when Valid is
// called may not hold a line later; what must not happen then needs the Fence. With
// Options.Grace a lock whose contexts ended for lack of a renewal is valid until
// Until.
func (k *Lock) Valid() bool {
	k.acquired().mu.Lock()
	defer k.mu.Unlock()
	return k.isValid()
}

// isValid is Valid. Needs k.mu.
func (k *Lock) isValid() bool { return k.state == stateHeld && k.remaining(k.l.now()) > 0 }

// remaining is the validity that is left; none at exactly Until. Needs k.mu.
func (k *Lock) remaining(now instant) time.Duration { return k.valid - now.since(k.start) }

// hold makes the lock; nil: the Locker was closed meanwhile.
func (l *Locker) hold(e *acquireCall, b, last *quorumCall, token int64, valid time.Duration) *Lock {
	k := &Lock{l: l, name: e.name, value: b.q.Value, fence: token, ttl: e.ttl, start: b.start, valid: valid}
	k.mu.Lock() // so that what Close does to it comes after
	defer k.mu.Unlock()
	if !l.addHeld(k) {
		return nil
	}
	k.raised = e.raised
	k.follow(last)
	return k
}

// follow makes b the last question about the lock. Needs k.mu.
func (k *Lock) follow(b *quorumCall) {
	k.last = nil
	if b.bind(k) {
		k.last = b
		return
	}
	k.note(b)
}

// note keeps what a finished quorum call says of the nodes. Needs k.mu.
func (k *Lock) note(b *quorumCall) {
	holds, doubt := b.mayHold()
	k.mayHold |= holds
	k.raised |= b.raisedRegisters()
	k.mayArriveLate |= doubt
}

// forget drops a quorum call that has nothing under way any more.
func (k *Lock) forget(b *quorumCall) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.note(b)
	if k.last == b {
		k.last = nil
	}
}

// lossOf is the error of a loss: by the votes of b, or with nil by time. Needs k.mu.
func (k *Lock) lossOf(b *quorumCall) *QuorumError {
	q := &QuorumError{Err: ErrLost}
	if b != nil {
		q.Round = b.round()
	} else {
		q.Round, q.hint = k.expiry("its validity of " + wire.Short(k.valid) + " ended")
	}
	return q
}

// lose declares the lock lost, for good. It returns what is to be done after
// unlocking. Needs k.mu.
func (k *Lock) lose(b *quorumCall) (after func()) {
	q := k.lossTold
	if q == nil || b != nil {
		q = k.lossOf(b)
	}
	k.failed = failedExtension{}
	k.state, k.result = stateLost, q
	tell := k.tellLoss(q)
	holds, doubt, prev := k.mayHold|k.raised, k.mayArriveLate, k.last
	early := time.Duration(0)
	if b == nil {
		early = k.remaining(k.l.now())
	}
	undo := k.l.newCleanup(OpRollback, k.name, wire.RollbackQuestion(k.name, k.value, k.ttl), holds, doubt, allAnswered)
	undo.lastForLock = true
	undo.then = func() { k.l.observe(undo, nil) }
	return func() {
		// Deferred: also if the caller's Observe panics.
		defer func() {
			if early <= 0 {
				undo.send(prev)
				return
			}
			// The loss is told a little before Until, but the lock keeps others out until
			// then: whoever trusts Until alone must not meet the next holder.
			time.AfterFunc(early, func() { undo.send(prev) })
		}()
		k.l.removeHeld(k)
		tell()
	}
}

// warn tells the loss while Options.Grace of the validity is left. The lock is not
// extended any more. It is held until it is released or, at Until, given up by the
// loss timer, so that nobody else gets in while the work stops. It returns what is to
// be done after unlocking. Needs k.mu.
func (k *Lock) warn() (after func()) {
	q := &QuorumError{Err: ErrLost}
	q.Round, q.hint = k.expiry("it was not renewed, and its validity ends at " + k.start.at.Add(k.valid).Format("15:04:05.000"))
	return k.tellLoss(q)
}

// tellLoss ends KeepAlive's contexts. What it returns is to be called after unlocking:
// it cancels them, and tells the observer unless that was done before. Needs k.mu.
func (k *Lock) tellLoss(q *QuorumError) (after func()) {
	first := k.lossTold == nil
	k.lossTold = q
	ended := k.endKeepAlives()
	return func() {
		ended.cancel(q)
		if first && k.l.opt.Observe != nil {
			r := q.Round
			r.Op = OpLost
			k.l.opt.Observe(r)
		}
	}
}

// kept reports that the lock is held, or was held until it was left to expire, and that
// no loss was told.
func (k *Lock) kept() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.lossTold == nil && (k.isValid() || k.abandoned)
}

// expiry tells of a lock whose validity was not extended: what that means, and what
// became of the extension that should have done it. Needs k.mu.
func (k *Lock) expiry(what string) (r Round, why string) {
	now := k.l.now()
	r = Round{Op: OpLost, Key: k.name.Key, Need: majority(len(k.l.lanes)), Start: k.start.at, Took: now.since(k.start)}
	why = what
	last := k.failed
	if last.b == nil && k.ext != nil {
		last = failedExtension{k.ext.b, "has no majority yet"}
	}
	if last.b != nil {
		r.Votes = last.b.round().Votes
		why += ", the extension sent " + wire.Short(now.since(last.b.start)) + " before " + last.why
	}
	return r, why
}

// lossError says that the lock is not held: how it was lost, if that is known.
func (k *Lock) lossError() error {
	k.mu.Lock()
	var after func()
	if k.state == stateHeld && k.lossTold == nil {
		after = k.lose(nil)
	}
	err := k.result
	switch {
	case err != nil:
	case k.lossTold != nil:
		err = k.lossTold
	default:
		err = &QuorumError{Err: ErrLost, Round: Round{Op: OpLost, Key: k.name.Key}, hint: "it was released before"}
	}
	k.mu.Unlock()
	if after != nil {
		after()
	}
	return err
}

var errReleased = errors.New("redlock: released")

// A chain is what a context from KeepAlive or Run says of the calls that it is passed to:
// under which locks they are made, the innermost first.
type chain struct {
	lock  *Lock
	outer *chain
}

type chainKey struct{}

func chainOf(ctx context.Context) *chain {
	c, _ := ctx.Value(chainKey{}).(*chain)
	return c
}

// under is ctx for calls that are made under the lock.
func (k *Lock) under(ctx context.Context) context.Context {
	return context.WithValue(ctx, chainKey{}, &chain{lock: k, outer: chainOf(ctx)})
}

// nested is the error of an acquisition by a call that is made under the same lock.
func (l *Locker) nested(ctx context.Context, e *acquireCall) error {
	for c := chainOf(ctx); c != nil; c = c.outer {
		if k := c.lock; k.l == l && k.name.Full == e.name.Full && k.Valid() {
			return &nestedError{op: e.op, lock: k}
		}
	}
	return nil
}

// A nestedError is ErrNested with the lock that is held.
type nestedError struct {
	op   Op
	lock *Lock
}

func (e *nestedError) Error() string {
	return fmt.Sprintf("redlock: %s %q: held by this call chain, with fence %d: a lock is not reentrant, use the one that is held", e.op, wire.Clip(e.lock.name.Key), e.lock.fence)
}

func (e *nestedError) Unwrap() error { return ErrNested }
