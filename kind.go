package redlock

import (
	"errors"
	"net"
	"strings"
)

// What a node stands for, what its server says of itself, and what to do about it.

// A nodeKind is what a Node stands for.
type nodeKind uint8

const (
	kindUnknown   nodeKind = iota // it does not tell
	kindSingle                    // one server at a time
	kindCluster                   // a Redis Cluster: it places keys by their hash slots
	kindRing                      // several servers: it places keys by a hash of its own
	kindPipeliner                 // an auto-pipeliner, over a client or a cluster; a Ring has none
)

// An introduction is what a server tells of itself on first contact.
type introduction struct {
	runID   string
	replica *nodeError // it is one, of which master; nil: it is none, or does not tell
}

// introductions are the sections of INFO that are asked for on first contact; in two
// commands, because servers before 7.0 take one section each. What a cluster or a Ring
// answers is one of its servers' role and not the node's.
func (k nodeKind) introductions() []string {
	if k == kindSingle {
		return []string{"server", "replication"}
	}
	return []string{"server"}
}

// introduce reads INFO server and, if it was asked for, INFO replication; nil: not
// answered. A server that answers without a run_id, or refuses, is taken as it is.
func introduce(server, replication *command, exec error) *introduction {
	v, err := result(server, exec)
	if err != nil {
		if _, said := explain(err); said {
			return &introduction{}
		}
		return nil
	}
	text, _ := v.(string)
	info := &introduction{runID: infoField(text, "run_id")}
	if len(replication.Args()) == 0 {
		return info
	}
	if v, err = result(replication, exec); err != nil {
		if _, said := explain(err); said {
			return info
		}
		return nil
	}
	text, _ = v.(string)
	switch infoField(text, "role") {
	case "slave", "replica":
		master := net.JoinHostPort(infoField(text, "master_host"), infoField(text, "master_port"))
		info.replica = newNodeError("replica of "+quoteValue(master)+": pass its master", errReplica)
		info.replica.heals = false
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

// advise adds to what a server said what to do about it, where it says that it is no
// independent master. Time does not heal that; but a cluster's client follows a MOVED
// itself, as a wrapper of unknown kind may, and what it lets through passes.
func (k nodeKind) advise(e *nodeError) *nodeError {
	if e == nil || k == kindCluster {
		return e
	}
	text, heals := e.text, e.heals
	switch code, _, _ := strings.Cut(text, " "); code {
	case "MOVED", "CROSSSLOT":
		text, heals = text+": "+inCluster, k != kindSingle
	case "ASK", "TRYAGAIN", "CLUSTERDOWN":
		text += ": " + inCluster
	case "READONLY":
		text = strings.TrimSuffix(text, ".") + ": pass its master"
	default:
		return e
	}
	return &nodeError{text: text, cause: e.cause, heals: heals}
}

const inCluster = "a node of a Redis Cluster: pass independent masters, or one ClusterClient as one node"
