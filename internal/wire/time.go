package wire

import (
	"math"
	"time"
)

const (
	// MaxTTL keeps ttls below 2^31 ms (24.8 days), because some proxies parse them into 32
	// bits: a larger ttl would become one of a few seconds, or none.
	MaxTTL = 24 * 24 * time.Hour

	// RoundTrips is the least time that a node is given to answer, in measured round trips:
	// one for the answer, and two for a retransmission of the first segment or a stall of
	// the scheduler. With less, a distant node would count as down because of its distance.
	RoundTrips = 3

	// RegisterLife is how long a fence register outlives the last command that set its ttl,
	// unless a Locker has a FenceLife of its own. After it has expired, tokens grow only if the
	// clients' wall clocks differ by less than this. If it is halved, they may differ by half a
	// day instead of a whole one.
	RegisterLife = 24 * time.Hour

	// slackPerLife is which part of its life may have passed before the register's ttl is set
	// again: an hour of a day. Without it every release would set the ttl, which is a fifth of its
	// cost on the server. It is subtracted from what the life allows.
	slackPerLife = 24
)

// A FenceLife is how long fence registers outlive the last command that set their ttl. Zero
// means RegisterLife.
type FenceLife time.Duration

func (f FenceLife) duration() time.Duration {
	if f == 0 {
		return RegisterLife
	}
	return time.Duration(f)
}

// isUsual reports whether the scripts know the life by themselves.
func (f FenceLife) isUsual() bool { return f.duration() == RegisterLife }

// Slack returns how much of the life may have passed before it begins anew.
func (f FenceLife) Slack() time.Duration { return f.duration() / slackPerLife }

// A Patience bounds the wait for one node's answer: Base, or RoundTrips of its round trips if
// that is more, but in that case at most Limit, beyond which the answer would be useless.
type Patience struct{ Base, Limit time.Duration }

// With returns the time to wait for a node with this round trip; 0: it is not known.
func (p Patience) With(rtt time.Duration) time.Duration {
	return max(p.Base, min(RoundTrips*rtt, p.Limit))
}

// CeilMillis returns a ttl in whole milliseconds as Redis takes it, rounded up: a key that
// lives longer than its holder assumes only makes others wait.
func CeilMillis(ttl time.Duration) int64 {
	return int64((ttl + time.Millisecond - 1) / time.Millisecond)
}

// millis returns the ttl of a fence register, given, which the scripts set if the remaining one
// is less than least; both in milliseconds. They are the same for all ttls up to Slack, and of
// the usual life the scripts know these. given stays below 2^31 as well, which takes some of
// their life from the registers of the longest ttls: if a proxy truncated it, PEXPIRE would
// delete the register.
func (f FenceLife) millis(ttl time.Duration) (least, given int64) {
	given = min(CeilMillis(max(ttl, f.Slack())+f.duration()), math.MaxInt32)
	return given - CeilMillis(f.Slack()), given
}

// args returns the arguments with the register's ttl for the scripts that set it, or nil for
// the usual one, which the scripts know.
func (f FenceLife) args(ttl time.Duration) []any {
	if f.isUsual() && ttl <= f.Slack() {
		return nil
	}
	least, given := f.millis(ttl)
	return []any{least, given}
}

// isShared reports whether the registers of all ttls like this one live equally long, so that
// one script can give several of them their ttl.
func (f FenceLife) isShared(ttl time.Duration) bool { return ttl <= f.Slack() }

// ExpiresIn returns the longest time that a key may still exist for which PTTL has replied
// ms: up to a millisecond more. For a key without a ttl it returns MaxTTL.
func ExpiresIn(ms int64) time.Duration {
	if ms < 0 || ms > MaxTTL.Milliseconds() { // no ttl, or one of a foreign client that is beyond a Duration
		return MaxTTL
	}
	return time.Duration(ms+1) * time.Millisecond
}
