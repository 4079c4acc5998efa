package sim

import (
	"context"
	"errors"
	"time"

	"github.com/seed-ce352c9b/redlock"
)

// A driver executes a task, in the bubble or over real servers.
type driver struct {
	Task
	h             host
	r             *record
	i             int           // the number of the task
	idle, longest time.Duration // how long a vulture sleeps if nobody holds the lock, and at most
}

// A host is the process in which a task runs, and what its world knows and judges in addition.
type host interface {
	step() bool                                        // before a task goes on; false: the process is dead
	locker() *redlock.Locker                           // of the process, for the task's key
	call(name string, f func() error) error            // records a call and its return, and judges its error
	claim(called instant, lock *redlock.Lock) *holding // records an acquisition of the task's key that has just returned
	carried(k *holding)                                // judges whether the nodes store a claim
	bare(k *holding) bool                              // a healthy node does not store the claim
	ends(k *holding)                                   // records that a holder is about to release
	released(k *holding, called instant, err error)    // judges what the release returned
	adopts(giver *holding) (returned func(k *holding)) // before an adoption, and with the new claim or nil after it
	mayPanic(what ...uint64)                           // where a callback may panic
	die()                                              // ends the process
	other()                                            // does what not all worlds have, or not in the same way

	// watch judges when the context of a claim ends, until stop is called.
	watch(held context.Context, valid func() bool, k *holding) (stop func())
}

// do does what the task is.
func (d *driver) do() {
	switch d.Do {
	case Vulture:
		for range d.Times {
			d.awaitEnd()
			if !d.h.step() {
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
	case Last:
		d.last(d.acquire(true))
	case Leave:
		if k := d.acquire(false); k != nil && d.h.step() {
			d.write(k)
			k.lock.LeaveUntil(context.Background(), k.lock.Until())
			d.r.why(k, "left to expire")
		}
	case Adopt:
		d.adopt()
	case Cancel:
		d.cancel()
	case Inspect:
		ctx, stop := d.patience()
		defer stop()
		d.h.call("Inspect", func() error { _, err := d.h.locker().Inspect(ctx, d.name()); return err })
	default:
		d.h.other()
	}
}

// sleep sleeps for t and then calls step.
func (d *driver) sleep(t time.Duration) bool {
	time.Sleep(t)
	return d.h.step()
}

func (d *driver) patience() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), d.Wait)
}

func (d *driver) schedule() *Schedule { return d.r.h.Schedule }

// name returns the name of the task's key.
func (d *driver) name() string { return d.schedule().keyName(d.Key) }

// fenced returns whether the task asks for locks with a fence, as an option; nil: it does not say, and gets one.
func (d *driver) fenced() redlock.AcquireOption {
	switch s := d.schedule(); {
	case !s.Unfenced:
		return nil
	case s.bare(d.Task):
		return redlock.WithoutFence()
	}
	return redlock.WithFence()
}

// judgeFence judges that a lock has a fence exactly if the task asked for one.
func (d *driver) judgeFence(lock *redlock.Lock) {
	if s := d.schedule(); (lock.Fence() == 0) != (s.Unfenced && s.bare(d.Task)) {
		d.r.wrong("I2", d.Key, "c%d got the fence %d, and asked for one: %v", d.Client, lock.Fence(), !s.bare(d.Task))
	}
}

// op returns the record of a call that begins now.
func (d *driver) op(name string) Op {
	return Op{Client: d.Client, Task: d.i, Key: d.Key, Name: name, Called: d.r.now()}
}

// undocumented records that a call returned an error that no caller can expect.
func (d *driver) undocumented(o Op, err error) {
	d.r.wrong("errors", d.Key, "c%d %s: %v is not a documented error", d.Client, o.Name, err)
}

// revive acquires the key after the last fault, which must succeed within Wait. Its caller releases it.
func (d *driver) revive() *holding {
	ctx, stop := d.patience()
	defer stop()
	called := d.r.now()
	lock, err := d.h.locker().Acquire(ctx, d.name(), d.TTL, d.fenced())
	took := d.r.now() - called
	if err != nil {
		d.r.wrong("liveness", d.Key, "%v after the last fault c%d still cannot acquire the lock: %v", took, d.Client, err)
		return nil
	}
	k := d.h.claim(called, lock)
	d.r.mu.Lock()
	d.r.h.Revived = append(d.r.h.Revived, took)
	d.r.mu.Unlock()
	d.write(k)
	d.r.end(k, "release")
	return k
}

