package redlock

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// maxQueue bounds the calls that wait for a place in a batch to one node. A
	// node that takes 100,000 calls a second clears it in a sixth of a second;
	// what does not fit fails at once instead of waiting in vain.
	maxQueue = 16384

	// maxBatchCalls and maxBatchBytes bound a pipeline, so that a caller behind a
	// large batch does not wait for all of it. Halved, throughput at 256 callers
	// drops by little: batches there have a few dozen calls.
	maxBatchCalls = 256
	maxBatchBytes = 256 << 10

	// maxFlights bounds how many pipelines are under way to a far node: each caller
	// would wait for a round trip that has just begun, and sixteen take that wait away.
	// One doubles the latency there.
	maxFlights = 16

	// flightPer is the measured round trip that one more flight is worth.
	flightPer = 250 * time.Microsecond

	// maxStuck bounds the pipelines that were given up as unanswered but whose
	// connection has not failed yet. A node at the bound is not used again until
	// some of them end.
	maxStuck = 64
)

// minFlights is how many pipelines may be under way to the nearest node. On loopback one
// is best, for the server is busy anyway, and what waits for it leaves in larger batches.
// Tests and the simulation have two: so commands can overtake each other there as they
// can at a distance.
var minFlights = 1

// A phase is how far a call has come. Guarded by its lane's mu.
type phase uint8

const (
	waiting phase = iota // for the call before it, on the same node for the same lock
	queued
	flying
	finished // its reply is known, or was given up
)

// A call is one question to one node. It is finished exactly once: by its answer,
// by its deadline, or without having been sent.
type call struct {
	ln    *lane
	b     voter // gets the vote; nil if nobody counts it
	start time.Time
	q     *question
	i     int // which node, in New's order

	phase    phase
	deadline time.Time
	next     []*call              // wait for this one
	one      [1]*call             // for the first of them, mostly the only one
	waits    int                  // for so many
	prior    *call                // the last one before it that was about the same value
	early    bool                 // something before it may be executed later than it
	unless   bool                 // touch: not where the call before it is rolled back, which does the same
	raised   bool                 // the register may have been raised for our value
	owed     bool                 // what it asks is owed; guarded by ln.mu
	sure     bool                 // touch: an attempt before that call has raised the register
	evaled   bool                 // its script goes as text
	check    bool                 // and looks at what the server is, see guard.go
	plain    bool                 // SET NX goes without GET
	holds    bool                 // our value may be on the node
	doubt    bool                 // and a command that would put it there may yet be executed
	voted    bool                 // guarded by b.mu
	gone     wireAnswer           // what a value that is not there counted as, see ballot.gone; guarded by b.mu
	rep      reply                // final once finished
	took     time.Duration        // since the ballot's start
	follow   atomic.Pointer[call] // the heal that this call's answer asked for
}

// A voter counts what calls come to. It is asked with the lane's mu held, except that
// Vote is called with no lock held.
type voter interface {
	Vote(c *call)
	IsOver() bool  // nobody counts the votes to come
	IsFinal() bool // it is the last question about a lock
}

// A laneNode is what a lane needs of a client.
type laneNode interface {
	Process(ctx context.Context, cmd redis.Cmder) error
	Pipeline() redis.Pipeliner
}

// A flight is one pipeline under way. Its slices and its pipeline, which is empty
// once executed, are used again.
type flight struct {
	calls  []*call
	asked  [][2]command  // of each call
	lands  []landing     // for each call
	cmds   []redis.Cmder // all of it, in the order of the calls
	ready  []*call       // to be delivered after landing
	pipe   redis.Pipeliner
	sent   time.Time
	number uint64 // 1 for the lane's first
	stuck  bool   // given up: it has lost its place among the lane's flights
	fell   bool   // the client panicked, and may not have let go of what it was given
}

// Locks are taken in this order: a Lock's mu, the Locker's mu or a lane's mu, a
// ballot's mu. Votes are cast with none of them held.

