package redlocktest

import "time"

// The two directions of a connection, named from the client.
type direction int

const (
	request direction = iota
	reply
)

const (
	// A segment takes base and up to spread in a bubble when the test asked for nothing: about 0.1 ms each way, a data
	// centre's. Halving either changes no promise. Zero would: everything would happen at one instant.
	bubbleBase   = 60 * time.Microsecond
	bubbleSpread = 1 << 16 // ns

	// The bytes of a request that tell which command it is.
	verbBytes = 16

	// What arrives does so at one of so many remainders of the clock, its sender's.
	slots = 16 // ns

	// A connection's deadline in a bubble comes that much late at most, so that no two fire at one instant.
	deadlineSpread = 1 << 12 // ns
)

// mix is splitmix64's finalizer over a running sum: every bit of every argument reaches every bit of the result. A
// generator would be simpler and wrong: its next number would go to whichever goroutine asks first.
func mix(vs ...uint64) uint64 {
	h := uint64(0)
	for _, v := range vs {
		h += v + 0x9e3779b97f4a7c15
		h ^= h >> 30
		h *= 0xbf58476d1ce4e5b9
		h ^= h >> 27
		h *= 0x94d049bb133111eb
		h ^= h >> 31
	}
	return h
}

func timeKey(t time.Time) uint64 { return uint64(t.UnixNano()) }

// hashOf is FNV-1a.
func hashOf(data []byte) uint64 {
	h := uint64(14695981039346656037)
	for _, b := range data {
		h = (h ^ uint64(b)) * 1099511628211
	}
	return h
}

// inBubble reports whether the caller runs in a synctest bubble. There is no public question for it. A bubble's clock
// starts at midnight UTC 2000-01-01 by contract, and no machine that compiles this source believes in that year.
func inBubble() bool { return time.Now().Year() < 2020 }
