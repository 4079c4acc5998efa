package lane

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ce352c9b/redlock/internal/wire"
)

// The keys whose registers failed attempts have given a ttl are bounded: those beyond are not
// forgotten, but given one by every attempt.
func TestRememberedLivesAreBounded(t *testing.T) {
	r := NewRegisters(nil, nil)
	due := func(i int) Nodes {
		name, _ := wire.NameKey("", fmt.Sprint("jobs/", i))
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.due(name, time.Second, 1, nil)
	}
	const more = 100
	for i := range maxRegisters + more {
		if due(i) != 1 {
			t.Fatalf("the first failed attempt at key %d: its register is given no ttl", i)
		}
	}
	defer r.timer.Stop() // nobody is asked
	if got := len(r.keys); got != maxRegisters {
		t.Errorf("remembered after %d keys: got %d, want %d", maxRegisters+more, got, maxRegisters)
	}
	if known, other := due(0), due(maxRegisters); known != 0 || other != 1 {
		t.Errorf("the second attempt: got %d for a key that is remembered and %d for one that is not, want 0 and 1", known, other)
	}
}

// A pipes is a client that records the pipelines that it executes, by their numbers of
// commands, and fails them.
type pipes struct{ sizes chan int }

func (p *pipes) Process(context.Context, redis.Cmder) error { return errors.New("no answer") }

// sent returns the pipelines executed since it was called last.
func (p *pipes) sent() (sizes []int) {
	for len(p.sizes) > 0 {
		sizes = append(sizes, <-p.sizes)
	}
	return sizes
}

func (p *pipes) Pipeline() redis.Pipeliner { return &recordedPipe{to: p} }

type recordedPipe struct {
	redis.Pipeliner
	to *pipes
	n  int
}

func (p *recordedPipe) BatchProcess(_ context.Context, cmds ...redis.Cmder) error {
	p.n += len(cmds)
	return nil
}

func (p *recordedPipe) Exec(context.Context) ([]redis.Cmder, error) {
	p.to.sizes <- p.n
	p.n = 0
	return nil, errors.New("ERR no")
}

// All calls of AskAll travel in one batch, but for those that wait for a call before them,
// and no call begins before the calls that it follows are finished.
func TestAskAllQueuesBeforeItSends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := &pipes{sizes: make(chan int, 100)}
		ln := New(0, node, new(Servers), false)
		defer ln.Close()
		ln.identified = true // no INFO travels along
		q := wire.Question{Kind: wire.AskExtend, Cmds: [2][]any{{"x"}}, Patience: wire.Patience{Base: time.Second, Limit: time.Second}}
		held := &Call{Lane: ln, Question: &q} // not asked yet
		calls := make([]*Call, 20)
		for i := range calls {
			calls[i] = &Call{Lane: ln, Question: &q}
		}
		asked := 0
		ln.AskAll(calls, func(n int) []*Call {
			if ln.Unlocked() {
				synctest.Wait() // until the calls before this one are sent
			}
			asked++
			if n >= 15 {
				return []*Call{nil, held}
			}
			return nil
		})
		synctest.Wait()
		if asked != len(calls) {
			t.Errorf("calls whose prior calls were asked for: got %d, want %d", asked, len(calls))
		}
		if got := node.sent(); !slices.Equal(got, []int{15}) {
			t.Errorf("commands in each pipeline: got %v, want 15 in one", got)
		}
		ln.Ask(held)
		synctest.Wait()
		if got := node.sent(); !slices.Equal(got, []int{1, 5}) {
			t.Errorf("commands in each pipeline once the call that the rest follows is sent: got %v, want 1 and then 5", got)
		}
	})
}
