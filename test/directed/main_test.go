package directed_test

import (
	"os"
	"testing"

	"github.com/seed-ce352c9b/redlock/internal/harness"
	_ "github.com/seed-ce352c9b/redlock/internal/sim" // registers the Go twins of the scripts
	"github.com/seed-ce352c9b/redlock/internal/twin"
)

// TestMain runs the tests with the Go twins of the scripts, which halves their time, and with
// REDLOCK_LONG with the scripts. The tests of the scripts themselves always execute Lua.
func TestMain(m *testing.M) {
	twin.Enable(os.Getenv("REDLOCK_LONG") == "")
	harness.Main(m)
}
