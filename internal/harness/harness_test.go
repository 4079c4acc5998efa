package harness_test

import (
	"testing"
	"time"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/harness"
	"github.com/seed-ce352c9b/redlock/redlocktest"
)

func TestMain(m *testing.M) { harness.Main(m) }

// The nodes tell Lockers apart by the values that they store.
func TestTheLockersOfATestDrawDifferentValues(t *testing.T) {
	redlocktest.Bubble(t, func(t *testing.T) {
		c := redlocktest.New(t, 3)
		drawn := make(map[string]bool)
		for range 4 {
			k := harness.Try(t, harness.NewLocker(t, redlock.Options{Name: "same"}, nil, c.Nodes()...), "job", time.Minute)
			if drawn[k.Value().Secret()] {
				t.Errorf("two Lockers stored %s, want a value for each", k.Value())
			}
			drawn[k.Value().Secret()] = true
			harness.CheckIs(t, "Release", k.Release(t.Context()))
		}
	})
}

func TestReconnectFindsADeadConnectionBelowANewOne(t *testing.T) {
	harness.OnStage(t, 1, func(s *harness.Stage) {
		l, n := s.Locker(redlock.Options{}), s.Node(0)
		inspect := func() error { return harness.Second(l.Inspect(s.Ctx, harness.Job)) }
		n.Delay(0, 5*time.Millisecond)
		late := harness.Background(inspect)
		time.Sleep(time.Millisecond)
		n.Delay(0, 0)
		n.Restart(true) // with the reply on its way, the last on its connection
		time.Sleep(time.Millisecond)
		harness.CheckIs(t, "Inspect over the other connection", inspect(), redlock.ErrNoQuorum)
		n.Delay(0, 5*time.Millisecond)
		harness.CheckIs(t, "Inspect over a new connection", inspect())
		harness.CheckIs(t, "Inspect whose reply was on its way", <-late) // by now its connection is below the new one
		n.Delay(0, 0)
		s.Reconnect(l)
		for _, err := range s.UseTwo(l) {
			harness.CheckIs(t, "Inspect after Reconnect, two at a time", err)
		}
	})
}
