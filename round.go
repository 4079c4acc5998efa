package redlock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/lane"
	"github.com/seed-ce352c9b/redlock/internal/quorum"
	"github.com/seed-ce352c9b/redlock/internal/wire"
)

// An Op is the operation that a Round asked the nodes for.
type Op uint8

const (
	OpAcquire  Op = iota + 1 // take the lock if it is free
	OpRaise                  // agree on a greater fencing token
	OpExtend                 // renew the ttl of a held lock
	OpRelease                // release a lock
	OpRollback               // undo a failed, abandoned or lost attempt
	OpAdopt                  // take over a held lock by its value
	OpInspect                // read the lock's state
	OpLook                   // ask whether the lock is still held, and usually queue as a waiter
	OpUnqueue                // remove a waiter from the queue
	OpAnnounce               // tell those who Watch that a leader came or went
	OpLost                   // not sent: it reports the loss of a lock, with the votes of the last extension if that failed
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
	case OpUnqueue:
		return "unqueue"
	case OpAnnounce:
		return "announce"
	case OpLost:
		return "lost"
	}
	return "op(" + strconv.Itoa(int(o)) + ")"
}

// An Answer is one node's vote.
type Answer uint8

const (
	AnswerPending Answer = iota // the node had not replied when the round was decided
	AnswerYes                   // it agreed
	AnswerNo                    // it did not: the key has another value there or (raise, extend, release, adopt) none
	AnswerUnknown               // it sent no usable reply: unless Err shows otherwise, it may have agreed
)

func (a Answer) String() string {
	switch a {
	case AnswerPending:
		return "pending"
	case AnswerYes:
		return "yes"
	case AnswerNo:
		return "no"
	case AnswerUnknown:
		return "unknown"
	}
	return "answer(" + strconv.Itoa(int(a)) + ")"
}

// A Vote is one node's answer in a Round.
type Vote struct {
	Node   string        // the node's address, or its number if its client reveals none
	Answer Answer        // AnswerPending if the node has not replied
	Value  Value         // what another has stored, if Answer is AnswerNo because of it
	Err    error         // why Answer is AnswerUnknown, or AnswerNo without a Value
	Took   time.Duration // from the start of the round to the reply
}

// String returns the vote as errors show it: "a yes 0.4ms", "b held", "c timeout 50ms".
func (v Vote) String() string {
	switch {
	case v.Answer == AnswerYes:
		return v.Node + " yes " + wire.Short(v.Took)
	case v.Answer == AnswerNo && v.Err == nil:
		return v.Node + " held"
	case v.Err != nil:
		return v.Node + " " + v.Err.Error()
	}
	return v.Node + " " + v.Answer.String()
}

// A Round is one question to all nodes at once, and their votes. Errors have the round
// that decided them; Trace.Round gets all rounds.
type Round struct {
	Op      Op
	Key     string
	Need    int           // number of yes votes that win
	Votes   []Vote        // one per node, in New's order, at the moment of the decision
	Start   time.Time     // before the first request was sent; of OpLost: the start of the acquisition or extension that held the lock
	Took    time.Duration // from Start to the decision
	Wait    time.Duration // acquire: how long the caller has waited so far, over all attempts
	Attempt int           // acquire: 1 for the first attempt, 0 if this caller did not ask for the round
}

// roundOf returns the Round of a quorum call with the votes so far.
func roundOf(b *quorum.Call) (r Round) {
	b.Read(func(calls []lane.Call, t quorum.Tally, took time.Duration) {
		r = Round{Op: Op(b.Op), Key: b.Name.Key, Need: t.Need(), Start: b.Start.At, Took: took, Votes: make([]Vote, len(calls))}
		for i := range calls {
			c := &calls[i]
			v := &r.Votes[i]
			v.Node = c.Lane.Name
			if !c.Voted {
				continue
			}
			v.Answer, v.Value, v.Took = Answer(c.Reply.Answer), ValueOf(c.Reply.Holder), c.Took
			if c.Reply.Err != nil {
				v.Err = c.Reply.Err
			}
		}
	})
	return r
}

// String returns the round in one line.
func (r Round) String() string {
	return fmt.Sprintf("%s %q: %s", r.Op, wire.Clip(r.Key), r.votes())
}

// Value returns the value that a majority of the nodes reported as the holder's, or the zero
// Value if there is none. Its Label names the holder.
func (r Round) Value() Value {
	for i, v := range r.Votes {
		if v.Value.IsZero() {
			continue
		}
		n := 0
		for _, w := range r.Votes[i:] {
			if w.Value == v.Value {
				n++
			}
		}
		if n >= r.Need {
			return v.Value
		}
	}
	return Value{}
}

