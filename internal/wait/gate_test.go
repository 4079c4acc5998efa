package wait

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func isDone(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

func admitted(e *Entrant) bool { return isDone(e.Done) && e.Full == "" }

func TestAGateAdmitsThoseThatShareNoKey(t *testing.T) {
	var g Gate
	enter := func(keys ...string) *Entrant { return g.Enter(keys) }
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
	if g.Withdraw(fifth) {
		t.Error("Withdraw of a call that waits: it was admitted")
	}
	g.Free("b", "c")
	is("after one has gone", sixth)
	if !g.Withdraw(sixth) {
		t.Error("Withdraw of a call that was admitted: it was not")
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

// A call has one place at a time, at the key for which it waits. It keeps the place when it is admitted or withdraws, for its
// caller to give back.
func TestACallAtAGateHasOnePlace(t *testing.T) {
	const most = 1
	places := map[string]int{}
	g := Gate{
		Take: func(key string) bool {
			if places[key] >= most {
				return false
			}
			places[key]++
			return true
		},
		Give: func(key string) { places[key]-- },
	}
	is := func(when string, e *Entrant, place, full string, a, b int) {
		t.Helper()
		if e.Place != place || e.Full != full || places["a"] != a || places["b"] != b {
			t.Errorf("%s: it has a place at %q and was refused at %q, places %v; want %q and %q, %d and %d", when, e.Place, e.Full, places, place, full, a, b)
		}
	}
	first := g.Enter([]string{"a"})
	g.Enter([]string{"b"})
	is("a call that is admitted at once", first, "", "", 0, 0)
	third := g.Enter([]string{"a", "b"})
	is("a call that waits", third, "a", "", 1, 0)
	refused := g.Enter([]string{"a"})
	is("one too many", refused, "", "a", 1, 0)
	if !isDone(refused.Done) || g.Withdraw(refused) {
		t.Error("one too many: it goes on to wait, or was admitted")
	}
	g.Free("a")
	is("a call that goes on to the next key", third, "b", "", 0, 1)
	fourth := g.Enter([]string{"b"})
	is("one too many there", fourth, "", "b", 0, 1)
	g.Free("b")
	if is("a call that was admitted", third, "b", "", 0, 1); !g.Withdraw(third) {
		t.Error("it was not admitted")
	}
	g.Give(third.Place)
	fifth, sixth := g.Enter([]string{"a", "c"}), g.Enter([]string{"b"})
	is("one of each", fifth, "a", "", 1, 1)
	is("one of each", sixth, "b", "", 1, 1)
	g.Free("a")
	if is("a call that is admitted from a", fifth, "a", "", 1, 1); g.Withdraw(sixth) {
		t.Error("it was admitted")
	}
	is("a call that withdraws", sixth, "b", "", 1, 1)

	seventh, eighth := g.Enter([]string{"a", "b"}), g.Enter([]string{"c", "b"})
	is("no place, since the one of the admitted call was not given back", seventh, "", "a", 1, 1)
	is("a call at c", eighth, "c", "", 1, 1)
	g.Free("c")
	is("a call that comes to a key without a place", eighth, "", "b", 1, 1)
	if !isDone(eighth.Done) || g.Withdraw(eighth) || places["c"] != 0 {
		t.Errorf("it goes on to wait, or was admitted, or keeps a place: %v", places)
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
				out = append(out, g.Enter(all.Draw(t, "keys")))
			case step == 1 && len(out) > 0:
				i := rapid.IntRange(0, len(out)-1).Draw(t, "gives up")
				if g.Withdraw(out[i]) {
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
