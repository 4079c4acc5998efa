package real_test

import (
	"flag"
	"testing"

	"github.com/seed-ce352c9b/redlock/internal/harness"
)

// Most tests run side by side: they wait for most of their time, for servers to start, to expire keys, to hang.
func TestMain(m *testing.M) {
	parallel := "16" // go test -parallel overrides it
	if harness.Sparing {
		parallel = "6"
	}
	flag.Set("test.parallel", parallel)
	harness.Main(m)
}
