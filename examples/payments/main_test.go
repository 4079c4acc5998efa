package main

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/examples/internal/nodes"
)

func TestPaysOnceEachAndNotMoreThanThereIs(t *testing.T) {
	db, urls := setup(t)
	var mu sync.Mutex
	sent := map[string]int{}
	inside := 0
	booked, balance, err := payAll(t.Context(), db, urls, func(_ context.Context, id string, _ int) error {
		mu.Lock()
		sent[id]++
		if inside++; inside > 1 {
			t.Error("two payments of one account at a time")
		}
		mu.Unlock()
		time.Sleep(5 * time.Millisecond)
		mu.Lock()
		inside--
		mu.Unlock()
		return nil
	})
	if err != nil || booked != 3 || balance != 10 {
		t.Errorf("got %d booked, balance %d, %v, want 3 booked, balance 10", booked, balance, err)
	}
	for id, n := range sent {
		if n != 1 {
			t.Errorf("%s: sent %d times, want once", id, n)
		}
	}
}

// The holder's lock is gone when the provider answers: another has claimed the
// account. Nothing is booked, and the error says so.
func TestLateHolderDoesNotBook(t *testing.T) {
	db, urls := setup(t)
	l, err := redlock.Open(redlock.Options{}, urls...)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	err = pay(t.Context(), l, db, func(ctx context.Context, _ string, _ int) error {
		s, err := l.Inspect(ctx, "account/acc-7")
		if err != nil {
			return err
		}
		_, err = claim(ctx, db, "acc-7", s.Fence+1)
		return err
	}, "acc-7", "pay-1", 30)
	if !errors.Is(err, errFenced) {
		t.Errorf("got %v, want %v", err, errFenced)
	}
	var balance int
	if err := db.QueryRow(`SELECT balance FROM accounts`).Scan(&balance); err != nil || balance != 100 {
		t.Errorf("balance: got %d, %v, want 100", balance, err)
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
