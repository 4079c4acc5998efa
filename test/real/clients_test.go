package real_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/harness"
	"github.com/seed-ce352c9b/redlock/internal/realredis"
	"github.com/seed-ce352c9b/redlock/internal/seam"
)

var realKeys = []string{"plain", "jobs/42", "{tag}x", "a{b}c", "a{b", "a}b", "}", "{", "{}", "{}x", "}{", "{a{b}c}", "a:fence",
	"binary\x00\xff\r\n$3\r\n", "ünï", strings.Repeat("k", 64<<10)}

// oneShard reports whether a Ring puts a key and the names beside it on one shard:
// where it has no brace, or a tag.
func oneShard(key string) bool {
	i := strings.IndexByte(key, '{')
	return !strings.ContainsAny(key, "{}") || i >= 0 && strings.IndexByte(key[i+1:], '}') > 0
}

// All kinds of clients in one Locker, with all kinds of keys.
//
// Attack 92.
func TestRealClients(t *testing.T) {
	plain := realStart(t, 7)
	cluster := realredis.StartCluster(t)
	all := realOver(append([]*realredis.Server{cluster}, plain.servers...)...)
	s := plain.servers
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": s[1].Addr(), "b": s[2].Addr()}})
	defer ring.Close()
	blocking, err := s[3].Client().AutoPipeline()
	if err != nil {
		t.Fatal(err)
	}
	defer blocking.Close()
	async, err := s[4].Client().AsyncAutoPipeline()
	if err != nil {
		t.Fatal(err)
	}
	defer async.Close()
	duplex, err := s[5].Client().AutoPipelineWithOptions(&redis.AutoPipelineOptions{FullDuplex: true, MaxBatchSize: 300, MaxBatchBytes: 128 << 10, MaxConcurrentBatches: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer duplex.Close()
	nodes := []redlock.Node{s[0].Client(), ring, cluster.ClusterClient(), blocking, async, duplex, realSentinel(t, s[0])}
	kinds := []string{"Client", "Ring", "ClusterClient", "AutoPipeline", "AsyncAutoPipeline", "full duplex", "failover client"}
	for i, n := range nodes {
		t.Run(kinds[i]+" alone", func(t *testing.T) {
			a, b := realNew(t, redlock.Options{Name: "a"}, n), realNew(t, redlock.Options{Name: "b"}, n)
			for _, key := range realKeys {
				if kinds[i] == "Ring" && !oneShard(key) {
					if _, err := a.TryAcquire(t.Context(), key, time.Minute); err == nil || !strings.Contains(err.Error(), "Ring") {
						t.Errorf("key %q on a Ring: got %v, want a refusal", key, err)
					}
					continue
				}
				realTour(t, a, b, key, time.Second)
			}
		})
	}
	nodes[6] = s[6].Client() // the failover client's server is listed already
	t.Run("mixed", func(t *testing.T) {
		a, b := realNew(t, redlock.Options{Name: "a"}, nodes...), realNew(t, redlock.Options{Name: "b"}, nodes...)
		for _, key := range slices.DeleteFunc(slices.Clone(realKeys), func(k string) bool { return !oneShard(k) }) {
			realTour(t, a, b, key, time.Second)
			k := realAcquire(t, a, key, time.Minute)
			// A node that b's release reached after a's acquire is healed by an extension.
			realUntil(t, 5*time.Second, "the key on all nodes", func() bool {
				return all.count(t, key, k.Value().Secret()) >= len(nodes) || k.Extend(t.Context()) != nil
			})
			realRelease(t, k)
		}
		realUntil(t, 2*time.Second, "rest", func() bool { return realAtRest(a, 7) && realAtRest(b, 7) })
	})
	all.clean(t, 2*time.Second)
	all.registersExpire(t, time.Minute)
}

// A Ring all of whose shards are down panics where one subscribes to it. In a wrapper it
// is a Ring all the same, and where the wrapper hides it, the panic is that node's alone.
func TestRealRingWithoutShards(t *testing.T) {
	r := realStart(t, 2)
	late := realStarved(t)
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"down": "127.0.0.1:1"}, HeartbeatFrequency: 10 * time.Millisecond})
	defer ring.Close()
	realUntil(t, 10*time.Second, "the Ring to know", func() bool { return ring.Len() == 0 })
	type embeds struct{ *redis.Ring }
	type universal struct{ redis.UniversalClient }
	for _, node := range []redlock.Node{embeds{ring}, universal{ring}, hidesRing{ring}} {
		key := fmt.Sprintf("%T", node)
		nodes := []redlock.Node{r.servers[0].Client(), r.servers[1].Client(), node}
		a, b := realNew(t, redlock.Options{}, nodes...), realNew(t, redlock.Options{}, nodes...)
		k := realAcquire(t, a, key, time.Minute)
		next := r.waiter(t, b, k)
		realUntil(t, 5*time.Second, "the other nodes to be listened to", func() bool { return seam.Peek(b).Nodes[0].Subscribed > 0 && seam.Peek(b).Nodes[1].Subscribed > 0 })
		harness.Check(t, key+": channels heard of the Ring", seam.Peek(b).Nodes[2].Subscribed, 0)
		realRelease(t, realHandOver(t, key, late, k, next))
	}
	r.clean(t, 2*time.Second)
}

