package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/realredis"
)

// waiting is what it is like to wait for a lock that others hold: contenders are in processes of their own, for within one
// process there are shorter ways.
func waiting(ctx context.Context, b *bench) error {
	for _, part := range []func(context.Context, *bench) error{handover, patience, crowd, multitude} {
		if err := part(ctx, b); err != nil {
			return err
		}
	}
	return nil
}

// A waitPlan is how long each part takes in one repetition.
type waitPlan struct {
	handover, patience, crowd time.Duration
	multitude                 int
}

const (
	waiters = 8 // that wait at each handover
	holds   = 20 * time.Millisecond
	rests   = 10 * time.Millisecond // the holder does not compete for what it gives back
)

// handover measures from the call of Release to the next holder's return from Acquire, with eight processes waiting. Nine
// take turns: the one that released rests until the lock has another holder. Beside them the raw round trip of a quorum is
// measured all the time.
func handover(ctx context.Context, b *bench) error {
	const section = "waiting: handover"
	extra, err := realredis.StartServers(2)
	if err != nil {
		return err
	}
	defer closeServers(extra)
	if err := extra[0].Kill(); err != nil {
		return err
	}
	if err := extra[1].Stop(); err != nil {
		return err
	}
	healthy := addrs(b.servers)
	with := func(fifth string) []string { return append(addrs(b.servers[:4]), fifth) }
	cases := []struct {
		name, kind string
		addrs      []string
	}{
		{"redlock", kindOurs, healthy},
		{"redlock, fair", kindFair, healthy},
		{"redlock, one dead", kindOurs, with(extra[0].Addr())},
		{"redlock, one hung", kindOurs, with(extra[1].Addr())},
		{"redlock, fair, one hung", kindFair, with(extra[1].Addr())},
		{"redlock, deaf", kindDeaf, healthy},
		{"redsync", kindRedsync, healthy},
		{"redislock (1)", kindRedislock, healthy[:1]},
	}
	for rep := range b.reps {
		for _, c := range rotate(cases, rep) {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			progress("handover %d/%d: %s", rep+1, b.reps, c.name)
			raw := startRaw(ctx, b.servers)
			got, err := crew(ctx, waiters+1, job{Kind: c.kind, Addrs: c.addrs, Key: "bench:wait:" + c.name, Goroutines: 1, Hold: holds, Rest: rests, For: b.wait.handover})
			trips := raw.stop()
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			took, err := handovers(got)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			trip := quantile(trips, 0.5)
			for _, q := range []struct {
				name string
				q    float64
			}{{"p50", 0.5}, {"p99", 0.99}, {"most", 1}} {
				b.report.series(section, c.name, "8 waiting", q.name).add(quantile(took, q.q) / trip)
			}
			b.report.series(section, c.name, "8 waiting", "raw ms").add(trip)
			b.report.series(section, c.name, "8 waiting", "n").add(float64(len(took)))
		}
	}
	rows := [][]string{{"", "p50", "p99", "most", "a raw round trip, ms", "handovers"}}
	for _, c := range cases {
		s := func(metric, format string) string {
			return b.report.series(section, c.name, "8 waiting", metric).spread(format)
		}
		rows = append(rows, []string{c.name, s("p50", "%.1f"), s("p99", "%.1f"), s("most", "%.0f"), s("raw ms", "%.2f"), s("n", "%.0f")})
	}
	b.report.table("From Release to the next holder, 8 waiting processes, in raw round trips of a quorum", rows)
	return nil
}

// handovers are how long each took, in milliseconds, from all processes' holds. Two holds at one time are an error: then
// nothing was measured.
func handovers(got []outcome) (took []float64, err error) {
	var all []hold
	for _, o := range got {
		all = append(all, o.Holds...)
	}
	slices.SortFunc(all, func(a, b hold) int { return int(a.From - b.From) })
	for i := 1; i < len(all); i++ {
		d := all[i].From - all[i-1].To
		if d < 0 {
			err = fmt.Errorf("two held the lock at one time, for %v", -time.Duration(d))
		}
		took = append(took, float64(d)/1e6)
	}
	return took, err
}

// patience counts what one waiter sends to a node while it waits.
func patience(ctx context.Context, b *bench) error {
	const section = "waiting: commands"
	cases := []struct{ name, kind string }{{"redlock", kindOurs}, {"redlock, fair", kindFair}, {"redsync", kindRedsync}, {"redislock (1)", kindRedislock}}
	for _, c := range cases {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		progress("commands of a waiter: %s", c.name)
		sent, waited, err := countCommands(ctx, b, c.kind, b.wait.patience)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		b.report.series(section, c.name, "1 waiting", "commands").add(float64(sent))
		b.report.series(section, c.name, "1 waiting", "seconds").add(waited.Seconds())
	}
	rows := [][]string{{"", "commands to one node", "over seconds"}}
	for _, c := range cases {
		rows = append(rows, []string{c.name,
			b.report.series(section, c.name, "1 waiting", "commands").spread("%.0f"),
			b.report.series(section, c.name, "1 waiting", "seconds").spread("%.1f")})
	}
	b.report.table(fmt.Sprintf("One waiter, lock held for %v: what it sends to one node until it has the lock, or gives up", b.wait.patience), rows)
	return nil
}

// crowd is 32 contenders in four processes that want one key all the time, and hold it for a millisecond.
func crowd(ctx context.Context, b *bench) error {
	const section = "waiting: crowd"
	addrs := addrs(b.servers)
	cases := []struct {
		name, kind string
		addrs      []string
	}{{"redlock", kindOurs, addrs}, {"redlock, fair", kindFair, addrs}, {"redsync", kindRedsync, addrs}, {"redislock (1)", kindRedislock, addrs[:1]}}
	for rep := range b.reps {
		for _, c := range rotate(cases, rep) {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			progress("crowd %d/%d: %s", rep+1, b.reps, c.name)
			got, err := crew(ctx, 4, job{Kind: c.kind, Addrs: c.addrs, Key: "bench:crowd:" + c.kind, Goroutines: 8, Hold: time.Millisecond, For: b.wait.crowd})
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			if _, err := handovers(got); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			var served []int
			total := 0
			for _, o := range got {
				for _, n := range o.Served {
					served = append(served, n)
					total += n
				}
			}
			b.report.series(section, c.name, "32", "handovers/s").add(float64(total) / b.wait.crowd.Seconds())
			b.report.series(section, c.name, "32", "most/least").add(float64(slices.Max(served)) / float64(max(slices.Min(served), 1)))
		}
	}
	base := b.report.series(section, "redsync", "32", "handovers/s")
	rows := [][]string{{"", "handovers/s", "x redsync", "most served / least"}}
	for _, c := range cases {
		s := b.report.series(section, c.name, "32", "handovers/s")
		rows = append(rows, []string{c.name, s.spread("%.0f"), b.report.ratio(s, base).spread("%.2f"),
			b.report.series(section, c.name, "32", "most/least").spread("%.2f")})
	}
	b.report.table(fmt.Sprintf("32 contenders in 4 processes, 1 ms hold, %v", b.wait.crowd), rows)
	return nil
}
