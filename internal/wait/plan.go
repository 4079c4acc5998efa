// Package wait decides when a caller that waits for a contended key asks the nodes again.
//
// A Plan holds what is known of one key: how a round for it ended, who announced a release,
// since when announcements are heard. Its methods take an event and the time of it, and
// Next returns what to do then. The package has no goroutine, no clock and, apart from Gate,
// no mutex, sends nothing, and takes its randomness from Rules, so that every decision can be tested as a
// table. Package queue keeps the callers, and package redlock the timers and the lanes.
//
// A wake-up never grants the lock: it only says when to ask.
package wait

import (
	"cmp"
	"math/bits"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/wire"
)

const (
	// pollHeard is the longest pause between two looks at a held lock while a majority's
	// announcements are heard: it finds a release whose announcement was lost, and keeps
	// our entry in the nodes' queues. Halved, a wait costs a node some 39 commands a
	// minute instead of 24. Source: two of them fit into the life of an entry (package wire).
	pollHeard = 5 * time.Second

	// pollSpread: pollHeard is shortened by a random part of up to one pollSpread-th, so
	// that waiters that began together do not ask together. Halved, to 2, the shortest pause
	// is 2.5 s instead of 4, and a wait costs more commands.
	pollSpread = 5

	// tieLook is how many round trips the losers of a tie, and a waiter that is not told
	// first, leave to the one that goes first: one for the rollbacks, one for its try,
	// and as many again for the scheduler. Halved, a late goroutine is overtaken and the
	// tie is repeated.
	tieLook = 4

	// lookSpread is the longest random delay on top of tieLook round trips, so that waiters
	// in several processes do not ask at once. Halved, near nodes see more ties.
	lookSpread = time.Millisecond

	// lookFirst is how long a new head waits before it queues on the nodes for a lock
	// that its own Locker holds: a lock that is held for less is handed over before that.
	// Halved, more short critical sections each cost an entry in the queues.
	lookFirst = 5 * time.Millisecond

	// longestTook is the most that a round counts as in such pauses: the process may have stood
	// still in the midst of it, and pauses in multiples of that time beside a free lock. All of
	// them are shorter than pollHeard, of which a round of 250 ms, to a node at the other end of
	// the world, leaves half. Halved, far waiters that tie meet again more often; doubled, a
	// waiter that stood still finds a free lock up to two seconds later.
	longestTook = 250 * time.Millisecond

	// shortestTook is the least that a round counts as in pauses that are multiples of it:
	// in virtual time a round may take none. Halved, nothing breaks; at 0 there is no pause.
	shortestTook = time.Microsecond

	// fewFree is how many rounds that found the lock free, but another first, count at least
	// while announcements are heard: the pause after them is 80 ms by default. Halved, a
	// caller that comes back at once asks in vain before its next turn.
	fewFree = 4

	// turnSpread: wire.TurnEvery is shortened by a random part of up to one turnSpread-th.
	// Halved, refreshes are spread twice as wide, and a wait costs more commands.
	turnSpread = 8
)

// Rules are what holds for every key of a Locker.
type Rules struct {
	Need                  int                             // nodes that make a majority
	Fair                  bool                            // Options.Fair
	OwnRetry              bool                            // Options.Retry is set
	Retry                 func(attempt int) time.Duration // the default of Options.Retry
	RetryFirst, RetryMost time.Duration                   // its bounds
	Rand                  func() float64                  // random, in [0,1)
}

// Hears reports whether the nodes, as bits, are a majority.
func (r *Rules) Hears(nodes uint64) bool { return r.majority(nodes) }

func (r *Rules) majority(nodes uint64) bool { return bits.OnesCount64(nodes) >= r.Need }

// spread returns a random part of d.
func (r *Rules) spread(d time.Duration) time.Duration {
	return time.Duration(r.Rand() * float64(d))
}

// retryPause returns a pause between half of longest and longest.
func (r *Rules) retryPause(longest time.Duration) time.Duration {
	return longest - r.spread(longest/2)
}

// A Plan says when the head of the callers that wait for a key acts next. It is guarded
// by the mutex of whoever keeps it.
type Plan struct {
	rules *Rules

	// What to do next.
	due    bool      // the lock may be free: try at once
	at     time.Time // otherwise act then,
	try    bool      // by a try, or else by a look
	glance bool      // by one that need not keep our entry in the queues

	// What the last rounds showed.
	asked   time.Time     // when the last round that found the lock held began
	pace    time.Duration // how long the last try took
	foreign bool          // the holder may not announce its release
	holder  string        // whose value was met on a majority last; "": the last try met nobody's
	longest time.Duration // what Options.Retry returned last
	vain    bool          // the last look found neither held nor free, so a try follows
	unsure  bool          // no round that began after news has met a holder
	news    time.Time     // when a release was announced last, or came from this Locker

	turns turns // those of the Locker, in a row

	// What is heard. The lock may have been released unheard before subscribedSince.
	announced       announcements
	attempt         string    // the last attempt whose end was acted upon,
	attemptsFrom    time.Time // and when that of another may be
	subscribedBy    uint64    // the nodes whose announcements are heard, as bits
	subscribedSince time.Time // since when they are a majority; zero: they are not

	// Fair: the nodes' time, in µs, and the moment on the steady clock at which it was read.
	clock       int64
	clockReadAt time.Time
}

