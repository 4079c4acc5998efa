package main

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/realredis"
)

// A heldPlan is how many locks are held for how long.
type heldPlan struct {
	n         int
	time, ttl time.Duration
}

// held keeps many locks at once under KeepAlive: what one costs in memory, what they cost in renewals, and whether all
// of them last.
func held(ctx context.Context, b *bench) error {
	const section = "held"
	plan := b.held
	kase := fmt.Sprintf("%d for %v, ttl %v", plan.n, plan.time, plan.ttl)
	progress("held: acquiring %d", plan.n)

	var renewed, failed atomic.Int64
	var why atomic.Pointer[redlock.QuorumError] // one of the failed
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
		} else {
			failed.Add(1)
			why.Store(&redlock.QuorumError{Round: r, Err: redlock.ErrNoQuorum})
		}
	}}, addrs(b.servers))
	if err != nil {
		return err
	}
	defer done()
	// Connections and buffers are made before the first reading: they belong to the Locker, not to a lock.
	warm := &contender{
		name: "warm",
		acquire: func(ctx context.Context, key string) (any, error) {
			k, err := l.TryAcquire(ctx, key, ttl)
			return k, err
		},
		release: func(ctx context.Context, k any) error { return k.(*redlock.Lock).Release(ctx) },
	}
	run(ctx, warm, 64, 100*time.Millisecond)

	type holding struct {
		lock *redlock.Lock
		held context.Context
		stop context.CancelFunc
	}
	locks := make([]holding, plan.n) // before the first reading, too: the caller's, whatever he locks with
	before := readMemory()

	start := time.Now()
	err = parallel(plan.n, func(i int) error {
		k, err := l.TryAcquire(ctx, fmt.Sprintf("bench:held:%d", i), plan.ttl)
		if err != nil {
			return err
		}
		h, stop := k.KeepAlive(ctx)
		locks[i] = holding{k, h, stop}
		return nil
	})
	if err != nil {
		return err
	}
	acquiring := time.Since(start)
	after := readMemory()

	commands, err := commandCount(ctx, b.servers)
	if err != nil {
		return err
	}
	cpu := cpuTime()
	renewed.Store(0)
	failed.Store(0)
	begin := time.Now()
	for left := plan.time; left > 0; left = plan.time - time.Since(begin) {
		progress("held: %v to go, %d renewals, %d failed", left.Round(time.Second), renewed.Load(), failed.Load())
		select {
		case <-time.After(min(left, 5*time.Second)):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	elapsed := time.Since(begin)
	cpu = cpuTime() - cpu
	renewals := renewed.Load()
	commandsAfter, err := commandCount(ctx, b.servers)
	if err != nil {
		return err
	}
	later := readMemory()

	lost := 0
	for _, h := range locks {
		if h.held.Err() != nil || !h.lock.Valid() {
			lost++
		}
	}
	if err := why.Load(); err != nil {
		progress("held: such as %v", err)
	}
	progress("held: releasing")
	start = time.Now()
	var releaseFailed atomic.Int64
	if err := parallel(plan.n, func(i int) error {
		locks[i].stop()
		if err := locks[i].lock.Release(ctx); err != nil {
			releaseFailed.Add(1)
		}
		return nil
	}); err != nil {
		return err
	}
	releasing := time.Since(start)
	left, err := keysLeft(ctx, b.servers, plan.n)
	if err != nil {
		return err
	}

	rows := [][]string{}
	add := func(metric, format string, v float64) {
		b.report.series(section, nameOurs, kase, metric).add(v)
		rows = append(rows, []string{metric, fmt.Sprintf(format, v)})
	}
	n := float64(plan.n)
	add("acquired a second (64 goroutines)", "%.0f", n/acquiring.Seconds())
	add("heap bytes a lock", "%.0f", (after.heap-before.heap)/n)
	add("stack bytes a lock", "%.0f", (after.stack-before.stack)/n)
	add("heap bytes a lock, at the end", "%.0f", (later.heap-before.heap)/n)
	add("stack bytes a lock, at the end", "%.0f", (later.stack-before.stack)/n)
	add("goroutines before", "%.0f", before.goroutines)
	add("goroutines with all held", "%.0f", after.goroutines)
	add("renewals a second", "%.0f", float64(renewals)/elapsed.Seconds())
	add("renewals a lock", "%.2f", float64(renewals)/n)
	add("renewals without a quorum", "%.0f", float64(failed.Load()))
	add("client CPU, % of one core", "%.1f", 100*cpu.Seconds()/elapsed.Seconds())
	perServer := elapsed.Seconds() * float64(len(b.servers))
	add("scripts a second, each server", "%.0f", float64(commandsAfter.scripts-commands.scripts)/perServer)
	add("commands in and outside scripts a second, each", "%.0f", float64(commandsAfter.all-commands.all)/perServer)
	add("lost", "%.0f", float64(lost))
	add("released a second", "%.0f", n/releasing.Seconds())
	add("releases that failed", "%.0f", float64(releaseFailed.Load()))
	add("keys left on servers", "%.0f", float64(left))
	b.report.table("Held: "+kase, rows)
	if lost > 0 {
		return fmt.Errorf("%d of %d locks were lost", lost, plan.n)
	}
	return heldByRueidislock(ctx, b, kase)
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

// work is what servers have executed: scripts, and all commands, those that scripts call included.
type work struct{ scripts, all int64 }

func commandCount(ctx context.Context, servers []*realredis.Server) (w work, err error) {
	for _, s := range servers {
		info, err := s.Client().Info(ctx, "commandstats").Result()
		if err != nil {
			return w, err
		}
		for line := range strings.Lines(info) {
			name, rest, ok := strings.Cut(line, ":calls=")
			if !ok {
				continue
			}
			calls, _, _ := strings.Cut(rest, ",")
			n, err := strconv.ParseInt(calls, 10, 64)
			if err != nil {
				return w, err
			}
			w.all += n
			if strings.HasPrefix(name, "cmdstat_eval") {
				w.scripts += n
			}
		}
	}
	return w, nil
}

// heldByRueidislock is the other lock in the table that renews by itself, and what it takes to hold as many.
func heldByRueidislock(ctx context.Context, b *bench, kase string) error {
	c, err := newRueidislock(b.servers[0])
	if err != nil {
		return err
	}
	defer c.close()
	run(ctx, c, 64, 100*time.Millisecond)
	locks := make([]any, b.held.n)
	before := readMemory()
	defer func() {
		parallel(len(locks), func(i int) error {
			if locks[i] == nil {
				return nil
			}
			return c.release(ctx, locks[i])
		})
	}()
	if err := parallel(b.held.n, func(i int) (err error) {
		locks[i], err = c.acquire(ctx, fmt.Sprintf("bench:rueidislock:%d", i))
		return err
	}); err != nil {
		return err
	}
	after := readMemory()
	n := float64(b.held.n)
	rows := [][]string{}
	for _, m := range []struct {
		metric string
		value  float64
	}{
		{"heap bytes a lock", (after.heap - before.heap) / n},
		{"stack bytes a lock", (after.stack - before.stack) / n},
		{"goroutines before", before.goroutines},
		{"goroutines with all held", after.goroutines},
	} {
		b.report.series("held", c.name, kase, m.metric).add(m.value)
		rows = append(rows, []string{m.metric, fmt.Sprintf("%.0f", m.value)})
	}
	b.report.table(fmt.Sprintf("Held by %s: %d", c.name, b.held.n), rows)
	return nil
}

// keysLeft counts locks that somebody still seems to hold.
func keysLeft(ctx context.Context, servers []*realredis.Server, n int) (int64, error) {
	var left int64
	for _, s := range servers {
		c := s.Client()
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
