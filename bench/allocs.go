package main

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

var allocGoroutines = []int{1, 64}

const (
	sectionAllocs = "allocs"
	caseOfOurs    = "ours, each command"
)

// allocs counts what one cycle uses: allocations of the whole process, background work included (a lane's goroutines are
// not free because they are not the caller's), bytes on the wire, and commands.
func allocs(ctx context.Context, b *bench) error {
	const section = sectionAllocs
	cs, err := contenders(addrs(b.servers))
	if err != nil {
		return err
	}
	defer closeAll(cs)
	const reps = 3 // what is counted hardly varies
	for rep := range reps {
		b.progress("repetition %d of %d", rep+1, reps)
		for _, c := range rotate(cs, rep) {
			for _, g := range allocGoroutines {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				tally(ctx, c, g, 20)
				var done, failed int64
				used, err := metered(ctx, b.meter, func() { done, failed = tally(ctx, c, g, b.cycles/g) })
				if err != nil {
					return err
				}
				n, nodes := float64(done), float64(nodesOf(c.name, len(b.servers)))
				for metric, v := range map[string]float64{
					"allocations": float64(used.allocs) / n, "bytes allocated": float64(used.bytes) / n,
					"bytes to a node": float64(used.servers.in) / n / nodes, "bytes from a node": float64(used.servers.out) / n / nodes,
					"commands executed by a node": float64(used.servers.calls) / n / nodes,
					mClientCPU:                    us(used.client) / n, mServersCPU: us(used.servers.cpu) / n,
					mFailed: float64(failed),
				} {
					b.report.series(section, c.name, fmt.Sprint(g), metric).add(v)
				}
			}
		}
	}
	for _, c := range cs {
		b.progress("%s: commands and goroutines", c.name)
		sent, idle, err := commandsOfACycle(ctx, b, c.name)
		if err != nil {
			return err
		}
		b.report.series(section, c.name, "1", "commands to a node").add(sent)
		b.report.series(section, c.name, "64", "goroutines at rest").add(idle)
	}
	return commandTimes(ctx, b, cs[0])
}

// commandTimes is what a cycle of ours is for a node, by its own account of each command. That of a script includes those of
// what it calls.
func commandTimes(ctx context.Context, b *bench, ours *contender) error {
	const callers = 64
	client := redis.NewClient(&redis.Options{Addr: b.servers[0].Addr()})
	defer client.Close()
	if err := client.ConfigResetStat(ctx).Err(); err != nil {
		return err
	}
	done, _ := tally(ctx, ours, callers, b.cycles/8)
	info, err := client.Info(ctx, "commandstats").Result()
	if err != nil {
		return err
	}
	for line := range strings.Lines(info) {
		var calls, usec float64
		name, rest, ok := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":")
		if !ok || name == "config|resetstat" {
			continue
		}
		if _, err := fmt.Sscanf(rest, "calls=%f,usec=%f,", &calls, &usec); err != nil {
			continue // a heading
		}
		b.report.series(sectionAllocs, name, caseOfOurs, "calls").add(calls / float64(done))
		b.report.series(sectionAllocs, name, caseOfOurs, "µs").add(usec / float64(done))
	}
	return nil
}

// tally is runCycles without a memory of its own: n cycles of each of g goroutines, only counted.
func tally(ctx context.Context, c *contender, g, n int) (done, failed int64) {
	var good, bad atomic.Int64
	var wg sync.WaitGroup
	for i := range g {
		key := fmt.Sprintf("bench:%s:%d", c.name, i)
		wg.Go(func() {
			for range n {
				held, err := c.acquire(ctx, key)
				if err == nil {
					err = c.release(ctx, held)
				}
				if err != nil {
					bad.Add(1)
				} else {
					good.Add(1)
				}
			}
		})
	}
	wg.Wait()
	return good.Load(), bad.Load()
}

// nodesOf is how many nodes somebody speaks to.
func nodesOf(name string, all int) int {
	switch name {
	case nameLock, nameBare, nameRueidis:
		return 1
	}
	return all
}

// commandsOfACycle counts what a new contender sends to the first node, and the goroutines that it keeps when it is idle after
// 64 have been busy.
func commandsOfACycle(ctx context.Context, b *bench, name string) (sent, idle float64, err error) {
	const cycles = 300
	m, err := newMonitor(b.servers[0].Addr())
	if err != nil {
		return 0, 0, err
	}
	defer m.close()
	before := runtime.NumGoroutine()
	m.on.Store(true)
	cs, err := contenders(addrs(b.servers), name)
	if err != nil {
		return 0, 0, err
	}
	defer closeAll(cs)
	t := runCycles(ctx, cs[0], name, 1, cycles)
	for seen := int64(-1); seen != m.sent.Load(); { // the monitor's last lines
		seen = m.sent.Load()
		time.Sleep(50 * time.Millisecond)
	}
	sent = float64(m.sent.Load()) / float64(len(t.acquire)+t.failed)
	runCycles(ctx, cs[0], name, 64, 20)
	time.Sleep(100 * time.Millisecond)
	return sent, float64(runtime.NumGoroutine() - before), nil
}

func allocsTables(r *report) []table {
	const section = sectionAllocs
	heap := [][]string{{"", "allocations, 1 goroutine", "64", "bytes, 1 goroutine", "64", "goroutines kept when idle"}}
	wire := [][]string{{"", "commands sent", "executed, scripts' included", "bytes to it", "bytes from it"}}
	for _, c := range r.subjects(section, "allocations") {
		heap = append(heap, []string{c,
			r.find(section, c, "1", "allocations").spread("%.0f"), r.find(section, c, "64", "allocations").spread("%.0f"),
			r.find(section, c, "1", "bytes allocated").spread("%.0f"), r.find(section, c, "64", "bytes allocated").spread("%.0f"),
			r.find(section, c, "64", "goroutines at rest").spread("%.0f")})
		wire = append(wire, []string{c,
			r.find(section, c, "1", "commands to a node").spread("%.1f"), r.find(section, c, "1", "commands executed by a node").spread("%.1f"),
			r.find(section, c, "1", "bytes to a node").spread("%.0f"), r.find(section, c, "1", "bytes from a node").spread("%.0f")})
	}
	times := func(c string) float64 { return r.find(section, c, caseOfOurs, "µs").median() }
	names := r.subjects(section, "µs")
	slices.SortStableFunc(names, func(x, y string) int { return cmp.Compare(times(y), times(x)) })
	commands := [][]string{{"", "calls", "µs"}}
	for _, c := range names {
		if times(c) >= 0.01 {
			commands = append(commands, []string{c, r.find(section, c, caseOfOurs, "calls").cell("%.2f"), r.find(section, c, caseOfOurs, "µs").cell("%.2f")})
		}
	}
	return []table{
		{"commands", "What a node executes for a cycle of redlock, 64 goroutines; evalsha includes all that the script calls", commands},
		{"allocs", "Allocations of one cycle, whole process", heap},
		{"wire", "One cycle on the wire, for each node", wire},
	}
}
