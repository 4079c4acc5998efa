// Package wire is what is said to a node and what the replies mean: the names of the keys
// of a lock, the questions as commands and scripts, the replies as votes, and the errors
// of a node. It is the only package that names Redis commands; lua/ holds the scripts.
//
// The package is pure: it starts no goroutine, reads no clock, keeps no state and sends
// nothing. It knows the reply and error types of go-redis, but none of its clients. It
// knows nothing of batches, quorums, holders or waiters, and imports no other package of
// this module: wire <- lane <- quorum <- queue <- redlock, wire <- pubsub <- queue, wire <- wait <- queue.
//
// # Invariants
//
//   - Nothing but the reply that Redis gives for a grant is read as Yes. A reply that is
//     missing, of an unexpected type or an error is No or Unknown.
//   - Reply.Stored is true whenever our value may be on the node because of the question.
//   - No error of a node matches a context error or an error of the library (NewNodeError).
//   - No error text contains the value of a lock, only its label.
//   - All keys of one lock are in one hash slot of a Redis Cluster, and no two locks share
//     a key.
package wire
