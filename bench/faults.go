package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-redsync/redsync/v4"

	"github.com/seed-ce352c9b/redlock/internal/realredis"
)

// faultTarget is how much slower than with five healthy nodes a half of a cycle may be while some are at fault.
const faultTarget = 1.2

const slowBy = 50 * time.Millisecond

// A faultPlan is how much is measured: blocks of cycles in each repetition, cycles of those who wait for the dead, and
// for how long after a fault has struck.
type faultPlan struct {
	blocks, peers int
	after         time.Duration
}

// faultBlock cycles are done in a row before the next condition's turn. Fewer, and the follow-up of one condition's last
// cycle would be a good part of the next one's work.
const faultBlock = 25

// A condition is five nodes, of which one or two may be at fault. All conditions share the others and exist at the same
// time: none has to be waited for, and the machine's noise strikes all of them.
type condition struct {
	name  string
	addrs []string
	ours  *contender
}

const (
	allUp   = "all up"
	oneDead = "one dead"
	oneHung = "one hung"
	oneSlow = "one slow by 50 ms"
	twoDead = "two dead"
)

var faultGoroutines = []int{1, 64}

func faults(ctx context.Context, b *bench) error {
	extra, err := realredis.StartServers(4)
	if err != nil {
		return err
	}
	defer closeServers(extra)
	refusing, hanging, far, second := extra[0], extra[1], extra[2], extra[3]
	slow, err := startLinks([]string{far.Addr()}, []time.Duration{slowBy})
	if err != nil {
		return err
	}
	defer slow.close()

	four := addrs(b.servers[:4])
	var conds []*condition
	for _, c := range []condition{
		{name: allUp, addrs: append(slices.Clone(four), b.servers[4].Addr())},
		{name: oneDead, addrs: append(slices.Clone(four), refusing.Addr())},
		{name: oneHung, addrs: append(slices.Clone(four), hanging.Addr())},
		{name: oneSlow, addrs: append(slices.Clone(four), slow.addrs[0])},
		{name: twoDead, addrs: append(slices.Clone(four[:3]), second.Addr(), refusing.Addr())},
	} {
		if c.ours, err = newOurs(c.addrs); err != nil {
			return err
		}
		defer c.ours.close()
		conds = append(conds, &c)
	}

	if err := onset(ctx, b, conds[:3], []strike{{}, {refusing.Kill, refusing.Restart}, {hanging.Stop, hanging.Cont}}); err != nil {
		return err
	}
	for _, stop := range []func() error{refusing.Kill, second.Kill, hanging.Stop} {
		if err := stop(); err != nil {
			return err
		}
	}
	// Beside them the bare quorum: three of five, and three of four, which is what a lock on five nodes has left when one is
	// dead. What that costs by itself, no lock can spare.
	for _, c := range []condition{{name: allUp, addrs: conds[0].addrs}, {name: oneDead, addrs: four}} {
		if c.ours, err = newOurFloor(c.addrs); err != nil {
			return err
		}
		defer c.ours.close()
		conds = append(conds, &c)
	}
	for _, g := range faultGoroutines {
		if err := steady(ctx, b, conds, g); err != nil {
			return err
		}
	}
	conds = conds[:len(conds)-2]
	peers(ctx, b, conds, nameRedsync)
	peers(ctx, b, conds, nameFailFast, redsync.WithFailFast(true))
	return ctx.Err()
}

// A strike makes the fifth node of a condition faulty, and well again. Both nil: nothing happens.
type strike struct{ on, off func() error }

// onset is the longest that anybody waited around the moment in which a healthy node becomes a faulty one.
func onset(ctx context.Context, b *bench, conds []*condition, strikes []strike) error {
	const section, before = "onset", 200 * time.Millisecond
	for rep := range b.reps {
		b.progress("onset, repetition %d of %d", rep+1, b.reps)
		for i, c := range conds {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			ours, err := newOurs(c.addrs) // one for which the node was never faulty
			if err != nil {
				return err
			}
			t, err := struck(ctx, ours, fmt.Sprintf("onset %s %d", c.name, rep), strikes[i], before, b.faults.after)
			ours.close()
			if err != nil {
				return err
			}
			b.report.series(section, nameOurs, c.name, "acquire max ms").add(slices.Max(append(t.acquire, 0)))
			b.report.series(section, nameOurs, c.name, "release max ms").add(slices.Max(append(t.release, 0)))
			b.report.series(section, nameOurs, c.name, mFailed).add(float64(t.failed))
		}
	}
	return nil
}

// struck times cycles from before until after the strike, which it undoes.
func struck(ctx context.Context, c *contender, key string, s strike, before, after time.Duration) (*timing, error) {
	runCycles(ctx, c, key, 1, 50)
	done := make(chan error, 1)
	time.AfterFunc(before, func() {
		var err error
		if s.on != nil {
			err = s.on()
		}
		done <- err
	})
	t := runFor(ctx, c, key, 1, before+after)
	err := <-done
	if s.off != nil {
		err = errors.Join(err, s.off())
	}
	return t, err
}

