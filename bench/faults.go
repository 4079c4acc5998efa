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

// target is how much slower than with five healthy nodes a cycle's median may be while one of five is at fault.
const target = 1.3

const slowBy = 50 * time.Millisecond

// A faultPlan is how much is measured: blocks of cycles in each repetition, cycles of those who wait for the dead, and
// for how long after a fault has struck.
type faultPlan struct {
	blocks, peers int
	after         time.Duration
}

// blockCycles are done in a row before the next condition's turn. Fewer, and the follow-up of one condition's last cycle
// would be a good part of the next one's work.
const blockCycles = 25

// A condition is five nodes, of which the fifth may be at fault. All conditions share the other four and exist at the
// same time: none has to be waited for, and the machine's noise strikes all of them.
type condition struct {
	name  string
	addrs []string
	ours  *contender
}

func faults(ctx context.Context, b *bench) error {
	extra, err := realredis.StartServers(3)
	if err != nil {
		return err
	}
	defer closeServers(extra)
	refusing, hanging := extra[0], extra[1]
	slow, err := newSlowLink(extra[2].Addr(), slowBy)
	if err != nil {
		return err
	}
	defer slow.close()

	var conds []*condition
	for _, c := range []struct{ name, fifth string }{
		{"healthy", b.servers[4].Addr()},
		{"refusing", refusing.Addr()},
		{"hanging", hanging.Addr()},
		{fmt.Sprintf("%v slow", slowBy), slow.addr()},
	} {
		cond := &condition{name: c.name, addrs: append(addrs(b.servers[:4]), c.fifth)}
		if cond.ours, err = newOursAt(cond.addrs); err != nil {
			return err
		}
		defer cond.ours.close()
		conds = append(conds, cond)
	}

	if err := onset(ctx, b, conds[:3], []strike{{}, {refusing.Kill, refusing.Restart}, {hanging.Stop, hanging.Cont}}); err != nil {
		return err
	}
	for _, g := range []int{1, 64} {
		steady(ctx, b, conds, g)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	peers(ctx, b, conds, nameRedsync)
	peers(ctx, b, conds, nameFailFast, redsync.WithFailFast(true))
	return nil
}

// timing is how long the two halves of cycles took, in milliseconds.
type timing struct {
	mu               sync.Mutex
	acquire, release []float64
	failed           int
	err              error
}

func (t *timing) cycle(ctx context.Context, c *contender, key string) {
	start := time.Now()
	held, err := c.acquire(ctx, key)
	acquired := time.Since(start)
	var released time.Duration
	if err == nil {
		start = time.Now()
		err = c.release(ctx, held)
		released = time.Since(start)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		t.failed, t.err = t.failed+1, err
		return
	}
	t.acquire = append(t.acquire, ms(acquired))
	t.release = append(t.release, ms(released))
}

// cycles are on keys of this condition only: a release returns with a majority, and on the nodes that the conditions share
// the next one's locker could meet what the stragglers have not deleted yet.
func (t *timing) cycles(ctx context.Context, c *contender, kase string, g, n int) {
	var wg sync.WaitGroup
	for i := range g {
		wg.Go(func() {
			for range n {
				t.cycle(ctx, c, fmt.Sprintf("bench:fault:%s:%d", kase, i))
			}
		})
	}
	wg.Wait()
}

func ms(d time.Duration) float64 { return float64(d) / 1e6 }

// A strike makes the fifth node of a condition faulty, and well again. Both nil: nothing happens.
type strike struct{ on, off func() error }

// onset is the longest that anybody waited around the moment in which a healthy node becomes a faulty one. The fault is
// there for good when it returns.
func onset(ctx context.Context, b *bench, conds []*condition, strikes []strike) error {
	const section, before = "onset", 200 * time.Millisecond
	failed := make([]int, len(conds))
	for rep := range b.reps {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		progress("faults %d/%d: onset", rep+1, b.reps)
		for i, c := range conds {
			ours, err := newOursAt(c.addrs) // one for which the node was never faulty
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
			failed[i] += t.failed
			explain(t)
		}
	}
	rows := [][]string{{"", "acquire max", "release max", "failed"}}
	for i, c := range conds {
		rows = append(rows, []string{c.name + " from now on",
			b.report.series(section, nameOurs, c.name, "acquire max ms").spread("%.2f"),
			b.report.series(section, nameOurs, c.name, "release max ms").spread("%.2f"), fmt.Sprint(failed[i])})
	}
	b.report.table("Ours while the fault strikes: longest of all, ms, one goroutine", rows)
	for _, s := range strikes {
		if s.on != nil {
			if err := s.on(); err != nil {
				return err
			}
		}
	}
	return nil
}

// struck times cycles from before until after the strike, which it undoes.
func struck(ctx context.Context, c *contender, key string, s strike, before, after time.Duration) (*timing, error) {
	(&timing{}).cycles(ctx, c, key, 1, 50)
	done := make(chan error, 1)
	time.AfterFunc(before, func() {
		var err error
		if s.on != nil {
			err = s.on()
		}
		done <- err
	})
	t := new(timing)
	for start := time.Now(); time.Since(start) < before+after; {
		t.cycle(ctx, c, key)
	}
	err := <-done
	if s.off != nil {
		err = errors.Join(err, s.off())
	}
	return t, err
}

// steady is with the fault there for some time.
func steady(ctx context.Context, b *bench, conds []*condition, g int) {
	section := fmt.Sprintf("faults %d", g)
	for _, c := range conds {
		(&timing{}).cycles(ctx, c.ours, c.name, g, blockCycles)
	}
	failed := make(map[string]int)
	for rep := range b.reps {
		progress("faults %d/%d: %d goroutines", rep+1, b.reps, g)
		timings := make([]timing, len(conds))
		for block := range b.faults.blocks {
			for i := range conds {
				i := (i + block + rep) % len(conds)
				timings[i].cycles(ctx, conds[i].ours, conds[i].name, g, blockCycles)
			}
		}
		for i, c := range conds {
			t := &timings[i]
			for metric, v := range map[string]float64{
				"acquire p50 ms": quantile(t.acquire, 0.5), "acquire p99 ms": quantile(t.acquire, 0.99),
				"release p50 ms": quantile(t.release, 0.5), "release p99 ms": quantile(t.release, 0.99),
			} {
				b.report.series(section, nameOurs, c.name, metric).add(v)
			}
			failed[c.name] += t.failed
			explain(t)
		}
	}
	metrics := []string{"acquire p50 ms", "acquire p99 ms", "release p50 ms", "release p99 ms"}
	rows := [][]string{append(append([]string{""}, metrics...), "failed")}
	for _, c := range conds {
		row := []string{c.name}
		for _, m := range metrics {
			row = append(row, b.report.series(section, nameOurs, c.name, m).spread("%.2f"))
		}
		rows = append(rows, append(row, fmt.Sprint(failed[c.name])))
	}
	b.report.table(fmt.Sprintf("Ours with one of five nodes at fault, %d goroutines", g), rows)

	rows = [][]string{append(append([]string{""}, metrics...), fmt.Sprintf("p50 within %.1f", target))}
	for _, c := range conds[1:] {
		row := []string{c.name}
		verdict := "yes"
		for _, m := range metrics {
			healthy, faulty := b.report.series(section, nameOurs, "healthy", m), b.report.series(section, nameOurs, c.name, m)
			r := b.report.ratio(faulty, healthy)
			r.Subject = nameOurs // the ratio is of cases, not of subjects
			row = append(row, r.spread("%.2f"))
			if (m == metrics[0] || m == metrics[2]) && r.median() > target {
				verdict = "NO"
			}
		}
		rows = append(rows, append(row, verdict))
	}
	b.report.table(fmt.Sprintf("The same as a multiple of five healthy nodes, %d goroutines", g), rows)
}

// peers measures redsync on the same nodes. It waits for the faulty node, seconds on end, so few cycles must do, and all
// conditions wait side by side; the healthy one goes alone.
func peers(ctx context.Context, b *bench, conds []*condition, name string, opts ...redsync.Option) {
	progress("faults: %s, which takes up to %d times 10 s", name, b.faults.peers)
	timings := make([]timing, len(conds))
	var wg sync.WaitGroup
	for i, c := range conds {
		one := func(n int) {
			r := newRedsyncAt(name, c.addrs, opts...)
			defer r.close()
			for range n {
				timings[i].cycle(ctx, r, fmt.Sprintf("bench:peer:%d", i))
			}
		}
		if i == 0 {
			one(100)
			continue
		}
		wg.Go(func() { one(b.faults.peers) })
	}
	wg.Wait()
	rows := [][]string{{"", "acquire p50 ms", "release p50 ms", "cycles", "failed"}}
	for i, c := range conds {
		t := &timings[i]
		acquire := b.report.series("faults 1", name, c.name, "acquire p50 ms")
		release := b.report.series("faults 1", name, c.name, "release p50 ms")
		acquire.add(quantile(t.acquire, 0.5))
		release.add(quantile(t.release, 0.5))
		rows = append(rows, []string{c.name, acquire.spread("%.2f"), release.spread("%.2f"), fmt.Sprint(len(t.acquire)), fmt.Sprint(t.failed)})
		explain(t)
	}
	b.report.table(name+" on the same nodes, one goroutine, its first connections included", rows)
}

func explain(t *timing) {
	if t.err != nil {
		progress("  %d failed: %v", t.failed, t.err)
	}
}
