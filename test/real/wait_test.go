package real_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ce352c9b/redlock"
)

// realWaiter begins an Acquire; the channel gives when it had the lock.
func realWaiter(t testing.TB, l *redlock.Locker, key string, ttl time.Duration) <-chan *redlock.Lock {
	t.Helper()
	got := make(chan *redlock.Lock, 1)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	go func() {
		defer cancel()
		k, err := l.Acquire(ctx, key, ttl)
		if err != nil && !errors.Is(err, redlock.ErrClosed) {
			t.Errorf("Acquire: got %v, want the lock", err)
		}
		got <- k
	}()
	return got
}

// realListening waits until n connections subscribe on a server.
func (r *realNodes) realListening(t testing.TB, i, n int) {
	t.Helper()
	realUntil(t, 5*time.Second, fmt.Sprintf("%d subscriptions on server %d", n, i), func() bool {
		channels, err := r.admin[i].PubSubChannels(context.Background(), "*").Result()
		return err == nil && len(channels) >= n
	})
}

// realQueued waits until somebody stands in the queue of each of these servers: then its
// look is over, and it waits for seconds.
func (r *realNodes) realQueued(t testing.TB, key string, servers ...int) {
	t.Helper()
	realUntil(t, 5*time.Second, fmt.Sprintf("a place in the queues of servers %v", servers), func() bool {
		for _, i := range servers {
			if r.admin[i].ZCard(context.Background(), "{"+key+"}:queue").Val() == 0 {
				return false
			}
		}
		return true
	})
}

// woken is a bound that no poll keeps, which comes after four seconds, and every machine.
const woken = 2 * time.Second

// realHandOver releases a lock and gives how long the waiter took to have it.
func realHandOver(t testing.TB, k *redlock.Lock, next <-chan *redlock.Lock) (*redlock.Lock, time.Duration) {
	t.Helper()
	released := time.Now()
	realRelease(t, k)
	select {
	case got := <-next:
		if got == nil {
			t.FailNow()
		}
		return got, time.Since(released)
	case <-time.After(15 * time.Second):
		t.Fatal("a waiter was forgotten")
	}
	return nil, 0
}

// Announcements come through PUBLISH inside the release's script, and a place in the
// queues through Lua's numbers.
func TestRealWaiterIsWoken(t *testing.T) {
	t.Parallel()
	r := realStart(t, 5)
	late := realStarved(t)
	for _, fair := range []bool{false, true} {
		opt := redlock.Options{Fair: fair}
		a, b := r.open(t, opt), r.open(t, opt)
		key := fmt.Sprint("job fair ", fair)
		k := realAcquire(t, a, key, time.Minute)
		next := realWaiter(t, b, key, time.Minute)
		for i := range 5 {
			r.realListening(t, i, 1)
		}
		r.realQueued(t, key, 0, 1, 2, 3, 4)
		got, d := realHandOver(t, k, next)
		if bound := woken + 4*late(); d > bound {
			t.Errorf("fair %v: woken after %v, want at most %v", fair, d, bound)
		}
		realRelease(t, got)
		a.Close()
		b.Close()
	}
	r.do(t, nil, "ping")
}

// realEntries returns the labels of the entries in a server's queue for the key job, in order.
func realEntries(c *redis.Client) (labels []string) {
	for _, member := range c.ZRange(context.Background(), "{job}:queue", 0, -1).Val() {
		if !strings.HasSuffix(member, "!") {
			labels = append(labels, redlock.Label(member))
		}
	}
	return labels
}

