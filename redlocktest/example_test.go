package redlocktest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/redlocktest"
)

// The examples are tests. Each passes its function to run, as go test would, and TestExamples executes them.
func TestExamples(t *testing.T) {
	examples := map[string]func(){"process": Example, "lost lock": Example_lostLock, "hung node": Example_hungNode, "slow clock": Example_slowClock, "nodes": Example_nodes, "bubble": Example_bubble}
	for name, example := range examples {
		ran := false
		run = func(test func(t *testing.T)) { ran = t.Run(name, test) }
		if example(); !ran {
			t.Errorf("example %q did not run, or failed", name)
		}
	}
}

var run func(test func(t *testing.T))

// importAll stands for the code under test: it imports rows under a lock, and stops when the lock is lost.
func importAll(ctx context.Context, l *redlock.Locker, rows int) (imported int, err error) {
	err = l.Run(ctx, "import", 3*time.Second, func(ctx context.Context, _ *redlock.Lock) error {
		for imported < rows {
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(100 * time.Millisecond): // the work on one row
				imported++
			}
		}
		return nil
	})
	return imported, err
}

// The code under test gets a Locker that is closed with the test. This works in real time, without a bubble.
func Example() {
	run(func(t *testing.T) {
		c := redlocktest.New(t, 3)
		mine, other := c.Locker(redlock.Options{}), c.Locker(redlock.Options{Name: "web-2"}) // two processes
		lock, err := other.TryAcquire(t.Context(), "import", time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := mine.TryAcquire(t.Context(), "import", time.Minute); !errors.Is(err, redlock.ErrHeld) {
			t.Errorf("got %v, want ErrHeld", err)
		}
		lock.Release(t.Context())
		if n, err := importAll(t.Context(), mine, 1); n != 1 || err != nil {
			t.Errorf("imported %d rows, %v, want 1", n, err)
		}
	})
}

// The code under test loses its lock: a majority of the nodes is cut off, and no renewal gets through.
func Example_lostLock() {
	run(func(t *testing.T) {
		redlocktest.Bubble(t, func(t *testing.T) {
			began := time.Now()
			c := redlocktest.New(t, 3)
			l := c.Locker(redlock.Options{})
			time.AfterFunc(time.Second, func() {
				c.Node(0).Partition()
				c.Node(1).Partition()
			})
			n, err := importAll(t.Context(), l, 1000)
			if !errors.Is(err, redlock.ErrLost) {
				t.Errorf("after %d rows: got %v, want ErrLost", n, err)
			}
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("it stopped after %v, want no later than a ttl after the last renewal", took)
			}
		})
	})
}

// One node of three hangs. The code under test should not notice.
func Example_hungNode() {
	run(func(t *testing.T) {
		redlocktest.Bubble(t, func(t *testing.T) {
			c := redlocktest.New(t, 3)
			l := c.Locker(redlock.Options{})
			c.Node(2).Hang()
			began := time.Now()
			if n, err := importAll(t.Context(), l, 100); n != 100 || err != nil {
				t.Errorf("imported %d rows, %v, want 100", n, err)
			}
			if took := time.Since(began); took > 11*time.Second {
				t.Errorf("it took %v, want 10 s: nobody waits for the hung node", took)
			}
			c.Node(2).Resume() // and executes what it received while it hung
			time.Sleep(5 * time.Second)
			if value, ok := c.Node(2).Get("import"); ok {
				t.Errorf("%s is left on the node that hung, want nothing", value)
			}
		})
	})
}

// Our clock is slow: those of two nodes run at twice its speed, which is far more than Options.Drift. The nodes let the lock
// expire before the code under test expects that. What it does then, a store has to refuse by the fence.
func Example_slowClock() {
	run(func(t *testing.T) {
		redlocktest.Bubble(t, func(t *testing.T) {
			c := redlocktest.New(t, 3)
			mine, other := c.Locker(redlock.Options{}), c.Locker(redlock.Options{})
			c.Node(0).SetClockRate(2)
			c.Node(1).SetClockRate(2)
			first, err := mine.TryAcquire(t.Context(), "import", 10*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(6 * time.Second)
			second, err := other.TryAcquire(t.Context(), "import", 10*time.Second)
			if err != nil {
				t.Fatalf("got %v, want the lock: it has expired on two nodes", err)
			}
			if !first.Valid() || second.Fence() <= first.Fence() {
				t.Errorf("valid %v, fences %d, %d: want two holders, the second with the greater fence", first.Valid(), first.Fence(), second.Fence())
			}
		})
	})
}

// The nodes themselves, for tests of other code than locks: a command that a hung node has not read is executed later.
func Example_nodes() {
	run(func(t *testing.T) {
		redlocktest.Bubble(t, func(t *testing.T) {
			c := redlocktest.New(t, 3)
			clients := c.Clients() // for the code under test
			for _, client := range clients {
				client.Ping(t.Context()) // connects: a new connection would hang at its HELLO and send nothing else
			}
			hung := c.Node(2)
			hung.Hang()
			yes := 0
			for _, client := range clients {
				ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
				if client.SetNX(ctx, "jobs/42", "me", time.Minute).Err() == nil {
					yes++
				}
				cancel()
			}
			if yes != 2 {
				t.Errorf("%d nodes said yes, want 2", yes)
			}
			hung.Resume()
			time.Sleep(time.Millisecond) // virtual
			if value, _ := hung.Get("jobs/42"); value != "me" {
				t.Error("the node lost the command that was in its socket buffer")
			}
		})
	})
}

// In a bubble an hour of renewals takes milliseconds, and every run is the same.
func Example_bubble() {
	run(func(t *testing.T) {
		redlocktest.Bubble(t, func(t *testing.T) {
			l := redlocktest.New(t, 3).Locker(redlock.Options{})
			err := l.Run(t.Context(), "report", time.Minute, func(ctx context.Context, lock *redlock.Lock) error {
				time.Sleep(time.Hour) // virtual
				return ctx.Err()
			})
			if err != nil {
				t.Errorf("got %v, want the lock to be held for an hour", err)
			}
		})
	})
}
