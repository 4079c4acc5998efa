package redlock

import (
	"bufio"
	crand "crypto/rand"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/google/uuid"
)

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

// A source is where a Locker's randomness comes from: uuids from the system's
// generator, read in larger pieces, and the spread of pauses from a quick one.
// Tests put a seeded one in.
type source struct {
	mu     sync.Mutex
	bytes  io.Reader
	spread *rand.Rand
}

func newSource() *source {
	return &source{bytes: bufio.NewReaderSize(crand.Reader, 1024), spread: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))}
}

// uuid is a new random uuid (RFC 9562, version 4) as text.
func (s *source) uuid() string {
	s.mu.Lock()
	id, err := uuid.NewRandomFromReader(s.bytes)
	s.mu.Unlock()
	if err != nil { // crypto/rand never fails; a lock with a guessable value must not be made
		panic(fmt.Sprintf("redlock: no randomness: %v", err))
	}
	return id.String()
}

// float is in [0,1).
func (s *source) float() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.spread.Float64()
}
