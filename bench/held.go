package main

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/realredis"
)

// A heldPlan is how many locks are held, and for how long.
type heldPlan struct {
	counts    []int
	time, ttl time.Duration
}

// held keeps many locks at once under KeepAlive: what one costs in memory, what they cost in renewals, and whether all
// of them last.
func held(ctx context.Context, b *bench) error {
	for _, n := range b.held.counts {
		if err := holdAll(ctx, b, n); err != nil {
			return err
		}
	}
	return heldByRueidislock(ctx, b)
}

// rueidislockHeld is how many it holds: a goroutine and an entry of its cache each, which need no more to be seen.
const rueidislockHeld = 10_000

func holdAll(ctx context.Context, b *bench, n int) error {
	plan, kase := b.held, fmt.Sprint(n)
	b.progress("acquiring %d", n)

	var renewed, failed atomic.Int64
	l, done, err := newLocker(redlock.Options{Observe: func(r redlock.Round) {
		if r.Op != redlock.OpExtend {
			return
		}
		yes := 0
		for _, v := range r.Votes {
			if v.Answer == redlock.Yes {
				yes++
			}
		}
		if yes >= r.Need {
			renewed.Add(1)
		} else if failed.Add(1) == 1 {
			why := redlock.QuorumError{Round: r, Err: redlock.ErrNoQuorum}
			b.progress("one without a quorum: %v", &why)
		}
	}}, addrs(b.servers))
	if err != nil {
		return err
	}
	defer done()
	// Connections and buffers are made before the first reading: they belong to the Locker, not to a lock.
	warm := &contender{
		acquire: func(ctx context.Context, key string) (any, error) {
			k, err := l.TryAcquire(ctx, key, ttl)
			return k, err
		},
		release: func(ctx context.Context, k any) error { return k.(*redlock.Lock).Release(ctx) },
	}
	runFor(ctx, warm, "warm", 64, 100*time.Millisecond)

	type holding struct {
		lock *redlock.Lock
		held context.Context
		stop context.CancelFunc
	}
	locks := make([]holding, n) // before the first reading, too: the caller's, whatever he locks with
	before := readMemory()
	empty, err := b.meter.read(ctx)
	if err != nil {
		return err
	}

	start := time.Now()
	var refused atomic.Int64
	if err := parallel(n, func(i int) error {
		k, err := l.TryAcquire(ctx, fmt.Sprintf("bench:held:%d", i), plan.ttl)
		if err != nil {
			refused.Add(1)
			return ctx.Err()
		}
		h, stop := k.KeepAlive(ctx)
		locks[i] = holding{k, h, stop}
		return nil
	}); err != nil {
		return err
	}
	acquiring := time.Since(start)
	after := readMemory()

	begun, err := b.meter.read(ctx)
	if err != nil {
		return err
	}
	cpu := cpuTime()
	renewed.Store(0)
	failed.Store(0)
	begin := time.Now()
	for left := plan.time; left > 0; left = plan.time - time.Since(begin) {
		b.progress("%d locks, %v to go, %d renewals, %d without a quorum", n, left.Round(time.Second), renewed.Load(), failed.Load())
		select {
		case <-time.After(min(left, 5*time.Second)):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	elapsed := time.Since(begin)
	cpu = cpuTime() - cpu
	renewals := renewed.Load()
	ended, err := b.meter.read(ctx)
	if err != nil {
		return err
	}
	later := readMemory()

	lost := 0
	for _, h := range locks {
		if h.lock != nil && (h.held.Err() != nil || !h.lock.Valid()) {
			lost++
		}
	}
	b.progress("releasing %d", n)
	start = time.Now()
	var releaseFailed atomic.Int64
	if err := parallel(n, func(i int) error {
		if locks[i].lock == nil {
			return nil
		}
		locks[i].stop()
		if err := locks[i].lock.Release(ctx); err != nil {
			releaseFailed.Add(1)
		}
		return nil
	}); err != nil {
		return err
	}
	releasing := time.Since(start)
	left, err := keysLeft(ctx, b.servers, n)
	if err != nil {
		return err
	}
	released, err := b.meter.read(ctx)
	if err != nil {
		return err
	}

	nodes := float64(len(b.servers))
	seconds := elapsed.Seconds()
	did := ended.less(begun, b.meter.own)
	each := float64(n)
	for _, m := range []struct {
		metric string
		value  float64
	}{
		{mHeldAcquired, each / acquiring.Seconds()},
		{mHeldHeap, (after.heap - before.heap) / each},
		{mHeldStack, (after.stack - before.stack) / each},
		{mHeldHeapEnd, (later.heap - before.heap) / each},
		{mHeldGoroutines, after.goroutines - before.goroutines},
		{mHeldRenewals, float64(renewals) / seconds},
		{mHeldPerLock, float64(renewals) / each},
		{mHeldFailed, float64(failed.Load())},
		{mHeldClientCPU, 100 * cpu.Seconds() / seconds},
		{mHeldServerCPU, 100 * did.cpu.Seconds() / seconds / nodes},
		{mHeldClientEach, us(cpu) / float64(renewals)},
		{mHeldServerEach, us(did.cpu) / float64(did.scripts)},
		{mHeldScripts, float64(did.scripts) / seconds / nodes},
		{mHeldKeyBytes, float64(begun.memory-empty.memory) / each / nodes},
		{mHeldRegBytes, float64(released.memory-empty.memory) / each / nodes},
		{mHeldLost, float64(lost)},
		{mHeldReleased, each / releasing.Seconds()},
		{mHeldReleaseFailed, float64(releaseFailed.Load())},
		{mHeldLeft, float64(left)},
	} {
		b.report.series("held", nameOurs, kase, m.metric).add(m.value)
	}
	for _, s := range b.servers { // the registers, which live for a day
		c := s.Client()
		err := c.FlushAll(ctx).Err()
		c.Close()
		if err != nil {
			return err
		}
	}
	if lost > 0 || refused.Load() > 0 {
		b.report.note("held: of %d locks %d were not acquired and %d were lost", n, refused.Load(), lost)
	}
	return nil
}

const (
	mHeldAcquired      = "acquired a second, 64 goroutines"
	mHeldHeap          = "heap, bytes a lock"
	mHeldStack         = "stack, bytes a lock"
	mHeldHeapEnd       = "heap, bytes a lock, at the end"
	mHeldGoroutines    = "goroutines more than before"
	mHeldRenewals      = "renewals a second"
	mHeldPerLock       = "renewals of each lock"
	mHeldFailed        = "renewals without a quorum"
	mHeldClientCPU     = "client, % of one core"
	mHeldServerCPU     = "each server, % of one core"
	mHeldClientEach    = "client, CPU of a renewal, µs"
	mHeldServerEach    = "each server, CPU of a renewal, µs"
	mHeldScripts       = "scripts a second, each server"
	mHeldKeyBytes      = "memory of a held lock on each server, bytes"
	mHeldRegBytes      = "what is left of it for a day after the release, bytes"
	mHeldLost          = "lost"
	mHeldReleased      = "released a second, 64 goroutines"
	mHeldReleaseFailed = "releases that failed"
	mHeldLeft          = "keys left on servers"
)

func heldTables(r *report) []table {
	cases := r.cases("held", mHeldLost)
	rows := [][]string{append([]string{"locks held"}, cases...)}
	for _, m := range []struct{ metric, format string }{
		{mHeldLost, "%.0f"}, {mHeldFailed, "%.0f"}, {mHeldPerLock, "%.2f"}, {mHeldRenewals, "%.0f"}, {mHeldScripts, "%.0f"},
		{mHeldClientCPU, "%.0f"}, {mHeldServerCPU, "%.0f"}, {mHeldClientEach, "%.0f"}, {mHeldServerEach, "%.0f"},
		{mHeldHeap, "%.0f"}, {mHeldHeapEnd, "%.0f"}, {mHeldStack, "%.0f"},
		{mHeldGoroutines, "%.0f"}, {mHeldKeyBytes, "%.0f"}, {mHeldRegBytes, "%.0f"}, {mHeldAcquired, "%.0f"}, {mHeldReleased, "%.0f"},
		{mHeldReleaseFailed, "%.0f"}, {mHeldLeft, "%.0f"},
	} {
		row := []string{m.metric}
		for _, c := range cases {
			row = append(row, r.find("held", nameOurs, c, m.metric).cell(m.format))
		}
		rows = append(rows, row)
	}
	other := [][]string{{"", ""}}
	for _, m := range []string{mHeldHeap, mHeldStack, mHeldGoroutines} {
		other = append(other, []string{m, r.find("held", nameRueidis, fmt.Sprint(rueidislockHeld), m).cell("%.0f")})
	}
	return []table{
		{"held", "Locks under KeepAlive on five nodes", rows},
		{"held-rueidislock", fmt.Sprintf("%d held by %s, which renews by itself, too", rueidislockHeld, nameRueidis), other},
	}
}

// parallel calls f for 0 to n-1 from 64 goroutines and returns one of the errors.
func parallel(n int, f func(i int) error) error {
	var next atomic.Int64
	var wg sync.WaitGroup
	errs := make(chan error, 64)
	for range 64 {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if err := f(i); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	return <-errs
}

type memory struct{ heap, stack, goroutines float64 }

func readMemory() memory {
	// Twice: what a finalizer or a sync.Pool kept alive goes with the second.
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return memory{float64(m.HeapAlloc), float64(m.StackInuse), float64(runtime.NumGoroutine())}
}

func heldByRueidislock(ctx context.Context, b *bench) error {
	b.progress("%d held by %s", rueidislockHeld, nameRueidis)
	c, err := newRueidislock(b.servers[0].Addr())
	if err != nil {
		return err
	}
	defer c.close()
	runFor(ctx, c, "warm", 64, 100*time.Millisecond)
	locks := make([]any, rueidislockHeld)
	before := readMemory()
	defer func() {
		parallel(len(locks), func(i int) error {
			if locks[i] == nil {
				return nil
			}
			return c.release(ctx, locks[i])
		})
	}()
	if err := parallel(len(locks), func(i int) (err error) {
		locks[i], err = c.acquire(ctx, fmt.Sprintf("bench:rueidislock:%d", i))
		return err
	}); err != nil {
		return err
	}
	after := readMemory()
	n, kase := float64(len(locks)), fmt.Sprint(len(locks))
	b.report.series("held", c.name, kase, mHeldHeap).add((after.heap - before.heap) / n)
	b.report.series("held", c.name, kase, mHeldStack).add((after.stack - before.stack) / n)
	b.report.series("held", c.name, kase, mHeldGoroutines).add(after.goroutines - before.goroutines)
	return nil
}

// keysLeft counts locks that somebody still seems to hold.
func keysLeft(ctx context.Context, servers []*realredis.Server, n int) (int64, error) {
	var left int64
	for _, s := range servers {
		c := s.Client()
		defer c.Close()
		for i := 0; i < n; i += 1000 {
			cmds, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
				for j := i; j < min(n, i+1000); j++ {
					p.Exists(ctx, fmt.Sprintf("bench:held:%d", j))
				}
				return nil
			})
			if err != nil {
				return 0, err
			}
			for _, cmd := range cmds {
				left += cmd.(*redis.IntCmd).Val()
			}
		}
	}
	return left, nil
}
