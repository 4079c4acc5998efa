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
	"github.com/seed-ce352c9b/redlock/internal/queue"
	"github.com/seed-ce352c9b/redlock/internal/quorum"
	"github.com/seed-ce352c9b/redlock/internal/wait"
)

// Several locks at once. All keys are asked for in one round. If one is refused, what the
// others were granted is released, and the caller waits for that one key, holding none.

// maxKeys bounds the keys of AcquireAll: they travel in one batch to each node, and every
// caller behind it waits for all of it. Halved, more callers have to choose a coarser key.
const maxKeys = 64

// Locks are the locks that AcquireAll acquired, one for each key that was named, in the same
// order. If a key was named twice, its lock is there twice, and the methods act on it once.
type Locks []*Lock

// distinct returns each of the locks once.
func (ks Locks) distinct() Locks {
	if len(ks) < 2 {
		return ks
	}
	var once Locks
	seen := make(map[*Lock]bool, len(ks))
	for _, k := range ks {
		if !seen[k] {
			seen[k] = true
			once = append(once, k)
		}
	}
	return once
}

// AcquireAll acquires the locks of all keys, or of none, for ttl, and waits for them until ctx
// is done or, with WithWait, at most for the given time. locks[i] is the lock of keys[i], with
// a fence of its own. A key that is named twice is one lock, which is returned twice. More
// than 64 keys are refused.
//
// All nodes are asked for all keys at once, which takes one round trip if they are free. If
// one of them is refused, the others are released, and the caller waits for that one as
// Acquire does, in its place in the queue. It then asks for all of them again. A caller that
// waits holds none of these locks, so callers of AcquireAll cannot wait for each other in a
// circle, in whatever order they name the keys. Locks that a caller holds already are not
// given up: nested calls, of Acquire or of AcquireAll, need the same order everywhere.
//
// A caller is never passed over at the key that it waits for, but others may have taken
// another of its keys meanwhile, so that it has to wait again: a caller for many contended
// keys waits longer than one for few, and no bound is promised.
//
// Calls of one Locker for keys that overlap would refuse each other, so each of them waits for
// the earlier ones, for up to a second, before it asks the nodes.
//
// The errors are those of Acquire, for the key that was refused. If a callback panics, or ctx
// or Close ends the call, everything is undone.
func (l *Locker) AcquireAll(ctx context.Context, keys []string, ttl time.Duration, opts ...AcquireOption) (locks Locks, err error) {
	l.check(ctx)
	ctx, traced := l.traceCall(ctx, Call{Method: "AcquireAll", Keys: keys, TTL: ttl})
	e := new(acquireCall)
	err = ErrPanicked // until it returns
	defer func() { traced.end(e, err, locks.distinct()...) }()
	all, order, err := l.newAcquireAll(ctx, keys, ttl, opts)
	if err != nil {
		return nil, err
	}
	err = ErrPanicked                             // again until it returns
	defer func() { e.attempt = all[0].attempt }() // every attempt is one for each of them
	ctx, stop := all[0].limit(ctx)
	defer stop()
	if !l.begin() {
		return nil, l.ended(ctx, all[0])
	}
	defer l.end()
	a := &acquireAll{l: l, calls: all}
	for _, e := range all {
		a.keys = append(a.keys, e.name.Full)
	}
	defer func() {
		a.leavePlace()
		if a.locks == nil {
			a.leaveGate()
			lane.Each(0, len(all), func(i int) { l.expireRegisters(all[i]) })
		}
	}()
	if err := a.enterGate(ctx); err != nil {
		return nil, err
	}
	if err := a.acquire(ctx); err != nil {
		return nil, err
	}
	a.occupyGate()
	locks = make(Locks, len(order))
	for i, at := range order {
		locks[i] = a.locks[at]
	}
	return locks, nil
}

// newAcquireAll returns one call for each key, in the order of the keys' full names, which is
// that of all callers, so that of two that meet on a node one gets all that both want. A key that
// is named twice has one call. order has the index of its call for each key that was named.
func (l *Locker) newAcquireAll(ctx context.Context, keys []string, ttl time.Duration, opts []AcquireOption) (all []*acquireCall, order []int, err error) {
	if err := l.admit(OpAcquire, fmt.Sprint(len(keys), " keys")); err != nil {
		return nil, nil, err
	}
	if len(keys) == 0 || len(keys) > maxKeys {
		return nil, nil, fmt.Errorf("redlock: %d keys: pass at least one and at most %d", len(keys), maxKeys)
	}
	calls := make(map[string]*acquireCall)
	for _, key := range keys {
		if calls[key] != nil {
			continue
		}
		e, err := l.newAcquire(ctx, key, ttl, opts)
		if err != nil {
			return nil, nil, err
		}
		calls[key] = e
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b *acquireCall) int { return cmp.Compare(a.name.Full, b.name.Full) })
	for _, key := range keys {
		order = append(order, slices.Index(all, calls[key]))
	}
	return all, order, nil
}

