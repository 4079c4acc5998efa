// Flash-sale sells a few items to many buyers from two web servers. The holder of
// the lock reads the stock, decides, and writes it back.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/examples/internal/setup"
)

const schema = `
CREATE TABLE stock (sku TEXT PRIMARY KEY, left INTEGER NOT NULL, fence INTEGER NOT NULL);
CREATE TABLE orders (sku TEXT, buyer TEXT, PRIMARY KEY (sku, buyer));
INSERT INTO stock VALUES ('sku-1', 5, 0);`

var (
	errSoldOut = errors.New("sold out")
	errFenced  = errors.New("a later holder of the lock has written")
)

// buy orders one item. While one buyer holds the lock, the others wait outside the
// database, so that the decision may take its time.
func buy(ctx context.Context, l *redlock.Locker, db *sql.DB, sku, buyer string) error {
	return l.Run(ctx, "sale/"+sku, 5*time.Second, func(ctx context.Context, lock *redlock.Lock) error {
		left, err := claim(ctx, db, sku, lock.Fence())
		if err != nil {
			return err
		}
		if left == 0 {
			return errSoldOut
		}
		// A real shop would compute a price here, check a limit per customer, ask a warehouse.
		return order(ctx, db, sku, buyer, left-1, lock.Fence())
	})
}

// claim writes our fence into the row and then reads it. From now on the table
// refuses smaller fences: a holder that slept past its Until can no longer change
// the stock that we decide on.
func claim(ctx context.Context, db *sql.DB, sku string, fence int64) (left int, err error) {
	err = db.QueryRowContext(ctx,
		`UPDATE stock SET fence = ? WHERE sku = ? AND fence < ? RETURNING left`,
		fence, sku, fence).Scan(&left)
	if errors.Is(err, sql.ErrNoRows) {
		err = errFenced
	}
	return left, err
}

// order writes if we still have the claim on the row. Otherwise we slept, and a
// later holder has decided.
func order(ctx context.Context, db *sql.DB, sku, buyer string, left int, fence int64) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	res, err := tx.ExecContext(ctx, `UPDATE stock SET left = ? WHERE sku = ? AND fence = ?`, left, sku, fence)
	if err != nil {
		return err
	}
	if n, err := res.RowsAffected(); err != nil {
		return err
	} else if n == 0 {
		return errFenced
	}
	if _, err := tx.ExecContext(ctx, `INSERT INTO orders VALUES (?, ?)`, sku, buyer); err != nil {
		return err
	}
	return tx.Commit()
}

func main() {
	setup.Main(schema, func(ctx context.Context, env *setup.Env) error {
		sold, left, err := sale(ctx, env, 12)
		if err == nil {
			fmt.Println(sold, "sold,", left, "left")
		}
		return err
	})
}

// sale sends the buyers to two web servers and counts the orders.
func sale(ctx context.Context, env *setup.Env, buyers int) (sold, left int, err error) {
	servers := env.Lockers("web", 2)
	for _, e := range setup.AtOnce(buyers, func(i int) error {
		buyer := fmt.Sprint("buyer-", i)
		err := buy(ctx, servers[i%2], env.DB, "sku-1", buyer)
		fmt.Println(buyer, outcome(err))
		return err
	}) {
		if e != nil && !errors.Is(e, errSoldOut) {
			return 0, 0, e
		}
	}
	err = env.DB.QueryRowContext(ctx, `SELECT (SELECT count(*) FROM orders), left FROM stock`).Scan(&sold, &left)
	return sold, left, err
}

func outcome(err error) string {
	if err != nil {
		return err.Error()
	}
	return "has one"
}
