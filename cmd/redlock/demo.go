package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/seed-ce352c9b/redlock"
)

const demoUsage = `usage: redlock demo [flags]

starts five Redis masters in this process and lets workers contend for one lock around
one counter, while nodes are killed, hang and come back, and workers die with the
lock. A worker reads the counter, takes a while and writes it: two at once would lose
an increment. At the end it says whether any was lost.

flags:
  -for DURATION  how long (default 8s)
  -forever       until ctrl-C
  -workers N     how many contend, 1 to 9 (default 4)

The nodes listen on real ports: while it runs, other shells may use them by the
REDLOCK_NODES that it prints. They keep their data while they are down.

On a terminal it draws a screen, elsewhere it prints a line for every event. NO_COLOR
and TERM=dumb are heeded.

exit status: 0 if the lock held, 1 if not, 64 if the arguments are wrong
`

// nodes is how many masters the demo has: the smallest number of which two may fail.
const nodes = 5

// faultPause is between two faults: long enough to be read, and to be seen working
// around.
const faultPause = 650 * time.Millisecond

// A demo is one run of it.
type demo struct {
	workers int
	length  time.Duration // 0: until ctx is done

	cluster  cluster
	stage    *stage
	counter  counter
	sections atomic.Int64

	// To show that the verdict can be bad.
	withoutLock bool          // the workers do not ask for the lock
	lossy       func(n int64) // stores in the counter's place
}

func parseDemo(args []string) (*demo, error) {
	d := &demo{}
	var forever bool
	fs := newFlags("demo")
	fs.DurationVar(&d.length, "for", 8*time.Second, "")
	fs.BoolVar(&forever, "forever", false, "")
	fs.IntVar(&d.workers, "workers", 4, "")
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	switch {
	case fs.NArg() > 0:
		return nil, fmt.Errorf("%q: it takes flags only", fs.Arg(0))
	case d.workers < 1 || d.workers > 9:
		return nil, fmt.Errorf("-workers %d: from 1 to 9", d.workers)
	case d.length <= 0:
		return nil, fmt.Errorf("-for %v: give it some time, or -forever", d.length)
	}
	if forever {
		d.length = 0
	}
	return d, nil
}

// demoCommand is the subcommand. It returns the exit status.
func demoCommand(args []string) int {
	d, err := parseDemo(args)
	if err != nil {
		return badFlags(err, "demo", demoUsage)
	}
	var v view = &lines{out: os.Stdout}
	if columns, rows, ok := terminalSize(os.Stdout); ok && os.Getenv("TERM") != "dumb" {
		if _, ok := eventLines(d.workers, columns, rows); ok {
			v = &screen{out: os.Stdout, paint: paint(os.Getenv("NO_COLOR") == ""), size: func() (int, int) {
				c, r, _ := terminalSize(os.Stdout)
				return c, r
			}}
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		cancel()
		s := <-signals // twice: at once, but not with the cursor hidden
		v.leave()
		os.Exit(exitSignal + number(s))
	}()
	t, err := d.run(ctx, os.Stdout, v)
	if err != nil {
		complain("demo: %v", err)
		return exitFailed
	}
	if !t.ok() {
		return exitFailed
	}
	return 0
}

// A view shows the stage until done is closed, and returns when all is shown.
type view interface {
	show(d *demo, done <-chan struct{})
	palette() paint
	leave() // undoes what show did to the terminal, if show can not any more
}

// run plays the demo until its time is over or ctx is done, and returns what happened.
func (d *demo) run(ctx context.Context, out io.Writer, v view) (*tally, error) {
	c, err := startCluster(nodes)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	d.cluster = c
	d.stage = newStage(d.workers)
	fmt.Fprintf(out, "five Redis masters; use them from other shells, too:\nexport REDLOCK_NODES=%s\n\n", strings.Join(c.addrs(), ","))

	if d.length > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d.length)
		defer cancel()
	}
	var cast []*worker
	var troupe, house sync.WaitGroup
	for i := range d.workers {
		w := &worker{d: d, i: i}
		cast = append(cast, w)
		troupe.Go(func() { w.run(ctx) })
	}
	troupe.Go(func() { d.faults(ctx, cast) })
	over := make(chan struct{})
	house.Go(func() { v.show(d, over) })
	troupe.Wait()
	close(over)
	house.Wait()

	t := d.stage.tally
	t.counter = d.counter.n.Load()
	fmt.Fprint(out, "\n"+t.verdict(v.palette()))
	return &t, nil
}

// faults plays the faults in turn: each kind is seen in a few seconds, on nodes taken at
// random. At most a minority is down at a time: with less than a majority nobody
// would get the lock, which is safe but nothing to look at.
func (d *demo) faults(ctx context.Context, cast []*worker) {
	next := 0
	for {
		for _, act := range []func(){
			func() { d.harm((*node).kill, killed) },
			func() { d.harm((*node).hang, hung) },
			func() { cast[next%len(cast)].doomed.Store(true); next++ },
			func() { d.heal(killed) },
			func() { d.harm((*node).kill, killed) },
			func() { d.heal(hung) },
			func() { d.harm((*node).kill, killed) },
			func() { d.heal(killed); d.heal(killed) },
		} {
			if pause(ctx, faultPause); ctx.Err() != nil {
				return
			}
			act()
		}
	}
}

func (d *demo) harm(do func(*node), h health) {
	if d.cluster.spare() <= 0 {
		return
	}
	n, err := d.cluster.pick(up)
	if err != nil {
		return
	}
	do(n)
	d.stage.fault(n, h, d.left())
}

func (d *demo) heal(h health) {
	n, err := d.cluster.pick(h)
	if err != nil {
		return
	}
	if err := n.revive(); err != nil {
		d.stage.trouble(n.name, err)
		return
	}
	d.stage.fault(n, up, d.left())
}

func (d *demo) left() int { return (nodes-1)/2 + 1 + d.cluster.spare() }

// store writes the counter.
func (d *demo) store(n int64) {
	if d.lossy != nil {
		d.lossy(n)
		return
	}
	d.counter.n.Store(n)
}

// claim is the lock's fence and validity; made up where there is no lock.
func (d *demo) claim(lock *redlock.Lock) (fence int64, valid func() bool) {
	if lock == nil {
		return d.sections.Load() + 1, func() bool { return true }
	}
	return lock.Fence(), lock.Valid
}

func isLost(err error) bool { return errors.Is(err, redlock.ErrLost) }
