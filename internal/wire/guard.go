package wire

import (
	"fmt"
	"strings"
	"time"
)

// The restart guard. A node that has forgotten what it granted must grant nothing for the
// longest ttl, until no lock relies on its memory any more. By then every lock whose
// majority the node was part of has expired, or stands on a majority that has answered
// since. The Redis page tells the operator to delay restarts; here the nodes refuse by
// themselves, each in the same atomic step in which it would grant (lua/guard.lua). So
// nothing can happen between check and grant, and the argument does not depend on the
// state of a client: a client may be suspended between any two lines.
//
// A node keeps a mark. The mark says which server the node is, by an id that every start
// and every promotion draws anew, and since when the node cannot have forgotten anything.
// If the data is lost, so is the mark: a server without a mark finds every lock free. If
// the data came back without its latest writes, or came to a replica, the mark is that of
// another server. To detect this, the mark is compared with the server's own INFO
//
//   - by the first grant of every batch: a batch goes over one connection to one server,
//     which cannot restart without breaking the connection. The comparison costs the
//     server ten microseconds, and the rest of the batch does without it; and
//   - by every script that the node did not know, because a server that has just started
//     knows no script. This also works behind a proxy that keeps its clients' connections.
//
// If a Node is not a plain client, nothing is known of its connections, and every grant
// compares.

// A Guard is what a Locker requires of a node before it grants a lock.
type Guard struct {
	Age  time.Duration // the time for which the node must have forgotten nothing
	Mark string        // the key of the node's mark
}

// The last argument of a guarded script says what it does with the mark.
const (
	markBelieved = "0" // trusts it
	markChecked  = "1" // compares it with INFO
	markUnknown  = "2" // compares it; the node did not know the script and may have just started
)

// Admits returns an error for a ttl with which a lock would outlive the quarantine of a
// node that forgot the lock. A nil Guard admits every ttl.
func (g *Guard) Admits(ttl time.Duration) error {
	if g == nil || ttl <= g.Age {
		return nil
	}
	return fmt.Errorf("redlock: ttl %v is more than Options.RestartGuard, %v: a node that restarts would forget the lock and grant it again; take a shorter ttl and KeepAlive, or a longer guard for all clients", ttl, g.Age)
}

// Guarded reports whether the question is asked under a restart guard.
func (q *Question) Guarded() bool { return q.Script != nil && q.Script.underGuard }

// readQuarantine reads the reply that lua/guard.lua gives instead of a grant: how long the
// node is still quarantined.
func readQuarantine(v any) (*NodeError, bool) {
	parts, ok := v.([]any)
	if !ok || len(parts) != 2 || parts[0] != "quarantined" {
		return nil, false
	}
	left, ok := parts[1].(int64)
	if !ok {
		return nil, false
	}
	d := time.Duration(left) * time.Millisecond // no more than the guard
	if d > time.Second {
		d = (d + time.Second - 1).Truncate(time.Second)
	}
	return NewNodeError("quarantined "+Short(d), nil), true
}

// IsQuarantine reports whether a node refused a grant because it is quarantined.
func (e *NodeError) IsQuarantine() bool { return e != nil && strings.HasPrefix(e.Text, "quarantined ") }

// IsPastGuard reports whether a guarded script failed after it had compared the mark,
// because a key or a register is of another type. Such an error must not invalidate the
// other grants of its batch.
func (e *NodeError) IsPastGuard() bool {
	return e != nil && (strings.HasPrefix(e.Text, "WRONGTYPE") || strings.HasPrefix(e.Text, "FENCE"))
}
