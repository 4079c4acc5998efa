package lane

import (
	"fmt"
	"testing"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/wire"
)

// The number of commands owed to a node that never answers is bounded. The oldest is
// dropped first, because its ttl expires first.
func TestDebtsAreBoundedAndTheOldestGoesFirst(t *testing.T) {
	ln := New(0, Client(nil), nil, false)
	ln.probing = true // no prober sends them
	const more = 100
	for i := range maxOwed + more {
		ln.mu.Lock()
		ln.owe(&Call{Lane: ln, Question: &wire.Question{Kind: wire.AskRollback, Value: fmt.Sprint(i), TTL: time.Hour}}, 0)
		ln.mu.Unlock()
	}
	if got := ln.owed.len(); got != maxOwed || ln.owed.dropped != more {
		t.Errorf("owed after %d: got %d, and %d dropped; want %d and %d", maxOwed+more, got, ln.owed.dropped, maxOwed, more)
	}
	if first, last := ln.owed.list[0].question.Value, ln.owed.list[maxOwed-1].question.Value; first != fmt.Sprint(more) || last != fmt.Sprint(maxOwed+more-1) {
		t.Errorf("owed: got %s to %s, want the latest", first, last)
	}
}
