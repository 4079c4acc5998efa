package sim

import (
	"os"
	"strconv"
	"testing"
)

// TestRunner is what internal/mutants starts a mutant's binary with, and whose output it reads: it plays REDLOCK_PROFILES over
// increasing seeds until a promise is broken, at most REDLOCK_RUNNER times each.
func TestRunner(t *testing.T) {
	runs, _ := strconv.Atoi(os.Getenv("REDLOCK_RUNNER"))
	if runs == 0 {
		t.Skip("for TestMutants")
	}
	seed, n := baseSeed(t, "REDLOCK_RUNNER"), 0
	for i := range runs {
		for _, p := range profiles(t) {
			n++
			h := Run(t, Generate(p, seed+uint64(i)), false)
			if bad := verdict(h); len(bad) > 0 {
				text := bad[0].Text
				if len(text) > 90 {
					text = text[:90] + "…"
				}
				t.Fatalf("caught: run %d, %s seed %d, %s: %s", n, p.Name, seed+uint64(i), bad[0].Promise, text)
			}
		}
	}
}
