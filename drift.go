package redlock

import (
	"fmt"
	"math"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/wire"
)

// Every time constant of the protocol stands here, with its unit, its source,
// and what breaks if it is halved. Nothing in this file reads a clock.

const (
	// defaultDrift is how much faster a node's clock may run than ours: 1 %, the
	// CLOCK_DRIFT_FACTOR of the Redis page ("Distributed Locks with Redis", The
	// Redlock Algorithm). Quartz is good for 0.02 %, NTP slews by at most 0.05 %.
	// Halved it would still cover both; at 0 a node that is 1 % fast lets the
	// next holder in while we believe in our lock.
	defaultDrift = 0.01

	// expiryGrain covers what a node and we may round away: Redis counts expiry
	// in whole milliseconds, and our steady clock is read once before the first
	// byte leaves. 2 ms as in the Redis page's reference implementation. Halved,
	// a ttl of a few ms is judged with no margin for either rounding.
	expiryGrain = 2 * time.Millisecond

	// maxNodeTimeout caps the default of Options.NodeTimeout. A node that takes a
	// second to answer is of no use to the quorum of a lock that is waited for.
	maxNodeTimeout = time.Second

	// timeoutsPerTTL is the default of Options.NodeTimeout as a part of the ttl.
	// The Redis page: the timeout must be small compared to the ttl. Halved (a
	// fifth of the ttl), two hung nodes in a row cost two fifths of the validity.
	timeoutsPerTTL = 10

	// registerGrace is how long a lock is held before its registers are given a
	// life of their own accord. Release and Extend do it anyway; this is for locks
	// that are left to expire. Shorter, and every lock pays for it.
	registerGrace = time.Second

	// renewalsPerValidity: KeepAlive extends at a third of the validity, less
	// Options.Grace, so that two tries can fail before the contexts end (with the
	// defaults that is a third of the ttl less 1 %). Halved there would be no second
	// try.
	renewalsPerValidity = 3

	// renewJitter spreads the renewals of many locks: each is up to this part of
	// its pause earlier.
	renewJitter = 0.1

	// lossLead is how much before Until a KeepAlive context ends without an
	// Options.Grace: timers fire late, by up to a millisecond on a busy machine, and
	// the promise is "no later". At most a twentieth of the validity, so that short
	// locks keep theirs.
	lossLead = time.Millisecond

	// watchEvery is the pause between two looks at the wall clock: the steady
	// clock stands still while a machine sleeps, and with it every timer. A holder
	// learns of a loss that it slept through this long after it woke.
	watchEvery = 500 * time.Millisecond

	// retryFirst and retryMost are the longest pauses after the first and after
	// many failed attempts of Acquire: long compared to a round, so that two
	// contenders drift apart, and short enough to notice a free lock.
	retryFirst = 10 * time.Millisecond
	retryMost  = 250 * time.Millisecond
)

// driftOf is how much of ttl a node's clock may run away with, rounded up.
func driftOf(ttl time.Duration, drift float64) time.Duration {
	return time.Duration(math.Ceil(float64(ttl) * drift))
}

// validity is how long a lock of this ttl may be believed in, measured from
// before its first request left: ttl minus the drift allowance minus the grain.
// (The Redis page subtracts the time elapsed, too; here it is counted from that
// start, which is the same sum.)
func validity(ttl time.Duration, drift float64) time.Duration {
	return ttl - driftOf(ttl, drift) - expiryGrain
}

// nodeTimeout is how long a node may take to answer a request for a lock of this
// ttl, before the node's own distance is known (see patience).
func nodeTimeout(ttl, configured time.Duration) time.Duration {
	if configured > 0 {
		return configured
	}
	return min(ttl/timeoutsPerTTL, maxNodeTimeout)
}

// patienceFor derives the bound from the ttl: a node that takes more than half of
// the validity, less Options.Grace, leaves too little of it to be worth having.
func patienceFor(ttl, grace, configured time.Duration, drift float64) wire.Patience {
	return wire.Patience{Base: nodeTimeout(ttl, configured), Limit: window(validity(ttl, drift), grace) / 2}
}

// checkTTL refuses a ttl that can not leave any validity after the drift
// allowance, one node timeout and the grain, and names the smallest that can.
func checkTTL(ttl, configured time.Duration, drift float64) error {
	if ttl > wire.MaxTTL {
		return fmt.Errorf("redlock: ttl %v is more than %v: some servers and proxies count milliseconds in 32 bits; take a shorter one and KeepAlive", ttl, wire.MaxTTL)
	}
	if ttl > 0 && validity(ttl, drift) > nodeTimeout(ttl, configured) {
		return nil
	}
	advice := "none would do, lower Options.Drift or Options.NodeTimeout"
	if least := smallestTTL(configured, drift); least <= wire.MaxTTL {
		advice = "the smallest that would do is " + least.String()
	}
	return fmt.Errorf("redlock: ttl %v leaves no time to hold the lock after %.4g%% drift, a node timeout of %v and %v for rounding: %s",
		ttl, drift*100, nodeTimeout(max(ttl, 0), configured), expiryGrain, advice)
}

// smallestTTL solves checkTTL for the ttl, in whole milliseconds.
func smallestTTL(configured time.Duration, drift float64) time.Duration {
	return smallest(func(ttl time.Duration) bool {
		return validity(ttl, drift) > nodeTimeout(ttl, configured)
	})
}

// smallest is the first duration that fits, in whole milliseconds; above maxTTL if
// none does up to there. A duration that fits must do so for all longer ones.
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

// checkGrace refuses a ttl of which Options.Grace leaves too little to renew the
// lock twice, and names the greatest grace and the smallest ttl that can.
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

// twoRenewalsFit reports whether a second renewal can be answered before the window
// ends where the first got no answer and each takes the whole node timeout.
func twoRenewalsFit(window, timeout time.Duration) bool {
	if timeout >= window {
		return false // also keeps the sums below from overflowing
	}
	at := renewAfter(window, 0) + timeout
	at += renewAgainAfter(window-at, 0) + timeout
	return at < window
}

// window is how long, of its validity, a lock's KeepAlive contexts live without a
// renewal; 0: not at all. Renewals are scheduled within it.
func window(valid, grace time.Duration) time.Duration {
	if grace >= valid { // compared, for the difference may overflow
		return 0
	}
	return valid - grace
}

// renewAfter is the pause from one renewal to the next, for a lock with this window;
// u in [0,1) spreads them.
func renewAfter(window time.Duration, u float64) time.Duration {
	pause := window / renewalsPerValidity
	return pause - time.Duration(float64(pause)*renewJitter*u)
}

// renewAgainAfter is the pause after a renewal that got no quorum: a quarter of
// what is left of the window, so that several more fit in, and not less than a
// millisecond.
func renewAgainAfter(left time.Duration, u float64) time.Duration {
	pause := left / 4
	return max(pause-time.Duration(float64(pause)*renewJitter*u), time.Millisecond)
}

// leadOf is how much before Until a lock of this validity is given up.
func leadOf(valid time.Duration) time.Duration { return min(lossLead, valid/20) }

// noticeOf is how much before Until the contexts of KeepAlive end: Options.Grace,
// and without one the lead.
func noticeOf(valid, grace time.Duration) time.Duration { return max(grace, leadOf(valid)) }

// defaultRetry is the longest pause before attempt number n+1: doubling, capped.
func defaultRetry(attempt int) time.Duration {
	if attempt < 1 {
		attempt = 1
	}
	if attempt > 10 {
		return retryMost
	}
	return min(retryFirst<<(attempt-1), retryMost)
}
