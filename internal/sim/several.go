package sim

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/seed-ce352c9b/redlock"
)

// Tasks that want several keys at once, or one of several slots, and what can be judged of them in addition: an AcquireAll
// has all its locks or none, a caller that waits for one holds none, and nobody waits for ever.

// patient is a wait that nobody needs in a calm: in a crowd that does not grow, everybody is served before.
const patient = time.Minute

// drawSeveral draws the keys of a task that wants several, in any order, and the times of those that do.
func drawSeveral(d drawer, sch *Schedule, t *Task) {
	switch t.Do {
	case All, KeepAll, WithinAll, TryAll, FickleAll, Nest:
		all := make([]int, sch.Keys)
		for i := range all {
			j := d.IntN(i+1, "place")
			all[i], all[j] = all[j], i
		}
		t.Keys = all[:1+d.IntN(min(4, len(all)), "several")]
		if t.Do != Nest && d.IntN(8, "twice") == 0 {
			t.Keys = append(slices.Clone(t.Keys), t.Keys[d.IntN(len(t.Keys), "which")])
		}
		t.Key = t.Keys[0]
	case Slot, KeepSlot, WithinSlot, TrySlot, FickleSlot:
	default:
		return
	}
	t.Wait = between(d, [2]time.Duration{5 * ms, 4 * t.TTL}, "wait")
	t.Times = d.IntN(3, "times")
	switch d.IntN(8, "lasting") {
	case 0:
		t.TTL = time.Minute // so that leftovers can be seen
	case 1:
		t.Late = between(d, [2]time.Duration{1, t.TTL}, "late")
	case 2, 3:
		if t.Do == KeepAll || t.Do == WithinAll || t.Do == KeepSlot || t.Do == WithinSlot {
			t.Hold = between(d, [2]time.Duration{0, 2 * t.TTL}, "hold")
		}
	}
}

// wantSeveral makes a task of the crowd at the end want several keys, or a slot. Those that nest do so in the order of the
// keys, as the doc comment of AcquireAll requires.
func (s *Schedule) wantSeveral(t *Task, i int) {
	t.Wait = 2 * patient // those that have died may have left a lock with a ttl of a minute
	if t.Do = Slot; s.Slots > 0 {
		return
	}
	if t.Do = All; i%4 == 3 {
		t.Do = Nest
	}
	for j := range min(3, s.Keys) {
		t.Keys = append(t.Keys, (i+j)%s.Keys)
	}
	switch slices.Sort(t.Keys); {
	case t.Do == Nest:
	case i%2 == 1:
		slices.Reverse(t.Keys)
	case i%4 == 2:
		t.Keys = append(t.Keys, t.Keys[0])
	}
	t.Key = t.Keys[0]
}

func (d *taskRun) several() {
	if !d.step() {
		return
	}
	ctx, stop := d.patience()
	defer stop()
	switch d.Do {
	case All:
		d.useAll(d.acquireAll(ctx))
	case TryAll:
		d.useAll(d.acquireAll(ctx, redlock.WithWait(0)))
	case FickleAll:
		d.w.mayGiveUp(stop, d.Keys...)
		d.useAll(d.acquireAll(ctx))
	case KeepAll:
		d.keepAll(d.acquireAll(ctx))
	case WithinAll:
		d.runAll(ctx)
	case Nest:
		d.nest()
	case Slot:
		d.short(d.acquireSlot(ctx))
	case TrySlot:
		d.short(d.acquireSlot(ctx, redlock.WithWait(0)))
	case FickleSlot:
		d.w.mayGiveUp(stop, d.w.s.slotKeys()...)
		d.short(d.acquireSlot(ctx))
	case KeepSlot:
		d.keepSlot(d.acquireSlot(ctx))
	case WithinSlot:
		d.runSlot(ctx)
	}
}

func (d *taskRun) names() (names []string) {
	for _, key := range d.Keys {
		names = append(names, d.w.s.keyName(key))
	}
	return names
}

// A bundle is what an AcquireAll acquired.
type bundle struct {
	locks redlock.Locks
	ks    []*holding
}

