//go:build race

package redlock_test

// sparing: the race detector costs ten times the time, and finds in a few rounds what it
// finds in many.
const sparing = true
