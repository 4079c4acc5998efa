// Package seam gives packages inside this module access to what package redlock keeps to itself: a Locker whose clocks
// and randomness are given, so that a simulation is a function of its seed, and a look at a Locker's state. Package
// redlock sets the variables when it is initialized, which is all that a program that imports it pays. They name
// Lockers as any, because redlock imports this package.
package seam

// NewLocker is a
//
//	func(opt redlock.Options, steady, wall func() time.Time, seed uint64, nodes ...redlock.Node) (*redlock.Locker, error)
//
// which is redlock.New with a steady clock, a wall clock (nil: the real ones) and a seed for everything random.
var NewLocker any

// MinBatches points to the number of pipelines that may be in flight to the nearest node. It must not be changed
// while a Locker exists.
var MinBatches *int

// JoinFrom sets for all nodes of a *redlock.Locker, which must not have been used yet, how many releases of a batch have to
// be able to travel in one script before they do; 0: none ever do. Otherwise it depends on the kind of client.
var JoinFrom func(locker any, n int)

// Peek returns the state of a *redlock.Locker.
var Peek func(locker any) State

// Unlocked reports whether nobody holds a mutex of a *redlock.Locker, of its queues or of its lanes.
var Unlocked func(locker any) bool

// A State is the part of a Locker's state that tests check. Its numbers are read one after the other.
type State struct {
	Held     int         // locks on the Locker's list
	Leaving  int         // keys with a clean-up in progress
	Queues   int         // keys that have a queue of waiters or are still subscribed to
	Channels int         // channels that belong to queues
	Nodes    []NodeState // in the order that New was given
}

// A NodeState is the state of one node.
type NodeState struct {
	Owed       int  // rollbacks and releases that are pending
	Down       bool // the node is out of use
	Stuck      int  // pipelines that were abandoned and have not returned
	Subscribed int  // channels with a confirmed subscription
}
