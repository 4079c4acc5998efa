package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/wait"
	"github.com/seed-ce352c9b/redlock/internal/wire"
)

// An acquire call is one call of TryAcquire, Acquire or Adopt, over all its attempts.
type acquireCall struct {
	op        Op
	name      *wire.LockKey
	ttl       time.Duration
	label     string
	began     instant
	attempt   int
	looks     int          // while waiting
	waiter    waiter       // in the line; only Acquire stands there
	seen      int64        // the highest register met
	permanent bool         // what stands in the way does not heal with time
	last      *QuorumError // what the last decided round came to
	call      *quorumCall  // the last attempt's
	tail      *quorumCall  // its last question: that of the raise, if there was one
	raised    uint64       // nodes whose register an attempt may have raised, as bits
	before    uint64       // and those of the attempts before the last
}

func (l *Locker) newAcquireCall(op Op, key string, ttl time.Duration, opts []AcquireOption) (*acquireCall, error) {
	o := acquireOptions{label: l.opt.Name}
	for _, f := range opts {
		if f != nil {
			f(&o)
		}
	}
	if err := checkLabel("the label", o.label); err != nil {
		return nil, err
	}
	name, err := wire.NameKey(l.opt.KeyPrefix, key)
	if err != nil {
		return nil, err
	}
	if err := checkTTL(ttl, l.opt.NodeTimeout, l.opt.Drift); err != nil {
		return nil, err
	}
	if err := checkGrace(ttl, l.opt.Grace, l.opt.NodeTimeout, l.opt.Drift); err != nil {
		return nil, err
	}
	if err := l.guard.Admits(ttl); err != nil {
		return nil, err
	}
	if ln := l.split; ln != nil && wire.SplitBraces(name.Full) {
		is := "a Ring"
		if ln.Kind == wire.KindUnknown {
			is = fmt.Sprintf("a %T that does not tell whether it is a Ring", ln.Node)
		}
		return nil, fmt.Errorf("redlock: the key %q has a brace but no {tag}: a Ring would put it and what stands beside it on different shards, and node %d (%s) is %s", wire.Clip(key), ln.I+1, ln.Name, is)
	}
	return &acquireCall{op: op, name: name, ttl: ttl, label: o.label, began: l.now()}, nil
}

// newAcquire is the acquire call of TryAcquire and Acquire.
func (l *Locker) newAcquire(ctx context.Context, key string, ttl time.Duration, opts []AcquireOption) (*acquireCall, error) {
	e, err := l.newAcquireCall(OpAcquire, key, ttl, opts)
	if err != nil {
		return nil, err
	}
	return e, l.nested(ctx, e)
}

// TryAcquire takes the lock key for ttl if it is free, and does not wait for it.
//
// All nodes are asked at once; the answer is there when a majority has said yes,
// or can not any more. The lock may be believed in until its Until, ttl less
// drift and rounding after TryAcquire was called (Redis page, The Redlock
// Algorithm, steps 1 to 4). On failure whatever was stored is removed in the
// background, also when ctx is done (step 5).
//
// Errors: a *QuorumError with ErrHeld (another holder has it) or ErrNoQuorum (too
// few nodes answered); the error of ctx if that ended the call; ErrClosed; or, without
// anything having been sent, ErrNested, or what is wrong with key or ttl. A ttl that leaves no
// validity is refused with the smallest that would do; fractions of a millisecond
// are rounded up on the nodes; more than 24 days are refused.
func (l *Locker) TryAcquire(ctx context.Context, key string, ttl time.Duration, opts ...AcquireOption) (*Lock, error) {
	if err := l.admit(ctx, OpAcquire, key); err != nil {
		return nil, err
	}
	e, err := l.newAcquire(ctx, key, ttl, opts)
	if err != nil {
		return nil, err
	}
	won := false
	defer func() {
		if !won {
			l.expireRegisters(e)
		}
	}()
	for {
		lock, err := l.attempt(ctx, e)
		if err != nil && ctx.Err() == nil && e.attempt < wait.MaxTies && tied(err) {
			if l.pause(ctx, l.patience(e.ttl).Base/tieSpread) == nil {
				continue
			}
			err = l.ended(ctx, e)
		}
		won = err == nil
		return lock, err
	}
}

// tieSpread: the pause after a tie is up to this part of the node timeout, a few round trips
// of a near node; with a ttl of 10 s, 10 ms.
const tieSpread = 100

// tied reports whether an attempt failed though no single holder had a majority.
func tied(err error) bool {
	var q *QuorumError
	return errors.As(err, &q) && q.Err == ErrHeld && wait.IsTie(q.Round.Holder(), votesOf(q.Round))
}

