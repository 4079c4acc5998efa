package redlock

import (
	"encoding/binary"
	"math/rand/v2"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/lane"

	"github.com/seed-ce352c9b/redlock/internal/seam"
)

func init() {
	seam.NewLocker, seam.MinBatches = seamed, &lane.MinBatches
	seam.Peek = func(locker any) seam.State { return locker.(*Locker).peek() }
	seam.Unlocked = func(locker any) bool { return locker.(*Locker).unlocked() }
}

// seamed is New with a steady clock, a wall clock (nil: the real ones) and a seed for everything random.
func seamed(opt Options, steady, wall func() time.Time, seed uint64, nodes ...Node) (*Locker, error) {
	if steady == nil {
		steady = time.Now
	}
	if wall == nil {
		wall = time.Now
	}
	now := func() instant { return instant{at: steady(), wall: wall().UnixMicro()} }
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	return newLocker(opt, nodes, now, &source{bytes: rand.NewChaCha8(key), spread: rand.New(rand.NewPCG(seed, 1))})
}
