package main

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"
)

// A timing is how long the halves of cycles took.
type timing struct {
	acquire, release []float64 // ms, of what succeeded
	failed           int
	err              error // one of the failures
	took             time.Duration
}

func (t *timing) rate() float64 { return float64(len(t.acquire)) / t.took.Seconds() }

func (t *timing) join(u *timing) {
	t.acquire = append(t.acquire, u.acquire...)
	t.release = append(t.release, u.release...)
	t.failed += u.failed
	t.took += u.took
	if u.err != nil {
		t.err = u.err
	}
}

func (t *timing) cycle(ctx context.Context, c *contender, key string) {
	start := time.Now()
	held, err := c.acquire(ctx, key)
	acquired := time.Now()
	if err == nil {
		err = c.release(ctx, held)
	}
	if err != nil {
		t.failed, t.err = t.failed+1, err
		return
	}
	t.acquire = append(t.acquire, ms(acquired.Sub(start)))
	t.release = append(t.release, ms(time.Since(acquired)))
}

func ms(d time.Duration) float64 { return float64(d) / 1e6 }

// runFor has g goroutines do cycles for about d, each on a key of its own that begins with prefix.
func runFor(ctx context.Context, c *contender, prefix string, g int, d time.Duration) *timing {
	start := time.Now()
	return load(ctx, c, g, ownKey(prefix), func(int) bool { return time.Since(start) < d })
}

// runCycles has each of g goroutines do n cycles.
func runCycles(ctx context.Context, c *contender, prefix string, g, n int) *timing {
	return load(ctx, c, g, ownKey(prefix), func(done int) bool { return done < n })
}

func ownKey(prefix string) func(g, n int) string {
	var keys sync.Map
	return func(g, _ int) string {
		k, ok := keys.Load(g)
		if !ok {
			k, _ = keys.LoadOrStore(g, fmt.Sprintf("bench:%s:%d", prefix, g))
		}
		return k.(string)
	}
}

// load has g goroutines do cycles while more says so; key names what the n-th cycle of a goroutine locks.
func load(ctx context.Context, c *contender, g int, key func(g, n int) string, more func(done int) bool) *timing {
	var all timing
	var mu sync.Mutex
	var wg sync.WaitGroup
	start := time.Now()
	for i := range g {
		wg.Go(func() {
			var t timing
			for n := 0; more(n) && ctx.Err() == nil; n++ {
				t.cycle(ctx, c, key(i, n))
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

// metered is what f costs. What goes on in the background is part of it.
func metered(ctx context.Context, m *meter, f func()) (cost, error) {
	runtime.GC() // the garbage of the one before is not this one's work
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	first, err := m.read(ctx)
	if err != nil {
		return cost{}, err
	}
	client := cpuTime()
	f()
	c := cost{client: cpuTime() - client}
	last, err := m.read(ctx)
	if err != nil {
		return cost{}, err
	}
	c.servers = last.less(first, m.own)
	runtime.ReadMemStats(&after)
	c.allocs, c.bytes = after.Mallocs-before.Mallocs, after.TotalAlloc-before.TotalAlloc
	return c, nil
}

// rotate has another one begin in each repetition: the first after a pause is not measured like the rest.
func rotate[T any](s []T, by int) []T {
	if len(s) == 0 {
		return s
	}
	by %= len(s)
	return slices.Concat(s[by:], s[:by])
}
