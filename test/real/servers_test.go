package real_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/harness"
	"github.com/seed-ce352c9b/redlock/internal/realredis"
	"github.com/seed-ce352c9b/redlock/internal/seam"
)

// The real*_test.go files run against redis-server processes: what an in-process
// imitation gets wrong (error texts, Lua's numbers, a stopped process) is found here.

// realSlack returns the bound for something that takes d or less on an idle machine. It is ten
// times as long, because the machine may be busy, and thirty times as long under the race detector.
// Tests in virtual time hold the exact times.
func realSlack(d time.Duration) time.Duration {
	if harness.Sparing {
		return 30 * d
	}
	return 10 * d
}

// realWait polls until ok, for at most limit and some slack.
func realWait(limit time.Duration, ok func() bool) bool {
	for deadline := time.Now().Add(realSlack(limit)); !ok(); <-time.After(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}

func realUntil(t testing.TB, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	if !realWait(limit, ok) {
		t.Fatalf("%s: did not happen within %v", what, limit)
	}
}

// realStarved watches how late the timers of this process are until the test ends:
// what a bound on a real clock has to allow for. It returns the worst so far.
func realStarved(t testing.TB) func() time.Duration {
	const every = time.Millisecond
	var worst, beat atomic.Int64
	beat.Store(time.Now().UnixNano())
	late := func() time.Duration { // of the beat that is still to come, too
		return max(time.Duration(worst.Load()), time.Since(time.Unix(0, beat.Load()))-every)
	}
	stop := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		tick := time.NewTimer(every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-stop:
				return
			}
			worst.Store(int64(late()))
			beat.Store(time.Now().UnixNano())
			tick.Reset(every)
		}
	})
	t.Cleanup(func() { close(stop); watch.Wait() })
	return late
}

