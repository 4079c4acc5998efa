package real_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/harness"
	"github.com/seed-ce352c9b/redlock/internal/proxy"
	"github.com/seed-ce352c9b/redlock/internal/realredis"
	"github.com/seed-ce352c9b/redlock/internal/seam"
)

// I4: nothing is left behind.

// Attack 77.
func TestRealStoppedNodeKeepsNothing(t *testing.T) {
	const attempts, lockers, stopped = 200, 4, 1500 * time.Millisecond
	r := realStart(t, 5)
	rnd := realSeed(t)
	var ls []*redlock.Locker
	for range lockers {
		l := r.open(t, redlock.Options{})
		realRelease(t, realAcquire(t, l, "warm", time.Minute)) // connections stand
		ls = append(ls, l)
	}
	const slow = 2
	r.servers[slow].Stop()
	stop := time.Now()
	var cancelled, won, none atomic.Int64
	var wg sync.WaitGroup
	for i := range attempts {
		at := time.Duration(rnd.Float64() * float64(stopped) * 0.9)
		if i < attempts/2 {
			at = 0 // all in the first batches, before the node is suspected
		}
		after := time.Duration(rnd.Float64() * float64(3*time.Millisecond))
		wg.Go(func() {
			<-time.After(at)
			ctx, cancel := context.WithCancel(context.Background())
			defer time.AfterFunc(after, cancel).Stop()
			defer cancel()
			k, err := ls[i%lockers].TryAcquire(ctx, fmt.Sprintf("job/%d", i), time.Minute)
			switch {
			case err == nil:
				won.Add(1)
				if err := k.Release(ctx); err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, redlock.ErrNoQuorum) {
					t.Errorf("Release: %v", err)
				}
			case errors.Is(err, context.Canceled):
				cancelled.Add(1)
			case errors.Is(err, redlock.ErrNoQuorum): // a busy machine
				none.Add(1)
			default:
				t.Errorf("TryAcquire: %v", err)
			}
		})
	}
	wg.Wait()
	t.Logf("%d cancelled, %d acquired and released, %d without quorum", cancelled.Load(), won.Load(), none.Load())
	if none.Load() == attempts {
		t.Errorf("none of %d attempts had a quorum with four of five nodes", attempts)
	}
	<-time.After(time.Until(stop.Add(stopped)))
	r.servers[slow].Cont()
	woke := time.Now()
	r.clean(t, 2*time.Second)
	t.Logf("clean %v after it woke", time.Since(woke).Round(time.Millisecond))
	<-time.After(time.Until(woke.Add(2 * time.Second))) // late commands would have been executed by now
	if found := r.left(); len(found) > 0 {
		t.Errorf("two seconds after it woke: %v", found)
	}
	for i, l := range ls {
		if n := seam.Peek(l).Nodes[slow].Owed; n != 0 || seam.Peek(l).Nodes[slow].Down {
			t.Errorf("locker %d: owed %d, down %v; want nothing", i, n, seam.Peek(l).Nodes[slow].Down)
		}
	}
	r.registersExpire(t, time.Minute)
}

// It counts goroutines, so it is not parallel.
//
// Attack 15.
func TestRealCancelledAtAnyInstant(t *testing.T) {
	for _, tt := range []struct {
		name    string
		delay   time.Duration // each way, of the proxy
		workers int
	}{{"direct", 0, 1}, {"busy", 0, 16}, {"far", 2 * time.Millisecond, 16}} {
		t.Run(tt.name, func(t *testing.T) {
			r := realOver(realredis.Start(t, 5)...)
			rnd := realSeed(t)
			addrs := r.addrs()
			if tt.delay > 0 {
				for i := range addrs {
					p := realProxyTo(t, addrs[i])
					p.Delay(tt.delay*time.Duration(i+1)/3, tt.delay)
					addrs[i] = p.Addr()
				}
			}
			r.left() // the test's own connections
			baseline := runtime.NumGoroutine()
			l, err := redlock.Open(redlock.Options{NodeTimeout: 10 * time.Second}, addrs...)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			// The shortest time of a round: on a busy machine more attempts are cancelled, not
			// fewer.
			round := time.Hour
			for range 5 {
				start := time.Now()
				k := realAcquire(t, l, "warm", time.Minute)
				round = min(round, time.Since(start))
				realRelease(t, k)
			}
			times := harness.Rounds(200, 1500)
			delays := make([]time.Duration, times)
			for i := range delays {
				delays[i] = time.Duration(rnd.Float64() * 2 * float64(round))
			}
			var won, lost atomic.Int64
			var next atomic.Int64
			var wg sync.WaitGroup
			for range tt.workers {
				wg.Go(func() {
					for i := next.Add(1) - 1; i < int64(times); i = next.Add(1) - 1 {
						ctx, cancel := context.WithCancel(context.Background())
						stop := time.AfterFunc(delays[i], cancel)
						k, err := l.TryAcquire(ctx, fmt.Sprintf("job/%d", i), time.Minute)
						switch {
						case err == nil:
							won.Add(1)
							if err := k.Release(ctx); err != nil && !errors.Is(err, context.Canceled) {
								t.Errorf("Release: %v", err)
							}
						case errors.Is(err, context.Canceled):
							lost.Add(1)
						default:
							t.Errorf("TryAcquire: %v", err)
						}
						stop.Stop()
						cancel()
					}
				})
			}
			wg.Wait()
			t.Logf("round %v: %d cancelled, %d acquired", round, lost.Load(), won.Load())
			if lost.Load() == 0 {
				t.Error("none was cancelled in time")
			}
			r.clean(t, 2*time.Second)
			r.registersExpire(t, time.Minute)
			if err := l.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
			realGoroutines(t, 5*time.Second, baseline)
			if found := r.left(); len(found) > 0 {
				t.Errorf("left behind: %v", found)
			}
		})
	}
}

