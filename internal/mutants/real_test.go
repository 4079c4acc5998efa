package mutants

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestRealMutants runs the rounds of TestReal with the mutants that REDLOCK_REAL_MUTANTS names, or with all ("1"), each for at
// most REDLOCK_REAL, and reports which are found. A mutant that is not found is no failure here: the simulation has them all.
func TestRealMutants(t *testing.T) {
	which := os.Getenv("REDLOCK_REAL_MUTANTS")
	if which == "" {
		t.Skip("REDLOCK_REAL_MUTANTS=overwrite,half plays these mutants on real servers")
	}
	limit := os.Getenv("REDLOCK_REAL")
	if limit == "" {
		limit = "1m"
	}
	overlay := compose(t, t.TempDir(), mutants)
	if t.Failed() {
		return
	}
	bin := build(t, overlay, []string{simulator})[simulator]
	found, played := 0, 0
	for _, m := range mutants {
		if which != "1" && !strings.Contains(","+which+",", ","+m.name+",") {
			continue
		}
		played++
		began := time.Now()
		play := exec.Command(bin, "-test.run=^TestReal$", "-test.v", "-test.timeout=30m")
		play.Dir = filepath.Join(root(t), "internal", "sim")
		play.Env = append(os.Environ(), "REDLOCK_REAL="+limit, "REDLOCK_MUTANT="+m.name)
		out, err := play.CombinedOutput()
		took := time.Since(began).Round(time.Second)
		switch what := realCaught.FindSubmatch(out); {
		case what != nil:
			found++
			t.Logf("%-22s %s, round %d: %.160s", m.name, took, strings.Count(string(out), "=== RUN   TestReal/"), what[1])
		case err != nil:
			t.Errorf("%-22s crashed: %v\n%.2000s", m.name, err, out)
		default:
			t.Logf("%-22s not found in %s", m.name, took)
		}
	}
	t.Logf("%d of %d mutants found", found, played)
}

// realCaught returns the first violation in a report.
var realCaught = regexp.MustCompile(`(?m)caught after .*\n.* violations\n\s*(.*)$`)
