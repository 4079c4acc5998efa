package redlock

import (
	"context"
	"iter"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/queue"
	"github.com/seed-ce352c9b/redlock/internal/wire"
)

// Leaders. A leader holds the lock on a key for as long as it leads. A release is announced
// only to those who queue, and an acquisition to nobody, so a leader tells those who watch,
// on a channel of their own. As everywhere, an announcement only says when to ask.

const (
	// resignPause is the longest pause of a leader that has resigned, before it campaigns
	// again. At least half of it passes, which is the longest pause between two tries of a
	// waiter without announcements: whoever waits has asked by then. Halved, a leader that
	// resigns may win against those who poll; doubled, one that is alone leads later.
	resignPause = 2 * retryMost

	// watchPoll bounds from below how often a watcher asks without a reason, and is how
	// often it asks if it does not hear a majority. Halved, watchers of a lock with a short
	// ttl, or without subscriptions, cost twice as much.
	watchPoll = time.Second

	// watchMost bounds it from above, as a safety net for lost announcements.
	watchMost = 30 * time.Second
)

// Lead campaigns for the leadership of key, and leads whenever it is won: it waits for the
// lock as Acquire does, calls fn with a context that ends when the lock is lost, keeps the
// lock alive meanwhile, and releases it when fn returns. lock.Fence is the term: it grows
// from leader to leader, and whatever the leader commands should refuse a smaller one. With
// WithoutFence there is no term.
//
// If fn returns nil, the leader has resigned, and Lead campaigns again after a pause in which
// any other candidate wins. If the lock was lost, Lead campaigns again at once, whatever fn
// returned. An fn that releases the lock itself, or leaves it by LeaveUntil, has not lost it.
// Lead runs until ctx is done, the Locker is closed, or fn returns an error without having lost
// the lock, and returns that error. It also returns errors with which Acquire does not wait:
// ErrNested, ErrTooManyWaiters, and ErrNoQuorum where time does not heal the nodes' errors.
// If fn panics, the leader has resigned, and the panic reaches the caller of Lead.
//
// After a leader crashes, nobody leads for up to ttl. A leader that is paused past Until does
// not know that another leads: only the term protects what it does then.
func (l *Locker) Lead(ctx context.Context, key string, ttl time.Duration, fn func(ctx context.Context, lock *Lock) error, opts ...AcquireOption) (err error) {
	if fn == nil {
		panic("redlock: Lead with a nil fn")
	}
	l.check(ctx)
	ctx, traced := l.traceCall(ctx, Call{Method: "Lead", Key: key, TTL: ttl})
	err = ErrPanicked // until it returns
	defer func() { traced.end(nil, err) }()
	for {
		led, lost, err := l.leadOnce(ctx, key, ttl, fn, opts)
		switch {
		case lost:
			continue
		case !led || err != nil:
			return err
		}
		if l.pause(ctx, resignPause) != nil {
			return l.endedLead(ctx, key)
		}
	}
}

// leadOnce campaigns, and leads once if it wins. The begin and the end of the term are
// announced, the end after the release and also if fn panics.
func (l *Locker) leadOnce(ctx context.Context, key string, ttl time.Duration, fn func(ctx context.Context, lock *Lock) error, opts []AcquireOption) (led, lost bool, err error) {
	var term *Lock
	defer func() {
		if term != nil {
			l.announce(term)
		}
	}()
	released := false
	var failed error // of fn, unless the lock was lost
	err = l.Run(ctx, key, ttl, func(ctx context.Context, lock *Lock) error {
		term = lock
		l.announce(lock)
		err := fn(ctx, lock)
		if released = lock.resigned(); released || lock.kept() {
			failed = err
		} else {
			lost = true
		}
		return err
	}, opts...)
	if released { // which Run takes for a loss
		return true, false, failed
	}
	led = term != nil
	return led, lost || led && failed == nil && err != nil, err // the latter by the release
}

// resigned reports whether the holder itself released the lock while it was held.
func (k *Lock) resigned() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.releaseSentInTime && k.result == nil && k.lossTold == nil && !k.l.isClosed()
}

// endedLead returns the error of a Lead that ctx or Close ended between two terms.
func (l *Locker) endedLead(ctx context.Context, key string) error {
	name, err := wire.NameKey(l.opt.KeyPrefix, key)
	if err != nil {
		return err
	}
	return l.ended(ctx, &acquireCall{op: OpAcquire, name: name, began: l.now()})
}

// announce tells those who watch the key that a lock was acquired or released. It does not
// wait.
func (l *Locker) announce(k *Lock) {
	if !l.begin() {
		return
	}
	defer l.end()
	b := l.newQuorumCall(OpAnnounce, k.name, wire.AnnounceQuestion(k.name), l.now(), allAnswered)
	b.Question.Patience = l.patience(k.ttl)
	b.Then = func() { l.observe(context.Background(), b, nil) }
	b.Send()
}

// Watch yields who holds the lock on key: at once, and whenever that has changed, until ctx
// is done or the Locker is closed; it yields the error of ctx, or ErrClosed, last. If too few
// nodes reply, it yields the error, once, and goes on.
//
// Leaders (Lead) announce the beginning and the end of each term, unless the process dies,
// and Watch then asks the nodes. It also asks when the ttl of the lock has passed, but not
// within a second of the question before, and at least every 30 seconds. Holders other than
// leaders announce nothing, so Watch notices their changes only at these times. A change that
// is undone before Watch asks is not seen. While Watch is subscribed to a majority of the
// nodes, it costs each node about one read per ttl; otherwise it asks every second. The
// nodes' user needs the permissions of waiters.
func (l *Locker) Watch(ctx context.Context, key string) iter.Seq2[Status, error] {
	return func(yield func(Status, error) bool) {
		l.check(ctx)
		ctx, traced := l.traceCall(ctx, Call{Method: "Watch", Key: key})
		ended := ErrPanicked // until it returns
		defer func() { traced.end(nil, ended) }()
		var name *wire.LockKey
		err := l.admit(OpInspect, key)
		if err == nil {
			name, err = wire.NameKey(l.opt.KeyPrefix, key)
		}
		if err != nil {
			yield(Status{Key: key}, err)
			ended = err
			return
		}
		w := l.queues.Watch(name)
		defer l.queues.Unwatch(w)
		for first, last := true, (watchedState{}); ; first = false {
			s, err := l.Inspect(ctx, key)
			now := watchedState{held: s.Held, value: s.Value, failed: err != nil}
			_, missed := err.(*QuorumError) // if ctx or Close has come since, the next question says so
			over := err != nil && !missed
			goesOn := !(first || now != last || over) || yield(s, err)
			if over {
				ended = err
				return
			}
			if !goesOn {
				ended = nil
				return
			}
			last = now
			l.waitForChange(ctx, w, s)
		}
	}
}

// A watchedState is the part of a Status whose change a watcher is told.
type watchedState struct {
	held, failed bool
	value        Value
}

// waitForChange waits until there is a reason to ask again who holds the lock.
func (l *Locker) waitForChange(ctx context.Context, w *queue.Watcher, s Status) {
	pause := watchMost
	if s.Held && s.Left >= 0 {
		pause = min(pause, s.Left+time.Millisecond)
	}
	pause = max(pause, watchPoll)
	if !l.queues.Hears(w) {
		pause = watchPoll
	}
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case <-w.Wake:
	case <-t.C:
	case <-ctx.Done():
	case <-l.closing:
	}
}
