package wait

import (
	"cmp"
	"slices"
	"sync"
)

// A Gate keeps calls for several keys apart that would refuse each other: of those that share
// a key, it admits one at a time. A call that finds a key busy waits there, where no later call
// passes it, and occupies none of its keys meanwhile. So calls never wait for each other in a
// circle. The zero value is ready. All methods may be called concurrently.
type Gate struct {
	// Take takes one of the places of those that wait for a key, and reports whether there was
	// one; Give gives it back. They are called with the gate's mutex held, and must not call the
	// Gate. If they are nil, any number may wait. Constant from the first call on.
	Take func(key string) bool
	Give func(key string)

	mu      sync.Mutex
	last    uint64
	busy    map[string]int        // how many calls occupy a key
	waiting map[string][]*Entrant // by the key at which they wait, oldest first
}

// An Entrant is a call at a Gate. Guarded by the gate's mu, but for Done and, once that is closed
// or Withdraw has returned, for Place and Full.
type Entrant struct {
	Done  chan struct{} // closed when it occupies all its keys, or is refused
	Place string        // the key for which it has a place, which is the caller's in the end; "": none
	Full  string        // the key that had no place for it, so that it was refused; "": none

	keys []string
	age  uint64
	at   string // the key at which it waits; "": none
}

// Enter admits a call at once, or has it wait, or refuses it.
func (g *Gate) Enter(keys []string) *Entrant {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.last++
	e := &Entrant{Done: make(chan struct{}), keys: keys, age: g.last}
	g.admit(e)
	return e
}

// admit admits a call, or has it wait at the first of its keys that is busy or for which an
// older call waits, since it was busy until now. It refuses a call that comes to a key without
// a place. Needs g.mu.
func (g *Gate) admit(e *Entrant) {
	for _, key := range e.keys {
		if old := g.waiting[key]; g.busy[key] == 0 && (len(old) == 0 || old[0].age > e.age) {
			continue
		}
		if e.at = ""; !g.move(e, key) {
			e.Full = key
			close(e.Done)
			return
		}
		i, _ := slices.BinarySearchFunc(g.waiting[key], e.age, func(o *Entrant, age uint64) int { return cmp.Compare(o.age, age) })
		if g.waiting == nil {
			g.waiting = make(map[string][]*Entrant)
		}
		g.waiting[key] = slices.Insert(g.waiting[key], i, e)
		e.at = key
		return
	}
	e.at = ""
	g.occupy(e.keys)
	close(e.Done)
}

// move gives back the place that a call has, and takes one for another key. Needs g.mu.
func (g *Gate) move(e *Entrant, to string) bool {
	if g.Take == nil || e.Place == to {
		return true
	}
	if e.Place != "" {
		g.Give(e.Place)
		e.Place = ""
	}
	if !g.Take(to) {
		return false
	}
	e.Place = to
	return true
}

// leaveQueue takes a call away from the key at which it waits. Needs g.mu.
func (g *Gate) leaveQueue(e *Entrant) {
	rest := slices.DeleteFunc(g.waiting[e.at], func(o *Entrant) bool { return o == e })
	if len(rest) == 0 {
		delete(g.waiting, e.at)
	} else {
		g.waiting[e.at] = rest
	}
}

// advance lets the calls that wait at a key go on, once it is not busy. One that then waits at
// another key does not stand in the way of the next. Needs g.mu.
func (g *Gate) advance(key string) {
	for g.busy[key] == 0 && len(g.waiting[key]) > 0 {
		e := g.waiting[key][0]
		g.leaveQueue(e)
		g.admit(e)
	}
}

// Withdraw ends the wait of a call, and reports whether it was admitted before.
func (g *Gate) Withdraw(e *Entrant) (admitted bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if e.at != "" {
		g.leaveQueue(e)
		g.advance(e.at)
	}
	return e.at == "" && e.Full == ""
}

// Occupy makes keys busy for a call that goes on without being admitted.
func (g *Gate) Occupy(keys []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.occupy(keys)
}

// occupy is Occupy. Needs g.mu.
func (g *Gate) occupy(keys []string) {
	if g.busy == nil {
		g.busy = make(map[string]int)
	}
	for _, key := range keys {
		g.busy[key]++
	}
}

// Free undoes Occupy or an admission for some of the keys. Each key has to be freed as often
// as it was made busy.
func (g *Gate) Free(keys ...string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, key := range keys {
		if g.busy[key]--; g.busy[key] == 0 {
			delete(g.busy, key)
		}
	}
	for _, key := range keys {
		g.advance(key)
	}
}
