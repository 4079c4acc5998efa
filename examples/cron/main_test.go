package main

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/examples/internal/setup"
)

func TestOncePerInterval(t *testing.T) {
	env := setup.Test(t, schema)
	var runs atomic.Int32
	err := schedule(t.Context(), env, time.Second, 2, func(context.Context, string) error {
		runs.Add(1)
		return nil
	})
	if got := runs.Load(); err != nil || got != 2 {
		t.Errorf("got %d runs, %v, want 2: one per interval", got, err)
	}
}

// A scheduler that is shut down after its run keeps the lock from the next one. The
// table would not: it is asked about another interval.
func TestOnceThoughTheSchedulerEnds(t *testing.T) {
	env := setup.Test(t, schema)
	tick := time.Now()
	runs := 0
	for n := range 2 {
		l, err := env.Locker("test")
		if err != nil {
			t.Fatal(err)
		}
		_, err = once(t.Context(), l, env.DB, "report", time.Hour, tick.Add(time.Duration(n)*time.Hour), func(context.Context) error { runs++; return nil })
		l.Close()
		if err != nil {
			t.Fatal(err)
		}
	}
	if runs != 1 {
		t.Errorf("got %d runs, want 1: the lock outlives its scheduler", runs)
	}
}

// An operator deletes the lock between two ticks of one interval. The table
// remembers the run.
func TestOnceThoughTheLockIsGone(t *testing.T) {
	env := setup.Test(t, schema)
	l, err := env.Locker("test")
	if err != nil {
		t.Fatal(err)
	}
	tick := time.Now()
	runs := 0
	for range 2 {
		if _, err := once(t.Context(), l, env.DB, "report", time.Hour, tick, func(context.Context) error { runs++; return nil }); err != nil {
			t.Fatal(err)
		}
		takeAway(t, l, "cron/report")
	}
	if runs != 1 {
		t.Errorf("got %d runs, want 1", runs)
	}
}

// takeAway releases a lock that was left to expire.
func takeAway(t *testing.T, l *redlock.Locker, key string) {
	t.Helper()
	s, err := l.Inspect(t.Context(), key)
	if err != nil || !s.Held {
		t.Fatalf("held: got %v, %v, want true: the lock was left to expire", s.Held, err)
	}
	k, err := l.Adopt(t.Context(), key, s.Value, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
}
