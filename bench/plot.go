package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// A bar is a row of a chart: the parts of its sum are drawn one behind the other.
type bar struct {
	name  string
	parts []float64
}

// plot draws cost.svg into a folder: the CPU time of one lock and release, and how long one takes with all nodes up and with
// one of them dead. Without measurements it draws nothing.
func (r *report) plot(folder string) {
	var cpu, took []bar
	for _, c := range []struct{ subject, name string }{
		{nameThree, "redlock, three nodes"}, {nameOurs, "redlock, five nodes"}, {nameLock, nameLock}, {nameBare, nameBare}, {nameRedsync, "redsync, five nodes"},
	} {
		if parts := r.medians("throughput", c.subject, "64", mClientCPU, mServersCPU); len(parts) > 0 {
			cpu = append(cpu, bar{c.name, parts})
		}
	}
	for _, subject := range []string{nameOurs, nameRedsync} {
		for _, c := range []string{allUp, oneDead} {
			if half := r.medians(faultSection(1), subject, c, mAcquire50, mRelease50); len(half) > 0 {
				took = append(took, bar{subject + ", " + c, []float64{half[0] + half[1]}})
			}
		}
	}
	if len(cpu) == 0 || len(took) == 0 {
		return
	}
	var b strings.Builder
	y := chart(&b, 0, "CPU time of one lock and its release, µs: client (dark) and all servers (light); 64 callers", cpu)
	y = chart(&b, y+14, "Time of one lock and its release, ms; one caller, five nodes", took)
	svg := fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 900 %d" font-family="Helvetica, Arial, sans-serif" font-size="15">
<rect width="100%%" height="100%%" fill="white"/>
%s</svg>
`, y+10, b.String())
	check(os.WriteFile(filepath.Join(folder, "cost.svg"), []byte(svg), 0o666))
}

// medians returns those of several metrics, or nothing if the subject was not measured.
func (r *report) medians(section, subject, kase string, metrics ...string) (medians []float64) {
	for _, m := range metrics {
		if s := r.find(section, subject, kase, m); len(s.Reps) > 0 {
			medians = append(medians, s.median())
		}
	}
	return medians
}

// chart writes a title and horizontal bars below y, and returns where they end. All bars have the same scale.
func chart(b *strings.Builder, y int, title string, bars []bar) int {
	const left, width, row = 200, 600, 26
	most := 0.0
	sums := make([]float64, len(bars))
	for i, bar := range bars {
		for _, v := range bar.parts {
			sums[i] += v
		}
		most = max(most, sums[i])
	}
	fmt.Fprintf(b, `<text x="12" y="%d" font-weight="bold">%s</text>`+"\n", y+26, title)
	y += 38
	for i, bar := range bars {
		colors := []string{"#5d6d7e", "#b9c2cb"}
		if strings.HasPrefix(bar.name, nameOurs) {
			colors = []string{"#c0392b", "#e8a098"}
		}
		fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="end">%s</text>`+"\n", left-8, y+16, bar.name)
		x := float64(left)
		for j, v := range bar.parts {
			w := v / most * width
			fmt.Fprintf(b, `<rect x="%.1f" y="%d" width="%.1f" height="20" fill="%s"/>`+"\n", x, y, w, colors[j])
			x += w
		}
		fmt.Fprintf(b, `<text x="%.1f" y="%d">%s</text>`+"\n", x+8, y+16, short(sums[i]))
		y += row
	}
	return y
}

// short formats a number with two digits, or without a fraction from 10 on.
func short(v float64) string {
	if v < 10 {
		return fmt.Sprintf("%.2g", v)
	}
	return fmt.Sprintf("%.0f", v)
}
