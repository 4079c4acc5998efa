// Cron runs a job once per interval, although three schedulers tick. The lock is
// not released after the run but left to expire shortly before the next tick, and
// so keeps the late out. What it can not promise, once over any restart and any
// pause, the table does: it remembers the interval that was run last.
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
CREATE TABLE jobs (name TEXT PRIMARY KEY, slot INTEGER NOT NULL, fence INTEGER NOT NULL);
INSERT INTO jobs VALUES ('report', 0, 0);`

// once runs the job for the interval that tick falls into, unless it was run. It
// reports whether it did.
func once(ctx context.Context, l *redlock.Locker, db *sql.DB, job string, interval time.Duration, tick time.Time, run func(ctx context.Context) error) (ran bool, err error) {
	// One key for all intervals, so that fences grow from one to the next. Nine
	// tenths, so that a node whose clock is slow has let go of it by the next tick.
	lock, err := l.TryAcquire(ctx, "cron/"+job, interval*9/10)
	if errors.Is(err, redlock.ErrHeld) {
		return false, nil // it runs elsewhere, or has run
	}
	if err != nil {
		return false, err
	}
	// In place of Release: the lock stays until its ttl is over, and a scheduler that is
	// shut down does not let the next one in. A job that may take longer than the
	// interval needs a KeepAlive, and this after it.
	lock.LeaveToExpire()
	if ok, err := claim(ctx, db, job, tick.Truncate(interval).UnixNano(), lock.Fence()); !ok || err != nil {
		return false, err
	}
	return true, run(ctx)
}

// claim books the interval. It does so before the run: at most once. A job that
// may run twice but must not be missed books it afterwards.
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
	if err := schedule(context.Background(), db, urls, 500*time.Millisecond, 3, func(ctx context.Context, scheduler string) error {
		fmt.Println(time.Now().Format("15:04:05.000"), "report sent by", scheduler)
		return nil
	}); err != nil {
		log.Fatal(err)
	}
}

// schedule has three schedulers tick for some intervals.
func schedule(ctx context.Context, db *sql.DB, urls []string, interval time.Duration, intervals int, run func(ctx context.Context, scheduler string) error) error {
	begin := time.Now().Truncate(interval).Add(interval)
	var wg sync.WaitGroup
	errs := make([]error, 3)
	for i := range errs {
		name := fmt.Sprint("scheduler-", i+1)
		l, err := redlock.Open(redlock.Options{Name: name}, urls...)
		if err != nil {
			return err
		}
		defer l.Close()
		wg.Go(func() {
			for n := range intervals {
				tick := begin.Add(time.Duration(n) * interval)
				time.Sleep(time.Until(tick))
				_, err := once(ctx, l, db, "report", interval, tick, func(ctx context.Context) error { return run(ctx, name) })
				if err != nil {
					errs[i] = err
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
