package real_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/seam"
)

// realTour makes every call once, over the nodes that answer. Each must be back
// within limit: the dead are not waited for.
func realTour(t *testing.T, a, b *redlock.Locker, key string, limit time.Duration) {
	t.Helper()
	const ttl = 10 * time.Second
	ctx := t.Context()
	timed := func(what string, f func()) {
		t.Helper()
		start := time.Now()
		f()
		if d := time.Since(start); d > realSlack(limit) {
			t.Errorf("%s took %v, want at most %v", what, d, limit)
		}
	}
	var k *redlock.Lock
	var err error
	timed("TryAcquire", func() { k, err = a.TryAcquire(ctx, key, ttl) })
	if err != nil {
		t.Errorf("TryAcquire: %v", err)
		return
	}
	if !k.Valid() || k.Key() != key || k.Fence() <= 0 || time.Until(k.Until()) > ttl {
		t.Errorf("got valid %v, key %q, fence %d, until in %v", k.Valid(), k.Key(), k.Fence(), time.Until(k.Until()))
	}
	timed("TryAcquire of a held lock", func() { _, err = b.TryAcquire(ctx, key, ttl) })
	realIs(t, "second holder", err, redlock.ErrHeld)
	var q *redlock.QuorumError
	if errors.As(err, &q) && q.Round.Value() != k.Value() {
		t.Errorf("got holder %q, want %q; %v", q.Round.Value(), k.Value(), err)
	}
	before := k.Until()
	timed("Extend", func() { err = k.Extend(ctx) })
	if err != nil || !k.Until().After(before) {
		t.Errorf("Extend: got %v, until moved by %v", err, k.Until().Sub(before))
	}
	s, err := b.Inspect(ctx, key)
	if err != nil || !s.Held || s.Value != k.Value() || s.Fence < k.Fence() || s.Left <= 0 || s.Left > ttl {
		t.Errorf("Inspect: got %v, %+v", err, s)
	}
	var adopted *redlock.Lock
	timed("Adopt", func() { adopted, err = b.Adopt(ctx, key, k.Value(), ttl) })
	if err != nil {
		t.Errorf("Adopt: %v", err)
		return
	}
	if adopted.Fence() <= k.Fence() {
		t.Errorf("adopted fence %d, want more than %d", adopted.Fence(), k.Fence())
	}
	timed("Extend after Adopt", func() { realIs(t, "Extend after Adopt", k.Extend(ctx), redlock.ErrLost) })
	timed("Release after Adopt", func() { realIs(t, "Release after Adopt", k.Release(ctx), redlock.ErrLost) })
	timed("Release", func() { err = adopted.Release(ctx) })
	if err != nil {
		t.Errorf("Release: %v", err)
	}
	if err := adopted.Release(ctx); err != nil {
		t.Errorf("second Release: %v", err)
	}
	realIs(t, "Extend after Release", adopted.Extend(ctx), redlock.ErrLost)
	timed("Run", func() {
		err = a.Run(ctx, key, ttl, func(ctx context.Context, k *redlock.Lock) error {
			if k.Fence() <= adopted.Fence() {
				t.Errorf("fence %d, want more than %d", k.Fence(), adopted.Fence())
			}
			return ctx.Err()
		})
	})
	if err != nil {
		t.Errorf("Run: %v", err)
	}
	s, err = b.Inspect(ctx, key)
	if err != nil || s.Held {
		t.Errorf("Inspect of a free lock: got %v, %+v", err, s)
	}
}

