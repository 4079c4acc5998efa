package redlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/address"
	"github.com/seed-ce352c9b/redlock/internal/clock"
	"github.com/seed-ce352c9b/redlock/internal/fence"
	"github.com/seed-ce352c9b/redlock/internal/held"
	"github.com/seed-ce352c9b/redlock/internal/lane"
	"github.com/seed-ce352c9b/redlock/internal/queue"
	"github.com/seed-ce352c9b/redlock/internal/quorum"
	"github.com/seed-ce352c9b/redlock/internal/random"
	"github.com/seed-ce352c9b/redlock/internal/wait"
	"github.com/seed-ce352c9b/redlock/internal/wire"

	"github.com/redis/go-redis/v9"
)

// A Locker acquires locks on a majority of its nodes. It is safe for concurrent use and
// meant to be shared: the requests of its callers are sent to each node in batches.
//
// The methods of a Locker and of a Lock panic for programming errors: a nil ctx, a
// nil fn, or a Locker or a Lock that this package did not return.
type Locker struct {
	// Set by New or Open and constant from then on. Each part has a mutex of its own, if it needs one.
	opt       Options
	lanes     []*lane.Lane
	servers   lane.Servers
	registers *lane.Registers
	queues    *queue.Queues
	now       clock.Clock
	rand      *random.Source
	split     *lane.Lane  // a node that may be a Ring, or nil
	guard     *wire.Guard // nil without Options.RestartGuard
	owned     []io.Closer // the clients that Open made
	names     wire.Names  // of locks, with Options.FenceLife
	gate      wait.Gate   // of AcquireAll
	gated     sync.Map    // by full key, the last *Lock of AcquireAll that keeps it busy at the gate
	cleanups  *quorum.Cleanups
	ahead     fence.Ahead
	held      *held.List[*Lock]

	// The end. closing is closed once, with closed set under mu; from then on busy only falls.
	closing chan struct{}
	busy    sync.WaitGroup // calls that may yet send something

	mu     sync.Mutex
	closed bool
}

// New returns a Locker over the nodes, each an independent master. Votes in errors and
// Rounds are in their order. New does not dial. Every client of a key must use the same
// nodes.
//
// New returns an error if the options contradict each other, if there are no nodes or
// more than 64, or if a node is nil or given twice. One server under two names is
// detected when both names have replied, and every call fails from then on. The second
// name never has a vote, but a first acquisition may succeed before that, by a majority
// in which each server counts once. To check before anything is locked, call Inspect,
// which waits for all nodes that reply within the node timeout.
func New(opt Options, nodes ...Node) (*Locker, error) {
	return newLocker(opt, nodes, clock.Real, random.New())
}

func newLocker(opt Options, nodes []Node, now clock.Clock, rand *random.Source) (*Locker, error) {
	opt, err := opt.withDefaults()
	if err != nil {
		return nil, err
	}
	switch {
	case len(nodes) == 0:
		return nil, errors.New("redlock: no nodes: pass at least one Redis master, preferably three or five")
	case len(nodes) > maxNodes:
		return nil, fmt.Errorf("redlock: %d nodes: at most %d are allowed, and more than nine only make locking slower", len(nodes), maxNodes)
	}
	for i, n := range nodes {
		if lane.IsNil(n) {
			return nil, fmt.Errorf("redlock: node %d of %d is nil", i+1, len(nodes))
		}
		for j, m := range nodes[:i] {
			if lane.Same(n, m) {
				return nil, fmt.Errorf("redlock: nodes %d and %d are the same client (%s): list every master once", j+1, i+1, lane.NodeName(i, n))
			}
		}
	}
	l := &Locker{opt: opt, now: now, rand: rand, closing: make(chan struct{}), cleanups: quorum.NewCleanups()}
	if l.guard, err = newGuard(opt, nodes); err != nil {
		return nil, err
	}
	for i, n := range nodes {
		ln := lane.New(i, n, &l.servers, l.guard != nil)
		if ln.Kind == wire.KindRing || ln.Kind == wire.KindUnknown {
			l.split = ln
		}
		if opt.Trace.Event != nil {
			ln.Report = l.nodeEvent
		}
		l.lanes = append(l.lanes, ln)
	}
	l.names.Life = wire.FenceLife(opt.FenceLife)
	l.registers = lane.NewRegisters(l.lanes, l.patience)
	l.queues = l.newQueues()
	if opt.MaxWaiters > 0 {
		l.gate.Take, l.gate.Give = l.queues.Take, l.queues.Give
	}
	l.held = l.newHeld()
	return l, nil
}

