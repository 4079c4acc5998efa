package lane

import "github.com/seed-ce352c9b/redlock/internal/wire"

// A Residue is what the questions about one value may have left on one node, as bits. No
// other place records that: a call takes over the Residue of the calls before it about the
// same value (inherit) and adds what its own reply says (Settle). The layer above keeps the
// Residues of all nodes for a lock whose calls are finished.
//
// The promise that nothing is left behind rests on these invariants:
//
//   - A clear bit is certain: nothing of the kind is on the node, and a clean-up is not
//     needed there. A set bit is a suspicion: since values are unique, a needless clean-up
//     does no harm.
//   - Bits are never cleared. A clean-up that was answered may have come before the command
//     that it undoes.
//   - Late is set only together with Holds.
type Residue uint8

const (
	Holds  Residue = 1 << iota // our value may be on the node
	Late                       // a command that stores our value may still be executed
	Raised                     // the register may have been raised for our value

	numResidues = iota
)

// Has reports whether r has all bits of x.
func (r Residue) Has(x Residue) bool { return r&x == x }

// Settle returns r and what a question has left that ended with this reply.
func (r Residue) Settle(q *wire.Question, rep *wire.Reply) Residue {
	k := q.Kind
	switch {
	case q.Token == 0: // lua/adopt.lua, which uses the register all the same, gives it a ttl before anything else
	case k == wire.AskAdopt || k == wire.AskAcquire && q.Script == nil:
		if rep.Sent && !rep.Refused {
			r |= Raised
		}
	case k == wire.AskTurn || k == wire.AskAcquire:
		if rep.Stored { // unlike the former, these do not touch the register unless they grant the lock or fail
			r |= Raised
		}
	}
	switch {
	case k.Stores() && rep.Stored:
		r |= Holds
		if rep.Silent {
			r |= Late
		}
	case k == wire.AskExtend && rep.Answer == wire.Yes:
		r |= Holds // and Late as it is: a heal may have stored the value, while the silent acquire is still to come
	}
	return r
}

// Nodes is a set of nodes, as bits in the order in which the Locker got them.
type Nodes uint64

// Has reports whether the i-th node is in the set.
func (n Nodes) Has(i int) bool { return n&(1<<i) != 0 }

// Residues has, for each bit of a Residue, the nodes on which it is set.
type Residues [numResidues]Nodes

// On returns the Residue of the i-th node.
func (s *Residues) On(i int) (r Residue) {
	for bit, nodes := range s {
		if nodes.Has(i) {
			r |= 1 << bit
		}
	}
	return r
}

// Add adds r to the Residue of each of the nodes.
func (s *Residues) Add(nodes Nodes, r Residue) {
	for bit := range s {
		if r.Has(1 << bit) {
			s[bit] |= nodes
		}
	}
}

// Join adds the Residues of o.
func (s *Residues) Join(o Residues) {
	for bit, nodes := range o {
		s[bit] |= nodes
	}
}

// Any returns the nodes that have one of the bits of r or more.
func (s *Residues) Any(r Residue) (nodes Nodes) {
	for bit := range s {
		if r.Has(1 << bit) {
			nodes |= s[bit]
		}
	}
	return nodes
}
