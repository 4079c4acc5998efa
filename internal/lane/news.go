package lane

import (
	"time"

	"github.com/seed-ce352c9b/redlock/internal/wire"
)

// This file is the condition of a node, and the reports of its changes, which no call asked
// for. What is noticed under ln.mu is noted, and told after unlocking, in order.

// A Condition is how a node is.
type Condition uint8

const (
	Unknown     Condition = iota // nothing was heard of it yet
	Up                           // it is used, and grants
	Down                         // it is not used
	Refusing                     // it replies with errors
	Quarantined                  // it refuses grants under a restart guard
	Duplicate                    // it is the server of another lane
	Mute                         // of News alone: it refuses to announce releases
)

// refusedFor is for how long a refusal counts if no question of its kind is asked again.
// Halved, a node that refuses one rare kind of question is reported more often.
const refusedFor = time.Minute

// News is a change of the condition of a lane's node.
type News struct {
	Lane *Lane
	Now  Condition
	Err  error         // of Up: nil
	For  time.Duration // Up: since it was not
}

// The news that have not been told, and what they come from. Guarded by ln.mu.
type news struct {
	untold        []News
	telling       bool      // a tell is working through untold
	since         time.Time // when the node was first heard of, or came up again
	downAt        time.Time // when the node went down
	quarantinedAt time.Time // when its quarantine was noticed; zero: it grants
	quarantine    *wire.NodeError
	refusal       refusal
	mute          *wire.NodeError // why the last release that had somebody to notify did not; nil: it did
	took          time.Duration   // the last round trip
}

// A refusal is what a node answers in place of what was asked.
type refusal struct {
	why    *wire.NodeError // the first error; nil: the node does what it is asked
	since  time.Time
	latest time.Time
	kinds  uint32 // the kinds of questions that were refused when last asked, as bits
}

// Health is what a lane knows of its node.
type Health struct {
	Condition Condition
	Since     time.Time     // of the condition
	Err       error         // why the node is not up
	RoundTrip time.Duration // of the last batch that was answered; 0: none was
	Owed      int           // clean-ups that have to be sent again
	Mute      error         // why it does not announce releases; nil: it does, as far as is known
}

// Health returns the condition of the node. It asks nothing.
func (ln *Lane) Health() Health {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	h := Health{Since: ln.since, RoundTrip: ln.took, Owed: ln.owed.len()}
	why := (*wire.NodeError)(nil)
	switch {
	case ln.duplicate != nil:
		h.Condition, why = Duplicate, ln.duplicate
	case ln.down != nil:
		h.Condition, h.Since, why = Down, ln.downAt, ln.down
	case ln.refusal.why != nil:
		h.Condition, h.Since, why = Refusing, ln.refusal.since, ln.refusal.why
	case !ln.quarantinedAt.IsZero():
		h.Condition, h.Since, why = Quarantined, ln.quarantinedAt, ln.quarantine
	case !ln.since.IsZero():
		h.Condition = Up
	}
	if why != nil {
		h.Err = why
	}
	if ln.mute != nil {
		h.Mute = ln.mute
	}
	return h
}

// note notes that something happened, to be told after unlocking. Needs ln.mu.
func (ln *Lane) note(now Condition, why *wire.NodeError, since time.Time) {
	if now == Up {
		ln.since = time.Now()
	}
	if ln.Report == nil || ln.closed {
		return
	}
	n := News{Lane: ln, Now: now}
	if why != nil {
		n.Err = why
	}
	if !since.IsZero() {
		n.For = time.Since(since)
	}
	ln.untold = append(ln.untold, n)
}

// tell reports what was noted. The caller must hold no lock. If a report panics, the next
// tell goes on behind it.
func (ln *Lane) tell() {
	if ln.Report == nil {
		return
	}
	ln.mu.Lock()
	defer ln.mu.Unlock()
	for len(ln.untold) > 0 && !ln.telling {
		n := ln.untold[0]
		ln.untold = ln.untold[1:]
		ln.telling = true
		ln.mu.Unlock()
		func() {
			defer func() { ln.mu.Lock(); ln.telling = false }()
			ln.Report(n)
		}()
	}
}

// noteReply notes what a reply says of the node's condition, also if it came too late for
// its call. Needs ln.mu.
func (ln *Lane) noteReply(q *wire.Question, rep *wire.Reply) {
	if q.Guarded() {
		switch quarantined := rep.Err.IsQuarantine(); {
		case quarantined && ln.quarantinedAt.IsZero():
			ln.quarantinedAt, ln.quarantine = ln.now(), rep.Err
			ln.note(Quarantined, rep.Err, time.Time{})
		case !quarantined && rep.Answer == wire.Yes && !ln.quarantinedAt.IsZero():
			ln.note(Up, nil, ln.quarantinedAt)
			ln.quarantinedAt = time.Time{}
		}
	}
	switch {
	case rep.Mute && ln.mute == nil:
		ln.mute = wire.ErrMute
		ln.note(Mute, wire.ErrMute, time.Time{})
	case rep.Told:
		ln.mute = nil
	}
	switch {
	case rep.Refuses():
		ln.refused(q.Kind, rep.Err)
	case rep.Sent && !rep.Silent && rep.Answer != wire.Unknown:
		ln.works(q.Kind)
	}
}

// refused notes that the node refused a question. Needs ln.mu.
func (ln *Lane) refused(k wire.Kind, why *wire.NodeError) {
	f := &ln.refusal
	f.latest = ln.now()
	f.kinds |= 1 << k
	if f.why == nil && ln.down == nil {
		f.why, f.since = why, f.latest
		ln.note(Refusing, why, time.Time{})
	}
}

// works notes that the node did what a question asks. Once it does all again that it has
// refused, it is sent at once what is owed to it. Needs ln.mu.
func (ln *Lane) works(k wire.Kind) {
	f := &ln.refusal
	if f.kinds == 0 {
		return
	}
	f.kinds &^= 1 << k
	if f.kinds != 0 && ln.now().Sub(f.latest) < refusedFor {
		return
	}
	if f.why != nil {
		ln.note(Up, nil, f.since)
		ln.owed.hurry(ln.now())
		ln.wakeProbe()
	}
	ln.forgetRefusal()
}

// forgetRefusal forgets what a node has refused that goes down or comes up. Needs ln.mu.
func (ln *Lane) forgetRefusal() { ln.refusal = refusal{} }
