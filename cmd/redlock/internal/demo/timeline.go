package demo

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"time"
)

// A span is a period in a row of the timeline: a node that was killed or hung, or a worker that waited for the lock,
// held it, or died holding it.
type span struct {
	worker   bool // of a worker, otherwise of a node
	lane     int
	from, to time.Duration
	health   health // of a node
	role     role   // of a worker
	fence    int64  // of a worker that held the lock
}

// The dimensions of the timeline, in pixels.
const (
	timelineWidth = 1000
	marginLeft    = 90
	marginRight   = 20
	headHeight    = 60
	laneHeight    = 24
	laneGap       = 14 // between nodes, workers and fences
	fenceHeight   = 60
	footHeight    = 30
)

// timelineColours are dark enough to be distinguished in print.
var timelineColours = map[string]string{
	"killed": "#c0392b", "hung": "#e39b1b", "waits": "#cfd8dc", "holds": "#2e8b57", "dead": "#34495e",
}

// WriteTimeline writes an SVG picture of the demo: a row for each node with the periods in which it was killed or hung,
// a row for each worker with the periods in which it waited for the lock and held it, and the fencing tokens over time.
// It is called after Play.
func (d *Demo) WriteTimeline(w io.Writer) error {
	s := d.state
	s.mu.Lock()
	length := time.Since(s.began)
	if d.Length > 0 {
		length = d.Length
	}
	past := slices.Clone(s.past)
	for i, n := range s.healths { // periods that had not ended
		if n.health != up {
			past = append(past, span{lane: i, from: n.since, to: length, health: n.health})
		}
	}
	for i, a := range s.workers {
		if a.role != idle {
			past = append(past, span{worker: true, lane: i, from: a.since.Sub(s.began), to: length, role: a.role, fence: a.fence})
		}
	}
	names := make([]string, len(s.workers))
	for i := range s.workers {
		names[i] = s.workers[i].name
	}
	s.mu.Unlock()
	p := &picture{w: bufio.NewWriter(w), length: length, workers: len(names)}
	p.draw(past, names)
	return p.w.Flush()
}

// A picture is a timeline that is being drawn. Its writer keeps the first error.
type picture struct {
	w       *bufio.Writer
	length  time.Duration
	workers int
}

func (p *picture) printf(format string, args ...any) { fmt.Fprintf(p.w, format+"\n", args...) }

// x returns the horizontal position of an instant.
func (p *picture) x(at time.Duration) float64 {
	at = min(max(at, 0), p.length)
	return marginLeft + float64(at)/float64(p.length)*(timelineWidth-marginLeft-marginRight)
}

// y returns the top of a row.
func (p *picture) y(worker bool, lane int) int {
	y := headHeight + lane*laneHeight
	if worker {
		y += nodes*laneHeight + laneGap
	}
	return y
}

func (p *picture) fenceTop() int { return p.y(true, p.workers) + laneGap }

func (p *picture) draw(past []span, names []string) {
	height := p.fenceTop() + fenceHeight + footHeight
	p.printf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12" role="img">`, timelineWidth, height)
	p.printf(`<title>redlock demo: %d nodes, %d workers, %s</title>`, nodes, p.workers, round(p.length))
	p.printf(`<rect width="%d" height="%d" fill="#ffffff"/>`, timelineWidth, height)
	p.printf(`<text x="%d" y="22" font-size="15">One lock on %d Redis masters, %d of them a majority: at most one worker holds it, whatever fails</text>`, marginLeft, nodes, majority)
	p.legend()
	for i := range nodes {
		p.lane(fmt.Sprintf("n%d", i+1), false, i)
	}
	for i, name := range names {
		p.lane(name, true, i)
	}
	for _, s := range past {
		p.span(s)
	}
	p.fences(past)
	p.axis(height)
	p.printf(`</svg>`)
}

func (p *picture) legend() {
	x := marginLeft
	for _, l := range []struct{ kind, text string }{
		{"killed", "node killed"}, {"hung", "node hung"}, {"waits", "worker waits"}, {"holds", "holds the lock"}, {"dead", "died holding it"},
	} {
		p.printf(`<rect x="%d" y="36" width="14" height="10" fill="%s"/><text x="%d" y="46">%s</text>`, x, timelineColours[l.kind], x+20, l.text)
		x += 130
	}
}

func (p *picture) lane(name string, worker bool, i int) {
	y := p.y(worker, i)
	p.printf(`<text x="%d" y="%d" text-anchor="end">%s</text>`, marginLeft-8, y+laneHeight-8, name)
	p.printf(`<rect x="%d" y="%d" width="%d" height="%d" fill="#f4f6f7"/>`, marginLeft, y+2, timelineWidth-marginLeft-marginRight, laneHeight-4)
}

func (p *picture) span(s span) {
	kind, text, inset := "", "", 2
	switch {
	case !s.worker && s.health == killed:
		kind, text = "killed", "killed"
	case !s.worker:
		kind, text = "hung", "hung"
	case s.role == waits:
		kind, text, inset = "waits", "waits", 9
	case s.role == holds:
		kind, text = "holds", fmt.Sprintf("holds, fence %d", s.fence)
	default:
		kind, text = "dead", "dead: its lock expires"
	}
	from, to := p.x(s.from), p.x(s.to)
	p.printf(`<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s"><title>%s, %.2f to %.2f s</title></rect>`,
		from, p.y(s.worker, s.lane)+inset, max(to-from, 1), laneHeight-2*inset, timelineColours[kind], text, s.from.Seconds(), s.to.Seconds())
}

// fences draws a point for the token of each holder. They rise from left to right if the tokens increase.
func (p *picture) fences(past []span) {
	var held []span
	for _, s := range past {
		if s.worker && s.role == holds {
			held = append(held, s)
		}
	}
	slices.SortFunc(held, func(a, b span) int { return int(a.from - b.from) })
	top := p.fenceTop()
	p.printf(`<text x="%d" y="%d" text-anchor="end">fence</text>`, marginLeft-8, top+fenceHeight/2+4)
	p.printf(`<rect x="%d" y="%d" width="%d" height="%d" fill="#f4f6f7"/>`, marginLeft, top, timelineWidth-marginLeft-marginRight, fenceHeight)
	if len(held) == 0 {
		return
	}
	least, most := held[0].fence, held[0].fence
	for _, s := range held {
		least, most = min(least, s.fence), max(most, s.fence)
	}
	for _, s := range held {
		share := float64(s.fence-least) / float64(max(most-least, 1))
		p.printf(`<circle cx="%.1f" cy="%.1f" r="2.5" fill="%s"/>`, p.x(s.from), float64(top+fenceHeight-6)-share*(fenceHeight-12), timelineColours["holds"])
	}
}

// axis marks the seconds.
func (p *picture) axis(height int) {
	step := time.Second
	for p.length/step > 12 {
		step *= 2
	}
	for at := time.Duration(0); at <= p.length; at += step {
		x := p.x(at)
		p.printf(`<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#90a4ae" stroke-width="0.5"/>`, x, headHeight, x, height-footHeight+4)
		p.printf(`<text x="%.1f" y="%d" text-anchor="middle" fill="#546e7a">%d s</text>`, x, height-10, at/time.Second)
	}
}
