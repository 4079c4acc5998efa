package main

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/realredis"
)

var (
	nodeCounts      = []int{1, 3, 5, 7}
	scaleGoroutines = []int{1, 64, 256}
	setCounts       = []int{1, 2, 4}
)

// scale measures how the cost grows with the number of nodes, keys, and sets of masters.
func scale(ctx context.Context, b *bench) error {
	for _, part := range []func(context.Context, *bench) error{nodes, keys, sets} {
		if err := part(ctx, b); err != nil {
			return err
		}
	}
	return nil
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

// newSharded spreads keys over several sets of masters, each with a Locker.
func newSharded(sets [][]string) (*contender, error) {
	var cs []*contender
	for _, addrs := range sets {
		c, err := newOurs(redlock.Options{}, addrs)
		if err != nil {
			closeAll(cs)
			return nil, err
		}
		cs = append(cs, c)
	}
	return &contender{
		name: nameOurs,
		acquire: func(ctx context.Context, key string) (any, error) {
			return cs[rendezvous(key, len(cs))].acquire(ctx, key)
		},
		release: cs[0].release,
		close:   func() { closeAll(cs) },
	}, nil
}

// rendezvous returns the set of a key: the one for which the hash of both is the greatest. If a set is added, only the keys that
// go to it move. All clients must compute the same hash, which excludes maphash.
func rendezvous(key string, sets int) (best int) {
	var most uint64
	for i := range sets {
		sum := sha256.Sum256(fmt.Appendf(nil, "%d %s", i, key))
		if h := binary.BigEndian.Uint64(sum[:]); i == 0 || h > most {
			best, most = i, h
		}
	}
	return best
}

// sets measures one, two and four sets of three masters.
func sets(ctx context.Context, b *bench) error {
	const masters = 3
	servers, err := realredis.StartServers(slices.Max(setCounts) * masters)
	if err != nil {
		return err
	}
	defer closeServers(servers)
	m, err := newMeter(ctx, servers)
	if err != nil {
		return err
	}
	defer m.close()
	var group []load
	for _, n := range setCounts {
		c, err := newSharded(slices.Collect(slices.Chunk(addrs(servers[:n*masters]), masters)))
		if err != nil {
			return err
		}
		defer c.close()
		l := load{c: c, kase: fmt.Sprint(n), keys: fmt.Sprint("sets", n), g: 256}
		l.runFor(ctx, b.scaleBlock/2)
		group = append(group, l)
	}
	return b.turns(ctx, m, "sets", b.scaleReps, b.scaleBlock, group)
}

// available returns the probability that a majority of n nodes is up, if each is up with probability p, independently.
func available(n int, p float64) (sum float64) {
	for up := n/2 + 1; up <= n; up++ {
		ways := 1.0
		for i := range up {
			ways = ways * float64(n-i) / float64(i+1)
		}
		sum += ways * math.Pow(p, float64(up)) * math.Pow(1-p, float64(n-up))
	}
	return sum
}

// downtime returns the part of a year of 365 days in which something of this availability is down, at least 0.01 s.
func downtime(p float64) string {
	const day = 24 * 60
	switch minutes := (1 - p) * 365 * day; {
	case minutes >= day:
		return fmt.Sprintf("%.1f days", minutes/day)
	case minutes >= 60:
		return fmt.Sprintf("%.1f h", minutes/60)
	case minutes >= 1:
		return fmt.Sprintf("%.1f min", minutes)
	default:
		return fmt.Sprintf("%.2g s", max(minutes*60, 0.01))
	}
}

func scaleTables(r *report) []table {
	ceiling := table{"ceiling", "Capacity of one node, from its CPU time with 256 goroutines", [][]string{{"nodes", "CPU time of one node per cycle, µs", "cycles per second that use one core"}}}
	for _, n := range nodeCounts {
		one := r.find("nodes", nameOurs, nodesCase(n, 256), mServersCPU).each(func(v float64) float64 { return v / float64(n) })
		ceiling.rows = append(ceiling.rows, []string{fmt.Sprint(n), one.spread("%.1f"), one.each(func(v float64) float64 { return 1e6 / v }).spread("%.0f")})
	}
	up := table{"available", "Downtime per year if nodes fail independently (calculated, not measured)",
		[][]string{{"each node is up", "1 node", "2", "3", "5", "7", "any of 4 sets of 3 is down", "the set of a given key is down"}}}
	for _, p := range []float64{0.99, 0.999, 0.9999} {
		row := []string{fmt.Sprintf("%.6g %%", 100*p)}
		for _, n := range []int{1, 2, 3, 5, 7} {
			row = append(row, downtime(available(n, p)))
		}
		up.rows = append(up.rows, append(row, downtime(math.Pow(available(3, p), 4)), downtime(available(3, p))))
	}
	return []table{ceiling, up}
}
