package lane

import (
	"github.com/seed-ce352c9b/redlock/internal/wire"
)

// check has the first grant of a batch compare the node's mark, or each.
func (f *batch) check(direct bool) {
	checked := false
	for _, c := range f.calls {
		if !c.Q.Guarded() {
			continue
		}
		c.check = !checked || !direct
		checked = true
	}
}

// doubt takes back grants that were made on a mark that nothing has compared: the first
// of the batch was not executed, and things changed until the next.
func (f *batch) doubt() {
	compared := false
	for i, c := range f.calls {
		switch rep := &f.results[i].reply; {
		case !c.Q.Guarded():
		case c.check || c.asText:
			compared = compared || rep.Answer != wire.Unknown || rep.Err.BeyondTheMark()
		case rep.Answer == wire.Yes && !compared:
			*rep = wire.Reply{Answer: wire.Unknown, Sent: true, Stored: true, Err: errUnchecked}
		}
	}
}

var errUnchecked = wire.NewNodeError("restart guard: not compared", nil)