// lock makes a call that returns a lock, and claims it. It returns nil if the call failed.
func (d *driver) lock(name string, f func() (*redlock.Lock, error)) *holding {
	var lock *redlock.Lock
	called := d.r.now()
	d.h.call(name, func() (err error) {
		lock, err = f()
		if lock != nil && err != nil {
			d.r.wrong("errors", d.Key, "c%d %s returned a lock and an error: %v", d.Client, name, err)
		}
		return err
	})
	if lock == nil {
		return nil
	}
	return d.h.claim(called, lock)
}

func (d *driver) acquire(wait bool) *holding {
	if !d.h.step() {
		return nil
	}
	name, f := "TryAcquire", (*redlock.Locker).TryAcquire
	if wait {
		name, f = "Acquire", (*redlock.Locker).Acquire
	} else if k := d.r.holder(d.Key); d.schedule().prompt() && k != nil && d.h.bare(k) {
		// A majority for "no" then needs a faulty node. That node is waited for, because it may report that the lock is held,
		// which all others together cannot.
		name = "TryAcquire with less"
	}
	return d.lock(name, func() (*redlock.Lock, error) {
		ctx, stop := d.patience()
		defer stop()
		return f(d.h.locker(), ctx, d.name(), d.TTL, d.fenced())
	})
}

func (d *driver) release(k *holding) {
	if k == nil || !d.h.step() {
		return
	}
	d.h.ends(k)
	d.releaseAndJudge(k)
}

// releaseAndJudge releases a lock and judges the result.
func (d *driver) releaseAndJudge(k *holding) {
	called := d.r.now()
	d.h.released(k, called, d.releaseWith(context.Background(), k))
}

func (d *driver) releaseWith(ctx context.Context, k *holding) error {
	err := d.h.call("Release", func() error { return k.lock.Release(ctx) })
	d.r.told(k, err)
	return err
}

func (d *driver) write(ks ...*holding) {
	for _, k := range ks {
		d.r.write(k)
	}
}

// short does a job that it expects to finish before Until.
func (d *driver) short(k *holding) {
	if k == nil || !d.h.step() {
		return
	}
	d.write(k)
	if d.sleep(d.Hold) {
		d.write(k)
		d.release(k)
	}
}

