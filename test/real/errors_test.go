package real_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/seam"
)

// A realError is a way in which servers refuse.
type realError struct {
	name  string
	text  string // the code that a vote's error begins with: the words behind it change from server to server
	heals bool   // Acquire goes on trying
	args  []string
	on    func(t *testing.T, r *realNodes, on []int)
	off   func(t *testing.T, r *realNodes, on []int)
	// Whether a lock that is held already can be released and extended meanwhile.
	release, extend bool
}

func realConfig(k, v string) func(*testing.T, *realNodes, []int) {
	return func(t *testing.T, r *realNodes, on []int) { t.Helper(); r.do(t, on, "config", "set", k, v) }
}

var realErrors = []realError{
	{name: "WRONGTYPE", text: "WRONGTYPE ", release: true, extend: true,
		on:  func(t *testing.T, r *realNodes, on []int) { r.do(t, on, "hset", "job", "field", "value") },
		off: func(t *testing.T, r *realNodes, on []int) { r.do(t, on, "del", "job") }},
	{name: "READONLY", text: "READONLY ",
		on: func(t *testing.T, r *realNodes, on []int) {
			r.do(t, on, "replicaof", "127.0.0.1", "1") // of nobody
		},
		off: func(t *testing.T, r *realNodes, on []int) { r.do(t, on, "replicaof", "no", "one") }},
	{name: "MASTERDOWN", text: "MASTERDOWN ", heals: true,
		on: func(t *testing.T, r *realNodes, on []int) {
			r.do(t, on, "config", "set", "replica-serve-stale-data", "no")
			r.do(t, on, "config", "set", "replica-read-only", "no") // READONLY would be said first
			r.do(t, on, "replicaof", "127.0.0.1", "1")
		},
		off: func(t *testing.T, r *realNodes, on []int) { r.do(t, on, "replicaof", "no", "one") }},
	{name: "MISCONF", text: "MISCONF ", heals: true, args: []string{"--enable-protected-configs", "yes"},
		on: func(t *testing.T, r *realNodes, on []int) {
			r.do(t, on, "config", "set", "save", "3600 1000000")
			r.do(t, on, "config", "set", "dir", "/proc") // nothing can be written there
			r.do(t, on, "bgsave")
			realUntil(t, 5*time.Second, "the failure to save", func() bool {
				for _, i := range on {
					if !strings.Contains(r.admin[i].Info(context.Background(), "persistence").Val(), "rdb_last_bgsave_status:err") {
						return false
					}
				}
				return true
			})
		},
		off: realConfig("save", "")},
	{name: "NOREPLICAS", text: "NOREPLICAS ", heals: true,
		on: realConfig("min-replicas-to-write", "1"), off: realConfig("min-replicas-to-write", "0")},
	{name: "OOM", text: "OOM ", heals: true, release: true, extend: true,
		on: realConfig("maxmemory", "1"), off: realConfig("maxmemory", "0")},
	{name: "NOPERM", text: "NOPERM ", release: true, extend: true,
		on: func(t *testing.T, r *realNodes, on []int) {
			r.do(t, on, "acl", "setuser", "default", "-set")
		},
		off: func(t *testing.T, r *realNodes, on []int) { r.do(t, on, "acl", "setuser", "default", "+set") }},
	{name: "NOPERM for everything", text: "NOPERM ",
		on: func(t *testing.T, r *realNodes, on []int) {
			r.do(t, on, "acl", "setuser", "default", "-@scripting", "-set", "-zadd", "-info", "-ping", "-pexpire")
		},
		off: func(t *testing.T, r *realNodes, on []int) { r.do(t, on, "acl", "setuser", "default", "+@all") }},
}

