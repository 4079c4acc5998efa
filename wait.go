package redlock

import (
	"context"
	"errors"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/wait"
	"github.com/seed-ce352c9b/redlock/internal/wire"
)

// Waiting. Callers of Acquire for one key form a FIFO queue, and its first, the leader,
// talks to the nodes. It tries, and where the lock is held it takes an entry in the nodes'
// queues and waits until a majority of them announced the release of one and the same
// value, whoever stored it, until the ttl that it knows of has passed, or until a pause has
// passed, for announcements can be lost. Then it tries again, or looks first. The plan of
// that is internal/wait's; this file asks the questions and reports what happened.

// listen has the releases of a key announced to its line. Needs w.mu.
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

// Subscribed is told by a subscriber that announcements on a channel are heard from now on, or
// not any more.
func (w *waitQueues) Subscribed(i int, channel string, yes bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r := w.byChannel[channel]; r != nil {
		r.wake(r.plan.Subscribed(i, yes, time.Now()))
	}
}

// Announced is told by a subscriber what node i announced on a channel.
func (w *waitQueues) Announced(i int, channel, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r := w.byChannel[channel]; r != nil {
		r.wake(r.plan.Announced(i, text, time.Now()))
	}
}

// released is told that a lock of our own was released. Who waits here is told as
// everybody is, in turn, unless it cannot hear that; or nobody is, for the lock was
// handed on, and the attempt was over before: it had overtaken the release.
func (w *waitQueues) released(name *wire.LockKey, quiet bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.queues[name.Full]
	if r != nil && (!r.plan.Hears() || quiet && r.first != nil && !r.first.trying) {
		r.plan.Freed()
		r.wake(true)
	}
}

// next is what a waiter does next, and how long it pauses before; negative: until it
// is woken.
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

