package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/seed-ce352c9b/redlock"
)

// A reporter writes what run has to say to stderr: lines of text or, with --json, a JSON
// object in each line.
type reporter struct {
	detailed bool         // --verbose
	log      *slog.Logger // nil: text

	// Events are written by a goroutine of their own, because a Trace must not block and
	// stderr may. If nobody reads stderr, the queue is full at some time, and further events are
	// dropped.
	mu      sync.Mutex
	events  chan redlock.Event // nil if nobody wants to know, or after flush
	dropped int
	written chan struct{} // closed when all events are written
}

const (
	// maxEvents is the length of the queue of events. Halved, more of them are dropped while
	// stderr is blocked.
	maxEvents = 256

	// flushWait is how long the end of a run waits for a reader of stderr that has events to
	// read. It adds to the time that redlock takes to exit only if stderr is blocked.
	flushWait = 50 * time.Millisecond
)

func newReporter(c *runConfig) *reporter {
	r := &reporter{detailed: c.verbose}
	if c.json {
		r.log = slog.New(slog.NewJSONHandler(os.Stderr, nil))
	}
	if c.json || c.verbose {
		r.events, r.written = make(chan redlock.Event, maxEvents), make(chan struct{})
		go r.writeEvents(r.events)
	}
	return r
}

// trace returns the Trace of which the reporter reports the events.
func (r *reporter) trace() redlock.Trace {
	if r.events == nil {
		return redlock.Trace{}
	}
	return redlock.Trace{Event: func(e redlock.Event) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.events == nil {
			return
		}
		select {
		case r.events <- e:
		default:
			r.dropped++
		}
	}}
}

// flush waits until the events are written, for a short while if nobody reads them.
func (r *reporter) flush() {
	r.mu.Lock()
	events, dropped := r.events, r.dropped
	r.events = nil
	r.mu.Unlock()
	if events == nil {
		return
	}
	close(events)
	select {
	case <-r.written:
		if dropped > 0 {
			r.warn("run: %d events were dropped, since nobody read them in time", dropped)
		}
	case <-time.After(flushWait):
	}
}

func (r *reporter) writeEvents(events <-chan redlock.Event) {
	defer close(r.written)
	for e := range events {
		if r.log != nil {
			r.writeJSON(e)
		} else if text := eventText(e); text != "" {
			complain("run: %s", text)
		}
	}
}

// writeJSON writes an event as an object with its kind as the message.
func (r *reporter) writeJSON(e redlock.Event) {
	level := slog.LevelInfo
	switch e.Kind {
	case redlock.EventLost:
		level = slog.LevelError
	case redlock.EventNodeDown, redlock.EventNodeQuarantined, redlock.EventNodeDuplicate, redlock.EventNodeMute, redlock.EventNodeRefusing:
		level = slog.LevelWarn
	}
	var fields []slog.Attr
	for _, a := range e.LogValue().Group() {
		if a.Key != "kind" {
			fields = append(fields, a)
		}
	}
	r.log.LogAttrs(context.Background(), level, e.Kind.String(), fields...)
}

// eventText returns what -v says about an event, or "" if that is nothing.
func eventText(e redlock.Event) string {
	switch e.Kind {
	case redlock.EventAcquired:
		fence := "no fence"
		if f := e.Lock.Fence(); f != 0 {
			fence = fmt.Sprint("fence ", f)
		}
		return fmt.Sprintf("acquired %q after %v, %s", e.Lock.Key(), e.Held.Round(100*time.Microsecond), fence)
	case redlock.EventNodeDown:
		return fmt.Sprintf("node %s does not reply: %v", e.Node, e.Err)
	case redlock.EventNodeQuarantined:
		return fmt.Sprintf("node %s grants nothing yet: %v", e.Node, e.Err)
	case redlock.EventNodeUp:
		return fmt.Sprintf("node %s works again", e.Node)
	case redlock.EventNodeDuplicate:
		return fmt.Sprintf("node %s is the same server as another node: %v", e.Node, e.Err)
	case redlock.EventNodeMute:
		return fmt.Sprintf("node %s does not announce releases: %v", e.Node, e.Err)
	case redlock.EventNodeRefusing:
		switch text := e.Err.Error(); {
		case strings.Contains(text, "replica of"), strings.Contains(text, "READONLY"):
			return fmt.Sprintf("node %s is a replica: %s", e.Node, text)
		case strings.Contains(text, "Redis Cluster"):
			return fmt.Sprintf("node %s belongs to a Redis Cluster: %s", e.Node, text)
		default:
			return fmt.Sprintf("node %s refuses: %s", e.Node, text)
		}
	}
	return ""
}

// complain reports an error.
func (r *reporter) complain(format string, args ...any) {
	r.write(slog.LevelError, fmt.Sprintf(format, args...))
}

// complainOf reports an error of package redlock, or a mistake in the arguments.
func (r *reporter) complainOf(err error) {
	var e *usageError
	if !errors.As(err, &e) {
		r.write(slog.LevelError, strings.TrimPrefix(flagNames.Replace(err.Error()), "redlock: "))
		return
	}
	r.complain("run: %s", e.text)
	if e.hint != "" {
		r.hint(e.hint)
	}
}

// warn reports what the user should change.
func (r *reporter) warn(format string, args ...any) {
	r.write(slog.LevelWarn, fmt.Sprintf(format, args...))
}

// hint says what to do about the error or the warning before it.
func (r *reporter) hint(text string) {
	if r.log != nil {
		r.log.Info("hint: " + text)
		return
	}
	fmt.Fprintf(os.Stderr, "hint: %s\n", text)
}

// say reports, with -v or --json, what is as it should be.
func (r *reporter) say(format string, args ...any) {
	if r.detailed || r.log != nil {
		r.write(slog.LevelInfo, fmt.Sprintf(format, args...))
	}
}

func (r *reporter) write(level slog.Level, text string) {
	if r.log != nil {
		r.log.Log(context.Background(), level, text)
		return
	}
	complain("%s", text)
}

// flagNames are the flags that set the options which errors of package redlock name.
var flagNames = strings.NewReplacer(
	"Options.Grace", "--grace",
	"usable Grace", "usable --grace",
	"Options.RestartGuard", "--guard",
	"Options.KeyPrefix", "--prefix",
	"Options.NodeTimeout", "--node-timeout",
	"take a shorter ttl and KeepAlive, or a longer guard for all clients", "take a shorter --ttl, or a longer --guard for all clients",
)
