package redlocktest

import "github.com/seed-ce352c9b/redlock"

// Nodes returns a new set of clients, as [Cluster.Clients] does, in the form that [redlock.New] takes.
func (c *Cluster) Nodes() []redlock.Node {
	clients := c.Clients()
	nodes := make([]redlock.Node, len(clients))
	for i, client := range clients {
		nodes[i] = client
	}
	return nodes
}
