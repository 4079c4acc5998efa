package real_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/harness"
	"github.com/seed-ce352c9b/redlock/internal/realredis"
)

// Close at any instant of everything: calls end with ErrClosed, and nothing stays. It counts goroutines, so it is not parallel.
//
// Attacks 19, 97.
func TestRealCloseDuringEverything(t *testing.T) {
	for _, tt := range []struct {
		name    string
		stopped int
		times   int
		far     bool
		adopt   bool // and with adoptions of the Locker's own locks
	}{
		{"healthy", 0, harness.Rounds(20, 80), false, false}, {"far", 0, harness.Rounds(8, 20), true, false}, {"adopting", 0, harness.Rounds(8, 20), false, true},
		{"one stopped", 1, harness.Rounds(2, 4), false, true}, {"three stopped", 3, harness.Rounds(1, 3), false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := realOver(realredis.Start(t, 5)...)
			rnd := realSeed(t)
			const ttl = time.Minute
			nodeTimeout := 4 * time.Second // Close waits for a quarter of it, and the machine may be busy
			if tt.stopped > 0 {
				nodeTimeout = 200 * time.Millisecond
			}
			addrs := r.addrs()
			if tt.far {
				for i := range addrs {
					p := realProxyTo(t, addrs[i])
					p.Delay(time.Millisecond, time.Millisecond)
					addrs[i] = p.Addr()
				}
			}
			r.left()
			var stays int
			for n := range tt.times {
				baseline := runtime.NumGoroutine()
				l, err := redlock.Open(redlock.Options{NodeTimeout: nodeTimeout}, addrs...)
				if err != nil {
					t.Fatal(err)
				}
				realRelease(t, realAcquire(t, l, "warm", ttl))
				for i := range tt.stopped {
					r.servers[i].Stop()
				}
				var wg sync.WaitGroup
				for w := range 32 {
					seed := rnd.Uint64()
					wg.Go(func() { realEverything(t, l, fmt.Sprintf("%d/%d", n, w), ttl, seed, tt.adopt) })
				}
				<-time.After(time.Duration(rnd.Float64() * float64(20*time.Millisecond)))
				start := time.Now()
				switch err := l.Close(); {
				case err == nil:
				case tt.adopt && errors.Is(err, redlock.ErrLost): // another holder of the same Locker has adopted it
				case tt.stopped > 0 && errors.Is(err, redlock.ErrNoQuorum):
				default:
					t.Errorf("Close: %v", err)
				}
				if d := time.Since(start); d > 2*nodeTimeout+realSlack(250*time.Millisecond) {
					t.Errorf("Close took %v, want two node timeouts at most", d)
				}
				realIs(t, "second Close", l.Close(), redlock.ErrClosed)
				_, err = l.TryAcquire(t.Context(), "late", ttl)
				realIs(t, "TryAcquire", err, redlock.ErrClosed)
				wg.Wait()
				for i := range tt.stopped {
					r.servers[i].Cont()
				}
				if tt.stopped == 0 {
					var found []string
					if !realWait(100*time.Millisecond, func() bool { found = r.left(); return len(found) == 0 }) {
						if stays++; stays == 1 {
							t.Logf("closed the %d. time: %d keys stay: %v", n, len(found), found[:min(4, len(found))])
						}
						r.do(t, nil, "flushall")
					}
				} else { // what a stopped node does at waking is not ours any more
					r.left()
					r.do(t, nil, "flushall")
				}
				realGoroutines(t, 5*time.Second, baseline)
			}
			if stays > 0 {
				t.Errorf("keys were left behind in %d of %d times", stays, tt.times)
			}
		})
	}
}

