package sim

import (
	"context"
	"errors"
	"time"

	"github.com/seed-ce352c9b/redlock"
)

// A taskRun is a running task.
type taskRun struct {
	Task
	w           *world
	c           *client
	i           int
	steps       int
	incarnation int // the process in which it began
}

func (w *world) task(i int) {
	t := w.s.Tasks[i]
	time.Sleep(t.At + w.spread(1, i) - w.now())
	d := &taskRun{Task: t, w: w, c: w.clients[t.Client], i: i}
	d.incarnation = d.c.incarnation()
	switch t.Do {
	case Vulture:
		for range t.Times {
			d.awaitEnd()
			if !d.step() {
				return
			}
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
	case Within, Quit:
		d.run()
	case Lead:
		d.lead()
	case Watch:
		d.watch()
	case Last:
		d.last(d.acquire(true))
	case Leave:
		if k := d.acquire(false); k != nil && d.step() {
			d.write(k)
			k.lock.LeaveUntil(context.Background(), k.lock.Until())
			d.w.why(k, "left to expire")
		}
	case Adopt:
		d.adopt()
	case Rush:
		d.rush()
	case Join:
		d.join()
	case Again:
		d.again(d.acquire(true))
	case Cancel:
		d.cancel()
	case Fickle:
		d.fickle()
	case All, KeepAll, WithinAll, TryAll, FickleAll, Nest, Slot, KeepSlot, TrySlot, FickleSlot:
		d.several()
	case Close:
		if d.step() {
			d.close()
		}
	case Inspect:
		ctx, stop := d.patience()
		defer stop()
		d.call("Inspect", func() error { _, err := d.c.locker().Inspect(ctx, d.name()); return err })
	default:
		panic("sim: no behaviour " + t.Do)
	}
}

// step sleeps while the process is paused, and returns false once the process is dead. It sleeps for a short time of its own,
// so that two tasks that wake at the same instant do not continue at the same instant.
func (d *taskRun) step() bool {
	d.steps++
	d.c.waitWhilePaused()
	time.Sleep(jitter(d.w.s.Seed, uint64(d.i), uint64(d.steps)))
	return !d.c.isDead() && d.c.incarnation() == d.incarnation
}

// sleep sleeps for t and then calls step.
func (d *taskRun) sleep(t time.Duration) bool {
	time.Sleep(t)
	return d.step()
}

func (d *taskRun) patience() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), d.Wait)
}

// call records a call and its return.
func (d *taskRun) call(name string, f func() error) error {
	o := Op{Client: d.Client, Task: d.i, Key: d.Key, Name: name, Called: d.w.now()}
	switch name {
	case "Acquire", "Run":
		d.w.waits(d, waiter{keys: []int{d.Key}})
		defer d.w.served(d)
	case "AcquireAll", "RunAll":
		o.Keys = d.Keys
		d.w.waits(d, waiter{keys: d.Keys, all: true})
		defer d.w.served(d)
	case "AcquireSlot":
		o.Keys = d.w.s.slotKeys()
		d.w.waits(d, waiter{keys: o.Keys})
		defer d.w.served(d)
	}
	err := recovered(f)
	o.Returned, o.Outcome = d.w.now(), outcome(err)
	if err != nil {
		o.Text = err.Error()
	}
	d.w.mu.Lock()
	d.w.h.Ops = append(d.w.h.Ops, o)
	d.w.mu.Unlock()
	if o.Outcome == "error" && !d.c.isDead() {
		d.w.wrong("errors", d.Key, "c%d %s: %v is not a documented error", d.Client, name, err)
	}
	if d.w.s.Several && len(o.Keys) > 0 {
		d.judgeWait(o)
	}
	return err
}

// name returns the name of the task's key.
func (d *taskRun) name() string { return d.w.s.keyName(d.Key) }

