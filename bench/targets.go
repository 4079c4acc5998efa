package main

import (
	"fmt"
	"slices"
	"strings"
)

const (
	atMost  = "at most "
	atLeast = "at least "
	met     = "met"
)

// target adds the row of a quantity and the bound that it should keep, by the median of the repetitions. Without measurements
// there is no row.
func (t *table) target(bound string, limit float64, format string, got *series, text string, args ...any) {
	meets := func(v float64) bool { return v == limit || (v > limit) == (bound == atLeast) }
	verdict := "**missed**"
	switch {
	case len(got.Reps) == 0:
		return
	case meets(got.median()):
		verdict = met
	case slices.ContainsFunc(got.Reps, meets):
		verdict = "**missed**, met in the best repetition"
	}
	t.rows = append(t.rows, []string{fmt.Sprintf(text, args...), bound + fmt.Sprintf(format, limit), got.spread(format), verdict})
}

// targets returns the table of the targets that were missed, of those that the report has measurements for.
func (r *report) targets() table {
	t := table{"targets", "Targets, and whether they were met", [][]string{{"", "target", "measured", ""}}}
	for _, c := range []struct {
		who, other, g string
		limit         float64
	}{
		{nameOurs, nameRedsync, "64", 7.5}, {nameOurs, nameRedsync, "256", 8.5},
		{nameOurs, nameLock, "64", 1}, {nameOurs, nameLock, "256", 1.3},
		{nameThree, nameLock, "64", 1.4}, {nameThree, nameLock, "256", 1.8},
	} {
		t.target(atLeast, c.limit, "%.2f", r.cpu(c.other, c.g).over(r.cpu(c.who, c.g)), "%s goroutines: CPU time of a cycle, %s as a multiple of %s", c.g, c.other, c.who)
	}
	client := func(limit float64, g string) {
		t.target(atMost, limit, "%.2f", r.find("throughput", nameOurs, g, mClientCPU).over(r.find("throughput", nameLock, g, mClientCPU)), "%s goroutines: the client's CPU time of a cycle, as a multiple of redislock's on one node", g)
	}
	client(1, "64")
	client(0.6, "256")
	alone := func(limit float64, metric, floor, with string) {
		t.target(atMost, limit, "%.2f", r.find("latency", nameOurs, "1", metric).over(r.find("latency", floor, "1", metric)), "one goroutine: %s, as a multiple of the bare quorum%s", unitless(metric), with)
	}
	alone(1.15, mAcquire50, nameFloor, "")
	alone(1.15, mRelease50, nameFloor, "")
	alone(1.15, mAcquire50, nameOurFloor, " with our commands")
	alone(1.5, mAcquire99, nameFloor, "")
	for _, m := range []string{mAcquire50, mRelease50} {
		for _, g := range distanceGoroutines {
			limit := distanceTarget*farthest.third() + r.proxyError(farthest, g, m).median()
			t.target(atMost, limit, "%.2f", r.find("distance", nameOurs, distanceCase(farthest, g), m), "round trips %v ms, %s: %s, ms", farthest, goroutines(g), unitless(m))
		}
	}
	for _, g := range faultGoroutines {
		for _, c := range []string{oneDead, oneHung, oneSlow} {
			worst, which := new(series), halves[0]
			for _, m := range halves {
				if s := r.ofAllUp(g, nameOurs, c, m); s.median() > worst.median() {
					worst, which = s, m
				}
			}
			t.target(atMost, faultTarget, "%.2f", worst, "%s of five, %s: worst of p50 and p99, as a multiple of all up (%s)", c, goroutines(g), unitless(which))
		}
	}
	kib := func(bytes float64) float64 { return bytes / 1024 }
	for i, limit := range []float64{60, 30} {
		g := allocGoroutines[i]
		cycle := func(metric string) *series { return r.find("allocs", nameOurs, fmt.Sprint(g), metric) }
		t.target(atMost, limit, "%.0f", cycle(mAllocs), "allocations per cycle, %s", goroutines(g))
		t.target(atMost, 3, "%.1f", cycle(mBytes).each(kib), "KiB allocated per cycle, %s", goroutines(g))
	}
	if counts := r.cases("held", mHeldHeap); len(counts) > 0 {
		n := counts[len(counts)-1]
		held := func(metric string) *series { return r.find("held", nameOurs, n, metric) }
		t.target(atMost, 0, "%.0f", held(mHeldLost), "%s held: lost", n)
		t.target(atMost, 1.5, "%.2f", held(mHeldHeap).each(kib), "%s held: KiB of heap per lock", n)
		t.target(atMost, 1.5, "%.2f", held(mHeldBusiest), "%s held: renewals in the busiest second, as a multiple of the mean", n)
	}
	r.waitingTargets(&t)
	all := len(t.rows) - 1
	t.rows = slices.DeleteFunc(t.rows, func(row []string) bool { return row[3] == met })
	t.title = fmt.Sprintf("Of %d targets, %d were missed", all, len(t.rows)-1)
	return t
}

// unitless returns the name of a metric without its unit.
func unitless(metric string) string { return strings.TrimSuffix(metric, " ms") }

// cpu returns the CPU time of a cycle, client's and servers'.
func (r *report) cpu(who, goroutines string) *series {
	client, servers := r.find("throughput", who, goroutines, mClientCPU), r.find("throughput", who, goroutines, mServersCPU)
	sum := new(series)
	for i := range client.Reps {
		sum.add(client.Reps[i] + servers.Reps[i])
	}
	return sum
}

// summary returns the table that the README shows.
func (r *report) summary() table {
	t := table{"summary", "Five nodes, medians", [][]string{{"", "redlock", "redsync", "bare quorum: SET and DEL", "redislock, **one node**"}}}
	for _, row := range []struct{ text, section, kase, metric, format string }{
		{"one caller: acquire, ms", "latency", "1", mAcquire50, "%.2f"},
		{"64 callers: cycles of acquire and release per second", "throughput", "64", mRate, "%.0f"},
		{"256 callers", "throughput", "256", mRate, "%.0f"},
		{"64 callers: CPU time of the client per cycle, µs", "throughput", "64", mClientCPU, "%.0f"},
		{"64 callers: CPU time of all servers per cycle, µs", "throughput", "64", mServersCPU, "%.0f"},
		{"one caller, one node is dead: acquire, ms", faultSection(1), oneDead, mAcquire50, "%.2f"},
		{"one caller, one node hangs: acquire, ms", faultSection(1), oneHung, mAcquire50, "%.2f"},
		{fmt.Sprintf("nodes %v ms away, 64 callers: acquire, ms", farthest), "distance", distanceCase(farthest, 64), mAcquire50, "%.1f"},
	} {
		cells := []string{row.text}
		for _, who := range []string{nameOurs, nameRedsync, nameFloor, nameLock} {
			cells = append(cells, r.find(row.section, who, row.kase, row.metric).cell(row.format))
		}
		t.rows = append(t.rows, cells)
	}
	return t
}
