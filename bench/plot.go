package main

import (
	"errors"
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// colors are one for each subject, the same in all plots; ours is the first.
var colors = map[string]color.Color{
	nameOurs:     color.RGBA{R: 0xc0, G: 0x39, B: 0x2b, A: 0xff},
	nameRedsync:  color.RGBA{R: 0x1f, G: 0x61, B: 0x8d, A: 0xff},
	nameFailFast: color.RGBA{R: 0x5d, G: 0xad, B: 0xe2, A: 0xff},
	nameFloor:    color.RGBA{R: 0x7f, G: 0x8c, B: 0x8d, A: 0xff},
	nameOurFloor: color.RGBA{R: 0x42, G: 0x49, B: 0x49, A: 0xff},
	nameAuto:     color.RGBA{R: 0xbf, G: 0xc9, B: 0xca, A: 0xff},
	nameLock:     color.RGBA{R: 0x1e, G: 0x84, B: 0x49, A: 0xff},
	nameBare:     color.RGBA{R: 0x7d, G: 0xce, B: 0xa0, A: 0xff},
	nameRueidis:  color.RGBA{R: 0xb7, G: 0x95, B: 0x0b, A: 0xff},
	kindFair:     color.RGBA{R: 0xe6, G: 0x7e, B: 0x22, A: 0xff},
}

// A line is one subject over something that grows.
type line struct {
	name string
	x    []float64
	y    []*series
}

// plot draws what the report has into a folder, one SVG each.
func (r *report) plot(folder string) error {
	return errors.Join(
		r.plotThroughput(folder), r.plotDistance(folder), r.plotFaults(folder), r.plotNodes(folder), r.plotCrowd(folder))
}

func (r *report) plotThroughput(folder string) error {
	const section = "throughput"
	var rates, ratios []line
	for _, c := range r.subjects(section, mRate) {
		l, q := line{name: c}, line{name: c}
		for _, g := range throughputGoroutines {
			s := r.find(section, c, strconv.Itoa(g), mRate)
			l.x, l.y = append(l.x, float64(g)), append(l.y, s)
			q.x, q.y = append(q.x, float64(g)), append(q.y, s.over(r.find(section, nameOurs, strconv.Itoa(g), mRate)).each(func(v float64) float64 { return 1 / v }))
		}
		rates = append(rates, l)
		if c != nameOurs {
			ratios = append(ratios, q)
		}
	}
	return errors.Join(
		lines(folder, "throughput.svg", "Cycles of acquire and release", "goroutines", "cycles a second", rates),
		lines(folder, "throughput-ratio.svg", "redlock on five nodes as a multiple of", "goroutines", "times", ratios))
}

func (r *report) plotDistance(folder string) error {
	var ls []line
	for _, c := range r.subjects("distance", mAcquire50) {
		l := line{name: c}
		for _, p := range places {
			if p[0] == p[4] && p[0] > 0 {
				l.x, l.y = append(l.x, float64(p[0])), append(l.y, r.find("distance", c, distanceCase(p, 256), mAcquire50))
			}
		}
		ls = append(ls, l)
	}
	return lines(folder, "distance.svg", "Acquire with 256 goroutines, five nodes equally far", "round trip, ms", "p50, ms", ls)
}

func (r *report) plotNodes(folder string) error {
	var ls []line
	for _, c := range []string{nameOurs, nameRedsync} {
		for _, g := range []int{64} {
			l := line{name: c}
			for _, n := range nodeCounts {
				l.x = append(l.x, float64(n))
				l.y = append(l.y, r.find("nodes", c, nodesCase(n, g), mRate))
			}
			ls = append(ls, l)
		}
	}
	return lines(folder, "nodes.svg", "64 goroutines, client and servers on one machine", "nodes", "cycles a second", ls)
}

func (r *report) plotCrowd(folder string) error {
	var ls []line
	for _, c := range r.subjects("waiting: crowd", mHandovers) {
		l := line{name: c}
		for _, size := range crowdSizes {
			l.x = append(l.x, float64(size.processes*size.each))
			l.y = append(l.y, r.find("waiting: crowd", c, size.String(), mHandovers))
		}
		ls = append(ls, l)
	}
	return lines(folder, "waiting.svg", "One key that all want, held for 1 ms", "contenders in two to four processes", "holders a second", ls)
}

// plotFaults is bars: what each fault makes of the healthy figure.
func (r *report) plotFaults(folder string) error {
	section := faultSection(64)
	cases := r.cases(section, mFailed)
	if len(cases) < 2 {
		return nil
	}
	p := newPlot("redlock, 64 goroutines, with nodes at fault", "", "times all up")
	p.NominalX(cases[1:]...)
	const width = 14
	shades := []string{nameOurs, kindFair, nameRedsync, nameFailFast}
	for i, m := range halves {
		var values plotter.Values
		for _, c := range cases[1:] {
			values = append(values, r.find(section, nameOurs, c, m).over(r.find(section, nameOurs, allUp, m)).median())
		}
		bars, err := plotter.NewBarChart(values, vg.Points(width))
		if err != nil {
			return err
		}
		bars.Color, bars.LineStyle.Width = colors[shades[i]], 0
		bars.Offset = vg.Points(width * (float64(i) - 1.5))
		p.Add(bars)
		p.Legend.Add(m[:len(m)-len(" ms")], bars)
	}
	limit := plotter.NewFunction(func(float64) float64 { return faultTarget })
	limit.Dashes = []vg.Length{vg.Points(4), vg.Points(4)}
	p.Add(limit)
	p.Legend.Add(fmt.Sprint("the aim: ", faultTarget), limit)
	p.Y.Min, p.Y.Max = 0, max(p.Y.Max, faultTarget)*1.05
	return save(p, filepath.Join(folder, "faults.svg"))
}

// save draws the legend beside the plot and not into it.
func save(p *plot.Plot, file string) error {
	legend := p.Legend
	p.Legend = plot.NewLegend()
	const width, height, beside = 23 * vg.Centimeter, 10 * vg.Centimeter, 8.5 * vg.Centimeter
	c := vgsvg.New(width, height)
	all := draw.New(c)
	all.FillPolygon(color.White, []vg.Point{{}, {X: width}, {X: width, Y: height}, {Y: height}})
	p.Draw(draw.Crop(all, 0, -beside, 0, 0))
	legend.Top, legend.Left = true, true
	legend.Draw(draw.Crop(all, width-beside+0.3*vg.Centimeter, 0, 0, -0.8*vg.Centimeter))
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	_, err = c.WriteTo(f)
	return errors.Join(err, f.Close())
}

func newPlot(title, x, y string) *plot.Plot {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.Legend.ThumbnailWidth = vg.Points(18)
	p.Legend.YPosition = draw.PosCenter
	p.Legend.Padding = vg.Points(3)
	return p
}

// lines draws the medians, on logarithmic scales, with the least and the most as bars. It draws nothing where there is nothing.
func lines(folder, file, title, x, y string, ls []line) error {
	p := newPlot(title, x, y)
	ticks := make(map[float64]bool)
	drawn := 0
	for _, l := range ls {
		var points spreads
		for i, s := range l.y {
			if len(s.Reps) > 0 && s.median() > 0 {
				points = append(points, spreadPoint{l.x[i], s.median(), quantile(s.Reps, 0), quantile(s.Reps, 1)})
				ticks[l.x[i]] = true
			}
		}
		if len(points) == 0 {
			continue
		}
		drawn++
		graph, dots, err := plotter.NewLinePoints(points)
		if err != nil {
			return err
		}
		bars, err := plotter.NewYErrorBars(points)
		if err != nil {
			return err
		}
		c, ok := colors[l.name]
		if !ok {
			c = color.Black
		}
		graph.Color, dots.Color, bars.Color = c, c, c
		graph.Width = vg.Points(1.2)
		if l.name == nameOurs {
			graph.Width = vg.Points(2.4)
		}
		dots.Shape = draw.CircleGlyph{}
		p.Add(graph, dots, bars)
		p.Legend.Add(l.name, graph, dots)
	}
	if drawn == 0 {
		return nil
	}
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	var at []plot.Tick
	for v := range ticks {
		at = append(at, plot.Tick{Value: v, Label: strconv.FormatFloat(v, 'f', -1, 64)})
	}
	p.X.Tick.Marker = plot.ConstantTicks(at)
	p.Y.Tick.Marker = decades{}
	p.Add(plotter.NewGrid())
	return save(p, filepath.Join(folder, file))
}

type spreadPoint struct{ x, y, least, most float64 }

type spreads []spreadPoint

func (s spreads) Len() int                        { return len(s) }
func (s spreads) XY(i int) (float64, float64)     { return s[i].x, s[i].y }
func (s spreads) YError(i int) (float64, float64) { return s[i].y - s[i].least, s[i].most - s[i].y }

// decades marks 1, 2 and 5 of each power of ten.
type decades struct{}

func (decades) Ticks(least, most float64) (ticks []plot.Tick) {
	for e := math.Floor(math.Log10(least)); e <= math.Ceil(math.Log10(most)); e++ {
		for _, m := range []float64{1, 2, 5} {
			if v := m * math.Pow(10, e); v >= least && v <= most {
				ticks = append(ticks, plot.Tick{Value: v, Label: strconv.FormatFloat(v, 'f', -1, 64)})
			}
		}
	}
	return ticks
}