// hidesRing is a wrapper that cannot be seen through.
type hidesRing struct{ ring *redis.Ring }

func (h hidesRing) Process(ctx context.Context, cmd redis.Cmder) error {
	return h.ring.Process(ctx, cmd)
}
func (h hidesRing) Pipeline() redis.Pipeliner { return h.ring.Pipeline() }

func (h hidesRing) Subscribe(ctx context.Context, channels ...string) *redis.PubSub {
	return h.ring.Subscribe(ctx, channels...)
}

// A master and its replica, which may be written to here, are one server's data.
func TestRealReplicaIsNoNode(t *testing.T) {
	r := realStart(t, 2)
	host, port, _ := net.SplitHostPort(r.servers[0].Addr())
	r.do(t, []int{1}, "config", "set", "replica-read-only", "no")
	r.do(t, []int{1}, "replicaof", host, port)
	l := realOpen(t, redlock.Options{}, r.addrs()...)
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		_, err := l.Acquire(ctx, "job", time.Minute)
		realIs(t, "Acquire", err, redlock.ErrNoQuorum)
		if ctx.Err() != nil || !strings.Contains(err.Error(), r.addrs()[1]+" replica of "+r.addrs()[0]+": pass its master") {
			t.Errorf("got %v, want the replica and its master named, at once", err)
		}
		cancel()
	}
	r.do(t, []int{1}, "replicaof", "no", "one")
	k, _ := realGranted(t, 10*time.Second, l, "job", time.Minute) // with the vote of the promoted
	realRelease(t, k)
	r.clean(t, 2*time.Second)
}

// realSentinel starts a sentinel that watches s, and a client that asks it.
func realSentinel(t *testing.T, s *realredis.Server) *redis.Client {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().(*net.TCPAddr)
	l.Close()
	conf := filepath.Join(t.TempDir(), "sentinel.conf")
	host, port, _ := net.SplitHostPort(s.Addr())
	text := fmt.Sprintf("port %d\nbind 127.0.0.1\nsentinel monitor m %s %s 1\n", addr.Port, host, port)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(realredis.Binary, conf, "--sentinel")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{addr.String()}})
	t.Cleanup(func() {
		c.Close()
		cmd.Process.Kill()
		cmd.Wait()
	})
	realUntil(t, 10*time.Second, "the sentinel", func() bool { return c.Ping(context.Background()).Err() == nil })
	return c
}

