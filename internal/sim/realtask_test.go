package sim

import (
	"context"
	"time"

	"github.com/seed-ce352c9b/redlock"
)

// A realTaskRun is a running task, as taskRun is in the bubble.
type realTaskRun struct {
	driver
	w *realWorld
	c *realClient
}

func (w *realWorld) task(i int) {
	t := w.s.Tasks[i]
	time.Sleep(t.At - w.now())
	w.newTask(i, t).do()
}

func (w *realWorld) newTask(i int, t Task) *realTaskRun {
	d := &realTaskRun{driver: driver{Task: t, r: &w.record, i: i, idle: 20 * time.Millisecond, longest: time.Second}, w: w, c: w.clients[t.Client]}
	d.h = d
	return d
}

func (d *realTaskRun) other() {
	if d.Do != Close {
		panic("sim: no behaviour " + d.Do)
	}
	d.w.struck("c%d is closed in use", d.Client)
	if d.c.close() {
		d.c.start()
	}
}

func (d *realTaskRun) call(name string, f func() error) error {
	o := d.op(name)
	if name == "Acquire" {
		d.w.waits(d.i, waiter{keys: []int{d.Key}})
		defer d.w.served(d.i)
	}
	err := d.w.called(&o, f)
	if o.Outcome == "error" {
		d.undocumented(o, err)
	}
	return err
}

func (d *realTaskRun) locker() *redlock.Locker { return d.c.locker(d.Key) }
func (d *realTaskRun) die()                    { d.c.die() }

func (d *realTaskRun) claim(called instant, lock *redlock.Lock) *holding {
	d.judgeFence(lock)
	return d.w.claim(d.c, d.i, d.Key, called, d.TTL, lock)
}

// ends judges the context, too, because what a release makes of it is not judged.
func (d *realTaskRun) ends(k *holding) {
	d.w.stillOpen(k)
	d.w.end(k, "release")
}

func (d *realTaskRun) carried(k *holding) {
	d.w.stillOpen(k)
	d.w.glimpse(k)
}

func (d *realTaskRun) watch(held context.Context, valid func() bool, k *holding) (stop func()) {
	w := d.w
	if w.now() >= k.lock.Until().Sub(w.began) {
		return func() {} // this process was late: the context had ended before it was watched
	}
	k.held = held
	off := context.AfterFunc(held, func() {
		at := w.now()
		w.told(k, context.Cause(held))
		w.tell(k, at, false)
		if outcome(context.Cause(held)) == "lost" && valid() {
			w.wrong("I3", k.Key, "fence %d is lost, but valid", k.Fence)
		}
	})
	return func() { off() }
}

// stillOpen records that the context of a claim, if it has one, has not ended.
func (w *realWorld) stillOpen(k *holding) {
	if at := w.now(); k.held != nil && k.held.Err() == nil {
		w.tell(k, at, true)
	}
}

func (w *realWorld) tell(k *holding, at instant, open bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tellings = append(w.tellings, telling{at: at, until: k.lock.Until().Sub(w.began), key: k.Key, who: k.Claim.String(), open: open})
}

// What is only judged in the bubble, where nothing is late.
func (d *realTaskRun) step() bool                        { return true }
func (d *realTaskRun) bare(*holding) bool                { return false }
func (d *realTaskRun) released(*holding, instant, error) {}
func (d *realTaskRun) adopts(*holding) func(*holding)    { return func(*holding) {} }
func (d *realTaskRun) mayPanic(...uint64)                {}
