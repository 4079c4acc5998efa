package redlock

import (
	"strconv"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/lane"
)

// A NodeState is how a Locker finds one of its nodes.
type NodeState uint8

const (
	NodeUnknown     NodeState = iota // nothing was heard of it yet: no call has asked it, or its first replies are on the way
	NodeUp                           // it replies, and grants
	NodeDown                         // it does not reply, and is not used until it replies to a PING
	NodeRefusing                     // it replies with errors (NOAUTH, READONLY, LOADING, ...)
	NodeQuarantined                  // with Options.RestartGuard, it grants nothing for a while
	NodeDuplicate                    // it is the same server as another node, and has no vote
)

// String returns a word for the state.
func (s NodeState) String() string {
	names := [...]string{"unknown", "up", "down", "refusing", "quarantined", "duplicate"}
	if int(s) < len(names) {
		return names[s]
	}
	return "state(" + strconv.Itoa(int(s)) + ")"
}

// A NodeHealth is what a Locker knows of one of its nodes from the replies to its calls.
type NodeHealth struct {
	Node      string // as in Vote.Node: its address or, if that is not known, "node1" and so on
	State     NodeState
	Since     time.Time     // of the state; of NodeUp, since the first reply or since it came up again; zero if unknown
	Err       error         // why it is not up, without secrets; nil if it is up or unknown
	RoundTrip time.Duration // of the last batch of commands that it replied to; 0: there was none
	Mute      error         // why it does not announce releases, so that waiters of other processes find a lock late; nil if it does, as far as is known, and has refused none for a minute
	CleanUps  int           // commands that remove what calls have left on it, and that it has not yet executed
}

// Nodes returns the state of each node, in the order in which New or Open got them. It asks the
// nodes nothing, so that it is cheap enough for a metrics scrape, and it knows only what the
// calls of this Locker have met: a node that fails while nobody calls keeps its state. A
// majority of nodes that are up can grant locks. It can be called at any time, also after
// Close, and from several goroutines at once.
//
// Trace.Event reports each change: EventNodeDown, EventNodeRefusing, EventNodeQuarantined,
// EventNodeDuplicate, and EventNodeUp when the node works again. A node that refuses something
// within a minute after it worked again, as one that refuses some keys and not others, stays
// NodeRefusing until it has refused nothing for a minute. One that was down and replies with
// errors, as while it loads its data, is NodeRefusing until it replies to a PING or to a call
// without one.
func (l *Locker) Nodes() []NodeHealth {
	l.made()
	all := make([]NodeHealth, len(l.lanes))
	for i, ln := range l.lanes {
		h := ln.Health()
		states := [...]NodeState{lane.Unknown: NodeUnknown, lane.Up: NodeUp, lane.Down: NodeDown, lane.Refusing: NodeRefusing, lane.Quarantined: NodeQuarantined, lane.Duplicate: NodeDuplicate}
		all[i] = NodeHealth{Node: ln.Name, State: states[h.Condition], Since: h.Since, Err: h.Err, RoundTrip: h.RoundTrip, Mute: h.Mute, CleanUps: h.Owed}
	}
	return all
}
