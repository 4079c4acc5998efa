package redlock

import (
	"math"
	"testing"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/wire"

	"pgregory.net/rapid"
)

// at is the instant that many ms after the start by either clock.
func at(steady, wall int64) instant {
	return instant{at: time.Unix(1e9, 0).Add(time.Duration(steady) * time.Millisecond), wall: 1e15 + wall*1000}
}

// Attack 5.
func TestTimePassesByTheClockThatWentFurther(t *testing.T) {
	for _, c := range []struct {
		name         string
		steady, wall int64 // ms
		want         int64
	}{
		{"both alike", 500, 500, 500},
		{"suspended: only the wall clock went on", 0, 60000, 60000},
		{"the wall clock was set back", 500, -3600000, 500},
		{"the wall clock was set forward", 500, 3600000, 3600000},
		{"nothing passed", 0, 0, 0},
		{"the wall clock stands still", 500, 0, 500},
		{"both went back, which the steady one never does", -5, -7, -5},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got, want := at(c.steady, c.wall).since(at(0, 0)), time.Duration(c.want)*time.Millisecond; got != want {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
	rapid.Check(t, func(t *rapid.T) {
		day := int64(86400e3)
		a, b := rapid.Int64Range(-day, day).Draw(t, "steady"), rapid.Int64Range(-day, day).Draw(t, "wall")
		if got := at(a, b).since(at(0, 0)); got.Milliseconds() < a || got.Milliseconds() < b {
			t.Fatalf("%d ms passed on one clock, %d ms on the other: got %v", a, b, got)
		}
	})
}

func TestTheRealClockTellsOneMomentOnBothClocks(t *testing.T) {
	a := realClock()
	if a.at.UnixMicro() != a.wall {
		t.Errorf("steady %v and wall %d are not one moment", a.at, a.wall)
	}
	if a.at.Round(0) == a.at { // Round strips it
		t.Errorf("no steady reading")
	}
	if d := realClock().since(a); d < 0 || d > time.Minute {
		t.Errorf("%v passed between two looks", d)
	}
}

// heldFor is a lock taken at 0 with this validity, and the clock it is on.
func heldFor(valid time.Duration) (*Lock, *instant) {
	now := at(0, 0)
	return &Lock{l: &Locker{now: func() instant { return now }}, start: now, valid: valid}, &now
}

// Attack 11.
func TestALockIsNotValidAtExactlyUntil(t *testing.T) {
	k, now := heldFor(time.Second)
	for _, c := range []struct {
		name string
		now  instant
		want bool
	}{
		{"at once", at(0, 0), true},
		{"a millisecond before", at(999, 999), true},
		{"at Until", at(1000, 1000), false},
		{"after", at(1001, 1001), false},
		{"at Until on the wall clock only", at(0, 1000), false},
		{"at Until on the steady clock only", at(1000, -5000), false},
		{"the wall clock set back", at(999, -3600000), true},
	} {
		*now = c.now
		if got := k.Valid(); got != c.want {
			t.Errorf("%s: valid=%v, want %v", c.name, got, c.want)
		}
	}
	*now = at(0, 0)
	now.at = now.at.Add(time.Second - 1)
	if !k.Valid() || k.remaining(*now) != 1 {
		t.Errorf("a nanosecond before Until: valid=%v, left %v", k.Valid(), k.remaining(*now))
	}
	if got, want := k.Until(), at(1000, 0).at; !got.Equal(want) {
		t.Errorf("Until: got %v, want %v", got, want)
	}
	t.Run("a validity of zero is none", func(t *testing.T) {
		k, _ := heldFor(0)
		if k.Valid() {
			t.Errorf("valid")
		}
	})
	t.Run("nor is a lock that was given up", func(t *testing.T) {
		for _, s := range []lockState{stateReleasing, stateReleased, stateLost} {
			k, _ := heldFor(time.Second)
			if k.state = s; k.Valid() {
				t.Errorf("state %d: valid", s)
			}
		}
	})
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
		t.Run(c.name, func(t *testing.T) {
			if got := propose(instant{wall: c.wall}, c.seen); got != c.want {
				t.Fatalf("got %d; want %d", got, c.want)
			}
		})
	}
	rapid.Check(t, func(t *rapid.T) {
		wall, seen := rapid.Int64().Draw(t, "wall"), rapid.Int64Range(0, wire.MaxToken-1).Draw(t, "seen")
		p := propose(instant{wall: wall}, seen)
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
