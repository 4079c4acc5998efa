//go:build !race

package redlock_test

const sparing = false
