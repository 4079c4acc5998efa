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
			p.Announced(0, "1 "+c.value, now)
			p.at = now.Add(time.Minute) // a minority has the head look in any case
			if told, wake := p.Announced(1, "1 "+c.value, now); !told || wake != c.heard {
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
			p.Announced(node, "2 "+value, now)
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
	p.Looked(&Looked{Free: true}, p.turns.until)
	release(now.Add(100*ms), 10*ms) // they did not take it
	announce(others(99), now.Add(120*ms))
	p.Won(now.Add(121*ms), now.Add(121*ms))
	p.Releasing(ours, now.Add(121*ms))
	p.Released(false, true, ms, now.Add(121*ms)) // nobody waits any more
	release(now.Add(130*ms), 10*ms)
}
