package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

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
func held(ctx context.Context, b *bench) {
	for _, n := range b.held {
		holdAll(ctx, b, n)
		b.flush(ctx) // fence registers would otherwise stay for a day
	}
}

// A holder holds many locks of one Locker.
type holder struct {
	b               *bench
	locks           []holding
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
		if v.Answer == redlock.AnswerYes {
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

// each calls f for every lock, 64 at a time, and returns the number of errors.
func (h *holder) each(f func(i int, l *holding) error) int {
	var failed atomic.Int64
	var g errgroup.Group
	g.SetLimit(64)
	for i := range h.locks {
		g.Go(func() error {
			if f(i, &h.locks[i]) != nil {
				failed.Add(1)
			}
			return nil
		})
	}
	g.Wait()
	return int(failed.Load())
}

func (h *holder) acquire(ctx context.Context, locker *redlock.Locker) (refused int) {
	return h.each(func(i int, l *holding) (err error) {
		if l.lock, err = locker.TryAcquire(ctx, heldKey(i), h.b.heldTTL); err == nil {
			l.held, l.stop = l.lock.KeepAlive(ctx)
		}
		return err
	})
}

func heldKey(i int) string { return fmt.Sprintf("bench:held:%d", i) }

// hold lets the locks be renewed for a while.
func (h *holder) hold(ctx context.Context) {
	h.renewed.Store(0)
	h.failed.Store(0)
	for end := time.Now().Add(h.b.heldFor); time.Now().Before(end) && ctx.Err() == nil; {
		h.b.progress("%d locks, %v to go, %d renewals, %d without a quorum", len(h.locks), time.Until(end).Round(time.Second), h.renewed.Load(), h.failed.Load())
		select {
		case <-time.After(min(time.Until(end), 5*time.Second)):
		case <-ctx.Done():
		}
	}
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

func (h *holder) release(ctx context.Context) (failed int) {
	return h.each(func(_ int, l *holding) error {
		if l.lock == nil {
			return nil
		}
		l.stop()
		return l.lock.Release(ctx)
	})
}

func holdAll(ctx context.Context, b *bench, n int) {
	h := &holder{b: b, locks: make([]holding, n), start: time.Now()}
	l, done := newLocker(redlock.Options{Trace: redlock.Trace{Round: h.observe}}, b.addrs)
	defer done()
	// Connections and buffers belong to the Locker and not to a lock.
	load{c: lockerContender(l, nil), g: 64}.runFor(ctx, 100*time.Millisecond)
	before := readMemory()

	b.progress("acquiring %d", n)
	var refused, failed int
	acquired := b.meter.measure(ctx, func() { refused = h.acquire(ctx, l) })
	each := readMemory().since(before, n)
	held := b.meter.measure(ctx, func() { h.hold(ctx) })
	renewals, lost := float64(h.renewed.Load()), h.lost()
	atEnd := readMemory().since(before, n)
	b.progress("releasing %d", n)
	released := b.meter.measure(ctx, func() { failed = h.release(ctx) })
	left := keysLeft(ctx, b.meter.clients, n)

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
	if lost > 0 || refused > 0 {
		b.report.note("held: of %d locks %d were not acquired and %d were lost", n, refused, lost)
	}
}

// keysLeft counts the keys of locks that are still on the servers.
func keysLeft(ctx context.Context, clients []*redis.Client, n int) (left float64) {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = heldKey(i)
	}
	for _, c := range clients {
		for some := range slices.Chunk(keys, 1000) {
			left += float64(must(c.Exists(ctx, some...).Result()))
		}
	}
	return left
}

func heldTables(r *report) []table {
	cases := r.cases("held", mHeldHeap)
	metrics := r.names("held", "", func(s *series) string { return s.Metric })
	formats := map[string]string{mHeldPerLock: "%.2f", mHeldBusiest: "%.2f"}
	return []table{grid("held", "Locks under KeepAlive on five nodes", "locks held", metrics, cases, func(m, n string) string {
		return r.find("held", nameOurs, n, m).cell(cmp.Or(formats[m], "%.0f"))
	})}
}