// A lane is the way to one node. Callers' questions wait in its queue and travel
// in batches; each is answered within its own patience or given up. A node that
// let one time out is down: it gets PINGs and nothing else until it has answered
// one and what is owed to it (owed.go), so that it costs nobody any time.
type lane struct {
	name    string
	node    laneNode
	kind    nodeKind
	direct  bool // a pipeline goes over one connection to one server
	guarded bool // grants are under a guard
	i       int
	met     *roster

	mu        sync.Mutex
	queue     []*call
	starts    []*call // wait for no other any more; finish begins them
	starting  bool
	flights   []*flight
	flown     uint64        // flights so far
	spare     []*flight     // landed ones, for the next batches
	running   int           // flights that have a place
	stuck     int           // flights that have none any more
	rtt       time.Duration // the round trip, by its recent minimum; 0: not measured
	timer     *time.Timer   // the earliest deadline
	armed     time.Time     // when it fires; zero: it does not
	closed    bool
	plain     bool       // the server has no SET NX GET
	known     bool       // INFO was answered
	twin      *nodeError // it is a server that another lane already is
	down      *nodeError // why it is not used; nil: it is
	downSince time.Time  // the last reason for it: only a PING that left later clears it
	owed      debts
	probing   bool
	kick      chan struct{} // wakes the probe
	idle      func(bool)    // called when nothing is under way any more (Close)
	stopping  chan struct{}
}

func newLane(i int, node laneNode, met *roster, guarded bool) *lane {
	_, direct := node.(*redis.Client) // any other may split it, wrappers of one included
	return &lane{
		name: nodeName(i, node), node: node, kind: kindOf(node), direct: direct, guarded: guarded, i: i, met: met,
		kick: make(chan struct{}, 1), stopping: make(chan struct{}),
	}
}

// ask puts a call to the node after others on the same node are finished. Its vote
// may be cast before ask returns, so the caller must hold no lock that a vote takes.
func (ln *lane) ask(c *call, after ...*call) {
	ln.mu.Lock()
	ready := ln.start(c, after)
	ln.mu.Unlock()
	deliver(ready)
}

// start begins a call, or has it wait for those before it that are not finished. Needs
// ln.mu; see begin for what it returns.
func (ln *lane) start(c *call, after []*call) []*call {
	for _, a := range after {
		switch {
		case a == nil:
		case a.phase == finished:
			c.learn(a)
		default:
			c.waitFor(a)
		}
	}
	if c.waits > 0 {
		return nil
	}
	return ln.begin(c, nil)
}

// askBoth is ask for two calls, the second right behind the first: where that goes out
// at once they travel in one batch, on one connection. Otherwise it waits for it.
func (ln *lane) askBoth(c, then *call, after ...*call) {
	ln.mu.Lock()
	ready := ln.start(c, after)
	switch c.phase {
	case queued:
		ready = ln.begin(then, ready)
	case finished:
		then.learn(c)
		ready = ln.begin(then, ready)
	default:
		then.waitFor(c)
	}
	ln.mu.Unlock()
	deliver(ready)
}

// waitFor has the call begin after another is finished. Needs ln.mu.
func (c *call) waitFor(before *call) {
	if before.next == nil {
		before.next = before.one[:0]
	}
	before.next = append(before.next, c)
	c.waits++
}

// learn takes over what a call that goes before this one left behind. Needs ln.mu.
func (c *call) learn(before *call) {
	if before.q.value == c.q.value {
		c.holds = c.holds || before.holds
		c.doubt = c.doubt || before.doubt
		c.early = c.early || before.rep.silent
		c.raised = c.raised || before.raised
		c.owed = c.owed || before.owed && before.q.kind == c.q.kind
		c.prior = before
	}
	if c.unless && (before.holds || !before.rep.sent && !c.sure) {
		c.holds = false
	}
}

// settled finishes a call whose answer is known from before.
func (ln *lane) settled(c *call, rep reply) {
	ln.mu.Lock()
	ready := ln.finish(c, rep, nil)
	ln.mu.Unlock()
	deliver(ready)
}

// deliver casts the votes of finished calls. No lane is locked meanwhile.
func deliver(ready []*call) {
	each(0, len(ready), func(i int) {
		if c := ready[i]; c.b != nil {
			c.b.Vote(c)
		}
	})
}

