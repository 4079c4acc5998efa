package wait

import (
	"fmt"
	"testing"
	"time"
)

// A Locker that has had all its turns ignores those who give up only while it leaves the lock to others.
func TestThoseWhoGiveUpAreHeardUnlessTheLockIsLeftToOthers(t *testing.T) {
	const (
		gaveUp = "6ba7b810-9dad-41d1-80b4-00c04fd430c8" // announced for a waiter that gives up
		others = "m:" + gaveUp                          // the value of another Locker's lock
		undone = -1                                     // the release has no result yet
	)
	for _, c := range []struct {
		name  string
		turns int
		fair  bool
		value string
		after time.Duration // since the release had its result
		heard bool
	}{
		{"the release has no result", MaxTurns, false, gaveUp, undone, false},
		{"at once", MaxTurns, false, gaveUp, 0, false},
		{"while it leaves the lock", MaxTurns, false, gaveUp, 250*ms - 1, false},
		{"our own release, heard meanwhile", MaxTurns, false, ours, 0, false},
		{"after that", MaxTurns, false, gaveUp, 250 * ms, true},
		{"long after that", MaxTurns, false, gaveUp, time.Second, true},
		{"others have had it", MaxTurns, false, others, 0, true},
		{"it has a turn left", MaxTurns - 1, false, gaveUp, 0, true},
		{"it has a turn left, no result", MaxTurns - 1, false, gaveUp, undone, true},
		{"fair", MaxTurns, true, gaveUp, 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := rules(0.5)
			r.Fair = c.fair
			p := heard(r)
			for range c.turns {
				p.Won(epoch, epoch)
			}
			p.Releasing(ours, epoch)
			now := epoch
			if c.after != undone {
				p.Released(true, true, ms, epoch)
				now = epoch.Add(c.after)
			}
			p.Announced(0, "1 "+c.value, "", now)
			p.at = now.Add(time.Minute) // a minority has the head look in any case
			if told, wake := p.Announced(1, "1 "+c.value, "", now); !told || wake != c.heard {
				t.Errorf("got told %v, wake %v; want true, %v", told, wake, c.heard)
			}
			if act, _ := p.Next(now); (act == Try) != c.heard {
				t.Errorf("got act %d, want a try: %v", act, c.heard)
			}
			if left := !c.heard && c.after != undone; left != now.Before(p.turns.until) {
				t.Errorf("the lock is left to others until %v, want that: %v", p.turns.until, left)
			}
		})
	}
}

// While others take turns, a Locker that released the lock does not look at it before they are
// likely to be done.
func TestTheLockIsLeftToOthersForAsLongAsTheyUsuallyHaveIt(t *testing.T) {
	others := func(n int) string { return fmt.Sprintf("m:6ba7b810-9dad-41d1-80b4-00c04fd430%02d", n) }
	p := heard(rules(0.5))
	release := func(now time.Time, want time.Duration) {
		t.Helper()
		p.Won(now, now)
		p.Releasing(ours, now)
		p.Released(true, true, ms, now)
		if got := p.turns.until.Sub(now); got != 4*ms+want {
			t.Errorf("got the lock left to others for %v, want four round trips and %v", got, want)
		}
	}
	announce := func(value string, now time.Time) {
		for node := range 2 {
			p.Announced(node, "2 "+value, "", now)
		}
	}
	now := epoch
	release(now, 10*ms) // nothing is known
	for i, c := range []struct{ had, want time.Duration }{{20 * ms, 40 * ms}, {7 * ms, 14 * ms}, {4 * ms, 10 * ms}, {time.Second, 50 * ms}} {
		now = now.Add(c.had)
		announce(others(2*i), now)
		announce(others(2*i+1), now.Add(ms)) // counts from no release of ours
		release(now.Add(2*ms), c.want)
		now = now.Add(2 * ms)
	}
	announce(ours, now.Add(20*ms)) // of our own release, which says nothing of others
	release(now.Add(21*ms), 50*ms)
	now = now.Add(21 * ms)
	p.Looked(&Looked{Free: true}, p.turns.until) // they did not take it
	announce(others(98), now.Add(90*ms))
	release(now.Add(100*ms), 10*ms)
	announce(others(99), now.Add(120*ms))
	p.Won(now.Add(121*ms), now.Add(121*ms))
	p.Releasing(ours, now.Add(121*ms))
	p.Released(false, true, ms, now.Add(121*ms)) // nobody waits any more
	release(now.Add(130*ms), 10*ms)
}

