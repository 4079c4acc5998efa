package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/redis/go-redis/v9"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/realredis"
)

// Like this library, other Redlock clients store a value under the key itself, so a migration may use both at once. Each of
// these tests holds a key with one client and looks at it with the other, on five real servers.

// A client is another library's, for the key "k". Its methods return on how many of five nodes they succeeded. It never knows
// our value.
type client struct {
	acquire, extend, release func() int
	value                    func() string
}

func redsyncClient(t *testing.T, nodes []*redis.Client) client {
	m := redsyncOver(nodes).NewMutex("k")
	all := func(ok bool) int { // redsync does not say how many
		if ok {
			return len(nodes)
		}
		return 0
	}
	return client{
		acquire: func() int {
			err := m.TryLock()
			if taken := new(redsync.ErrTaken); err != nil && !errors.As(err, &taken) {
				t.Errorf("redsync's TryLock: got %v, want none or ErrTaken", err)
			}
			return all(err == nil)
		},
		extend:  func() int { ok, _ := m.Extend(); return all(ok) },
		release: func() int { ok, _ := m.Unlock(); return all(ok) },
		value:   m.Value,
	}
}

// nodeClient runs the scripts of node-redlock 5. The one for release is also that of earlier versions and of the Redis
// documentation.
func nodeClient(t *testing.T, nodes []*redis.Client) client {
	const value = "theirs"
	run := func(script string, args ...any) func() int {
		s := redis.NewScript(script)
		return func() (agreed int) {
			t.Helper()
			for _, c := range nodes {
				n, err := s.Run(t.Context(), c, []string{"k"}, args...).Int()
				if err != nil {
					t.Fatal(err)
				}
				agreed += n
			}
			return agreed
		}
	}
	return client{
		acquire: run(`
			for i, key in ipairs(KEYS) do
				if redis.call("exists", key) == 1 then return 0 end
			end
			for i, key in ipairs(KEYS) do
				redis.call("set", key, ARGV[1], "PX", ARGV[2])
			end
			return #KEYS`, value, ttl.Milliseconds()),
		extend: run(`
			for i, key in ipairs(KEYS) do
				if redis.call("get", key) ~= ARGV[1] then return 0 end
			end
			for i, key in ipairs(KEYS) do
				redis.call("set", key, ARGV[1], "PX", ARGV[2])
			end
			return #KEYS`, value, ttl.Milliseconds()),
		release: run(`
			if redis.call("get", KEYS[1]) == ARGV[1] then
				return redis.call("del", KEYS[1])
			else
				return 0
			end`, value),
		value: func() string { return value },
	}
}

// Each library refuses what the other holds, and leaves it untouched.
func TestOtherClients(t *testing.T) {
	t.Parallel()
	for name, newClient := range map[string]func(*testing.T, []*redis.Client) client{"redsync": redsyncClient, "node-redlock": nodeClient} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			servers := addrs(realredis.Start(t, 5))
			nodes := newClients(servers)
			defer closeClients(nodes)
			ours, done := newLocker(redlock.Options{}, servers)
			defer done()
			theirs := newClient(t, nodes)
			holders := func(value string) (n int) {
				for _, c := range nodes {
					if c.Get(t.Context(), "k").Val() == value {
						n++
					}
				}
				return n
			}
			want := func(what string, got, want int) {
				t.Helper()
				if got != want {
					t.Errorf("%s: got %d nodes, want %d", what, got, want)
				}
			}

			want("their acquire", theirs.acquire(), 5)
			if _, err := ours.TryAcquire(t.Context(), "k", ttl); !errors.Is(err, redlock.ErrHeld) {
				t.Errorf("held by them: got %v, want ErrHeld", err)
			}
			want("their value after our attempt", holders(theirs.value()), 5)
			want("their extension after our attempt", theirs.extend(), 5)
			want("their release after our attempt", theirs.release(), 5)

			k, err := ours.TryAcquire(t.Context(), "k", ttl)
			if err != nil {
				t.Fatalf("after their release: got %v, want the lock", err)
			}
			// This is about who may act, not about how fast the last node follows.
			waitFor(t, "all nodes to hold our value", func() bool { return holders(k.Value()) == 5 })
			want("their acquire of our lock", theirs.acquire(), 0)
			want("their extension of our lock", theirs.extend(), 0)
			want("their release of our lock", theirs.release(), 0)
			if err := k.Extend(t.Context()); err != nil {
				t.Errorf("Extend after their attempts: %v", err)
			}
			if err := k.Release(t.Context()); err != nil {
				t.Errorf("Release after their attempts: %v", err)
			}
			waitFor(t, "them to have the lock", func() bool { return theirs.acquire() == 5 || holders(theirs.value()) == 5 })
		})
	}
}

// redsync announces nothing when it releases, so a waiter has to poll.
func TestWaitForRedsync(t *testing.T) {
	t.Parallel()
	servers := addrs(realredis.Start(t, 5))
	ours, theirs := newOurs(redlock.Options{}, servers), newRedsync(servers, redsync.WithExpiry(time.Minute))
	defer closeAll([]*contender{ours, theirs})
	held, err := theirs.acquire(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	var unlocked atomic.Bool
	time.AfterFunc(300*time.Millisecond, func() {
		unlocked.Store(true)
		theirs.release(t.Context(), held)
	})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := ours.wait(ctx, "k"); err != nil || !unlocked.Load() {
		t.Errorf("got %v, redsync has unlocked: %v; want the lock after redsync's Unlock", err, unlocked.Load())
	}
}

func TestContention(t *testing.T) {
	t.Parallel()
	servers := addrs(realredis.Start(t, 5))
	// redsync gives up after 32 tries, and with its default pauses of up to 250 ms it loses against waiters that are woken.
	// Not with its fail-fast option: the releases of a failed try have the value of the next one, and may come after that.
	both := []*contender{newOurs(redlock.Options{}, servers), newRedsync(servers, redsync.WithRetryDelay(time.Millisecond))}
	defer closeAll(both)
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
	defer cancel()
	const enough = 15 // critical sections of each kind
	var inside atomic.Int32
	var entered [2]atomic.Int32
	var wg sync.WaitGroup
	for i, c := range slices.Concat(both, both, both, both) {
		i, ours := i%2, i%2 == 0
		wg.Go(func() {
			for ctx.Err() == nil && (entered[0].Load() < enough || entered[1].Load() < enough) {
				held, err := c.wait(ctx, "k")
				if err != nil {
					if ours && ctx.Err() == nil {
						t.Errorf("Acquire: %v", err)
					}
					continue
				}
				if n := inside.Add(1); n != 1 {
					t.Errorf("%d are inside the critical section, want 1", n)
				}
				time.Sleep(2 * time.Millisecond)
				inside.Add(-1)
				entered[i].Add(1)
				if err := c.release(t.Context(), held); err != nil {
					t.Errorf("release, ours %v: %v", ours, err)
				}
				time.Sleep(time.Millisecond) // a client that asks again at once would nearly always win
			}
		})
	}
	wg.Wait()
	if ours, theirs := entered[0].Load(), entered[1].Load(); ours < enough || theirs < enough {
		t.Errorf("got %d sections of ours and %d of redsync's within the time, want %d of each", ours, theirs, enough)
	}
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("timed out waiting for %s", what)
		}
	}
}
