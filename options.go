package redlock

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/lane"
	"github.com/seed-ce352c9b/redlock/internal/wire"
)

// Options of a Locker. The zero value of each field means its default; New
// refuses values that contradict each other or the protocol.
type Options struct {
	// Drift is how much faster a node's clock may run than ours, as a part of the
	// ttl; 0 means 0.01. From 0 to less than 1. A node that gains more than this on
	// us may let the next holder in early; larger values only shorten the validity.
	Drift float64

	// NodeTimeout is how long one node may take to answer; 0 means a tenth of the
	// ttl, at most one second. A node at a distance is given three of its measured
	// round trips if that is more, up to half of the validity.
	NodeTimeout time.Duration

	// Retry is the longest pause of Acquire before it asks the nodes again, after it
	// has asked the given number of times (1 after the first). The pause taken is a
	// random one between half of that and all of it, and is cut short by the release
	// of the lock and by the end of its ttl. It must be pure: it is called from many
	// goroutines and decides nothing but the pause. nil: 10 ms doubling to 250 ms; and
	// 5 s while a majority of the nodes would announce the release, which is then also
	// the most that it can say: asking keeps the place at which one is told. A panic in
	// it goes on to the caller of Acquire, and leaves nothing behind.
	Retry func(attempt int) time.Duration

	// Fair is to serve the waiters of all processes in order of arrival. It holds
	// among the Lockers that set it; others exclude and are excluded, but do not
	// queue. It costs a script where plain commands would do, and a waiter a command
	// every 0.8 s to each node. TryAcquire is refused while anybody queues. A waiter
	// that died holds the others up for two seconds. See docs/waiting.md.
	Fair bool

	// Grace is how much before Until the contexts of KeepAlive and Run end when the
	// lock could not be renewed; 0 means a millisecond before Until. It is the time in
	// which the work can stop while the lock still keeps others out: requests that are
	// under way, child processes, a write that must be completed or undone. Until and
	// Valid are the same with any Grace.
	//
	// When the contexts have ended the lock is not renewed any more, even if nodes
	// answer again: their cause is ErrLost, and so is the result of Extend. The lock is
	// held until Until all the same, and a Release before that frees it at once. Locks
	// are renewed at a third of the validity less Grace, so that two renewals may fail
	// before the contexts end; a ttl of which it leaves too little for two renewals,
	// each taking the node timeout, is refused. A KeepAlive that is called when less
	// than Grace is left returns a context that ends at once.
	Grace time.Duration

	// RestartGuard is for how long a node grants nothing after it may have forgotten
	// what it granted: after a restart, a promotion, a flush. 0: it grants at once,
	// which breaks I1 unless nodes persist every write (appendfsync always) or are kept
	// down for the longest ttl after a crash. At least the longest ttl that any client
	// of the key uses; a longer ttl is refused here. It holds if every client of the key
	// sets it. It costs a script where plain commands would do, the permission to ask
	// INFO, and one key, {redlock}:boot, on each node; a node that is new, or tells
	// nothing of itself, begins with the quarantine. Such a node's vote reads
	// "quarantined 12s"; what is held is extended and released there all the same.
	// Rings and Redis Clusters are refused: they are several servers each; and so is a
	// wrapper that does not tell what it is, see Node. (Redis page, Performance, Crash
	// Recovery and fsync: delayed restarts.) See docs/operations.md.
	RestartGuard time.Duration

	// KeyPrefix goes before every key. "" leaves the key as it is, so that other
	// Redlock clients of the same key are excluded, too. No NUL byte.
	KeyPrefix string

	// Name is who we are: what Inspect and the errors of others show as the holder, or
	// as one who waits, unless WithLabel says otherwise; "" means host:pid. No NUL byte; at most 1 KiB.
	Name string

	// Observe, if not nil, is called after every round with what was asked and
	// answered, and after every call of Acquire that waited in vain: every caller's wait
	// is seen, also of those who stood behind others and asked nothing (see Round). It is
	// called from many goroutines, must not block and must not call the Locker or its
	// Locks.
	//
	// The rounds of a call that waits for them (OpAcquire, OpRaise, OpAdopt, OpLook and
	// OpInspect) are observed on the goroutine of that call, before it returns. A panic
	// there goes on to the caller, and what the call has acquired is undone. All others
	// are observed wherever they are decided: mostly on goroutines of the Locker, where a
	// panic ends the process as it does on any goroutine.
	Observe func(Round)
}

