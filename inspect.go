package redlock

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/wire"
)

// A Status is what the nodes said of a lock at one moment. It may be out of date
// when it is read.
type Status struct {
	Key    string
	Held   bool          // a majority of the nodes holds one and the same value
	Value  string        // that value, for Adopt; else "". A secret of the holder, not for logs
	Holder string        // its label; "" if another client has stored it, whose value may be a secret
	Left   time.Duration // until it is over on so many of these that they are no majority; -1: it has no ttl, and so no lock library has set it
	Fence  int64         // the highest register met: no token given out so far is greater; 0: none

	// Queue is who waits for it, first to last, by their labels ("" for a place that is not
	// of this library), as a majority of the nodes knows them: one for each Locker, at most a hundred. Callers that wait in one
	// Locker share its place, which has the label of the first of them.
	Queue []string

	Nodes []NodeStatus // in New's order
	Round Round
}

// A NodeStatus is what one node said of a lock.
type NodeStatus struct {
	Node  string
	Value string        // "": none; else a secret of whoever stored it
	Left  time.Duration // until it expires there; -1: never, it has no ttl
	Fence int64         // its register; 0: none
	Err   error         // it gave no answer, or one that makes no sense
}

// String is the Status in one line, without the Values: their labels at most. (An
// encoding, as JSON, has them.)
func (s Status) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%q ", wire.Clip(s.Key))
	if s.Held {
		b.WriteString("held by " + wire.HolderName(s.Value) + ", " + leftText(s.Left))
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

// String is what the node said in a few words, without the Value.
func (n NodeStatus) String() string {
	switch {
	case n.Err != nil:
		return n.Node + " " + n.Err.Error()
	case n.Value == "" && n.Left == 0:
		return n.Node + " free"
	}
	return n.Node + " held by " + wire.HolderName(n.Value) + ", " + leftText(n.Left)
}

func leftText(left time.Duration) string {
	if left < 0 {
		return wire.NoTTL
	}
	return wire.Short(left) + " left"
}

// Inspect asks all nodes who holds the lock key, and changes nothing. It waits for
// all that answer within the node timeout. The error is a *QuorumError with
// ErrNoQuorum if fewer than a majority answered, and the Status tells what is known
// all the same; the error of ctx; ErrClosed; or what is wrong with the key, or with the
// nodes: one server under two names.
func (l *Locker) Inspect(ctx context.Context, key string) (Status, error) {
	if err := l.admit(ctx, OpInspect, key); err != nil {
		return Status{Key: key}, err
	}
	name, err := wire.NameKey(l.opt.KeyPrefix, key)
	if err != nil {
		return Status{}, err
	}
	e := &acquireCall{op: OpInspect, name: name, began: l.now(), attempt: 1}
	if err := l.usable(ctx, e); err != nil {
		return Status{}, err
	}
	b := l.newQuorumCall(OpInspect, name, wire.InspectQuestion(name), e.began, allAnswered)
	b.q.Patience = wire.Patience{Base: l.closeWait() / 2, Limit: l.closeWait() / 2}
	b.send(nil)
	if err := l.await(ctx, e, b); err != nil {
		return Status{Key: key}, err
	}
	l.observe(b, e)
	s := b.status()
	if err := l.servers.Duplicates(); err != nil {
		return s, err
	}
	if t, _, _ := b.result(); t.yes < t.need() {
		return s, l.notAcquired(e, b, ErrNoQuorum, "")
	}
	return s, nil
}

// status reads the answers of an inspection.
func (b *quorumCall) status() Status {
	s := Status{Key: b.name.Key, Round: b.round()}
	b.mu.Lock()
	defer b.mu.Unlock()
	left := make(map[string][]time.Duration) // by value
	for i := range b.calls {
		c := &b.calls[i]
		n := NodeStatus{Node: c.Lane.Name, Value: c.Reply.Holder, Fence: c.Reply.Score, Left: time.Duration(min(c.Reply.TTL, wire.MaxTTL.Milliseconds())) * time.Millisecond}
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
	need := b.tally.need()
	s.Queue = b.queue(need)
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
		s.Held, s.Value, s.Holder = true, value, Label(value)
		s.Left = ds[len(ds)-need] // when so many have expired, need-1 are left
	}
	return s
}

// queue is who queues on a majority of the nodes. Needs b.mu.
func (b *quorumCall) queue(need int) (labels []string) {
	var longest []string
	on := make(map[string]int)
	for i := range b.calls {
		var places []string
		if q := b.calls[i].Reply.Queue; q != nil {
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
			labels = append(labels, Label(p))
		}
	}
	return labels
}