func (d *taskRun) acquireAll(ctx context.Context, opts ...redlock.AcquireOption) bundle {
	var locks redlock.Locks
	called := d.w.now()
	err := d.call("AcquireAll", func() (err error) {
		locks, err = d.c.locker().AcquireAll(ctx, d.names(), d.TTL, append(opts, d.fenced())...)
		return err
	})
	if err != nil && locks != nil {
		d.w.wrong("all", d.Key, "c%d AcquireAll returned %d locks and an error: %v", d.Client, len(locks), err)
	}
	if err != nil {
		return bundle{}
	}
	return d.claimAll(called, locks)
}

// claimAll records an acquisition of all keys.
func (d *taskRun) claimAll(called instant, locks redlock.Locks) (b bundle) {
	if len(locks) != len(d.Keys) {
		d.w.wrong("all", d.Key, "c%d asked for %v and got %d locks", d.Client, d.Keys, len(locks))
		return bundle{}
	}
	b.locks = locks
	for i, lock := range locks {
		if name := d.w.s.keyName(d.Keys[i]); lock.Key() != name {
			d.w.wrong("all", d.Keys[i], "c%d: lock %d of %v is that of %s", d.Client, i, d.Keys, lock.Key())
		}
		switch first := slices.Index(d.Keys, d.Keys[i]); {
		case first == i:
			d.judgeFence(lock)
			b.ks = append(b.ks, d.w.claim(d.c, d.i, d.Keys[i], called, d.TTL, lock))
		case locks[first] != lock:
			d.w.wrong("all", d.Keys[i], "c%d: a key of %v has two locks", d.Client, d.Keys)
		}
	}
	d.judgeBundle(b)
	return b
}

// judgeBundle judges what the locks say together. Nothing may extend them at the same time.
func (d *taskRun) judgeBundle(b bundle) {
	until, valid := b.ks[0].lock.Until(), true
	for _, k := range b.ks {
		if at := k.lock.Until(); at.Before(until) {
			until = at
		}
		valid = valid && k.lock.Valid()
	}
	if got := b.locks.Until(); !got.Equal(until) {
		d.w.wrong("I3", d.Key, "c%d: Until of all is %v, want the earliest, %v", d.Client, got.Sub(d.w.began), until.Sub(d.w.began))
	}
	if got := b.locks.Valid(); got != valid {
		d.w.wrong("I3", d.Key, "c%d: Valid of all is %v, want %v", d.Client, got, valid)
	}
}

// useAll works under all locks, extends one of them now and then, and releases them, some only after Until.
func (d *taskRun) useAll(b bundle) {
	if len(b.ks) == 0 || !d.step() {
		return
	}
	d.write(b.ks...)
	for i := range d.Times {
		if !d.sleep(d.Hold) {
			return
		}
		k := b.ks[i%len(b.ks)]
		d.Key = k.Key
		d.extend("Extend", k)
		d.judgeBundle(b)
	}
	if d.Late > 0 {
		time.Sleep(time.Until(b.locks.Until()) + d.Late)
	}
	if d.sleep(d.Hold) {
		d.judgeBundle(b)
		d.write(b.ks...)
		d.releaseAll(b)
	}
}

// releaseAll releases the locks, at once or one after the other.
func (d *taskRun) releaseAll(b bundle) {
	if !d.step() {
		return
	}
	if d.Times == 1 {
		for _, k := range b.ks {
			d.Key = k.Key
			d.release(k)
		}
		return
	}
	for _, k := range b.ks {
		d.w.end(k, "release")
		d.w.cancelFickle(k)
	}
	d.call("Release", func() error { return b.locks.Release(context.Background()) })
}

func (d *taskRun) keepAll(b bundle) {
	if len(b.ks) == 0 || !d.step() {
		return
	}
	held, stop := b.locks.KeepAlive(context.Background())
	defer stop()
	d.w.watchLoss(d.c, held, b.locks.Valid, b.ks...)
	d.hold(held, b.ks...)
	d.releaseAll(b)
}

