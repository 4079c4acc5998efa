package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/realredis"
)

// BenchmarkCycle is acquire and release on real servers, for profiles and for comparing two versions of the library with
// benchstat. To compare contenders, use go run ., which has them take turns.
func BenchmarkCycle(b *testing.B) {
	cs := contenders(addrs(realredis.Start(b, 5)))
	defer closeAll(cs)
	for _, c := range cs {
		if c.name == nameFailFast {
			continue // the keys that it leaves behind make some of its acquires fail
		}
		for _, g := range []int{1, 64} {
			b.Run(fmt.Sprintf("%s/goroutines=%d", c.name, g), func(b *testing.B) {
				b.ReportAllocs()
				if t := (load{c: c, g: g, untimed: true}).runCycles(b.Context(), (b.N+g-1)/g); t.failed > 0 {
					b.Errorf("%d failed: %v", t.failed, t.err)
				}
			})
		}
	}
}

// BenchmarkCall is each call of the public API by one goroutine on five real servers.
func BenchmarkCall(b *testing.B) {
	servers := addrs(realredis.Start(b, 5))
	locker := func(opt redlock.Options) *redlock.Locker {
		l, done := newLocker(opt, servers)
		b.Cleanup(done)
		return l
	}
	plain, other, fair := locker(redlock.Options{}), locker(redlock.Options{}), locker(redlock.Options{Fair: true})
	observed := locker(redlock.Options{Trace: redlock.Trace{Round: func(_ context.Context, _ redlock.Round) {}}})
	ctx := context.Background()
	// Each call gets the key, and a lock on it if held is true.
	bench := func(name string, held bool, call func(key string, k *redlock.Lock) error) {
		b.Run(name, func(b *testing.B) {
			key := name + rand.Text()
			var k *redlock.Lock
			if held {
				k = must(plain.TryAcquire(ctx, key, time.Minute))
				defer k.Release(ctx)
			}
			b.ReportAllocs()
			for b.Loop() {
				if err := call(key, k); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	cycle := func(acquire func(context.Context, string, time.Duration, ...redlock.AcquireOption) (*redlock.Lock, error)) func(string, *redlock.Lock) error {
		return func(key string, _ *redlock.Lock) error {
			k, err := acquire(ctx, key, ttl)
			if err != nil {
				return err
			}
			return k.Release(ctx)
		}
	}
	bench("TryAcquire+Release", false, cycle(plain.TryAcquire))
	bench("Acquire+Release", false, cycle(plain.Acquire))
	bench("Acquire+Release,fair", false, cycle(fair.Acquire))
	bench("TryAcquire+Release,observed", false, cycle(observed.TryAcquire))
	bench("TryAcquire,held", true, func(key string, _ *redlock.Lock) error {
		if _, err := other.TryAcquire(ctx, key, ttl); err == nil {
			return fmt.Errorf("acquired a lock that is held")
		}
		return nil
	})
	bench("Extend", true, func(_ string, k *redlock.Lock) error { return k.Extend(ctx) })
	bench("Inspect", true, func(key string, _ *redlock.Lock) (err error) {
		_, err = plain.Inspect(ctx, key)
		return err
	})
	adopted := map[*redlock.Lock]*redlock.Lock{} // each adoption changes the value, so the next one adopts the last
	bench("Adopt", true, func(key string, k *redlock.Lock) (err error) {
		adopted[k], err = plain.Adopt(ctx, key, cmp.Or(adopted[k], k).Value(), time.Minute)
		return err
	})
	bench("KeepAlive+stop", true, func(_ string, k *redlock.Lock) error {
		_, stop := k.KeepAlive(ctx)
		stop()
		return nil
	})
	bench("HandOver", false, func(key string, _ *redlock.Lock) error { // to a caller in the Locker's queue
		k, err := plain.Acquire(ctx, key, ttl)
		if err != nil {
			return err
		}
		next := make(chan error, 1)
		go func() { next <- cycle(plain.Acquire)(key, nil) }()
		k.Release(ctx)
		return <-next
	})
}

// The floor of our commands must do to the nodes what the library does.
func TestFloorOfOurCommands(t *testing.T) {
	t.Parallel()
	servers := realredis.Start(t, 3)
	c := newOurFloor(addrs(servers))
	defer c.close()
	const key, register = "floor", "{floor}:fence"
	majority := func(what string, ok func(s *realredis.Server) bool) {
		t.Helper()
		n := 0
		for _, s := range servers {
			if ok(s) {
				n++
			}
		}
		if n < 2 {
			t.Errorf("%d nodes %s, want a majority of 3", n, what)
		}
	}
	held, err := c.acquire(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	majority("have the key and its register", func(s *realredis.Server) bool {
		return s.Client().Get(t.Context(), key).Val() != "" && s.Client().ZScore(t.Context(), register, "f").Val() > 0
	})
	if err := c.release(t.Context(), held); err != nil {
		t.Fatal(err)
	}
	majority("have deleted the key and set the register's TTL", func(s *realredis.Server) bool {
		return s.Client().Exists(t.Context(), key).Val() == 0 && s.Client().PTTL(t.Context(), register).Val() > time.Hour
	})
}

func TestFill(t *testing.T) {
	t.Parallel()
	r := &report{Redis: "redis-server 7.0.15", Took: "1s"}
	const old = "before\n<!-- table machine -->\nold\n<!-- end -->\nbetween\n<!-- table machine -->\n<!-- end -->\nafter\n"
	got, err := r.fill(old)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"before\n", "\nbetween\n", "\nafter\n", "redis-server 7.0.15"} {
		if !strings.Contains(got, want) {
			t.Errorf("got no %q in %q", want, got)
		}
	}
	if strings.Contains(got, "old") {
		t.Errorf("the old table is still there: %q", got)
	}
	if again, err := r.fill(got); again != got || err != nil {
		t.Errorf("filled twice: got %q, %v; want %q", again, err, got)
	}
	for _, broken := range []string{
		"<!-- table nothing -->\n<!-- end -->", "<!-- table machine -->\n", "<!-- table machine",
		"<!-- table machine -->\n<!-- table machine -->\n<!-- end -->",
	} {
		if _, err := r.fill(broken); err == nil {
			t.Errorf("%q: got no error", broken)
		}
	}
}

// The tables in the pages are those of the results that are checked in.
func TestDocuments(t *testing.T) {
	t.Parallel()
	if err := catch(func() {
		readReport("results/results.json").eachPage(func(page, old, text string) {
			if old != text {
				t.Errorf("%s is out of date: run go run . -fill results/results.json", page)
			}
		})
	}); err != nil {
		t.Error(err)
	}
}

// Ratios are of repetitions next to each other, not of medians.
func TestOver(t *testing.T) {
	t.Parallel()
	a, b := &series{Reps: []float64{10, 30, 100}}, &series{Reps: []float64{1, 2, 50}}
	if got, want := a.over(b).Reps, []float64{10, 15, 2}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := a.over(b).spread("%.0f"); got != "10 (2–15)" {
		t.Errorf("got %q", got)
	}
	if got := new(series).spread("%.0f"); got != "–" {
		t.Errorf("got %q for nothing", got)
	}
}

// Two holds must not overlap: otherwise a lock was broken and nothing was measured.
func TestHandoversFindOverlaps(t *testing.T) {
	t.Parallel()
	apart := []outcome{{Holds: []hold{{From: 0, To: 10}, {From: 40, To: 50}}}, {Holds: []hold{{From: 20, To: 30}}}}
	if got, err := handovers(inOrder(apart)); err != nil || !slices.Equal(got, []float64{10 / 1e6, 10 / 1e6}) {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := handovers([]hold{{From: 0, To: 21}, {From: 20, To: 30}}); err == nil {
		t.Error("got no error for two holds at one time")
	}
}
