package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/seed-ce352c9b/redlock/internal/realredis"
)

var (
	nodeCounts      = []int{1, 3, 5, 7}
	scaleGoroutines = []int{1, 64, 256}
)

// scale measures how the cost grows with the number of nodes and of keys.
func scale(ctx context.Context, b *bench) error {
	if err := nodes(ctx, b); err != nil {
		return err
	}
	if err := keys(ctx, b); err != nil {
		return err
	}
	return several(ctx, b)
}

// nodes measures a lock on 1, 3, 5 and 7 nodes.
func nodes(ctx context.Context, b *bench) error {
	extra, err := realredis.StartServers(2)
	if err != nil {
		return err
	}
	defer closeServers(extra)
	all := slices.Concat(b.servers, extra)
	m, err := newMeter(ctx, all)
	if err != nil {
		return err
	}
	defer m.close()
	groups := make([][]load, 0, len(scaleGoroutines)*len(nodeCounts))
	for _, n := range nodeCounts {
		cs, err := contenders(addrs(all[:n]), nameOurs, nameRedsync, nameFloor, nameOurFloor)
		if err != nil {
			return err
		}
		defer closeAll(cs)
		for _, g := range scaleGoroutines {
			var group []load
			for _, c := range cs {
				group = append(group, load{c: c, kase: nodesCase(n, g), keys: fmt.Sprint(c.name, n), g: g})
			}
			groups = append(groups, group)
		}
		for _, l := range groups[len(groups)-1] { // connections and scripts
			l.runFor(ctx, b.scaleBlock/2)
		}
	}
	return b.turns(ctx, m, "nodes", b.scaleReps, b.scaleBlock, groups...)
}

func nodesCase(n, g int) string { return fmt.Sprintf("%d nodes, %d goroutines", n, g) }

// keys has 64 goroutines lock one key each, or another of many keys in every cycle.
func keys(ctx context.Context, b *bench) error {
	const g = 64
	cs, err := contenders(b.addrs, nameOurs)
	if err != nil {
		return err
	}
	defer closeAll(cs)
	load{c: cs[0], keys: "warm", g: g}.runFor(ctx, b.scaleBlock/2)
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
		used, err := b.meter.measure(ctx, func() error { t = l.runCycles(ctx, each); return ctx.Err() })
		if err != nil {
			return err
		}
		b.report.enter("keys", nameOurs, l.kase, values{{"first time, cycles/s", t.rate()}, {"bytes left on a server", used.servers.memory / float64(len(b.addrs))}})
	}
	return b.turns(ctx, b.meter, "keys", b.scaleReps, b.scaleBlock, group)
}

// several has 64 goroutines lock eight of 64 keys each, beside as many that lock one key of their own.
func several(ctx context.Context, b *bench) error {
	cs, err := contenders(b.addrs, nameOurs, nameSeveral)
	if err != nil {
		return err
	}
	defer closeAll(cs)
	var group []load
	for _, c := range cs {
		l := load{c: c, kase: "64", g: 64, keys: "bench:several"}
		if c.name == nameSeveral {
			l.key = func(int, int) string { return "bench:several" }
		}
		l.runFor(ctx, b.scaleBlock/2)
		group = append(group, l)
	}
	return b.turns(ctx, b.meter, "several", b.scaleReps, b.scaleBlock, group)
}

func severalTable(r *report) table {
	t := table{"several", "64 goroutines on five nodes that lock one key each of their own, or any eight of 64 keys at once", [][]string{{"", "keys locked per second", "client, CPU time per key, µs", "servers, CPU time per key, µs"}}}
	for _, name := range []string{nameOurs, nameSeveral} {
		keys := 1.0
		if name == nameSeveral {
			keys = severalAtOnce
		}
		perKey := func(metric string) string {
			return r.find("several", name, "64", metric).each(func(v float64) float64 { return v / keys }).spread("%.1f")
		}
		rate := r.find("several", name, "64", mRate).each(func(v float64) float64 { return v * keys }).spread("%.0f")
		t.rows = append(t.rows, []string{name, rate, perKey(mClientCPU), perKey(mServersCPU)})
	}
	return t
}

func scaleTables(r *report) []table {
	ceiling := table{"ceiling", "Capacity of one node, from its CPU time with 256 goroutines", [][]string{{"nodes", "CPU time of one node per cycle, µs", "cycles per second that use one core"}}}
	for _, n := range nodeCounts {
		one := r.find("nodes", nameOurs, nodesCase(n, 256), mServersCPU).each(func(v float64) float64 { return v / float64(n) })
		ceiling.rows = append(ceiling.rows, []string{fmt.Sprint(n), one.spread("%.1f"), one.each(func(v float64) float64 { return 1e6 / v }).spread("%.0f")})
	}
	return []table{ceiling, severalTable(r)}
}
