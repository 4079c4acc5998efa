package redlock

import (
	"github.com/seed-ce352c9b/redlock/internal/wire"
)

// This file is the arithmetic of a quorum and nothing else: no clock, no
// network, no goroutine. What a vote means is decided in command.go, who votes
// and when in quorum call.go.

// majority is the number of votes that any two winners must share a node in:
// N/2+1 of the configured nodes, never of those that happen to answer. Counting
// the reachable ones would let both sides of a partition win.
func majority(n int) int { return n/2 + 1 }

// A verdict is what the votes cast so far say. Its zero value is none of the
// three, so that a forgotten one is not taken for an answer.
type verdict uint8

const (
	pending verdict = iota + 1 // the open votes can still decide it
	won                        // a majority has it, whatever the others say
	lost                       // no majority can be had any more
)

func (v verdict) String() string {
	switch v {
	case pending:
		return "pending"
	case won:
		return "won"
	case lost:
		return "lost"
	}
	return "none"
}

// A tally counts the votes of one round by what they say. A node votes at most
// once; the votes of nodes that have not answered yet are n minus all others.
type tally struct {
	n       int // nodes configured
	yes     int // the value is ours there
	fenced  int // of these: and the register moved to the proposed token
	no      int // another's value is there
	missing int // nothing is there (extend, release, adopt)
	unknown int // no answer, or an error: it may have agreed
}

func (t tally) need() int { return majority(t.n) }
func (t tally) open() int { return t.n - t.yes - t.no - t.missing - t.unknown }

// decide is the three-valued verdict on a question that needs `need` yes votes
// of n when yes, and against (no or no answer) have been cast. It is final as
// soon as the open votes cannot change it: won before the last yes is in, lost
// before the last no.
func decide(n, yes, against int) verdict {
	need := majority(n)
	switch {
	case yes >= need:
		return won
	case n-against < need:
		return lost
	}
	return pending
}

// refused reports that the noes alone rule a majority out: whatever the silent
// nodes would have said, another holder stands in the way.
func (t tally) refused() bool { return t.n-t.no < t.need() }

// An acquisition can end in four ways, not two: it may have the value on a
// majority while the fencing token is not agreed on yet.
type acquisition uint8

const (
	acquirePending  acquisition = iota + 1
	acquireFenced               // a majority carries value and token: ready
	acquireUnfenced             // a majority carries the value, but not yet the token: raise it
	acquireHeld                 // the noes alone rule a majority out
	acquireNoQuorum             // too many nodes gave no answer
)

// acquisition says where the round stands. Whether it is lost is decided with
// the first vote that makes a majority impossible; the answer waits beyond that
// only while the open votes can still tell held from unreachable. With two of
// five nodes dead, the one no that arrives first would otherwise make every
// contended lock look like an outage. That wait is for the majority-th of the
// nodes that live, so a minority still is not waited for.
func (t tally) acquisition() acquisition {
	switch {
	case t.fenced >= t.need():
		return acquireFenced
	case t.yes >= t.need():
		// Open votes might still carry the token. They are not waited for: as many
		// nodes as it takes have answered, so all that are open may be dead.
		return acquireUnfenced
	}
	gone := t.no + t.missing // only an adoption meets what is missing: it wants what is held
	switch {
	case t.n-gone < t.need():
		return acquireHeld
	case decide(t.n, t.yes, gone+t.unknown) == lost && t.n-gone-t.open() >= t.need():
		return acquireNoQuorum
	}
	return acquirePending
}

// An extension has three results, as in every lease protocol that was burnt by
// having only two: an answer that did not come is neither yes nor no.
type extension uint8

const (
	extendPending extension = iota + 1
	extended                // a majority still carries the value
	extensionLost           // too many nodes carry another's, or nothing
	inconclusive            // too few answered; the lock stands until its old Until
)

func (t tally) extension() extension {
	gone := t.no + t.missing
	switch {
	case t.yes >= t.need():
		return extended
	case t.n-gone < t.need():
		return extensionLost
	case t.open() == 0:
		return inconclusive
	case decide(t.n, t.yes, gone+t.unknown) == lost && t.n-gone-t.open() >= t.need():
		return inconclusive // neither can be reached by what is still open
	}
	return extendPending
}

// notOurs is how a release counts a node that does not hold the value: missing: nothing
// is there, else another's; inTime: the answer came before Until; asked: the first
// release was sent before Until; again: this is not the first.
//
// Until then nobody else can have had the lock in a majority, so forgetting counts as
// released. But once a release was sent in time and its answer is not known, it may have
// been executed: what is missing later, or another's, was then released in time or has
// expired, and that is neither released nor lost.
func notOurs(missing, inTime, asked, again bool) wire.Answer {
	switch {
	case !asked:
		return wire.No
	case inTime && missing:
		return wire.Yes
	case inTime && !again:
		return wire.No
	}
	return wire.Unknown
}
