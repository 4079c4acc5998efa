package main

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/realredis"
)

// A scalePlan is how cost grows with what there is more of.
type scalePlan struct {
	reps  int
	block time.Duration
	keys  []int
}

var (
	nodeCounts      = []int{1, 3, 5, 7}
	scaleGoroutines = []int{1, 64, 256}
	setCounts       = []int{1, 2, 4}
)

// scale is how cost grows with nodes, keys, and sets of masters.
func scale(ctx context.Context, b *bench) error {
	for _, part := range []func(context.Context, *bench) error{nodes, keys, sets} {
		if err := part(ctx, b); err != nil {
			return err
		}
	}
	return nil
}

// nodes is 1, 3, 5 and 7 of them.
func nodes(ctx context.Context, b *bench) error {
	const section = "nodes"
	extra, err := realredis.StartServers(2)
	if err != nil {
		return err
	}
	defer closeServers(extra)
	all := append(slices.Clone(b.servers), extra...)
	m, err := newMeter(ctx, all)
	if err != nil {
		return err
	}
	defer m.close()
	who := make(map[int][]*contender)
	for _, n := range nodeCounts {
		if who[n], err = contenders(addrs(all[:n]), nameOurs, nameRedsync, nameFloor, nameOurFloor); err != nil {
			return err
		}
		defer closeAll(who[n])
		for _, c := range who[n] {
			runFor(ctx, c, fmt.Sprint(c.name, n), 256, b.scale.block/2)
		}
	}
	for rep := range b.scale.reps {
		for _, g := range scaleGoroutines {
			for _, n := range rotate(nodeCounts, rep) {
				b.progress("%d nodes, %d goroutines, repetition %d of %d", n, g, rep+1, b.scale.reps)
				for _, c := range rotate(who[n], rep) {
					if ctx.Err() != nil {
						return ctx.Err()
					}
					var t *timing
					used, err := metered(ctx, m, func() { t = runFor(ctx, c, fmt.Sprint(c.name, n), g, b.scale.block) })
					if err != nil {
						return err
					}
					b.report.timing(section, c.name, nodesCase(n, g), t, used)
				}
			}
		}
	}
	return nil
}

func nodesCase(n, g int) string { return fmt.Sprintf("%d nodes, %d goroutines", n, g) }

// keys is 64 goroutines that lock one key each, or every time another of many.
func keys(ctx context.Context, b *bench) error {
	const section = "keys"
	c, err := newOurs(addrs(b.servers))
	if err != nil {
		return err
	}
	defer c.close()
	const g = 64
	runFor(ctx, c, "warm", g, b.scale.block/2)
	names := make([]string, slices.Max(b.scale.keys))
	for i := range names {
		names[i] = fmt.Sprintf("bench:keys:%d", i)
	}
	for _, n := range b.scale.keys {
		// Each goroutine has keys of its own, each n/g of them.
		key := func(i, j int) string { return names[i+g*(j%(n/g))] }
		b.progress("%d keys", n)
		empty, err := b.meter.read(ctx)
		if err != nil {
			return err
		}
		first := load(ctx, c, g, key, func(done int) bool { return done < n/g })
		used, err := b.meter.read(ctx)
		if err != nil {
			return err
		}
		b.report.series(section, nameOurs, fmt.Sprint(n), "first time, cycles/s").add(first.rate())
		b.report.series(section, nameOurs, fmt.Sprint(n), "bytes left on a server").add(float64(used.memory-empty.memory) / float64(len(b.servers)))
	}
	for rep := range b.scale.reps {
		for _, n := range rotate(b.scale.keys, rep) {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			key := func(i, j int) string { return names[i+g*(j%(n/g))] }
			b.progress("%d keys again, repetition %d of %d", n, rep+1, b.scale.reps)
			var t *timing
			used, err := metered(ctx, b.meter, func() {
				start := time.Now()
				t = load(ctx, c, g, key, func(int) bool { return time.Since(start) < b.scale.block })
			})
			if err != nil {
				return err
			}
			b.report.timing(section, nameOurs, fmt.Sprint(n), t, used)
		}
	}
	return nil
}

// A sharded spreads keys over several sets of masters, each with a Locker.
type sharded struct {
	lockers []*redlock.Locker
	done    []func()
}

func newSharded(sets [][]string) (*sharded, error) {
	s := new(sharded)
	for _, addrs := range sets {
		l, done, err := newLocker(redlock.Options{}, addrs)
		s.done = append(s.done, done)
		if err != nil {
			s.close()
			return nil, err
		}
		s.lockers = append(s.lockers, l)
	}
	return s, nil
}

func (s *sharded) close() {
	for _, f := range s.done {
		f()
	}
}

func (s *sharded) of(key string) *redlock.Locker { return s.lockers[rendezvous(key, len(s.lockers))] }

