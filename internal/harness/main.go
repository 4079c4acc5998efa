package harness

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/seam"
)

// Main runs the tests of a package and exits. It fails if goroutines outlive the tests: every test closes what it
// opens, so a goroutine of this library or of a client that is left is a leak. Batches and dials may take as long as
// the clients' own timeouts.
func Main(m *testing.M) {
	*seam.MinBatches = 2 // with one connection to a near node no command could overtake another there
	flag.Parse()
	if f := flag.Lookup("test.parallel"); !Sparing && f.Value.String() == strconv.Itoa(runtime.GOMAXPROCS(0)) {
		f.Value.Set(strconv.Itoa(4 + runtime.GOMAXPROCS(0))) // parallel tests mostly wait for real servers
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400) // the tests make much garbage, and little of it stays
	}
	code := m.Run()
	const clients = 6 * time.Second
	var left []string
	for deadline := time.Now().Add(clients); ; <-time.After(10 * time.Millisecond) {
		if left = leftGoroutines(); len(left) == 0 || time.Now().After(deadline) {
			break
		}
	}
	if len(left) > 0 && code == 0 {
		fmt.Fprintf(os.Stderr, "%d goroutines outlive the tests:\n\n%s\n", len(left), strings.Join(left[:min(len(left), 10)], "\n\n"))
		code = 1
	}
	os.Exit(code)
}

// leftGoroutines returns the stacks that name this library, a client or a proxy.
func leftGoroutines() (left []string) {
	buf := make([]byte, 16<<20)
	for _, g := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		switch {
		case strings.Contains(g, "harness.Main("):
		case strings.Contains(g, "realredis.init"): // starts the servers and never ends
		case strings.Contains(g, "seed-ce352c9b/redlock"), strings.Contains(g, "redis/go-redis"):
			left = append(left, g)
		}
	}
	return left
}
