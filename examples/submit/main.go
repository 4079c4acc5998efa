// Submit accepts a form that may be sent twice to two web servers: by a double
// click, a reload, or a proxy that retries. While the first request is processed,
// the lock rejects the second; afterwards the table answers it, and decides.
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
CREATE TABLE submissions (form TEXT PRIMARY KEY, fence INTEGER NOT NULL, receipt TEXT);`

var (
	errBusy   = errors.New("the form is being processed, try again") // HTTP 409
	errFenced = errors.New("a later holder of the lock has written")
)

// submit processes a form once and returns its receipt, which may be from an earlier
// call. The form's ID was drawn when the page was made, so it is the same however
// often the form is sent.
func submit(ctx context.Context, l *redlock.Locker, db *sql.DB, form string, work func(ctx context.Context) (receipt string, err error)) (string, error) {
	lock, err := l.TryAcquire(ctx, "submit/"+form, 5*time.Second)
	if errors.Is(err, redlock.ErrHeld) {
		return "", errBusy
	}
	if err != nil {
		return "", err
	}
	defer lock.Release(ctx)
	held, stop := lock.KeepAlive(ctx)
	defer stop()

	receipt, err := claim(held, db, form, lock.Fence())
	if receipt != "" || err != nil {
		return receipt, err
	}
	if receipt, err = work(held); err != nil {
		return "", err // the claim stays without a receipt: if the form is sent again, it is processed again
	}
	return receipt, finish(held, db, form, receipt, lock.Fence())
}

// claim books the form for our fence. If the form has a receipt, claim returns that instead.
func claim(ctx context.Context, db *sql.DB, form string, fence int64) (receipt string, err error) {
	_, err = db.ExecContext(ctx,
		`INSERT INTO submissions (form, fence) VALUES (?, ?)
		 ON CONFLICT (form) DO UPDATE SET fence = excluded.fence WHERE fence < excluded.fence AND receipt IS NULL`,
		form, fence)
	if err != nil {
		return "", err
	}
	var owner int64
	var done sql.NullString
	if err := db.QueryRowContext(ctx, `SELECT fence, receipt FROM submissions WHERE form = ?`, form).Scan(&owner, &done); err != nil {
		return "", err
	}
	if !done.Valid && owner != fence {
		return "", errFenced
	}
	return done.String, nil
}

// finish stores the receipt if the form is still booked for our fence.
func finish(ctx context.Context, db *sql.DB, form, receipt string, fence int64) error {
	res, err := db.ExecContext(ctx, `UPDATE submissions SET receipt = ? WHERE form = ? AND fence = ?`, receipt, form, fence)
	if err != nil {
		return err
	}
	if n, err := res.RowsAffected(); err != nil || n == 1 {
		return err
	}
	return errFenced
}

func main() {
	setup.Main(schema, func(ctx context.Context, env *setup.Env) error {
		return click(ctx, env, func(ctx context.Context) (string, error) {
			fmt.Println("working on it")
			time.Sleep(100 * time.Millisecond)
			return "receipt-1", nil
		})
	})
}

// click sends one form to two web servers at once, and then once more.
func click(ctx context.Context, env *setup.Env, work func(ctx context.Context) (string, error)) error {
	servers := env.Lockers("web", 2)
	setup.AtOnce(len(servers), func(i int) error {
		receipt, err := submit(ctx, servers[i], env.DB, "form-9", work)
		fmt.Printf("web-%d: %q %v\n", i+1, receipt, err)
		return err
	})
	receipt, err := submit(ctx, servers[1], env.DB, "form-9", work)
	fmt.Printf("later: %q %v\n", receipt, err)
	return err
}
