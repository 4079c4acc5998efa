// Package fence chooses the numbers that acquisitions propose as fencing tokens. Any choice is
// safe: the nodes' registers alone decide which token counts. A good one costs no second round.
package fence

import (
	"time"

	"github.com/seed-ce352c9b/redlock/internal/wire"
)

const (
	// clockTrust is the greatest wall clock that proposals follow. A clock beyond it must not
	// use up the numbers below 2^53.
	clockTrust = wire.MaxClock

	// raiseHeadroom is how far a raised token is at least above the registers, in µs, so
	// that contenders' proposals do not overtake it meanwhile. Halved, more raises are
	// repeated; doubled, the registers run farther ahead of the clocks.
	raiseHeadroom = 1000

	// raisePart: a raise uses up at most 1/raisePart of the numbers left below 2^53, or
	// one number, however long its round took. Halved, the numbers last half as long for
	// registers near the end. A round of a second is limited once
	// fewer than 2^31 numbers are left.
	raisePart = 1024
)

// Propose returns the token to propose at a time, in µs since 1970, after a register was seen:
// the time, which is greater than most earlier proposals without a question, or one above the
// register. It returns 0 if there is no such number below 2^53-1.
func Propose(now, seen int64) int64 {
	if now < 0 || now > clockTrust {
		now = 0
	}
	if p := max(now, seen+1); p < wire.MaxToken {
		return p
	}
	return 0
}

// Raise returns the token to which registers at seen are raised if a round takes this
// long, or 0 if there is no such number below 2^53-1.
func Raise(seen int64, took time.Duration) int64 {
	room := wire.MaxToken - 1 - seen
	if room <= 0 {
		return 0
	}
	headroom := max(raiseHeadroom, 2*int64(took/time.Microsecond))
	return seen + min(headroom, max(room/raisePart, 1))
}
