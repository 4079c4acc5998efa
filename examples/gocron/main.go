// Gocron makes a Locker the distributed lock of the schedulers of go-co-op/gocron: of
// three schedulers that tick a little apart, one runs the job, at every tick.
package main

import (
	"context"
	"fmt"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/examples/internal/setup"
)

// A locker is a gocron.Locker for jobs with one interval.
type locker struct {
	l        *redlock.Locker
	interval time.Duration
}

// Lock acquires the lock of a job at its tick. If it fails, gocron does not run the job.
func (g locker) Lock(ctx context.Context, key string) (gocron.Lock, error) {
	lock, err := g.l.TryAcquire(ctx, "gocron/"+key, min(g.interval/2, 10*time.Second))
	if err != nil {
		return nil, err
	}
	// gocron cannot stop a job, so nobody looks at the context: the lock is renewed as long as
	// the job runs.
	_, stop := lock.KeepAlive(context.WithoutCancel(ctx))
	return held{lock: lock, stop: stop, until: lock.Started().Add(g.interval / 2)}, nil
}

type held struct {
	lock  *redlock.Lock
	stop  context.CancelFunc
	until time.Time
}

// Unlock keeps the schedulers out that tick a little later.
func (h held) Unlock(ctx context.Context) error {
	defer h.stop()
	return h.lock.LeaveUntil(ctx, h.until)
}

// schedule starts a scheduler that runs the job at every interval from begin on.
func schedule(l *redlock.Locker, name string, begin time.Time, interval time.Duration, job func()) (gocron.Scheduler, error) {
	s, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker{l, interval}))
	if err != nil {
		return nil, err
	}
	_, err = s.NewJob(gocron.DurationJob(interval), gocron.NewTask(job), gocron.WithName(name), gocron.WithStartAt(gocron.WithStartDateTime(begin)))
	if err != nil {
		return nil, err
	}
	s.Start()
	return s, nil
}

func main() {
	setup.Main("", func(ctx context.Context, env *setup.Env) error {
		begin := time.Now().Add(time.Second)
		for i, l := range env.Lockers("scheduler", 3) {
			s, err := schedule(l, "report", begin.Add(time.Duration(i)*30*time.Millisecond), 500*time.Millisecond, func() {
				fmt.Printf("%s report sent by scheduler-%d\n", time.Now().Format("15:04:05.000"), i+1)
			})
			if err != nil {
				return err
			}
			defer s.Shutdown()
		}
		time.Sleep(time.Until(begin) + 1750*time.Millisecond)
		return nil
	})
}
