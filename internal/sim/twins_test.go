package sim

import (
	"crypto/sha1"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/seed-ce352c9b/redlock/internal/harness"
	"github.com/seed-ce352c9b/redlock/internal/twin"
	"github.com/seed-ce352c9b/redlock/internal/twin/scripts"
)

// TestTwins runs schedules with the twins and with the scripts. The histories must be the same, down to each command and
// nanosecond.
func TestTwins(t *testing.T) {
	for _, tw := range scripts.All {
		var text []byte
		for part := range strings.SplitSeq(tw.Name, "+") {
			text = append(text, harness.Script(part)...)
		}
		sum := sha1.Sum(text)
		if got := hex.EncodeToString(sum[:]); got != tw.SHA {
			t.Errorf("internal/wire/lua/%s.lua has changed: change its twin accordingly, and then its SHA in internal/twin/scripts: %s", tw.Name, got)
		}
	}
	defer twin.Enable(true)
	first := 100 * baseSeed(t, "")
	for _, p := range Profiles {
		if p.Untimed {
			continue
		}
		p := *p
		p.Length /= 20
		play := func(seed uint64, twins bool) (*History, []string) {
			twin.Enable(twins)
			return runRecorded(t, Generate(&p, first+seed))
		}
		for seed := range uint64(harness.Rounds(1, 3)) {
			fast, one := play(seed, true)
			slow, other := play(seed, false)
			// Where two events happen at one instant, a run may differ from a repetition of itself (docs/design/verification.md,
			// Determinism); a twin that differs from its script differs in every run.
			for again := 0; again < 8 && fast.Hash() != slow.Hash(); again++ {
				fast, one = play(seed, true)
				if fast.Hash() != slow.Hash() {
					slow, other = play(seed, false)
				}
			}
			if fast.Hash() != slow.Hash() {
				t.Errorf("%s, seed %d: %d commands with the twins and %d with the scripts, %d and %d claims, and the histories diverge:\n%s",
					p.Name, first+seed, fast.Commands, slow.Commands, len(fast.Claims), len(slow.Claims), firstDifference(one, other))
			}
		}
	}
}
