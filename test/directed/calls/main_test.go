// Package calls_test has the suites of what one call does and tells its caller: acquire, extend, keep alive, release,
// leave, run, inspect, close, for one key or for several; and of what many calls cost.
package calls_test

import (
	"context"
	"testing"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/harness"
	_ "github.com/seed-ce352c9b/redlock/internal/twin/scripts" // the Go twins
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
	heldLong    = harness.HeldLong
	loading     = harness.Loading
)

// A stage is a harness.Stage with more methods.
type stage struct{ *harness.Stage }

var (
	onStage  = harness.OnStageOf[stage]
	runStage = harness.RunStageOf[stage]
	fairly   = harness.Fairly[stage]
)

// noWorkAll is what RunAll calls where a test is about the call alone.
func noWorkAll(context.Context, redlock.Locks) error { return nil }

func noWorkSlot(context.Context, *redlock.Lock, int) error { return nil }
