// Package random is a Locker's randomness. Tests seed it.
package random

import (
	"bufio"
	crand "crypto/rand"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"

	"github.com/google/uuid"
)

// A Source has buffered bytes of the system's generator for uuids, and a fast generator for
// the spread of pauses. It is safe for concurrent use.
type Source struct {
	mu     sync.Mutex
	bytes  io.Reader
	spread *rand.Rand
}

// New returns a Source that nobody can predict.
func New() *Source {
	return &Source{bytes: bufio.NewReaderSize(crand.Reader, 1024), spread: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))}
}

// Seeded returns a Source for tests, which repeats itself.
func Seeded(seed uint64) *Source {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	return &Source{bytes: rand.NewChaCha8(key), spread: rand.New(rand.NewPCG(seed, 1))}
}

// UUID returns a new random uuid (RFC 9562, version 4) as text.
func (s *Source) UUID() string {
	s.mu.Lock()
	id, err := uuid.NewRandomFromReader(s.bytes)
	s.mu.Unlock()
	if err != nil { // crypto/rand never fails; and a value must not be guessable
		panic(fmt.Sprintf("redlock: no randomness: %v", err))
	}
	return id.String()
}

// Float returns a random number in [0,1).
func (s *Source) Float() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.spread.Float64()
}
