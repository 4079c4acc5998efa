package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ce352c9b/redlock"
)

// The bare quorum is the floor that no quorum lock can go below: one request to all nodes, in batches that callers share, and
// a wait for the first majority of replies. It has no owner, no rollback, no timeout and no fence, and it does not handle lost
// replies: it is no lock.

// The number of pipelines that may be under way to a node. Two are enough on the loopback, where the server is the bottleneck;
// at a distance, callers would wait for a round trip that has just begun.
const (
	nearPipelines = 2
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

// A request is what one node is asked.
type request struct {
	count *count
	cmds  []nilCmd
}

// A nilCmd is a command for which nil is an ordinary reply.
type nilCmd struct{ *redis.Cmd }

func (c *nilCmd) SetErr(err error) {
	if errors.Is(err, redis.Nil) {
		err = nil
	}
	c.Cmd.SetErr(err)
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
		cmds = cmds[:0]
		for _, r := range batch {
			for i := range r.cmds {
				cmds = append(cmds, &r.cmds[i])
			}
		}
		pipeline.BatchProcess(ctx, cmds...)
		pipeline.Exec(ctx)
		for _, r := range batch {
			r.count.vote(r.cmds[0].Err())
		}
	}
}

type pipes []*pipe

func newPipes(addrs []string, pipelines int) (ps pipes) {
	for _, c := range newClients(addrs) {
		ps = append(ps, &pipe{client: c, pipelines: pipelines})
	}
	return ps
}

// ask sends the commands to all nodes and waits for a majority.
func (ps pipes) ask(cmds ...[]any) error {
	c := &count{need: int32(len(ps)/2 + 1), all: int32(len(ps)), done: make(chan struct{})}
	requests := make([]request, len(ps))
	for i, p := range ps {
		requests[i] = request{c, make([]nilCmd, len(cmds))}
		for j, args := range cmds {
			requests[i].cmds[j] = nilCmd{redis.NewCmd(context.Background(), args...)}
		}
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
			return key, ps.ask([]any{"set", key, bareValue(), "px", ttl.Milliseconds()})
		},
		release: func(_ context.Context, held any) error { return ps.ask([]any{"del", held}) },
		close:   ps.close,
	}
}

// newOurFloor sends the commands of the library and only counts the replies. The commands are recorded from a real cycle, so
// that they cannot be out of date.
func newOurFloor(addrs []string) (*contender, error) {
	recorded, err := record(addrs)
	if err != nil {
		return nil, err
	}
	ps := newPipes(addrs, nearPipelines)
	var made sync.Map // key → *commands
	return &contender{
		acquire: func(_ context.Context, key string) (any, error) {
			c, ok := made.Load(key)
			if !ok {
				c, _ = made.LoadOrStore(key, recorded.with(key))
			}
			return c, ps.ask(c.(*commands).acquireNow()...)
		},
		release: func(_ context.Context, held any) error { return ps.ask(held.(*commands).release...) },
		close:   ps.close,
	}, nil
}

// recordedKey is the key of the recorded cycle. It must not be part of a command's name or of a value.
const recordedKey = "bench:record"

// commands are what one cycle sends to a node.
type commands struct{ acquire, release [][]any }

// with returns the commands for another key.
func (c *commands) with(key string) *commands {
	replaced := func(cmds [][]any) (out [][]any) {
		for _, args := range cmds {
			args = slices.Clone(args)
			for i, a := range args {
				if s, ok := a.(string); ok {
					args[i] = strings.ReplaceAll(s, recordedKey, key)
				}
			}
			out = append(out, args)
		}
		return out
	}
	return &commands{replaced(c.acquire), replaced(c.release)}
}

// acquireNow proposes a fence of now: with an old one the register would not change, which costs less.
func (c *commands) acquireNow() [][]any {
	zadd := slices.Clone(c.acquire[1])
	zadd[4] = time.Now().UnixMicro()
	return [][]any{c.acquire[0], zadd}
}

// A recorder is a hook that keeps the pipelines that name recordedKey.
type recorder struct {
	mu        sync.Mutex
	pipelines [][][]any
}

func (r *recorder) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (r *recorder) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (r *recorder) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		var about [][]any
		for _, c := range cmds {
			if strings.Contains(fmt.Sprint(c.Args()...), recordedKey) {
				about = append(about, slices.Clone(c.Args()))
			}
		}
		if about != nil {
			r.mu.Lock()
			r.pipelines = append(r.pipelines, about)
			r.mu.Unlock()
		}
		return next(ctx, cmds)
	}
}

// record returns what one cycle of the library sends to the first node. It takes the last of several cycles, since the first
// ones send the scripts' text.
func record(addrs []string) (*commands, error) {
	clients := newClients(addrs)
	rec := new(recorder)
	clients[0].AddHook(rec)
	l, done, err := lockerOver(redlock.Options{}, clients, asNodes(clients))
	if err != nil {
		return nil, err
	}
	ours := lockerContender(l, done)
	t := load{c: ours, g: 1, key: func(int, int) string { return recordedKey }}.runCycles(context.Background(), 10)
	ours.close() // completes what is under way
	if t.err != nil {
		return nil, t.err
	}
	// A node need not get the commands of every cycle, so the pair is matched by the lock's value.
	var last commands
	acquired := map[any][][]any{}
	for _, cmds := range rec.pipelines {
		switch cmds[0][0] {
		case "set":
			acquired[cmds[0][2]] = cmds
		case "evalsha":
			for _, arg := range cmds[0] {
				if acquire, ok := acquired[arg]; ok {
					last = commands{acquire, cmds}
				}
			}
		}
	}
	if len(last.acquire) != 2 || last.acquire[1][0] != "zadd" || len(last.release) != 1 {
		return nil, fmt.Errorf("unexpected commands of a cycle: %q", rec.pipelines)
	}
	return &last, nil
}
