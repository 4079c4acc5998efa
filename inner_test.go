package redlock

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/wire"

	"github.com/redis/go-redis/v9"
)

// Benchmarks of the inner parts: what a cycle costs without network, servers and
// go-redis's reading and writing. Whole cycles on real servers are in bench/.

// A yesHook answers every pipeline at once, as a node does that grants everything.
type yesHook struct{}

func (yesHook) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (yesHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (yesHook) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(_ context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			c := cmd.(*wire.Command)
			switch args := c.Args(); args[0] {
			case "set":
				c.SetErr(redis.Nil) // nothing was there
			case "info":
				c.SetVal("")
			default:
				c.SetVal(int64(1))
			}
		}
		return nil
	}
}

func yesLocker(b *testing.B, nodes int) *Locker {
	var all []Node
	for range nodes {
		c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
		c.AddHook(yesHook{})
		b.Cleanup(func() { c.Close() })
		all = append(all, c)
	}
	l, err := New(Options{}, all...)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.Close() })
	return l
}

// BenchmarkInnerCycle is acquire and release, and what they wait for is only us.
func BenchmarkInnerCycle(b *testing.B) {
	for _, nodes := range []int{1, 3, 5} {
		for _, callers := range []int{1, 64} {
			b.Run(fmt.Sprintf("nodes=%d/goroutines=%d", nodes, callers), func(b *testing.B) {
				l := yesLocker(b, nodes)
				var names atomic.Int64
				b.ReportAllocs()
				b.SetParallelism(max(callers/2, 1))
				b.RunParallel(func(pb *testing.PB) {
					key := fmt.Sprint("jobs/", names.Add(1))
					for pb.Next() {
						k, err := l.TryAcquire(context.Background(), key, 10*time.Second)
						if err != nil {
							b.Error(err)
							return
						}
						if err := k.Release(context.Background()); err != nil {
							b.Error(err)
							return
						}
					}
				})
			})
		}
	}
}

func BenchmarkInnerValue(b *testing.B) {
	s := newSource()
	b.ReportAllocs()
	for b.Loop() {
		_ = s.uuid()
	}
}

// TestFIPS: a process that may use approved algorithms only can import the package and
// take a lock. The runtime reads the setting when it starts, so another process has to.
func TestFIPS(t *testing.T) {
	if os.Getenv("REDLOCK_FIPS_CHILD") != "" {
		c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
		c.AddHook(yesHook{})
		defer c.Close()
		l, err := New(Options{}, c)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		k, err := l.TryAcquire(t.Context(), "jobs/42", time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if err := k.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestFIPS$", "-test.v")
	cmd.Env = append(os.Environ(), "GODEBUG=fips140=only", "REDLOCK_FIPS_CHILD=1")
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestFIPS") {
		t.Errorf("with GODEBUG=fips140=only: %v\n%s", err, out)
	}
}
