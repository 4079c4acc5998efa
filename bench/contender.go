package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
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
)

// ttl is long enough that no lock expires during a measurement, and short enough that leftovers are gone by the next section.
const ttl = 10 * time.Second

// A contender is one way to lock a name. acquire tries once; wait, which not all have, blocks until the lock is free.
type contender struct {
	name    string
	keys    string // what the keys of its loads begin with; the default is its name
	acquire func(ctx context.Context, key string) (held any, err error)
	wait    func(ctx context.Context, key string) (held any, err error)
	release func(ctx context.Context, held any) error
	close   func()
}

const (
	nameOurs         = "redlock"
	nameThree        = "redlock, three nodes"
	nameNoFence      = "redlock, no fence"
	nameThreeNoFence = "redlock, three nodes, no fence"
	nameFair         = "redlock, fair"
	nameSeveral      = "redlock, 8 of 64 keys at once"
	nameUnsubscribed = "redlock, unsubscribed" // over nodes that have no Subscribe
	nameRedsync      = "redsync"
	nameFailFast     = "redsync, fail-fast"
	nameFloor        = "bare quorum"
	nameOurFloor     = "bare quorum, our commands"
	nameLock         = "redislock, one node"
	nameBare         = "SET and DEL, one node"
	nameRueidis      = "rueidislock, one node"
)

// makers returns a contender for each name. Contenders on one node use the first address. Each has clients of its own with
// go-redis's defaults, as a program has that tunes nothing.
var makers = map[string]func(addrs []string) *contender{
	nameOurs:         func(addrs []string) *contender { return newOurs(redlock.Options{}, addrs) },
	nameThree:        func(addrs []string) *contender { return newOurs(redlock.Options{}, addrs[:3]) },
	nameNoFence:      func(addrs []string) *contender { return newOurs(redlock.Options{NoFence: true}, addrs) },
	nameThreeNoFence: func(addrs []string) *contender { return newOurs(redlock.Options{NoFence: true}, addrs[:3]) },
	nameFair:         func(addrs []string) *contender { return newOurs(redlock.Options{Fair: true}, addrs) },
	nameSeveral:      newSeveral,
	nameUnsubscribed: newUnsubscribed,
	nameRedsync:      func(addrs []string) *contender { return newRedsync(addrs) },
	nameFailFast:     func(addrs []string) *contender { return newRedsync(addrs, redsync.WithFailFast(true)) },
	nameFloor:        func(addrs []string) *contender { return newFloor(addrs, nearPipelines) },
	nameOurFloor:     newOurFloor,
	nameLock:         newRedislock,
	nameBare:         newBare,
	nameRueidis:      newRueidislock,
}

// contenders makes those that are named, or all that the table of throughput compares.
func contenders(addrs []string, names ...string) (cs []*contender) {
	if len(names) == 0 {
		names = []string{nameOurs, nameNoFence, nameThree, nameThreeNoFence, nameRedsync, nameFailFast, nameFloor, nameOurFloor, nameLock, nameBare, nameRueidis}
	}
	for _, name := range names {
		c := makers[name](addrs)
		c.name = name
		cs = append(cs, c)
	}
	return cs
}

func closeAll(cs []*contender) {
	for _, c := range cs {
		c.close()
	}
}

// newLocker returns a Locker over clients of its own. The func closes them all.
func newLocker(opt redlock.Options, addrs []string) (*redlock.Locker, func()) {
	return newLockerOver(opt, addrs, func(c *redis.Client) redlock.Node { return c })
}

func newLockerOver(opt redlock.Options, addrs []string, node func(*redis.Client) redlock.Node) (*redlock.Locker, func()) {
	clients := newClients(addrs)
	nodes := make([]redlock.Node, len(clients))
	for i, c := range clients {
		nodes[i] = node(c)
	}
	l := must(redlock.New(opt, nodes...))
	return l, func() { l.Close(); closeClients(clients) }
}

func newOurs(opt redlock.Options, addrs []string) *contender {
	return lockerContender(newLocker(opt, addrs))
}

// newUnsubscribed hides the clients' method Subscribe, so that waiters poll.
func newUnsubscribed(addrs []string) *contender {
	return lockerContender(newLockerOver(redlock.Options{}, addrs, func(c *redis.Client) redlock.Node { return struct{ redlock.Node }{c} }))
}

