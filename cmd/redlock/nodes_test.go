package main

import (
	"testing"

	"github.com/alicebob/miniredis/v2"

	"github.com/seed-ce352c9b/redlock/internal/proxy"
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
