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

// outcomes are what the question can still come to: f over all ways in which the
// open votes can be cast.
func outcomes[T comparable](votes, answers []cast, f func(votes []cast) T) map[T]bool {
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
	return got
}

// only is the one outcome there is, or open.
func only[T comparable](all map[T]bool, open T) T {
	if len(all) == 1 {
		for v := range all {
			return v
		}
	}
	return open
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

var (
	allCasts     = []cast{castOpen, castYes, castFenced, castNo, castMissing, castUnknown}
	acquireCasts = []cast{castOpen, castYes, castFenced, castNo, castUnknown} // SET NX says nothing of missing
)

// Attack 52.
func TestMajority(t *testing.T) {
	t.Run("is N/2+1 of the configured nodes", func(t *testing.T) {
		for n, want := range map[int]int{1: 1, 2: 2, 3: 2, 4: 3, 5: 3, 6: 4, 7: 4, 9: 5, 63: 32, maxNodes: 33} {
			if got := majority(n); got != want {
				t.Errorf("majority(%d): got %d, want %d", n, got, want)
			}
		}
	})
	t.Run("is the least number of which any two sets share a node", func(t *testing.T) {
		for n := 1; n <= maxNodes; n++ {
			if 2*majority(n) <= n {
				t.Errorf("majority(%d): two disjoint sets of %d nodes fit into %d", n, majority(n), n)
			}
			if 2*(majority(n)-1) > n {
				t.Errorf("majority(%d) is %d, but %d would do", n, majority(n), majority(n)-1)
			}
		}
	})
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
	everyBallot(allCasts, func(votes []cast) {
		if got, want := tallyOf(votes).Open(), number(votes, castOpen); got != want {
			t.Fatalf("%v: open: got %d, want %d", votes, got, want)
		}
	})
}

func TestDecideIsFinalAsSoonAsTheOpenVotesCannotChangeIt(t *testing.T) {
	final := func(votes []cast) verdict {
		if most(number(votes, castYes), len(votes)) {
			return won
		}
		return lost
	}
	everyBallot([]cast{castOpen, castYes, castNo}, func(votes []cast) {
		want := only(outcomes(votes, []cast{castYes, castNo}, final), pending)
		if got := decide(len(votes), number(votes, castYes), number(votes, castNo)); got != want {
			t.Fatalf("%v: got %v, want %v", votes, got, want)
		}
	})
}

func TestRefusedMeansThatTheNoesAloneRuleAMajorityOut(t *testing.T) {
	everyBallot(allCasts, func(votes []cast) {
		best := slices.Clone(votes) // had everybody else said yes
		for i, c := range best {
			if c != castNo {
				best[i] = castYes
			}
		}
		want := !most(number(best, castYes), len(best))
		if got := refused(tallyOf(votes)); got != want {
			t.Fatalf("%v: got %v, want %v", votes, got, want)
		}
	})
}

// finalAcquisition is the outcome once all have voted. gone are the votes that
// rule a node out for good.
func finalAcquisition(votes []cast, gone ...cast) acquisition {
	n := len(votes)
	switch {
	case most(number(votes, castFenced), n):
		return acquireFenced
	case most(number(votes, castYes, castFenced), n):
		return acquireUnfenced
	case !most(n-number(votes, gone...), n):
		return acquireHeld
	}
	return acquireNoQuorum
}

// twinAcquisition is the verdict of an acquisition: the only outcome that is left.
// It is early in one case: a majority that carries the value is not kept waiting
// for votes that might still carry the token as well.
func twinAcquisition(votes, answers []cast, gone ...cast) acquisition {
	want := only(outcomes(votes, answers, func(v []cast) acquisition { return finalAcquisition(v, gone...) }), acquirePending)
	if want == acquirePending && most(number(votes, castYes, castFenced), len(votes)) {
		return acquireUnfenced
	}
	return want
}

func TestAcquisitionIsDecidedAsEarlyAsItCanBe(t *testing.T) {
	everyBallot(acquireCasts, func(votes []cast) {
		want := twinAcquisition(votes, acquireCasts[1:], castNo)
		if got := acquisitionOf(tallyOf(votes)); got != want {
			t.Fatalf("%v: got %d, want %d", votes, got, want)
		}
	})
}

func TestAnAdoptionOfWhatIsGoneIsLost(t *testing.T) {
	// For an adoption a node that has nothing has said as clearly as one that has
	// another's value that there is nothing to take over.
	everyBallot(allCasts, func(votes []cast) {
		want := twinAcquisition(votes, allCasts[1:], castNo, castMissing)
		if got := acquisitionOf(tallyOf(votes)); got != want {
			t.Fatalf("%v: got %d, want %d", votes, got, want)
		}
	})
}

func finalExtension(votes []cast) ownership {
	n := len(votes)
	switch {
	case most(number(votes, castYes, castFenced), n):
		return stillOurs
	case !most(n-number(votes, castNo, castMissing), n):
		return ownershipLost
	}
	return inconclusive
}

func TestExtensionIsDecidedAsEarlyAsItCanBe(t *testing.T) {
	everyBallot(allCasts, func(votes []cast) {
		want := only(outcomes(votes, allCasts[1:], finalExtension), ownershipPending)
		if got := ownershipOf(tallyOf(votes)); got != want {
			t.Fatalf("%v: got %d, want %d", votes, got, want)
		}
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

func TestARaiseCountsOnlyRegistersThatMoved(t *testing.T) {
	final := func(votes []cast) verdict {
		if most(number(votes, castFenced), len(votes)) {
			return won
		}
		return lost
	}
	everyBallot(allCasts, func(votes []cast) {
		want := only(outcomes(votes, allCasts[1:], final), pending)
		if got := raised(tallyOf(votes)); got != want {
			t.Fatalf("%v: got %v, want %v", votes, got, want)
		}
	})
}
