package redlock

import (
	"github.com/seed-ce352c9b/redlock/internal/quorum"
	"github.com/seed-ce352c9b/redlock/internal/wire"
)

// This file is the arithmetic of a quorum: no clock, no network, no goroutine.
// Package wire decides what a reply means, internal/quorum who votes and when.

// majority returns how many of n nodes are a majority.
func majority(n int) int { return quorum.Majority(n) }

// A verdict is the result of the votes cast so far on a question that a majority of yes votes
// wins. (The outcome of a release or an extension is an ownership.) Its zero value is none of the
// three, so that a missing verdict is not mistaken for one.
type verdict uint8

const (
	pending verdict = iota + 1 // the open votes decide
	won                        // a majority voted yes
	lost                       // a majority is no longer possible
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

// decide returns the verdict on a question to n nodes that needs a majority of yes
// votes; against counts all others cast so far. It is won or lost as soon as the open
// votes cannot change it.
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

// refused reports whether the noes alone rule out a majority: whatever the silent
// nodes would have voted, another holder is in the way.
func refused(t quorum.Tally) bool { return t.N-t.No < t.Need() }

// inVain reports whether a caller need not wait, since no later attempt can win either: hard nodes
// replied with errors that time does not heal, and leave no majority. If the noes rule one out as
// well, as half of an even number of nodes can, it waits for that holder first.
func inVain(t quorum.Tally, hard int) bool { return t.N-hard < t.Need() && !refused(t) }

// An acquisition has four results, not two: a majority may store the value without
// agreeing on the fencing token.
type acquisition uint8

const (
	acquirePending  acquisition = iota + 1
	acquireFenced               // a majority stores the value and the token
	acquireUnfenced             // a majority stores the value, but not the token: raise it
	acquireHeld                 // the noes alone rule out a majority
	acquireNoQuorum             // too many nodes did not reply
)

// acquisitionOf returns the state of the round. The round is lost with the first vote that
// makes a majority impossible. The result waits beyond that vote only while the open votes
// can still distinguish held from unreachable: with two of five nodes dead, the first no
// would otherwise make every contended lock look like an outage. It waits at most for a
// majority of the live nodes, so a minority is still not waited for.
func acquisitionOf(t quorum.Tally) acquisition {
	switch {
	case t.Fenced >= t.Need():
		return acquireFenced
	case t.Yes >= t.Need():
		// Open votes might still bring the token. They are not waited for: a majority has
		// replied, so all others may be dead.
		return acquireUnfenced
	}
	gone := t.No + t.Missing // only an adoption counts missing: it needs a held lock
	switch {
	case t.N-gone < t.Need():
		return acquireHeld
	case decide(t.N, t.Yes, gone+t.Unknown) == lost && t.N-gone-t.Open() >= t.Need():
		return acquireNoQuorum
	}
	return acquirePending
}

// An ownership is the outcome of an extension or a release: whether the lock was still ours
// when the nodes replied. It has three values, not two: a missing reply is neither yes nor no.
type ownership uint8

const (
	ownershipPending ownership = iota + 1
	stillOurs                  // a majority stored the value
	ownershipLost              // too many nodes store another value or none
	inconclusive               // too few replied: the lock is held until its old Until, or its keys expire
)

// ownershipOf returns the result of an extension or a release by its votes so far.
func ownershipOf(t quorum.Tally) ownership {
	gone := t.No + t.Missing
	switch {
	case t.Yes >= t.Need():
		return stillOurs
	case t.N-gone < t.Need():
		return ownershipLost
	case t.Open() == 0:
		return inconclusive
	case decide(t.N, t.Yes, gone+t.Unknown) == lost && t.N-gone-t.Open() >= t.Need():
		return inconclusive // the open votes allow neither
	}
	return ownershipPending
}

// notOurs returns how a release counts a node that does not store our value. missing says
// that it stores none, rather than another's; inTime, that it replied before Until; asked,
// that the first release was sent before Until; again, that this is not the first.
//
// Before Until nobody else can have held the lock, so a node that forgot it counts as
// released. A release that was sent before Until and not answered may have been executed:
// a later reply that the value is missing or another's then means that it was released in
// time or expired, which counts neither as released nor as lost.
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
