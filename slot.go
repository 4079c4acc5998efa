package redlock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/lane"
	"github.com/seed-ce352c9b/redlock/internal/quorum"
	"github.com/seed-ce352c9b/redlock/internal/wait"
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
// round trip. If it is not acquired, AcquireSlot asks which others are free, in one batch to
// each node, and tries these: one that nobody can acquire is passed over. If none is free, it waits for all of them at once, each as Acquire
// does, and gives up the others when it has one. While callers of a Locker wait, together
// they cost the nodes k times as much as waiting for one lock.
//
// k is from 1 to 64. The error is that of Acquire for one of the slots, with a text that says
// how many are held. It is ErrHeld if any slot is known to be held, and ErrNoQuorum otherwise,
// which comes at once only if it does so for each slot. ErrNested comes only if the call is made
// under the locks of all slots.
func (l *Locker) AcquireSlot(ctx context.Context, key string, k int, ttl time.Duration, opts ...AcquireOption) (lock *Lock, slot int, err error) {
	l.check(ctx)
	ctx, traced := l.traceCall(ctx, Call{Method: "AcquireSlot", Key: key, TTL: ttl})
	s := &slots{l: l, key: key, k: k}
	err = ErrPanicked // until it returns
	defer func() { traced.end(s.progress(), err, lock) }()
	if err := l.admit(OpAcquire, key); err != nil {
		return nil, 0, err
	}
	if k < 1 || k > maxSlots {
		return nil, 0, fmt.Errorf("redlock: %d slots of %q: want 1 to %d", k, wire.Clip(key), maxSlots)
	}
	if _, err := wire.NameKey(l.opt.KeyPrefix, key); err != nil {
		return nil, 0, err
	}
	var nested error
	for i := range k {
		e, err := l.newAcquire(ctx, fmt.Sprint(key, "#", i), ttl, opts)
		switch {
		case errors.Is(err, ErrNested):
			nested = err
		case err != nil:
			return nil, 0, err
		default:
			s.calls, s.numbers = append(s.calls, e), append(s.numbers, i)
		}
	}
	if len(s.calls) == 0 {
		return nil, 0, nested
	}
	s.errs, s.late = make([]error, len(s.calls)), make([]bool, len(s.calls))
	ctx, stop := s.calls[0].limit(ctx)
	defer stop()
	lock, at := s.acquire(ctx)
	if lock == nil {
		return nil, 0, s.err()
	}
	return lock, s.numbers[at], nil
}

// progress returns what the calls for the slots have come to.
func (s *slots) progress() *acquireCall {
	all := new(acquireCall)
	for _, e := range s.calls {
		all.attempt += e.attempt
	}
	return all
}

// RunSlot is Run for one of the k slots of a key, which AcquireSlot acquires: fn gets its lock and
// its number, and a context that ends when the slot is lost.
func (l *Locker) RunSlot(ctx context.Context, key string, k int, ttl time.Duration, fn func(ctx context.Context, lock *Lock, slot int) error, opts ...AcquireOption) (err error) {
	if fn == nil {
		panic("redlock: RunSlot with a nil fn")
	}
	l.check(ctx)
	ctx, traced := l.traceCall(ctx, Call{Method: "RunSlot", Key: key, TTL: ttl})
	err = ErrPanicked // until it returns
	defer func() { traced.end(nil, err) }()
	lock, slot, err := l.AcquireSlot(ctx, key, k, ttl, opts...)
	if err != nil {
		return err
	}
	err = ErrPanicked // again until it returns
	return Locks{lock}.run(ctx, func(held context.Context) error { return fn(held, lock, slot) })
}

// slots is one call of AcquireSlot.
type slots struct {
	l       *Locker
	key     string
	k       int
	calls   []*acquireCall // of the slots that are not held by this call chain
	numbers []int          // of these
	order   []int          // of these, random: the first is tried first
	errs    []error        // why each of these is not acquired, as far as is known
	late    []bool         // it is because ctx or Close ended the call
}

// acquire returns the lock, and the index of its slot, or leaves the errors in s.errs.
func (s *slots) acquire(ctx context.Context) (lock *Lock, at int) {
	s.order = make([]int, len(s.calls))
	for i := range s.order {
		j := min(int(s.l.rand.Float()*float64(i+1)), i)
		s.order[i], s.order[j] = s.order[j], i
	}
	first := s.order[0]
	if lock, over := s.try(ctx, first); over {
		return lock, first
	}
	if len(s.calls) > 1 {
		free, ok := s.free(ctx, first)
		if !ok {
			return nil, 0
		}
		for _, at := range s.order[1:] {
			if !free[at] {
				continue
			}
			if lock, over := s.try(ctx, at); over {
				return lock, at
			}
		}
	}
	if s.calls[0].triesOnce() {
		return nil, 0
	}
	return s.wait(ctx)
}

