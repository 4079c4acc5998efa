// Fenced-sql shows what a lock cannot do and a store can. A holder sleeps past its
// Until, and another acquires the lock and writes. When the first one wakes and
// writes, too, the table refuses it because its fence is smaller.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/seed-ce352c9b/redlock/examples/internal/setup"
)

const schema = `
CREATE TABLE prices (sku TEXT PRIMARY KEY, cents INTEGER NOT NULL, fence INTEGER NOT NULL);
INSERT INTO prices VALUES ('sku-1', 1000, 0);`

var errFenced = errors.New("refused: a later holder of the lock has written")

// setPrice writes unless a holder with a greater fence has written. It may be called
// once per lock. With <= instead of <, it could be called again, and retried after a
// lost reply.
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

func main() { setup.Main(schema, run) }

func run(ctx context.Context, env *setup.Env) error {
	slow, quick := env.Locker("slow"), env.Locker("quick")
	first, err := slow.Acquire(ctx, "prices/sku-1", 300*time.Millisecond)
	if err != nil {
		return err
	}
	fmt.Println("slow has the lock and sleeps, as in a long garbage collection or on a suspended machine")

	second, err := quick.Acquire(ctx, "prices/sku-1", 10*time.Second) // waits until the key expires
	if err != nil {
		return err
	}
	defer second.Release(ctx)
	if err := setPrice(ctx, env.DB, "sku-1", 1200, second.Fence()); err != nil {
		return err
	}
	fmt.Println("quick has the lock and sets the price to 1200; its fence is greater:", second.Fence() > first.Fence())

	fmt.Println("slow wakes; its lock is valid:", first.Valid())
	err = setPrice(ctx, env.DB, "sku-1", 900, first.Fence())
	fmt.Println("slow sets the price to 900:", err)
	if !errors.Is(err, errFenced) {
		return errors.New("the table accepted a smaller fence")
	}
	var cents int
	if err := env.DB.QueryRowContext(ctx, `SELECT cents FROM prices WHERE sku = 'sku-1'`).Scan(&cents); err != nil {
		return err
	}
	fmt.Println("the price is", cents)
	return nil
}