// The events of the tables below, all at epoch.
func won(n int) func(*Plan) {
	return func(p *Plan) {
		for range n {
			p.Won(epoch, epoch)
		}
	}
}

func freed(p *Plan)     { p.Freed() }
func releasing(p *Plan) { p.Releasing(ours, epoch) }

func released(told bool) func(*Plan) {
	return func(p *Plan) { p.Released(told, true, ms, epoch) }
}

func announced(value string) func(*Plan) {
	return func(p *Plan) {
		for node := range 2 {
			p.Announced(node, "2 "+value, "", epoch)
		}
	}
}

func lookedAt(later time.Duration) func(*Plan) {
	return func(p *Plan) { p.Looked(&Looked{Free: true}, epoch.Add(later)) }
}

func TestMayHandOver(t *testing.T) {
	type events = []func(*Plan)
	others := announced("m:6ba7b810-9dad-41d1-80b4-00c04fd430c8")
	for _, c := range []struct {
		name   string
		events events
		want   bool
	}{
		{"all turns but one", events{won(15)}, true},
		{"all turns", events{won(16)}, false},
		{"all turns, and a release", events{won(16), releasing, released(true)}, false},
		{"a release counts as a turn", events{releasing, won(15)}, false},
		{"but not in addition", events{won(15), releasing}, true},
		{"others had it", events{won(16), releasing, released(true), others}, true},
		{"nobody else waited", events{won(16), releasing, released(false)}, true},
		{"left in vain", events{won(16), releasing, released(true), lookedAt(time.Second)}, true},
		{"found free while it is left", events{won(16), releasing, released(true), lookedAt(ms)}, false},
		{"found free between turns", events{won(15), lookedAt(0), won(1)}, false},
		{"our own release is heard late", events{releasing, released(false), won(16), announced(ours)}, false},
	} {
		p := heard(rules(0.5))
		for _, event := range c.events {
			event(p)
		}
		if got := p.MayHandOver(); got != c.want {
			t.Errorf("%s: got %v", c.name, got)
		}
	}
}

