package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/seed-ce352c9b/redlock/cmd/redlock/internal/demo"
)

const demoUsage = `usage: redlock demo [flags]

Starts five Redis masters in this process and lets workers contend for one lock around
one counter, while nodes are killed, hang and come back, and workers die holding the
lock. A worker reads the counter, takes a while and writes it: two at once would lose
an increment. At the end it says whether any was lost.

flags:
  -for DURATION  how long (default 8s)
  -forever       until ctrl-C
  -workers N     how many contend, 1 to 9 (default 4)
  -svg FILE      draw what happened: nodes, workers, faults, holders and fences

The nodes listen on real ports: while it runs, other shells may use them by the
REDLOCK_NODES that it prints. They keep their data while they are down.

On a terminal it draws a screen, elsewhere it prints a line for every event. It heeds
NO_COLOR and TERM=dumb.

exit status: 0 if the lock held, 1 if not, 64 if the arguments are wrong
`

// A demoConfig is a command line of demo.
type demoConfig struct {
	length  time.Duration // 0: until interrupted
	workers int
	svg     string // "": no picture
}

func parseDemo(args []string) (demoConfig, error) {
	var c demoConfig
	var forever bool
	fs := newFlags("demo")
	fs.DurationVar(&c.length, "for", 8*time.Second, "")
	fs.BoolVar(&forever, "forever", false, "")
	fs.IntVar(&c.workers, "workers", 4, "")
	fs.StringVar(&c.svg, "svg", "", "")
	if err := fs.Parse(args); err != nil {
		return c, err
	}
	switch {
	case fs.NArg() > 0:
		return c, fmt.Errorf("%q: demo takes flags only", fs.Arg(0))
	case c.workers < 1 || c.workers > 9:
		return c, fmt.Errorf("-workers %d: must be from 1 to 9", c.workers)
	case c.length <= 0:
		return c, fmt.Errorf("-for %v: must be positive, or use -forever", c.length)
	case forever && c.svg != "":
		return c, errors.New("-svg and -forever contradict each other: use -for")
	}
	if forever {
		c.length = 0
	}
	return c, nil
}

// demoCommand is the subcommand. It returns the exit status.
func demoCommand(args []string) int {
	c, err := parseDemo(args)
	if err != nil {
		return badFlags(err, "demo", demoUsage)
	}
	v := demo.Lines(os.Stdout)
	if columns, rows, ok := terminalSize(os.Stdout); ok && os.Getenv("TERM") != "dumb" && demo.Fits(c.workers, columns, rows) {
		v = demo.Screen(os.Stdout, os.Getenv("NO_COLOR") == "", func() (int, int) {
			c, r, _ := terminalSize(os.Stdout)
			return c, r
		})
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		cancel()
		s := <-signals // the second one ends the process at once, but not with the cursor hidden
		v.Leave()
		os.Exit(exitSignal + number(s))
	}()
	d := &demo.Demo{Workers: c.workers, Length: c.length}
	held, err := d.Play(ctx, os.Stdout, v)
	if err == nil && c.svg != "" {
		err = writeTimeline(c.svg, d)
	}
	if err != nil {
		complain("demo: %v", err)
		return exitFailed
	}
	if !held {
		return exitFailed
	}
	return 0
}

func writeTimeline(name string, d *demo.Demo) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(d.WriteTimeline(f), f.Close())
}
