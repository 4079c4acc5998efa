package demo

import (
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/alicebob/miniredis/v2"

	"github.com/seed-ce352c9b/redlock/internal/proxy"
)

// A health is the fault, if any, that the demo has injected into a node.
type health uint8

const (
	up health = iota
	killed
	hung
)

func (h health) String() string {
	switch h {
	case up:
		return "up"
	case killed:
		return "KILLED"
	case hung:
		return "HUNG"
	}
	return "?"
}

// A node is one Redis master: a miniredis in this process behind a proxy that can refuse connections, hang, or pass
// everything on. Its data survives a kill, as with `appendfsync always`: a node that loses its data must stay away for
// the longest ttl, and the demo does not know the ttls of clients in other shells.
type node struct {
	name   string
	i      int
	server *miniredis.Miniredis
	proxy  *proxy.Proxy

	mu    sync.Mutex
	state health
}

func newNode(i int) (*node, error) {
	n := &node{name: fmt.Sprintf("n%d", i+1), i: i, server: miniredis.NewMiniRedis()}
	n.server.ClockTTL(true) // otherwise no key expires, and the locks of dead workers would stay
	if err := n.server.Start(); err != nil {
		return nil, err
	}
	var err error
	if n.proxy, err = proxy.Start(n.server.Addr()); err != nil {
		n.server.Close()
		return nil, err
	}
	return n, nil
}

func (n *node) health() health {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.state
}

// set kills, hangs or revives the node. A killed node refuses connections. A hung one accepts connections and requests,
// like a stopped process, and executes the requests when it is revived, however late. Reviving a killed node fails if
// another program has taken its port.
func (n *node) set(h health) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.proxy.Hold(h == hung, false)
	if err := n.proxy.Refuse(h == killed); err != nil {
		return err
	}
	n.state = h
	return nil
}

func (n *node) close() {
	n.proxy.Close()
	n.server.Close()
}

// A cluster is the set of the demo's nodes.
type cluster []*node

func startCluster(n int) (cluster, error) {
	var c cluster
	for i := range n {
		nd, err := newNode(i)
		if err != nil {
			c.Close()
			return nil, err
		}
		c = append(c, nd)
	}
	return c, nil
}

func (c cluster) addrs() []string {
	var as []string
	for _, n := range c {
		as = append(as, n.proxy.Addr())
	}
	return as
}

// up returns how many nodes have no fault.
func (c cluster) up() (n int) {
	for _, nd := range c {
		if nd.health() == up {
			n++
		}
	}
	return n
}

// pick returns a random node of the given health, or nil if there is none.
func (c cluster) pick(h health) *node {
	var some []*node
	for _, n := range c {
		if n.health() == h {
			some = append(some, n)
		}
	}
	if len(some) == 0 {
		return nil
	}
	return some[rand.IntN(len(some))]
}

// Close stops all nodes.
func (c cluster) Close() {
	for _, n := range c {
		n.close()
	}
}
