package redlock

import (
	"context"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/clock"
	"github.com/seed-ce352c9b/redlock/internal/lane"
	"github.com/seed-ce352c9b/redlock/internal/quorum"
	"github.com/seed-ce352c9b/redlock/internal/wire"
)

// Fencing tokens. Each node keeps a register per key, a maximum that only grows.
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
	// clockTrust is the greatest wall clock that proposals follow, in µs since 1970 (the
	// year 2112). A clock beyond it must not use up the numbers below 2^53.
	clockTrust = 1 << 52

	// maxRaises is how many rounds may raise the token. If the first fails, it shows how
	// high the registers are, and the second goes above them. If a contender comes between
	// the two, the attempt fails, and the next one begins with the registers seen.
	maxRaises = 2

	// raiseHeadroom is how far a raised token is at least above the registers, in µs, so
	// that contenders' proposals do not overtake it meanwhile.
	raiseHeadroom = 1000

	// raisePart: a raise uses up at most 1/raisePart of the numbers left below 2^53, or
	// one number, however long its round took. Halved, the numbers last half as long for
	// registers near the end. A round of a second is limited once
	// fewer than 2^31 numbers are left.
	raisePart = 1024

	// aheadRoom is how many numbers are left below 2^53 when registers are no longer
	// remembered as ahead. The error there says to delete them: a Locker that remembered
	// them would keep failing, or put them back.
	aheadRoom = 1 << 20
)

// maxRegistersAhead bounds the keys whose registers are remembered as ahead of our clock.
const maxRegistersAhead = 4096

// registerAhead returns the register of a key if it was last seen ahead of our clock, else
// 0. Without it every acquisition of such a lock would need a raise, and the headroom of
// each raise would move the registers farther ahead of all clocks.
func (l *Locker) registerAhead(name *wire.LockKey) int64 {
	if l.numAhead.Load() == 0 {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.registersAhead[name.Full]
}

// noteRegisterAhead records the token of an acquisition for registerAhead. It is only a
// hint for the next proposal.
func (l *Locker) noteRegisterAhead(name *wire.LockKey, start clock.Instant, token int64) {
	if ahead := token > start.Wall; !ahead && l.numAhead.Load() == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case token <= start.Wall || token > wire.MaxToken-aheadRoom:
		delete(l.registersAhead, name.Full)
	case l.registersAhead == nil || len(l.registersAhead) >= maxRegistersAhead:
		l.registersAhead = map[string]int64{name.Full: token}
	default:
		l.registersAhead[name.Full] = token
	}
	l.numAhead.Store(int32(len(l.registersAhead)))
}

const tokensUsedUp = "fencing tokens exhausted: the registers reached 2^53; while nobody uses the key, delete {K}:fence on every node, and the greatest fence in your store"

// propose returns the token to propose: the time, which is greater than most earlier
// proposals without a question, or one above the highest register seen. It returns 0 if
// there is no such number below 2^53-1.
func propose(start clock.Instant, seen int64) int64 {
	now := start.Wall
	if now < 0 || now > clockTrust {
		now = 0
	}
	if p := max(now, seen+1); p < wire.MaxToken {
		return p
	}
	return 0
}

// raise agrees on a token above the registers of all nodes that store our value. It is
// needed if another client's clock was ahead of the proposal. It leaves the last quorum
// call in e.tail, also with an error: later questions follow it.
func (l *Locker) raise(ctx context.Context, e *acquireCall, b *quorum.Call) (token int64, err error) {
	for range maxRaises {
		token = raisedAbove(e.seen, l.now().Since(b.Start))
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
		e.permanent = t.N-hard < t.Need()
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

// raisedAbove returns the token to which registers at seen are raised if a round takes this
// long, or 0 if there is no such number below 2^53-1.
func raisedAbove(seen int64, took time.Duration) int64 {
	room := wire.MaxToken - 1 - seen
	if room <= 0 {
		return 0
	}
	headroom := max(raiseHeadroom, 2*int64(took/time.Microsecond))
	return seen + min(headroom, max(room/raisePart, 1))
}

// raised is the verdict on a raise. It counts only registers that moved to the token.
func raised(t quorum.Tally) verdict {
	return decide(t.N, t.Fenced, t.Yes-t.Fenced+t.No+t.Missing+t.Unknown)
}

func raiseDecided(t quorum.Tally) bool { return raised(t) != pending }

// raiseAgain is how often the extensions of a lock raise its registers, which gives them a ttl
// as well. Where no node lost the value, the others leave the registers alone, which costs a
// node half as much. Doubled, a register might expire 23 hours after an extension, in place of
// 23 and a half.
const raiseAgain = 30 * time.Minute

// raisedRegisters returns the nodes whose register an extension that begins now need not
// raise. Needs k.mu.
func (k *Lock) raisedRegisters(now clock.Instant) lane.Nodes {
	if k.registersAt == (clock.Instant{}) || now.Since(k.registersAt) >= raiseAgain {
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
