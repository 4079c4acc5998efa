// Package realredis runs real redis-server processes for tests, benchmarks and demos.
//
// An in-process imitation differs from a server (numbers in Lua, error texts, INFO, a process that is stopped with
// requests in its sockets), and a difference can hide a fault of a lock. So whatever depends on these points is also
// tested here.
//
// Servers listen on 127.0.0.1 only, each in its own temporary directory, without persistence unless the arguments ask for
// it. On Linux, no server outlives the process that started it, however that process ends; on other systems, a process
// that is killed leaves its servers behind.
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

// Binary is the name of the server program, which is looked up in PATH.
const Binary = "redis-server"

// startTimeout is how long a server may take until it replies: about 20 ms on an idle machine; the rest is for loaded
// machines and for servers that read an append-only file first. Halved, slow CI machines fail now and then.
const startTimeout = 20 * time.Second

// A Server is one redis-server process. Its methods may be called from any goroutine.
//
// Methods that return an error also report it to the test for which the server was started, so a test may ignore it.
type Server struct {
	port    int
	dir     string
	args    []string // the caller's
	cluster bool
	failed  func(error) // reports to the test; never nil

	mu      sync.Mutex
	proc    *process // nil after Kill
	closed  bool
	clients []interface{ Close() error }
}

// StartServers starts n independent servers, all with the same additional arguments ("--maxmemory", "1mb"). They
// accept commands when it returns. If one cannot be started, none is left running.
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

// reserved are the arguments that the caller must not pass: this package sets them to find the server again.
var reserved = []string{"--port", "--bind", "--dir", "--daemonize", "--logfile"}

func start(cluster bool, args []string) (*Server, error) {
	for _, a := range args {
		if slices.Contains(reserved, a) {
			return nil, fmt.Errorf("realredis: argument %s is reserved", a)
		}
	}
	dir, err := os.MkdirTemp("", "realredis-")
	if err != nil {
		return nil, fmt.Errorf("realredis: %w", err)
	}
	s := &Server{dir: dir, args: args, cluster: cluster, failed: func(error) {}}
	// Another process, for example another test binary, may take a free port before the server binds it. Only the server's
	// own bind decides, so its failure is the signal to try the next port.
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

// Addr returns the server's host:port. Restart does not change it.
func (s *Server) Addr() string { return "127.0.0.1:" + strconv.Itoa(s.port) }

// Dir returns the server's working directory, which contains its persistent files.
func (s *Server) Dir() string { return s.dir }

// Pid returns the ID of the process, or 0 if the server does not run. Restart changes it.
func (s *Server) Pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return 0
	}
	return s.proc.pid()
}

// Client returns a new client with go-redis's defaults, changed by opts. Server.Close closes it.
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

// own makes Close close a client.
func (s *Server) own(c interface{ Close() error }) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clients = append(s.clients, c)
}

// password returns the password from the arguments. As in the server, the last one wins.
func (s *Server) password() (pw string) {
	for i, a := range s.args[:max(0, len(s.args)-1)] {
		if a == "--requirepass" {
			pw = s.args[i+1]
		}
	}
	return pw
}

// Stop suspends the process (SIGSTOP) and returns when it has stopped. The kernel continues to accept connections and to
// buffer requests, which the server executes after Cont: a hung node.
func (s *Server) Stop() error {
	return s.do("stop", func() error {
		if s.proc == nil {
			return errNotRunning
		}
		return s.proc.suspend()
	})
}

// Cont resumes a process that Stop suspended.
func (s *Server) Cont() error {
	return s.do("continue", func() error {
		if s.proc == nil {
			return errNotRunning
		}
		return s.proc.resume()
	})
}

// Kill kills the process (SIGKILL), whether stopped or not, and returns when it is gone: from then on the port refuses
// connections. It does nothing if the server does not run.
func (s *Server) Kill() error {
	return s.do("kill", func() error { s.kill(); return nil })
}

// Restart kills the server if it runs and starts it again on the same port in the same directory. The server is empty
// unless its arguments ask for persistence; then it has the data that had reached the disk.
func (s *Server) Restart() error {
	return s.do("restart", func() error {
		s.kill()
		// The port is still reserved in this process, but another process can take it while nothing listens. Wait for some
		// time: a test that uses this address cannot use another one.
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
	errNotRunning = errors.New("the server is not running")
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

// launch starts the process on s.port and waits until it accepts commands. On failure no process is left.
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

// ready waits until this very process replies. A reply to PING is not enough: after a failed bind, the process that has
// the port replies to it.
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
			return fmt.Errorf("realredis: no reply from %s within %v: %w", s.Addr(), startTimeout, err)
		case <-time.After(2 * time.Millisecond):
		}
	}
}

func (s *Server) check(ctx context.Context, pid int) error {
	// A client whose dials were refused a few times pauses for a second. So dial first and give it the connection.
	conn, err := net.DialTimeout("tcp", s.Addr(), time.Second)
	if err != nil {
		return err
	}
	c := redis.NewClient(&redis.Options{
		Dialer:   func(context.Context, string, string) (net.Conn, error) { return conn, nil },
		Password: s.password(), Protocol: 2, DisableIdentity: true, PoolSize: 1,
		MaxRetries: -1, DialerRetries: 1, ReadTimeout: time.Second,
	})
	defer conn.Close() // in case the client never used it
	defer c.Close()
	info, err := c.Info(ctx, "server").Result()
	if err != nil {
		return err
	}
	if !strings.Contains(info, fmt.Sprintf("process_id:%d\r\n", pid)) {
		return errPortTaken
	}
	if err := c.Ping(ctx).Err(); err != nil { // a server that is still loading replies to INFO, but not to PING
		return err
	}
	if s.cluster {
		return clusterReady(ctx, c)
	}
	return nil
}

// clusterReady assigns all slots to the only node of a cluster. The node takes two seconds until it reports the state ok.
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
