package lane

import (
	"slices"
	"sync"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/wire"

	"github.com/redis/go-redis/v9"
)

const (
	// maxQueue bounds the calls that wait for a place in a batch to one node. A
	// node that takes 100,000 calls a second clears it in a sixth of a second;
	// what does not fit fails at once instead of waiting in vain.
	MaxQueue = 16384

	// maxBatchCalls and maxBatchBytes bound a pipeline, so that a caller behind a
	// large batch does not wait for all of it. Halved, throughput at 256 callers
	// drops by little: batches there have a few dozen calls.
	maxBatchCalls = 256
	MaxBatchBytes = 256 << 10

	// maxFlights bounds how many pipelines are under way to a far node: each caller
	// would wait for a round trip that has just begun, and sixteen take that wait away.
	// One doubles the latency there.
	maxBatches = 16

	// flightPer is the measured round trip that one more batch is worth.
	rttPerBatch = 250 * time.Microsecond

	// maxStuck bounds the pipelines that were given up as unanswered but whose
	// connection has not failed yet. A node at the bound is not used again until
	// some of them end.
	maxStuck = 64
)

// minFlights is how many pipelines may be under way to the nearest node. On loopback one
// is best, for the server is busy anyway, and what waits for it leaves in larger batches.
// Tests and the simulation have two: so commands can overtake each other there as they
// can at a distance.
var MinBatches = 1

// Locks are taken in this order: a Lock's mu, the Locker's mu or a lane's mu, a
// quorum call's mu. Votes are cast with none of them held.

// A Lane is the way to one node. Callers' questions wait in its queue and travel
// in batches; each is answered within its own patience or given up. A node that
// let one time out is down: it gets PINGs and nothing else until it has answered
// one and what is owed to it (owed.go), so that it costs nobody any time.
type Lane struct {
	Name    string
	Node    Client
	Kind    wire.NodeKind
	Direct  bool // a pipeline goes over one connection to one server
	guarded bool // grants are under a guard
	Index   int
	servers *Servers

	mu          sync.Mutex
	queue       []*Call
	toBegin     []*Call // wait for no other any more; finish begins them
	beginning   bool
	batches     []*batch
	batchesSent uint64        // batches so far
	spare       []*batch      // landed ones, for the next batches
	running     int           // batches that have a place
	stuck       int           // batches that have none any more
	rtt         time.Duration // the round trip, by its recent minimum; 0: not measured
	timer       *time.Timer   // the earliest deadline
	timerAt     time.Time     // when it fires; zero: it does not
	closed      bool
	plainSet    bool            // the server has no SET NX GET
	identified  bool            // INFO was answered
	duplicate   *wire.NodeError // it is a server that another lane already is
	down        *wire.NodeError // why it is not used; nil: it is
	downSince   time.Time       // the last reason for it: only a PING that left later clears it
	owed        owedCommands
	probing     bool
	probeWake   chan struct{} // wakes the probe
	idle        func(bool)    // called when nothing is under way any more (Close)
	stopping    chan struct{}
}

func New(i int, node Client, met *Servers, guarded bool) *Lane {
	_, direct := node.(*redis.Client) // any other may split it, wrappers of one included
	return &Lane{
		Name: NodeName(i, node), Node: node, Kind: KindOf(node), Direct: direct, guarded: guarded, Index: i, servers: met,
		probeWake: make(chan struct{}, 1), stopping: make(chan struct{}),
	}
}

// Ask puts a call to the node after others on the same node are finished. Its vote
// may be cast before ask returns, so the caller must hold no lock that a vote takes.
func (ln *Lane) Ask(c *Call, after ...*Call) {
	ln.mu.Lock()
	ready := ln.start(c, after)
	ln.mu.Unlock()
	deliver(ready)
}

// AskAll asks several questions of the node, each after the calls that prior returns for
// it. All are queued before a batch is sent, so that they travel together.
func (ln *Lane) AskAll(calls []*Call, prior func(n int) []*Call) {
	var ready []*Call
	ln.mu.Lock()
	for n, c := range calls {
		ready = append(ready, ln.start(c, prior(n))...)
	}
	ln.mu.Unlock()
	deliver(ready)
}