// realSeed prints the seed that a random test runs with.
func realSeed(t testing.TB) *rand.Rand {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

// A realNodes is some servers with a client for the test's own commands each.
type realNodes struct {
	servers []*realredis.Server
	admin   []*redis.Client
}

func realStart(t testing.TB, n int, args ...string) *realNodes {
	t.Helper()
	return realOver(realredis.Start(t, n, args...)...)
}

func realOver(servers ...*realredis.Server) *realNodes {
	r := &realNodes{servers: servers}
	for _, s := range servers {
		r.admin = append(r.admin, s.Client(func(o *redis.Options) { o.MaxRetries = 5 }))
	}
	return r
}

func (r *realNodes) addrs() (a []string) {
	for _, s := range r.servers {
		a = append(a, s.Addr())
	}
	return a
}

// open is redlock.Open over the servers. The Locker is closed at the test's end.
func (r *realNodes) open(t testing.TB, opt redlock.Options) *redlock.Locker {
	t.Helper()
	return realOpen(t, opt, r.addrs()...)
}

func realOpen(t testing.TB, opt redlock.Options, urls ...string) *redlock.Locker {
	t.Helper()
	l, err := redlock.Open(opt, urls...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func (r *realNodes) nodes() (ns []redlock.Node) {
	for _, s := range r.servers {
		ns = append(ns, s.Client())
	}
	return ns
}

func realNew(t testing.TB, opt redlock.Options, nodes ...redlock.Node) *redlock.Locker {
	t.Helper()
	l, err := redlock.New(opt, nodes...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// do runs a command on every server, or on the given ones.
func (r *realNodes) do(t testing.TB, on []int, args ...any) {
	t.Helper()
	if on == nil {
		for i := range r.admin {
			on = append(on, i)
		}
	}
	for _, i := range on {
		if err := r.admin[i].Do(context.Background(), args...).Err(); err != nil && !errors.Is(err, redis.Nil) {
			t.Fatalf("server %d: %v: %v", i, args, err)
		}
	}
}

// get is the key's value on every server; "" where it is missing.
func (r *realNodes) get(t testing.TB, key string) (values []string) {
	t.Helper()
	for i, c := range r.admin {
		v, err := c.Get(context.Background(), key).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			t.Fatalf("server %d: GET %s: %v", i, key, err)
		}
		values = append(values, v)
	}
	return values
}

// count is on how many servers the key has the value.
func (r *realNodes) count(t testing.TB, key, value string) (n int) {
	t.Helper()
	for _, v := range r.get(t, key) {
		if v == value {
			n++
		}
	}
	return n
}

// left lists what is on the servers besides fence registers.
func (r *realNodes) left() (found []string) {
	for i, c := range r.admin {
		keys, err := c.Keys(context.Background(), "*").Result()
		if err != nil {
			found = append(found, fmt.Sprintf("server %d: KEYS: %v", i, err))
		}
		for _, k := range keys {
			if !strings.HasSuffix(k, ":fence") && !harness.Expires(k, c.PTTL(context.Background(), k).Val()) {
				found = append(found, fmt.Sprintf("server %d: %q = %q", i, k, c.Get(context.Background(), k).Val()))
			}
		}
	}
	return found
}

// clean waits until nothing but fence registers is on the servers.
func (r *realNodes) clean(t testing.TB, limit time.Duration) {
	t.Helper()
	var found []string
	if !realWait(limit, func() bool { found = r.left(); return len(found) == 0 }) {
		t.Errorf("%d keys left behind after %v: %v", len(found), limit, found[:min(len(found), 8)])
	}
}

// immortal lists registers that live longer than most, or for ever.
func (r *realNodes) immortal(most time.Duration) (found []string) {
	ctx := context.Background()
	for i, c := range r.admin {
		for _, k := range c.Keys(ctx, "*:fence").Val() {
			if d := c.PTTL(ctx, k).Val(); d < 0 || d > most {
				found = append(found, fmt.Sprintf("server %d: %q lives %v", i, k, d))
			}
		}
	}
	return found
}

func (r *realNodes) mortal(t testing.TB, ttl time.Duration) {
	t.Helper()
	var found []string
	if !realWait(2500*time.Millisecond, func() bool { found = r.immortal(ttl + 25*time.Hour); return len(found) == 0 }) {
		t.Errorf("%d registers without an end: %v", len(found), found[:min(len(found), 8)])
	}
}

// realGoroutines is the number of goroutines, for a baseline.
func realGoroutines(t testing.TB, limit time.Duration, baseline int) {
	t.Helper()
	if !realWait(limit, func() bool { return runtime.NumGoroutine() <= baseline }) {
		buf := make([]byte, 1<<20)
		t.Errorf("%d goroutines, want %d:\n%s", runtime.NumGoroutine(), baseline, buf[:runtime.Stack(buf, true)])
	}
}

// realAcquire acquires a lock that must be free within ten seconds, and some slack.
func realAcquire(t testing.TB, l *redlock.Locker, key string, ttl time.Duration) *redlock.Lock {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), realSlack(10*time.Second))
	defer cancel()
	k, err := l.Acquire(ctx, key, ttl)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// realRelease releases a lock. On a busy machine a majority may answer too late; then it
// is asked again, as a user would.
func realRelease(t testing.TB, k *redlock.Lock) {
	t.Helper()
	if err := realAgain(func() error { return k.Release(context.Background()) }); err != nil {
		t.Errorf("Release: %v", err)
	}
}

// realExtend is the same for Extend.
func realExtend(t testing.TB, what string, k *redlock.Lock) {
	t.Helper()
	if err := realAgain(func() error { return k.Extend(context.Background()) }); err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

// realAgain repeats a call for as long as too few nodes answer it.
func realAgain(f func() error) (err error) {
	realWait(10*time.Second, func() bool { err = f(); return !errors.Is(err, redlock.ErrNoQuorum) })
	return err
}

func realIs(t testing.TB, what string, err error, want ...error) {
	t.Helper()
	for _, w := range want {
		if !errors.Is(err, w) {
			t.Errorf("%s: got %v, want %v", what, err, w)
		}
	}
	for _, no := range []error{context.Canceled, context.DeadlineExceeded, redlock.ErrHeld, redlock.ErrNoQuorum, redlock.ErrLost, redlock.ErrClosed} {
		expected := false
		for _, w := range want {
			expected = expected || errors.Is(w, no)
		}
		if !expected && errors.Is(err, no) {
			t.Errorf("%s: got %v, which also is %v", what, err, no)
		}
	}
}

// A realProxy stands between a client and a server. What is in batch is delivered
// even when the client has closed its connection, as a network does.
type realProxy struct {
	backend string
	l       net.Listener
	stop    chan struct{}
	wg      sync.WaitGroup
	n       atomic.Int64 // connections so far

	mu    sync.Mutex
	conns []net.Conn

	// Called with the connection's number for each chunk on its way; they return how
	// long it takes and what comes out. nil: at once and unchanged.
	request atomic.Pointer[realHook]
	reply   atomic.Pointer[realHook]
}

type realHook func(conn int64, chunk []byte) (time.Duration, []byte)

func realProxyTo(t testing.TB, backend string) *realProxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &realProxy{backend: backend, l: l, stop: make(chan struct{})}
	p.wg.Go(p.serve)
	t.Cleanup(p.close)
	return p
}

func (p *realProxy) addr() string { return p.l.Addr().String() }

// to leads to another server from now on, and breaks the connections to the one before.
func (p *realProxy) to(backend string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.backend = backend
	for _, c := range p.conns {
		c.Close()
	}
	p.conns = nil
}

// delay makes every chunk take that long.
func (p *realProxy) delay(request, reply time.Duration) {
	p.on(func(_ int64, b []byte) (time.Duration, []byte) { return request, b },
		func(_ int64, b []byte) (time.Duration, []byte) { return reply, b })
}

func (p *realProxy) on(request, reply realHook) {
	p.request.Store(&request)
	p.reply.Store(&reply)
}

func (p *realProxy) serve() {
	for {
		client, err := p.l.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		backend := p.backend
		p.mu.Unlock()
		server, err := net.Dial("tcp", backend)
		if err != nil {
			client.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, client, server)
		p.mu.Unlock()
		n := p.n.Add(1)
		done := make(chan struct{})
		p.wg.Go(func() { defer close(done); p.pipe(n, server, client, &p.request) })
		p.wg.Go(func() {
			p.pipe(n, client, server, &p.reply)
			client.Close()
			<-done
			server.Close()
		})
	}
}

// pipe carries chunks, each after its delay, in order.
func (p *realProxy) pipe(n int64, dst, src net.Conn, hook *atomic.Pointer[realHook]) {
	type chunk struct {
		due   time.Time
		bytes []byte
	}
	queue := make(chan chunk, 1024)
	p.wg.Go(func() {
		defer close(queue)
		buf := make([]byte, 256<<10)
		for {
			k, err := src.Read(buf)
			if k > 0 {
				b, d := bytes.Clone(buf[:k]), time.Duration(0)
				if f := hook.Load(); f != nil && *f != nil {
					d, b = (*f)(n, b)
				}
				queue <- chunk{time.Now().Add(d), b}
			}
			if err != nil {
				return
			}
		}
	})
	broken := false
	for c := range queue {
		if d := time.Until(c.due); d > 0 && !broken {
			select {
			case <-time.After(d):
			case <-p.stop:
				broken = true
			}
		}
		if !broken {
			_, err := dst.Write(c.bytes)
			broken = err != nil
		}
	}
	if tcp, ok := dst.(*net.TCPConn); ok {
		tcp.CloseWrite()
	}
}

func (p *realProxy) close() {
	p.l.Close()
	select {
	case <-p.stop:
	default:
		close(p.stop)
	}
	p.mu.Lock()
	for _, c := range p.conns {
		c.Close()
	}
	p.mu.Unlock()
	p.wg.Wait()
}

// realAtRest: every node is in use, and nothing is owed or under way.
func realAtRest(l *redlock.Locker, nodes int) bool {
	for i := range nodes {
		if seam.Peek(l).Nodes[i].Down || seam.Peek(l).Nodes[i].Owed > 0 {
			return false
		}
	}
	return seam.Peek(l).Leaving == 0
}