// rendezvous is the set of a key: the one for which a hash of both is the greatest. Where a set is added only the keys that
// go to it move. All clients must have the same map, so the hash must be the same everywhere, as maphash is not.
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

func (s *sharded) contender() *contender {
	return &contender{
		name: nameOurs,
		acquire: func(ctx context.Context, key string) (any, error) {
			k, err := s.of(key).TryAcquire(ctx, key, ttl)
			return k, err
		},
		release: func(ctx context.Context, held any) error { return held.(*redlock.Lock).Release(ctx) },
		close:   s.close,
	}
}

const (
	mastersOfASet = 3
	setKeys       = 3000
)

// sets is one, two and four sets of three masters: whether a cycle costs more where there are more of them, what the loss of
// one set stops, and what happens to keys when a set is added.
func sets(ctx context.Context, b *bench) error {
	const section = "sets"
	most := slices.Max(setCounts) + 1
	servers, err := realredis.StartServers(most * mastersOfASet)
	if err != nil {
		return err
	}
	defer closeServers(servers)
	m, err := newMeter(ctx, servers)
	if err != nil {
		return err
	}
	defer m.close()
	of := func(n int) (sets [][]string) {
		for i := range n {
			sets = append(sets, addrs(servers[i*mastersOfASet:(i+1)*mastersOfASet]))
		}
		return sets
	}
	byCount := make(map[int]*contender)
	for _, n := range setCounts {
		s, err := newSharded(of(n))
		if err != nil {
			return err
		}
		defer s.close()
		byCount[n] = s.contender()
		runFor(ctx, byCount[n], fmt.Sprint("sets", n), 256, b.scale.block/2)
	}
	for rep := range b.scale.reps {
		for _, n := range rotate(setCounts, rep) {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			b.progress("%d sets of masters, repetition %d of %d", n, rep+1, b.scale.reps)
			var t *timing
			used, err := metered(ctx, m, func() { t = runFor(ctx, byCount[n], fmt.Sprint("sets", n), 256, b.scale.block) })
			if err != nil {
				return err
			}
			b.report.timing(section, nameOurs, fmt.Sprint(n), t, used)
		}
	}

	// A set is added while locks are held: who knows of it may be granted what others, who do not, hold.
	for _, n := range setCounts {
		b.progress("a set is added to %d", n)
		twice, err := heldTwice(ctx, of(n), of(n+1))
		if err != nil {
			return err
		}
		b.report.series(section, nameOurs, fmt.Sprint(n), "% held twice").add(twice)
	}

	// Two of the three masters of the first set die.
	for _, s := range servers[:mastersOfASet/2+1] {
		if err := s.Kill(); err != nil {
			return err
		}
	}
	for _, n := range setCounts {
		b.progress("one of %d sets without its majority", n)
		c := byCount[n]
		refused := 0
		for i := range setKeys {
			held, err := c.acquire(ctx, fmt.Sprintf("bench:sets:%d", i))
			if err != nil {
				refused++
				continue
			}
			if err := c.release(ctx, held); err != nil {
				return err
			}
		}
		b.report.series(section, nameOurs, fmt.Sprint(n), "% of keys refused").add(100 * float64(refused) / setKeys)
	}
	return nil
}

// heldTwice takes keys by one map of the sets, and again, while they are held, by another: % of them that both got.
func heldTwice(ctx context.Context, before, after [][]string) (percent float64, err error) {
	old, err := newSharded(before)
	if err != nil {
		return 0, err
	}
	defer old.close()
	now, err := newSharded(after)
	if err != nil {
		return 0, err
	}
	defer now.close()
	var mu sync.Mutex
	twice := 0
	err = parallel(setKeys, func(i int) error {
		key := fmt.Sprintf("bench:sets:%d", i)
		if _, err := old.contender().acquire(ctx, key); err != nil { // Close releases it
			return err
		}
		if _, err := now.contender().acquire(ctx, key); err == nil {
			mu.Lock()
			twice++
			mu.Unlock()
		}
		return nil
	})
	return 100 * float64(twice) / setKeys, err
}

// available is the probability that a majority of n nodes is up, each of which is with probability p, independently.
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

// downtime is how long of a year of 365 days something of that availability is down; a hundredth of a second stands for less, too.
func downtime(p float64) string {
	minutes := (1 - p) * 365 * 24 * 60
	switch {
	case minutes >= 60*24:
		return fmt.Sprintf("%.1f days", minutes/60/24)
	case minutes >= 60:
		return fmt.Sprintf("%.1f h", minutes/60)
	case minutes >= 1:
		return fmt.Sprintf("%.1f min", minutes)
	}
	return fmt.Sprintf("%.2g s", max(minutes*60, 0.01))
}

