package redlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/wire"
)

// Adopt takes over the lock that is held with the given value, which Lock.Value or Inspect
// returned. It serves to hand a lock to another process, and to release one whose holder
// is gone.
//
// On a majority of the nodes, in one step on each, Adopt replaces the value by a new one
// and raises the fencing token. From then on the Extend and Release of the previous holder
// return ErrLost and change nothing, its KeepAlive contexts end with the next renewal, and
// the adopter holds the lock for ttl, even if the key had none.
//
// Only nodes that still store value count, so nobody else can have held the lock in
// between. A node that has forgotten it gets the new value with the first Extend. Of two
// concurrent adoptions at most one succeeds. The acquisition of value must have returned:
// if Inspect showed one in progress, it may yet return a lock that is valid until its
// Until, beside the adopted one.
//
// The errors are those of TryAcquire, with ErrLost in place of ErrHeld if too many nodes
// store another value or none. A failed adoption puts the old value back where it had
// replaced it. The value then expires when it would have expired without the adoption,
// whatever the two ttls are: each node notes that time beside the lock, so this holds even
// if no reply came. Only a node that lost the fence register meanwhile keeps the key for
// the adopter's ttl. The previous holder should not release a lock that it hands over: if
// it does so during an adoption by another Locker that then fails, its value is put back
// for the rest of its ttl, and nobody removes it. WithWait is refused.
func (l *Locker) Adopt(ctx context.Context, key string, value Value, ttl time.Duration, opts ...AcquireOption) (k *Lock, err error) {
	l.check(ctx)
	ctx, traced := l.traceCall(ctx, Call{Method: "Adopt", Key: key, TTL: ttl})
	var e *acquireCall
	err = ErrPanicked // until it returns
	defer func() { traced.end(e, err, k) }()
	if err := l.admit(OpAdopt, key); err != nil {
		return nil, err
	}
	old := value.Secret()
	if len(old) == 0 || len(old) > wire.MaxKeyBytes {
		return nil, fmt.Errorf("redlock: adopt %q: the value has %d bytes: pass the holder's, see Lock.Value", wire.Clip(key), len(old))
	}
	if e, err = l.newAcquireCall(OpAdopt, key, ttl, opts); err != nil {
		return nil, err
	}
	if err := e.refuseWait("Adopt"); err != nil {
		return nil, err
	}
	err = ErrPanicked // again until it returns
	if err := l.usable(ctx, e); err != nil {
		return nil, err
	}
	if !l.begin() {
		return nil, l.ended(ctx, e)
	}
	defer l.end()
	defer l.cleanups.Adopting(old)()
	e.attempt++
	mine := e.label + ":" + l.rand.UUID()
	start := l.now()
	proposal, _ := propose(e.name, start, 0)
	b := l.newQuorumCall(OpAdopt, e.name, wire.AdoptQuestion(l.guard, e.name, old, mine, ttl, proposal), start, acquireDecided)
	e.call = b
	b.Send(l.cleanups.Last(e.name))
	defer func() {
		if err != nil {
			l.expireRegisters(e)
		}
	}()
	k, err = l.claim(ctx, e, b, func() wire.Question { return wire.RestoreQuestion(e.name, old, mine, ttl) })
	var missed *QuorumError
	if errors.As(err, &missed) && missed.Err == ErrHeld {
		missed.Err = ErrLost
	}
	return k, err
}
