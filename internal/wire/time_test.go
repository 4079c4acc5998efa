package wire

import (
	"cmp"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Attacks 9, 61.
func TestPxIsRoundedUpToWholeMilliseconds(t *testing.T) {
	for ttl, want := range map[time.Duration]int64{
		1:                             1,
		time.Millisecond - 1:          1,
		time.Millisecond:              1,
		time.Millisecond + 1:          2,
		2500 * time.Microsecond:       3,
		10 * time.Second:              10000,
		10*time.Second + 1:            10001,
		MaxTTL:                        24 * 86400 * 1000,
		0:                             0,
		1500*time.Millisecond - 1*1e5: 1500,
	} {
		if got := CeilMillis(ttl); got != want {
			t.Errorf("px(%v): got %d ms, want %d ms", ttl, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		ttl := time.Duration(rapid.Int64Range(1, int64(MaxTTL)).Draw(t, "ttl"))
		if got := time.Duration(CeilMillis(ttl)) * time.Millisecond; got < ttl || got-ttl >= time.Millisecond {
			t.Fatalf("px(%v) is %v: want the ttl or less than a millisecond more", ttl, got)
		}
	})
}

// Attack 10.
func TestWhatIsSentAsMillisecondsFits32Bits(t *testing.T) {
	if got := CeilMillis(MaxTTL); got > math.MaxInt32 {
		t.Errorf("the longest ttl is %d ms, more than 2^31-1", got)
	}
	t.Run("the life of a register too", func(t *testing.T) {
		// A proxy that cuts it would make PEXPIRE delete the register: tokens fall.
		for _, ttl := range []time.Duration{time.Second, 23 * 24 * time.Hour, MaxTTL} {
			for _, life := range []FenceLife{0, FenceLife(time.Hour), FenceLife(MaxTTL / 2)} {
				if _, got := life.millis(ttl); got > math.MaxInt32 || got <= CeilMillis(ttl) {
					t.Errorf("the register of a ttl of %v lives %d ms: want more than the ttl and less than 2^31", ttl, got)
				}
			}
		}
	})
}

func TestARegisterOutlivesItsLockByItsLife(t *testing.T) {
	for _, life := range []FenceLife{0, FenceLife(time.Hour), FenceLife(48 * time.Hour)} {
		whole := cmp.Or(time.Duration(life), 24*time.Hour).Milliseconds()
		for _, ttl := range []time.Duration{10 * time.Millisecond, time.Minute, time.Hour, time.Hour + 1, 20 * 24 * time.Hour} {
			least, given := life.millis(ttl)
			if want := max(CeilMillis(ttl), whole/24) + whole; given != want {
				t.Errorf("ttl %v: its register is given %d ms, want %d", ttl, given, want)
			}
			if want := given - whole/24; least != want {
				t.Errorf("ttl %v: its register is given a life below %d ms, want %d", ttl, least, want)
			}
		}
	}
}
