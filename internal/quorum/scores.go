package quorum

import "github.com/seed-ce352c9b/redlock/internal/wire"

// scores are the fence registers that the votes on a question have told.
type scores struct {
	sane int64 // the highest up to wire.MaxClock
	ill  int64 // the highest above it
	ills int   // how many are above it
}

func (s *scores) add(score int64) {
	if score <= wire.MaxClock {
		s.sane = max(s.sane, score)
		return
	}
	s.ill = max(s.ill, score)
	s.ills++
}

// highest returns the register above which the next token is chosen. As long as the nodes
// whose registers are not ill can be a majority, the others are passed over: if the token
// were above them, it would carry their numbers to sound nodes, and soon no numbers would be
// left. This is a choice, not a count: no node counts whose own register did not move.
func (s *scores) highest(t Tally) int64 {
	if s.ills > t.N-t.Need() {
		return s.ill
	}
	return s.sane
}
