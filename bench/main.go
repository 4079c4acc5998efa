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

	start          time.Time
	section, doing string // what is being measured
}

// A section measures one subject. Besides its own tables, there is a raw table of each metric that it enters under a name.
type section struct {
	name    string
	run     func(context.Context, *bench)
	tables  func(*report) []table // may be nil
	entered []string
}

var sections = []section{
	{"throughput", throughput, throughputTables, []string{"throughput"}},
	{"once", once, onceTables, []string{"once"}},
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
	work := command
	if text := os.Getenv(jobEnv); text != "" {
		work = func() { contend(text) }
	}
	if err := catch(work); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func command() {
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
		printTables(*tables)
		return
	case *fill != "":
		fillPages(*fill)
		return
	case flag.NArg() > 0:
		check(fmt.Errorf("unexpected argument %q: use -only to choose sections", flag.Arg(0)))
	}
	names := strings.Split(*only, ",")
	for _, n := range names {
		if !slices.Contains(all, n) {
			check(fmt.Errorf("no section %q; the sections are %s", n, strings.Join(all, ", ")))
		}
	}
	b := &bench{plan: full, start: time.Now()}
	if *quick {
		b.plan = brief
	}
	if *reps > 0 {
		b.reps = *reps
	}
	b.measure(names, *out)
}

// measure starts the servers, runs the sections, and writes what was measured even if one of them failed.
func (b *bench) measure(names []string, out string) {
	logging.Disable() // go-redis would log every refused dial to a node that was killed
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	b.servers = must(realredis.StartServers(5))
	defer closeServers(b.servers)
	b.addrs = addrs(b.servers)
	b.meter = newMeter(ctx, b.servers)
	defer b.meter.close()
	b.report = newReport(b.meter.version)
	var errs []error
	for _, s := range sections {
		if slices.Contains(names, s.name) && ctx.Err() == nil {
			errs = append(errs, b.run(ctx, s))
		}
	}
	b.section = "done"
	b.progress("")
	b.report.Took = time.Since(b.start).Round(time.Second).String()
	for _, n := range b.report.Notes {
		fmt.Fprintln(os.Stderr, "note:", n)
	}
	if out != "" {
		errs = append(errs, catch(func() { b.report.write(out) }))
	}
	check(errors.Join(errs...))
}

// run measures a section and prints its tables, as far as it came. Its error names what was being measured.
func (b *bench) run(ctx context.Context, s section) error {
	b.section, b.doing = s.name, "start"
	err := catch(func() { s.run(ctx, b) })
	if err != nil {
		err = fmt.Errorf("%s: %s: %w", s.name, b.doing, err)
	}
	for _, t := range s.allTables(b.report) {
		t.text(os.Stdout)
	}
	return errors.Join(err, catch(func() { b.flush(ctx) }))
}

// flush empties the servers.
func (b *bench) flush(ctx context.Context) {
	var errs []error
	for _, c := range b.meter.clients {
		errs = append(errs, c.FlushAll(ctx).Err())
	}
	check(errors.Join(errs...))
}

// with returns the addresses of the first n servers and of others.
func (b *bench) with(n int, others ...*realredis.Server) []string {
	return slices.Concat(b.addrs[:n], addrs(others))
}

// progress prints to stderr what is being measured, so that stdout has only tables.
func (b *bench) progress(format string, args ...any) {
	b.doing = fmt.Sprintf(format, args...)
	fmt.Fprintf(os.Stderr, "%7v  %s: %s\n", time.Since(b.start).Round(time.Second), b.section, b.doing)
}

func addrs(servers []*realredis.Server) (addrs []string) {
	for _, s := range servers {
		addrs = append(addrs, s.Addr())
	}
	return addrs
}

func closeServers(servers []*realredis.Server) {
	for _, s := range servers {
		s.Close()
	}
}

// A failure is the error that ends a section, or the whole run.
type failure struct{ error }

// check panics with a failure if err is not nil. It is for the goroutine that called catch.
func check(err error) {
	if err != nil {
		panic(failure{err})
	}
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

// catch calls f and returns the error that ended it, after f's deferred calls.
func catch(f func()) (err error) {
	defer func() {
		switch v := recover().(type) {
		case nil:
		case failure:
			err = v.error
		default:
			panic(v)
		}
	}()
	f()
	return nil
}
