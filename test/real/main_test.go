package real_test

import (
	"flag"
	"testing"

	"github.com/seed-ce352c9b/redlock/internal/harness"
)

// The tests that may run side by side wait for most of their time: for servers to start, to expire keys, to hang.
func TestMain(m *testing.M) {
	flag.Set("test.parallel", "6") // go test -parallel overrides it
	harness.Main(m)
}
