package redlock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/lane"
	"github.com/seed-ce352c9b/redlock/internal/wire"
)

// Options configure a Locker. The zero value of each field selects its default. New
// and Open refuse values that contradict each other or the protocol.
type Options struct {
	// Drift is how much faster a node's clock may run than ours, as a fraction of the
	// ttl: at least 0 and less than 1; 0 means 0.01. A node whose clock gains more may
	// admit the next holder too early. Larger values only shorten the validity. (Redis
	// page, The Redlock Algorithm: CLOCK_DRIFT_FACTOR.)
	Drift float64

	// NodeTimeout is how long one node may take to reply; 0 means a tenth of the ttl,
	// at most one second. A distant node is given three of its measured round trips if
	// that is longer, up to half of (the validity less Grace).
	NodeTimeout time.Duration

	// Retry returns the longest pause before Acquire asks the nodes again, given how
	// often it has asked so far (1 after the first attempt). The actual pause is random,
	// between half of that and all of it, and ends early when the lock is released or its
	// ttl ends. If Retry is nil, the pause doubles from 10 ms up to 250 ms. While a
	// majority of the nodes would announce the release, the default is 4 to 5 s, which is
	// then also the upper limit for Retry: asking keeps the waiter's place in the queue that
	// releases notify.
	//
	// Retry is called from many goroutines; it must be a pure function. A panic in it
	// reaches the caller of Acquire and leaves nothing behind.
	Retry func(attempt int) time.Duration

	// Fair serves waiters, across all processes, in order of arrival. The order holds
	// among Lockers that set it; others exclude and are excluded, but do not queue.
	// TryAcquire fails while anyone is queued. A waiter that died delays the others by
	// two seconds. Fair uses a script in place of plain commands, and for each key that
	// its callers wait for, a Locker sends every node a command each 0.8 s. See docs/waiting.md.
	Fair bool

	// MaxWaiters is how many callers of this Locker may wait for one key at once, in Acquire
	// or in any call that waits as Acquire does, the one that is trying included; 0 means any
	// number. Further callers fail at once with ErrTooManyWaiters, so that a key that stays
	// held costs latency and memory for a bounded number of them. AcquireAll counts for the
	// one of its keys that it waits for, and fails if it goes on to one for which too many
	// wait. AcquireSlot counts for each of its slots. TryAcquire and WithWait(0) do not wait
	// and are not counted.
	MaxWaiters int

	// Grace is how long before Until the contexts of KeepAlive and Run end if the lock
	// could not be renewed; 0 means a millisecond, or a twentieth of the validity if that
	// is less. It is the time in which the work can stop while the lock still excludes
	// others: finish requests, stop child processes, complete or undo a write. Until and
	// Valid do not depend on it.
	//
	// Once the contexts have ended, the lock is not renewed any more, even if nodes reply
	// again: the cause of the contexts and the result of Extend are ErrLost. The lock is
	// still held until Until, and a Release before that frees it at once. Locks are
	// renewed after a third of (the validity less Grace), so that two renewals may fail before
	// the contexts end. A ttl is refused if Grace leaves too little of it for two
	// renewals that each take the node timeout. A KeepAlive that is called with less than
	// Grace left returns a context that ends at once.
	Grace time.Duration

	// RestartGuard is how long a node grants nothing after it may have forgotten what it
	// granted: after a restart, a promotion, a flush. It must be at least the longest ttl
	// that any client of the key uses (a longer ttl is refused), and every client of the
	// key must set it. 0 means that nodes grant at once, which breaks I1 unless they
	// persist every write (appendonly yes, appendfsync always) or stay down for the longest
	// ttl after a crash. (Redis page, Performance, Crash Recovery and fsync: delayed restarts.)
	//
	// The guard uses a script in place of plain commands, the permission to call INFO,
	// and one key, {redlock}:boot, on each node. A node that was started less than the
	// guard ago, or reports nothing about itself, begins in quarantine: its vote reads
	// "quarantined 12s", but locks that are held are extended and released there. Rings
	// and Redis Clusters are refused, since each is several servers; so is a wrapper that
	// does not reveal what it wraps, see Node. See docs/operations.md.
	RestartGuard time.Duration

	// FenceLife is how long the fence registers of a key outlive its last use; 0 means a day. It
	// must be at least an hour, and at most twelve days. Fencing tokens grow as long as the
	// registers live, and after that if any two clients' wall clocks differ by less than
	// FenceLife. A shorter life saves memory where names are used once: a register takes some
	// 0.2 kB of each node. Clients of one key may have different ones, and the longest wins.
	//
	// A register is given the lock's ttl and FenceLife together. Commands renew that only once a
	// twenty-fourth of FenceLife has passed, so a register may live for that much less. With a ttl
	// of many days it may live for less still, since Redis is given at most 2^31 ms, 24.8 days.
	FenceLife time.Duration

	// NoFence acquires locks without a fence, as WithoutFence does, unless WithFence is passed.
	NoFence bool

	// KeyPrefix is prepended to every key. If it is empty, other Redlock clients that use
	// the same key are excluded, too. It must not contain a NUL byte.
	KeyPrefix string

	// Name identifies this client: Inspect and the errors of others show it as the holder
	// or as a waiter, unless WithLabel overrides it. "" means host:pid. It has at most
	// 1 KiB and must not contain a NUL byte.
	Name string

	// Trace follows calls, rounds, and what happens to locks and nodes. Without it nothing
	// is recorded, and nothing costs more.
	Trace Trace
}

