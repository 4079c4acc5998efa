package sim

import (
	"context"
	"errors"
	"time"

	"github.com/seed-ce352c9b/redlock"
)

// A taskRun is a running task in the bubble.
type taskRun struct {
	driver
	w           *world
	c           *client
	steps       int
	incarnation int // the process in which it began
}

func (w *world) task(i int) {
	t := w.s.Tasks[i]
	time.Sleep(t.At + w.spread(1, i) - w.now())
	w.newTask(w.clients[t.Client], i, t).do()
}

func (w *world) newTask(c *client, i int, t Task) *taskRun {
	d := &taskRun{driver: driver{Task: t, r: &w.record, i: i, idle: t.TTL / 4, longest: never}, w: w, c: c, incarnation: c.incarnation()}
	d.h = d
	return d
}

// other does what only simulated tasks do.
func (d *taskRun) other() {
	switch d.Do {
	case Lead:
		d.lead()
	case Watch:
		d.watchKey()
	case Rush:
		d.rush()
	case Join:
		d.join()
	case Again:
		d.again(d.acquire(true))
	case Fickle:
		d.fickle()
	case All, KeepAll, WithinAll, TryAll, FickleAll, Nest, Slot, KeepSlot, WithinSlot, TrySlot, FickleSlot:
		d.several()
	case Close:
		if d.step() {
			d.close()
		}
	default:
		panic("sim: no behaviour " + d.Do)
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

// call records a call and its return, and judges them.
func (d *taskRun) call(name string, f func() error) error {
	o := d.op(name)
	switch name {
	case "Acquire", "Run":
		d.w.waits(d.i, waiter{keys: []int{d.Key}})
		defer d.w.served(d.i)
	case "AcquireAll", "RunAll":
		o.Keys = d.Keys
		d.w.waits(d.i, waiter{keys: d.Keys, all: true})
		defer d.w.served(d.i)
	case "AcquireSlot", "RunSlot":
		o.Keys = d.w.s.slotKeys()
		d.w.waits(d.i, waiter{keys: o.Keys})
		defer d.w.served(d.i)
	}
	err := d.w.called(&o, f)
	if o.Outcome == "error" && !d.c.isDead() {
		d.undocumented(o, err)
	}
	if d.w.s.Several && len(o.Keys) > 0 {
		d.judgeWait(o)
	}
	return err
}

func (d *taskRun) locker() *redlock.Locker { return d.c.locker() }

func (d *taskRun) claim(called instant, lock *redlock.Lock) *holding {
	d.judgeFence(lock)
	return d.w.claim(d.c, d.i, d.Key, called, d.TTL, lock)
}

func (d *taskRun) carried(k *holding)      { d.w.carried(k) }
func (d *taskRun) bare(k *holding) bool    { return !d.w.onAllHealthy(k) }
func (d *taskRun) mayPanic(what ...uint64) { d.c.maybePanic(what...) }
func (d *taskRun) die()                    { d.c.die() }

func (d *taskRun) watch(held context.Context, valid func() bool, k *holding) (stop func()) {
	d.w.served(d.i)
	d.w.watchLoss(d.c, held, valid, k)
	return func() {}
}

func (d *taskRun) ends(k *holding) {
	d.w.startJoiners(d)
	d.w.end(k, "release")
	d.w.cancelFickle(k)
}

func (d *taskRun) adopts(giver *holding) (returned func(k *holding)) {
	label := d.c.label()
	return func(k *holding) {
		if k == nil {
			d.w.notAdopted(giver, label)
		} else {
			d.w.inherits(k)
		}
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
			k := d.claim(called, lock)
			d.w.watchLoss(d.c, held, k.lock.Valid, k)
			d.hold(held, k)
			d.w.end(k, "run") // the library releases the lock after this
			called = d.w.now()
			return nil
		}, d.fenced())
	})
}

// watchKey watches a key until Wait has passed. A Status that says that the lock is held names the holder.
func (d *taskRun) watchKey() {
	if !d.step() {
		return
	}
	ctx, stop := d.patience()
	defer stop()
	d.call("Watch", func() (last error) {
		for s, err := range d.c.locker().Watch(ctx, d.name()) {
			if last = err; err == nil && s.Held != !(s.Value.IsZero()) {
				d.w.wrong("errors", d.Key, "c%d Watch: held %v by %q", d.Client, s.Held, s.Value)
			}
		}
		if last == nil {
			d.w.wrong("errors", d.Key, "c%d Watch ended without an error", d.Client)
		}
		return last
	})
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
		return d.c.locker().Acquire(d.hesitantly(ctx), d.name(), d.TTL, d.fenced())
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
