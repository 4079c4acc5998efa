package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A distancePlan: least is how long each is measured, or so many of the longest round trips, if that is more.
type distancePlan struct {
	reps  int
	least time.Duration
	trips int
}

// A place is the round trip to each of five nodes.
type place []time.Duration

var places = []place{even(0), even(1), even(10), even(40), even(80), {2, 12, 35, 70, 140}}

// even is five nodes at one distance, in milliseconds as all of these.
func even(ms time.Duration) place { return place{ms, ms, ms, ms, ms} }

func (p place) String() string {
	if p[0] == p[len(p)-1] {
		return fmt.Sprint(int64(p[0]))
	}
	var each []string
	for _, d := range p {
		each = append(each, fmt.Sprint(int64(d)))
	}
	return strings.Join(each, ", ")
}

func (p place) delays() []time.Duration {
	var ds []time.Duration
	for _, d := range p {
		ds = append(ds, d*time.Millisecond)
	}
	return ds
}

// third is the round trip that a majority of five takes, in milliseconds.
func (p place) third() float64 { return float64(slices.Sorted(slices.Values(p))[len(p)/2]) }

var distanceGoroutines = []int{1, 64, 256}

// distance puts the nodes behind proxies that delay.
func distance(ctx context.Context, b *bench) error {
	for _, p := range places {
		if err := atDistance(ctx, b, p); err != nil {
			return err
		}
	}
	return nil
}

func atDistance(ctx context.Context, b *bench, p place) error {
	const section = "distance"
	proxies, err := startLinks(addrs(b.servers), p.delays())
	if err != nil {
		return err
	}
	defer proxies.close()
	cs, err := contenders(proxies.addrs, nameOurs, nameRedsync, nameFailFast)
	if err != nil {
		return err
	}
	cs = append(cs, newFloorAt(proxies.addrs, farFlights))
	defer closeAll(cs)
	longest := slices.Max(p.delays())
	d := max(b.distance.least, time.Duration(b.distance.trips)*longest)
	for _, c := range cs { // a connection takes four round trips, and those of the first come one by one
		b.progress("round trip %v ms: connections of %s", p, c.name)
		runFor(ctx, c, c.name, slices.Max(distanceGoroutines), max(b.distance.least/2, 10*longest))
	}
	for rep := range b.distance.reps {
		for _, g := range distanceGoroutines {
			b.progress("round trip %v ms: repetition %d of %d, %d goroutines", p, rep+1, b.distance.reps, g)
			for _, c := range rotate(cs, rep) {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				t := runFor(ctx, c, c.name, g, d)
				b.report.series(section, c.name, distanceCase(p, g), mRate).add(t.rate())
				b.report.halves(section, c.name, distanceCase(p, g), t)
			}
		}
	}
	return nil
}

func distanceCase(p place, g int) string { return fmt.Sprintf("%v ms, %d goroutines", p, g) }

// distanceTarget is how much of the third-fastest round trip may come on top of the proxy's own error.
const distanceTarget = 1.08

// proxyError is what the bare quorum takes longer than the way is, at the same load: the proxies, the machine, and go-redis.
func (r *report) proxyError(p place, g int, metric string) *series {
	return r.find("distance", nameFloor, distanceCase(p, g), metric).each(func(v float64) float64 { return max(v-p.third(), 0) })
}

func distanceTables(r *report) []table {
	const section = "distance"
	header := []string{"round trips, ms", "goroutines"}
	var subjects []string
	for _, c := range r.subjects(section, mAcquire50) {
		subjects = append(subjects, c)
		header = append(header, c)
	}
	times := [][]string{append(slices.Clone(header), "proxy's own error")}
	releases := [][]string{append(slices.Clone(header), "proxy's own error")}
	rates := [][]string{header}
	for _, p := range places {
		for _, g := range distanceGoroutines {
			kase := distanceCase(p, g)
			row := func(metric, format string) []string {
				cells := []string{p.String(), fmt.Sprint(g)}
				for _, c := range subjects {
					cells = append(cells, r.find(section, c, kase, metric).spread(format))
				}
				return cells
			}
			times = append(times, append(row(mAcquire50, "%.2f"), r.proxyError(p, g, mAcquire50).cell("%.2f")))
			releases = append(releases, append(row(mRelease50, "%.2f"), r.proxyError(p, g, mRelease50).cell("%.2f")))
			rates = append(rates, row(mRate, "%.0f"))
		}
	}
	return []table{
		{"distance", "Acquire p50, ms, by the round trip to each of five nodes", times},
		{"distance-release", "Release p50, ms", releases},
		{"distance-rate", "Cycles a second", rates},
	}
}
