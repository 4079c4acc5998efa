package wait

import (
	"testing"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/wire"
)

func reply(answer wire.Answer, ttl int64, before int, clock int64) Reply {
	return Reply{Reply: wire.Reply{Answer: answer, TTL: ttl, Before: before, Clock: clock}, Took: 2 * ms}
}

// another is the reply of a node on which it is another's turn, whose entry has ttl left.
func another(ttl int64, before int, clock int64) Reply {
	r := reply(wire.No, ttl, before, clock)
	r.Err = new(wire.NodeError)
	return r
}

func TestNewStanding(t *testing.T) {
	for _, c := range []struct {
		name    string
		replies []Reply
		want    Standing
	}{
		{"nobody replied", make([]Reply, 3), Standing{}},
		{"a minority", []Reply{reply(wire.No, 9, 1, 5000), {}, {}}, Standing{}},
		{"no queue", []Reply{reply(wire.No, 9, 1, 0), reply(wire.No, 9, 1, 0), reply(wire.No, 9, 1, 0)}, Standing{}},
		{"held", []Reply{reply(wire.No, 9, 1, 5000), reply(wire.No, 19, 2, 5002), {}}, Standing{Answered: true, FreeIn: 10 * ms, Before: 2, Clock: 4002}},
		{"held by all", []Reply{reply(wire.No, 29, 0, 5000), reply(wire.No, 19, 2, 7000), reply(wire.No, 9, 1, 6000)}, Standing{Answered: true, FreeIn: 20 * ms, Before: 1, Clock: 5000}},
		{"its turn on one node", []Reply{reply(wire.Yes, 0, 0, 0), reply(wire.No, 9, 1, 5000), {}}, Standing{Answered: true, Before: 1}},
		{"its turn on two, which tell no time", []Reply{reply(wire.Yes, 0, 0, 0), reply(wire.Yes, 0, 0, 0), {}}, Standing{}},
		{"another's turn", []Reply{another(29, 1, 5000), another(9, 1, 5000), reply(wire.Yes, 0, 0, 5000)}, Standing{Answered: true, First: 10 * ms, Before: 1, Clock: 4000}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.want.Start, c.want.Took = epoch, ms
			if got := NewStanding(2, c.replies, epoch, ms); got != c.want {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
		})
	}
}

