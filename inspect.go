package redlock

import (
	"context"
	"slices"
	"time"
)

// A Status is what the nodes said of a lock at one moment. It may be out of date
// when it is read.
type Status struct {
	Key    string
	Held   bool          // a majority of the nodes holds one and the same value
	Value  string        // that value; else ""
	Holder string        // its label, or all of a value that is not ours
	Left   time.Duration // until it is over on so many of these that they are no majority; -1: never, by a stranger's hand
	Fence  int64         // the highest register met: no token given out so far is greater; 0: none

	// Waiters is how many Lockers listen for its release on a majority of the nodes:
	// those that wait for it, or did in the last ten seconds.
	Waiters int
	// Queue is who waits in turn (Options.Fair), by the labels, first to last, as a
	// majority of the nodes knows them; at most a hundred.
	Queue []string

	Nodes []NodeStatus // in New's order
	Round Round
}

// A NodeStatus is what one node said of a lock.
type NodeStatus struct {
	Node    string
	Value   string        // "": none
	Left    time.Duration // until it expires there; -1: never
	Fence   int64         // its register; 0: none
	Waiters int           // Lockers that listen for the release there
	Err     error         // it gave no answer, or one that makes no sense
}

// Inspect asks all nodes who holds the lock key, and changes nothing. It waits for
// all that answer within the node timeout. The error is a *QuorumError with
// ErrNoQuorum if fewer than a majority answered, and the Status tells what is known
// all the same; the error of ctx; ErrClosed; or what is wrong with the key.
func (l *Locker) Inspect(ctx context.Context, key string) (Status, error) {
	name, err := nameKey(l.opt.KeyPrefix, key)
	if err != nil {
		return Status{}, err
	}
	e := &errand{op: OpInspect, name: name, began: l.now(), attempt: 1}
	if err := l.usable(ctx, e); err != nil {
		return Status{}, err
	}
	b := l.newBallot(OpInspect, name, inspectQuestion(name), e.began, allIn)
	b.q.patience = patience{base: l.closeWait() / 2, limit: l.closeWait() / 2}
	b.send(nil)
	if err := l.await(ctx, e, b); err != nil {
		return Status{Key: key}, err
	}
	l.observe(b, e)
	s := b.status()
	if t, _, _ := b.result(); t.yes < t.need() {
		return s, l.missed(e, b, ErrNoQuorum, "")
	}
	return s, nil
}

// status reads the answers of an inspection.
func (b *ballot) status() Status {
	s := Status{Key: b.name.key, Round: b.round()}
	b.mu.Lock()
	defer b.mu.Unlock()
	left := make(map[string][]time.Duration) // by value
	for i := range b.calls {
		c := &b.calls[i]
		n := NodeStatus{Node: c.ln.name, Value: c.rep.holder, Fence: c.rep.score, Left: time.Duration(c.rep.left) * time.Millisecond, Waiters: c.rep.before}
		switch {
		case c.rep.answer != Yes:
			n.Left = 0
			n.Err = s.Round.Votes[i].Err
		case c.rep.left == -1:
			n.Left = -1
		case c.rep.missing:
			n.Left = 0
		}
		if n.Value != "" {
			left[n.Value] = append(left[n.Value], n.Left)
		}
		s.Fence = max(s.Fence, n.Fence)
		s.Nodes = append(s.Nodes, n)
	}
	need := b.t.need()
	s.Waiters, s.Queue = b.waiters(need)
	for value, ds := range left {
		if len(ds) < need {
			continue
		}
		slices.SortFunc(ds, func(a, b time.Duration) int { // -1 is the longest
			if a == -1 {
				a = maxTTL
			}
			if b == -1 {
				b = maxTTL
			}
			return int(a - b)
		})
		s.Held, s.Value, s.Holder = true, value, Label(value)
		s.Left = ds[len(ds)-need] // when so many have expired, need-1 are left
	}
	return s
}

// waiters is how many Lockers listen on a majority of the nodes, and who queues there.
// Needs b.mu.
func (b *ballot) waiters(need int) (listen int, queue []string) {
	var counts []int
	var longest []string
	on := make(map[string]int)
	for i := range b.calls {
		rep := &b.calls[i].rep
		counts = append(counts, rep.before)
		if len(rep.queue) > len(longest) {
			longest = rep.queue
		}
		for _, place := range rep.queue {
			on[place]++
		}
	}
	slices.Sort(counts)
	for _, place := range longest { // tickets are the same on all nodes, and so is the order
		if on[place] >= need {
			queue = append(queue, Label(place))
		}
	}
	return counts[len(counts)-need], queue
}
