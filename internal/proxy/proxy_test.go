package proxy

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/seed-ce352c9b/redlock/internal/realredis"
)

// A talk is a connection through a proxy that a test drives by hand.
type talk struct {
	t testing.TB
	net.Conn
	r *bufio.Reader
}

func dialProxy(t testing.TB, p *Proxy) *talk {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &talk{t, c, bufio.NewReader(c)}
}

func (k *talk) send(s string) {
	k.t.Helper()
	if _, err := io.WriteString(k, s); err != nil {
		k.t.Fatal(err)
	}
}

// line returns the next reply, or "" if none came within limit.
func (k *talk) line(limit time.Duration) (string, error) {
	k.SetReadDeadline(time.Now().Add(limit))
	s, err := k.r.ReadString('\n')
	if ne, ok := err.(net.Error); ok && ne.Timeout() {
		err = nil
	}
	return s, err
}

func (k *talk) want(s string) {
	k.t.Helper()
	if got, err := k.line(20 * time.Second); got != s || err != nil {
		k.t.Errorf("got %q, %v; want %q", got, err, s)
	}
}

// ask sends a command and wants a reply of one line.
func (k *talk) ask(command, reply string) {
	k.t.Helper()
	k.send(command + "\r\n")
	k.want(reply + "\r\n")
}

// silent is how long to wait for data that must not come. A short time cannot make a correct proxy fail.
const silent = 30 * time.Millisecond

func (k *talk) nothing() {
	k.t.Helper()
	if got, err := k.line(silent); got != "" || err != nil {
		k.t.Errorf("got %q, %v; want silence", got, err)
	}
}

func (k *talk) broken() {
	k.t.Helper()
	if got, err := k.line(20 * time.Second); err == nil {
		k.t.Errorf("got %q; want a broken connection", got)
	}
}

func proxied(t *testing.T) (*realredis.Server, *Proxy, *redis.Client) {
	s := realredis.Start(t, 1)[0]
	p, err := Start(s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return s, p, s.Client()
}

func TestProxyFaults(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	_, p, direct := proxied(t)
	counted := func(want string) {
		t.Helper()
		if got := direct.Get(ctx, "n").Val(); got != want {
			t.Errorf("the server has executed %q, want %q", got, want)
		}
	}
	k := dialProxy(t, p)
	k.ask("INCR n", ":1")

	p.Hold(true, false)
	k.send("INCR n\r\n")
	k.nothing()
	counted("1")
	p.Hold(false, false)
	k.want(":2\r\n")

	p.Hold(false, true)
	k.send("INCR n\r\n")
	k.nothing()
	counted("3")
	p.Hold(false, false)
	k.want(":3\r\n")

	const slow = 20 * time.Millisecond
	p.Delay(slow, slow)
	began := time.Now()
	k.ask("INCR n", ":4")
	if took := time.Since(began); took < 2*slow {
		t.Errorf("a request and a reply that travel for %v each took %v", slow, took)
	}
	p.OnRequest(func(chunk []byte) (time.Duration, []byte) {
		return slow, bytes.Replace(chunk, []byte("INCR"), []byte("DECR"), 1)
	})
	began = time.Now()
	k.ask("INCR n", ":3")
	if took := time.Since(began); took < 2*slow {
		t.Errorf("a changed request that travels for %v, and a reply as slow, took %v", slow, took)
	}
	p.OnRequest(nil)
	p.Delay(0, 0)
	k.ask("INCR n", ":4")

	p.DropRequest(2)
	k.ask("INCR n", ":5")
	k.send("INCR n\r\n")
	k.broken()
	counted("5")

	k = dialProxy(t, p)
	p.DropReply(1)
	k.send("INCR n\r\n")
	k.broken()
	counted("6")

	k = dialProxy(t, p)
	p.LoseReply(1)
	k.send("INCR n\r\n")
	k.nothing()
	k.send("INCR n\r\n")
	k.nothing()
	other := dialProxy(t, p)
	other.ask("INCR n", ":9")

	p.Break()
	other.broken()
	k.broken()

	k = dialProxy(t, p)
	k.ask("GET n", "$1")
	k.want("9\r\n")
	p.Redirect(realredis.Start(t, 1)[0].Addr())
	k.broken()
	k = dialProxy(t, p)
	k.ask("GET n", "$-1")
}

// A delay postpones each request and reply without making the next one wait: a node behind the proxy is far, and not slow.
func TestProxyDelaysWithoutSerialising(t *testing.T) {
	t.Parallel()
	_, p, _ := proxied(t)
	const slow, requests = 50 * time.Millisecond, 20
	p.Delay(slow, slow)
	k := dialProxy(t, p)
	began := time.Now()
	go func() {
		for range requests {
			io.WriteString(k, "PING\r\n")
			time.Sleep(time.Millisecond) // so that each is a chunk of its own
		}
	}()
	for range requests {
		k.want("+PONG\r\n")
	}
	if took := time.Since(began); took > requests*slow {
		t.Errorf("%d requests took %v, want little more than the %v of one", requests, took, 2*slow)
	}
}

func TestProxyRefuses(t *testing.T) {
	t.Parallel()
	_, p, _ := proxied(t)
	k := dialProxy(t, p)
	k.ask("PING", "+PONG")
	for range 2 {
		if err := p.Refuse(true); err != nil {
			t.Fatal(err)
		}
	}
	k.broken()
	if c, err := net.Dial("tcp", p.Addr()); err == nil {
		c.Close()
		t.Error("a refused dial went through")
	}
	if err := p.Heal(); err != nil {
		t.Fatal(err)
	}
	k = dialProxy(t, p)
	k.ask("PING", "+PONG")
	p.Close()
	k.broken()
	if err := p.Refuse(false); err == nil {
		t.Error("a closed proxy accepts again")
	}
}

// Data is delivered although its sender has closed the connection: this is how a rollback can overtake the write that it undoes.
func TestProxyDeliversWhatAClosedConnectionHasSent(t *testing.T) {
	t.Parallel()
	_, p, direct := proxied(t)
	k := dialProxy(t, p)
	k.ask("PING", "+PONG")
	p.Hold(true, false)
	k.send("SET late 1\r\n")
	k.Close()
	p.Hold(false, false)
	realredis.Eventually(t, "its delivery", func() bool { return direct.Exists(context.Background(), "late").Val() == 1 })
}

// A proxy that refuses and accepts again stands for a server that is killed and restarted.
func TestProxyOfARestartedServer(t *testing.T) {
	t.Parallel()
	s, p, _ := proxied(t)
	k := dialProxy(t, p)
	k.ask("PING", "+PONG")
	s.Kill()
	k.broken()
	if c, err := net.Dial("tcp", p.Addr()); err == nil { // otherwise the reset was quicker
		(&talk{t, c, bufio.NewReader(c)}).broken()
		c.Close()
	}
	s.Restart()
	k = dialProxy(t, p)
	k.ask("PING", "+PONG")
}