// Attacks 43, 44, 50.
func TestRealErrors(t *testing.T) {
	t.Parallel()
	for _, tt := range realErrors {
		t.Run(tt.name, func(t *testing.T) {
			r := realStart(t, 5, tt.args...)
			l := r.open(t, redlock.Options{NodeTimeout: 500 * time.Millisecond})
			ctx := t.Context()
			held := realAcquire(t, l, "held", time.Minute)
			extended := realAcquire(t, l, "extended", time.Minute)
			r.everywhere(t, held, extended) // all nodes have been asked whether they are masters, too

			minority, majority := []int{1, 3}, []int{0, 1, 3}
			tt.on(t, r, minority)
			k := realAcquire(t, l, "job", time.Minute)
			realExtend(t, "Extend with a minority", k)
			realRelease(t, k)

			tt.on(t, r, majority)
			_, err := l.TryAcquire(ctx, "job", time.Minute)
			realIs(t, "TryAcquire with a majority", err, redlock.ErrNoQuorum)
			realVotes(t, err, majority, tt.text)
			limit := 20 * time.Second // it ends at once, and not because of this
			if tt.heals {
				limit = 200 * time.Millisecond
			}
			limited, cancel := context.WithTimeout(ctx, limit)
			defer cancel()
			_, err = l.Acquire(limited, "job", time.Minute)
			if tt.heals {
				realIs(t, "Acquire", err, redlock.ErrNoQuorum, context.DeadlineExceeded)
			} else {
				realIs(t, "Acquire", err, redlock.ErrNoQuorum)
			}
			if tt.extend {
				realExtend(t, "Extend", extended)
			} else if err := extended.Extend(ctx); err == nil || !extended.Valid() {
				t.Errorf("Extend: got %v, valid %v; want an error and no loss", err, extended.Valid())
			}
			if tt.release {
				realRelease(t, held)
			} else {
				realIs(t, "Release", held.Release(ctx), redlock.ErrNoQuorum)
			}

			tt.off(t, r, majority)
			realRelease(t, held) // again, where it had failed
			realRelease(t, realAcquire(t, l, "job", time.Minute))
			realExtend(t, "Extend afterwards", extended)
			realRelease(t, extended)
			r.clean(t, 5*time.Second)
			r.registersExpire(t, time.Minute)
		})
	}
}

// What a user may not do in a script is said without the code NOPERM, and in words that change
// from server to server. With Fair and with a guard, acquire is a script.
//
// Attack 44.
func TestRealPermissionsInScripts(t *testing.T) {
	t.Parallel()
	const ttl = time.Second // no longer than the guard
	for name, opt := range map[string]redlock.Options{"fair": {Fair: true}, "guard": {RestartGuard: ttl}} {
		t.Run(name, func(t *testing.T) {
			r := realStart(t, 3)
			l := r.open(t, opt)
			realAcquire(t, l, "job", ttl).Release(t.Context()) // the servers know the scripts, and are out of quarantine
			r.do(t, nil, "acl", "setuser", "default", "-zadd")
			limited, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			_, err := l.Acquire(limited, "job", ttl)
			realIs(t, "Acquire without ZADD", err, redlock.ErrNoQuorum) // and not because ctx ended
			r.do(t, nil, "acl", "setuser", "default", "+zadd")
			realAcquire(t, l, "job", ttl).Release(t.Context())
			realUntil(t, 2*time.Second, "nothing but the guard's mark to be left", func() bool {
				r.do(t, nil, "del", "{redlock}:boot") // each time: late commands store it again
				return len(r.left()) == 0
			})
			r.registersExpire(t, time.Minute)
		})
	}
}

// realVotes wants the nodes' votes to be unknown, for a reason that begins with text.
func realVotes(t *testing.T, err error, on []int, text string) {
	t.Helper()
	var q *redlock.QuorumError
	if !errors.As(err, &q) {
		t.Errorf("got %v, want a QuorumError", err)
		return
	}
	n := 0
	for _, i := range on {
		if v := q.Round.Votes[i]; v.Answer != redlock.AnswerPending { // the verdict may not have needed it
			n++
			if v.Answer != redlock.AnswerUnknown || v.Err == nil || !strings.HasPrefix(v.Err.Error(), text) {
				t.Errorf("node %d: got %v, %v; want unknown, %s", i, v.Answer, v.Err, text)
			}
		}
	}
	if n == 0 {
		t.Errorf("no vote of theirs in %v", err)
	}
}

