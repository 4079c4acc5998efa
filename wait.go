package redlock

import (
	"context"
	"errors"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/lane"
	"github.com/seed-ce352c9b/redlock/internal/quorum"
	"github.com/seed-ce352c9b/redlock/internal/wait"
	"github.com/seed-ce352c9b/redlock/internal/wire"
)

// Waiting. The callers of Acquire that wait for one key form a FIFO queue. Only its head, the
// leader, talks to the nodes. It tries to acquire the lock. If the lock is held, the leader
// takes an entry in the nodes' queues and waits until one of these happens: a majority of the
// nodes announces the release of the same value, whoever stored it; the ttl that the leader
// has seen passes; or a pause passes, because announcements can be lost. Then it tries again,
// or looks first. Package internal/wait decides when; this file asks the nodes and tells the
// plan what they replied.

// listen subscribes to the announcements of a key's releases. Needs w.mu.
func (w *waitQueues) listen(r *waitQueue) {
	if r.channel != "" {
		return
	}
	r.channel = r.name.Channel + ":" + w.entryOf(r)
	w.byChannel[r.channel] = r
	for _, e := range w.subscribers {
		if e != nil {
			e.Listen(r.channel)
		}
	}
}

// Subscribed implements pubsub.Listener: node i's announcements on a channel are heard from now
// on, or no longer.
func (w *waitQueues) Subscribed(i int, channel string, yes bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r := w.byChannel[channel]; r != nil {
		r.wake(r.plan.Subscribed(i, yes, time.Now()))
	}
	w.watchersHear(i, channel, yes)
}

// Announced implements pubsub.Listener: node i announced text on a channel.
func (w *waitQueues) Announced(i int, channel, text string) {
	if b := w.announced(i, channel, text); b != nil && w.l.begin() {
		defer w.l.end()
		b.Send(w.l.cleanups.Last(b.Name))
	}
}

// announced tells the plan of an announcement. If nobody waits any more, it returns the call
// that removes our entry from the nodes' queues and notifies the next waiters instead.
func (w *waitQueues) announced(i int, channel, text string) *quorum.Call {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wakeWatchers(channel)
	r := w.byChannel[channel]
	if r == nil {
		return nil
	}
	now := time.Now()
	told, wake := r.plan.Announced(i, text, now)
	r.wake(wake)
	if !told || r.first != nil || !r.queued || r.holds(now) {
		return nil
	}
	r.comesBack = false
	return w.leave(r)
}

// released notes that a lock of this Locker was released, and whether a waiter of another one
// was notified. If not, the leader tries. It also does where the release was quiet because the
// lock was handed on, but the attempt had already failed: it had overtaken the release.
func (w *waitQueues) released(k *Lock, b *quorum.Call) {
	told, took := b.Told()
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.queues[k.name.Full]
	switch {
	case k.quiet:
		if r != nil && (!r.plan.Hears() || r.first != nil && !r.first.trying) {
			r.plan.Freed()
			r.wake(true)
		}
		return
	case r == nil && told > 0 && !w.closed: // or a caller that comes would not know of the others
		r = w.queueOf(k.name, wire.LabelOf(k.value))
		r.plan.Releasing(k.value, time.Now())
		w.sweepLater(r)
	case r == nil:
		return
	}
	now := time.Now()
	switch {
	case told >= majority(len(w.l.lanes)):
		r.placed = now
	case told == 0 && r.first == nil:
		r.queued = false // it is not in the queue where nobody was notified
	}
	r.wake(r.plan.Released(told > 0, r.queued && !r.placed.IsZero(), took, now))
}

// next returns what a waiter does next, and for wait.Wait how long it pauses; a negative pause
// lasts until it is woken.
func (w *waitQueues) next(m *waiter) (wait.Act, time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if m.wake == nil {
		m.wake = make(chan struct{}, 1)
	}
	switch {
	case m.queue.first != m:
		return wait.Wait, -1
	case m.attempt != nil:
		return wait.Try, 0
	}
	act, pause := m.queue.plan.Next(time.Now())
	if act == wait.Try {
		m.trying = true
	}
	return act, pause
}

