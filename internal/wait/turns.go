package wait

import (
	"time"

	"github.com/seed-ce352c9b/redlock/internal/wire"
)

// MaxTurns is how often in a row a Locker takes a lock that others wait for, in whatever way:
// handed on within its local queue, by a caller that comes when nobody is in that, by a waiter
// that was notified. Then it leaves the lock to the others. Halved, throughput under contention
// falls, since a hand-over within a process takes one round and one between processes three;
// doubled, other Lockers wait twice as long.
const MaxTurns = 16

// leaveMost bounds how long a Locker that has a turn left leaves the lock to others that were
// notified of its release, in multiples of Rules.RetryFirst: 50 ms by default. Within that bound
// it is twice as long as they had it last time. Halved, a Locker of eight that take turns without
// a pause looks at the lock once more before each of its turns; doubled, a lock stays free for up
// to twice as long if both waiters that were notified hang.
const leaveMost = 5

// turns counts how often in a row the callers of a Locker got a lock, as far as it knows, and
// until when it leaves the lock to others that were notified of its release. With Options.Fair
// the nodes decide whose turn it is, and nothing is left to others here.
type turns struct {
	run       int       // how often in a row, since nobody else waited or had it
	released  string    // the value whose release was announced last
	open      bool      // that release has no result yet, and nobody has announced one since
	contended bool      // the last release was announced to somebody
	until     time.Time // until then, the lock is left to those

	left  time.Time     // when it was left to them, if they have not had it since
	usual time.Duration // how long they had it last time; 0: they did not take it, or nothing is known
}

// others notes that others had the lock that was left to them.
func (t *turns) others(now time.Time) {
	t.run = 0
	if !t.left.IsZero() {
		t.usual = now.Sub(t.left)
		t.left = time.Time{}
	}
}

// had notes that a caller of the Locker got the lock.
func (t *turns) had() {
	t.run++
	t.open, t.until = false, time.Time{}
}

// heard notes that a majority announced a value. If it is that of a lock, and not of the one
// that was released here, others have had the lock since; otherwise a waiter has given up. It
// reports whether the lock need not be left to others now, as it never has with Fair.
func (t *turns) heard(value string, fair bool, now time.Time) bool {
	switch {
	case wire.IsOurs(value) && value != t.released:
		t.others(now)
	case t.run >= MaxTurns && !fair && (t.open || now.Before(t.until)):
		return false
	}
	t.open, t.until = false, time.Time{}
	return true
}

// inVain notes that the lock was left to the others long enough, and that it is still free.
func (t *turns) inVain() {
	t.left, t.usual = time.Time{}, 0
	if t.run >= MaxTurns {
		t.run = 0
	}
}

// MayHandOver reports whether the lock may be handed to the next caller of the local queue.
func (p *Plan) MayHandOver() bool { return p.turns.run < MaxTurns }

// Contended reports whether somebody else was notified of the last release.
func (p *Plan) Contended() bool { return p.turns.contended }

// Releasing notes that the Locker releases the lock with this value for everybody. That counts
// as one turn at least. If the Locker has had all its turns, the head does not act until the
// release has a result, or for RetryMost.
func (p *Plan) Releasing(value string, now time.Time) {
	p.outdated(now)
	p.turns.released, p.turns.open, p.turns.run = value, true, max(p.turns.run, 1)
	if !p.rules.Fair && !p.MayHandOver() {
		p.due = false
		p.act(now.Add(p.rules.RetryMost), false)
	}
}

// Released notes the result of a release: whether a waiter of another Locker was notified, and
// how long the round took. queued says whether our entry is in the nodes' queues. It reports
// whether the head is to be woken.
func (p *Plan) Released(told, queued bool, took time.Duration, now time.Time) (wake bool) {
	p.outdated(now)
	t := &p.turns
	t.contended = told
	switch {
	case !told:
		*t = turns{released: t.released}
		p.Freed()
		return true
	case p.rules.Fair || !t.open:
		return false
	}
	t.open = false
	pause := p.rules.RetryMost
	if p.MayHandOver() { // for no longer than if it had had all its turns: took has no bound
		pause = min(pause, tieLook*max(p.pace, took)+max(p.rules.RetryFirst, min(2*t.usual, leaveMost*p.rules.RetryFirst)))
	}
	t.until, t.left = now.Add(pause), now
	p.due = false
	p.leave(queued, now)
	return true
}

// Joined notes a caller that comes while nobody waits in the local queue. It tries at once,
// unless the lock is held by this Locker, or being left to others.
func (p *Plan) Joined(held, queued bool, now time.Time) {
	switch t := &p.turns; {
	case p.rules.Fair:
		p.Freed()
	case held:
		p.due = false
		p.act(now.Add(lookFirst), false)
	case t.open && (t.contended || !p.MayHandOver()):
		p.due = false
		p.act(now.Add(p.rules.RetryFirst), false)
	case now.Before(t.until):
		p.leave(queued, now)
	default:
		p.Freed()
	}
}

// leave has the head look when the others have had their time, or now if it has no entry in
// the nodes' queues yet: it would not be notified.
func (p *Plan) leave(queued bool, now time.Time) {
	if !queued {
		p.act(now, false)
		return
	}
	p.act(p.turns.until, false)
	p.glance = true
}
