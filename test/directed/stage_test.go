package directed_test

import (
	"testing"

	"github.com/seed-ce352c9b/redlock/internal/harness"
)

const (
	job         = harness.Job
	jobRegister = harness.JobRegister
	otherValue  = harness.OtherValue
	oneTrip     = harness.OneTrip
)

// A stage is a harness.Stage with more methods.
type stage struct{ *harness.Stage }

func onStage(t *testing.T, n int, f func(s *stage)) {
	t.Helper()
	harness.OnStage(t, n, func(s *harness.Stage) { f(&stage{s}) })
}

// runStage runs f as a subtest, on a stage of its own.
func runStage(t *testing.T, name string, n int, f func(s *stage)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { onStage(t, n, f) })
}
