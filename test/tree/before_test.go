package tree_test

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/seed-ce352c9b/redlock"
)

// The "before" halves of the eight programs of docs/guide.md: what each looked like
// without WithWait, LeaveUntil, RunAll and Lead. Each compiles, and has the fault
// that the guide names.
var _ = []any{beforeHandler, beforeCron, beforeLeader, beforeTransfer, beforeWorker, beforeIdempotency, gocronLocker.Lock, gocronLock.Unlock}

var work func(ctx context.Context, fence int64) error

func beforeHandler(l *redlock.Locker, w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), 200*time.Millisecond)
	defer cancel()
	err := l.Run(ctx, "orders/"+r.PathValue("order"), 10*time.Second, func(ctx context.Context, lock *redlock.Lock) error {
		return work(ctx, lock.Fence())
	})
	switch {
	case err == nil:
		w.WriteHeader(http.StatusNoContent)
	case errors.Is(err, context.DeadlineExceeded):
		http.Error(w, "the order is being processed", http.StatusConflict)
	default:
		http.Error(w, "internal error", http.StatusInternalServerError)
	}
}

func beforeCron(ctx context.Context, l *redlock.Locker, job string, interval time.Duration, run func(ctx context.Context, fence int64) error) error {
	lock, err := l.TryAcquire(ctx, "cron/"+job, interval*9/10)
	if errors.Is(err, redlock.ErrHeld) {
		return nil // it runs elsewhere, or has run
	}
	if err != nil {
		return err
	}
	held, stop := lock.KeepAlive(ctx)
	defer stop()
	return run(held, lock.Fence()) // no Release: the key expires
}

func beforeLeader(ctx context.Context, l *redlock.Locker, schedule func(ctx context.Context, term int64) error) error {
	for {
		err := l.Run(ctx, "leader/scheduler", 15*time.Second, func(ctx context.Context, lock *redlock.Lock) error {
			return schedule(ctx, lock.Fence())
		})
		if err != nil && !errors.Is(err, redlock.ErrLost) {
			return err
		}
	}
}

func beforeTransfer(ctx context.Context, l *redlock.Locker, from, to string, transfer func(ctx context.Context, fences []int64) error) error {
	return l.Run(ctx, from, 10*time.Second, func(ctx context.Context, a *redlock.Lock) error {
		return l.Run(ctx, to, 10*time.Second, func(ctx context.Context, b *redlock.Lock) error {
			return transfer(ctx, []int64{a.Fence(), b.Fence()})
		})
	})
}

func beforeWorker(ctx context.Context, l *redlock.Locker, message string) (ack bool) {
	lock, err := l.TryAcquire(ctx, "messages/"+message, 10*time.Second)
	if err != nil {
		return false
	}
	defer lock.Release(ctx)
	held, stop := lock.KeepAlive(ctx)
	defer stop()
	return work(held, lock.Fence()) == nil
}

func beforeIdempotency(ctx context.Context, l *redlock.Locker, formID string) (answer string, err error) {
	lock, err := l.TryAcquire(ctx, "submit/"+formID, time.Hour)
	if errors.Is(err, redlock.ErrHeld) {
		return "done before", nil
	}
	if err != nil {
		return "", err
	}
	// no Release: the key remembers the form for an hour
	return "done", work(ctx, lock.Fence())
}

type gocronLocker struct{ *redlock.Locker }

type gocronLock struct{ *redlock.Lock }

func (l gocronLocker) Lock(ctx context.Context, job string) (gocronLock, error) {
	lock, err := l.TryAcquire(ctx, "cron/"+job, 10*time.Second)
	return gocronLock{lock}, err // an error: gocron skips the run
}

func (k gocronLock) Unlock(ctx context.Context) error {
	return k.Release(ctx)
}