// begin starts a call that waits for no other. It and the functions below need ln.mu
// and return `ready` with the calls added that are finished now: their votes are cast
// after unlocking.
func (ln *lane) begin(c *call, ready []*call) []*call {
	prior := c.prior
	c.prior = nil // or each would keep all before it alive
	switch {
	case c.q.kind.cleans():
		c.holds = c.holds || c.raised && c.b != nil && c.b.IsFinal()
		// Nothing to undo where nothing was sent, except that a release also
		// announces.
		if !c.holds && c.q.kind != askRelease {
			return ln.finish(c, reply{answer: saidNo, err: errNotAsked}, ready)
		}
		// What it undoes has had no answer: it could overtake that on another
		// connection. It waits for a sign of life. Or a restore is owed that would put
		// back what it takes away.
		if c.early || ln.owed.putsBack(c.q.value) {
			return ln.finish(c, reply{answer: saidUnknown, err: errOwed}, ready)
		}
	case c.b != nil && c.superseded() && c.b.IsOver():
		// Nobody counts it any more, and what is to be asked next waits behind it:
		// where calls come faster than the node answers, only the last is sent.
		return ln.finish(c, reply{answer: saidUnknown, err: errNotAsked}, ready)
	case c.q.kind == askAdopt && ln.owed.takesAway(c.q.back):
		return ln.finish(c, reply{answer: saidNo, missing: true, err: errMissing}, ready)
	case c.q.kind == askRaise && prior != nil && prior.rep.answer != saidYes:
		return ln.finish(c, prior.rep, ready) // not ours there: nothing to raise
	}
	return ln.submit(c, ready)
}

// superseded reports that another call waits behind this one which does not build on
// it. A raise does: it is for nodes that said yes to the acquire.
func (c *call) superseded() bool {
	yes := false
	for _, n := range c.next {
		switch n.q.kind {
		case askRaise:
			return false
		case askLeave, askTouch: // who has won leaves the queue, or gives registers a life, and wants the lock on every node
		default:
			yes = true
		}
	}
	return yes
}

// submit queues a call, or fails it at once where the node is not to be used.
func (ln *lane) submit(c *call, ready []*call) []*call {
	switch {
	case ln.closed:
		return ln.finish(c, reply{answer: saidUnknown, err: errLaneDone}, ready)
	case ln.down != nil:
		return ln.finish(c, reply{answer: saidUnknown, err: ln.down}, ready)
	case len(ln.queue) >= maxQueue:
		return ln.finish(c, reply{answer: saidUnknown, err: errBusy}, ready)
	}
	c.phase = queued
	c.plain = ln.plain && c.q.kind == askAcquire && c.q.script == nil
	now := time.Now()
	c.deadline = now.Add(c.q.patience.with(ln.rtt))
	ln.arm(now, c.deadline)
	ln.queue = append(ln.queue, c)
	ln.launch()
	return ready
}

// launch starts a flight if there is a place for it.
func (ln *lane) launch() {
	if len(ln.queue) > 0 && ln.running < ln.width() {
		ln.running++
		go ln.fly()
	}
}

// width is how many flights may be under way: more the farther the node is.
func (ln *lane) width() int {
	if ln.rtt == 0 { // a second connection is made while the first one is
		return 2 * minFlights
	}
	return min(minFlights+int(ln.rtt/flightPer), maxFlights)
}

// finish settles a call. Calls that wait for it begin.
func (ln *lane) finish(c *call, rep reply, ready []*call) []*call {
	c.phase = finished
	c.rep = rep
	if c.b != nil {
		c.took = time.Since(c.start)
	}
	k := c.q.kind
	switch {
	case k == askAdopt || k == askAcquire && c.q.script == nil:
		c.raised = c.raised || rep.sent
	case k == askTurn || k == askAcquire:
		c.raised = c.raised || rep.stored // these leave the register alone where they grant nothing
	}
	switch {
	case k.stores():
		c.holds = c.holds || rep.stored
		c.doubt = c.doubt || rep.stored && rep.silent
	case k == askExtend && rep.answer == saidYes:
		c.holds = true // doubt stays: a heal may have put it there, and the acquire come later
	}
	if k.cleans() && c.holds && ln.twin == nil {
		switch {
		case c.owed: // since an earlier release
		case rep.answer == saidUnknown:
			ln.owe(c, 0)
		case c.doubt: // what puts it there may come later
			ln.owe(c, lookAgain)
		}
	}
	ready = append(ready, c)
	for _, n := range c.next {
		n.learn(c)
		if n.waits--; n.waits == 0 {
			ln.starts = append(ln.starts, n)
		}
	}
	c.next, c.one[0] = nil, nil
	if ln.starting {
		return ready // further up: a long chain must not become a deep stack
	}
	ln.starting = true
	for i := 0; i < len(ln.starts); i++ { // it grows meanwhile
		ready = ln.begin(ln.starts[i], ready)
	}
	clear(ln.starts)
	ln.starts, ln.starting = ln.starts[:0], false
	return ready
}

