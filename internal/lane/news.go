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
// A node that refuses again within that time after it worked may refuse some keys and not
// others. It then counts as refusing until it has refused nothing for that time. So does one
// that refuses to announce the releases of some keys: it is mute until it has announced one
// that long after the last that it did not. Halved, a node that refuses one rare kind of
// question, or one key, is reported twice as often, and what it has refused is sent to it
// twice as often.
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
	downWhy       *wire.NodeError
	quarantinedAt time.Time // when its quarantine was noticed; zero: it grants
	quarantine    *wire.NodeError
	refusal       refusal
	mute          *wire.NodeError // why a release that had somebody to notify did not; nil: the latest did
	mutedAt       time.Time       // when the last such release was answered
	took          time.Duration   // the last round trip
}

// A refusal is what a node answers in place of what was asked.
type refusal struct {
	why    *wire.NodeError // the first error; nil: the node does what it is asked
	since  time.Time
	latest time.Time
	kinds  uint32    // the kinds of questions that were refused when last asked, as bits
	pings  bool      // it replied to PINGs again, but with an error
	ended  time.Time // of the refusal before this one
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
	h := Health{RoundTrip: ln.took, Owed: ln.owed.len()}
	now, why, since := ln.condition()
	if h.Condition, h.Since = now, since; why != nil {
		h.Err = why
	}
	if ln.mute != nil {
		h.Mute = ln.mute
	}
	return h
}

// condition returns the condition of the node, why it is not up, and since when. Needs ln.mu.
func (ln *Lane) condition() (now Condition, why *wire.NodeError, since time.Time) {
	switch {
	case ln.duplicate != nil:
		return Duplicate, ln.duplicate, ln.since
	case ln.down != nil:
		return Down, ln.down, ln.downAt
	case ln.refusal.why != nil:
		return Refusing, ln.refusal.why, ln.refusal.since
	case !ln.quarantinedAt.IsZero():
		return Quarantined, ln.quarantine, ln.quarantinedAt
	case !ln.since.IsZero():
		return Up, nil, ln.since
	}
	return Unknown, nil, time.Time{}
}

// change makes a change, of which it notes what it means for the node's condition: of several
// reasons why a node is not up, one may end or begin while another lasts. Needs ln.mu.
func (ln *Lane) change(f func()) {
	was, _, began := ln.condition()
	f()
	now, why, _ := ln.condition()
	if now == Up || now == Unknown { // it is heard of, and no reason lasts
		now, ln.since = Up, ln.now()
	}
	if now != was {
		ln.note(now, why, began)
	}
}

// note notes the condition of the node, to be told after unlocking. began is when the one before
// it did. Needs ln.mu.
func (ln *Lane) note(now Condition, why *wire.NodeError, began time.Time) {
	if ln.Report == nil || ln.closed {
		return
	}
	n := News{Lane: ln, Now: now}
	if now == Down {
		why = ln.downWhy
	}
	if why != nil {
		n.Err = why
	}
	if now == Up {
		n.For = time.Since(began)
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
			ln.change(func() { ln.quarantinedAt, ln.quarantine = ln.now(), rep.Err })
		case !quarantined && rep.Answer == wire.Yes && !ln.quarantinedAt.IsZero():
			ln.change(func() { ln.quarantinedAt = time.Time{} })
		case quarantined:
			ln.quarantine = rep.Err // which says how long it lasts yet
		}
	}
	switch {
	case rep.Mute:
		if ln.mutedAt = ln.now(); ln.mute == nil {
			ln.mute = wire.ErrMute
			ln.note(Mute, wire.ErrMute, time.Time{})
		}
	case rep.Told && ln.mute != nil && ln.now().Sub(ln.mutedAt) >= refusedFor:
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
		ln.change(func() { f.why, f.since = why, f.latest })
	}
}

// works notes that the node did what a question asks. Once it does all again that it has
// refused, it is sent at once what is owed to it. Needs ln.mu.
func (ln *Lane) works(k wire.Kind) {
	f := &ln.refusal
	if f.latest.IsZero() {
		return
	}
	f.kinds &^= 1 << k
	again := !f.ended.IsZero() && f.since.Sub(f.ended) < refusedFor
	if (f.kinds != 0 || again) && ln.now().Sub(f.latest) < refusedFor {
		return
	}
	if f.why == nil { // it went down meanwhile
		ln.forgetRefusal()
		return
	}
	ln.endRefusal()
	ln.wakeProbe()
}

// refusedPing notes with which error a node that was down replied to a PING. Needs ln.mu.
func (ln *Lane) refusedPing(err error) {
	why, _ := wire.Explain(err)
	now := ln.now()
	ln.refusal = refusal{why: why, since: now, latest: now, pings: true}
}

// endRefusal notes that the node works again, and has what it has refused sent at once. Needs ln.mu.
func (ln *Lane) endRefusal() {
	ln.change(ln.forgetRefusal)
	ln.refusal.ended = ln.now()
	ln.owed.hurry(ln.now())
}

// forgetRefusal forgets what a node has refused that goes down or comes up. Needs ln.mu.
func (ln *Lane) forgetRefusal() { ln.refusal = refusal{} }
