package realredis

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// once returns a client that never retries, so that a reply shows what the server did.
func once(o *redis.Options) {
	o.MaxRetries, o.DialerRetries, o.ReadTimeout = -1, 1, 200*time.Millisecond
}

func TestServersAreIndependent(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	servers := Start(t, 3)
	for i, s := range servers {
		if n, err := s.Client(once).DBSize(ctx).Result(); n != 0 || err != nil {
			t.Errorf("server %d: got %d keys, %v; want 0", i, n, err)
		}
		if err := s.Client(once).Set(ctx, "k", i, 0).Err(); err != nil {
			t.Error(err)
		}
	}
	for i, s := range servers {
		if got, err := s.Client(once).Get(ctx, "k").Int(); got != i || err != nil {
			t.Errorf("server %d: got %d, %v; want %d", i, got, err, i)
		}
	}
}

func TestStopAndCont(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := Start(t, 1)[0]
	c := s.Client(once)
	if err := c.Ping(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	s.Stop()
	var timeout net.Error
	if err := c.Set(ctx, "late", 1, 0).Err(); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("SET on a stopped server: got %v, want a timeout", err)
	}
	s.Cont()
	// The server executes what was in the socket buffer, although the connection has been closed since. This is the
	// difference between a stopped server and a dead one.
	Eventually(t, "the late SET", func() bool { return c.Exists(ctx, "late").Val() == 1 })
}

func TestKillAndRestart(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for _, tt := range []struct {
		name string
		args []string
		want int64 // number of keys after the restart
	}{
		{"empty", nil, 0},
		{"persistent", []string{"--appendonly", "yes", "--appendfsync", "always"}, 1},
		{"password", []string{"--requirepass", "secret"}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := Start(t, 1, tt.args...)[0]
			addr, pid := s.Addr(), s.Pid()
			if err := s.Client().Set(ctx, "k", 1, 0).Err(); err != nil {
				t.Fatal(err)
			}
			s.Stop() // a hung server can be killed, too
			s.Kill()
			s.Kill()
			if conn, err := net.Dial("tcp", addr); err == nil {
				conn.Close()
				t.Error("a killed server accepts connections")
			}
			if s.Pid() != 0 {
				t.Errorf("got pid %d, want 0", s.Pid())
			}
			s.Restart()
			if s.Addr() != addr || s.Pid() == 0 || s.Pid() == pid {
				t.Errorf("got %s, pid %d; want %s, another pid than %d", s.Addr(), s.Pid(), addr, pid)
			}
			if n, err := s.Client(once).DBSize(ctx).Result(); n != tt.want || err != nil {
				t.Errorf("got %d keys, %v; want %d", n, err, tt.want)
			}
		})
	}
}

func TestCluster(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := StartCluster(t)
	c := s.ClusterClient()
	for _, k := range []string{"a", "b", "{a}:c"} { // different slots
		if err := c.Set(ctx, k, 1, 0).Err(); err != nil {
			t.Errorf("SET %s: %v", k, err)
		}
	}
}

// A foreign server on the port must be distinguished from our own, or tests would share it.
func TestPortTaken(t *testing.T) {
	t.Parallel()
	other := Start(t, 1)[0]
	s := &Server{port: other.port, dir: t.TempDir(), failed: func(error) {}}
	if err := s.launch(); !errors.Is(err, errPortTaken) {
		t.Errorf("got %v, want errPortTaken", err)
	}
	if s.Pid() != 0 {
		t.Errorf("got pid %d, want none", s.Pid())
	}
}

func TestBadArguments(t *testing.T) {
	t.Parallel()
	need(t)
	for _, args := range [][]string{{"--no-such-option", "1"}, {"--port", "6379"}} {
		if s, err := StartServers(2, args...); err == nil {
			s[0].Close()
			s[1].Close()
			t.Errorf("%v: got no error", args)
		}
	}
}

func TestClose(t *testing.T) {
	t.Parallel()
	need(t)
	servers, err := StartServers(1)
	if err != nil {
		t.Fatal(err)
	}
	s := servers[0]
	c := s.Client()
	s.Close()
	s.Close()
	if _, err := os.Stat(s.Dir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("directory: got %v, want it gone", err)
	}
	if err := c.Ping(context.Background()).Err(); !errors.Is(err, redis.ErrClosed) {
		t.Errorf("client: got %v, want %v", err, redis.ErrClosed)
	}
	if err := s.Restart(); !errors.Is(err, errClosed) {
		t.Errorf("Restart: got %v, want %v", err, errClosed)
	}
}
