//go:build race

package model

// A search has one goroutine: under the race detector it is only ten times slower.
func init() { race = true }
