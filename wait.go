package redlock

import (
	"context"
	"errors"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/wire"
)

// Waiting. The callers of Acquire for one key stand in a line, first come first
// served, and the first of them, the leader, speaks to the nodes: it tries, and
// where the lock is held it takes a place in the nodes' queues (fair.go) and waits
// until a majority of them announced the release of one and the same value, whoever's
// it is, until what it knows of the ttl is over, or until a pause is over, for
// announcements can be lost. Then it tries again, or looks first. A wake-up is never
// a grant: it says when to ask.

const (
	// pollHeard is the longest pause between looks at a held lock while announcements
	// of a majority are heard: the net under them, and what keeps our place. Halved, a
	// wait costs a node some 39 commands a minute, not 24.
	pollHeard = 5 * time.Second

	// tieLook is after how many round trips those who lost a tie look whether the one
	// that goes first has the lock: one for the rollbacks, one for its try, and as
	// many again for the scheduler. So does whoever is told as the second.
	tieLook = 4

	// lookFirst is how long a new leader waits before it takes a place in the queues of
	// a lock that this Locker holds: held for less, it is handed over before.
	lookFirst = 5 * time.Millisecond

	// maxHeard bounds the announcements of one key that are kept while no majority
	// has made them.
	maxAnnounced = 8
)

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
	r := w.byChannel[channel]
	if r == nil {
		return
	}
	if yes {
		r.subscribedBy |= 1 << i
	} else {
		r.subscribedBy &^= 1 << i
	}
	now := time.Now()
	switch most := bits.OnesCount64(r.subscribedBy) >= w.need(); {
	case most && r.subscribedSince.IsZero():
		// What was announced before went unheard: subscribe first, then look.
		r.subscribedSince = now
		w.actBy(r, now)
	case !most && !r.subscribedSince.IsZero():
		r.subscribedSince = time.Time{}
		w.actBy(r, now.Add(retryFirst))
	}
}

// actBy sees to it that the leader looks no later than at.
func (w *waitQueues) actBy(r *waitQueue, at time.Time) {
	if r.first != nil && at.Before(r.at) {
		r.at, r.try = at, w.l.opt.Fair
		r.first.poke()
	}
}

func (w *waitQueues) need() int { return majority(len(w.l.lanes)) }

// Announced is told by a subscriber what node i announced: which of those who are told we
// are, and the value that was released.
func (w *waitQueues) Announced(i int, channel, text string) {
	nth, value, ok := strings.Cut(text, " ")
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.byChannel[channel]
	if r == nil || !ok {
		return
	}
	a := r.announcement(value)
	a.nodes |= 1 << i
	if nth == "1" {
		a.firsts |= 1 << i
	}
	switch {
	case a.notified < notifiedFirst && bits.OnesCount64(a.firsts) >= w.need():
		a.notified = notifiedFirst
		w.freed(r)
	case a.notified < notifiedSecond && bits.OnesCount64(a.nodes) >= w.need():
		a.notified = notifiedSecond
		w.actBy(r, time.Now().Add(tieLook*r.pace+w.l.spread(time.Millisecond)))
	case a.notified < notifiedSome && !w.l.opt.Fair:
		// Those who came at one instant stand in another order on every node: it may be
		// that nobody is told by a majority, and then these are all who know of it.
		// Tickets order places alike.
		a.notified = notifiedSome
		w.actBy(r, time.Now().Add(2*tieLook*r.pace+w.l.spread(2*time.Millisecond)))
	}
}

// released is told that a lock of our own was released. Who waits here is told as
// everybody is, in turn, unless it cannot hear that; or nobody is, for the lock was
// handed on, and the attempt was over before: it had overtaken the release.
func (w *waitQueues) released(name *wire.LockKey, quiet bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.queues[name.Full]
	if r != nil && (r.subscribedSince.IsZero() || quiet && r.first != nil && !r.first.trying) {
		w.freed(r)
	}
}

// announcement is what is known of a value's release; the oldest is forgotten for a
// new one.
func (r *waitQueue) announcement(value string) *announcement {
	for i := range r.announced {
		if r.announced[i].value == value {
			return &r.announced[i]
		}
	}
	a := &r.announced[r.oldest]
	r.oldest = (r.oldest + 1) % maxAnnounced
	*a = announcement{value: value}
	return a
}

// freed wakes the leader: the lock may be free. Also where nobody waits yet, for
// somebody may just be about to.
func (w *waitQueues) freed(r *waitQueue) {
	r.due = true
	if r.first != nil {
		r.first.poke()
	}
}

// wasSubscribedAt reports whether a release after that would have been heard. What was asked
// before says nothing of one in between.
func (r *waitQueue) wasSubscribedAt(asked time.Time) bool {
	return !r.subscribedSince.IsZero() && !r.subscribedSince.After(asked)
}

// An act is what a waiter does next.
type act uint8

const (
	actWait act = iota + 1
	actLook
	actTry
)

// next is what a waiter does next, and how long it pauses before; negative: until it
// is woken.
func (w *waitQueues) next(m *waiter) (act, time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if m.wake == nil {
		m.wake = make(chan struct{}, 1)
	}
	r := m.queue
	if r.first != m {
		return actWait, -1
	}
	pause := time.Until(r.at)
	switch {
	case m.attempt != nil:
		return actTry, 0
	case r.due || pause <= 0 && r.try:
		r.due = false
		m.trying = true
		return actTry, 0
	case pause <= 0:
		return actLook, 0
	}
	return actWait, pause
}