// lock makes a call that returns a lock, and claims it. It returns nil if the call failed.
func (d *taskRun) lock(name string, f func() (*redlock.Lock, error)) *holding {
	var lock *redlock.Lock
	called := d.w.now()
	d.call(name, func() (err error) {
		lock, err = f()
		if lock != nil && err != nil {
			d.w.wrong("errors", d.Key, "c%d %s returned a lock and an error: %v", d.Client, name, err)
		}
		return err
	})
	if lock == nil {
		return nil
	}
	return d.w.claim(d.c, d.i, d.Key, called, d.TTL, lock)
}

func (d *taskRun) acquire(wait bool) *holding {
	if !d.step() {
		return nil
	}
	if wait {
		return d.lock("Acquire", func() (*redlock.Lock, error) {
			ctx, stop := d.patience()
			defer stop()
			return d.c.locker().Acquire(ctx, d.name(), d.TTL)
		})
	}
	name := "TryAcquire"
	if d.w.bare(d.Key) {
		// A majority for "no" then needs a faulty node. That node is waited for, because it may report that the lock is held,
		// which all others together cannot.
		name = "TryAcquire with less"
	}
	return d.lock(name, func() (*redlock.Lock, error) {
		ctx, stop := d.patience()
		defer stop()
		return d.c.locker().TryAcquire(ctx, d.name(), d.TTL)
	})
}

func (d *taskRun) release(k *holding) {
	if k == nil || !d.step() {
		return
	}
	d.w.startJoiners(d)
	d.w.end(k, "release")
	d.w.cancelFickle(k)
	d.releaseAndJudge(k)
}

func (d *taskRun) write(ks ...*holding) {
	for _, k := range ks {
		d.w.write(d.c, k)
	}
}

// short does a job that it expects to finish before Until.
func (d *taskRun) short(k *holding) {
	if k == nil || !d.step() {
		return
	}
	d.write(k)
	if d.sleep(d.Hold) {
		d.write(k)
		d.release(k)
	}
}

// extends extends the lock by hand, each time after Hold.
func (d *taskRun) extends(k *holding) {
	if k == nil {
		return
	}
	for range d.Times {
		if !d.sleep(d.Hold) {
			return
		}
		d.write(k)
		name := "Extend"
		if !d.w.onAllHealthy(k) {
			name = "Extend with less" // fewer than a majority of healthy nodes: it waits for the others, and may fail
		}
		err := d.extend(name, k)
		if errors.Is(err, redlock.ErrLost) || errors.Is(err, redlock.ErrClosed) {
			break
		}
	}
	d.release(k)
}

// extend extends a lock once, and judges the result.
func (d *taskRun) extend(name string, k *holding) error {
	before := k.lock.Until()
	err := d.call(name, func() error {
		ctx, stop := d.patience()
		defer stop()
		return k.lock.Extend(ctx)
	})
	d.w.extended(k, before, err)
	return err
}

// keep lets the library extend the lock until Hold has passed or the lock is lost.
func (d *taskRun) keep(k *holding) {
	if k == nil || !d.step() {
		return
	}
	held, stop := k.lock.KeepAlive(context.Background())
	defer stop()
	d.w.watchLoss(d.c, held, k.lock.Valid, k)
	d.hold(held, k)
	if d.Do == Die {
		d.c.die()
		return
	}
	d.release(k)
}

// hold works under the locks, with a few writes, until Hold has passed or one of them is lost.
func (d *taskRun) hold(held context.Context, ks ...*holding) {
	const writes = 4
	for range writes {
		d.write(ks...)
		for _, k := range ks {
			d.w.carried(k)
		}
		t := time.NewTimer(d.Hold / writes)
		select {
		case <-t.C:
		case <-held.Done():
			t.Stop()
			if len(ks) == 1 {
				d.windDown(held, ks[0])
			}
			return
		}
		if !d.step() || held.Err() != nil {
			return
		}
	}
}

