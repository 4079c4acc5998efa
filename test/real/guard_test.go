package real_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/harness"
)

// realGuard is long enough for a server to be down, and the tests' ttl.
const realGuard = 4 * time.Second

// realGranted polls until a lock is granted. It also returns the errors before that.
func realGranted(t testing.TB, limit time.Duration, l *redlock.Locker, key string, ttl time.Duration) (k *redlock.Lock, votes []error) {
	t.Helper()
	realUntil(t, limit, "a grant of "+key, func() bool {
		next, err := l.TryAcquire(t.Context(), key, ttl)
		if err != nil {
			votes = append(votes, err)
		}
		k = next
		return err == nil
	})
	return k, votes
}

func realQuarantined(votes []error) (n int) {
	for _, err := range votes {
		if strings.Contains(err.Error(), " quarantined ") {
			n++
		}
	}
	return n
}

// One of three is killed and back at once without its data, while its yes is one of the
// two that a holder has: with the guard nobody else gets in, without it somebody does.
// Attacks 37, 38, 40.
func TestRealRestartGuard(t *testing.T) {
	t.Parallel()
	for _, way := range []struct {
		name string
		save bool
		f    func(t *testing.T, r *realNodes)
	}{
		{"restarted empty", false, func(t *testing.T, r *realNodes) { r.servers[0].Restart() }},
		{"restarted with an old snapshot", true, func(t *testing.T, r *realNodes) { r.servers[0].Restart() }},
		{"flushed", false, func(t *testing.T, r *realNodes) { r.do(t, []int{0}, "flushall") }},
	} {
		for _, guard := range []time.Duration{realGuard, 0} {
			t.Run(fmt.Sprintf("%s, guard %v", way.name, guard), func(t *testing.T) {
				r := realStart(t, 3)
				opt := redlock.Options{RestartGuard: guard, NodeTimeout: time.Second}
				a, b := r.open(t, opt), r.open(t, opt)
				// New servers have been up for less than the guard.
				k, _ := realGranted(t, 3*realGuard, a, "earlier", realGuard)
				realRelease(t, k)
				if way.save {
					r.do(t, []int{0}, "save") // the mark is in it, and is loaded by the restart
				}
				r.do(t, []int{2}, "set", "job", "in the way", "px", "60000")
				k = realAcquire(t, a, "job", realGuard)
				way.f(t, r)
				r.do(t, []int{2}, "del", "job")
				start := time.Now()
				next, votes := realGranted(t, 5*realGuard, b, "job", realGuard)
				both := k.Valid()
				t.Logf("free after %v, %d attempts before", time.Since(start).Round(time.Millisecond), len(votes))
				if next.Fence() <= k.Fence() && !both {
					t.Errorf("token %d after %d", next.Fence(), k.Fence())
				}
				realRelease(t, next)
				if guard == 0 && !both {
					t.Error("without a guard nobody got in beside the holder: the test tests nothing")
				}
				if guard > 0 && (both || realQuarantined(votes) == 0) {
					t.Errorf("with a guard: both at once %v, %d of %d attempts met a quarantine", both, realQuarantined(votes), len(votes))
				}
			})
		}
	}
}

