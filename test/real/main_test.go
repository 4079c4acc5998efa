package real_test

import (
	"testing"

	"github.com/seed-ce352c9b/redlock/internal/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
