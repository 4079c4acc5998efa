package main

import (
	"fmt"
	"io"
	"slices"
)

// lines shows the stage as one line for every event.
type lines struct {
	out  io.Writer
	seen int
}

func (l *lines) palette() paint { return false }

func (l *lines) leave() {}

func (l *lines) show(d *demo, done <-chan struct{}) {
	fmt.Fprintf(l.out, "%d workers share one counter, and the lock says whose turn it is. Each line shows the\nvotes of n1 to n%d: yes, no (not its lock), - (no answer), . (not waited for)\n\n", d.workers, nodes)
	for {
		select {
		case <-d.stage.news:
			l.print(d.stage)
		case <-done:
			l.print(d.stage)
			return
		}
	}
}

// print writes what is new. Not under the stage's lock: out may block.
func (l *lines) print(s *stage) {
	s.mu.Lock()
	fresh := slices.Clone(s.events[max(len(s.events)-(s.told-l.seen), 0):])
	l.seen = s.told
	s.mu.Unlock()
	for _, e := range fresh {
		fmt.Fprintf(l.out, "%6.2fs  %-8s  %s\n", e.at.Seconds(), e.who, e.text)
	}
}
