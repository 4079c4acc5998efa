package lane

import (
	"fmt"
	"testing"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/wire"
)

// What is owed to a node that never answers is bounded; the oldest goes first, for its
// ttl is the next to be over.
func TestDebtsAreBoundedAndTheOldestGoesFirst(t *testing.T) {
	ln := NewLane(0, laneNode(nil), nil, false)
	ln.probing = true // nobody pays
	const more = 100
	for i := range maxDebts + more {
		ln.Mu.Lock()
		ln.owe(&Call{Ln: ln, Q: &wire.Question{Kind: wire.AskRollback, Value: fmt.Sprint(i), Ttl: time.Hour}}, 0)
		ln.Mu.Unlock()
	}
	if got := ln.Owed.Len(); got != maxDebts || ln.Owed.dropped != more {
		t.Errorf("owed after %d: got %d, and %d dropped; want %d and %d", maxDebts+more, got, ln.Owed.dropped, maxDebts, more)
	}
	if first, last := ln.Owed.list[0].q.Value, ln.Owed.list[maxDebts-1].q.Value; first != fmt.Sprint(more) || last != fmt.Sprint(maxDebts+more-1) {
		t.Errorf("owed: got %s to %s, want the latest", first, last)
	}
}