// fly sends batches until the queue is empty or its place is gone.
func (ln *lane) fly() {
	for {
		ln.mu.Lock()
		f := ln.board()
		if f == nil {
			ln.running--
			ln.rest()
			ln.mu.Unlock()
			return
		}
		hello := !ln.known
		ln.mu.Unlock()

		info, err := f.exec(ln, hello)
		took := time.Since(f.sent)

		ln.mu.Lock()
		ready := ln.land(f, info, err, took)
		ln.mu.Unlock()
		deliver(ready)

		ln.mu.Lock()
		stuck := f.stuck
		ln.recycle(f, ready)
		ln.mu.Unlock()
		if stuck {
			return
		}
		// Those whom this batch has answered have something to ask again: let them, and
		// the next one is larger.
		runtime.Gosched()
	}
}

// board takes the next batch from the queue.
func (ln *lane) board() *flight {
	n, bytes := 0, 0
	for n < len(ln.queue) && n < maxBatchCalls && (n == 0 || bytes+ln.queue[n].q.bytes <= maxBatchBytes) {
		bytes += ln.queue[n].q.bytes
		n++
	}
	if n == 0 {
		return nil
	}
	var f *flight
	if i := len(ln.spare) - 1; i >= 0 {
		f, ln.spare = ln.spare[i], ln.spare[:i]
	} else {
		f = new(flight)
	}
	f.calls = append(f.calls, ln.queue[:n]...)
	f.sent = time.Now()
	ln.flown++
	f.number = ln.flown
	rest := copy(ln.queue, ln.queue[n:])
	clear(ln.queue[rest:])
	ln.queue = ln.queue[:rest]
	for _, c := range f.calls {
		c.phase = flying
		// The wait in our own queue says nothing about the node.
		c.deadline = f.sent.Add(c.q.patience.with(ln.rtt))
		ln.arm(f.sent, c.deadline)
	}
	ln.flights = append(ln.flights, f)
	return f
}

// recycle keeps a landed flight for later, empty.
func (ln *lane) recycle(f *flight, ready []*call) {
	clear(ready)
	if f.fell {
		return
	}
	clear(f.calls)
	clear(f.asked)
	clear(f.lands)
	clear(f.cmds)
	f.calls, f.asked, f.lands, f.cmds, f.ready, f.stuck = f.calls[:0], f.asked[:0], f.lands[:0], f.cmds[:0], ready[:0], false
	if len(ln.spare) < maxFlights {
		ln.spare = append(ln.spare, f)
	}
}

// landing is what a flight brought for a call; kept apart from call.rep because
// the deadline may have settled the call meanwhile.
type landing struct {
	rep   reply
	again bool // not executed: send it again, in the other form
}

// exec sends the batch to the lane's node and reads all answers. hello: asks it first
// what it is.
func (f *flight) exec(ln *lane, hello bool) (info *introduction, err error) {
	var who *[2]command
	if hello {
		who = new([2]command)
		for i, section := range ln.kind.introductions() {
			who[i] = newCommand([]any{"info", section})
			f.cmds = append(f.cmds, &who[i])
		}
	}
	if ln.guarded {
		f.check(ln.direct)
	}
	f.asked = slices.Grow(f.asked, len(f.calls))[:len(f.calls)] // at once: go-redis gets pointers into it
	for i, c := range f.calls {
		for j := range c.q.cmds {
			if args := c.q.args(j, c.evaled, c.plain, c.check); args != nil {
				f.asked[i][j] = newCommand(args)
				f.cmds = append(f.cmds, &f.asked[i][j])
			}
		}
	}
	err = f.exchange(ln.node)
	_, f.fell = err.(*panicError)
	if hello {
		info = introduce(&who[0], &who[1], err)
	}
	for i, c := range f.calls {
		rep := c.q.read(f.asked[i][:], c.plain, err)
		rep.err = ln.kind.advise(rep.err)
		f.lands = append(f.lands, landing{rep: rep, again: rep.again(c.q, c.evaled, c.plain)})
	}
	if ln.guarded {
		f.doubt()
	}
	return info, err
}

