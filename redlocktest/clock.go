package redlocktest

import (
	"sync"
	"time"
)

// clock is a node's: it gains or loses on ours by rate, and by steps. It is a leaf: it calls nothing while locked, so
// that it may be read from inside a script, where miniredis is locked.
type clock struct {
	mu   sync.Mutex
	rate float64
	ours time.Time // when at was true
	at   time.Time
}

func newClock() *clock {
	now := time.Now()
	// Round strips the monotonic reading. Kept, it would survive Add and make Sub of two readings use it, and a node's clock is
	// not ours.
	return &clock{rate: 1, ours: now, at: now.Round(0).UTC()}
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nowLocked(time.Now())
}

func (c *clock) nowLocked(ours time.Time) time.Time {
	elapsed := ours.Sub(c.ours)
	if c.rate != 1 { // float64 has 53 bits: exact for 104 days of nanoseconds, and not needed at all for a true clock
		elapsed = time.Duration(float64(elapsed) * c.rate)
	}
	return c.at.Add(elapsed)
}

func (c *clock) setRate(r float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	c.at, c.ours, c.rate = c.nowLocked(now), now, r
}

func (c *clock) jump(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}
