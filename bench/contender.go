package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/realredis"
)

// ttl is long enough that nobody's lock expires in a measurement, and short enough that what somebody leaves behind is
// gone for the next section.
const ttl = 10 * time.Second

// A contender is one way to lock a name. held is what acquire returned; it is a pointer or a func in an interface, so
// that handing it over costs no allocation of ours.
type contender struct {
	name    string
	acquire func(ctx context.Context, key string) (held any, err error)
	release func(ctx context.Context, held any) error
	close   func()
}

// cycle is what throughput and allocations are counted in.
func (c *contender) cycle(ctx context.Context, key string) error {
	held, err := c.acquire(ctx, key)
	if err != nil {
		return err
	}
	return c.release(ctx, held)
}

const (
	nameOurs     = "redlock (5 nodes)"
	nameRedsync  = "redsync (5)"
	nameFailFast = "redsync fail-fast (5)"
	nameFloor    = "bare quorum, pipelined (5)"
	namePlain    = "bare quorum, plain (5)"
	nameLock     = "redislock (1)"
	nameBare     = "bare SET/DEL (1)"
	nameRueidis  = "rueidislock (1)"
)

// contenders makes everybody in the table. Each has clients of its own, with go-redis's defaults: what a program gets
// that does not tune anything.
func contenders(servers []*realredis.Server) ([]*contender, error) {
	ours, err := newOurs(servers)
	if err != nil {
		return nil, err
	}
	floor, err := newFloor(servers)
	if err != nil {
		return nil, err
	}
	rueidis, err := newRueidislock(servers[0])
	if err != nil {
		return nil, err
	}
	return []*contender{
		ours,
		newRedsync(nameRedsync, servers),
		newRedsync(nameFailFast, servers, redsync.WithFailFast(true)),
		floor,
		newPlain(servers),
		newRedislock(servers[0]),
		newBare(servers[0]),
		rueidis,
	}, nil
}

func closeAll(cs []*contender) {
	for _, c := range cs {
		c.close()
	}
}

func newLocker(opt redlock.Options, addrs []string) (*redlock.Locker, func(), error) {
	nodes := make([]redlock.Node, len(addrs))
	clients := newClients(addrs)
	for i, c := range clients {
		nodes[i] = c
	}
	l, err := redlock.New(opt, nodes...)
	return l, func() {
		if l != nil {
			l.Close()
		}
		closeClients(clients)
	}, err
}

func newOurs(servers []*realredis.Server) (*contender, error) {
	return newOursAt(addrs(servers))
}

func newOursAt(addrs []string) (*contender, error) {
	l, done, err := newLocker(redlock.Options{}, addrs)
	return &contender{
		name: nameOurs,
		acquire: func(ctx context.Context, key string) (any, error) {
			k, err := l.TryAcquire(ctx, key, ttl)
			return k, err
		},
		release: func(ctx context.Context, held any) error { return held.(*redlock.Lock).Release(ctx) },
		close:   done,
	}, err
}

func newRedsync(name string, servers []*realredis.Server, opts ...redsync.Option) *contender {
	return newRedsyncAt(name, addrs(servers), opts...)
}

func newRedsyncAt(name string, addrs []string, opts ...redsync.Option) *contender {
	clients := newClients(addrs)
	pools := make([]redsyncredis.Pool, len(clients))
	for i, c := range clients {
		pools[i] = goredis.NewPool(c)
	}
	rs := redsync.New(pools...)
	opts = append([]redsync.Option{redsync.WithExpiry(ttl)}, opts...)
	return &contender{
		name: name,
		acquire: func(ctx context.Context, key string) (any, error) {
			m := rs.NewMutex(key, opts...)
			return m, m.TryLockContext(ctx)
		},
		release: func(ctx context.Context, held any) error {
			ok, err := held.(*redsync.Mutex).UnlockContext(ctx)
			if !ok && err == nil {
				err = errors.New("not unlocked")
			}
			if ok { // a minority's errors come along
				err = nil
			}
			return err
		},
		close: func() { closeClients(clients) },
	}
}

func newRedislock(s *realredis.Server) *contender {
	client := s.Client()
	l := redislock.New(client)
	return &contender{
		name: nameLock,
		acquire: func(ctx context.Context, key string) (any, error) {
			k, err := l.Obtain(ctx, key, ttl, nil)
			return k, err
		},
		release: func(ctx context.Context, held any) error { return held.(*redislock.Lock).Release(ctx) },
		close:   func() { client.Close() },
	}
}

