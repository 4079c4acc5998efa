package redlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/clock"
	"github.com/seed-ce352c9b/redlock/internal/lane"
	"github.com/seed-ce352c9b/redlock/internal/queue"
	"github.com/seed-ce352c9b/redlock/internal/quorum"
	"github.com/seed-ce352c9b/redlock/internal/wait"
	"github.com/seed-ce352c9b/redlock/internal/wire"
)

// An acquireCall is one call of TryAcquire, Acquire or Adopt, with all its attempts. The small
// fields stand together: each call allocates one.
type acquireCall struct {
	// What was asked for; it does not change.
	name  *wire.LockKey
	ttl   time.Duration
	began clock.Instant
	acquireOptions
	op Op

	// Progress. All below is used by the caller's goroutine alone, but for waiter, which
	// the queues' mu guards.
	permanent bool         // the errors of the last attempt do not heal with time
	looks     int32        // while waiting
	ahead     int32        // callers before this one when it joined the queue
	attempt   int          // the number of the last one
	waiter    queue.Waiter // in the queue; only Acquire uses it
	seen      int64        // the highest fence register seen
	last      *QuorumError // the result of the last decided round

	// What the attempts may have left on the nodes.
	call   *quorum.Call // the last attempt's
	tail   *quorum.Call // its last question, which is the raise if there was one
	raised lane.Nodes   // those whose register an attempt may have raised
	before lane.Nodes   // those of the attempts before the last
}

func (l *Locker) newAcquireCall(op Op, key string, ttl time.Duration, opts []AcquireOption) (*acquireCall, error) {
	e := &acquireCall{op: op, ttl: ttl, began: l.now(), acquireOptions: acquireOptions{label: l.opt.Name, fenced: !l.opt.NoFence}}
	for _, f := range opts {
		if f != nil {
			f(&e.acquireOptions)
		}
	}
	if err := e.check(); err != nil {
		return nil, err
	}
	name, err := l.names.Of(l.opt.KeyPrefix, key, e.fenced)
	if err != nil {
		return nil, err
	}
	e.name = name
	if err := checkTTL(ttl, l.opt.NodeTimeout, l.opt.Drift); err != nil {
		return nil, err
	}
	if err := checkGrace(ttl, l.opt.Grace, l.opt.NodeTimeout, l.opt.Drift); err != nil {
		return nil, err
	}
	if err := l.guard.Admits(ttl); err != nil {
		return nil, err
	}
	if ln := l.split; ln != nil && wire.HasBracesWithoutTag(name.Full) {
		is := "a Ring"
		if ln.Kind == wire.KindUnknown {
			is = fmt.Sprintf("a %T that does not reveal whether it is a Ring", ln.Node)
		}
		return nil, fmt.Errorf("redlock: the key %q has a brace but no {tag}: a Ring would store it and its fence register on different shards, and node %d (%s) is %s", wire.Clip(key), ln.Index+1, ln.Name, is)
	}
	return e, nil
}

// newAcquire returns the acquireCall of TryAcquire or Acquire.
func (l *Locker) newAcquire(ctx context.Context, key string, ttl time.Duration, opts []AcquireOption) (*acquireCall, error) {
	if err := l.admit(OpAcquire, key); err != nil {
		return nil, err
	}
	e, err := l.newAcquireCall(OpAcquire, key, ttl, opts)
	if err != nil {
		return nil, err
	}
	return e, l.nested(ctx, e)
}

// TryAcquire acquires the lock for ttl if it is free, and does not wait for its release.
//
// It asks all nodes at once and returns as soon as a majority has granted the lock or no
// longer can. The lock may be relied on until its Until: ttl, less drift and rounding,
// after the attempt began (Redis page, The Redlock Algorithm, steps 1 to 4). On failure,
// anything stored is removed in the background, even if ctx is done (step 5).
//
// The error is a *QuorumError with ErrHeld (another holder has the lock) or ErrNoQuorum
// (too few nodes replied); the error of ctx, if that ended the call; or ErrClosed. Without
// anything being sent, it is ErrNested (see Acquire), or says what is wrong with the
// label, the key, the ttl or the nodes. A ttl that leaves no validity is refused with the
// smallest usable one, and more than 24 days are refused. Nodes round fractions of a
// millisecond up. WithWait is refused.
func (l *Locker) TryAcquire(ctx context.Context, key string, ttl time.Duration, opts ...AcquireOption) (lock *Lock, err error) {
	l.check(ctx)
	ctx, traced := l.traceCall(ctx, Call{Method: "TryAcquire", Key: key, TTL: ttl})
	var e *acquireCall
	err = ErrPanicked // until it returns
	defer func() { traced.end(e, err, lock) }()
	if e, err = l.newAcquire(ctx, key, ttl, opts); err != nil {
		return nil, err
	}
	if err := e.refuseWait("TryAcquire"); err != nil {
		return nil, err
	}
	err = ErrPanicked // again until it returns
	return l.tryAcquire(ctx, e)
}

