package wait

import (
	"cmp"
	"testing"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/wire"
)

var epoch = time.Unix(1_800_000_000, 0)

const (
	ms   = time.Millisecond
	ours = "n:6ba7b810-9dad-41d1-80b4-00c04fd430c8" // a value as this library stores it
)

// rules returns the rules of three nodes, with a random source that always returns half.
func rules(half float64) *Rules {
	return &Rules{
		Need: 2, RetryFirst: 10 * ms, RetryMost: 250 * ms,
		Retry: func(attempt int) time.Duration { return time.Duration(attempt) * 10 * ms },
		Rand:  func() float64 { return half },
	}
}

func fairRules() *Rules {
	r := rules(0.5)
	r.Fair = true
	return r
}

// heard returns a plan that has heard a majority since epoch, and whose head polls far ahead.
func heard(r *Rules) *Plan {
	p := NewPlan(r)
	p.subscribedBy, p.subscribedSince = 3, epoch
	p.at, p.pace = epoch.Add(time.Minute), ms
	return &p
}

// expect checks what a plan says at now. For Wait and pause it has to be neither earlier nor later.
func expect(t *testing.T, p *Plan, now time.Time, act Act, pause time.Duration) {
	t.Helper()
	if got, d := p.Next(now); got != act || d != pause {
		t.Errorf("got act %d after %v, want %d after %v", got, d, act, pause)
	}
}

func TestNext(t *testing.T) {
	for _, c := range []struct {
		name  string
		plan  Plan
		act   Act
		pause time.Duration
	}{
		{"nothing is known", Plan{}, Look, 0},
		{"it may be free", Plan{due: true, at: epoch.Add(time.Hour)}, Try, 0},
		{"the pause has passed, by a look", Plan{at: epoch}, Look, 0},
		{"the pause has passed, by a try", Plan{at: epoch, try: true}, Try, 0},
		{"the pause has not passed", Plan{at: epoch.Add(7 * ms), try: true}, Wait, 7 * ms},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := c.plan
			expect(t, &p, epoch, c.act, c.pause)
			if p.due {
				t.Error("a try does not use up that the lock may be free")
			}
		})
	}
	p := Plan{at: epoch.Add(time.Hour)}
	p.Freed()
	p.NotDue()
	expect(t, &p, epoch, Wait, time.Hour)
}

func TestSubscribed(t *testing.T) {
	p := NewPlan(rules(0.5))
	p.at = epoch.Add(time.Hour)
	for i, s := range []struct {
		node  int
		yes   bool
		wake  bool
		hears bool
		pause time.Duration // until the next look
	}{
		{0, true, false, false, time.Hour},
		{0, true, false, false, time.Hour}, // the same node counts once
		{2, true, true, true, 0},           // a majority: subscribe first, then look
		{1, true, false, true, 0},
		{1, false, false, true, 0},
		{0, false, false, false, 0}, // already due
	} {
		if wake := p.Subscribed(s.node, s.yes, epoch); wake != s.wake || p.Hears() != s.hears || p.at.Sub(epoch) != s.pause {
			t.Errorf("step %d: got wake %v, hears %v, pause %v; want %+v", i, wake, p.Hears(), p.at.Sub(epoch), s)
		}
	}
	q := heard(rules(0.5))
	if wake := q.Subscribed(2, true, epoch.Add(ms)); wake || !q.wasSubscribedAt(epoch) {
		t.Errorf("one more than a majority: got wake %v, subscribed at epoch: %v", wake, q.wasSubscribedAt(epoch))
	}
	q = heard(rules(0.5))
	if wake := q.Subscribed(1, false, epoch); !wake || q.at.Sub(epoch) != 10*ms || q.try {
		t.Errorf("without a majority: got wake %v, a pause of %v (try: %v); want RetryFirst", wake, q.at.Sub(epoch), q.try)
	}
	q = heard(fairRules())
	if q.Subscribed(1, false, epoch); !q.try {
		t.Error("with Fair a caller tries, for a look does not keep its turn")
	}
}