// realEverything makes calls until the Locker is closed.
func realEverything(t *testing.T, l *redlock.Locker, key string, ttl time.Duration, seed uint64, adopt bool) {
	rnd := rand.New(rand.NewPCG(seed, 2))
	ctx := context.Background()
	var err error
	note := func(e error) {
		if e != nil && !errors.Is(e, redlock.ErrNoQuorum) && !errors.Is(e, redlock.ErrClosed) && !errors.Is(e, redlock.ErrLost) {
			t.Errorf("%s: %v", key, e)
		}
		if errors.Is(e, redlock.ErrClosed) {
			err = e
		}
	}
	deadline := time.Now().Add(10 * time.Second)
	for n := 0; err == nil; n++ {
		if time.Now().After(deadline) {
			t.Errorf("%s: never closed", key)
			return
		}
		name := fmt.Sprintf("%s/%d", key, n)
		if rnd.IntN(4) == 0 {
			note(l.Run(ctx, name, ttl, func(ctx context.Context, k *redlock.Lock) error {
				if rnd.IntN(2) == 0 {
					<-ctx.Done() // until Close
					if c := context.Cause(ctx); !errors.Is(c, redlock.ErrClosed) {
						t.Errorf("%s: Run's ctx ended with %v", key, c)
					}
				}
				return nil
			}))
			_, e := l.Inspect(ctx, name) // Run may have returned nil
			note(e)
			continue
		}
		k, e := l.Acquire(ctx, name, ttl)
		note(e)
		if e != nil {
			continue
		}
		if rnd.IntN(2) == 0 {
			_, stop := k.KeepAlive(ctx)
			defer stop()
		}
		if rnd.IntN(2) == 0 {
			note(k.Extend(ctx))
		}
		if rnd.IntN(3) == 0 {
			_, e := l.Inspect(ctx, name)
			note(e)
		}
		if adopt && rnd.IntN(3) == 0 {
			_, e := l.Adopt(ctx, name, k.Value(), ttl)
			note(e)
		}
		if rnd.IntN(2) == 0 {
			note(k.Release(ctx)) // the others are Close's to release
		}
	}
}

// A counter that is read and written under the lock, by thousands of attempts of
// several Lockers, while one server after the other is killed and comes back with
// its data.
//
// Attack 36.
func TestRealLostUpdates(t *testing.T) {
	r := realStart(t, 5, "--appendonly", "yes", "--appendfsync", "always")
	rnd := realSeed(t)
	const lockers, workers, ttl = 4, 5, 5 * time.Second
	lasts := time.Duration(harness.Rounds(1, 4)) * time.Second
	var ls []*redlock.Locker
	for i := range lockers {
		ls = append(ls, r.open(t, redlock.Options{Name: fmt.Sprint(i)}))
	}
	var counter, updates, attempts, held, none atomic.Int64
	type claim struct {
		from, to time.Time
		fence    int64
	}
	var mu sync.Mutex
	var claims []claim
	var last int64 // guarded by the lock itself, so to say
	done := make(chan struct{})
	var wg sync.WaitGroup
	for w := range lockers * workers {
		pause := rand.New(rand.NewPCG(rnd.Uint64(), 3))
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				k, err := ls[w%lockers].TryAcquire(context.Background(), "job", ttl)
				attempts.Add(1)
				switch {
				case errors.Is(err, redlock.ErrHeld):
					held.Add(1)
				case errors.Is(err, redlock.ErrNoQuorum):
					none.Add(1)
				case err != nil:
					t.Error(err)
				}
				if err != nil {
					// Long compared to a round, or all take parts of each other's majority.
					<-time.After(time.Duration(pause.IntN(20000)) * time.Microsecond)
					continue
				}
				from := time.Now()
				v := counter.Load()
				if f := atomic.LoadInt64(&last); k.Fence() <= f {
					t.Errorf("token %d after %d", k.Fence(), f)
				}
				atomic.StoreInt64(&last, k.Fence())
				for range pause.IntN(50) {
					runtime.Gosched()
				}
				if k.Valid() {
					counter.Store(v + 1)
					updates.Add(1)
				}
				to := time.Now()
				if err := k.Release(context.Background()); err != nil && !errors.Is(err, redlock.ErrNoQuorum) {
					t.Errorf("Release: %v", err)
				}
				mu.Lock()
				claims = append(claims, claim{from, to, k.Fence()})
				mu.Unlock()
			}
		})
	}
	restarts := 0
	// A machine that has little time for us makes it longer, not wrong.
	enough := func() bool { return updates.Load() >= 10 }
	for start := time.Now(); time.Since(start) < lasts || !enough() && time.Since(start) < time.Minute; restarts++ {
		s := r.servers[rnd.IntN(5)]
		if rnd.IntN(3) == 0 {
			s.Stop()
			<-time.After(time.Duration(rnd.IntN(50)) * time.Millisecond)
		}
		s.Kill()
		<-time.After(time.Duration(rnd.IntN(50)) * time.Millisecond)
		s.Restart()
		<-time.After(time.Duration(rnd.IntN(100)) * time.Millisecond)
	}
	close(done)
	wg.Wait()
	t.Logf("%d attempts: %d acquired, %d held, %d without quorum; %d restarts", attempts.Load(), updates.Load(), held.Load(), none.Load(), restarts)
	if counter.Load() != updates.Load() {
		t.Errorf("%d of %d updates were lost", updates.Load()-counter.Load(), updates.Load())
	}
	if !enough() {
		t.Errorf("only %d acquisitions: the test tests little", updates.Load())
	}
	slices.SortFunc(claims, func(a, b claim) int { return a.from.Compare(b.from) })
	for i := 1; i < len(claims); i++ {
		a, b := claims[i-1], claims[i]
		if b.from.Before(a.to) {
			t.Errorf("two holders at once: %+v and %+v", a, b)
		}
		if b.fence <= a.fence {
			t.Errorf("token %d after %d", b.fence, a.fence)
		}
	}
	r.clean(t, 3*time.Second)
	r.registersExpire(t, ttl)
}

