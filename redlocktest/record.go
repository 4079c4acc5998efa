package redlocktest

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// A Command is one that a client sent and the node answered, be it with an error.
type Command struct {
	At       time.Time // by our clock
	NodeTime time.Time // by the node's
	Client   int       // which set of clients: 1 for the first that Clients or ClientsWith made; 0 for Node.Dial
	Args     []string  // the name first
}

// String returns the command on one line, with the node's time.
func (c Command) String() string {
	args := make([]string, len(c.Args))
	for i, a := range c.Args {
		args[i] = a
		if a == "" || strings.ContainsFunc(a, func(r rune) bool { return r <= ' ' || r == '"' || r > '~' }) {
			args[i] = strconv.Quote(a)
		}
	}
	return fmt.Sprintf("%s client %d: %s", c.NodeTime.Format("15:04:05.000000000"), c.Client, strings.Join(args, " "))
}

// logSize bounds what Record keeps. A test that needs more needs a hook.
const logSize = 1 << 16

// Record switches the recording of commands on or off; on, it begins anew. Of a long recording the last 65,536 commands are kept.
func (n *Node) Record(on bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.recording = on
	if on {
		n.log, n.logged = nil, 0
	}
}

// Log returns what was recorded, in the order of execution. A script is one command, without what it called.
func (n *Node) Log() []Command {
	n.mu.Lock()
	defer n.mu.Unlock()
	oldest := 0
	if n.logged > logSize {
		oldest = n.logged % logSize
	}
	return append(append([]Command(nil), n.log[oldest:]...), n.log[:oldest]...)
}

func (n *Node) record(c Command) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.recording {
		return
	}
	if len(n.log) < logSize {
		n.log = append(n.log, c)
	} else {
		n.log[n.logged%logSize] = c
	}
	n.logged++
}
