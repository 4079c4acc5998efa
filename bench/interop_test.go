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

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/realredis"
)

// Like this library, redsync stores a value under the key itself, so a migration may use both at once, on the same servers.
// (TestRealOtherLibraries in test/real has the libraries that need no import.)

// Each library refuses what the other holds, and leaves it untouched.
func TestOtherClients(t *testing.T) {
	t.Parallel()
	servers := addrs(realredis.Start(t, 5))
	nodes := newClients(servers)
	defer closeClients(nodes)
	ours, done := newLocker(redlock.Options{}, servers)
	defer done()
	theirs := redsyncOver(nodes).NewMutex("k")
	holders := func(value string) (n int) {
		for _, c := range nodes {
			if c.Get(t.Context(), "k").Val() == value {
				n++
			}
		}
		return n
	}
	is := func(what string, ok bool, err error) {
		t.Helper()
		if !ok {
			t.Errorf("%s: got %v", what, err)
		}
	}

	err := theirs.TryLock()
	is("their lock", err == nil, err)
	_, err = ours.TryAcquire(t.Context(), "k", ttl)
	is("our attempt, want ErrHeld", errors.Is(err, redlock.ErrHeld), err)
	if n := holders(theirs.Value()); n != 5 {
		t.Errorf("their value after our attempt: got %d nodes, want 5", n)
	}
	ok, err := theirs.Extend()
	is("their extension after our attempt", ok, err)
	ok, err = theirs.Unlock()
	is("their release after our attempt", ok, err)

	k, err := ours.TryAcquire(t.Context(), "k", ttl)
	if err != nil {
		t.Fatalf("after their release: got %v, want the lock", err)
	}
	// This is about who may act, not about how fast the last node follows.
	realredis.Eventually(t, "all nodes to hold our value", func() bool { return holders(k.Value().Secret()) == 5 })
	err = theirs.TryLock()
	is("their attempt at our lock, want ErrTaken", errors.As(err, new(*redsync.ErrTaken)), err)
	ok, err = theirs.Extend()
	is("their extension of our lock, want none", !ok, err)
	ok, err = theirs.Unlock()
	is("their release of our lock, want none", !ok, err)
	err = k.Extend(t.Context())
	is("our extension after their attempts", err == nil, err)
	err = k.Release(t.Context())
	is("our release after their attempts", err == nil, err)
	realredis.Eventually(t, "them to have the lock", func() bool { return theirs.TryLock() == nil })
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
