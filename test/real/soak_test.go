package real_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/seam"
)

// A footprint is what a process keeps while nothing happens in it.
type footprint struct {
	goroutines, files int
	heap              uint64 // bytes in use after a collection
}

func (f footprint) String() string {
	return fmt.Sprintf("%d goroutines, %d file descriptors, %d KiB of heap", f.goroutines, f.files, f.heap>>10)
}

// footprintNow returns the smallest footprint of the next two seconds: what has just ended takes a moment to go.
func footprintNow() footprint {
	least := footprint{1 << 30, 1 << 30, 1 << 62}
	for range 20 {
		<-time.After(100 * time.Millisecond)
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		files, _ := os.ReadDir("/proc/self/fd")
		least.goroutines = min(least.goroutines, runtime.NumGoroutine())
		least.files = min(least.files, len(files))
		least.heap = min(least.heap, m.HeapAlloc)
	}
	return least
}

// TestRealSoak has one Locker work for as long as REDLOCK_SOAK says ("1h"), in eight periods. In each, callers take names that
// are used once and names for which others wait, some give up, and nodes are killed, hang and lose their connections; then
// everything rests. The process must not be larger at the end of a later period than it was after the second.
func TestRealSoak(t *testing.T) {
	text := os.Getenv("REDLOCK_SOAK")
	if text == "" {
		t.Skip("REDLOCK_SOAK=10m runs it")
	}
	lasts, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("REDLOCK_SOAK: %v", err)
	}
	const periods, callers, hot = 8, 32, 4
	r := realStart(t, 5, "--appendonly", "yes")
	logging.Disable() // go-redis logs every dial that fails
	t.Cleanup(logging.Enable)
	l := r.open(t, redlock.Options{})
	var held, refused, names atomic.Int64
	var settled footprint
	for period := range periods {
		over := time.Now().Add(lasts / periods)
		var work sync.WaitGroup
		for range callers {
			work.Go(func() {
				for time.Now().Before(over) {
					key := fmt.Sprint("hot/", rand.IntN(hot))
					if rand.IntN(2) == 0 {
						key = fmt.Sprint("once/", names.Add(1))
					}
					ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rand.Int64N(int64(time.Second))))
					err := l.Run(ctx, key, 2*time.Second, func(ctx context.Context, _ *redlock.Lock) error {
						select {
						case <-ctx.Done():
						case <-time.After(time.Duration(rand.Int64N(int64(20 * time.Millisecond)))):
						}
						return nil
					})
					cancel()
					if err == nil {
						held.Add(1)
					} else {
						refused.Add(1)
					}
				}
			})
		}
		for time.Now().Before(over) { // one node at a time
			s := r.servers[rand.IntN(len(r.servers))]
			switch rand.IntN(3) {
			case 0:
				s.Stop()
				<-time.After(500 * time.Millisecond)
				s.Cont()
			case 1:
				s.Restart()
			case 2:
				s.Kill()
				<-time.After(time.Second)
				s.Restart()
			}
			<-time.After(time.Second)
		}
		work.Wait()
		r.clean(t, 5*time.Second)
		now := footprintNow()
		t.Logf("after %d of %d periods: %v; %d names used once, %d locks held, %d refused", period+1, periods, now, names.Load(), held.Load(), refused.Load())
		switch {
		case period == 1: // all connections and tables have their size
			settled = now
		case period > 1:
			// A pool of go-redis keeps as many connections as the worst fault so far made it open, each with two buffers of 32 KiB.
			// A lane uses one for each pipeline, of which sixteen are under way and 64 given up at most, and for three PINGs. It
			// also keeps the memory of sixteen pipelines, and the Locker, for a while, that of names used once.
			const pools, buffers, kept = 5 * (16 + 64 + 3), 68 << 10, 4 << 20 // 5 nodes
			more := max(now.files-settled.files, 0)
			if now.goroutines > settled.goroutines+8 || more > pools || now.heap > settled.heap+settled.heap/4+kept+uint64(more*buffers) {
				t.Errorf("after period %d: %v; after the second: %v", period+1, now, settled)
			}
		}
	}
	for i, n := range seam.Peek(l).Nodes {
		if n.Owed != 0 || n.Stuck != 0 {
			t.Errorf("node %d at the end: %d clean-ups are owed, %d pipelines have not returned", i, n.Owed, n.Stuck)
		}
	}
	if held.Load() < 100*periods {
		t.Errorf("%d locks in %v are too few to mean anything", held.Load(), lasts)
	}
}
