package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ce352c9b/redlock/internal/realredis"
)

// A usage is what a server has done so far, by its own account (INFO).
type usage struct {
	cpu         time.Duration
	in, out     int64 // bytes
	memory      int64 // now, not so far
	connections int64 // now
	scripts     int64
	calls       int64 // commands, those within scripts included
}

// A meter reads all servers. Its own traffic is part of what they count, and is taken off again.
type meter struct {
	clients []*redis.Client
	own     usage // of one reading, all servers
}

func newMeter(ctx context.Context, servers []*realredis.Server) (*meter, error) {
	m := &meter{clients: newClients(addrs(servers))}
	if _, err := m.read(ctx); err != nil { // dials
		return nil, err
	}
	first, err := m.read(ctx)
	if err != nil {
		return nil, err
	}
	second, err := m.read(ctx)
	if err != nil {
		return nil, err
	}
	m.own = second.less(first, usage{})
	m.own.cpu = 0
	return m, nil
}

func (m *meter) close() { closeClients(m.clients) }

// read sums up all servers.
func (m *meter) read(ctx context.Context) (sum usage, err error) {
	for _, c := range m.clients {
		info, err := c.Info(ctx, "all").Result()
		if err != nil {
			return sum, err
		}
		for line := range strings.Lines(info) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
			if err := sum.add(name, value); err != nil {
				return sum, fmt.Errorf("INFO: %s: %w", line, err)
			}
		}
	}
	return sum, nil
}

func (u *usage) add(name, value string) error {
	into := map[string]*int64{"total_net_input_bytes": &u.in, "total_net_output_bytes": &u.out, "used_memory": &u.memory, "connected_clients": &u.connections}[name]
	command, isCommand := strings.CutPrefix(name, "cmdstat_")
	switch {
	case into != nil:
		n, err := strconv.ParseInt(value, 10, 64)
		*into += n
		return err
	case name == "used_cpu_sys" || name == "used_cpu_user":
		seconds, err := strconv.ParseFloat(value, 64)
		u.cpu += time.Duration(seconds * float64(time.Second))
		return err
	case isCommand:
		calls, _, _ := strings.Cut(strings.TrimPrefix(value, "calls="), ",")
		n, err := strconv.ParseInt(calls, 10, 64)
		if err != nil {
			return err
		}
		u.calls += n
		if strings.HasPrefix(command, "eval") {
			u.scripts += n
		}
	}
	return nil
}

// less is what happened since; memory and connections are the difference.
func (u usage) less(before, own usage) usage {
	return usage{
		cpu: u.cpu - before.cpu, in: u.in - before.in - own.in, out: u.out - before.out - own.out,
		memory: u.memory - before.memory, connections: u.connections - before.connections,
		scripts: u.scripts - before.scripts, calls: u.calls - before.calls - own.calls,
	}
}

// A cost is what something has used up: CPU time of this process, and what the servers did.
type cost struct {
	client  time.Duration
	servers usage
	allocs  uint64
	bytes   uint64
}

func us(d time.Duration) float64 { return float64(d) / 1e3 }