// Attack 90.
func TestRealTurns(t *testing.T) {
	t.Parallel()
	r := realStart(t, 5)
	late := realStarved(t)
	opt := func(name string) redlock.Options { return redlock.Options{Fair: true, Name: name} }
	k := realAcquire(t, r.open(t, opt("holder")), "job", time.Minute)
	for _, c := range r.admin { // a server that its request has not reached would grant a waiter
		realUntil(t, 5*time.Second, "the lock on all servers", func() bool {
			return c.Get(context.Background(), "job").Val() == k.Value()
		})
	}
	names := []string{"d", "b", "a", "c"}
	var next []<-chan *redlock.Lock
	for i, name := range names {
		l := r.open(t, opt(name))
		next = append(next, realWaiter(t, l, "job", time.Minute))
		realUntil(t, 5*time.Second, name+" in the queues", func() bool {
			for _, c := range r.admin {
				if !slices.Equal(realEntries(c), names[:i+1]) {
					return false
				}
			}
			return true
		})
	}
	st, err := r.open(t, opt("observer")).Inspect(context.Background(), "job")
	if err != nil || !slices.Equal(st.Queue, names) {
		t.Errorf("Inspect: got the queue %v and %v, want %v", st.Queue, err, names)
	}
	// Tickets are whole microseconds of now, on every server the same.
	var tickets []float64
	for j := range r.admin {
		zs := r.admin[j].ZRangeWithScores(context.Background(), "{job}:queue", 0, 0).Val()
		if len(zs) != 1 || zs[0].Score != float64(int64(zs[0].Score)) || time.Since(time.UnixMicro(int64(zs[0].Score))).Abs() > time.Minute {
			t.Fatalf("server %d: the first ticket is %v", j, zs)
		}
		tickets = append(tickets, zs[0].Score)
	}
	if slices.Min(tickets) != slices.Max(tickets) {
		t.Errorf("tickets differ: %v", tickets)
	}
	// Another one's queue is lost, and comes back in order.
	r.do(t, []int{2}, "del", "{job}:queue")
	realUntil(t, 5*time.Second, "the queue of server 2, again", func() bool {
		return slices.Equal(realEntries(r.admin[2]), names)
	})
	// Of this one, the lock is lost, too. So it grants every caller that asks, one after the other, and the other servers
	// keep the order.
	r.servers[1].Restart()
	for i := range names {
		var d time.Duration
		k, d = realHandOver(t, k, next[i])
		for j, other := range next[i+1:] {
			select {
			case <-other:
				t.Errorf("%s was served before its turn", names[i+1+j])
			default:
			}
		}
		if bound := woken + 4*late(); d > bound {
			t.Errorf("%s was served after %v, want at most %v", names[i], d, bound)
		}
	}
	realRelease(t, k)
	r.clean(t, 20*time.Second)
}

// Attack 88.
func TestRealSubscriptionKilled(t *testing.T) {
	t.Parallel()
	r := realStart(t, 3)
	late := realStarved(t)
	a, b := r.open(t, redlock.Options{}), r.open(t, redlock.Options{})
	k := realAcquire(t, a, "job", time.Minute)
	next := realWaiter(t, b, "job", time.Minute)
	for i := range 3 {
		r.realListening(t, i, 1)
	}
	for range 3 {
		r.do(t, nil, "client", "kill", "type", "pubsub")
	}
	for i := range 3 {
		r.realListening(t, i, 1) // made anew
	}
	got, d := realHandOver(t, k, next)
	if bound := woken + 4*late(); d > bound {
		t.Errorf("after lost subscriptions: woken after %v, want at most %v", d, bound)
	}
	// And where it dies at the moment of the release.
	next = realWaiter(t, a, "job", time.Minute)
	for i := range 3 {
		r.realListening(t, i, 1)
	}
	r.realQueued(t, "job", 0, 1, 2)
	r.do(t, nil, "client", "kill", "type", "pubsub")
	got, d = realHandOver(t, got, next)
	if bound := woken + 4*late(); d > bound {
		t.Errorf("with subscriptions killed at the release: acquired after %v, want at most %v", d, bound)
	}
	realRelease(t, got)
}

// A user who may not subscribe polls.
//
// Attack 88.
func TestRealWaiterWithoutChannels(t *testing.T) {
	t.Parallel()
	r := realStart(t, 3)
	late := realStarved(t)
	r.do(t, nil, "acl", "setuser", "mute", "on", ">secret", "+@all", "~*", "resetchannels")
	var nodes []redlock.Node
	for _, s := range r.servers {
		nodes = append(nodes, s.Client(func(o *redis.Options) { o.Username, o.Password = "mute", "secret" }))
	}
	for _, fair := range []bool{false, true} {
		opt := redlock.Options{Fair: fair}
		a, b := realNew(t, opt, nodes...), realNew(t, opt, nodes...)
		key := fmt.Sprint("job fair ", fair)
		k := realAcquire(t, a, key, time.Minute)
		next := realWaiter(t, b, key, time.Minute)
		realUntil(t, 5*time.Second, "a look, by PTTL or from the queue", func() bool {
			stats := r.admin[0].Info(context.Background(), "commandstats").Val()
			return strings.Contains(stats, "cmdstat_pttl") || fair && strings.Contains(stats, "cmdstat_zrange")
		})
		got, d := realHandOver(t, k, next)
		if bound := woken + 4*late(); d > bound {
			t.Errorf("fair %v: found free after %v, want at most %v", fair, d, bound)
		}
		realRelease(t, got)
	}
}
