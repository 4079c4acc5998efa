package wire

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func BenchmarkInnerNames(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := NameKey("app:", "jobs/42"); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkInnerQuestions is what is said to the nodes in a cycle, put together.
func BenchmarkInnerQuestions(b *testing.B) {
	name, _ := NameKey("", "jobs/42")
	value := "host-1:4711:" + strings.Repeat("x", 36)
	b.ReportAllocs()
	for b.Loop() {
		a := AcquireQuestion(nil, name, value, 10*time.Second, 1800000000000000)
		r := ReleaseQuestion(name, value, 10*time.Second, Notice{Tell: NotifyCount})
		if a.Bytes == 0 || r.Bytes == 0 {
			b.Fatal("nothing is said")
		}
	}
}

// BenchmarkInnerReplies is what five nodes' answers to an acquire mean.
func BenchmarkInnerReplies(b *testing.B) {
	q := questionOf(AskAcquire)
	cmds := commands(got{err: redis.Nil}, got{val: int64(1)})
	b.ReportAllocs()
	for b.Loop() {
		for range 5 {
			if r := q.Read(cmds, false, nil); r.Answer != Yes {
				b.Fatal(r.Err)
			}
		}
	}
}
