package lane

import (
	"sync"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/wire"

	"github.com/redis/go-redis/v9"
)

// The limits of one lane.
const (
	// MaxQueue bounds the calls that wait in the queue for a place in a batch. A node
	// that executes 100,000 calls a second clears a full queue in a sixth of a second.
	// Calls beyond the bound fail at once instead of waiting in vain.
	MaxQueue = 16384

	// maxBatchCalls and MaxBatchBytes (bytes) bound a pipeline, so that a caller behind a
	// large batch does not wait for all of it. If they are halved, throughput at 256
	// callers drops little: batches there have a few dozen calls.
	maxBatchCalls = 256
	MaxBatchBytes = 256 << 10

	// maxBatches bounds how many pipelines are under way to a distant node. With a single
	// pipeline each caller would first wait for a round trip that has just begun, which
	// doubles the latency; sixteen pipelines remove that wait.
	maxBatches = 16

	// rttPerBatch is how much measured round trip justifies one more batch under way. Halved,
	// near nodes get more and smaller batches, which cost more CPU; doubled, callers of a
	// node half a millisecond away wait for the batch before theirs.
	rttPerBatch = 250 * time.Microsecond

	// maxStuck bounds the pipelines that were given up as unanswered but whose
	// connection has not failed yet. A node at the bound is not used again until
	// some of them end. Each occupies a goroutine and a connection. Halved, a node that
	// hangs is left alone after half as many.
	maxStuck = 64
)

// MinBatches is how many pipelines may be under way to the nearest node. On loopback one
// is best, because the server is busy anyway and the calls that wait for it leave in
// larger batches. Tests and the simulation set two, so that commands can overtake each
// other there as they can on a real network.
var MinBatches = 1

// A Lane sends the questions of all callers to one node. The package comment has its
// invariants, the order rule and the order of locks.
type Lane struct {
	// What the lane leads to. Set by New and constant from then on.
	Index   int    // of the node, in the order in which the Locker got them
	Name    string // of the node, for error texts
	Node    Client
	Kind    wire.NodeKind // what Node stands for
	Direct  bool          // a pipeline goes over one connection to one server
	overTLS bool          // connections to the node use TLS
	guarded bool          // grants are made under a restart guard
	servers *Servers      // shared by all lanes of a Locker
	Report  func(News)    // called with no mutex held; nil: nobody wants to know

	mu sync.Mutex // guards everything below, except where a channel is used

	// Calls on their way. A call in phase queued is in queue and nowhere else; a call in
	// phase sent is in exactly one batch. toBegin is empty unless beginning is set.
	queue     []*Call
	toBegin   []*Call // calls that no longer wait for another; finish begins them
	beginning bool    // a finish further up the stack is working through toBegin

	// Batches. A batch is in batches from the moment it leaves until its pipeline
	// returns. running counts the goroutines that send and is bounded by maxRunning. One
	// whose batch passed its deadline is counted in stuck instead, so that its place is free.
	batches     []*batch
	batchesSent uint64   // number of the latest batch
	spare       []*batch // batches that have returned, for reuse
	running     int
	stuck       int

	// Time. While a call is queued or sent, the timer fires no later than its deadline.
	rtt     time.Duration // recent minimum of the round trip; 0: not measured yet
	timer   *time.Timer
	timerAt time.Time // when the timer fires; zero: it is not set
	clock   time.Time // the time for all calls of a batch that is being completed; zero: read it

	// What is known of the server.
	identified bool            // the server answered INFO and is no replica
	plainSet   bool            // the server has no SET NX GET (before Redis 7.0)
	duplicate  *wire.NodeError // set if another lane leads to the same server

	// How the server takes the joint scripts (joint.go).
	minJoint int // so many calls of a batch that may join do; 0: none ever
	joints   [numJoints]jointState

	// Health. The prober runs (probing) while the node is down, refuses PINGs, or is owed anything.
	// downSince is the latest failure: only a PING that left later makes the node usable.
	down      *wire.NodeError // why the node is not used; nil: it is used
	downSince time.Time
	heard     time.Time // when a batch was last answered
	owed      owedCommands
	probing   bool
	pauseEnds time.Time     // when the prober's last pause ends, or ended
	probeWake chan struct{} // wakes the prober from its pause; has room for one

	news // the node's condition, and what Report has not been told yet

	// The end. After closed is set nothing is queued and nothing becomes owed.
	closed   bool
	idle     func(answered bool) // called once when nothing is under way; see whenIdle
	patient  bool                // idle waits for refusals that may go away by themselves
	stopping chan struct{}       // closed by Close
}

