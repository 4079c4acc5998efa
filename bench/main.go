// Bench compares locks side by side on the same real Redis servers, which it starts itself: redis-server must be in PATH.
// All traffic stays on the loopback interface.
//
//	go run .                                every section, about twenty minutes
//	go run . -quick                         every section in a few minutes, with more noise
//	go run . -only faults,held -out /tmp/x  some sections, with JSON and the plot
//	go run . -out results                   the run that is checked in
//	go run . -tables results/results.json   prints its tables as Markdown
//	go run . -fill results/results.json     puts its tables into the pages and redraws the plot
//
// The contenders take turns within each repetition, and verdicts are ratios: from one run to the next, everything on a
// shared machine can be twice as fast.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/seed-ce352c9b/redlock/internal/realredis"
)

// A plan says how much each section measures.
type plan struct {
	reps, distanceReps, waitingReps, scaleReps int

	block         time.Duration // of throughput
	latencyBlocks int
	cycles        int // of allocs

	faultBlocks int           // in each repetition
	peerCycles  int           // of redsync, which waits for the faulty node
	after       time.Duration // the time measured after a fault strikes

	distanceBlock time.Duration // at least
	distanceTrips int           // at least, of the longest round trip

	held             []int // numbers of locks
	heldFor, heldTTL time.Duration

	handover, crowd time.Duration

	scaleBlock time.Duration
	keys       []int
}

// full is the plan of a run whose results are kept.
var full = plan{
	reps: 7, distanceReps: 3, waitingReps: 3, scaleReps: 5,
	block: 350 * time.Millisecond, latencyBlocks: 20, cycles: 2048,
	faultBlocks: 12, peerCycles: 2, after: 1500 * time.Millisecond,
	distanceBlock: 700 * time.Millisecond, distanceTrips: 10,
	held: []int{1000, 10_000, 100_000}, heldFor: 35 * time.Second, heldTTL: 30 * time.Second,
	handover: 4 * time.Second, crowd: 2 * time.Second,
	scaleBlock: 300 * time.Millisecond, keys: []int{64, 10_000, 100_000},
}

// brief is the plan of -quick.
var brief = plan{
	reps: 3, distanceReps: 1, waitingReps: 1, scaleReps: 2,
	block: 100 * time.Millisecond, latencyBlocks: 5, cycles: 512,
	faultBlocks: 2, peerCycles: 1, after: 500 * time.Millisecond,
	distanceBlock: 200 * time.Millisecond, distanceTrips: 4,
	held: []int{1000, 10_000}, heldFor: 8 * time.Second, heldTTL: 9 * time.Second,
	handover: 2 * time.Second, crowd: time.Second,
	scaleBlock: 100 * time.Millisecond, keys: []int{64, 10_000},
}

// A bench is what the sections share.
type bench struct {
	plan
	servers []*realredis.Server // five, healthy
	addrs   []string            // of servers
	meter   *meter              // of servers
	report  *report

	start   time.Time
	section string // the one that runs
}

// A section measures one subject. Besides its own tables, there is a raw table of each metric that it enters under a name.
type section struct {
	name    string
	run     func(context.Context, *bench) error
	tables  func(*report) []table
	entered []string
}

var sections = []section{
	{"throughput", throughput, throughputTables, []string{"throughput"}},
	{"latency", latency, nil, []string{"latency"}},
	{"allocs", allocs, nil, []string{"allocs"}},
	{"faults", faults, faultsTables, []string{onsetSection, faultSection(1), faultSection(64)}},
	{"distance", distance, distanceTables, []string{"distance"}},
	{"waiting", waiting, waitingTables, []string{handoverSection, crowdSection}},
	{"held", held, heldTables, nil},
	{"scale", scale, scaleTables, []string{"nodes", "keys", "several"}},
}

func (s *section) allTables(r *report) (tables []table) {
	if s.tables != nil {
		tables = s.tables(r)
	}
	for _, name := range s.entered {
		tables = append(tables, r.raw(name)...)
	}
	return tables
}

func main() {
	run := mainErr
	if text := os.Getenv(jobEnv); text != "" {
		run = func() error { return contend(text) }
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func mainErr() error {
	var all []string
	for _, s := range sections {
		all = append(all, s.name)
	}
	quick := flag.Bool("quick", false, "run in a few minutes, with more noise")
	only := flag.String("only", strings.Join(all, ","), "run these `sections`, separated by commas")
	out := flag.String("out", "", "write results.json, with every repetition, and the plot to this `folder`")
	reps := flag.Int("reps", 0, "number of repetitions (default 7, with -quick 3)")
	tables := flag.String("tables", "", "measure nothing; print the tables of this results `file` as Markdown")
	fill := flag.String("fill", "", "measure nothing; put the tables of this results `file` into the pages and redraw its plot")
	flag.Parse()

	switch {
	case *tables != "":
		return printTables(*tables)
	case *fill != "":
		return fillPages(*fill)
	case flag.NArg() > 0:
		return fmt.Errorf("unexpected argument %q: use -only to choose sections", flag.Arg(0))
	}
	names := strings.Split(*only, ",")
	for _, n := range names {
		if !slices.Contains(all, n) {
			return fmt.Errorf("no section %q; the sections are %s", n, strings.Join(all, ", "))
		}
	}
	b := &bench{plan: full, start: time.Now()}
	if *quick {
		b.plan = brief
	}
	if *reps > 0 {
		b.reps = *reps
	}
	return b.runAll(names, *out)
}

// runAll starts the servers, runs the sections, and writes what was measured even if one of them failed.
func (b *bench) runAll(names []string, out string) (err error) {
	logging.Disable() // go-redis would log every refused dial to a node that was killed
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if b.servers, err = realredis.StartServers(5); err != nil {
		return err
	}
	defer closeServers(b.servers)
	b.addrs = addrs(b.servers)
	if b.meter, err = newMeter(ctx, b.servers); err != nil {
		return err
	}
	defer b.meter.close()
	b.report = newReport(b.meter.version)
	err = b.run(ctx, names)
	b.section = "done"
	b.progress("")
	b.report.Took = time.Since(b.start).Round(time.Second).String()
	for _, n := range b.report.Notes {
		fmt.Fprintln(os.Stderr, "note:", n)
	}
	if out != "" {
		err = errors.Join(err, b.report.write(out))
	}
	return err
}

// run continues after a section that failed, unless it was interrupted.
func (b *bench) run(ctx context.Context, names []string) error {
	var errs []error
	for _, s := range sections {
		if !slices.Contains(names, s.name) || ctx.Err() != nil {
			continue
		}
		b.section = s.name
		if err := s.run(ctx, b); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", s.name, err))
		}
		for _, t := range s.allTables(b.report) {
			t.text(os.Stdout)
		}
		errs = append(errs, b.flush(ctx))
	}
	return errors.Join(errs...)
}

// flush empties the servers.
func (b *bench) flush(ctx context.Context) error {
	var errs []error
	for _, c := range b.meter.clients {
		errs = append(errs, c.FlushAll(ctx).Err())
	}
	return errors.Join(errs...)
}

// progress prints to stderr what is being measured, so that stdout has only tables.
func (b *bench) progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%7v  %s: %s\n", time.Since(b.start).Round(time.Second), b.section, fmt.Sprintf(format, args...))
}

func addrs(servers []*realredis.Server) []string {
	a := make([]string, len(servers))
	for i, s := range servers {
		a[i] = s.Addr()
	}
	return a
}

func closeServers(servers []*realredis.Server) {
	for _, s := range servers {
		s.Close()
	}
}
