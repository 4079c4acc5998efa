package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/wire"
)

// The bare quorum is the floor that no quorum lock can go below: one request to all nodes, in batches that callers share, and
// a wait for the first majority of replies. It has no owner, no rollback, no timeout and no fence, and it does not handle lost
// replies: it is no lock.

// The number of pipelines that may be under way to a node. One is enough on the loopback, where the server is the bottleneck,
// and makes the largest batches; at a distance, callers would wait for a round trip that has just begun.
const (
	nearPipelines = 1
	farPipelines  = 16
)

// floorBatch bounds a pipeline, as the library's are bounded.
const floorBatch = 256

// A pipe sends requests to one node.
type pipe struct {
	client    *redis.Client
	pipelines int

	mu       sync.Mutex
	queue    []*request
	underWay int // pipelines
}

// A request is what one node is asked: a question of the library, or one plain command.
type request struct {
	count   *count
	q       *wire.Question
	plain   []any
	cmds    [2]wire.Command
	decides *wire.Command // the first of cmds, or that of all releases of the batch, as the library sends them
}

// A count counts replies and closes done with the one that decides.
type count struct {
	need, all int32
	yes, no   atomic.Int32
	done      chan struct{}
}

func (c *count) vote(err error) {
	if err == nil {
		if c.yes.Add(1) == c.need {
			close(c.done)
		}
	} else if c.no.Add(1) == c.all-c.need+1 {
		close(c.done)
	}
}

func (p *pipe) send(r *request) {
	p.mu.Lock()
	p.queue = append(p.queue, r)
	start := p.underWay < p.pipelines
	if start {
		p.underWay++
	}
	p.mu.Unlock()
	if start {
		go p.sendLoop()
	}
}

// sendLoop sends batches until the queue is empty.
func (p *pipe) sendLoop() {
	ctx := context.Background()
	pipeline := p.client.Pipeline()
	var joint wire.Joint
	var batch []*request
	var cmds []redis.Cmder
	for {
		p.mu.Lock()
		n := min(len(p.queue), floorBatch)
		if n == 0 {
			p.underWay--
			p.mu.Unlock()
			return
		}
		batch = append(batch[:0], p.queue[:n]...)
		p.queue = p.queue[:copy(p.queue, p.queue[n:])]
		p.mu.Unlock()
		cmds = joinReleases(cmds[:0], batch, &joint)
		for _, r := range batch {
			cmds = r.append(cmds)
		}
		pipeline.BatchProcess(ctx, cmds...)
		pipeline.Exec(ctx)
		for _, r := range batch {
			r.count.vote(r.decides.Err())
		}
	}
}

// joinReleases appends one command for all releases of a batch if there are at least two.
func joinReleases(cmds []redis.Cmder, batch []*request, joint *wire.Joint) []redis.Cmder {
	joins := func(r *request) bool { return r.q != nil && r.q.Joins() }
	joint.Reset()
	for _, r := range batch {
		if joins(r) {
			joint.Add(r.q, false)
		}
	}
	if joint.Len() < 2 {
		return cmds
	}
	releases := joint.Command(false)
	for _, r := range batch {
		if joins(r) {
			r.decides = releases
		}
	}
	return append(cmds, releases)
}

// append appends the request's own commands, unless it shares one.
func (r *request) append(cmds []redis.Cmder) []redis.Cmder {
	if r.decides != nil {
		return cmds
	}
	r.decides = &r.cmds[0]
	for j := range r.cmds {
		args := r.plain
		if r.q != nil {
			args = r.q.Args(j, false, false, false)
		} else if j > 0 {
			break
		}
		if args != nil {
			r.cmds[j] = wire.NewCommand(args)
			cmds = append(cmds, &r.cmds[j])
		}
	}
	return cmds
}

type pipes []*pipe

func newPipes(addrs []string, pipelines int) (ps pipes) {
	for _, c := range newClients(addrs) {
		ps = append(ps, &pipe{client: c, pipelines: pipelines})
	}
	return ps
}

// ask sends a question or a plain command to all nodes and waits for a majority.
func (ps pipes) ask(q *wire.Question, plain ...any) error {
	c := &count{need: int32(len(ps)/2 + 1), all: int32(len(ps)), done: make(chan struct{})}
	requests := make([]request, len(ps))
	for i, p := range ps {
		requests[i] = request{count: c, q: q, plain: plain}
		p.send(&requests[i])
	}
	<-c.done
	if c.yes.Load() < c.need {
		return errors.New("no majority")
	}
	return nil
}

func (ps pipes) close() {
	for _, p := range ps {
		p.client.Close()
	}
}

// newFloor sends what every lock needs: SET with a ttl, and DEL. There is no NX, which costs the server nothing: since only a
// majority is awaited, the DEL of one cycle may arrive after the SET of the next, and the floor cleans nothing up.
func newFloor(addrs []string, pipelines int) *contender {
	ps := newPipes(addrs, pipelines)
	return &contender{
		name: nameFloor,
		acquire: func(_ context.Context, key string) (any, error) {
			return key, ps.ask(nil, "set", key, bareValue(), "px", ttl.Milliseconds())
		},
		release: func(_ context.Context, held any) error { return ps.ask(nil, "del", held) },
		close:   ps.close,
	}
}

// newOurFloor sends the commands of the library, the releases of a batch in one script as the library does, and only counts the
// replies.
func newOurFloor(addrs []string) *contender {
	l, done := newLocker(redlock.Options{}, addrs) // which loads the scripts
	t := load{c: lockerContender(l, done), g: 64}.runCycles(context.Background(), 20)
	done()
	check(t.err)
	ps := newPipes(addrs, nearPipelines)
	type held struct {
		name  *wire.LockKey
		value string
	}
	return &contender{
		acquire: func(_ context.Context, key string) (any, error) {
			name, err := wire.NameKey("", key)
			if err != nil {
				return nil, err
			}
			h := held{name, bareValue()}
			// With an old fence the register would not change, which costs less.
			q := wire.AcquireQuestion(nil, name, h.value, ttl, time.Now().UnixMicro())
			return h, ps.ask(&q)
		},
		release: func(_ context.Context, h any) error {
			q := wire.ReleaseQuestion(h.(held).name, h.(held).value, ttl, wire.Notice{Tell: wire.NotifyCount})
			return ps.ask(&q)
		},
		close: ps.close,
	}
}
