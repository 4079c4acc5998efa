//go:build race

package model

// A search has a single goroutine, and is ten times slower under the race detector.
func init() { race = true }
