package main

import (
	"testing"

	"github.com/alicebob/miniredis/v2"

	"github.com/seed-ce352c9b/redlock/internal/proxy"
	"github.com/seed-ce352c9b/redlock/internal/realredis"
)

// A node is a miniredis behind a proxy that can make it fail.
type node struct {
	m *miniredis.Miniredis
	p *proxy.Proxy
}

func (n *node) kill() { n.p.Refuse(true) }
func (n *node) hang() { n.p.Hold(true, false) }

type cluster []*node

func (c cluster) addrs() (as []string) {
	for _, n := range c {
		as = append(as, n.p.Addr())
	}
	return as
}

// holding returns the number of nodes that store the value, or any value if it is empty.
func (c cluster) holding(key, value string) (n int) {
	for _, nd := range c {
		if got, err := nd.m.Get(key); err == nil && (value == "" || got == value) {
			n++
		}
	}
	return n
}

// free fails the test if the lock "k" is left on a node.
func (c cluster) free(t *testing.T) {
	t.Helper()
	if n := c.holding("k", ""); n != 0 {
		t.Errorf("the lock is left on %d nodes", n)
	}
}

// takeAway gives the lock "k" to another client.
func (c cluster) takeAway() {
	for _, n := range c {
		n.m.Set("k", "another")
	}
}

// fail makes all nodes answer every command with an error, and "" ends that.
func (c cluster) fail(text string) {
	for _, n := range c {
		n.m.SetError(text)
	}
}

func addrsOf(servers []*realredis.Server) (as []string) {
	for _, s := range servers {
		as = append(as, s.Addr())
	}
	return as
}

func testCluster(t *testing.T) cluster {
	t.Helper()
	var c cluster
	for range 5 {
		n := &node{m: miniredis.NewMiniRedis()}
		n.m.ClockTTL(true)
		if err := n.m.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(n.m.Close)
		var err error
		if n.p, err = proxy.Start(n.m.Addr()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(n.p.Close)
		c = append(c, n)
	}
	return c
}
