package main

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/examples/internal/nodes"
)

func TestWorkedOnOnce(t *testing.T) {
	db, urls := setup(t)
	a, b := open(t, urls), open(t, urls)
	worked := 0
	work := func(ctx context.Context) (string, error) {
		worked++
		// The same form, while it is worked on:
		if _, err := submit(ctx, b, db, "form-9", nil); !errors.Is(err, errBusy) {
			t.Errorf("sent again meanwhile: got %v, want %v", err, errBusy)
		}
		return "receipt-1", nil
	}
	for range 2 {
		if got, err := submit(t.Context(), a, db, "form-9", work); got != "receipt-1" || err != nil {
			t.Errorf("got %q, %v, want the receipt", got, err)
		}
	}
	if worked != 1 {
		t.Errorf("worked on %d times, want once", worked)
	}
}

func TestFailedWorkIsTriedAgain(t *testing.T) {
	db, urls := setup(t)
	l := open(t, urls)
	broken := errors.New("broken")
	if _, err := submit(t.Context(), l, db, "form-9", func(context.Context) (string, error) { return "", broken }); !errors.Is(err, broken) {
		t.Errorf("got %v, want %v", err, broken)
	}
	got, err := submit(t.Context(), l, db, "form-9", func(context.Context) (string, error) { return "receipt-2", nil })
	if got != "receipt-2" || err != nil {
		t.Errorf("sent again: got %q, %v, want receipt-2", got, err)
	}
}

// Whoever slept past the lock while working can not store a receipt.
func TestLateHolderDoesNotFinish(t *testing.T) {
	db, urls := setup(t)
	l := open(t, urls)
	_, err := submit(t.Context(), l, db, "form-9", func(ctx context.Context) (string, error) {
		s, err := l.Inspect(ctx, "submit/form-9")
		if err != nil {
			return "", err
		}
		_, err = claim(ctx, db, "form-9", s.Fence+1)
		return "late", err
	})
	if !errors.Is(err, errFenced) {
		t.Errorf("got %v, want %v", err, errFenced)
	}
}

func open(t *testing.T, urls []string) *redlock.Locker {
	t.Helper()
	l, err := redlock.Open(redlock.Options{}, urls...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
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