// Of many who adopt one lock at once at most one has it, and never the giver too.
//
// Attack 84.
func TestRealAdoptAtOnce(t *testing.T) {
	r := realStart(t, 5)
	ls := []*redlock.Locker{r.open(t, redlock.Options{}), r.open(t, redlock.Options{}), r.open(t, redlock.Options{})}
	const ttl = 15 * time.Second
	adopted := 0
	for n := range 30 {
		key := fmt.Sprintf("job/%d", n)
		giver := realAcquire(t, ls[0], key, ttl)
		got := make([]*redlock.Lock, 6)
		var wg sync.WaitGroup
		for i := range got {
			wg.Go(func() {
				k, err := ls[i%3].Adopt(t.Context(), key, giver.Value(), ttl)
				if err != nil && !errors.Is(err, redlock.ErrLost) && !errors.Is(err, redlock.ErrNoQuorum) {
					t.Error(err)
				}
				got[i] = k
			})
		}
		wg.Wait()
		holders := 0
		for _, k := range got {
			if k == nil {
				continue
			}
			holders++
			realGrows(t, giver.Fence(), k)
		}
		for i := range 3 {
			realUntil(t, 2*time.Second, "restoring", func() bool { return realAtRest(ls[i], 5) })
		}
		err := giver.Extend(t.Context())
		switch {
		case holders > 1:
			t.Errorf("%d adopted it", holders)
		case holders == 1 && !errors.Is(err, redlock.ErrLost):
			t.Errorf("adopted, and the giver's Extend says %v", err)
		case holders == 0 && err != nil:
			t.Errorf("not adopted, and the giver's Extend says %v: %q", err, r.get(t, key))
		}
		adopted += holders
		for _, k := range got {
			if k != nil {
				realRelease(t, k)
			}
		}
		giver.Release(t.Context())
	}
	t.Logf("%d of 30 were adopted", adopted)
	r.clean(t, 5*time.Second)
	r.registersExpire(t, time.Minute)
}

// An adoption that is cancelled at any instant: either it has the lock, or the giver.
//
// Attack 84.
func TestRealAdoptCancelled(t *testing.T) {
	r := realStart(t, 5)
	a, b := r.open(t, redlock.Options{Name: "a"}), r.open(t, redlock.Options{Name: "b"})
	rnd := realSeed(t)
	k := realAcquire(t, a, "job", time.Minute)
	adopted, failed := 0, 0
	for i := range 300 {
		ctx, cancel := context.WithCancel(context.Background())
		stop := time.AfterFunc(time.Duration(rnd.IntN(600))*time.Microsecond, cancel)
		next, err := b.Adopt(ctx, "job", k.Value(), time.Minute)
		stop.Stop()
		cancel()
		realUntil(t, 2*time.Second, "restoring", func() bool { return realAtRest(b, 5) && realAtRest(a, 5) })
		e := k.Extend(t.Context())
		if err == nil {
			adopted++
			realIs(t, "the giver's Extend after an adoption", e, redlock.ErrLost)
			if next.Fence() <= k.Fence() || !next.Valid() {
				t.Errorf("try %d: tokens %d and %d", i, k.Fence(), next.Fence())
			}
			k = next
			continue
		}
		failed++
		if !errors.Is(err, context.Canceled) || errors.Is(err, redlock.ErrHeld) || errors.Is(err, redlock.ErrLost) {
			t.Errorf("Adopt: got %v, want %v", err, context.Canceled)
		}
		if e != nil {
			t.Fatalf("try %d: neither has it: Adopt %v, the giver's Extend %v: %q", i, err, e, r.get(t, "job"))
		}
	}
	t.Logf("%d adopted, %d cancelled", adopted, failed)
	realRelease(t, k)
	r.clean(t, 2*time.Second)
}

