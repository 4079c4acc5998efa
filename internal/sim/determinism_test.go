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

// TestTheSameSeedIsTheSameHistory runs a schedule of each profile in this process, and again in this and in another process with
// a different GOMAXPROCS, until it has the same history. That takes more than once where two events come at one instant, of
// which either may be the first (docs/design/verification.md, Determinism); chance would never do it.
func TestTheSameSeedIsTheSameHistory(t *testing.T) {
	const variable = "REDLOCK_SIM_HASHES"
	wants := strings.Fields(os.Getenv(variable))
	another := len(wants) > 0
	for _, p := range Profiles {
		if p.Untimed {
			continue
		}
		p := *p
		p.Length /= 20
		play := func() string {
			return fmt.Sprintf("%s=%016x", p.Name, Run(t, Generate(&p, 7), true).Hash())
		}
		var seen []string
		for again := false; !again && len(seen) < 12; {
			hash := play()
			again = slices.Contains(wants, hash) || !another && slices.Contains(seen, hash)
			seen = append(seen, hash)
		}
		if last := seen[len(seen)-1]; !slices.Contains(wants, last) && (another || !slices.Contains(seen[:len(seen)-1], last)) {
			t.Errorf("%d runs, and no history of them was there before: %v", len(seen), seen)
		}
		if !another {
			wants = append(wants, seen...)
		}
	}
	if another {
		return
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
	cmd.Env = append(os.Environ(), variable+"="+strings.Join(wants, " "), fmt.Sprintf("GOMAXPROCS=%d", procs))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("in another process with GOMAXPROCS=%d: %v\n%s", procs, err, out)
	}
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
