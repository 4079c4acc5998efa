package sim

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/harness"
)

// verdict returns the result of Judge, and a violation if the traffic was too thin for the run to be meaningful.
func verdict(h *History) []Violation {
	bad := Judge(h)
	if least := h.Schedule.minClaims; len(h.Claims) < least {
		bad = append(bad, Violation{Promise: "traffic", Key: -1, Text: fmt.Sprintf("%d acquisitions, want at least %d: too few to mean anything", len(h.Claims), least)})
	}
	return bad
}

// totals are the results of a campaign so far.
type totals struct {
	runs, claims, ops, faults, writes, turns atomic.Int64
	virtual                                  atomic.Int64
}

func (c *totals) add(h *History) {
	c.runs.Add(1)
	c.claims.Add(int64(len(h.Claims)))
	c.ops.Add(int64(len(h.Ops)))
	c.faults.Add(int64(len(h.Schedule.Faults)))
	c.writes.Add(int64(len(h.Writes)))
	c.turns.Add(int64(h.Turns))
	c.virtual.Add(int64(h.Length))
}

func (c *totals) String() string {
	return fmt.Sprintf("%d runs, %.2f virtual hours, %d faults, %d calls and %d acquisitions (%d in turn) and %d writes judged",
		c.runs.Load(), time.Duration(c.virtual.Load()).Hours(), c.faults.Load(), c.ops.Load(), c.claims.Load(), c.turns.Load(), c.writes.Load())
}

// baseSeed returns REDLOCK_SEED. Without it, a run that is as long as the variable length says has a new seed, and any other
// run has seed 1.
func baseSeed(t *testing.T, length string) uint64 {
	text := os.Getenv("REDLOCK_SEED")
	switch {
	case text == "" && os.Getenv(length) == "":
		return 1
	case text == "":
		return rand.Uint64() >> 32
	}
	seed, err := strconv.ParseUint(text, 0, 64)
	if err != nil {
		t.Fatalf("REDLOCK_SEED: %v", err)
	}
	return seed
}

// profiles returns the profiles that REDLOCK_PROFILES names, or all.
func profiles(t *testing.T) (list []*Profile) {
	text := os.Getenv("REDLOCK_PROFILES")
	if text == "" {
		return Profiles
	}
	for _, name := range strings.Split(text, ",") {
		p := ProfileNamed(name)
		if p == nil {
			t.Fatalf("REDLOCK_PROFILES: there is no profile %q", name)
		}
		list = append(list, p)
	}
	return list
}

// everything is how many rounds from seed 1 have every task and every fault of each profile; TestSim checks it.
const everything = 3

// TestSim runs every profile once, for a short time. With REDLOCK_SIM=3x it runs each three times at full length, from seed 1;
// with REDLOCK_SIM=5m it runs new seeds for five minutes. REDLOCK_SEED sets the first seed; REDLOCK_PROFILES selects profiles.
func TestSim(t *testing.T) {
	list := slices.Clone(profiles(t))
	seed, rounds, limit := uint64(1), 1, time.Hour
	again := "" // what REDLOCK_SIM has to be for one run of the same length
	switch text := os.Getenv("REDLOCK_SIM"); {
	case text == "":
		seed = baseSeed(t, "REDLOCK_SIM")
		for i, p := range list {
			if list[i] = p.brief(); harness.Sparing {
				list[i].Length /= 2
			}
		}
	case strings.HasSuffix(text, "x"):
		n, err := strconv.Atoi(strings.TrimSuffix(text, "x"))
		if err != nil || n < 1 {
			t.Fatalf("REDLOCK_SIM=%s: want a number of rounds, such as 3x, or a duration, such as 5m", text)
		}
		rounds, again = n, "REDLOCK_SIM=1x "
		if os.Getenv("REDLOCK_SEED") != "" {
			seed = baseSeed(t, "REDLOCK_SIM")
		} else if n >= everything {
			checkReach(t, list)
		}
	default:
		d, err := time.ParseDuration(text)
		if err != nil {
			t.Fatalf("REDLOCK_SIM=%s: want a number of rounds, such as 3x, or a duration, such as 5m", text)
		}
		seed, rounds, limit, again = baseSeed(t, "REDLOCK_SIM"), 1<<30, d, "REDLOCK_SIM=1s "
		for i := range list {
			list[i] = list[i].thin()
		}
	}
	t.Logf("base seed %d", seed)
	began := time.Now()
	var sum totals
	next := make(chan func(*testing.T))
	go func() {
		defer close(next)
		for i := range rounds {
			for _, p := range list {
				if time.Since(began) > limit || t.Failed() {
					return
				}
				next <- func(t *testing.T) {
					h := Run(t, Generate(p, seed+uint64(i)), false)
					bad := verdict(h)
					sum.add(h)
					if len(bad) > 0 {
						t.Errorf("%s\n(again: %sREDLOCK_SEED=%d REDLOCK_PROFILES=%s go test ./internal/sim -run 'TestSim$')", h.Report(bad), again, seed+uint64(i), p.Name)
					}
				}
			}
		}
	}()
	workers(t, next)
	took := time.Since(began)
	t.Logf("%v in %v: %.2f virtual hours a minute", &sum, took.Round(time.Millisecond), time.Duration(sum.virtual.Load()).Hours()/took.Minutes())
}

// checkReach fails the test unless the first rounds from seed 1 have every task and every fault of each profile.
func checkReach(t *testing.T, list []*Profile) {
	for _, p := range list {
		reached := map[string]bool{}
		for i := range uint64(everything) {
			schedule := Generate(p, 1+i)
			for _, task := range schedule.Tasks {
				reached["task "+string(task.Do)] = true
			}
			for _, fault := range schedule.Faults {
				reached["fault "+string(fault.Do)] = true
			}
		}
		for _, task := range p.Tasks {
			if !reached["task "+string(task.v)] {
				t.Errorf("%s: none of %d runs has the task %s", p.Name, everything, task.v)
			}
		}
		for _, fault := range p.Faults {
			if !reached["fault "+string(fault.v)] {
				t.Errorf("%s: none of %d runs has the fault %s", p.Name, everything, fault.v)
			}
		}
	}
}

// workers runs the incoming functions, in as many bubbles at once as there are processors.
func workers(t *testing.T, next <-chan func(*testing.T)) {
	t.Run("workers", func(t *testing.T) {
		var mu sync.Mutex
		n := 0
		for w := range 2 {
			t.Run(strconv.Itoa(w), func(t *testing.T) {
				t.Parallel()
				for f := range next {
					mu.Lock()
					n++
					name := strconv.Itoa(n)
					mu.Unlock()
					t.Run(name, f)
				}
			})
		}
	})
}
