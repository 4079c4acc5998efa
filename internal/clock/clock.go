// Package clock reads the time on two clocks, of which neither alone bounds how much has passed.
package clock

import "time"

// An Instant is one moment on two clocks. The monotonic clock (CLOCK_MONOTONIC on
// Linux) never jumps, but stops while the machine is suspended. The wall clock goes on
// then, but can be set. Only together do they bound the time that has passed: the one
// that advanced more decides. A wall clock set back is then harmless, and one set forward
// ends a lock early; with neither do we rely on a lock for longer than the nodes keep it.
type Instant struct {
	At   time.Time // monotonic
	Wall int64     // microseconds since 1970
}

// Since returns the time from b to a, by the clock that advanced more.
func (a Instant) Since(b Instant) time.Duration {
	return max(a.At.Sub(b.At), time.Duration(a.Wall-b.Wall)*time.Microsecond)
}

// A Clock returns the current Instant. Tests use one that they can suspend and set.
type Clock func() Instant

// Real is the Clock of this machine.
func Real() Instant {
	t := time.Now()
	return Instant{At: t, Wall: t.UnixMicro()}
}