func TestWasSubscribedAt(t *testing.T) {
	p := heard(rules(0.5))
	for asked, want := range map[time.Duration]bool{-1: false, 0: true, 1: true} {
		if got := p.wasSubscribedAt(epoch.Add(asked)); got != want {
			t.Errorf("asked %v after the subscription: got %v, want %v", asked, got, want)
		}
	}
	if p = new(Plan); p.wasSubscribedAt(epoch) {
		t.Error("without a subscription nothing is heard")
	}
}

func TestAnnounced(t *testing.T) {
	type told struct {
		node int
		text string
		want string // "": no wake
	}
	const try, second, some = "try", "4.5ms", "9ms" // 4 and 8 round trips, and half of the spread
	for _, c := range []struct {
		name string
		fair bool
		told []told
	}{
		{"a majority, first", false, []told{{0, "1 a", some}, {1, "1 a", try}, {2, "1 a", ""}}},
		{"a majority, second", false, []told{{0, "2 a", some}, {1, "1 a", second}, {2, "2 a", ""}}},
		{"second, then first", false, []told{{0, "2 a", some}, {1, "1 a", second}, {2, "1 a", try}}},
		{"one node twice", false, []told{{0, "1 a", some}, {0, "1 a", ""}}},
		{"two values", false, []told{{0, "1 a", some}, {1, "1 b", ""}, {2, "1 b", try}}},
		{"no announcement", false, []told{{0, "1", ""}, {1, "", ""}, {2, "a", ""}}},
		{"fair, by one", true, []told{{0, "1 a", some}, {1, "1 a", try}}},
		{"fair, second", true, []told{{0, "2 a", some}, {1, "2 a", second}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := rules(0.5)
			r.Fair = c.fair
			p := heard(r)
			for i, s := range c.told {
				got := ""
				switch _, wake := p.Announced(s.node, s.text, "", epoch); {
				case p.due != (wake && s.want == try):
					t.Errorf("step %d: due is %v, wake is %v", i, p.due, wake)
				case p.due:
					got, p.due = try, false
				case wake:
					got = p.at.Sub(epoch).String()
				}
				if got != s.want {
					t.Errorf("step %d, node %d announces %q: got %q, want %q", i, s.node, s.text, got, s.want)
				}
			}
		})
	}
}

// Attempts that were taken back have the head ask once in a pause of Options.Retry, unless one of
// them is what it was refused because of.
func TestTheEndsOfAttemptsWakeOncePerPause(t *testing.T) {
	const pause, long = 100 * ms, time.Hour
	for _, c := range []struct {
		name   string
		text   string        // announced by two nodes
		after  time.Duration // the end of the first attempt, which was acted upon
		act    Act
		pauses time.Duration
	}{
		{"another attempt", "1? b", ms, Wait, pause - ms},
		{"another, told second", "2? b", ms, Wait, pause - ms},
		{"the same again", "1? a", ms, Wait, long},
		{"another, after the pause", "1? b", pause, Try, 0},
		{"what refused the last try", "1? holder", ms, Try, 0},
		{"a lock that was held", "1 b", ms, Try, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := heard(rules(0.5))
			p.Lost(&Caller{}, &Lost{Start: epoch, Took: ms, Held: true, Holder: "holder", Longest: pause}, epoch)
			for node := range 2 {
				p.Announced(node, "1? a", "", epoch)
			}
			expect(t, p, epoch, Try, 0)
			p.act(epoch.Add(c.after+long), false)
			for node := range 2 {
				p.Announced(node, c.text, "", epoch.Add(c.after))
			}
			expect(t, p, epoch.Add(c.after), c.act, c.pauses)
		})
	}
}

func TestTheEndOfItsOwnAttemptIsNoNews(t *testing.T) {
	p := heard(rules(0.5))
	before := *p
	for node := range 2 {
		if told, wake := p.Announced(node, "1? mine", "mine", epoch); told || wake || *p != before {
			t.Errorf("node %d: got told %v, wake %v, and %+v", node, told, wake, p)
		}
	}
}

// What is kept of announcements is bounded: a new value takes the place of the oldest.
func TestAnnouncementsOfManyValues(t *testing.T) {
	p := heard(rules(0.5))
	value := func(i int) string { return "1 " + string(rune('a'+i)) }
	for i := range 9 {
		p.Announced(0, value(i), "", epoch)
	}
	for i := range 9 {
		if told, _ := p.Announced(1, value(8-i), "", epoch); told != (i < 8) {
			t.Errorf("the last value but %d: got told %v", i, told)
		}
	}
}

