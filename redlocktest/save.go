package redlocktest

import "time"

// saved is a key as it was written to disk: with the time of its end, not with what remains.
type saved struct {
	text   string
	scores map[string]float64 // of a sorted set, else nil
	ends   time.Time          // zero: never
}

// Save writes the node's strings and sorted sets to its disk, as a server does that syncs once a second; see [Node.Revert].
func (n *Node) Save() {
	n.exec.Lock()
	defer n.exec.Unlock()
	now := n.tick()
	n.disk = map[string]saved{}
	for _, key := range n.m.Keys() {
		var s saved
		switch n.m.Type(key) {
		case "string":
			s.text, _ = n.m.Get(key)
		case "zset":
			s.scores, _ = n.m.SortedSet(key)
		default:
			continue
		}
		if ttl := n.m.TTL(key); ttl > 0 {
			s.ends = now.Add(ttl)
		}
		n.disk[key] = s
	}
}

// Revert is a restart with the data of the last [Node.Save], less what has expired since: everything later is forgotten. Without
// a Save it is Restart(false).
func (n *Node) Revert() {
	n.exec.Lock()
	defer n.exec.Unlock()
	n.stop()
	n.m.FlushAll()
	now := n.tick()
	for key, s := range n.disk {
		if !s.ends.IsZero() && !s.ends.After(now) {
			continue
		}
		if s.scores == nil {
			n.m.Set(key, s.text)
		}
		for member, score := range s.scores {
			n.m.ZAdd(key, score, member)
		}
		if !s.ends.IsZero() {
			n.m.SetTTL(key, s.ends.Sub(now))
		}
	}
	n.start()
}