const (
	// maxNodes bounds a Locker's nodes: the nodes that may hold a lock are kept as
	// the bits of one word. More than nine are slower and no safer.
	maxNodes = 64

	// minFenceLife and maxFenceLife bound Options.FenceLife. With half the minimum, clocks that are
	// an hour apart, as for a mistaken summer time, let tokens fall once the registers have expired.
	// With twice the maximum, the registers of the longest ttls live for no longer than their locks.
	minFenceLife = time.Hour
	maxFenceLife = wire.MaxTTL / 2

	// maxLabelBytes bounds the part before the uuid in a value.
	maxLabelBytes = 1 << 10
)

// withDefaults checks opt and fills in the defaults.
func (opt Options) withDefaults() (Options, error) {
	switch {
	case !(opt.Drift >= 0 && opt.Drift < 1): // also refuses NaN
		return opt, fmt.Errorf("redlock: Options.Drift is %v: want a fraction of the ttl, at least 0 (meaning %v) and less than 1", opt.Drift, defaultDrift)
	case opt.NodeTimeout < 0:
		return opt, fmt.Errorf("redlock: Options.NodeTimeout is %v: it must not be negative (0 means a tenth of the ttl)", opt.NodeTimeout)
	case opt.Grace < 0:
		return opt, fmt.Errorf("redlock: Options.Grace is %v: it must not be negative (0 means a millisecond)", opt.Grace)
	case opt.MaxWaiters < 0:
		return opt, fmt.Errorf("redlock: Options.MaxWaiters is %d: it must not be negative (0 means no limit)", opt.MaxWaiters)
	case opt.RestartGuard < 0:
		return opt, fmt.Errorf("redlock: Options.RestartGuard is %v: it must not be negative (0 means off)", opt.RestartGuard)
	case opt.FenceLife != 0 && (opt.FenceLife < minFenceLife || opt.FenceLife > maxFenceLife):
		return opt, fmt.Errorf("redlock: Options.FenceLife is %v: want at least %v and at most %v (0 means %v)", opt.FenceLife, minFenceLife, maxFenceLife, wire.RegisterLife)
	case strings.ContainsRune(opt.KeyPrefix, 0):
		return opt, fmt.Errorf("redlock: Options.KeyPrefix %q must not contain a NUL byte", opt.KeyPrefix)
	case len(opt.KeyPrefix) >= wire.MaxKeyBytes:
		return opt, fmt.Errorf("redlock: Options.KeyPrefix has %d bytes: prefix and key together may have at most %d", len(opt.KeyPrefix), wire.MaxKeyBytes)
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
		return fmt.Errorf("redlock: %s has %d bytes: at most %d are allowed", what, len(label), maxLabelBytes)
	case strings.ContainsRune(label, 0):
		return fmt.Errorf("redlock: %s %q must not contain a NUL byte", what, label)
	}
	return nil
}

// newGuard returns the restart guard, or nil if Options.RestartGuard is 0.
func newGuard(opt Options, nodes []Node) (*wire.Guard, error) {
	if opt.RestartGuard == 0 {
		return nil, nil
	}
	for i, n := range nodes {
		switch lane.KindOf(n) {
		case wire.KindCluster, wire.KindRing:
			return nil, fmt.Errorf("redlock: node %d (%s) is a %T: it is several servers, and Options.RestartGuard needs nodes of one server each; set it to 0, or pass single masters", i+1, lane.NodeName(i, n), n)
		case wire.KindUnknown:
			return nil, fmt.Errorf("redlock: node %d is a %T, which does not reveal whether it is one server, as Options.RestartGuard needs; embed the client, or add the method Options() *redis.Options that returns the client's", i+1, n)
		}
	}
	return &wire.Guard{Age: opt.RestartGuard, Mark: wire.BootMark(opt.KeyPrefix)}, nil
}

