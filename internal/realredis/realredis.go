// Package realredis runs real redis-server processes for tests, benchmarks and demos.
//
// What an in-process imitation does differently from a server (numbers in Lua, error texts, INFO, a process that is
// stopped with requests in its sockets) can hide a fault of a lock, so whatever depends on it is also tried here.
//
// Servers listen on 127.0.0.1 only, each in a temporary directory of its own, without persistence unless the
// arguments ask for it. On Linux none outlives the process that started it, however that one ends; elsewhere a
// process that is killed leaves its servers behind.
package realredis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Binary is looked up in PATH.
const Binary = "redis-server"

// startTimeout is how long a server may take until it answers: some 20 ms on an idle machine, the rest is for
// loaded ones and for an append-only file that is read first. Halved, slow CI fails now and then.
const startTimeout = 20 * time.Second

// A Server is one redis-server process. Its methods may be called from several goroutines.
//
// Those that return an error also report it to the test the server was started for, so a test may ignore it.
type Server struct {
	port    int
	dir     string
	args    []string // the caller's
	cluster bool
	failed  func(error) // tells the test; never nil

	mu      sync.Mutex
	proc    *process // nil after Kill
	closed  bool
	clients []interface{ Close() error }
}

// StartServers starts n independent servers, all with the same additional arguments ("--maxmemory", "1mb"). They
// answer when it returns. If one cannot be started, none is left running.
func StartServers(n int, args ...string) ([]*Server, error) {
	servers := make([]*Server, n)
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { servers[i], errs[i] = start(false, args) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		for _, s := range servers {
			if s != nil {
				s.Close()
			}
		}
		return nil, err
	}
	return servers, nil
}

// ours may not be among the caller's arguments: the address is how we find the server again.
var ours = []string{"--port", "--bind", "--dir", "--daemonize", "--logfile"}

func start(cluster bool, args []string) (*Server, error) {
	for _, a := range args {
		if slices.Contains(ours, a) {
			return nil, fmt.Errorf("realredis: argument %s is not the caller's to choose", a)
		}
	}
	dir, err := os.MkdirTemp("", "realredis-")
	if err != nil {
		return nil, fmt.Errorf("realredis: %w", err)
	}
	s := &Server{dir: dir, args: args, cluster: cluster, failed: func(error) {}}
	// A port found free may be taken before the server binds it, by another test binary for one. Only the server's
	// own bind decides, so its failure is the signal to try the next.
	const attempts = 20
	for range attempts {
		if s.port, err = reservePort(); err != nil {
			break
		}
		if err = s.launch(); err == nil {
			return s, nil
		}
		releasePort(s.port)
		if !errors.Is(err, errPortTaken) {
			break
		}
	}
	os.RemoveAll(dir)
	return nil, err
}

// Addr is the server's host:port. It stays the same over Restart.
func (s *Server) Addr() string { return "127.0.0.1:" + strconv.Itoa(s.port) }

// Dir is the server's working directory, where persistence goes.
func (s *Server) Dir() string { return s.dir }

// Pid is the process's id, 0 while there is none. Restart changes it.
func (s *Server) Pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return 0
	}
	return s.proc.pid()
}

// Client returns a new client with go-redis's defaults, changed by opts. Close closes it.
func (s *Server) Client(opts ...func(*redis.Options)) *redis.Client {
	o := &redis.Options{Addr: s.Addr(), Password: s.password()}
	for _, f := range opts {
		f(o)
	}
	c := redis.NewClient(o)
	s.own(c)
	return c
}

// ClusterClient is like Client, for a server started by StartCluster.
func (s *Server) ClusterClient(opts ...func(*redis.ClusterOptions)) *redis.ClusterClient {
	o := &redis.ClusterOptions{Addrs: []string{s.Addr()}, Password: s.password()}
	for _, f := range opts {
		f(o)
	}
	c := redis.NewClusterClient(o)
	s.own(c)
	return c
}

func (s *Server) own(c interface{ Close() error }) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clients = append(s.clients, c)
}

// password is what the arguments ask of clients, the last one winning as it does in the server.
func (s *Server) password() (pw string) {
	for i, a := range s.args[:max(0, len(s.args)-1)] {
		if a == "--requirepass" {
			pw = s.args[i+1]
		}
	}
	return pw
}

// Stop suspends the process (SIGSTOP) and returns when it stands still. The kernel goes on to accept connections and
// to buffer requests for it, which it executes after Cont: a node that hangs.
func (s *Server) Stop() error {
	return s.do("stop", func() error {
		if s.proc == nil {
			return errNotRunning
		}
		return s.proc.suspend()
	})
}