// try tries one slot. over says that no other has to be tried: it has the lock, or an error that
// is not about the slot.
func (s *slots) try(ctx context.Context, at int) (lock *Lock, over bool) {
	e := s.calls[at]
	lock, s.errs[at] = s.l.tryAcquire(ctx, e)
	var q *QuorumError
	missed := errors.As(s.errs[at], &q)
	ended := ctx.Err() != nil || s.l.isClosed()
	if missed && ended {
		s.end(ctx, at) // even if that came after the verdict
	}
	return lock, !missed || ended
}

// free asks the nodes, in one batch to each, which slots are free on a majority of them. ok is
// false if the call has ended.
func (s *slots) free(ctx context.Context, tried int) (free []bool, ok bool) {
	l := s.l
	if !l.begin() {
		s.end(ctx, tried)
		return nil, false
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
		if l.await(ctx, s.calls[tried], b) != nil {
			s.end(ctx, tried)
			return nil, false
		}
		t, _, _ := b.Result()
		free[i] = t.Yes >= t.Need()
		switch {
		case free[i] || i == tried: // the try says more
		case refused(t):
			s.errs[i] = l.notAcquired(s.calls[i], b, ErrHeld, "")
		default:
			s.errs[i] = l.notAcquired(s.calls[i], b, ErrNoQuorum, "")
		}
		l.observe(ctx, b, s.calls[i])
	}
	return free, true
}

// end notes that ctx or Close ended the call: for one slot, and for those of which a round is
// known, which may say more.
func (s *slots) end(ctx context.Context, at int) {
	for i, e := range s.calls {
		if i == at || e.last != nil && !e.permanent {
			s.errs[i], s.late[i] = s.l.ended(ctx, e), true
		}
	}
}

// err returns the error of the call: that of one slot, with how many are held. One that is held
// comes before one that failed, since it may become free; but if ctx or Close ended the call,
// the error says so.
func (s *slots) err() error {
	held, best, most := s.k-len(s.calls), s.order[0], -1
	var failed error // of a slot that is not held
	for _, i := range s.order {
		err := s.errs[i]
		if err == nil {
			continue
		}
		var q *QuorumError
		rank := 0
		if s.late[i] {
			rank += 4
		}
		switch known := errors.As(err, &q); {
		case known && q.Err == ErrHeld:
			held++
			if rank += 2; !q.Round.Value().IsZero() {
				rank++
			}
		case !s.late[i] && failed == nil:
			failed = err
		}
		if rank > most {
			best, most = i, rank
		}
	}
	err := s.errs[best]
	var q *QuorumError
	if s.k == 1 || held == 0 && failed == nil || !errors.As(err, &q) {
		return err
	}
	e := &slotsError{err: err}
	switch key := wire.Clip(s.key); {
	case held == s.k:
		e.text = fmt.Sprintf("redlock: all %d slots of %q are held", s.k, key)
	case held == 0:
		e.text = fmt.Sprintf("redlock: none of %d slots of %q is free", s.k, key)
	default:
		e.text = fmt.Sprintf("redlock: %d of %d slots of %q are held", held, s.k, key)
	}
	e.text += ": " + strings.TrimPrefix(err.Error(), "redlock: ")
	if failed != nil && failed != err {
		e.text += "; " + strings.TrimPrefix(failed.Error(), "redlock: ")
	}
	return e
}

// A slotsError is the error of one slot, with a text about all.
type slotsError struct {
	text string
	err  error
}

func (e *slotsError) Error() string { return e.text }
func (e *slotsError) Unwrap() error { return e.err }

// wait waits for every slot at once, in the queue of each, and leaves the others when it has one.
// This goroutine does so for all of them; others exist only while the nodes are asked.
func (s *slots) wait(ctx context.Context) (lock *Lock, at int) {
	l := s.l
	if !l.begin() {
		s.end(ctx, s.order[0])
		return nil, 0
	}
	defer l.end() // Close waits for all below, leaving the queues included
	w := slotWait{slots: s, at: -1, wake: make(chan struct{}, 1), steps: make(chan slotStep, len(s.calls)), state: make([]slotState, len(s.calls))}
	returned := false
	defer func() {
		if !returned && w.lock != nil { // a callback panicked, also after it was acquired
			w.lock.beginRelease(context.Background(), nil)
		}
	}()
	defer lane.Each(0, len(s.calls), w.leave) // also if a callback panics
	for i, e := range s.calls {
		e.waiter.Wake = w.wake
		if s.errs[i] = l.join(e, false); s.errs[i] == nil {
			w.state[i] = slotWaits
		}
	}
	w.run(ctx)
	lane.Each(0, len(s.calls), w.leave)
	returned = true
	return w.lock, w.at
}

