package redlocktest

import (
	"errors"
	"strconv"

	"github.com/seed-ce352c9b/redlock/internal/twin"
)

// twin executes a script by its Go twin, if it has one. It returns false if nothing was done and the script has to run. It
// sees only scripts that clients send, never what a script calls: so miniredis is not locked, and the twin's commands may
// be dispatched. The caller holds exec.
func (s *session) twin(args []string) bool {
	n := s.node
	if len(args) < 3 {
		return false
	}
	f := twin.Of(args[1])
	if f == nil || n.failsCommands() {
		return false
	}
	keys, err := strconv.Atoi(args[2])
	if err != nil || keys < 0 || len(args) < 3+keys {
		return false
	}
	// A node that was restarted has forgotten the script and must say so.
	if _, noted := n.noted[args[1]]; !noted {
		if known, err := n.doNow("SCRIPT", "EXISTS", args[1]); err != nil || !isOne(known) {
			return false
		}
	}
	reply, ok := f(n.callTwin, args[3:3+keys], args[3+keys:])
	if ok {
		s.write(reply)
	}
	return ok
}

func isOne(v any) bool {
	list, ok := v.([]any)
	return ok && len(list) == 1 && list[0] == 1
}

// callTwin is redis.call for a twin. It does not enforce the restrictions on scripts, which a twin does not violate.
func (n *Node) callTwin(args ...string) (any, error) {
	v, err := n.do(args...)
	if e, ok := v.(error); ok {
		err = errors.Join(err, e)
	}
	return v, err
}

// failsCommands reports whether FailCommand is on. The script would notice it, so the script itself must run.
func (n *Node) failsCommands() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, text := range n.failCommand {
		if text != "" {
			return true
		}
	}
	return false
}

func (s *session) write(reply any) {
	switch v := reply.(type) {
	case int:
		s.peer.WriteInt(v)
	case string:
		s.peer.WriteBulk(v)
	case []any:
		s.peer.WriteLen(len(v))
		for _, e := range v {
			s.write(e)
		}
	default:
		s.peer.WriteNull()
	}
}
