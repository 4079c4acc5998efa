package redlock

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/lane"
	"github.com/seed-ce352c9b/redlock/internal/quorum"
	"github.com/seed-ce352c9b/redlock/internal/wire"
)

// A Status is what the nodes reported about a lock. It may be out of date when it is read.
type Status struct {
	Key    string
	Held   bool          // whether a majority of the nodes stores the same value
	Value  Value         // that value, for Adopt
	Holder string        // its label, or "" if a foreign client stored it
	Left   time.Duration // until fewer than a majority store it; -1 if it does not expire (this library always sets a ttl)
	Fence  int64         // the highest fence register, which no token issued so far exceeds; 0 if there is none. Beside a lock without a fence it is that of an earlier holder

	// Queue has the labels of the waiters, first to last, as a majority of the nodes knows
	// them: one for each Locker, which is the label of the first caller that waits there,
	// and at most a hundred. An entry that this library did not make has the label "".
	Queue []string

	Nodes []NodeStatus // in New's order
	Round Round
}

// A NodeStatus is what one node reported about a lock.
type NodeStatus struct {
	Node  string
	Value Value         // zero if there is none
	Left  time.Duration // until it expires there; -1 if the key has no ttl (this library always sets one)
	Fence int64         // the node's fence register; 0 if there is none
	Err   error         // not nil if the node sent no reply, or an invalid one
}

// String returns the Status in one line.
func (s Status) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%q ", wire.Clip(s.Key))
	if s.Held {
		b.WriteString("held by " + s.Value.String() + ", " + leftText(s.Left))
	} else {
		b.WriteString("not held")
	}
	fmt.Fprintf(&b, ", fence %d", s.Fence)
	for i, n := range s.Nodes {
		if i == 0 {
			b.WriteString(" (")
		} else {
			b.WriteString(", ")
		}
		b.WriteString(n.String())
	}
	if len(s.Nodes) > 0 {
		b.WriteString(")")
	}
	return b.String()
}

// String returns the NodeStatus in a few words.
func (n NodeStatus) String() string {
	switch {
	case n.Err != nil:
		return n.Node + " " + n.Err.Error()
	case n.Value.IsZero() && n.Left == 0:
		return n.Node + " free"
	}
	return n.Node + " held by " + n.Value.String() + ", " + leftText(n.Left)
}

func leftText(left time.Duration) string {
	if left < 0 {
		return wire.NoTTL
	}
	return wire.Short(left) + " left"
}

// Inspect asks all nodes who holds the lock, and changes nothing. It waits for all nodes
// that reply within the node timeout. The error is a *QuorumError with ErrNoQuorum if
// fewer than a majority replied; the error of ctx; ErrClosed; or says that the key is
// invalid or that one server has two names. With ErrNoQuorum, the Status has what the
// other nodes reported.
func (l *Locker) Inspect(ctx context.Context, key string) (status Status, err error) {
	l.check(ctx)
	ctx, traced := l.traceCall(ctx, Call{Method: "Inspect", Key: key})
	var e *acquireCall
	err = ErrPanicked // until it returns
	defer func() { traced.end(e, err) }()
	if err := l.admit(OpInspect, key); err != nil {
		return Status{Key: key}, err
	}
	name, err := wire.NameKey(l.opt.KeyPrefix, key)
	if err != nil {
		return Status{}, err
	}
	err = ErrPanicked // again until it returns
	e = &acquireCall{op: OpInspect, name: name, began: l.now(), attempt: 1}
	if err := l.usable(ctx, e); err != nil {
		return Status{}, err
	}
	b := l.newQuorumCall(OpInspect, name, wire.InspectQuestion(name), e.began, allAnswered)
	b.Question.Patience = wire.Patience{Base: l.closeWait() / 2, Limit: l.closeWait() / 2}
	b.Send(nil)
	if err := l.await(ctx, e, b); err != nil {
		return Status{Key: key}, err
	}
	l.observe(ctx, b, e)
	s := statusOf(b)
	if err := l.servers.Duplicates(); err != nil {
		return s, err
	}
	if t, _, _ := b.Result(); t.Yes < t.Need() {
		return s, l.notAcquired(e, b, ErrNoQuorum, "")
	}
	return s, nil
}

// statusOf returns what the replies to an inspection say.
func statusOf(b *quorum.Call) Status {
	s := Status{Key: b.Name.Key, Round: roundOf(b)}
	b.Read(func(calls []lane.Call, t quorum.Tally, _ time.Duration) { s.fill(calls, t.Need()) })
	return s
}

// fill adds the replies to an inspection.
func (s *Status) fill(calls []lane.Call, need int) {
	left := make(map[Value][]time.Duration)
	for i := range calls {
		c := &calls[i]
		n := NodeStatus{Node: c.Lane.Name, Value: ValueOf(c.Reply.Holder), Fence: c.Reply.Score, Left: time.Duration(min(c.Reply.TTL, wire.MaxTTL.Milliseconds())) * time.Millisecond}
		switch {
		case c.Reply.Answer != wire.Yes:
			n.Left = 0
			n.Err = s.Round.Votes[i].Err
		case c.Reply.TTL == -1:
			n.Left = -1
		case c.Reply.Missing:
			n.Left = 0
		}
		if c.Reply.Answer == wire.Yes && !c.Reply.Missing {
			left[n.Value] = append(left[n.Value], n.Left)
		}
		s.Fence = max(s.Fence, n.Fence)
		s.Nodes = append(s.Nodes, n)
	}
	s.Queue = queueOf(calls, need)
	for value, ds := range left {
		if len(ds) < need {
			continue
		}
		slices.SortFunc(ds, func(a, b time.Duration) int { // -1 is the longest
			if a == -1 {
				a = wire.MaxTTL
			}
			if b == -1 {
				b = wire.MaxTTL
			}
			return cmp.Compare(a, b) // the difference does not fit an int of 32 bits
		})
		s.Held, s.Value, s.Holder = true, value, value.Label()
		s.Left = ds[len(ds)-need] // when it ends, need-1 nodes still store the value
	}
}

// queueOf returns the labels of the waiters that need or more nodes list.
func queueOf(calls []lane.Call, need int) (labels []string) {
	var longest []string
	on := make(map[string]int)
	for i := range calls {
		var places []string
		if q := calls[i].Reply.Queue; q != nil {
			places = *q
		}
		if len(places) > len(longest) {
			longest = places
		}
		for _, p := range places {
			on[p]++
		}
	}
	for _, p := range longest {
		if on[p] >= need {
			labels = append(labels, wire.LabelOf(p))
		}
	}
	return labels
}
