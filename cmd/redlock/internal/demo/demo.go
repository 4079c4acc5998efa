// Package demo plays workers that contend for one lock around one counter, while the Redis masters that keep the
// lock are killed, hang and come back, and while workers die holding it. It judges from the outside whether the
// lock held.
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

// nodes is how many masters the demo has: the smallest number of which two may fail.
const nodes = 5

// faultPause is between two faults: long enough to read what happened and to see the workers carry on.
const faultPause = 650 * time.Millisecond

// A Demo is one run. It is used once.
type Demo struct {
	Workers int           // how many contend, 1 to 9
	Length  time.Duration // 0: until the context ends

	cluster  cluster
	state    *state
	counter  counter
	sections atomic.Int64

	// Only tests set these, to show that the verdict can be bad.
	withoutLock bool          // the workers do not ask for the lock
	lossy       func(n int64) // stores the counter instead
}

// A View shows a demo while it runs.
type View interface {
	show(d *Demo, done <-chan struct{}) // returns when done is closed and everything has been shown
	palette() paint

	// Leave undoes what the view did to the terminal. It is for a process that exits in the middle of Play.
	Leave()
}

// Play runs the demo until its time has passed or ctx ends, shows it in v, and writes an introduction and the verdict
// to out. It reports whether the lock held.
func (d *Demo) Play(ctx context.Context, out io.Writer, v View) (held bool, err error) {
	c, err := startCluster(nodes)
	if err != nil {
		return false, err
	}
	defer c.Close()
	d.cluster = c
	d.state = newState(d.Workers)
	fmt.Fprintf(out, "five Redis masters; use them from other shells, too:\nexport REDLOCK_NODES=%s\n\n", strings.Join(c.addrs(), ","))

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

// injectFaults goes through the kinds of faults in turn, so that each is seen within a few seconds, on nodes taken at
// random. At most a minority of the nodes is down at a time: without a majority nobody gets the lock, which is safe
// but shows nothing.
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
	if d.cluster.spare() > 0 {
		d.turn(up, h)
	}
}

func (d *Demo) heal(h health) { d.turn(h, up) }

// turn gives a random node of one health another.
func (d *Demo) turn(from, to health) {
	n := d.cluster.pick(from)
	if n == nil {
		return
	}
	if err := n.set(to); err != nil {
		d.state.trouble(n.name, err)
		return
	}
	d.state.fault(n, to, (nodes-1)/2+1+d.cluster.spare())
}

// store writes the counter.
func (d *Demo) store(n int64) {
	if d.lossy != nil {
		d.lossy(n)
		return
	}
	d.counter.n.Store(n)
}

// claim is the lock's fence and validity; made up where there is no lock.
func (d *Demo) claim(lock *redlock.Lock) (fence int64, valid func() bool) {
	if lock == nil {
		return d.sections.Load() + 1, func() bool { return true }
	}
	return lock.Fence(), lock.Valid
}
