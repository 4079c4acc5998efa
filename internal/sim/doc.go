// Package sim injects faults around the library and judges the result.
//
// A [Schedule] is data: which clients do what at which time, and which fault strikes what at which time. [Run] executes it
// in a synctest bubble, on a redlocktest cluster with real go-redis clients, and returns a [History]: calls and returns,
// claims, writes to a store, faults, in virtual nanoseconds. [Judge] examines only the history and knows nothing of the
// implementation except what is documented: the promises I1 to I5 of package redlock, that the key contains the holder's
// value, and that {key}:fence is a register that never decreases.
//
// Schedules come from a seed ([Generate], for long runs) or from rapid ([Draw], short ones that shrink). The same schedule gives the
// same history to the nanosecond, in every process, for any GOMAXPROCS, and under the race detector: [History.Hash].
//
// docs/design/verification.md describes how to run it, and what it does not cover.
package sim
