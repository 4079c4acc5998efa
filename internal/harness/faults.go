package harness

import (
	"context"
	"testing"
	"time"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/seam"
	"github.com/seed-ce352c9b/redlock/redlocktest"
)

// Loading is an error that time heals.
const Loading = "LOADING Redis is loading the dataset in memory"

// Faults are the ways in which a node does not serve its clients, until it is mended.
var Faults = map[string]func(n *redlocktest.Node){
	"hung":          (*redlocktest.Node).Hang,
	"cut off":       (*redlocktest.Node).Partition,
	"requests lost": (*redlocktest.Node).PartitionRequests,
	"replies lost":  (*redlocktest.Node).PartitionReplies,
	"stopped":       (*redlocktest.Node).Stop,
	"refused":       func(n *redlocktest.Node) { n.Refuse(true) },
	"slow":          func(n *redlocktest.Node) { n.Delay(10*time.Second, 10*time.Second) },
	"loading":       func(n *redlocktest.Node) { n.Fail(Loading) },
}

// FailNodes has nodes reply an error to every command; "" ends that.
func (s *Stage) FailNodes(err string, nodes ...int) {
	s.visit(nodes, func(n *redlocktest.Node) { n.Fail(err) })
}

// FailCommand has nodes reply an error to one command; "" ends that.
func (s *Stage) FailCommand(command, err string, nodes ...int) {
	s.visit(nodes, func(n *redlocktest.Node) { n.FailCommand(command, err) })
}

// Hang has nodes hang until they resume.
func (s *Stage) Hang(nodes ...int)   { s.visit(nodes, (*redlocktest.Node).Hang) }
func (s *Stage) Resume(nodes ...int) { s.visit(nodes, (*redlocktest.Node).Resume) }

// Slow sets the round trip to nodes.
func (s *Stage) Slow(d time.Duration, nodes ...int) {
	s.visit(nodes, func(n *redlocktest.Node) { n.Delay(d/2, d-d/2) })
}

// Evict removes the lock's key from the given nodes, or from all.
func (s *Stage) Evict(nodes ...int) { s.Each(func(n *redlocktest.Node) { n.Evict(Job) }, nodes...) }

// EvictKey removes any key from nodes.
func (s *Stage) EvictKey(key string, nodes ...int) {
	s.visit(nodes, func(n *redlocktest.Node) { n.Evict(key) })
}

// Mend ends all faults of the given nodes, or of all.
func (s *Stage) Mend(nodes ...int) {
	s.Each(func(n *redlocktest.Node) {
		n.OnCommand(nil)
		n.Resume()
		n.Heal()
		n.Delay(0, 0)
		n.DropReplies(0)
		n.LoseReplies(0)
		n.Fail("")
		n.FailCommand("set", "")
		n.FailCommand("zadd", "")
		n.Refuse(false)
		n.Start()
	}, nodes...)
}

// HeldUp delays the first commands with this verb for this key, and what follows them on their connection.
func HeldUp(n *redlocktest.Node, verb, key string, times int, d time.Duration) {
	On(n, verb, key, func(n int, _ []string) {
		if n <= times {
			time.Sleep(d)
		}
	})
}

// Unanswered drops the replies to the first commands with this verb for this key: they are executed, and the
// connection is reset.
func Unanswered(n *redlocktest.Node, verb, key string, times int) {
	On(n, verb, key, func(nth int, _ []string) {
		if nth <= times {
			n.DropReplies(1)
		}
	})
}

// WarmUp has the Locker use every node, and then begins the nodes' data and records anew.
func WarmUp(t testing.TB, c *redlocktest.Cluster, l *redlock.Locker) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range 2 { // the first may end in timeouts, where nodes are far
		k, err := l.Acquire(ctx, "warm", time.Minute)
		if err != nil {
			t.Fatalf("Acquire of a free lock: got %v, want no error", err)
		}
		time.Sleep(time.Second)
		k.Extend(t.Context())
		time.Sleep(time.Second)
		k.Release(t.Context())
		time.Sleep(time.Second)
		l.Inspect(t.Context(), "warm")
	}
	for i, n := range seam.Peek(l).Nodes {
		if n.Down || n.Owed > 0 {
			t.Fatalf("after the warming-up: node %s is down: %v, owed %d; want used, 0", c.Node(i).Name(), n.Down, n.Owed)
		}
		c.Node(i).FlushAll()
		c.Node(i).Record(true)
	}
}
