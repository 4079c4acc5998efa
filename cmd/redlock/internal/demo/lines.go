package demo

import (
	"fmt"
	"io"
	"slices"
)

// Lines returns a view that prints one line for each event.
func Lines(out io.Writer) View { return &lines{out: out} }

type lines struct {
	out  io.Writer
	seen int
}

func (l *lines) palette() paint { return false }

func (l *lines) Leave() {}

func (l *lines) show(d *Demo, done <-chan struct{}) {
	fmt.Fprintf(l.out, "%d workers share one counter; the lock decides which of them may change it. Each line shows\nthe votes of n1 to n%d: yes, no (not its lock), - (no reply), . (not waited for)\n\n", d.Workers, nodes)
	for {
		select {
		case <-d.state.news:
			l.print(d.state)
		case <-done:
			l.print(d.state)
			return
		}
	}
}

// print writes the new events, without holding the state's mutex: out may block.
func (l *lines) print(s *state) {
	s.mu.Lock()
	fresh := slices.Clone(s.events[max(len(s.events)-(s.added-l.seen), 0):])
	l.seen = s.added
	s.mu.Unlock()
	for _, e := range fresh {
		fmt.Fprintf(l.out, "%6.2fs  %-8s  %s\n", e.at.Seconds(), e.who, e.text)
	}
}
