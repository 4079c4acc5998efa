package directed_test

import (
	"testing"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/harness"
	"github.com/seed-ce352c9b/redlock/redlocktest"
)

// staged runs f in a bubble with a cluster of n nodes.
func staged(t *testing.T, n int, f func(t *testing.T, c *redlocktest.Cluster)) {
	t.Helper()
	redlocktest.Bubble(t, func(t *testing.T) { f(t, redlocktest.New(t, n)) })
}

// alone is onStage for a test that counts goroutines and so runs beside no other, on nodes that know no script.
func alone(t *testing.T, n int, f func(s *stage)) {
	t.Helper()
	redlocktest.Bubble(t, func(t *testing.T) { f(&stage{harness.NewStage(t, n)}) })
}

// warmLocker returns a Locker with clients of its own that has connected to every node and knows
// all scripts.
func warmLocker(t *testing.T, c *redlocktest.Cluster, opt redlock.Options) *redlock.Locker {
	t.Helper()
	l := harness.NewLocker(t, opt, nil, harness.Nodes(c.Clients())...)
	harness.WarmUp(t, c, l)
	return l
}