const (
	// maxNodes bounds a Locker's nodes: the nodes that may hold a lock are kept as
	// the bits of one word. Quorums beyond nine are slower and no safer.
	maxNodes = 64

	// maxLabelBytes bounds what goes before the uuid in a value.
	maxLabelBytes = 1 << 10
)

// withDefaults checks opt and fills in what is left to us.
func (opt Options) withDefaults() (Options, error) {
	switch {
	case !(opt.Drift >= 0 && opt.Drift < 1): // also refuses NaN
		return opt, fmt.Errorf("redlock: Options.Drift is %v: it is a part of the ttl, from 0 (meaning %v) to less than 1", opt.Drift, defaultDrift)
	case opt.NodeTimeout < 0:
		return opt, fmt.Errorf("redlock: Options.NodeTimeout is %v: it must not be negative (0 means a tenth of the ttl)", opt.NodeTimeout)
	case opt.Grace < 0:
		return opt, fmt.Errorf("redlock: Options.Grace is %v: it must not be negative (0 means that contexts end at Until)", opt.Grace)
	case opt.RestartGuard < 0:
		return opt, fmt.Errorf("redlock: Options.RestartGuard is %v: it must not be negative (0 means off)", opt.RestartGuard)
	case strings.ContainsRune(opt.KeyPrefix, 0):
		return opt, fmt.Errorf("redlock: Options.KeyPrefix %q has a NUL byte: take one without", opt.KeyPrefix)
	case len(opt.KeyPrefix) >= wire.MaxKeyBytes:
		return opt, fmt.Errorf("redlock: Options.KeyPrefix has %d bytes: key and prefix together may have %d", len(opt.KeyPrefix), wire.MaxKeyBytes)
	}
	if opt.Drift == 0 {
		opt.Drift = defaultDrift
	}
	if opt.Name == "" {
		host, err := os.Hostname()
		if err != nil || host == "" {
			host = "unknown"
		}
		opt.Name = fmt.Sprintf("%s:%d", host, os.Getpid())
	}
	return opt, checkLabel("Options.Name", opt.Name)
}

func checkLabel(what, label string) error {
	switch {
	case len(label) > maxLabelBytes:
		return fmt.Errorf("redlock: %s has %d bytes: at most %d", what, len(label), maxLabelBytes)
	case strings.ContainsRune(label, 0):
		return fmt.Errorf("redlock: %s %q has a NUL byte: take one without", what, label)
	}
	return nil
}

// An AcquireOption changes one acquisition.
type AcquireOption func(*acquireOptions)

type acquireOptions struct{ label string }

// WithLabel sets what goes before the uuid in the lock's value: what Inspect and the
// errors of others show as its holder, and as one who waits for it (see Status.Queue).
// The default is Options.Name. At most 1 KiB, no NUL byte.
func WithLabel(label string) AcquireOption {
	return func(o *acquireOptions) { o.label = label }
}

// newGuard is nil where there is none.
func newGuard(opt Options, nodes []Node) (*wire.Guard, error) {
	if opt.RestartGuard == 0 {
		return nil, nil
	}
	for i, n := range nodes {
		switch lane.KindOf(n) {
		case wire.KindCluster, wire.KindRing:
			return nil, fmt.Errorf("redlock: node %d (%s) is a %T: it stands for several servers, and Options.RestartGuard watches one each; leave it 0, or give single masters", i+1, lane.NodeName(i, n), n)
		case wire.KindUnknown:
			return nil, fmt.Errorf("redlock: node %d is a %T, which does not tell whether it stands for one server, as Options.RestartGuard needs; give it the method Options() *redis.Options of its client, or embed the client", i+1, n)
		}
	}
	return &wire.Guard{Age: opt.RestartGuard, Mark: wire.BootMark(opt.KeyPrefix)}, nil
}
