package wait

import (
	"strings"
	"testing"
)

// FuzzAnnounced feeds a plan with announcements of any form. Whoever makes them, the head
// is to try only where a majority of the nodes says of one value that we are told first.
func FuzzAnnounced(f *testing.F) {
	f.Add([]byte("\x001 a\n\x011 a\n"))
	f.Add([]byte("\x002 a\n\x011 a\n\x021 a\n"))
	f.Add([]byte("\x00a\n\x01 \n\x021\n\x001 \n\x011 \n"))
	f.Add([]byte("\x001 a\n\x011 b\n\x021 c\n\x001 d\n\x011 e\n\x021 f\n\x001 g\n\x011 h\n\x021 i\n\x011 a\n"))
	f.Add([]byte("\xff1 \xff\x00\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		const nodes = 3
		p := NewPlan(rules(0.5))
		first := make(map[string]map[int]bool) // by value: the nodes that told us first
		for line := range strings.SplitSeq(string(b), "\n") {
			if line == "" {
				continue
			}
			node, text := int(line[0])%nodes, line[1:]
			_, wake := p.Announced(node, text, "", epoch)
			if nth, value, ok := strings.Cut(text, " "); ok && nth == "1" {
				if first[value] == nil {
					first[value] = make(map[int]bool)
				}
				first[value][node] = true
			}
			if !p.due {
				continue
			}
			p.due = false
			if _, value, _ := strings.Cut(text, " "); len(first[value]) < 2 || !wake {
				t.Fatalf("told to try by %q of node %d (wake: %v): %d nodes told us first", text, node, wake, len(first[value]))
			}
		}
	})
}