// windDown continues to work for most of the time that Options.Grace leaves, like a program that has a request in progress.
// The lock is still held during this time, but is not extended any more.
func (d *taskRun) windDown(held context.Context, k *holding) {
	until := k.lock.Until()
	if d.w.s.Grace == 0 || outcome(context.Cause(held)) != "lost" || !k.lock.Valid() || !d.sleep(time.Until(until)*3/4) || !k.lock.Valid() {
		return
	}
	d.write(k)
	d.w.carried(k)
	ctx, stop := d.patience()
	defer stop()
	err := k.lock.Extend(ctx)
	if o := outcome(err); o != "lost" && o != "closed" || !k.lock.Until().Equal(until) {
		d.w.wrong("I3", d.Key, "c%d: fence %d was reported lost, but Extend returned %v and moved Until by %v", d.Client, k.Fence, err, k.lock.Until().Sub(until))
	}
}

func (d *taskRun) run() {
	if !d.step() {
		return
	}
	var mine *holding
	called := d.w.now()
	ctx, stop := d.patience()
	defer stop()
	err := d.call("Run", func() error {
		return d.c.locker().Run(ctx, d.name(), d.TTL, func(held context.Context, lock *redlock.Lock) error {
			mine = d.w.claim(d.c, d.i, d.Key, called, d.TTL, lock)
			panics := true
			defer func() {
				switch {
				case panics && d.Do == Quit: // in a callback, before or after the lock was left
					d.w.end(mine, leftOrReleased)
				case panics: // in a callback: the library releases the lock
					d.w.end(mine, "run")
				}
			}()
			d.w.served(d)
			d.w.watchLoss(d.c, held, lock.Valid, mine)
			if d.Do == Quit {
				lock.LeaveUntil(context.Background(), lock.Until())
				d.w.why(mine, "left to expire")
				panics = false
				return nil
			}
			d.hold(held, mine)
			d.w.end(mine, "run") // the library releases the lock after this
			d.c.maybePanic(uint64(mine.Fence))
			panics = false
			return nil
		})
	})
	if d.Do == Quit && mine != nil && errors.Is(err, redlock.ErrLost) {
		d.w.wrong("errors", d.Key, "c%d called LeaveUntil, but Run returned: %v", d.Client, err)
	}
	if err == nil && mine == nil {
		d.w.wrong("errors", d.Key, "Run returned nil without calling fn")
	}
}

// lead leads, resigns after Hold, and campaigns again, until Wait has passed.
func (d *taskRun) lead() {
	if !d.step() {
		return
	}
	ctx, stop := d.patience()
	defer stop()
	called := d.w.now()
	d.call("Lead", func() error {
		return d.c.locker().Lead(ctx, d.name(), d.TTL, func(held context.Context, lock *redlock.Lock) error {
			k := d.w.claim(d.c, d.i, d.Key, called, d.TTL, lock)
			d.w.watchLoss(d.c, held, k.lock.Valid, k)
			d.hold(held, k)
			d.w.end(k, "run") // the library releases the lock after this
			called = d.w.now()
			return nil
		})
	})
}

// watch watches a key until Wait has passed. A Status that says that the lock is held names the holder.
func (d *taskRun) watch() {
	if !d.step() {
		return
	}
	ctx, stop := d.patience()
	defer stop()
	d.call("Watch", func() (last error) {
		for s, err := range d.c.locker().Watch(ctx, d.name()) {
			if last = err; err == nil && s.Held != (s.Value != "") {
				d.w.wrong("errors", d.Key, "c%d Watch: held %v by %q", d.Client, s.Held, s.Value)
			}
		}
		if last == nil {
			d.w.wrong("errors", d.Key, "c%d Watch ended without an error", d.Client)
		}
		return last
	})
}

// last holds the lock until the last moment, writes just before Until and again when it is too late.
func (d *taskRun) last(k *holding) {
	if k == nil {
		return
	}
	time.Sleep(time.Until(k.lock.Until()) - d.Hold)
	if !d.step() {
		return
	}
	d.write(k)
	time.Sleep(time.Until(k.lock.Until()) + d.Late)
	if !d.step() {
		return
	}
	d.write(k)
	d.release(k)
}