func (d *taskRun) runAll(ctx context.Context) {
	var mine bundle
	lost := false
	called := d.w.now()
	err := d.call("RunAll", func() error {
		return d.c.locker().RunAll(ctx, d.names(), d.TTL, func(held context.Context, locks redlock.Locks) error {
			mine = d.claimAll(called, locks)
			d.w.served(d.i)
			if len(mine.ks) == 0 {
				return nil
			}
			d.w.watchLoss(d.c, held, mine.locks.Valid, mine.ks...)
			d.hold(held, mine.ks...)
			for _, k := range mine.ks {
				d.w.end(k, "run") // the library releases the locks after this
			}
			lost = outcome(context.Cause(held)) == "lost"
			return nil
		}, d.fenced())
	})
	switch {
	case err == nil && len(mine.ks) == 0:
		d.w.wrong("errors", d.Key, "RunAll returned nil without calling fn")
	case lost && !errors.Is(err, redlock.ErrLost) && !errors.Is(err, redlock.ErrClosed):
		d.w.wrong("errors", d.Key, "c%d: a lock of RunAll was lost, but it returned %v", d.Client, err)
	}
}

// nest acquires one key after the other while it holds those before, and releases them in reverse order. Callers that do this
// in different orders wait for each other, until they give up.
func (d *taskRun) nest() {
	var ks []*holding
	for _, key := range d.Keys {
		d.Key = key
		k := d.acquire(true)
		if k == nil {
			break
		}
		d.write(k)
		ks = append(ks, k)
	}
	if len(ks) < len(d.Keys) && d.Wait >= patient && !d.c.isDead() {
		d.w.wrong("liveness", d.Key, "c%d was not served within %v", d.Client, d.Wait)
	}
	if !d.sleep(d.Hold) {
		return
	}
	for _, k := range slices.Backward(ks) {
		d.Key = k.Key
		d.write(k)
		d.release(k)
	}
}

// acquireSlot acquires a slot, and claims the one whose number it got.
func (d *taskRun) acquireSlot(ctx context.Context, opts ...redlock.AcquireOption) *holding {
	var lock *redlock.Lock
	slot := 0
	called := d.w.now()
	err := d.call("AcquireSlot", func() (err error) {
		lock, slot, err = d.c.locker().AcquireSlot(ctx, slotsName, d.w.s.Slots, d.TTL, append(opts, d.fenced())...)
		return err
	})
	if (lock == nil) != (err != nil) {
		d.w.wrong("errors", d.Key, "c%d AcquireSlot returned %v and %v", d.Client, lock, err)
	}
	if lock == nil {
		return nil
	}
	return d.claimSlot(called, lock, slot)
}

// claimSlot records an acquisition of a slot.
func (d *taskRun) claimSlot(called instant, lock *redlock.Lock, slot int) *holding {
	d.Key = d.w.s.Keys - d.w.s.Slots + slot
	if name := d.w.s.keyName(d.Key); lock.Key() != name {
		d.w.wrong("slots", d.Key, "c%d: slot %d is the lock of %s, not of %s", d.Client, slot, lock.Key(), name)
	}
	return d.claim(called, lock)
}

// runSlot works in a slot within RunSlot.
func (d *taskRun) runSlot(ctx context.Context) {
	ran, lost := false, false
	called := d.w.now()
	err := d.call("RunSlot", func() error {
		return d.c.locker().RunSlot(ctx, slotsName, d.w.s.Slots, d.TTL, func(held context.Context, lock *redlock.Lock, slot int) error {
			ran = true
			k := d.claimSlot(called, lock, slot)
			d.w.served(d.i)
			d.w.watchLoss(d.c, held, lock.Valid, k)
			d.hold(held, k)
			d.w.end(k, "run") // the library releases the lock after this
			lost = outcome(context.Cause(held)) == "lost"
			return nil
		}, d.fenced())
	})
	switch {
	case err == nil && !ran:
		d.w.wrong("errors", d.Key, "RunSlot returned nil without calling fn")
	case lost && !errors.Is(err, redlock.ErrLost) && !errors.Is(err, redlock.ErrClosed):
		d.w.wrong("errors", d.Key, "c%d: the lock of RunSlot was lost, but it returned %v", d.Client, err)
	}
}

// keepSlot keeps a slot alive, and meanwhile works in another one as well, if there is one.
func (d *taskRun) keepSlot(k *holding) {
	if k == nil || !d.step() {
		return
	}
	held, stop := k.lock.KeepAlive(context.Background())
	defer stop()
	d.w.watchLoss(d.c, held, k.lock.Valid, k)
	d.write(k)
	if d.w.s.Slots > 1 && d.Times > 0 {
		ctx, cancel := context.WithTimeout(held, d.Wait)
		d.short(d.acquireSlot(ctx))
		cancel()
	}
	d.Key = k.Key
	d.hold(held, k)
	d.release(k)
}