func TestFreeIn(t *testing.T) {
	for _, c := range []struct {
		name    string
		replies []Reply
		want    time.Duration
	}{
		{"the second of three", []Reply{reply(wire.No, 29, 0, 0), reply(wire.No, 9, 0, 0), reply(wire.No, 19, 0, 0)}, 20 * ms},
		{"one is free", []Reply{reply(wire.No, 29, 0, 0), reply(wire.Yes, 0, 0, 0), reply(wire.No, 19, 0, 0)}, 20 * ms},
		{"one has not replied", []Reply{reply(wire.No, 29, 0, 0), {}, reply(wire.No, 19, 0, 0)}, 20 * ms},
		{"two are free", []Reply{reply(wire.No, 29, 0, 0), {}, {}}, 0},
		{"without a ttl", []Reply{reply(wire.No, -1, 0, 0), reply(wire.No, -1, 0, 0), {}}, wire.MaxTTL},
	} {
		if got := FreeIn(2, c.replies); got != c.want {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}

func TestPlace(t *testing.T) {
	for _, c := range []struct {
		name   string
		caller Caller
		queued bool
		ticket int64
	}{
		{"TryAcquire", Caller{}, false, 0},
		{"before it has a ticket", Caller{came: epoch, answered: true}, false, 0},
		{"the last round was not answered", Caller{came: epoch, ticket: 7, queued: true}, true, 0},
		{"nor one that queued it", Caller{came: epoch, ticket: 7}, false, 0},
		{"answered", Caller{came: epoch, ticket: 7, answered: true}, true, 7},
	} {
		if queued, ticket := c.caller.Place(); queued != c.queued || ticket != c.ticket {
			t.Errorf("%s: got %v, %d; want %v, %d", c.name, queued, ticket, c.queued, c.ticket)
		}
	}
}

func TestATicketIsTheNodesTimeOfTheArrival(t *testing.T) {
	p, c := heard(fairRules()), NewCaller(epoch.Add(-3*ms))
	p.Lost(&c, &Lost{Start: epoch, Took: ms, Held: true, Longest: 100 * ms, Standing: Standing{Answered: true, Clock: 5_000_000, Start: epoch}}, epoch)
	if c.ticket != 4_997_000 {
		t.Errorf("got the ticket %d, want 3 ms before 5,000,000 µs", c.ticket)
	}
	expect(t, p, epoch, Try, 0) // with the ticket, at once
	p.Lost(&c, &Lost{Start: epoch, Took: ms, Held: true, Longest: 100 * ms, Standing: Standing{Answered: true, Clock: 9_000_000, Start: epoch}}, epoch)
	if c.ticket != 4_997_000 {
		t.Errorf("the ticket changed to %d", c.ticket)
	}
}

func TestLostTurn(t *testing.T) {
	tied := []Vote{{Yes: true}, {Holder: "b"}, {Holder: "c"}}
	refresh := wire.TurnEvery - wire.TurnEvery/turnSpread/2
	for _, c := range []struct {
		name     string
		standing Standing
		votes    []Vote
		unheard  bool
		ownRetry bool
		free     int
		pause    time.Duration
		then     int // free after that
	}{
		{"too few replied", Standing{}, nil, false, false, 3, 75 * ms, 3},
		{"held for long", Standing{Answered: true, FreeIn: time.Hour}, nil, false, false, 3, refresh, 0},
		{"held for long, unheard", Standing{Answered: true, FreeIn: time.Hour}, nil, true, false, 3, 75 * ms, 0},
		{"held for long, with a Retry", Standing{Answered: true, FreeIn: time.Hour}, nil, false, true, 3, 75 * ms, 0},
		{"held for a moment", Standing{Answered: true, FreeIn: 5 * ms}, nil, false, false, 3, 5 * ms, 0},
		{"a tie", Standing{Answered: true, Took: 2 * ms}, tied, false, false, 3, 9 * ms, 3},
		{"another's turn", Standing{Answered: true, First: time.Second}, nil, false, false, 3, 40 * ms, 4},
		{"another's, who is gone soon", Standing{Answered: true, First: ms}, nil, false, false, 3, ms, 4},
		{"nobody's", Standing{Answered: true}, nil, false, false, 0, 10 * ms, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := fairRules()
			r.OwnRetry = c.ownRetry
			p := heard(r)
			if c.unheard {
				p.subscribedSince = epoch.Add(1)
			}
			caller := Caller{came: epoch, ticket: 7, answered: true, free: c.free}
			p.Lost(&caller, &Lost{Start: epoch, Took: ms, Held: true, Votes: c.votes, Longest: 100 * ms, Standing: c.standing}, epoch)
			if p.at.Sub(epoch) != c.pause || !p.try {
				t.Errorf("got a pause of %v (try: %v), want %v", p.at.Sub(epoch), p.try, c.pause)
			}
			if caller.free != c.then || caller.answered != c.standing.Answered || caller.ticket != 7 {
				t.Errorf("got %+v, want free %d", caller, c.then)
			}
		})
	}
}

func TestSucceed(t *testing.T) {
	for _, c := range []struct {
		name    string
		ticket  int64
		later   time.Duration // since the nodes' time was learned
		won     bool          // the head before it has got the lock
		unheard bool
		retry   bool // Options.Retry is set
		want    int64
		pause   time.Duration
	}{
		{"the time was just learned", 0, ms, false, false, false, 5_000_000, 0},
		{"it was learned long ago", 0, wire.TurnLife, false, false, false, 0, 0},
		{"it has a ticket", 7, ms, false, false, false, 7, 0},
		{"the release may queue it", 0, ms, true, false, false, 5_000_000, lookFirst + lookFirst/2},
		{"it has no ticket to be queued with", 0, wire.TurnLife, true, false, false, 0, 0},
		{"Options.Retry says when it asks", 0, ms, true, false, true, 5_000_000, 0},
		{"it would not be heard", 0, ms, true, true, false, 5_000_000, 0},
	} {
		p, caller := heard(fairRules()), NewCaller(epoch)
		p.rules.OwnRetry = c.retry
		if c.unheard {
			p.subscribedSince = time.Time{}
		}
		caller.ticket = c.ticket
		p.Learn(Standing{Answered: true, Clock: 5_000_000, Start: epoch})
		p.Learn(Standing{Clock: 1}) // not answered
		p.Succeed(&caller, c.won, epoch, epoch.Add(c.later))
		if caller.ticket != c.want || caller.answered != (c.ticket != c.want) {
			t.Errorf("%s: got %+v, want the ticket %d", c.name, caller, c.want)
		}
		if c.pause > 0 {
			expect(t, p, epoch, Wait, c.pause)
		}
		expect(t, p, epoch.Add(c.pause), Try, 0)
	}
}

// A head that a release has queued does not ask before it is told, but refreshes its entry in time.
func TestEntered(t *testing.T) {
	p := heard(fairRules())
	p.Entered(epoch)
	expect(t, p, epoch, Wait, wire.TurnEvery-wire.TurnEvery/turnSpread/2)
	expect(t, p, epoch.Add(wire.TurnEvery), Try, 0)
}
