package sim

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/seed-ce352c9b/redlock"
)

// A record is what both worlds, the one in the bubble and the real one, record while they execute a schedule. Both use the
// same form, so that the same judges can read it.
type record struct {
	began time.Time
	said  announced

	mu       sync.Mutex // also guards the fields of the world
	h        *History
	latest   map[int]*holding    // by key: the newest claim
	live     map[string]*holding // by value
	closedAt map[string]instant  // by label: when the Locker's Close was called
	store    map[int]*fenced
	toldLost map[string]bool // values whose holders got ErrLost
	queue    map[int]waiter  // waiting calls, by task
	open     int             // number of active faults
	quiet    instant         // when a fault last began or ended
}

// A holding is a claim and its lock.
type holding struct {
	*Claim
	lock *redlock.Lock
	held context.Context // of KeepAlive or Run
	edge edge
}

// newRecord returns a record that begins now.
func newRecord(s *Schedule) record {
	return record{began: time.Now(), said: newAnnounced(s.Nodes), h: &History{Schedule: s}, latest: map[int]*holding{}, live: map[string]*holding{}, closedAt: map[string]instant{}, store: map[int]*fenced{}, toldLost: map[string]bool{}, queue: map[int]waiter{}}
}

func (r *record) now() instant { return time.Since(r.began) }

// wrong records a violation that was detected now.
func (r *record) wrong(promise string, key int, format string, args ...any) {
	v := Violation{At: r.now(), Promise: promise, Key: key, Text: fmt.Sprintf(format, args...)}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.h.Seen = append(r.h.Seen, v)
}

// struck records that a fault began or ended.
func (r *record) struck(format string, args ...any) {
	at := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.h.Struck = append(r.h.Struck, Struck{At: at, Text: fmt.Sprintf(format, args...)})
}

// called makes a call, and records it and its return.
func (r *record) called(o *Op, f func() error) error {
	err := recovered(f)
	o.Returned, o.Outcome = r.now(), outcome(err)
	if err != nil {
		o.Text = err.Error()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.h.Ops = append(r.h.Ops, *o)
	return err
}

// told records what the holder of a claim was told: an error, the cause of the end of a context.
func (r *record) told(k *holding, err error) {
	if errors.Is(err, redlock.ErrLost) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.toldLost[k.Value] = true
	}
}

// granted returns the claim to a lock that was just returned. The world adds what else it knows before it calls enterLocked:
// from then on others see the claim.
func (r *record) granted(client, task, key int, called instant, ttl time.Duration, lock *redlock.Lock) *holding {
	until := lock.Until().Sub(r.began)
	return &holding{lock: lock, edge: newEdge(), Claim: &Claim{
		Client: client, Task: task, Key: key, Value: lock.Value().Secret(), Fence: lock.Fence(), TTL: ttl,
		Called: called, Start: until - validity(ttl), Got: r.now(), Until: until, Ended: never, Forgotten: never, Adopting: never,
		Why: "until",
	}}
}

// enterLocked adds a claim to the history. A claim of a Locker whose Close has been called has already ended.
func (r *record) enterLocked(k *holding) {
	if at, ok := r.closedAt[labelOf(k.Value)]; ok {
		k.Ended, k.Why = at, "close"
	}
	r.live[k.Value] = k
	if last := r.latest[k.Key]; last == nil || last.Got <= k.Got {
		r.latest[k.Key] = k
	}
	r.h.Claims = append(r.h.Claims, k.Claim)
}

// started judges the start of a new claim.
func (r *record) started(k *holding) {
	if k.Start < k.Called {
		r.wrong("I3", k.Key, "c%d: Until %v counts from %v, before the call at %v", k.Client, k.Until, k.Start, k.Called)
	}
}

// holder returns the key's newest claim if it has not ended.
func (r *record) holder(key int) *holding {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.latest[key]
	if k == nil || k.Ended != never || r.now() >= k.lock.Until().Sub(r.began) {
		return nil
	}
	return k
}

// end records that a holder gives up its claim; it is called before the holder does so.
func (r *record) end(k *holding, why string) { r.endAt(k, r.now(), why) }

func (r *record) endAt(k *holding, at instant, why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if at < k.Ended {
		k.Ended, k.Why = at, why
	}
}

// closing ends the claims of a process whose Locker is about to be closed, and those that the Locker may still return.
func (r *record) closing(label string) {
	now := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closedAt[label] = now
	for _, k := range r.h.Claims {
		if label == labelOf(k.Value) && now < k.Ended {
			k.Ended, k.Why = now, "close"
		}
	}
}

// adopting records that somebody begins to adopt a claim's value.
func (r *record) adopting(k *holding) {
	now := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	k.Adopting = min(k.Adopting, now)
}

// why records in which other way than by a release a claim will end.
func (r *record) why(k *holding, why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k.Why = why
}

// judgeUntil judges what an Extend made of Until.
func (r *record) judgeUntil(k *holding, before time.Time, err error) {
	after := k.lock.Until()
	switch {
	case after.Before(before):
		r.wrong("I3", k.Key, "c%d: Until moved back from %v to %v", k.Client, before.Sub(r.began), after.Sub(r.began))
	case err == nil && !after.After(before):
		r.wrong("I3", k.Key, "c%d: extended, but Until remains %v", k.Client, before.Sub(r.began))
	}
}