// An acquireAll is one call of AcquireAll.
type acquireAll struct {
	l        *Locker
	calls    []*acquireCall
	keys     []string // their full names
	locks    []*Lock  // of the calls; nil until all are acquired
	admitted bool     // the Locker's gate counts the keys as busy for this call
	place    string   // the key for which it counts as a waiter, though it is in no queue; "": none
	moves    int      // how often in a row it went from one queue to another without a wait between
}

// gateWait is how long at most a call waits for those of the same Locker that have one of its
// keys, before it asks the nodes all the same and waits in their queues. Halved, callers that
// hold locks for longer are asked for in vain more often; doubled, a caller learns later that
// no majority replies.
const gateWait = time.Second

// enterGate waits until no other call of AcquireAll in this Locker is in the way: attempts of
// both would refuse each other. It waits for gateWait at most and for half of the time that ctx
// leaves, so that the nodes are asked in any case. The error is that of Options.MaxWaiters.
func (a *acquireAll) enterGate(ctx context.Context) error {
	if a.calls[0].triesOnce() {
		return nil
	}
	e := a.l.gate.Enter(a.keys)
	if !isDone(e.Done) {
		limit := gateWait
		if end, ok := ctx.Deadline(); ok {
			limit = min(limit, time.Until(end)/2)
		}
		a.waitAtGate(ctx, e, limit)
	}
	a.admitted = a.l.gate.Withdraw(e)
	a.place = e.Place
	if e.Full != "" {
		return tooManyWaiters(a.calls[slices.Index(a.keys, e.Full)], a.l.opt.MaxWaiters)
	}
	return nil
}

// waitAtGate waits for limit at most, and no longer than until the locks in the way have expired.
func (a *acquireAll) waitAtGate(ctx context.Context, e *wait.Entrant, limit time.Duration) {
	end := time.Now().Add(limit)
	timer := time.NewTimer(min(limit, a.freeExpired()))
	defer timer.Stop()
	for {
		select {
		case <-e.Done:
			return
		case <-timer.C:
		case <-ctx.Done():
			return
		case <-a.l.closing:
			return
		}
		next, left := a.freeExpired(), time.Until(end) // after an extension there is more time
		if left <= 0 {
			return
		}
		timer.Reset(min(left, next))
	}
}

// freeExpired lets others go on where a lock on one of the keys has expired, which leaves the
// Locker's list with a later sweep only. It returns how long at least the other locks have left.
func (a *acquireAll) freeExpired() (next time.Duration) {
	next = gateWait
	for _, key := range a.keys {
		v, ok := a.l.gated.Load(key)
		if !ok {
			continue
		}
		k := v.(*Lock)
		k.mu.Lock()
		left := k.remaining(k.l.now())
		k.mu.Unlock()
		if left <= 0 {
			a.l.held.Free(k)
		} else {
			next = min(next, left)
		}
	}
	return next
}

// leavePlace ends the count of this call as a waiter outside the queues.
func (a *acquireAll) leavePlace() {
	if a.place != "" {
		a.l.queues.Give(a.place)
		a.place = ""
	}
}

// leaveGate lets others go on that want the same keys.
func (a *acquireAll) leaveGate() {
	if a.admitted {
		a.admitted = false
		a.l.gate.Free(a.keys...)
	}
}

// occupyGate keeps others from asking for the locks until these expire or leave the Locker's list.
func (a *acquireAll) occupyGate() {
	if !a.admitted {
		a.l.gate.Occupy(a.keys)
	}
	a.freeExpired() // those on the same keys, of which only the new ones are found from now on
	for i, k := range a.locks {
		a.l.gated.Store(a.keys[i], k)
		if !a.l.held.Gate(k) { // lost already
			a.l.gated.CompareAndDelete(a.keys[i], k)
			a.l.gate.Free(a.keys[i])
		}
	}
}

// acquire tries, and waits for the key that was refused, until it has all locks or an error.
func (a *acquireAll) acquire(ctx context.Context) error {
	// Those that wait already are not overtaken.
	i := slices.IndexFunc(a.calls, func(e *acquireCall) bool { return !e.triesOnce() && a.l.queues.Waiting(e.name) })
	at, refused, err := (*acquireCall)(nil), error(nil), error(nil)
	if i >= 0 {
		at = a.calls[i]
	} else {
		at, refused, err = a.first(ctx)
	}
	if at != nil {
		a.leaveGate()
	}
	for at != nil && err == nil {
		if err = a.ends(ctx, at, refused); err != nil {
			break
		}
		if a.moves > 1 && a.l.pause(ctx, defaultRetry(a.moves-1)) != nil {
			return a.l.ended(ctx, at)
		}
		at, refused, err = a.waitAt(ctx, at, refused)
	}
	return err
}

