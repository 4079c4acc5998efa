package wait

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func admitted(e *Entrant) bool {
	select {
	case <-e.Admitted:
		return true
	default:
		return false
	}
}

func TestAGateAdmitsThoseThatShareNoKey(t *testing.T) {
	var g Gate
	enter := func(keys ...string) *Entrant { e, _ := g.Enter(keys); return e }
	is := func(when string, want ...*Entrant) {
		t.Helper()
		for i, e := range want {
			if !admitted(e) {
				t.Errorf("%s: call %d of those that should be admitted waits at %q", when, i, e.at)
			}
		}
	}
	waits := func(when string, e *Entrant, at string) {
		t.Helper()
		if admitted(e) || e.at != at {
			t.Errorf("%s: a call waits at %q, want %q", when, e.at, at)
		}
	}
	first := enter("a", "b")
	is("at first", first)
	second, third, fourth := enter("b", "c"), enter("c", "d"), enter("b")
	waits("while b is busy", second, "b")
	is("a call that waits at b does not occupy c", third)
	waits("behind another", fourth, "b")
	g.Free("a")
	waits("after a, but not b, was freed", second, "b")
	g.Free("b")
	waits("once b is free and c is not", second, "c")
	is("the next at b", fourth)
	fifth := enter("c")
	waits("a later call", fifth, "c")
	g.Free("b")
	g.Free("c", "d")
	is("in turn", second)
	waits("in turn", fifth, "c")
	sixth := enter("c")
	if at := g.Withdraw(fifth); at != "c" {
		t.Errorf("Withdraw: got %q, want c", at)
	}
	g.Free("b", "c")
	is("after one has gone", sixth)
	if at := g.Withdraw(sixth); at != "" {
		t.Errorf("Withdraw of a call that was admitted: got %q", at)
	}
	g.Occupy([]string{"c"})
	g.Free("c")
	seventh := enter("c")
	waits("while two occupy c", seventh, "c")
	g.Free("c")
	is("after both have gone", seventh)
	g.Free("c")

	eighth := enter("a", "b")
	ninth, tenth := enter("b"), enter("a", "b")
	waits("at a", tenth, "a")
	g.Free("a", "b")
	is("once both are free", eighth, ninth)
	waits("behind the one that waited at b before", tenth, "b")
	g.Free("b")
	is("at last", tenth)
	g.Free("a", "b")
	if len(g.busy)+len(g.waiting) > 0 {
		t.Errorf("the gate keeps %v and %v", g.busy, g.waiting)
	}
}

// Whatever calls come, are done and give up: no two that were admitted share a key, and nobody waits for a key that nobody
// has.
func TestAGateNeverBlocksWithoutReason(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var g Gate
		var in, out []*Entrant
		all := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}), 1, 3, rapid.ID)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch step := rapid.IntRange(0, 3).Draw(t, "step"); {
			case step > 1 || len(in)+len(out) == 0:
				e, waiting := g.Enter(all.Draw(t, "keys"))
				if admitted(e) != (waiting == 0) {
					t.Fatalf("Enter returned %d, admitted %v", waiting, admitted(e))
				}
				out = append(out, e)
			case step == 1 && len(out) > 0:
				i := rapid.IntRange(0, len(out)-1).Draw(t, "gives up")
				if g.Withdraw(out[i]) == "" {
					t.Fatal("Withdraw: it was admitted")
				}
				out = slices.Delete(out, i, i+1)
			case len(in) > 0:
				i := rapid.IntRange(0, len(in)-1).Draw(t, "is done")
				g.Free(in[i].keys...)
				in = slices.Delete(in, i, i+1)
			}
			busy := map[string]bool{}
			for _, e := range in {
				for _, key := range e.keys {
					busy[key] = true
				}
			}
			var still []*Entrant
			for _, e := range out { // by age
				if !admitted(e) {
					still = append(still, e)
					continue
				}
				for _, key := range e.keys {
					if busy[key] {
						t.Fatalf("two calls have %q", key)
					}
					busy[key] = true
				}
				in = append(in, e)
			}
			out = still
			for _, e := range out {
				if !busy[e.at] {
					t.Fatalf("a call waits at %q, which nobody has", e.at)
				}
			}
		}
	})
}