// newRueidislock has one key on one node (its default is three on the same), which is the least it can do. It renews by
// itself and watches the key, which is part of each of its cycles.
func newRueidislock(s *realredis.Server) (*contender, error) {
	l, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   rueidis.ClientOption{InitAddress: []string{s.Addr()}},
		KeyMajority:    1,
		KeyValidity:    ttl,
		NoLoopTracking: true,
		TryNextAfter:   time.Second, // 20 ms by default, which a busy machine exceeds
	})
	if err != nil {
		return nil, err
	}
	return &contender{
		name: nameRueidis,
		acquire: func(ctx context.Context, key string) (any, error) {
			_, cancel, err := l.TryWithContext(ctx, key)
			return cancel, err
		},
		release: func(_ context.Context, held any) error { held.(context.CancelFunc)(); return nil },
		close:   l.Close,
	}, nil
}

// A bareKey is what a lock without any safety has to remember.
type bareKey struct{ name string }

var (
	errTaken  = errors.New("taken")
	bareCount atomic.Int64
)

func bareValue() string { return fmt.Sprintf("%s-%d", bareSeed, bareCount.Add(1)) }

var bareSeed = rand.Text()

// newBare is one round trip to lock and one to unlock, of a single client without any batching.
func newBare(s *realredis.Server) *contender {
	client := s.Client()
	return &contender{
		name: nameBare,
		acquire: func(ctx context.Context, key string) (any, error) {
			ok, err := client.SetNX(ctx, key, bareValue(), ttl).Result()
			if err == nil && !ok {
				err = errTaken
			}
			return &bareKey{key}, err
		},
		release: func(ctx context.Context, held any) error { return client.Del(ctx, held.(*bareKey).name).Err() },
		close:   func() { client.Close() },
	}
}

// newFloor is the least a quorum costs with go-redis: SET NX PX and DEL to all nodes through its own auto-pipeliner,
// all callers' commands in common batches, and the answers of three of them awaited. No owner check, no rollback, no
// timeout, no error handling: whoever is faster found a better pipeline.
func newFloor(servers []*realredis.Server) (*contender, error) {
	clients := newClients(addrs(servers))
	lanes := make([]*redis.AutoPipeliner, len(clients))
	for i, c := range clients {
		var err error
		if lanes[i], err = c.AsyncAutoPipeline(); err != nil {
			return nil, err
		}
	}
	quorum := len(lanes)/2 + 1
	var turn atomic.Uint32 // which three: in turn, since waiting for always the same would leave the others behind
	return &contender{
		name: nameFloor,
		acquire: func(ctx context.Context, key string) (any, error) {
			value := bareValue()
			var cmds [5]*redis.BoolCmd
			for i, l := range lanes {
				cmds[i] = l.SetNX(ctx, key, value, ttl)
			}
			first := int(turn.Add(1))
			for i := range quorum {
				if ok, err := cmds[(first+i)%len(lanes)].Result(); err != nil {
					return nil, err
				} else if !ok {
					return nil, errTaken
				}
			}
			return &bareKey{key}, nil
		},
		release: func(ctx context.Context, held any) error {
			var cmds [5]*redis.IntCmd
			for i, l := range lanes {
				cmds[i] = l.Del(ctx, held.(*bareKey).name)
			}
			first := int(turn.Add(1))
			for i := range quorum {
				if err := cmds[(first+i)%len(lanes)].Err(); err != nil {
					return err
				}
			}
			return nil
		},
		close: func() { closeClients(clients) },
	}, nil
}

// newPlain is the least a quorum costs one caller: a goroutine and a command for each node, and the first three answers
// awaited. The pipelined floor hands every command to another goroutine, which pays off only in company.
func newPlain(servers []*realredis.Server) *contender {
	clients := newClients(addrs(servers))
	quorum := len(clients)/2 + 1
	all := func(ask func(c *redis.Client) error) error {
		answers := make(chan error, len(clients))
		for _, c := range clients {
			go func() { answers <- ask(c) }()
		}
		for range quorum {
			if err := <-answers; err != nil {
				return err
			}
		}
		return nil
	}
	return &contender{
		name: namePlain,
		acquire: func(ctx context.Context, key string) (any, error) {
			value := bareValue()
			return &bareKey{key}, all(func(c *redis.Client) error {
				// Without NX: with three answers awaited, the last cycle's DEL may come after this one's SET, and a
				// floor has nothing to clean up with. NX costs the server nothing.
				return c.Set(ctx, key, value, ttl).Err()
			})
		},
		release: func(ctx context.Context, held any) error {
			return all(func(c *redis.Client) error { return c.Del(ctx, held.(*bareKey).name).Err() })
		},
		close: func() { closeClients(clients) },
	}
}

func addrs(servers []*realredis.Server) []string {
	a := make([]string, len(servers))
	for i, s := range servers {
		a[i] = s.Addr()
	}
	return a
}

func newClients(addrs []string) []*redis.Client {
	clients := make([]*redis.Client, len(addrs))
	for i, a := range addrs {
		clients[i] = redis.NewClient(&redis.Options{Addr: a})
	}
	return clients
}

func closeClients(clients []*redis.Client) {
	for _, c := range clients {
		c.Close()
	}
}
