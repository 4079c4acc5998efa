package redlock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/wire"
)

// An Op is what a Round asked of the nodes.
type Op uint8

const (
	OpAcquire  Op = iota + 1 // take the lock if it is free
	OpRaise                  // agree on a greater fencing token
	OpExtend                 // renew the ttl of a held lock
	OpRelease                // give it back
	OpRollback               // undo a failed, abandoned or lost attempt
	OpAdopt                  // take a held lock over by its value
	OpInspect                // read only
	OpLook                   // is it still held? Asked by who waits, from its place in the queue
	OpLeave                  // a waiter's place off the queue
	OpLost                   // no question: the loss of a lock is told, with the votes of the last extension, if it failed
)

func (o Op) String() string {
	switch o {
	case OpAcquire:
		return "acquire"
	case OpRaise:
		return "raise"
	case OpExtend:
		return "extend"
	case OpRelease:
		return "release"
	case OpRollback:
		return "rollback"
	case OpAdopt:
		return "adopt"
	case OpInspect:
		return "inspect"
	case OpLook:
		return "look"
	case OpLeave:
		return "leave"
	case OpLost:
		return "lost"
	}
	return "op(" + strconv.Itoa(int(o)) + ")"
}

// An Answer is one node's vote.
type Answer uint8

const (
	Pending Answer = iota // it had not answered when the round was decided
	Yes                   // agreed
	No                    // did not: another holds the key there, or (extend, release) nobody does
	Unknown               // no usable answer: it may have agreed
)

func (a Answer) String() string {
	switch a {
	case Pending:
		return "pending"
	case Yes:
		return "yes"
	case No:
		return "no"
	case Unknown:
		return "unknown"
	}
	return "answer(" + strconv.Itoa(int(a)) + ")"
}

// A Vote is what one node said in a Round.
type Vote struct {
	Node   string        // the node's address, or its number if it tells none
	Answer Answer        //
	Holder string        // the value met on the key where Answer is No and another holds it, which may be a secret; else empty
	Err    error         // why the answer is Unknown, or No without a Holder
	Took   time.Duration // from the start of the round to the answer
}

// String is the vote as errors show it: "a yes 0.4ms", "b held", "c timeout 50ms". It
// has nothing of the Holder.
func (v Vote) String() string {
	switch {
	case v.Answer == Yes:
		return v.Node + " yes " + wire.Short(v.Took)
	case v.Answer == No && v.Err == nil:
		return v.Node + " held"
	case v.Err != nil:
		return v.Node + " " + v.Err.Error()
	}
	return v.Node + " " + v.Answer.String()
}

// A Round is one question put to all nodes at once, and their answers. Errors
// carry the round that decided them, observers are given every one. Printed by package
// fmt it shows no Vote's Holder; an encoding, as JSON, has it.
//
// An OpAcquire with Attempt 0 is no question. It reports that a call of Acquire waited in
// vain: Wait says how long, and the votes are those that were last known, of a round that
// another caller may have asked for, or pending ones where none is known.
type Round struct {
	Op      Op
	Key     string
	Need    int           // yes votes that win
	Votes   []Vote        // one per node, in New's order; as they stood when the round was decided
	Start   time.Time     // before the first request left; a loss: of the acquisition or extension that held the lock
	Took    time.Duration // from Start until it was decided
	Wait    time.Duration // acquire: how long the caller has waited so far, all attempts
	Attempt int           // acquire: 1 for the first; 0: this caller did not ask for the round
}

// Holder is the value that a majority of the nodes named as the one in the way, or ""
// if none is named by a majority. It is a secret of its holder, who can be made to lose
// the lock by it, and is not for logs: Label is the part that may be shown.
func (r Round) Holder() string {
	for i, v := range r.Votes {
		if v.Holder == "" {
			continue
		}
		n := 0
		for _, w := range r.Votes[i:] {
			if w.Holder == v.Holder {
				n++
			}
		}
		if n >= r.Need {
			return v.Holder
		}
	}
	return ""
}

// votes lists what the nodes said, in New's order.
func (r Round) votes() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d of %d votes needed", r.Need, len(r.Votes))
	for i, v := range r.Votes {
		if i == 0 {
			b.WriteString("; ")
		} else {
			b.WriteString(", ")
		}
		b.WriteString(v.String())
	}
	return b.String()
}

