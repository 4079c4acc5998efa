package sim

import (
	"context"
	"errors"
	"time"

	"github.com/seed-ce352c9b/redlock"
)

// A realTaskRun is a running task, as taskRun is in the bubble.
type realTaskRun struct {
	Task
	w *realWorld
	c *realClient
	i int
}

func (w *realWorld) task(i int) {
	t := w.s.Tasks[i]
	time.Sleep(t.At - w.now())
	d := &realTaskRun{Task: t, w: w, c: w.clients[t.Client], i: i}
	switch t.Do {
	case Vulture:
		for range t.Times {
			d.awaitEnd()
			d.short(d.acquire(false))
		}
	case Try:
		d.short(d.acquire(false))
	case Acquire:
		d.short(d.acquire(true))
	case Extend:
		d.extends(d.acquire(true))
	case Keep, Die:
		d.keep(d.acquire(true))
	case Within:
		d.run()
	case Last:
		d.last(d.acquire(true))
	case Leave:
		if k := d.acquire(false); k != nil {
			w.write(k)
			w.why(k, "left to expire")
			k.lock.LeaveUntil(context.Background(), k.lock.Until())
		}
	case Adopt:
		d.adopt()
	case Cancel:
		d.cancel()
	case Close:
		w.struck("c%d is closed in use", d.Client)
		if d.c.close() {
			d.c.start()
		}
	case Inspect:
		ctx, stop := d.patience()
		defer stop()
		d.call("Inspect", func() error { _, err := d.locker().Inspect(ctx, d.name()); return err })
	default:
		panic("sim: no behaviour " + t.Do)
	}
}

func (d *realTaskRun) patience() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), d.Wait)
}

func (d *realTaskRun) call(name string, f func() error) error {
	o := Op{Client: d.Client, Task: d.i, Key: d.Key, Name: name, Called: d.w.now()}
	err := f()
	o.Returned, o.Outcome = d.w.now(), outcome(err)
	if err != nil {
		o.Text = err.Error()
	}
	d.w.mu.Lock()
	d.w.h.Ops = append(d.w.h.Ops, o)
	d.w.mu.Unlock()
	if o.Outcome == "error" {
		d.w.wrong("errors", d.Key, "c%d %s: %v is not a documented error", d.Client, name, err)
	}
	return err
}

// claim records an acquisition after it has returned.
func (w *realWorld) claim(c *realClient, task, key int, called instant, ttl time.Duration, lock *redlock.Lock) *holding {
	k := w.granted(c.i, task, key, called, ttl, lock)
	k.Registers = 1<<w.s.Nodes - 1 // on a majority of them; which one is unknown, so each loss of data ends an epoch
	w.mu.Lock()
	w.enterLocked(k)
	w.mu.Unlock()
	w.started(k)
	w.glimpse(k)
	return k
}

// glimpse checks in the background whether a majority stores the claim.
func (w *realWorld) glimpse(k *holding) {
	w.lookers.Go(func() {
		g := glimpse{value: k.Value, until: k.lock.Until().Sub(w.began)}
		seen := w.look(k.Key)
		g.taken = w.now()
		const grain = 2 * time.Millisecond // PTTL is in whole milliseconds
		for i := range seen {
			s := seen[i][0]
			switch {
			case !s.ok:
				continue
			case s.value != k.Value && s.had < g.until, s.value == k.Value && s.had+s.left+grain < g.until:
				g.without++
			}
			if s.register < k.Fence {
				g.below++
			}
			g.answered++
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.glimpses = append(w.glimpses, g)
	})
}

// write writes to the store as a holder. The clock is read before everything that is compared with it, because the goroutine
// might be suspended in between.
func (w *realWorld) write(k *holding) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now()
	valid := k.lock.Valid()
	until := k.lock.Until().Sub(w.began)
	if valid && now >= until {
		w.h.Seen = append(w.h.Seen, Violation{At: now, Promise: "I3", Key: k.Key, Text: "fence is valid after its Until: " + k.Claim.String()})
	}
	w.h.Writes = append(w.h.Writes, Write{
		At: now, Key: k.Key, Client: k.Client, Value: k.Value, Fence: k.Fence,
		Claimed: now < until && k.Ended == never && k.Adopting == never,
	})
}

func (w *realWorld) isLost(k *holding, err error) {
	if errors.Is(err, redlock.ErrLost) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.lost[k.Value] = true
	}
}

func (d *realTaskRun) locker() *redlock.Locker { return d.c.locker(d.Key) }
func (d *realTaskRun) name() string            { return d.w.s.keyName(d.Key) }

// lock makes a call that returns a lock, and claims it. It returns nil if the call failed.
func (d *realTaskRun) lock(name string, f func() (*redlock.Lock, error)) *holding {
	var lock *redlock.Lock
	called := d.w.now()
	d.call(name, func() (err error) {
		lock, err = f()
		return err
	})
	if lock == nil {
		return nil
	}
	return d.w.claim(d.c, d.i, d.Key, called, d.TTL, lock)
}

