package wait

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// votes reads "+" as a yes, "." as no reply or a free node, and a letter as another's value.
func votes(text string) (all []Vote) {
	for _, c := range text {
		switch c {
		case '+':
			all = append(all, Vote{Yes: true})
		case '.':
			all = append(all, Vote{})
		default:
			all = append(all, Vote{Holder: string(c)})
		}
	}
	return all
}

func TestIsTie(t *testing.T) {
	for text, want := range map[string]bool{
		"":      false,
		"...":   false,
		"+..":   false, // nobody else takes part
		"b..":   false, // nobody but b
		"+b.":   true,
		"bc.":   true,
		"+bc":   true,
		"++bbc": true,
	} {
		if got := IsTie("", votes(text)); got != want {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
		if IsTie("b", votes(text)) {
			t.Errorf("%q: a tie, though b has a majority", text)
		}
	}
}

// The takers that tied see the same nodes, and exactly one of them goes on: the one with most
// nodes, of several the one with the smallest value.
func TestOneWinsATieBreak(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		stored := rapid.StringMatching(`[abc.]{1,9}`).Draw(t, "stored")
		winners := ""
		for _, mine := range []string{"a", "b", "c"} {
			if strings.Contains(stored, mine) && winsTieBreak(votes(strings.ReplaceAll(stored, mine, "+")), mine) {
				winners += mine
			}
		}
		want := ""
		for _, mine := range []string{"a", "b", "c"} {
			if n := strings.Count(stored, mine); n > 0 && (want == "" || n > strings.Count(stored, want)) {
				want = mine
			}
		}
		if winners != want {
			t.Fatalf("%q: got the winners %q, want %q", stored, winners, want)
		}
	})
}