var (
	// ErrHeld: a majority can not be had because another holder has the lock.
	ErrHeld = wire.ErrHeld
	// ErrNoQuorum: a majority can not be had because nodes do not answer, or
	// answer with errors.
	ErrNoQuorum = wire.ErrNoQuorum
	// ErrLost: the lock is no longer this holder's. Final.
	ErrLost = wire.ErrLost
	// ErrNested: the context of the call is that of Run or KeepAlive of the same lock,
	// which is still held. It would wait for itself.
	ErrNested = errors.New("redlock: held by this call chain")
	// ErrClosed: the Locker is closed.
	ErrClosed = wire.ErrClosed
)

// A QuorumError says why a majority was not had, with every node's vote.
//
// errors.Is finds Err, and what the votes' errors wrap; it finds a context error
// only where the caller's own context ended the call (that error then wraps this
// one), never because a node timed out.
type QuorumError struct {
	Round Round
	Err   error // ErrHeld, ErrNoQuorum or ErrLost

	hint    string // what to add to the reason, such as when the rest expires
	endless bool   // held by a key that does not expire, as far as is known
}

func (e *QuorumError) reason() string {
	if e.Err == nil {
		return "no reason"
	}
	reason := strings.TrimPrefix(e.Err.Error(), "redlock: ")
	if e.Err == ErrHeld {
		reason = "held"
		if h := e.Round.Holder(); h != "" {
			reason = "held by " + wire.HolderName(h)
		}
		if e.endless {
			reason += ", " + wire.NoTTL
		}
	}
	switch {
	case e.hint == "":
	case e.Round.Op == OpLost && e.Err == ErrLost: // the operation says it
		reason = e.hint
	default:
		reason += ", " + e.hint
	}
	return reason
}

func (e *QuorumError) Error() string {
	s := fmt.Sprintf("redlock: %s %q: %s", e.Round.Op, wire.Clip(e.Round.Key), e.reason())
	if len(e.Round.Votes) > 0 {
		s += " (" + e.Round.votes() + ")"
	}
	return s
}

// Unwrap gives Err first, then the votes' errors.
func (e *QuorumError) Unwrap() []error {
	errs := []error{e.Err}
	for _, v := range e.Round.Votes {
		if v.Err != nil {
			errs = append(errs, v.Err)
		}
	}
	return errs
}

// Label is the part before the uuid of a value that this library has stored, which says
// whose it is: the text of WithLabel or Options.Name. A value is a Lock's Value, a Vote's
// or a Round's Holder, or a Status' Value. Any other value gives "": it is what another
// client has stored, and may be a secret, as redsync's, by which its lock is released.
func Label(value string) string { return wire.LabelOf(value) }

// ended is the error of a call that the caller's ctx or Close ended. It matches
// the ctx's error, its cause, and what the last decided round came to.
func (l *Locker) ended(ctx context.Context, e *acquireCall) error {
	err := &endedError{what: fmt.Sprintf("redlock: %s %q", e.op, wire.Clip(e.name.Key)), after: l.now().since(e.began), attempts: e.attempt}
	if ctx.Err() != nil {
		err.why = append(err.why, ctx.Err())
		if cause := context.Cause(ctx); cause != ctx.Err() {
			err.why = append(err.why, cause)
		}
	} else {
		err.why = append(err.why, ErrClosed)
	}
	err.last, err.before = l.lastKnown(e)
	err.inLine = e.waiter.queue != nil
	return err
}

// An endedError says that somebody ended a call, and how far it had come.
type endedError struct {
	what     string
	why      []error
	after    time.Duration
	attempts int
	inLine   bool         // of callers that wait; only the first of them asks the nodes
	before   int          // how many stand before it there
	last     *QuorumError // of the last round; nil: none was sent
}

func (e *endedError) Error() string {
	s := e.what + ": "
	if e.why[0] == ErrClosed {
		s += "locker closed"
	} else {
		s += e.why[len(e.why)-1].Error()
	}
	if e.last == nil {
		return s
	}
	s += " after " + wire.Short(e.after)
	switch {
	case e.attempts > 0 || !e.inLine:
		s += fmt.Sprintf(", attempt %d", e.attempts)
	case e.before == 0:
		s += ", without an attempt"
	case e.before == 1:
		s += ", behind 1 caller of this process"
	case e.before < maxBefore:
		s += fmt.Sprintf(", behind %d callers of this process", e.before)
	default:
		s += fmt.Sprintf(", behind %d or more callers of this process", e.before)
	}
	return s + ": " + e.last.reason() + " (" + e.last.Round.votes() + ")"
}

func (e *endedError) Unwrap() []error {
	if e.last == nil {
		return e.why
	}
	return append([]error{e.last}, e.why...)
}
