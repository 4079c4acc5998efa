package redlock

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/held"
	"github.com/seed-ce352c9b/redlock/internal/lane"
	"github.com/seed-ce352c9b/redlock/internal/quorum"

	"golang.org/x/sync/errgroup"
)

// silentAfter returns how long a node may leave a question unanswered before Close treats
// it as silent, unless three of its round trips are longer: a quarter of the node
// timeout. Halved, a node that stalls for a moment keeps locks that it would have
// released; doubled, a hung node delays the exit of every process by as much.
func (l *Locker) silentAfter() time.Duration { return l.closeWait() / 8 }

// closeWait returns how long Close waits at most: two node timeouts.
func (l *Locker) closeWait() time.Duration {
	if l.opt.NodeTimeout > 0 {
		return 2 * l.opt.NodeTimeout
	}
	return 2 * maxNodeTimeout
}

// maxCloseErrors bounds the locks whose errors Close joins: if no node replies, it is every
// lock. Halved, the error names fewer.
const maxCloseErrors = 10

// Close ends waiting calls and KeepAlive contexts with ErrClosed, releases the locks that
// are still held, waits for these releases and for pending clean-ups, and closes the clients
// that Open made, but not those that were given to New. It takes at most two node timeouts
// (two seconds by default).
//
// Close returns nil if each of these locks was released and each client closed. Otherwise it
// joins the errors: for each lock that was not released a *QuorumError, as Lock.Release
// returns it (ErrNoQuorum, with the time at which its keys expire, or ErrLost), for at most ten
// of them, and the first client's own error, with the name of the node. The Locker is closed
// all the same.
//
// From then on all methods of the Locker that return an error, a second Close included, return
// ErrClosed, whatever else is wrong with the call. So does Lock.Extend, and it is the cause of
// contexts from KeepAlive. Lock.Release returns the result of the release that Close made.
//
// Once a majority of the nodes has replied, Close does not wait for a node that has left a
// question unanswered for a quarter of the node timeout or, if that is longer, for three of
// its round trips. Such a node may keep a key, or store it when it wakes: the key expires
// with its ttl, and on one node alone it excludes nobody. The same holds for a node that
// refuses what Close sends by an error, such as NOAUTH or LOADING. But if fewer than
// a majority take what Close sends, it sends again what was refused by errors that may go away,
// as LOADING and BUSY do. What was refused before is sent once more in any case.
func (l *Locker) Close() (err error) {
	l.made()
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return ErrClosed
	}
	l.closed = true
	close(l.closing)
	l.mu.Unlock()
	all := l.held.Close()
	for _, k := range all {
		k.endKeepAlive(ErrClosed)
	}
	limit := time.NewTimer(l.closeWait())
	defer limit.Stop()
	// First the calls in progress undo what they have stored, then the locks are released:
	// a failed adoption puts the old value back.
	calls := make(chan struct{})
	go func() { l.busy.Wait(); close(calls) }()
	select {
	case <-calls:
	case <-limit.C:
		limit.Reset(0)
	}
	l.registers.Close()
	for _, ln := range l.lanes {
		ln.Retry()
	}
	l.awaitIdle(limit)
	// Deferred, since the caller's Trace may panic on a release.
	released := make([]*quorum.Call, len(all))
	defer func() { err = l.shutDown(all, released, limit) }()
	lane.Each(0, len(all), func(i int) {
		released[i] = all[i].beginRelease(context.Background(), ErrClosed)
	})
	return nil
}

// shutDown waits for the releases, within the limit, and stops queues, lanes and clients.
func (l *Locker) shutDown(all []*Lock, released []*quorum.Call, limit *time.Timer) error {
	var errs []error
	for i, b := range released {
		if b == nil {
			continue // it had ended before
		}
		select {
		case <-b.Done():
		case <-limit.C:
			limit.Reset(0)
		}
		if err := all[i].released(b); err != nil && all[i].wasReleasedInTime() && len(errs) < maxCloseErrors {
			errs = append(errs, err)
		}
	}
	l.awaitIdle(limit)
	deaf := l.queues.Close()
	for _, ln := range l.lanes {
		ln.Close()
	}
	heard := make(chan struct{})
	go func() { deaf(); close(heard) }()
	select {
	case <-heard:
	case <-time.After(l.silentAfter()): // dialling, which the clients' timeouts bound
	case <-limit.C:
	}
	var clients errgroup.Group // Close waits for the connections of its pool
	for i, c := range l.owned {
		clients.Go(func() error {
			if err := c.Close(); err != nil {
				return fmt.Errorf("redlock: close the client of %s: %w", l.lanes[i].Name, err)
			}
			return nil
		})
	}
	return errors.Join(append(errs, clients.Wait())...)
}

// wasReleasedInTime reports whether the lock was held when its release began.
func (k *Lock) wasReleasedInTime() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.releaseSentInTime
}

// Held returns the locks that this Locker holds, oldest first, for example to log them before
// Close or to show them. They are those that were held when the iteration began and are still
// valid when they are yielded. The loop may call the Locker and its Locks.
func (l *Locker) Held() iter.Seq[*Lock] {
	l.made()
	return func(yield func(*Lock) bool) {
		for _, k := range l.held.All() {
			if k.Valid() && !yield(k) {
				return
			}
		}
	}
}

// awaitIdle waits, up to the limit, until the nodes have answered everything. Once a
// majority of them has, it does not wait for silent ones.
func (l *Locker) awaitIdle(limit *time.Timer) {
	lane.AwaitIdle(l.lanes, majority(len(l.lanes)), l.silentAfter(), limit)
}

// begin records a call that may send something, for whose end Close waits. It returns
// false if the Locker is closed.
func (l *Locker) begin() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.busy.Add(1)
	}
	return !l.closed
}

func (l *Locker) end() { l.busy.Done() }

func (l *Locker) isClosed() bool {
	select {
	case <-l.closing:
		return true
	default:
		return false
	}
}

// expired reports whether the lock was released or lost, or Until has passed on the monotonic
// clock. The wall clock alone may be set back again, and then Close has to find the lock.
func (k *Lock) expired() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.state != stateHeld || k.l.now().At.Sub(k.start.At) >= k.valid
}

// newHeld returns the list of the locks that are held.
func (l *Locker) newHeld() *held.List[*Lock] {
	return held.New(held.Config[*Lock]{
		Now:   l.now,
		Entry: func(k *Lock) *held.Entry[*Lock] { return &k.entry },
		Freed: func(k *Lock) {
			l.gated.CompareAndDelete(k.name.Full, k)
			l.gate.Free(k.name.Full)
		},
		Grown: (*Lock).setRegisterTTL,
		Expired: func(k *Lock) bool { // Release still works
			k.checkLoss()
			if !k.expired() {
				return false
			}
			k.reportExpired()
			return true
		},
	})
}

// setRegisterTTL gives the fence registers of a lock a ttl, if it has any.
func (k *Lock) setRegisterTTL() {
	if !k.name.Fenced {
		return
	}
	k.mu.Lock()
	left, prev := k.left, k.last
	k.mu.Unlock()
	nodes := left.Any(lane.Holds | lane.Raised)
	if prev != nil {
		nodes |= prev.MayHaveExecuted()
	}
	k.l.registers.Expire(k.name, k.ttl, nodes, left, prev)
}

// expireRegisters gives the registers that the attempts of a failed call have raised a ttl.
func (l *Locker) expireRegisters(e *acquireCall) {
	if e.raised != 0 {
		l.registers.ExpireFailed(e.name, e.ttl, e.raised, e.before, e.call)
	}
}