// start begins a call, or has it wait for those before it that are not finished. Needs
// ln.mu; see begin for what it returns.
func (ln *Lane) start(c *Call, after []*Call) []*Call {
	for _, a := range after {
		switch {
		case a == nil:
		case a.phase == finished:
			c.inherit(a)
		default:
			c.waitFor(a)
		}
	}
	if c.unfinishedBefore > 0 {
		return nil
	}
	return ln.begin(c, nil)
}

// AskBoth is ask for two calls, the second right behind the first: where that goes out
// at once they travel in one batch, on one connection. Otherwise it waits for it.
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

// Settled finishes a call whose answer is known from before.
func (ln *Lane) FinishKnown(c *Call, rep wire.Reply) {
	ln.mu.Lock()
	ready := ln.finish(c, rep, nil)
	ln.mu.Unlock()
	deliver(ready)
}

// begin starts a call that waits for no other. It and the functions below need ln.mu
// and return `ready` with the calls added that are finished now: their votes are cast
// after unlocking.
func (ln *Lane) begin(c *Call, ready []*Call) []*Call {
	prior := c.predecessor
	c.predecessor = nil // or each would keep all before it alive
	switch {
	case c.Question.Kind.Cleans():
		c.MayHold = c.MayHold || c.Raised && c.Voter != nil && c.Voter.IsFinal()
		// Nothing to undo where nothing was sent, except that a release also
		// announces.
		if !c.MayHold && c.Question.Kind != wire.AskRelease {
			return ln.finish(c, wire.Reply{Answer: wire.No, Err: wire.ErrNotAsked}, ready)
		}
		// What it undoes has had no answer: it could overtake that on another
		// connection. It waits for a sign of life. Or a restore is owed that would put
		// back what it takes away.
		if c.mayBeOvertaken || ln.owed.restoreOwed(c.Question.Value) {
			return ln.finish(c, wire.Reply{Answer: wire.Unknown, Err: wire.ErrOwed}, ready)
		}
	case c.Voter != nil && c.superseded() && c.Voter.IsOver():
		// Nobody counts it any more, and what is to be asked next waits behind it:
		// where calls come faster than the node answers, only the last is sent.
		return ln.finish(c, wire.Reply{Answer: wire.Unknown, Err: wire.ErrNotAsked}, ready)
	case c.Question.Kind == wire.AskAdopt && ln.owed.releaseOwed(c.Question.Back):
		return ln.finish(c, wire.Reply{Answer: wire.No, Missing: true, Err: wire.ErrMissing}, ready)
	case c.Question.Kind == wire.AskRaise && prior != nil && prior.Reply.Answer != wire.Yes:
		return ln.finish(c, prior.Reply, ready) // not ours there: nothing to raise
	}
	return ln.submit(c, ready)
}

// submit queues a call, or fails it at once where the node is not to be used.
func (ln *Lane) submit(c *Call, ready []*Call) []*Call {
	switch {
	case ln.closed:
		return ln.finish(c, wire.Reply{Answer: wire.Unknown, Err: wire.ErrLaneDone}, ready)
	case ln.down != nil:
		return ln.finish(c, wire.Reply{Answer: wire.Unknown, Err: ln.down}, ready)
	case len(ln.queue) >= MaxQueue:
		return ln.finish(c, wire.Reply{Answer: wire.Unknown, Err: wire.ErrBusy}, ready)
	}
	c.phase = queued
	c.plainSet = ln.plainSet && c.Question.Kind == wire.AskAcquire && c.Question.Script == nil
	now := time.Now()
	c.deadline = now.Add(c.Question.Patience.With(ln.rtt))
	ln.armTimer(now, c.deadline)
	ln.queue = append(ln.queue, c)
	ln.startSending()
	return ready
}

// launch starts a batch if there is a place for it.
func (ln *Lane) startSending() {
	if len(ln.queue) > 0 && ln.running < ln.maxRunning() {
		ln.running++
		go ln.sendLoop()
	}
}

