package sim

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/seam"
)

// A client is one process.
type client struct {
	w     *world
	i     int
	links []*redis.Client
	nodes []redlock.Node

	mu           sync.Mutex
	l            *redlock.Locker
	life         int // number of Lockers opened
	dead         bool
	incarnations int           // number of processes that replaced a dead one
	ending       bool          // l is being closed
	paused       time.Time     // the process is paused until then
	wall         time.Duration // how far its wall clock is ahead
	set          time.Time     // when the wall clock was last stepped
}

func (w *world) newClient(i int) *client {
	c := &client{w: w, i: i}
	c.connect()
	if i < len(w.s.Clients) {
		c.wall = w.s.Clients[i].Wall
	}
	c.start()
	return c
}

// connect creates the connections of the process.
func (c *client) connect() {
	c.links, c.nodes = c.w.c.Clients(), nil
	for _, n := range c.links {
		d := pollingNode{n, c.w.s.Seed + uint64(c.i)}
		if c.w.s.Subscribers {
			c.nodes = append(c.nodes, subscribingNode{d})
		} else {
			c.nodes = append(c.nodes, d)
		}
	}
	if c.w.s.Edges {
		c.wrapNodes()
	}
}

// otherLife is Options.FenceLife of some clients, so that those of one key differ.
const otherLife = 2 * time.Hour

// start opens the process's Locker, also again after Close.
func (c *client) start() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.life++
	opt := redlock.Options{Name: fmt.Sprintf("c%d.%d", c.i, c.life), Trace: c.trace(), Fair: c.w.s.Fair, RestartGuard: c.w.s.Guard, Grace: c.w.s.Grace}
	if c.i < len(c.w.s.Clients) {
		opt.NodeTimeout = c.w.s.Clients[c.i].NodeTimeout
		opt.Fair = opt.Fair || c.w.s.Clients[c.i].Fair
		if c.w.s.Clients[c.i].Panics > 0 {
			opt.Retry = c.retry
		}
	}
	if c.w.s.Unfenced && c.i%2 == 1 {
		opt.NoFence = true // what tasks ask for counts
	}
	if c.i%3 == 2 {
		opt.FenceLife = otherLife
	}
	l, err := newLocker(opt, nil, c.wallNow, mix(c.w.s.Seed, uint64(c.i), uint64(c.life)), c.nodes...)
	if err != nil {
		panic(err)
	}
	seam.JoinFrom(l, int((c.w.s.Seed+uint64(c.i+c.life))%3)) // never, even alone, or as in production
	c.l, c.ending = l, false
	if c.dead {
		l.Close()
	}
}

// stop returns the Locker that must be closed, and whether the caller is the first to close it.
func (c *client) stop() (l *redlock.Locker, mine bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	mine = !c.ending
	c.ending = true
	return c.l, mine
}

// label returns the part of a value before the UUID, for values of the process's current Locker.
func (c *client) label() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Sprintf("c%d.%d", c.i, c.life)
}

func (c *client) locker() *redlock.Locker {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.l
}

func (c *client) wallNow() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.wall)
}

func (c *client) setWall(by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall += by
	c.set = time.Now()
}

// lastSet returns when the wall clock was last stepped.
func (c *client) lastSet() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.set
}

// stoodStill reports whether the process was paused after since.
func (c *client) stoodStill(since time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.paused.After(since)
}

// observe is called between two steps of an acquisition, on the caller's goroutine: after the raise and after the verdict,
// both before the clock is read. A paused process may stand still in both places.
//
// It sleeps for a short time of its own, because several rounds of a Locker can end at the same instant: with the timeout of
// a node for which all of them wait, or in one batch. Otherwise the scheduler would choose the goroutine that draws the
// Locker's next random number.
func (c *client) observe(_ context.Context, r redlock.Round) {
	defer c.maybePanic(uint64(r.Start.UnixNano()), uint64(r.Op), uint64(r.Attempt), hashOf(r.Key))
	switch r.Op {
	case redlock.OpAcquire, redlock.OpRaise:
		c.judgePace(r)
		c.waitWhilePaused()
	case redlock.OpExtend, redlock.OpLook:
	case redlock.OpAdopt:
		if !c.w.s.Edges { // in other profiles only one caller adopts at a time
			return
		}
	default:
		return
	}
	time.Sleep(jitter(c.w.s.Seed, uint64(c.i), uint64(r.Start.UnixNano()), uint64(r.Op), uint64(r.Attempt), hashOf(r.Key)))
}

// jitter returns a pseudo-random duration of some microseconds; equal arguments give equal results.
func jitter(vs ...uint64) time.Duration { return time.Duration(mix(vs...) % 16381) }

// waitWhilePaused sleeps while the process is paused.
func (c *client) waitWhilePaused() {
	c.mu.Lock()
	until := c.paused
	c.mu.Unlock()
	time.Sleep(time.Until(until))
}

func (c *client) pause(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if until := time.Now().Add(d); until.After(c.paused) {
		c.paused = until
	}
}

func (c *client) isDead() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dead
}

// die ends the process without a clean-up: nothing more of it reaches any node. The Locker is closed only so that its
// goroutines end; its commands are not delivered.
func (c *client) die() { c.end("dies", c.w.c.Cut) }

// end ends the process by cutting it off with off. It returns false if the process has already ended.
func (c *client) end(how string, off func(...*redis.Client)) bool {
	c.mu.Lock()
	was := c.dead
	c.dead = true
	l, links := c.l, c.links
	c.mu.Unlock()
	if was {
		return false
	}
	c.w.mu.Lock()
	c.w.closedAt[c.label()] = never // it does not clean up
	c.w.mu.Unlock()
	c.w.struck("c%d %s", c.i, how)
	off(links...)
	l.Close()
	return true
}

// startAnother starts another process in place of one that has ended.
func (c *client) startAnother() {
	c.mu.Lock()
	c.connect()
	c.dead = false
	c.incarnations++
	c.mu.Unlock()
	c.start()
}

// linkTo returns the process's current client of a node.
func (c *client) linkTo(node int) *redis.Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.links[node]
}

// incarnation returns the number of the current process, among those that were in this place.
func (c *client) incarnation() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.incarnations
}

// outcome returns the word for an error in the history.
func outcome(err error) string {
	switch {
	case err == nil:
		return "ok"
	case err == errThrown:
		return "panic"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return "ctx"
	case errors.Is(err, redlock.ErrHeld):
		return "held"
	case errors.Is(err, redlock.ErrLost):
		return "lost"
	case errors.Is(err, redlock.ErrNoQuorum):
		return "no quorum"
	case errors.Is(err, redlock.ErrClosed):
		return "closed"
	}
	return "error"
}
