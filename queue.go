package redlock

import (
	"strconv"
	"time"
)

// The questions about the queue of waiters on the nodes.

const (
	// turnLife is how long a place counts that is not refreshed, where it decides on
	// turns: so long a waiter that died holds the others up.
	turnLife = 2 * time.Second

	// turnEvery is the longest pause between refreshes then: two fit into turnLife, and
	// what is left is for the way. Shorter, a wait of ten seconds costs more than 25
	// commands to a node.
	turnEvery = 800 * time.Millisecond

	// placeLife is how long a place counts otherwise: two refreshes, at pollHeard. One
	// whose connection is gone is passed over at once.
	placeLife = 12 * time.Second

	// queueLife is the ttl of a queue, so that unused names leave nothing behind.
	queueLife = 15 * time.Second

	// tellWaiters is to how many a release is announced: the first tries at once, the
	// second looks a moment later, in case that the first is not well. With one, nobody
	// may be told by a majority: while a place moves, the nodes' queues differ by it.
	tellWaiters = 2
)

// turnQuestion is an acquire that minds the queue. ticket 0: it does not queue, and may
// only stand there as place.
func turnQuestion(g *guard, name *lockKey, value string, ttl time.Duration, proposal int64, place string, ticket int64) question {
	q := question{kind: askTurn, value: value, ttl: ttl}
	t := ""
	if ticket != 0 {
		t = strconv.FormatInt(ticket, 10)
	}
	q.evalGrant(g, turnScript, name.withQueue(),
		value, px(ttl), proposal, place, t, turnLife.Milliseconds(), queueLife.Milliseconds(), name.args.channel)
	return q
}

// waitQuestion queues a place, or refreshes it; behind: at the end of the queue, also
// if it has one before.
func waitQuestion(name *lockKey, place string, behind bool) question {
	q := question{kind: askWait}
	t := ""
	if behind {
		t = "new"
	}
	q.evalOn(waitScript, []any{name.args.full, name.args.queue, name.args.lapse}, place, t, placeLife.Milliseconds(), queueLife.Milliseconds())
	return q
}

// leaveQuestion takes a place off the queue. value is what is announced where the lock
// is free: a new one every time, for who hears it acts once for each.
func leaveQuestion(name *lockKey, place, value string, tell int) question {
	q := question{kind: askLeave}
	q.evalOn(leaveScript, []any{name.args.full, name.args.queue, name.args.lapse}, place, name.args.channel, tell, value)
	return q
}