// New returns the lane to node, which is the i-th of a Locker's nodes. The lane starts no
// goroutine and sends nothing until it is asked.
func New(i int, node Client, servers *Servers, guarded bool) *Lane {
	// Any other client may split a pipeline, even a wrapper of a plain client.
	_, direct := node.(*redis.Client)
	ln := &Lane{
		Name: NodeName(i, node), Node: node, Kind: KindOf(node), Direct: direct, guarded: guarded, Index: i, servers: servers,
		probeWake: make(chan struct{}, 1), stopping: make(chan struct{}),
	}
	if direct {
		ln.minJoint = minJoint
	}
	ln.overTLS = usesTLS(node)
	return ln
}

// Ask sends a call to the node once the calls in after, on the same node, are finished;
// nil entries are skipped. The vote may be cast before Ask returns, so the caller must
// hold no lock that a vote takes.
func (ln *Lane) Ask(c *Call, after ...*Call) {
	ln.mu.Lock()
	ready := ln.start(c, after)
	ln.mu.Unlock()
	deliver(ready)
}

// AskAll is Ask for several calls, the n-th after the calls that prior(n) returns. All of
// them are queued before a batch is sent, so that they travel together.
func (ln *Lane) AskAll(calls []*Call, prior func(n int) []*Call) {
	var ready []*Call
	ln.mu.Lock()
	for n, c := range calls {
		ready = append(ready, ln.start(c, prior(n))...)
	}
	ln.mu.Unlock()
	deliver(ready)
}

// AskBoth is Ask for two calls, of which the second follows the first directly. If the
// first can be queued at once, both travel in one batch, on one connection, and the node
// executes them in this order. Otherwise the second begins when the first is finished.
func (ln *Lane) AskBoth(c, then *Call, after ...*Call) {
	ln.mu.Lock()
	ready := ln.start(c, after)
	switch c.phase {
	case queued:
		ready = ln.begin(then, ready)
	case finished:
		then.inherit(c)
		ready = ln.begin(then, ready)
	default:
		then.waitFor(c)
	}
	ln.mu.Unlock()
	deliver(ready)
}

// FinishKnown finishes a call, without sending it, with a reply that is known from an
// earlier call.
func (ln *Lane) FinishKnown(c *Call, rep wire.Reply) {
	ln.mu.Lock()
	ready := ln.finish(c, rep, nil)
	ln.mu.Unlock()
	deliver(ready)
}

// startSending starts a goroutine that sends batches if calls are queued and fewer than
// maxRunning such goroutines exist. It needs ln.mu.
func (ln *Lane) startSending() {
	if len(ln.queue) > 0 && ln.running < ln.maxRunning() {
		ln.running++
		go ln.sendLoop()
	}
}

// maxRunning returns how many batches may be under way. The more distant the node, the
// more batches. It needs ln.mu.
func (ln *Lane) maxRunning() int {
	if ln.rtt == 0 { // a second connection is dialled along with the first
		return 2 * MinBatches
	}
	return min(MinBatches+int(ln.rtt/rttPerBatch), maxBatches)
}

// State returns how many commands are owed to the node, whether the node is down, and how
// many pipelines were given up and have not returned.
func (ln *Lane) State() (owed int, down bool, stuck int) {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	return ln.owed.len(), ln.down != nil, ln.stuck
}

// Unlocked reports whether the lane's mutex is free at this instant. It serves checks that
// user code is called with no mutex held.
func (ln *Lane) Unlocked() bool {
	if !ln.mu.TryLock() {
		return false
	}
	ln.mu.Unlock()
	return true
}

// InheritOwed records that the command of c is owed already if that of earlier, the same
// question to the same node, is: it must not become owed twice.
func (ln *Lane) InheritOwed(c, earlier *Call) {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	c.owed = earlier.owed
}

// now returns the time: while a batch is completed, that of its end, for all of its calls.
// It needs ln.mu.
func (ln *Lane) now() time.Time {
	if ln.clock.IsZero() {
		return time.Now()
	}
	return ln.clock
}
