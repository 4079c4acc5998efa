package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/realredis"
)

// Like this library, other Redlock clients store a value under the key itself, so a migration may use both at once. Each of
// these tests holds a key with one client and looks at it with the other, on five real servers.

type both struct {
	clients []*redis.Client
	ours    *redlock.Locker
	redsync *redsync.Redsync
}

func newBoth(t *testing.T) *both {
	t.Helper()
	b := &both{}
	var nodes []redlock.Node
	var pools []redsyncredis.Pool
	for _, s := range realredis.Start(t, 5) {
		c := s.Client()
		b.clients = append(b.clients, c)
		nodes = append(nodes, s.Client())
		pools = append(pools, goredis.NewPool(s.Client()))
	}
	var err error
	if b.ours, err = redlock.New(redlock.Options{}, nodes...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.ours.Close() })
	b.redsync = redsync.New(pools...)
	return b
}

// holders counts the nodes on which key holds value.
func (b *both) holders(t *testing.T, key, value string) int {
	t.Helper()
	n := 0
	for _, c := range b.clients {
		switch v, err := c.Get(t.Context(), key).Result(); {
		case err != nil && !errors.Is(err, redis.Nil):
			t.Fatal(err)
		case v == value:
			n++
		}
	}
	return n
}

func TestHeldByRedsync(t *testing.T) {
	t.Parallel()
	b := newBoth(t)
	m := b.redsync.NewMutex("k")
	if err := m.TryLock(); err != nil {
		t.Fatal(err)
	}
	if _, err := b.ours.TryAcquire(t.Context(), "k", ttl); !errors.Is(err, redlock.ErrHeld) {
		t.Errorf("held by redsync: got %v, want ErrHeld", err)
	}
	if ok, err := m.Extend(); !ok || err != nil {
		t.Errorf("redsync's Extend after our attempt: got %v, %v; want it to be untouched", ok, err)
	}
	if got := b.holders(t, "k", m.Value()); got != 5 {
		t.Errorf("after our attempt %d nodes hold redsync's value, want 5", got)
	}
	if ok, err := m.Unlock(); !ok || err != nil {
		t.Errorf("redsync's Unlock after our attempt: got %v, %v", ok, err)
	}
	k, err := b.ours.TryAcquire(t.Context(), "k", ttl)
	if err != nil {
		t.Fatalf("after redsync's Unlock: got %v, want the lock", err)
	}
	if err := k.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestHeldByUs(t *testing.T) {
	t.Parallel()
	b := newBoth(t)
	k, err := b.ours.TryAcquire(t.Context(), "k", ttl)
	if err != nil {
		t.Fatal(err)
	}
	var taken *redsync.ErrTaken
	if err := b.redsync.NewMutex("k").TryLock(); !errors.As(err, &taken) {
		t.Errorf("held by us: redsync got %v, want ErrTaken", err)
	}
	// redsync must not unlock without knowing our value.
	if ok, _ := b.redsync.NewMutex("k", redsync.WithValue("not ours")).Unlock(); ok {
		t.Error("redsync unlocked with a value that is not ours")
	}
	if err := k.Extend(t.Context()); err != nil {
		t.Errorf("Extend after redsync's attempts: %v", err)
	}
	if err := k.Release(t.Context()); err != nil {
		t.Errorf("Release after redsync's attempts: %v", err)
	}
	m := b.redsync.NewMutex("k")
	if err := m.Lock(); err != nil { // Lock and not TryLock: a slow node may still hold the key for a moment after Release
		t.Fatalf("after our Release: redsync got %v, want the lock", err)
	}
	m.Unlock()
}

// redsync announces nothing when it releases, so a waiter has to poll.
func TestWaitForRedsync(t *testing.T) {
	t.Parallel()
	b := newBoth(t)
	m := b.redsync.NewMutex("k", redsync.WithExpiry(time.Minute))
	if err := m.TryLock(); err != nil {
		t.Fatal(err)
	}
	var unlocked atomic.Int64
	time.AfterFunc(300*time.Millisecond, func() {
		unlocked.Store(time.Now().UnixNano())
		m.Unlock()
	})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	k, err := b.ours.Acquire(ctx, "k", ttl)
	if err != nil {
		t.Fatal(err)
	}
	if unlocked.Load() == 0 {
		t.Error("acquired before redsync unlocked")
	}
	k.Release(ctx)
}

func TestContention(t *testing.T) {
	t.Parallel()
	b := newBoth(t)
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
	defer cancel()
	const enough = 15 // critical sections of each kind
	var inside atomic.Int32
	var ours, theirs atomic.Int32
	section := func(who string, count *atomic.Int32) {
		if n := inside.Add(1); n != 1 {
			t.Errorf("%s is inside the critical section with %d others", who, n-1)
		}
		time.Sleep(2 * time.Millisecond)
		inside.Add(-1)
		count.Add(1)
	}
	finished := func() bool { return ctx.Err() != nil || ours.Load() >= enough && theirs.Load() >= enough }
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for !finished() {
				k, err := b.ours.Acquire(ctx, "k", ttl)
				if err != nil {
					if ctx.Err() == nil {
						t.Errorf("Acquire: %v", err)
					}
					return
				}
				section(fmt.Sprintf("redlock %d", i), &ours)
				if err := k.Release(ctx); err != nil {
					t.Errorf("Release: %v", err)
				}
				time.Sleep(time.Millisecond) // a client that asks again at once would nearly always win
			}
		})
		wg.Go(func() {
			for !finished() {
				// redsync gives up after 32 tries, and with its default pauses of up to 250 ms it loses against waiters that are woken.
				// Not with its fail-fast option: the releases of a failed try have the value of the next one, and may come after that.
				m := b.redsync.NewMutex("k", redsync.WithRetryDelay(time.Millisecond))
				if err := m.LockContext(ctx); err != nil {
					continue
				}
				section(fmt.Sprintf("redsync %d", i), &theirs)
				if ok, err := m.Unlock(); !ok {
					t.Errorf("redsync's Unlock: %v", err)
				}
				time.Sleep(time.Millisecond)
			}
		})
	}
	wg.Wait()
	t.Logf("%d sections of ours, %d of redsync's", ours.Load(), theirs.Load())
	if ours.Load() < enough || theirs.Load() < enough {
		t.Errorf("got %d sections of ours and %d of redsync's within the time, want %d of each", ours.Load(), theirs.Load(), enough)
	}
}