// judgeWait judges how long a call for several keys took: it returns when its context ends, and in a crowd that does not grow
// everybody is served.
func (d *taskRun) judgeWait(o Op) {
	const late = 100 * time.Millisecond
	if d.c.isDead() || d.c.incarnation() != d.incarnation || o.Outcome != "ctx" {
		return
	}
	took := o.Returned - o.Called
	switch {
	case d.Wait >= patient:
		d.w.wrong("liveness", d.Key, "c%d %s of %v was not served within %v: %s", d.Client, o.Name, o.Keys, took, o.Text)
	case took > d.Wait+late && !d.c.stoodStill(d.w.began.Add(o.Called)):
		d.w.wrong("liveness", d.Key, "c%d %s took %v, %v more than its context", d.Client, o.Name, took, took-d.Wait)
	}
}

// judgePace judges that no caller asks as fast as the nodes reply.
func (c *client) judgePace(r redlock.Round) {
	const attempts, pace = 50, 2 * time.Millisecond // at least, on average
	if c.w.s.Several && r.Attempt%attempts == 0 && r.Wait < time.Duration(r.Attempt)*pace {
		c.w.wrong("pace", -1, "c%d: %d attempts for %s in %v", c.i, r.Attempt, r.Key, r.Wait)
	}
}

// gateWait is how long at most an AcquireAll waits for others of its Locker before it asks the nodes.
const gateWait = time.Second

// watchAllFree judges calls for several keys at once as watchWaiters judges those for one: if all keys of one have been free,
// it gets them. since has, by task, since when they have been.
func (w *world) watchAllFree(since map[int]instant) {
	now := w.now()
	w.mu.Lock()
	waiters := maps.Clone(w.queue)
	calm := w.isCalm(now)
	w.mu.Unlock()
	for task, m := range waiters {
		if !m.all {
			continue
		}
		if !calm || since[task] < m.since || slices.ContainsFunc(m.keys, func(key int) bool { return w.isHeld(key, now) || w.unavailable(key) }) {
			since[task] = now
		}
		if idle := now - since[task]; idle > w.mayIdle(now)+gateWait {
			w.wrong("liveness", m.keys[0], "the keys %v have all been free for %v, and task %d has been waiting for them since %v", m.keys, idle, task, m.since)
			since[task] = now
		}
	}
}

// isHeld reports whether somebody has a claim to a key.
func (w *world) isHeld(key int, now instant) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	k := w.latest[key]
	return k != nil && now < k.End()
}

// watchKept judges that a caller that waits holds nothing, and keeps one of the slots that it gets: in a calm, a majority of the
// nodes stores a value that was not returned to anybody only for as long as an attempt and its rollback take.
func (w *world) watchKept() {
	const every = 20 * time.Millisecond
	attempt := 100*time.Millisecond + 10*w.s.Latency
	since := map[string]instant{} // by value
	for n := 0; ; n++ {
		now := w.now()
		seen := map[string]instant{}
		for key := range w.s.Keys {
			value, ok := w.attempted(key, now)
			if !ok {
				continue
			}
			first, known := since[value]
			if !known {
				first = now
			}
			if seen[value] = first; now-first > attempt {
				w.wrong("I4", key, "a majority has had %s = %s for %v, which was returned to nobody", w.s.keyName(key), value, now-first)
				seen[value] = never // told
			}
		}
		since = seen
		select {
		case <-w.calm:
			return
		case <-time.After(every + w.spread(8, n)):
		}
	}
}

// attempted returns the value that a majority of the nodes stores at a key, if it belongs to an attempt of a living process
// and there are no faults.
func (w *world) attempted(key int, now instant) (value string, ok bool) {
	w.mu.Lock()
	calm := w.isCalm(now)
	w.mu.Unlock()
	if !calm {
		return "", false
	}
	count := map[string]int{}
	for i := range w.c.Len() {
		v, _ := w.c.Node(i).Get(w.s.keyName(key))
		if count[v]++; v != "" && count[v] > w.c.Len()/2 {
			value = v
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	_, closed := w.closedAt[labelOf(value)]
	return value, value != "" && !closed && w.live[value] == nil
}
