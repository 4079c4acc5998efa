package directed_test

import (
	"testing"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/harness"
	"github.com/seed-ce352c9b/redlock/redlocktest"
)

const (
	job         = harness.Job
	jobRegister = harness.JobRegister
	otherValue  = harness.OtherValue
	oneTrip     = harness.OneTrip
)

// A stage is a harness.Stage with more methods.
type stage struct{ *harness.Stage }

func onStage(t *testing.T, n int, f func(s *stage)) {
	t.Helper()
	harness.OnStage(t, n, func(s *harness.Stage) { f(&stage{s}) })
}

// runStage runs f as a subtest, on a stage of its own.
func runStage(t *testing.T, name string, n int, f func(s *stage)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { onStage(t, n, f) })
}

// each calls f for the given nodes, or for all.
func (s *stage) each(f func(n *redlocktest.Node), nodes ...int) {
	if nodes == nil {
		nodes = s.All()
	}
	for _, i := range nodes {
		f(s.Node(i))
	}
}

// record begins the record of every node anew.
func (s *stage) record() { s.each(func(n *redlocktest.Node) { n.Record(true) }) }

// evict removes the lock's key from the given nodes, or from all.
func (s *stage) evict(nodes ...int) { s.each(func(n *redlocktest.Node) { n.Evict(job) }, nodes...) }

// mend ends all faults of the given nodes, or of all.
func (s *stage) mend(nodes ...int) {
	if nodes == nil {
		nodes = s.All()
	}
	for _, i := range nodes {
		s.Mend(i)
	}
}

// empty fails the test if one of the given nodes, or of all, stores a lock.
func (s *stage) empty(what string, nodes ...int) {
	s.Helper()
	s.each(func(n *redlocktest.Node) {
		if keys := harness.LocksOn(n); len(keys) > 0 {
			s.Errorf("%s: node %s stores %v, want nothing", what, n.Name(), keys)
		}
	}, nodes...)
}

// faults are the ways in which a node does not serve its clients, until it is mended.
var faults = map[string]func(n *redlocktest.Node){
	"hung":          (*redlocktest.Node).Hang,
	"cut off":       (*redlocktest.Node).Partition,
	"requests lost": (*redlocktest.Node).PartitionRequests,
	"replies lost":  (*redlocktest.Node).PartitionReplies,
	"stopped":       (*redlocktest.Node).Stop,
	"refused":       func(n *redlocktest.Node) { n.Refuse(true) },
	"slow":          func(n *redlocktest.Node) { n.Delay(10*time.Second, 10*time.Second) },
	"loading":       func(n *redlocktest.Node) { n.Fail(loading) },
}

const loading = "LOADING Redis is loading the dataset in memory"