// moved notes that a caller goes from one queue to another. A queue says when to ask for its
// own key only. If no queue makes the caller wait, it pauses before it asks again: two callers,
// each of which is refused because of the other, would otherwise ask as fast as the nodes
// reply, and in step. joined is when it joined the first queue, tried when its last try began.
func (a *acquireAll) moved(joined, tried clock.Instant) {
	const rounds = 4 // of a look and a try, and as much again
	now := a.l.now()
	if now.Since(joined) < retryFirst+rounds*now.Since(tried) {
		a.moves++
	} else {
		a.moves = 0
	}
}

// first is the attempt before any wait. A tie is tried again where it is the only one. It returns
// the key that was refused, and why, or an error that ends the call.
func (a *acquireAll) first(ctx context.Context) (at *acquireCall, refused, err error) {
	at, refused = a.attempt(ctx, nil, nil)
	for at != nil && at.triesOnce() && tied(refused) && ctx.Err() == nil && at.attempt < wait.MaxTies {
		if a.l.pause(ctx, a.l.patience(at.ttl).Base/tieSpread) != nil {
			return at, nil, a.l.ended(ctx, at)
		}
		at, refused = a.attempt(ctx, nil, nil)
	}
	return at, refused, nil
}

// ends returns the error with which an attempt that was refused at a key ends the call; nil: the
// call goes on. It is that of ctx or Close if they end the call, even if that came after the verdict.
func (a *acquireAll) ends(ctx context.Context, at *acquireCall, refused error) error {
	var q *QuorumError
	switch _, decided := refused.(*QuorumError); {
	case refused == nil:
		return nil
	case at.triesOnce() || at.permanent || !errors.As(refused, &q):
		return refused
	case !a.l.isOver(ctx):
		return nil
	case decided:
		return a.l.ended(ctx, at)
	}
	return refused
}

// waitAt waits in the queue of one key, and tries to acquire all when its turn comes. It
// returns the key that was refused then, and why, or an error that ends the call.
func (a *acquireAll) waitAt(ctx context.Context, e *acquireCall, before error) (at *acquireCall, refused, err error) {
	l := a.l
	placed := a.place == e.name.Full
	if placed {
		a.place = "" // it becomes the one in the queue
	}
	a.leavePlace()
	if err := l.join(e, placed); err != nil {
		return nil, nil, err
	}
	defer func() {
		l.leaveQueue(e, a.locks != nil)
		e.waiter = queue.Waiter{} // it may come back
	}()
	joined := l.now()
	l.refused(ctx, e, before)
	for {
		if err := l.wait(ctx, e); err != nil {
			return nil, nil, err
		}
		tried := l.now()
		at, refused = a.attempt(ctx, e, l.queues.Claim(&e.waiter))
		switch {
		case refused == nil:
			l.tried(ctx, e, a.locks[slices.Index(a.calls, e)], nil)
			return nil, nil, nil
		case at != e: // the next caller here tries
			a.moved(joined, tried)
			return at, refused, nil
		}
		l.tried(ctx, e, nil, refused)
		if err := a.ends(ctx, e, refused); err != nil {
			return nil, nil, err
		}
	}
}

// attempt asks for all keys in one round. handed, if not nil, is an attempt for the key of one
// call that a release in this Locker has sent. If a key is refused, attempt returns its call
// and the error, and everything is undone.
func (a *acquireAll) attempt(ctx context.Context, at *acquireCall, handed *quorum.Call) (refused *acquireCall, err error) {
	l, n := a.l, len(a.calls)
	asked := make([]*quorum.Call, n)
	locks := make([]*Lock, 0, n)
	sent := false
	if handed != nil {
		at.attempt++
		at.call, at.tail = handed, handed
		asked[slices.Index(a.calls, at)] = handed
	}
	defer func() {
		if a.locks == nil {
			lane.Each(0, n, func(i int) {
				if b := asked[i]; b != nil && (sent || b == handed) {
					a.undo(a.calls[i], b, b == handed, refused != at || l.isOver(ctx))
				}
			})
			lane.Each(0, len(locks), func(i int) { locks[i].beginRelease(context.Background(), ErrClosed) })
		}
	}()
	if err := l.usable(ctx, cmp.Or(at, a.calls[0])); err != nil {
		return cmp.Or(at, a.calls[0]), err
	}
	for i, e := range a.calls {
		if asked[i] != nil {
			continue
		}
		if asked[i], err = l.prepare(e); err != nil {
			return e, err
		}
	}
	// Not before all are prepared: what follows a call that is never sent would never be sent.
	for i, e := range a.calls {
		e.call, e.tail = asked[i], asked[i]
	}
	sent = true
	a.send(asked, handed)
	tokens := make([]int64, n)
	for i, e := range a.calls {
		if tokens[i], err = l.decide(ctx, e, asked[i]); err != nil {
			return e, err
		}
	}
	for i, e := range a.calls {
		k, err := l.keep(ctx, e, asked[i], tokens[i])
		if err != nil {
			return e, err
		}
		locks = append(locks, k)
		asked[i] = nil // it is the lock's from now on
		k.reportAcquired()
	}
	a.locks = locks
	return nil, nil
}

