package directed_test

import (
	"context"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/harness"
)

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
