package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ce352c9b/redlock"
)

const (
	mHeldLost    = "lost"
	mHeldPerLock = "renewals per lock"
	mHeldHeap    = "heap per lock, bytes"
	mHeldBusiest = "busiest second, as a multiple of the mean, after two renewals"
)

// held keeps many locks under KeepAlive. It measures the memory of each lock, counts the renewals, and checks that no lock is
// lost.
func held(ctx context.Context, b *bench) error {
	for _, n := range b.held {
		// Fence registers would otherwise stay for a day.
		if err := errors.Join(holdAll(ctx, b, n), b.flush(ctx)); err != nil {
			return err
		}
	}
	return nil
}

// A holder holds many locks of one Locker.
type holder struct {
	b               *bench
	locker          *redlock.Locker
	locks           []holding
	refused         atomic.Int64
	renewed, failed atomic.Int64 // renewals
	start           time.Time    // before the first lock was acquired
	bySecond        [120]atomic.Int64
}

type holding struct {
	lock *redlock.Lock // nil if it was refused
	held context.Context
	stop context.CancelFunc
}

// observe counts renewals.
func (h *holder) observe(_ context.Context, r redlock.Round) {
	if r.Op != redlock.OpExtend {
		return
	}
	yes := 0
	for _, v := range r.Votes {
		if v.Answer == redlock.Yes {
			yes++
		}
	}
	if yes >= r.Need {
		h.renewed.Add(1)
		if s := int(time.Since(h.start) / time.Second); s < len(h.bySecond) {
			h.bySecond[s].Add(1)
		}
	} else if h.failed.Add(1) == 1 {
		h.b.progress("a renewal without a quorum: %v", &redlock.QuorumError{Round: r, Err: redlock.ErrNoQuorum})
	}
}

func (h *holder) acquire(ctx context.Context) error {
	return parallel(len(h.locks), func(i int) error {
		k, err := h.locker.TryAcquire(ctx, heldKey(i), h.b.heldTTL)
		if err != nil {
			h.refused.Add(1)
			return ctx.Err()
		}
		held, stop := k.KeepAlive(ctx)
		h.locks[i] = holding{k, held, stop}
		return nil
	})
}

func heldKey(i int) string { return fmt.Sprintf("bench:held:%d", i) }

