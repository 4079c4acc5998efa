package main

import (
	"context"
	"fmt"
	"slices"
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
type crowdSize struct{ processes, each int }

var crowdSizes = []crowdSize{{2, 1}, {4, 2}, {4, 8}}

func (c crowdSize) String() string { return fmt.Sprint(c.processes * c.each) }

const mHandovers = "handovers/s"

// crowd measures contenders that want one key all the time and hold it for a millisecond.
func crowd(ctx context.Context, b *bench) error {
	for rep := range b.waitingReps {
		for _, size := range crowdSizes {
			for _, name := range rotate([]string{nameOurs, nameFair, nameRedsync, nameLock}, rep) {
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
		got, err = crew(size.processes, job{Contender: name, Addrs: b.addrs, Key: "bench:crowd:" + name, Goroutines: size.each, Hold: time.Millisecond, For: b.crowd})
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
	nodes := float64(len(b.addrs))
	if name == nameLock {
		nodes = 1
	}
	b.report.enter(crowdSection, name, size.String(), values{
		{mHandovers, total / b.crowd.Seconds()},
		{"most/least", float64(slices.Max(served)) / float64(max(slices.Min(served), 1))},
		{mServersCPU, us(used.servers.cpu) / total},
		{mExecuted, used.servers.calls / total / nodes},
	})
	return nil
}

func waitingTables(r *report) []table {
	cols := []string{"p50", "p99", "most", "round trip, ms", "handovers"}
	metrics := map[string][2]string{"p50": {"p50", "%.1f"}, "p99": {"p99", "%.1f"}, "most": {"most", "%.0f"}, "round trip, ms": {"raw ms", "%.2f"}, "handovers": {"n", "%.0f"}}
	return []table{grid("waiting-handover", "From the call of Release to the next holder's return from Acquire, with 8 waiting processes, in round trips of a bare quorum", "", r.subjects(handoverSection, "p50"), cols, func(c, col string) string {
		return r.find(handoverSection, c, "8 waiting", metrics[col][0]).spread(metrics[col][1])
	})}
}
