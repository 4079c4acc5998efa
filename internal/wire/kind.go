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
type Introduction struct {
	RunID   string
	Replica *NodeError // it is one, of which master; nil: it is none, or does not tell
}

// Introductions are the sections of INFO that are asked for on first contact; in two
// commands, because servers before 7.0 take one section each. What a cluster or a Ring
// answers is one of its servers' role and not the node's.
func (k NodeKind) Introductions() []string {
	if k == KindSingle {
		return []string{"server", "replication"}
	}
	return []string{"server"}
}

// Introduce reads INFO server and, if it was asked for, INFO replication; nil: not
// answered. A server that answers without a run_id, or refuses, is taken as it is.
func Introduce(server, replication *Command, exec error) *Introduction {
	v, err := result(server, exec)
	if err != nil {
		if _, said := Explain(err); said {
			return &Introduction{}
		}
		return nil
	}
	text, _ := v.(string)
	info := &Introduction{RunID: infoField(text, "run_id")}
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
