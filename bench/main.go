// Bench compares locks side by side on the same real Redis servers, which it starts itself (redis-server must be in
// PATH). All traffic stays on the loopback.
//
//	go run .                                everything, some twenty minutes
//	go run . -quick                         everything, in a few minutes, with more noise
//	go run . -only faults,held -out /tmp/x  some of it, with JSON and plots
//	go run . -out results                   what is checked in
//	go run . -tables results/results.json   its tables, as markdown
//	go run . -fill results/results.json     puts them into ../docs and ../README.md, and draws the plots anew
//
// Repetitions of all contenders are interleaved in one run, and the verdicts are ratios: between two runs on a shared
// machine everything can be twice as fast.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ce352c9b/redlock/internal/realredis"
)

// A bench is the flags and the servers that sections share.
type bench struct {
	servers []*realredis.Server // five, healthy
	meter   *meter              // of these
	report  *report
	status  status

	reps          int
	block         time.Duration // of throughput
	latencyBlocks int
	cycles        int // of allocs
	faults        faultPlan
	distance      distancePlan
	held          heldPlan
	wait          waitPlan
	scale         scalePlan
	profile       time.Duration
}

// A section is measured as a whole, and shown from what the report has kept of it.
type section struct {
	name   string
	run    func(context.Context, *bench) error
	tables func(*report) []table
}

var sections = []section{
	{"throughput", throughput, throughputTables},
	{"latency", latency, latencyTables},
	{"allocs", allocs, allocsTables},
	{"faults", faults, faultsTables},
	{"distance", distance, distanceTables},
	{"waiting", waiting, waitingTables},
	{"held", held, heldTables},
	{"scale", scale, scaleTables},
	{"profile", profiles, profileTables},
}

func main() {
	if text := os.Getenv(jobEnv); text != "" {
		if err := doJob(text); err != nil {
			fmt.Fprintln(os.Stderr, "bench worker:", err)
			os.Exit(1)
		}
		return
	}
	if err := mainErr(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func mainErr() error {
	quick := flag.Bool("quick", false, "everything in a few minutes, with more noise")
	only := flag.String("only", "", "`sections` to run, separated by commas: "+strings.Join(sectionNames(), ", "))
	out := flag.String("out", "", "write results.json, with every repetition, and plots to this `folder`, too")
	reps := flag.Int("reps", 0, "repetitions (7, or 3 with -quick)")
	tables := flag.String("tables", "", "measure nothing: print the tables of this results `file` as markdown")
	fill := flag.String("fill", "", "measure nothing: put the tables of this results `file` into ../docs and ../README.md, and draw its plots")
	flag.Parse()

	switch {
	case *tables != "":
		return printTables(*tables)
	case *fill != "":
		return fillDocuments(*fill)
	case flag.NArg() > 0:
		return fmt.Errorf("what is %q? Sections are named by -only", flag.Arg(0))
	}
	names, err := wanted(*only)
	if err != nil {
		return err
	}
	b := full()
	if *quick {
		b = brief()
	}
	if *reps > 0 {
		b.reps = *reps
	}

	redis.SetLogger(silent{}) // which reports every refused dial to a node that we killed

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if b.servers, err = realredis.StartServers(5); err != nil {
		return err
	}
	defer closeServers(b.servers)
	if b.meter, err = newMeter(ctx, b.servers); err != nil {
		return err
	}
	defer b.meter.close()
	b.report = newReport(version(ctx, b.servers[0]))
	b.status.begin(len(names))
	err = b.run(ctx, names)
	b.status.end()
	b.report.Took = b.status.elapsed().String()
	for _, n := range b.report.Notes {
		fmt.Fprintln(os.Stderr, "note:", n)
	}
	if *out != "" { // what was measured before an error is worth keeping
		err = errors.Join(err, b.report.write(*out))
	}
	return err
}

// full is the plan of a run whose results are kept.
func full() *bench {
	return &bench{
		reps: 7, block: 350 * time.Millisecond, latencyBlocks: 20, cycles: 2048,
		faults:   faultPlan{blocks: 12, peers: 2, after: 1500 * time.Millisecond},
		distance: distancePlan{reps: 3, least: 700 * time.Millisecond, trips: 10},
		held:     heldPlan{counts: []int{1000, 10_000, 100_000}, time: 35 * time.Second, ttl: 30 * time.Second},
		wait:     waitPlan{reps: 3, handover: 4 * time.Second, patience: 10 * time.Second, crowd: 4 * time.Second, multitude: 10_000},
		scale:    scalePlan{reps: 5, block: 300 * time.Millisecond, keys: []int{64, 10_000, 100_000}},
		profile:  5 * time.Second,
	}
}

// brief is the plan of -quick.
func brief() *bench {
	return &bench{
		reps: 3, block: 100 * time.Millisecond, latencyBlocks: 5, cycles: 512,
		faults:   faultPlan{blocks: 2, peers: 1, after: 500 * time.Millisecond},
		distance: distancePlan{reps: 1, least: 200 * time.Millisecond, trips: 4},
		held:     heldPlan{counts: []int{1000, 10_000}, time: 8 * time.Second, ttl: 9 * time.Second},
		wait:     waitPlan{reps: 1, handover: 2 * time.Second, patience: 4 * time.Second, crowd: time.Second, multitude: 10_000},
		scale:    scalePlan{reps: 2, block: 100 * time.Millisecond, keys: []int{64, 10_000}},
		profile:  time.Second,
	}
}

// run goes on after a section that failed: the others are worth having.
func (b *bench) run(ctx context.Context, names []string) error {
	var errs []error
	for _, s := range sections {
		if !slices.Contains(names, s.name) {
			continue
		}
		b.status.next(s.name)
		if err := s.run(ctx, b); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", s.name, err))
			if ctx.Err() != nil {
				break
			}
		}
		b.status.clear()
		for _, t := range s.tables(b.report) {
			t.text(os.Stdout)
		}
		for _, s := range b.servers {
			c := s.Client()
			err := c.FlushAll(ctx).Err()
			c.Close()
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (b *bench) progress(format string, args ...any) { b.status.show(fmt.Sprintf(format, args...)) }

// write puts all that is kept into a folder.
func (r *report) write(folder string) error {
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return err
	}
	return errors.Join(r.writeJSON(filepath.Join(folder, "results.json")), r.plot(folder))
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

func sectionNames() (names []string) {
	for _, s := range sections {
		names = append(names, s.name)
	}
	return names
}

func wanted(only string) ([]string, error) {
	all := sectionNames()
	if only == "" {
		return all, nil
	}
	names := strings.Split(only, ",")
	for _, n := range names {
		if !slices.Contains(all, n) {
			return nil, fmt.Errorf("no section %q; there are %s", n, strings.Join(all, ", "))
		}
	}
	return names, nil
}

func version(ctx context.Context, s *realredis.Server) string {
	c := s.Client()
	defer c.Close()
	info, _ := c.Info(ctx, "server").Result()
	_, v, _ := strings.Cut(info, "redis_version:")
	v, _, _ = strings.Cut(v, "\r\n")
	return v
}

func closeServers(servers []*realredis.Server) {
	for _, s := range servers {
		s.Close()
	}
}
