package redlock

import (
	"fmt"
	"math"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/wire"
)

// The time constants of a lock, each with its unit, its source and, where it matters, what
// breaks if it is halved. Only package clock reads the clocks by which a lock's validity counts.

const (
	// defaultDrift is how much faster a node's clock may run than ours: 1 %, the
	// CLOCK_DRIFT_FACTOR of the Redis page ("Distributed Locks with Redis", The
	// Redlock Algorithm). Quartz is accurate to 0.02 %, and NTP slews by at most
	// 0.05 %. Halved, it would still cover both; at 0, a node that is 1 % fast
	// admits the next holder while we still hold the lock.
	defaultDrift = 0.01

	// expiryGrain covers rounding: Redis counts expiry in whole milliseconds, and
	// our monotonic clock is read once before the first byte is sent. 2 ms as in the
	// Redis page's reference implementation. Halved, short ttls have no margin
	// for either.
	expiryGrain = 2 * time.Millisecond

	// maxNodeTimeout caps the default of Options.NodeTimeout. A node that takes a
	// second to reply does not help a caller who waits for a quorum. Halved, a node that
	// stalls for half a second has no vote; doubled, two hung nodes of three delay an error by a second more.
	maxNodeTimeout = time.Second

	// timeoutsPerTTL divides the ttl into the default of Options.NodeTimeout. (Redis
	// page: the timeout must be small compared to the ttl.) Halved, two hung nodes in
	// a row cost two fifths of the validity.
	timeoutsPerTTL = 10

	// renewalsPerValidity: KeepAlive extends after a third of (the validity less
	// Options.Grace), so that two renewals can fail before the contexts end. Halved,
	// there would be no second one.
	renewalsPerValidity = 3

	// renewJitter spreads the renewals of many locks: each comes earlier by up to this
	// fraction of its pause. Halved, renewals that fell together stay together for longer.
	renewJitter = 0.1

	// lossLead is how long before Until a KeepAlive context ends without
	// Options.Grace, but at most a twentieth of the validity: timers fire up to a
	// millisecond late on a busy machine, and I3 says "no later". Halved, a late timer breaks it.
	lossLead = time.Millisecond

	// retryFirst and retryMost are the longest pauses after the first and after
	// many failed attempts of Acquire: long compared to a round, so that contenders
	// drift apart, and short enough to notice a free lock soon. Halved, waiters that hear no
	// announcements ask twice as often; doubled, a free lock stays free for longer.
	retryFirst = 10 * time.Millisecond
	retryMost  = 250 * time.Millisecond
)

// driftOf returns how far a node's clock may gain on ours during ttl, rounded up.
func driftOf(ttl time.Duration, drift float64) time.Duration {
	return time.Duration(math.Ceil(float64(ttl) * drift))
}

// validity returns how long a lock may be relied on, counted from before its first
// request is sent: ttl minus the drift allowance minus the grain. (The Redis page also
// subtracts the time elapsed; counting from that start is the same sum.)
func validity(ttl time.Duration, drift float64) time.Duration {
	return ttl - driftOf(ttl, drift) - expiryGrain
}

// nodeTimeout returns how long a node may take to reply if its round trip is not known.
func nodeTimeout(ttl, configured time.Duration) time.Duration {
	if configured > 0 {
		return configured
	}
	return min(ttl/timeoutsPerTTL, maxNodeTimeout)
}

// patienceFor returns the node timeout and, for distant nodes, its limit: half of the
// validity less Options.Grace, since a slower reply leaves too little of it.
func patienceFor(ttl, grace, configured time.Duration, drift float64) wire.Patience {
	return wire.Patience{Base: nodeTimeout(ttl, configured), Limit: window(validity(ttl, drift), grace) / 2}
}

// checkTTL returns an error if a ttl leaves no validity after the drift allowance, one
// node timeout and the grain. The error names the smallest usable ttl.
func checkTTL(ttl, configured time.Duration, drift float64) error {
	if ttl > wire.MaxTTL {
		return fmt.Errorf("redlock: ttl %v is more than %v: some servers and proxies count milliseconds in 32 bits; use a shorter one and KeepAlive", ttl, wire.MaxTTL)
	}
	if ttl > 0 && validity(ttl, drift) > nodeTimeout(ttl, configured) {
		return nil
	}
	advice := "no ttl is usable; lower Options.Drift or Options.NodeTimeout"
	if least := smallestTTL(configured, drift); least <= wire.MaxTTL {
		advice = "the smallest usable ttl is " + least.String()
	}
	costs := fmt.Sprintf("%.4g%% drift", drift*100)
	if t := nodeTimeout(max(ttl, 0), configured); t > 0 {
		costs += fmt.Sprintf(", a node timeout of %v", t)
	}
	return fmt.Errorf("redlock: ttl %v leaves no time to hold the lock after %s and %v for rounding: %s", ttl, costs, expiryGrain, advice)
}

