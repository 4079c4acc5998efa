package sim

import (
	"hash"
	"hash/fnv"
	"slices"
	"strings"
	"sync"
)

// A tracer hashes the commands that a node receives.
type tracer struct {
	mu  sync.Mutex
	n   uint64
	sum hash.Hash64
}

// listen, if not nil, is called with every command of traced runs. Tests use it to find where two runs diverge.
var listen func(node int, at instant, args []string)

// note adds a command to the hash.
func (tr *tracer) note(node int, at instant, args []string) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.n++
	if listen != nil {
		listen(node, at, args)
	}
	tr.sum.Write([]byte(at.String()))
	for _, a := range args {
		tr.sum.Write([]byte(a))
		tr.sum.Write([]byte{0})
	}
}

// setUpNode sets a node's clock and latency as the schedule says.
func (w *world) setUpNode(i int) {
	n := w.c.Node(i)
	if r := w.s.rate(i); r != 1 {
		n.SetClockRate(r)
	}
	if i < len(w.s.Ahead) {
		n.JumpClock(w.s.Ahead[i])
	}
	if w.s.Latency != 0 {
		n.Delay(w.s.Latency, w.s.Latency)
	}
}

// hookNodes installs a hook on every node: for requests that are dropped before they are executed, for the judge of announcements, and for the trace. Without
// trace it returns no tracers.
func (w *world) hookNodes(trace bool) (tracers []*tracer) {
	drops := slices.ContainsFunc(w.s.Faults, func(f Fault) bool { return f.Do == DropRequest })
	if !trace && !drops && !w.s.Subscribers {
		return nil
	}
	for i := range w.c.Len() {
		tr := &tracer{sum: fnv.New64a()}
		if trace {
			tracers = append(tracers, tr)
		}
		w.c.Node(i).OnCommand(func(args []string) {
			if trace {
				tr.note(i, w.now(), args)
			}
			if dropped := drops && w.dropIfDue(i, args[0]); w.s.Subscribers && !dropped {
				w.notices(i, args)
			}
		})
	}
	return tracers
}

// dropIfDue resets a node's connections if dropRequests asked for it. The command, about which the node's hook is called, is
// then not executed.
func (w *world) dropIfDue(node int, command string) (due bool) {
	w.mu.Lock()
	due = w.drops[node] > 0 && !strings.EqualFold(command, "hello")
	if due {
		w.drops[node]--
	}
	w.mu.Unlock()
	if !due {
		return false
	}
	n := w.c.Node(node)
	n.Refuse(true)
	w.mu.Lock()
	still := w.depth["refuse"+nodeName(node)] > 0
	w.mu.Unlock()
	n.Refuse(still)
	return true
}