// exchange has the node's client send the batch.
func (f *flight) exchange(node laneNode) (err error) {
	defer caught(&err)
	ctx := context.Background()
	if f.pipe == nil {
		f.pipe = node.Pipeline()
	}
	_ = f.pipe.BatchProcess(ctx, f.cmds...) // only queues
	_, err = f.pipe.Exec(ctx)
	return err
}

// land settles the calls of a flight with what it brought.
func (ln *lane) land(f *flight, info *introduction, err error, took time.Duration) []*call {
	ready := f.ready
	ln.flights = slices.DeleteFunc(ln.flights, func(g *flight) bool { return g == f })
	if f.stuck {
		ln.stuck--
	}
	var way *nodeError // it did not come through: the node is to be probed
	for i := range f.lands {
		if rep := &f.lands[i].rep; rep.err != nil && (rep.silent || !rep.sent) {
			way = rep.err
		}
	}
	if way == nil {
		ln.measure(took)
		if ln.down != nil {
			ln.nudge() // alive: the probe need not wait out its pause
		}
	}
	var replica *nodeError
	if info != nil {
		replica = info.replica
		ln.known = replica == nil // it is asked again until it is promoted
		if info.runID != "" {
			ln.twin = ln.met.meet(ln, info.runID)
		}
	}
	var again []*call
	for i, c := range f.calls {
		if c.phase == finished {
			continue // given up; what it may have left behind is owed
		}
		switch {
		case ln.twin != nil:
			ready = ln.finish(c, reply{answer: saidUnknown, sent: true, stored: f.lands[i].rep.stored, err: ln.twin}, ready)
		case replica != nil && !c.q.kind.cleans():
			rep := f.lands[i].rep // one that may be written to has executed it
			ready = ln.finish(c, reply{answer: saidUnknown, sent: rep.sent, silent: rep.silent, stored: rep.stored, err: replica}, ready)
		case f.lands[i].again && !ln.closed:
			c.evaled, c.plain = c.q.script != nil, c.q.script == nil
			ln.plain = ln.plain || c.plain
			c.phase = queued
			again = append(again, c)
		default:
			ready = ln.finish(c, f.lands[i].rep, ready)
		}
	}
	if len(again) > 0 {
		ln.queue = append(again, ln.queue...)
	}
	if way != nil && neverLeft(err) {
		ready = ln.suspect(way, ready)
	}
	if f.stuck {
		ln.launch()
		ln.rest()
	}
	return ready
}

// measure takes a flight's time into the round trip: its recent minimum, which
// load, batches and a first dial do not inflate, rising slowly where the way
// became longer.
func (ln *lane) measure(took time.Duration) {
	if ln.rtt == 0 || took < ln.rtt {
		ln.rtt = max(took, 1)
	} else {
		ln.rtt += (took - ln.rtt) / 256
	}
}

// arm makes the timer fire at the deadline, if it would not earlier.
func (ln *lane) arm(now, deadline time.Time) {
	if !ln.armed.IsZero() && !deadline.Before(ln.armed) {
		return
	}
	ln.armed = deadline
	if ln.timer == nil {
		ln.timer = time.AfterFunc(deadline.Sub(now), ln.expire)
	} else {
		ln.timer.Reset(deadline.Sub(now))
	}
}

// expire gives up the calls whose deadline is past. One timer serves the lane:
// mostly it fires when all it was set for are long answered, and is set again. Only
// what was sent and not answered is held against the node: a queue may be long because
// we are slow, or many.
func (ln *lane) expire() {
	ln.mu.Lock()
	now := time.Now()
	if ln.armed.IsZero() || now.Before(ln.armed) {
		ln.mu.Unlock() // a firing that a Reset overtook
		return
	}
	ln.armed = time.Time{}
	var ready []*call
	var late time.Duration // how long the node did not answer
	overdue := func(c *call) bool {
		if c.phase == finished {
			return false
		}
		if now.Before(c.deadline) {
			ln.arm(now, c.deadline)
			return false
		}
		return true
	}
	for _, f := range ln.flights {
		expired := false
		for _, c := range f.calls {
			if overdue(c) {
				expired = true
				late = c.q.patience.with(ln.rtt)
				ready = ln.finish(c, reply{answer: saidUnknown, err: timeoutError(late), sent: true, silent: true, stored: c.q.kind.stores()}, ready)
			}
		}
		if expired && !f.stuck {
			f.stuck = true
			ln.running--
			ln.stuck++
		}
	}
	for _, c := range slices.Clone(ln.queue) {
		if overdue(c) {
			ready = ln.finish(c, reply{answer: saidUnknown, err: timeoutError(c.q.patience.with(ln.rtt))}, ready)
		}
	}
	ln.queue = slices.DeleteFunc(ln.queue, func(c *call) bool { return c.phase == finished })
	if late > 0 {
		ready = ln.suspect(timeoutError(late), ready)
	}
	ln.rest()
	ln.mu.Unlock()
	deliver(ready)
}

