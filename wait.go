package redlock

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/lane"
	"github.com/seed-ce352c9b/redlock/internal/queue"
	"github.com/seed-ce352c9b/redlock/internal/quorum"
	"github.com/seed-ce352c9b/redlock/internal/wait"
	"github.com/seed-ce352c9b/redlock/internal/wire"
)

// Waiting. The callers of Acquire that wait for one key form a FIFO queue. Only its head
// talks to the nodes. It tries to acquire the lock. If the lock is held, the head
// takes an entry in the nodes' queues and waits until one of these happens: a majority of the
// nodes announces the release of the same value, whoever stored it; the ttl that the head
// has seen passes; or a pause passes, because announcements can be lost. Then it tries again,
// or looks first. Package internal/queue has the queue, internal/wait decides when; this file
// asks the nodes and says what they replied.

// maxBefore is how many callers at most are counted before one that gives up, for its
// error: where thousands give up at once, each would walk the whole queue. Halved, the
// error of a caller behind more than 50 is less exact.
const maxBefore = 100

func (l *Locker) newQueues() *queue.Queues {
	return queue.New(queue.Config{
		Lanes:      l.lanes,
		Rules:      wait.Rules{Need: majority(len(l.lanes)), Fair: l.opt.Fair, OwnRetry: l.opt.Retry != nil, Retry: defaultRetry, RetryFirst: retryFirst, RetryMost: retryMost, Rand: l.rand.Float},
		MaxWaiters: l.opt.MaxWaiters,
		Now:        l.now,
		UUID:       l.rand.UUID,
		Closed:     l.isClosed,
		Removal:    l.removal,
		Send:       l.sendRemoval,
	})
}

// join puts a caller at the end of the local queue for its key. placed says that it is counted
// as a waiter for that key already. The error says that Options.MaxWaiters allows no more callers.
func (l *Locker) join(e *acquireCall, placed bool) error {
	ahead, ok := l.queues.Join(&e.waiter, e.name, e.label, e.ttl, e.began.At, placed)
	if !ok {
		return tooManyWaiters(e, l.opt.MaxWaiters)
	}
	e.ahead = int32(ahead)
	return nil
}

// leaveQueue takes a caller out of its local queue, wherever it stands. Acquire defers it, so
// that it runs however Acquire ends. A release can hand an attempt to the caller until the
// caller is marked as gone here; an attempt that was handed to it by then and not claimed is
// undone here.
func (l *Locker) leaveQueue(e *acquireCall, won bool) {
	handed := l.queues.GiveUp(&e.waiter)
	defer func() { // also if the user's Trace panics at what decline sends
		if handed != nil || !won {
			l.expireRegisters(e)
		}
		if b := l.queues.Leave(&e.waiter, won); b != nil {
			// After the last attempt and its rollback: what is free then is announced.
			b.Send(e.call, l.cleanups.Last(e.name))
		}
	}()
	if handed != nil { // before the next caller tries, which is sent after the rollback
		l.decline(e, handed)
	}
}

// removal returns the question that removes an entry from the nodes' queues.
func (l *Locker) removal(name *wire.LockKey, entry string, ttl time.Duration) *quorum.Call {
	b := l.newQuorumCall(OpUnqueue, name, wire.LeaveQuestion(name, entry, l.rand.UUID(), wire.NotifyCount), l.now(), allAnswered)
	b.Question.Patience = l.patience(ttl)
	return b
}

// sendRemoval sends such a question after the clean-ups of the key.
func (l *Locker) sendRemoval(b *quorum.Call) {
	if l.begin() {
		defer l.end()
		b.Send(l.cleanups.Last(b.Name))
	}
}

// refused tells the queue of a caller that has just joined it why an attempt that it made before
// was refused; err is nil if there was none. If the caller is alone there, it plans its next try
// by that.
func (l *Locker) refused(ctx context.Context, e *acquireCall, err error) {
	if err != nil && l.queues.Refused(&e.waiter) {
		l.tried(ctx, e, nil, err)
	}
}

