package main

import (
	"fmt"
	"slices"
)

// A target is what was promised of one quantity: at least or at most so much.
type target struct {
	text    string
	got     *series
	atLeast bool
	limit   float64
	format  string
}

// targets is what was aimed at, and what came of it. The median of the repetitions decides.
func (r *report) targets() table {
	rate := func(who string, g int) *series { return r.find("throughput", who, fmt.Sprint(g), mRate) }
	half := func(who, metric string) *series { return r.find("latency", who, "1", metric) }
	atLeast := func(text string, got *series, limit float64) target { return target{text, got, true, limit, "%.2f"} }
	atMost := func(text string, got *series, limit float64) target { return target{text, got, false, limit, "%.2f"} }

	ts := []target{
		atLeast("64 goroutines: cycles/s, x redsync's", rate(nameOurs, 64).over(rate(nameRedsync, 64)), 7),
		atLeast("64 goroutines: cycles/s, x redislock's on one node", rate(nameOurs, 64).over(rate(nameLock, 64)), 1),
		atLeast("256 goroutines: cycles/s, x redsync's", rate(nameOurs, 256).over(rate(nameRedsync, 256)), 8),
		atMost("one goroutine: acquire p50, x the bare quorum's", half(nameOurs, mAcquire50).over(half(nameFloor, mAcquire50)), 1.15),
		atMost("one goroutine: acquire p50, x the bare quorum's with our commands", half(nameOurs, mAcquire50).over(half(nameOurFloor, mAcquire50)), 1.15),
		atMost("one goroutine: acquire p99, x the bare quorum's", half(nameOurs, mAcquire99).over(half(nameFloor, mAcquire99)), 1.5),
	}
	far := places[len(places)-1]
	for _, m := range []struct{ name, metric string }{{"acquire", mAcquire50}, {"release", mRelease50}} {
		for _, g := range distanceGoroutines {
			got := r.find("distance", nameOurs, distanceCase(far, g), m.metric)
			limit := distanceTarget*far.third() + r.proxyError(far, g, m.metric).median()
			ts = append(ts, atMost(fmt.Sprintf("round trips %v ms, %s: %s p50, ms", far, goroutines(g), m.name), got, limit))
		}
	}
	for _, g := range faultGoroutines {
		for _, c := range []string{oneDead, oneHung, oneSlow} {
			// The worst of the four that are held to it.
			worst := new(series)
			which := ""
			for _, m := range halves {
				s := r.find(faultSection(g), nameOurs, c, m).over(r.find(faultSection(g), nameOurs, allUp, m))
				if s.median() > worst.median() {
					worst, which = s, m
				}
			}
			if len(worst.Reps) == 0 {
				continue
			}
			ts = append(ts, atMost(fmt.Sprintf("%s of five, %s: x all up, the worst of p50 and p99 (%s)", c, goroutines(g), which[:len(which)-len(" ms")]), worst, faultTarget))
		}
	}
	for _, g := range allocGoroutines {
		cycle := func(metric string) *series { return r.find(sectionAllocs, nameOurs, fmt.Sprint(g), metric) }
		ts = append(ts,
			target{"allocations of a cycle, " + goroutines(g), cycle("allocations"), false, 45, "%.0f"},
			target{"KiB allocated by a cycle, " + goroutines(g), cycle("bytes allocated").each(kib), false, 3, "%.1f"})
	}
	if counts := r.cases("held", mHeldLost); len(counts) > 0 {
		n := counts[len(counts)-1]
		ts = append(ts,
			target{n + " held: lost", r.find("held", nameOurs, n, mHeldLost), false, 0, "%.0f"},
			target{n + " held: KiB of heap for each", r.find("held", nameOurs, n, mHeldHeap).each(kib), false, 1.5, "%.2f"})
	}

	rows := [][]string{{"", "target", "measured", ""}}
	for _, t := range ts {
		if len(t.got.Reps) == 0 {
			continue
		}
		sign, met := "at most ", t.got.median() <= t.limit
		if t.atLeast {
			sign, met = "at least ", t.got.median() >= t.limit
		}
		verdict := "met"
		if !met {
			verdict = "**missed**"
			if better := t.best(); t.atLeast && better >= t.limit || !t.atLeast && better <= t.limit {
				verdict = "**missed**, met in the best repetition"
			}
		}
		rows = append(rows, []string{t.text, sign + fmt.Sprintf(t.format, t.limit), t.got.spread(t.format), verdict})
	}
	return table{"targets", "What was aimed at, and what came of it", rows}
}

// summary is what a user asks first.
func (r *report) summary() table {
	who := []string{nameOurs, nameRedsync, nameFloor, nameLock}
	rows := [][]string{{"", "redlock", "redsync", "bare quorum: SET and DEL", "redislock, **one node**"}}
	row := func(text, section, kase, metric, format string) {
		cells := []string{text}
		for _, w := range who {
			cells = append(cells, r.find(section, w, kase, metric).cell(format))
		}
		rows = append(rows, cells)
	}
	far := places[len(places)-1]
	row("one caller: acquire, ms", "latency", "1", mAcquire50, "%.2f")
	row("64 callers: acquire and release, cycles a second", "throughput", "64", mRate, "%.0f")
	row("256 callers", "throughput", "256", mRate, "%.0f")
	row("64 callers: CPU of the client for a cycle, µs", "throughput", "64", mClientCPU, "%.0f")
	row("one caller, one node is dead: acquire, ms", faultSection(1), oneDead, mAcquire50, "%.2f")
	row("one caller, one node hangs: acquire, ms", faultSection(1), oneHung, mAcquire50, "%.2f")
	row(fmt.Sprintf("nodes %v ms away, 64 callers: acquire, ms", far), "distance", distanceCase(far, 64), mAcquire50, "%.1f")
	return table{"summary", "Five nodes, medians", rows}
}

func (t target) best() float64 {
	if t.atLeast {
		return slices.Max(t.got.Reps)
	}
	return slices.Min(t.got.Reps)
}

func kib(bytes float64) float64 { return bytes / 1024 }