// suspect takes the node out of use until it answers a PING. What waits for a
// batch has not been sent and fails now.
func (ln *lane) suspect(why *nodeError, ready []*call) []*call {
	if ln.closed {
		return ready
	}
	ln.downSince = time.Now()
	if ln.down == nil {
		ln.down = newNodeError("down: "+why.text, why.cause)
	}
	queue := ln.queue
	ln.queue = nil
	for _, c := range queue {
		if c.phase != finished {
			ready = ln.finish(c, reply{answer: saidUnknown, err: ln.down}, ready)
		}
	}
	ln.probe()
	ln.rest()
	return ready
}

// rest tells a waiting Close that nothing is under way.
func (ln *lane) rest() {
	if ln.idle != nil && ln.resting() {
		ln.idle(ln.down == nil)
		ln.idle = nil
	}
}

func (ln *lane) resting() bool {
	return len(ln.queue) == 0 && ln.running == 0 && (ln.down != nil || ln.owed.len() == 0)
}

// whenIdle calls f, with ln.mu held, once nothing is under way to the node, or it is
// down; answered says which.
func (ln *lane) whenIdle(f func(answered bool)) {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	ln.idle = f
	ln.rest()
}

// close fails what waits and ends the probe. Flights end with their connections.
func (ln *lane) close() {
	ln.mu.Lock()
	ln.closed = true
	if ln.timer != nil {
		ln.timer.Stop()
	}
	close(ln.stopping)
	var ready []*call
	for _, c := range slices.Clone(ln.queue) {
		ready = ln.finish(c, reply{answer: saidUnknown, err: errLaneDone}, ready)
	}
	ln.queue = nil
	for _, f := range ln.flights {
		for _, c := range f.calls {
			if c.phase != finished {
				ready = ln.finish(c, reply{answer: saidUnknown, err: errLaneDone, sent: true, silent: true, stored: c.q.kind.stores()}, ready)
			}
		}
	}
	ln.mu.Unlock()
	deliver(ready)
}

// A roster knows which server each lane leads to. One server under two names
// would be counted twice: half the nodes could then make a majority of servers.
type roster struct {
	mu    sync.Mutex
	lanes map[string]*lane // by run_id
	err   error            // the first pair met
}

// meet enters a lane's server. An error says that another lane leads to it.
func (r *roster) meet(ln *lane, runID string) *nodeError {
	r.mu.Lock()
	defer r.mu.Unlock()
	other := r.lanes[runID]
	if other == nil {
		if r.lanes == nil {
			r.lanes = make(map[string]*lane)
		}
		r.lanes[runID] = ln
		return nil
	}
	if other == ln {
		return nil
	}
	if r.err == nil {
		r.err = fmt.Errorf("redlock: nodes %q and %q are one server (run_id %s): list every master once", other.name, ln.name, runID)
	}
	e := newNodeError("same server as "+other.name, errors.New("same server"))
	e.heals = false
	return e
}

func (r *roster) twins() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// owedSince notes that what c asks is owed already, because of an earlier call.
func (ln *lane) owedSince(c, earlier *call) {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	c.owed = earlier.owed
}

// each calls f for i to n-1, for the rest of them also if one does not return: f may cast a
// vote, a vote may decide a round, and then the user's Observe may panic. On the goroutine of
// a caller who recovers from that nothing may be left half done.
func each(i, n int, f func(i int)) {
	defer func() {
		if i < n {
			each(i, n, f)
		}
	}()
	for i < n {
		i++
		f(i - 1)
	}
}

// silentIn is after how long the node counts as silent. While nothing is under way, as
// between two tries of what is owed to it, that time has not begun.
func (ln *lane) silentIn(after time.Duration) time.Duration {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	asked := time.Now()
	for _, f := range ln.flights {
		if !f.stuck && f.sent.Before(asked) {
			asked = f.sent
		}
	}
	return time.Until(asked.Add(max(after, roundTrips*ln.rtt)))
}
