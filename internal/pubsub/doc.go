// Package pubsub is the subscription to one node. While any caller waits for a lock, a
// Locker has one Subscriber per node, which holds one connection that all its waiters
// share. A Subscriber keeps the set of wanted channels subscribed, dials again after
// failures, notices half-open connections, and reports announcements to a Listener.
//
// The package knows go-redis's PubSub and the error classes of package wire. It knows
// nothing of locks, queues, tickets or waiters: a channel is a string and an announcement
// is the string that came with it. Imports point one way: wire <- pubsub <- queue.
//
// # Invariants
//
//   - A hint, never a proof. An announcement only wakes waiters, who then ask the nodes.
//     Nothing depends on its arrival: waiters poll while a channel is not subscribed.
//   - Subscribed means confirmed by the node. When a connection fails, the Listener hears
//     of the loss of every confirmed channel that is still wanted, after everything else
//     that was heard on that connection.
//   - The goroutines of a Subscriber run only while a channel is wanted.
//   - No lock of this package is held while the Listener or the client is called.
package pubsub