// What an adoption that is cancelled at any instant puts back ends when it would have ended, to the
// millisecond; what had no end has none.
//
// Attack 84.
func TestRealAFailedAdoptionGivesBackTheEnd(t *testing.T) {
	r := realStart(t, 3)
	a, b := r.open(t, redlock.Options{Name: "a"}), r.open(t, redlock.Options{Name: "b"})
	rnd := realSeed(t)
	ends := func(key string) (all []int64) {
		for i, c := range r.admin {
			ms, err := c.Do(t.Context(), "pexpiretime", key).Int64()
			if err != nil {
				t.Skipf("server %d: %v", i, err) // before 7.0
			}
			all = append(all, ms)
		}
		return all
	}
	failed := 0
	for i := range 200 {
		key, value := fmt.Sprintf("job/%d", i), fmt.Sprintf("by hand %d", i)
		if i%4 == 0 {
			r.do(t, nil, "set", key, value)
		} else {
			held := r.acquireEverywhere(t, a, key)
			key, value = held.Key(), held.Value().Secret()
		}
		before := ends(key)
		ctx, cancel := context.WithCancel(context.Background())
		stop := time.AfterFunc(time.Duration(rnd.IntN(600))*time.Microsecond, cancel)
		k, err := b.Adopt(ctx, key, redlock.ValueOf(value), 24*time.Hour)
		stop.Stop()
		cancel()
		if err == nil {
			realRelease(t, k)
			continue
		}
		failed++
		realUntil(t, 5*time.Second, "restoring", func() bool { return realAtRest(b, 3) })
		if r.count(t, key, value) != 3 {
			t.Fatalf("%s: got %q, want %q back", key, r.get(t, key), value)
		}
		for j, ms := range ends(key) {
			if ms != before[j] {
				t.Errorf("%s on server %d: ends at %d, want %d", key, j, ms, before[j])
			}
		}
	}
	if failed < 10 {
		t.Errorf("%d of 200 failed: this tests nothing", failed)
	}
}

// All of a lock's methods at once.
//
// Attack 63.
func TestRealOneLockFromAllSides(t *testing.T) {
	r := realStart(t, 5)
	l := r.open(t, redlock.Options{})
	rnd := realSeed(t)
	for n := range 100 {
		k := realAcquire(t, l, fmt.Sprintf("job/%d", n), time.Minute)
		held, stop := k.KeepAlive(t.Context())
		at := time.Duration(rnd.IntN(1500)) * time.Microsecond
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for held.Err() == nil {
					if err := k.Extend(t.Context()); err != nil && !errors.Is(err, redlock.ErrLost) {
						t.Errorf("Extend: %v", err)
					}
					k.Valid()
					k.Until()
				}
			})
		}
		for range 3 {
			wg.Go(func() {
				<-time.After(at)
				if err := k.Release(t.Context()); err != nil {
					t.Errorf("Release: %v", err)
				}
				if k.Valid() {
					t.Error("valid after Release")
				}
			})
		}
		wg.Wait()
		stop()
	}
	realUntil(t, 2*time.Second, "rest", func() bool { return realAtRest(l, 5) })
	r.clean(t, 200*time.Millisecond)
	r.registersExpire(t, time.Minute)
}

// I3: with a majority silent the loss is told before Until: later only by as much as
// this process got no processor. (Virtual time holds it to the nanosecond.)
func TestRealLossIsToldInTime(t *testing.T) {
	r := realStart(t, 5)
	l := r.open(t, redlock.Options{})
	const ttl = 600 * time.Millisecond
	var ks []*redlock.Lock
	var helds []context.Context
	var told [20]atomic.Int64
	starved := realStarved(t)
	for i := range told {
		k := realAcquire(t, l, fmt.Sprintf("job/%d", i), ttl)
		held, stop := k.KeepAlive(t.Context())
		defer stop()
		context.AfterFunc(held, func() { told[i].Store(time.Now().UnixNano()) }) // on a busy machine it may be lost before the last one is acquired
		ks, helds = append(ks, k), append(helds, held)
	}
	<-time.After(ttl) // some renewals
	for _, s := range r.servers[:3] {
		s.Stop()
	}
	for i, h := range helds {
		<-h.Done()
		realUntil(t, time.Second, "AfterFunc", func() bool { return told[i].Load() != 0 })
		late := time.Unix(0, told[i].Load()).Sub(ks[i].Until())
		if lag := starved(); late > realSlack(100*time.Millisecond)+2*lag {
			t.Errorf("%s: told %v after Until, when timers of this process were up to %v late", ks[i].Key(), late, lag)
		}
		if c := context.Cause(h); !errors.Is(c, redlock.ErrLost) {
			t.Errorf("%s: cause %v", ks[i].Key(), c)
		}
		if ks[i].Valid() {
			t.Errorf("%s is valid", ks[i].Key())
		}
	}
	for _, s := range r.servers[:3] {
		s.Cont()
	}
	realUntil(t, 3*time.Second, "rest", func() bool { return realAtRest(l, 5) })
	r.clean(t, 2*time.Second)
	r.registersExpire(t, ttl)
}
