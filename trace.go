package redlock

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/lane"
	"github.com/seed-ce352c9b/redlock/internal/quorum"
)

// A Trace is a set of functions that a Locker calls as it works, for traces, metrics and
// logs. Any of them may be nil.
//
// Start, Round and End follow the calls of the API that ask the nodes, also where they are
// refused before anything is sent, as with an invalid key, ErrNested or ErrClosed. A call that
// another one makes is below the context of that one's Start:
//
//	TryAcquire, Acquire, AcquireAll, AcquireSlot, Adopt, Inspect
//	Run     an Acquire, and then a Release
//	RunAll  an AcquireAll, and then a Release of each lock
//	RunSlot an AcquireSlot, and then a Release
//	Lead    a Run for each campaign
//	Watch   an Inspect whenever it asks
//	Extend, Release, LeaveUntil (those of Locks are one call for each lock)
//
// Not traced is a Release that sends nothing because the lock has ended, and neither are KeepAlive
// and Close, for which nobody waits round by round. Event reports what no single caller waits
// for, also for a lock of AcquireAll that was given back because another one was refused.
//
// The functions are called from many goroutines, must not block, and must not call the
// Locker or its Locks, except for methods of a Lock that only report: Key, Value, Fence,
// Started, Until, Valid and String. None of them is called while the library holds a mutex.
//
// A panic in Start, in End, in EventAcquired, or in a Round of a call that waits for it (OpAcquire,
// OpRaise, OpAdopt, OpLook, OpInspect) reaches the caller, and what the call has acquired is undone;
// after a panic in End or EventAcquired an adopted lock is released, not given back. A Release goes on.
// All else is reported where it happens, mostly on goroutines of the Locker, where a panic
// ends the process as on any goroutine.
type Trace struct {
	// Start is called when a call begins, before anything is sent. The call's Rounds and
	// its End get the values of the context that Start returns, and so does the function
	// that Run calls. A nil context, and the deadline and cancellation of the one returned,
	// are ignored: the caller's ctx alone ends a call. Values that the returned context lacks
	// are those of the caller's ctx.
	Start func(ctx context.Context, call Call) context.Context

	// Round is called after every round. The context has the values of the call that asked
	// for it, or is the background context if nobody waits for the round: renewals by
	// KeepAlive, rollbacks, and releases by Close.
	Round func(ctx context.Context, round Round)

	// End is called once for each call of Start, or without Start where that is nil, before
	// the call returns. If a panic ends the call, err is ErrPanicked.
	End func(ctx context.Context, call Call, err error)

	// Event is called after what it reports has happened.
	Event func(event Event)
}

// A Call is a call of the API, as Trace gets it.
type Call struct {
	Method string        // its name, such as "Acquire"
	Key    string        // without Options.KeyPrefix; of AcquireSlot and RunSlot without the number of the slot
	Keys   []string      // of AcquireAll and RunAll, in place of Key
	TTL    time.Duration // of an acquisition, else 0
	Start  time.Time
	Lock   *Lock // of a call of its methods; in End also the lock that was acquired, if it is one

	// Only in End.
	Took     time.Duration // from Start; of Acquire, this is the wait
	Ahead    int           // Acquire: callers of this Locker that were before this one in the queue when it joined
	Attempts int           // acquisitions: how often this call tried; of AcquireSlot, over all slots
}

// An EventKind says what an Event reports.
type EventKind uint8

const (
	// Of a lock. Each lock that a call of this Locker acquires begins with EventAcquired and, later,
	// ends with exactly one of EventLost, EventReleased and EventLeft. So the former less the
	// latter is the number of locks held, which is never negative, and 0 once Close has released
	// them. A lock that a call acquired and did not return, such as one of AcquireAll that was
	// given back because another one was refused, begins and ends like any other. An adopted
	// lock is another one than that of its previous holder, to whose Locker that one is lost
	// when it is extended or released, or expires. Err of EventRenewed and EventReleased is nil or
	// what Extend or Release returns.
	EventAcquired EventKind = iota + 1 // a call of any kind acquired or adopted it
	EventRenewed                       // an extension was decided, by KeepAlive or Extend; if Err is nil, Until has moved
	EventHealed                        // Node had forgotten the lock and stores it again
	EventLost                          // the loss was signalled, or it expired, which may be told half a minute later; Err is a *QuorumError
	EventReleased                      // the first release was decided, by Release, Run or Close
	EventLeft                          // LeaveUntil abandoned the lock

	// Of a node.
	EventNodeDown        // it is not used until it replies to a PING; Err says why
	EventNodeQuarantined // with Options.RestartGuard, it grants nothing for a while; Err says for how long
	EventNodeUp          // it is used again, does again what it refused, or its quarantine has ended
	EventNodeDuplicate   // it is the same server as another node and has no vote; Err names that one
	EventNodeMute        // it refuses to announce releases, since the user may not PUBLISH: waiters of other processes find the lock late; Err says so
	EventNodeRefusing    // it replies with errors (NOAUTH, READONLY, LOADING, ...); Err is the first
)

func (k EventKind) String() string {
	names := [...]string{"", "acquired", "renewed", "healed", "lost", "released", "left", "node down", "node quarantined", "node up", "node duplicate", "node mute", "node refusing"}
	if int(k) < len(names) && k > 0 {
		return names[k]
	}
	return "event(" + strconv.Itoa(int(k)) + ")"
}

// An Event is something that happened to a lock or to a node.
type Event struct {
	Kind EventKind
	Lock *Lock  // nil if it is about a node
	Node string // as in Vote.Node; "" if it is about a lock alone
	Err  error
	Held time.Duration // EventAcquired, EventLost, EventReleased, EventLeft: since Lock.Started
	Left time.Duration // the same: how much of the validity was left; not positive after Until. EventRenewed: how much was left when the extension was decided
	Down time.Duration // EventNodeUp: how long the node was down, refusing or quarantined
}

