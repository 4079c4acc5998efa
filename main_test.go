package redlock_test

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestMain looks for goroutines that outlive the tests: every test closes what it
// opens, so whatever of ours or of the clients' is left is a leak. Flights and dials
// may last as long as the clients' own timeouts.
//
// Attack 19.
func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); !sparing && f.Value.String() == strconv.Itoa(runtime.GOMAXPROCS(0)) {
		f.Value.Set(strconv.Itoa(4 + runtime.GOMAXPROCS(0))) // those that are parallel mostly wait for real servers
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

// leftGoroutines lists those that have this library, a client or a proxy on their stack.
func leftGoroutines() (left []string) {
	buf := make([]byte, 16<<20)
	for _, g := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		switch {
		case strings.Contains(g, ".TestMain("):
		case strings.Contains(g, "realredis.init"): // forks the servers, for good
		case strings.Contains(g, "seed-ce352c9b/redlock"), strings.Contains(g, "redis/go-redis"):
			left = append(left, g)
		}
	}
	return left
}