func (l *Locker) tryAcquire(ctx context.Context, e *acquireCall) (lock *Lock, err error) {
	err = ErrPanicked // until it returns
	defer func() {
		if err != nil {
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
		return lock, err
	}
}

// tieSpread divides the node timeout into the longest pause after a tie, a few round trips
// of a near node: 10 ms with a ttl of 10 s. Halved, the pause is twice as long, and TryAcquire
// with it; doubled, the same callers tie again more often.
const tieSpread = 100

// tied reports whether an attempt failed although nobody else had a majority.
func tied(err error) bool {
	var q *QuorumError
	return errors.As(err, &q) && q.Err == ErrHeld && wait.IsTie(q.Round.Value().Secret(), votesOf(q.Round))
}

// Acquire acquires the lock for ttl, and waits for it until ctx is done or, with WithWait,
// at most for the given time.
//
// Callers of one Locker that wait for the same key form a FIFO queue, of which only the
// head talks to the nodes. It tries when a majority of the nodes has announced a release,
// when the holder's ttl ends, and after pauses, see Options.Retry. If several callers
// split the nodes, only one of them tries again at once. Several Lockers are served in no
// particular order, unless they set Options.Fair. While a majority of the nodes would
// announce the release, all callers of a Locker that wait for one key cost each node
// together one command every four to five seconds, or more often if the ttl that they see
// is shorter, and a PING every six seconds for all keys: some 24 commands a minute.
//
// The errors are those of TryAcquire, but while the caller waits, ErrHeld and ErrNoQuorum come
// only when the wait ends: together with the error of ctx or with ErrClosed, or alone if the
// limit of WithWait has passed. They have the votes of the last round decided in the queue, if
// there was one, even if this caller was behind others and made no attempt.
// ErrNoQuorum comes at once if no majority is possible because nodes are replicas or reply
// with errors that do not heal with time, such as WRONGTYPE, NOAUTH, WRONGPASS, NOPERM, READONLY,
// and MOVED or CROSSSLOT from single nodes of a Redis Cluster. If half of an even number of nodes
// do so and the other half store another value, Acquire waits for that holder first.
//
// Locks are not reentrant. If ctx comes from Run or KeepAlive of a lock on the same key
// that this Locker holds, Acquire fails with ErrNested at once, since it would wait for
// itself. (Each acquisition has its own fencing token, and the inner release would take
// the lock from the outer call.) Only the context shows this: a call with another context,
// or by another Locker, waits like any other.
func (l *Locker) Acquire(ctx context.Context, key string, ttl time.Duration, opts ...AcquireOption) (lock *Lock, err error) {
	l.check(ctx)
	ctx, traced := l.traceCall(ctx, Call{Method: "Acquire", Key: key, TTL: ttl})
	var e *acquireCall
	err = ErrPanicked                           // until it returns
	defer func() { traced.end(e, err, lock) }() // after leaving the queue, so that nobody waits for it
	if e, err = l.newAcquire(ctx, key, ttl, opts); err != nil {
		return nil, err
	}
	err = ErrPanicked // again until it returns
	if e.triesOnce() {
		return l.tryAcquire(ctx, e)
	}
	ctx, stop := e.limit(ctx)
	defer stop()
	return l.acquire(ctx, e)
}

func (l *Locker) acquire(ctx context.Context, e *acquireCall) (*Lock, error) {
	if !l.begin() {
		return nil, l.ended(ctx, e)
	}
	defer l.end() // Close waits for all below, leaving the queue included
	return l.inLine(ctx, e)
}

// inLine waits and tries until it has the lock or an error.
func (l *Locker) inLine(ctx context.Context, e *acquireCall) (lock *Lock, err error) {
	if err := l.join(e, false); err != nil {
		return nil, err
	}
	defer func() { l.leaveQueue(e, lock != nil) }()
	for {
		if err := l.wait(ctx, e); err != nil {
			return nil, err
		}
		var again bool
		if lock, again, err = l.turn(ctx, e); !again {
			return lock, err
		}
	}
}

// turn is a try of the head of a queue. again says that it goes on waiting.
func (l *Locker) turn(ctx context.Context, e *acquireCall) (lock *Lock, again bool, err error) {
	lock, err = l.try(ctx, e)
	l.tried(ctx, e, lock, err)
	var missed *QuorumError
	switch {
	case err == nil:
		return lock, false, nil
	case !errors.As(err, &missed) || e.permanent:
		return nil, false, err
	case l.isOver(ctx): // even if that came after the verdict
		return nil, false, l.ended(ctx, e)
	}
	return nil, true, nil
}

// try makes an attempt, or claims one that was handed over to this call.
func (l *Locker) try(ctx context.Context, e *acquireCall) (*Lock, error) {
	b := l.queues.Claim(&e.waiter)
	if b == nil {
		return l.attempt(ctx, e)
	}
	e.attempt++
	e.call = b
	return l.claim(ctx, e, b, func() wire.Question { return takeBackHanded(b) })
}

// takeBack returns the question that undoes a finished or abandoned attempt. If a majority of the
// nodes may have stored it, others may have been refused because of it: they are notified in the
// step that deletes it, whenever that is. The caller itself ignores that (wait.Plan.Announced).
// leaves says that it is about to leave its queue.
func (l *Locker) takeBack(e *acquireCall, b *quorum.Call, leaves bool) wire.Question {
	if b.MayHaveMajority() {
		return wire.ReleaseQuestion(b.Name, b.Question.Value, b.Question.TTL, l.queues.TakenBack(&e.waiter, leaves))
	}
	return wire.RollbackQuestion(b.Name, b.Question.Value, b.Question.TTL)
}

// takeBackHanded is takeBack for an attempt to which a release has handed the lock on. The release
// told nobody, so that others are notified wherever the lock is free without the attempt.
func takeBackHanded(b *quorum.Call) wire.Question {
	return wire.ReleaseQuestion(b.Name, b.Question.Value, b.Question.TTL, wire.Handed)
}

// isOver reports whether ctx or Close ends a call.
func (l *Locker) isOver(ctx context.Context) bool { return ctx.Err() != nil || l.isClosed() }

// decline undoes an attempt that was handed over to the call but not claimed.
func (l *Locker) decline(e *acquireCall, b *quorum.Call) {
	b.Abandon() // if it has not been sent yet, it never is
	e.before, e.call = e.raised, b
	e.raised |= b.MayHaveRaised()
	l.undo(b, takeBackHanded(b))
}

// pause waits for a random time between half of longest and all of it.
func (l *Locker) pause(ctx context.Context, longest time.Duration) error {
	longest = max(longest, time.Millisecond)
	t := time.NewTimer(longest/2 + time.Duration(l.rand.Float()*float64(longest/2)))
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

// attempt is the Redlock algorithm: ask all nodes, count, agree on a token, and subtract
// the time that it took.
func (l *Locker) attempt(ctx context.Context, e *acquireCall) (*Lock, error) {
	if err := l.usable(ctx, e); err != nil {
		return nil, err
	}
	if !l.begin() {
		return nil, l.ended(ctx, e)
	}
	defer l.end()
	b, err := l.prepare(e)
	if err != nil {
		return nil, err
	}
	// On each node after the clean-up of the attempt before, whose key would otherwise
	// be in the way.
	e.call = b
	b.Send(l.cleanups.Last(e.name), l.queues.Asking(&e.waiter, b))
	return l.claim(ctx, e, b, func() wire.Question { return l.takeBack(e, b, l.isOver(ctx)) })
}

// prepare returns the next attempt of a call, to be sent.
func (l *Locker) prepare(e *acquireCall) (*quorum.Call, error) {
	e.attempt++
	// A new value for every attempt: a late rollback cannot remove the key of the next
	// one.
	value := e.label + ":" + l.rand.UUID()
	start := l.now() // before anything is sent, so that the nodes' ttls begin later
	e.seen = max(e.seen, l.ahead.Of(e.name))
	proposal, ok := propose(e.name, start, e.seen)
	if !ok {
		e.permanent = true
		return nil, &QuorumError{Round: Round{Op: e.op, Key: e.name.Key, Start: start.At}, Err: ErrNoQuorum, hint: tokensUsedUp}
	}
	q, decided := wire.AcquireQuestion(l.guard, e.name, value, e.ttl, proposal), acquireDecided
	if l.opt.Fair {
		q, decided = l.askTurn(e, value, proposal), turnDecided
	}
	return l.newQuorumCall(OpAcquire, e.name, q, start, decided), nil
}

// acquireDecided reports whether an attempt need not wait for the open votes. Half of an even number
// rules a majority out, but where others said yes, only the open votes tell a lock from a tie.
func acquireDecided(t quorum.Tally) bool {
	return acquisitionOf(t) != acquirePending && (t.Yes == 0 || t.Settled(t.No))
}

// turnDecided also waits for the replies of a majority, which show where the caller's entry stands.
func turnDecided(t quorum.Tally) bool {
	return acquireDecided(t) && (t.Yes+t.No >= t.Need() || t.Open() == 0)
}

// usable returns an error if an attempt would be in vain, before anything is sent.
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

// claim waits for a quorum call that was sent, and returns the lock that it acquired. If
// it returns none, or a callback of the user panics, it undoes the call.
func (l *Locker) claim(ctx context.Context, e *acquireCall, b *quorum.Call, undo func() wire.Question) (k *Lock, err error) {
	e.tail = b
	defer func() {
		if k == nil {
			e.before = e.raised
			e.raised |= b.MayHaveRaised()
			l.undo(e.tail, undo())
		}
	}()
	token, err := l.decide(ctx, e, b)
	if err != nil {
		return nil, err
	}
	if k, err = l.keep(ctx, e, b, token); err != nil {
		return nil, err
	}
	k.reportAcquired() // it releases the lock if a callback panics
	return k, nil
}

// decide waits for a quorum call that was sent and, if a majority of the nodes stores its
// value, agrees on a token, unless none was proposed.
func (l *Locker) decide(ctx context.Context, e *acquireCall, b *quorum.Call) (token int64, err error) {
	token = b.Question.Token
	if err = l.await(ctx, e, b); err == nil {
		t, hard, score := b.Result()
		e.seen = max(e.seen, score, token)
		e.permanent = inVain(t, hard)
		switch acquisitionOf(t) {
		case acquireFenced:
		case acquireUnfenced:
			token, err = l.raise(ctx, e, b)
		case acquireHeld:
			err = l.notAcquired(e, b, ErrHeld, "")
		default:
			err = l.notAcquired(e, b, ErrNoQuorum, "")
		}
	}
	l.observe(ctx, b, e) // while there is no lock yet: whoever panics here never gets it
	if duplicates := l.servers.Duplicates(); duplicates != nil {
		err = duplicates // whatever the votes: no later attempt can succeed
	}
	return token, err
}

// keep returns the lock that a quorum call has acquired, if its validity has not ended.
func (l *Locker) keep(ctx context.Context, e *acquireCall, b *quorum.Call, token int64) (k *Lock, err error) {
	// Last of all, so that nothing after it uses up the validity.
	valid := validity(e.ttl, l.opt.Drift)
	if now := l.now(); now.Since(b.Start) >= valid {
		return nil, l.notAcquired(e, b, ErrNoQuorum, "the replies came after the validity of "+wire.Short(valid)+" ended")
	}
	if k = l.hold(e, b, e.tail, token, valid); k == nil {
		return nil, l.ended(ctx, e)
	}
	if token != 0 {
		l.ahead.Note(e.name, b.Start.Wall, token)
	}
	return k, nil
}

// await waits until a quorum call is decided. If the caller's ctx or Close ends the wait,
// it abandons the call and returns the error.
func (l *Locker) await(ctx context.Context, e *acquireCall, b *quorum.Call) error {
	select {
	case <-b.Done():
		return nil
	case <-ctx.Done():
	case <-l.closing:
	}
	if !b.Abandon() {
		return nil // decided at the same instant
	}
	if q, _ := l.lastKnown(e); q == nil { // else the round before says more than this one
		e.last = &QuorumError{Round: l.round(b, e), Err: ErrNoQuorum}
	}
	return l.ended(ctx, e)
}

// notAcquired returns the error of an attempt that was decided against us.
func (l *Locker) notAcquired(e *acquireCall, b *quorum.Call, reason error, hint string) error {
	l.keepResult(e, &QuorumError{Round: l.round(b, e), Err: reason, hint: hint, endless: endless(b)})
	return e.last
}

func (l *Locker) round(b *quorum.Call, e *acquireCall) Round {
	r := roundOf(b)
	if e != nil {
		r.Wait, r.Attempt = l.now().Since(e.began), e.attempt
	}
	return r
}

func (l *Locker) patience(ttl time.Duration) wire.Patience {
	return patienceFor(ttl, l.opt.Grace, l.opt.NodeTimeout, l.opt.Drift)
}
