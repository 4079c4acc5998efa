package redlock

import (
	"runtime"
	"sync"

	"github.com/seed-ce352c9b/redlock/internal/lane"
)

// The seams that tests outside the package reach.

// NewSeamed is New with a steady clock, a wall clock and a seed for everything
// random. nil: the real one.
var NewSeamed = seamed

// With one connection to a near node nothing could overtake anything there.
func init() { lane.MinFlights = 2 }

// Owed is how many rollbacks and releases are owed to the i-th node.
func (l *Locker) Owed(i int) int {
	ln := l.lanes[i]
	ln.Mu.Lock()
	defer ln.Mu.Unlock()
	return ln.Owed.Len()
}

// Down reports whether the i-th node is out of use.
func (l *Locker) Down(i int) bool {
	ln := l.lanes[i]
	ln.Mu.Lock()
	defer ln.Mu.Unlock()
	return ln.Down != nil
}

// Held is how many locks the Locker has on its list.
func (l *Locker) Held() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held.n
}

// Leaving is how many keys have a clean-up under way.
func (l *Locker) Leaving() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.leaving)
}

// Rooms is how many keys have a line, or are still listened to.
func (l *Locker) Rooms() int {
	l.waits.mu.Lock()
	defer l.waits.mu.Unlock()
	return len(l.waits.rooms)
}

// Heard is how many channels of the i-th node we know that we listen to.
func (l *Locker) Heard(i int) (n int) {
	e := l.waits.ears[i]
	if e == nil {
		return 0
	}
	e.Mu.Lock()
	defer e.Mu.Unlock()
	for _, yes := range e.Want {
		if yes {
			n++
		}
	}
	return n
}

// Channels is how many channels of lines the Locker knows.
func (l *Locker) Channels() int {
	l.waits.mu.Lock()
	defer l.waits.mu.Unlock()
	return len(l.waits.byEar)
}

// Pipelines is how many pipelines to the i-th node were given up and have not come back.
func (l *Locker) Pipelines(i int) int {
	ln := l.lanes[i]
	ln.Mu.Lock()
	defer ln.Mu.Unlock()
	return ln.Stuck
}

// Unlocked reports that nobody keeps a lock of the Locker, its lines or its lanes.
func (l *Locker) Unlocked() bool {
	locks := []*sync.Mutex{&l.mu, &l.waits.mu}
	for _, ln := range l.lanes {
		locks = append(locks, &ln.Mu)
	}
	for _, mu := range locks {
		free := false
		for tries := 0; !free && tries < 100_000; tries++ { // others have it for a moment
			if free = mu.TryLock(); free {
				mu.Unlock()
			} else {
				runtime.Gosched()
			}
		}
		if !free {
			return false
		}
	}
	return true
}
