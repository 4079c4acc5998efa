package redlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/clock"
	"github.com/seed-ce352c9b/redlock/internal/held"
	"github.com/seed-ce352c9b/redlock/internal/lane"
	"github.com/seed-ce352c9b/redlock/internal/quorum"
	"github.com/seed-ce352c9b/redlock/internal/wire"
)

// A Lock is one acquisition that is, or was, held. Acquire, TryAcquire, Adopt, Run and the
// others return it acquired; its zero value is not usable. Once it has ended, it stays so. Its
// methods may be called from any number of goroutines.
type Lock struct {
	// What was acquired. Constant, but for entry, which the list guards.
	l     *Locker
	name  *wire.LockKey
	value *string // a secret: package fmt, which calls no method of an unexported field, never follows a pointer to a string
	fence int64
	ttl   time.Duration
	entry held.Entry[*Lock] // in the Locker's list

	mu sync.Mutex // guards all below

	// Until is start plus valid. It only moves forward, and only while the lock is held. state
	// only moves forward, too.
	start clock.Instant
	valid time.Duration
	state lockState

	// To Trace.Event.
	acquiredReported bool
	endReported      bool
	earlyEnd         *Event // the end that came before the acquisition was reported

	renewed time.Duration // how far extensions have moved start

	// Every command that may have stored the value or raised a register is in last or in
	// left. A rollback or release goes after last, to the nodes in left.
	last *quorum.Call  // the last question about this lock, while any of its calls is in progress
	left lane.Residues // by the questions whose calls are finished, and by the attempts before

	stayTTL time.Duration // the longest ttl that a LeaveUntil has asked for

	// Registers that extensions have raised (noteRegisters).
	registers        lane.Nodes    // nodes that have raised it and kept the value since
	registersAt      clock.Instant // when registers was empty last
	registersDoubted time.Time     // when the last extension began that a node did not confirm

	// Renewal. The timers run while there are contexts; the loss timer also from the end of
	// the contexts to Until, with Options.Grace.
	ext        *extending       // the extension in progress, at most one
	failed     failedExtensions // since Until moved
	keepAlives []*keepAliveCtx  // KeepAlive's contexts
	renew      *time.Timer
	loss       *time.Timer

	// The end. After state is final, result does not change.
	release           *quorum.Call // the last release, in progress or decided
	releaseSentInTime bool         // the first release was sent before Until; set with release
	abandoned         bool         // LeaveUntil ended it while it was held
	adopted           bool         // constant: its keys may live longer than ttl
	result            error        // of the release or the loss, once final

	// lossTold is the loss with which KeepAlive's contexts ended. With Options.Grace
	// the lock is still held then, but never extended again.
	lossTold *QuorumError
}

type lockState uint8

const (
	stateHeld lockState = iota
	stateReleasing
	stateReleased // final: result says how
	stateLost     // final
)

// acquired returns k. It panics for a Lock that no acquisition has returned.
func (k *Lock) acquired() *Lock {
	if k == nil || k.l == nil {
		panic("redlock: this Lock was never acquired: use one that an acquisition returned with a nil error")
	}
	return k
}

// Key returns the key that was passed to the Locker, without Options.KeyPrefix.
func (k *Lock) Key() string { return k.acquired().name.Key }

// Value returns what the nodes store for this holder. It is a secret: with it, Adopt takes the
// lock over.
func (k *Lock) Value() Value { return ValueOf(*k.acquired().value) }

// Fence returns the fencing token. It is strictly greater than that of every holder of
// the key whose acquisition had returned before this one began, whatever clocks and
// delays do, as long as a majority of the nodes keeps its registers (I2 has the exact
// condition). A store that refuses writes with a smaller token than it has seen is safe
// even from a holder that sleeps past Until. (Kleppmann, How to do distributed locking,
// 2016.) A lock that was acquired without a fence has 0, which no store must take for a token: see
// WithoutFence.
func (k *Lock) Fence() int64 { return k.acquired().fence }

// String returns the key and the fence of the lock, and not its value, which is a secret.
func (k *Lock) String() string {
	return fmt.Sprintf("lock %q, %s", wire.Clip(k.Key()), k.fenceText())
}

func (k *Lock) fenceText() string {
	if k.fence == 0 {
		return "no fence"
	}
	return fmt.Sprint("fence ", k.fence)
}