func (d *realTaskRun) acquire(wait bool) *holding {
	name, f := "TryAcquire", d.locker().TryAcquire
	if wait {
		name, f = "Acquire", d.locker().Acquire
	}
	return d.lock(name, func() (*redlock.Lock, error) {
		ctx, stop := d.patience()
		defer stop()
		return f(ctx, d.name(), d.TTL)
	})
}

func (d *realTaskRun) release(k *holding) { d.releaseWith(context.Background(), k) }

func (d *realTaskRun) releaseWith(ctx context.Context, k *holding) {
	d.w.end(k, "release")
	d.w.isLost(k, d.call("Release", func() error { return k.lock.Release(ctx) }))
}

func (d *realTaskRun) short(k *holding) {
	if k == nil {
		return
	}
	d.w.write(k)
	time.Sleep(d.Hold)
	d.w.write(k)
	d.release(k)
}

func (d *realTaskRun) extends(k *holding) {
	if k == nil {
		return
	}
	for range d.Times {
		time.Sleep(d.Hold)
		d.w.write(k)
		before := k.lock.Until()
		err := d.call("Extend", func() error {
			ctx, stop := d.patience()
			defer stop()
			return k.lock.Extend(ctx)
		})
		d.w.isLost(k, err)
		d.w.judgeUntil(k, before, err)
		if err == nil {
			d.w.glimpse(k)
		}
		if errors.Is(err, redlock.ErrLost) || errors.Is(err, redlock.ErrClosed) {
			break
		}
	}
	d.release(k)
}

func (d *realTaskRun) keep(k *holding) {
	if k == nil {
		return
	}
	held, stop := k.lock.KeepAlive(context.Background())
	defer stop()
	d.hold(held, k)
	if d.Do == Die {
		d.c.die()
		return
	}
	d.release(k)
}

// hold works under the lock, with a few writes, and judges when its context ends: no later than Until.
func (d *realTaskRun) hold(held context.Context, k *holding) {
	w := d.w
	tell := func(at instant, open bool) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.tellings = append(w.tellings, telling{at: at, until: k.lock.Until().Sub(w.began), key: k.Key, who: k.Claim.String(), open: open})
	}
	began := w.now()
	if began >= k.lock.Until().Sub(w.began) {
		return // this process was late: the context had ended before it was watched
	}
	off := context.AfterFunc(held, func() {
		at := w.now()
		w.isLost(k, context.Cause(held))
		tell(at, false)
		if errors.Is(context.Cause(held), redlock.ErrLost) && k.lock.Valid() {
			w.wrong("I3", k.Key, "fence %d is lost, but valid", k.Fence)
		}
	})
	defer off()
	const writes = 4
	for range writes {
		w.write(k)
		w.glimpse(k)
		t := time.NewTimer(d.Hold / writes)
		select {
		case <-t.C:
		case <-held.Done():
			t.Stop()
			return
		}
		if at := w.now(); held.Err() == nil {
			tell(at, true)
		}
	}
}

func (d *realTaskRun) run() {
	var mine *holding
	called := d.w.now()
	ctx, stop := d.patience()
	defer stop()
	err := d.call("Run", func() error {
		return d.locker().Run(ctx, d.name(), d.TTL, func(held context.Context, lock *redlock.Lock) error {
			mine = d.w.claim(d.c, d.i, d.Key, called, d.TTL, lock)
			d.hold(held, mine)
			d.w.end(mine, "run") // the library releases the lock after this
			return nil
		})
	})
	switch {
	case mine != nil:
		d.w.isLost(mine, err)
	case err == nil:
		d.w.wrong("errors", d.Key, "Run returned nil without calling fn")
	}
}

func (d *realTaskRun) last(k *holding) {
	if k == nil {
		return
	}
	time.Sleep(time.Until(k.lock.Until()) - d.Hold)
	d.w.write(k)
	time.Sleep(time.Until(k.lock.Until()) + d.Late)
	d.w.write(k)
	d.release(k)
}

func (d *realTaskRun) awaitEnd() {
	wait := 20*time.Millisecond + d.Late
	if k := d.w.holder(d.Key); k != nil {
		wait = min(time.Until(k.lock.Until())+d.Late, time.Second)
	}
	time.Sleep(wait)
}

func (d *realTaskRun) adopt() {
	giver := d.w.holder(d.Key)
	if giver == nil {
		return
	}
	called := d.w.now()
	d.w.adopting(giver)
	d.short(d.lock("Adopt", func() (*redlock.Lock, error) {
		ctx, stop := d.patience()
		defer stop()
		lock, err := d.locker().Adopt(ctx, d.name(), giver.Value, d.TTL)
		if lock != nil {
			d.w.endAt(giver, called, "handed over")
		}
		return lock, err
	}))
}

func (d *realTaskRun) cancel() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	time.AfterFunc(d.Wait, stop)
	k := d.lock("Acquire", func() (*redlock.Lock, error) { return d.locker().Acquire(ctx, d.name(), d.TTL) })
	if k == nil {
		return
	}
	d.w.write(k)
	short, stopShort := context.WithCancel(context.Background())
	defer stopShort()
	time.AfterFunc(d.Late, stopShort)
	d.releaseWith(short, k)
}
