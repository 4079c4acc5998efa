package lane

import (
	"errors"
	"fmt"
	"sync"

	"github.com/seed-ce352c9b/redlock/internal/wire"
)

// A Servers knows which server each lane leads to. One server under two names
// would be counted twice: half the nodes could then make a majority of servers.
type Servers struct {
	mu           sync.Mutex
	lanes        map[string]*Lane // by run_id
	duplicateErr error            // the first pair met
}

// add enters a lane's server. An error says that another lane leads to it.
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

func (r *Servers) Duplicates() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.duplicateErr
}
