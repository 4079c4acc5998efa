// Package redlock provides locks on names across processes and data centres. A lock
// is held while a majority of N independent Redis masters store it (Redis
// documentation, "Distributed Locks with Redis"), so that any minority of them may fail.
// Each lock has a ttl, after which it ends by itself if its holder has died.
// Run acquires a lock, renews it while a function works, and releases it; the function's
// context ends before anybody else can have the lock. Because a process can be stopped
// between that moment and its next write, Lock.Fence is a number that grows with every
// holder: a store that refuses writes with a smaller number than it has seen is safe even then.
//
//	l, err := redlock.Open(redlock.Options{}, "a:6379", "b:6379", "c:6379")
//	err = l.Run(ctx, "jobs/42", 10*time.Second, func(ctx context.Context, lock *redlock.Lock) error {
//		return work(ctx, lock.Fence()) // ctx ends when the lock is lost
//	})
//
// # What it guarantees
//
// The code, the tests and docs/ refer to these guarantees by name.
//
// I1, exclusion. No two locks on one key, neither of them released, are both before their
// Until, provided that until then a majority of the nodes stores the lock: no node that
// granted it forgets it (by a restart without its data, a flush or a failover, unless
// every client of the key sets a RestartGuard of at least its longest ttl; or by an
// eviction), and no node's clock gains on ours, by rate or by a step, more than
// Options.Drift of the ttl. (Adopt ends the claim of the previous holder; between these
// two, exclusion is by agreement. If the wall clock of the holder's own machine is set
// forward past Until, the lock is given up early: Valid is false at once, and contexts
// end within a second.)
//
// I2, fencing, of locks that have a fence, as all have unless WithoutFence is passed. For
// each key a node keeps the greatest fence that it has seen, the key's register. Lock.Fence
// is strictly greater than that of every holder of the key with a fence whose acquisition
// had returned before the winning attempt of this one sent its first request,
// whatever clocks, pauses and delays do, provided that one and the same majority of the
// nodes keeps its registers at or above that holder's fence from then until this
// acquisition returns. (No command lowers a register; an operator may set one back that
// somebody else has written, see docs/operations.md.) Registers expire a day, or
// Options.FenceLife, after the key was last used with a fence. Where they are lost or have expired,
// fences still grow if the nodes that lost them granted nothing for at least a ttl and the
// clients' clocks differ by less than the time since that holder's grant.
//
// I3, losses are signalled in time. A context from KeepAlive or Run ends no later than
// Until, even if no node replies any more and even if an extension hangs. If the process
// or the machine slept past Until, it ends within a second of waking, and Valid is false
// at once. Only an extension whose quorum was complete before the old Until moves Until,
// and only forward. A loss is final.
//
// I4, nothing is left behind. A failed, cancelled, timed-out, abandoned or lost attempt
// is rolled back on every node that may have granted it, even if the caller's context is
// done. A rollback that a node did not answer is sent again once the node replies. On
// nodes that stay unreachable, keys expire with their ttl, and fence registers
// later by Options.FenceLife, a day by default. No goroutine, connection or timer of a Locker outlives Close by more than the
// clients' own timeouts.
//
// I5, a minority does not matter. Up to N less a majority of the nodes may be dead, hung,
// slow, restarting or failing. They are not waited for while the others agree, and
// memory, connections and goroutines stay bounded. If the others are split (of
// three nodes, one grants the lock, and one refuses it because it stores another client's
// value or the remains of one), the missing vote decides and is waited for, up to the node
// timeout. A node that
// exceeds the node timeout is neither asked nor waited for until it has answered a PING;
// a node that is slow but within the timeout is waited for each time. A node that replies
// with errors is not waited for either, also not by Close: what it refused to clean up is
// sent again while the Locker lives, and Locker.Nodes and Trace.Event report its state.
//
// # What it does not guarantee
//
// A node that grants what it does not store, such as a proxy that makes up replies, is
// covered by no promise.
//
// A holder that sleeps past Until and does not check has lost the lock without knowing
// it. Where this must do no harm, the store has to refuse writes with a smaller fence
// than it has seen. Locks without a fence (WithoutFence) exclude those with one and each
// other, and nothing more: where a store compares fences, all holders of that key must
// have one. Two nodes tolerate no failure. Replicas of a node do not make it
// safer: after a failover, or after a Ring re-hashes, it is a node that forgot. A node
// that restarts without its data must stay down for the longest ttl, or all clients must
// set a RestartGuard. An acquisition gives its fence register no ttl: a holder that
// crashes within its first second, or a request that the network delivers long after its
// connection failed, leaves a register that stays until the key is used again. So may a process
// that dies within a minute after a node lost its data: a register that a release has seen is
// looked at again only a minute later, or by Close.
package redlock
