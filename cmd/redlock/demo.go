package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/seed-ce352c9b/redlock/cmd/redlock/internal/demo"
)

const demoHead = `usage: redlock demo [flags]

Starts five Redis masters in this process. Workers compete for one lock that protects a
counter, while nodes are killed, hang and recover, and workers die holding the lock. A
worker reads the counter, works for a while and writes it back, so two workers at once
would lose an increment. At the end the demo reports whether any increment was lost.

flags:
`

const demoTail = `
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

func newDemoFlags(c *demoConfig) *flagSet {
	f := newFlags("demo", "REDLOCK_DEMO_")
	f.durationVar(&c.length, "for", "", 8*time.Second, "`DUR` how long to run")
	f.Bool("forever", false, "run until ctrl-C")
	f.intVar(&c.workers, "workers", "", 4, 1, 9, "`N` number of workers, 1 to 9")
	f.StringVar(&c.svg, "svg", "", "`FILE` write a timeline of nodes, workers, faults, holders and fencing tokens")
	f.exclude("for", "forever")
	f.exclude("svg", "forever")
	return f
}

func demoUsage() string { return demoHead + newDemoFlags(new(demoConfig)).help() + demoTail }

// parseDemo parses the command line of demo; env looks up environment variables.
func parseDemo(args []string, env func(string) string) (demoConfig, error) {
	var c demoConfig
	f := newDemoFlags(&c)
	if err := f.parse(args); err != nil {
		return c, err
	}
	if f.NArg() > 0 {
		return c, mistake("%s: demo takes flags only", shown(f.Arg(0)))
	}
	if err := f.environment(env); err != nil {
		return c, err
	}
	if err := f.contradiction(); err != nil {
		return c, err
	}
	switch {
	case f.isSet("forever"):
		c.length = 0
	case c.length == 0:
		return c, mistake("%s 0s: want a positive duration", f.nameOf("for")).withHint("use --forever to run until ctrl-C")
	}
	return c, nil
}

// demoCommand executes the subcommand demo and returns the exit status.
func demoCommand(args []string) int {
	c, err := parseDemo(args, os.Getenv)
	if err != nil {
		return badUsage(err, "demo", demoUsage())
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
