package redlock

import (
	"bufio"
	crand "crypto/rand"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"

	"github.com/google/uuid"
)

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