// votes returns the votes as text, in New's order.
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
	// ErrHeld reports that no majority is possible because of other clients: one of them holds
	// the lock, several took a part of the votes each, or, with Options.Fair, another is first.
	ErrHeld = wire.ErrHeld
	// ErrNoQuorum reports that no majority is possible because too many nodes do not
	// reply, or reply with errors.
	ErrNoQuorum = wire.ErrNoQuorum
	// ErrLost reports that this holder does not have the lock any more or, with
	// Options.Grace, that the lock is not renewed any more and ends at Until. It is final.
	ErrLost = wire.ErrLost
	// ErrNested reports that the context of the call is that of Run or KeepAlive of the
	// same lock, which is still held: the call would wait for itself.
	ErrNested = errors.New("redlock: held by this call chain")
	// ErrTooManyWaiters reports that as many callers of this Locker wait for the key as
	// Options.MaxWaiters allows. Nothing was sent.
	ErrTooManyWaiters = errors.New("redlock: too many waiters")
	// ErrClosed reports that the Locker is closed.
	ErrClosed = wire.ErrClosed
	// ErrPanicked is the error that Trace.End gets for a call that a panic has ended.
	ErrPanicked = errors.New("redlock: the call ended by a panic")
)

// A QuorumError says why there was no majority, with every node's vote.
//
// It wraps Err and the errors of the votes. It never matches a context error because a
// node timed out. If the caller's own context ends a call, the error of the call wraps
// the context error and the QuorumError of the last round. If the limit of WithWait ends
// it, the error is the QuorumError alone.
type QuorumError struct {
	Round Round
	Err   error // ErrHeld, ErrNoQuorum or ErrLost

	hint    string // added to the reason, such as when the remaining keys expire
	endless bool   // keys without a ttl rule out a majority
}

func (e *QuorumError) reason() string {
	if e.Err == nil {
		return "no reason"
	}
	reason := strings.TrimPrefix(e.Err.Error(), "redlock: ")
	if e.Err == ErrHeld {
		reason = "held"
		if v := e.Round.Value(); !v.IsZero() {
			reason = "held by " + v.String()
		}
		if e.endless {
			reason += ", " + wire.NoTTL
		}
	}
	switch {
	case e.hint == "":
	case e.Round.Op == OpLost && e.Err == ErrLost: // the operation says "lost"
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

// Unwrap returns Err and then the errors of the votes.
func (e *QuorumError) Unwrap() []error {
	errs := []error{e.Err}
	for _, v := range e.Round.Votes {
		if v.Err != nil {
			errs = append(errs, v.Err)
		}
	}
	return errs
}

// ended returns the error of a call that the caller's ctx or Close ended. It wraps the
// ctx's error and cause, or ErrClosed, and the error of the last decided round. If the limit
// of WithWait ended it, it is only the error of that round.
func (l *Locker) ended(ctx context.Context, e *acquireCall) error {
	if context.Cause(ctx) == errWaited {
		return l.waited(e)
	}
	err := &endedError{what: fmt.Sprintf("redlock: %s %q", e.op, wire.Clip(e.name.Key)), after: l.now().Since(e.began), attempts: e.attempt}
	if ctx.Err() != nil {
		err.why = append(err.why, ctx.Err())
		if cause := context.Cause(ctx); cause != ctx.Err() {
			err.why = append(err.why, cause)
		}
	} else {
		err.why = append(err.why, ErrClosed)
	}
	err.last, err.before = l.lastKnown(e)
	err.inLine = e.waiter.Joined()
	return err
}

// unasked returns the Round of a call for which no round was decided: all votes are AnswerPending.
func (l *Locker) unasked(e *acquireCall) Round {
	took := l.now().Since(e.began)
	r := Round{Op: e.op, Key: e.name.Key, Need: majority(len(l.lanes)), Start: e.began.At, Took: took, Wait: took, Attempt: e.attempt}
	for _, ln := range l.lanes {
		r.Votes = append(r.Votes, Vote{Node: ln.Name})
	}
	return r
}

// An endedError says that ctx or Close ended a call, and how far it had come.
type endedError struct {
	what     string
	why      []error
	after    time.Duration
	attempts int
	inLine   bool         // it was in a queue of callers, whose head alone asks the nodes
	before   int          // the number of callers before it there
	last     *QuorumError // of the last round, or nil if none was sent
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
	s += " after " + wire.Short(e.after) + progress(e.attempts, e.before, e.inLine)
	return s + ": " + e.last.reason() + " (" + e.last.Round.votes() + ")"
}

// progress says how far a call had come when it was ended.
func progress(attempts, before int, inLine bool) string {
	switch {
	case attempts > 0 || !inLine:
		return fmt.Sprintf(", attempt %d", attempts)
	case before == 0:
		return ", without an attempt"
	case before == 1:
		return ", behind 1 caller of this process"
	case before < maxBefore:
		return fmt.Sprintf(", behind %d callers of this process", before)
	}
	return fmt.Sprintf(", behind %d or more callers of this process", before)
}

func (e *endedError) Unwrap() []error {
	if e.last == nil {
		return e.why
	}
	return append([]error{e.last}, e.why...)
}
