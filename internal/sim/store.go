package sim

// A fenced is the store that a lock protects. It checks fences: it refuses a write whose fence is smaller than one it has seen.
type fenced struct {
	fence int64
	value string
}

// write writes to the store. A holder writes even after its claim has ended: late writes must do no harm. The clock is read before
// what is compared with it, because in real time the goroutine may be suspended in between.
func (r *record) write(k *holding) {
	now, valid := r.now(), k.lock.Valid()
	until := k.lock.Until().Sub(r.began)
	if valid && now >= until {
		r.wrong("I3", k.Key, "c%d: fence %d is valid at %v, after its Until %v", k.Client, k.Fence, now, until)
	}
	if k.Fence == 0 {
		return // where a store checks fences, all have one
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.store[k.Key]
	if s == nil {
		s = &fenced{}
		r.store[k.Key] = s
	}
	o := Write{At: now, Key: k.Key, Client: k.Client, Value: k.Value, Fence: k.Fence, Accepted: k.Fence >= s.fence}
	o.Claimed = now < until && k.Ended == never && k.Adopting == never
	if o.Accepted {
		s.fence, s.value = k.Fence, k.Value
	}
	r.h.Writes = append(r.h.Writes, o)
}
