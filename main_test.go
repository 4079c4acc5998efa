package redlock_test

import (
	"testing"

	"github.com/seed-ce352c9b/redlock/internal/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

const (
	job         = harness.Job
	jobRegister = harness.JobRegister
	otherValue  = harness.OtherValue
	oneTrip     = harness.OneTrip
)