// Acquire takes the lock key for ttl, waiting for it until ctx is done. The callers
// of one Locker are served first come first served, and one of them at a time speaks
// to the nodes. It tries when a majority of the nodes announced a release, when the
// holder's ttl is over, or when a pause is over, see Options.Retry; where several
// took parts of each other's majority only one of them goes on at once. Over several
// Lockers there is no order, unless Options.Fair makes one. While it waits, and hears
// a majority of the nodes, it costs each node a command every four to five seconds, more
// often where the ttl that it sees is shorter, and a PING every six: some 24 a minute for
// all callers of a Locker that wait for one key (the PING is for all keys).
//
// Errors are those of TryAcquire, but ErrHeld and ErrNoQuorum only once ctx is
// done, together with the error of ctx: for every caller, also one that stood behind
// others and made no attempt, with the votes of the last round that was decided in its
// line, if there was one. Or ErrNoQuorum at once where so many nodes
// answer with errors that time does not heal (WRONGTYPE, NOAUTH, WRONGPASS, NOPERM,
// READONLY; MOVED and CROSSSLOT from single nodes of a Redis Cluster), or are replicas,
// that no majority can be had.
//
// A lock is not reentrant. If ctx comes from Run or KeepAlive of a lock of the same key
// that this Locker holds, Acquire fails with ErrNested at once, for it would wait for
// itself. (Each acquisition has a fencing token of its own, and the inner release would
// take the lock from the outer call.) This is known by the context only: a call with
// another context, or by another Locker, waits like everybody else.
func (l *Locker) Acquire(ctx context.Context, key string, ttl time.Duration, opts ...AcquireOption) (*Lock, error) {
	if err := l.admit(ctx, OpAcquire, key); err != nil {
		return nil, err
	}
	e, err := l.newAcquire(ctx, key, ttl, opts)
	if err != nil {
		return nil, err
	}
	if !l.begin() {
		return nil, l.ended(ctx, e)
	}
	defer l.end() // Close waits for all below, leaving the line included
	lock, vain, err := l.inLine(ctx, e)
	if vain != nil { // after the line was left: nobody else waits for Observe
		l.opt.Observe(*vain)
	}
	return lock, err
}

// inLine waits and tries until there is a lock, or an error. vain is for Observe: the wait
// ended without a try that would tell of it.
func (l *Locker) inLine(ctx context.Context, e *acquireCall) (lock *Lock, vain *Round, err error) {
	l.queues.join(e)
	defer func() { l.leaveQueue(e, lock != nil) }()
	for {
		if err := l.wait(ctx, e); err != nil {
			return nil, l.inVain(e), err
		}
		tries := e.attempt
		lock, err = l.try(ctx, e)
		l.queues.tried(ctx, e, lock, err)
		var missed *QuorumError
		switch {
		case err == nil:
			return lock, nil, nil
		case !errors.As(err, &missed) || e.permanent:
		case ctx.Err() != nil || l.isClosed():
			err = l.ended(ctx, e) // also where that came behind the verdict
		default:
			continue
		}
		if e.attempt == tries {
			vain = l.inVain(e)
		}
		return nil, vain, err
	}
}

// inVain is the Round that tells of a wait without a lock: its votes are those last known.
// nil: nobody observes.
func (l *Locker) inVain(e *acquireCall) *Round {
	if l.opt.Observe == nil {
		return nil
	}
	r := Round{Key: e.name.Key, Need: majority(len(l.lanes)), Start: e.began.at}
	if q, _ := l.lastKnown(e); q != nil {
		r = q.Round
		r.Votes = slices.Clone(r.Votes) // the error has the others
	} else {
		for _, ln := range l.lanes {
			r.Votes = append(r.Votes, Vote{Node: ln.Name})
		}
	}
	r.Op, r.Wait, r.Attempt = e.op, l.now().since(e.began), 0
	return &r
}

// lastKnown is what is known of why an acquire call has no lock, and how many callers stand before
// it in the line.
func (l *Locker) lastKnown(e *acquireCall) (q *QuorumError, before int) {
	if e.waiter.queue == nil {
		return e.last, 0
	}
	return l.queues.lastKnown(e)
}

// try is an attempt, or what comes of the one that was handed to us.
func (l *Locker) try(ctx context.Context, e *acquireCall) (*Lock, error) {
	b, proposal := l.queues.claimed(e, false)
	if b == nil {
		return l.attempt(ctx, e)
	}
	e.attempt++
	e.call = b
	return l.claim(ctx, e, b, proposal, func() wire.Question { return wire.RollbackQuestion(e.name, b.q.Value, e.ttl) })
}

// decline undoes an attempt that was handed to a caller and that it did not claim.
func (l *Locker) decline(e *acquireCall, b *quorumCall) {
	b.abandon() // if it has not been sent yet, it never is
	e.before, e.call = e.raised, b
	e.raised |= b.mayHaveExecuted()
	l.undo(b, wire.RollbackQuestion(e.name, b.q.Value, e.ttl))
}

// pause waits before the next attempt, between half of longest and all of it.
func (l *Locker) pause(ctx context.Context, longest time.Duration) error {
	longest = max(longest, time.Millisecond)
	t := time.NewTimer(longest/2 + time.Duration(l.rand.float()*float64(longest/2)))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-l.closing:
		return ErrClosed
	}
}

