// Package nodes_test has the suites of what goes to the nodes and what comes back: batches and deadlines, scripts, fence
// registers, what is owed, faults of nodes and of the network.
package nodes_test

import (
	"testing"

	"github.com/seed-ce352c9b/redlock/internal/harness"
	_ "github.com/seed-ce352c9b/redlock/internal/twin/scripts" // the Go twins
	"github.com/seed-ce352c9b/redlock/redlocktest"
)

// TestMain runs the tests with the Go twins of the scripts, which halves their time. The tests of the scripts themselves
// always execute Lua.
func TestMain(m *testing.M) { harness.Main(m) }

const (
	job         = harness.Job
	jobRegister = harness.JobRegister
	otherValue  = harness.OtherValue
	jobQueue    = harness.JobQueue
	oneTrip     = harness.OneTrip
	loading     = harness.Loading
)

// A stage is a harness.Stage with more methods.
type stage struct{ *harness.Stage }

var (
	onStage  = harness.OnStageOf[stage]
	runStage = harness.RunStageOf[stage]
)

// alone is onStage for a test that counts goroutines and so runs beside no other, on nodes that know no script.
func alone(t *testing.T, n int, f func(s *stage)) {
	t.Helper()
	redlocktest.Bubble(t, func(t *testing.T) { f(&stage{harness.NewStage(t, n)}) })
}
