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

// The bare quorum is the physical floor: one question to all nodes in batches that callers share, and the first majority
// of the answers awaited. No owner, no rollback, no timeout, no fence, no lost reply: it is no lock.

// floorFlights is how many pipelines may be under way to a node: two are enough on the loopback, where the server is the
// bottleneck; at a distance a caller would wait for a round trip that has just begun.
const (
	floorFlights = 2
	farFlights   = 16
)

// floorBatch bounds a pipeline, as ours is bounded.
const floorBatch = 256

// A pipe is the way to one node.
type pipe struct {
	client  *redis.Client
	flights int

	mu    sync.Mutex
	queue []*ballotPaper
	under int // flights under way
}

// A ballotPaper is what is asked of one node.
type ballotPaper struct {
	count *count
	cmds  []quiet
}

// A quiet is a command for which nil is an answer like any other, and not an error.
type quiet struct{ *redis.Cmd }

func (q *quiet) SetErr(err error) {
	if errors.Is(err, redis.Nil) {
		err = nil
	}
	q.Cmd.SetErr(err)
}

// A count is closed by the answer that decides it.
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

func (p *pipe) send(b *ballotPaper) {
	p.mu.Lock()
	p.queue = append(p.queue, b)
	fly := p.under < p.flights
	if fly {
		p.under++
	}
	p.mu.Unlock()
	if fly {
		go p.fly()
	}
}

// fly sends what waits until nothing does.
func (p *pipe) fly() {
	ctx := context.Background()
	pipeline := p.client.Pipeline()
	var batch []*ballotPaper
	var cmds []redis.Cmder
	for {
		p.mu.Lock()
		n := min(len(p.queue), floorBatch)
		if n == 0 {
			p.under--
			p.mu.Unlock()
			return
		}
		batch = append(batch[:0], p.queue[:n]...)
		p.queue = p.queue[:copy(p.queue, p.queue[n:])]
		p.mu.Unlock()
		cmds = cmds[:0]
		for _, b := range batch {
			for i := range b.cmds {
				cmds = append(cmds, &b.cmds[i])
			}
		}
		pipeline.BatchProcess(ctx, cmds...)
		pipeline.Exec(ctx)
		for _, b := range batch {
			b.count.vote(b.cmds[0].Err())
		}
	}
}

type pipes []*pipe

func newPipes(addrs []string, flights int) pipes {
	var ps pipes
	for _, c := range newClients(addrs) {
		ps = append(ps, &pipe{client: c, flights: flights})
	}
	return ps
}

// ask puts the commands to all nodes and waits for a majority.
func (ps pipes) ask(cmds ...[]any) error {
	ctx := context.Background()
	c := &count{need: int32(len(ps)/2 + 1), all: int32(len(ps)), done: make(chan struct{})}
	papers := make([]ballotPaper, len(ps))
	for i, p := range ps {
		papers[i].count = c
		papers[i].cmds = make([]quiet, len(cmds))
		for j, args := range cmds {
			papers[i].cmds[j] = quiet{redis.NewCmd(ctx, args...)}
		}
		p.send(&papers[i])
	}
	<-c.done
	if c.yes.Load() < c.need {
		return errNoMajor
	}
	return nil
}

func (ps pipes) close() {
	for _, p := range ps {
		p.client.Close()
	}
}

// newFloor asks what no lock can do without: SET with a ttl, and DEL. Without NX: with a majority awaited, the last
// cycle's DEL may come after this one's SET, and a floor has nothing to clean up with. NX costs the server nothing.
func newFloor(addrs []string) *contender { return newFloorAt(addrs, floorFlights) }

func newFloorAt(addrs []string, flights int) *contender {
	ps := newPipes(addrs, flights)
	return &contender{
		name: nameFloor,
		acquire: func(_ context.Context, key string) (any, error) {
			return &bareKey{key}, ps.ask([]any{"set", key, bareValue(), "px", ttl.Milliseconds()})
		},
		release: func(_ context.Context, held any) error {
			return ps.ask([]any{"del", held.(*bareKey).name})
		},
		close: ps.close,
	}
}

