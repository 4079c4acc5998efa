package redlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/wire"
)

// Adopt takes over a lock that is held under value, as told by Lock.Value or
// Inspect: it puts a new value and a greater fencing token in its place, on a
// majority of the nodes, in one step on each. From then on the giver's Extend and
// Release answer ErrLost and touch nothing, its KeepAlive contexts end with the next
// renewal, and whoever adopted holds the lock for ttl. It serves to hand a lock to
// another process, and to release one whose holder is gone.
//
// Only nodes that still hold value count, so nobody else can have held the lock in
// between; a node that has forgotten it gets the new value with the first Extend.
// Of two that adopt at once at most one succeeds. The value must be that of a lock whose
// acquisition has returned: where Inspect shows one that is still being acquired, its
// acquisition may yet return a lock, which is valid until its Until beside the adopted.
//
// A key without a ttl, which this library never makes, is adopted with one.
//
// Errors are those of TryAcquire, with ErrLost where too many nodes hold another
// value or none. A failed adoption puts the old value back where it had replaced it, and
// that value expires when it would have expired without the adoption, whatever the two
// ttls are: each node notes that time beside the lock, so this also holds where no reply
// came. Only a node that has lost the fence register meanwhile keeps the key for the
// adopter's ttl. The giver should not release what it gives away: if it does
// so in the midst of an adoption by another Locker that fails, its value is put back for
// what is left of the ttl, and nobody removes it.
func (l *Locker) Adopt(ctx context.Context, key, value string, ttl time.Duration) (*Lock, error) {
	if err := l.admit(ctx, OpAdopt, key); err != nil {
		return nil, err
	}
	if value == "" || len(value) > wire.MaxKeyBytes {
		return nil, fmt.Errorf("redlock: adopt %q: the value has %d bytes: give the one that the holder stores, see Lock.Value", wire.Clip(key), len(value))
	}
	e, err := l.newAcquireCall(OpAdopt, key, ttl, nil)
	if err != nil {
		return nil, err
	}
	if err := l.usable(ctx, e); err != nil {
		return nil, err
	}
	if !l.begin() {
		return nil, l.ended(ctx, e)
	}
	defer l.end()
	defer l.adopting(value)()
	e.attempt++
	mine := e.label + ":" + l.rand.uuid()
	start := l.now()
	proposal := propose(start, e.seen)
	b := l.newQuorumCall(OpAdopt, e.name, wire.AdoptQuestion(l.guard, e.name, value, mine, ttl, proposal), start, acquireDecided)
	b.q.Patience = l.patience(ttl)
	e.call = b
	b.send(l.lastCleanup(e.name))
	won := false
	defer func() {
		if !won {
			l.expireRegisters(e)
		}
	}()
	k, err := l.claim(ctx, e, b, proposal, func() wire.Question { return wire.RestoreQuestion(e.name, value, mine, ttl) })
	won = err == nil
	var missed *QuorumError
	if errors.As(err, &missed) && missed.Err == ErrHeld {
		missed.Err = ErrLost
	}
	return k, err
}

// An adoption is what a Locker knows of the adoptions of one value that are under way.
// Where the giver's release begins meanwhile, in the same Locker, it may find the
// adopter's value. What a failed adoption leaves is then removed like a released lock:
// nobody would remove the giver's value if it came back.
type adoption struct {
	n     int  // how many
	ended bool // the giver's release or rollback has begun
}

// adopting notes that an adoption of the value begins; done is to be called after what it
// may have to undo has begun.
func (l *Locker) adopting(value string) (done func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.adoptions[value]
	if a == nil {
		a = new(adoption)
		l.adoptions[value] = a
	}
	a.n++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if a.n--; a.n == 0 {
			delete(l.adoptions, value)
		}
	}
}
