package main

import (
	"bufio"
	"context"
	"fmt"
	"math"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/realredis"
)

// BenchmarkCycle is acquire and release on real servers, for profiles and for comparing two versions of ours with
// benchstat. Between contenders, go run . is the fairer judge: it interleaves them.
func BenchmarkCycle(b *testing.B) {
	cs, err := contenders(addrs(realredis.Start(b, 5)))
	if err != nil {
		b.Fatal(err)
	}
	defer closeAll(cs)
	for _, c := range cs {
		if c.name == nameFailFast {
			continue // its own left-overs refuse it now and then, which is an error here
		}
		for _, g := range []int{1, 64} {
			b.Run(fmt.Sprintf("%s/goroutines=%d", c.name, g), func(b *testing.B) {
				b.ReportAllocs()
				if _, failed := tally(b.Context(), c, g, (b.N+g-1)/g); failed > 0 {
					b.Errorf("%d failed", failed)
				}
			})
		}
	}
}

// BenchmarkCall is each call of the public API by one goroutine on five real servers.
func BenchmarkCall(b *testing.B) {
	servers := realredis.Start(b, 5)
	plain := benchLocker(b, servers, redlock.Options{})
	other := benchLocker(b, servers, redlock.Options{})
	fair := benchLocker(b, servers, redlock.Options{Fair: true})
	observed := benchLocker(b, servers, redlock.Options{Observe: func(redlock.Round) {}})
	hold := func(b *testing.B, key string) *redlock.Lock {
		k, err := plain.TryAcquire(b.Context(), key, time.Minute)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { k.Release(context.Background()) })
		return k
	}
	run := func(name string, f func(b *testing.B, key string)) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			f(b, "bench:"+name)
		})
	}
	cycle := func(l *redlock.Locker, acquire func(context.Context, string, time.Duration, ...redlock.AcquireOption) (*redlock.Lock, error)) func(*testing.B, string) {
		return func(b *testing.B, key string) {
			for b.Loop() {
				k, err := acquire(b.Context(), key, ttl)
				if err != nil {
					b.Fatal(err)
				}
				if err := k.Release(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	run("TryAcquire+Release", cycle(plain, plain.TryAcquire))
	run("Acquire+Release", cycle(plain, plain.Acquire))
	run("Acquire+Release,fair", cycle(fair, fair.Acquire))
	run("TryAcquire+Release,observed", cycle(observed, observed.TryAcquire))
	run("TryAcquire,held", func(b *testing.B, key string) {
		hold(b, key)
		for b.Loop() {
			if _, err := other.TryAcquire(b.Context(), key, ttl); err == nil {
				b.Fatal("got a lock that is held")
			}
		}
	})
	run("Extend", func(b *testing.B, key string) {
		k := hold(b, key)
		for b.Loop() {
			if err := k.Extend(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
	run("Inspect", func(b *testing.B, key string) {
		hold(b, key)
		for b.Loop() {
			if _, err := plain.Inspect(b.Context(), key); err != nil {
				b.Fatal(err)
			}
		}
	})
	run("Adopt", func(b *testing.B, key string) {
		k := hold(b, key)
		for b.Loop() {
			next, err := plain.Adopt(b.Context(), key, k.Value(), time.Minute)
			if err != nil {
				b.Fatal(err)
			}
			k = next
		}
		k.Release(b.Context())
	})
	run("KeepAlive+stop", func(b *testing.B, key string) {
		k := hold(b, key)
		for b.Loop() {
			_, stop := k.KeepAlive(b.Context())
			stop()
		}
	})
	run("Valid", func(b *testing.B, key string) {
		k := hold(b, key)
		for b.Loop() {
			if !k.Valid() {
				b.Fatal("not valid")
			}
		}
	})
	run("QuorumError", func(b *testing.B, key string) {
		hold(b, key)
		_, err := other.TryAcquire(b.Context(), key, ttl)
		for b.Loop() {
			_ = err.Error()
		}
	})
	run("HandOver", func(b *testing.B, key string) {
		// Two goroutines of one Locker take turns: each acquire stands in the line while the other holds.
		turns := make(chan struct{}, 1)
		done := make(chan struct{})
		go func() {
			defer close(done)
			for range turns {
				if k, err := plain.Acquire(b.Context(), key, ttl); err == nil {
					k.Release(b.Context())
				}
			}
		}()
		for b.Loop() {
			turns <- struct{}{}
			k, err := plain.Acquire(b.Context(), key, ttl)
			if err != nil {
				b.Fatal(err)
			}
			k.Release(b.Context())
		}
		close(turns)
		<-done
	})
}

func benchLocker(tb testing.TB, servers []*realredis.Server, opt redlock.Options) *redlock.Locker {
	l, done, err := newLocker(opt, addrs(servers))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(done)
	return l
}

// The proxy must delay without serialising, or the slow node would be a weak one.
func TestLinkIsLongAndNotNarrow(t *testing.T) {
	t.Parallel()
	s := realredis.Start(t, 1)[0]
	const delay, requests = 100 * time.Millisecond, 20
	l, err := newLink(s.Addr(), delay)
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	conn, err := net.Dial("tcp", l.addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	start := time.Now()
	go func() {
		for range requests {
			fmt.Fprint(conn, "PING\r\n")
			time.Sleep(time.Millisecond) // chunks of their own
		}
	}()
	answers := bufio.NewReader(conn)
	for i := range requests {
		if line, err := answers.ReadString('\n'); line != "+PONG\r\n" {
			t.Fatalf("got %q, %v", line, err)
		}
		if took := time.Since(start); i == 0 && took < delay {
			t.Errorf("the first answer took %v, want at least %v", took, delay)
		}
	}
	if took := time.Since(start); took > requests/2*delay {
		t.Errorf("%d requests took %v, want little more than the %v of one", requests, took, delay)
	}
}

// The floor of our own commands must do to the nodes what we do, or it is the floor of something else.
func TestFloorOfOurCommands(t *testing.T) {
	t.Parallel()
	servers := realredis.Start(t, 3)
	c, err := newOurFloor(addrs(servers))
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	const key = "floor"
	held, err := c.acquire(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, s := range servers {
		value := s.Client().Get(t.Context(), key).Val()
		score := s.Client().ZScore(t.Context(), "{"+key+"}:fence", "f").Val()
		if value != "" && score > 0 {
			n++
		}
	}
	if n < 2 {
		t.Errorf("%d nodes have the key and its register, want a majority of 3", n)
	}
	if err := c.release(t.Context(), held); err != nil {
		t.Fatal(err)
	}
	n = 0
	for _, s := range servers {
		gone := s.Client().Exists(t.Context(), key).Val() == 0
		life := s.Client().PTTL(t.Context(), "{"+key+"}:fence").Val()
		if gone && life > time.Hour {
			n++
		}
	}
	if n < 2 {
		t.Errorf("%d nodes have released the key and given its register a life, want a majority of 3", n)
	}
}

// A new set takes keys from the others, and none moves between those.
func TestRendezvous(t *testing.T) {
	t.Parallel()
	const keys = 10_000
	moved := 0
	for i := range keys {
		key := fmt.Sprint(i)
		before, after := rendezvous(key, 4), rendezvous(key, 5)
		if before != after {
			moved++
			if after != 4 {
				t.Fatalf("key %s went from set %d to %d, want the new one", key, before, after)
			}
		}
	}
	if moved < keys/10 || moved > keys*3/10 {
		t.Errorf("%d of %d keys moved, want about a fifth", moved, keys)
	}
}

func TestAvailable(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		n    int
		want float64
	}{{1, 0.9}, {2, 0.81}, {3, 0.972}, {5, 0.99144}} {
		if got := available(tt.n, 0.9); math.Abs(got-tt.want) > 1e-9 {
			t.Errorf("%d nodes: got %v, want %v", tt.n, got, tt.want)
		}
	}
}

func TestFill(t *testing.T) {
	t.Parallel()
	r := &report{Redis: "7.0.15", Took: "1s"}
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
	for _, broken := range []string{"<!-- table nothing -->\n<!-- end -->", "<!-- table machine -->\n", "<!-- table machine"} {
		if _, err := r.fill(broken); err == nil {
			t.Errorf("%q: got no error", broken)
		}
	}
}

// The figures in the documents are those of the results beside them.
func TestDocumentsHaveTheFiguresOfTheResults(t *testing.T) {
	t.Parallel()
	r, err := readReport("results/results.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range documents {
		text, err := r.fillFile(d)
		if err != nil {
			t.Fatal(err)
		}
		if text.old != text.new {
			t.Errorf("%s is out of date: go run . -fill results/results.json", d)
		}
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

// What two contenders of one key report must not overlap: otherwise nothing was measured, and a lock was broken.
func TestHandoversFindOverlaps(t *testing.T) {
	t.Parallel()
	apart := []outcome{{Holds: []hold{{0, 10}, {40, 50}}}, {Holds: []hold{{20, 30}}}}
	if got, err := handovers(apart); err != nil || !slices.Equal(got, []float64{10 / 1e6, 10 / 1e6}) {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := handovers([]outcome{{Holds: []hold{{0, 21}}}, {Holds: []hold{{20, 30}}}}); err == nil {
		t.Error("got no error for two holds at one time")
	}
}

func TestBlame(t *testing.T) {
	t.Parallel()
	const lib, redis = "github.com/seed-ce352c9b/redlock.(*lane).fly", "github.com/redis/go-redis/v9.(*Pipeline).Exec"
	for _, tt := range []struct {
		frames []string
		cpu    bool
		want   string
	}{
		{[]string{"internal/runtime/syscall.Syscall6", "syscall.RawSyscall6", "syscall.write", "net.(*conn).Write", redis, lib}, true, partKernel},
		{[]string{"runtime.futex", "runtime.futexwakeup", "runtime.wakep", "runtime.ready", lib}, true, partKernel},
		{[]string{"runtime.nextFreeFast", "runtime.mallocgcSmallScanNoHeader", "runtime.mallocgc", lib}, true, partMemory},
		{[]string{"runtime.findRunnable", "runtime.schedule", "runtime.mcall"}, true, partScheduler},
		{[]string{lib, redis}, true, partOurs},
		{[]string{redis, lib}, true, partGoRedis},
		{[]string{"strconv.formatBits", redis, lib}, true, partStd},
		{[]string{"strconv.formatBits", redis, lib}, false, partGoRedis},
		{[]string{"runtime.malg", "runtime.newproc1"}, false, partStd},
	} {
		if got, _ := blame(tt.frames, tt.cpu); got != tt.want {
			t.Errorf("cpu %v, %v: got %q, want %q", tt.cpu, tt.frames, got, tt.want)
		}
	}
}
