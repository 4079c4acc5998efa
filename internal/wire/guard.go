package wire

import (
	"fmt"
	"strings"
	"time"
)

// The restart guard. A node that forgets what it granted must grant nothing until no
// lock relies on that any more: for the longest ttl. Then every lock whose majority it
// was part of is over, or stands on a majority that has answered since. The Redis page
// has the operator delay restarts; here the nodes refuse by themselves, each in the one
// step in which it would grant (lua/guard.lua). So nothing can happen between check and
// grant, and no state of a client is part of the argument: a client may sleep between
// any two lines.
//
// A node keeps a mark: which server it is, by an id that every start and every promotion
// draws anew, and since when it can not have forgotten anything. Data that is gone takes
// the mark along: a free lock is then met by a server without a mark. Data that came back
// without its end, or came to a replica, has the mark of another server; to see that, the
// mark is compared with the server's own INFO
//
//   - by the first grant of every batch: a batch goes over one connection to one server,
//     which can not restart without breaking it. Comparing costs the server ten
//     microseconds, and the rest of the batch does without; and
//   - by every script that the node did not know, for a server that starts knows none.
//     That also serves behind a proxy that keeps its clients' connections.
//
// Where a Node is not a plain client nothing is known of its connections, and every
// grant compares.

// A Guard is what a Locker asks of the nodes that are to grant.
type Guard struct {
	Age  time.Duration // for which they have forgotten nothing
	Mark string        // the key of their marks
}

// What a grant does with the mark: the last argument of its script.
const (
	markBelieved = "0"
	markChecked  = "1"
	markUnknown  = "2" // so is the script: the server may have started since
)

// Admits refuses locks that would outlive the quarantine of a node that forgot them.
func (g *Guard) Admits(ttl time.Duration) error {
	if g == nil || ttl <= g.Age {
		return nil
	}
	return fmt.Errorf("redlock: ttl %v is more than Options.RestartGuard, %v: a node that restarts would forget the lock and grant it again; take a shorter ttl and KeepAlive, or a longer guard for all clients", ttl, g.Age)
}

// Guarded: the question is answered under a guard.
func (q *Question) Guarded() bool { return q.Script != nil && q.Script.underGuard }

// readQuarantine reads what lua/guard.lua says instead of a grant.
func readQuarantine(v any) (*NodeError, bool) {
	parts, ok := v.([]any)
	if !ok || len(parts) != 2 || parts[0] != "quarantined" {
		return nil, false
	}
	left, ok := parts[1].(int64)
	if !ok {
		return nil, false
	}
	d := ExpiresIn(left)
	if d > time.Second {
		d = (d + time.Second - 1).Truncate(time.Second)
	}
	return NewNodeError("quarantined "+Short(d), nil), true
}

// BeyondTheMark: the error is of what lua/guard.lua comes to after it has compared, a
// key or a register of another type. One such must not cost its neighbours their grants.
func (e *NodeError) IsPastGuard() bool {
	return e != nil && (strings.HasPrefix(e.Text, "WRONGTYPE") || strings.HasPrefix(e.Text, "FENCE"))
}