// wait returns nil once the caller is the leader and has to try. An error says that the
// caller's ctx or Close ended the wait.
func (l *Locker) wait(ctx context.Context, e *acquireCall) error {
	var timer *time.Timer
	var over <-chan time.Time
	for {
		do, pause := l.queues.next(&e.waiter)
		switch {
		case do == wait.Try:
			return nil
		case do == wait.Look || do == wait.Glance:
			if err := l.lookIfFree(ctx, e, do == wait.Glance); err != nil {
				return err
			}
			continue
		case pause < 0: // the leader has the timer
		case timer == nil:
			timer = time.NewTimer(pause)
			defer timer.Stop()
			over = timer.C
		default:
			timer.Reset(pause)
		}
		select {
		case <-e.waiter.wake:
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
	e.looks++
	b := l.newQuorumCall(OpLook, e.name, l.queues.question(e, glance), l.now(), lookDecided)
	b.Question.Patience = l.patience(e.ttl)
	if b.Question.Kind == wire.AskWait {
		l.queues.entering(e, b)
	}
	b.Send(l.queues.dequeueOf(e))
	if err := l.await(ctx, e, b); err != nil {
		return err
	}
	if t, _, _ := b.Result(); refused(t) {
		l.stillHeld(e, b)
	}
	l.queues.looked(e, b)
	l.observe(ctx, b, e)
	return nil
}

// stillHeld keeps what a look adds to the error of the call: whether the lock ever expires. A
// try, if there was one, knows the holder.
func (l *Locker) stillHeld(e *acquireCall, b *quorum.Call) {
	switch q, _ := l.lastKnown(e); {
	case q == nil:
		l.notAcquired(e, b, ErrHeld, "")
	case q.Err == ErrHeld && q.endless != endless(b):
		told := *q
		told.endless = endless(b)
		e.last = &told
		l.queues.keepRound(e, e.last)
	}
}

// question returns the leader's look, which queues if announcements to the entry would be
// heard.
func (w *waitQueues) question(e *acquireCall, glance bool) wire.Question {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := e.waiter.queue
	now := time.Now()
	if !r.plan.Hears() || glance && r.queued && now.Sub(r.placed) < freshFor {
		return wire.LookQuestion(e.name)
	}
	behind := r.behind || !r.queued
	r.queued, r.behind, r.placed, r.prolonged = true, false, now, now
	return wire.WaitQuestion(e.name, r.entry, behind)
}

// lookDecided reports whether a majority says the same: yes is free, no is held.
func lookDecided(t quorum.Tally) bool { return decide(t.N, t.Yes, t.No) != pending || t.Open() == 0 }

// looked tells the plan what a look showed.
func (w *waitQueues) looked(e *acquireCall, b *quorum.Call) {
	t, _, _ := b.Result()
	longest := w.l.longestPause(e)
	w.mu.Lock()
	defer w.mu.Unlock()
	r := e.waiter.queue
	if refused(t) || r.plan.Contended() {
		w.listen(r) // a leader that follows one that won looks before it has tried
	}
	r.plan.Looked(&wait.Looked{
		Start: b.Start.At, Held: refused(t), Free: t.Yes >= t.Need, FreeIn: freeIn(b),
		Longest: longest, Standing: standingOf(b),
	}, time.Now())
}

// freeIn returns after how long a majority of the nodes may be free.
func freeIn(b *quorum.Call) (d time.Duration) {
	b.Read(func(calls []lane.Call, t quorum.Tally, _ time.Duration) { d = wait.FreeIn(t.Need, replies(calls)) })
	return d
}

// standingOf returns what the round showed of its caller's entry in the nodes' queues.
func standingOf(b *quorum.Call) (s wait.Standing) {
	b.Read(func(calls []lane.Call, t quorum.Tally, took time.Duration) {
		s = wait.NewStanding(t.Need, replies(calls), b.Start.At, took)
	})
	return s
}

// replies returns the replies that were counted.
func replies(calls []lane.Call) []wait.Reply {
	all := make([]wait.Reply, len(calls))
	for i := range calls {
		if c := &calls[i]; c.Voted {
			all[i] = wait.Reply{Reply: c.Reply, Took: c.Took}
		}
	}
	return all
}

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
		yes = t.N-n < t.Need
	})
	return yes
}

// tried tells the plan how the leader's try ended. A try that ctx ended has no result, and
// after an error that time does not heal the caller does not wait. In both cases the caller
// keeps trying set, so that the next caller tries when this one leaves.
func (w *waitQueues) tried(ctx context.Context, e *acquireCall, k *Lock, err error) {
	var q *QuorumError
	if k == nil && (ctx.Err() != nil || e.permanent || !errors.As(err, &q)) {
		return
	}
	var longest time.Duration
	if k == nil {
		longest = w.l.longestPause(e)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	r := e.waiter.queue
	e.waiter.trying = false
	if k != nil || q.Round.Holder() != "" && q.Round.Holder() != r.freeing {
		r.quiet = false // others are going to be told by the holder
	}
	now := time.Now()
	if k != nil { // for the next leader
		if w.l.opt.Fair {
			r.plan.Learn(standingOf(e.call))
			r.winner = e.call
		}
		r.plan.Won(k.start.At, now)
		r.behind = true
		r.lastRound, r.wonBy = nil, e.call
		r.held, r.heldUntil = e.call.Question.Value, now.Add(e.ttl)
		return
	}
	r.held = ""
	w.listen(r)
	lost := wait.Lost{
		Start: q.Round.Start, Took: q.Round.Took, Held: q.Err == ErrHeld,
		Holder: q.Round.Holder(), Votes: votesOf(q.Round), Longest: longest,
	}
	if e.call != nil { // else Close came before its first try, and the round is another caller's
		lost.Mine = e.call.Question.Value
		if w.l.opt.Fair {
			lost.Standing = standingOf(e.call)
		}
	}
	r.plan.Lost(&e.waiter.met, &lost, now)
}

// votesOf returns a round's votes in the form that package wait reads.
func votesOf(r Round) []wait.Vote {
	votes := make([]wait.Vote, len(r.Votes))
	for i, v := range r.Votes {
		votes[i] = wait.Vote{Yes: v.Answer == Yes, Holder: v.Holder}
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
	return max(retry(e.attempt+e.looks), time.Millisecond)
}

// askTurn returns the question of one attempt with Options.Fair. An attempt without an entry
// in the nodes' queues respects those of others all the same.
func (l *Locker) askTurn(e *acquireCall, value string, proposal int64) wire.Question {
	entry := ""
	queued, ticket := e.waiter.met.Place()
	if queued {
		entry = l.queues.entry(e)
	}
	return wire.TurnQuestion(l.guard, e.name, value, e.ttl, proposal, entry, ticket, queued && l.queues.prolongs(e))
}

// prolongs reports whether a question is to prolong the ttl of the nodes' queues.
func (w *waitQueues) prolongs(e *acquireCall) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	r, now := e.waiter.queue, time.Now()
	if e.attempt < 3 && now.Sub(r.prolonged) < prolongEvery { // later ones refresh an entry
		return false
	}
	r.prolonged = now
	return true
}

// turnDecided waits for the replies of a majority, also where fewer noes rule a yes out, as half
// of an even number does: only a majority shows a standing.
func turnDecided(t quorum.Tally) bool {
	return acquireDecided(t) && (t.Yes+t.No >= t.Need || t.Open() == 0)
}
