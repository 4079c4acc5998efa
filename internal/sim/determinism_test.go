package sim

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
)

// TestTheSameSeedIsTheSameHistory runs a schedule of each profile twice in this process, and once more in another process
// with a different GOMAXPROCS.
func TestTheSameSeedIsTheSameHistory(t *testing.T) {
	if os.Getenv("REDLOCK_SIM_HASHES") != "" {
		fmt.Println("hashes:", hashes(t))
		return
	}
	want := hashes(t)
	if got := hashes(t); got != want {
		t.Errorf("second run in one process:\n got %s\nwant %s", got, want)
	}
	procs := 1
	if runtime.GOMAXPROCS(0) == 1 {
		procs = 2
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "-test.run=^TestTheSameSeedIsTheSameHistory$", "-test.v")
	cmd.Env = append(os.Environ(), "REDLOCK_SIM_HASHES=1", fmt.Sprintf("GOMAXPROCS=%d", procs))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	_, got, _ := strings.Cut(string(out), "hashes: ")
	got, _, _ = strings.Cut(got, "\n")
	if got != want {
		t.Errorf("in another process with GOMAXPROCS=%d:\n got %s\nwant %s", procs, got, want)
	}
}

func hashes(t *testing.T) string {
	var all []string
	for _, p := range Profiles {
		if p.Untimed {
			continue
		}
		p := *p
		p.Length /= 20
		const seed = 8 // of some seeds, two events come at one instant, and either may be the first
		all = append(all, fmt.Sprintf("%s=%016x", p.Name, Run(t, Generate(&p, seed), true).Hash()))
	}
	return strings.Join(all, " ")
}

// runRecorded runs a schedule and returns its history and all commands, ordered by time.
func runRecorded(t *testing.T, s *Schedule) (*History, []string) {
	var mu sync.Mutex
	var lines []string
	listen = func(node int, at instant, args []string) {
		mu.Lock()
		defer mu.Unlock()
		lines = append(lines, fmt.Sprintf("%015d %s %s", int64(at), nodeName(node), strings.Join(args, " ")))
	}
	defer func() { listen = nil }()
	h := Run(t, s, true)
	slices.Sort(lines)
	return h, lines
}

// firstDifference returns where two runs diverge.
func firstDifference(a, b []string) string {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			from := max(0, i-6)
			return fmt.Sprintf("both:\n%s\none:\n%s\nthe other:\n%s", strings.Join(a[from:i], "\n"), strings.Join(a[i:min(len(a), i+4)], "\n"), strings.Join(b[i:min(len(b), i+4)], "\n"))
		}
	}
	return fmt.Sprintf("%d and %d commands, and as far as both go the same", len(a), len(b))
}
