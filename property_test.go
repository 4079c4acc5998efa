package redlock_test

import (
	"flag"
	"strings"
	"testing"

	"github.com/seed-ce352c9b/redlock/internal/harness"
	"github.com/seed-ce352c9b/redlock/internal/sim"

	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { harness.Main(m) }

const (
	job         = harness.Job
	jobRegister = harness.JobRegister
	otherValue  = harness.OtherValue
	oneTrip     = harness.OneTrip
)

var profileNames = flag.String("profiles", "", "`names` of the simulation's profiles of which TestSchedules draws, separated by commas; all if empty")

// TestSchedules draws random schedules of calls and faults, executes them in the simulation, and judges the promises I1 to
// I5. rapid shrinks a schedule that breaks one. -rapid.checks sets the number of schedules, -rapid.seed repeats them, and
// -profiles selects the environments: internal/sim describes them.
//
// Attacks 16, 73, 75, 89, 90.
func TestSchedules(t *testing.T) {
	defer harness.Checks(60, 1000)()
	profiles := sim.Profiles
	if *profileNames != "" {
		profiles = nil
		for name := range strings.SplitSeq(*profileNames, ",") {
			p := sim.ProfileNamed(name)
			if p == nil {
				t.Fatalf("-profiles: there is no profile %q", name)
			}
			profiles = append(profiles, p)
		}
	}
	runs, claims := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		p := profiles[rapid.IntRange(0, len(profiles)-1).Draw(rt, "profile")]
		h := sim.Run(t, sim.Draw(rt, p), false)
		runs, claims = runs+1, claims+len(h.Claims)
		if bad := sim.Judge(h); len(bad) > 0 {
			rt.Fatalf("%s", h.Report(bad))
		}
	})
	t.Logf("%d schedules, %d acquisitions judged", runs, claims)
	if !t.Failed() && claims < runs {
		t.Errorf("%d acquisitions in %d schedules: too few to be meaningful", claims, runs)
	}
}