// Started returns the time, on the monotonic clock, just before the attempt that acquired the
// lock sent its first request. Until counts from there, and after an extension from just
// before that sent its first request.
func (k *Lock) Started() time.Time {
	k.acquired().mu.Lock()
	defer k.mu.Unlock()
	return k.start.At.Add(-k.renewed)
}

// Until returns the time, on the monotonic clock, from which the lock must no longer be
// relied on. Only a successful extension moves it, and only forward. Prefer Valid, which
// also checks the wall clock.
func (k *Lock) Until() time.Time {
	k.acquired().mu.Lock()
	defer k.mu.Unlock()
	return k.start.At.Add(k.valid)
}

// Valid reports whether the lock is held: it is before Until on the monotonic and on the
// wall clock, and the lock was neither released nor lost. The answer may be out of date
// by the next line; writes that must not happen after the loss need the Fence. With
// Options.Grace, a lock whose contexts ended because it was not renewed stays valid
// until Until.
func (k *Lock) Valid() bool {
	k.acquired().mu.Lock()
	defer k.mu.Unlock()
	return k.isValid()
}

// isValid is Valid. Needs k.mu.
func (k *Lock) isValid() bool { return k.state == stateHeld && k.remaining(k.l.now()) > 0 }

// remaining returns the validity that is left, which is 0 at exactly Until. Needs k.mu.
func (k *Lock) remaining(now clock.Instant) time.Duration { return k.valid - now.Since(k.start) }

// hold makes the lock and lists it as held. It returns nil if the Locker was closed.
func (l *Locker) hold(e *acquireCall, b, last *quorum.Call, token int64, valid time.Duration) *Lock {
	both := &struct { // in one allocation
		lock  Lock
		value string
	}{
		lock:  Lock{l: l, name: e.name, fence: token, adopted: e.op == OpAdopt, ttl: e.ttl, start: b.Start, valid: valid},
		value: b.Question.Value,
	}
	k := &both.lock
	k.value = &both.value
	k.mu.Lock() // so that Close waits for what follows
	defer k.mu.Unlock()
	if !l.held.Add(k) {
		return nil
	}
	k.left.Add(e.raised, lane.Raised)
	k.follow(last)
	return k
}

// follow makes b the last question about the lock. Needs k.mu.
func (k *Lock) follow(b *quorum.Call) {
	k.last = nil
	if b.Bind((*callOwner)(k)) {
		k.last = b
		return
	}
	k.note(b)
}

// note records which nodes a finished quorum call may have changed. Needs k.mu.
func (k *Lock) note(b *quorum.Call) {
	k.noteRegisters(b)
	k.left.Join(b.Left())
}

// A callOwner is a Lock as its quorum calls know it.
type callOwner Lock

// Forget drops a quorum call whose calls are all finished.
func (c *callOwner) Forget(b *quorum.Call) {
	k := (*Lock)(c)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.note(b)
	if k.last == b {
		k.last = nil
	}
}

// Healed reports that the value is stored again on a node.
func (c *callOwner) Healed(h *lane.Call) {
	k := (*Lock)(c)
	k.l.event(Event{Kind: EventHealed, Lock: k, Node: h.Lane.Name})
}

// lossOf returns the error of a loss: by the votes of b, or by time if b is nil. Needs k.mu.
func (k *Lock) lossOf(b *quorum.Call) *QuorumError {
	q := &QuorumError{Err: ErrLost}
	if b != nil {
		q.Round = roundOf(b)
	} else {
		q.Round, q.hint = k.expiry("its validity of " + wire.Short(k.valid) + " ended")
	}
	return q
}

