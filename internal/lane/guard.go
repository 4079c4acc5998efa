package lane

import (
	"github.com/seed-ce352c9b/redlock/internal/wire"
)

// This file chooses which grants of a batch compare the node's mark; see wire/guard.go for
// the restart guard itself.

// chooseComparing makes the first grant of a batch compare the node's mark with the server.
// The others need not: one connection leads to one server, which cannot restart without
// breaking it. If the batch may be split over several connections (direct is false),
// every grant compares.
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

// revokeUncompared turns grants into Unknown that relied on a mark that no grant before
// them in the batch has compared: the one that should have done so was not executed, and
// the server may have changed before the next. The values that those grants stored are
// cleaned up like those of any unknown answer.
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