// newOurFloor asks what our lock asks, word by word, and only counts the answers. The words are those of a real cycle that
// is listened to, so that they cannot be out of date.
func newOurFloor(addrs []string) (*contender, error) {
	acquire, release, err := listen(addrs)
	if err != nil {
		return nil, err
	}
	ps := newPipes(addrs, floorFlights)
	var made sync.Map // key → *words: who locks a name twice need not spell it twice
	return &contender{
		name: nameOurFloor,
		acquire: func(_ context.Context, key string) (any, error) {
			w, ok := made.Load(key)
			if !ok {
				w, _ = made.LoadOrStore(key, &words{respell(acquire, key), respell(release, key)})
			}
			return w, ps.ask(w.(*words).nextFence()...)
		},
		release: func(_ context.Context, held any) error { return ps.ask(held.(*words).release...) },
		close:   ps.close,
	}, nil
}

type words struct{ acquire, release [][]any }

// nextFence is the acquire with a proposal of now: with an old one the register would stand still, which costs less.
func (w *words) nextFence() [][]any {
	cmds := slices.Clone(w.acquire)
	for i, args := range cmds {
		if args[0] == "zadd" {
			cmds[i] = slices.Clone(args)
			cmds[i][4] = time.Now().UnixMicro()
		}
	}
	return cmds
}

// heardKey is the key of the cycle that is listened to. It must not be part of a command's name or of a value.
const heardKey = "bench:listen"

func respell(cmds [][]any, key string) [][]any {
	out := make([][]any, len(cmds))
	for i, args := range cmds {
		out[i] = slices.Clone(args)
		for j, a := range args {
			if s, ok := a.(string); ok {
				out[i][j] = strings.ReplaceAll(s, heardKey, key)
			}
		}
	}
	return out
}

// An ear keeps the pipelines that are about heardKey.
type ear struct {
	mu    sync.Mutex
	heard [][][]any
}

func (e *ear) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (e *ear) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (e *ear) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		var about [][]any
		for _, c := range cmds {
			if strings.Contains(fmt.Sprint(c.Args()...), heardKey) {
				about = append(about, slices.Clone(c.Args()))
			}
		}
		e.mu.Lock()
		if about != nil {
			e.heard = append(e.heard, about)
		}
		e.mu.Unlock()
		return next(ctx, cmds)
	}
}

// listen returns what one cycle of ours sends to a node: the acquire and the release. It listens to the first node, and
// the last of some cycles counts: in the first the scripts go out with their text.
func listen(addrs []string) (acquire, release [][]any, err error) {
	clients := newClients(addrs)
	defer closeClients(clients)
	e := new(ear)
	clients[0].AddHook(e)
	nodes := make([]redlock.Node, len(clients))
	for i, c := range clients {
		nodes[i] = c
	}
	l, err := redlock.New(redlock.Options{}, nodes...)
	if err != nil {
		return nil, nil, err
	}
	for range 10 {
		k, err := l.TryAcquire(context.Background(), heardKey, ttl)
		if err != nil {
			l.Close()
			return nil, nil, err
		}
		if err := k.Release(context.Background()); err != nil {
			l.Close()
			return nil, nil, err
		}
	}
	l.Close() // what is under way is heard, too
	e.mu.Lock()
	defer e.mu.Unlock()
	taken := map[any][][]any{} // by value: a node need not hear of every cycle, and a pair has to be of one
	for _, cmds := range e.heard {
		switch cmds[0][0] {
		case "set":
			taken[cmds[0][2]] = cmds
		case "evalsha":
			for _, arg := range cmds[0] {
				if of, ok := taken[arg]; ok {
					acquire, release = of, cmds
				}
			}
		}
	}
	if len(acquire) != 2 || acquire[1][0] != "zadd" || len(release) != 1 {
		return nil, nil, fmt.Errorf("a cycle was not understood: %q", e.heard)
	}
	return acquire, release, nil
}
