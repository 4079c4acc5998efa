package main

import (
	"database/sql"
	"errors"
	"testing"

	"github.com/seed-ce352c9b/redlock/examples/internal/nodes"
)

func TestSleeperIsRefused(t *testing.T) {
	db, urls := setup(t)
	if err := run(t.Context(), db, urls); err != nil {
		t.Fatal(err)
	}
	var cents int
	if err := db.QueryRow(`SELECT cents FROM prices`).Scan(&cents); err != nil || cents != 1200 {
		t.Errorf("price: got %d, %v, want 1200: that of the later holder", cents, err)
	}
}

func TestSetPriceRefusesSmallerAndEqual(t *testing.T) {
	db, _ := setup(t)
	for _, c := range []struct {
		fence int64
		want  error
	}{{5, nil}, {5, errFenced}, {4, errFenced}, {6, nil}} {
		if got := setPrice(t.Context(), db, "sku-1", 1, c.fence); !errors.Is(got, c.want) {
			t.Errorf("fence %d: got %v, want %v", c.fence, got, c.want)
		}
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
