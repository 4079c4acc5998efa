package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/realredis"
)

// A raw is the round trip of a quorum, measured all the time beside what else goes on, and as often as the lock changes
// hands, since a process that has slept is slower: a SET to five nodes at once, the first three answers awaited.
type raw struct {
	end   context.CancelFunc
	over  sync.WaitGroup
	trips []float64 // ms
}

func startRaw(ctx context.Context, servers []*realredis.Server) *raw {
	ctx, cancel := context.WithCancel(ctx)
	r := &raw{end: cancel}
	c := newFloor(addrs(servers))
	r.over.Go(func() {
		defer c.close()
		for n := 0; ctx.Err() == nil; n++ {
			begin := time.Now()
			_, err := c.acquire(ctx, "bench:raw")
			if n > 20 && err == nil { // the first dial
				r.trips = append(r.trips, ms(time.Since(begin)))
			}
			select {
			case <-time.After(holds + rests):
			case <-ctx.Done():
			}
		}
	})
	return r
}

func (r *raw) stop() []float64 {
	r.end()
	r.over.Wait()
	return r.trips
}

// A monitor counts the commands that clients send to a server, by MONITOR: what scripts call is not among them, nor what is
// from connections that were there before, nor what sets a connection up.
type monitor struct {
	conn net.Conn
	old  map[string]bool
	on   atomic.Bool
	sent atomic.Int64
	over sync.WaitGroup
}

// greetings set a connection up.
var greetings = []string{"hello", "client", "info"}

func newMonitor(addr string) (*monitor, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	m := &monitor{conn: conn, old: make(map[string]bool)}
	if _, err := fmt.Fprint(conn, "MONITOR\r\n"); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(conn)
	lines.Scan() // +OK
	m.over.Go(func() {
		for lines.Scan() {
			_, rest, _ := strings.Cut(lines.Text(), " [")
			from, said, ok := strings.Cut(rest, "]")
			_, from, _ = strings.Cut(from, " ")
			word, _, _ := strings.Cut(strings.ToLower(strings.Trim(said, ` "`)), `"`)
			switch {
			case !ok || from == "lua" || slices.Contains(greetings, word):
			case !m.on.Load():
				m.old[from] = true
			case !m.old[from]:
				m.sent.Add(1)
			}
		}
	})
	return m, nil
}

func (m *monitor) close() {
	m.conn.Close()
	m.over.Wait()
}

// countCommands has one waiter wait for a lock that is held for so long, and counts what it sends to the first node.
func countCommands(ctx context.Context, b *bench, kind string, held time.Duration) (sent int64, waited time.Duration, err error) {
	key := "bench:patience:" + kind
	addrs := addrs(b.servers)
	holder, done, err := newLocker(redlock.Options{Fair: kind == kindFair}, addrs)
	if err != nil {
		return 0, 0, err
	}
	defer done()
	// Another waiter on another key before: a server that has been up for a while knows the scripts.
	before, ended, err := newWaiter(kind, addrs)
	if err != nil {
		return 0, 0, err
	}
	if k, err := holder.TryAcquire(ctx, key+":before", ttl); err == nil {
		time.AfterFunc(100*time.Millisecond, func() { k.Release(ctx) })
		if release, err := before(ctx, key+":before"); err == nil {
			release()
		}
	}
	ended()
	acquire, end, err := newWaiter(kind, addrs)
	if err != nil {
		return 0, 0, err
	}
	defer end()
	m, err := newMonitor(addrs[0])
	if err != nil {
		return 0, 0, err
	}
	defer m.close()
	k, err := holder.TryAcquire(ctx, key, 3*held)
	if err != nil {
		return 0, 0, err
	}
	time.Sleep(100 * time.Millisecond) // the monitor's lines
	m.on.Store(true)
	time.AfterFunc(held, func() { k.Release(ctx) })
	begin := time.Now()
	release, err := acquire(ctx, key)
	waited = time.Since(begin)
	time.Sleep(10 * time.Millisecond)
	sent = m.sent.Load()
	if err == nil {
		release()
	}
	return sent, waited, nil // redsync gives up before, which is part of its figure
}

// multitude is many goroutines of one process that wait for one key.
func multitude(ctx context.Context, b *bench) error {
	const section = "waiting: multitude"
	n := b.wait.multitude
	b.progress("%d goroutines wait for one key", n)
	l, done, err := newLocker(redlock.Options{}, addrs(b.servers))
	if err != nil {
		return err
	}
	defer done()
	k, err := l.TryAcquire(ctx, "bench:multitude", time.Minute)
	if err != nil {
		return err
	}
	before := readMemory()
	empty, err := b.meter.read(ctx)
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	var served, gone atomic.Int64
	var began atomic.Int64
	some, cancel := context.WithCancel(ctx)
	defer cancel()
	for i := range n {
		of := ctx
		if i%2 == 1 {
			of = some // these are cancelled
		}
		wg.Go(func() {
			began.Add(1)
			k, err := l.Acquire(of, "bench:multitude", time.Minute)
			if err != nil {
				gone.Add(1)
				return
			}
			served.Add(1)
			k.Release(ctx)
		})
	}
	for began.Load() < int64(n) {
		time.Sleep(10 * time.Millisecond)
	}
	time.Sleep(time.Second)
	after := readMemory()
	crowded, err := b.meter.read(ctx)
	if err != nil {
		return err
	}
	cancel()
	begin := time.Now()
	for gone.Load() < int64(n/2) {
		time.Sleep(time.Millisecond)
	}
	left := time.Since(begin)
	begin = time.Now()
	k.Release(ctx)
	wg.Wait()
	took := time.Since(begin)
	for _, m := range []struct {
		metric string
		value  float64
	}{
		{"heap, bytes a waiter", (after.heap - before.heap) / float64(n)},
		{"stack, bytes a waiter", (after.stack - before.stack) / float64(n)},
		{"connections to a node more", float64(crowded.connections-empty.connections) / float64(len(b.servers))},
		{"half cancelled, all gone after, ms", ms(left)},
		{"the others", float64(n - n/2)},
		{"served", float64(served.Load())},
		{"in, ms", ms(took)},
	} {
		b.report.series(section, nameOurs, fmt.Sprint(n), m.metric).add(m.value)
	}
	return nil
}
