package fence

import (
	"sync"
	"sync/atomic"

	"github.com/seed-ce352c9b/redlock/internal/wire"
)

const (
	// maxAhead bounds the keys whose registers are remembered. Beyond it all are forgotten, and
	// each costs one raise again. Halved, that comes with half as many such keys.
	maxAhead = 4096

	// aheadRoom is how many numbers are left below 2^53 when registers are no longer
	// remembered. The error there says to delete them: a Locker that remembered
	// them would keep failing, or put them back.
	aheadRoom = 1 << 20
)

// Ahead remembers the registers that are ahead of our clock, as a hint for the next proposal.
// Without it every acquisition of such a lock would need a raise, and the headroom of
// each raise would move the registers farther ahead of all clocks. It is safe for concurrent use.
type Ahead struct {
	mu   sync.Mutex
	keys map[string]int64 // by full key, at most maxAhead
	n    atomic.Int32     // len(keys), also read without mu
}

// Of returns the register of a key if it was last seen ahead of our clock, else 0.
func (a *Ahead) Of(name *wire.LockKey) int64 {
	if a.n.Load() == 0 {
		return 0
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.keys[name.Full]
}

// Note records the token of an acquisition that began at a time, in µs since 1970.
func (a *Ahead) Note(name *wire.LockKey, start, token int64) {
	if token <= start && a.n.Load() == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case token <= start || token > wire.MaxToken-aheadRoom:
		delete(a.keys, name.Full)
	case a.keys == nil || len(a.keys) >= maxAhead:
		a.keys = map[string]int64{name.Full: token}
	default:
		a.keys[name.Full] = token
	}
	a.n.Store(int32(len(a.keys)))
}
