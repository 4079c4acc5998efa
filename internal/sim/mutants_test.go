package sim

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// root is the module's directory.
func root(t *testing.T) string {
	_, file, _, ok := runtime.Caller(0)
	if !ok {
		t.Fatal("where am I?")
	}
	return filepath.Dir(filepath.Dir(filepath.Dir(file)))
}

// overlay writes the mutant's files and the -overlay that puts them in place of the library's. Each patch has to match once.
func (m *mutant) overlay(t *testing.T, dir string) string {
	t.Helper()
	texts := map[string]string{}
	for _, p := range m.patches {
		text, ok := texts[p.file]
		if !ok {
			b, err := os.ReadFile(filepath.Join(root(t), p.file))
			if err != nil {
				t.Fatalf("%s: %v", m.name, err)
			}
			text = string(b)
		}
		if n := strings.Count(text, p.old); n != 1 {
			t.Fatalf("mutant %s: its patch of %s matches %d times, not once: the source has changed, follow it in mutant_list_test.go\n%s", m.name, p.file, n, p.old)
		}
		texts[p.file] = strings.Replace(text, p.old, p.new, 1)
	}
	replace := map[string]string{}
	for file, text := range texts {
		to := filepath.Join(dir, m.name+"-"+filepath.Base(file))
		if err := os.WriteFile(to, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		replace[filepath.Join(root(t), file)] = to
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, m.name+".json")
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// build makes a test binary of a package over an overlay; "": none.
func build(t *testing.T, overlay, pkg, out string) error {
	args := []string{"test", "-c", "-ldflags=-s -w", "-o", out}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	cmd := exec.Command("go", append(args, pkg)...)
	cmd.Dir = root(t)
	if b, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%v\n%s", err, b)
	}
	return nil
}

const (
	mutantRuns  = 6                // on each profile, before a mutant counts as not found
	mutantLimit = 30 * time.Second // of real time, likewise
)

var caught = regexp.MustCompile(`(?m)^\s*(?:\S+: )?caught: (.*)$`)

// runner plays profiles over increasing seeds with a built binary. It returns what was found, or "".
func runner(t *testing.T, bin, profiles string, limit time.Duration) (found string, took time.Duration) {
	cmd := exec.Command(bin, "-test.run=^TestRunner$", "-test.v", "-test.timeout="+limit.String())
	cmd.Dir = filepath.Join(root(t), "internal", "sim")
	cmd.Env = append(os.Environ(), "REDLOCK_RUNNER="+strconv.Itoa(mutantRuns), "REDLOCK_PROFILES="+profiles, "REDLOCK_SEED=1", "GOMAXPROCS=1")
	began := time.Now()
	out, err := cmd.CombinedOutput()
	took = time.Since(began)
	switch m := caught.FindSubmatch(out); {
	case m != nil:
		return string(m[1]), took
	case err == nil:
		return "", took
	case strings.Contains(string(out), "panic: deadlock"):
		return "goroutines left in the bubble", took
	case strings.Contains(string(out), "panic: test timed out"):
		return "", took // slow is not found
	}
	return "crash: " + lastLines(string(out)), took
}

func lastLines(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	for _, l := range lines {
		if strings.HasPrefix(l, "panic: ") {
			return l
		}
	}
	return strings.Join(lines[max(0, len(lines)-3):], " | ")
}

// TestRunner is what a mutant's binary is started with: it plays REDLOCK_PROFILES over increasing seeds until a promise is
// broken, at most REDLOCK_RUNNER times each.
func TestRunner(t *testing.T) {
	runs, _ := strconv.Atoi(os.Getenv("REDLOCK_RUNNER"))
	if runs == 0 {
		t.Skip("for TestMutants")
	}
	seed, n := baseSeed(t), 0
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

// TestMutantsApply is cheap and always on: every patch still matches the source exactly once, and one mutant is compiled.
func TestMutantsApply(t *testing.T) {
	dir := t.TempDir()
	for i, m := range mutants {
		o := m.overlay(t, dir)
		if m.profiles == "" && (m.why == "" || m.test == "") {
			t.Errorf("mutant %s: say why simulation cannot see it and which test does", m.name)
		}
		if i == 0 && !testing.Short() {
			cmd := exec.Command("go", "build", "-overlay", o, "-o", os.DevNull, ".")
			cmd.Dir = root(t)
			if b, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("mutant %s does not compile: %v\n%s", m.name, err, b)
			}
		}
	}
}

// TestMutants builds every mutant and has it found: by simulation, or by the test that it names. The unmutated
// library passes the same runs. REDLOCK_MUTANTS=1, or the names of some.
func TestMutants(t *testing.T) {
	which := os.Getenv("REDLOCK_MUTANTS")
	if which == "" {
		t.Skip("REDLOCK_MUTANTS=1 runs it, a few minutes")
	}
	began := time.Now()
	dir := t.TempDir()
	next := make(chan *mutant)
	go func() {
		defer close(next)
		for i := range mutants {
			if m := &mutants[i]; which == "1" || strings.Contains(","+which+",", ","+m.name+",") {
				next <- m
			}
		}
	}()
	overlays := map[string]string{}
	for i := range mutants {
		overlays[mutants[i].name] = mutants[i].overlay(t, dir)
	}
	var mu sync.Mutex
	var table []string
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for m := range next {
				row := m.hunt(t, dir, overlays[m.name])
				mu.Lock()
				t.Log(row)
				table = append(table, row)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if which == "1" {
		control(t, dir)
	}
	t.Logf("%d mutants in %v", len(table), time.Since(began).Round(time.Second))
}

// control plays the library as it is over all that the mutants were played over.
func control(t *testing.T, dir string) {
	used := map[string]bool{}
	for _, m := range mutants {
		for _, p := range strings.Split(m.profiles, ",") {
			used[p] = true
		}
	}
	var names []string
	for _, p := range Profiles {
		if used[p.Name] {
			names = append(names, p.Name)
		}
	}
	bin := filepath.Join(dir, "control.test")
	if err := build(t, "", "./internal/sim", bin); err != nil {
		t.Fatal(err)
	}
	found, took := runner(t, bin, strings.Join(names, ","), 5*time.Minute)
	if found != "" {
		t.Errorf("the library without any mutation: %s", found)
	}
	t.Logf("control: %d runs on each of %s in %v", mutantRuns, strings.Join(names, ", "), took.Round(time.Second))
}

// hunt looks for a mutant and says how it was found.
func (m *mutant) hunt(t *testing.T, dir, overlay string) string {
	bin := filepath.Join(dir, m.name+".test")
	defer os.Remove(bin)
	if m.profiles != "" {
		if err := build(t, overlay, "./internal/sim", bin); err != nil {
			t.Errorf("mutant %s does not compile: %v", m.name, err)
			return m.name
		}
		found, took := runner(t, bin, m.profiles, mutantLimit)
		if found != "" {
			return fmt.Sprintf("%-22s %5.1fs  %s", m.name, took.Seconds(), found)
		}
	}
	if m.test == "" {
		t.Errorf("mutant %s (without the rule: %s) survives, and no directed test is named", m.name, m.rule)
		return m.name + " SURVIVES"
	}
	if err := build(t, overlay, ".", bin); err != nil {
		t.Errorf("mutant %s does not compile: %v", m.name, err)
		return m.name
	}
	began := time.Now()
	cmd := exec.Command(bin, "-test.run=^"+m.test+"$", "-test.timeout=60s")
	cmd.Dir = root(t)
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Errorf("mutant %s (without the rule: %s) survives %s", m.name, m.rule, m.test)
		return m.name + " SURVIVES"
	}
	if strings.Contains(string(out), "no tests to run") {
		t.Errorf("mutant %s: there is no %s", m.name, m.test)
	}
	return fmt.Sprintf("%-22s %5.1fs  not by simulation; by %s", m.name, time.Since(began).Seconds(), m.test)
}
