package redlock

import (
	"fmt"
	"testing"
	"time"
)

// What is owed to a node that never answers is bounded; the oldest goes first, for its
// ttl is the next to be over.
func TestDebtsAreBoundedAndTheOldestGoesFirst(t *testing.T) {
	ln := newLane(0, laneNode(nil), nil, false)
	ln.probing = true // nobody pays
	const more = 100
	for i := range maxDebts + more {
		ln.mu.Lock()
		ln.owe(&call{ln: ln, q: &question{kind: askRollback, value: fmt.Sprint(i), ttl: time.Hour}}, 0)
		ln.mu.Unlock()
	}
	if got := ln.owed.len(); got != maxDebts || ln.owed.dropped != more {
		t.Errorf("owed after %d: got %d, and %d dropped; want %d and %d", maxDebts+more, got, ln.owed.dropped, maxDebts, more)
	}
	if first, last := ln.owed.list[0].q.value, ln.owed.list[maxDebts-1].q.value; first != fmt.Sprint(more) || last != fmt.Sprint(maxDebts+more-1) {
		t.Errorf("owed: got %s to %s, want the latest", first, last)
	}
}
