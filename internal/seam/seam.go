// Package seam gives other packages of this module access to features that package redlock does not export: a Locker with
// given clocks and given randomness, so that a simulation is a function of its seed. Package redlock sets the variables
// and the other packages read them. A program that imports only redlock cannot use them; they cost it one assignment
// when it starts.
package seam

// NewLocker is set by package redlock during initialization. Its type is
//
//	func(opt redlock.Options, steady, wall func() time.Time, seed uint64, nodes ...redlock.Node) (*redlock.Locker, error)
//
// It is redlock.New with a monotonic clock, a wall clock (nil means the real one, for each) and a seed for everything that
// is random. Its static type is any because redlock imports this package, so this package cannot name redlock's types.
var NewLocker any

// MinFlights is how many pipelines may be in flight to the nearest node. It must not be changed while a Locker exists.
var MinFlights *int