// send sends the attempts, all that go to one node in one batch. On each node they follow the
// clean-ups of the attempts before.
func (a *acquireAll) send(asked []*quorum.Call, handed *quorum.Call) {
	before := make([][]*quorum.Call, len(asked))
	for n, e := range a.calls {
		before[n] = []*quorum.Call{a.l.cleanups.Last(e.name), a.l.queues.Asking(&e.waiter, asked[n])}
	}
	lane.Each(0, len(a.l.lanes), func(i int) {
		var calls []*lane.Call
		var prior [][]*quorum.Call
		for n, b := range asked {
			if b != handed {
				calls, prior = append(calls, &b.Calls[i]), append(prior, before[n])
			}
		}
		a.l.lanes[i].AskAll(calls, func(n int) (after []*lane.Call) {
			for _, p := range prior[n] {
				after = append(after, p.LastCall(i))
			}
			return after
		})
	})
}

// undo takes back what the attempt b for one key may have stored. leaves says that the call is about
// to leave the queue in which it stands.
func (a *acquireAll) undo(e *acquireCall, b *quorum.Call, handed, leaves bool) {
	b.Abandon()
	e.before = e.raised
	e.raised |= b.MayHaveRaised()
	q := takeBackHanded(b)
	if !handed {
		q = a.l.takeBack(e, b, leaves)
	}
	a.l.undo(e.tail, q)
}

// RunAll is Run for the locks of several keys, which AcquireAll acquires: fn's context ends
// when any of them is lost, and RunAll returns nil only if fn returned nil and all were held
// until then.
func (l *Locker) RunAll(ctx context.Context, keys []string, ttl time.Duration, fn func(ctx context.Context, locks Locks) error, opts ...AcquireOption) (err error) {
	if fn == nil {
		panic("redlock: RunAll with a nil fn")
	}
	l.check(ctx)
	ctx, traced := l.traceCall(ctx, Call{Method: "RunAll", Keys: keys, TTL: ttl})
	err = ErrPanicked // until it returns
	defer func() { traced.end(nil, err) }()
	locks, err := l.AcquireAll(ctx, keys, ttl, opts...)
	if err != nil {
		return err
	}
	err = ErrPanicked // again until it returns
	return locks.run(ctx, func(held context.Context) error { return fn(held, locks) })
}

// run keeps the locks alive, calls fn, and releases them. It joins the errors of the locks that
// were not held until fn returned to that of fn, if that does not wrap them.
func (ks Locks) run(ctx context.Context, fn func(held context.Context) error) error {
	ks = ks.distinct()
	held, stop := ks.KeepAlive(ctx)
	defer stop()
	returned := false
	defer func() {
		if !returned { // fn panicked or ended its goroutine
			ks.Release(ctx)
		}
	}()
	err := fn(held)
	returned = true
	kept := make([]bool, len(ks))
	for i, k := range ks {
		kept[i] = k.kept() // before any is released
	}
	for i, r := range ks.release(ctx) {
		switch {
		case !kept[i]:
			err = joinOnce(err, r.k.lossError())
		case errors.Is(r.err, ErrLost):
			err = joinOnce(err, r.err)
		}
	}
	return err
}

// joinOnce joins the loss of a lock to fn's error, unless fn returned it: it is the cause of fn's
// context.
func joinOnce(err, loss error) error {
	if errors.Is(err, loss) {
		return err
	}
	return errors.Join(err, loss)
}

// Until returns the earliest Until of the locks.
func (ks Locks) Until() time.Time {
	var first time.Time
	for i, k := range ks {
		if t := k.Until(); i == 0 || t.Before(first) {
			first = t
		}
	}
	return first
}

// Valid reports whether all locks are valid. It is false for no locks, as AcquireAll returns
// them with an error.
func (ks Locks) Valid() bool {
	return len(ks) > 0 && !slices.ContainsFunc(ks, func(k *Lock) bool { return !k.Valid() })
}
