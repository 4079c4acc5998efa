package main

import (
	"errors"
	"testing"

	"github.com/seed-ce352c9b/redlock/examples/internal/setup"
)

func TestSleeperIsRefused(t *testing.T) {
	env := setup.Test(t, schema)
	if err := run(t.Context(), env); err != nil {
		t.Fatal(err)
	}
	var cents int
	if err := env.DB.QueryRow(`SELECT cents FROM prices`).Scan(&cents); err != nil || cents != 1200 {
		t.Errorf("price: got %d, %v, want 1200: that of the later holder", cents, err)
	}
}

func TestSetPriceRefusesSmallerAndEqual(t *testing.T) {
	env := setup.Test(t, schema)
	for _, c := range []struct {
		fence int64
		want  error
	}{{5, nil}, {5, errFenced}, {4, errFenced}, {6, nil}} {
		if got := setPrice(t.Context(), env.DB, "sku-1", 1, c.fence); !errors.Is(got, c.want) {
			t.Errorf("fence %d: got %v, want %v", c.fence, got, c.want)
		}
	}
}
