package demo

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// A paint reports whether to use colours.
type paint bool

func (p paint) in(code, s string) string {
	if !p {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

func (p paint) good(s string) string { return p.in("1;32", s) }
func (p paint) warn(s string) string { return p.in("33", s) }
func (p paint) bad(s string) string  { return p.in("1;31", s) }
func (p paint) dim(s string) string  { return p.in("2", s) }
func (p paint) bold(s string) string { return p.in("1", s) }

// verdict returns the word for a check that holds, or for one that does not.
func (p paint) verdict(ok bool, good, bad string) string {
	if ok {
		return p.good(good)
	}
	return p.bad(bad)
}

const (
	frameEvery  = 100 * time.Millisecond
	screenWidth = 79 // a cursor in the 80th column wraps on some terminals
	fixedLines  = 11 // of the screen, in addition to one line for each worker and each event
	mostEvents  = 7
	leastEvents = 2
)

// eventLines returns how many events a terminal has room for; ok is false if the terminal is too small for the screen.
func eventLines(workers, columns, rows int) (n int, ok bool) {
	n = min(rows-1-fixedLines-workers, mostEvents)
	return n, columns > screenWidth && n >= leastEvents
}

// Fits reports whether a terminal is large enough for a Screen with that many workers.
func Fits(workers, columns, rows int) bool {
	_, ok := eventLines(workers, columns, rows)
	return ok
}

// Screen returns a view that redraws a terminal in place. Earlier output stays above it, and the last frame remains at
// the end. It calls size before each frame.
func Screen(out io.Writer, colour bool, size func() (columns, rows int)) View {
	return &screen{out: out, paint: paint(colour), size: size}
}

type screen struct {
	out   io.Writer
	paint paint
	size  func() (columns, rows int)
	drawn int // number of lines of the last frame
}

func (s *screen) palette() paint { return s.paint }

func (s *screen) show(d *Demo, done <-chan struct{}) {
	fmt.Fprint(s.out, "\x1b[?25l") // hide the cursor
	defer s.Leave()
	t := time.NewTicker(frameEvery)
	defer t.Stop()
	for {
		s.draw(d)
		select {
		case <-t.C:
		case <-done:
			s.draw(d)
			return
		}
	}
}

// Leave shows the cursor again, on an empty line below the frame, where the terminal may have echoed a ^C.
func (s *screen) Leave() { fmt.Fprint(s.out, "\r\x1b[K\x1b[?25h") }

// draw moves to the first line of the last frame and writes over it.
func (s *screen) draw(d *Demo) {
	var b strings.Builder
	columns, rows := s.size()
	if events, ok := eventLines(d.Workers, columns, rows); !ok {
		// The terminal was made too small: the cursor cannot return over lines that wrapped
		// or scrolled away.
		b.WriteString("\x1b[H\x1b[J" + clipLine("too small for the demo: 80 columns, 24 lines needed", columns-1))
		s.drawn = 0
	} else {
		frame := s.frame(d, time.Now(), events)
		if s.drawn > 0 {
			fmt.Fprintf(&b, "\x1b[%dA", s.drawn)
		}
		for _, line := range frame {
			b.WriteString("\r" + line + "\x1b[K\n")
		}
		s.drawn = len(frame)
	}
	io.WriteString(s.out, b.String())
}

// frame returns the lines of the screen, each at most 79 columns wide.
func (s *screen) frame(d *Demo, now time.Time, events int) []string {
	p, st := s.paint, d.state
	st.mu.Lock()
	workers := slices.Clone(st.workers)
	var story []event
	for i := len(st.events) - 1; i >= 0 && len(story) < events; i-- {
		if !st.events[i].routine {
			story = append(story, st.events[i])
		}
	}
	slices.Reverse(story)
	t := st.tally
	st.mu.Unlock()

	title := fmt.Sprintf("redlock demo: %d workers, one counter, %d Redis masters; %d make a majority", len(workers), nodes, majority)
	out := []string{p.bold(title) + fmt.Sprintf("%*.1fs", screenWidth-len(title)-1, now.Sub(st.began).Seconds()), ""}

	names, states := nameCell(""), nameCell("")
	for _, n := range d.cluster {
		names += cell(n.name)
		h := n.health()
		states += p.verdict(h == up, cell(h.String()), cell(h.String()))
	}
	out = append(out, names+p.dim("      fencing token"), states)
	for _, a := range workers {
		out = append(out, s.worker(a, now))
	}
	out = append(out,
		"", p.dim(" yes: grants the lock   no: not its lock   -: no reply   .: not waited for"), "",
		fmt.Sprintf(" counter %s   overlaps %s   fences %s   renewals %d   losses %d",
			p.bold(fmt.Sprint(d.counter.n.Load())), p.verdict(t.overlaps == 0, "0", fmt.Sprint(t.overlaps)), p.verdict(t.repeated == 0, "increasing", "NOT INCREASING"), t.renewals, t.lost), "")
	for i := range events {
		line := ""
		if i < len(story) {
			e := story[i]
			line = clipLine(fmt.Sprintf("%6.1fs  %-8s  %s", e.at.Seconds(), e.who, e.text), screenWidth)
			if e.alarm {
				line = p.warn(line)
			}
		}
		out = append(out, line)
	}
	return out
}

// worker returns a worker's row: the votes of its last round, and its role.
func (s *screen) worker(a workerState, now time.Time) string {
	p := s.paint
	name, row := nameCell(a.name), ""
	for i := range nodes {
		if i >= len(a.round.Votes) || a.role == idle {
			row += cell("")
			continue
		}
		w := voteWord(a.round.Votes[i])
		switch {
		case w == "yes":
			row += p.good(cell(w))
		case w == "-":
			row += p.bad(cell(w))
		default:
			row += p.dim(cell(w))
		}
	}
	switch a.role {
	case waits:
		row += p.dim("waits " + tenths(now.Sub(a.since)))
	case holds:
		name = p.good(name)
		row += p.good("HOLDS") + fmt.Sprintf(" %d", a.fence)
		if a.renewed > 0 {
			row += fmt.Sprintf(" renewed %dx", a.renewed)
		}
	case dead:
		status := "DEAD, its lock has expired"
		if left := a.until.Sub(now); left > 0 {
			status = "DEAD, its lock expires in " + tenths(left)
		}
		row += p.warn(status)
	}
	return name + row
}

func tenths(d time.Duration) string { return fmt.Sprintf("%.1fs", max(d, 0).Seconds()) }

// cell pads a field of the table, nameCell the first one of a row.
func cell(s string) string { return fmt.Sprintf("%-7s", s) }

func nameCell(s string) string { return fmt.Sprintf(" %-9s", s) }

func clipLine(s string, width int) string {
	if len(s) > max(width, 0) {
		return s[:max(width, 0)]
	}
	return s
}
