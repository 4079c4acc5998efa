package redlock_test

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/harness"
	"github.com/seed-ce352c9b/redlock/internal/seam"
	"github.com/seed-ce352c9b/redlock/redlocktest"
)

// A schedule is what happens in one run: data, drawn before the run starts, so that
// a failing one shrinks to the steps that matter.
type schedule struct {
	nodes   int
	lockers int
	seed    uint64
	steps   []step
}

type step struct {
	do     string
	locker int           // who
	lock   int           // which of its locks, newest first
	node   int           // or what it is done to
	n      int           // how many replies
	ttl    time.Duration // of acquisitions
	limit  time.Duration // of the caller's patience
	pause  time.Duration // before the next step
}

func (s step) String() string {
	return fmt.Sprintf("{%s locker=%d lock=%d node=%d n=%d ttl=%v limit=%v pause=%v}", s.do, s.locker, s.lock, s.node, s.n, s.ttl, s.limit, s.pause)
}

var callSteps = []string{"try", "acquire", "acquire", "extend", "keepalive", "release", "adopt", "inspect"}
var faultSteps = []string{"hang", "resume", "partition", "cut-requests", "cut-replies", "heal", "drop", "lose", "slow", "stop", "start", "restart", "fail"}

func drawSchedule(t *rapid.T) schedule {
	ms := func(lo, hi int) *rapid.Generator[time.Duration] {
		return rapid.Map(rapid.IntRange(lo*10, hi*10), func(n int) time.Duration { return time.Duration(n) * 100 * time.Microsecond })
	}
	one := rapid.Custom(func(t *rapid.T) step {
		s := step{
			locker: rapid.IntRange(0, 2).Draw(t, "locker"),
			lock:   rapid.IntRange(0, 2).Draw(t, "lock"),
			node:   rapid.IntRange(0, 4).Draw(t, "node"),
			n:      rapid.IntRange(1, 4).Draw(t, "n"),
			ttl:    ms(20, 1500).Draw(t, "ttl"),
			limit:  rapid.OneOf(ms(0, 3), ms(5, 400), ms(5, 400)).Draw(t, "limit"),
			pause:  rapid.OneOf(ms(0, 2), ms(0, 30), ms(0, 800)).Draw(t, "pause"),
		}
		s.do = rapid.SampledFrom(rapid.SampledFrom([][]string{callSteps, callSteps, faultSteps}).Draw(t, "sort")).Draw(t, "do")
		return s
	})
	return schedule{
		nodes:   rapid.SampledFrom([]int{1, 2, 3, 3, 4, 5, 5}).Draw(t, "nodes"),
		lockers: rapid.IntRange(1, 3).Draw(t, "lockers"),
		seed:    uint64(rapid.IntRange(0, 1<<20).Draw(t, "seed")),
		steps:   rapid.SliceOfN(one, 1, 40).Draw(t, "steps"),
	}
}

// A claim is one lock as its holder could believe in it.
type claim struct {
	lock   *redlock.Lock
	asked  time.Time // the call
	got    time.Time // its return
	until  time.Time // the end, once over: released, or Until
	over   bool
	locker int
}

// A world runs a schedule and judges it. The judge knows the promises and what the
// API returned, and nothing of how it is done.
type world struct {
	t       *testing.T
	c       *redlocktest.Cluster
	lockers []*redlock.Locker
	wg      sync.WaitGroup

	mu     sync.Mutex
	claims []*claim
	bad    []string
}

const propertyKey = "jobs/42"

func (w *world) fail(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.bad = append(w.bad, fmt.Sprintf(format, args...))
}

func runSchedule(t *testing.T, s schedule) (failures []string, acquired int) {
	redlocktest.BubbleFunc(t, func() {
		w := &world{t: t, c: redlocktest.NewSeeded(t, s.nodes, s.seed)}
		for i := range s.lockers {
			l, err := harness.NewSeamed(redlock.Options{Name: "c" + strconv.Itoa(i)}, nil, nil, s.seed+uint64(i), w.c.Nodes()...)
			if err != nil {
				t.Fatal(err)
			}
			w.lockers = append(w.lockers, l)
		}
		for _, st := range s.steps {
			w.do(st)
			time.Sleep(st.pause)
			w.checkNow()
		}
		for i := range w.c.Len() {
			w.mend(w.c.Node(i))
		}
		w.wg.Wait()
		w.checkClaims()
		w.checkLeftovers()
		failures, acquired = w.bad, len(w.claims)
	})
	return failures, acquired
}