// NewPlan returns the plan for a key of which nothing is known.
func NewPlan(rules *Rules) Plan { return Plan{rules: rules} }

// An Act is what the head does next.
type Act uint8

const (
	Wait Act = iota + 1
	Look
	Glance // a look that need not keep our entry in the nodes' queues
	Try
)

// Next returns what the head does at now, and for Wait how long it pauses. A Try uses up
// what Freed noted.
func (p *Plan) Next(now time.Time) (Act, time.Duration) {
	pause := p.at.Sub(now)
	switch {
	case p.due || pause <= 0 && p.try:
		p.due = false
		return Try, 0
	case pause <= 0 && p.glance:
		return Glance, 0
	case pause <= 0:
		return Look, 0
	}
	return Wait, pause
}

// act has the head act at a time, by a try or a look.
func (p *Plan) act(at time.Time, try bool) { p.at, p.try, p.glance = at, try, false }

// Freed notes that the lock may be free, also where nobody waits yet: somebody may be about to.
func (p *Plan) Freed() { p.due = true }

// NotDue notes that the head need not try by itself now: it has, or gets, an attempt.
func (p *Plan) NotDue() { p.due = false }

// actBy has the head act no later than at, and reports whether that is earlier than before.
func (p *Plan) actBy(at time.Time) (wake bool) {
	if !at.Before(p.at) {
		return false
	}
	p.act(at, p.rules.Fair)
	return true
}

// Subscribed notes that announcements of a node are heard from now on, or no longer. It
// reports whether the head is to be woken.
func (p *Plan) Subscribed(node int, yes bool, now time.Time) (wake bool) {
	if yes {
		p.subscribedBy |= 1 << node
	} else {
		p.subscribedBy &^= 1 << node
	}
	switch most := p.rules.majority(p.subscribedBy); {
	case most && !p.Hears():
		// What was announced before went unheard: subscribe first, then look.
		p.subscribedSince = now
		return p.actBy(now)
	case !most && p.Hears():
		p.subscribedSince = time.Time{}
		return p.actBy(now.Add(p.rules.RetryFirst))
	}
	return false
}

// Hears reports whether the announcements of a majority are heard.
func (p *Plan) Hears() bool { return !p.subscribedSince.IsZero() }

// wasSubscribedAt reports whether a release after asked would have been heard. What was asked
// before the subscription says nothing of a release in between.
func (p *Plan) wasSubscribedAt(asked time.Time) bool {
	return p.Hears() && !p.subscribedSince.After(asked)
}

// Announced notes the text that a node announced. It reports whether a majority has announced
// that value by now, and whether the head is to be woken. mine is the value of the head's last
// attempt, whose end is no news to it.
//
// An attempt that was taken back has the head ask only once in a pause of Options.Retry, unless
// it is what refused the head's last try: two callers whose attempts may have had a majority, and
// whose replies are lost, would otherwise wake each other as fast as the nodes are reached.
func (p *Plan) Announced(node int, text, mine string, now time.Time) (told, wake bool) {
	a, ok := wire.ReadAnnouncement(text)
	if !ok || a.Value == mine && mine != "" {
		return false, false
	}
	how := p.announced.add(p.rules, node, a.Value, a.First)
	if how != notifiedNone {
		p.outdated(now)
	}
	if how != notifiedNone && a.Attempt && a.Value != p.holder && a.Value != p.attempt {
		if now.Before(p.attemptsFrom) {
			return how >= notifiedSecond, p.actBy(p.attemptsFrom)
		}
		p.attempt, p.attemptsFrom = a.Value, now.Add(cmp.Or(p.longest, p.rules.RetryMost))
	}
	value := a.Value
	if a.Attempt {
		value = "" // others have not had the lock
	}
	switch how {
	case notifiedFirst:
		if p.turns.heard(value, p.rules.Fair, now) {
			p.Freed()
			return true, true
		}
		return true, false
	case notifiedSecond:
		return true, p.turns.heard(value, p.rules.Fair, now) && p.AfterOthers(now)
	case notifiedSome:
		// Waiters that came at one instant may stand in a different order on each node. It may be
		// that no majority tells any of them, and then these are all that know of the
		// release. With Fair, tickets order every queue alike, but the entry of a waiter is
		// missing on nodes that granted its last try, if that failed on the others.
		return false, p.actBy(now.Add(2*tieLook*p.pace + p.rules.spread(2*lookSpread)))
	}
	return false, false
}

// Unsure reports whether a look is to read who holds the lock, since what is known may be outdated.
func (p *Plan) Unsure() bool { return p.unsure }

// outdated notes that the holder that was met last may hold the lock no more.
func (p *Plan) outdated(now time.Time) { p.unsure, p.news = true, now }

