package main

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-ce352c9b/redlock/examples/internal/setup"
)

// Three schedulers tick 30 ms apart. A job that is shorter than the interval runs at every
// tick. A longer one runs at every tick that does not find it running.
func TestRunsAreTicks(t *testing.T) {
	const interval, ticks = 1200 * time.Millisecond, 3
	for name, c := range map[string]struct {
		took time.Duration
		runs int32
	}{
		"short": {interval / 10, ticks},
		"long":  {interval * 3 / 2, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lockers := setup.Test(t, "").Lockers("scheduler", 3)
			var runs atomic.Int32
			begin := time.Now().Add(interval)
			for i, l := range lockers {
				s, err := schedule(l, "report", begin.Add(time.Duration(i)*30*time.Millisecond), interval, func() {
					runs.Add(1)
					time.Sleep(c.took)
				})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { s.Shutdown() })
			}
			time.Sleep(time.Until(begin) + (ticks-1)*interval + interval*3/4)
			if got := runs.Load(); got != c.runs {
				t.Errorf("%d runs at %d ticks, want %d", got, ticks, c.runs)
			}
		})
	}
}