func TestAfterOthers(t *testing.T) {
	p := heard(rules(0.5))
	for i, now := range []time.Time{epoch, epoch.Add(ms)} {
		if wake := p.AfterOthers(now); wake != (i == 0) {
			t.Errorf("call %d: got wake %v", i+1, wake)
		}
		expect(t, p, epoch, Wait, 4500*time.Microsecond)
		expect(t, p, epoch.Add(5*ms), Glance, 0)
	}
}

func TestWon(t *testing.T) {
	p := heard(rules(0.5))
	p.foreign, p.due = true, true
	p.Won(epoch, epoch.Add(ms))
	expect(t, p, epoch.Add(ms), Wait, 5*ms)
	expect(t, p, epoch.Add(ms+lookFirst), Look, 0)
	if p.foreign || !p.asked.Equal(epoch) {
		t.Errorf("foreign %v, asked %v", p.foreign, p.asked)
	}
}

func TestLost(t *testing.T) {
	held := []Vote{{Holder: ours}, {Holder: ours}, {Yes: true}}
	tied := []Vote{{Yes: true}, {Holder: "b"}, {Holder: "c"}}
	for _, c := range []struct {
		name  string
		hears bool
		vain  bool
		lost  Lost
		act   Act
		pause time.Duration
	}{
		{"held, heard", true, false, Lost{Held: true, Holder: ours, Votes: held}, Glance, 0},
		{"held, unheard", false, false, Lost{Held: true, Holder: ours, Votes: held}, Look, 75 * ms},
		{"held, after a look in vain", true, true, Lost{Held: true, Holder: ours, Votes: held}, Try, 75 * ms},
		{"too few replied", true, false, Lost{Votes: []Vote{{Yes: true}, {}, {}}}, Try, 75 * ms},
		{"too few replied, with a long Retry", true, false, Lost{Votes: []Vote{{Yes: true}, {}, {}}, Longest: time.Hour}, Try, 4500 * ms},
		{"too few replied, with a long Retry and unheard", false, false, Lost{Votes: []Vote{{Yes: true}, {}, {}}, Longest: time.Hour}, Try, 45 * time.Minute},
		{"a tie, we go on", true, false, Lost{Held: true, Votes: tied, Mine: "a"}, Try, 3 * ms},
		{"a tie, another goes on", true, false, Lost{Held: true, Votes: tied, Mine: "d"}, Look, 27 * ms},
		{"a tie, we go on and stood still", true, false, Lost{Held: true, Votes: tied, Mine: "a", Took: time.Minute}, Try, 125 * ms},
		{"a tie, another goes on and we stood still", true, false, Lost{Held: true, Votes: tied, Mine: "d", Took: time.Minute}, Look, 1125 * ms},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := NewPlan(rules(0.5))
			if c.hears {
				p = *heard(rules(0.5))
			}
			p.vain = c.vain
			c.lost.Start, c.lost.Took, c.lost.Longest = epoch, cmp.Or(c.lost.Took, 6*ms), cmp.Or(c.lost.Longest, 100*ms)
			p.Lost(new(Caller), &c.lost, epoch)
			if p.at.Sub(epoch) != c.pause {
				t.Errorf("got a pause of %v, want %v", p.at.Sub(epoch), c.pause)
			}
			expect(t, &p, p.at, c.act, 0)
			if p.foreign != (c.lost.Holder == "") || p.pace != min(c.lost.Took, 250*ms) || p.vain {
				t.Errorf("foreign %v, pace %v, vain %v", p.foreign, p.pace, p.vain)
			}
		})
	}
}

func TestATieInNoTimeMakesAPause(t *testing.T) {
	p := heard(rules(0.5))
	p.Lost(new(Caller), &Lost{Held: true, Votes: []Vote{{Yes: true}, {Holder: "b"}, {Holder: "c"}}, Mine: "d"}, epoch)
	expect(t, p, epoch, Wait, 4500*time.Nanosecond)
}

