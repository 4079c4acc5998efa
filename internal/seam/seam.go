// Package seam is how packages inside this module reach what package redlock keeps to itself: a Locker whose clocks
// and whose randomness are given, so that a simulation is a function of its seed. Root registers, others take; a
// program that imports redlock alone cannot get here, and pays one assignment at its start.
package seam

// NewLocker is set by package redlock when it is initialized, to a
//
//	func(opt redlock.Options, steady, wall func() time.Time, seed uint64, nodes ...redlock.Node) (*redlock.Locker, error)
//
// which is redlock.New with a steady clock, a wall clock (nil: the real ones) and a seed for all that is random. It
// is an any because redlock imports this package, and so this package cannot name redlock's types.
var NewLocker any

// MinFlights is how many pipelines may be under way to the nearest node. It is not to be changed while there is a Locker.
var MinFlights *int
