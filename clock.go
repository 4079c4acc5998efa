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

// An instant is one moment on two clocks. The monotonic clock (CLOCK_MONOTONIC on
// Linux) never jumps, but stops while the machine is suspended. The wall clock goes on
// then, but can be set. Only together do they bound the time that has passed: the one
// that advanced more decides. A wall clock set back is then harmless, and one set forward
// ends a lock early; with neither do we rely on a lock for longer than the nodes keep it.
type instant struct {
	at   time.Time // monotonic
	wall int64     // microseconds since 1970
}

// since returns the time from b to a, by the clock that advanced more.
func (a instant) since(b instant) time.Duration {
	return max(a.at.Sub(b.at), time.Duration(a.wall-b.wall)*time.Microsecond)
}

// A clock returns the current instant. Tests use one that they can suspend and set.
type clock func() instant

func realClock() instant {
	t := time.Now()
	return instant{at: t, wall: t.UnixMicro()}
}

// A source is a Locker's randomness: buffered bytes of the system's generator for uuids,
// and a fast generator for the spread of pauses. Tests use a seeded one.
type source struct {
	mu     sync.Mutex
	bytes  io.Reader
	spread *rand.Rand
}

func newSource() *source {
	return &source{bytes: bufio.NewReaderSize(crand.Reader, 1024), spread: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))}
}

// uuid returns a new random uuid (RFC 9562, version 4) as text.
func (s *source) uuid() string {
	s.mu.Lock()
	id, err := uuid.NewRandomFromReader(s.bytes)
	s.mu.Unlock()
	if err != nil { // crypto/rand never fails; and a value must not be guessable
		panic(fmt.Sprintf("redlock: no randomness: %v", err))
	}
	return id.String()
}

// float returns a random number in [0,1).
func (s *source) float() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.spread.Float64()
}
