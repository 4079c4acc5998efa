package main

import (
	"context"
	"database/sql"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/examples/internal/nodes"
)

func TestOncePerInterval(t *testing.T) {
	db, urls := setup(t)
	var runs atomic.Int32
	err := schedule(t.Context(), db, urls, time.Second, 2, func(context.Context, string) error {
		runs.Add(1)
		return nil
	})
	if got := runs.Load(); err != nil || got != 2 {
		t.Errorf("got %d runs, %v, want 2: one per interval", got, err)
	}
}

// A scheduler that is shut down after its run does not let the next one in, though
// the table would: it is asked about another interval.
func TestOnceThoughTheSchedulerEnds(t *testing.T) {
	db, urls := setup(t)
	tick := time.Now()
	runs := 0
	for n := range 2 {
		l, err := redlock.Open(redlock.Options{}, urls...)
		if err != nil {
			t.Fatal(err)
		}
		_, err = once(t.Context(), l, db, "report", time.Hour, tick.Add(time.Duration(n)*time.Hour), func(context.Context) error { runs++; return nil })
		l.Close()
		if err != nil {
			t.Fatal(err)
		}
	}
	if runs != 1 {
		t.Errorf("got %d runs, want 1: the lock outlives its scheduler", runs)
	}
}

// The lock is gone between two ticks of one interval, by an operator's hand. The
// table remembers.
func TestOnceThoughTheLockIsGone(t *testing.T) {
	db, urls := setup(t)
	l, err := redlock.Open(redlock.Options{}, urls...)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	tick := time.Now()
	runs := 0
	for range 2 {
		if _, err := once(t.Context(), l, db, "report", time.Hour, tick, func(context.Context) error { runs++; return nil }); err != nil {
			t.Fatal(err)
		}
		takeAway(t, l, "cron/report")
	}
	if runs != 1 {
		t.Errorf("got %d runs, want 1", runs)
	}
}

// takeAway releases a lock that another has.
func takeAway(t *testing.T, l *redlock.Locker, key string) {
	t.Helper()
	s, err := l.Inspect(t.Context(), key)
	if err != nil || !s.Held {
		t.Fatalf("held: %v, %v, want it to be: it was left to expire", s.Held, err)
	}
	k, err := l.Adopt(t.Context(), key, s.Value, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func setup(t *testing.T) (*sql.DB, []string) {
	t.Helper()
	urls, stop, err := nodes.URLs()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	db, err := nodes.Database(schema)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db, urls
}
