package redlocktest

import (
	"errors"
	"strconv"

	"github.com/seed-ce352c9b/redlock/internal/twin"
)

// twin executes a script by its twin, if it has one; false: nothing was done, the script has to run. Only what clients
// send gets here, never what a script calls: miniredis is not locked, so its commands may be dispatched. It needs exec.
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
	// A restarted node has forgotten it and has to say so.
	if known, err := n.do("SCRIPT", "EXISTS", args[1]); err != nil || !isOne(known) {
		return false
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

// callTwin is redis.call. What a script may not do is none of a twin's.
func (n *Node) callTwin(args ...string) (any, error) {
	v, err := n.do(args...)
	if e, ok := v.(error); ok {
		err = errors.Join(err, e)
	}
	return v, err
}

// failsCommands reports that FailCommand is on: a script notices, and so it has to run.
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
