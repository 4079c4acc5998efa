package sim

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A line is one line of the timeline.
type line struct {
	at   instant
	rank int
	text string
}

// Timeline describes a run around the given instants, with one line per event: all of the run if it is short.
func (h *History) Timeline(key int, around ...instant) string {
	var lines []line
	add := func(at instant, rank int, format string, args ...any) {
		lines = append(lines, line{at, rank, fmt.Sprintf(format, args...)})
	}
	for _, f := range h.Struck {
		add(f.At, 0, "  !!  %s", f.Text)
	}
	for _, l := range h.Losses {
		what := "the register of"
		if !l.Register {
			what = l.Value + " on"
		}
		add(l.At, 1, "  !!  %s loses %s %s", nodeName(l.Node), what, h.Schedule.keyName(l.Key))
	}
	for _, o := range h.Ops {
		if o.Key != key && key >= 0 && !slices.Contains(o.Keys, key) {
			continue
		}
		text := ""
		if len(o.Keys) > 0 {
			text = fmt.Sprintf(" of %v", o.Keys)
		}
		if o.Text != "" {
			text += ": " + o.Text
		}
		if o.Returned != o.Called {
			add(o.Called, 2, "c%d.%-3d %s k%d …", o.Client, o.Task, o.Name, o.Key)
		}
		add(o.Returned, 3, "c%d.%-3d %s k%d → %s%s", o.Client, o.Task, o.Name, o.Key, o.Outcome, text)
	}
	for _, c := range h.Claims {
		if c.Key != key && key >= 0 {
			continue
		}
		add(c.Got, 4, "c%d.%-3d ┏━ holds k%d, fence %d, value %s, until %v", c.Client, c.Task, c.Key, c.Fence, c.Value, c.Until)
		if c.End() > c.Got {
			add(c.End(), 5, "c%d.%-3d ┗━ no longer holds k%d, fence %d (%s)", c.Client, c.Task, c.Key, c.Fence, c.Why)
		}
		if c.Forgotten != never {
			add(c.Forgotten, 1, "      c%d k%d fence %d is no longer stored on a majority", c.Client, c.Key, c.Fence)
		}
	}
	for _, w := range h.Writes {
		if w.Key != key && key >= 0 {
			continue
		}
		verb := "writes"
		if !w.Accepted {
			verb = "is refused by"
		}
		add(w.At, 6, "c%d     %s the store, fence %d", w.Client, verb, w.Fence)
	}
	slices.SortStableFunc(lines, func(a, b line) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.rank, b.rank)) })
	const whole = 150
	if len(lines) > whole {
		near := 2*h.Schedule.longest() + time.Second
		lines = slices.DeleteFunc(lines, func(l line) bool {
			for _, at := range around {
				if l.at > at-near && l.at < at+near/4 {
					return false
				}
			}
			return true
		})
	}
	var b strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&b, "%14s  %s\n", l.at.Round(time.Microsecond), l.text)
	}
	return b.String()
}

// Report describes a failed run: the violations, the schedule, the timeline around them and a picture.
func (h *History) Report(bad []Violation) string {
	var b strings.Builder
	const most = 6
	var around []instant
	key := bad[0].Key
	verdict := fmt.Sprintf("%s, seed %d: %d violations\n", h.Schedule.Profile, h.Schedule.Seed, len(bad))
	for i, v := range bad {
		if i == most {
			verdict += fmt.Sprintf("  … and %d more\n", len(bad)-most)
			break
		}
		verdict += fmt.Sprintf("  %v\n", v)
		around = append(around, v.At)
	}
	b.WriteString(verdict)
	fmt.Fprintf(&b, "schedule: %v", h.Schedule.around(around))
	fmt.Fprintf(&b, "timeline:\n%s", h.Timeline(key, around...))
	if path, err := h.Picture(); err != nil {
		fmt.Fprintf(&b, "no picture: %v\n", err)
	} else {
		fmt.Fprintf(&b, "picture: %s\n", path)
	}
	b.WriteString(verdict) // repeated, because often only the end of a long report is kept
	return b.String()
}

// around returns a long schedule reduced to the tasks and faults that may concern these instants.
func (s *Schedule) around(at []instant) *Schedule {
	const whole = 60
	if len(s.Tasks)+len(s.Faults) <= whole {
		return s
	}
	near := func(from, to time.Duration) bool {
		for _, at := range at {
			if to > at-2*s.longest() && from < at+time.Second {
				return true
			}
		}
		return false
	}
	short := *s
	short.Tasks = slices.DeleteFunc(slices.Clone(s.Tasks), func(t Task) bool { return !near(t.At, t.At+t.Wait+max(t.Hold, t.Late)) })
	short.Faults = slices.DeleteFunc(slices.Clone(s.Faults), func(f Fault) bool { return !near(f.At, f.At+f.For) })
	return &short
}