// wait returns when the caller is to try: it is first in line and the lock may be
// free. An error says that the caller's ctx or Close ended the wait.
func (l *Locker) wait(ctx context.Context, e *acquireCall) error {
	var timer *time.Timer
	var over <-chan time.Time
	for {
		do, pause := l.queues.next(&e.waiter)
		switch {
		case do == wait.Try:
			return nil
		case do == wait.Look:
			if err := l.lookIfFree(ctx, e); err != nil {
				return err
			}
			continue
		case pause < 0: // somebody else looks at the clock
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

// lookIfFree asks the nodes how long the lock is still held, and takes or keeps a place in
// their queues, if what is told to it would be heard.
func (l *Locker) lookIfFree(ctx context.Context, e *acquireCall) error {
	if err := l.usable(ctx, e); err != nil {
		return err
	}
	e.looks++
	b := l.newQuorumCall(OpLook, e.name, l.queues.question(e), l.now(), lookDecided)
	b.q.Patience = l.patience(e.ttl)
	b.send(l.queues.dequeueOf(e))
	if err := l.await(ctx, e, b); err != nil {
		return err
	}
	if t, _, _ := b.result(); t.refused() {
		l.stillHeld(e, b)
	}
	l.queues.looked(e, b)
	l.observe(b, e)
	return nil
}

// stillHeld notes for the error of the call what a look knows beside the last try, or
// without one: whether the lock ever expires. A try knows by whom it is held.
func (l *Locker) stillHeld(e *acquireCall, b *quorumCall) {
	switch q, _ := l.lastKnown(e); {
	case q == nil:
		l.notAcquired(e, b, ErrHeld, "")
	case q.Err == ErrHeld && q.endless != b.endless():
		told := *q
		told.endless = b.endless()
		e.last = &told
		l.queues.keepRound(e, e.last)
	}
}

// question is what the leader looks by: from its place in the queues, if it would hear
// what is announced to that.
func (w *waitQueues) question(e *acquireCall) wire.Question {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := e.waiter.queue
	if !r.plan.Hears() {
		return wire.LookQuestion(e.name)
	}
	behind := r.behind
	r.queued, r.behind = true, false
	return wire.WaitQuestion(e.name, r.entry, behind)
}

// lookDecided: yes is free, no is held.
func lookDecided(t tally) bool { return decide(t.n, t.yes, t.no) != pending || t.open() == 0 }

// looked tells the plan what a look showed.
func (w *waitQueues) looked(e *acquireCall, b *quorumCall) {
	t, _, _ := b.result()
	longest := w.l.longestPause(e)
	w.mu.Lock()
	defer w.mu.Unlock()
	r := e.waiter.queue
	if t.refused() {
		w.listen(r) // a caller that leads after one that got the lock has not tried yet
	}
	r.plan.Looked(&wait.Looked{
		Start: b.start.at, Held: t.refused(), Free: t.yes >= t.need(), FreeIn: b.freeIn(),
		Longest: longest, Standing: b.standing(),
	}, time.Now())
}

// freeIn returns after how long a majority of the nodes may be free.
func (b *quorumCall) freeIn() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return wait.FreeIn(b.tally.need(), b.replies())
}

// standing returns what the round showed of its caller's entry in the nodes' queues.
func (b *quorumCall) standing() wait.Standing {
	b.mu.Lock()
	defer b.mu.Unlock()
	return wait.NewStanding(b.tally.need(), b.replies(), b.start.at, b.took)
}

// replies returns the replies that were counted. Needs b.mu.
func (b *quorumCall) replies() []wait.Reply {
	all := make([]wait.Reply, len(b.calls))
	for i := range b.calls {
		if c := &b.calls[i]; c.Voted {
			all[i] = wait.Reply{Reply: c.Reply, Took: c.Took}
		}
	}
	return all
}

// endless reports that the key has no ttl on so many nodes that it never becomes free on
// a majority. Only looks and turns ask for it.
func (b *quorumCall) endless() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for i := range b.calls {
		if c := &b.calls[i]; c.Voted && c.Reply.Answer == wire.No && c.Reply.Err == nil && c.Reply.TTL == -1 {
			n++
		}
	}
	return b.tally.n-n < b.tally.need()
}

// tried draws the conclusion from a leader's try. An attempt that its ctx ended came
// to none: then the next in line is to try, and so it is where time does not heal what
// stands in the way, for nobody waits for that.
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
	now := time.Now()
	if k != nil { // for whoever is next
		if w.l.opt.Fair {
			r.plan.Learn(e.call.standing())
		}
		r.plan.Won(k.start.at, now)
		r.behind = true
		r.lastRound, r.wonBy = nil, e.call
		return
	}
	w.listen(r)
	lost := wait.Lost{
		Start: q.Round.Start, Took: q.Round.Took, Held: q.Err == ErrHeld,
		Holder: q.Round.Holder(), Votes: votesOf(q.Round), Longest: longest,
	}
	if e.call != nil { // else Close came before its first try, and the round is another caller's
		lost.Mine = e.call.q.Value
		if w.l.opt.Fair {
			lost.Standing = e.call.standing()
		}
	}
	r.plan.Lost(&e.waiter.met, &lost, now)
}

// votesOf returns a round's votes as ties are told by them.
func votesOf(r Round) []wait.Vote {
	votes := make([]wait.Vote, len(r.Votes))
	for i, v := range r.Votes {
		votes[i] = wait.Vote{Yes: v.Answer == Yes, Holder: v.Holder}
	}
	return votes
}

// longestPause is what Options.Retry returns. No lock may be held: it is the caller's
// function, which may block or panic.
func (l *Locker) longestPause(e *acquireCall) time.Duration {
	retry := l.opt.Retry
	if retry == nil {
		retry = defaultRetry
	}
	return max(retry(e.attempt+e.looks), time.Millisecond)
}

// askTurn is the acquire of one attempt with Options.Fair. Without an entry in the nodes'
// queues it minds those of others.
func (l *Locker) askTurn(e *acquireCall, value string, proposal int64) wire.Question {
	entry := ""
	queued, ticket := e.waiter.met.Place()
	if queued {
		entry = l.queues.entry(e)
	}
	return wire.TurnQuestion(l.guard, e.name, value, e.ttl, proposal, entry, ticket)
}

// turnDecided has a majority reply, also where fewer noes would rule a yes out, as half
// of an even number does: only a majority shows a standing.
func turnDecided(t tally) bool {
	return acquireDecided(t) && (t.yes+t.no >= t.need() || t.open() == 0)
}
