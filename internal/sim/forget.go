package sim

import "time"

// The data that nodes lose determines what the library can promise: I1 holds while a majority stores the lock, I2 while a
// majority has registers at or above the holder's fence. So the simulation reads what is stored before and after every fault
// by which a node may lose data, and the judges know to the instant what was promised.

type stored struct {
	value    string
	left     time.Duration
	register int64
}

func (w *world) stored(node, key int) stored {
	n := w.c.Node(node)
	value, _ := n.Get(w.s.keyName(key))
	score, _ := n.Score(w.s.registerName(key), "f")
	return stored{value: value, left: n.TTL(w.s.keyName(key)), register: int64(score)}
}

// forget injects a fault and records what the node has lost.
func (w *world) forget(node int, strike func()) {
	before := make([]stored, w.s.Keys)
	for key := range before {
		before[key] = w.stored(node, key)
	}
	strike()
	for key, b := range before {
		a := w.stored(node, key)
		if a.register < b.register {
			w.lose(Loss{At: w.now(), Node: node, Key: key, Register: true})
		}
		// A server that is back with old data may have a ttl from before an extension.
		if b.value != "" && (a.value != b.value || a.left < b.left-time.Millisecond) {
			w.lose(Loss{At: w.now(), Node: node, Key: key, Value: b.value})
			w.judgeLoss(node, key, b)
		}
	}
}

func (w *world) lose(l Loss) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.h.Losses = append(w.h.Losses, l)
}

// judgeLoss determines whether a majority still stores what this node has lost, for as long as this node would have. If not,
// nothing is promised to the holder any more, whose acquisition may not even have returned yet.
func (w *world) judgeLoss(node, key int, b stored) {
	const grain = 3 * time.Millisecond // the requests of one round do not arrive at the same instant
	need := float64(b.left)/w.s.rate(node) - float64(grain)
	carry := 0
	for i := range w.c.Len() {
		if s := w.stored(i, key); i != node && s.value == b.value && float64(s.left)/w.s.rate(i) >= need {
			carry++
		}
	}
	if carry >= w.c.Len()/2+1 {
		return
	}
	now := w.now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.lost[b.value]; ok {
		return
	}
	w.lost[b.value] = now
	if k := w.live[b.value]; k != nil {
		k.Forgotten = min(k.Forgotten, now)
	}
}
