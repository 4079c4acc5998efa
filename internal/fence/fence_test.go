package fence

import (
	"fmt"
	"math"
	"testing"
	"time"

	_ "github.com/seed-ce352c9b/redlock/internal/rapidseed" // the same cases each time
	"github.com/seed-ce352c9b/redlock/internal/wire"

	"pgregory.net/rapid"
)

func TestConstants(t *testing.T) {
	if wire.MaxToken-clockTrust < clockTrust-1 {
		t.Error("a clock that is followed must leave half of the tokens above it")
	}
	if y := time.UnixMicro(clockTrust).UTC().Year(); y != 2112 {
		t.Errorf("the last clock that is followed is in %d, want 2112", y)
	}
}

// Attack 98.
func TestProposalsFollowTheWallClockAndWhatWasSeen(t *testing.T) {
	const now = 1_790_000_000_000_000 // 2026
	for _, c := range []struct {
		name       string
		wall, seen int64
		want       int64 // 0: refused
	}{
		{"the time, where nothing was seen", now, 0, now},
		{"the time, where registers are behind", now, now - 5, now},
		{"one above the registers, where they are at the time", now, now, now + 1},
		{"one above the registers, where they are ahead", now, now + 5_000_000, now + 5_000_001},
		{"1970", 0, 0, 1},
		{"before 1970", -now, 0, 1},
		{"before 1970, with registers", -now, now, now + 1},
		{"the last clock that is followed", clockTrust, 0, clockTrust},
		{"a clock beyond it", clockTrust + 1, 0, 1},
		{"a clock beyond it, with registers", clockTrust + 1, now, now + 1},
		{"the greatest clock", math.MaxInt64, 7, 8},
		{"registers beyond the clocks that are followed", now, clockTrust + 5, clockTrust + 6},
		{"the last token", now, wire.MaxToken - 2, wire.MaxToken - 1},
		{"none is left", now, wire.MaxToken - 1, 0},
	} {
		if got := Propose(c.wall, c.seen); got != c.want {
			t.Errorf("%s: got %d; want %d", c.name, got, c.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		wall, seen := rapid.Int64().Draw(t, "wall"), rapid.Int64Range(0, wire.MaxToken-1).Draw(t, "seen")
		p := Propose(wall, seen)
		if p != 0 && (p <= seen || p < 1 || p >= wire.MaxToken) {
			t.Fatalf("wall %d, seen %d: got %d", wall, seen, p)
		}
		if p == 0 && seen < wire.MaxToken-2 {
			t.Fatalf("wall %d, seen %d: none, although there are tokens left", wall, seen)
		}
		if _, e := wire.ReadScore(float64(p)); e != nil {
			t.Fatalf("the proposal %d would be refused when it is read: %v", p, e)
		}
	})
}

// The keys whose registers are ahead of our clock are bounded.
func TestRememberedLeadsAreBounded(t *testing.T) {
	var a Ahead
	for i := range maxAhead + 100 {
		name, _ := wire.NameKey("", fmt.Sprint("jobs/", i))
		a.Note(name, 1000, 2000)
		if got := a.Of(name); got != 2000 {
			t.Fatalf("key %d: got a lead of %d, want 2000", i, got)
		}
		if len(a.keys) > maxAhead {
			t.Fatalf("remembered after %d keys: got %d, want at most %d", i+1, len(a.keys), maxAhead)
		}
	}
}
