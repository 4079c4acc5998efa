package main

import (
	"context"
	"runtime"
)

// allocs counts what the whole process allocates for a cycle of one goroutine, background work included: a lane's
// goroutines are not free because they are not the caller's.
func allocs(ctx context.Context, b *bench) error {
	cs, err := contenders(b.servers)
	if err != nil {
		return err
	}
	defer closeAll(cs)
	const section = "allocs"
	for rep := range b.reps {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		progress("allocs %d/%d", rep+1, b.reps)
		for _, c := range rotate(cs, rep) {
			key := "bench:allocs:" + c.name
			failed := 0 // redsync's fail-fast is refused by what its own release left behind
			for range 50 {
				c.cycle(ctx, key)
			}
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			for range b.cycles {
				if err := c.cycle(ctx, key); err != nil {
					failed++
				}
			}
			runtime.ReadMemStats(&after)
			b.report.series(section, c.name, "1", "failed").add(float64(failed))
			n := float64(b.cycles)
			b.report.series(section, c.name, "1", "allocations").add(float64(after.Mallocs-before.Mallocs) / n)
			b.report.series(section, c.name, "1", "bytes").add(float64(after.TotalAlloc-before.TotalAlloc) / n)
		}
	}
	rows := [][]string{{"", "allocations", "bytes", "failed"}}
	for _, c := range cs {
		rows = append(rows, []string{c.name,
			b.report.series(section, c.name, "1", "allocations").spread("%.0f"),
			b.report.series(section, c.name, "1", "bytes").spread("%.0f"),
			b.report.series(section, c.name, "1", "failed").spread("%.0f")})
	}
	b.report.table("Allocations of one cycle, one goroutine, whole process", rows)
	return nil
}