// Cont resumes what Stop suspended.
func (s *Server) Cont() error {
	return s.do("continue", func() error {
		if s.proc == nil {
			return errNotRunning
		}
		return s.proc.resume()
	})
}

// Kill ends the process (SIGKILL), stopped or not, and returns when it is gone: from then on the port refuses
// connections. Killing what does not run does nothing.
func (s *Server) Kill() error {
	return s.do("kill", func() error { s.kill(); return nil })
}

// Restart kills the server if it runs and starts it again on the same port in the same directory. It comes back empty
// unless its arguments ask for persistence, and then with what had reached the disk.
func (s *Server) Restart() error {
	return s.do("restart", func() error {
		s.kill()
		// The port is still ours in this process, but while nothing listens another one can get it. Wait for that a
		// while: a test that holds this address cannot go elsewhere.
		deadline := time.Now().Add(startTimeout)
		for {
			err := s.launch()
			if !errors.Is(err, errPortTaken) || time.Now().After(deadline) {
				return err
			}
			time.Sleep(50 * time.Millisecond)
		}
	})
}

// Close kills the server, closes its clients and removes its directory. Further calls do nothing.
func (s *Server) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	s.kill()
	for _, c := range s.clients {
		c.Close()
	}
	releasePort(s.port)
	os.RemoveAll(s.dir)
}

var (
	errNotRunning = errors.New("the server does not run")
	errClosed     = errors.New("the server is closed")
)

func (s *Server) do(what string, f func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := errClosed
	if !s.closed {
		err = f()
	}
	if err != nil {
		err = fmt.Errorf("realredis: %s %s: %w", what, s.Addr(), err)
		s.failed(err)
	}
	return err
}

func (s *Server) kill() {
	if s.proc != nil {
		s.proc.kill()
		s.proc = nil
	}
}

// launch starts the process on s.port and waits until it answers. On failure no process is left.
func (s *Server) launch() error {
	args := []string{"--port", strconv.Itoa(s.port), "--bind", "127.0.0.1", "--dir", s.dir,
		"--save", "", "--appendonly", "no"}
	if s.cluster {
		args = append(args, "--cluster-enabled", "yes", "--cluster-announce-ip", "127.0.0.1")
	}
	proc, err := startProcess(exec.Command(Binary, append(args, s.args...)...), filepath.Join(s.dir, "log"))
	if err != nil {
		return err
	}
	if err := s.ready(proc); err != nil {
		proc.kill()
		return err
	}
	s.proc = proc
	return nil
}

// ready waits until this very process answers. PING alone would not do: after a failed bind it is answered by
// whoever has the port.
func (s *Server) ready(proc *process) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	for {
		err := s.check(ctx, proc.pid())
		if err == nil {
			return nil
		}
		select {
		case <-proc.done:
			return proc.whyDead()
		case <-ctx.Done():
			return fmt.Errorf("realredis: no answer from %s within %v: %w", s.Addr(), startTimeout, err)
		case <-time.After(2 * time.Millisecond):
		}
	}
}

func (s *Server) check(ctx context.Context, pid int) error {
	// A client whose dials were refused a few times pauses for a second. Give it a connection that stands.
	conn, err := net.DialTimeout("tcp", s.Addr(), time.Second)
	if err != nil {
		return err
	}
	c := redis.NewClient(&redis.Options{
		Dialer:   func(context.Context, string, string) (net.Conn, error) { return conn, nil },
		Password: s.password(), Protocol: 2, DisableIdentity: true, PoolSize: 1,
		MaxRetries: -1, DialerRetries: 1, ReadTimeout: time.Second,
	})
	defer conn.Close() // where the client never used it
	defer c.Close()
	info, err := c.Info(ctx, "server").Result()
	if err != nil {
		return err
	}
	if !strings.Contains(info, fmt.Sprintf("process_id:%d\r\n", pid)) {
		return errPortTaken
	}
	if err := c.Ping(ctx).Err(); err != nil { // a server that still loads its data answers INFO, but not PING
		return err
	}
	if s.cluster {
		return clusterReady(ctx, c)
	}
	return nil
}

// clusterReady makes the only node of a cluster serve all slots. The server itself takes two seconds to believe it.
func clusterReady(ctx context.Context, c *redis.Client) error {
	info, err := c.ClusterInfo(ctx).Result()
	switch {
	case err != nil:
		return err
	case strings.Contains(info, "cluster_state:ok"):
		return nil
	case strings.Contains(info, "cluster_slots_assigned:0\r\n"):
		if err := c.ClusterAddSlotsRange(ctx, 0, 16383).Err(); err != nil {
			return err
		}
	}
	return errors.New("cluster_state is not ok yet")
}
