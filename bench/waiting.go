package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/realredis"
)

// waiting measures contenders that want a lock which others hold. They are in processes of their own, since a Locker has
// shorter ways within its process.
func waiting(ctx context.Context, b *bench) error {
	if err := handover(ctx, b); err != nil {
		return err
	}
	return crowd(ctx, b)
}

const (
	handoverSection = "waiting: handover"
	crowdSection    = "waiting: crowd"
)

// handover measures from the call of Release to the next holder's return from Acquire, with eight processes waiting. Nine take
// turns: the previous holder rests until another has the lock. The round trip of a bare quorum is measured meanwhile.
func handover(ctx context.Context, b *bench) error {
	const (
		processes = 9
		holds     = 20 * time.Millisecond
		rests     = 10 * time.Millisecond
	)
	extra, err := realredis.StartServers(2)
	if err != nil {
		return err
	}
	defer closeServers(extra)
	dead, hung := extra[0], extra[1]
	if err := dead.Kill(); err != nil {
		return err
	}
	if err := hung.Stop(); err != nil {
		return err
	}
	with := func(fifth *realredis.Server) []string { return append(slices.Clone(b.addrs[:4]), fifth.Addr()) }
	cases := []struct {
		name, contender string
		addrs           []string
	}{
		{nameOurs, nameOurs, b.addrs},
		{nameFair, nameFair, b.addrs},
		{"redlock, one dead", nameOurs, with(dead)},
		{"redlock, one hung", nameOurs, with(hung)},
		{"redlock, fair, one hung", nameFair, with(hung)},
		{nameUnsubscribed, nameUnsubscribed, b.addrs},
		{nameRedsync, nameRedsync, b.addrs},
		{nameLock, nameLock, b.addrs},
	}
	for rep := range b.waitingReps {
		for _, c := range rotate(cases, rep) {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			b.progress("hand-over, repetition %d of %d: %s", rep+1, b.waitingReps, c.name)
			stop := roundTrips(ctx, b.addrs, holds+rests)
			got, err := crew(processes, job{Contender: c.contender, Addrs: c.addrs, Key: "bench:wait:" + c.name, Goroutines: 1, Hold: holds, Rest: rests, For: b.handover})
			trip := quantile(stop(), 0.5)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			took, err := handovers(got)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			b.report.enter(handoverSection, c.name, "8 waiting", values{
				{"p50", quantile(took, 0.5) / trip}, {"p99", quantile(took, 0.99) / trip}, {"most", quantile(took, 1) / trip},
				{"raw ms", trip}, {"n", float64(len(took))},
			})
		}
	}
	return nil
}

// roundTrips measures how long a bare quorum takes until stop is called, which returns the times in milliseconds. It sets a key
// as often as the lock changes hands, since a process that has slept is slower.
func roundTrips(ctx context.Context, addrs []string, every time.Duration) (stop func() []float64) {
	ctx, cancel := context.WithCancel(ctx)
	c := newFloor(addrs, nearPipelines)
	var trips []float64
	var wg sync.WaitGroup
	wg.Go(func() {
		defer c.close()
		for n := 0; ctx.Err() == nil; n++ {
			start := time.Now()
			if _, err := c.acquire(ctx, "bench:raw"); n > 20 && err == nil { // the first ones dial
				trips = append(trips, ms(time.Since(start)))
			}
			select {
			case <-time.After(every):
			case <-ctx.Done():
			}
		}
	})
	return func() []float64 {
		cancel()
		wg.Wait()
		return trips
	}
}

// A crowdSize is the number of contenders for one key, in several processes.
type crowdSize struct{ contenders, processes int }

var crowdSizes = []crowdSize{{2, 1}, {2, 2}, {8, 1}, {8, 2}, {8, 4}, {8, 8}, {32, 1}, {32, 2}, {32, 4}, {32, 8}}

func (c crowdSize) String() string { return fmt.Sprintf("%d in %d", c.contenders, c.processes) }

const (
	mHandovers  = "handovers/s"
	mMostLeast  = "most/least"
	mLongestRun = "longest run of a process"
)

// crowd measures contenders that want one key all the time and hold it for a millisecond.
func crowd(ctx context.Context, b *bench) error {
	for rep := range b.waitingReps {
		for _, size := range crowdSizes {
			for _, name := range rotate([]string{nameOurs, nameFair, nameRedsync}, rep) {
				b.progress("crowd of %v, repetition %d of %d: %s", size, rep+1, b.waitingReps, name)
				if err := crowdOf(ctx, b, name, size); err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
			}
		}
	}
	return nil
}