// met notes the holder that a round has shown, which began at start.
func (p *Plan) met(holder string, start time.Time) {
	p.holder, p.foreign = holder, !wire.IsOurs(holder)
	p.unsure = holder == "" || start.Before(p.news)
}

// AfterOthers has the head look once those that were told first have had time to try. It
// reports whether the head is to be woken.
func (p *Plan) AfterOthers(now time.Time) (wake bool) {
	wake = p.actBy(now.Add(tieLook*p.pace + p.rules.spread(lookSpread)))
	p.glance = p.glance || wake
	return wake
}

// Won notes a try that got the lock, which began at start, for the next head. That one takes
// an entry of its own in the nodes' queues, behind those who waited longer. Whatever was freed
// before is the lock that was acquired.
func (p *Plan) Won(start, now time.Time) {
	p.turns.had()
	p.due, p.asked, p.foreign = false, start, false
	p.unsure = false
	p.act(now.Add(lookFirst), false)
}

// A Lost is a try that did not get the lock.
type Lost struct {
	Start    time.Time     // when it began
	Took     time.Duration // until it was decided
	Held     bool          // the noes ruled a majority out; else too few nodes replied
	Holder   string        // the value that a majority has; "": none
	Votes    []Vote
	Mine     string        // the value that the try stored
	Longest  time.Duration // what Options.Retry returned
	Standing Standing      // Fair
}

// Lost plans what c, the head, does after a try that did not get the lock.
func (p *Plan) Lost(c *Caller, l *Lost, now time.Time) {
	took := min(max(l.Took, shortestTook), longestTook)
	p.asked, p.pace, p.longest = l.Start, took, l.Longest
	p.met(l.Holder, l.Start)
	tie := c.countTie(IsTie(l.Holder, l.Votes))
	switch {
	case p.rules.Fair:
		p.lostTurn(c, l, tie, now)
	case tie && winsTieBreak(l.Votes, l.Mine):
		// All who tied see the same votes, and only one of them goes on at once.
		p.act(now.Add(p.rules.spread(took)), true)
	case tie:
		p.act(now.Add(tieLook*took+p.rules.spread(took)), false)
	case !l.Held || c.ties > 0 || p.vain:
		// Also where looks are refused, because of the queue's type for example: tries and
		// looks would follow each other without a pause.
		p.vain = false
		p.act(now.Add(p.pause(l.Longest)), true)
	case p.Hears():
		// The look takes an entry, unless ours has been refreshed lately, and reads the ttl.
		p.act(now, false)
		p.glance = true
	default:
		p.act(now.Add(p.pause(l.Longest)), false)
	}
}

// A Looked is a look at the lock.
type Looked struct {
	Start      time.Time     // when it began
	Held, Free bool          // what a majority says; neither: too few replied
	FreeIn     time.Duration // where it is held: see FreeIn
	Holder     string        // the value that a majority has; "": none, or it was not read
	Longest    time.Duration // what Options.Retry returned
	Standing   Standing      // in the nodes' queues
}

// Looked plans what the head does after a look.
func (p *Plan) Looked(l *Looked, now time.Time) {
	p.vain, p.longest = !l.Held && !l.Free, l.Longest
	switch s := l.Standing; {
	case !l.Held && now.Before(p.turns.until): // those that were notified of our release have not tried yet
		p.act(p.turns.until, false)
	case l.Held:
		p.asked = l.Start
		if l.Holder != "" {
			p.met(l.Holder, l.Start)
		}
		p.poll(l.Longest, l.Start.Add(l.FreeIn), now)
		// A ttl does not tell a holder from attempts that have no majority, whose end nobody announces.
		if p.unsure && !p.rules.OwnRetry {
			if at := now.Add(p.rules.retryPause(p.rules.RetryMost)); at.Before(p.at) {
				p.act(at, true)
			}
		}
	case s.Answered && s.Before > 0: // the waiters before us were told first
		p.act(now.Add(min(time.Duration(s.Before)*(tieLook*p.pace+lookSpread), p.rules.RetryMost)), true)
	default: // it is free, or a try tells why it cannot be acquired
		p.turns.inVain()
		p.act(time.Time{}, true)
	}
}

// pause returns a pause of Options.Retry. While announcements are heard, it is no longer than the
// poll: whoever asks less often loses the entry in the queues, and is not told.
func (p *Plan) pause(longest time.Duration) time.Duration {
	pause := p.rules.retryPause(longest)
	if p.Hears() {
		pause = min(pause, p.pollPause())
	}
	return pause
}

func (p *Plan) pollPause() time.Duration { return pollHeard - p.rules.spread(pollHeard/pollSpread) }

// poll sets when the head looks again at a held lock: when its ttl has passed, at
// expiry, and no later than after the pause that is the safety net under the announcements.
func (p *Plan) poll(longest time.Duration, expiry, now time.Time) {
	pause := p.pause(longest)
	if p.wasSubscribedAt(p.asked) && !p.rules.OwnRetry && !p.foreign {
		pause = p.pollPause()
	}
	p.act(now.Add(pause), p.rules.Fair)
	if expiry.Before(p.at) {
		p.at = expiry
	}
}
