package wire

import (
	"strconv"
	"strings"
	"time"
)

// This file has the questions about the queue of waiters on the nodes.

const (
	// TurnLife is how long an entry of the queue counts without a refresh if the queue
	// decides who is next. A waiter that died delays the others for that time.
	TurnLife = 2 * time.Second

	// TurnEvery is the longest pause between refreshes in that case: two fit into TurnLife,
	// and the rest is for the network. With a shorter pause a wait of ten seconds costs
	// more than 25 commands to a node.
	TurnEvery = 800 * time.Millisecond

	// entryLife is how long an entry counts otherwise: two refreshes, at the pause of a
	// subscribed waiter's polls. A waiter whose connection is gone is skipped at once.
	entryLife = 12 * time.Second

	// queueLife is the ttl of the queue itself, so that unused names leave nothing behind.
	queueLife = 15 * time.Second

	// NotifyCount is the number of waiters to which a release is announced. The first tries
	// at once; the second looks a moment later, in case the first is not alive. With one,
	// it could happen that no waiter is notified by a majority: while an entry moves, the
	// queues of the nodes differ.
	NotifyCount = 2
)

// Tell says which waiters are notified by a release: TellAttempt, TellHanded, or a number of them.
type Tell int

const (
	// TellAttempt takes back an attempt that may have had a majority, and notifies NotifyCount
	// waiters that nobody is known to have held the lock (Announcement.Attempt).
	TellAttempt Tell = -1 - iota

	// TellHanded takes back an attempt to which a release has handed the lock on in silence. It
	// notifies as TellAttempt does, also where the attempt had not stored anything.
	TellHanded
)

func (t Tell) arg() any {
	switch t {
	case TellAttempt:
		return "attempt"
	case TellHanded:
		return "handed"
	}
	return int(t)
}

// A Notice says to whom a release is announced, and what happens to the entry that the
// Locker has in the queue itself.
type Notice struct {
	Tell    Tell   // the waiters
	Place   string // our entry; "": we have none
	Stay    bool   // it goes to the end of the queue if others were notified; otherwise it is removed
	Ticket  int64  // not 0: it is queued with this ticket instead, before waiters are notified, if the queue decides who is next
	Prolong bool   // with Stay: the queue's own ttl begins anew, as it always does with a ticket
}

// An Announcement is what a node publishes to a waiter in the step that frees a lock.
type Announcement struct {
	First   bool   // the waiter is the first that the node tells
	Attempt bool   // nobody is known to have held the lock: an attempt was taken back
	Value   string // that was deleted, or one made for this occasion
}

// ReadAnnouncement reads the text of an announcement: the number of the waiter, with a question
// mark behind it for an attempt, a space, and the value.
func ReadAnnouncement(text string) (a Announcement, ok bool) {
	nth, value, ok := strings.Cut(text, " ")
	nth, attempt := strings.CutSuffix(nth, "?")
	return Announcement{First: nth == "1", Attempt: attempt, Value: value}, ok
}

// ToAll is the Notice of a release that notifies the first waiters, by a Locker that has no
// entry in the nodes' queues.
var ToAll = Notice{Tell: NotifyCount}

// Attempted is the Notice of an attempt that may have had a majority and is taken back, and Handed
// that of one that was handed over.
var (
	Attempted = Notice{Tell: TellAttempt}
	Handed    = Notice{Tell: TellHanded}
)

// TurnQuestion is AcquireQuestion with respect for the queue: it grants only if no other entry is
// before ours. If ticket is 0, it does not enter the queue; place may be there already.
//
// The queue's own ttl begins anew if prolong is set, and where it had no entry that counts.
func TurnQuestion(g *Guard, name *LockKey, value string, ttl time.Duration, proposal int64, place string, ticket int64, prolong bool) Question {
	q := Question{Kind: AskTurn, Value: value, TTL: ttl, Token: proposal}
	t, more := "", ""
	if ticket != 0 {
		t = strconv.FormatInt(ticket, 10)
	}
	if prolong {
		more = "1"
	}
	q.evalGrant(g, turnScript, name.withQueue(),
		value, CeilMillis(ttl), tokenArg(proposal), place, t, TurnLife.Milliseconds(), queueLife.Milliseconds(), name.args.channel, more)
	return q
}

// WaitQuestion enters place into the queue, or refreshes it. If behind is set, the entry
// moves to the end of the queue if it is there already.
func WaitQuestion(name *LockKey, place string, behind bool) Question {
	q := Question{Kind: AskWait}
	t := ""
	if behind {
		t = "new"
	}
	q.evalOn(waitScript, []any{name.args.full, name.args.queue}, place, t, entryLife.Milliseconds(), queueLife.Milliseconds())
	return q
}

// LeaveQuestion removes place from the queue and, if the lock is free, announces value to the
// first waiters. value must be new each time, because waiters act once per value.
func LeaveQuestion(name *LockKey, place, value string, tell int) Question {
	q := Question{Kind: AskLeave}
	q.evalOn(leaveScript, []any{name.args.full, name.args.queue}, place, name.args.channel, tell, value)
	return q
}

// LeaderChannel returns the channel on which leaders tell those who watch a key. No entry of
// a queue has it, since their names end with a uuid.
func LeaderChannel(name *LockKey) string { return name.Channel + ":leader" }

// AnnounceQuestion publishes on the channel of those who watch.
func AnnounceQuestion(name *LockKey) Question {
	q := Question{Kind: askAnnounce}
	q.add("publish", LeaderChannel(name), "")
	return q
}
