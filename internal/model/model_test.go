package model

import (
	"math/rand/v2"
	"os"
	"testing"
)

// long includes the worlds that take minutes: set REDLOCK_LONG=1.
func long() bool { return os.Getenv("REDLOCK_LONG") != "" }

// race reports whether the race detector is on: see race_test.go.
var race bool

func sparing(t *testing.T) {
	t.Helper()
	if race && !long() {
		t.Skip("a search has nothing to race with")
	}
}

func search(t *testing.T, w World) Result {
	t.Helper()
	sparing(t)
	r := w.Search(Options{})
	t.Logf("%s: %d states, %d steps, depth %d, %v", w.Title(), r.States, r.Steps, r.Depth, r.Time)
	return r
}

func TestSoundWorldsHold(t *testing.T) {
	for _, w := range Worlds() {
		if w.Finds != 0 || w.Long && !long() {
			continue
		}
		t.Run(w.Title(), func(t *testing.T) {
			t.Parallel()
			r := search(t, w)
			if r.Broken != "" {
				t.Fatalf("found broken:\n%s", r.Explain())
			}
			if !r.Complete {
				t.Error("not all states were visited")
			}
			notVacuous(t, r)
		})
	}
}

// notVacuous checks that every kind of step occurs: a world in which no lock is ever returned holds, but shows nothing.
func notVacuous(t *testing.T, r Result) {
	t.Helper()
	want := func(i int, kinds ...Kind) {
		for _, k := range kinds {
			if r.Seen[i+1]>>k&1 == 0 {
				t.Errorf("attempt %d never takes a step of kind %d", i, k)
			}
		}
	}
	for i, role := range r.World.Roles {
		want(i, Fenced)
		if role.Raises > 0 {
			want(i, RaiseNode, Raised)
		}
		if role.Extends > 0 {
			want(i, ExtendNode, Extended, HealNode)
		}
		if role.Adopts > 0 {
			want(i, AdoptNode)
			want(-1, Restore)
		}
	}
	want(-1, Remove)
	if r.World.Crashes > 0 {
		want(-1, Crash)
	}
	if r.World.Away {
		want(-1, Return)
	}
	if r.World.Ill {
		want(-1, GoIll, ReadOthers, Mend)
	}
}

// Each removed rule must be found. With the rule restored, the same steps must not break
// anything: either one of them is not possible, or nothing breaks.
func TestBrokenWorldsAreFoundBroken(t *testing.T) {
	seen := map[Variant]bool{}
	for _, w := range Worlds() {
		if w.Finds == 0 {
			continue
		}
		seen[w.Broken] = true
		if w.Long && !long() {
			continue
		}
		t.Run(w.Title(), func(t *testing.T) {
			t.Parallel()
			r := search(t, w)
			if !r.AsExpected() {
				t.Fatalf("got %q, want a break of %v", r.Broken, w.Finds)
			}
			if len(r.Trace) == 0 {
				t.Fatal("no counterexample")
			}
			t.Logf("\n%s", r.Explain())
			again, err := w.Replay(r.Start, r.Trace, nil)
			if err != nil || again != r.Broken {
				t.Errorf("replayed: got %q, %v, want %q", again, err, r.Broken)
			}
			if w.Broken == Sound {
				return
			}
			sound := w
			sound.Broken = Sound
			if still, err := sound.Replay(r.Start, r.Trace, nil); err == nil && still != "" {
				t.Errorf("with the rule back in the same steps still break: %s", still)
			}
		})
	}
	for v := Sound + 1; v < variants; v++ {
		if !seen[v] {
			t.Errorf("%v: no world finds it", v)
		}
	}
}

// The reductions of settle and pack must not lose an outcome: the outcomes are compared with
// those of a search without reductions.
func TestReductionsLoseNoOutcome(t *testing.T) {
	for _, w := range []World{
		{Name: "acquire", Roles: []Role{plain, plain}, Clocks: true, Truth: true},
		{Name: "raise", Roles: []Role{raiser}, Clocks: true, Fences: 3, Regs: 2},
		{Name: "extend", Roles: []Role{holder}, Clocks: true, Fences: 1, Crashes: 1},
		{Name: "away", Roles: []Role{renewer}, Clocks: true, Truth: true, Crashes: 2, Away: true},
		{Name: "no clocks", Roles: []Role{plain, plain}, Fences: 2},
	} {
		t.Run(w.Name, func(t *testing.T) {
			t.Parallel()
			sparing(t)
			raw := w
			raw.raw = true
			got, want := outcomes(&w), outcomes(&raw)
			if len(want) < 10 {
				t.Fatalf("only %d outcomes: compares nothing", len(want))
			}
			for o := range want {
				if !got[o] {
					t.Fatalf("lost: %+v", o)
				}
			}
			for o := range got {
				if !want[o] {
					t.Fatalf("made up: %+v", o)
				}
			}
		})
	}
}

