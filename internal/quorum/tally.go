package quorum

// Majority returns N/2+1, so that any two winners share a node. N is always the
// configured number of nodes, never the number that answered: counting the reachable
// ones would let both sides of a partition win.
func Majority(n int) int { return n/2 + 1 }

// A Tally counts the votes of one round. A node votes at most once.
type Tally struct {
	N       int // configured nodes
	Yes     int // what was asked for is so: the node stores our value; of a look: it stores none
	Fenced  int // of these, its register moved to the proposed token
	No      int // it stores another value or, with Options.Fair, it is another's turn
	Missing int // it stores none (raise, extend, rollback, restore, adopt); a release counts these as Call.CountAs says
	Unknown int // no usable reply: unless the error shows otherwise, it may have agreed
}

// Need returns how many of the nodes are a majority.
func (t Tally) Need() int { return Majority(t.N) }

// Open returns how many nodes have not voted yet.
func (t Tally) Open() int { return t.N - t.Yes - t.No - t.Missing - t.Unknown }

// Settled reports whether n votes of one kind are a majority, or the open ones cannot make them one.
func (t Tally) Settled(n int) bool { return n >= t.Need() || n+t.Open() < t.Need() }
