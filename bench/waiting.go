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
	reps                      int
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
		{nameLock, kindRedislock, healthy[:1]},
	}
	for rep := range b.wait.reps {
		for _, c := range rotate(cases, rep) {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			b.progress("handover, repetition %d of %d: %s", rep+1, b.wait.reps, c.name)
			raw := startRaw(ctx, b.servers)
			got, err := crew(waiters+1, job{Kind: c.kind, Addrs: c.addrs, Key: "bench:wait:" + c.name, Goroutines: 1, Hold: holds, Rest: rests, For: b.wait.handover})
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
	cases := []struct{ name, kind string }{{"redlock", kindOurs}, {"redlock, fair", kindFair}, {"redsync", kindRedsync}, {nameLock, kindRedislock}}
	for _, c := range cases {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		b.progress("commands of a waiter: %s", c.name)
		sent, waited, err := countCommands(ctx, b, c.kind, b.wait.patience)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		b.report.series(section, c.name, "1 waiting", "commands").add(float64(sent))
		b.report.series(section, c.name, "1 waiting", "seconds").add(waited.Seconds())
	}
	return nil
}

// A crowdSize is how many contenders want one key, in how many processes.
type crowdSize struct{ processes, each int }

var crowdSizes = []crowdSize{{2, 1}, {4, 2}, {4, 8}}

func (c crowdSize) String() string { return fmt.Sprint(c.processes * c.each) }

// crowd is contenders that want one key all the time, and hold it for a millisecond.
func crowd(ctx context.Context, b *bench) error {
	const section = "waiting: crowd"
	addrs := addrs(b.servers)
	cases := []struct {
		name, kind string
		addrs      []string
	}{{"redlock", kindOurs, addrs}, {"redlock, fair", kindFair, addrs}, {"redsync", kindRedsync, addrs}, {nameLock, kindRedislock, addrs[:1]}}
	for rep := range b.wait.reps {
		for _, size := range crowdSizes {
			for _, c := range rotate(cases, rep) {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				b.progress("crowd of %v, repetition %d of %d: %s", size, rep+1, b.wait.reps, c.name)
				before, err := b.meter.read(ctx)
				if err != nil {
					return err
				}
				got, err := crew(size.processes, job{Kind: c.kind, Addrs: c.addrs, Key: "bench:crowd:" + c.kind, Goroutines: size.each, Hold: time.Millisecond, For: b.wait.crowd})
				if err != nil {
					return fmt.Errorf("%s: %w", c.name, err)
				}
				after, err := b.meter.read(ctx)
				if err != nil {
					return err
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
				used := after.less(before, b.meter.own)
				enter := func(metric string, v float64) { b.report.series(section, c.name, size.String(), metric).add(v) }
				enter(mHandovers, float64(total)/b.wait.crowd.Seconds())
				enter(mMostLeast, float64(slices.Max(served))/float64(max(slices.Min(served), 1)))
				if total > 0 {
					enter(mServersCPU, us(used.cpu)/float64(total))
					enter(mCalls, float64(used.calls)/float64(total)/float64(len(c.addrs)))
				}
			}
		}
	}
	return nil
}

const (
	mHandovers = "handovers/s"
	mMostLeast = "most/least"
	mCalls     = "commands executed by a node"
)

func waitingTables(r *report) []table {
	const hand, commands, crowd = "waiting: handover", "waiting: commands", "waiting: crowd"
	handover := [][]string{{"", "p50", "p99", "most", "a raw round trip, ms", "handovers"}}
	for _, c := range r.subjects(hand, "p50") {
		s := func(metric, format string) string { return r.find(hand, c, "8 waiting", metric).spread(format) }
		handover = append(handover, []string{c, s("p50", "%.1f"), s("p99", "%.1f"), s("most", "%.0f"), s("raw ms", "%.2f"), s("n", "%.0f")})
	}
	patience := [][]string{{"", "commands to one node", "until, s"}}
	for _, c := range r.subjects(commands, "commands") {
		patience = append(patience, []string{c, r.find(commands, c, "1 waiting", "commands").spread("%.0f"), r.find(commands, c, "1 waiting", "seconds").spread("%.1f")})
	}
	of := func(metric, format string) [][]string {
		rows := [][]string{{"contenders"}}
		for _, size := range crowdSizes {
			rows[0] = append(rows[0], size.String())
		}
		for _, c := range r.subjects(crowd, mHandovers) {
			row := []string{c}
			for _, size := range crowdSizes {
				row = append(row, r.find(crowd, c, size.String(), metric).spread(format))
			}
			rows = append(rows, row)
		}
		return rows
	}
	ratio := [][]string{{"contenders"}}
	for _, size := range crowdSizes {
		ratio[0] = append(ratio[0], size.String())
	}
	for _, c := range r.subjects(crowd, mHandovers) {
		row := []string{c + " / redsync"}
		for _, size := range crowdSizes {
			row = append(row, r.find(crowd, c, size.String(), mHandovers).over(r.find(crowd, nameRedsync, size.String(), mHandovers)).spread("%.2f"))
		}
		if c != nameRedsync {
			ratio = append(ratio, row)
		}
	}
	multitude := [][]string{{"", ""}}
	for _, m := range []string{"heap, bytes a waiter", "stack, bytes a waiter", "connections to a node more", "half cancelled, all gone after, ms", "the others", "served", "in, ms"} {
		for _, n := range r.cases("waiting: multitude", m) {
			multitude = append(multitude, []string{m, r.find("waiting: multitude", nameOurs, n, m).cell("%.0f")})
		}
	}
	return []table{
		{"waiting-handover", "From Release to the next holder's return from Acquire, 8 waiting processes, in raw round trips of a quorum", handover},
		{"waiting-commands", "One waiter: what it sends to one node until it has the lock, or gives up", patience},
		{"waiting-crowd", "One key, contenders in two to four processes, 1 ms hold: holders a second", of(mHandovers, "%.0f")},
		{"waiting-crowd-ratio", "Holders a second, as a multiple of redsync", ratio},
		{"waiting-crowd-fairness", "Most served of the contenders / least served", of(mMostLeast, "%.1f")},
		{"waiting-crowd-cpu", "All servers' CPU for each holder, µs", of(mServersCPU, "%.0f")},
		{"waiting-crowd-commands", "Commands that a node executes for each holder, scripts' included", of(mCalls, "%.1f")},
		{"waiting-multitude", "10,000 goroutines of one process wait for one key, half of them are cancelled", multitude},
	}
}