// The options of one acquisition, and the limits of its wait.

// An AcquireOption changes one acquisition.
type AcquireOption func(*acquireOptions)

type acquireOptions struct {
	label   string
	fenced  bool
	wait    time.Duration // if limited
	limited bool          // WithWait
}

// WithLabel sets the part before the uuid in the lock's value, which Inspect and the
// errors of others show as the holder, or as a waiter (see Status.Queue). The default is
// Options.Name. It has at most 1 KiB and must not contain a NUL byte.
func WithLabel(label string) AcquireOption {
	return func(o *acquireOptions) { o.label = label }
}

// WithoutFence acquires the lock without a fencing token: Fence returns 0. The nodes then keep no
// fence register for the lock, which saves a third of the CPU time and, for each name that was
// used, a key for a day.
//
// All else is the same, and holders with and without a fence exclude each other. But nothing then
// tells a store that a later holder exists: where a store compares fences, all holders of that key
// must have one. If A has a fence and is paused past Until, and B works without one, the store has
// seen no greater fence than A's when A goes on, and A's write passes over B's. Use it where no store
// checks fences: for jobs that run one at a time, against double submission, to save work. Never use
// it where a write that comes late does harm.
//
// Adopt leaves a key on the nodes for a day all the same: it notes there when the lock that it takes
// over would have expired.
func WithoutFence() AcquireOption {
	return func(o *acquireOptions) { o.fenced = false }
}

// WithFence acquires the lock with a fencing token by a Locker that has Options.NoFence.
func WithFence() AcquireOption {
	return func(o *acquireOptions) { o.fenced = true }
}

// WithWait limits how long Acquire, Run, AcquireAll, RunAll, AcquireSlot and RunSlot wait, and
// Lead each time that it campaigns. Unlike a deadline of ctx, it does not limit the work of Run.
//
// When the limit has passed, the error is a *QuorumError, which that of AcquireSlot wraps. It
// matches no context error: it is ErrHeld, with the holder, or ErrNoQuorum, by the last round
// decided in this Locker's queue for the key, whoever asked for it. If none was decided yet, the
// error is ErrNoQuorum, and the votes that are missing are AnswerPending. An attempt in progress is
// abandoned and undone. If ctx ends earlier, the error is that of ctx, and if the Locker is
// closed earlier, it is ErrClosed.
//
// With 0 the call tries once, as TryAcquire does, and is bounded by the node timeout. A
// negative limit is refused, and so is any limit for TryAcquire and Adopt, which do not wait.
func WithWait(limit time.Duration) AcquireOption {
	return func(o *acquireOptions) { o.wait, o.limited = limit, true }
}

// check returns an error if an option is invalid.
func (o *acquireOptions) check() error {
	if o.wait < 0 {
		return fmt.Errorf("redlock: WithWait(%v): it must not be negative (0 means to try once)", o.wait)
	}
	return checkLabel("the label", o.label)
}

// refuseWait returns an error if WithWait was passed to a call that does not wait.
func (o *acquireOptions) refuseWait(call string) error {
	if !o.limited {
		return nil
	}
	return fmt.Errorf("redlock: WithWait(%v) is for calls that wait, such as Acquire and Run: %s does not wait", o.wait, call)
}

// triesOnce reports whether the call does not wait at all.
func (o *acquireOptions) triesOnce() bool { return o.limited && o.wait == 0 }

// limit returns ctx with the limit of WithWait, if there is one.
func (o *acquireOptions) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	if !o.limited || o.wait == 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, o.wait, errWaited)
}

// errWaited is the cause with which the limit of WithWait ends a wait. Callers never see it.
var errWaited = errors.New("redlock: WithWait")

// waited returns the error of a call whose limit of WithWait has passed.
func (l *Locker) waited(e *acquireCall) error {
	q := new(QuorumError)
	last, before := l.lastKnown(e)
	if last != nil {
		*q = *last
	} else {
		*q = QuorumError{Round: l.unasked(e), Err: ErrNoQuorum}
	}
	if q.hint != "" {
		q.hint += ", "
	}
	q.hint += "waited " + wire.Short(l.now().Since(e.began)) + progress(e.attempt, before, e.waiter.Joined())
	return q
}

func tooManyWaiters(e *acquireCall, most int) error {
	callers := fmt.Sprint(most, " callers")
	if most == 1 {
		callers = "1 caller"
	}
	return fmt.Errorf("%w for %q: %s of this Locker, as many as Options.MaxWaiters allows", ErrTooManyWaiters, wire.Clip(e.name.Key), callers)
}
