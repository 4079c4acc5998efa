package wire

import (
	"math"
	"time"
)

// Times as the nodes are told them.

const (
	// maxTTL keeps px below 2^31 ms (24.8 days), which some proxies parse into 32
	// bits: a larger one would come out as a lock of a few seconds, or as none.
	MaxTTL = 24 * 24 * time.Hour

	// roundTrips is the least a node is given, in its own measured round trips:
	// one for the answer, two for a retransmission of the first segment or a
	// stall of the scheduler. Below that a far node is suspected for its distance.
	RoundTrips = 3

	// registerLife is how long a fence register outlives the last word on its
	// lock. Where it expires, tokens grow only if the clients' wall clocks differ
	// by less than this. Halved, clocks may differ by half a day, not a whole one.
	RegisterLife = 24 * time.Hour

	// registerSlack is how much of registerLife may be over before a register is
	// given all of it anew: not every release of the same lock then has to, which is
	// a fifth of its cost on the server. It shortens what registerLife allows.
	RegisterSlack = time.Hour
)

// A Patience bounds one node's answer: base, or three of its round trips if that
// is more, but never more than limit, beyond which the answer could not be used.
type Patience struct{ Base, Limit time.Duration }

func (p Patience) With(rtt time.Duration) time.Duration {
	return max(p.Base, min(RoundTrips*rtt, p.Limit))
}

// Px is ttl in whole milliseconds as Redis takes it, rounded up: a key that
// lives longer than we count on only makes others wait.
func CeilMillis(ttl time.Duration) int64 {
	return int64((ttl + time.Millisecond - 1) / time.Millisecond)
}

// registerPX is the life that a fence register is given, in milliseconds from now,
// where it has less than least. It is the same for all ttls up to registerSlack, and
// the scripts know it. Below 2^31 as well, which takes a few hours from the registers
// of the longest ttls: a proxy that cut it would make PEXPIRE delete the register.
func registerMillis(ttl time.Duration) (least, given int64) {
	given = min(CeilMillis(max(ttl, RegisterSlack)+RegisterLife), math.MaxInt32)
	return given - CeilMillis(RegisterSlack), given
}

// ExpiresIn is for how long a key is there of which PTTL says ms: up to a millisecond
// more, and without a ttl for ever.
func ExpiresIn(ms int64) time.Duration {
	if ms < 0 || ms > MaxTTL.Milliseconds() { // no end, or a stranger's that no Duration can say
		return MaxTTL
	}
	return time.Duration(ms+1) * time.Millisecond
}