// Every node restarts empty, one after the other, while one holds the lock and others
// try to get it all the time: it is held to the end, and back on all nodes.
//
// Attack 79.
func TestRealRestartGuardOverALongHold(t *testing.T) {
	r := realStart(t, 3)
	const ttl = 6 * time.Second // no machine should be too busy for that: the test extends by itself
	opt := redlock.Options{RestartGuard: ttl, NodeTimeout: 300 * time.Millisecond}
	a, b := r.open(t, opt), r.open(t, opt)
	k, _ := realGranted(t, 3*ttl, a, "job", ttl)
	held, stop := k.KeepAlive(t.Context())
	defer stop()
	everywhere := func(what string) {
		t.Helper()
		if !realWait(2*ttl, func() bool {
			k.Extend(t.Context()) // an error is told below
			return r.count(t, "job", k.Value().Secret()) == 3
		}) {
			st, err := a.Inspect(t.Context(), "job")
			t.Fatalf("%s: the key is not back: valid %v, %v, %+v, %v", what, k.Valid(), held.Err(), st, err)
		}
		// Counted from the next renewal on: only then the next node may go.
		realExtend(t, what, k)
	}
	everywhere("at first, when one may still be too young to grant")
	done := make(chan struct{})
	polled := make(chan int)
	go func() {
		n := 0
		defer func() { polled <- n }()
		for ; ; n++ {
			select {
			case <-done:
				return
			case <-time.After(2 * time.Millisecond):
			}
			if other, err := b.TryAcquire(t.Context(), "job", ttl); err == nil {
				if k.Valid() {
					t.Errorf("another got in beside the holder, fences %d and %d", k.Fence(), other.Fence())
				}
				other.Release(t.Context())
			}
		}
	}()
	for round := range harness.Rounds(1, 3) {
		for i := range 3 {
			r.servers[i].Restart()
			everywhere(fmt.Sprintf("round %d, node %d", round, i))
		}
	}
	if held.Err() != nil || !k.Valid() {
		t.Errorf("the lock is valid %v, its context %v", k.Valid(), held.Err())
	}
	close(done)
	if n := <-polled; n < 10 {
		t.Errorf("the contender tried %d times", n)
	}
	realRelease(t, k)
}

// Scripts that are forgotten are no restart; and INFO that is not permitted makes a node
// one that tells nothing of itself.
//
// Attacks 41, 95.
func TestRealRestartGuardFalseAlarms(t *testing.T) {
	r := realStart(t, 1)
	l := r.open(t, redlock.Options{RestartGuard: time.Second})
	granted := func() (quarantined int) {
		t.Helper()
		k, votes := realGranted(t, 10*time.Second, l, "job", time.Second)
		realRelease(t, k)
		return realQuarantined(votes)
	}
	never := func(what string) {
		t.Helper()
		harness.Check(t, what+": attempts that met a quarantine", granted(), 0)
	}
	granted() // a new server
	r.do(t, []int{0}, "script", "flush")
	never("after SCRIPT FLUSH")
	r.do(t, []int{0}, "client", "kill", "type", "normal", "skipme", "yes")
	never("over new connections")
	r.do(t, []int{0}, "acl", "setuser", "default", "-info")
	never("INFO refused") // it has its mark
	r.do(t, []int{0}, "script", "flush")
	if granted() == 0 {
		t.Error("INFO refused, scripts forgotten: granted at once, want a quarantine")
	}
	never("and then")
}

// A replica that is promoted may not have what its master granted, and has its mark.
// The client is led to it by an address that moves, as after a failover.
//
// Attack 45.
func TestRealRestartGuardSeesAPromotion(t *testing.T) {
	r := realStart(t, 2, "--repl-diskless-sync-delay", "0")
	host, port, _ := strings.Cut(r.addrs()[0], ":")
	r.do(t, []int{1}, "replicaof", host, port)
	proxy := realProxyTo(t, r.addrs()[0])
	client := redis.NewClient(&redis.Options{Addr: proxy.Addr(), MaxRetries: -1})
	t.Cleanup(func() { client.Close() })
	l := realNew(t, redlock.Options{RestartGuard: time.Second}, client)
	k, _ := realGranted(t, 20*time.Second, l, "job", time.Second)
	k.Release(t.Context()) // on a busy machine it may have expired
	realUntil(t, 20*time.Second, "the mark on the replica", func() bool {
		return r.admin[1].Exists(t.Context(), "{redlock}:boot").Val() == 1
	})
	r.do(t, []int{1}, "replicaof", "no", "one")
	proxy.Redirect(r.addrs()[1])
	k, votes := realGranted(t, 20*time.Second, l, "job", time.Second)
	k.Release(t.Context()) // it may be lost with a connection to the former master, and then nobody can tell
	if realQuarantined(votes) == 0 {
		t.Errorf("no quarantine after the promotion: %v", votes)
	}
}
