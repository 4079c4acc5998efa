// Package redlock locks names across processes and data centres: a lock is held
// while a majority of N independent Redis masters say so (Redis documentation,
// "Distributed Locks with Redis").
//
//	l, err := redlock.Open(redlock.Options{}, "a:6379", "b:6379", "c:6379")
//	err = l.Run(ctx, "jobs/42", 10*time.Second, func(ctx context.Context, lock *redlock.Lock) error {
//		return work(ctx, lock.Fence()) // ctx ends when the lock is lost
//	})
//
// What it promises. The names are used by the code, the tests and docs/.
//
// I1, exclusion. Two locks on one key are never both within their Until, as long as,
// until then, a majority of the nodes carries the lock: no node that said yes forgets
// it (a restart without its data, a flush or a failover, unless every client of the
// key sets a RestartGuard of at least its longest ttl; an eviction), and no node's
// clock gains on ours by more than Options.Drift of the ttl, by rate or by a step. (A
// hand-over by Adopt ends the giver's claim: between the two this is an agreement.)
//
// I2, fencing. Lock.Fence is strictly greater than that of every holder of the key
// whose acquisition had returned before this one's winning attempt sent its first
// request, whatever clocks, pauses and delays do, as long as one and the same majority
// of the nodes keeps its registers at or above that holder's fence from then until
// this one's acquisition returns; where registers are lost it still grows if the nodes
// that lost them granted nothing for at least a ttl and clients' clocks differ by less
// than the time since that holder's grant.
//
// I3, loss is told in time. A context from KeepAlive or Run ends no later than Until,
// even if no node answers any more and even if an extension hangs; where the process
// or the machine slept past Until, within a second of waking, and Valid is false at
// once. Only an answered extension, whose quorum was complete before the old Until,
// moves Until, and only forward. Lost is final.
//
// I4, nothing is left behind. A failed, cancelled, timed-out, abandoned or lost attempt
// is rolled back on every node that may have said yes, also when the caller's context is
// done. What was not answered is owed to the node and sent again once it answers. What
// cannot be reached expires with its ttl, fence registers a day after. No goroutine,
// connection or timer of ours outlives Close by more than the clients' own timeouts.
//
// I5, a minority does not matter. Dead, hung, slow, restarting or erring nodes, up to N
// less a majority, are not waited for where the others agree, and memory, connections
// and goroutines stay bounded. Where the others are split (of three nodes one says yes
// and one no, since another client or its remains are there), the open vote decides:
// it is waited for, up to the node timeout. A node that lets that pass is not asked, nor
// waited for, until it has answered a PING; one that is slow but in time is waited for
// each time.
//
// What it does not promise. A holder that sleeps past Until without looking has lost
// the lock and does not know it: where that must do no harm, let the store refuse
// writes with a smaller fence than it has seen. Two nodes give no fault tolerance.
// Replicas behind a node do not make it safer: a failover, or a Ring's re-hash, is a
// node that forgets. A node that restarts without its data must stay away for the
// longest ttl, or be met by clients with a RestartGuard. An acquire gives its fence
// register no ttl of its own: a holder that crashes within its first second, or a
// request that the network delivers long after its connection failed, leaves one until
// the key is used again.
package redlock
