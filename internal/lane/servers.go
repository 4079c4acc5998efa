package lane

import (
	"errors"
	"fmt"
	"sync"

	"github.com/seed-ce352c9b/redlock/internal/wire"
)

// Servers records which server each lane of a Locker leads to. One server under two names
// would be counted twice, and half of the servers could then make a majority of the nodes.
type Servers struct {
	mu           sync.Mutex
	lanes        map[string]*Lane // by run_id
	duplicateErr error            // names the first pair found; nil: none
}

// add records the server of a lane, by its run_id. It returns an error that time does not
// heal if another lane leads to the same server, and nil otherwise.
func (r *Servers) add(ln *Lane, runID string) *wire.NodeError {
	r.mu.Lock()
	defer r.mu.Unlock()
	other := r.lanes[runID]
	if other == nil {
		if r.lanes == nil {
			r.lanes = make(map[string]*Lane)
		}
		r.lanes[runID] = ln
		return nil
	}
	if other == ln {
		return nil
	}
	if r.duplicateErr == nil {
		r.duplicateErr = fmt.Errorf("redlock: nodes %q and %q are one server (run_id %s): list every master once", other.Name, ln.Name, runID)
	}
	e := wire.NewNodeError("same server as "+other.Name, errors.New("same server"))
	e.Transient = false
	return e
}

// Duplicates returns an error that names the first two nodes that proved to be one server,
// or nil.
func (r *Servers) Duplicates() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.duplicateErr
}
