package sim

// A fenced is the store that a lock protects. It checks fences: it refuses a write whose fence is smaller than one it has seen.
type fenced struct {
	fence int64
	value string
}

// write writes to the store. A holder writes even after its claim has ended: late writes must do no harm.
func (w *world) write(c *client, k *holding) {
	valid, now, until := k.lock.Valid(), w.now(), k.lock.Until().Sub(w.began)
	if valid && now >= until {
		w.wrong("I3", k.Key, "c%d: fence %d is valid at %v, after its Until %v", c.i, k.Fence, now, until)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.store[k.Key]
	if s == nil {
		s = &fenced{}
		w.store[k.Key] = s
	}
	o := Write{At: now, Key: k.Key, Client: c.i, Value: k.Value, Fence: k.Fence, Accepted: k.Fence >= s.fence}
	o.Claimed = now < until && k.Ended == never && k.Adopting == never
	if o.Accepted {
		s.fence, s.value = k.Fence, k.Value
	}
	w.h.Writes = append(w.h.Writes, o)
}
