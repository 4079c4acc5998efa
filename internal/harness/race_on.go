//go:build race

package harness

// Sparing reports whether the race detector is on. It costs ten times the time, and finds in a few rounds what it
// finds in many.
const Sparing = true
