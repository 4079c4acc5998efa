package redlocktest

import (
	"sync"

	"github.com/seed-ce352c9b/redlock"
)

// Locker returns a new Locker over all nodes, with clients of its own: the lock of one process. It is closed with the
// cluster, before its clients, or earlier by the test. Locker fails the test at once (tb.Fatal) if [redlock.New] refuses the
// options; it must then be called on the test's goroutine.
func (c *Cluster) Locker(opt redlock.Options) *redlock.Locker {
	c.tb.Helper()
	l, err := redlock.New(opt, c.Nodes()...)
	if err != nil {
		c.tb.Fatalf("redlocktest: %v", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lockers = append(c.lockers, l)
	return l
}

// closeLockers closes the Lockers, all at once: with a majority of the nodes out of order each takes up to two seconds.
func closeLockers(lockers []*redlock.Locker) {
	var all sync.WaitGroup
	for _, l := range lockers {
		all.Go(func() { l.Close() }) // an error means that the test has already closed it
	}
	all.Wait()
}

// Nodes returns a new set of clients, as [Cluster.Clients] does, in the form that [redlock.New] takes.
func (c *Cluster) Nodes() []redlock.Node {
	clients := c.Clients()
	nodes := make([]redlock.Node, len(clients))
	for i, client := range clients {
		nodes[i] = client
	}
	return nodes
}
