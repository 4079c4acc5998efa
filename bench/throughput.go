package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
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
	gs := texts(throughputGoroutines)
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

// texts returns the elements as text.
func texts[T any](s []T) (texts []string) {
	for _, v := range s {
		texts = append(texts, fmt.Sprint(v))
	}
	return texts
}

// latency measures one caller alone.
func latency(ctx context.Context, b *bench) {
	cs := contenders(b.addrs, nameFloor, nameOurFloor, nameOurs, nameRedsync, nameFailFast, nameLock, nameBare)
	defer closeAll(cs)
	b.blocks(ctx, "latency", b.latencyBlocks, 50, b.groups(ctx, cs, []int{1}, strconv.Itoa, 0)[0])
}
