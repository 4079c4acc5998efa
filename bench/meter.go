package main

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ce352c9b/redlock/internal/realredis"
)

// A usage is what servers report of themselves by INFO: sums since they started, except for memory.
type usage struct {
	cpu            time.Duration
	in, out        float64 // bytes
	calls, scripts float64 // commands, including those that scripts call; scripts
	memory         float64
}

// A meter reads servers. Its own traffic is part of what they count, and is subtracted.
type meter struct {
	clients []*redis.Client
	version string // name and version of the first server
	own     usage  // of one reading of all servers
}

func newMeter(ctx context.Context, servers []*realredis.Server) *meter {
	m := &meter{clients: newClients(addrs(servers))}
	fields := must(m.clients[0].InfoMap(ctx, "server").Result())["Server"]
	m.version = "redis-server " + fields["redis_version"]
	if v, ok := fields["valkey_version"]; ok {
		m.version = "valkey-server " + v
	}
	m.read(ctx) // dials
	first := m.read(ctx)
	own := m.read(ctx).less(first)
	m.own = usage{in: own.in, out: own.out, calls: own.calls}
	return m
}

func (m *meter) close() { closeClients(m.clients) }

// read sums up all servers.
func (m *meter) read(ctx context.Context) (sum usage) {
	for _, c := range m.clients {
		info := must(c.InfoMap(ctx, "all").Result())
		number := func(section, field string) float64 { return must(strconv.ParseFloat(info[section][field], 64)) }
		sum.cpu += time.Duration((number("CPU", "used_cpu_sys") + number("CPU", "used_cpu_user")) * float64(time.Second))
		sum.in += number("Stats", "total_net_input_bytes")
		sum.out += number("Stats", "total_net_output_bytes")
		sum.memory += number("Memory", "used_memory")
		for command, value := range info["Commandstats"] {
			var calls float64
			must(fmt.Sscanf(value, "calls=%f,", &calls))
			sum.calls += calls
			if strings.HasPrefix(command, "cmdstat_eval") {
				sum.scripts += calls
			}
		}
	}
	return sum
}

func (u usage) less(v usage) usage {
	return usage{u.cpu - v.cpu, u.in - v.in, u.out - v.out, u.calls - v.calls, u.scripts - v.scripts, u.memory - v.memory}
}

// A cost is what something used: CPU time and allocations of this process, and what the servers did.
type cost struct {
	took, client  time.Duration
	servers       usage
	allocs, bytes float64
}

// measure returns what f costs, with whatever goes on in the background meanwhile. A nil meter only calls f.
func (m *meter) measure(ctx context.Context, f func()) (c cost) {
	if m == nil {
		f()
		check(ctx.Err())
		return c
	}
	runtime.GC() // of the previous measurement's garbage
	first := m.read(ctx)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	client, start := cpuTime(), time.Now()
	f()
	c.client, c.took = cpuTime()-client, time.Since(start)
	runtime.ReadMemStats(&after)
	check(ctx.Err())
	c.allocs, c.bytes = float64(after.Mallocs-before.Mallocs), float64(after.TotalAlloc-before.TotalAlloc)
	c.servers = m.read(ctx).less(first).less(m.own)
	return c
}

// cpuTime returns what this process has used on all cores, in user and kernel mode; the servers are not in it. Only Unix
// systems tell.
var cpuTime = func() time.Duration { return 0 }

// A memory is what this process keeps.
type memory struct{ heap, stack, goroutines float64 }

func readMemory() memory {
	// Twice, because the first collection only marks what finalizers and sync.Pools keep alive.
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return memory{float64(m.HeapAlloc), float64(m.StackInuse), float64(runtime.NumGoroutine())}
}

// since returns what each of n things takes up.
func (m memory) since(before memory, n int) memory {
	return memory{(m.heap - before.heap) / float64(n), (m.stack - before.stack) / float64(n), m.goroutines - before.goroutines}
}

func us(d time.Duration) float64 { return float64(d) / 1e3 }
