package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/realredis"
)

// waiting measures contenders that want a lock which others hold. They are in processes of their own, since a Locker has
// shorter ways within its process.
func waiting(ctx context.Context, b *bench) {
	handover(ctx, b)
	crowd(ctx, b)
}

const (
	handoverSection = "waiting: handover"
	crowdSection    = "waiting: crowd"

	nameTenAway = "redlock, 10 ms away"
	nameFarAway = "redlock, 2 to 140 ms away"
)

// handover measures from the call of Release to the next holder's return from Acquire, with eight processes waiting. Nine take
// turns: the previous holder rests until another has the lock. The round trip of a bare quorum is measured meanwhile. With all
// processes and servers on one machine it is mostly CPU time; behind proxies that delay, it is distance.
func handover(ctx context.Context, b *bench) {
	const (
		processes = 9
		holds     = 20 * time.Millisecond
		rests     = 10 * time.Millisecond
	)
	extra := must(realredis.StartServers(2))
	defer closeServers(extra)
	dead, hung := extra[0], extra[1]
	check(errors.Join(dead.Kill(), hung.Stop()))
	tenAway, closeTen := place{10, 10, 10, 10, 10}.links(b.addrs)
	defer closeTen()
	farAway, closeFar := farthest.links(b.addrs)
	defer closeFar()
	cases := []struct {
		name, contender string
		addrs           []string
		trips           []string // whose round trip is the unit
	}{
		{nameOurs, nameOurs, b.addrs, b.addrs},
		{nameFair, nameFair, b.addrs, b.addrs},
		{nameTenAway, nameOurs, tenAway, tenAway},
		{nameFarAway, nameOurs, farAway, farAway},
		{"redlock, one dead", nameOurs, b.with(4, dead), b.addrs},
		{"redlock, one hung", nameOurs, b.with(4, hung), b.addrs},
		{"redlock, fair, one hung", nameFair, b.with(4, hung), b.addrs},
		{nameUnsubscribed, nameUnsubscribed, b.addrs, b.addrs},
		{nameRedsync, nameRedsync, b.addrs, b.addrs},
		{"redsync, 10 ms away", nameRedsync, tenAway, tenAway},
		{nameLock, nameLock, b.addrs, b.addrs},
	}
	for rep := range b.waitingReps {
		for _, c := range rotate(cases, rep) {
			check(ctx.Err())
			b.progress("hand-over, repetition %d of %d: %s", rep+1, b.waitingReps, c.name)
			stop := roundTrips(ctx, c.trips, holds+rests)
			took := must(handovers(inOrder(crew(processes, job{Contender: c.contender, Addrs: c.addrs, Key: "bench:wait:" + c.name, Goroutines: 1, Hold: holds, Rest: rests, For: b.handover}))))
			trip := quantile(stop(), 0.5)
			b.report.enter(handoverSection, c.name, "8 waiting", values{
				{"p50", quantile(took, 0.5) / trip}, {"p99", quantile(took, 0.99) / trip}, {"most", quantile(took, 1) / trip},
				{"raw ms", trip}, {"n", float64(len(took))},
			})
		}
	}
}

