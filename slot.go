package redlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/lane"
	"github.com/seed-ce352c9b/redlock/internal/quorum"
	"github.com/seed-ce352c9b/redlock/internal/wire"
)

// Bounded concurrency: k locks, of which a caller needs any one.

// maxSlots bounds the slots of a key: a caller that finds none free asks for all of them in
// one batch to each node, and waits for each. Halved, fewer may work at once.
const maxSlots = 64

// AcquireSlot acquires one of the k slots of a key for ttl: at most k callers, over all
// Lockers that use the key with the same k, hold a slot at a time. It waits until ctx is done or, with
// WithWait, at most for the given time.
//
// Slot i is the lock of the key with "#i" appended, from "#0" on, so each slot has fences of
// its own, and Inspect shows its holder. AcquireSlot tries a random one, which takes one
// round trip. If it is held, AcquireSlot asks which others are free, in one batch to each
// node, and tries these. If none is free, it waits for all of them at once, each as Acquire
// does, and gives up the others when it has one. While callers of a Locker wait, together
// they cost the nodes k times as much as waiting for one lock.
//
// k is from 1 to 64. The errors are those of Acquire, for one of the slots; ErrNested
// comes only if the call is made under the locks of all slots.
func (l *Locker) AcquireSlot(ctx context.Context, key string, k int, ttl time.Duration, opts ...AcquireOption) (lock *Lock, slot int, err error) {
	if err := l.admit(ctx, OpAcquire, key); err != nil {
		return nil, 0, err
	}
	if k < 1 || k > maxSlots {
		return nil, 0, fmt.Errorf("redlock: %d slots of %q: want 1 to %d", k, wire.Clip(key), maxSlots)
	}
	if _, err := wire.NameKey(l.opt.KeyPrefix, key); err != nil {
		return nil, 0, err
	}
	s := &slots{l: l}
	for i := range k {
		e, err := l.newAcquire(ctx, fmt.Sprint(key, "#", i), ttl, opts)
		switch {
		case errors.Is(err, ErrNested):
			s.err = err
		case err != nil:
			return nil, 0, err
		default:
			s.calls, s.numbers = append(s.calls, e), append(s.numbers, i)
		}
	}
	if len(s.calls) == 0 {
		return nil, 0, s.err
	}
	ctx, stop := s.calls[0].limit(ctx)
	defer stop()
	lock, at := s.acquire(ctx)
	if lock == nil {
		return nil, 0, s.err
	}
	return lock, s.numbers[at], nil
}

// slots is one call of AcquireSlot.
type slots struct {
	l       *Locker
	calls   []*acquireCall // of the slots that are not held by this call chain
	numbers []int          // of these
	err     error          // why the last try failed
}

// acquire returns the lock, and the index of its slot, or leaves the error in s.err.
func (s *slots) acquire(ctx context.Context) (lock *Lock, at int) {
	order := make([]int, len(s.calls))
	for i := range order {
		j := min(int(s.l.rand.Float()*float64(i+1)), i)
		order[i], order[j] = order[j], i
	}
	lock = s.try(ctx, order[0])
	var q *QuorumError
	if lock != nil || !errors.As(s.err, &q) || ctx.Err() != nil || s.calls[order[0]].permanent {
		return lock, order[0]
	}
	free := make([]bool, len(s.calls)) // as far as is known
	if q.Err == ErrHeld {
		var err error
		if free, err = s.free(ctx, s.calls[order[0]]); err != nil {
			s.err = err
			return nil, 0
		}
	}
	for _, at := range order[1:] {
		if free[at] {
			if lock = s.try(ctx, at); lock != nil || ctx.Err() != nil {
				return lock, at
			}
		}
	}
	if s.calls[0].triesOnce() {
		return nil, 0
	}
	return s.wait(ctx, order[0])
}

func (s *slots) try(ctx context.Context, at int) (lock *Lock) {
	e := s.calls[at]
	lock, s.err = s.l.tryAcquire(ctx, e)
	if _, decided := s.err.(*QuorumError); decided && !e.triesOnce() && !e.permanent && (ctx.Err() != nil || s.l.isClosed()) {
		s.err = s.l.ended(ctx, e) // even if that came after the verdict
	}
	return lock
}

// free asks the nodes, in one batch to each, which slots are free on a majority of them. The
// error is that of the call that was tried, which knows why there is no lock.
func (s *slots) free(ctx context.Context, tried *acquireCall) (free []bool, err error) {
	l := s.l
	if !l.begin() {
		return nil, l.ended(ctx, tried)
	}
	defer l.end()
	asked := make([]*quorum.Call, len(s.calls))
	for i, e := range s.calls {
		asked[i] = l.newQuorumCall(OpLook, e.name, wire.LookQuestion(e.name), l.now(), lookDecided)
		asked[i].Question.Patience = l.patience(e.ttl)
	}
	lane.Each(0, len(l.lanes), func(i int) {
		calls := make([]*lane.Call, len(asked))
		for n, b := range asked {
			calls[n] = &b.Calls[i]
		}
		l.lanes[i].AskAll(calls, func(int) []*lane.Call { return nil })
	})
	free = make([]bool, len(asked))
	for i, b := range asked {
		if err := l.await(ctx, tried, b); err != nil {
			return nil, err
		}
		t, _, _ := b.Result()
		free[i] = t.Yes >= t.Need()
		l.observe(ctx, b, s.calls[i])
	}
	return free, nil
}

// wait waits for every slot at once, and gives up the others when it has one. If the wait
// ends, the error is that of the slot that was tried.
func (s *slots) wait(ctx context.Context, tried int) (lock *Lock, at int) {
	type result struct {
		at       int
		lock     *Lock
		err      error
		panicked any
	}
	outer := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan result, len(s.calls))
	for i, e := range s.calls {
		go func() {
			r := result{at: i, err: errors.New("redlock: a callback ended its goroutine")}
			defer func() {
				r.panicked = recover()
				results <- r
			}()
			r.lock, r.err = s.l.acquire(ctx, e)
		}()
	}
	var panicked any
	told := false // by the slot that was tried
	for i := range s.calls {
		r := <-results
		ended := outer.Err() != nil || s.l.isClosed()
		switch {
		case r.panicked != nil:
			panicked = r.panicked
			cancel()
		case r.lock == nil && (i == 0 || s.err == nil || ended && !told):
			s.err, told = r.err, ended && r.at == tried
		case r.lock == nil:
		case lock == nil && panicked == nil:
			lock, at = r.lock, r.at
			cancel()
		default: // it came while the others were being given up
			r.lock.beginRelease(context.Background(), nil)
		}
	}
	if panicked != nil {
		if lock != nil {
			lock.beginRelease(context.Background(), nil)
		}
		panic(panicked) // on the caller's goroutine
	}
	return lock, at
}
