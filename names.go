package redlock

import (
	"strings"
	"sync"

	"github.com/seed-ce352c9b/redlock/internal/wire"
)

const (
	// maxNames and maxNamedBytes bound the names of locks that a Locker keeps: about two
	// megabytes. Beyond that all are forgotten, and made anew when they are used. Halved,
	// programs with thousands of busy keys make their names more often.
	maxNames      = 4096
	maxNamedBytes = 128
)

// A keyNames keeps the names of the locks that a Locker has used lately, so that they are
// not made anew for each acquisition. The zero value is empty.
type keyNames struct {
	mu  sync.RWMutex
	all map[string]*wire.LockKey // by the caller's key
}

// of returns the names of a lock, or an error for a key that cannot be locked.
func (n *keyNames) of(prefix, key string) (*wire.LockKey, error) {
	n.mu.RLock()
	name := n.all[key]
	n.mu.RUnlock()
	if name != nil {
		return name, nil
	}
	if len(prefix)+len(key) > maxNamedBytes {
		return wire.NameKey(prefix, key)
	}
	name, err := wire.NameKey(prefix, strings.Clone(key)) // which may be a part of something large
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.all == nil || len(n.all) >= maxNames {
		n.all = make(map[string]*wire.LockKey)
	}
	n.all[name.Key] = name
	return name, nil
}
