package redlock

import "time"

// An instant is one moment on two clocks. The steady clock (CLOCK_MONOTONIC on
// Linux) never jumps, but stands still while a machine is suspended; the wall
// clock goes on then, but can be set. Only together they bound how much time has
// passed: whichever went further decides. A wall clock set back is then harmless,
// one set forward gives a lock up early, and neither makes us believe in a lock
// for longer than the nodes do.
type instant struct {
	at   time.Time // steady
	wall int64     // microseconds since 1970
}

// since is the time that passed from b to a, by the clock that went further.
func (a instant) since(b instant) time.Duration {
	return max(a.at.Sub(b.at), time.Duration(a.wall-b.wall)*time.Microsecond)
}

// A clock tells the instant; tests put one in that suspends or sets it.
type clock func() instant

func realClock() instant {
	t := time.Now()
	return instant{at: t, wall: t.UnixMicro()}
}
