package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ce352c9b/redlock/internal/realredis"
)

// A usage is what servers report of themselves by INFO: sums since they started, except for memory and connections.
type usage struct {
	cpu                 time.Duration
	in, out             float64 // bytes
	calls, scripts      float64 // commands, including those that scripts call; scripts
	memory, connections float64
}

// A meter reads servers. Its own traffic is part of what they count, and is subtracted.
type meter struct {
	clients []*redis.Client
	version string // name and version of the first server
	own     usage  // of one reading of all servers
}

func newMeter(ctx context.Context, servers []*realredis.Server) (*meter, error) {
	m := &meter{clients: newClients(addrs(servers))}
	fields, err := info(ctx, m.clients[0], "server")
	if err != nil {
		return nil, err
	}
	m.version = "redis-server " + fields["redis_version"]
	if v, ok := fields["valkey_version"]; ok {
		m.version = "valkey-server " + v
	}
	var readings [3]usage // the first one dials
	for i := range readings {
		if readings[i], err = m.read(ctx); err != nil {
			return nil, err
		}
	}
	own := readings[2].less(readings[1])
	m.own = usage{in: own.in, out: own.out, calls: own.calls}
	return m, nil
}

func (m *meter) close() { closeClients(m.clients) }

// info returns the fields of a section of INFO.
func info(ctx context.Context, c *redis.Client, section string) (map[string]string, error) {
	text, err := c.Info(ctx, section).Result()
	fields := make(map[string]string)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields, err
}

// read sums up all servers.
func (m *meter) read(ctx context.Context) (sum usage, err error) {
	for _, c := range m.clients {
		fields, err := info(ctx, c, "all")
		if err != nil {
			return sum, err
		}
		number := func(name string) float64 {
			v, e := strconv.ParseFloat(fields[name], 64)
			err = errors.Join(err, e)
			return v
		}
		sum.cpu += time.Duration((number("used_cpu_sys") + number("used_cpu_user")) * float64(time.Second))
		sum.in += number("total_net_input_bytes")
		sum.out += number("total_net_output_bytes")
		sum.memory += number("used_memory")
		sum.connections += number("connected_clients")
		for name, value := range fields {
			if command, ok := strings.CutPrefix(name, "cmdstat_"); ok {
				var calls float64
				_, e := fmt.Sscanf(value, "calls=%f,", &calls)
				err = errors.Join(err, e)
				sum.calls += calls
				if strings.HasPrefix(command, "eval") {
					sum.scripts += calls
				}
			}
		}
		if err != nil {
			return sum, fmt.Errorf("INFO: %w", err)
		}
	}
	return sum, nil
}

func (u usage) less(v usage) usage {
	return usage{u.cpu - v.cpu, u.in - v.in, u.out - v.out, u.calls - v.calls, u.scripts - v.scripts, u.memory - v.memory, u.connections - v.connections}
}

// A cost is what something used: CPU time and allocations of this process, and what the servers did.
type cost struct {
	took, client  time.Duration
	servers       usage
	allocs, bytes float64
}

// measure returns what f costs, with whatever goes on in the background meanwhile. A nil meter only calls f.
func (m *meter) measure(ctx context.Context, f func() error) (c cost, err error) {
	if m == nil {
		return c, f()
	}
	runtime.GC() // of the previous measurement's garbage
	first, err := m.read(ctx)
	if err != nil {
		return c, err
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	client, start := cpuTime(), time.Now()
	err = f()
	c.client, c.took = cpuTime()-client, time.Since(start)
	runtime.ReadMemStats(&after)
	if err != nil {
		return c, err
	}
	c.allocs, c.bytes = float64(after.Mallocs-before.Mallocs), float64(after.TotalAlloc-before.TotalAlloc)
	last, err := m.read(ctx)
	c.servers = last.less(first).less(m.own)
	return c, err
}

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