// hold lets the locks be renewed for a while.
func (h *holder) hold(ctx context.Context) error {
	h.renewed.Store(0)
	h.failed.Store(0)
	for end := time.Now().Add(h.b.heldFor); time.Now().Before(end); {
		h.b.progress("%d locks, %v to go, %d renewals, %d without a quorum", len(h.locks), time.Until(end).Round(time.Second), h.renewed.Load(), h.failed.Load())
		select {
		case <-time.After(min(time.Until(end), 5*time.Second)):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// busiest returns the greatest number of renewals in a second, as a multiple of the mean, from the second renewal of each
// lock on, if acquiring them all took so long.
func (h *holder) busiest(acquiring time.Duration) float64 {
	from := int((acquiring+2*h.b.heldTTL/3)/time.Second) + 1
	to := min(int((acquiring+h.b.heldFor)/time.Second), len(h.bySecond))
	var sum, most int64
	for s := from; s < to; s++ {
		n := h.bySecond[s].Load()
		sum, most = sum+n, max(most, n)
	}
	return float64(most) * float64(to-from) / float64(sum)
}

func (h *holder) lost() (n int) {
	for _, l := range h.locks {
		if l.lock != nil && (l.held.Err() != nil || !l.lock.Valid()) {
			n++
		}
	}
	return n
}

func (h *holder) note(lost int) {
	if refused := h.refused.Load(); lost > 0 || refused > 0 {
		h.b.report.note("held: of %d locks %d were not acquired and %d were lost", len(h.locks), refused, lost)
	}
}

// release returns the number of releases that failed.
func (h *holder) release(ctx context.Context) (failed int64) {
	var n atomic.Int64
	parallel(len(h.locks), func(i int) error {
		if l := h.locks[i]; l.lock != nil {
			l.stop()
			if err := l.lock.Release(ctx); err != nil {
				n.Add(1)
			}
		}
		return nil
	})
	return n.Load()
}

func holdAll(ctx context.Context, b *bench, n int) error {
	h := &holder{b: b, locks: make([]holding, n), start: time.Now()}
	l, done, err := newLocker(redlock.Options{Trace: redlock.Trace{Round: h.observe}}, b.addrs)
	if err != nil {
		return err
	}
	defer done()
	h.locker = l
	// Connections and buffers belong to the Locker and not to a lock.
	load{c: lockerContender(l, nil), keys: "warm", g: 64}.runFor(ctx, 100*time.Millisecond)
	before := readMemory()

	b.progress("acquiring %d", n)
	acquired, err := b.meter.measure(ctx, func() error { return h.acquire(ctx) })
	if err != nil {
		return err
	}
	each := readMemory().since(before, n)
	held, err := b.meter.measure(ctx, func() error { return h.hold(ctx) })
	if err != nil {
		return err
	}
	renewals, lost := float64(h.renewed.Load()), h.lost()
	atEnd := readMemory().since(before, n)
	b.progress("releasing %d", n)
	var failed int64
	released, err := b.meter.measure(ctx, func() error { failed = h.release(ctx); return ctx.Err() })
	if err != nil {
		return err
	}
	left, err := keysLeft(ctx, b.meter.clients, n)
	if err != nil {
		return err
	}

	locks, nodes, seconds := float64(n), float64(len(b.addrs)), held.took.Seconds()
	b.report.enter("held", nameOurs, fmt.Sprint(n), values{
		{mHeldLost, float64(lost)},
		{"renewals without a quorum", float64(h.failed.Load())},
		{mHeldPerLock, renewals / locks},
		{"renewals per second", renewals / seconds},
		{mHeldBusiest, h.busiest(acquired.took)},
		{"scripts per second, each server", held.servers.scripts / seconds / nodes},
		{"client, % of one core", 100 * held.client.Seconds() / seconds},
		{"each server, % of one core", 100 * held.servers.cpu.Seconds() / seconds / nodes},
		{"client, CPU time per renewal, µs", us(held.client) / renewals},
		{"each server, CPU time per renewal, µs", us(held.servers.cpu) / held.servers.scripts},
		{mHeldHeap, each.heap},
		{"heap per lock at the end, bytes", atEnd.heap},
		{"stack per lock, bytes", each.stack},
		{"additional goroutines", each.goroutines},
		{"memory per held lock on each server, bytes", acquired.servers.memory / locks / nodes},
		{"memory kept for a day after the release, bytes", (acquired.servers.memory + held.servers.memory + released.servers.memory) / locks / nodes},
		{"acquired per second, 64 goroutines", locks / acquired.took.Seconds()},
		{"released per second, 64 goroutines", locks / released.took.Seconds()},
		{"releases that failed", float64(failed)},
		{"keys left on servers", left},
	})
	h.note(lost)
	return nil
}

// keysLeft counts the keys of locks that are still on the servers.
func keysLeft(ctx context.Context, clients []*redis.Client, n int) (left float64, err error) {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = heldKey(i)
	}
	for _, c := range clients {
		for some := range slices.Chunk(keys, 1000) {
			found, err := c.Exists(ctx, some...).Result()
			if err != nil {
				return 0, err
			}
			left += float64(found)
		}
	}
	return left, nil
}

func heldTables(r *report) []table {
	cases := r.cases("held", mHeldHeap)
	metrics := r.names("held", "", func(s *series) string { return s.Metric })
	return []table{grid("held", "Locks under KeepAlive on five nodes", "locks held", metrics, cases, func(m, n string) string {
		format := "%.0f"
		if m == mHeldPerLock || m == mHeldBusiest {
			format = "%.2f"
		}
		return r.find("held", nameOurs, n, m).cell(format)
	})}
}