// The shards of a Ring are chosen by its own hash: a lock and its register must
// meet on one of them, or its tokens do not grow.
func TestRealRingTokens(t *testing.T) {
	r := realStart(t, 8)
	addrs := make(map[string]string)
	for i, a := range r.addrs() {
		addrs[fmt.Sprint(i)] = a
	}
	ring := redis.NewRing(&redis.RingOptions{Addrs: addrs})
	defer ring.Close()
	ahead := realSeamed(t, redlock.Options{}, realAhead(time.Hour), ring)
	l := realNew(t, redlock.Options{}, ring)
	for _, key := range append(slices.Clone(realKeys), "b}c", "c}d", "d}e", "x{}y", "{}{a}") {
		if !oneShard(key) {
			continue // refused
		}
		var last int64
		for i := range 4 {
			by := ahead
			if i%2 == 1 {
				by = l
			}
			k := realAcquire(t, by, key, time.Minute)
			last = realGrows(t, last, k)
			realRelease(t, k)
		}
	}
}

// A deferred auto-pipeliner's Process returns before the command was executed. That
// must not be taken for a sign of life.
func TestRealAsyncPipelinerOfAStoppedNode(t *testing.T) {
	r := realStart(t, 3)
	async, err := r.servers[0].Client(func(o *redis.Options) { o.MaxRetries, o.ReadTimeout = -1, 10*time.Second }).AsyncAutoPipeline()
	if err != nil {
		t.Fatal(err)
	}
	defer async.Close()
	l := realNew(t, redlock.Options{NodeTimeout: 100 * time.Millisecond}, async, r.servers[1].Client(), r.servers[2].Client())
	realRelease(t, realAcquire(t, l, "warm", time.Minute))
	r.servers[0].Stop()
	realRelease(t, realAcquire(t, l, "job", time.Minute))
	realUntil(t, 2*time.Second, "suspicion", func() bool { return seam.Peek(l).Nodes[0].Down })
	for end := time.Now().Add(time.Second); time.Now().Before(end); <-time.After(2 * time.Millisecond) {
		if !seam.Peek(l).Nodes[0].Down {
			t.Fatal("a stopped node is in use again")
		}
	}
	r.servers[0].Cont()
	realUntil(t, 2*time.Second, "use of the node", func() bool { return realAtRest(l, 3) })
	r.clean(t, 2*time.Second)
}

func TestRealUnixSockets(t *testing.T) {
	t.Parallel()
	var servers []*realredis.Server
	var urls []string
	for range 3 {
		s := realredis.Start(t, 1, "--unixsocket", "s")[0] // relative to its directory
		servers = append(servers, s)
		urls = append(urls, "unix://"+filepath.Join(s.Dir(), "s"))
	}
	a, b := realOpen(t, redlock.Options{}, urls...), realOpen(t, redlock.Options{}, urls...)
	realTour(t, a, b, "job", time.Second)
	servers[1].Kill()
	realTour(t, a, b, "job", 500*time.Millisecond)
	servers[1].Restart()
	realUntil(t, 2*time.Second, "use of the restarted server", func() bool { return !seam.Peek(a).Nodes[1].Down })
	realTour(t, a, b, "job", time.Second)
	realOver(servers...).clean(t, 2*time.Second)
}

