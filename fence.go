package redlock

import (
	"context"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/clock"
	"github.com/seed-ce352c9b/redlock/internal/fence"
	"github.com/seed-ce352c9b/redlock/internal/lane"
	"github.com/seed-ce352c9b/redlock/internal/quorum"
	"github.com/seed-ce352c9b/redlock/internal/wire"
)

// Fencing tokens. Each node keeps a register per key, a maximum that only grows, unless an
// operator mends one that somebody else has written (docs/operations.md).
// An acquisition proposes one number P to all nodes. A node counts if it stores our
// value and if, by the same question, its register moved from below P to P. If a
// majority of the nodes counts, P is the token.
//
// Why tokens grow (I2), without any clock: before acquisition A returns, the registers
// of a majority are at A's token or above, and they only grow. An acquisition that
// begins later needs a majority of registers that were *below* its own token when they
// moved to it. Two majorities share a node, so the later token is greater. For two equal
// tokens one register would have to move to the same number twice. Failed attempts only
// raise registers.
//
// What breaks without a rule: counting a register that was already at the token gives
// one token to two holders; counting value and register on different nodes, or raising
// where the value is not ours, may give a smaller token than the holder before; not
// measuring the validity after the raise returns expired locks. (Each was found by
// visiting all states of two attempts on three nodes.)

const (
	// maxRaises is how many rounds may raise the token. If the first fails, it shows how
	// high the registers are, and the second goes above them. If a contender comes between
	// the two, the attempt fails, and the next one begins with the registers seen. With one,
	// the first failed raise would cost a whole attempt.
	maxRaises = 2
)

const tokensUsedUp = "fencing tokens exhausted: the registers reached 2^53; while nobody uses the key, delete {K}:fence on every node, and the greatest fence in your store"

// propose returns the token that an attempt proposes; 0: none, since the lock is wanted without a
// fence. It returns false if no greater token is possible.
func propose(name *wire.LockKey, start clock.Instant, seen int64) (token int64, ok bool) {
	if !name.Fenced {
		return 0, true
	}
	token = fence.Propose(start.Wall, seen)
	return token, token != 0
}

// raise agrees on a token above the registers of all nodes that store our value. It is
// needed if another client's clock was ahead of the proposal. It leaves the last quorum
// call in e.tail, also with an error: later questions follow it.
func (l *Locker) raise(ctx context.Context, e *acquireCall, b *quorum.Call) (token int64, err error) {
	for range maxRaises {
		token = fence.Raise(e.seen, l.now().Since(b.Start))
		if token == 0 {
			e.permanent = true
			return 0, l.notAcquired(e, e.tail, ErrNoQuorum, tokensUsedUp)
		}
		r := l.newQuorumCall(OpRaise, b.Name, wire.RaiseQuestion(b.Name, b.Question.Value, b.Question.TTL, token), l.now(), raiseDecided)
		prev := e.tail
		e.tail = r
		r.Send(prev)
		if err := l.await(ctx, e, r); err != nil {
			return 0, err
		}
		t, hard, score := r.Result()
		e.permanent = inVain(t, hard)
		l.observe(ctx, r, e)
		e.seen = max(e.seen, score, token)
		if raised(t) == won {
			return token, nil
		}
	}
	reason := ErrNoQuorum
	if t, _, _ := e.tail.Result(); refused(t) {
		reason = ErrHeld
	}
	return 0, l.notAcquired(e, e.tail, reason, "no majority agreed on a fencing token")
}

// raised is the verdict on a raise. It counts only registers that moved to the token.
func raised(t quorum.Tally) verdict {
	return decide(t.N, t.Fenced, t.Yes-t.Fenced+t.No+t.Missing+t.Unknown)
}

func raiseDecided(t quorum.Tally) bool { return raised(t) != pending }

// raiseAgain returns how often the extensions of a lock raise its registers, which gives them a
// ttl as well: half an hour, if they live for a day. Where no node lost the value, the others leave
// the registers alone, which costs a node half as much. Doubled, a register might expire 23 hours
// after an extension, in place of 23 and a half.
func (k *Lock) raiseAgain() time.Duration { return k.name.Life.Slack() / 2 }

// raisedRegisters returns the nodes whose register an extension that begins now need not
// raise. Needs k.mu.
func (k *Lock) raisedRegisters(now clock.Instant) lane.Nodes {
	if k.registersAt == (clock.Instant{}) || now.Since(k.registersAt) >= k.raiseAgain() {
		k.registers, k.registersAt = 0, now
	}
	return k.registers
}

// noteRegisters records what a finished extension says of the registers. One that ends late
// may be noted after the next: it does not make up for what that one has found. Needs k.mu.
func (k *Lock) noteRegisters(b *quorum.Call) {
	if b.Question.Kind != wire.AskExtend {
		return
	}
	raised, doubt := b.Confirmed()
	if doubt != 0 && b.Start.At.After(k.registersDoubted) {
		k.registersDoubted = b.Start.At
	}
	if !b.Start.At.Before(k.registersDoubted) && !b.Start.At.Before(k.registersAt.At) {
		k.registers |= raised
	}
	k.registers &^= doubt
}