func TestWhatLastsIsNoTie(t *testing.T) {
	p, c := heard(rules(0.5)), new(Caller)
	lost := &Lost{Held: true, Votes: []Vote{{Yes: true}, {Holder: "b"}, {}}, Mine: "a", Took: ms, Longest: 100 * ms}
	for i := range 2 * MaxTies {
		p.Lost(c, lost, epoch)
		want := 75 * ms // a pause
		if i < MaxTies {
			want = ms / 2 // at once
		}
		if p.at.Sub(epoch) != want {
			t.Errorf("tie %d: got a pause of %v, want %v", i+1, p.at.Sub(epoch), want)
		}
	}
	p.Lost(c, &Lost{Held: true, Holder: "b", Votes: []Vote{{Holder: "b"}, {Holder: "b"}, {}}}, epoch)
	p.Lost(c, lost, epoch)
	if p.at.Sub(epoch) != ms/2 {
		t.Errorf("a tie after a round that was none: got a pause of %v", p.at.Sub(epoch))
	}
}

func TestLooked(t *testing.T) {
	for _, c := range []struct {
		name     string
		unheard  bool
		foreign  bool
		ownRetry bool
		looked   Looked
		act      Act
		pause    time.Duration
	}{
		{"held: the poll", false, false, false, Looked{Held: true, FreeIn: time.Hour}, Look, 4500 * ms},
		{"held: the ttl passes before", false, false, false, Looked{Held: true, FreeIn: time.Second}, Look, time.Second},
		{"held, unheard", true, false, false, Looked{Held: true, FreeIn: time.Hour}, Look, 75 * ms},
		{"held by a foreign client", false, true, false, Looked{Held: true, FreeIn: time.Hour}, Look, 75 * ms},
		{"held, with a Retry", false, false, true, Looked{Held: true, FreeIn: time.Hour}, Look, 75 * ms},
		{"free", false, false, false, Looked{Free: true, Standing: Standing{Answered: true}}, Try, 0},
		{"free, one before us", false, false, false, Looked{Free: true, Standing: Standing{Answered: true, Before: 1}}, Try, 5 * ms},
		{"free, two before us", false, false, false, Looked{Free: true, Standing: Standing{Answered: true, Before: 2}}, Try, 10 * ms},
		{"free, many before us", false, false, false, Looked{Free: true, Standing: Standing{Answered: true, Before: 99}}, Try, 250 * ms},
		{"free, too few told of those before us", false, false, false, Looked{Free: true, Standing: Standing{Before: 2}}, Try, 0},
		{"too few replied", false, false, false, Looked{}, Try, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := rules(0.5)
			r.OwnRetry = c.ownRetry
			p := heard(r)
			if c.unheard {
				p.subscribedSince = epoch.Add(1) // it began during the look
			}
			p.foreign = c.foreign
			c.looked.Start, c.looked.Longest = epoch, 100*ms
			p.Looked(&c.looked, epoch)
			if pause := max(p.at.Sub(epoch), 0); pause != c.pause {
				t.Errorf("got a pause of %v, want %v", pause, c.pause)
			}
			expect(t, p, epoch.Add(c.pause), c.act, 0)
			if p.vain != (!c.looked.Held && !c.looked.Free) {
				t.Errorf("vain is %v", p.vain)
			}
		})
	}
	for _, since := range []time.Duration{0, 1} { // a Retry that is longer than the poll does not lose the entry
		p := heard(rules(0.5))
		p.rules.OwnRetry = true
		p.subscribedSince = epoch.Add(since)
		p.Looked(&Looked{Start: epoch, Held: true, FreeIn: time.Hour, Longest: time.Minute}, epoch)
		if p.at.Sub(epoch) != 4500*ms {
			t.Errorf("with a long Retry, heard since %v: got a pause of %v", since, p.at.Sub(epoch))
		}
	}
	p := heard(fairRules())
	if p.Looked(&Looked{Start: epoch, Held: true}, epoch); !p.try {
		t.Error("with Fair the head tries")
	}
}

