package sim

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/seed-ce352c9b/redlock/internal/harness"
	"github.com/seed-ce352c9b/redlock/internal/realredis"
)

// TestReal runs rounds of faults on real servers, in real time: with REDLOCK_LONG one, of ten seconds, or as many as fit
// into REDLOCK_REAL ("10m"). REDLOCK_SEED draws the same faults and tasks again, but real time repeats itself only roughly.
func TestReal(t *testing.T) {
	if os.Getenv("REDLOCK_REAL") == "" && harness.Rounds(0, 1) == 0 {
		t.Skip("REDLOCK_LONG=1 or REDLOCK_REAL=10m runs it")
	}
	limit := time.Duration(0)
	if text := os.Getenv("REDLOCK_REAL"); text != "" {
		var err error
		if limit, err = time.ParseDuration(text); err != nil {
			t.Fatalf("REDLOCK_REAL: %v", err)
		}
	}
	servers := append(realredis.Start(t, realDurable, "--appendonly", "yes", "--appendfsync", "always"),
		realredis.Start(t, realNodes-realDurable)...)
	logging.Disable() // go-redis logs every dial that fails
	t.Cleanup(logging.Enable)
	seed := baseSeed(t, "REDLOCK_REAL")
	t.Logf("base seed %d", seed)
	tardy := watchTardiness()
	defer tardy.close()
	began := time.Now()
	sum := newRealCount()
	for i := uint64(0); i == 0 || time.Since(began) < limit && !t.Failed(); i++ {
		t.Run(fmt.Sprint(seed+i), func(t *testing.T) {
			w := playReal(t, generateReal(seed+i), servers, tardy)
			bad, n := w.judge()
			sum.add(n)
			if len(bad) > 0 {
				t.Errorf("caught after %v: %v\n%s\n(again: REDLOCK_LONG=1 REDLOCK_SEED=%d go test ./internal/sim -run 'TestReal$')", time.Since(began).Round(time.Millisecond), bad[0].Promise, w.h.Report(bad), seed+i)
			}
		})
	}
	sum.most("latest timer of this process", tardy.worst(0, never))
	t.Logf("in %v:\n  %v", time.Since(began).Round(time.Second), sum)
}
