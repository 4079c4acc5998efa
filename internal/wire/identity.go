package wire

import (
	"errors"
	"net"
	"strings"
)

// What a node stands for, what its server says of itself, and what to do about it.

// A NodeKind is what a Node stands for.
type NodeKind uint8

const (
	KindUnknown   NodeKind = iota // it does not tell
	KindSingle                    // one server at a time
	KindCluster                   // a Redis Cluster: it places keys by their hash slots
	KindRing                      // several servers: it places keys by a hash of its own
	KindPipeliner                 // an auto-pipeliner, over a client or a cluster; a Ring has none
)

// An Introduction is what a server tells of itself on first contact.
type Identity struct {
	RunID   string
	Replica *NodeError // it is one, of which master; nil: it is none, or does not tell
}

// IdentifyCommands returns the INFO commands that a lane sends in front of its first
// batch. The second command is the zero Command if there is only one. There are two
// because servers before 7.0 accept one section each. A cluster or a Ring is not asked
// for its role: the reply would be the role of one of its servers.
func (k NodeKind) IdentifyCommands() *[2]Command {
	c := &[2]Command{NewCommand([]any{"info", "server"})}
	if k == KindSingle {
		c[1] = NewCommand([]any{"info", "replication"})
	}
	return c
}

// SubscribeConfirmed is the kind of the reply by which a node confirms a subscription.
const SubscribeConfirmed = "subscribe"

// PingCommand returns a PING, by which a lane finds out whether a node replies again.
func PingCommand() Command { return NewCommand([]any{"ping"}) }

// Introduce reads INFO server and, if it was asked for, INFO replication; nil: not
// answered. A server that answers without a run_id, or refuses, is taken as it is.
func ReadIdentity(server, replication *Command, exec error) *Identity {
	v, err := result(server, exec)
	if err != nil {
		if _, said := Explain(err); said {
			return &Identity{}
		}
		return nil
	}
	text, _ := v.(string)
	info := &Identity{RunID: infoField(text, "run_id")}
	if len(replication.Args()) == 0 {
		return info
	}
	if v, err = result(replication, exec); err != nil {
		if _, said := Explain(err); said {
			return info
		}
		return nil
	}
	text, _ = v.(string)
	switch infoField(text, "role") {
	case "slave", "replica":
		master := net.JoinHostPort(infoField(text, "master_host"), infoField(text, "master_port"))
		info.Replica = NewNodeError("replica of "+quoteValue(master)+": pass its master", errReplica)
		info.Replica.Transient = false
	}
	return info
}

var errReplica = errors.New("replica")

// infoField is a field of an answer to INFO; "": it is not there.
func infoField(text, name string) string {
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// Advise adds to what a server said what to do about it, where it says that it is no
// independent master. Time does not heal that; but a cluster's client follows a MOVED
// itself, as a wrapper of unknown kind may, and what it lets through passes.
func (k NodeKind) Advise(e *NodeError) *NodeError {
	if e == nil || k == KindCluster {
		return e
	}
	text, heals := e.Text, e.Transient
	switch code, _, _ := strings.Cut(text, " "); code {
	case "MOVED", "CROSSSLOT":
		text, heals = text+": "+inCluster, k != KindSingle
	case "ASK", "TRYAGAIN", "CLUSTERDOWN":
		text += ": " + inCluster
	case "READONLY":
		text = strings.TrimSuffix(text, ".") + ": pass its master"
	default:
		return e
	}
	return &NodeError{Text: text, Cause: e.Cause, Transient: heals}
}

const inCluster = "a node of a Redis Cluster: pass independent masters, or one ClusterClient as one node"
