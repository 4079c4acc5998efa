package queue

import "github.com/seed-ce352c9b/redlock/internal/wire"

// A Watcher is told when a leader of its key comes or goes.
type Watcher struct {
	Wake chan struct{} // gets a value whenever there is a reason to ask

	channel string
	heard   uint64 // the nodes whose announcements are heard, as bits; guarded by Queues.mu
}

func (m *Watcher) poke() {
	select {
	case m.Wake <- struct{}{}:
	default:
	}
}

// Watch subscribes to the announcements of a key's leaders.
func (w *Queues) Watch(name *wire.LockKey) *Watcher {
	m := &Watcher{channel: wire.LeaderChannel(name), Wake: make(chan struct{}, 1)}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, other := range w.watchers[m.channel] {
		m.heard = other.heard
	}
	if w.watchers == nil {
		w.watchers = make(map[string][]*Watcher)
	}
	w.watchers[m.channel] = append(w.watchers[m.channel], m)
	for _, e := range w.subscribers {
		if e != nil {
			e.Listen(m.channel)
		}
	}
	return m
}

// Unwatch ends a watch, and the subscription with the last one.
func (w *Queues) Unwatch(m *Watcher) {
	w.mu.Lock()
	defer w.mu.Unlock()
	rest := w.watchers[m.channel][:0:0]
	for _, other := range w.watchers[m.channel] {
		if other != m {
			rest = append(rest, other)
		}
	}
	if w.watchers[m.channel] = rest; len(rest) > 0 {
		return
	}
	delete(w.watchers, m.channel)
	for _, e := range w.subscribers {
		if e != nil {
			e.Ignore(m.channel)
		}
	}
}

// Hears reports whether a watcher hears a majority of the nodes.
func (w *Queues) Hears(m *Watcher) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cfg.Rules.Hears(m.heard)
}

// watchersHear tells the watchers of a channel that node i is heard from now on, or no longer.
// What was announced before that went unheard. Needs w.mu.
func (w *Queues) watchersHear(i int, channel string, yes bool) {
	for _, m := range w.watchers[channel] {
		m.heard &^= 1 << i
		if yes {
			m.heard |= 1 << i
		}
		m.poke()
	}
}

// wakeWatchers wakes the watchers of a channel. Needs w.mu.
func (w *Queues) wakeWatchers(channel string) {
	for _, m := range w.watchers[channel] {
		m.poke()
	}
}
