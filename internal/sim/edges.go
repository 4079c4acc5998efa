package sim

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// The edges of the library are where it meets code and data that are not its own: callbacks, contexts and clients of the user,
// foreign keys, permissions, and several callers of one Locker that adopt the same lock. Here all of these do what they rarely do
// elsewhere, at the worst moment. Their judges are in stays.go.

// A hesitant context takes some time to report whether it is done. So events can happen between two steps of the library that
// otherwise take no time: a real scheduler may stop a goroutine anywhere.
type hesitant struct {
	context.Context
	key   uint64
	asked *atomic.Uint64
}

func (c hesitant) Err() error {
	time.Sleep(32 * jitter(c.key, c.asked.Add(1)))
	return c.Context.Err()
}

// hesitantly makes a context hesitant, in the schedules that need it.
func (d *taskRun) hesitantly(ctx context.Context) context.Context {
	if !d.w.s.Edges {
		return ctx
	}
	return hesitant{ctx, mix(d.w.s.Seed, uint64(d.i)), new(atomic.Uint64)}
}

// A joiner waits until a holder in its own process is about to release.
type joiner struct {
	client int
	come   chan struct{}
	leave  context.CancelFunc
}

// join queues behind a holder in its own process so shortly before the release that the release happens during the joiner's
// first attempt. It gives up at about the time at which the lock is handed over to it.
func (d *taskRun) join() {
	if !d.step() {
		return
	}
	ctx, stop := d.patience()
	defer stop()
	j := joiner{d.Client, make(chan struct{}), stop}
	d.w.mu.Lock()
	d.w.join[d.Key] = append(d.w.join[d.Key], j)
	d.w.mu.Unlock()
	select {
	case <-j.come:
	case <-ctx.Done():
		return
	}
	if !d.step() {
		return
	}
	d.acquireHesitantly(ctx)
}

// startJoiners lets the joiners come before a release, and makes some of them give up around it.
func (w *world) startJoiners(d *taskRun) {
	w.mu.Lock()
	var mine []joiner
	w.join[d.Key] = slices.DeleteFunc(w.join[d.Key], func(j joiner) bool {
		if j.client == d.Client && len(mine) < 3 {
			mine = append(mine, j)
			return true
		}
		return false
	})
	w.mu.Unlock()
	if len(mine) == 0 {
		return
	}
	now := uint64(w.now())
	for i, j := range mine {
		close(j.come)
		if mix(now, uint64(i))%4 > 0 { // the others stay to receive the lock after those that give up
			time.AfterFunc(400*time.Microsecond+64*jitter(now, uint64(i), 1), j.leave)
		}
	}
	time.Sleep(400*time.Microsecond + 32*jitter(now))
}

// rush makes several callers adopt one value at once, most of them in the Locker that holds the lock, or at about the time at
// which its holder releases it. Their ttls differ greatly, and half of them cancel in the middle.
func (d *taskRun) rush() {
	giver := d.w.holder(d.Key)
	value, first := "", d.Client
	if giver != nil {
		value, first = giver.Value, giver.Client
	} else if value = d.w.foreignAt(d.Key); value == "" {
		return
	}
	if !d.step() {
		return
	}
	if giver != nil && d.Late == atRelease {
		ctx, stop := d.patience()
		d.w.mayGiveUp(stop, d.Key)
		<-ctx.Done()
		stop()
		if d.w.now() >= giver.lock.Until().Sub(d.w.began) {
			return
		}
	}
	var all sync.WaitGroup
	for j := range d.Times {
		draw := func(what uint64) uint64 { return mix(d.w.s.Seed, uint64(d.i), uint64(j), what) }
		a := *d
		a.i = 1_000_000 + 100*d.i + j // so that it has sleeping times of its own
		a.Client = first
		if d.Late != andRelease && draw(1)%3 == 0 {
			a.Client = int(draw(2) % uint64(len(d.w.s.Clients)))
		}
		a.h, a.c = &a, d.w.clients[a.Client]
		a.incarnation = a.c.incarnation()
		a.TTL = []time.Duration{d.TTL, min(d.TTL, 10*time.Second), time.Minute, longLife}[draw(3)%4]
		if draw(4)%2 == 0 {
			a.Wait = time.Duration(draw(5) % uint64(1200*time.Microsecond))
		}
		later := time.Duration(draw(6) % uint64(300*time.Microsecond))
		all.Go(func() {
			if a.sleep(later) {
				a.adoptFrom(giver, value)
			}
		})
	}
	all.Wait()
	if giver != nil && d.Late == andRelease && d.w.endIfHeld(giver) {
		d.w.cancelFickle(giver)
		d.releaseAndJudge(giver)
	}
}

// A rush may come at the release, or be in the holder's own process, which releases as soon as all adopters have failed.
const (
	atRelease = time.Duration(1 + iota)
	andRelease
)

// endIfHeld records that a holder releases, and returns false if the claim has already ended.
func (w *world) endIfHeld(k *holding) bool {
	now := w.now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, closed := w.closedAt[labelOf(k.Value)]; closed || k.Ended != never || k.Why == "left to expire" {
		return false
	}
	k.Ended, k.Why = now, "release"
	return true
}

// again releases, and releases again after the lock has expired: the second result must not know less than the first.
func (d *taskRun) again(k *holding) {
	if k == nil || !d.sleep(d.Hold) {
		return
	}
	d.write(k)
	d.release(k)
	time.Sleep(time.Until(k.lock.Until()) + ms)
	if d.step() {
		d.releaseAndJudge(k)
	}
}