// A tracedCall is a call between Start and End. A nil one is not traced.
type tracedCall struct {
	l    *Locker
	ctx  context.Context
	call Call
}

// traceCall calls Trace.Start. It returns the context for the rest of the call, and the call
// for end, which the caller defers before anything else, so that it runs last.
func (l *Locker) traceCall(ctx context.Context, call Call) (context.Context, *tracedCall) {
	if l.opt.Trace.Start == nil && l.opt.Trace.End == nil {
		return ctx, nil
	}
	call.Start, call.Keys = time.Now(), slices.Clone(call.Keys)
	c := &tracedCall{l: l, ctx: ctx, call: call}
	if l.opt.Trace.Start != nil {
		if traced := l.opt.Trace.Start(ctx, c.call); traced != nil {
			c.ctx = tracedCtx{ctx, context.WithoutCancel(traced)}
		}
	}
	return c.ctx, c
}

// A tracedCtx ends with the caller's context, and by its cause. It has the values of the
// tracer's, whose end it does not see, and those of the caller's that the tracer's lacks: a
// tracer may return one that is not derived from the caller's, and a call must still know
// under which locks it is made.
type tracedCtx struct {
	context.Context
	values context.Context
}

func (c tracedCtx) Value(key any) any {
	if v := c.values.Value(key); v != nil {
		return v
	}
	return c.Context.Value(key)
}

// end calls Trace.End. e is nil, or has the progress of an acquisition. If End panics, the
// locks that the call has acquired are released: nobody else would.
func (c *tracedCall) end(e *acquireCall, err error, acquired ...*Lock) {
	if c == nil || c.l.opt.Trace.End == nil {
		return
	}
	call := c.call
	call.Took = time.Since(call.Start)
	if e != nil {
		call.Ahead, call.Attempts = int(e.ahead), e.attempt
	}
	returned := false
	if len(acquired) > 0 && acquired[0] != nil {
		if call.Keys == nil {
			call.Lock = acquired[0]
		}
		defer func() {
			if !returned {
				lane.Each(0, len(acquired), func(i int) { acquired[i].beginRelease(context.Background(), nil) })
			}
		}()
	}
	c.l.opt.Trace.End(c.ctx, call, err)
	returned = true
}

// observe reports a decided round. ctx has the values of the call that waits for it.
func (l *Locker) observe(ctx context.Context, b *quorum.Call, e *acquireCall) {
	if l.opt.Trace.Round != nil {
		l.opt.Trace.Round(ctx, l.round(b, e))
	}
}

// event reports an event. No mutex may be held.
func (l *Locker) event(e Event) {
	if l.opt.Trace.Event != nil {
		l.opt.Trace.Event(e)
	}
}

// ending returns the event that reports the end of a lock, the first time. After that it
// returns one without a kind. Needs k.mu.
func (k *Lock) ending(kind EventKind, err error) Event {
	if k.endReported || k.l.opt.Trace.Event == nil {
		return Event{}
	}
	k.endReported = true
	return k.eventOf(kind, err)
}

// eventOf returns an event of the lock. Needs k.mu.
func (k *Lock) eventOf(kind EventKind, err error) Event {
	now := k.l.now()
	return Event{Kind: kind, Lock: k, Err: err, Held: now.At.Sub(k.start.At) + k.renewed, Left: k.remaining(now)}
}

// reportEnd reports the end of a lock, unless it was reported before. While the acquisition is
// not reported yet, reportEnd leaves that to reportAcquired.
func (l *Locker) reportEnd(e Event) {
	if e.Kind == 0 {
		return
	}
	k := e.Lock
	k.mu.Lock()
	if !k.acquiredReported {
		k.earlyEnd = &e
		k.mu.Unlock()
		return
	}
	k.mu.Unlock()
	l.event(e)
}

// reportAcquired reports the acquisition of a lock, and then its end if that came meanwhile: the
// lock is listed as held, so that whoever finds it with Held may release it. If Event panics, the lock is
// released: nobody else would.
func (k *Lock) reportAcquired() {
	if k.l.opt.Trace.Event == nil {
		return
	}
	k.mu.Lock()
	e := k.eventOf(EventAcquired, nil)
	k.mu.Unlock()
	told := false
	defer func() {
		k.mu.Lock()
		k.acquiredReported = true
		end := k.earlyEnd
		k.earlyEnd = nil
		k.mu.Unlock()
		if !told {
			defer k.beginRelease(context.Background(), ErrPanicked) // with a cause, so that it is not handed on to this caller
		}
		if end != nil {
			k.l.event(*end)
		}
	}()
	k.l.event(e)
	told = true
}

// reportExpired reports the end of a lock that has expired without a release.
func (k *Lock) reportExpired() {
	k.mu.Lock()
	var end Event
	if k.state == stateHeld && k.l.opt.Trace.Event != nil {
		end = k.ending(EventLost, k.lossOf(nil))
	}
	k.mu.Unlock()
	k.l.reportEnd(end)
}

// nodeEvent reports what a lane has noticed.
func (l *Locker) nodeEvent(n lane.News) {
	kinds := [...]EventKind{lane.Up: EventNodeUp, lane.Down: EventNodeDown, lane.Refusing: EventNodeRefusing, lane.Quarantined: EventNodeQuarantined, lane.Duplicate: EventNodeDuplicate, lane.Mute: EventNodeMute}
	l.event(Event{Kind: kinds[n.Now], Node: n.Lane.Name, Err: n.Err, Down: n.For})
}
