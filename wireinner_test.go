package redlock

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

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
		for range 5 {
			if r := q.read(cmds, false, nil); r.answer != saidYes {
				b.Fatal(r.err)
			}
		}
	}
}
