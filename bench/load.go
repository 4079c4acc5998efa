package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// A load is g goroutines that do cycles of acquire and release.
type load struct {
	c       *contender
	kase    string // under which the report enters it
	g       int
	key     func(g, n int) string // what the n-th cycle of a goroutine locks; nil means one key for each goroutine
	untimed bool                  // only count: the benchmark itself allocates nothing
}

// A timing is the outcome of a load.
type timing struct {
	acquire, release []float64 // ms, of cycles that succeeded; empty if untimed
	done, failed     int
	err              error // one of the failures
	took             time.Duration
}

func (t *timing) rate() float64 { return float64(t.done) / t.took.Seconds() }

func (t *timing) join(u *timing) {
	t.acquire = append(t.acquire, u.acquire...)
	t.release = append(t.release, u.release...)
	t.done += u.done
	t.failed += u.failed
	t.took += u.took
	if u.err != nil {
		t.err = u.err
	}
}

func (l *load) cycle(ctx context.Context, t *timing, key string) {
	start := time.Now()
	held, err := l.c.acquire(ctx, key)
	acquired := time.Now()
	if err == nil {
		err = l.c.release(ctx, held)
	}
	if err != nil {
		t.failed, t.err = t.failed+1, err
		return
	}
	t.done++
	if !l.untimed {
		t.acquire = append(t.acquire, ms(acquired.Sub(start)))
		t.release = append(t.release, ms(time.Since(acquired)))
	}
}

func ms(d time.Duration) float64 { return float64(d) / 1e6 }

// runFor has each goroutine do cycles for d.
func (l load) runFor(ctx context.Context, d time.Duration) *timing {
	start := time.Now()
	return l.run(ctx, func(int) bool { return time.Since(start) < d })
}

// runCycles has each goroutine do n cycles.
func (l load) runCycles(ctx context.Context, n int) *timing {
	return l.run(ctx, func(done int) bool { return done < n })
}

func (l *load) run(ctx context.Context, more func(done int) bool) *timing {
	if l.key == nil {
		names := make([]string, l.g)
		for i := range names {
			names[i] = fmt.Sprintf("bench:%s:%d", cmp.Or(l.c.keys, l.c.name), i)
		}
		l.key = func(g, _ int) string { return names[g] }
	}
	var all timing
	var mu sync.Mutex
	var wg sync.WaitGroup
	start := time.Now()
	for i := range l.g {
		wg.Go(func() {
			var t timing
			for n := 0; more(n) && ctx.Err() == nil; n++ {
				l.cycle(ctx, &t, l.key(i, n))
			}
			mu.Lock()
			defer mu.Unlock()
			all.join(&t)
		})
	}
	wg.Wait()
	all.took = time.Since(start)
	return &all
}

// groups returns a group of loads for each number of goroutines. All contenders take part in each; they make their connections
// and load their scripts in warm.
func (b *bench) groups(ctx context.Context, cs []*contender, goroutines []int, kase func(g int) string, warm time.Duration) [][]load {
	groups := make([][]load, len(goroutines))
	for _, c := range cs {
		var l load
		for i, g := range goroutines {
			l = load{c: c, kase: kase(g), g: g}
			groups[i] = append(groups[i], l)
		}
		b.progress("connections of %s, %s", l.c.name, l.kase)
		l.runFor(ctx, warm)
	}
	return groups
}

// turns runs the loads of each group in turn, each for one block, in every repetition. m measures the CPU time; with a nil
// meter there is none.
func (b *bench) turns(ctx context.Context, m *meter, section string, reps int, block time.Duration, groups ...[]load) {
	for rep := range reps {
		for _, group := range groups {
			b.progress("repetition %d of %d: %s", rep+1, reps, group[0].kase)
			for _, l := range rotate(group, rep) {
				var t *timing
				used := m.measure(ctx, func() { t = l.runFor(ctx, block) })
				b.report.enter(section, l.c.name, l.kase, values{{mRate, t.rate()}})
				b.report.halves(section, l.c.name, l.kase, t)
				if n := float64(t.done); n > 0 && m != nil {
					b.report.enter(section, l.c.name, l.kase, values{{mClientCPU, us(used.client) / n}, {mServersCPU, us(used.servers.cpu) / n}})
				}
			}
		}
	}
}

// blocks runs the loads in turn, in short blocks of cycles, so that a machine that is fast for a second is fast for all.
func (b *bench) blocks(ctx context.Context, section string, blocks, cycles int, loads []load) {
	for _, l := range loads { // connections and scripts
		l.runCycles(ctx, 50)
	}
	for rep := range b.reps {
		b.progress("repetition %d of %d: %s", rep+1, b.reps, goroutines(loads[0].g))
		timings := make([]timing, len(loads))
		for block := range blocks {
			for i := range loads {
				i := (i + block + rep) % len(loads)
				timings[i].join(loads[i].runCycles(ctx, cycles))
			}
			check(ctx.Err())
		}
		for i, l := range loads {
			b.report.halves(section, l.c.name, l.kase, &timings[i])
		}
	}
}

// halves enters how long acquire and release took.
func (r *report) halves(section, subject, kase string, t *timing) {
	if t.done > 0 {
		r.enter(section, subject, kase, values{
			{mAcquire50, quantile(t.acquire, 0.5)}, {mAcquire99, quantile(t.acquire, 0.99)},
			{mRelease50, quantile(t.release, 0.5)}, {mRelease99, quantile(t.release, 0.99)},
		})
	}
	r.enter(section, subject, kase, values{{mFailed, float64(t.failed)}})
	if t.failed > 0 {
		r.note("%s, %s, %s: %d failed: %v", section, subject, kase, t.failed, t.err)
	}
}

// rotate has another one begin in each repetition, since the first after a pause is not measured like the rest.
func rotate[T any](s []T, by int) []T {
	by %= len(s)
	return slices.Concat(s[by:], s[:by])
}

func goroutines(g int) string {
	if g == 1 {
		return "one goroutine"
	}
	return fmt.Sprint(g, " goroutines")
}
