package harness

import (
	"testing"
	"time"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/redlocktest"
)

// The nodes tell Lockers apart by the values that they store.
func TestTheLockersOfATestDrawDifferentValues(t *testing.T) {
	redlocktest.Bubble(t, func(t *testing.T) {
		c := redlocktest.New(t, 3)
		drawn := make(map[string]bool)
		for range 4 {
			k := Try(t, NewLocker(t, redlock.Options{Name: "same"}, nil, c.Nodes()...), "job", time.Minute)
			if drawn[k.Value()] {
				t.Errorf("two Lockers stored %s, want a value for each", k.Value())
			}
			drawn[k.Value()] = true
			CheckIs(t, "Release", k.Release(t.Context()))
		}
	})
}
