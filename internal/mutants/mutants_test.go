// Package mutants changes the library's source and has the go command build the tests over it: the mutants, each of which takes
// out one rule and has to be caught, and goroutines that are held up at random. It imports nothing of this module, so that it is
// not built again after each edit of the library.
//
// docs/design/verification.md describes the mutants, and CONTRIBUTING.md how to add one.
package mutants

import (
	"cmp"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// root returns the module's directory. The tests of this package run in its folder.
func root(t *testing.T) string {
	dir, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// sources are the files that the mutant changes, as it has them. Each patch has to match once.
func (m *mutant) sources(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, p := range m.patches {
		text, ok := texts[p.file]
		if !ok {
			text = source(t, p.file)
		}
		if n := strings.Count(text, p.old); n != 1 {
			t.Errorf("mutant %s: its patch of %s matches %d times, not once: the source has changed, follow it in internal/mutants/list_test.go\n%s", m.name, p.file, n, p.old)
		}
		texts[p.file] = strings.Replace(text, p.old, p.new, 1)
	}
	return texts
}

func source(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root(t), file))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// goCommand returns a go command in the module's directory. What it reads is not known to the go command that runs this test, which
// would take the test's last result for the next one: so the test looks at all folders of the module itself.
func goCommand(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Dir = root(t)
	err := filepath.WalkDir(cmd.Dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == ".git" {
			return fs.SkipDir
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return cmd
}

// build makes the test binaries of packages over an overlay. The go command makes several at once only if their names differ.
func build(t *testing.T, overlay string, pkgs []string) binaries {
	bins := binaries{}
	for len(pkgs) > 0 {
		dir, names := t.TempDir(), map[string]bool{}
		var now, later []string
		for _, pkg := range pkgs {
			name := path.Base(path.Join("redlock", pkg)) + ".test"
			if names[name] {
				later = append(later, pkg)
				continue
			}
			now, names[name], bins[pkg] = append(now, pkg), true, filepath.Join(dir, name)
		}
		cmd := goCommand(t, append([]string{"test", "-c", "-ldflags=-s -w", "-o", dir, "-overlay", overlay}, now...)...)
		if b, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, b)
		}
		pkgs = later
	}
	return bins
}

const (
	mutantRuns  = 6                // on each profile, before a mutant counts as not found
	aloneRuns   = 60               // likewise, where no directed test is named
	mutantLimit = 30 * time.Second // of real time, likewise
	aloneLimit  = 90 * time.Second
)

var caught = regexp.MustCompile(`(?m)^\s*(?:\S+: )?caught: (.*)$`)

// runner plays so many runs of each profile over seeds that increase from seed, with the binary as a mutant; "": the library as
// it is. It returns what was found, or "".
func runner(t *testing.T, bin, mutant, profiles string, seed uint64, runs int, limit time.Duration) (found string, took time.Duration) {
	cmd := exec.Command(bin, "-test.run=^TestRunner$", "-test.v", "-test.timeout="+limit.String())
	cmd.Dir = filepath.Join(root(t), "internal", "sim")
	cmd.Env = append(os.Environ(), "REDLOCK_RUNNER="+strconv.Itoa(runs), "REDLOCK_PROFILES="+profiles, fmt.Sprintf("REDLOCK_SEED=%d", seed), "GOMAXPROCS=1", "REDLOCK_MUTANT="+mutant)
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

// TestMutantsApply is cheap and always on: every patch still matches the source exactly once, and the library with all
// mutants compiles.
func TestMutantsApply(t *testing.T) {
	overlay := compose(t, t.TempDir(), mutants)
	for i := range mutants {
		m := &mutants[i]
		if m.profiles == "" && (m.why == "" || m.test == "") {
			t.Errorf("mutant %s: say why simulation cannot see it and which test does", m.name)
		}
		if m.test != "" {
			m.packageOf(t)
		}
	}
	if t.Failed() || os.Getenv("REDLOCK_LONG") == "" { // a build takes long, and TestMutants builds them too
		return
	}
	cmd := goCommand(t, "build", "-overlay", overlay, "-o", os.DevNull, ".")
	if b, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("the mutants do not compile: %v\n%s", err, b)
	}
}

// TestMutants has every mutant caught. REDLOCK_MUTANTS=1, or the names of some, has each caught by the directed test that it
// names, or by simulation from seed 1 if it names none. REDLOCK_MUTANTS=sim has those that have profiles hunted by simulation
// with new seeds; it may miss some of those that a directed test catches. The library without a mutation passes the same.
func TestMutants(t *testing.T) {
	which := os.Getenv("REDLOCK_MUTANTS")
	if which == "" {
		t.Skip("REDLOCK_MUTANTS=1 runs it, a minute")
	}
	began := time.Now()
	simulated := which == "sim"
	var list []*mutant
	for i := range mutants {
		if m := &mutants[i]; which == "1" || simulated && m.profiles != "" || strings.Contains(","+which+",", ","+m.name+",") {
			list = append(list, m)
		}
	}
	if len(list) == 0 {
		t.Fatalf("REDLOCK_MUTANTS=%s names no mutant", which)
	}
	overlay := compose(t, t.TempDir(), mutants)
	if t.Failed() {
		return
	}
	pkgs := []string{simulator}
	if !simulated {
		pkgs = append(pkgs, packagesOf(t, list)...)
	}
	bins := build(t, overlay, pkgs)
	t.Logf("built in %v", time.Since(began).Round(time.Second))
	var seed uint64 = 1
	if simulated {
		seed = rand.Uint64() >> 32
		if text := os.Getenv("REDLOCK_SEED"); text != "" {
			var err error
			if seed, err = strconv.ParseUint(text, 0, 64); err != nil {
				t.Fatalf("REDLOCK_SEED: %v", err)
			}
		}
	}
	var (
		wg     sync.WaitGroup
		mu     sync.Mutex
		failed []error
		missed []string
	)
	next := make(chan func() error)
	for range 2 {
		wg.Go(func() {
			for f := range next {
				if err := f(); err != nil {
					mu.Lock()
					failed = append(failed, err)
					mu.Unlock()
				}
			}
		})
	}
	next <- func() error { return control(t, bins, list, simulated, seed) } // the longest
	for _, m := range list {
		next <- func() error {
			if m.test != "" && !simulated {
				return m.tested(t, bins)
			}
			switch found := m.hunt(t, bins[simulator], seed); {
			case found != "":
			case m.test == "":
				return fmt.Errorf("mutant %s (without the rule: %s) survives %d runs from seed %d, and no directed test is named%s", m.name, m.rule, aloneRuns, seed, m.again())
			default:
				mu.Lock()
				missed = append(missed, m.name)
				mu.Unlock()
			}
			return nil
		}
	}
	close(next)
	wg.Wait()
	t.Logf("%d mutants in %v", len(list), time.Since(began).Round(time.Second))
	if simulated {
		t.Logf("from seed %d, the simulation missed %d, which directed tests catch: %s", seed, len(missed), strings.Join(missed, ", "))
		if len(missed) > len(list)/3 { // one in seven is usual
			t.Errorf("the simulation missed %d of %d mutants: is a judge blind?", len(missed), len(list))
		}
	}
	for _, err := range failed { // last, where a log that was cut still has them
		t.Error(err)
	}
}

// again returns how to play the mutant alone, for the end of a message.
func (m *mutant) again() string {
	return fmt.Sprintf("\n(again: REDLOCK_MUTANTS=%s go test ./internal/mutants -run 'TestMutants$' -v)", m.name)
}

// simulator is the package whose TestRunner and TestReal play mutants.
const simulator = "./internal/sim"

// binaries are the test binaries by package, with all mutants in them.
type binaries map[string]string

// testPackages are where the mutants' directed tests are looked for, in this order. Some may not exist.
var testPackages = []string{".", "./test/directed/calls", "./test/directed/waiting", "./test/directed/nodes", "./internal/wire", "./internal/lane", "./internal/pubsub", "./internal/wait", "./internal/fence", "./internal/held", "./internal/quorum", "./internal/queue"}

// testsByPackage are the names of the tests in testPackages.
var testsByPackage = sync.OnceValue(func() map[string][]string {
	names := map[string][]string{}
	function := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	for _, pkg := range testPackages {
		files, _ := filepath.Glob(filepath.Join("..", "..", pkg, "*_test.go")) // the tests of this package run in its folder
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				panic(err)
			}
			for _, m := range function.FindAllStringSubmatch(string(text), -1) {
				names[pkg] = append(names[pkg], m[1])
			}
		}
	}
	return names
})