// newQuorumCall makes a quorum call that is not sent yet. How long the nodes may take follows from
// the question's ttl; for a question without a ttl, the caller sets its Patience.
func (l *Locker) newQuorumCall(op Op, name *wire.LockKey, q wire.Question, start clock.Instant, decided func(quorum.Tally) bool) *quorum.Call {
	q.Patience = l.patience(q.TTL)
	return quorum.New(l.lanes, uint8(op), name, q, start, decided)
}

// check comes first in every call, before it is traced. It panics for programming errors.
func (l *Locker) check(ctx context.Context) {
	if l.made(); ctx == nil {
		panic("redlock: nil ctx: pass context.Background(), or a context with a deadline")
	}
}

// admit returns ErrClosed on a closed Locker, whatever else is wrong with the call.
func (l *Locker) admit(op Op, key string) error {
	if l.isClosed() {
		return &endedError{what: fmt.Sprintf("redlock: %s %q", op, wire.Clip(key)), why: []error{ErrClosed}}
	}
	return nil
}

// made panics unless New or Open returned the Locker.
func (l *Locker) made() {
	if l == nil || l.closing == nil {
		panic("redlock: invalid Locker: use one that New or Open returned with a nil error")
	}
}

// Run acquires the lock as Acquire does, calls fn with a context that ends when the lock
// is lost, keeps the lock alive meanwhile, and releases it when fn returns or panics. fn
// must return once its context has ended: only lock.Fence protects what it does later.
//
// Run returns nil only if fn returned nil and the lock was held until then. If Acquire
// fails, Run returns its error (ErrNested if ctx is that of a Run of the same key) and
// does not call fn. Otherwise it returns fn's error, joined with ErrLost if, before
// fn returned, the lock was lost or its context ended because of Options.Grace, and if fn's
// error does not say so, as the cause of its context does. It
// ignores a release that too few nodes answered: fn's work was done under the lock, and
// the remaining keys expire.
//
// If fn calls lock.LeaveUntil while the lock is held, fn's context ends, and Run does not
// release the lock and counts it as held to the end. The lock then protects fn until its
// Until, and nothing signals the end of that time.
func (l *Locker) Run(ctx context.Context, key string, ttl time.Duration, fn func(ctx context.Context, lock *Lock) error, opts ...AcquireOption) (err error) {
	if fn == nil {
		panic("redlock: Run with a nil fn")
	}
	l.check(ctx)
	ctx, traced := l.traceCall(ctx, Call{Method: "Run", Key: key, TTL: ttl})
	err = ErrPanicked // until it returns
	defer func() { traced.end(nil, err) }()
	lock, err := l.Acquire(ctx, key, ttl, opts...)
	if err != nil {
		return err
	}
	err = ErrPanicked // again until it returns
	return Locks{lock}.run(ctx, func(held context.Context) error { return fn(held, lock) })
}

// A Node is the client of one independent Redis master. *redis.Client, *redis.Ring,
// *redis.ClusterClient, failover clients and go-redis auto-pipeliners implement it. A Node
// must be safe for concurrent use. Close does not close the Nodes that were given to New.
// If a Node panics, its vote is AnswerUnknown.
//
// A wrapper of such a client is recognised by its Options method or by the client that it
// embeds. Any other wrapper may hide a Ring: it is refused with Options.RestartGuard, and
// for keys that have a brace but no {tag}.
type Node interface {
	Process(ctx context.Context, cmd redis.Cmder) error
	Pipeline() redis.Pipeliner
}

// Open is like New, but makes the clients itself, one for each URL; Close closes them.
// A URL is redis://[user:password@]host:port[/db], rediss:// for TLS, unix://path,
// or just host:port. Each is an argument of its own: a list in one string is refused. Open
// does not dial. Its errors are those of New, or say which URL is invalid, without its
// password.
//
// The clients never retry a command or a dial. A connection takes two round trips to set
// up. A read times out after two node timeouts, but not before two seconds.
func Open(opt Options, urls ...string) (*Locker, error) {
	return open(opt, urls, clock.Real, random.New())
}

func open(opt Options, urls []string, now clock.Clock, rand *random.Source) (*Locker, error) {
	all, err := address.ParseAll(urls, cmp.Or(max(opt.NodeTimeout, 0), maxNodeTimeout))
	if err != nil {
		return nil, fmt.Errorf("redlock: %w", err)
	}
	nodes, clients := make([]Node, len(all)), make([]io.Closer, len(all))
	for i, o := range all {
		c := redis.NewClient(o)
		nodes[i], clients[i] = c, c
	}
	l, err := newLocker(opt, nodes, now, rand)
	if err != nil {
		for _, c := range clients {
			c.Close()
		}
		return nil, err
	}
	l.owned = clients
	return l, nil
}
