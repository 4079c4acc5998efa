package redlock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/lane"
	"github.com/seed-ce352c9b/redlock/internal/wire"
)

// A Locker takes locks that a majority of its nodes agree on. It is safe for
// concurrent use, and meant to be shared: the callers' requests travel to a node
// in common batches.
//
// Its methods, and those of a Lock, panic for what only a mistake of the program can
// be: a nil ctx, a nil fn, a Locker or a Lock that this package did not return.
type Locker struct {
	opt     Options
	lanes   []*lane.Lane
	servers lane.Servers
	queues  *waitQueues
	now     clock
	rand    *source
	split   *lane.Lane  // a node that may be a Ring; nil: none
	guard   *wire.Guard // nil: off
	owned   []io.Closer // the clients that Open made

	closing chan struct{}  // closed by Close
	busy    sync.WaitGroup // calls that may yet send something

	mu             sync.Mutex
	closed         bool
	held           heldList
	cleanups       map[string]*quorumCall  // by full key: the last clean-up; those before it finish first, see cleaning
	restores       map[string]*quorumCall  // by full key: of these, the last that undoes a failed adoption
	adoptions      map[string]*adoption    // under way, by the value that they replace
	registerTTLs   map[string]*registerTTL // by full key, see mortal
	renew          *time.Timer             // runs while there are any
	registersAhead map[string]int64        // by full key, see lead
	numAhead       atomic.Int32            // how many
}

// New makes a Locker over the nodes, each an independent master; the order is
// that of the votes in errors and Rounds. It does not dial. Every client of a key
// must be given the same nodes.
//
// It refuses options that contradict each other, no node, a nil one, more than
// 64, and the same client twice. The same server reached under two names is refused
// once both names have answered, and from then on. Its second name has no vote, but a
// first acquire may be granted before that is known, by a majority in which each server
// counts once. To know before anything is locked, call Inspect, which waits for all nodes
// that answer within the node timeout.
func New(opt Options, nodes ...Node) (*Locker, error) {
	return newLocker(opt, nodes, realClock, newSource())
}

func newLocker(opt Options, nodes []Node, now clock, rand *source) (*Locker, error) {
	opt, err := opt.withDefaults()
	if err != nil {
		return nil, err
	}
	switch {
	case len(nodes) == 0:
		return nil, errors.New("redlock: no node: give at least one Redis master, better three or five")
	case len(nodes) > maxNodes:
		return nil, fmt.Errorf("redlock: %d nodes: at most %d, and more than nine only make it slower", len(nodes), maxNodes)
	}
	for i, n := range nodes {
		if isNil(n) {
			return nil, fmt.Errorf("redlock: node %d of %d is nil", i+1, len(nodes))
		}
		for j, m := range nodes[:i] {
			if sameNode(n, m) {
				return nil, fmt.Errorf("redlock: nodes %d and %d are the same client (%s): list every master once", j+1, i+1, lane.NodeName(i, n))
			}
		}
	}
	l := &Locker{opt: opt, now: now, rand: rand, closing: make(chan struct{}), cleanups: make(map[string]*quorumCall), restores: make(map[string]*quorumCall), adoptions: make(map[string]*adoption), registerTTLs: make(map[string]*registerTTL)}
	if l.guard, err = newGuard(opt, nodes); err != nil {
		return nil, err
	}
	for i, n := range nodes {
		ln := lane.New(i, n, &l.servers, l.guard != nil)
		if ln.Kind == wire.KindRing || ln.Kind == wire.KindUnknown {
			l.split = ln
		}
		l.lanes = append(l.lanes, ln)
	}
	l.queues = newWaitQueues(l)
	return l, nil
}

// admit comes first in every call: on a closed Locker it is ErrClosed, whatever else is
// wrong with it, and what only a mistake of the program explains is a panic.
func (l *Locker) admit(ctx context.Context, op Op, key string) error {
	l.made()
	switch {
	case ctx == nil:
		panic("redlock: nil ctx: pass context.Background(), or a context with a deadline")
	case l.isClosed():
		return &endedError{what: fmt.Sprintf("redlock: %s %q", op, wire.Clip(key)), why: []error{ErrClosed}}
	}
	return nil
}

// made panics for a Locker that has no nodes.
func (l *Locker) made() {
	if l == nil || l.closing == nil {
		panic("redlock: this Locker was never made: use the one that New or Open returns with a nil error")
	}
}

// Run takes the lock as Acquire does, calls fn with a context that ends when the
// lock is lost, keeps the lock alive meanwhile and releases it afterwards.
//
// The result is nil only if fn returned nil and the lock was held until then. It
// is fn's error, joined with ErrLost if the lock was lost before fn returned, also
// where fn returned within Options.Grace, while the lock was still held; or the error
// of Acquire, and fn was not called; ErrNested if ctx is that of a Run of the same key.
// A release that too few nodes
// answered is no error of Run: fn's work was done under the lock, and the rest
// expires. If fn calls lock.LeaveToExpire while the lock is held, Run does not release it,
// and the lock counts as held to the end. What fn does after that is protected until the
// Until that the lock had, and nothing tells fn when that comes. A panic in fn releases the lock and goes on. fn must not outlive its
// context: what it does later is not protected, unless by lock.Fence.
func (l *Locker) Run(ctx context.Context, key string, ttl time.Duration, fn func(ctx context.Context, lock *Lock) error, opts ...AcquireOption) error {
	if fn == nil {
		panic("redlock: Run with a nil fn")
	}
	lock, err := l.Acquire(ctx, key, ttl, opts...)
	if err != nil {
		return err
	}
	held, stop := lock.KeepAlive(ctx)
	defer stop()
	defer lock.Release(ctx) // does nothing after the one below
	err = fn(held, lock)
	kept := lock.kept()
	released := lock.Release(ctx)
	switch {
	case !kept:
		return errors.Join(err, lock.lossError())
	case errors.Is(released, ErrLost):
		return errors.Join(err, released)
	}
	return err
}
