package lane

import (
	"time"

	"github.com/seed-ce352c9b/redlock/internal/wire"
)

// This file reports what happens to a node that no call asked for. What is noticed under
// ln.mu is noted, and told after unlocking, in order.

// A NewsKind says what happened to a node.
type NewsKind uint8

const (
	Down        NewsKind = iota + 1 // it is not used any more
	Quarantined                     // it refuses grants, and did not before
	Up                              // it is used again, or grants again
	Duplicate                       // it is the server of another lane
)

// News is something that happened to the node of a lane.
type News struct {
	Lane *Lane
	Kind NewsKind
	Err  error         // of Up: nil
	For  time.Duration // Up: since Down or Quarantined
}

// The news that have not been told. Guarded by ln.mu.
type news struct {
	untold        []News
	telling       bool      // a tell is working through untold
	downAt        time.Time // when the node went down
	quarantinedAt time.Time // when its quarantine was noticed; zero: it grants
}

// note notes that something happened, to be told after unlocking. Needs ln.mu.
func (ln *Lane) note(kind NewsKind, why *wire.NodeError, since time.Time) {
	if ln.Report == nil || ln.closed {
		return
	}
	n := News{Lane: ln, Kind: kind}
	if why != nil {
		n.Err = why
	}
	if !since.IsZero() {
		n.For = time.Since(since)
	}
	ln.untold = append(ln.untold, n)
}

// tell reports what was noted. The caller must hold no lock. If a report panics, the next
// tell goes on behind it.
func (ln *Lane) tell() {
	if ln.Report == nil {
		return
	}
	ln.mu.Lock()
	defer ln.mu.Unlock()
	for len(ln.untold) > 0 && !ln.telling {
		n := ln.untold[0]
		ln.untold = ln.untold[1:]
		ln.telling = true
		ln.mu.Unlock()
		func() {
			defer func() { ln.mu.Lock(); ln.telling = false }()
			ln.Report(n)
		}()
	}
}

// noteQuarantine notes when a quarantine begins or ends, by a reply. Needs ln.mu.
func (ln *Lane) noteQuarantine(c *Call, rep *wire.Reply) {
	if ln.Report == nil || !c.Question.Guarded() {
		return
	}
	switch quarantined := rep.Err.IsQuarantine(); {
	case quarantined && ln.quarantinedAt.IsZero():
		ln.quarantinedAt = time.Now()
		ln.note(Quarantined, rep.Err, time.Time{})
	case !quarantined && rep.Answer == wire.Yes && !ln.quarantinedAt.IsZero():
		ln.note(Up, nil, ln.quarantinedAt)
		ln.quarantinedAt = time.Time{}
	}
}