// awaitEnd sleeps until the holder of the key must stop to rely on it, plus Late.
func (d *taskRun) awaitEnd() {
	wait := d.TTL/4 + d.Late
	if k := d.w.holder(d.Key); k != nil {
		if left := time.Until(k.lock.Until()); left > 0 {
			wait = left + d.Late
		}
	}
	time.Sleep(wait)
}

// adopt takes over the lock of the current holder, as if that had passed on its value.
func (d *taskRun) adopt() {
	giver := d.w.holder(d.Key)
	if giver == nil || !d.step() {
		return
	}
	d.adoptFrom(giver, giver.Value)
}

// adoptFrom adopts a value: that of giver or, if giver is nil, that of a foreign client.
func (d *taskRun) adoptFrom(giver *holding, value string) {
	if giver != nil {
		d.w.adopting(giver)
	}
	label := d.c.label()
	called := d.w.now()
	k := d.lock("Adopt", func() (lock *redlock.Lock, err error) {
		ctx, stop := d.patience()
		defer stop()
		lock, err = d.c.locker().Adopt(ctx, d.name(), value, d.TTL)
		if lock != nil && giver != nil {
			d.w.endAt(giver, called, "handed over")
		}
		return lock, err
	})
	if k == nil {
		d.w.notAdopted(giver, label)
		return
	}
	d.w.inherits(k)
	d.short(k)
}

// cancel cancels its context in the middle of the acquisition; if the acquisition was quicker, it cancels the release.
func (d *taskRun) cancel() {
	ctx, stop := context.WithCancel(context.Background())
	time.AfterFunc(d.Wait, stop)
	k := d.lock("Acquire", func() (*redlock.Lock, error) { return d.c.locker().Acquire(ctx, d.name(), d.TTL) })
	if k == nil {
		return
	}
	d.write(k)
	if !d.step() {
		return
	}
	d.w.end(k, "release")
	ctx, stop = context.WithCancel(context.Background())
	time.AfterFunc(d.Late, stop)
	d.call("Release", func() error { return k.lock.Release(ctx) })
}

// fickle gives up when the lock is released or shortly after: when it is notified, when it sends its request, when the lock is
// handed over to it, or when it has the lock.
func (d *taskRun) fickle() {
	if !d.step() {
		return
	}
	ctx, stop := d.patience()
	defer stop()
	d.w.mayGiveUp(stop, d.Key)
	d.acquireHesitantly(ctx)
}

func (d *taskRun) acquireHesitantly(ctx context.Context) {
	d.short(d.lock("Acquire", func() (*redlock.Lock, error) {
		return d.c.locker().Acquire(d.hesitantly(ctx), d.name(), d.TTL)
	}))
}

// mayGiveUp makes a caller give up around the next release of one of these keys.
func (w *world) mayGiveUp(stop func(), keys ...int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, key := range keys {
		w.fickle[key] = append(w.fickle[key], stop)
	}
}

// cancelFickle makes the fickle callers give up.
func (w *world) cancelFickle(k *holding) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, stop := range w.fickle[k.Key] {
		time.AfterFunc(32*jitter(w.s.Seed, uint64(k.Fence), uint64(i)), stop)
	}
	w.fickle[k.Key] = nil
}

// close closes the process's Locker while others use it, and opens another.
func (d *taskRun) close() {
	l, mine := d.c.stop()
	if !mine {
		d.call("Close", func() error {
			err := l.Close()
			if !errors.Is(err, redlock.ErrClosed) {
				d.w.wrong("errors", d.Key, "c%d: the second Close returned %v", d.Client, err)
			}
			return err
		})
		return
	}
	d.w.closing(d.c.label())
	d.call("Close", l.Close)
	d.c.start()
}