// An outcome consists of everything that the properties depend on, with the nodes in any order.
type outcome struct {
	tok, claim [maxAttempts]uint8
	holds      [maxAttempts]bool
	nodes      [nodes][2]uint8
}

func outcomes(w *World) map[outcome]bool {
	met := map[outcome]bool{}
	visited := map[key]bool{}
	var open []state
	visit := func(s *state) {
		k := w.pack(s)
		if visited[k] {
			return
		}
		visited[k] = true
		open = append(open, k.unpack())
		var o outcome
		for i := range s.attempt {
			a := &s.attempt[i]
			o.tok[i], o.holds[i] = a.tok, a.phase == holding
			if o.holds[i] {
				o.claim[i] = a.claim
			}
		}
		for j, n := range s.node {
			o.nodes[j] = [2]uint8{n.val, n.reg}
		}
		for range nodes { // sorted
			for j := 1; j < nodes; j++ {
				if a, b := o.nodes[j-1], o.nodes[j]; a[0] > b[0] || a[0] == b[0] && a[1] > b[1] {
					o.nodes[j-1], o.nodes[j] = b, a
				}
			}
		}
		met[o] = true
	}
	w.initial(func(s state) { visit(&s) })
	for len(open) > 0 {
		s := open[len(open)-1]
		open = open[:len(open)-1]
		w.next(&s, func(_ Step, t *state, _ string) { visit(t) })
	}
	return met
}

func TestPackingLosesNothing(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	w := World{Roles: []Role{{Raises: 2, Extends: 2}, {Adopts: 1, Raises: 2}, {Raises: 2, Extends: 2}}, Clocks: true, Fences: maxFence, Crashes: 3, Away: true, Asks: AskSameMajority}
	for range 200 {
		walk(&w, rnd, 80, func(s *state) {
			if k := s.key(maxAttempts); k.unpack() != *s {
				t.Fatalf("got %+v, want %+v", k.unpack(), *s)
			}
			turned := *s
			turn(&turned)
			if w.pack(s) != w.pack(&turned) {
				t.Fatalf("numbered otherwise it is another state: %+v", *s)
			}
		})
	}
}

// turn renumbers the nodes: 0 becomes 1, 1 becomes 2, and 2 becomes 0.
func turn(s *state) {
	was := *s
	for j := range nodes {
		to := (j + 1) % nodes
		s.node[to] = was.node[j]
		for i := range s.attempt {
			a, b := &s.attempt[i], &was.attempt[i]
			a.acq[to] = b.acq[j]
			for k := range a.raise {
				a.raise[k][to] = b.raise[k][j]
			}
			for r := range a.ext {
				a.ext[r][to] = b.ext[r][j]
			}
		}
	}
}

// Worlds that are too large for a search are explored by random walks. This is weak evidence:
// walks miss what searches find.
func TestWalksThroughLargeWorlds(t *testing.T) {
	walks := 3000
	if long() {
		walks = 60000
	}
	full := Role{Raises: 2, Extends: 2}
	for _, w := range []World{
		{Name: "no clocks", Roles: []Role{full, full, full}, Fences: maxFence, Checks: fences},
		{Name: "clocks", Roles: []Role{full, full, full}, Clocks: true, Fences: maxFence, Checks: all},
		{Name: "adopt", Roles: []Role{full, {Adopts: 1, Raises: 2}, full}, Clocks: true, Fences: maxFence, Checks: all},
		{Name: "restarts", Roles: []Role{full, full, full}, Clocks: true, Fences: maxFence, Crashes: 3, Crash: CrashMajorityStays, Checks: I1 | V | H},
	} {
		t.Run(w.Name, func(t *testing.T) {
			t.Parallel()
			rnd := rand.New(rand.NewPCG(3, 4))
			for range walks {
				if broken := walk(&w, rnd, 120, func(*state) {}); broken != "" {
					t.Fatal(broken)
				}
			}
		})
	}
}

// walk takes random steps until a property breaks.
func walk(w *World, rnd *rand.Rand, steps int, each func(*state)) (broken string) {
	var s state
	for range steps {
		var after state
		n := 0
		w.next(&s, func(_ Step, t *state, b string) {
			if broken == "" {
				broken = b
			}
			if n++; rnd.IntN(n) == 0 {
				after = *t
			}
		})
		if n == 0 || broken != "" {
			return broken
		}
		s = after
		each(&s)
	}
	return ""
}
