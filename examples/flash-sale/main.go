// Flash-sale sells a few items to many buyers from two web servers. Whoever has
// the lock reads the stock, decides, and writes it back.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/examples/internal/nodes"
)

const schema = `
CREATE TABLE stock (sku TEXT PRIMARY KEY, left INTEGER NOT NULL, fence INTEGER NOT NULL);
CREATE TABLE orders (sku TEXT, buyer TEXT, PRIMARY KEY (sku, buyer));
INSERT INTO stock VALUES ('sku-1', 5, 0);`

var (
	errSoldOut = errors.New("sold out")
	errFenced  = errors.New("a later holder of the lock has been here")
)

// buy orders one item. While the lock is held by one, the others queue outside the
// database, and what is decided may take its time.
func buy(ctx context.Context, l *redlock.Locker, db *sql.DB, sku, buyer string) error {
	return l.Run(ctx, "sale/"+sku, 5*time.Second, func(ctx context.Context, lock *redlock.Lock) error {
		left, err := claim(ctx, db, sku, lock.Fence())
		if err != nil {
			return err
		}
		if left == 0 {
			return errSoldOut
		}
		// Here a price is computed, a limit per customer checked, a warehouse asked.
		return order(ctx, db, sku, buyer, left-1, lock.Fence())
	})
}

// claim puts our fence into the row before it is read. From here on the table
// refuses those with a smaller one: a holder that slept past its Until can no
// longer change what we are about to decide by.
func claim(ctx context.Context, db *sql.DB, sku string, fence int64) (left int, err error) {
	err = db.QueryRowContext(ctx,
		`UPDATE stock SET fence = ? WHERE sku = ? AND fence < ? RETURNING left`,
		fence, sku, fence).Scan(&left)
	if errors.Is(err, sql.ErrNoRows) {
		err = errFenced
	}
	return left, err
}

// order writes if the row is still claimed by us: otherwise we slept, and it was
// decided anew.
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
	sold, left, err := sale(context.Background(), db, urls, 12)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(sold, "sold,", left, "left")
}

// sale sends the buyers to two web servers and counts the orders.
func sale(ctx context.Context, db *sql.DB, urls []string, buyers int) (sold, left int, err error) {
	var servers [2]*redlock.Locker
	for i := range servers {
		if servers[i], err = redlock.Open(redlock.Options{Name: fmt.Sprint("web-", i+1)}, urls...); err != nil {
			return 0, 0, err
		}
		defer servers[i].Close()
	}
	var wg sync.WaitGroup
	errs := make([]error, buyers)
	for i := range buyers {
		wg.Go(func() {
			buyer := fmt.Sprint("buyer-", i)
			errs[i] = buy(ctx, servers[i%2], db, "sku-1", buyer)
			fmt.Println(buyer, outcome(errs[i]))
		})
	}
	wg.Wait()
	for _, e := range errs {
		if e != nil && !errors.Is(e, errSoldOut) {
			return 0, 0, e
		}
	}
	err = db.QueryRowContext(ctx, `SELECT (SELECT count(*) FROM orders), left FROM stock`).Scan(&sold, &left)
	return sold, left, err
}

func outcome(err error) string {
	if err != nil {
		return err.Error()
	}
	return "has one"
}