// newest is the locker's n-th newest claim.
func (w *world) newest(locker, n int) *claim {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range slices.Backward(w.claims) {
		if c.locker == locker {
			if n == 0 {
				return c
			}
			n--
		}
	}
	return nil
}

func (w *world) mend(n *redlocktest.Node) {
	n.Resume()
	n.Heal()
	n.Delay(0, 0)
	n.DropReplies(0)
	n.LoseReplies(0)
	n.Fail("")
	n.Start()
}

// do starts a step. Calls run on their own, so that steps overlap.
func (w *world) do(s step) {
	node := w.c.Node(s.node % w.c.Len())
	locker := s.locker % len(w.lockers)
	l := w.lockers[locker]
	ctx := context.Background()
	call := func(f func()) { w.wg.Go(f) }
	switch s.do {
	case "try", "acquire":
		call(func() {
			ctx, cancel := context.WithTimeout(ctx, s.limit)
			defer cancel()
			asked := time.Now()
			f := l.TryAcquire
			if s.do == "acquire" {
				f = l.Acquire
			}
			k, err := f(ctx, propertyKey, s.ttl)
			w.got(locker, asked, k, err)
		})
	case "adopt":
		if c := w.newest(s.n%len(w.lockers), s.lock); c != nil {
			call(func() {
				asked := time.Now()
				k, err := l.Adopt(ctx, propertyKey, c.lock.Value(), s.ttl)
				if err == nil {
					// The giver's claim ends with the hand-over, by agreement.
					w.end(c, asked)
				}
				w.got(locker, asked, k, err)
			})
		}
	case "extend":
		if c := w.newest(locker, s.lock); c != nil {
			call(func() {
				before := c.lock.Until()
				err := c.lock.Extend(ctx)
				if after := c.lock.Until(); after.Before(before) {
					w.fail("Until moved back from %v to %v", before, after)
				}
				if err == nil && time.Now().After(before) && !c.lock.Until().After(before) {
					w.fail("extended after Until")
				}
			})
		}
	case "keepalive":
		if c := w.newest(locker, s.lock); c != nil {
			began := time.Now()
			held, stop := c.lock.KeepAlive(ctx)
			context.AfterFunc(held, func() {
				if now, until := time.Now(), c.lock.Until(); now.After(until) && now.After(began) {
					w.fail("a KeepAlive context ended %v after Until", now.Sub(until))
				}
			})
			call(func() { time.Sleep(2 * s.limit); stop() })
		}
	case "release":
		if c := w.newest(locker, s.lock); c != nil {
			w.end(c, time.Now())
			call(func() { c.lock.Release(ctx) })
		}
	case "inspect":
		call(func() { l.Inspect(ctx, propertyKey) })
	case "hang":
		node.Hang()
	case "resume":
		node.Resume()
	case "partition":
		node.Partition()
	case "cut-requests":
		node.PartitionRequests()
	case "cut-replies":
		node.PartitionReplies()
	case "heal":
		node.Heal()
	case "drop":
		node.DropReplies(s.n)
	case "lose":
		node.LoseReplies(s.n)
	case "slow":
		node.Delay(s.limit/4, s.limit/8)
	case "stop":
		node.Stop()
	case "start":
		node.Start()
	case "restart":
		node.Restart(true)
	case "fail":
		node.Fail([]string{"", "LOADING Redis is loading the dataset in memory", "READONLY You can't write against a read only replica."}[s.n%3])
	default:
		panic(s.do)
	}
}