// A server that loads its data answers LOADING to everything.
//
// Attack 44.
func TestRealLoading(t *testing.T) {
	r := realStart(t, 3, "--enable-debug-command", "yes")
	l := r.open(t, redlock.Options{})
	held := realAcquire(t, l, "held", time.Minute)
	load := func(i int) (done chan struct{}) {
		r.do(t, []int{i}, "debug", "populate", "3000")
		r.do(t, []int{i}, "config", "set", "loading-process-events-interval-bytes", "1024")
		r.do(t, []int{i}, "config", "set", "key-load-delay", "200") // µs: 600 ms and more in all
		done = make(chan struct{})
		c := r.servers[i].Client(func(o *redis.Options) { o.MaxRetries, o.ReadTimeout = -1, 30*time.Second })
		go func() {
			defer close(done)
			if err := c.Do(context.Background(), "debug", "reload").Err(); err != nil {
				t.Error(err)
			}
		}()
		realUntil(t, 10*time.Second, "loading", func() bool {
			err := r.admin[i].Get(context.Background(), "none").Err()
			return err != nil && strings.HasPrefix(err.Error(), "LOADING")
		})
		return done
	}
	first := load(0)
	start := time.Now()
	k, err := l.TryAcquire(t.Context(), "job", time.Minute)
	if err != nil {
		t.Errorf("with one node loading: %v", err)
	} else {
		realRelease(t, k)
	}
	if d := time.Since(start); d > realSlack(200*time.Millisecond) {
		t.Errorf("with one node loading: took %v", d)
	}
	<-first
	first, second := load(0), load(1)
	k, err = l.TryAcquire(t.Context(), "job", time.Minute)
	if err == nil {
		realRelease(t, k)
	}
	select {
	case <-first:
	case <-second:
	default: // both were loading all the time
		realIs(t, "with two of three loading", err, redlock.ErrNoQuorum)
		realVotes(t, err, []int{0, 1}, "LOADING ")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if k, err := l.Acquire(ctx, "job", time.Minute); err != nil {
		t.Errorf("Acquire did not wait for the end of loading: %v", err)
	} else {
		realRelease(t, k)
	}
	<-first
	<-second
	realUntil(t, 3*time.Second, "the end of loading", func() bool { return held.Release(t.Context()) == nil })
	for i := range r.admin {
		if !realWait(2*time.Second, func() bool { return r.admin[i].Exists(t.Context(), "job", "held").Val() == 0 }) {
			t.Errorf("server %d: left behind", i)
		}
	}
}

// Attacks 44, 96.
func TestRealPasswords(t *testing.T) {
	r := realStart(t, 3, "--requirepass", "secret")
	t.Cleanup(func() { r.clean(t, 2*time.Second) })
	for _, tt := range []struct {
		name, text string
		urls       []string
	}{
		{"none", "NOAUTH ", r.addrs()},
		{"wrong", "WRONGPASS ", r.urls(":wrong")},
		{"wrong user", "WRONGPASS ", r.urls("nobody:secret")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := realOpen(t, redlock.Options{}, tt.urls...)
			for range 3 {
				start := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				_, err := l.Acquire(ctx, "job", time.Minute)
				cancel()
				realIs(t, "Acquire", err, redlock.ErrNoQuorum)
				realVotes(t, err, []int{0, 1, 2}, tt.text)
				if d := time.Since(start); d > realSlack(500*time.Millisecond) {
					t.Errorf("Acquire took %v, want it to end at once", d)
				}
				if strings.Contains(fmt.Sprint(err), "secret") {
					t.Errorf("the password is shown: %v", err)
				}
			}
			_, err := l.Inspect(t.Context(), "job")
			realIs(t, "Inspect", err, redlock.ErrNoQuorum)
		})
	}
	// The same in a minority.
	urls := r.urls(":secret")
	urls[1] = r.urls(":wrong")[1]
	l := realOpen(t, redlock.Options{}, urls...)
	for i := range 20 {
		k := realAcquire(t, l, fmt.Sprintf("job/%d", i), time.Minute)
		if n := r.count(t, k.Key(), k.Value().Secret()); n > 2 {
			t.Errorf("on %d nodes: a wrong password was taken for a yes", n)
		}
		realRelease(t, k)
	}
	right := realOpen(t, redlock.Options{}, r.urls(":secret")...)
	realTour(t, right, right, "job", time.Second)
}

