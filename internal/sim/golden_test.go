package sim

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestGolden holds a move of code to the behaviour from before it. With REDLOCK_GOLDEN=+FILE it adds the hashes of the
// histories of 50 seeds in each deterministic profile to FILE, with REDLOCK_GOLDEN=FILE it compares.
//
// Some schedules have several histories, depending on which of two events at one instant comes first, which is Go's choice
// (docs/design/verification.md, Determinism). So each is recorded three times, and compared until it agrees: a change of
// behaviour differs every time.
func TestGolden(t *testing.T) {
	file, record := strings.CutPrefix(os.Getenv("REDLOCK_GOLDEN"), "+")
	if file == "" {
		t.Skip("REDLOCK_GOLDEN names no file")
	}
	const records, tries = 3, 12
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
			play := func() string {
				return fmt.Sprintf("%s/%d/%016x", p.Name, seed, Run(t, Generate(&short, seed), true).Hash())
			}
			hash := play()
			if record {
				known = append(known, hash)
				for range records - 1 {
					known = append(known, play())
				}
				continue
			}
			for n := 1; n < tries && !slices.Contains(known, hash); n++ {
				hash = play()
			}
			if !slices.Contains(known, hash) {
				differ++
				t.Errorf("%s is not in %s", hash, file)
			}
		}
	}
	if record {
		slices.Sort(known)
		known = slices.Compact(known)
		if err := os.WriteFile(file, []byte(strings.Join(known, "\n")+"\n"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d hashes in %s, %d histories differ", len(known), file, differ)
}
