package sim

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/seed-ce352c9b/redlock"
)

// A record is what both worlds, the one in the bubble and the real one, note while they play: it is kept in the same way, so
// that the same judges can read it.
type record struct {
	began time.Time

	mu     sync.Mutex // of what a world itself notes, too
	h      *History
	latest map[int]*holding    // by key: the newest claim
	live   map[string]*holding // by value
	shutAt map[string]instant  // by label: when a Locker's Close was called
}

// A holding is a claim and the lock it is about.
type holding struct {
	*Claim
	lock *redlock.Lock
	held context.Context // of its KeepAlive or Run; in the bubble only
	edge edge
}

// newRecord begins one, now.
func newRecord(s *Schedule) record {
	return record{began: time.Now(), h: &History{Schedule: s}, latest: map[int]*holding{}, live: map[string]*holding{}, shutAt: map[string]instant{}}
}

func (r *record) now() instant { return time.Since(r.began) }

// wrong notes a violation that is seen now.
func (r *record) wrong(promise string, key int, format string, args ...any) {
	v := Violation{At: r.now(), Promise: promise, Key: key, Text: fmt.Sprintf(format, args...)}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.h.Seen = append(r.h.Seen, v)
}

func (r *record) struck(format string, args ...any) {
	at := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.h.Struck = append(r.h.Struck, Struck{At: at, Text: fmt.Sprintf(format, args...)})
}

// granted is the claim to a lock that was just returned. What more a world knows of it is added before it is entered: from
// then on others see it.
func (r *record) granted(client, task, key int, called instant, ttl time.Duration, lock *redlock.Lock) *holding {
	until := lock.Until().Sub(r.began)
	return &holding{lock: lock, edge: newEdge(), Claim: &Claim{
		Client: client, Task: task, Key: key, Value: lock.Value(), Fence: lock.Fence(), TTL: ttl,
		Called: called, Start: until - validity(ttl), Got: r.now(), Until: until, Ended: never, Forgotten: never, Adopting: never,
		Why: "until",
	}}
}

// enterLocked enters a claim. One of a Locker whose Close has been called is over from the start.
func (r *record) enterLocked(k *holding) {
	if at, ok := r.shutAt[labelOf(k.Value)]; ok {
		k.Ended, k.Why = at, "close"
	}
	r.live[k.Value] = k
	if last := r.latest[k.Key]; last == nil || last.Got <= k.Got {
		r.latest[k.Key] = k
	}
	r.h.Claims = append(r.h.Claims, k.Claim)
}

// started judges from when a new claim counts.
func (r *record) started(k *holding) {
	if k.Start < k.Called {
		r.wrong("I3", k.Key, "c%d: Until %v counts from %v, before the call at %v", k.Client, k.Until, k.Start, k.Called)
	}
}

// holder is the key's newest claim if it is not over.
func (r *record) holder(key int) *holding {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.latest[key]
	if k == nil || k.Ended != never || r.now() >= k.lock.Until().Sub(r.began) {
		return nil
	}
	return k
}

// end notes that a holder gives its claim up; it is called before he does.
func (r *record) end(k *holding, why string) { r.endAt(k, r.now(), why) }

func (r *record) endAt(k *holding, at instant, why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if at < k.Ended {
		k.Ended, k.Why = at, why
	}
}

// closing ends the claims of a process whose Lockers are about to be closed, and those that they may yet hand out.
func (r *record) closing(label string) {
	now := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.shutAt[label] = now
	for _, k := range r.h.Claims {
		if label == labelOf(k.Value) && now < k.Ended {
			k.Ended, k.Why = now, "close"
		}
	}
}