// Attack 36.
func TestRealMinorityDoesNotMatter(t *testing.T) {
	t.Parallel()
	aof := []string{"--appendonly", "yes", "--appendfsync", "always"}
	for _, tt := range []struct {
		name  string
		args  []string
		fault func(r *realNodes, i int)
		heal  func(r *realNodes, i int)
	}{
		{"stopped", nil, func(r *realNodes, i int) { r.servers[i].Stop() }, func(r *realNodes, i int) { r.servers[i].Cont() }},
		{"killed", nil, func(r *realNodes, i int) { r.servers[i].Kill() }, func(r *realNodes, i int) { r.servers[i].Restart() }},
		{"restarted empty", nil, func(r *realNodes, i int) { r.servers[i].Restart() }, nil},
		{"restarted with its data", aof, func(r *realNodes, i int) { r.servers[i].Restart() }, nil},
		{"stopped, then killed, then restarted", aof, func(r *realNodes, i int) { r.servers[i].Stop(); r.servers[i].Kill() },
			func(r *realNodes, i int) { r.servers[i].Restart() }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := realStart(t, 5, tt.args...)
			const nodeTimeout = 3 * time.Second // an Inspect waits for as long, once
			const quick = nodeTimeout / 12      // no other call does, though the machine may be busy
			opt := func(name string) redlock.Options { return redlock.Options{Name: name, NodeTimeout: nodeTimeout} }
			a, b := r.open(t, opt("a")), r.open(t, opt("b"))
			realTour(t, a, b, "before", time.Second)
			r.clean(t, 2*time.Second)
			r.registersExpire(t, 10*time.Second)
			held := realAcquire(t, a, "held", time.Minute)
			for n := 1; n <= 2; n++ {
				tt.fault(r, n)
				realTour(t, a, b, fmt.Sprintf("with %d", n), quick)
				realTour(t, b, a, fmt.Sprintf("with %d again", n), quick)
			}
			if err := held.Extend(t.Context()); err != nil {
				t.Errorf("Extend with two of five %s: %v", tt.name, err)
			}
			if tt.heal != nil {
				tt.heal(r, 1)
				tt.heal(r, 2)
			}
			realUntil(t, 3*time.Second, "use of the healed nodes", func() bool {
				return !seam.Peek(a).Nodes[1].Down && !seam.Peek(a).Nodes[2].Down && !seam.Peek(b).Nodes[1].Down && !seam.Peek(b).Nodes[2].Down
			})
			realTour(t, a, b, "after", time.Second)
			if err := held.Extend(t.Context()); err != nil {
				t.Errorf("Extend: %v", err)
			}
			realUntil(t, 2*time.Second, "healing", func() bool { return r.count(t, "held", held.Value().Secret()) == 5 })
			realRelease(t, held)
			r.clean(t, 2*time.Second)
			r.registersExpire(t, time.Minute)
		})
	}
}

// Every node forgets, one after the other, during one long hold.
//
// Attacks 37, 79, 80.
func TestRealHealing(t *testing.T) {
	r := realStart(t, 5)
	a, b := r.open(t, redlock.Options{Name: "holder"}), r.open(t, redlock.Options{Name: "contender"})
	// So long that no machine is too busy for it: the test extends by itself, and so puts the
	// key back.
	const ttl = time.Minute
	k := realAcquire(t, a, "job", ttl)
	held, stop := k.KeepAlive(t.Context())
	defer stop()
	// On a busy machine it may be on a majority only, of which the first server is one.
	everywhere := func() bool {
		if n := r.count(t, "job", k.Value().Secret()); n == 5 {
			return true
		}
		if err := k.Extend(t.Context()); err != nil {
			t.Fatalf("Extend before any server is empty: %v", err)
		}
		return false
	}
	if !realWait(10*time.Second, everywhere) {
		t.Fatal("the key is not on all servers")
	}
	var attempts, noQuorum atomic.Int64
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(time.Millisecond):
			}
			k2, err := b.TryAcquire(context.Background(), "job", ttl)
			attempts.Add(1)
			switch {
			case err == nil:
				t.Errorf("somebody else got in: fence %d", k2.Fence())
				k2.Release(context.Background())
				return
			case errors.Is(err, redlock.ErrNoQuorum):
				noQuorum.Add(1)
			case !errors.Is(err, redlock.ErrHeld):
				t.Error(err)
				return
			}
		}
	})
	finish := sync.OnceFunc(func() { close(done); wg.Wait() })
	defer finish()
	start := time.Now()
	for i := range r.servers {
		r.servers[i].Restart()
		tried := attempts.Load()
		realWait(5*time.Second, func() bool { return attempts.Load() > tried+20 }) // beside the empty server
		back := func() bool {
			if err := k.Extend(t.Context()); err != nil && !errors.Is(err, redlock.ErrNoQuorum) {
				t.Fatalf("Extend with server %d empty: %v", i, err)
			}
			return r.admin[i].Get(context.Background(), "job").Val() == k.Value().Secret()
		}
		if !realWait(10*time.Second, back) {
			t.Errorf("server %d: the key did not come back: %q", i, r.admin[i].Get(context.Background(), "job").Val())
		}
		if held.Err() != nil || !k.Valid() {
			t.Fatalf("lost with server %d: %v", i, context.Cause(held))
		}
	}
	finish()
	t.Logf("%v, %d attempts, %d without quorum", time.Since(start).Round(time.Millisecond), attempts.Load(), noQuorum.Load())
	if n := r.count(t, "job", k.Value().Secret()); n != 5 {
		t.Errorf("the key is on %d nodes, want 5", n)
	}
	realRelease(t, k)
	r.clean(t, 5*time.Second)
	r.registersExpire(t, ttl)
}

