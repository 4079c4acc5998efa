package redlock

import "github.com/seed-ce352c9b/redlock/internal/wire"

// undo takes back in the background what a quorum call may have stored, on each node
// after the quorum call's own call there was answered.
func (l *Locker) undo(last *quorumCall, q wire.Question) {
	// In this order: a yes between the two would be missed.
	if last.finished() {
		if holds, _ := last.mayHold(); holds == 0 {
			return
		}
	}
	b := l.newCleanup(OpRollback, last.name, q, 0, 0, allAnswered)
	b.then = func() { l.observe(b, nil) }
	b.send(last)
}

func allAnswered(t tally) bool { return t.open() == 0 }

// newCleanup prepares a rollback, a release or a restore. Later attempts on the key
// go to each node after it, and it goes after the clean-ups of the key that began
// before: so whoever waits for the last one has waited for all. Remembering the last
// without that order would forget one that takes longer, and a release could overtake
// the restore that puts its value back. holds and doubt say, as bits, which nodes may
// hold the value, beyond what the calls tell that it is sent after.
func (l *Locker) newCleanup(op Op, name *wire.LockKey, q wire.Question, holds, doubt uint64, decided func(tally) bool) *quorumCall {
	q.Patience = l.patience(q.TTL)
	b := l.newQuorumCall(op, name, q, l.now(), decided)
	for i := range b.calls {
		b.calls[i].MayHold = holds&(1<<i) != 0
		b.calls[i].MayArriveLate = doubt&(1<<i) != 0
	}
	b.cleanup = true
	l.mu.Lock()
	defer l.mu.Unlock()
	b.previous = l.cleanups[name.Full]
	l.cleanups[name.Full] = b
	switch {
	case q.Kind != wire.AskRestore:
		if a := l.adoptions[q.Value]; a != nil {
			a.ended = true
		}
	case l.adoptions[q.Back].ended:
		b.q = wire.ReleaseQuestion(name, q.Value, q.TTL, wire.NotifyCount, "")
		b.q.Patience = q.Patience
	default:
		l.restores[name.Full] = b
	}
	return b
}

// cleanedUp is told that a cleaning has nothing under way any more.
func (l *Locker) cleanedUp(b *quorumCall) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cleanups[b.name.Full] == b {
		delete(l.cleanups, b.name.Full)
	}
	if l.restores[b.name.Full] == b {
		delete(l.restores, b.name.Full)
	}
}

// restoring is a failed adoption of the key that is being undone; nil: none. The
// giver's next question goes to each node after it.
func (l *Locker) restoring(name *wire.LockKey) *quorumCall {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.restores[name.Full]
}

// lastCleanup is the clean-up under way for a key; nil: none.
func (l *Locker) lastCleanup(name *wire.LockKey) *quorumCall {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cleanups[name.Full]
}
