package main

import (
	"fmt"
	"slices"
)

// A target is the bound that one quantity should keep.
type target struct {
	text    string
	got     *series
	atLeast bool // not at most
	limit   float64
	format  string
}

func (t target) meets(v float64) bool {
	if t.atLeast {
		return v >= t.limit
	}
	return v <= t.limit
}

// row judges by the median of the repetitions.
func (t target) row() []string {
	sign, verdict := "at most ", "**missed**"
	if t.atLeast {
		sign = "at least "
	}
	switch {
	case t.meets(t.got.median()):
		verdict = "met"
	case slices.ContainsFunc(t.got.Reps, t.meets):
		verdict = "**missed**, met in the best repetition"
	}
	return []string{t.text, sign + fmt.Sprintf(t.format, t.limit), t.got.spread(t.format), verdict}
}

// targets returns the table of all targets that the report has measurements for.
func (r *report) targets() table {
	half := func(who, metric string) *series { return r.find("latency", who, "1", metric) }
	var ts []target
	for _, t := range []struct {
		who, other, g string
		limit         float64
	}{
		{nameOurs, nameRedsync, "64", 7.5}, {nameOurs, nameRedsync, "256", 8.5},
		{nameOurs, nameLock, "64", 1}, {nameOurs, nameLock, "256", 1.3},
		{nameThree, nameLock, "64", 1.4}, {nameThree, nameLock, "256", 1.8},
	} {
		ts = append(ts, target{fmt.Sprintf("%s goroutines: CPU time of a cycle, %s as a multiple of %s", t.g, t.other, t.who), r.cpu(t.other, t.g).over(r.cpu(t.who, t.g)), true, t.limit, "%.2f"})
	}
	for _, t := range []struct {
		g     string
		limit float64
	}{{"64", 1}, {"256", 0.6}} {
		client := func(who string) *series { return r.find("throughput", who, t.g, mClientCPU) }
		ts = append(ts, target{t.g + " goroutines: the client's CPU time of a cycle, as a multiple of redislock's on one node", client(nameOurs).over(client(nameLock)), false, t.limit, "%.2f"})
	}
	ts = append(ts, []target{
		{"one goroutine: acquire p50, as a multiple of the bare quorum", half(nameOurs, mAcquire50).over(half(nameFloor, mAcquire50)), false, 1.15, "%.2f"},
		{"one goroutine: release p50, as a multiple of the bare quorum", half(nameOurs, mRelease50).over(half(nameFloor, mRelease50)), false, 1.15, "%.2f"},
		{"one goroutine: acquire p50, as a multiple of the bare quorum with our commands", half(nameOurs, mAcquire50).over(half(nameOurFloor, mAcquire50)), false, 1.15, "%.2f"},
		{"one goroutine: acquire p99, as a multiple of the bare quorum", half(nameOurs, mAcquire99).over(half(nameFloor, mAcquire99)), false, 1.5, "%.2f"},
	}...)
	far := places[len(places)-1]
	for _, m := range []string{mAcquire50, mRelease50} {
		for _, g := range distanceGoroutines {
			limit := distanceTarget*far.third() + r.proxyError(far, g, m).median()
			ts = append(ts, target{fmt.Sprintf("round trips %v ms, %s: %s, ms", far, goroutines(g), m[:len(m)-len(" ms")]), r.find("distance", nameOurs, distanceCase(far, g), m), false, limit, "%.2f"})
		}
	}
	for _, g := range faultGoroutines {
		for _, c := range []string{oneDead, oneHung, oneSlow} {
			worst, which := new(series), halves[0]
			for _, m := range halves {
				s := r.find(faultSection(g), nameOurs, c, m).over(r.find(faultSection(g), nameOurs, allUp, m))
				if s.median() > worst.median() {
					worst, which = s, m
				}
			}
			ts = append(ts, target{fmt.Sprintf("%s of five, %s: worst of p50 and p99, as a multiple of all up (%s)", c, goroutines(g), which[:len(which)-len(" ms")]), worst, false, faultTarget, "%.2f"})
		}
	}
	kib := func(bytes float64) float64 { return bytes / 1024 }
	for _, g := range allocGoroutines {
		cycle := func(metric string) *series { return r.find("allocs", nameOurs, fmt.Sprint(g), metric) }
		limit := 30.0
		if g == 1 {
			limit = 60
		}
		ts = append(ts, target{"allocations per cycle, " + goroutines(g), cycle(mAllocs), false, limit, "%.0f"},
			target{"KiB allocated per cycle, " + goroutines(g), cycle(mBytes).each(kib), false, 3, "%.1f"})
	}
	if counts := r.cases("held", mHeldHeap); len(counts) > 0 {
		n := counts[len(counts)-1]
		ts = append(ts, target{n + " held: lost", r.find("held", nameOurs, n, mHeldLost), false, 0, "%.0f"},
			target{n + " held: KiB of heap per lock", r.find("held", nameOurs, n, mHeldHeap).each(kib), false, 1.5, "%.2f"},
			target{n + " held: renewals in the busiest second, as a multiple of the mean", r.find("held", nameOurs, n, mHeldBusiest), false, 1.5, "%.2f"})
	}
	ts = append(ts, r.waitingTargets()...)
	t := table{"targets", "Targets, and whether they were met", [][]string{{"", "target", "measured", ""}}}
	for _, target := range ts {
		if len(target.got.Reps) > 0 {
			t.rows = append(t.rows, target.row())
		}
	}
	return t
}

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
	far := places[len(places)-1]
	for _, row := range []struct{ text, section, kase, metric, format string }{
		{"one caller: acquire, ms", "latency", "1", mAcquire50, "%.2f"},
		{"64 callers: cycles of acquire and release per second", "throughput", "64", mRate, "%.0f"},
		{"256 callers", "throughput", "256", mRate, "%.0f"},
		{"64 callers: CPU time of the client per cycle, µs", "throughput", "64", mClientCPU, "%.0f"},
		{"64 callers: CPU time of all servers per cycle, µs", "throughput", "64", mServersCPU, "%.0f"},
		{"one caller, one node is dead: acquire, ms", faultSection(1), oneDead, mAcquire50, "%.2f"},
		{"one caller, one node hangs: acquire, ms", faultSection(1), oneHung, mAcquire50, "%.2f"},
		{fmt.Sprintf("nodes %v ms away, 64 callers: acquire, ms", far), "distance", distanceCase(far, 64), mAcquire50, "%.1f"},
	} {
		cells := []string{row.text}
		for _, who := range []string{nameOurs, nameRedsync, nameFloor, nameLock} {
			cells = append(cells, r.find(row.section, who, row.kase, row.metric).cell(row.format))
		}
		t.rows = append(t.rows, cells)
	}
	return t
}
