package sim

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ce352c9b/redlock/internal/wrapped"
)

// A pollingNode is a client without Subscribe, so that waiters poll.
//
// It sleeps for some microseconds before each command, which depend on the command. The library starts goroutines for a PING
// and for pending clean-ups at the same instant; with one idle connection in go-redis's pool, the scheduler would choose which
// of them gets it and which has to dial.
type pollingNode struct {
	client *redis.Client
	seed   uint64
}

func (d pollingNode) Options() *redis.Options { return d.client.Options() }

func (d pollingNode) Process(ctx context.Context, cmd redis.Cmder) error {
	time.Sleep(d.pause(argsOf(0, cmd)))
	return d.client.Process(ctx, cmd)
}

// Pipeline returns a pipeline that sleeps, depending on its commands, before it sends them.
func (d pollingNode) Pipeline() redis.Pipeliner {
	var key uint64
	return &wrapped.Pipeline{
		Pipeliner: d.client.Pipeline(),
		OnQueue:   func(cmds ...redis.Cmder) { key = argsOf(key, cmds...) },
		OnExec: func(ctx context.Context, exec func(context.Context) ([]redis.Cmder, error)) ([]redis.Cmder, error) {
			time.Sleep(d.pause(key))
			key = 0
			return exec(ctx)
		},
	}
}

// A subscribingNode is a client with Subscribe. It sleeps before a subscription, too.
type subscribingNode struct{ pollingNode }

func (h subscribingNode) Subscribe(ctx context.Context, channels ...string) *redis.PubSub {
	slices.Sort(channels) // the library iterates over a map
	key := uint64(len(channels))
	for _, c := range channels {
		key = mix(key, hashOf(c))
	}
	time.Sleep(h.pause(key))
	return h.client.Subscribe(ctx, channels...)
}

func (d pollingNode) pause(key uint64) time.Duration {
	return jitter(d.seed, key, uint64(time.Now().UnixNano())) / 4
}

func hashOf(text string) uint64 {
	sum := fnv.New64a()
	sum.Write([]byte(text))
	return sum.Sum64()
}

// argsOf returns a hash of key and the commands.
func argsOf(key uint64, cmds ...redis.Cmder) uint64 {
	sum := fnv.New64a()
	for _, c := range cmds {
		for _, a := range c.Args() {
			fmt.Fprint(sum, a, " ")
		}
	}
	return mix(key, sum.Sum64())
}
