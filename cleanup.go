package redlock

import (
	"context"

	"github.com/seed-ce352c9b/redlock/internal/lane"
	"github.com/seed-ce352c9b/redlock/internal/wire"
)

// undo removes in the background what a quorum call may have stored. On each node it
// follows that call.
func (l *Locker) undo(last *quorumCall, q wire.Question) {
	// Finished is asked before left: otherwise a yes between the two would be missed.
	if last.Finished() {
		if left := last.left(); left.Any(lane.Holds) == 0 {
			return
		}
	}
	b := l.newCleanup(OpRollback, last.name, q, new(lane.Residues), allAnswered)
	b.then = func() { l.observe(context.Background(), b, nil) }
	b.send(last)
}

func allAnswered(t tally) bool { return t.open() == 0 }

// newCleanup prepares a rollback, a release or a restore. On each node it follows the
// key's earlier clean-ups, and later attempts follow it, so that the Locker need only
// remember the last one. Without that order, a clean-up that takes longer than a later
// one would be forgotten, and a release could overtake the restore that puts its value
// back. left has what finished calls may have left on the nodes; the clean-up adds what the calls
// report that it follows.
//
// If the holder was released during a failed adoption of its value, the adopter's value is
// removed instead of replaced: nobody would remove the holder's.
func (l *Locker) newCleanup(op Op, name *wire.LockKey, q wire.Question, left *lane.Residues, decided func(tally) bool) *quorumCall {
	b := l.newQuorumCall(op, name, q, l.now(), decided)
	b.inherit(left)
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
		b.ask(wire.ReleaseQuestion(name, q.Value, q.TTL, wire.NotifyCount, ""))
	default:
		l.restores[name.Full] = b
	}
	return b
}

// cleanedUp forgets a finished clean-up.
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

// restoring returns the clean-up that undoes a failed adoption of the key, or nil. The
// holder's next question follows it on each node.
func (l *Locker) restoring(name *wire.LockKey) *quorumCall {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.restores[name.Full]
}

// lastCleanup returns the last unfinished clean-up of a key, or nil.
func (l *Locker) lastCleanup(name *wire.LockKey) *quorumCall {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cleanups[name.Full]
}
