package directed_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/seed-ce352c9b/redlock"
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
	s.on(nodes, f)
}

// on calls f for the given nodes.
func (s *stage) on(nodes []int, f func(n *redlocktest.Node)) {
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

// loading is an error that time heals.
const loading = "LOADING Redis is loading the dataset in memory"

// fairly runs f as two subtests, for Lockers without and with Options.Fair, each on a stage of its own.
func fairly(t *testing.T, n int, f func(s *stage, fair bool)) {
	t.Helper()
	for _, fair := range []bool{false, true} {
		runStage(t, fmt.Sprintf("fair=%v", fair), n, func(s *stage) { f(s, fair) })
	}
}

// noWork and noWorkAll are what Run and RunAll call where a test is about the calls alone.
func noWork(context.Context, *redlock.Lock) error    { return nil }
func noWorkAll(context.Context, redlock.Locks) error { return nil }

// fail has nodes reply an error to every command; "" ends that.
func (s *stage) fail(err string, nodes ...int) {
	s.on(nodes, func(n *redlocktest.Node) { n.Fail(err) })
}

// failCommand has nodes reply an error to one command; "" ends that.
func (s *stage) failCommand(command, err string, nodes ...int) {
	s.on(nodes, func(n *redlocktest.Node) { n.FailCommand(command, err) })
}

// hang has nodes hang until they resume.
func (s *stage) hang(nodes ...int)   { s.on(nodes, (*redlocktest.Node).Hang) }
func (s *stage) resume(nodes ...int) { s.on(nodes, (*redlocktest.Node).Resume) }

// evictKey removes any key from nodes.
func (s *stage) evictKey(key string, nodes ...int) {
	s.on(nodes, func(n *redlocktest.Node) { n.Evict(key) })
}

// acquire is Acquire of the stage's lock that has to succeed.
func (s *stage) acquire(l *redlock.Locker, ttl time.Duration) *redlock.Lock {
	s.Helper()
	k, err := l.Acquire(s.Ctx, job, ttl)
	if err != nil {
		s.Fatalf("Acquire: got %v, want the lock", err)
	}
	return k
}

// timeout returns a context that ends after d, or with the test.
func (s *stage) timeout(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(s.Ctx, d)
	s.Cleanup(cancel)
	return ctx
}

// keep returns a context of KeepAlive, which is stopped with the test.
func (s *stage) keep(k *redlock.Lock) context.Context {
	held, stop := k.KeepAlive(s.Ctx)
	s.Cleanup(stop)
	return held
}

// isHeld fails the test unless the lock is valid, and its context of KeepAlive has not ended.
func (s *stage) isHeld(when string, k *redlock.Lock, held context.Context) {
	s.Helper()
	if held.Err() != nil || !k.Valid() {
		s.Errorf("%s: context %v, valid %v; want a lock that is held", when, context.Cause(held), k.Valid())
	}
}

// roundOf returns the round that an error carries.
func (s *stage) roundOf(err error) redlock.Round {
	s.Helper()
	var q *redlock.QuorumError
	if !errors.As(err, &q) {
		s.Fatalf("got %v, want a *QuorumError in it", err)
	}
	return q.Round
}
