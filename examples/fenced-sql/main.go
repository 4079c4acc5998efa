// Fenced-sql shows what a lock can not do and a store can: a holder sleeps past
// its Until, another takes the lock and writes, and when the first wakes and
// writes, too, the table refuses it because its fence is the smaller one.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/examples/internal/nodes"
)

const schema = `
CREATE TABLE prices (sku TEXT PRIMARY KEY, cents INTEGER NOT NULL, fence INTEGER NOT NULL);
INSERT INTO prices VALUES ('sku-1', 1000, 0);`

var errFenced = errors.New("refused: a later holder of the lock has written")

// setPrice writes unless a holder with a greater fence has. It may be called once
// per lock: with <= instead of < it could be called again, and after a lost answer
// tried again.
func setPrice(ctx context.Context, db *sql.DB, sku string, cents int, fence int64) error {
	res, err := db.ExecContext(ctx,
		`UPDATE prices SET cents = ?, fence = ? WHERE sku = ? AND fence < ?`,
		cents, fence, sku, fence)
	if err != nil {
		return err
	}
	if n, err := res.RowsAffected(); err != nil || n == 1 {
		return err
	}
	return errFenced
}

func main() {
	urls, stop, err := nodes.URLs()
	if err != nil {
		log.Fatal(err)
	}
	defer stop()
	db, err := nodes.Database(schema)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if err := run(context.Background(), db, urls); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, db *sql.DB, urls []string) error {
	slow, err := redlock.Open(redlock.Options{Name: "slow"}, urls...)
	if err != nil {
		return err
	}
	defer slow.Close()
	quick, err := redlock.Open(redlock.Options{Name: "quick"}, urls...)
	if err != nil {
		return err
	}
	defer quick.Close()

	first, err := slow.Acquire(ctx, "prices/sku-1", 300*time.Millisecond)
	if err != nil {
		return err
	}
	fmt.Println("slow has the lock and falls asleep, as a long collection or a suspended machine does")

	second, err := quick.Acquire(ctx, "prices/sku-1", 10*time.Second) // waits until the nodes let go of it
	if err != nil {
		return err
	}
	defer second.Release(ctx)
	if err := setPrice(ctx, db, "sku-1", 1200, second.Fence()); err != nil {
		return err
	}
	fmt.Println("quick has the lock and sets the price to 1200; its fence is greater:", second.Fence() > first.Fence())

	fmt.Println("slow wakes; its lock is valid:", first.Valid())
	err = setPrice(ctx, db, "sku-1", 900, first.Fence())
	fmt.Println("slow sets the price to 900:", err)
	if !errors.Is(err, errFenced) {
		return errors.New("the table let a smaller fence in")
	}
	var cents int
	if err := db.QueryRowContext(ctx, `SELECT cents FROM prices WHERE sku = 'sku-1'`).Scan(&cents); err != nil {
		return err
	}
	fmt.Println("the price is", cents)
	return nil
}
