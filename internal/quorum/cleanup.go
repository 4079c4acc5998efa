package quorum

import (
	"sync"

	"github.com/seed-ce352c9b/redlock/internal/lane"
	"github.com/seed-ce352c9b/redlock/internal/wire"
)

// Cleanups remember the last unfinished clean-up of each key: a rollback, a release or a
// restore. On each node a clean-up follows the key's earlier ones, and later attempts follow
// it, so that the last one is enough. Without that order, a clean-up that takes longer than a
// later one would be forgotten, and a release could overtake the restore that puts its value
// back. The methods may be called from any number of goroutines.
type Cleanups struct {
	// Guarded by mu, under which no other is taken. An entry is removed when what it names is
	// finished.
	mu        sync.Mutex
	lasts     map[string]*Call     // the last clean-up of a key, by the full key
	restores  map[string]*Call     // the last of these that undoes a failed adoption
	adoptions map[string]*adoption // in progress, by the value that they replace
}

// An adoption counts the adoptions of one value that are in progress. If the holder's
// release begins meanwhile, in the same Locker, it may find the adopter's value. A failed
// adoption is then undone like a released lock: if it put the holder's value back, nobody
// would remove that.
type adoption struct {
	n     int
	ended bool // the holder's release or rollback has begun
}

// NewCleanups returns Cleanups without an entry.
func NewCleanups() *Cleanups {
	return &Cleanups{lasts: make(map[string]*Call), restores: make(map[string]*Call), adoptions: make(map[string]*adoption)}
}

// Add makes b, which is not sent yet, the last clean-up of its key. left has what finished
// calls may have left on the nodes; the clean-up adds what the calls before it
// report.
//
// If the holder was released during a failed adoption of its value, the adopter's value is
// removed instead of replaced: nobody would remove the holder's.
func (s *Cleanups) Add(b *Call, left *lane.Residues) {
	b.Inherit(left)
	b.cleanups = s
	s.mu.Lock()
	defer s.mu.Unlock()
	b.previous = s.lasts[b.Name.Full]
	s.lasts[b.Name.Full] = b
	switch q := &b.Question; {
	case q.Kind != wire.AskRestore:
		if a := s.adoptions[q.Value]; a != nil {
			a.ended = true
		}
	case s.adoptions[q.Back].ended:
		b.SetQuestion(wire.ReleaseQuestion(b.Name, q.Value, q.TTL, wire.ToAll))
	default:
		s.restores[b.Name.Full] = b
	}
}

// finish forgets a finished clean-up.
func (s *Cleanups) finish(b *Call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lasts[b.Name.Full] == b {
		delete(s.lasts, b.Name.Full)
	}
	if s.restores[b.Name.Full] == b {
		delete(s.restores, b.Name.Full)
	}
}

// Restoring returns the clean-up that undoes a failed adoption of the key, or nil. The
// holder's next question follows it on each node.
func (s *Cleanups) Restoring(name *wire.LockKey) *Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.restores[name.Full]
}

// Last returns the last unfinished clean-up of a key, or nil.
func (s *Cleanups) Last(name *wire.LockKey) *Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lasts[name.Full]
}

// Unlocked reports whether nobody holds the mutex, for tests.
func (s *Cleanups) Unlocked() bool {
	if !s.mu.TryLock() {
		return false
	}
	s.mu.Unlock()
	return true
}

// Unfinished returns the number of keys that have clean-ups.
func (s *Cleanups) Unfinished() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.lasts)
}

// Adopting records that an adoption of the value begins. The caller calls done once the
// undoing of a failed adoption has begun.
func (s *Cleanups) Adopting(value string) (done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.adoptions[value]
	if a == nil {
		a = new(adoption)
		s.adoptions[value] = a
	}
	a.n++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if a.n--; a.n == 0 {
			delete(s.adoptions, value)
		}
	}
}
