package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/proxy"
)

// A place is the round trip to each of five nodes, in milliseconds.
type place [5]int

var places = []place{{}, {1, 1, 1, 1, 1}, {10, 10, 10, 10, 10}, {40, 40, 40, 40, 40}, {80, 80, 80, 80, 80}, farthest}

// farthest is five data centres.
var farthest = place{2, 12, 35, 70, 140}

func (p place) String() string {
	if p[0] == p[4] {
		return fmt.Sprint(p[0])
	}
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(p[:]), " ", ", "), "[]")
}

// third is the round trip that a majority of five takes.
func (p place) third() float64 { return float64(slices.Sorted(slices.Values(p[:]))[2]) }

var distanceGoroutines = []int{1, 64, 256}

// distance puts the nodes behind proxies that delay.
func distance(ctx context.Context, b *bench) {
	for _, p := range places {
		atDistance(ctx, b, p)
	}
}

// newLink returns a proxy that makes a node as far away as a round trip of d, and no slower otherwise.
func newLink(addr string, d time.Duration) *proxy.Proxy {
	p := must(proxy.Start(addr))
	p.Delay(d/2, d/2)
	return p
}

// links returns the addresses by which the nodes are as far away as the place.
func (p place) links(addrs []string) (far []string, closeAll func()) {
	var links []*proxy.Proxy
	for i, trip := range p {
		link := newLink(addrs[i], time.Duration(trip)*time.Millisecond)
		links, far = append(links, link), append(far, link.Addr())
	}
	return far, func() {
		for _, link := range links {
			link.Close()
		}
	}
}

func atDistance(ctx context.Context, b *bench, p place) {
	far, closeLinks := p.links(b.addrs)
	defer closeLinks()
	cs := append(contenders(far, nameOurs, nameRedsync, nameFailFast), newFloor(far, farPipelines))
	defer closeAll(cs)
	longest := time.Duration(slices.Max(p[:])) * time.Millisecond
	// A connection takes four round trips, and the first ones are made one by one.
	warm := max(b.distanceBlock/2, 10*longest)
	groups := b.groups(ctx, cs, distanceGoroutines, func(g int) string { return distanceCase(p, g) }, warm)
	block := max(b.distanceBlock, time.Duration(b.distanceTrips)*longest)
	b.turns(ctx, nil, "distance", b.distanceReps, block, groups...)
}

func distanceCase(p place, g int) string { return fmt.Sprintf("%v ms, %d goroutines", p, g) }

// distanceTarget bounds an acquire, as a multiple of the third-fastest round trip, before the proxy's own error is added.
const distanceTarget = 1.08

// proxyError is what the bare quorum takes beyond the round trip, at the same load, because of the proxies, the machine and
// go-redis.
func (r *report) proxyError(p place, g int, metric string) *series {
	return r.find("distance", nameFloor, distanceCase(p, g), metric).each(func(v float64) float64 { return max(v-p.third(), 0) })
}

func distanceTables(r *report) []table {
	subjects := r.subjects("distance", mAcquire50)
	t := table{"distance", "p50 of acquire, ms, by the round trip to each of five nodes", [][]string{slices.Concat([]string{"round trips, ms", "goroutines"}, subjects, []string{"proxy's own error"})}}
	for _, p := range places {
		for _, g := range distanceGoroutines {
			row := []string{p.String(), fmt.Sprint(g)}
			for _, c := range subjects {
				row = append(row, r.find("distance", c, distanceCase(p, g), mAcquire50).spread("%.2f"))
			}
			t.rows = append(t.rows, append(row, r.proxyError(p, g, mAcquire50).cell("%.2f")))
		}
	}
	return []table{t}
}
