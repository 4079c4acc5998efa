package main

import (
	"bytes"
	"context"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/redis/go-redis/v9/logging"
	"github.com/seed-ce352c9b/redlock"
)

func play(t *testing.T, d *demo) (*tally, string) {
	t.Helper()
	logging.Disable()
	var out bytes.Buffer
	got, err := d.run(t.Context(), &out, &lines{out: &out})
	if err != nil {
		t.Fatal(err)
	}
	return got, out.String()
}

// The length is that of the first faults: a kill, a hang and a death.
func TestDemoHolds(t *testing.T) {
	t.Parallel()
	got, out := play(t, &demo{workers: 4, length: 3500 * time.Millisecond})
	if !got.ok() {
		t.Errorf("got a bad verdict:\n%s", out)
	}
	if got.killed == 0 || got.hung == 0 || got.revived == 0 {
		t.Errorf("got %d killed, %d hung, %d revived; want some of each", got.killed, got.hung, got.revived)
	}
	for _, want := range []string{"export REDLOCK_NODES=127.0.0.1:", "KILLED", "HUNG", "the lock held"} {
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
	got, out := play(t, &demo{workers: 4, length: 700 * time.Millisecond, withoutLock: true})
	if got.ok() || got.overlaps == 0 || got.counter >= got.increments {
		t.Errorf("got %d overlaps, counter %d of %d; want some, and increments lost", got.overlaps, got.counter, got.increments)
	}
	if !strings.Contains(out, "THE LOCK DID NOT HOLD") {
		t.Errorf("got a good verdict:\n%s", out)
	}
}

func TestDemoNoticesABrokenCounter(t *testing.T) {
	t.Parallel()
	d := &demo{workers: 2, length: 700 * time.Millisecond}
	d.lossy = func(n int64) {
		if n != 2 || d.sections.Load() > 3 { // the second increment is written twice over
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

// The widest of everything, in 80 columns and 24 lines.
func TestScreenFits(t *testing.T) {
	c, err := startCluster(nodes)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	d := &demo{workers: 9, cluster: c, stage: newStage(9)}
	now := time.Now()
	for i := range d.stage.workers {
		a := &d.stage.workers[i]
		a.role, a.since, a.fence, a.renewed, a.until = role(i%4), now.Add(-100*time.Second), 1<<53-1, 12, now.Add(time.Second)
		a.round.Votes = make([]redlock.Vote, nodes)
		for j := range a.round.Votes {
			a.round.Votes[j].Answer = redlock.Answer(j % 4)
		}
	}
	c[0].kill()
	d.stage.fault(c[0], killed, 4)
	d.stage.enter(1, 1<<53-1, func() bool { return true })
	d.stage.die(1, now)
	d.stage.enter(2, 1<<53-1, func() bool { return true })
	d.counter.n.Store(1 << 20)
	events, ok := eventLines(d.workers, 80, 24)
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

// The cursor is back at the end, however it ends.
func TestScreenLeavesTheTerminal(t *testing.T) {
	t.Parallel()
	logging.Disable()
	var out bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	d := &demo{workers: 2}
	if _, err := d.run(ctx, &out, &screen{out: &out, size: func() (int, int) { return 80, 24 }}); err != nil {
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
	c[0].kill()
	try()
	if err := c[0].revive(); err != nil {
		t.Fatal(err)
	}
	c[1].hang()
	try()
	c[2].kill()
	if _, err := l.TryAcquire(t.Context(), "k", time.Second); err == nil {
		t.Error("got a lock from one node of three")
	}
	c[1].revive()
	try() // n3 is still away
}
