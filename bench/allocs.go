package main

import (
	"context"
	"fmt"
	"strings"
)

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
