package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/seed-ce352c9b/redlock/internal/realredis"
)

var (
	nodeCounts      = []int{1, 3, 5, 7}
	scaleGoroutines = []int{1, 64, 256}
)

// scale measures how the cost grows with the number of nodes and of keys.
func scale(ctx context.Context, b *bench) {
	nodes(ctx, b)
	keys(ctx, b)
	several(ctx, b)
}

// nodes measures a lock on 1, 3, 5 and 7 nodes.
func nodes(ctx context.Context, b *bench) {
	extra := must(realredis.StartServers(2))
	defer closeServers(extra)
	all := slices.Concat(b.servers, extra)
	m := newMeter(ctx, all)
	defer m.close()
	var groups [][]load
	for _, n := range nodeCounts {
		cs := contenders(addrs(all[:n]), nameOurs, nameRedsync, nameFloor, nameOurFloor)
		defer closeAll(cs)
		for _, c := range cs {
			c.keys = fmt.Sprint(c.name, n)
		}
		groups = append(groups, b.groups(ctx, cs, scaleGoroutines, func(g int) string { return nodesCase(n, g) }, b.scaleBlock/2)...)
	}
	b.turns(ctx, m, "nodes", b.scaleReps, b.scaleBlock, groups...)
}

func nodesCase(n, g int) string { return fmt.Sprintf("%d nodes, %d goroutines", n, g) }

// keys has 64 goroutines lock one key each, or another of many keys in every cycle.
func keys(ctx context.Context, b *bench) {
	const g = 64
	cs := contenders(b.addrs, nameOurs)
	defer closeAll(cs)
	load{c: cs[0], g: g}.runFor(ctx, b.scaleBlock/2)
	names := make([]string, slices.Max(b.keys))
	for i := range names {
		names[i] = fmt.Sprintf("bench:keys:%d", i)
	}
	var group []load
	for _, n := range b.keys {
		each := n / g // keys of a goroutine, which no other locks
		l := load{c: cs[0], kase: fmt.Sprint(n), g: g, key: func(i, j int) string { return names[i+g*(j%each)] }}
		group = append(group, l)
		b.progress("%d keys for the first time", n)
		var t *timing
		used := b.meter.measure(ctx, func() { t = l.runCycles(ctx, each) })
		b.report.enter("keys", nameOurs, l.kase, values{{"first time, cycles/s", t.rate()}, {"bytes left on a server", used.servers.memory / float64(len(b.addrs))}})
	}
	b.turns(ctx, b.meter, "keys", b.scaleReps, b.scaleBlock, group)
}

// several has 64 goroutines lock eight of 64 keys each, beside as many that lock one key of their own.
func several(ctx context.Context, b *bench) {
	cs := contenders(b.addrs, nameOurs, nameSeveral)
	defer closeAll(cs)
	b.turns(ctx, b.meter, "several", b.scaleReps, b.scaleBlock, b.groups(ctx, cs, []int{64}, strconv.Itoa, b.scaleBlock/2)...)
}

func scaleTables(r *report) []table {
	ceiling := table{"ceiling", "Capacity of one node, from its CPU time with 256 goroutines", [][]string{{"nodes", "CPU time of one node per cycle, µs", "cycles per second that use one core"}}}
	for _, n := range nodeCounts {
		one := r.find("nodes", nameOurs, nodesCase(n, 256), mServersCPU).each(func(v float64) float64 { return v / float64(n) })
		ceiling.rows = append(ceiling.rows, []string{fmt.Sprint(n), one.spread("%.1f"), one.each(func(v float64) float64 { return 1e6 / v }).spread("%.0f")})
	}
	several := table{"several", "64 goroutines on five nodes that lock one key each of their own, or any eight of 64 keys at once", [][]string{{"", "keys locked per second", "client, CPU time per key, µs", "servers, CPU time per key, µs"}}}
	for _, c := range []struct {
		who  string
		keys float64
	}{{nameOurs, 1}, {nameSeveral, severalAtOnce}} {
		of := func(metric string) *series { return r.find("several", c.who, "64", metric) }
		perKey := func(v float64) float64 { return v / c.keys }
		rate := of(mRate).each(func(v float64) float64 { return v * c.keys })
		several.rows = append(several.rows, []string{c.who, rate.spread("%.0f"), of(mClientCPU).each(perKey).spread("%.1f"), of(mServersCPU).each(perKey).spread("%.1f")})
	}
	return []table{ceiling, several}
}
