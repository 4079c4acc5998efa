package redlocktest

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/seed-ce352c9b/redlock"
)

// A Cluster is a set of independent masters and the network between them and their clients. Its methods may be called
// from any goroutine.
type Cluster struct {
	tb    testing.TB
	nodes []*Node

	mu      sync.Mutex
	sets    int
	clients []*redis.Client
	lockers []*redlock.Locker
	links   map[*redis.Client]*link
	closed  bool
}

// New starts n empty nodes, which report an uptime of one day. tb's Cleanup closes them. In a bubble, tb must be the
// bubble's own (or the one given to [BubbleFunc]), or Close must be called in the bubble: a goroutine that is left when a
// bubble ends makes synctest report a deadlock. New fails the test at once (tb.Fatal) if n is not positive.
func New(tb testing.TB, n int) *Cluster {
	tb.Helper()
	return NewSeeded(tb, n, 1)
}

// NewSeeded is New with a seed for the latencies. In a bubble, different seeds give different orders of events, and the
// same seed always gives the same order.
func NewSeeded(tb testing.TB, n int, seed uint64) *Cluster {
	tb.Helper()
	if n <= 0 {
		tb.Fatalf("redlocktest: a cluster of %d nodes", n)
	}
	logging.Disable()
	c := &Cluster{tb: tb, links: map[*redis.Client]*link{}}
	for i := range n {
		node, err := newNode(i, seed)
		if err != nil {
			tb.Fatalf("redlocktest: node %s: %v", name(i), err)
		}
		c.nodes = append(c.nodes, node)
	}
	if !addToScope(tb, c) { // otherwise tb would keep the clusters of thousands of cases until it ends
		tb.Cleanup(c.Close)
	}
	return c
}

// Node returns the i-th node, counting from 0. It panics if there is no such node.
func (c *Cluster) Node(i int) *Node { return c.nodes[i] }

// Len returns the number of nodes.
func (c *Cluster) Len() int { return len(c.nodes) }

// Clients returns one new client per node, in the order of the nodes: the clients of one process. They are closed with
// the cluster. Two sets of clients share nothing, and each set has latencies of its own: to repeat a run exactly, make
// the sets in the same order.
//
// The clients send every command once (no retries), respect the deadlines of contexts, give up on a dial or a reply after
// two seconds, and open 64 connections at most.
func (c *Cluster) Clients() []*redis.Client { return c.ClientsWith(nil) }

// ClientsWith is like Clients, but calls f once per node to change the options. In a bubble, two of the options must keep
// their values: maintenance notifications must be off (otherwise NewClient resolves the address by DNS), and PoolSize
// must exceed the number of simultaneous commands (otherwise timers are shared between bubbles).
func (c *Cluster) ClientsWith(f func(*redis.Options)) []*redis.Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sets++
	set := make([]*redis.Client, len(c.nodes))
	for i, n := range c.nodes {
		l := &link{node: n, client: c.sets}
		opt := clientOptions(l)
		if f != nil {
			f(opt)
		}
		set[i] = redis.NewClient(opt)
		c.links[set[i]] = l
	}
	c.clients = append(c.clients, set...)
	return set
}

func clientOptions(l *link) *redis.Options {
	return &redis.Options{
		Addr:                  l.node.Addr(),
		Dialer:                func(ctx context.Context, _, _ string) (net.Conn, error) { return l.dial(ctx) },
		Protocol:              2,
		DisableIdentity:       true, // saves a round trip, and keeps our version out of logs
		MaxRetries:            -1,   // only the caller knows what was sent and whether it may be sent again
		ContextTimeoutEnabled: true,
		DialerRetries:         1,
		DialTimeout:           2 * time.Second,
		ReadTimeout:           2 * time.Second,
		WriteTimeout:          2 * time.Second,
		PoolSize:              64,
		PipelinePoolSize:      -1,
		MinIdleConns:          0,
		ConnMaxIdleTime:       -1,
		MaintNotificationsConfig: &maintnotifications.Config{
			Mode: maintnotifications.ModeDisabled,
		},
	}
}

// Cut partitions the given clients from their nodes in both directions, while other clients still get through; see
// [Node.Partition]. It panics if a client does not belong to the cluster.
func (c *Cluster) Cut(clients ...*redis.Client) { c.setCut(clients, true) }

// Mend ends Cut and delivers the segments that were held. It panics if a client does not belong to the cluster.
func (c *Cluster) Mend(clients ...*redis.Client) { c.setCut(clients, false) }

// Kill ends the process of the given clients, as kill -9 does: what it had sent still arrives, followed by the end of its
// connections; it receives nothing more and dials no more. The clients cannot be used afterwards. Kill panics if a client
// does not belong to the cluster.
func (c *Cluster) Kill(clients ...*redis.Client) {
	for _, client := range clients {
		l := c.link(client)
		l.node.change(func() {
			l.gone = true
			for conn := range l.node.conns {
				if conn.link == l && !conn.closed {
					conn.closeClient()
				}
			}
		})
	}
}

// link returns the link of a client.
func (c *Cluster) link(client *redis.Client) *link {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.links[client]
	if l == nil {
		panic("redlocktest: " + client.String() + " is not a client of this cluster")
	}
	return l
}

func (c *Cluster) setCut(clients []*redis.Client, cut bool) {
	for _, client := range clients {
		l := c.link(client)
		l.node.change(func() {
			if l.cut[request] && !cut {
				l.opened = [2]time.Time{time.Now(), time.Now()}
			}
			l.cut = [2]bool{cut, cut}
		})
	}
}

// Connections returns the number of connections that clients hold open to all nodes.
func (c *Cluster) Connections() int {
	open := 0
	for _, n := range c.nodes {
		open += n.Connections()
	}
	return open
}

// Close closes the Lockers that [Cluster.Locker] returned, the clients and the nodes, and waits for the nodes' goroutines.
// In a bubble it then lets ten seconds pass, in which the background work of go-redis ends. Whatever else uses the clients
// must be closed first. Further calls do nothing.
func (c *Cluster) Close() {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return
	}
	c.closed = true
	clients, lockers := c.clients, c.lockers
	c.mu.Unlock()
	closeLockers(lockers)
	for _, client := range clients {
		client.Close() // an error means that the test has already closed it
	}
	for _, n := range c.nodes {
		n.close()
	}
	if inBubble() {
		time.Sleep(drain)
	}
}
