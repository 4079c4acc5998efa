// Payments makes the payments of one account one after another, from two
// processes. Each calls a payment provider, which may be slow. Other accounts do
// not wait.
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
CREATE TABLE accounts (id TEXT PRIMARY KEY, balance INTEGER NOT NULL, fence INTEGER NOT NULL);
CREATE TABLE payments (id TEXT PRIMARY KEY, account TEXT NOT NULL, amount INTEGER NOT NULL);
INSERT INTO accounts VALUES ('acc-7', 100, 0);`

var (
	errFunds  = errors.New("insufficient funds")
	errFenced = errors.New("a later holder of the lock has written")
)

// A provider moves the money. It must recognize a payment by its ID and move it
// once, however often it is called: no lock can undo a call.
type provider func(ctx context.Context, paymentID string, amount int) error

// pay makes one payment. Run keeps the lock alive while the provider works, and
// cancels ctx when the lock is lost.
func pay(ctx context.Context, l *redlock.Locker, db *sql.DB, send provider, account, paymentID string, amount int) error {
	return l.Run(ctx, "account/"+account, 5*time.Second, func(ctx context.Context, lock *redlock.Lock) error {
		balance, err := claim(ctx, db, account, lock.Fence())
		if err != nil {
			return err
		}
		done, err := paid(ctx, db, paymentID)
		if done || err != nil {
			return err // the same payment, requested again
		}
		if balance < amount {
			return errFunds
		}
		if err := send(ctx, paymentID, amount); err != nil {
			return err
		}
		return book(ctx, db, account, paymentID, amount, lock.Fence())
	})
}

// claim writes our fence into the account and then reads the balance. From now on,
// nobody with a smaller fence can book.
func claim(ctx context.Context, db *sql.DB, account string, fence int64) (balance int, err error) {
	err = db.QueryRowContext(ctx,
		`UPDATE accounts SET fence = ? WHERE id = ? AND fence < ? RETURNING balance`,
		fence, account, fence).Scan(&balance)
	if errors.Is(err, sql.ErrNoRows) {
		err = errFenced
	}
	return balance, err
}

func paid(ctx context.Context, db *sql.DB, paymentID string) (done bool, err error) {
	err = db.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM payments WHERE id = ?)`, paymentID).Scan(&done)
	return done, err
}

// book writes the payment and the balance if we still have the claim on the account.
// If it returns errFenced, the payment was sent, but we slept past the lock, and a
// later holder decided by a balance without it. The payment has to be requested
// again: the provider recognizes it, and it is booked or exceeds the balance.
func book(ctx context.Context, db *sql.DB, account, paymentID string, amount int, fence int64) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	res, err := tx.ExecContext(ctx,
		`UPDATE accounts SET balance = balance - ? WHERE id = ? AND fence = ?`,
		amount, account, fence)
	if err != nil {
		return err
	}
	if n, err := res.RowsAffected(); err != nil {
		return err
	} else if n == 0 {
		return errFenced
	}
	if _, err := tx.ExecContext(ctx, `INSERT INTO payments VALUES (?, ?, ?)`, paymentID, account, amount); err != nil {
		return err
	}
	return tx.Commit()
}

func main() {
	setup.Main(schema, func(ctx context.Context, env *setup.Env) error {
		send := func(ctx context.Context, id string, amount int) error {
			fmt.Println("provider: sent", amount, "for", id)
			return nil
		}
		booked, balance, err := payAll(ctx, env, send)
		if err == nil {
			fmt.Println(booked, "payments booked, balance", balance)
		}
		return err
	})
}

// payAll requests six payments of 30 at once, each of them twice.
func payAll(ctx context.Context, env *setup.Env, send provider) (booked, balance int, err error) {
	workers := env.Lockers("worker", 2)
	for _, e := range setup.AtOnce(12, func(i int) error {
		return pay(ctx, workers[i%2], env.DB, send, "acc-7", fmt.Sprint("pay-", i/2), 30)
	}) {
		if e != nil && !errors.Is(e, errFunds) {
			return 0, 0, e
		}
	}
	err = env.DB.QueryRowContext(ctx, `SELECT (SELECT count(*) FROM payments), balance FROM accounts`).Scan(&booked, &balance)
	return booked, balance, err
}