// isSet reports whether a chunk of requests has an acquire.
func isSet(chunk []byte) bool { return bytes.Contains(chunk, []byte("\r\nset\r\n")) }

// A node that answers after the node timeout. Each try has a Locker of its own, so
// that each one's SET really is on its way when it is given up.
//
// Attacks 22, 77.
func TestRealLateReply(t *testing.T) {
	t.Parallel()
	const workers, nodeTimeout, late = 8, 50 * time.Millisecond, 400 * time.Millisecond
	tries := int64(harness.Rounds(20, 100))
	for _, tt := range []struct {
		name string
		slow func(p *proxy.Proxy)
	}{
		{"requests", func(p *proxy.Proxy) { p.Delay(late, 0) }},
		{"replies", func(p *proxy.Proxy) { p.Delay(0, late) }},
		{"overtaken", func(p *proxy.Proxy) { // only the SET is slow: PING and rollback get there first
			p.OnRequest(func(b []byte) (time.Duration, []byte) {
				if isSet(b) {
					return 3 * late, b
				}
				return 0, b
			})
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := realStart(t, 5)
			var delivered, given atomic.Int64
			var next atomic.Int64
			var wg sync.WaitGroup
			for range workers {
				wg.Go(func() {
					// On a busy machine the round trip may be measured as so long that nothing is given up.
					for i := next.Add(1); i <= tries || given.Load() == 0 && i <= 5*tries; i = next.Add(1) {
						addrs := r.addrs()
						slow := int(i) % 5
						p := realProxyTo(t, addrs[slow])
						addrs[slow] = p.Addr()
						l, err := redlock.Open(redlock.Options{NodeTimeout: nodeTimeout}, addrs...)
						if err != nil {
							t.Error(err)
							return
						}
						if k, err := l.Acquire(t.Context(), fmt.Sprintf("warm/%d", i), time.Minute); err == nil {
							k.Release(t.Context()) // a busy machine may be late here, too: then it is owed
						}
						realWait(5*time.Second, func() bool { return realAtRest(l, 5) })
						tt.slow(p)
						key := fmt.Sprintf("job/%d", i)
						k, err := l.TryAcquire(t.Context(), key, time.Minute)
						for late := time.Now().Add(realSlack(6 * time.Second)); err != nil && time.Now().Before(late); { // another node was late by chance
							<-time.After(rand.N(20 * time.Millisecond))
							k, err = l.TryAcquire(t.Context(), key, time.Minute)
						}
						if err != nil {
							t.Errorf("try %d: %v", i, err)
							continue
						}
						if err := k.Release(t.Context()); err != nil && !errors.Is(err, redlock.ErrNoQuorum) {
							t.Errorf("try %d: Release: %v", i, err)
						}
						ctx := context.Background()
						realWait(3*time.Second, func() bool { return seam.Peek(l).Nodes[slow].Owed > 0 || seam.Peek(l).Leaving == 0 })
						if seam.Peek(l).Nodes[slow].Owed > 0 {
							given.Add(1)
						}
						p.OnRequest(nil)
						p.Delay(0, 0)
						realWait(5*time.Second, func() bool { return realAtRest(l, 5) })
						if !realWait(3*time.Second, func() bool { return r.admin[slow].Exists(ctx, key).Val() == 0 }) {
							t.Errorf("try %d: %q is left on the slow node", i, key)
						}
						if r.admin[slow].Exists(ctx, "{"+key+"}:fence").Val() == 1 {
							delivered.Add(1)
						}
						l.Close()
						p.Close()
					}
				})
			}
			wg.Wait()
			t.Logf("%d of %d given up and owed, %d delivered", given.Load(), tries, delivered.Load())
			// How many depends on the machine: on a busy one the round trip may be measured as long
			// as the delay.
			if delivered.Load() == 0 || given.Load() == 0 {
				t.Errorf("%d late requests arrived, %d were given up: the test tests nothing", delivered.Load(), given.Load())
			}
			r.clean(t, 2*time.Second)
		})
	}
}

// One connection stalls for longer than a second look comes later, while others
// are quick; its answer does come at last.
//
// Attack 77.
func TestRealVeryLateReply(t *testing.T) {
	r := realStart(t, 3)
	addrs := r.addrs()
	p := realProxyTo(t, addrs[0])
	addrs[0] = p.Addr()
	l := realOpen(t, redlock.Options{NodeTimeout: 50 * time.Millisecond}, addrs...)
	realRelease(t, realAcquire(t, l, "warm", time.Minute))
	realUntil(t, 2*time.Second, "rest", func() bool { return realAtRest(l, 3) })
	const late = 1500 * time.Millisecond
	var sent atomic.Bool
	p.OnRequest(func(b []byte) (time.Duration, []byte) {
		if isSet(b) {
			sent.Store(true)
			return late, b
		}
		return 0, b
	})
	realUntil(t, 10*time.Second, "a SET on its way to a node that is not suspected", func() bool {
		realRelease(t, realAcquire(t, l, "job", time.Minute))
		return sent.Load()
	})
	ctx := context.Background()
	realUntil(t, 5*time.Second, "the late SET", func() bool { return r.admin[0].Exists(ctx, "{job}:fence").Val() == 1 })
	if !realWait(2*time.Second, func() bool { return r.admin[0].Exists(ctx, "job").Val() == 0 }) {
		t.Errorf("a SET that was answered yes %v late stays for %v", late, r.admin[0].PTTL(ctx, "job").Val())
	}
}