// A slotWait is a wait for all slots.
type slotWait struct {
	*slots
	wake  chan struct{} // of all queues
	steps chan slotStep // that are done
	state []slotState   // of the slots
	lock  *Lock         // that it got
	at    int           // its index
}

type slotState uint8

const (
	slotLeft  slotState = iota // not in its queue
	slotWaits                  // in its queue
	slotAsks                   // in its queue, and asking the nodes
)

// A slotStep is a look or a try, once it is done.
type slotStep struct {
	at       int
	lock     *Lock
	again    bool // it goes on waiting
	err      error
	panicked any
}

// run waits until there is a lock, or no slot to wait for.
func (w *slotWait) run(ctx context.Context) {
	asking, cancel := context.WithCancel(ctx)
	defer cancel()
	var panicked any
	timer := time.NewTimer(0)
	defer timer.Stop()
	ending := false
	for {
		pause, open := w.next(asking, ending)
		if !open {
			break
		}
		if !ending && pause >= 0 {
			timer.Reset(pause)
		}
		over, closing := ctx.Done(), (<-chan struct{})(w.l.closing)
		if ending {
			over, closing = nil, nil
		}
		select {
		case <-w.wake:
		case <-timer.C:
		case <-over:
			ending = true
		case <-closing:
			ending = true
		case r := <-w.steps:
			w.state[r.at] = slotWaits
			switch {
			case r.panicked != nil:
				panicked = r.panicked
			case r.lock != nil && w.lock == nil:
				w.lock, w.at = r.lock, r.at
			case r.lock != nil: // it came while the others were being given up
				w.giveBack(r)
			case !r.again:
				w.errs[r.at], w.late[r.at] = r.err, (ctx.Err() != nil || w.l.isClosed()) && !w.calls[r.at].permanent
				w.leave(r.at)
			}
			if panicked != nil || w.lock != nil {
				ending = true
				cancel()
			}
		}
	}
	switch {
	case panicked != nil:
		panic(panicked) // on the caller's goroutine
	case w.lock != nil:
	default:
		for i, e := range w.calls { // before it leaves the queue, which knows more
			if w.state[i] == slotWaits {
				w.errs[i], w.late[i] = w.l.ended(ctx, e), true
			}
		}
	}
}

// next has each slot looked at or tried that is due, unless the wait is ending. It returns the
// pause until the next one is, and whether there is anything to wait for. A negative pause lasts
// until a queue wakes the caller.
func (w *slotWait) next(ctx context.Context, ending bool) (pause time.Duration, open bool) {
	pause = -1
	for i, e := range w.calls {
		if w.state[i] == slotWaits && !ending {
			open = true
			act, p := w.l.queues.Next(&e.waiter)
			switch {
			case act != wait.Wait:
				w.state[i] = slotAsks
				go w.step(ctx, i, act)
			case p >= 0 && (pause < 0 || p < pause):
				pause = p
			}
		}
		open = open || w.state[i] == slotAsks
	}
	return pause, open
}

// step asks the nodes about a slot.
func (w *slotWait) step(ctx context.Context, i int, act wait.Act) {
	r := slotStep{at: i, err: errors.New("redlock: a callback ended its goroutine")}
	defer func() {
		r.panicked = recover()
		w.steps <- r
	}()
	e := w.calls[i]
	if act == wait.Try {
		r.lock, r.again, r.err = w.l.turn(ctx, e)
		return
	}
	r.err = w.l.lookIfFree(ctx, e, act == wait.Glance)
	r.again = r.err == nil
}

// giveBack releases the lock of a second slot. The caller leaves the queue before, or the lock
// would be handed on to it.
func (w *slotWait) giveBack(r slotStep) {
	defer r.lock.beginRelease(context.Background(), nil)
	w.state[r.at] = slotLeft
	w.l.leaveQueue(w.calls[r.at], true)
}

// leave takes the caller out of the queue of a slot, if it is there.
func (w *slotWait) leave(i int) {
	if w.state[i] != slotLeft {
		w.state[i] = slotLeft
		w.l.leaveQueue(w.calls[i], i == w.at)
	}
}