// Attack 41.
func TestRealScriptFlush(t *testing.T) {
	r := realStart(t, 5)
	l := r.open(t, redlock.Options{})
	const n = 64
	locks := make([]*redlock.Lock, n)
	each := func(what string, f func(i int) error) {
		t.Helper()
		r.do(t, nil, "script", "flush")
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				if err := f(i); err != nil {
					t.Errorf("%s %d: %v", what, i, err)
				}
			})
		}
		wg.Wait()
	}
	each("acquire", func(i int) (err error) {
		locks[i], err = l.TryAcquire(t.Context(), fmt.Sprintf("job/%d", i), time.Minute)
		return err
	})
	if t.Failed() {
		return
	}
	each("extend", func(i int) error { return locks[i].Extend(t.Context()) })
	each("inspect", func(i int) error {
		s, err := l.Inspect(t.Context(), locks[i].Key())
		if err == nil && s.Value != locks[i].Value() {
			err = fmt.Errorf("got %+v", s)
		}
		return err
	})
	each("adopt", func(i int) (err error) {
		locks[i], err = l.Adopt(t.Context(), locks[i].Key(), locks[i].Value(), time.Minute)
		return err
	})
	if t.Failed() {
		return
	}
	each("release", func(i int) error { return locks[i].Release(t.Context()) })
	r.clean(t, 2*time.Second)
}

// Attack 94.
func TestRealPoisonedBatch(t *testing.T) {
	r := realStart(t, 5)
	l := r.open(t, redlock.Options{})
	r.do(t, nil, "hset", "bad/lock", "f", "v")
	r.do(t, nil, "set", "{bad/register}:fence", "word")
	r.do(t, nil, "zadd", "{bad/full}:fence", "9007199254740991", "f")
	const n = 64
	for range 5 {
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				key := fmt.Sprintf("job/%d", i)
				k, err := l.TryAcquire(t.Context(), key, time.Minute)
				if err != nil {
					t.Errorf("neighbour: %v", err)
					return
				}
				if err := k.Extend(t.Context()); err != nil {
					t.Errorf("neighbour: %v", err)
				}
				realRelease(t, k)
			})
			if i%8 == 0 {
				for _, key := range []string{"bad/lock", "bad/register", "bad/full"} {
					wg.Go(func() {
						_, err := l.TryAcquire(t.Context(), key, time.Minute)
						if err == nil {
							t.Errorf("%s: acquired", key)
						}
					})
				}
			}
		}
		wg.Wait()
	}
	r.do(t, nil, "del", "bad/lock", "{bad/register}:fence")
	r.clean(t, 2*time.Second)
}
