package main

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/seed-ce352c9b/redlock/examples/internal/setup"
)

func TestPaysOnceEachAndNotMoreThanThereIs(t *testing.T) {
	env := setup.Test(t, schema)
	var mu sync.Mutex
	sent := map[string]int{}
	inside := 0
	booked, balance, err := payAll(t.Context(), env, func(_ context.Context, id string, _ int) error {
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

// Another holder has claimed the account when the provider replies. Nothing is
// booked, and pay returns errFenced.
func TestLateHolderDoesNotBook(t *testing.T) {
	env := setup.Test(t, schema)
	l := env.Locker("test")
	err := pay(t.Context(), l, env.DB, func(ctx context.Context, _ string, _ int) error {
		s, err := l.Inspect(ctx, "account/acc-7")
		if err != nil {
			return err
		}
		_, err = claim(ctx, env.DB, "acc-7", s.Fence+1)
		return err
	}, "acc-7", "pay-1", 30)
	if !errors.Is(err, errFenced) {
		t.Errorf("got %v, want %v", err, errFenced)
	}
	var balance int
	if err := env.DB.QueryRow(`SELECT balance FROM accounts`).Scan(&balance); err != nil || balance != 100 {
		t.Errorf("balance: got %d, %v, want 100", balance, err)
	}
}
