package redlock

import (
	"slices"
	"testing"

	"github.com/seed-ce352c9b/redlock/internal/quorum"
	"github.com/seed-ce352c9b/redlock/internal/wire"
)

// The arithmetic of quorum.go is held against twins that are written differently
// on purpose: they know nothing of "decided", but fill in the open votes in every
// way there is and ask whether it makes a difference. So no verdict waits for a
// minority that cannot change it, and none that was told is changed by a straggler.
// The twins count by doubling, not by a need, so that an error in majority does not
// cancel out.

// maxTwin is the greatest N that is searched exhaustively.
const maxTwin = 7

// A cast is one node's vote as the twins know it.
type cast byte

const (
	castOpen cast = iota // it has not answered
	castYes
	castFenced // yes, and the register moved to the token
	castNo
	castMissing
	castUnknown
	casts // how many there are
)

func (c cast) String() string {
	return [...]string{"open", "yes", "yes+fenced", "no", "missing", "unknown"}[c]
}

// tallyOf counts votes as a quorum call does.
func tallyOf(votes []cast) quorum.Tally {
	t := quorum.Tally{N: len(votes)}
	for _, c := range votes {
		switch c {
		case castYes:
			t.Yes++
		case castFenced:
			t.Yes++
			t.Fenced++
		case castNo:
			t.No++
		case castMissing:
			t.Missing++
		case castUnknown:
			t.Unknown++
		}
	}
	return t
}

// everyBallot calls f with all combinations of the votes given, of 1 to 7 nodes.
// A tally only counts, so combinations that differ in which node said what are one.
func everyBallot(from []cast, f func(votes []cast)) {
	var fill func(votes []cast, i, next int)
	fill = func(votes []cast, i, next int) {
		if i == len(votes) {
			f(votes)
			return
		}
		for k := next; k < len(from); k++ {
			votes[i] = from[k]
			fill(votes, i+1, k)
		}
	}
	for n := 1; n <= maxTwin; n++ {
		fill(make([]cast, n), 0, 0)
	}
}

// settled is the outcome f of a question if it is the same in whatever way the open votes are cast, and otherwise open.
func settled[T comparable](votes, answers []cast, open T, f func(votes []cast) T) T {
	got := make(map[T]bool)
	votes = slices.Clone(votes)
	var fill func(i int)
	fill = func(i int) {
		if i == len(votes) {
			got[f(votes)] = true
			return
		}
		if votes[i] != castOpen {
			fill(i + 1)
			return
		}
		for _, c := range answers {
			votes[i] = c
			fill(i + 1)
		}
		votes[i] = castOpen
	}
	fill(0)
	for v := range got {
		if len(got) == 1 {
			return v
		}
	}
	return open
}

// forEveryBallot compares what quorum.go makes of a tally with what its twin makes of the votes.
func forEveryBallot[T comparable](t *testing.T, from []cast, f func(quorum.Tally) T, twin func(votes []cast) T) {
	t.Helper()
	everyBallot(from, func(votes []cast) {
		if got, want := f(tallyOf(votes)), twin(votes); got != want {
			t.Fatalf("%v: got %v, want %v", votes, got, want)
		}
	})
}

func number(votes []cast, of ...cast) (n int) {
	for _, v := range votes {
		if slices.Contains(of, v) {
			n++
		}
	}
	return n
}

// most reports whether k of n are more than half.
func most(k, n int) bool { return 2*k > n }

var allCasts = []cast{castOpen, castYes, castFenced, castNo, castMissing, castUnknown}

// Attack 52.
func TestMajority(t *testing.T) {
	for n := 1; n <= maxNodes; n++ {
		if m := majority(n); !most(m, n) || most(m-1, n) {
			t.Errorf("majority(%d): got %d, want the least number of which any two sets share a node", n, m)
		}
	}
	t.Run("never two candidates have one, and of an even split neither", func(t *testing.T) {
		for n := 1; n <= maxNodes; n++ {
			for a := 0; a <= n; a++ {
				for b := 0; a+b <= n; b++ {
					// Each node says yes to one of them at most, and no to the other then.
					va, vb := decide(n, a, b), decide(n, b, a)
					if va == won && vb == won {
						t.Fatalf("N=%d: both candidates won, with %d and %d votes", n, a, b)
					}
					if n%2 == 0 && a == n/2 && b == n/2 && (va != lost || vb != lost) {
						t.Errorf("N=%d, split %d to %d: got %v and %v, want both lost", n, a, b, va, vb)
					}
				}
			}
		}
	})
}

