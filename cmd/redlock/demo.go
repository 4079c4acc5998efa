package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/seed-ce352c9b/redlock/cmd/redlock/internal/demo"
)

const demoUsage = `usage: redlock demo [flags]

Starts five Redis masters in this process. Workers compete for one lock that protects a
counter, while nodes are killed, hang and recover, and workers die holding the lock. A
worker reads the counter, works for a while and writes it back, so two workers at once
would lose an increment. At the end the demo reports whether any increment was lost.

flags:
  -for DURATION  how long to run (default 8s)
  -forever       run until ctrl-C
  -workers N     number of workers, 1 to 9 (default 4)
  -svg FILE      write a timeline of nodes, workers, faults, holders and fencing tokens

The nodes listen on real ports: other shells can use them with the REDLOCK_NODES that the
demo prints. A node keeps its data while it is down.

On a terminal the demo draws a screen; elsewhere it prints one line for each event. It
respects NO_COLOR and TERM=dumb.

exit status: 0 if the lock held, 1 if not, 64 if the arguments are wrong
`

// A demoConfig is the parsed command line of demo.
type demoConfig struct {
	length  time.Duration // 0: until interrupted
	workers int
	svg     string // "": no timeline
}

func parseDemo(args []string) (demoConfig, error) {
	var c demoConfig
	var forever bool
	fs := newFlags("demo")
	durationVar(fs, &c.length, "for", 8*time.Second)
	fs.BoolVar(&forever, "forever", false, "")
	fs.IntVar(&c.workers, "workers", 4, "")
	fs.StringVar(&c.svg, "svg", "", "")
	if err := fs.Parse(args); err != nil {
		return c, err
	}
	limited := false
	fs.Visit(func(f *flag.Flag) { limited = limited || f.Name == "for" })
	switch {
	case fs.NArg() > 0:
		return c, fmt.Errorf("%q: demo takes flags only", fs.Arg(0))
	case c.workers < 1 || c.workers > 9:
		return c, fmt.Errorf("-workers %d: must be from 1 to 9", c.workers)
	case c.length <= 0:
		return c, fmt.Errorf("-for %v: must be positive, or use -forever", c.length)
	case forever && limited:
		return c, errors.New("-for and -forever contradict each other: use only one of them")
	case forever && c.svg != "":
		return c, errors.New("-svg and -forever contradict each other: use -for")
	}
	if forever {
		c.length = 0
	}
	return c, nil
}

// demoCommand executes the subcommand demo and returns the exit status.
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
		s := <-signals // the second one exits at once, but not with the cursor hidden
		v.Leave()
		os.Exit(exitSignal + signalNumber(s))
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