// Attack 96.
func TestRealTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	https := httptest.NewTLSServer(nil) // for its certificate, which is for 127.0.0.1
	https.Close()
	cert := https.TLS.Certificates[0]
	keyDER, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]})
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
	write := func(name string, b []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	certFile, keyFile := write("cert.pem", certPEM), write("key.pem", keyPEM)
	var servers []*realredis.Server
	var addrs []string
	for range 3 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		port := l.Addr().(*net.TCPAddr).Port
		l.Close()
		s, err := realredis.StartServers(1, "--tls-port", fmt.Sprint(port), "--tls-cert-file", certFile, "--tls-key-file", keyFile, "--tls-auth-clients", "no")
		if err != nil {
			t.Skipf("needs a redis-server with TLS: %v", err)
		}
		t.Cleanup(s[0].Close)
		servers = append(servers, s[0])
		addrs = append(addrs, fmt.Sprintf("127.0.0.1:%d", port))
	}
	roots := x509.NewCertPool()
	roots.AddCert(https.Certificate())
	var nodes []redlock.Node
	var insecure, strict, wrong, plain []string
	for i, a := range addrs {
		c := redis.NewClient(&redis.Options{Addr: a, TLSConfig: &tls.Config{RootCAs: roots}})
		defer c.Close()
		nodes = append(nodes, c)
		insecure = append(insecure, "rediss://"+a+"?skip_verify=true")
		strict = append(strict, "rediss://"+a)
		wrong = append(wrong, "rediss://"+servers[i].Addr()) // a port without TLS
		plain = append(plain, "redis://"+a)
	}
	a, b := realNew(t, redlock.Options{}, nodes...), realOpen(t, redlock.Options{}, insecure...)
	for i := range 3 {
		realTour(t, a, b, fmt.Sprintf("job/%d", i), time.Second)
	}
	for what, c := range map[string]struct {
		urls []string
		says string
	}{
		"unknown authority":      {strict, "certificate"},
		"TLS to a plain port":    {wrong, "is it a TLS port?"},
		"no TLS to a port of it": {plain, "does the port need TLS (rediss://)?"},
	} {
		l := realOpen(t, redlock.Options{NodeTimeout: 300 * time.Millisecond}, c.urls...)
		// On a busy machine a handshake may take longer than the node timeout.
		realUntil(t, 20*time.Second, what+": an error that says "+c.says, func() bool {
			_, err := l.TryAcquire(t.Context(), "job", time.Minute)
			realIs(t, what, err, redlock.ErrNoQuorum)
			return strings.Contains(err.Error(), c.says)
		})
	}
	realOver(servers...).clean(t, 2*time.Second)
}

