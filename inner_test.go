package redlock

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

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
			c := cmd.(*command)
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

func BenchmarkInnerNames(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := nameKey("app:", "jobs/42"); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkInnerQuestions is what is said to the nodes in a cycle, put together.
func BenchmarkInnerQuestions(b *testing.B) {
	name, _ := nameKey("", "jobs/42")
	value := "host-1:4711:" + strings.Repeat("x", 36)
	b.ReportAllocs()
	for b.Loop() {
		a := acquireQuestion(nil, name, value, 10*time.Second, 1800000000000000)
		r := releaseQuestion(name, value, 10*time.Second, tellWaiters, "")
		if a.bytes == 0 || r.bytes == 0 {
			b.Fatal("nothing is said")
		}
	}
}

// BenchmarkInnerReplies is what five nodes' answers to an acquire mean.
func BenchmarkInnerReplies(b *testing.B) {
	q := questionOf(askAcquire)
	cmds := commands(got{err: redis.Nil}, got{val: int64(1)})
	b.ReportAllocs()
	for b.Loop() {
		var t tally
		t.n = 5
		for range t.n {
			if r := q.read(cmds, false, nil); r.answer == Yes {
				t.yes++
			}
			_ = acquireDecided(t)
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