// A foreign client's key without an end is in the way for ever, and stays.
//
// Attack 50.
func TestRealForeignKey(t *testing.T) {
	r := realStart(t, 5)
	l := r.open(t, redlock.Options{})
	ctx := t.Context()
	for _, value := range []string{"somebody", "", strings.Repeat("x", 100<<10), "\x00\xff\r\n"} {
		r.do(t, []int{0, 2, 4}, "set", "job", value)
		for range 20 {
			_, err := l.TryAcquire(ctx, "job", time.Minute)
			realIs(t, "TryAcquire", err, redlock.ErrHeld)
		}
		limited, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		_, err := l.Acquire(limited, "job", time.Minute)
		cancel()
		if !errors.Is(err, redlock.ErrNoQuorum) { // unless the deadline came in the middle of a round
			realIs(t, "Acquire", err, redlock.ErrHeld, context.DeadlineExceeded)
		}
		realUntil(t, 2*time.Second, "the end of clean-ups", func() bool { return seam.Peek(l).Leaving == 0 })
		for _, i := range []int{0, 2, 4} {
			if got, err := r.admin[i].Get(ctx, "job").Result(); got != value || err != nil {
				t.Errorf("server %d: got %q, %v; want the foreign client's", i, got, err)
			}
			if d := r.admin[i].PTTL(ctx, "job").Val(); d != -1 {
				t.Errorf("server %d: the foreign key got a ttl of %v", i, d)
			}
		}
		for _, i := range []int{1, 3} {
			if n := r.admin[i].Exists(ctx, "job").Val(); n != 0 {
				t.Errorf("server %d: ours is left", i)
			}
		}
		s, err := l.Inspect(ctx, "job")
		if err != nil || value != "" && (!s.Held || s.Value.Secret() != value || s.Left != -1) {
			t.Errorf("Inspect: got %v, held %v, value %.20q, left %v", err, s.Held, s.Value, s.Left)
		}
		r.registersExpire(t, time.Minute)
		r.do(t, nil, "del", "job")
	}
}

