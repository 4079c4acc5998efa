// Package redlocktest provides a cluster of independent Redis masters inside the test's own process: N miniredis
// servers behind an in-memory network with faults that a test switches on and off. It needs no ports, no containers and
// no redis-server.
//
// It works in real time and inside a [testing/synctest] bubble. In a bubble every clock is the bubble's, so a minute of
// lock life takes milliseconds, and a run is a function of its seed: the latency of each segment is a hash of the seed,
// the link, the direction, the command and the time at which it is sent, with nanosecond resolution. So no two events
// happen at the same instant, and the order in which the scheduler runs goroutines decides nothing. Outside a bubble
// nothing is delayed unless [Node.Delay] says so.
//
// A bubble ends only when all its goroutines have ended. The test closes what [Cluster.Locker] returns; a Locker of
// redlock.New, or clients of your own, have to be closed before the test returns. Otherwise it fails with "deadlock: main
// bubble goroutine has exited but blocked goroutines remain" and a dump of goroutines in package redlock or go-redis.
//
// A test of code that locks needs no more than a [Cluster] and its [Cluster.Locker]. The examples below are tests of such
// code under a lost lock, a hung node and a slow clock; one looks at the nodes themselves.
//
// # Differences from a real server
//
// A node has a clock of its own ([Node.SetClockRate], [Node.JumpClock]), and keys expire by that clock, without any help
// from the test. A hung node ([Node.Hang]) behaves like a stopped process: its kernel continues to accept connections
// and bytes, and when the process resumes it executes what has arrived, even on connections that the client has closed
// long ago. A network partition ([Node.Partition]) holds segments and delivers them after it heals, as TCP retransmission
// does. In both ways a SET can arrive after the DEL that was meant to undo it. A restart ([Node.Restart]) forgets scripts
// and changes the run_id. SET with NX and GET, INFO, and the texts of errors from inside scripts are those of Redis 7.0.
//
// A node differs from a real server in these points. A key disappears exactly when its ttl has passed (a real server
// keeps it up to a millisecond longer). There is no eviction, no persistence, no ACL and no CONFIG. Lua prints large
// numbers in full, whereas a real server's ".." and tostring round them to 14 digits, so a script that prints a fencing
// token passes here and fails there. A connection has no file descriptor, so go-redis cannot detect that an idle one was
// reset before it uses it: after a reset, each pooled connection costs one error.
//
// [New] switches off go-redis's own log, for the whole process: the failures that it reports are the subject of the test.
package redlocktest
