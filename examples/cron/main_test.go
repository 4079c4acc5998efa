package main

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/examples/internal/setup"
)

// Jobs that are shorter than the interval run at each tick. While a longer one runs, the
// ticks of all schedulers pass, and it runs again at the first tick after its end.
func TestOncePerInterval(t *testing.T) {
	const interval = 1200 * time.Millisecond
	for name, c := range map[string]struct {
		took        time.Duration
		ticks, runs int32
	}{
		"shorter": {interval / 10, 3, 3},
		"longer":  {interval * 3 / 2, 3, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := setup.Test(t, schema)
			var runs atomic.Int32
			err := schedule(t.Context(), env, interval, int(c.ticks), func(context.Context, string) error {
				runs.Add(1)
				time.Sleep(c.took)
				return nil
			})
			if got := runs.Load(); err != nil || got != c.runs {
				t.Errorf("got %d runs at %d ticks, %v, want %d", got, c.ticks, err, c.runs)
			}
		})
	}
}

// A scheduler that is shut down after its run keeps the lock from the next one. The
// table would not: it is asked about another interval.
func TestOnceThoughTheSchedulerEnds(t *testing.T) {
	env := setup.Test(t, schema)
	tick := time.Now()
	runs := 0
	for n := range 2 {
		l := env.Locker("test")
		_, err := once(t.Context(), l, env.DB, "report", time.Hour, tick.Add(time.Duration(n)*time.Hour), func(context.Context) error { runs++; return nil })
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
	l := env.Locker("test")
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

// takeAway releases a lock that was left.
func takeAway(t *testing.T, l *redlock.Locker, key string) {
	t.Helper()
	s, err := l.Inspect(t.Context(), key)
	if err != nil || !s.Held {
		t.Fatalf("held: got %v, %v, want true: the lock was left", s.Held, err)
	}
	k, err := l.Adopt(t.Context(), key, s.Value, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
}
