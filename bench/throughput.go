package main

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

var throughputGoroutines = []int{1, 16, 64, 256}

// throughput counts cycles of acquire and release, each goroutine on a key of its own.
func throughput(ctx context.Context, b *bench) error {
	cs, err := contenders(b.servers)
	if err != nil {
		return err
	}
	defer closeAll(cs)
	const section = "throughput"
	const metric, clientCPU, serversCPU = "cycles/s", "client CPU µs/cycle", "servers' CPU µs/cycle"
	for _, c := range cs { // connections, scripts, and whatever else comes with the first time
		run(ctx, c, throughputGoroutines[len(throughputGoroutines)-1], 50*time.Millisecond)
	}
	for rep := range b.reps {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		for _, g := range throughputGoroutines {
			progress("throughput %d/%d: %d goroutines", rep+1, b.reps, g)
			for _, c := range rotate(cs, rep) {
				client, server := cpuTime(), serverCPU(ctx, b.servers)
				rate, failed, err := run(ctx, c, g, b.block)
				client, server = cpuTime()-client, serverCPU(ctx, b.servers)-server
				b.report.series(section, c.name, fmt.Sprint(g), metric).add(rate)
				if cycles := rate * b.block.Seconds(); cycles > 0 { // the last ones go on a bit longer, which is little
					b.report.series(section, c.name, fmt.Sprint(g), clientCPU).add(us(client) / cycles)
					b.report.series(section, c.name, fmt.Sprint(g), serversCPU).add(us(server) / cycles)
				}
				b.report.series(section, c.name, fmt.Sprint(g), "failed").add(float64(failed))
				if failed > 0 {
					progress("  %s: %d failed: %v", c.name, failed, err)
				}
			}
		}
	}

	header := []string{"goroutines"}
	for _, g := range throughputGoroutines {
		header = append(header, fmt.Sprint(g))
	}
	rows := [][]string{header}
	for _, c := range cs {
		row := []string{c.name}
		for _, g := range throughputGoroutines {
			cell := b.report.series(section, c.name, fmt.Sprint(g), metric).spread("%.0f")
			if n := b.report.series(section, c.name, fmt.Sprint(g), "failed").median(); n > 0 {
				cell += fmt.Sprintf(" %.0f failed", n)
			}
			row = append(row, cell)
		}
		rows = append(rows, row)
	}
	b.report.table("Throughput: cycles of acquire and release a second, distinct keys", rows)

	rows = [][]string{header}
	for _, c := range cs[1:] {
		row := []string{"ours / " + c.name}
		for _, g := range throughputGoroutines {
			ours := b.report.series(section, nameOurs, fmt.Sprint(g), metric)
			row = append(row, b.report.ratio(ours, b.report.series(section, c.name, fmt.Sprint(g), metric)).spread("%.2f"))
		}
		rows = append(rows, row)
	}
	b.report.table("Throughput: ours as a multiple of", rows)

	// What a cycle costs, where the machine is busy and batches are deep: unlike the rates this does not depend on how
	// many cores there are, and tells who has to get cheaper.
	const busy = "64"
	rows = [][]string{{"", clientCPU, serversCPU}}
	for _, c := range cs {
		rows = append(rows, []string{c.name,
			b.report.series(section, c.name, busy, clientCPU).spread("%.1f"),
			b.report.series(section, c.name, busy, serversCPU).spread("%.1f")})
	}
	b.report.table("CPU time of a cycle, "+busy+" goroutines", rows)
	return nil
}

// run has g goroutines do cycles for about d. The rate is of what succeeded.
func run(ctx context.Context, c *contender, g int, d time.Duration) (rate float64, failed int64, last error) {
	runtime.GC() // the garbage of the one before is not this one's work
	var done, bad atomic.Int64
	var wg sync.WaitGroup
	var mu sync.Mutex
	start := time.Now()
	for i := range g {
		key := fmt.Sprintf("bench:%s:%d", c.name, i)
		wg.Go(func() {
			var n, f int64
			for time.Since(start) < d {
				if err := c.cycle(ctx, key); err != nil {
					f++
					mu.Lock()
					last = err
					mu.Unlock()
				} else {
					n++
				}
			}
			done.Add(n)
			bad.Add(f)
		})
	}
	wg.Wait()
	return float64(done.Load()) / time.Since(start).Seconds(), bad.Load(), last
}

// rotate has another one begin in each repetition: the first after a pause is not measured like the rest.
func rotate[T any](s []T, by int) []T {
	if len(s) == 0 {
		return s
	}
	by %= len(s)
	return append(append(make([]T, 0, len(s)), s[by:]...), s[:by]...)
}
