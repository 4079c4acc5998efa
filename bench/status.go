package main

import (
	"fmt"
	"os"
	"time"
)

// A status is the line on stderr that tells how far we are, so that stdout can be kept. On a terminal it stays in its place.
type status struct {
	start    time.Time
	of, at   int
	section  string
	terminal bool
}

func (s *status) begin(sections int) {
	s.start, s.of = time.Now(), sections
	if info, err := os.Stderr.Stat(); err == nil {
		s.terminal = info.Mode()&os.ModeCharDevice != 0
	}
}

func (s *status) elapsed() time.Duration { return time.Since(s.start).Round(time.Second) }

func (s *status) next(section string) {
	s.at, s.section = s.at+1, section
	s.show("")
}

func (s *status) show(text string) {
	line := fmt.Sprintf("%7v  %d/%d %s: %s", s.elapsed(), s.at, s.of, s.section, text)
	if s.terminal {
		fmt.Fprintf(os.Stderr, "\r\x1b[K%s", line)
	} else {
		fmt.Fprintln(os.Stderr, line)
	}
}

// clear makes room for something else.
func (s *status) clear() {
	if s.terminal {
		fmt.Fprint(os.Stderr, "\r\x1b[K")
	}
}

func (s *status) end() {
	s.clear()
	fmt.Fprintf(os.Stderr, "%v in all\n", s.elapsed())
}