func lockerContender(l *redlock.Locker, done func()) *contender {
	return &contender{
		acquire: func(ctx context.Context, key string) (any, error) { return l.TryAcquire(ctx, key, ttl) },
		wait:    func(ctx context.Context, key string) (any, error) { return l.Acquire(ctx, key, ttl) },
		release: func(ctx context.Context, held any) error { return held.(*redlock.Lock).Release(ctx) },
		close:   done,
	}
}

// newSeveral acquires eight keys at a time, which eight of 64 keys are drawn for each cycle, whatever key the load asks for.
func newSeveral(addrs []string) *contender {
	l, done := newLocker(redlock.Options{}, addrs)
	return &contender{
		acquire: func(ctx context.Context, _ string) (any, error) {
			keys := make([]string, severalAtOnce)
			for i, n := range mathrand.Perm(64)[:severalAtOnce] {
				keys[i] = fmt.Sprintf("bench:several:%d", n)
			}
			return l.AcquireAll(ctx, keys, ttl)
		},
		release: func(ctx context.Context, held any) error { return held.(redlock.Locks).Release(ctx) },
		close:   done,
	}
}

const severalAtOnce = 8

func redsyncOver(clients []*redis.Client) *redsync.Redsync {
	pools := make([]redsyncredis.Pool, len(clients))
	for i, c := range clients {
		pools[i] = goredis.NewPool(c)
	}
	return redsync.New(pools...)
}

func newRedsync(addrs []string, opts ...redsync.Option) *contender {
	clients := newClients(addrs)
	rs := redsyncOver(clients)
	opts = append([]redsync.Option{redsync.WithExpiry(ttl)}, opts...)
	return &contender{
		acquire: func(ctx context.Context, key string) (any, error) {
			m := rs.NewMutex(key, opts...)
			return m, m.TryLockContext(ctx)
		},
		wait: func(ctx context.Context, key string) (any, error) {
			m := rs.NewMutex(key, opts...)
			return m, m.LockContext(ctx) // 32 tries
		},
		release: func(ctx context.Context, held any) error {
			ok, err := held.(*redsync.Mutex).UnlockContext(ctx)
			if ok { // err has the errors of a minority
				return nil
			}
			return cmp.Or(err, errors.New("not unlocked"))
		},
		close: func() { closeClients(clients) },
	}
}

func newRedislock(addrs []string) *contender {
	clients := newClients(addrs[:1])
	l := redislock.New(clients[0])
	waiting := &redislock.Options{RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond)}
	return &contender{
		acquire: func(ctx context.Context, key string) (any, error) { return l.Obtain(ctx, key, ttl, nil) },
		wait:    func(ctx context.Context, key string) (any, error) { return l.Obtain(ctx, key, ttl, waiting) },
		release: func(ctx context.Context, held any) error { return held.(*redislock.Lock).Release(ctx) },
		close:   func() { closeClients(clients) },
	}
}

// newRueidislock has one key on one node (its default is three on the same node), which is the least it can do. It renews by
// itself and watches the key, which is part of each of its cycles.
func newRueidislock(addrs []string) *contender {
	l := must(rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   rueidis.ClientOption{InitAddress: addrs[:1]},
		KeyMajority:    1,
		KeyValidity:    ttl,
		NoLoopTracking: true,
		TryNextAfter:   time.Second, // a busy machine exceeds the default of 20 ms
	}))
	return &contender{
		acquire: func(ctx context.Context, key string) (any, error) {
			_, cancel, err := l.TryWithContext(ctx, key)
			return cancel, err
		},
		release: func(_ context.Context, held any) error { held.(context.CancelFunc)(); return nil },
		close:   l.Close,
	}
}

var (
	bareSeed  = rand.Text()
	bareCount atomic.Int64
)

func bareValue() string { return fmt.Sprintf("%s-%d", bareSeed, bareCount.Add(1)) }

// newBare takes one round trip to lock and one to unlock, with a single client and no batching.
func newBare(addrs []string) *contender {
	clients := newClients(addrs[:1])
	return &contender{
		acquire: func(ctx context.Context, key string) (any, error) {
			ok, err := clients[0].SetNX(ctx, key, bareValue(), ttl).Result()
			if err == nil && !ok {
				err = errors.New("held")
			}
			return key, err
		},
		release: func(ctx context.Context, held any) error { return clients[0].Del(ctx, held.(string)).Err() },
		close:   func() { closeClients(clients) },
	}
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