// steady is with the fault there for some time. Each condition has keys of its own: a release returns with a majority, and on
// the nodes that they share the next one's locker could meet what the stragglers have not deleted yet.
func steady(ctx context.Context, b *bench, conds []*condition, g int) error {
	key := func(c *condition) string { return c.ours.name + " " + c.name }
	for _, c := range conds {
		runCycles(ctx, c.ours, key(c), g, faultBlock)
	}
	for rep := range b.reps {
		b.progress("steady, repetition %d of %d, %d goroutines", rep+1, b.reps, g)
		timings := make([]timing, len(conds))
		blocks, cycles := b.faults.blocks, faultBlock
		switch {
		case g == 1: // whose p99 would be that of a few cycles
			blocks *= 5
		default: // where all begin at one instant, the first of each would be the p99
			blocks, cycles = max(blocks/3, 1), 8*cycles
		}
		for block := range blocks {
			for i := range conds {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				i := (i + block + rep) % len(conds)
				timings[i].join(runCycles(ctx, conds[i].ours, key(conds[i]), g, cycles))
			}
		}
		for i, c := range conds {
			b.report.halves(faultSection(g), c.ours.name, c.name, &timings[i])
		}
	}
	return nil
}

func faultSection(g int) string { return fmt.Sprintf("faults %d", g) }

// peers measures redsync on the same nodes. It waits for the faulty node, seconds on end, so few cycles must do, and all
// conditions wait side by side; the healthy one goes alone.
func peers(ctx context.Context, b *bench, conds []*condition, name string, opts ...redsync.Option) {
	b.progress("%s, which takes up to %d times 10 s", name, b.faults.peers)
	timings := make([]*timing, len(conds))
	var wg sync.WaitGroup
	for i, c := range conds {
		one := func(n int) {
			r := newRedsync(name, c.addrs, opts...)
			defer r.close()
			timings[i] = runCycles(ctx, r, "peer "+c.name, 1, n)
		}
		if i == 0 {
			one(100)
			continue
		}
		wg.Go(func() { one(b.faults.peers) })
	}
	wg.Wait()
	for i, c := range conds {
		b.report.halves("faults 1", name, c.name, timings[i])
		b.report.series("faults 1", name, c.name, "cycles").add(float64(len(timings[i].acquire)))
	}
}

func faultsTables(r *report) []table {
	strikes := [][]string{{"", "longest acquire, ms", "longest release, ms", "failed, of all repetitions"}}
	for _, c := range r.cases("onset", mFailed) {
		strikes = append(strikes, []string{c + " from now on",
			r.find("onset", nameOurs, c, "acquire max ms").spread("%.1f"),
			r.find("onset", nameOurs, c, "release max ms").spread("%.1f"),
			fmt.Sprintf("%.0f", sum(r.find("onset", nameOurs, c, mFailed).Reps))})
	}
	var tables []table
	for _, g := range faultGoroutines {
		section := faultSection(g)
		times := [][]string{append(append([]string{""}, halves...), "failed")}
		ratios := [][]string{append([]string{""}, halves...)}
		for _, c := range r.cases(section, mFailed) {
			row, ratio := []string{c}, []string{c}
			for _, m := range halves {
				s := r.find(section, nameOurs, c, m)
				row = append(row, s.spread("%.2f"))
				ratio = append(ratio, s.over(r.find(section, nameOurs, allUp, m)).spread("%.2f"))
			}
			times = append(times, append(row, fmt.Sprintf("%.0f", sum(r.find(section, nameOurs, c, mFailed).Reps))))
			if c != allUp {
				ratios = append(ratios, ratio)
			}
		}
		floor := []string{nameOurFloor + ", three of four"}
		for _, m := range halves {
			floor = append(floor, r.find(section, nameOurFloor, oneDead, m).over(r.find(section, nameOurFloor, allUp, m)).spread("%.2f"))
		}
		ratios = append(ratios, floor)
		of := ", " + goroutines(g)
		tables = append(tables,
			table{fmt.Sprintf("faults-%d", g), "redlock with nodes at fault" + of, times},
			table{fmt.Sprintf("faults-ratio-%d", g), "redlock with nodes at fault, as a multiple of all up" + of, ratios})
	}
	others := [][]string{{"", "", "acquire p50 ms", "release p50 ms", "cycles", "failed"}}
	for _, name := range []string{nameRedsync, nameFailFast} {
		for _, c := range r.cases("faults 1", mFailed) {
			s := func(metric, format string) string { return r.find("faults 1", name, c, metric).cell(format) }
			others = append(others, []string{name, c, s(mAcquire50, "%.1f"), s(mRelease50, "%.1f"), s("cycles", "%.0f"), s(mFailed, "%.0f")})
		}
	}
	return append(tables,
		table{"onset", "The longest that anybody waited while the fault struck, one goroutine", strikes},
		table{"faults-peers", "redsync on the same nodes, one goroutine, its first connections included", others})
}

func sum(values []float64) (total float64) {
	for _, v := range values {
		total += v
	}
	return total
}