// extends extends the lock by hand, each time after Hold.
func (d *driver) extends(k *holding) {
	if k == nil {
		return
	}
	for range d.Times {
		if !d.sleep(d.Hold) {
			return
		}
		d.write(k)
		name := "Extend"
		if d.h.bare(k) {
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
func (d *driver) extend(name string, k *holding) error {
	before := k.lock.Until()
	err := d.h.call(name, func() error {
		ctx, stop := d.patience()
		defer stop()
		return k.lock.Extend(ctx)
	})
	d.r.told(k, err)
	d.r.judgeUntil(k, before, err)
	if err == nil {
		d.h.carried(k)
	}
	return err
}

// keep lets the library extend the lock until Hold has passed or the lock is lost.
func (d *driver) keep(k *holding) {
	if k == nil || !d.h.step() {
		return
	}
	held, stop := k.lock.KeepAlive(context.Background())
	defer stop()
	unwatch := d.h.watch(held, k.lock.Valid, k)
	d.hold(held, k)
	unwatch()
	if d.Do == Die {
		d.h.die()
		return
	}
	d.release(k)
}

// hold works under the locks, with a few writes, until Hold has passed or one of them is lost.
func (d *driver) hold(held context.Context, ks ...*holding) {
	const writes = 4
	for range writes {
		d.write(ks...)
		for _, k := range ks {
			d.h.carried(k)
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
		if !d.h.step() || held.Err() != nil {
			return
		}
	}
}

// windDown continues to work for most of the time that Options.Grace leaves, like a program that has a request in progress.
// The lock is still held during this time, but is not extended any more.
func (d *driver) windDown(held context.Context, k *holding) {
	until := k.lock.Until()
	if d.schedule().Grace == 0 || outcome(context.Cause(held)) != "lost" || !k.lock.Valid() || !d.sleep(time.Until(until)*3/4) || !k.lock.Valid() {
		return
	}
	d.write(k)
	d.h.carried(k)
	ctx, stop := d.patience()
	defer stop()
	err := k.lock.Extend(ctx)
	if o := outcome(err); o != "lost" && o != "closed" || !k.lock.Until().Equal(until) {
		d.r.wrong("I3", d.Key, "c%d: fence %d was reported lost, but Extend returned %v and moved Until by %v", d.Client, k.Fence, err, k.lock.Until().Sub(until))
	}
}

func (d *driver) run() {
	if !d.h.step() {
		return
	}
	var mine *holding
	called := d.r.now()
	ctx, stop := d.patience()
	defer stop()
	err := d.h.call("Run", func() error {
		return d.h.locker().Run(ctx, d.name(), d.TTL, func(held context.Context, lock *redlock.Lock) error {
			mine = d.h.claim(called, lock)
			panics := true
			defer func() {
				switch {
				case panics && d.Do == Quit: // in a callback, before or after the lock was left
					d.r.end(mine, leftOrReleased)
				case panics: // in a callback: the library releases the lock
					d.r.end(mine, "run")
				}
			}()
			defer d.h.watch(held, lock.Valid, mine)()
			if d.Do == Quit {
				lock.LeaveUntil(context.Background(), lock.Until())
				d.r.why(mine, "left to expire")
				panics = false
				return nil
			}
			d.hold(held, mine)
			d.r.end(mine, "run") // the library releases the lock after this
			d.h.mayPanic(uint64(mine.Fence))
			panics = false
			return nil
		}, d.fenced())
	})
	if mine != nil {
		d.r.told(mine, err)
	}
	if d.Do == Quit && mine != nil && errors.Is(err, redlock.ErrLost) {
		d.r.wrong("errors", d.Key, "c%d called LeaveUntil, but Run returned: %v", d.Client, err)
	}
	if err == nil && mine == nil {
		d.r.wrong("errors", d.Key, "Run returned nil without calling fn")
	}
}

// last holds the lock until the last moment, writes just before Until and again when it is too late.
func (d *driver) last(k *holding) {
	if k == nil {
		return
	}
	time.Sleep(time.Until(k.lock.Until()) - d.Hold)
	if !d.h.step() {
		return
	}
	d.write(k)
	time.Sleep(time.Until(k.lock.Until()) + d.Late)
	if !d.h.step() {
		return
	}
	d.write(k)
	d.release(k)
}

// awaitEnd sleeps until the holder of the key must stop to rely on it, plus Late.
func (d *driver) awaitEnd() {
	wait := d.idle + d.Late
	if k := d.r.holder(d.Key); k != nil {
		if left := time.Until(k.lock.Until()); left > 0 {
			wait = min(left+d.Late, d.longest)
		}
	}
	time.Sleep(wait)
}

// adopt takes over the lock of the current holder, as if that had passed on its value.
func (d *driver) adopt() {
	giver := d.r.holder(d.Key)
	if giver == nil || !d.h.step() {
		return
	}
	d.adoptFrom(giver, giver.Value)
}

// adoptFrom adopts a value: that of giver or, if giver is nil, that of a foreign client.
func (d *driver) adoptFrom(giver *holding, value string) {
	if giver != nil {
		d.r.adopting(giver)
	}
	returned := d.h.adopts(giver)
	called := d.r.now()
	k := d.lock("Adopt", func() (lock *redlock.Lock, err error) {
		ctx, stop := d.patience()
		defer stop()
		lock, err = d.h.locker().Adopt(ctx, d.name(), redlock.ValueOf(value), d.TTL, d.fenced())
		if lock != nil && giver != nil {
			d.r.endAt(giver, called, "handed over")
		}
		return lock, err
	})
	returned(k)
	d.short(k)
}

// cancel cancels its context in the middle of the acquisition; if the acquisition was quicker, it cancels the release.
func (d *driver) cancel() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	time.AfterFunc(d.Wait, stop)
	k := d.lock("Acquire", func() (*redlock.Lock, error) { return d.h.locker().Acquire(ctx, d.name(), d.TTL, d.fenced()) })
	if k == nil {
		return
	}
	d.write(k)
	if !d.h.step() {
		return
	}
	d.r.end(k, "release")
	short, stopShort := context.WithCancel(context.Background())
	defer stopShort()
	time.AfterFunc(d.Late, stopShort)
	d.releaseWith(short, k)
}
