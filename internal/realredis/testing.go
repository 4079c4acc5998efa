package realredis

import (
	"os"
	"os/exec"
	"testing"
)

// Start starts n independent servers for a test, as StartServers does, and closes them at its end. It skips the test
// where there is no redis-server.
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

// StartCluster starts one server that is a whole cluster: all slots are its own. It takes two seconds, which is how long
// a cluster node waits before it lets anybody write.
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

func need(tb testing.TB) {
	tb.Helper()
	if _, err := exec.LookPath(Binary); err != nil {
		if os.Getenv("REDLOCK_NEED_REDIS") != "" { // CI: a suite that skips itself must not pass
			tb.Fatalf("REDLOCK_NEED_REDIS is set, and: %v", err)
		}
		tb.Skipf("needs a real Redis: %v", err)
	}
}

func belong(tb testing.TB, s *Server) {
	s.mu.Lock()
	s.failed = func(err error) { tb.Errorf("%v", err) }
	s.mu.Unlock()
	tb.Cleanup(s.Close)
}
