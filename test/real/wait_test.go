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

// waiter begins an Acquire of k's key, once all servers store k: one that did not would grant it. The channel receives the
// lock.
func (r *realNodes) waiter(t testing.TB, l *redlock.Locker, k *redlock.Lock) <-chan *redlock.Lock {
	t.Helper()
	r.everywhere(t, k)
	return realWaiter(t, l, k.Key())
}

func realWaiter(t testing.TB, l *redlock.Locker, key string) <-chan *redlock.Lock {
	got := make(chan *redlock.Lock, 1)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	go func() {
		defer cancel()
		k, err := l.Acquire(ctx, key, time.Minute)
		if err != nil && !errors.Is(err, redlock.ErrClosed) {
			t.Errorf("Acquire: got %v, want the lock", err)
		}
		got <- k
	}()
	return got
}

// realListening waits until connections subscribe on all servers.
func (r *realNodes) realListening(t testing.TB) {
	t.Helper()
	for i, c := range r.admin {
		realUntil(t, 5*time.Second, fmt.Sprintf("a subscription on server %d", i), func() bool {
			channels, err := c.PubSubChannels(context.Background(), "*").Result()
			return err == nil && len(channels) > 0
		})
	}
}

// realQueued waits until somebody stands in the queues of a majority of the servers: then its look is over, and it waits for
// seconds.
func (r *realNodes) realQueued(t testing.TB, key string) {
	t.Helper()
	realUntil(t, 5*time.Second, "a place in the queues", func() bool {
		queued := 0
		for _, c := range r.admin {
			queued += int(min(1, c.ZCard(context.Background(), "{"+key+"}:queue").Val()))
		}
		return queued > len(r.admin)/2
	})
}

// woken is a bound that no poll keeps, which comes after four seconds, and every machine.
const woken = 2 * time.Second

// realHandOver releases a lock. It fails the test unless the waiter has it soon, for a process whose timers are late by as much
// as late says.
func realHandOver(t testing.TB, what string, late func() time.Duration, k *redlock.Lock, next <-chan *redlock.Lock) *redlock.Lock {
	t.Helper()
	released := time.Now()
	realRelease(t, k)
	select {
	case got := <-next:
		if got == nil {
			t.FailNow()
		}
		if d, bound := time.Since(released), woken+4*late(); d > bound {
			t.Errorf("%s: acquired after %v, want at most %v", what, d, bound)
		}
		return got
	case <-time.After(15 * time.Second):
		t.Fatalf("%s: a waiter was forgotten", what)
	}
	return nil
}

// Announcements come through PUBLISH inside the release's script, and a place in the
// queues through Lua's numbers.
func TestRealWaiterIsWoken(t *testing.T) {
	r := realStart(t, 5)
	late := realStarved(t)
	for _, fair := range []bool{false, true} {
		opt := redlock.Options{Fair: fair}
		a, b := r.open(t, opt), r.open(t, opt)
		key := fmt.Sprint("job fair ", fair)
		k := realAcquire(t, a, key, time.Minute)
		next := r.waiter(t, b, k)
		r.realListening(t)
		r.realQueued(t, key)
		realRelease(t, realHandOver(t, key, late, k, next))
		a.Close()
		b.Close()
	}
	r.do(t, nil, "ping")
}

// realEntries returns the labels of the entries in a server's queue for the key job, in order.
func realEntries(c *redis.Client) (labels []string) {
	for _, member := range c.ZRange(context.Background(), "{job}:queue", 0, -1).Val() {
		if !strings.HasSuffix(member, "!") {
			labels = append(labels, redlock.ValueOf(member).Label())
		}
	}
	return labels
}

// Attack 90.
func TestRealTurns(t *testing.T) {
	r := realStart(t, 5)
	late := realStarved(t)
	opt := func(name string) redlock.Options { return redlock.Options{Fair: true, Name: name} }
	k := realAcquire(t, r.open(t, opt("holder")), "job", time.Minute)
	r.everywhere(t, k)
	names := []string{"d", "b", "a", "c"}
	var next []<-chan *redlock.Lock
	for i, name := range names {
		l := r.open(t, opt(name))
		next = append(next, realWaiter(t, l, "job"))
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
		k = realHandOver(t, names[i], late, k, next[i])
		for j, other := range next[i+1:] {
			select {
			case <-other:
				t.Errorf("%s was served before its turn", names[i+1+j])
			default:
			}
		}
	}
	realRelease(t, k)
	r.clean(t, 20*time.Second)
}

// Attack 88.
func TestRealSubscriptionKilled(t *testing.T) {
	r := realStart(t, 3)
	late := realStarved(t)
	a, b := r.open(t, redlock.Options{}), r.open(t, redlock.Options{})
	k := realAcquire(t, a, "job", time.Minute)
	next := r.waiter(t, b, k)
	r.realListening(t)
	for range 3 {
		r.do(t, nil, "client", "kill", "type", "pubsub")
	}
	r.realListening(t) // made anew
	k = realHandOver(t, "after lost subscriptions", late, k, next)
	// And where it dies at the moment of the release.
	next = r.waiter(t, a, k)
	r.realListening(t)
	r.realQueued(t, "job")
	r.do(t, nil, "client", "kill", "type", "pubsub")
	realRelease(t, realHandOver(t, "with subscriptions killed at the release", late, k, next))
}

// mute returns a Locker whose user may not subscribe.
func (r *realNodes) mute(t testing.TB, opt redlock.Options) *redlock.Locker {
	t.Helper()
	r.do(t, nil, "acl", "setuser", "mute", "on", ">secret", "+@all", "~*", "resetchannels")
	return realOpen(t, opt, r.urls("mute:secret")...)
}

// A user who may not subscribe polls.
//
// Attack 88.
func TestRealWaiterWithoutChannels(t *testing.T) {
	r := realStart(t, 3)
	late := realStarved(t)
	for _, fair := range []bool{false, true} {
		opt := redlock.Options{Fair: fair}
		a, b := r.mute(t, opt), r.mute(t, opt)
		key := fmt.Sprint("job fair ", fair)
		k := realAcquire(t, a, key, time.Minute)
		r.everywhere(t, k)
		r.do(t, nil, "config", "resetstat")
		next := realWaiter(t, b, key)
		realUntil(t, 5*time.Second, "a look, by PTTL or from the queue", func() bool {
			stats := r.admin[0].Info(context.Background(), "commandstats").Val()
			return strings.Contains(stats, "cmdstat_pttl") || fair && strings.Contains(stats, "cmdstat_zrange")
		})
		realRelease(t, realHandOver(t, key, late, k, next))
	}
}