// A look that finds the lock held is believed if it shows the holder, or if an earlier round has. That round must have begun after the
// last release that is known.
func TestALookIsBelieved(t *testing.T) {
	lostAt := func(start time.Duration, holder string) func(*Plan) {
		return func(p *Plan) {
			p.Lost(new(Caller), &Lost{Start: epoch.Add(start), Held: true, Holder: holder, Votes: []Vote{{}, {}, {}}}, epoch)
		}
	}
	announcedAt := func(at time.Duration) func(*Plan) {
		return func(p *Plan) { p.Announced(0, "2 a", "", epoch.Add(at)) }
	}
	releasing := func(at time.Duration) func(*Plan) {
		return func(p *Plan) { p.Releasing("n:a", epoch.Add(at)) }
	}
	released := func(at time.Duration) func(*Plan) {
		return func(p *Plan) { p.Released(true, true, ms, epoch.Add(at)) }
	}
	lost := func(holder string) func(*Plan) { return lostAt(0, holder) }
	announced := announcedAt(0)
	type events = []func(*Plan)
	const soon = 187500 * time.Microsecond // RetryMost, less half of the spread
	for _, c := range []struct {
		name   string
		events events
		freeIn time.Duration
		holder string // that the look shows
		act    Act
		pause  time.Duration
	}{
		{"a try met the holder", events{lost(ours)}, time.Hour, "", Look, 4500 * ms},
		{"a try met no holder", events{lost("")}, time.Hour, "", Try, soon},
		{"... and the look does", events{lost("")}, time.Hour, ours, Look, 4500 * ms},
		{"... one that announces nothing", events{lost("")}, time.Hour, "b", Look, 3 * time.Second},
		{"one node announced a release", events{lost(ours), announced}, time.Hour, "", Try, soon},
		{"the same twice", events{lost(ours), announced, announced}, time.Hour, "", Try, soon},
		{"... and the look shows a holder", events{lost(ours), announced}, time.Hour, ours, Look, 4500 * ms},
		{"... but it began before", events{lost(ours), announcedAt(1)}, time.Hour, ours, Try, soon},
		{"the ttl passes before", events{lost(ours), announced}, 100 * ms, "", Look, 100 * ms},
		{"a try met a holder since", events{announced, lost(ours)}, time.Hour, "", Look, 4500 * ms},
		{"... but it began before", events{announced, lostAt(-1, ours)}, time.Hour, "", Try, soon},
		{"what was known before was announced again", events{announced, lost(ours), announced}, time.Hour, "", Look, 4500 * ms},
		{"our own Locker had it since", events{lost(ours), announced, func(p *Plan) { p.Won(epoch, epoch) }}, time.Hour, "", Look, 4500 * ms},
		{"our own Locker is releasing it", events{lost(ours), releasing(0)}, time.Hour, "", Try, soon},
		{"... and the look shows a holder", events{lost(ours), releasing(0)}, time.Hour, ours, Look, 4500 * ms},
		{"... but that began before the result", events{lost(ours), releasing(-ms), released(1)}, time.Hour, ours, Try, soon},
		{"with a Retry", events{lost(ours), announced, func(p *Plan) { p.rules.OwnRetry = true }}, time.Hour, "", Look, 3 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := heard(rules(0.5))
			for _, event := range c.events {
				event(p)
			}
			p.Looked(&Looked{Start: epoch, Held: true, FreeIn: c.freeIn, Holder: c.holder, Longest: 4 * time.Second}, epoch)
			expect(t, p, epoch, Wait, c.pause)
			expect(t, p, epoch.Add(c.pause), c.act, 0)
		})
	}
}

func TestConstantsAreInTheRelationsTheirCommentsClaim(t *testing.T) {
	for claim, holds := range map[string]bool{
		"the shortest poll is 4 s":                                  pollHeard-pollHeard/pollSpread == 4*time.Second,
		"with half of pollSpread it is 2.5 s":                       pollHeard-pollHeard/(pollSpread/2) == 2500*ms,
		"a fair refresh comes twice in the life of an entry":        2*wire.TurnEvery < wire.TurnLife,
		"no act is the zero value, so that a forgotten one is none": Wait > 0,
		"a second try is made after a tie, and some more":           MaxTies > 2,
	} {
		if !holds {
			t.Errorf("no longer so: %s", claim)
		}
	}
}