// lose declares the lock lost, by the votes of b, or by time if b is nil. The caller runs
// after once it has unlocked. Needs k.mu.
func (k *Lock) lose(b *quorum.Call) (after func()) {
	q := k.lossTold
	if q == nil || b != nil {
		q = k.lossOf(b)
	}
	k.failed = failedExtensions{}
	k.state, k.result = stateLost, q
	tell := k.tellLoss(q)
	prev := k.last
	early := time.Duration(0)
	if b == nil {
		early = k.remaining(k.l.now())
	}
	awaited := early > 0 && k.l.begin() // before the loss is told: the holder may close the Locker at once
	undo := k.l.newCleanup(OpRollback, k.name, wire.ReleaseQuestion(k.name, *k.value, k.ttl, wire.ToAll), &k.left, allAnswered)
	undo.LastForLock = true
	undo.Then = func() { k.l.observe(context.Background(), undo, nil) }
	return func() {
		// Deferred: also if the caller's Trace panics.
		defer func() {
			if early <= 0 {
				undo.Send(prev)
				return
			}
			// The loss is signalled a little before Until, but the lock excludes others until
			// then: a holder that trusts Until alone must not overlap the next one.
			time.AfterFunc(early, func() {
				if awaited {
					defer k.l.end()
				}
				undo.Send(prev)
			})
		}()
		k.l.held.Remove(k)
		tell()
	}
}

// warn signals the loss while Options.Grace of the validity is left. From then on the lock
// is not extended, but it is held until it is released or, at Until, given up by the loss
// timer, so that nobody else gets in while the work stops. The caller runs after once it
// has unlocked. Needs k.mu.
func (k *Lock) warn() (after func()) {
	q := &QuorumError{Err: ErrLost}
	q.Round, q.hint = k.expiry("it was not renewed, and its validity ends at " + k.start.At.Add(k.valid).Format("15:04:05.000"))
	return k.tellLoss(q)
}

// tellLoss takes KeepAlive's contexts off the lock. The caller runs after once it has
// unlocked: it cancels them and, the first time, reports the loss. Needs k.mu.
func (k *Lock) tellLoss(q *QuorumError) (after func()) {
	k.lossTold = q
	ended, lost := k.endKeepAlives(), k.ending(EventLost, q)
	return func() {
		ended.cancel(q)
		k.l.reportEnd(lost)
	}
}

// kept reports whether the lock is held, or was until LeaveUntil, and no loss was
// signalled.
func (k *Lock) kept() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.lossTold == nil && (k.isValid() || k.abandoned)
}

// expiry returns the round and the hint of an error about a lock that was not extended:
// what, how many extensions failed, and why the one failed that tells most. Needs k.mu.
func (k *Lock) expiry(what string) (r Round, why string) {
	now := k.l.now()
	r = Round{Op: OpLost, Key: k.name.Key, Need: majority(len(k.l.lanes)), Start: k.start.At, Took: now.Since(k.start)}
	why = what
	last := k.failed.tells()
	if last.b == nil && k.ext != nil {
		last = failedExtension{k.ext.b, "has no majority yet"}
	}
	if last.b != nil {
		r.Votes = roundOf(last.b).Votes
		if n := k.failed.n; n > 1 {
			why += fmt.Sprintf(", after %d failed extensions", n)
		}
		why += ", the extension sent " + wire.Short(now.Since(last.b.Start)) + " before " + last.why
	}
	return r, why
}

// lossError returns why the lock is not held. If it was neither released nor lost, lossError
// declares it lost.
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

// A chain is carried by contexts of KeepAlive and Run. It lists the locks under which a
// call with that context is made, the innermost first.
type chain struct {
	lock  *Lock
	outer *chain
}

type chainKey struct{}

func chainOf(ctx context.Context) *chain {
	c, _ := ctx.Value(chainKey{}).(*chain)
	return c
}

// under returns ctx for calls that are made under the lock.
func (k *Lock) under(ctx context.Context) context.Context {
	return context.WithValue(ctx, chainKey{}, &chain{lock: k, outer: chainOf(ctx)})
}

// nested returns an error if the call e is made under the lock that it wants.
func (l *Locker) nested(ctx context.Context, e *acquireCall) error {
	for c := chainOf(ctx); c != nil; c = c.outer {
		if k := c.lock; k.l == l && k.name.Full == e.name.Full && k.Valid() {
			return &nestedError{op: e.op, lock: k}
		}
	}
	return nil
}

// A nestedError wraps ErrNested and names the lock that is held.
type nestedError struct {
	op   Op
	lock *Lock
}

func (e *nestedError) Error() string {
	return fmt.Sprintf("redlock: %s %q: held by this call chain, with %s: locks are not reentrant; use the one that is held", e.op, wire.Clip(e.lock.name.Key), e.lock.fenceText())
}

func (e *nestedError) Unwrap() error { return ErrNested }