func scaleTables(r *report) []table {
	byNodes := func(metric, format string, subjects []string) [][]string {
		rows := [][]string{{"nodes"}}
		for _, c := range subjects {
			for _, g := range scaleGoroutines {
				rows[0] = append(rows[0], fmt.Sprintf("%s, %d", c, g))
			}
		}
		for _, n := range nodeCounts {
			row := []string{fmt.Sprint(n)}
			for _, c := range subjects {
				for _, g := range scaleGoroutines {
					row = append(row, r.find("nodes", c, nodesCase(n, g), metric).spread(format))
				}
			}
			rows = append(rows, row)
		}
		return rows
	}
	two := []string{nameOurs, nameRedsync}

	ratio := [][]string{{"nodes"}}
	for _, g := range scaleGoroutines {
		ratio[0] = append(ratio[0], goroutines(g))
	}
	ceiling := [][]string{{"nodes", "CPU of one node for a cycle, µs", "cycles a second at which it is busy"}}
	for _, n := range nodeCounts {
		row := []string{fmt.Sprint(n)}
		for _, g := range scaleGoroutines {
			row = append(row, r.find("nodes", nameOurs, nodesCase(n, g), mRate).over(r.find("nodes", nameRedsync, nodesCase(n, g), mRate)).spread("%.2f"))
		}
		ratio = append(ratio, row)
		one := r.find("nodes", nameOurs, nodesCase(n, 256), mServersCPU).each(func(v float64) float64 { return v / float64(n) })
		ceiling = append(ceiling, []string{fmt.Sprint(n), one.spread("%.1f"), one.each(func(v float64) float64 { return 1e6 / v }).spread("%.0f")})
	}

	byKeys := [][]string{{"keys", "cycles/s when new", "cycles/s again", "acquire p50 ms", "servers' CPU µs/cycle", "bytes on a server for each, for a day"}}
	for _, n := range r.cases("keys", mRate) {
		s := func(metric, format string) string { return r.find("keys", nameOurs, n, metric).spread(format) }
		var count float64
		fmt.Sscan(n, &count)
		left := r.find("keys", nameOurs, n, "bytes left on a server").each(func(v float64) float64 { return v / count })
		bytes := left.cell("%.0f")
		if count < 1000 {
			bytes = "–"
		}
		byKeys = append(byKeys, []string{n, s("first time, cycles/s", "%.0f"), s(mRate, "%.0f"), s(mAcquire50, "%.2f"), s(mServersCPU, "%.0f"), bytes})
	}

	bySets := [][]string{{"sets of three masters", "cycles/s", "as a multiple of one set", "acquire p50 ms", "client CPU µs/cycle", "servers' CPU µs/cycle", "refused where one set lost its majority", "held twice while a set is added"}}
	one := fmt.Sprint(setCounts[0])
	for _, n := range r.cases("sets", mRate) {
		s := func(metric, format string) string { return r.find("sets", nameOurs, n, metric).spread(format) }
		bySets = append(bySets, []string{n, s(mRate, "%.0f"),
			r.find("sets", nameOurs, n, mRate).over(r.find("sets", nameOurs, one, mRate)).spread("%.2f"),
			s(mAcquire50, "%.2f"), s(mClientCPU, "%.0f"), s(mServersCPU, "%.0f"),
			s("% of keys refused", "%.1f %%"), s("% held twice", "%.1f %%")})
	}

	up := [][]string{{"each node is up", "1 node", "2", "3", "5", "7", "any of 4 sets of 3 is down", "a given key of these"}}
	for _, p := range []float64{0.99, 0.999, 0.9999} {
		row := []string{fmt.Sprintf("%.6g %%", 100*p)}
		for _, n := range []int{1, 2, 3, 5, 7} {
			row = append(row, downtime(available(n, p)))
		}
		up = append(up, append(row, downtime(math.Pow(available(3, p), 4)), downtime(available(3, p))))
	}
	return []table{
		{"nodes", "Cycles a second by nodes and goroutines", byNodes(mRate, "%.0f", two)},
		{"nodes-ratio", "redlock / redsync on the same nodes, cycles a second", ratio},
		{"nodes-latency", "Acquire p50, ms, by nodes and goroutines", byNodes(mAcquire50, "%.2f", two)},
		{"nodes-client", "Client's CPU of a cycle, µs", byNodes(mClientCPU, "%.0f", []string{nameOurs, nameOurFloor})},
		{"nodes-servers", "All servers' CPU of a cycle, µs", byNodes(mServersCPU, "%.0f", []string{nameOurs, nameOurFloor})},
		{"ceiling", "What one node can take, by its own CPU time at 256 goroutines", ceiling},
		{"keys", "64 goroutines, by the number of keys that they lock", byKeys},
		{"sets", "Keys spread over sets of masters, 256 goroutines, all on one machine", bySets},
		{"available", "Down in a year, where nodes fail independently (arithmetic, nothing measured)", up},
	}
}
