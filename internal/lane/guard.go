package lane

import (
	"github.com/seed-ce352c9b/redlock/internal/wire"
)

// check has the first grant of a batch compare the node's mark, or each.
func (b *batch) chooseComparing(direct bool) {
	checked := false
	for _, c := range b.calls {
		if !c.Question.Guarded() {
			continue
		}
		c.comparesMark = !checked || !direct
		checked = true
	}
}

// doubt takes back grants that were made on a mark that nothing has compared: the first
// of the batch was not executed, and things changed until the next.
func (b *batch) revokeUncompared() {
	compared := false
	for i, c := range b.calls {
		switch rep := &b.results[i].reply; {
		case !c.Question.Guarded():
		case c.comparesMark || c.asText:
			compared = compared || rep.Answer != wire.Unknown || rep.Err.IsPastGuard()
		case rep.Answer == wire.Yes && !compared:
			*rep = wire.Reply{Answer: wire.Unknown, Sent: true, Stored: true, Err: errNotCompared}
		}
	}
}

var errNotCompared = wire.NewNodeError("restart guard: not compared", nil)
