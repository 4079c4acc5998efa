package model

import (
	"strings"
	"time"
)

// A Result is the outcome of a search.
type Result struct {
	World    *World
	States   int // number of distinct states visited
	Steps    int // number of transitions examined
	Depth    int // length of the longest shortest path
	Time     time.Duration
	Seen     [1 + maxAttempts]uint32 // kinds of steps that were possible, as bits; first those of no attempt, then each attempt's
	Complete bool                    // all states were visited
	Broken   string                  // the property that broke; empty if none
	Trace    []Step                  // a shortest path from an initial state to the break
	Start    state
}

// Options limit a search.
type Options struct {
	MaxStates int                           // 0: no limit
	Progress  func(states, open, depth int) // called about every five seconds; nil: not called
}

// Search visits all states of the world in breadth-first order, until none is left or a property
// breaks.
func (w *World) Search(o Options) Result {
	began := time.Now()
	said := began
	st := newStore()
	res := Result{World: w}
	w.initial(func(s state) { st.add(w.pack(&s), none) })
	level := st.len() // first state of the next depth
	for at := 0; at < st.len(); at++ {
		if at == level {
			level = st.len()
			res.Depth++
		}
		if o.MaxStates > 0 && st.len() > o.MaxStates {
			break
		}
		if o.Progress != nil && at%(1<<14) == 0 && time.Since(said) > 5*time.Second {
			said = time.Now()
			o.Progress(st.len(), st.len()-at, res.Depth)
		}
		s := st.at(at).key.unpack()
		w.next(&s, func(step Step, t *state, broken string) {
			res.Steps++
			res.Seen[step.Attempt+1] |= 1 << step.Kind
			if broken != "" && res.Broken == "" {
				res.Broken = broken
				res.Start, res.Trace = w.retrace(st, at, w.pack(t), broken)
			}
			if res.Broken == "" {
				st.add(w.pack(t), uint32(at))
			}
		})
		if res.Broken != "" {
			break
		}
		res.Complete = at == st.len()-1
	}
	res.States, res.Time = st.len(), time.Since(began)
	return res
}

const none = ^uint32(0)

// A record is a state and the index of the state from which it was first reached.
type record struct {
	key    key
	parent uint32
}

const chunk = 1 << 16

// A store is the set of states in the order of their discovery; it is also the queue of the search.
// The table only contains indices into it, each beside half of the hash, which avoids most
// comparisons; two states are equal only if all their bits are.
type store struct {
	chunks [][]record
	n      int
	table  []uint64 // hash<<32 | index+1; 0 if free
}

func newStore() *store { return &store{table: make([]uint64, 1<<16)} }

func (st *store) len() int         { return st.n }
func (st *store) at(i int) *record { return &st.chunks[i/chunk][i%chunk] }

// add adds a state unless the store has it.
func (st *store) add(k key, parent uint32) {
	h := k.hash()
	mask := uint64(len(st.table) - 1)
	i := h & mask
	for ; st.table[i] != 0; i = (i + 1) & mask {
		if e := st.table[i]; e>>32 == h && st.at(int(uint32(e))-1).key == k {
			return
		}
	}
	if st.n%chunk == 0 {
		st.chunks = append(st.chunks, make([]record, 0, chunk))
	}
	last := &st.chunks[len(st.chunks)-1]
	*last = append(*last, record{k, parent})
	st.n++
	st.table[i] = h<<32 | uint64(st.n)
	if st.n > len(st.table)/2 {
		st.grow()
	}
}

func (st *store) grow() {
	was := st.table
	st.table = make([]uint64, 2*len(was))
	mask := uint64(len(st.table) - 1)
	for _, e := range was {
		if e == 0 {
			continue
		}
		i := e >> 32 & mask
		for st.table[i] != 0 {
			i = (i + 1) & mask
		}
		st.table[i] = e
	}
}

// hash returns a 32-bit hash: indices have 32 bits, too.
func (k *key) hash() uint64 {
	h := uint64(0x9e3779b97f4a7c15)
	for _, v := range [...]uint64{k.node[0], k.node[1], k.node[2], uint64(k.attempt[0]) | uint64(k.attempt[1])<<32, uint64(k.attempt[2])} {
		h ^= v
		h *= 0xff51afd7ed558ccd
		h ^= h >> 32
	}
	return h >> 32
}

// AsExpected reports whether a sound world holds and was searched completely, or a broken one was
// found to break the expected property.
func (r *Result) AsExpected() bool {
	if r.World.Finds == 0 {
		return r.Complete && r.Broken == ""
	}
	return strings.HasPrefix(r.Broken, r.World.Finds.String()+":")
}
