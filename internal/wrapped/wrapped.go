// Package wrapped has go-redis clients in wrappers, for tests. The compiler makes the 500 methods of a client anew for each
// type that embeds it, whenever it compiles that type's package, which takes it seconds: here it does so once.
package wrapped

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// Wrappers that embed a client, as a user's own client may.
type (
	Client        struct{ *redis.Client }
	Ring          struct{ *redis.Ring }
	Cluster       struct{ *redis.ClusterClient }
	AutoPipeliner struct{ *redis.AutoPipeliner }
	Any           struct{ redis.UniversalClient }
)

// A DisguisedRing says that it is a single server.
type DisguisedRing struct{ Ring }

func (DisguisedRing) Options() *redis.Options { return &redis.Options{Addr: "liar:1"} }

// A Pipeline is a pipeline with hooks. Each may be nil.
type Pipeline struct {
	redis.Pipeliner
	OnQueue func(cmds ...redis.Cmder) // before commands are queued

	// OnExec is called in place of the pipeline's own Exec, which it is given.
	OnExec func(ctx context.Context, exec func(context.Context) ([]redis.Cmder, error)) ([]redis.Cmder, error)
}

func (p *Pipeline) Process(ctx context.Context, cmd redis.Cmder) error {
	if p.OnQueue != nil {
		p.OnQueue(cmd)
	}
	return p.Pipeliner.Process(ctx, cmd)
}

func (p *Pipeline) BatchProcess(ctx context.Context, cmds ...redis.Cmder) error {
	if p.OnQueue != nil {
		p.OnQueue(cmds...)
	}
	return p.Pipeliner.BatchProcess(ctx, cmds...)
}

func (p *Pipeline) Exec(ctx context.Context) ([]redis.Cmder, error) {
	if p.OnExec != nil {
		return p.OnExec(ctx, p.Pipeliner.Exec)
	}
	return p.Pipeliner.Exec(ctx)
}
