package demo

import (
	"fmt"
	"strings"
)

// A tally is what happened in a demo. Its verdict is drawn from nothing else.
type tally struct {
	entered   int   // times that somebody was given the lock
	overlaps  int   // entries that met another inside whose lock was still valid
	overslept int   // entries that met one who was past its Until and had not noticed yet
	fence     int64 // of the last entry
	repeated  int   // entries whose fence was not greater than the one before

	inside map[int]func() bool // workers in the critical section now, and whether their locks are valid

	increments int64 // sections that ended with a write
	counter    int64 // what came of them; set at the end

	renewals, lost, died           int
	killed, hung, revived, trouble int
}

// enter notes that a worker begins its critical section, by the worker itself.
//
// Who is still inside past its Until is no overlap: where the machine stood still for
// longer than the lock was valid, its holder learns of that when it is given the
// processor again, and the next one may be faster. No lock can do better; what it must
// not do is write, and the counter tells if it did.
func (t *tally) enter(worker int, fence int64, valid func() bool) {
	t.entered++
	met, late := false, false
	for _, v := range t.inside {
		if v() {
			met = true
		} else {
			late = true
		}
	}
	if met {
		t.overlaps++
	} else if late {
		t.overslept++
	}
	if fence <= t.fence {
		t.repeated++
	}
	t.fence = fence
	if t.inside == nil {
		t.inside = make(map[int]func() bool)
	}
	t.inside[worker] = valid
}

func (t *tally) leave(worker int) { delete(t.inside, worker) }

// A finding is one line of the verdict.
type finding struct {
	what string
	got  string
	ok   bool
}

// findings judge. A demo in which nobody ever got the lock has shown nothing.
func (t *tally) findings() []finding {
	fences := "yes"
	if t.repeated > 0 {
		fences = fmt.Sprintf("no, %d times not", t.repeated)
	}
	return []finding{
		{"increments made", fmt.Sprint(t.increments), t.increments > 0},
		{"counter", fmt.Sprintf("%d, want %d", t.counter, t.increments), t.counter == t.increments},
		{"overlaps", fmt.Sprint(t.overlaps), t.overlaps == 0},
		{"fences strictly growing", fences, t.repeated == 0},
	}
}

func (t *tally) ok() bool {
	for _, f := range t.findings() {
		if !f.ok {
			return false
		}
	}
	return true
}

// verdict is the text at the end.
func (t *tally) verdict(p paint) string {
	var b strings.Builder
	b.WriteString("verdict\n")
	for _, f := range t.findings() {
		mark := p.good("ok")
		if !f.ok {
			mark = p.bad("FAILED")
		}
		fmt.Fprintf(&b, "  %-25s %-26s %s\n", f.what, f.got, mark)
	}
	note := func(what, format string, args ...any) {
		fmt.Fprintf(&b, "  %-25s %s\n", what, fmt.Sprintf(format, args...))
	}
	note("nodes", "%d killed, %d hung, %d revived", t.killed, t.hung, t.revived)
	note("workers", "%d died holding the lock", t.died)
	note("renewals", "%d", t.renewals)
	note("losses told in time", "%d", t.lost)
	if t.overslept > 0 {
		note("holders that overslept", "%d: the machine stalled for longer than the ttl", t.overslept)
	}
	if t.trouble > 0 {
		note("troubles", "%d, see above", t.trouble)
	}
	if t.ok() {
		b.WriteString(p.good("the lock held") + "\n")
	} else {
		b.WriteString(p.bad("THE LOCK DID NOT HOLD") + "\n")
	}
	return b.String()
}
