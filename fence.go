package redlock

import (
	"context"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/wire"
)

// Fencing tokens. Each node keeps a register per lock, a maximum that only grows.
// An acquisition proposes one number P to all nodes; a node counts if the value is
// ours there and, by the same delivery, the register moved from below P to P. With
// a majority of such nodes P is the token.
//
// Why tokens grow (I2), with no clock in the argument: before A returns, the
// registers of a majority stand at A's token or above, and they only grow. Whoever
// begins later needs a majority of registers that were *below* its own token when
// they moved to it. Two majorities share a node; so its token is greater. Two equal
// tokens would need one register to move to the same number twice. Failed attempts
// only raise registers.
//
// What breaks if a rule is dropped: counting a register that already stood at the
// token gives one token to two holders; counting value and register on different
// nodes, or raising where the value is not ours, lets a token fall behind that of
// the claim before it; not measuring the validity after the raise hands out expired
// locks. (Each was found by visiting all states of two attempts on three nodes.)

const (
	// clockTrust is the greatest wall clock, in µs since 1970 (the year 2112), that
	// proposals follow: a clock beyond it must not use up the numbers below 2^53.
	clockTrust = 1 << 52

	// maxRaises is how many rounds may raise the token: the first tells how high
	// the registers are if it fails, the second is above them. A contender between
	// the two costs the attempt, which is made again with what was learned.
	maxRaises = 2

	// raiseHeadroom is the least by which a raised token is above the registers, in
	// µs, so that contenders' proposals do not overtake it meanwhile.
	raiseHeadroom = 1000

	// raisePart: a raise takes at most this part of the numbers that are left below
	// 2^53, or one, however long its round took. Halved, they last half as long where
	// registers are near the end; a round of a second is limited from 2^31 numbers on.
	raisePart = 1024

	// leadRoom is how many numbers are left below 2^53 where registers are no longer
	// remembered as ahead. Who is refused there is told to remove them: a Locker that
	// remembered them would refuse in turn, or put them back.
	aheadRoom = 1 << 20
)

// maxLeads bounds the keys whose registers are remembered as ahead of our clock.
const maxRegistersAhead = 4096

// registerAhead is how far a key's registers were seen ahead of our clock; 0: not. Without it
// every acquisition of a lock that was once ahead would need the raise, and each
// raise, with its headroom, would carry the registers farther from all clocks.
func (l *Locker) registerAhead(name *wire.LockKey) int64 {
	if l.numAhead.Load() == 0 {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.registersAhead[name.Full]
}

// noteRegisterAhead keeps what an acquisition learned for the next one. It is a hint: a proposal
// above it can always be made.
func (l *Locker) noteRegisterAhead(name *wire.LockKey, start instant, token int64) {
	if ahead := token > start.wall; !ahead && l.numAhead.Load() == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case token <= start.wall || token > wire.MaxToken-aheadRoom:
		delete(l.registersAhead, name.Full)
	case l.registersAhead == nil || len(l.registersAhead) >= maxRegistersAhead:
		l.registersAhead = map[string]int64{name.Full: token}
	default:
		l.registersAhead[name.Full] = token
	}
	l.numAhead.Store(int32(len(l.registersAhead)))
}

const tokensUsedUp = "the fence registers are at 2^53, no greater token can be made: remove them"

// propose is the token to propose: the time, which makes most proposals greater
// than those before without asking, or one above the highest register seen. 0: there
// is no such number below 2^53-1.
func propose(start instant, seen int64) int64 {
	now := start.wall
	if now < 0 || now > clockTrust {
		now = 0
	}
	if p := max(now, seen+1); p < wire.MaxToken {
		return p
	}
	return 0
}

// raise agrees on a token above all registers of the nodes that are ours, where
// another client's clock was ahead of the proposal. e.tail is then the last quorum call,
// which what comes after has to wait for, also with an error.
func (l *Locker) raise(ctx context.Context, e *acquireCall, b *quorumCall) (token int64, err error) {
	for range maxRaises {
		token = raisedAbove(e.seen, l.now().since(b.start))
		if token == 0 {
			e.permanent = true
			return 0, l.notAcquired(e, e.tail, ErrNoQuorum, tokensUsedUp)
		}
		r := l.newQuorumCall(OpRaise, b.name, wire.RaiseQuestion(b.name, b.q.Value, b.q.TTL, token), l.now(), raiseDecided)
		r.q.Patience = b.q.Patience
		prev := e.tail
		e.tail = r
		r.send(prev)
		if err := l.await(ctx, e, r); err != nil {
			return 0, err
		}
		t, hard, score := r.result()
		e.permanent = t.n-hard < t.need()
		l.observe(r, e)
		e.seen = max(e.seen, score, token)
		if raised(t) == won {
			return token, nil
		}
	}
	reason := ErrNoQuorum
	if t, _, _ := e.tail.result(); t.refused() {
		reason = ErrHeld
	}
	return 0, l.notAcquired(e, e.tail, reason, "no majority agreed on a fencing token")
}

// raisedAbove is the token to raise registers to that stand at seen, where a round takes
// this long. 0: there is no such number below 2^53-1.
func raisedAbove(seen int64, took time.Duration) int64 {
	room := wire.MaxToken - 1 - seen
	if room <= 0 {
		return 0
	}
	headroom := max(raiseHeadroom, 2*int64(took/time.Microsecond))
	return seen + min(headroom, max(room/raisePart, 1))
}

// raised counts only registers that moved to the token.
func raised(t tally) verdict {
	return decide(t.n, t.fenced, t.yes-t.fenced+t.no+t.missing+t.unknown)
}

func raiseDecided(t tally) bool { return raised(t) != pending }