func crowdOf(ctx context.Context, b *bench, name string, size crowdSize) error {
	var got []outcome
	used, err := b.meter.measure(ctx, func() (err error) {
		got, err = crew(size.processes, job{Contender: name, Addrs: b.addrs, Key: "bench:crowd:" + name, Goroutines: size.contenders / size.processes, Hold: time.Millisecond, For: b.crowd})
		return err
	})
	if err != nil {
		return err
	}
	if _, err := handovers(got); err != nil {
		return err
	}
	var served []int
	total := 0.0
	for _, o := range got {
		served = append(served, o.Served...)
		total += float64(len(o.Holds))
	}
	b.report.enter(crowdSection, name, size.String(), values{
		{mHandovers, total / b.crowd.Seconds()},
		{mMostLeast, float64(slices.Max(served)) / float64(max(slices.Min(served), 1))},
		{mLongestRun, float64(longestRun(got))},
		{mServersCPU, us(used.servers.cpu) / total},
		{mExecuted, used.servers.calls / total / float64(len(b.addrs))},
	})
	return nil
}

// longestRun returns how many holds in a row one of several processes had, and 0 if there is only one.
func longestRun(got []outcome) (longest int) {
	type mine struct {
		process int
		from    int64
	}
	var all []mine
	for p, o := range got {
		for _, h := range o.Holds {
			all = append(all, mine{p, h.From})
		}
	}
	slices.SortFunc(all, func(a, b mine) int { return cmp.Compare(a.from, b.from) })
	run := 0
	for i, h := range all {
		if i == 0 || h.process != all[i-1].process {
			run = 0
		}
		run++
		if len(got) > 1 {
			longest = max(longest, run)
		}
	}
	return longest
}

func waitingTables(r *report) []table {
	cols := []string{"p50", "p99", "most", "round trip, ms", "handovers"}
	metrics := map[string][2]string{"p50": {"p50", "%.1f"}, "p99": {"p99", "%.1f"}, "most": {"most", "%.0f"}, "round trip, ms": {"raw ms", "%.2f"}, "handovers": {"n", "%.0f"}}
	crowds := grid("waiting-crowd", "Contenders in processes that want one key all the time and hold it for 1 ms (most/least: holds of the contender that had most, by those of the one that had least)",
		"contenders in processes", r.cases(crowdSection, mHandovers), crowdColumns(), func(size, col string) string {
			who, metric, _ := strings.Cut(col, ": ")
			format := "%.0f"
			if metric == mMostLeast {
				format = "%.1f"
			}
			return r.find(crowdSection, who, size, metric).cell(format)
		})
	return []table{crowds, grid("waiting-handover", "From the call of Release to the next holder's return from Acquire, with 8 waiting processes, in round trips of a bare quorum", "", r.subjects(handoverSection, "p50"), cols, func(c, col string) string {
		return r.find(handoverSection, c, "8 waiting", metrics[col][0]).spread(metrics[col][1])
	})}
}

func crowdColumns() (cols []string) {
	for _, who := range []string{nameOurs, nameFair, nameRedsync} {
		for _, metric := range []string{mHandovers, mMostLeast, mLongestRun, mExecuted} {
			if who != nameRedsync || metric == mHandovers || metric == mLongestRun {
				cols = append(cols, who+": "+metric)
			}
		}
	}
	return cols
}

// waitingTargets judges the worst of all sizes.
func (r *report) waitingTargets() (ts []target) {
	worst := func(what, who, metric string, limit float64, format string) {
		at := slices.MaxFunc(append(r.cases(crowdSection, metric), ""), func(a, b string) int {
			return cmp.Compare(r.find(crowdSection, who, a, metric).median(), r.find(crowdSection, who, b, metric).median())
		})
		ts = append(ts, target{fmt.Sprintf("one key, worst of 2 to 32 contenders in 1 to 8 processes (%s): %s, %s", at, who, what), r.find(crowdSection, who, at, metric), false, limit, format})
	}
	worst("most holds of a contender as a multiple of the least", nameOurs, mMostLeast, 1.5, "%.2f")
	worst("most holds of a contender as a multiple of the least", nameFair, mMostLeast, 1.1, "%.2f")
	worst("longest run of one process", nameOurs, mLongestRun, 16, "%.0f")
	worst("commands that a node executes per holder", nameOurs, mExecuted, 12, "%.0f")
	worst("commands that a node executes per holder", nameFair, mExecuted, 16, "%.0f")
	for _, size := range r.cases(crowdSection, mHandovers) {
		rate := func(who string) *series { return r.find(crowdSection, who, size, mHandovers) }
		ts = append(ts, target{"one key, " + size + " processes: holders per second, as a multiple of redsync's", rate(nameOurs).over(rate(nameRedsync)), true, 1, "%.2f"})
	}
	return append(ts, target{"hand-over between processes, p50, in round trips of a bare quorum", r.find(handoverSection, nameOurs, "8 waiting", "p50"), false, 2.5, "%.1f"})
}