// roundTrips measures how long a bare quorum takes until stop is called, which returns the times in milliseconds. It sets a key
// as often as the lock changes hands, since a process that has slept is slower.
func roundTrips(ctx context.Context, addrs []string, every time.Duration) (stop func() []float64) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan []float64)
	go func() {
		c := newFloor(addrs, nearPipelines)
		defer c.close()
		var trips []float64
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
		done <- trips
	}()
	return func() []float64 {
		cancel()
		return <-done
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
func crowd(ctx context.Context, b *bench) {
	for rep := range b.waitingReps {
		for _, size := range crowdSizes {
			for _, name := range rotate([]string{nameOurs, nameFair, nameRedsync}, rep) {
				b.progress("crowd of %v, repetition %d of %d: %s", size, rep+1, b.waitingReps, name)
				crowdOf(ctx, b, name, size)
			}
		}
	}
}

func crowdOf(ctx context.Context, b *bench, name string, size crowdSize) {
	var got []outcome
	used := b.meter.measure(ctx, func() {
		got = crew(size.processes, job{Contender: name, Addrs: b.addrs, Key: "bench:crowd:" + name, Goroutines: size.contenders / size.processes, Hold: time.Millisecond, For: b.crowd})
	})
	holds := inOrder(got)
	must(handovers(holds))
	longest := 0 // holds in a row of one of several processes
	if size.processes > 1 {
		longest = longestRun(holds)
	}
	var served []int
	for _, o := range got {
		served = append(served, o.Served...)
	}
	total := float64(len(holds))
	b.report.enter(crowdSection, name, size.String(), values{
		{mHandovers, total / b.crowd.Seconds()},
		{mMostLeast, float64(slices.Max(served)) / float64(max(slices.Min(served), 1))},
		{mLongestRun, float64(longest)},
		{mServersCPU, us(used.servers.cpu) / total},
		{mExecuted, used.servers.calls / total / float64(len(b.addrs))},
	})
}

// longestRun returns how many holds in a row one process had.
func longestRun(holds []hold) (longest int) {
	run := 0
	for i, h := range holds {
		if i > 0 && h.process != holds[i-1].process {
			run = 0
		}
		run++
		longest = max(longest, run)
	}
	return longest
}

func waitingTables(r *report) []table {
	var cols []string
	for _, who := range []string{nameOurs, nameFair, nameRedsync} {
		for _, metric := range []string{mHandovers, mMostLeast, mLongestRun, mExecuted} {
			if who != nameRedsync || metric == mHandovers || metric == mLongestRun {
				cols = append(cols, who+": "+metric)
			}
		}
	}
	formats := map[string]string{mMostLeast: "%.1f"}
	crowds := grid("waiting-crowd", "Contenders in processes that want one key all the time and hold it for 1 ms (most/least: holds of the contender that had most, by those of the one that had least)",
		"contenders in processes", r.cases(crowdSection, mHandovers), cols, func(size, col string) string {
			who, metric, _ := strings.Cut(col, ": ")
			return r.find(crowdSection, who, size, metric).cell(cmp.Or(formats[metric], "%.0f"))
		})
	handovers := table{"waiting-handover", "From the call of Release to the next holder's return from Acquire, with 8 waiting processes, in round trips of a bare quorum", [][]string{{"", "p50", "p99", "most", "round trip, ms", "handovers"}}}
	for _, c := range r.subjects(handoverSection, "p50") {
		cell := func(metric, format string) string {
			return r.find(handoverSection, c, "8 waiting", metric).spread(format)
		}
		handovers.rows = append(handovers.rows, []string{c, cell("p50", "%.1f"), cell("p99", "%.1f"), cell("most", "%.0f"), cell("raw ms", "%.2f"), cell("n", "%.0f")})
	}
	return []table{crowds, handovers}
}

// waitingTargets judges the worst of all sizes.
func (r *report) waitingTargets(t *table) {
	worst := func(what, who, metric string, limit float64, format string) {
		at := slices.MaxFunc(append(r.cases(crowdSection, metric), ""), func(a, b string) int {
			return cmp.Compare(r.find(crowdSection, who, a, metric).median(), r.find(crowdSection, who, b, metric).median())
		})
		t.target(atMost, limit, format, r.find(crowdSection, who, at, metric), "one key, worst of 2 to 32 contenders in 1 to 8 processes (%s): %s, %s", at, who, what)
	}
	worst("most holds of a contender as a multiple of the least", nameOurs, mMostLeast, 1.5, "%.2f")
	worst("most holds of a contender as a multiple of the least", nameFair, mMostLeast, 1.1, "%.2f")
	worst("longest run of one process", nameOurs, mLongestRun, 16, "%.0f")
	worst("commands that a node executes per holder", nameOurs, mExecuted, 12, "%.0f")
	worst("commands that a node executes per holder", nameFair, mExecuted, 16, "%.0f")
	for _, size := range r.cases(crowdSection, mHandovers) {
		rate := func(who string) *series { return r.find(crowdSection, who, size, mHandovers) }
		t.target(atLeast, 1, "%.2f", rate(nameOurs).over(rate(nameRedsync)), "one key, %s processes: holders per second, as a multiple of redsync's", size)
	}
	for _, c := range []string{nameOurs, nameTenAway, nameFarAway} {
		t.target(atMost, 2.5, "%.1f", r.find(handoverSection, c, "8 waiting", "p50"), "hand-over between processes, p50, in round trips of a bare quorum: %s", c)
	}
}