// Attack 53.
func TestRealOneServerTwice(t *testing.T) {
	r := realStart(t, 3)
	_, port, _ := net.SplitHostPort(r.servers[0].Addr())
	for _, urls := range [][]string{
		{r.addrs()[0], "localhost:" + port, r.addrs()[1]},
		{r.addrs()[0], r.addrs()[1], r.addrs()[2], "localhost:" + port},
		{"localhost:" + port, r.addrs()[0]},
	} {
		good := realOpen(t, redlock.Options{}, r.addrs()...)
		held := realAcquire(t, good, "held", time.Minute)
		r.everywhere(t, held) // a late attempt of the round before may refuse it on a server
		l := realOpen(t, redlock.Options{}, urls...)
		// The introduction of the second may come after a first verdict.
		var err error
		var granted int
		realUntil(t, 2*time.Second, "detection", func() bool {
			if k, e := l.TryAcquire(t.Context(), "held", time.Minute); e == nil {
				t.Errorf("%v: got a held lock, fence %d", urls, k.Fence())
			}
			var k *redlock.Lock
			k, err = l.TryAcquire(t.Context(), "job", time.Minute)
			if k != nil {
				granted++
				k.Release(t.Context())
			}
			return err != nil && strings.Contains(err.Error(), "one server")
		})
		t.Logf("%d granted before: %v", granted, err)
		for _, a := range []string{r.addrs()[0], "localhost:" + port} {
			if !strings.Contains(err.Error(), a) {
				t.Errorf("%v does not name %s", err, a)
			}
		}
		for range 5 {
			if _, err := l.TryAcquire(t.Context(), "job", time.Minute); err == nil || !strings.Contains(err.Error(), "one server") {
				t.Errorf("%v: later got %v", urls, err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), realSlack(time.Second))
		if _, err := l.Acquire(ctx, "job", time.Minute); err == nil || ctx.Err() != nil {
			t.Errorf("Acquire: got %v, want it to fail without waiting", err)
		}
		cancel()
		if n := r.count(t, "held", held.Value().Secret()); n != 3 {
			t.Errorf("the held lock is on %d nodes, want 3", n)
		}
		realRelease(t, held)
		r.clean(t, 2*time.Second)
	}
}

// Servers before 7.0 refuse SET with NX and GET: here a proxy makes it NX and XX,
// which a newer one refuses in the same words.
func TestRealBeforeRedis7(t *testing.T) {
	r := realStart(t, 3)
	var urls []string
	for _, a := range r.addrs() {
		p := realProxyTo(t, a)
		p.OnRequest(func(b []byte) (time.Duration, []byte) {
			return 0, bytes.ReplaceAll(b, []byte("$2\r\nnx\r\n$3\r\nget\r\n"), []byte("$2\r\nnx\r\n$2\r\nxx\r\n"))
		})
		urls = append(urls, p.Addr())
	}
	ctx := t.Context()
	a, b := realOpen(t, redlock.Options{Name: "a"}, urls...), realOpen(t, redlock.Options{Name: "b"}, urls...)
	new7 := r.open(t, redlock.Options{Name: "new"})
	var last int64
	for range 20 {
		k := realAcquire(t, a, "job", time.Minute)
		last = realGrows(t, last, k)
		for _, l := range []*redlock.Locker{a, b, new7} {
			_, err := l.TryAcquire(ctx, "job", time.Minute)
			realIs(t, "second holder", err, redlock.ErrHeld)
		}
		if err := k.Extend(ctx); err != nil {
			t.Error(err)
		}
		realRelease(t, k)
		a, b = b, a
	}
	// A foreign key.
	r.do(t, nil, "set", "foreign", "v")
	_, err := a.TryAcquire(ctx, "foreign", time.Minute)
	realIs(t, "foreign key", err, redlock.ErrHeld)
	realUntil(t, 2*time.Second, "rest", func() bool { return realAtRest(a, 3) && realAtRest(b, 3) })
	if n := r.count(t, "foreign", "v"); n != 3 {
		t.Errorf("the foreign key is on %d nodes", n)
	}
	r.registersExpire(t, time.Minute)
	r.do(t, nil, "del", "foreign")
	r.clean(t, 2*time.Second)
}

// What is listed is no Redis server, or nothing at all: it has no vote, says why, and
// a majority of others does not wait for it.
//
// Attacks 33, 96.
func TestRealNodesThatAreNone(t *testing.T) {
	r := realStart(t, 4)
	t.Cleanup(func() { r.clean(t, 3*time.Second) })
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()                     // nobody listens there any more
	says := func(text string) string { // to whoever comes, whatever he asks
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		t.Cleanup(func() { l.Close(); all.Wait() })
		all.Go(func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				all.Go(func() {
					defer c.Close()
					c.SetDeadline(time.Now().Add(3 * time.Second))
					b := make([]byte, 4096)
					for {
						if _, err := c.Read(b); err != nil {
							return
						}
						if _, err := c.Write([]byte(text)); err != nil {
							return
						}
					}
				})
			}
		})
		return l.Addr().String()
	}
	bad := map[string]string{
		"a port that nobody listens on": closed.Addr().String(),
		"a name that does not resolve":  "no-such-host.invalid:6379",
		"a web server":                  says("HTTP/1.1 400 Bad Request\r\n\r\n"),
		"garbage":                       says("\x00\x01\x02\r\n\xff"),
		"one that says OK to all":       says("+OK\r\n+OK\r\n+OK\r\n+OK\r\n"),
		"one that says none to all":     says("$-1\r\n$-1\r\n$-1\r\n$-1\r\n"),
		"one that is silent":            says(""),
	}
	for what, addr := range bad {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			few := realOpen(t, redlock.Options{NodeTimeout: time.Second}, append(r.addrs(), addr)...)
			for i := range 2 {
				realTour(t, few, few, fmt.Sprint(what, "/", i), time.Second)
			}
			if what == "one that says none to all" {
				return // that is what a free lock's node says
			}
			many := realOpen(t, redlock.Options{NodeTimeout: time.Second}, r.addrs()[0], addr)
			for range 2 {
				_, err := many.TryAcquire(t.Context(), what, time.Minute)
				if err == nil {
					t.Fatalf("acquired by one of two")
				}
				var q *redlock.QuorumError
				if !errors.As(err, &q) || q.Round.Votes[1].Answer == redlock.AnswerYes || !strings.Contains(err.Error(), addr) {
					t.Errorf("got %v, want no vote of %s, and it named", err, addr)
				}
				t.Log(err)
			}
		})
	}
}
