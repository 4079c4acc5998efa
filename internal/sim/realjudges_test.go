package sim

import (
	"testing"
	"time"
)

// Tests of the judges of TestReal, on histories made by hand: the judges must find violations, and must not report what a busy
// machine or a node that lost its data explains.
func TestRealJudges(t *testing.T) {
	const ms = time.Millisecond
	claim := func(value string, start, got, until instant, fence int64) *Claim {
		return &Claim{Value: value, TTL: until - start, Fence: fence, Called: start, Start: start, Got: got, Until: until,
			Ended: never, Forgotten: never, Adopting: never, Registers: 1<<realNodes - 1}
	}
	a := func() *Claim { return claim("c0.1:a", 10*ms, 20*ms, 500*ms, 2) }
	after := func() *Claim { return claim("c1.1:b", 600*ms, 620*ms, 900*ms, 3) }
	beside := func() *Claim { return claim("c1.1:b", 100*ms, 120*ms, 600*ms, 3) }
	smaller := func(c *Claim) *Claim { c.Fence = 1; return c }
	forgot := []forgetting{{node: 4, from: 50 * ms, to: 60 * ms}}
	proven := []proof{{value: "c0.1:a", forgetting: 0, at: 70 * ms}}
	for _, tt := range []struct {
		name string
		w    *realWorld
		c    []*Claim
		want string // the promise of the first violation
	}{
		{name: "one after the other", c: []*Claim{a(), after()}},
		{name: "two at once", c: []*Claim{a(), beside()}, want: "I1"},
		{name: "noted when it was over", c: []*Claim{claim("c0.1:a", 10*ms, 550*ms, 500*ms, 1), beside()}},
		{name: "a node forgot", c: []*Claim{a(), beside()}, w: &realWorld{forgettings: forgot}},
		{name: "a node forgot, and others carried it", c: []*Claim{a(), beside()}, w: &realWorld{forgettings: forgot, proofs: proven}, want: "I1"},
		{name: "but it was extended by that node", c: []*Claim{a(), beside()},
			w: &realWorld{forgettings: forgot, proofs: proven, renewals: []renewal{{"c0.1", "k0", 40 * ms, 80 * ms}}}},
		{name: "or only later", c: []*Claim{a(), beside()},
			w: &realWorld{forgettings: forgot, proofs: proven, renewals: []renewal{{"c0.1", "k0", 65 * ms, 80 * ms}}}, want: "I1"},
		{name: "a smaller fence", c: []*Claim{a(), smaller(after())}, want: "I2"},
		{name: "a smaller fence after a node forgot", c: []*Claim{a(), smaller(after())}, w: &realWorld{forgettings: []forgetting{{from: 550 * ms, to: 560 * ms}}}},
		{name: "lost, and nobody took it over", c: []*Claim{a(), beside()}, w: &realWorld{record: record{toldLost: map[string]bool{"c0.1:a": true}}}, want: "I1"},
		{name: "not carried", c: []*Claim{a()}, w: &realWorld{glimpses: []glimpse{{value: "c0.1:a", until: 500 * ms, taken: 30 * ms, answered: 5, without: 3}}}, want: "I1"},
		{name: "carried by a majority", c: []*Claim{a()}, w: &realWorld{glimpses: []glimpse{{value: "c0.1:a", until: 500 * ms, taken: 30 * ms, answered: 5, without: 2}}}},
		{name: "looked for when it was over", c: []*Claim{a()}, w: &realWorld{glimpses: []glimpse{{value: "c0.1:a", until: 500 * ms, taken: 510 * ms, answered: 5, without: 5}}}},
		{name: "told in time", w: &realWorld{tellings: []telling{{at: 520 * ms, until: 500 * ms}}}},
		{name: "told late", w: &realWorld{tellings: []telling{{at: 700 * ms, until: 500 * ms}}}, want: "I3"},
		{name: "told late by a late machine", w: &realWorld{tellings: []telling{{at: 700 * ms, until: 500 * ms}}, tardy: &tardiness{beats: []beat{{600 * ms, 50 * ms}}}}},
		{name: "not told", w: &realWorld{tellings: []telling{{at: 700 * ms, until: 500 * ms, open: true}}}, want: "I3"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := tt.w
			if w == nil {
				w = &realWorld{}
			}
			w.s = &Schedule{Nodes: realNodes, Keys: 1}
			w.h = &History{Schedule: w.s, Claims: tt.c, Length: time.Second}
			if w.tardy == nil {
				w.tardy = &tardiness{}
			}
			got := ""
			bad, _ := w.judge()
			if len(bad) > 0 {
				got = bad[0].Promise
			}
			if got != tt.want {
				t.Errorf("got %q (%v), want %q", got, bad, tt.want)
			}
		})
	}
	// The adoption that explains a loss ends the claim before another client has the lock.
	c, d := a(), beside()
	c.Adopting = 90 * ms
	w := &realWorld{s: &Schedule{Nodes: realNodes, Keys: 1}, tardy: &tardiness{}, record: record{toldLost: map[string]bool{c.Value: true}}}
	w.h = &History{Schedule: w.s, Claims: []*Claim{c, d}, Length: time.Second}
	if bad, _ := w.judge(); len(bad) > 0 {
		t.Errorf("lost to an adoption: got %v", bad)
	}
}

// After the registers of the first holder were lost, the second may have its fence, and both write in turn.
func TestStoreJudge(t *testing.T) {
	const ms = time.Millisecond
	for _, lost := range []bool{false, true} {
		h := &History{Schedule: &Schedule{Nodes: 3}, Claims: []*Claim{{Value: "c0.1:a", Fence: 7, Got: ms, Registers: 6}, {Value: "c1.1:b", Fence: 7, Got: 3 * ms, Registers: 3}}}
		for i, value := range []string{"c0.1:a", "c1.1:b", "c0.1:a"} {
			h.Writes = append(h.Writes, Write{At: instant(4+i) * ms, Value: value, Fence: 7, Accepted: true})
		}
		if lost {
			h.Losses = []Loss{{At: 2 * ms, Node: 1, Register: true}}
		}
		if bad := store(h); len(bad) == 0 != lost {
			t.Errorf("registers lost %v: got %v", lost, bad)
		}
	}
}
