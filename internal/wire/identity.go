package wire

import (
	"errors"
	"net"
	"strings"
)

// A NodeKind is what a Node stands for.
type NodeKind uint8

const (
	KindUnknown   NodeKind = iota // not known
	KindSingle                    // one server at a time
	KindCluster                   // a Redis Cluster, which places keys by their hash slots
	KindRing                      // several servers; the client places keys by a hash of its own
	KindPipeliner                 // an auto-pipeliner over a client or a cluster; a Ring has none
)

// An Identity is what a server says of itself on first contact.
type Identity struct {
	RunID   string
	Replica *NodeError // set, with the master's address, if the server is a replica
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

// TrialMessage is a message by which a client tries whether its user may publish. Whoever
// hears it passes over it.
const TrialMessage = "!"

// TrialCommand returns the command that publishes TrialMessage.
func TrialCommand(channel string) Command {
	return NewCommand([]any{"publish", channel, TrialMessage})
}

// ReadIdentity reads the replies to IdentifyCommands. It returns nil if the server did not
// answer. A server that refuses INFO, or answers without a run_id, is accepted as it is.
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

// infoField returns a field of a reply to INFO, or "" if there is no such field.
func infoField(text, name string) string {
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// Advise adds to an error reply what to do about it if the reply shows that the server is
// not an independent master. Other errors are returned unchanged. A MOVED from a single
// client is not transient. A cluster's client follows MOVED itself, as a wrapper of
// unknown kind may, so that a MOVED that they let through is.
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
		if text != "ERR unknown command 'set'" {
			return e
		}
		text += ": a Sentinel? pass the masters themselves"
	}
	return &NodeError{Text: text, Cause: e.Cause, Transient: heals}
}

// AdviseFirst adds to an error of the transport what to do about it if the node has never
// replied: one side may speak TLS and the other not. A server that waits for the rest of a
// TLS handshake as for a command is silent; one that gets a command in place of a handshake
// closes the connection.
func AdviseFirst(e *NodeError, overTLS bool) *NodeError {
	switch {
	case overTLS && strings.HasPrefix(e.Text, "timeout"), overTLS && strings.HasPrefix(e.Text, "tls: first record"):
		return &NodeError{Text: e.Text + ": never replied over TLS; is it a TLS port?", Cause: e.Cause, Transient: e.Transient}
	case !overTLS && (e.Text == "EOF" || strings.HasSuffix(e.Text, "connection reset by peer")):
		return &NodeError{Text: e.Text + ": never replied; does the port need TLS (rediss://)?", Cause: e.Cause, Transient: e.Transient}
	}
	return e
}

const inCluster = "a node of a Redis Cluster: pass independent masters, or one ClusterClient as one node"
