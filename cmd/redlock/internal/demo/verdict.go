package demo

import (
	"fmt"
	"slices"
	"strings"
)

// A tally counts what happened in a demo. The verdict depends on nothing else.
type tally struct {
	entered   int   // times that a worker acquired the lock
	overlaps  int   // entries while another worker was inside with a valid lock
	overslept int   // entries while another worker was inside with an expired lock that it had not noticed yet
	fence     int64 // of the last entry
	repeated  int   // entries whose fence was not greater than the one before

	inside map[int]func() bool // for each worker in the critical section, whether its lock is valid

	increments int64 // sections that ended with a write
	counter    int64 // the final value; set at the end

	renewals, lost, died           int
	killed, hung, revived, trouble int
}

// enter records that a worker begins its critical section. The worker itself calls it.
//
// Another worker that is still inside past its Until is no overlap: if the machine stands still for longer than the
// validity, that worker learns of the expiry only when it runs again, and the next holder may be scheduled first. No
// lock can prevent this. The late worker must not write any more; the counter shows if it did.
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

// findings returns the checks of the verdict. A demo in which nobody acquired the lock has shown nothing and fails.
func (t *tally) findings() []finding {
	fences := "yes"
	if t.repeated > 0 {
		fences = fmt.Sprintf("no, %d violations", t.repeated)
	}
	return []finding{
		{"increments made", fmt.Sprint(t.increments), t.increments > 0},
		{"counter", fmt.Sprintf("%d, want %d", t.counter, t.increments), t.counter == t.increments},
		{"overlaps", fmt.Sprint(t.overlaps), t.overlaps == 0},
		{"fences strictly increasing", fences, t.repeated == 0},
	}
}

func (t *tally) ok() bool {
	return !slices.ContainsFunc(t.findings(), func(f finding) bool { return !f.ok })
}

// verdict returns the text at the end.
func (t *tally) verdict(p paint) string {
	var b strings.Builder
	b.WriteString("verdict\n")
	for _, f := range t.findings() {
		fmt.Fprintf(&b, "  %-26s %-26s %s\n", f.what, f.got, p.verdict(f.ok, "ok", "FAILED"))
	}
	note := func(what, format string, args ...any) {
		fmt.Fprintf(&b, "  %-26s %s\n", what, fmt.Sprintf(format, args...))
	}
	note("nodes", "%d killed, %d hung, %d revived", t.killed, t.hung, t.revived)
	note("workers", "%d died holding the lock", t.died)
	note("renewals", "%d", t.renewals)
	note("losses noticed in time", "%d", t.lost)
	if t.overslept > 0 {
		note("holders past expiry", "%d: the machine stalled for longer than the ttl", t.overslept)
	}
	if t.trouble > 0 {
		note("unexpected errors", "%d, see above", t.trouble)
	}
	return b.String() + p.verdict(t.ok(), "the lock held", "THE LOCK DID NOT HOLD") + "\n"
}
