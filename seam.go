package redlock

import (
	"runtime"
	"sync"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/clock"
	"github.com/seed-ce352c9b/redlock/internal/lane"
	"github.com/seed-ce352c9b/redlock/internal/random"
	"github.com/seed-ce352c9b/redlock/internal/seam"
)

func init() {
	seam.NewLocker, seam.MinBatches = seamed, &lane.MinBatches
	seam.JoinFrom = func(locker any, n int) {
		for _, ln := range locker.(*Locker).lanes {
			ln.JoinFrom(n)
		}
	}
	seam.Peek = func(locker any) seam.State { return locker.(*Locker).peek() }
	seam.Unlocked = func(locker any) bool { return locker.(*Locker).unlocked() }
}

// seamed is New with a monotonic and a wall clock (the real ones if nil) and a seed for everything random.
func seamed(opt Options, steady, wall func() time.Time, seed uint64, nodes ...Node) (*Locker, error) {
	if steady == nil {
		steady = time.Now
	}
	if wall == nil {
		wall = time.Now
	}
	now := func() clock.Instant { return clock.Instant{At: steady(), Wall: wall().UnixMicro()} }
	return newLocker(opt, nodes, now, random.Seeded(seed))
}

// peek returns what seam.Peek tells tests. Each number is read under its own lock: the snapshot is not atomic.
func (l *Locker) peek() (s seam.State) {
	s.Held = l.held.Len()
	s.Leaving = l.cleanups.Unfinished() // after Held: a release adds its clean-up before its lock leaves the list
	s.Queues, s.Channels = l.queues.Size()
	s.Nodes = make([]seam.NodeState, len(l.lanes))
	for i, ln := range l.lanes {
		n := &s.Nodes[i]
		n.Owed, n.Down, n.Stuck = ln.State()
		_, n.Subscribed = l.queues.Subscription(i)
	}
	return s
}

// unlocked reports whether each mutex of the Locker, its queues and its lanes can be locked. Other goroutines
// may hold one for a moment, so it tries repeatedly.
func (l *Locker) unlocked() bool {
	unlocked := []func() bool{tryLock(&l.mu), l.held.Unlocked, l.queues.Unlocked, l.cleanups.Unlocked}
	for _, ln := range l.lanes {
		unlocked = append(unlocked, ln.Unlocked)
	}
	for _, yes := range unlocked {
		for tries := 0; !yes(); tries++ {
			if tries == 100_000 {
				return false
			}
			runtime.Gosched()
		}
	}
	return true
}

func tryLock(mu *sync.Mutex) func() bool {
	return func() bool {
		if !mu.TryLock() {
			return false
		}
		mu.Unlock()
		return true
	}
}
