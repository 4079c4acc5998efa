package main

import (
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/seed-ce352c9b/redlock/examples/internal/setup"
)

func TestSellsWhatThereIs(t *testing.T) {
	env := setup.Test(t, schema)
	sold, left, err := sale(t.Context(), env, 20)
	if err != nil || sold != 5 || left != 0 {
		t.Errorf("got %d sold, %d left, %v, want 5 sold, 0 left", sold, left, err)
	}
}

// Two holders both take their lock to be valid, at every interleaving of their
// steps: the table never sells more than the stock.
func TestTableAloneDoesNotOversell(t *testing.T) {
	const one, two = 1, 2
	for _, order := range [][]int64{{one, one, two, two}, {one, two, one, two}, {one, two, two, one}, {two, one, two, one}, {two, one, one, two}, {two, two, one, one}} {
		env := setup.Test(t, schema)
		if _, err := env.DB.Exec(`UPDATE stock SET left = 1`); err != nil {
			t.Fatal(err)
		}
		type holder struct {
			left    int
			claimed bool
		}
		holders := map[int64]*holder{}
		sold := 0
		for _, fence := range order {
			h := holders[fence]
			if h == nil {
				left, err := claim(t.Context(), env.DB, "sku-1", fence)
				if err != nil && !errors.Is(err, errFenced) {
					t.Fatal(err)
				}
				holders[fence] = &holder{left: left, claimed: err == nil}
				continue
			}
			if !h.claimed || h.left == 0 {
				continue
			}
			if err := place(t, env.DB, h.left, fence); err == nil {
				sold++
			} else if !errors.Is(err, errFenced) {
				t.Fatal(err)
			}
		}
		if sold != 1 {
			t.Errorf("steps of fences %v: got %d sold, want 1", order, sold)
		}
	}
}

func place(t *testing.T, db *sql.DB, left int, fence int64) error {
	return order(t.Context(), db, "sku-1", fmt.Sprint("buyer-", fence), left-1, fence)
}