func TestNoVerdictIsItsZeroValue(t *testing.T) {
	everyBallot(allCasts, func(votes []cast) {
		c := tallyOf(votes)
		if decide(c.N, c.Yes, c.No) == 0 || acquisitionOf(c) == 0 || ownershipOf(c) == 0 || raised(c) == 0 {
			t.Fatalf("%v: a verdict is the zero value, which a forgotten one has too", votes)
		}
	})
	if got := verdict(0).String(); got != "none" {
		t.Errorf("the zero verdict reads %q, want %q", got, "none")
	}
	for v, want := range map[verdict]string{pending: "pending", won: "won", lost: "lost"} {
		if v.String() != want {
			t.Errorf("verdict %d reads %q, want %q", v, v, want)
		}
	}
}

func TestTallyCountsTheOpenVotes(t *testing.T) {
	forEveryBallot(t, allCasts, quorum.Tally.Open, func(votes []cast) int { return number(votes, castOpen) })
}

// wonBy is the final verdict that counts only these votes.
func wonBy(count cast) func(votes []cast) verdict {
	return func(votes []cast) verdict {
		if most(number(votes, count), len(votes)) {
			return won
		}
		return lost
	}
}

func TestDecideIsFinalAsSoonAsTheOpenVotesCannotChangeIt(t *testing.T) {
	from := []cast{castOpen, castYes, castNo}
	forEveryBallot(t, from, func(c quorum.Tally) verdict { return decide(c.N, c.Yes, c.No) }, func(votes []cast) verdict {
		return settled(votes, from[1:], pending, wonBy(castYes))
	})
}

func TestARaiseCountsOnlyRegistersThatMoved(t *testing.T) {
	forEveryBallot(t, allCasts, raised, func(votes []cast) verdict {
		return settled(votes, allCasts[1:], pending, wonBy(castFenced))
	})
}

func TestRefusedMeansThatTheNoesAloneRuleAMajorityOut(t *testing.T) {
	forEveryBallot(t, allCasts, refused, func(votes []cast) bool { // had everybody else said yes
		return !most(len(votes)-number(votes, castNo), len(votes))
	})
}

// finalAcquisition is the outcome once all have voted. For an adoption, a node that has nothing has said as clearly as
// one that has another's value that there is nothing to take over; an acquisition has no such votes.
func finalAcquisition(votes []cast) acquisition {
	n := len(votes)
	switch {
	case most(number(votes, castFenced), n):
		return acquireFenced
	case most(number(votes, castYes, castFenced), n):
		return acquireUnfenced
	case !most(n-number(votes, castNo, castMissing), n):
		return acquireHeld
	}
	return acquireNoQuorum
}

// The verdict is early in one case: a majority that carries the value is not kept waiting for votes that might still carry
// the token as well.
func TestAcquisitionIsDecidedAsEarlyAsItCanBe(t *testing.T) {
	forEveryBallot(t, allCasts, acquisitionOf, func(votes []cast) acquisition {
		want := settled(votes, allCasts[1:], acquirePending, finalAcquisition)
		if want == acquirePending && most(number(votes, castYes, castFenced), len(votes)) {
			return acquireUnfenced
		}
		return want
	})
}

func TestExtensionIsDecidedAsEarlyAsItCanBe(t *testing.T) {
	final := func(votes []cast) ownership {
		n := len(votes)
		switch {
		case most(number(votes, castYes, castFenced), n):
			return stillOurs
		case !most(n-number(votes, castNo, castMissing), n):
			return ownershipLost
		}
		return inconclusive
	}
	forEveryBallot(t, allCasts, ownershipOf, func(votes []cast) ownership {
		return settled(votes, allCasts[1:], ownershipPending, final)
	})
}

func TestAReleaseCountsForgettingAsReleasedOnlyBeforeUntil(t *testing.T) {
	for _, c := range []struct {
		missing, inTime, asked, again bool
		want                          wire.Answer
	}{
		{true, true, true, false, wire.Yes},
		{true, true, true, true, wire.Yes},
		{false, true, true, false, wire.No},
		// It may have been executed in time.
		{true, false, true, false, wire.Unknown},
		{true, false, true, true, wire.Unknown},
		{false, false, true, false, wire.Unknown},
		{false, false, true, true, wire.Unknown},
		{false, true, true, true, wire.Unknown},
		// The first was sent after Until.
		{true, false, false, false, wire.No},
		{true, false, false, true, wire.No},
		{false, false, false, false, wire.No},
		{false, false, false, true, wire.No},
	} {
		if got := notOurs(c.missing, c.inTime, c.asked, c.again); got != c.want {
			t.Errorf("missing: %v, before Until: %v, asked before Until: %v, again: %v: got %v, want %v", c.missing, c.inTime, c.asked, c.again, got, c.want)
		}
	}
}
