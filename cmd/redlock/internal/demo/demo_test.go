package demo

import (
	"bytes"
	"context"
	"encoding/xml"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/redis/go-redis/v9/logging"
	"github.com/seed-ce352c9b/redlock"
)

func play(t *testing.T, d *Demo) (*tally, string) {
	t.Helper()
	logging.Disable()
	var out bytes.Buffer
	_, err := d.Play(t.Context(), &out, Lines(&out))
	if err != nil {
		t.Fatal(err)
	}
	return &d.state.tally, out.String()
}

// The length covers the first faults: a kill, a hang and a death.
func TestDemoHolds(t *testing.T) {
	t.Parallel()
	got, out := play(t, &Demo{Workers: 4, Length: 3500 * time.Millisecond})
	if !got.ok() {
		t.Errorf("got a bad verdict:\n%s", out)
	}
	if got.killed == 0 || got.hung == 0 || got.revived == 0 {
		t.Errorf("got %d killed, %d hung, %d revived; want some of each", got.killed, got.hung, got.revived)
	}
	for _, want := range []string{"export REDLOCK_NODES=127.", "KILLED", "HUNG", "the lock held"} {
		if !strings.Contains(out, want) {
			t.Errorf("output lacks %q:\n%s", want, out)
		}
	}
	if strings.Contains(out, "\x1b") {
		t.Error("escape sequences where there is no terminal")
	}
}

func TestDemoNoticesOverlaps(t *testing.T) {
	t.Parallel()
	got, out := play(t, &Demo{Workers: 4, Length: 700 * time.Millisecond, withoutLock: true})
	if got.ok() || got.overlaps == 0 || got.counter >= got.increments {
		t.Errorf("got %d overlaps, counter %d of %d; want some, and increments lost", got.overlaps, got.counter, got.increments)
	}
	if !strings.Contains(out, "THE LOCK DID NOT HOLD") {
		t.Errorf("got a good verdict:\n%s", out)
	}
}

func TestDemoNoticesABrokenCounter(t *testing.T) {
	t.Parallel()
	d := &Demo{Workers: 2, Length: 700 * time.Millisecond}
	d.lossy = func(n int64) {
		if n != 2 || d.sections.Load() > 3 { // the write of 2 is dropped in the first three sections
			d.counter.n.Store(n)
		}
	}
	got, out := play(t, d)
	if got.ok() || got.overlaps != 0 || got.counter == got.increments {
		t.Errorf("got %d overlaps, counter %d of %d; want none, and an increment lost:\n%s", got.overlaps, got.counter, got.increments, out)
	}
}

func TestVerdict(t *testing.T) {
	yes, no := func() bool { return true }, func() bool { return false }
	good := func() *tally {
		t := &tally{}
		for f := range int64(3) {
			t.enter(0, f+1, yes)
			t.leave(0)
			t.increments++
			t.counter++
		}
		return t
	}
	for _, tt := range []struct {
		name string
		do   func(*tally)
		want bool
	}{
		{"good", func(*tally) {}, true},
		{"nothing happened", func(t *tally) { *t = tally{} }, false},
		{"lost increment", func(t *tally) { t.counter-- }, false},
		{"equal fences", func(t *tally) { t.enter(0, 3, yes) }, false},
		{"smaller fence", func(t *tally) { t.enter(0, 1, yes) }, false},
		{"overlap", func(t *tally) { t.enter(0, 4, yes); t.enter(1, 5, yes) }, false},
		{"overslept", func(t *tally) { t.enter(0, 4, no); t.enter(1, 5, yes) }, true},
		{"two inside, one of them valid", func(t *tally) { t.enter(0, 4, no); t.enter(1, 5, yes); t.enter(2, 6, yes) }, false},
		{"one after the other", func(t *tally) { t.enter(0, 4, yes); t.leave(0); t.enter(1, 5, yes) }, true},
	} {
		got := good()
		tt.do(got)
		if got.ok() != tt.want {
			t.Errorf("%s: got %v, want %v", tt.name, got.ok(), tt.want)
		}
		if strings.Contains(got.verdict(false), "FAILED") == tt.want {
			t.Errorf("%s: the text says otherwise:\n%s", tt.name, got.verdict(false))
		}
	}
}

var escapes = regexp.MustCompile(`\x1b\[[0-9;?]*[A-Za-z]`)

