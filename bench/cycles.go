package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
)

var throughputGoroutines = []int{1, 16, 64, 256, 1024}

// throughput counts cycles of acquire and release, each goroutine on a key of its own.
func throughput(ctx context.Context, b *bench) {
	cs := contenders(b.addrs)
	defer closeAll(cs)
	b.turns(ctx, b.meter, "throughput", b.reps, b.block, b.groups(ctx, cs, throughputGoroutines, strconv.Itoa, b.block/4)...)
}

func throughputTables(r *report) []table {
	find := func(c, g, metric string) *series { return r.find("throughput", c, g, metric) }
	cs := r.subjects("throughput", mRate)
	gs := r.cases("throughput", mRate)
	// Unlike the rates, the CPU time of a cycle does not depend on the number of cores.
	cpu := []string{"client, 1 goroutine", "client, 64", "client, 1024", "servers, 1 goroutine", "servers, 64", "servers, 1024"}
	return []table{
		grid("throughput-ratio", "Cycles per second of redlock on five nodes, as a multiple of", "goroutines", without(cs, nameOurs), gs, func(c, g string) string {
			return find(nameOurs, g, mRate).over(find(c, g, mRate)).spread("%.2f")
		}),
		grid("cpu", "CPU time per cycle, µs, sum of all cores and nodes", "", cs, cpu, func(c, col string) string {
			who, g, _ := strings.Cut(strings.TrimSuffix(col, " goroutine"), ", ")
			return find(c, g, map[string]string{"client": mClientCPU, "servers": mServersCPU}[who]).spread("%.0f")
		}),
	}
}

var onceGoroutines = []int{64, 256}

// once counts cycles of acquire and release of names that are never used again, as those of single jobs and forms are.
func once(ctx context.Context, b *bench) {
	cs := contenders(b.addrs, nameOurs, nameNoFence, nameThree, nameThreeNoFence, nameRedsync, nameFloor, nameOurFloor, nameLock)
	defer closeAll(cs)
	groups := b.groups(ctx, cs, onceGoroutines, strconv.Itoa, b.block/4)
	var names atomic.Int64
	for _, group := range groups {
		for i := range group {
			group[i].key = func(int, int) string { return "bench:once:" + strconv.FormatInt(names.Add(1), 10) }
		}
	}
	b.turns(ctx, b.meter, "once", b.reps, b.block, groups...)
}

// onceTables compares them with throughput, where each goroutine uses one name again and again.
func onceTables(r *report) []table {
	t := table{"once", "Names used once, and names used again: cycles per second, and CPU time of a cycle, client and servers, µs", [][]string{{"", "goroutines", "used once: cycles/s", "client", "servers", "used again: cycles/s", "client", "servers"}}}
	for _, c := range r.subjects("once", mRate) {
		for _, g := range onceGoroutines {
			row := []string{c, fmt.Sprint(g)}
			for _, section := range []string{"once", "throughput"} {
				of := func(metric string) *series { return r.find(section, c, fmt.Sprint(g), metric) }
				row = append(row, of(mRate).cell("%.0f"), of(mClientCPU).cell("%.0f"), of(mServersCPU).cell("%.0f"))
			}
			t.rows = append(t.rows, row)
		}
	}
	return []table{t}
}

// latency measures one caller alone.
func latency(ctx context.Context, b *bench) {
	cs := contenders(b.addrs, nameFloor, nameOurFloor, nameOurs, nameNoFence, nameRedsync, nameFailFast, nameLock, nameBare)
	defer closeAll(cs)
	b.blocks(ctx, "latency", b.latencyBlocks, 50, b.groups(ctx, cs, []int{1}, strconv.Itoa, 0)[0])
}

var allocGoroutines = []int{1, 64}

const (
	mAllocs   = "allocations"
	mBytes    = "bytes allocated"
	mExecuted = "commands executed by a node" // including those that scripts call
)

// allocs counts what one cycle uses: allocations of the whole process, including background work, bytes on the wire, and
// commands.
func allocs(ctx context.Context, b *bench) {
	cs := contenders(b.addrs)
	defer closeAll(cs)
	const reps = 3 // the counts hardly vary
	for rep := range reps {
		b.progress("repetition %d of %d", rep+1, reps)
		for _, c := range rotate(cs, rep) {
			for _, g := range allocGoroutines {
				l := load{c: c, g: g, untimed: true}
				l.runCycles(ctx, 20)
				var t *timing
				used := b.meter.measure(ctx, func() { t = l.runCycles(ctx, b.cycles/g) })
				n, nodes := float64(t.done), float64(len(b.addrs))
				if strings.HasSuffix(c.name, "one node") {
					nodes = 1
				}
				b.report.enter("allocs", c.name, fmt.Sprint(g), values{
					{mAllocs, used.allocs / n}, {mBytes, used.bytes / n},
					{"bytes to a node", used.servers.in / n / nodes}, {"bytes from a node", used.servers.out / n / nodes},
					{mExecuted, used.servers.calls / n / nodes},
					{mClientCPU, us(used.client) / n}, {mServersCPU, us(used.servers.cpu) / n}, {mFailed, float64(t.failed)},
				})
			}
		}
	}
}
