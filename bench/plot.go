package main

import (
	"errors"
	"fmt"
	"image/color"
	"math"
	"path/filepath"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// colors has one color for each subject, the same in all plots.
var colors = map[string]rgb{
	nameOurs: 0xc0392b, nameFair: 0xe67e22, nameRedsync: 0x1f618d, nameFailFast: 0x5dade2,
	nameFloor: 0x7f8c8d, nameOurFloor: 0x424949, nameAuto: 0xbfc9ca,
	nameLock: 0x1e8449, nameBare: 0x7dcea0, nameRueidis: 0xb7950b,
}

type rgb uint32

func (c rgb) RGBA() (r, g, b, a uint32) {
	return color.RGBA{byte(c >> 16), byte(c >> 8), byte(c), 0xff}.RGBA()
}

// plot draws SVG files into a folder.
func (r *report) plot(folder string) error {
	draw := func(file, title, x, y string, subjects []string, xs []float64, at func(subject string, i int) *series) error {
		return lines(filepath.Join(folder, file), title, x, y, subjects, xs, at)
	}
	subjects := r.subjects("throughput", mRate)
	rate := func(c string, i int) *series {
		return r.find("throughput", c, fmt.Sprint(throughputGoroutines[i]), mRate)
	}
	var trips, contenders []float64
	var even []place
	for _, p := range places {
		if p.even() && p[0] > 0 {
			even, trips = append(even, p), append(trips, float64(p[0]))
		}
	}
	for _, size := range crowdSizes {
		contenders = append(contenders, float64(size.processes*size.each))
	}
	return errors.Join(
		draw("throughput.svg", "Cycles of acquire and release", "goroutines", "cycles per second", subjects, floats(throughputGoroutines), rate),
		draw("throughput-ratio.svg", "Cycles per second of redlock on five nodes, as a multiple of", "goroutines", "multiple", without(subjects, nameOurs), floats(throughputGoroutines), func(c string, i int) *series {
			return rate(c, i).over(rate(nameOurs, i)).each(func(v float64) float64 { return 1 / v })
		}),
		draw("distance.svg", "Acquire with 256 goroutines, five nodes equally far", "round trip, ms", "p50, ms", r.subjects("distance", mAcquire50), trips, func(c string, i int) *series {
			return r.find("distance", c, distanceCase(even[i], 256), mAcquire50)
		}),
		draw("nodes.svg", "64 goroutines, client and servers on one machine", "nodes", "cycles per second", []string{nameOurs, nameRedsync}, floats(nodeCounts), func(c string, i int) *series {
			return r.find("nodes", c, nodesCase(nodeCounts[i], 64), mRate)
		}),
		draw("waiting.svg", "One contended key, held for 1 ms", "contenders in two to four processes", "holders per second", r.subjects(crowdSection, mHandovers), contenders, func(c string, i int) *series {
			return r.find(crowdSection, c, crowdSizes[i].String(), mHandovers)
		}),
		r.plotFaults(filepath.Join(folder, "faults.svg")))
}

func floats(ints []int) (fs []float64) {
	for _, i := range ints {
		fs = append(fs, float64(i))
	}
	return fs
}

// plotFaults draws a bar for each fault and half of a cycle, as a multiple of the healthy figure.
func (r *report) plotFaults(file string) error {
	find := func(c, m string) *series { return r.find(faultSection(64), nameOurs, c, m) }
	cases := without(r.cases(faultSection(64), mFailed), allUp)
	if len(cases) == 0 {
		return nil
	}
	p := newPlot("redlock with faulty nodes, 64 goroutines", "", "multiple of all up")
	p.NominalX(cases...)
	const width = 14
	for i, m := range halves {
		var ratios plotter.Values
		for _, c := range cases {
			ratios = append(ratios, find(c, m).over(find(allUp, m)).median())
		}
		bars, err := plotter.NewBarChart(ratios, vg.Points(width))
		if err != nil {
			return err
		}
		bars.Color, bars.LineStyle.Width = colors[[]string{nameOurs, nameFair, nameRedsync, nameFailFast}[i]], 0
		bars.Offset = vg.Points(width * (float64(i) - 1.5))
		p.Add(bars)
		p.Legend.Add(m[:len(m)-len(" ms")], bars)
	}
	limit := plotter.NewFunction(func(float64) float64 { return faultTarget })
	limit.XMax = float64(len(cases)) - 0.5
	limit.Dashes = []vg.Length{vg.Points(4), vg.Points(4)}
	p.Add(limit)
	p.Legend.Add(fmt.Sprint("target: ", faultTarget), limit)
	p.Y.Min, p.Y.Max = 0, max(p.Y.Max, faultTarget)*1.05
	p.X.Max += 2 // room for the legend
	return save(p, file)
}

func newPlot(title, x, y string) *plot.Plot {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	// On the right side, but aligned to the left: the width of text depends on the viewer's fonts.
	p.Legend.Top, p.Legend.Left, p.Legend.XOffs = true, true, 14.7*vg.Centimeter
	p.Legend.TextStyle.Font.Size = 11
	p.Legend.YPosition, p.Legend.Padding = draw.PosCenter, vg.Points(2)
	return p
}

func save(p *plot.Plot, file string) error { return p.Save(23*vg.Centimeter, 10*vg.Centimeter, file) }

// lines draws a line for each subject, on logarithmic scales: the medians, and the minima and maxima as error bars. Without
// measurements it draws nothing.
func lines(file, title, x, y string, subjects []string, xs []float64, at func(subject string, i int) *series) error {
	p := newPlot(title, x, y)
	var ticks []plot.Tick
	for _, subject := range subjects {
		var points spreads
		for i, x := range xs {
			s := at(subject, i)
			if m := s.median(); m > 0 {
				points.XYs = append(points.XYs, plotter.XY{X: x, Y: m})
				points.YErrors = append(points.YErrors, struct{ Low, High float64 }{m - quantile(s.Reps, 0), quantile(s.Reps, 1) - m})
				if tick := (plot.Tick{Value: x, Label: fmt.Sprint(x)}); !slices.Contains(ticks, tick) {
					ticks = append(ticks, tick)
				}
			}
		}
		if len(points.XYs) == 0 {
			continue
		}
		graph, dots, err := plotter.NewLinePoints(points)
		if err != nil {
			return err
		}
		bars, err := plotter.NewYErrorBars(points)
		if err != nil {
			return err
		}
		graph.Color, dots.Color, bars.Color = colors[subject], colors[subject], colors[subject]
		graph.Width = vg.Points(1.2)
		if subject == nameOurs {
			graph.Width = vg.Points(2.4)
		}
		dots.Shape = draw.CircleGlyph{}
		p.Add(graph, dots, bars)
		p.Legend.Add(subject, graph, dots)
	}
	if len(ticks) == 0 {
		return nil
	}
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Max *= math.Pow(p.X.Max/p.X.Min, 0.7) // room for the legend
	p.Y.Tick.Marker = plot.TickerFunc(decades)
	p.X.Tick.Marker = plot.ConstantTicks(ticks)
	p.Add(plotter.NewGrid())
	return save(p, file)
}

type spreads struct {
	plotter.XYs
	plotter.YErrors
}

// decades marks 1, 2 and 5 of each power of ten.
func decades(least, most float64) (ticks []plot.Tick) {
	for e := math.Floor(math.Log10(least)); e <= math.Ceil(math.Log10(most)); e++ {
		for _, m := range []float64{1, 2, 5} {
			if v := m * math.Pow(10, e); v >= least && v <= most {
				ticks = append(ticks, plot.Tick{Value: v, Label: fmt.Sprint(v)})
			}
		}
	}
	return ticks
}