// The widest content fits in 80 columns and 24 lines.
func TestScreenFits(t *testing.T) {
	c, err := startCluster(nodes)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	d := &Demo{Workers: 9, cluster: c, state: newState(9)}
	now := time.Now()
	for i := range d.state.workers {
		a := &d.state.workers[i]
		a.role, a.since, a.fence, a.renewed, a.until = role(i%4), now.Add(-100*time.Second), 1<<53-1, 12, now.Add(time.Second)
		a.round.Votes = make([]redlock.Vote, nodes)
		for j := range a.round.Votes {
			a.round.Votes[j].Answer = redlock.Answer(j % 4)
		}
	}
	c[0].set(killed)
	d.state.fault(c[0], killed, 4)
	d.state.enter(1, 1<<53-1, func() bool { return true })
	d.state.die(1, now)
	d.state.enter(2, 1<<53-1, func() bool { return true })
	d.counter.n.Store(1 << 20)
	events, ok := eventLines(d.Workers, 80, 24)
	if !ok {
		t.Fatal("does not fit in 80 columns and 24 lines")
	}
	for _, p := range []paint{true, false} {
		frame := (&screen{paint: p}).frame(d, now, events)
		if len(frame) > 23 {
			t.Errorf("got %d lines, want at most 23", len(frame))
		}
		for _, line := range frame {
			plain := escapes.ReplaceAllString(line, "")
			if n := utf8.RuneCountInString(plain); n > screenWidth {
				t.Errorf("got %d columns, want at most %d: %s", n, screenWidth, plain)
			}
			if !p && plain != line {
				t.Errorf("colours without paint: %q", line)
			}
		}
	}
}

// The cursor is visible at the end, however the demo ends.
func TestScreenLeavesTheTerminal(t *testing.T) {
	t.Parallel()
	logging.Disable()
	var out bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	d := &Demo{Workers: 2}
	if _, err := d.Play(ctx, &out, Screen(&out, false, func() (int, int) { return 80, 24 })); err != nil {
		t.Fatal(err)
	}
	hidden, shown := strings.LastIndex(out.String(), "\x1b[?25l"), strings.LastIndex(out.String(), "\x1b[?25h")
	if hidden < 0 || shown < hidden {
		t.Errorf("the cursor was hidden at %d and shown at %d", hidden, shown)
	}
}

func TestNodeFaults(t *testing.T) {
	t.Parallel()
	logging.Disable()
	c, err := startCluster(3)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	l, err := redlock.Open(redlock.Options{NodeTimeout: 50 * time.Millisecond}, c.addrs()...)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	try := func() {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		lock, err := l.Acquire(ctx, "k", time.Second)
		if err != nil {
			t.Fatalf("got %v, want the lock", err)
		}
		lock.Release(t.Context())
	}
	try()
	c[0].set(killed)
	try()
	if err := c[0].set(up); err != nil {
		t.Fatal(err)
	}
	c[1].set(hung)
	try()
	c[2].set(killed)
	if _, err := l.TryAcquire(t.Context(), "k", time.Second); err == nil {
		t.Error("got a lock from one node of three")
	}
	c[1].set(up)
	try() // n3 is still down
}

// The timeline is well-formed XML with a row for each node and worker, a box for each holder, and the faults.
func TestTimeline(t *testing.T) {
	d := &Demo{Workers: 2, Length: 4 * time.Second, state: newState(2)}
	yes := func() bool { return true }
	d.state.wait(0)
	d.state.enter(0, 7, yes)
	d.state.fault(&node{name: "n2", i: 1}, killed, 4)
	d.state.wrote(0, 0, 1)
	d.state.enter(1, 8, yes)
	d.state.fault(&node{name: "n2", i: 1}, up, 5)
	d.state.die(1, time.Now())
	d.state.fault(&node{name: "n3", i: 2}, hung, 4) // it stays hung
	var out bytes.Buffer
	if err := d.WriteTimeline(&out); err != nil {
		t.Fatal(err)
	}
	dec := xml.NewDecoder(bytes.NewReader(out.Bytes()))
	for {
		if _, err := dec.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatalf("not XML: %v\n%s", err, out.String())
		}
	}
	for want, n := range map[string]int{">killed,": 1, ">hung,": 1, ">holds, fence 7,": 1, ">holds, fence 8,": 1, ">dead: its lock expires,": 1, ">worker-2<": 1, ">n5<": 1, "<circle": 2} {
		if got := strings.Count(out.String(), want); got != n {
			t.Errorf("%q: got %d times, want %d", want, got, n)
		}
	}
}
