package redlock_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/seed-ce352c9b/redlock"
)

// The README and docs/ show no code that does not compile: each of their Go blocks
// is part of example_test.go, but for white space.
func TestReadmeIsExamples(t *testing.T) {
	examples := readmeWords(t, "example_test.go")
	for _, file := range []string{"README.md", "docs/guide.md", "docs/operations.md"} {
		blocks := 0
		for i, part := range strings.Split(readmeText(t, file), "```") {
			code, ok := strings.CutPrefix(part, "go\n")
			if i%2 == 0 || !ok {
				continue // prose, or another language
			}
			blocks++
			if got := strings.Join(strings.Fields(code), " "); !strings.Contains(examples, got) {
				t.Errorf("this block of %s is not in example_test.go:\n%s", file, code)
			}
		}
		if blocks == 0 {
			t.Errorf("%s has no Go block: either it lost them or this test looks for the wrong thing", file)
		}
	}
}

func readmeWords(t *testing.T, file string) string {
	t.Helper()
	return strings.Join(strings.Fields(readmeText(t, file)), " ")
}

func readmeText(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// What the README says of ties. Nobody has a majority: two nodes have somebody
// else's value each, for as long as their rollbacks take, and one has ours.
//
// Attack 74.
func TestATieIsTriedAgain(t *testing.T) {
	tie := func(s *stage, life time.Duration) {
		s.node(0).Set(job, otherValue, life)
		s.node(1).Set(job, "a third:00000000-0000-4000-8000-000000000000", life)
	}
	t.Run("until it is had", func(t *testing.T) {
		onStage(t, 3, func(s *stage) {
			l := s.locker(redlock.Options{})
			tie(s, 4*time.Millisecond) // the pause is at least 5
			k, err := l.TryAcquire(s.ctx, job, 10*time.Second)
			if err != nil {
				t.Fatalf("TryAcquire: got %v, want the lock: its contenders are gone at the second attempt", err)
			}
			s.is("Release", k.Release(s.ctx), nil)
			s.clean(l)
		})
	})
	for _, c := range []struct {
		name     string
		put      func(s *stage)
		attempts int
	}{
		{"four times at most", func(s *stage) { tie(s, time.Hour) }, 4},
		{"and not where one holder has a majority", func(s *stage) { s.strangers(time.Hour, 0, 1) }, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			onStage(t, 3, func(s *stage) {
				l := s.locker(redlock.Options{})
				c.put(s)
				_, err := l.TryAcquire(s.ctx, job, 10*time.Second)
				s.is("TryAcquire", err, redlock.ErrHeld)
				var q *redlock.QuorumError
				if !errors.As(err, &q) {
					t.Fatalf("got %v, want a QuorumError", err)
				}
				if got := q.Round.Attempt; got != c.attempts {
					t.Errorf("got %d attempts, want %d: %v", got, c.attempts, err)
				}
			})
		})
	}
}

// What the README says of LeaveToExpire: the lock stays, also after Close, and its
// registers end although nobody releases it.
func TestALockLeftToExpireStays(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l, other := s.locker(redlock.Options{}), s.locker(redlock.Options{})
		k := s.take(l, 10*time.Second)
		held, _ := k.KeepAlive(s.ctx)
		k.LeaveToExpire()
		if held.Err() == nil || k.Valid() {
			t.Errorf("got a context that ends with %v, valid %v, want both over", held.Err(), k.Valid())
		}
		s.is("Release", k.Release(s.ctx), nil)
		s.is("Close", l.Close(), nil)
		time.Sleep(9 * time.Second)
		s.carry("shortly before its end", k.Value(), 0, 1, 2)
		_, err := other.TryAcquire(s.ctx, job, 10*time.Second)
		s.is("TryAcquire meanwhile", err, redlock.ErrHeld)
		time.Sleep(time.Second)
		s.carry("afterwards", "", 0, 1, 2)
	})
	onStage(t, 3, func(s *stage) {
		l := s.locker(redlock.Options{})
		s.take(l, 10*time.Second).LeaveToExpire()
		s.is("Close", l.Close(), nil) // within its first second: nothing else has seen to the registers
		for i := range 3 {
			if life := s.node(i).TTL(jobRegister); life <= 0 {
				t.Errorf("the register of node %d has no life, want about a day", i)
			}
		}
	})
}

// What the README says of renewals, where a third of the ttl would be behind Until.
func TestALargeDriftLeavesTimeToRenew(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.locker(redlock.Options{Drift: 0.9, NodeTimeout: 100 * time.Millisecond})
		k := s.take(l, 10*time.Second) // valid for 998 ms
		held, stop := k.KeepAlive(s.ctx)
		defer stop()
		time.Sleep(5 * time.Second)
		if held.Err() != nil || !k.Valid() {
			t.Errorf("after 5s: got %v, valid %v, want the lock: nothing was in its way", context.Cause(held), k.Valid())
		}
		s.is("Release", k.Release(s.ctx), nil)
	})
}