// wait returns when the caller is to try: it is first in line and the lock may be
// free. An error says that the caller's ctx or Close ended the wait.
func (l *Locker) wait(ctx context.Context, e *acquireCall) error {
	var timer *time.Timer
	var over <-chan time.Time
	for {
		do, pause := l.queues.next(&e.waiter)
		switch {
		case do == actTry:
			return nil
		case do == actLook:
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
	if r.subscribedSince.IsZero() {
		return wire.LookQuestion(e.name)
	}
	behind := r.behind
	r.queued, r.behind = true, false
	return wire.WaitQuestion(e.name, r.entry, behind)
}

// lookDecided: yes is free, no is held.
func lookDecided(t tally) bool { return decide(t.n, t.yes, t.no) != pending || t.open() == 0 }

// looked draws the conclusion from a look.
func (w *waitQueues) looked(e *acquireCall, b *quorumCall) {
	t, _, _ := b.result()
	longest := w.l.longestPause(e)
	w.mu.Lock()
	defer w.mu.Unlock()
	r := e.waiter.queue
	r.vain = !t.refused() && t.yes < t.need()
	switch s := b.standing(); {
	case t.refused():
		w.listen(r) // who comes after one that got the lock has not tried yet
		r.asked = b.start.at
		w.pause(r, longest, b.start.at.Add(b.freeIn()))
	case s.answered && s.before > 0: // those before us were told first
		r.at, r.try = time.Now().Add(min(time.Duration(s.before)*(tieLook*r.pace+time.Millisecond), retryMost)), true
	default: // free, or a try tells why it can not be had
		r.at, r.try = time.Time{}, true
	}
}

// freeIn is after how long a majority of the nodes may be free: those that have not
// answered may be now.
func (b *quorumCall) freeIn() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make([]time.Duration, len(b.calls))
	for i := range b.calls {
		if c := &b.calls[i]; c.Voted && c.Reply.Answer == wire.No && c.Reply.Err == nil {
			all[i] = wire.ExpiresIn(c.Reply.TTL)
		}
	}
	slices.Sort(all)
	return all[b.tally.need()-1]
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
			r.learn(e.call)
		}
		r.asked, r.foreign, r.behind = k.start.at, false, true
		r.lastRound, r.wonBy = nil, e.call
		// Who is next takes its own place, behind those who waited longer.
		r.at, r.try = now.Add(lookFirst), false
		return
	}
	w.listen(r)
	took := max(q.Round.Took, time.Microsecond)
	r.asked, r.pace = q.Round.Start, took
	holder := q.Round.Holder()
	r.foreign = !wire.IsOurs(holder)
	tie := isTie(q.Round)
	if tie {
		// What lasts is no tie. Somebody's remains are on a minority of the nodes, say,
		// and too few of the others answer: whoever goes on at once does so for ever.
		e.waiter.ties++
		tie = e.waiter.ties <= maxTies
	} else {
		e.waiter.ties = 0
	}
	switch {
	case w.l.opt.Fair:
		w.planTurn(r, e, tie, longest)
	case tie && winsTieBreak(q.Round, e.call.q.Value):
		// All who tied see the same votes, and only one of them goes on at once.
		r.at, r.try = now.Add(w.l.spread(took)), true
	case tie:
		r.at, r.try = now.Add(tieLook*took+w.l.spread(took)), false
	case q.Err != ErrHeld || e.waiter.ties > 0 || r.vain:
		// Also where looks are refused, for the queue's sake say: try and look would
		// follow each other without a pause.
		r.vain = false
		r.at, r.try = now.Add(w.l.retryPause(longest)), true
	case !r.subscribedSince.IsZero():
		r.at, r.try = now, false // a place, and the ttl
	default:
		r.at, r.try = now.Add(w.l.retryPause(longest)), false
	}
}

// isTie reports that several took parts of a majority, and none has it.
func isTie(r Round) bool {
	if r.Holder() != "" {
		return false
	}
	first := ""
	for _, v := range r.Votes {
		switch {
		case v.Holder != "" && first == "":
			first = v.Holder
		case v.Holder != "" && v.Holder != first:
			return true
		}
	}
	return first != "" && slices.ContainsFunc(r.Votes, func(v Vote) bool { return v.Answer == Yes })
}

// winsTieBreak reports whether we are the one that goes on after a tie: whose value most
// nodes have, the smallest such value of several.
func winsTieBreak(r Round, mine string) bool {
	count := map[string]int{mine: 0}
	for _, v := range r.Votes {
		switch {
		case v.Answer == Yes:
			count[mine]++
		case v.Holder != "":
			count[v.Holder]++
		}
	}
	for value, n := range count {
		if n > count[mine] || n == count[mine] && value < mine {
			return false
		}
	}
	return true
}

// pause sets when the leader looks again at a held lock: when its ttl is over, and
// not later than the net under the announcements says.
func (w *waitQueues) pause(r *waitQueue, longest time.Duration, over time.Time) {
	pause := w.l.retryPause(longest)
	if r.wasSubscribedAt(r.asked) {
		keep := pollHeard - w.l.spread(pollHeard/5)
		if w.l.opt.Retry == nil && !r.foreign || keep < pause {
			pause = keep // who asks less often than that loses his place, and is not told
		}
	}
	at := time.Now().Add(pause)
	if over.Before(at) {
		at = over
	}
	r.at, r.try = at, w.l.opt.Fair
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

// retryPause is a pause between half of the longest and all of it.
func (l *Locker) retryPause(longest time.Duration) time.Duration {
	return longest - l.spread(longest/2)
}

// spread is a random part of d.
func (l *Locker) spread(d time.Duration) time.Duration {
	return time.Duration(l.rand.float() * float64(d))
}