// attempt is the Redlock algorithm: ask all, count, agree on a token, subtract.
func (l *Locker) attempt(ctx context.Context, e *acquireCall) (*Lock, error) {
	if err := l.usable(ctx, e); err != nil {
		return nil, err
	}
	if !l.begin() {
		return nil, l.ended(ctx, e)
	}
	defer l.end()
	e.attempt++
	// A new value for every attempt: a rollback that is late cannot meet the key of
	// the next one.
	value := e.label + ":" + l.rand.uuid()
	start := l.now() // before anything is sent: the nodes' ttls begin later
	e.seen = max(e.seen, l.registerAhead(e.name))
	proposal := propose(start, e.seen)
	if proposal == 0 {
		e.permanent = true
		return nil, &QuorumError{Round: Round{Op: e.op, Key: e.name.Key, Start: start.at}, Err: ErrNoQuorum, hint: tokensUsedUp}
	}
	q, decided := wire.AcquireQuestion(l.guard, e.name, value, e.ttl, proposal), acquireDecided
	if l.opt.Fair {
		q, decided = l.askTurn(e, value, proposal), turnDecided
	}
	b := l.newQuorumCall(OpAcquire, e.name, q, start, decided)
	b.q.Patience = l.patience(e.ttl)
	undo := func() wire.Question { return wire.RollbackQuestion(e.name, value, e.ttl) }
	// To each node after what was left there by the attempt before, which would
	// otherwise stand in our way.
	e.call = b
	b.send(l.lastCleanup(e.name), l.queues.dequeueOf(e))
	return l.claim(ctx, e, b, proposal, undo)
}

func acquireDecided(t tally) bool { return t.acquisition() != acquirePending }

// usable refuses what would be in vain, before anything is sent.
func (l *Locker) usable(ctx context.Context, e *acquireCall) error {
	select {
	case <-l.closing:
		return l.ended(ctx, e)
	default:
	}
	if ctx.Err() != nil {
		return l.ended(ctx, e)
	}
	return l.servers.Duplicates()
}

// claim turns a quorum call on its way into a lock, or undoes it: a lock that is not returned is
// undone, also where a callback of the user panics.
func (l *Locker) claim(ctx context.Context, e *acquireCall, b *quorumCall, proposal int64, undo func() wire.Question) (k *Lock, err error) {
	e.tail = b
	defer func() {
		if k == nil {
			e.before = e.raised
			e.raised |= b.mayHaveExecuted()
			l.undo(e.tail, undo())
		}
	}()
	token := proposal
	if err = l.await(ctx, e, b); err == nil {
		t, hard, score := b.result()
		e.seen = max(e.seen, score, proposal)
		e.permanent = t.n-hard < t.need()
		switch t.acquisition() {
		case acquireFenced:
		case acquireUnfenced:
			token, err = l.raise(ctx, e, b)
		case acquireHeld:
			err = l.notAcquired(e, b, ErrHeld, "")
		default:
			err = l.notAcquired(e, b, ErrNoQuorum, "")
		}
	}
	l.observe(b, e) // while there is no lock yet: whoever panics here never gets it
	if err == nil {
		err = l.servers.Duplicates()
	}
	if err != nil {
		return nil, err
	}
	// Last of all: only what is left of the validity now was acquired.
	valid := validity(e.ttl, l.opt.Drift)
	if now := l.now(); now.since(b.start) >= valid {
		return nil, l.notAcquired(e, b, ErrNoQuorum, "the answers came after the validity of "+wire.Short(valid)+" was over")
	}
	if k = l.hold(e, b, e.tail, token, valid); k == nil {
		return nil, l.ended(ctx, e)
	}
	l.noteRegisterAhead(e.name, b.start, token)
	return k, nil
}

// await waits for a quorum call to be decided; if the caller's ctx or Close end that,
// nobody counts it any more.
func (l *Locker) await(ctx context.Context, e *acquireCall, b *quorumCall) error {
	select {
	case <-b.done:
		return nil
	case <-ctx.Done():
	case <-l.closing:
	}
	if !b.abandon() {
		return nil // decided at the same instant
	}
	if q, _ := l.lastKnown(e); q == nil { // else the round before knew more than this one
		e.last = &QuorumError{Round: l.round(b, e), Err: ErrNoQuorum}
	}
	return l.ended(ctx, e)
}

// notAcquired is the error of an attempt that was decided against us.
func (l *Locker) notAcquired(e *acquireCall, b *quorumCall, reason error, hint string) error {
	e.last = &QuorumError{Round: l.round(b, e), Err: reason, hint: hint, endless: b.endless()}
	l.queues.keepRound(e, e.last)
	return e.last
}

func (l *Locker) round(b *quorumCall, e *acquireCall) Round {
	r := b.round()
	if e != nil {
		r.Wait, r.Attempt = l.now().since(e.began), e.attempt
	}
	return r
}

func (l *Locker) observe(b *quorumCall, e *acquireCall) {
	if l.opt.Observe != nil {
		l.opt.Observe(l.round(b, e))
	}
}

func (l *Locker) patience(ttl time.Duration) wire.Patience {
	return patienceFor(ttl, l.opt.Grace, l.opt.NodeTimeout, l.opt.Drift)
}
