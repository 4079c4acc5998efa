package main

import (
	"context"
	"fmt"
)

var throughputGoroutines = []int{1, 16, 64, 256, 1024}

const (
	mRate       = "cycles/s"
	mAcquire50  = "acquire p50 ms"
	mAcquire99  = "acquire p99 ms"
	mRelease50  = "release p50 ms"
	mRelease99  = "release p99 ms"
	mClientCPU  = "client CPU µs/cycle"
	mServersCPU = "servers' CPU µs/cycle"
	mFailed     = "failed"
)

// throughput counts cycles of acquire and release, each goroutine on a key of its own.
func throughput(ctx context.Context, b *bench) error {
	cs, err := contenders(addrs(b.servers))
	if err != nil {
		return err
	}
	defer closeAll(cs)
	const section = "throughput"
	most := throughputGoroutines[len(throughputGoroutines)-1]
	for _, c := range cs { // connections, scripts, and whatever else comes with the first time
		runFor(ctx, c, c.name, most, b.block/4)
	}
	for rep := range b.reps {
		for _, g := range throughputGoroutines {
			b.progress("repetition %d of %d, %d goroutines", rep+1, b.reps, g)
			for _, c := range rotate(cs, rep) {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				var t *timing
				used, err := metered(ctx, b.meter, func() { t = runFor(ctx, c, c.name, g, b.block) })
				if err != nil {
					return err
				}
				b.report.timing(section, c.name, fmt.Sprint(g), t, used)
			}
		}
	}
	return nil
}

// timing enters what a load came to.
func (r *report) timing(section, subject, kase string, t *timing, used cost) {
	r.series(section, subject, kase, mRate).add(t.rate())
	r.halves(section, subject, kase, t)
	if n := float64(len(t.acquire)); n > 0 {
		r.series(section, subject, kase, mClientCPU).add(us(used.client) / n)
		r.series(section, subject, kase, mServersCPU).add(us(used.servers.cpu) / n)
	}
}

// halves enters how long acquire and release took.
func (r *report) halves(section, subject, kase string, t *timing) {
	if len(t.acquire) > 0 {
		r.series(section, subject, kase, mAcquire50).add(quantile(t.acquire, 0.5))
		r.series(section, subject, kase, mAcquire99).add(quantile(t.acquire, 0.99))
		r.series(section, subject, kase, mRelease50).add(quantile(t.release, 0.5))
		r.series(section, subject, kase, mRelease99).add(quantile(t.release, 0.99))
	}
	r.series(section, subject, kase, mFailed).add(float64(t.failed))
	if t.failed > 0 {
		r.note("%s, %s, %s: %d failed: %v", section, subject, kase, t.failed, t.err)
	}
}

func throughputTables(r *report) []table {
	const section = "throughput"
	cs := r.subjects(section, mRate)
	header := []string{"goroutines"}
	for _, g := range throughputGoroutines {
		header = append(header, fmt.Sprint(g))
	}
	each := func(cell func(subject, g string) string, skip string) [][]string {
		rows := [][]string{header}
		for _, c := range cs {
			if c == skip {
				continue
			}
			row := []string{c}
			for _, g := range header[1:] {
				row = append(row, cell(c, g))
			}
			rows = append(rows, row)
		}
		return rows
	}
	rates := each(func(c, g string) string {
		cell := r.find(section, c, g, mRate).spread("%.0f")
		if n := r.find(section, c, g, mFailed).median(); n > 0 {
			cell += fmt.Sprintf(", %.0f failed", n)
		}
		return cell
	}, "")
	ratios := each(func(c, g string) string {
		return r.find(section, nameOurs, g, mRate).over(r.find(section, c, g, mRate)).spread("%.2f")
	}, nameOurs)
	acquire := each(func(c, g string) string {
		return r.find(section, c, g, mAcquire50).spread("%.2f") + "; " + r.find(section, c, g, mAcquire99).cell("%.2f")
	}, "")
	// What a cycle costs where batches are deep: unlike the rates this does not depend on how many cores there are, and
	// tells who has to get cheaper.
	cpu := [][]string{{"", "client, 1 goroutine", "client, 64", "client, 1024", "servers, 1 goroutine", "servers, 64", "servers, 1024"}}
	for _, c := range cs {
		row := []string{c}
		for _, m := range []string{mClientCPU, mServersCPU} {
			for _, g := range []string{"1", "64", "1024"} {
				row = append(row, r.find(section, c, g, m).spread("%.0f"))
			}
		}
		cpu = append(cpu, row)
	}
	return []table{
		{"throughput-ratio", "Cycles a second: redlock on five nodes as a multiple of", ratios},
		{"throughput", "Cycles of acquire and release a second, each goroutine on a key of its own", rates},
		{"throughput-latency", "Acquire under this load, ms: p50; p99", acquire},
		{"cpu", "CPU time of a cycle, µs, all cores and all nodes", cpu},
	}
}
