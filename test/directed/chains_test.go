package directed_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/harness"
	"github.com/seed-ce352c9b/redlock/redlocktest"
)

// A far node, answering well within its patience, and callers that try one key
// oftener than its round trip.
func TestAttemptsFasterThanAFarNodeAnswersDoNotQueueBehindIt(t *testing.T) {
	staged(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		l := warmLocker(t, c, redlock.Options{})
		holder := harness.Try(t, warmLockerNoFlush(t, c), "k", time.Minute)
		_ = holder
		c.Node(2).Delay(100*time.Millisecond, 100*time.Millisecond)
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		n := 0
		for end := time.Now().Add(20 * time.Second); time.Now().Before(end); n++ {
			l.TryAcquire(t.Context(), "k", 30*time.Second)
			time.Sleep(time.Millisecond)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		got := 0
		for _, w := range heard(c.Node(2), "k") {
			if w == "acquire" {
				got++
			}
		}
		t.Logf("%d attempts in 20 s; node 2 has been asked %d times; memory grew by %d KB", n, got, (int64(after.HeapAlloc)-int64(before.HeapAlloc))/1024)
		// now one of the near nodes dies, and the lock is free
		holder.Release(t.Context())
		c.Node(1).Stop()
		time.Sleep(10 * time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		var err error
		var k *redlock.Lock
		d := took(func() { k, err = l.TryAcquire(ctx, "k", 30*time.Second) })
		t.Logf("with nodes 0 and 2 up, TryAcquire took %v: %v %v", d, k != nil, err)
		if d > time.Second {
			t.Errorf("TryAcquire took %v, want about a round trip of 200ms", d)
		}
		ctx2, cancel2 := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel2()
		l2 := warmLockerNoFlush(t, c)
		d = took(func() { k, err = l2.Acquire(ctx2, "k", 30*time.Second) })
		t.Logf("another process: %v %v %v", d, k != nil, err)
	})
}

func warmLockerNoFlush(t *testing.T, c *redlocktest.Cluster) *redlock.Locker {
	return lockerOn(t, redlock.Options{}, c.Clients())
}

// Extend oftener than a slow minority node answers, then Release.
func TestExtensionsFasterThanAFarNodeAnswersDoNotOutliveTheRelease(t *testing.T) {
	staged(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		l := warmLocker(t, c, redlock.Options{})
		k := harness.Try(t, l, "k", 10*time.Second)
		c.Node(2).Delay(100*time.Millisecond, 100*time.Millisecond)
		n := 0
		for end := time.Now().Add(10 * time.Second); time.Now().Before(end); n++ {
			if err := k.Extend(t.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Millisecond)
		}
		if err := k.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		released := time.Now()
		time.Sleep(60 * time.Second)
		v, ok := c.Node(2).Get("k")
		t.Logf("%d extends; %v after Release node 2 holds %q", n, time.Since(released), v)
		if ok {
			t.Errorf("the key is still on node 2 %v after Release (ttl 10s)", time.Since(released))
		}
	})
}
