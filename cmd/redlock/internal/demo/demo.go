// Package demo shows workers that compete for one lock around one counter, while the Redis masters that store the
// lock are killed, hang and recover, and while workers die holding it. It checks from the outside whether the lock
// held.
package demo

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-ce352c9b/redlock"
)

const (
	nodes    = 5 // masters: the smallest number of which two may fail
	majority = nodes/2 + 1
)

// faultPause is the time between two faults: long enough to read what happened and to see the workers continue.
const faultPause = 650 * time.Millisecond

// A Demo is one run of the demo. It must not be reused.
type Demo struct {
	Workers int           // number of workers, 1 to 9
	Length  time.Duration // 0: until the context is done

	cluster  cluster
	state    *state
	counter  counter
	sections atomic.Int64

	// Set only by tests, to show that the demo detects a lock that does not hold.
	withoutLock bool          // the workers do not acquire the lock
	lossy       func(n int64) // replaces the store of the counter
}

// A View shows a demo while it runs.
type View interface {
	show(d *Demo, done <-chan struct{}) // returns after done is closed and everything has been shown
	palette() paint

	// Leave restores the terminal. It is for a process that exits in the middle of Play.
	Leave()
}

// Play runs the demo until Length has passed or ctx is done, shows it in v, and writes an introduction and the
// verdict to out. It reports whether the lock held. The error says that the nodes could not be started.
func (d *Demo) Play(ctx context.Context, out io.Writer, v View) (held bool, err error) {
	c, err := startCluster(nodes)
	if err != nil {
		return false, err
	}
	defer c.Close()
	d.cluster = c
	d.state = newState(d.Workers)
	fmt.Fprintf(out, "five Redis masters; to use them from other shells:\nexport REDLOCK_NODES=%s\n\n", strings.Join(c.addrs(), ","))

	if d.Length > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d.Length)
		defer cancel()
	}
	var workers []*worker
	var playing, showing sync.WaitGroup
	for i := range d.Workers {
		w := &worker{d: d, i: i}
		workers = append(workers, w)
		playing.Go(func() { w.run(ctx) })
	}
	playing.Go(func() { d.injectFaults(ctx, workers) })
	over := make(chan struct{})
	showing.Go(func() { v.show(d, over) })
	playing.Wait()
	close(over)
	showing.Wait()

	t := &d.state.tally
	t.counter = d.counter.n.Load()
	fmt.Fprint(out, "\n"+t.verdict(v.palette()))
	return t.ok(), nil
}

// injectFaults injects each kind of fault in turn, so that all of them are seen within a few seconds, on randomly
// chosen nodes. At most a minority of the nodes is down at a time: without a majority nobody acquires the lock, which
// is safe but shows nothing.
func (d *Demo) injectFaults(ctx context.Context, workers []*worker) {
	next := 0
	for {
		for _, act := range []func(){
			func() { d.harm(killed) },
			func() { d.harm(hung) },
			func() { workers[next%len(workers)].doomed.Store(true); next++ },
			func() { d.heal(killed) },
			func() { d.harm(killed) },
			func() { d.heal(hung) },
			func() { d.harm(killed) },
			func() { d.heal(killed); d.heal(killed) },
		} {
			if pause(ctx, faultPause); ctx.Err() != nil {
				return
			}
			act()
		}
	}
}

func (d *Demo) harm(h health) {
	if d.cluster.up() > majority {
		d.turn(up, h)
	}
}

func (d *Demo) heal(h health) { d.turn(h, up) }

// turn changes a random node from one health to another.
func (d *Demo) turn(from, to health) {
	n := d.cluster.pick(from)
	if n == nil {
		return
	}
	if err := n.set(to); err != nil {
		d.state.trouble(n.name, err)
		return
	}
	d.state.fault(n, to, d.cluster.up())
}

// store writes the counter.
func (d *Demo) store(n int64) {
	if d.lossy != nil {
		d.lossy(n)
		return
	}
	d.counter.n.Store(n)
}

// claim returns the fencing token and the validity check of a lock. Without a lock it makes them up.
func (d *Demo) claim(lock *redlock.Lock) (fence int64, valid func() bool) {
	if lock == nil {
		return d.sections.Load() + 1, func() bool { return true }
	}
	return lock.Fence(), lock.Valid
}
