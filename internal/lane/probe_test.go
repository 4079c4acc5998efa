package lane

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/redis/go-redis/v9"
)

// A mutePings is a client whose PINGs are never answered until it is closed.
type mutePings struct {
	redis.Pipeliner
	n      atomic.Int32
	closed chan struct{}
}

func (p *mutePings) Process(context.Context, redis.Cmder) error {
	p.n.Add(1)
	<-p.closed
	return context.Canceled
}

func (p *mutePings) Pipeline() redis.Pipeliner { return p }

// A prober ends with a wake-up that it had no use for. The next one sends one PING at its first instant, and not two.
func TestAWakeUpIsForOneProber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &mutePings{closed: make(chan struct{})}
		ln := New(0, p, new(Servers), false)
		ln.probeWake <- struct{}{}
		ln.mu.Lock()
		ln.ensureProbe()
		ln.mu.Unlock()
		synctest.Wait()
		if n := p.n.Load(); n != 1 {
			t.Errorf("%d PINGs at one instant, want 1", n)
		}
		ln.Close()
		close(p.closed)
	})
}
