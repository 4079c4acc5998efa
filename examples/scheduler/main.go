// Scheduler assigns pods to machines, as the scheduler of a cluster does: several
// replicas run, one of them leads and binds what is pending, and the others take
// over when it ends. What a former leader binds late is refused by its term.
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
CREATE TABLE pods (name TEXT PRIMARY KEY, machine TEXT, term INTEGER);
CREATE TABLE terms (term INTEGER NOT NULL);
INSERT INTO terms VALUES (0);
INSERT INTO pods (name) VALUES ('web-1'), ('web-2'), ('db-1'), ('db-2'), ('queue-1'), ('queue-2');`

const (
	leaderKey = "leader/scheduler"
	leaderTTL = 3 * time.Second
)

var errDeposed = errors.New("a later leader has begun its term")

// A replica is one process of the scheduler.
type replica struct {
	name string
	l    *redlock.Locker
	db   *sql.DB

	bound func(ctx context.Context, pod string) // called after each binding
}

// run campaigns and leads until ctx is done.
func (r *replica) run(ctx context.Context) error {
	err := r.l.Lead(ctx, leaderKey, leaderTTL, func(ctx context.Context, lock *redlock.Lock) error {
		err := r.lead(ctx, lock.Fence())
		if errors.Is(err, errDeposed) || ctx.Err() != nil {
			err = nil // another leads: campaign again
		}
		return err
	}, redlock.WithLabel(r.name))
	if ctx.Err() != nil {
		err = nil
	}
	return err
}

// lead binds what is pending until ctx ends.
func (r *replica) lead(ctx context.Context, term int64) error {
	// From now on, no earlier leader can bind.
	if err := update(ctx, r.db, `UPDATE terms SET term = ?1 WHERE term < ?1`, term); err != nil {
		return err
	}
	for {
		pod, err := r.pending(ctx)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			select {
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
				return ctx.Err()
			}
			continue
		case err != nil:
			return err
		}
		if err := r.bind(ctx, pod, "machine-of-"+pod, term); err != nil {
			return err
		}
		r.bound(ctx, pod)
	}
}

func (r *replica) pending(ctx context.Context) (pod string, err error) {
	err = r.db.QueryRowContext(ctx, `SELECT name FROM pods WHERE machine IS NULL ORDER BY name LIMIT 1`).Scan(&pod)
	return pod, err
}

// bind assigns a pod once, and only in the current term.
func (r *replica) bind(ctx context.Context, pod, machine string, term int64) error {
	return update(ctx, r.db,
		`UPDATE pods SET machine = ?, term = ? WHERE name = ? AND machine IS NULL AND ? = (SELECT term FROM terms)`,
		machine, term, pod, term)
}

// update changes one row. It returns errDeposed if the term of the statement has passed.
func update(ctx context.Context, db *sql.DB, query string, args ...any) error {
	res, err := db.ExecContext(ctx, query, args...)
	if err != nil {
		return err
	}
	n, err := res.RowsAffected()
	if err == nil && n == 0 {
		err = errDeposed
	}
	return err
}

func main() { setup.Main(schema, schedule) }

// schedule runs two replicas. Each ends after it has bound three pods.
func schedule(ctx context.Context, env *setup.Env) error {
	lockers := env.Lockers("scheduler", 2)
	return errors.Join(setup.AtOnce(len(lockers), func(i int) error {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		left := 3
		r := &replica{name: fmt.Sprint("scheduler-", i+1), l: lockers[i], db: env.DB}
		r.bound = func(_ context.Context, pod string) {
			fmt.Println(r.name, "bound", pod)
			if left--; left == 0 {
				stop() // it is shut down, and its lock released: the other leads at once
			}
		}
		return r.run(ctx)
	})...)
}
