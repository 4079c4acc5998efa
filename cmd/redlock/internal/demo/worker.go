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
	// counterKey is the demo's lock.
	counterKey = "demo/counter"

	// demoTTL is short, so that a watcher sees a dead worker's lock expire.
	demoTTL = time.Second

	// Each longEvery-th section takes longer than the ttl, and is only safe because the
	// lock is renewed.
	longEvery   = 12
	longSection = 1300 * time.Millisecond

	shortSection    = 60 * time.Millisecond  // and up to as much again
	betweenSections = 100 * time.Millisecond // of a worker, and up to as much again
)

// A counter is what the lock protects. To increment it is to read, to take a while and
// to write, on purpose: of two who do so at once, one increment is lost. Load and
// Store only keep the screen's look at it from being a data race.
type counter struct{ n atomic.Int64 }

// A worker stands for one process: it has a Locker, and so connections, of its own.
type worker struct {
	d      *Demo
	i      int
	locker *redlock.Locker
	doomed atomic.Bool // is to die with the lock next time
}

// run works until ctx is done. What is under way then is finished.
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

// start makes the worker's Locker.
func (w *worker) start() bool {
	name := w.d.state.workers[w.i].name
	l, err := redlock.Open(redlock.Options{
		Name:    name,
		Observe: func(r redlock.Round) { w.d.state.observe(w.i, r) },
	}, w.d.cluster.addrs()...)
	if err != nil {
		w.d.state.trouble(name, err)
		return false
	}
	w.locker = l
	return true
}

// section is the critical section. ctx ends when the lock is lost, and also when the
// demo is over; only then is the lock still valid.
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

// die takes the lock and ends in the middle of its section, as a process does that is
// killed: nothing is written, and nobody renews the lock or gives it back. Then the worker is
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
	// The dead process's Locker is kept until its lock has expired, because Close would give
	// the lock back.
	pause(ctx, time.Until(lock.Until())+demoTTL/4)
	s.restart(w.i)
	w.locker.Close()
	if !w.start() {
		<-ctx.Done()
	}
	return nil
}

// pause sleeps, but not beyond ctx.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// atLeast is d and up to as much again.
func atLeast(d time.Duration) time.Duration { return d + time.Duration(rand.Int64N(int64(d))) }
