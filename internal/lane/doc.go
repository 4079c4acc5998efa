// Package lane is the way from this process to one node. A Lane queues the questions
// of all callers, sends them in pipelines (batches), gives each a deadline, keeps the
// order of calls that concern the same lock, watches whether the node replies, and
// repeats clean-ups until the node has answered them.
//
// The package knows go-redis clients and the questions and replies of package wire.
// It knows nothing of quorums, rounds, holders or waiters: it reports each finished call to
// a Voter and what happens to the node to Report, and calls nothing else of the layer above. Imports point one
// way: wire <- lane <- quorum <- queue <- redlock. Package wire alone names Redis commands; a lane only
// sends what wire has built.
//
// # Invariants
//
//   - Finished once. Every call is finished exactly once, and its Voter gets exactly one
//     vote: for the node's answer, for the deadline, or for never having been sent. A
//     reply that comes after the deadline changes nothing.
//   - Order. A call begins only after every call that it was asked to follow is
//     finished. A rollback thus never overtakes the acquire that it undoes within this
//     process, and it knows whether there is anything to undo.
//   - No silent residue. If a clean-up may have had no effect, the lane owes it to the
//     node: it is sent again until the node answers it, until it expires, or until the
//     lane closes.
//   - A silent node is cheap. A node that let a call that was sent time out gets nothing
//     but PINGs until it answers one. All other calls to it fail at once.
//   - Bounded. The queue, the batches under way, the batches that were given up, the
//     owed commands and the unanswered PINGs each have a limit. Only the first failure
//     of a node costs a caller its patience.
//
// # The states of a call
//
//	waiting   some call before it is not finished
//	queued    it waits in the lane's queue for a place in a batch
//	sent      it is part of a batch that is under way
//	finished  Reply is final
//
//	waiting -> queued     the last call before it finished (begin, submit)
//	waiting -> finished   nothing to undo; superseded; the node is down; the queue is
//	                      full; a restore or a release that is owed goes first (begin)
//	queued  -> sent       a batch took it (nextBatch); its deadline starts anew, because
//	                      the time in our own queue says nothing about the node
//	queued  -> finished   deadline, node down, lane closed
//	sent    -> finished   reply (complete), deadline (expireCalls), lane closed
//	sent    -> queued     the node has done nothing for the call and needs the other form
//	                      of the command: its own script instead of the joint one, the
//	                      script as text, or SET NX without GET. Each happens at most once
//	                      per call.
//
// A call that never left has Reply.Sent false. A call that left and had no answer has
// Reply.Silent true: the node may execute it at any later time.
//
// # The order rule
//
// A call follows the calls named when it is asked. They are the last calls on the same
// node for the same lock, so calls for different locks never wait for each other. When
// such a call is finished, its follower inherits what it left behind (Residue), and
// whether the clean-up is owed already (inherit). (AskBoth is the one exception: it queues two calls back to back, so that they
// travel in one batch and the node executes them in order.) Without the rule, a release
// on a second connection could overtake the acquire of a slow node; the acquire would
// then leave a key that nobody holds.
//
// "Finished" does not mean "executed": after a timeout the command may still arrive.
// Hence a clean-up that follows a silent call is not sent at once. It finishes as
// Unknown and becomes owed (mayBeOvertaken).
//
// # What is owed, and when it is paid
//
// A clean-up (wire.Kind.Cleans) becomes owed when it finishes without an answer, or when
// it was answered but what it undoes may still arrive. It is sent again only after the
// node has answered a PING that left later than the clean-up became owed: a stopped
// server executes, when it wakes, what lies in its sockets, even from closed connections,
// so that a clean-up sent before could come before what it undoes. The command is paid
// when the node answers it; if what it undoes may still be under way, it is paid only
// after every batch that left before has come back, and one more time. A release waits
// for a restore of the same value, and an adoption of a value whose release is owed
// counts as missing (owed.go).
//
// # When a node is down
//
// A node is down after a call that was sent had no answer by its deadline, after its
// client failed before a byte left, or after owed commands had no answer. While it is
// down or anything is owed to it, a goroutine sends PINGs (probe.go). The node is used
// again when it has answered a PING that left after the latest failure, when everything
// owed that is due has been sent and answered, and when fewer than maxStuck batches are
// still given up.
//
// # Locks
//
// Mutexes are locked in this order: a Lock's; the Locker's; then one of the clean-ups', the
// queues' or a lane's; a quorum call's or that of Servers. That of Registers is taken with no
// other held, and before a quorum call's. A lane's mutex guards its fields, and
// the fields of its calls except those that the Voter owns. No client method runs under
// it. Votes are cast with no mutex held, because a vote may decide a round and ask the
// next question, of this lane or another: functions that finish calls return them as
// `ready`, and their callers deliver them after unlocking.
package lane
