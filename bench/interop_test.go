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
		b.clients = append(b.clients, s.Client())
		nodes = append(nodes, s.Client())
		pools = append(pools, goredis.NewPool(s.Client()))
	}
	b.ours = must(redlock.New(redlock.Options{}, nodes...))
	t.Cleanup(func() { b.ours.Close() })
	b.redsync = redsync.New(pools...)
	return b
}

// holders counts the nodes on which the key holds value.
func (b *both) holders(t *testing.T, value string) int {
	t.Helper()
	n := 0
	for _, c := range b.clients {
		switch v, err := c.Get(t.Context(), "k").Result(); {
		case err != nil && !errors.Is(err, redis.Nil):
			t.Fatal(err)
		case v == value:
			n++
		}
	}
	return n
}

// A client is another library's. Its methods return on how many nodes they succeeded. It never knows our value.
type client struct {
	acquire, extend, release func() int
	value                    func() string
}

func (b *both) redsyncClient(t *testing.T) client {
	m := b.redsync.NewMutex("k")
	all := func(ok bool) int { // redsync does not say how many
		if ok {
			return len(b.clients)
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
		value:   func() string { return m.Value() },
	}
}

// nodeClient runs the scripts of node-redlock 5. The one for release is also that of earlier versions and of the Redis
// documentation.
func (b *both) nodeClient(t *testing.T) client {
	const value = "theirs"
	run := func(script string, args ...any) func() int {
		s := redis.NewScript(script)
		return func() (agreed int) {
			t.Helper()
			for _, c := range b.clients {
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
	for name, newClient := range map[string]func(*both, *testing.T) client{"redsync": (*both).redsyncClient, "node-redlock": (*both).nodeClient} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBoth(t)
			theirs := newClient(b, t)
			want := func(what string, got, want int) {
				t.Helper()
				if got != want {
					t.Errorf("%s: got %d nodes, want %d", what, got, want)
				}
			}

			want("their acquire", theirs.acquire(), 5)
			if _, err := b.ours.TryAcquire(t.Context(), "k", ttl); !errors.Is(err, redlock.ErrHeld) {
				t.Errorf("held by them: got %v, want ErrHeld", err)
			}
			want("their value after our attempt", b.holders(t, theirs.value()), 5)
			want("their extension after our attempt", theirs.extend(), 5)
			want("their release after our attempt", theirs.release(), 5)

			k, err := b.ours.TryAcquire(t.Context(), "k", ttl)
			if err != nil {
				t.Fatalf("after their release: got %v, want the lock", err)
			}
			// This is about who may act, not about how fast the last node follows.
			waitFor(t, "all nodes to hold our value", func() bool { return b.holders(t, k.Value()) == 5 })
			want("their acquire of our lock", theirs.acquire(), 0)
			want("their extension of our lock", theirs.extend(), 0)
			want("their release of our lock", theirs.release(), 0)
			if err := k.Extend(t.Context()); err != nil {
				t.Errorf("Extend after their attempts: %v", err)
			}
			if err := k.Release(t.Context()); err != nil {
				t.Errorf("Release after their attempts: %v", err)
			}
			waitFor(t, "them to have the lock", func() bool { return theirs.acquire() == 5 || b.holders(t, theirs.value()) == 5 })
		})
	}
}

// redsync announces nothing when it releases, so a waiter has to poll.
func TestWaitForRedsync(t *testing.T) {
	t.Parallel()
	b := newBoth(t)
	m := b.redsync.NewMutex("k", redsync.WithExpiry(time.Minute))
	if err := m.TryLock(); err != nil {
		t.Fatal(err)
	}
	var unlocked atomic.Bool
	time.AfterFunc(300*time.Millisecond, func() {
		unlocked.Store(true)
		m.Unlock()
	})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	k, err := b.ours.Acquire(ctx, "k", ttl)
	if err != nil {
		t.Fatal(err)
	}
	if !unlocked.Load() {
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
	var inside, ours, theirs atomic.Int32
	var wg sync.WaitGroup
	contend := func(count *atomic.Int32, acquire func() (release func() error, err error)) {
		for range 4 {
			wg.Go(func() {
				for ctx.Err() == nil && (ours.Load() < enough || theirs.Load() < enough) {
					release, err := acquire()
					if err != nil {
						continue
					}
					if n := inside.Add(1); n != 1 {
						t.Errorf("%d are inside the critical section", n)
					}
					time.Sleep(2 * time.Millisecond)
					inside.Add(-1)
					count.Add(1)
					if err := release(); err != nil {
						t.Errorf("release: %v", err)
					}
					time.Sleep(time.Millisecond) // a client that asks again at once would nearly always win
				}
			})
		}
	}
	contend(&ours, func() (func() error, error) {
		k, err := b.ours.Acquire(ctx, "k", ttl)
		if err != nil && ctx.Err() == nil {
			t.Errorf("Acquire: %v", err)
		}
		return func() error { return k.Release(ctx) }, err
	})
	contend(&theirs, func() (func() error, error) {
		// redsync gives up after 32 tries, and with its default pauses of up to 250 ms it loses against waiters that are woken.
		// Not with its fail-fast option: the releases of a failed try have the value of the next one, and may come after that.
		m := b.redsync.NewMutex("k", redsync.WithRetryDelay(time.Millisecond))
		unlock := func() error {
			if ok, err := m.Unlock(); !ok {
				return fmt.Errorf("redsync's Unlock: %w", err)
			}
			return nil
		}
		return unlock, m.LockContext(ctx)
	})
	wg.Wait()
	if ours.Load() < enough || theirs.Load() < enough {
		t.Errorf("got %d sections of ours and %d of redsync's within the time, want %d of each", ours.Load(), theirs.Load(), enough)
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