// smallestTTL returns the smallest ttl that checkTTL accepts, in whole milliseconds.
func smallestTTL(configured time.Duration, drift float64) time.Duration {
	return smallest(func(ttl time.Duration) bool {
		return validity(ttl, drift) > nodeTimeout(ttl, configured)
	})
}

// ttlFor returns the smallest ttl with at least this validity, in whole milliseconds, or one
// above wire.MaxTTL if there is none up to there.
func ttlFor(valid time.Duration, drift float64) time.Duration {
	return smallest(func(ttl time.Duration) bool { return validity(ttl, drift) >= valid })
}

// smallest returns the smallest duration that fits, in whole milliseconds, or one above
// wire.MaxTTL if there is none up to there. All durations above one that fits must fit.
func smallest(fits func(time.Duration) bool) time.Duration {
	lo, hi := time.Duration(0), time.Millisecond
	for !fits(hi) && hi < wire.MaxTTL {
		lo, hi = hi, 2*hi
	}
	for hi-lo > time.Millisecond {
		mid := ((lo + hi) / 2).Truncate(time.Millisecond)
		if fits(mid) {
			hi = mid
		} else {
			lo = mid
		}
	}
	return hi
}

// checkGrace returns an error if Options.Grace leaves too little of a ttl to renew the
// lock twice. The error names the greatest usable Grace and the smallest usable ttl.
func checkGrace(ttl, grace, configured time.Duration, drift float64) error {
	usable := func(ttl, grace time.Duration) bool {
		return grace == 0 || twoRenewalsFit(window(validity(ttl, drift), grace), nodeTimeout(ttl, configured))
	}
	if usable(ttl, grace) {
		return nil
	}
	advice := "no Grace is usable with this ttl"
	if most := smallest(func(g time.Duration) bool { return !usable(ttl, g) }) - time.Millisecond; most > 0 {
		advice = "the greatest usable Grace is " + most.String()
	}
	if least := smallest(func(ttl time.Duration) bool { return usable(ttl, grace) }); least <= wire.MaxTTL {
		advice += ", the smallest usable ttl is " + least.String()
	}
	return fmt.Errorf("redlock: Options.Grace %v leaves no time for two renewals of a lock with ttl %v (validity %v, node timeout %v): %s",
		grace, ttl, validity(ttl, drift), nodeTimeout(ttl, configured), advice)
}

// twoRenewalsFit reports whether a second renewal can be answered within the window if
// the first was not answered and each takes the whole node timeout.
func twoRenewalsFit(window, timeout time.Duration) bool {
	if timeout >= window {
		return false // also keeps the sums below from overflowing
	}
	at := renewAfter(window, 0) + timeout
	at += renewAgainAfter(window-at, 0) + timeout
	return at < window
}

// window returns the validity less the grace, within which renewals are scheduled.
func window(valid, grace time.Duration) time.Duration {
	if grace >= valid { // compared, since the difference may overflow
		return 0
	}
	return valid - grace
}

// renewAfter returns the pause between renewals of a lock with this window; u in [0,1)
// spreads them.
func renewAfter(window time.Duration, u float64) time.Duration {
	pause := window / renewalsPerValidity
	return pause - time.Duration(float64(pause)*renewJitter*u)
}

// firstRenewAfter returns the pause before the first renewal: half to all of a later one, so
// that locks that were acquired together are not renewed together from then on.
func firstRenewAfter(window time.Duration, u float64) time.Duration {
	pause := window / renewalsPerValidity
	return pause - time.Duration(float64(pause)*u/2)
}

// renewAgainAfter returns the pause after a renewal that got no quorum: a quarter of the
// rest of the window, so that several more fit, and at least a millisecond.
func renewAgainAfter(left time.Duration, u float64) time.Duration {
	pause := left / 4
	return max(pause-time.Duration(float64(pause)*renewJitter*u), time.Millisecond)
}

// leadOf returns how long before Until a lock of this validity is given up.
func leadOf(valid time.Duration) time.Duration { return min(lossLead, valid/20) }

// noticeOf returns how long before Until the contexts of KeepAlive end: Options.Grace, or
// the lead if that is longer.
func noticeOf(valid, grace time.Duration) time.Duration { return max(grace, leadOf(valid)) }

// defaultRetry returns the longest pause after the given attempt: doubling, capped.
func defaultRetry(attempt int) time.Duration {
	if attempt < 1 {
		attempt = 1
	}
	if attempt > 10 {
		return retryMost
	}
	return min(retryFirst<<(attempt-1), retryMost)
}