// packageOf returns the package of a mutant's directed test: the one that it names, or the first that has the test.
func (m *mutant) packageOf(t *testing.T) string {
	if m.pkg != "" {
		return m.pkg
	}
	for _, pkg := range testPackages {
		if slices.Contains(testsByPackage()[pkg], m.test) {
			return pkg
		}
	}
	t.Errorf("mutant %s: there is no %s in %v", m.name, m.test, testPackages)
	return "."
}

// packagesOf returns the packages of the mutants' directed tests.
func packagesOf(t *testing.T, list []*mutant) (pkgs []string) {
	for _, m := range list {
		if m.test != "" && !slices.Contains(pkgs, m.packageOf(t)) {
			pkgs = append(pkgs, m.packageOf(t))
		}
	}
	return pkgs
}

// control has the library without any mutation, built as the mutants are, pass what they fail: the named tests, and one run on
// each profile on which they are hunted. It returns an error if any of that fails.
func control(t *testing.T, bins binaries, list []*mutant, simulated bool, seed uint64) error {
	began := time.Now()
	used := map[string]bool{}
	tests := map[string][]string{} // by package
	for _, m := range list {
		if m.test == "" || simulated {
			for p := range strings.SplitSeq(m.profiles, ",") {
				used[p] = true
			}
			continue
		}
		pkg := m.packageOf(t)
		tests[pkg] = append(tests[pkg], m.test)
	}
	if names := slices.Sorted(maps.Keys(used)); len(names) > 0 {
		if found, _ := runner(t, bins[simulator], "", strings.Join(names, ","), seed, 1, 5*time.Minute); found != "" {
			return fmt.Errorf("the library without any mutation: %s", found)
		}
	}
	n := 0
	for _, pkg := range slices.Sorted(maps.Keys(tests)) {
		slices.Sort(tests[pkg])
		all := slices.Compact(tests[pkg])
		n += len(all)
		if out, err := directed(bins[pkg], "", strings.Join(all, "|"), filepath.Join(root(t), pkg)); err != nil {
			return fmt.Errorf("the library without any mutation: %v in %s: %s", err, pkg, lastLines(string(out)))
		}
	}
	t.Logf("control: a run on each of %d profiles, and %d directed tests, in %v", len(used), n, time.Since(began).Round(time.Second))
	return nil
}