// A server that executes somebody's endless script says BUSY to all others, and one
// with as many clients as it allows says so to a new connection and ends it.
//
// Attack 44.
func TestRealBusyAndFull(t *testing.T) {
	r := realStart(t, 3)
	l := r.open(t, redlock.Options{})
	held := realAcquire(t, l, "held", time.Minute)
	r.everywhere(t, held)
	r.do(t, nil, "config", "set", "busy-reply-threshold", "20")
	var scripts []chan struct{}
	busy := func(i int) {
		done := make(chan struct{})
		scripts = append(scripts, done)
		c := r.servers[i].Client(func(o *redis.Options) { o.MaxRetries, o.ReadTimeout = -1, 30*time.Second })
		go func() {
			defer close(done)
			c.Eval(context.Background(), "while true do end", nil) // until it is killed
		}()
		realUntil(t, 10*time.Second, "a busy server", func() bool {
			err := r.admin[i].Get(context.Background(), "none").Err()
			return err != nil && strings.HasPrefix(err.Error(), "BUSY ")
		})
	}
	busy(0)
	k, err := l.TryAcquire(t.Context(), "job", time.Minute)
	if err != nil {
		t.Errorf("with one of three busy: %v", err)
	} else {
		realRelease(t, k)
	}
	if err := held.Extend(t.Context()); err != nil {
		t.Errorf("Extend with one of three busy: %v", err)
	}
	busy(1)
	realUntil(t, 5*time.Second, "a vote of both that says BUSY", func() bool {
		_, err := l.TryAcquire(t.Context(), "job", time.Minute)
		realIs(t, "with two of three busy", err, redlock.ErrNoQuorum)
		return strings.Count(fmt.Sprint(err), "BUSY ") == 2
	})
	if err := held.Extend(t.Context()); err == nil || errors.Is(err, redlock.ErrLost) {
		t.Errorf("Extend with two of three busy: got %v, want an error and no loss", err)
	}
	for i := range scripts {
		r.do(t, []int{i}, "script", "kill")
		<-scripts[i]
	}
	realUntil(t, 20*time.Second, "the servers' return", func() bool { return realAtRest(l, 3) })
	realRelease(t, realAcquire(t, l, "job", time.Minute))

	full := func(on []int, n string) { r.do(t, on, "config", "set", "maxclients", n) }
	full([]int{0, 1}, "1")
	late := r.open(t, redlock.Options{}) // it has no connection yet
	_, err = late.TryAcquire(t.Context(), "job", time.Minute)
	realIs(t, "with two of three full", err, redlock.ErrNoQuorum)
	realVotes(t, err, []int{0, 1}, "")
	t.Logf("full: %v", err)
	if err := held.Extend(t.Context()); err != nil { // connections that stand are served
		t.Errorf("Extend by one that was there before: %v", err)
	}
	full([]int{1}, "10000")
	realRelease(t, realAcquire(t, late, "job", time.Minute))
	full([]int{0}, "10000")
	realUntil(t, 10*time.Second, "use of all", func() bool { return realAtRest(late, 3) })
	realRelease(t, realAcquire(t, late, "job", time.Minute))
	realRelease(t, held)
	r.clean(t, 2*time.Second)
	r.registersExpire(t, time.Minute)
}

// A server that evicts is a server that forgets: what it has forgotten is stored there
// again by the next extension, as long as it is one of a minority.
//
// Attack 42.
func TestRealEviction(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"allkeys-lru", "volatile-ttl"} {
		t.Run(policy, func(t *testing.T) {
			r := realStart(t, 3)
			a, b := r.open(t, redlock.Options{Name: "a"}), r.open(t, redlock.Options{Name: "b"})
			ctx := t.Context()
			k := realAcquire(t, a, "job", time.Minute)
			r.everywhere(t, k) // by an extension, which gives the registers a life, and so a place among the volatile
			r.do(t, []int{0}, "config", "set", "maxmemory-policy", policy)
			r.do(t, []int{0}, "config", "set", "maxmemory", "3mb")
			junk := strings.Repeat("x", 4<<10)
			n := 0
			realUntil(t, time.Minute, "eviction of the lock and its register", func() bool {
				pipe := r.admin[0].Pipeline()
				for range 50 {
					pipe.Set(ctx, fmt.Sprint("junk/", n), junk, 1000*time.Hour)
					n++
				}
				pipe.Exec(ctx) // is refused where there is nothing left to evict
				return r.admin[0].Exists(ctx, "job", "{job}:fence").Val() == 0
			})
			_, err := b.TryAcquire(ctx, "job", time.Minute)
			realIs(t, "TryAcquire beside a server that evicted the lock", err, redlock.ErrHeld)
			r.do(t, []int{0}, "flushall")
			realUntil(t, 5*time.Second, "rest", func() bool { return realAtRest(b, 3) })
			r.everywhere(t, k)
			realRelease(t, k)
			next := realAcquire(t, b, "job", time.Minute)
			realGrows(t, k.Fence(), next)
			realRelease(t, next)
			r.clean(t, 2*time.Second)
		})
	}
}
