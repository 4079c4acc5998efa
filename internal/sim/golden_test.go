package sim

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestGolden holds a move of code to the behaviour from before it. With REDLOCK_GOLDEN=+FILE it adds the hashes of the
// histories of 50 seeds in each deterministic profile to FILE, with REDLOCK_GOLDEN=FILE it compares. Some schedules have
// two histories, depending on which of two events at one instant comes first, so record two or three times.
func TestGolden(t *testing.T) {
	file, record := strings.CutPrefix(os.Getenv("REDLOCK_GOLDEN"), "+")
	if file == "" {
		t.Skip("REDLOCK_GOLDEN names no file")
	}
	const seeds = 50
	before, err := os.ReadFile(file)
	if err != nil && !(record && os.IsNotExist(err)) {
		t.Fatal(err)
	}
	known := strings.Fields(string(before))
	differ := 0
	for _, p := range Profiles {
		if p.Untimed {
			continue
		}
		short := *p
		short.Length /= 20
		for seed := uint64(1); seed <= seeds; seed++ {
			hash := fmt.Sprintf("%s/%d/%016x", p.Name, seed, Run(t, Generate(&short, seed), true).Hash())
			switch {
			case slices.Contains(known, hash):
			case record:
				known = append(known, hash)
			default:
				differ++
				t.Errorf("%s is not in %s", hash, file)
			}
		}
	}
	if record {
		if err := os.WriteFile(file, []byte(strings.Join(known, "\n")+"\n"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d hashes in %s, %d histories differ", len(known), file, differ)
}
