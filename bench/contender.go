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

const (
	nameOurs     = "redlock"
	nameRedsync  = "redsync"
	nameFailFast = "redsync, fail-fast"
	nameFloor    = "bare quorum"
	nameOurFloor = "bare quorum, our commands"
	nameAuto     = "bare quorum, AutoPipeline"
	nameLock     = "redislock, one node"
	nameBare     = "SET and DEL, one node"
	nameRueidis  = "rueidislock, one node"
)

// contenders makes everybody in the table, of those that are wanted (all where none is named). Those of one node take
// the first. Each has clients of its own, with go-redis's defaults: what a program gets that does not tune anything.
func contenders(addrs []string, wanted ...string) (cs []*contender, err error) {
	if len(wanted) == 0 {
		wanted = []string{nameOurs, nameRedsync, nameFailFast, nameFloor, nameOurFloor, nameAuto, nameLock, nameBare, nameRueidis}
	}
	defer func() {
		if err != nil {
			closeAll(cs)
		}
	}()
	for _, name := range wanted {
		var c *contender
		switch name {
		case nameOurs:
			c, err = newOurs(addrs)
		case nameRedsync:
			c = newRedsync(name, addrs)
		case nameFailFast:
			c = newRedsync(name, addrs, redsync.WithFailFast(true))
		case nameFloor:
			c = newFloor(addrs)
		case nameOurFloor:
			c, err = newOurFloor(addrs)
		case nameAuto:
			c, err = newAuto(addrs)
		case nameLock:
			c = newRedislock(addrs[0])
		case nameBare:
			c = newBare(addrs[0])
		case nameRueidis:
			c, err = newRueidislock(addrs[0])
		default:
			err = fmt.Errorf("no contender %q", name)
		}
		if err != nil {
			return cs, err
		}
		cs = append(cs, c)
	}
	return cs, nil
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

func newOurs(addrs []string) (*contender, error) {
	l, done, err := newLocker(redlock.Options{}, addrs)
	if err != nil {
		done()
		return nil, err
	}
	return &contender{
		name: nameOurs,
		acquire: func(ctx context.Context, key string) (any, error) {
			k, err := l.TryAcquire(ctx, key, ttl)
			return k, err
		},
		release: func(ctx context.Context, held any) error { return held.(*redlock.Lock).Release(ctx) },
		close:   done,
	}, nil
}

func newRedsync(name string, addrs []string, opts ...redsync.Option) *contender {
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

func newRedislock(addr string) *contender {
	client := redis.NewClient(&redis.Options{Addr: addr})
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
func newRueidislock(addr string) (*contender, error) {
	l, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   rueidis.ClientOption{InitAddress: []string{addr}},
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
	errTaken   = errors.New("taken")
	errNoMajor = errors.New("no majority")
	bareCount  atomic.Int64
)

func bareValue() string { return fmt.Sprintf("%s-%d", bareSeed, bareCount.Add(1)) }

var bareSeed = rand.Text()

// newBare is one round trip to lock and one to unlock, of a single client without any batching.
func newBare(addr string) *contender {
	client := redis.NewClient(&redis.Options{Addr: addr})
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

// newAuto is a bare quorum by somebody else's batching, go-redis's own auto-pipeliner, so that our floor need not be
// believed. It has no way to wait for any three of five: three are awaited in turn, since waiting for always the same
// would leave the others behind.
func newAuto(addrs []string) (*contender, error) {
	clients := newClients(addrs)
	lanes := make([]*redis.AutoPipeliner, len(clients))
	for i, c := range clients {
		var err error
		if lanes[i], err = c.AsyncAutoPipeline(); err != nil {
			closeClients(clients)
			return nil, err
		}
	}
	quorum := len(lanes)/2 + 1
	var turn atomic.Uint32
	return &contender{
		name: nameAuto,
		acquire: func(ctx context.Context, key string) (any, error) {
			value := bareValue()
			cmds := make([]*redis.StatusCmd, len(lanes))
			for i, l := range lanes {
				cmds[i] = l.Set(ctx, key, value, ttl)
			}
			first := int(turn.Add(1))
			for i := range quorum {
				if err := cmds[(first+i)%len(lanes)].Err(); err != nil {
					return nil, err
				}
			}
			return &bareKey{key}, nil
		},
		release: func(ctx context.Context, held any) error {
			cmds := make([]*redis.IntCmd, len(lanes))
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