// handOver prepares an attempt for the next caller in this Locker, to be sent right behind the
// release b of a lock, or returns nil. n says whom the release notifies. Needs k.mu.
func (l *Locker) handOver(k *Lock, b *quorum.Call) (next *quorum.Call, n wire.Notice) {
	seen := max(k.fence, l.ahead.Of(k.name))
	left := k.ttl - b.Start.Since(k.start)
	switch {
	case k.adopted:
		left = wire.MaxTTL // an adoption shortens no ttl
	case k.ext != nil || k.failed.n > 0:
		left = k.ttl // an extension without a result may have been executed
	}
	return l.queues.HandOver(b, left, func(m *queue.Waiter) *quorum.Call {
		start, name := l.now(), m.Name() // not k.name: it says whether that caller wants a fence
		proposal, ok := propose(name, start, seen)
		if !ok {
			return nil
		}
		value := m.Label() + ":" + l.rand.UUID()
		return l.newQuorumCall(OpAcquire, name, wire.AcquireQuestion(l.guard, name, value, m.TTL(), proposal), start, acquireDecided)
	})
}

// lastKnown returns why a caller does not have the lock, as far as it or its queue knows, and
// how many callers are before it, up to maxBefore. If no round was decided, the error has the votes
// of the one in progress; it is nil if there are none yet. Its Wait and Attempt are the caller's own.
func (l *Locker) lastKnown(e *acquireCall) (q *QuorumError, before int) {
	if !e.waiter.Joined() {
		return e.last, 0
	}
	known := l.queues.Known(&e.waiter, maxBefore)
	last, _ := known.Result.(*QuorumError)
	switch {
	case known.WonBy != nil:
		q = &QuorumError{Round: roundOf(known.WonBy), Err: ErrHeld}
		winner := ValueOf(known.WonBy.Question.Value)
		for i := range q.Round.Votes {
			if v := &q.Round.Votes[i]; v.Answer == AnswerYes { // a yes to the winner is a no to this caller
				v.Answer, v.Value = AnswerNo, winner
			}
		}
	case last == nil && e.last == nil && known.Asking != nil:
		q = &QuorumError{Round: roundOf(known.Asking), Err: ErrNoQuorum}
		if !slices.ContainsFunc(q.Round.Votes, func(v Vote) bool { return v.Answer != AnswerPending }) {
			return nil, known.Before
		}
		q.Round.Took = cmp.Or(q.Round.Took, l.now().Since(known.Asking.Start))
	case last == nil || last == e.last:
		return e.last, known.Before
	default:
		q = new(*last)
		q.Round.Votes = slices.Clone(q.Round.Votes)
	}
	if known.Freeing != "" && known.Freeing == q.Round.Value().Secret() {
		q.hint = "being released"
	}
	q.Round.Wait, q.Round.Attempt = l.now().Since(e.began), e.attempt
	return q, known.Before
}

// keepResult keeps the error of a head's decided round for every caller of its queue.
func (l *Locker) keepResult(e *acquireCall, q *QuorumError) {
	e.last = q
	if e.waiter.Joined() { // not in TryAcquire and Adopt
		l.queues.KeepResult(&e.waiter, q)
	}
}

// wait returns nil once the caller is the head and has to try. An error says that the
// caller's ctx or Close ended the wait.
func (l *Locker) wait(ctx context.Context, e *acquireCall) error {
	var timer *time.Timer
	var over <-chan time.Time
	for {
		do, pause := l.queues.Next(&e.waiter)
		switch {
		case do == wait.Try:
			return nil
		case do == wait.Look || do == wait.Glance:
			if err := l.lookIfFree(ctx, e, do == wait.Glance); err != nil {
				return err
			}
			continue
		case pause < 0: // the head has the timer
		case timer == nil:
			timer = time.NewTimer(pause)
			defer timer.Stop()
			over = timer.C
		default:
			timer.Reset(pause)
		}
		select {
		case <-e.waiter.Wake:
		case <-over:
		case <-ctx.Done():
			return l.ended(ctx, e)
		case <-l.closing:
			return l.ended(ctx, e)
		}
	}
}

// lookIfFree asks the nodes how long the lock is still held. If announcements are heard, it
// also takes or keeps the entry in their queues, but for a glance only if it has to.
func (l *Locker) lookIfFree(ctx context.Context, e *acquireCall, glance bool) error {
	if err := l.usable(ctx, e); err != nil {
		return err
	}
	e.looks = max(e.looks, e.looks+1) // which wraps after years of looks
	q := l.queues.Question(&e.waiter, glance, l.knowsHolder(e))
	b := l.newQuorumCall(OpLook, e.name, q, l.now(), lookDecided)
	b.Question.Patience = l.patience(e.ttl)
	b.Send(l.queues.Asking(&e.waiter, b))
	if err := l.await(ctx, e, b); err != nil {
		return err
	}
	t, _, _ := b.Result()
	holder := Value{}
	if refused(t) {
		holder = l.stillHeld(e, b)
	}
	l.queues.Looked(&e.waiter, &wait.Looked{
		Start: b.Start.At, Held: refused(t), Free: t.Yes >= t.Need(), FreeIn: queue.FreeIn(b), Holder: holder.Secret(),
		Longest: l.longestPause(e), Standing: queue.Standing(b),
	})
	l.observe(ctx, b, e)
	return nil
}

