package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"

	"github.com/alicebob/miniredis/v2"
)

// A health is what the demo has done to a node.
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

// A node is one Redis master of the demo: a miniredis in this process, and on a real port
// a proxy in front of it that can refuse, hang and pass. What the node stores survives,
// as with `appendfsync always`: a node that forgets must stay away for the longest
// ttl, and the demo does not know the ttls of those who come from other shells.
type node struct {
	name string
	addr string
	m    *miniredis.Miniredis

	mu       sync.Mutex
	cond     *sync.Cond // the state changed
	state    health
	listener net.Listener // nil while killed
	conns    map[net.Conn]struct{}
	closed   bool
}

func newNode(name string) (*node, error) {
	n := &node{name: name, m: miniredis.NewMiniRedis(), conns: make(map[net.Conn]struct{})}
	n.cond = sync.NewCond(&n.mu)
	// By itself miniredis never lets a key expire: the locks of the dead would stay.
	n.m.ClockTTL(true)
	l, err := listen()
	if err != nil {
		return nil, err
	}
	n.addr = l.Addr().String()
	n.listener = l
	go n.accept(l)
	return n, nil
}

// listen takes a port below those that the system gives to outgoing connections
// (32768 and up on Linux, 49152 elsewhere): while a node is killed nobody listens, and
// its address would be lost to any program that dials.
func listen() (net.Listener, error) {
	var err error
	for range 100 {
		var l net.Listener
		if l, err = net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(20000+rand.IntN(10000))); err == nil {
			return l, nil
		}
	}
	return nil, fmt.Errorf("no free port for a node: %w", err)
}

func (n *node) accept(l net.Listener) {
	for {
		client, err := l.Accept()
		if err != nil {
			return
		}
		server, err := n.m.Dial()
		if err != nil {
			client.Close()
			continue
		}
		if !n.enter(client, server) {
			continue
		}
		go n.copy(server, client, true)
		go n.copy(client, server, false)
	}
}

// enter registers a connection's two ends, or closes them if the node is gone.
func (n *node) enter(ends ...net.Conn) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range ends {
		if n.closed || n.state == killed {
			c.Close()
		} else {
			n.conns[c] = struct{}{}
		}
	}
	return !n.closed && n.state != killed
}

// copy passes bytes on until an end is closed. Only requests stop where the node hangs,
// as with a stopped process: replies on their way arrive, and requests that wait
// are executed when it wakes, however late.
func (n *node) copy(dst, src net.Conn, request bool) {
	buf := make([]byte, 16<<10)
	for {
		k, err := src.Read(buf)
		if k > 0 {
			if request {
				n.mu.Lock()
				for n.state == hung && !n.closed {
					n.cond.Wait()
				}
				n.mu.Unlock()
			}
			if _, werr := dst.Write(buf[:k]); werr != nil {
				break
			}
		}
		if err != nil {
			break
		}
	}
	dst.Close()
	src.Close()
	n.mu.Lock()
	delete(n.conns, dst)
	delete(n.conns, src)
	n.mu.Unlock()
}

func (n *node) health() health {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.state
}

// kill closes the port and all connections.
func (n *node) kill() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.set(killed)
	n.drop()
}

// hang lets nothing through and refuses nobody.
func (n *node) hang() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.set(hung)
}

// revive brings the node back on the same port. It fails if another program took it.
func (n *node) revive() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return net.ErrClosed
	}
	if n.listener == nil {
		l, err := net.Listen("tcp", n.addr)
		if err != nil {
			return err
		}
		n.listener = l
		defer func() { go n.accept(l) }()
	}
	n.set(up)
	return nil
}

// set needs n.mu.
func (n *node) set(h health) {
	n.state = h
	n.cond.Broadcast()
}

// drop needs n.mu.
func (n *node) drop() {
	if n.listener != nil {
		n.listener.Close()
		n.listener = nil
	}
	for c := range n.conns {
		if tcp, ok := c.(*net.TCPConn); ok {
			tcp.SetLinger(0) // a reset, and no port in TIME_WAIT
		}
		c.Close()
	}
}

func (n *node) close() {
	n.mu.Lock()
	n.closed = true
	n.set(n.state)
	n.drop()
	n.mu.Unlock()
	n.m.Close()
}

// A cluster is the demo's nodes.
type cluster []*node

func startCluster(n int) (cluster, error) {
	var c cluster
	for i := range n {
		nd, err := newNode("n" + strconv.Itoa(i+1))
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
		as = append(as, n.addr)
	}
	return as
}

// spare is how many more nodes may fail with a majority left.
func (c cluster) spare() int {
	failed := 0
	for _, n := range c {
		if n.health() != up {
			failed++
		}
	}
	return (len(c)-1)/2 - failed
}

var errNoneLeft = errors.New("no node left in that state")

// pick returns a random node in a state.
func (c cluster) pick(h health) (*node, error) {
	var some []*node
	for _, n := range c {
		if n.health() == h {
			some = append(some, n)
		}
	}
	if len(some) == 0 {
		return nil, errNoneLeft
	}
	return some[rand.IntN(len(some))], nil
}

// Close ends all nodes.
func (c cluster) Close() error {
	for _, n := range c {
		n.close()
	}
	return nil
}