func (w *world) got(locker int, asked time.Time, k *redlock.Lock, err error) {
	if err != nil {
		if k != nil {
			w.fail("a lock and an error: %v", err)
		}
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.claims = append(w.claims, &claim{lock: k, asked: asked, got: time.Now(), locker: locker})
}

// end ends a claim by its holder's will.
func (w *world) end(c *claim, at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !c.over {
		c.over = true
		c.until = at
		if u := c.lock.Until(); u.Before(at) {
			c.until = u
		}
	}
}

// checkNow: at this instant at most one is valid (I1).
func (w *world) checkNow() {
	w.mu.Lock()
	var valid []*claim
	for _, c := range w.claims {
		if !c.over && c.lock.Valid() {
			valid = append(valid, c)
		}
	}
	w.mu.Unlock()
	if len(valid) > 1 {
		w.fail("I1: valid at once: %s and %s", valid[0].lock.Value(), valid[1].lock.Value())
	}
}

// checkClaims: no two claims overlap (I1); fences grow in real-time order (I2).
func (w *world) checkClaims() {
	for _, c := range w.claims {
		w.end(c, c.lock.Until())
	}
	for i, a := range w.claims {
		for _, b := range w.claims[i+1:] {
			if a.got.Before(b.until) && b.got.Before(a.until) {
				w.fail("I1: %s [%v, %v) and %s [%v, %v) overlap", a.lock.Value(), a.got, a.until, b.lock.Value(), b.got, b.until)
			}
			switch {
			case a.lock.Fence() == b.lock.Fence():
				w.fail("I2: %s and %s have one fence %d", a.lock.Value(), b.lock.Value(), a.lock.Fence())
			case a.got.Before(b.asked) && a.lock.Fence() > b.lock.Fence(),
				b.got.Before(a.asked) && b.lock.Fence() > a.lock.Fence():
				w.fail("I2: fences %d of %s and %d of %s are not in order", a.lock.Fence(), a.lock.Value(), b.lock.Fence(), b.lock.Value())
			}
		}
	}
}

// checkLeftovers: when all is healed and released, only registers with a life are
// left, and nothing is owed (I4).
func (w *world) checkLeftovers() {
	for _, c := range w.claims {
		w.wg.Go(func() { c.lock.Release(context.Background()) })
	}
	w.wg.Wait()
	time.Sleep(4 * time.Second) // the pools' pause between dials, a probe, and the second look
	for i := range w.c.Len() {
		n := w.c.Node(i)
		for _, key := range n.Keys() {
			if harness.Expires(key, n.TTL(key)) {
				continue
			}
			if !strings.HasSuffix(key, ":fence") {
				value, _ := n.Get(key)
				w.fail("I4: %s still has %s = %s", n.Name(), key, value)
			} else if n.TTL(key) <= 0 {
				w.fail("I4: %s has %s without a ttl", n.Name(), key)
			}
		}
		for j, l := range w.lockers {
			if owed := seam.Peek(l).Nodes[i].Owed; owed != 0 {
				w.fail("I4: locker %d still owes %d to %s", j, owed, n.Name())
			}
			if seam.Peek(l).Nodes[i].Down {
				w.fail("I5: locker %d does not use %s again", j, n.Name())
			}
		}
	}
	for j, l := range w.lockers {
		if n := seam.Peek(l).Held + seam.Peek(l).Leaving; n != 0 {
			w.fail("I4: locker %d keeps %d locks and clean-ups", j, n)
		}
		if err := l.Close(); err != nil {
			w.fail("Close: %v", err)
		}
	}
}

// TestSchedules throws random schedules at the library. More of them, and longer
// shrinking: -rapid.checks and -rapid.shrinktime; one failure again: -rapid.seed.
//
// Attacks 16, 75.
func TestSchedules(t *testing.T) {
	if f := flag.Lookup("rapid.checks"); f.Value.String() == f.DefValue {
		f.Value.Set(strconv.Itoa(harness.Rounds(250, 5000))) // one of them costs next to nothing
		if harness.Sparing {
			f.Value.Set("150")
		}
		defer f.Value.Set(f.DefValue)
	}
	runs, acquired := 0, 0
	defer func() {
		t.Logf("%d schedules, %d acquisitions judged", runs, acquired)
		if !t.Failed() && acquired < runs/2 {
			t.Errorf("%d acquisitions in %d schedules: too few to mean anything", acquired, runs)
		}
	}()
	rapid.Check(t, func(rt *rapid.T) {
		s := drawSchedule(rt)
		bad, n := runSchedule(t, s)
		runs, acquired = runs+1, acquired+n
		if len(bad) > 0 {
			rt.Fatalf("%d nodes, %d lockers, seed %d, %d steps:\n  %v\n%s", s.nodes, s.lockers, s.seed, len(s.steps), s.steps, strings.Join(bad, "\n"))
		}
	})
}
