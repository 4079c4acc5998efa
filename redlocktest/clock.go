package redlocktest

import (
	"sync"
	"time"
)

// A clock is a node's clock. It runs at rate times the speed of the test's clock, and can be stepped. It calls nothing
// while it is locked, so it may be read from inside a script, where miniredis is locked.
type clock struct {
	mu   sync.Mutex
	rate float64
	ours time.Time // the test's clock when the node's clock showed at
	at   time.Time
}

func newClock() *clock {
	now := time.Now()
	// Round strips the monotonic reading. It would survive Add, and Sub of two readings would use it, but a node's clock is
	// independent of the test's.
	return &clock{rate: 1, ours: now, at: now.Round(0).UTC()}
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nowLocked(time.Now())
}

func (c *clock) nowLocked(ours time.Time) time.Time {
	elapsed := ours.Sub(c.ours)
	if c.rate != 1 { // float64 has 53 bits: exact for 104 days in nanoseconds; a clock at rate 1 does not need it
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
