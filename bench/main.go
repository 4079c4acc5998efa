// Bench compares locks side by side on the same real Redis servers, which it starts itself (redis-server must be in
// PATH). All traffic stays on the loopback.
//
//	go run .                          everything, some minutes
//	go run . -quick                   everything, in a few minutes
//	go run . -only faults,held -json out.json
//
// Repetitions of all contenders are interleaved in one run, and the verdicts are ratios: between two runs on a shared
// machine everything can be twice as fast.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ce352c9b/redlock/internal/realredis"
)

// A bench is the flags and the servers that sections share.
type bench struct {
	servers []*realredis.Server // five, healthy
	report  *report
	reps    int
	block   time.Duration // of throughput
	cycles  int           // of allocs
	faults  faultPlan
	held    heldPlan
	wait    waitPlan
}

var sections = []struct {
	name string
	run  func(context.Context, *bench) error
}{
	{"throughput", throughput},
	{"faults", faults},
	{"allocs", allocs},
	{"held", held},
	{"waiting", waiting},
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
	only := flag.String("only", "", "sections to run, separated by commas: throughput, faults, allocs, held, waiting")
	jsonFile := flag.String("json", "", "write every repetition to this `file`, too")
	reps := flag.Int("reps", 0, "repetitions (7, or 3 with -quick)")
	heldN := flag.Int("held", 10_000, "locks that are held at once")
	heldFor := flag.Duration("held-for", 0, "how long they are (25s, or 8s with -quick)")
	heldTTL := flag.Duration("held-ttl", 0, "their ttl (30s, or 9s with -quick)")
	flag.Parse()

	b := &bench{reps: 7, block: 500 * time.Millisecond, cycles: 2000,
		faults: faultPlan{blocks: 8, peers: 3, after: 1500 * time.Millisecond},
		held:   heldPlan{n: *heldN, time: 25 * time.Second, ttl: 30 * time.Second},
		wait:   waitPlan{handover: 10 * time.Second, patience: 10 * time.Second, crowd: 20 * time.Second, multitude: 10_000}}
	if *quick {
		b.reps, b.block, b.cycles = 3, 100*time.Millisecond, 500
		b.faults = faultPlan{blocks: 3, peers: 1, after: 500 * time.Millisecond}
		b.held.time, b.held.ttl = 8*time.Second, 9*time.Second
		b.wait.handover, b.wait.crowd = 3*time.Second, 3*time.Second
	}
	if *reps > 0 {
		b.reps = *reps
	}
	if *heldFor > 0 {
		b.held.time = *heldFor
	}
	if *heldTTL > 0 {
		b.held.ttl = *heldTTL
	}
	names, err := wanted(*only)
	if err != nil {
		return err
	}

	redis.SetLogger(silent{}) // which reports every refused dial to a node that we killed

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if b.servers, err = realredis.StartServers(5); err != nil {
		return err
	}
	defer closeServers(b.servers)
	b.report = newReport(os.Stdout, version(ctx, b.servers[0]))
	begin := time.Now()
	for _, s := range sections {
		if !slices.Contains(names, s.name) {
			continue
		}
		if err := s.run(ctx, b); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		for _, s := range b.servers {
			if err := s.Client().FlushAll(ctx).Err(); err != nil {
				return err
			}
		}
	}
	progress("done in %v", time.Since(begin).Round(time.Second))
	if *jsonFile != "" {
		return b.report.writeJSON(*jsonFile)
	}
	return nil
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

func wanted(only string) ([]string, error) {
	var all []string
	for _, s := range sections {
		all = append(all, s.name)
	}
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
	info, _ := s.Client().Info(ctx, "server").Result()
	_, v, _ := strings.Cut(info, "redis_version:")
	v, _, _ = strings.Cut(v, "\r\n")
	return v
}

func closeServers(servers []*realredis.Server) {
	for _, s := range servers {
		s.Close()
	}
}
