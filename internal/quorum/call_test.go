package quorum

import (
	"testing"

	"github.com/seed-ce352c9b/redlock/internal/clock"
	"github.com/seed-ce352c9b/redlock/internal/lane"
	"github.com/seed-ce352c9b/redlock/internal/wire"
)

// call returns a call of three nodes that is never sent, and decided by all of them.
func call(kind wire.Kind) *Call {
	q := wire.Question{Kind: kind}
	return New(make([]*lane.Lane, 3), 0, &wire.LockKey{}, q, clock.Real(), func(t Tally) bool { return t.Open() == 0 })
}

func TestACallCountsEachVoteByWhatItSays(t *testing.T) {
	soft, hard := wire.NewNodeError("LOADING", nil), wire.NewNodeError("WRONGTYPE", nil)
	hard.Transient = false
	for _, c := range []struct {
		name string
		rep  wire.Reply
		want Tally
		hard int
	}{
		{"yes", wire.Reply{Answer: wire.Yes}, Tally{Yes: 1}, 0},
		{"yes with the register moved", wire.Reply{Answer: wire.Yes, Fenced: true}, Tally{Yes: 1, Fenced: 1}, 0},
		{"no", wire.Reply{Answer: wire.No}, Tally{No: 1}, 0},
		{"no that claims a moved register", wire.Reply{Answer: wire.No, Fenced: true}, Tally{No: 1}, 0},
		{"missing", wire.Reply{Answer: wire.No, Missing: true, Err: wire.ErrMissing}, Tally{Missing: 1}, 0},
		{"unknown", wire.Reply{Answer: wire.Unknown, Err: soft}, Tally{Unknown: 1}, 0},
		{"unknown that does not heal", wire.Reply{Answer: wire.Unknown, Err: hard}, Tally{Unknown: 1}, 1},
		{"unknown without a reason", wire.Reply{Answer: wire.Unknown}, Tally{Unknown: 1}, 0},
		{"no answer at all", wire.Reply{}, Tally{Unknown: 1}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := call(wire.AskAcquire)
			b.Calls[1].Reply = c.rep
			b.Vote(&b.Calls[1])
			got, gotHard, _ := b.Result()
			c.want.N = 3
			if got != c.want || gotHard != c.hard {
				t.Errorf("got %+v and %d that do not heal, want %+v and %d", got, gotHard, c.want, c.hard)
			}
		})
	}
	t.Run("and keeps the highest register met", func(t *testing.T) {
		b := call(wire.AskRaise)
		for i, score := range []int64{5, 9, 7} {
			b.Calls[i].Reply = wire.Reply{Answer: wire.Yes, Score: score}
			b.Vote(&b.Calls[i])
		}
		if _, _, score := b.Result(); score != 9 {
			t.Errorf("got %d, want 9", score)
		}
	})
}

// What a missing value counts as is what it meant at the instant at which the vote came, and stays.
func TestAMissingValueKeepsItsMeaning(t *testing.T) {
	for means, want := range map[wire.Answer]Tally{
		wire.Yes: {N: 3, Yes: 2, Unknown: 1}, wire.No: {N: 3, No: 2, Unknown: 1}, wire.Unknown: {N: 3, Unknown: 3},
	} {
		b := call(wire.AskRelease)
		b.CountAs = func(bool) wire.Answer { return means }
		for i := range 2 {
			b.Calls[i].Reply = wire.Reply{Answer: wire.No, Missing: true, Err: wire.ErrMissing}
			b.Vote(&b.Calls[i])
		}
		b.Calls[2].Reply = wire.Reply{Answer: wire.Unknown}
		b.Vote(&b.Calls[2])
		if got, _, _ := b.Result(); got != want {
			t.Errorf("two of three are missing, which counts as %v: got %+v, want %+v", means, got, want)
		}
		_, gone, ok := b.Answered(0)
		if !ok || gone != means {
			t.Errorf("what a missing vote counted as: got %v, %v; want %v, true", gone, ok, means)
		}
		again := call(wire.AskRelease)
		again.CountAs = func(bool) wire.Answer { t.Error("asked anew what it means"); return wire.No }
		again.Calls[0].Reply, again.Calls[0].CountedAs = b.Calls[0].Reply, gone
		again.Vote(&again.Calls[0])
	}
}