// The scripts of node-redlock 5. The one for release is also that of earlier versions and of the Redis documentation.
var (
	nodeAcquire = redis.NewScript(`
		for i, key in ipairs(KEYS) do
			if redis.call("exists", key) == 1 then return 0 end
		end
		for i, key in ipairs(KEYS) do
			redis.call("set", key, ARGV[1], "PX", ARGV[2])
		end
		return #KEYS`)
	nodeExtend = redis.NewScript(`
		for i, key in ipairs(KEYS) do
			if redis.call("get", key) ~= ARGV[1] then return 0 end
		end
		for i, key in ipairs(KEYS) do
			redis.call("set", key, ARGV[1], "PX", ARGV[2])
		end
		return #KEYS`)
	nodeRelease = redis.NewScript(`
		if redis.call("get", KEYS[1]) == ARGV[1] then
			return redis.call("del", KEYS[1])
		else
			return 0
		end`)
)

func (b *both) script(t *testing.T, s *redis.Script, key string, args ...any) (agreed int) {
	t.Helper()
	for _, c := range b.clients {
		n, err := s.Run(t.Context(), c, []string{key}, args...).Int()
		if err != nil {
			t.Fatal(err)
		}
		agreed += n
	}
	return agreed
}

func TestNodeRedlock(t *testing.T) {
	t.Parallel()
	b := newBoth(t)
	if got := b.script(t, nodeAcquire, "k", "theirs", ttl.Milliseconds()); got != 5 {
		t.Fatalf("node-redlock acquired on %d nodes, want 5", got)
	}
	if _, err := b.ours.TryAcquire(t.Context(), "k", ttl); !errors.Is(err, redlock.ErrHeld) {
		t.Errorf("held by node-redlock: got %v, want ErrHeld", err)
	}
	if got := b.script(t, nodeExtend, "k", "theirs", ttl.Milliseconds()); got != 5 {
		t.Errorf("node-redlock extended on %d nodes after our attempt, want 5", got)
	}
	if got := b.script(t, nodeRelease, "k", "theirs"); got != 5 {
		t.Errorf("node-redlock released on %d nodes after our attempt, want 5", got)
	}

	k, err := b.ours.TryAcquire(t.Context(), "k", ttl)
	if err != nil {
		t.Fatal(err)
	}
	// Wait for all five nodes, as for Release below: this test is about who may act, not about how fast the last node follows.
	waitFor(t, "all nodes to hold our value", func() bool { return b.holders(t, "k", k.Value()) == 5 })
	for name, n := range map[string]int{
		"acquire": b.script(t, nodeAcquire, "k", "theirs", ttl.Milliseconds()),
		"extend":  b.script(t, nodeExtend, "k", "theirs", ttl.Milliseconds()),
		"release": b.script(t, nodeRelease, "k", "theirs"),
	} {
		if n != 0 {
			t.Errorf("held by us: %d nodes agreed to node-redlock's %s, want none", n, name)
		}
	}
	if err := k.Release(t.Context()); err != nil {
		t.Errorf("Release after node-redlock's attempts: %v", err)
	}
	waitFor(t, "all nodes to be free", func() bool {
		return b.script(t, nodeAcquire, "k", "theirs", ttl.Milliseconds()) == 5 || b.holders(t, "k", "theirs") == 5
	})
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("timed out waiting for %s", what)
		}
	}
}
