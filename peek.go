package redlock

import (
	"runtime"
	"sync"

	"github.com/seed-ce352c9b/redlock/internal/seam"
)

// peek returns what seam.Peek tells tests. Each number is read under its own lock: the snapshot is not atomic.
func (l *Locker) peek() (s seam.State) {
	l.mu.Lock()
	s.Held, s.Leaving = l.held.n, len(l.leaving)
	l.mu.Unlock()
	l.waits.mu.Lock()
	s.Queues, s.Channels = len(l.waits.rooms), len(l.waits.byEar)
	l.waits.mu.Unlock()
	s.Nodes = make([]seam.NodeState, len(l.lanes))
	for i, ln := range l.lanes {
		n := &s.Nodes[i]
		ln.mu.Lock()
		n.Owed, n.Down, n.Stuck = ln.owed.len(), ln.down != nil, ln.stuck
		ln.mu.Unlock()
		if e := l.waits.ears[i]; e != nil {
			e.mu.Lock()
			for _, subscribed := range e.want {
				if subscribed {
					n.Subscribed++
				}
			}
			e.mu.Unlock()
		}
	}
	return s
}

// unlocked reports whether each mutex of the Locker, its queues and its lanes can be locked. Other goroutines
// may hold one for a moment, so it tries repeatedly.
func (l *Locker) unlocked() bool {
	locks := []*sync.Mutex{&l.mu, &l.waits.mu}
	for _, ln := range l.lanes {
		locks = append(locks, &ln.mu)
	}
	for _, mu := range locks {
		tries := 0
		for ; !mu.TryLock(); tries++ {
			if tries == 100_000 {
				return false
			}
			runtime.Gosched()
		}
		mu.Unlock()
	}
	return true
}
