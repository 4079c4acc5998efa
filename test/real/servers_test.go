package real_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/harness"
	"github.com/seed-ce352c9b/redlock/internal/proxy"
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

// realWait polls until ok, for at most limit and some slack, and the longer it takes, the less often: every 2 ms at first, and
// every 20 ms after a second.
func realWait(limit time.Duration, ok func() bool) bool {
	for start := time.Now(); !ok(); <-time.After(2*time.Millisecond + min(time.Since(start), time.Second)/50) {
		if time.Since(start) > realSlack(limit) {
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

// realSeed returns the random source of a test: with REDLOCK_SEED, or with the same seed each time.
func realSeed(t testing.TB) *rand.Rand {
	seed := harness.Seed(t)
	if text := os.Getenv("REDLOCK_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 0, 64); err != nil {
			t.Fatalf("REDLOCK_SEED: %v", err)
		}
	}
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

// A realNodes is some servers with a client for the test's own commands each.
type realNodes struct {
	servers []*realredis.Server
	admin   []*redis.Client
}

// realStart starts n servers. The test is parallel from then on.
func realStart(t *testing.T, n int, args ...string) *realNodes {
	t.Helper()
	t.Parallel()
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

// urls returns the servers' URLs for a user, "name:password".
func (r *realNodes) urls(user string) (urls []string) {
	for _, a := range r.addrs() {
		urls = append(urls, "redis://"+user+"@"+a)
	}
	return urls
}

// open is redlock.Open over the servers. The Locker is closed at the test's end.
func (r *realNodes) open(t testing.TB, opt redlock.Options) *redlock.Locker {
	t.Helper()
	return realOpen(t, opt, r.addrs()...)
}

func realOpen(t testing.TB, opt redlock.Options, urls ...string) *redlock.Locker {
	t.Helper()
	l, err := redlock.Open(opt, urls...)
	return realLocker(t, l, err)
}

// realLockers has the Lockers that are closed at the end of a test.
var realLockers = struct {
	sync.Mutex
	of map[testing.TB][]*redlock.Locker
}{of: make(map[testing.TB][]*redlock.Locker)}

// realLocker returns a new Locker, which is closed at the test's end. All Lockers of a test are closed at the same time,
// since each may take two node timeouts where nodes do not reply.
func realLocker(t testing.TB, l *redlock.Locker, err error) *redlock.Locker {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	realLockers.Lock()
	defer realLockers.Unlock()
	if realLockers.of[t] == nil {
		t.Cleanup(func() {
			realLockers.Lock()
			all := realLockers.of[t]
			delete(realLockers.of, t)
			realLockers.Unlock()
			var closed sync.WaitGroup
			for _, l := range all {
				closed.Go(func() { l.Close() })
			}
			closed.Wait()
		})
	}
	realLockers.of[t] = append(realLockers.of[t], l)
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
	return realLocker(t, l, err)
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

// everywhere waits until all servers store the locks: an extension brings a lock to a server that missed it.
func (r *realNodes) everywhere(t testing.TB, locks ...*redlock.Lock) {
	t.Helper()
	realUntil(t, time.Second, "all servers to store the locks", func() bool {
		return !slices.ContainsFunc(locks, func(k *redlock.Lock) bool {
			realExtend(t, "Extend", k)
			return r.count(t, k.Key(), k.Value().Secret()) < len(r.servers)
		})
	})
}

// acquireEverywhere acquires a lock for a minute and returns when all servers store it. On a busy machine one may answer too late,
// and be undone there: then it acquires the next key, one slash longer.
func (r *realNodes) acquireEverywhere(t testing.TB, l *redlock.Locker, key string) *redlock.Lock {
	t.Helper()
	for range 50 {
		k := realAcquire(t, l, key, time.Minute)
		for range 100 {
			if r.count(t, key, k.Value().Secret()) == len(r.servers) {
				return k
			}
			<-time.After(2 * time.Millisecond)
		}
		realRelease(t, k)
		key += "/"
	}
	t.Fatal("none of 50 locks is on all servers")
	return nil
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

// endless lists registers that live longer than most, or for ever.
func (r *realNodes) endless(most time.Duration) (found []string) {
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

// registersExpire fails the test if a register outlives ttl by more than a day and an hour.
func (r *realNodes) registersExpire(t testing.TB, ttl time.Duration) {
	t.Helper()
	var found []string
	if !realWait(2500*time.Millisecond, func() bool { found = r.endless(ttl + 25*time.Hour); return len(found) == 0 }) {
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

// realGrows fails the test unless a lock's token is above last, and one that can still grow. It returns the token.
func realGrows(t testing.TB, last int64, k *redlock.Lock) int64 {
	t.Helper()
	if k.Fence() <= last || k.Fence() >= 1<<53-1 {
		t.Errorf("%.20q: token %d after %d", k.Key(), k.Fence(), last)
	}
	return k.Fence()
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

// realProxyTo starts a proxy before a server.
func realProxyTo(t testing.TB, server string) *proxy.Proxy {
	t.Helper()
	p, err := proxy.Start(server)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
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
