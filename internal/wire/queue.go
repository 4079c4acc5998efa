package wire

import (
	"strconv"
	"time"
)

// The questions about the queue of waiters on the nodes.

const (
	// turnLife is how long a place counts that is not refreshed, where it decides on
	// turns: so long a waiter that died holds the others up.
	TurnLife = 2 * time.Second

	// turnEvery is the longest pause between refreshes then: two fit into turnLife, and
	// what is left is for the way. Shorter, a wait of ten seconds costs more than 25
	// commands to a node.
	TurnEvery = 800 * time.Millisecond

	// placeLife is how long a place counts otherwise: two refreshes, at pollHeard. One
	// whose connection is gone is passed over at once.
	entryLife = 12 * time.Second

	// queueLife is the ttl of a queue, so that unused names leave nothing behind.
	queueLife = 15 * time.Second

	// tellWaiters is to how many a release is announced: the first tries at once, the
	// second looks a moment later, in case that the first is not well. With one, nobody
	// may be told by a majority: while a place moves, the nodes' queues differ by it.
	NotifyCount = 2
)

// TurnQuestion is an acquire that minds the queue. ticket 0: it does not queue, and may
// only stand there as place.
func TurnQuestion(g *Guard, name *LockKey, value string, ttl time.Duration, proposal int64, place string, ticket int64) Question {
	q := Question{Kind: AskTurn, Value: value, TTL: ttl}
	t := ""
	if ticket != 0 {
		t = strconv.FormatInt(ticket, 10)
	}
	q.evalGrant(g, turnScript, name.withQueue(),
		value, CeilMillis(ttl), proposal, place, t, TurnLife.Milliseconds(), queueLife.Milliseconds(), name.args.channel)
	return q
}

// WaitQuestion queues a place, or refreshes it; behind: at the end of the queue, also
// if it has one before.
func WaitQuestion(name *LockKey, place string, behind bool) Question {
	q := Question{Kind: AskWait}
	t := ""
	if behind {
		t = "new"
	}
	q.evalOn(waitScript, []any{name.args.full, name.args.queue, name.args.expiry}, place, t, entryLife.Milliseconds(), queueLife.Milliseconds())
	return q
}

// LeaveQuestion takes a place off the queue. value is what is announced where the lock
// is free: a new one every time, for who hears it acts once for each.
func LeaveQuestion(name *LockKey, place, value string, tell int) Question {
	q := Question{Kind: AskLeave}
	q.evalOn(leaveScript, []any{name.args.full, name.args.queue, name.args.expiry}, place, name.args.channel, tell, value)
	return q
}
