package main

import (
	"context"
	"errors"
	"testing"

	"github.com/seed-ce352c9b/redlock/examples/internal/setup"
)

func TestWorkedOnOnce(t *testing.T) {
	env := setup.Test(t, schema)
	a, b := env.Locker("test"), env.Locker("test")
	worked := 0
	work := func(ctx context.Context) (string, error) {
		worked++
		// The same form, while it is processed:
		if _, err := submit(ctx, b, env.DB, "form-9", nil); !errors.Is(err, errBusy) {
			t.Errorf("sent again meanwhile: got %v, want %v", err, errBusy)
		}
		return "receipt-1", nil
	}
	for range 2 {
		if got, err := submit(t.Context(), a, env.DB, "form-9", work); got != "receipt-1" || err != nil {
			t.Errorf("got %q, %v, want the receipt", got, err)
		}
	}
	if worked != 1 {
		t.Errorf("processed %d times, want once", worked)
	}
}

func TestFailedWorkIsTriedAgain(t *testing.T) {
	env := setup.Test(t, schema)
	l := env.Locker("test")
	broken := errors.New("broken")
	if _, err := submit(t.Context(), l, env.DB, "form-9", func(context.Context) (string, error) { return "", broken }); !errors.Is(err, broken) {
		t.Errorf("got %v, want %v", err, broken)
	}
	got, err := submit(t.Context(), l, env.DB, "form-9", func(context.Context) (string, error) { return "receipt-2", nil })
	if got != "receipt-2" || err != nil {
		t.Errorf("sent again: got %q, %v, want receipt-2", got, err)
	}
}

// A holder that slept past the lock while it worked cannot store a receipt.
func TestLateHolderDoesNotFinish(t *testing.T) {
	env := setup.Test(t, schema)
	l := env.Locker("test")
	_, err := submit(t.Context(), l, env.DB, "form-9", func(ctx context.Context) (string, error) {
		s, err := l.Inspect(ctx, "submit/form-9")
		if err != nil {
			return "", err
		}
		_, err = claim(ctx, env.DB, "form-9", s.Fence+1)
		return "late", err
	})
	if !errors.Is(err, errFenced) {
		t.Errorf("got %v, want %v", err, errFenced)
	}
}
