// Package sim throws faults at the library and judges what came of it.
//
// A [Schedule] is data: which clients do what when, and which fault strikes whom when. [Run] plays it in a
// synctest bubble, on a redlocktest cluster with real go-redis clients, and returns a [History]: calls and returns,
// claims, writes to a store, faults, in virtual nanoseconds. [Judge] looks at the history alone and knows nothing of the
// implementation but what is documented: the promises I1 to I5 of package redlock, that the key holds the
// holder's value, and that {key}:fence is a register that only grows.
//
// Schedules come from a seed ([Generate], for long runs) or from rapid (then they shrink). The same schedule gives the
// same history to the nanosecond, in every process, for any GOMAXPROCS, and under the race detector: [History.Hash].
//
// docs/design/verification.md says how to run it, and what it does not see.
package sim
