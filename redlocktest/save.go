package redlocktest

import (
	"maps"
	"time"
)

// A saved is a key as it was written to disk: with the time at which it expires, not with the remaining ttl.
type saved struct {
	text   string
	scores map[string]float64 // of a sorted set, otherwise nil
	ends   time.Time          // zero: the key does not expire
}

// Save writes the node's strings and sorted sets to its disk, as a server does that syncs once a second. Keys of other
// types are not saved. See [Node.Revert].
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
			scores, _ := n.m.SortedSet(key) // miniredis's own map, which later writes change
			s.scores = maps.Clone(scores)
		default:
			continue
		}
		if ttl := n.m.TTL(key); ttl > 0 {
			s.ends = now.Add(ttl)
		}
		n.disk[key] = s
	}
}

// Revert restarts the node with the data of the last [Node.Save], except for keys that have expired since. Later writes are
// lost. If there was no Save, it is Restart(false).
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
