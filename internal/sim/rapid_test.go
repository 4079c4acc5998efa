package sim

import (
	"flag"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// drawn makes choices with rapid, so that they can shrink.
type drawn struct{ t *rapid.T }

func (d drawn) IntN(n int, what string) int { return rapid.IntRange(0, n-1).Draw(d.t, what) }

// drawSchedule draws a short run of a profile. Tasks and faults are separate lists, so that a failing schedule shrinks to the
// ones that matter.
func drawSchedule(t *rapid.T, p *Profile) *Schedule {
	d := drawn{t}
	sch := environment(d, p, uint64(d.IntN(1<<16, "seed")))
	at := time.Duration(0)
	task := rapid.Custom(func(t *rapid.T) Task {
		d := drawn{t}
		return p.task(d, sch, gap(d, p.Every))
	})
	for _, task := range rapid.SliceOfN(task, 1, 16).Draw(t, "tasks") {
		at += task.At // up to here, At is the time since the previous task
		task.At = at
		sch.Tasks = append(sch.Tasks, task)
	}
	if len(p.Faults) == 0 {
		return sch
	}
	at = 0
	fault := rapid.Custom(func(t *rapid.T) Fault {
		d := drawn{t}
		return p.fault(d, sch, gap(d, p.FaultEvery))
	})
	for _, fault := range rapid.SliceOfN(fault, 0, 12).Draw(t, "faults") {
		at += fault.At
		fault.At = at
		sch.Faults = append(sch.Faults, fault)
	}
	return sch
}

// TestRapid draws short schedules of all profiles, which can shrink. -rapid.checks sets their number; -rapid.seed repeats
// one.
func TestRapid(t *testing.T) {
	if f := flag.Lookup("rapid.checks"); f.Value.String() == f.DefValue {
		f.Value.Set("40")
		defer f.Value.Set(f.DefValue)
	}
	runs, claims := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		p := Profiles[drawn{rt}.IntN(len(Profiles), "profile")]
		h := Run(t, drawSchedule(rt, p), false)
		runs, claims = runs+1, claims+len(h.Claims)
		if bad := verdict(h); len(bad) > 0 {
			rt.Fatalf("%s", h.Report(bad))
		}
	})
	t.Logf("%d schedules, %d acquisitions judged", runs, claims)
	if !t.Failed() && claims < runs {
		t.Errorf("%d acquisitions in %d schedules: too few to mean anything", claims, runs)
	}
}