// width is how many batches may be under way: more the farther the node is.
func (ln *Lane) maxRunning() int {
	if ln.rtt == 0 { // a second connection is made while the first one is
		return 2 * MinBatches
	}
	return min(MinBatches+int(ln.rtt/rttPerBatch), maxBatches)
}

// finish settles a call. Calls that wait for it begin.
func (ln *Lane) finish(c *Call, rep wire.Reply, ready []*Call) []*Call {
	c.phase = finished
	c.Reply = rep
	if c.Voter != nil {
		c.Took = time.Since(c.Voter.Began())
	}
	k := c.Question.Kind
	switch {
	case k == wire.AskAdopt || k == wire.AskAcquire && c.Question.Script == nil:
		c.Raised = c.Raised || rep.Sent
	case k == wire.AskTurn || k == wire.AskAcquire:
		c.Raised = c.Raised || rep.Stored // these leave the register alone where they grant nothing
	}
	switch {
	case k.Stores():
		c.MayHold = c.MayHold || rep.Stored
		c.MayArriveLate = c.MayArriveLate || rep.Stored && rep.Silent
	case k == wire.AskExtend && rep.Answer == wire.Yes:
		c.MayHold = true // doubt stays: a heal may have put it there, and the acquire come later
	}
	if k.Cleans() && c.MayHold && ln.duplicate == nil {
		switch {
		case c.owed: // since an earlier release
		case rep.Answer == wire.Unknown:
			ln.owe(c, 0)
		case c.MayArriveLate: // what puts it there may come later
			ln.owe(c, lookAgain)
		}
	}
	ready = append(ready, c)
	for _, n := range c.followers {
		n.inherit(c)
		if n.unfinishedBefore--; n.unfinishedBefore == 0 {
			ln.toBegin = append(ln.toBegin, n)
		}
	}
	c.followers, c.inlineFollower[0] = nil, nil
	if ln.beginning {
		return ready // further up: a long chain must not become a deep stack
	}
	ln.beginning = true
	for i := 0; i < len(ln.toBegin); i++ { // it grows meanwhile
		ready = ln.begin(ln.toBegin[i], ready)
	}
	clear(ln.toBegin)
	ln.toBegin, ln.beginning = ln.toBegin[:0], false
	return ready
}

// measure takes a batch's time into the round trip: its recent minimum, which
// load, batches and a first dial do not inflate, rising slowly where the way
// became longer.
func (ln *Lane) updateRTT(took time.Duration) {
	if ln.rtt == 0 || took < ln.rtt {
		ln.rtt = max(took, 1)
	} else {
		ln.rtt += (took - ln.rtt) / 256
	}
}

// arm makes the timer fire at the deadline, if it would not earlier.
func (ln *Lane) armTimer(now, deadline time.Time) {
	if !ln.timerAt.IsZero() && !deadline.Before(ln.timerAt) {
		return
	}
	ln.timerAt = deadline
	if ln.timer == nil {
		ln.timer = time.AfterFunc(deadline.Sub(now), ln.expireCalls)
	} else {
		ln.timer.Reset(deadline.Sub(now))
	}
}

// expire gives up the calls whose deadline is past. One timer serves the lane:
// mostly it fires when all it was set for are long answered, and is set again. Only
// what was sent and not answered is held against the node: a queue may be long because
// we are slow, or many.
func (ln *Lane) expireCalls() {
	ln.mu.Lock()
	now := time.Now()
	if ln.timerAt.IsZero() || now.Before(ln.timerAt) {
		ln.mu.Unlock() // a firing that a Reset overtook
		return
	}
	ln.timerAt = time.Time{}
	var ready []*Call
	var late time.Duration // how long the node did not answer
	overdue := func(c *Call) bool {
		if c.phase == finished {
			return false
		}
		if now.Before(c.deadline) {
			ln.armTimer(now, c.deadline)
			return false
		}
		return true
	}
	for _, b := range ln.batches {
		expired := false
		for _, c := range b.calls {
			if overdue(c) {
				expired = true
				late = c.Question.Patience.With(ln.rtt)
				ready = ln.finish(c, wire.Reply{Answer: wire.Unknown, Err: wire.TimeoutError(late), Sent: true, Silent: true, Stored: c.Question.Kind.Stores()}, ready)
			}
		}
		if expired && !b.stuck {
			b.stuck = true
			ln.running--
			ln.stuck++
		}
	}
	for _, c := range slices.Clone(ln.queue) {
		if overdue(c) {
			ready = ln.finish(c, wire.Reply{Answer: wire.Unknown, Err: wire.TimeoutError(c.Question.Patience.With(ln.rtt))}, ready)
		}
	}
	ln.queue = slices.DeleteFunc(ln.queue, func(c *Call) bool { return c.phase == finished })
	if late > 0 {
		ready = ln.markDown(wire.TimeoutError(late), ready)
	}
	ln.notifyIdle()
	ln.mu.Unlock()
	deliver(ready)
}

