package sim

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestRealMutants plays the rounds of TestReal with the mutants that REDLOCK_REAL_MUTANTS names, or with all ("1"), each for
// REDLOCK_REAL at most, and tells which are found. Those that are not are no failure here: the simulation has them all.
func TestRealMutants(t *testing.T) {
	which := os.Getenv("REDLOCK_REAL_MUTANTS")
	if which == "" {
		t.Skip("REDLOCK_REAL_MUTANTS=overwrite,half plays these mutants on real servers")
	}
	limit := os.Getenv("REDLOCK_REAL")
	if limit == "" {
		limit = "1m"
	}
	found, played := 0, 0
	for _, m := range mutants {
		if which != "1" && !strings.Contains(","+which+",", ","+m.name+",") {
			continue
		}
		played++
		bin := filepath.Join(t.TempDir(), m.name)
		build := exec.Command("go", "test", "-c", "-overlay", realOverlay(t, &m), "-o", bin, "./internal/sim")
		build.Dir = root(t)
		if out, err := build.CombinedOutput(); err != nil {
			t.Errorf("mutant %s: %v\n%s", m.name, err, out)
			continue
		}
		began := time.Now()
		play := exec.Command(bin, "-test.run=^TestReal$", "-test.v", "-test.timeout=30m")
		play.Dir = filepath.Join(root(t), "internal", "sim")
		play.Env = append(os.Environ(), "REDLOCK_REAL="+limit)
		out, err := play.CombinedOutput()
		os.Remove(bin)
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

// realCaught finds the first violation in a report.
var realCaught = regexp.MustCompile(`(?m)caught after .*\n.* violations\n\s*(.*)$`)

// realOverlay writes the mutant's files and the -overlay that puts them in place of the library's.
func realOverlay(t *testing.T, m *mutant) string {
	dir, texts, replace := t.TempDir(), map[string]string{}, map[string]string{}
	for _, p := range m.patches {
		file := filepath.Join(root(t), p.file)
		if texts[file] == "" {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			texts[file] = string(b)
		}
		if strings.Count(texts[file], p.old) != 1 {
			t.Fatalf("mutant %s: its patch of %s does not match once", m.name, p.file)
		}
		texts[file] = strings.Replace(texts[file], p.old, p.new, 1)
	}
	for file, text := range texts {
		to := filepath.Join(dir, filepath.Base(file))
		if err := os.WriteFile(to, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		replace[file] = to
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}
