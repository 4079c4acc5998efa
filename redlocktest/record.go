package redlocktest

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// A Command is a command that a client sent and the node answered, possibly with an error.
type Command struct {
	At       time.Time // by the test's clock
	NodeTime time.Time // by the node's clock
	Client   int       // number of the set of clients: 1 for the first that Clients or ClientsWith made; 0 for Node.Dial
	Args     []string  // starting with the name
}

// String returns the command as one line with the node's time.
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

// logSize limits what Record keeps. A test that needs more should use OnCommand.
const logSize = 1 << 16

// Record starts or stops the recording of commands; starting it discards earlier ones. A recording keeps the last 65,536
// commands.
func (n *Node) Record(on bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.recording = on
	if on {
		n.log, n.logged = nil, 0
	}
}

// Log returns the recorded commands in the order of execution. A script is one command; the commands that it calls are not
// recorded.
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
