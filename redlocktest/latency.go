package redlocktest

import "time"

// A direction is one of the two directions of a connection, named from the client's point of view.
type direction int

const (
	request direction = iota
	reply
)

const (
	// In a bubble, a segment takes bubbleBase and up to bubbleSpread more if the test asked for nothing: about 0.1 ms each
	// way, as in a data centre. Halving either breaks no promise. Zero would: everything would happen at one instant.
	bubbleBase   = 60 * time.Microsecond
	bubbleSpread = 1 << 16 // ns

	// verbBytes is the number of bytes of a request that identify the command.
	verbBytes = 16

	// A segment arrives at a time whose remainder modulo slots is its sender's.
	slots = 16 // ns

	// In a bubble, a connection's deadline is delayed by up to this much, so that no two fire at the same instant.
	deadlineSpread = 1 << 12 // ns
)

// mix is splitmix64's finalizer over a running sum: every bit of every argument affects every bit of the result. A random
// number generator would be simpler and wrong: the goroutine that asks first would get its next number.
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

// inBubble reports whether the caller runs in a synctest bubble. There is no public function for that. A bubble's clock
// starts at midnight UTC 2000-01-01 by contract, and no machine that compiles this source has its clock set to that year.
func inBubble() bool { return time.Now().Year() < 2020 }
