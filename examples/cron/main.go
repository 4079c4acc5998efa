// Cron runs a job once per interval, although three schedulers tick. The lock is
// not released after the run: it stays until the middle of the interval, so that a
// late scheduler cannot acquire it, and is free at the next tick. The lock cannot
// promise a single run over any restart and any pause; the table can, since it
// remembers the last interval.
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
CREATE TABLE jobs (name TEXT PRIMARY KEY, slot INTEGER NOT NULL, fence INTEGER NOT NULL);
INSERT INTO jobs VALUES ('report', 0, 0);`

// once runs the job for the interval of tick, unless it ran already. It reports
// whether it did.
func once(ctx context.Context, l *redlock.Locker, db *sql.DB, job string, interval time.Duration, tick time.Time, run func(ctx context.Context) error) (ran bool, err error) {
	// There is one key for all intervals, so that fences grow from one to the next. The ttl
	// is at most half an interval, since LeaveUntil never shortens it.
	err = l.Run(ctx, "cron/"+job, min(interval/2, 10*time.Second), func(ctx context.Context, lock *redlock.Lock) error {
		var err error
		if ran, err = claim(ctx, db, job, tick.Truncate(interval).UnixNano(), lock.Fence()); ran {
			err = run(ctx)
		}
		// In place of Release: the key stays until the middle of the interval, even if this
		// scheduler is shut down. A job that takes longer than that leaves nobody to keep
		// out: then the lock is released, and the next tick finds it free.
		return errors.Join(err, lock.LeaveUntil(ctx, tick.Add(interval/2)))
	}, redlock.WithWait(0))
	if errors.Is(err, redlock.ErrHeld) {
		err = nil // the job is running elsewhere, or has run
	}
	return ran, err
}

// claim books the interval before the run, so that the job runs at most once. A job
// that may run twice but must not be missed has to book it afterwards.
func claim(ctx context.Context, db *sql.DB, job string, slot, fence int64) (ok bool, err error) {
	res, err := db.ExecContext(ctx,
		`UPDATE jobs SET slot = ?, fence = ? WHERE name = ? AND slot < ? AND fence < ?`,
		slot, fence, job, slot, fence)
	if err != nil {
		return false, err
	}
	n, err := res.RowsAffected()
	return n == 1, err
}

func main() {
	setup.Main(schema, func(ctx context.Context, env *setup.Env) error {
		return schedule(ctx, env, 500*time.Millisecond, 3, func(ctx context.Context, scheduler string) error {
			fmt.Println(time.Now().Format("15:04:05.000"), "report sent by", scheduler)
			return nil
		})
	})
}

// schedule has three schedulers tick for a number of intervals, 30 ms apart.
func schedule(ctx context.Context, env *setup.Env, interval time.Duration, intervals int, run func(ctx context.Context, scheduler string) error) error {
	begin := time.Now().Truncate(interval).Add(interval)
	lockers := env.Lockers("scheduler", 3)
	return errors.Join(setup.AtOnce(len(lockers), func(i int) (failed error) {
		name := fmt.Sprint("scheduler-", i+1)
		for n := range intervals {
			tick := begin.Add(time.Duration(n) * interval)
			if time.Since(tick) > interval/4 {
				continue // it has passed during the last run
			}
			time.Sleep(time.Until(tick) + time.Duration(i)*30*time.Millisecond)
			_, err := once(ctx, lockers[i], env.DB, "report", interval, tick, func(ctx context.Context) error { return run(ctx, name) })
			failed = errors.Join(failed, err)
		}
		return failed
	})...)
}
