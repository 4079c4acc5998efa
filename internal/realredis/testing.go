package realredis

import (
	"os"
	"os/exec"
	"testing"
	"time"
)

// Start starts n independent servers for a test, as StartServers does, and closes them when the test ends. It skips the
// test if redis-server is not in PATH, or fails it if $REDLOCK_NEED_REDIS is set.
func Start(tb testing.TB, n int, args ...string) []*Server {
	tb.Helper()
	need(tb)
	servers, err := StartServers(n, args...)
	if err != nil {
		tb.Fatal(err)
	}
	for _, s := range servers {
		belong(tb, s)
	}
	return servers
}

// StartCluster starts one server that is a whole cluster: it serves all slots. This takes two seconds, which is how long a
// cluster node waits before it accepts writes. It skips the test as Start does.
func StartCluster(tb testing.TB, args ...string) *Server {
	tb.Helper()
	need(tb)
	s, err := start(true, args)
	if err != nil {
		tb.Fatal(err)
	}
	belong(tb, s)
	return s
}

// need skips the test if there is no redis-server.
func need(tb testing.TB) {
	tb.Helper()
	if _, err := exec.LookPath(Binary); err != nil {
		if os.Getenv("REDLOCK_NEED_REDIS") != "" { // set in CI, where a suite that skips itself must not pass
			tb.Fatalf("REDLOCK_NEED_REDIS is set, but: %v", err)
		}
		tb.Skipf("needs a real Redis: %v", err)
	}
}

// belong makes a server report its errors to the test and close when the test ends.
func belong(tb testing.TB, s *Server) {
	s.mu.Lock()
	s.failed = func(err error) { tb.Errorf("%v", err) }
	s.mu.Unlock()
	tb.Cleanup(s.Close)
}

// Eventually waits until ok returns true, which it asks every few milliseconds. It fails the test at once if that takes twenty
// seconds.
func Eventually(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	const limit = 20 * time.Second
	for deadline := time.Now().Add(limit); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatalf("%s: not within %v", what, limit)
		}
	}
}