// knowsHolder reports whether the queue of a caller knows who holds the lock.
func (l *Locker) knowsHolder(e *acquireCall) bool {
	known := l.queues.Known(&e.waiter, 0)
	last, _ := known.Result.(*QuorumError)
	return known.WonBy != nil || last != nil && !last.Round.Value().IsZero()
}

// stillHeld keeps what a look adds to the error of the call: that the lock is held, by whom if that
// was not known or is another by now, and whether it ever expires. It returns the holder if the look
// shows one.
func (l *Locker) stillHeld(e *acquireCall, b *quorum.Call) (holder Value) {
	holder = roundOf(b).Value()
	switch q, _ := l.lastKnown(e); {
	case q == nil || q.Err != ErrHeld, !holder.IsZero() && holder != q.Round.Value():
		l.notAcquired(e, b, ErrHeld, "")
	case q.endless != endless(b):
		told := *q
		told.endless = endless(b)
		l.keepResult(e, &told)
	}
	return holder
}

// lookDecided reports whether a majority says the same, or no longer can: yes is free, no is held.
// Half of an even number says that it is held, but not by whom.
func lookDecided(t quorum.Tally) bool { return t.Settled(t.Yes) && t.Settled(t.No) }

// endless reports whether the key has no ttl on so many nodes that it never becomes free on a
// majority. Only looks and turns read the ttl.
func endless(b *quorum.Call) (yes bool) {
	b.Read(func(calls []lane.Call, t quorum.Tally, _ time.Duration) {
		n := 0
		for i := range calls {
			if c := &calls[i]; c.Voted && c.Reply.Answer == wire.No && c.Reply.Err == nil && c.Reply.TTL == -1 {
				n++
			}
		}
		yes = t.N-n < t.Need()
	})
	return yes
}

// tried tells the queue how the head's try ended. A try that ctx ended has no result, and
// after an error that time does not heal the caller does not wait. In both cases the caller
// keeps the wake, so that the next caller tries when this one leaves.
func (l *Locker) tried(ctx context.Context, e *acquireCall, k *Lock, err error) {
	var q *QuorumError
	switch {
	case k != nil:
		l.queues.Won(&e.waiter, e.call)
		return
	case ctx.Err() != nil || e.permanent || !errors.As(err, &q):
		return
	}
	lost := wait.Lost{
		Start: q.Round.Start, Took: q.Round.Took, Held: q.Err == ErrHeld,
		Holder: q.Round.Value().Secret(), Votes: votesOf(q.Round), Longest: l.longestPause(e),
	}
	if e.call != nil { // else Close came before its first try, and the round is another caller's
		lost.Mine = e.call.Question.Value
		if l.opt.Fair {
			lost.Standing = queue.Standing(e.call)
		}
	}
	l.queues.Lost(&e.waiter, &lost)
}

// votesOf returns a round's votes in the form that package wait reads.
func votesOf(r Round) []wait.Vote {
	votes := make([]wait.Vote, len(r.Votes))
	for i, v := range r.Votes {
		votes[i] = wait.Vote{Yes: v.Answer == AnswerYes, Holder: v.Value.Secret()}
	}
	return votes
}

// longestPause returns what Options.Retry returns, at least a millisecond. No mutex may be
// held: Retry is the user's function, which may block or panic.
func (l *Locker) longestPause(e *acquireCall) time.Duration {
	retry := l.opt.Retry
	if retry == nil {
		retry = defaultRetry
	}
	return max(retry(e.attempt+int(e.looks)), time.Millisecond)
}

// askTurn returns the question of one attempt with Options.Fair. An attempt without an entry
// in the nodes' queues respects those of others all the same.
func (l *Locker) askTurn(e *acquireCall, value string, proposal int64) wire.Question {
	entry := ""
	queued, ticket := e.waiter.Place()
	if queued {
		entry = l.queues.Enqueue(&e.waiter)
	}
	return wire.TurnQuestion(l.guard, e.name, value, e.ttl, proposal, entry, ticket, queued && l.queues.Prolongs(&e.waiter, e.attempt))
}
