package demo

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/seed-ce352c9b/redlock"
)

const (
	// counterKey is the key of the demo's lock.
	counterKey = "demo/counter"

	// demoTTL is short, so that viewers see a dead worker's lock expire.
	demoTTL = time.Second

	// Every longEvery-th section takes longer than the ttl, and is safe only because the
	// lock is extended.
	longEvery   = 12
	longSection = 1300 * time.Millisecond

	shortSection    = 60 * time.Millisecond  // up to twice as long, chosen at random
	betweenSections = 100 * time.Millisecond // pause of a worker, up to twice as long
)

// A counter is the resource that the lock protects. An increment reads it, waits and writes
// it, on purpose: if two workers do so at once, one increment is lost. The atomic Load and
// Store only prevent a data race with the screen, which reads the counter too.
type counter struct{ n atomic.Int64 }

// A worker stands for one process: it has a Locker, and therefore connections, of its own.
type worker struct {
	d      *Demo
	i      int
	locker *redlock.Locker
	doomed atomic.Bool // dies the next time it holds the lock
}

// run works until ctx is done. A section that has begun by then is completed.
func (w *worker) run(ctx context.Context) {
	if !w.start() {
		return
	}
	defer func() { w.locker.Close() }()
	for ctx.Err() == nil {
		w.d.state.wait(w.i)
		var err error
		switch {
		case w.d.withoutLock:
			err = w.section(ctx, nil)
		case w.doomed.Load():
			err = w.die(ctx)
		default:
			err = w.locker.Run(ctx, counterKey, demoTTL, w.section)
		}
		if err != nil && ctx.Err() == nil && !errors.Is(err, redlock.ErrLost) {
			w.d.state.trouble(w.d.state.workers[w.i].name, err)
		}
		pause(ctx, atLeast(betweenSections))
	}
}

// start opens the worker's Locker and reports whether it succeeded.
func (w *worker) start() bool {
	name := w.d.state.workers[w.i].name
	l, err := redlock.Open(redlock.Options{
		Name:  name,
		Trace: redlock.Trace{Round: func(_ context.Context, r redlock.Round) { w.d.state.observe(w.i, r) }},
	}, w.d.cluster.addrs()...)
	if err != nil {
		w.d.state.trouble(name, err)
		return false
	}
	w.locker = l
	return true
}

// section is the critical section. ctx is done when the lock is lost and when the demo
// ends; only in the second case is the lock still valid.
func (w *worker) section(ctx context.Context, lock *redlock.Lock) error {
	s := w.d.state
	fence, valid := w.d.claim(lock)
	s.enter(w.i, fence, valid)
	before := w.d.counter.n.Load()
	took := atLeast(shortSection)
	if w.d.sections.Add(1)%longEvery == 0 {
		took = longSection
	}
	pause(ctx, took)
	if !valid() {
		s.lose(w.i)
		return nil
	}
	w.d.store(before + 1)
	s.wrote(w.i, before, before+1)
	return nil
}

// die acquires the lock and stops in the middle of its section, like a process that is
// killed: it writes nothing, and nobody extends or releases the lock. Then the worker is
// started again.
func (w *worker) die(ctx context.Context) error {
	lock, err := w.locker.Acquire(ctx, counterKey, demoTTL)
	if err != nil {
		return err
	}
	w.doomed.Store(false)
	s := w.d.state
	s.enter(w.i, lock.Fence(), lock.Valid)
	pause(ctx, shortSection)
	s.die(w.i, lock.Until())
	// The dead process's Locker is kept until its lock has expired, because Close would
	// release the lock.
	pause(ctx, time.Until(lock.Until())+demoTTL/4)
	s.restart(w.i)
	w.locker.Close()
	if !w.start() {
		<-ctx.Done()
	}
	return nil
}

// pause sleeps for d, or until ctx is done.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// atLeast returns a random duration from d up to twice d.
func atLeast(d time.Duration) time.Duration { return d + time.Duration(rand.Int64N(int64(d))) }
