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
)

// A Cluster is some independent masters and the network between them and their clients.
type Cluster struct {
	tb    testing.TB
	nodes []*Node

	mu      sync.Mutex
	sets    int
	clients []*redis.Client
	links   map[*redis.Client]*link
	closed  bool
}

// New starts n nodes, up for a day and empty. They are closed by tb's Cleanup. In a bubble tb has to be the bubble's own
// (or the one given to [BubbleFunc]), or Close has to be called there: what is left open when a bubble ends is a deadlock for it. New
// ends the test if n is not positive.
func New(tb testing.TB, n int) *Cluster {
	tb.Helper()
	return NewSeeded(tb, n, 1)
}

// NewSeeded is New with a seed for the latencies: in a bubble other seeds mean other orders of events, and the same seed the same.
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
	if !enter(tb, c) { // else tb would keep the clusters of thousands of cases until it ends
		tb.Cleanup(c.Close)
	}
	return c
}

// Node returns the i-th node, counted from 0.
func (c *Cluster) Node(i int) *Node { return c.nodes[i] }

// Len returns how many nodes there are.
func (c *Cluster) Len() int { return len(c.nodes) }

// Clients returns one new client per node, in the nodes' order: what one process has. They are closed with the cluster. Two sets share
// nothing, and latencies are a set's own: for the same run each time, sets must be made in the same order.
//
// The clients send every command once (no retries), heed deadlines of contexts, give up a dial or an answer after two seconds, and
// have 64 connections at most.
func (c *Cluster) Clients() []*redis.Client { return c.ClientsWith(nil) }

// ClientsWith is Clients with options changed by f, which is called once per node. Of the options these are needed in a
// bubble: maintenance notifications off (else NewClient looks the address up in the DNS) and a PoolSize above
// the number of commands at a time (else timers are shared between bubbles).
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
		DisableIdentity:       true, // one round trip less, and no version of ours in a log
		MaxRetries:            -1,   // to send again is the business of who knows what was sent
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

// Cut partitions single clients from their nodes, both ways, while others get through; see [Node.Partition]. It panics on clients that
// are not the cluster's.
func (c *Cluster) Cut(clients ...*redis.Client) { c.setCut(clients, true) }

// Mend ends Cut: what was held is delivered.
func (c *Cluster) Mend(clients ...*redis.Client) { c.setCut(clients, false) }

// Kill ends the process that these clients are in, as kill -9 does: what it had sent arrives, and behind it the end of its
// connections; it hears nothing more and dials no more. The clients are of no use from then on. It panics on clients that are not
// the cluster's.
func (c *Cluster) Kill(clients ...*redis.Client) {
	for _, client := range clients {
		l := c.link(client)
		l.node.change(func() {
			l.gone = true
			for conn := range l.node.conns {
				if conn.link == l && !conn.closed {
					conn.leave()
				}
			}
		})
	}
}

// link is a client's.
func (c *Cluster) link(client *redis.Client) *link {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.links[client]
	if l == nil {
		panic("redlocktest: " + client.String() + " is no client of this cluster")
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

// Connections returns how many connections clients hold open to all nodes.
func (c *Cluster) Connections() int {
	open := 0
	for _, n := range c.nodes {
		open += n.Connections()
	}
	return open
}

// Close closes the clients and the nodes, and waits for the nodes' goroutines. In a bubble it then lets ten seconds pass, in
// which what go-redis does in the background ends. Close what uses the clients first. Later calls do nothing.
func (c *Cluster) Close() {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return
	}
	c.closed = true
	clients := c.clients
	c.mu.Unlock()
	for _, client := range clients {
		client.Close() // an error says that the test has closed it already
	}
	for _, n := range c.nodes {
		n.close()
	}
	if inBubble() {
		time.Sleep(drain)
	}
}