// suspect takes the node out of use until it answers a PING. What waits for a
// batch has not been sent and fails now.
func (ln *Lane) markDown(why *wire.NodeError, ready []*Call) []*Call {
	if ln.closed {
		return ready
	}
	ln.downSince = time.Now()
	if ln.down == nil {
		ln.down = wire.NewNodeError("down: "+why.Text, why.Cause)
	}
	queue := ln.queue
	ln.queue = nil
	for _, c := range queue {
		if c.phase != finished {
			ready = ln.finish(c, wire.Reply{Answer: wire.Unknown, Err: ln.down}, ready)
		}
	}
	ln.ensureProbe()
	ln.notifyIdle()
	return ready
}

// notifyIdle tells a waiting Close that nothing is under way.
func (ln *Lane) notifyIdle() {
	if ln.idle != nil && ln.isIdle() {
		ln.idle(ln.down == nil)
		ln.idle = nil
	}
}

func (ln *Lane) isIdle() bool {
	return len(ln.queue) == 0 && ln.running == 0 && (ln.down != nil || ln.owed.len() == 0)
}

// WhenIdle calls f, with ln.mu held, once nothing is under way to the node, or it is
// down; answered says which.
func (ln *Lane) WhenIdle(f func(answered bool)) {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	ln.idle = f
	ln.notifyIdle()
}

// Close fails what waits and ends the probe. Flights end with their connections.
func (ln *Lane) Close() {
	ln.mu.Lock()
	ln.closed = true
	if ln.timer != nil {
		ln.timer.Stop()
	}
	close(ln.stopping)
	var ready []*Call
	for _, c := range slices.Clone(ln.queue) {
		ready = ln.finish(c, wire.Reply{Answer: wire.Unknown, Err: wire.ErrLaneDone}, ready)
	}
	ln.queue = nil
	for _, b := range ln.batches {
		for _, c := range b.calls {
			if c.phase != finished {
				ready = ln.finish(c, wire.Reply{Answer: wire.Unknown, Err: wire.ErrLaneDone, Sent: true, Silent: true, Stored: c.Question.Kind.Stores()}, ready)
			}
		}
	}
	ln.mu.Unlock()
	deliver(ready)
}

// State returns how many commands are owed to the node, whether the node is out of use,
// and how many pipelines were given up and have not come back.
func (ln *Lane) State() (owed int, down bool, stuck int) {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	return ln.owed.len(), ln.down != nil, ln.stuck
}

// Unlocked reports whether nobody holds the lane's mutex at this instant.
func (ln *Lane) Unlocked() bool {
	if !ln.mu.TryLock() {
		return false
	}
	ln.mu.Unlock()
	return true
}

// OwedSince notes that what c asks is owed already, because of an earlier call.
func (ln *Lane) InheritOwed(c, earlier *Call) {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	c.owed = earlier.owed
}

// SilentIn is after how long the node counts as silent. While nothing is under way, as
// between two tries of what is owed to it, that time has not begun.
func (ln *Lane) UntilSilent(after time.Duration) time.Duration {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	asked := time.Now()
	for _, b := range ln.batches {
		if !b.stuck && b.sent.Before(asked) {
			asked = b.sent
		}
	}
	return time.Until(asked.Add(max(after, wire.RoundTrips*ln.rtt)))
}