// directed plays tests of a package's binary as a mutant.
func directed(bin, mutant, tests, dir string) (out []byte, err error) {
	cmd := exec.Command(bin, "-test.run=^("+tests+")$", "-test.timeout=60s")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "REDLOCK_MUTANT="+mutant)
	return cmd.CombinedOutput()
}

// directory is where a mutant's directed test runs: the package's folder, or a copy with the changed scripts at the
// same place, for the tests that read the scripts.
func (m *mutant) directory(t *testing.T) string {
	pkg, scripts := m.packageOf(t), map[string]string{}
	for file, text := range m.sources(t) {
		if strings.HasSuffix(file, ".lua") {
			scripts[file] = text
		}
	}
	if len(scripts) == 0 {
		return filepath.Join(root(t), pkg)
	}
	own := filepath.Join(t.TempDir(), m.name)
	copied := ""
	for file, text := range scripts {
		if folder := filepath.Dir(file); folder != copied {
			copied = folder
			if err := os.CopyFS(filepath.Join(own, folder), os.DirFS(filepath.Join(root(t), folder))); err != nil {
				t.Error(err)
			}
		}
		if err := os.WriteFile(filepath.Join(own, file), []byte(text), 0o644); err != nil {
			t.Error(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(own, pkg), 0o755); err != nil {
		t.Error(err)
	}
	return filepath.Join(own, pkg)
}

// hunt looks for a mutant by simulation, and logs and returns what was found, or "".
func (m *mutant) hunt(t *testing.T, bin string, seed uint64) (found string) {
	runs, limit := mutantRuns, mutantLimit
	if m.test == "" {
		runs, limit = aloneRuns, aloneLimit
	}
	found, took := runner(t, bin, m.name, m.profiles, seed, runs, limit)
	t.Logf("%-22s %5.1fs  %s", m.name, took.Seconds(), cmp.Or(found, "not by simulation"))
	return found
}

// tested runs a mutant's directed test, which has to fail. It returns an error if it does not.
func (m *mutant) tested(t *testing.T, bins binaries) error {
	began := time.Now()
	out, err := directed(bins[m.packageOf(t)], m.name, m.test, m.directory(t))
	switch {
	case err == nil:
		return fmt.Errorf("mutant %s (without the rule: %s) survives %s%s", m.name, m.rule, m.test, m.again())
	case strings.Contains(string(out), "no tests to run"):
		return fmt.Errorf("mutant %s: there is no %s", m.name, m.test)
	}
	t.Logf("%-22s %5.1fs  by %s", m.name, time.Since(began).Seconds(), m.test)
	return nil
}