// What a release, its result, and a caller that comes have the head do.
func TestTurns(t *testing.T) {
	type events = []func(*Plan)
	woken := func(wake bool, told, queued bool, took time.Duration) func(*Plan) {
		return func(p *Plan) {
			if got := p.Released(told, queued, took, epoch); got != wake {
				t.Errorf("a release, announced to others: %v, queued: %v: got wake %v", told, queued, got)
			}
		}
	}
	joined := func(held, queued bool, later time.Duration) func(*Plan) {
		return func(p *Plan) { p.Joined(held, queued, epoch.Add(later)) }
	}
	fair := func(p *Plan) { p.rules.Fair = true }
	slow := func(p *Plan) { p.pace = 2 * ms }
	stood := func(p *Plan) {
		p.Lost(new(Caller), &Lost{Start: epoch, Took: time.Minute, Held: true, Holder: "b", Longest: 250 * ms}, epoch)
	}
	others := announced("m:6ba7b810-9dad-41d1-80b4-00c04fd430c8")
	for _, c := range []struct {
		name   string
		events events
		after  time.Duration
		act    Act
		pause  time.Duration
	}{
		{"releasing", events{freed, releasing}, 0, Try, 0},
		{"releasing after all turns", events{won(16), freed, releasing}, 0, Wait, 250 * ms},
		{"releasing after all turns, then", events{won(16), releasing}, 250 * ms, Look, 0},
		{"releasing after all turns, fair", events{won(16), fair, freed, releasing}, 0, Try, 0},

		{"released to nobody", events{releasing, woken(true, false, true, ms)}, 0, Try, 0},
		{"released to others", events{freed, releasing, woken(true, true, true, ms)}, 0, Wait, 14 * ms},
		{"released to others, then", events{releasing, woken(true, true, true, ms)}, 14 * ms, Glance, 0},
		{"the round took longer than the last try", events{releasing, woken(true, true, true, 3*ms)}, 0, Wait, 22 * ms},
		{"the last try took longer than the round", events{slow, releasing, woken(true, true, true, ms)}, 0, Wait, 18 * ms},
		{"the process stood still during the round", events{releasing, woken(true, true, true, time.Minute)}, 0, Wait, 250 * ms},
		{"the process stood still during the last try", events{stood, releasing, woken(true, true, true, ms)}, 0, Wait, 250 * ms},
		{"released after all turns", events{won(16), releasing, woken(true, true, true, ms)}, 0, Wait, 250 * ms},
		{"released without an entry", events{releasing, woken(true, true, false, ms)}, 0, Look, 0},
		{"released twice", events{releasing, released(true), woken(false, true, true, 9*ms)}, 0, Wait, 14 * ms},
		{"a caller got it meanwhile", events{releasing, won(1), woken(false, true, true, ms)}, 0, Wait, 5 * ms},
		{"others had it meanwhile", events{releasing, others, woken(false, true, true, 9*ms)}, 0, Wait, 4500 * time.Microsecond},
		{"released, fair", events{fair, releasing, woken(false, true, true, ms)}, 0, Wait, time.Minute},
		{"found free while it is left", events{releasing, released(true), lookedAt(ms)}, ms, Wait, 13 * ms},
		{"found free while it is left, then", events{releasing, released(true), lookedAt(ms)}, 14 * ms, Look, 0},
		{"found held while it is left", events{releasing, released(true), func(p *Plan) {
			p.Looked(&Looked{Start: epoch, Held: true, FreeIn: time.Hour, Holder: ours, Longest: 250 * ms}, epoch)
		}}, 0, Wait, 4500 * ms},
		{"found held by nobody in particular", events{releasing, released(true), func(p *Plan) {
			p.Looked(&Looked{Start: epoch, Held: true, FreeIn: time.Hour, Longest: 250 * ms}, epoch)
		}}, 0, Wait, 187500 * time.Microsecond},
		{"found free after that", events{releasing, released(true), lookedAt(14 * ms)}, 14 * ms, Try, 0},

		{"joined", events{joined(false, false, 0)}, 0, Try, 0},
		{"joined while it is held", events{freed, joined(true, false, 0)}, 0, Wait, 5 * ms},
		{"joined while it is held, then", events{joined(true, false, 0)}, 5 * ms, Look, 0},
		{"joined while it is held, fair", events{fair, joined(true, false, 0)}, 0, Try, 0},
		{"joined during a release", events{releasing, joined(false, false, 0)}, 0, Try, 0},
		{"... and others waited the last time", events{releasing, released(true), freed, releasing, joined(false, true, 20*ms)}, 20 * ms, Wait, 10 * ms},
		{"... and nobody did the time after", events{releasing, released(true), releasing, released(false), releasing, joined(false, true, 20*ms)}, 20 * ms, Try, 0},
		{"... after all turns", events{won(16), releasing, freed, joined(false, false, 0)}, 0, Wait, 10 * ms},
		{"... after all turns, then", events{won(16), releasing, joined(false, false, 0)}, 10 * ms, Look, 0},
		{"joined while it is left", events{releasing, released(true), joined(false, true, ms)}, ms, Wait, 13 * ms},
		{"joined while it is left, without an entry", events{releasing, released(true), joined(false, false, ms)}, ms, Look, 0},
		{"joined after that", events{releasing, released(true), joined(false, true, 14*ms)}, 14 * ms, Try, 0},
		{"joined after a caller got it", events{releasing, released(true), won(1), joined(false, true, ms)}, ms, Try, 0},
		{"joined after all turns, not released", events{won(16), joined(false, true, 0)}, 0, Try, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := heard(rules(0.5))
			for _, event := range c.events {
				event(p)
			}
			expect(t, p, epoch.Add(c.after), c.act, c.pause)
		})
	}
}
