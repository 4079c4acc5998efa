package redlocktest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/seed-ce352c9b/redlock"
	_ "github.com/seed-ce352c9b/redlock/internal/rapidseed" // the same cases each time
	"github.com/seed-ce352c9b/redlock/redlocktest"
)

// one runs f in a bubble with a cluster of one node and a connected client.
func one(t *testing.T, f func(n *redlocktest.Node, c *redis.Client)) {
	t.Helper()
	redlocktest.Bubble(t, func(t *testing.T) {
		cl := redlocktest.New(t, 1)
		c := cl.Clients()[0]
		answers(t, "at first", c)
		f(cl.Node(0), c)
	})
}

// within returns a context that is done after d.
func within(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	time.AfterFunc(d+time.Hour, cancel) // not at the deadline: the order of two simultaneous events would be open
	return ctx
}

var bg = context.Background()

// timesOut fails the test unless err is a network timeout.
func timesOut(t *testing.T, what string, err error) {
	t.Helper()
	var ne net.Error
	if !errors.As(err, &ne) || !ne.Timeout() {
		t.Errorf("%s: got %v, want a timeout", what, err)
	}
}

func is(t *testing.T, what string, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Errorf("%s: got %v, want %v", what, err, target)
	}
}

func want[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func between(t *testing.T, what string, got, least, most time.Duration) {
	t.Helper()
	if got < least || got > most {
		t.Errorf("%s: got %v, want %v to %v", what, got, least, most)
	}
}

// has fails the test unless the node's keys are these, in this order.
func has(t *testing.T, when string, n *redlocktest.Node, keys ...string) {
	t.Helper()
	if got := n.Keys(); !slices.Equal(got, keys) {
		t.Errorf("%s: got the keys %q, want %q", when, got, keys)
	}
}

// answers fails the test unless the node executes a PING.
func answers(t *testing.T, when string, c *redis.Client) {
	t.Helper()
	if err := c.Ping(bg).Err(); err != nil {
		t.Errorf("%s: %v", when, err)
	}
}

// lasts fails the test unless f takes d, or at most a millisecond more. It returns f's error.
func lasts(t *testing.T, what string, d time.Duration, f func() error) error {
	t.Helper()
	start := time.Now()
	err := f()
	between(t, what, time.Since(start), d, d+time.Millisecond)
	return err
}

func TestNamesAndAddresses(t *testing.T) {
	redlocktest.Bubble(t, func(t *testing.T) {
		c := redlocktest.New(t, 28)
		clients := c.Clients()
		want(t, "Len", c.Len(), 28)
		for i, name := range map[int]string{0: "a", 1: "b", 25: "z", 26: "aa", 27: "ab"} {
			want(t, "name", c.Node(i).Name(), name)
			want(t, "address", clients[i].Options().Addr, "node-"+name+":6379")
		}
	})
}

func TestRealTime(t *testing.T) {
	c := redlocktest.New(t, 3)
	for i, client := range c.Clients() {
		want(t, "SET", client.Set(bg, "k", "v", time.Minute).Err(), nil)
		between(t, "ttl", c.Node(i).TTL("k"), 1, time.Minute)
	}
	n := c.Node(0)
	want(t, "SET", c.Clients()[0].Set(bg, "k", "v", 50*time.Millisecond).Err(), nil)
	n.Delay(20*time.Millisecond, 0)
	start := time.Now()
	answers(t, "a new connection", c.Clients()[0])
	between(t, "the dial, HELLO and PING", time.Since(start), 60*time.Millisecond, time.Hour)
	has(t, "after the ttl", n)
}

func TestBubbleLatency(t *testing.T) {
	one(t, func(n *redlocktest.Node, c *redis.Client) {
		seen := map[time.Duration]bool{}
		for range 100 {
			start := time.Now()
			c.Ping(bg)
			took := time.Since(start)
			between(t, "round trip", took, 120*time.Microsecond, 260*time.Microsecond)
			seen[took] = true
		}
		if len(seen) < 95 {
			t.Errorf("%d different round trips in 100", len(seen))
		}
	})
}

func TestTTLRunsByItself(t *testing.T) {
	one(t, func(n *redlocktest.Node, c *redis.Client) {
		c.Set(bg, "k", "v", time.Second)
		time.Sleep(900 * time.Millisecond)
		between(t, "ttl", n.TTL("k"), 99*time.Millisecond, 101*time.Millisecond)
		time.Sleep(101 * time.Millisecond)
		has(t, "after the ttl", n)
		want(t, "get", c.Get(bg, "k").Err(), error(redis.Nil))
	})
}

func TestHangAndResume(t *testing.T) {
	one(t, func(n *redlocktest.Node, c *redis.Client) {
		n.Hang()
		timesOut(t, "SET on a hung node", c.Set(within(100*time.Millisecond), "k", "v", 0).Err())
		// The client gave up on that connection and closed it. The kernel accepts the next one, whose HELLO hangs.
		timesOut(t, "the second SET", lasts(t, "it", 100*time.Millisecond, func() error { return c.Set(within(100*time.Millisecond), "k2", "v", 0).Err() }))
		has(t, "while it hangs", n)
		n.Resume()
		time.Sleep(time.Millisecond)
		has(t, "after the SET of the closed connection", n, "k")
		answers(t, "after the resume", c)
	})
}

func TestWhatIsHeldUpIsAnsweredInTheEnd(t *testing.T) {
	for what, f := range map[string]struct{ begin, end func(*redlocktest.Node) }{
		"hang":                 {(*redlocktest.Node).Hang, (*redlocktest.Node).Resume},
		"partition":            {(*redlocktest.Node).Partition, (*redlocktest.Node).Heal},
		"partition of replies": {(*redlocktest.Node).PartitionReplies, (*redlocktest.Node).Heal},
	} {
		for _, connected := range []bool{true, false} { // a partition holds up the dial, too
			redlocktest.Bubble(t, func(t *testing.T) {
				cl := redlocktest.New(t, 1)
				n, c := cl.Node(0), cl.Clients()[0]
				if connected {
					answers(t, "at first", c)
				}
				f.begin(n)
				time.AfterFunc(time.Second, func() { f.end(n) })
				err := lasts(t, what, time.Second, func() error { return c.Set(bg, "k", "v", 0).Err() })
				want(t, what, err, nil)
				want(t, "ttl", n.TTL("k"), 0)
			})
		}
	}
}

// Attack 22.
func TestLateSetOvertakenByDel(t *testing.T) {
	one(t, func(n *redlocktest.Node, c *redis.Client) {
		n.Hang()
		c.Set(within(10*time.Millisecond), "k", "v", 0)
		c.Del(within(10*time.Millisecond), "k")
		n.Record(true)
		n.Resume()
		time.Sleep(time.Second)
		var names []string
		for _, cmd := range n.Log() {
			names = append(names, cmd.Args[0])
		}
		if got := strings.Join(names, " "); got != "set hello" && got != "hello set" {
			t.Errorf("executed at the resume: %q, want the SET and the second connection's HELLO", got)
		}
	})
}

func TestDelay(t *testing.T) {
	one(t, func(n *redlocktest.Node, c *redis.Client) {
		n.Delay(30*time.Millisecond, 20*time.Millisecond)
		var arrived time.Duration
		start := time.Now()
		n.OnCommand(func([]string) { arrived = time.Since(start) })
		ping := func() error { return c.Ping(bg).Err() }
		lasts(t, "a delayed PING", 50*time.Millisecond, ping)
		between(t, "until it arrived", arrived, 30*time.Millisecond, 31*time.Millisecond)
		n.OnCommand(nil)
		n.Delay(0, 0)
		lasts(t, "after the delay", 0, ping)
	})
}

func TestDropReplies(t *testing.T) {
	one(t, func(n *redlocktest.Node, c *redis.Client) {
		n.DropReplies(1)
		is(t, "SET", lasts(t, "a dropped reply", 0, func() error { return c.Set(bg, "k", "v", 0).Err() }), syscall.ECONNRESET)
		has(t, "after the SET", n, "k")
		answers(t, "the next command", c)
	})
}

func TestDropRepliesOfPipelineAndNotOfSetUp(t *testing.T) {
	redlocktest.Bubble(t, func(t *testing.T) {
		cl := redlocktest.New(t, 1)
		n, c := cl.Node(0), cl.Clients()[0]
		n.DropReplies(1) // the HELLO of the first connection does not count
		_, err := c.Pipelined(bg, func(p redis.Pipeliner) error {
			p.Set(bg, "x", 1, 0)
			p.Set(bg, "y", 1, 0)
			return nil
		})
		is(t, "the pipeline", err, syscall.ECONNRESET)
		has(t, "after the pipeline", n, "x", "y")
	})
}

func TestLoseReplies(t *testing.T) {
	one(t, func(n *redlocktest.Node, c *redis.Client) {
		n.LoseReplies(1)
		timesOut(t, "SET", lasts(t, "a lost reply", 200*time.Millisecond, func() error { return c.Set(within(200*time.Millisecond), "k", "v", 0).Err() }))
		has(t, "after the SET", n, "k")
		answers(t, "the next command", c)
	})
}

func TestRefuse(t *testing.T) {
	one(t, func(n *redlocktest.Node, c *redis.Client) {
		n.Refuse(true)
		time.Sleep(time.Millisecond)
		err := c.Ping(bg).Err()
		if !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("existing connection: got %v, want a reset", err)
		}
		err = c.Ping(bg).Err()
		if !errors.Is(err, syscall.ECONNREFUSED) || err.Error() != "dial tcp node-a:6379: connect: connection refused" {
			t.Errorf("new connection: got %v, want a refusal", err)
		}
		want(t, "connections", n.Connections(), 0)
		n.Refuse(false)
		answers(t, "let in again", c)
	})
}

func TestResetReachesAWaitingReader(t *testing.T) {
	one(t, func(n *redlocktest.Node, c *redis.Client) {
		n.Hang()
		time.AfterFunc(100*time.Millisecond, func() { n.Refuse(true) })
		is(t, "PING", lasts(t, "a reader", 100*time.Millisecond, func() error { return c.Ping(bg).Err() }), syscall.ECONNRESET)
	})
}

func TestPartition(t *testing.T) {
	one(t, func(n *redlocktest.Node, c *redis.Client) {
		n.Partition()
		timesOut(t, "over an open connection", c.Set(within(50*time.Millisecond), "k", "v", 0).Err())
		timesOut(t, "PING", lasts(t, "a dial, which has DialTimeout", 2*time.Second, func() error { return c.Ping(within(5 * time.Second)).Err() }))
		has(t, "while it is cut off", n)
		n.Heal()
		time.Sleep(time.Millisecond)
		has(t, "after the SET of the closed connection", n, "k")
		answers(t, "after the heal", c)
	})
}

func TestPartitionRequests(t *testing.T) {
	one(t, func(n *redlocktest.Node, c *redis.Client) {
		n.PartitionRequests()
		timesOut(t, "SET", c.Set(within(50*time.Millisecond), "k", "v", 0).Err())
		has(t, "while it is cut off", n)
	})
}

func TestCutOneClient(t *testing.T) {
	redlocktest.Bubble(t, func(t *testing.T) {
		cl := redlocktest.New(t, 1)
		p, q := cl.Clients()[0], cl.Clients()[0]
		cl.Cut(p)
		timesOut(t, "cut", p.Ping(within(50*time.Millisecond)).Err())
		answers(t, "not cut", q)
		cl.Mend(p)
		answers(t, "mended", p)
	})
}

func info(t *testing.T, c *redis.Client, field string) string {
	t.Helper()
	text, err := c.Info(bg, "server").Result()
	if err != nil {
		t.Fatalf("info: %v", err)
	}
	for line := range strings.Lines(text) {
		if v, ok := strings.CutPrefix(line, field+":"); ok {
			return strings.TrimSpace(v)
		}
	}
	t.Fatalf("no %s in %q", field, text)
	return ""
}

func TestRestart(t *testing.T) {
	for _, keep := range []bool{true, false} {
		one(t, func(n *redlocktest.Node, c *redis.Client) {
			script := redis.NewScript(`return redis.call('GET', KEYS[1])`)
			c.Set(bg, "k", "v", time.Minute)
			script.Run(bg, c, []string{"k"})
			want(t, "evalsha", script.EvalSha(bg, c, []string{"k"}).Err(), nil)
			want(t, "version", info(t, c, "redis_version"), "7.0.15")
			want(t, "uptime", info(t, c, "uptime_in_seconds"), "86400")
			id := info(t, c, "run_id")
			want(t, "length of run_id", len(id), 40)

			n.Restart(keep)
			if err := c.Ping(bg).Err(); err == nil {
				t.Error("the connection outlived the process")
			}
			_, ok := n.Get("k")
			want(t, "data kept", ok, keep)
			if err := script.EvalSha(bg, c, []string{"k"}).Err(); !redis.HasErrorPrefix(err, "NOSCRIPT") {
				t.Errorf("evalsha: got %v, want NOSCRIPT", err)
			}
			if info(t, c, "run_id") == id {
				t.Error("run_id is the same after the restart")
			}
			time.Sleep(2500 * time.Millisecond)
			want(t, "uptime", info(t, c, "uptime_in_seconds"), "2")
		})
	}
}

func TestRestartForgetsUnreadRequests(t *testing.T) {
	one(t, func(n *redlocktest.Node, c *redis.Client) {
		n.Hang()
		c.Set(within(10*time.Millisecond), "k", "v", 0)
		n.Restart(true)
		time.Sleep(time.Second)
		has(t, "after the restart", n)
		c.Ping(bg)
		answers(t, "after the restart", c)
	})
}

func TestRestartBehindAPartition(t *testing.T) {
	one(t, func(n *redlocktest.Node, c *redis.Client) {
		n.Partition()
		n.Restart(true)
		time.AfterFunc(time.Second, n.Heal)
		is(t, "PING", lasts(t, "until the partition heals", time.Second, func() error { return c.Ping(bg).Err() }), syscall.ECONNRESET)
	})
}

func TestSaveAndRevert(t *testing.T) {
	one(t, func(n *redlocktest.Node, c *redis.Client) {
		c.Set(bg, "short", "v", time.Second)
		c.Set(bg, "long", "old", time.Minute)
		c.ZAdd(bg, "z", redis.Z{Score: 1 << 52, Member: "f"})
		n.Save()
		time.Sleep(2 * time.Second)
		c.Set(bg, "long", "new", time.Hour)
		c.Set(bg, "late", "v", 0)
		c.ZAdd(bg, "z", redis.Z{Score: 1<<52 + 1, Member: "f"}, redis.Z{Score: 1, Member: "late"})
		n.Revert()
		has(t, "after Revert", n, "long", "z")
		v, _ := n.Get("long")
		want(t, "value", v, "old")
		want(t, "ttl", n.TTL("long").Round(10*time.Millisecond), 58*time.Second)
		score, _ := n.Score("z", "f")
		want(t, "score", score, 1<<52)
		_, late := n.Score("z", "late")
		want(t, "has the late score", late, false)
		want(t, "ttl of z", n.TTL("z"), 0)
		c.Ping(bg)
		want(t, "uptime", info(t, c, "uptime_in_seconds"), "0")
	})
}

func TestStopAndStart(t *testing.T) {
	one(t, func(n *redlocktest.Node, c *redis.Client) {
		c.Set(bg, "k", "v", time.Minute)
		n.Stop()
		c.Ping(bg)
		is(t, "stopped", c.Ping(bg).Err(), syscall.ECONNREFUSED)
		time.Sleep(30 * time.Second)
		n.Start()
		between(t, "ttl after 30s down", c.PTTL(bg, "k").Val(), 29*time.Second, 30*time.Second)
	})
}

func TestFail(t *testing.T) {
	one(t, func(n *redlocktest.Node, c *redis.Client) {
		const loading = "LOADING Redis is loading the dataset in memory"
		n.Fail(loading)
		if err := c.Set(bg, "k", "v", 0).Err(); err == nil || err.Error() != loading {
			t.Errorf("got %v, want %s", err, loading)
		}
		want(t, "version", info(t, c, "redis_version"), "7.0.15")
		n.Fail("")
		n.FailCommand("publish", "NOPERM no")
		want(t, "SET", c.Set(bg, "k", "v", 0).Err(), nil)
		for what, err := range map[string]error{"PUBLISH": c.Publish(bg, "c", "m").Err(), "in a script": c.Eval(bg, "return redis.call('PUBLISH', 'c', 'm')", nil).Err()} {
			if !redis.HasErrorPrefix(err, "NOPERM") {
				t.Errorf("%s: got %v, want NOPERM", what, err)
			}
		}
		n.FailCommand("PUBLISH", "")
		want(t, "PUBLISH", c.Publish(bg, "c", "m").Err(), nil)
	})
}

func TestClocks(t *testing.T) {
	one(t, func(n *redlocktest.Node, c *redis.Client) {
		begin := n.Now()
		n.SetClockRate(1.5)
		c.Set(bg, "k", "v", 15*time.Second)
		time.Sleep(9 * time.Second)
		between(t, "ttl of 15s after 9s at rate 1.5", n.TTL("k"), 1490*time.Millisecond, 1510*time.Millisecond)
		time.Sleep(1001 * time.Millisecond)
		has(t, "after the ttl by the node's clock", n)
		between(t, "on the node's clock", n.Now().Sub(begin), 15*time.Second, 15010*time.Millisecond)
		n.SetClockRate(1)

		c.Set(bg, "k", "v", 10*time.Second)
		n.JumpClock(4 * time.Second)
		between(t, "ttl after a jump of 4s", n.TTL("k"), 5990*time.Millisecond, 6*time.Second)
		n.JumpClock(-20 * time.Second)
		between(t, "ttl after a jump back of 20s", n.TTL("k"), 25990*time.Millisecond, 26*time.Second)
		time.Sleep(25 * time.Second)
		has(t, "before the ttl is over", n, "k")
		time.Sleep(1001 * time.Millisecond)
		has(t, "after the ttl", n)
		now, err := c.Time(bg).Result()
		if err != nil || now.Sub(n.Now()).Abs() > time.Millisecond {
			t.Errorf("TIME: got %v, %v, want %v", now, err, n.Now())
		}
	})
}

func TestForeignClient(t *testing.T) {
	one(t, func(n *redlocktest.Node, c *redis.Client) {
		c.ZAdd(bg, "k", redis.Z{Score: 7, Member: "m"})
		score, ok := n.Score("k", "m")
		want(t, "score", score, 7)
		want(t, "has score", ok, true)
		_, ok = n.Score("k", "other")
		want(t, "has other score", ok, false)
		_, ok = n.Get("k")
		want(t, "sorted set is a string", ok, false)
		n.Set("k", "v", 1500*time.Microsecond)
		v, ok := n.Get("k")
		want(t, "value", v, "v")
		want(t, "is a string", ok, true)
		want(t, "ttl", n.TTL("k"), 2*time.Millisecond)
		_, ok = n.Score("k", "m")
		want(t, "string has a score", ok, false)
		want(t, "evicted", n.Evict("k"), true)
		want(t, "evicted again", n.Evict("k"), false)
		want(t, "exists", c.Exists(bg, "k").Val(), 0)
		n.Set("a", "", 0)
		n.Set("b", "", 0)
		has(t, "before FlushAll", n, "a", "b")
		n.FlushAll()
		has(t, "after FlushAll", n)
		got, err := n.Do("ZADD", "z", "1", "m")
		if got != 1 || err != nil {
			t.Errorf("Do: got %v, %v, want 1", got, err)
		}
		if _, err := n.Do("GET", "z"); err == nil || !strings.HasPrefix(err.Error(), "WRONGTYPE") {
			t.Errorf("Do: got %v, want WRONGTYPE", err)
		}
	})
}

func TestOnCommand(t *testing.T) {
	one(t, func(n *redlocktest.Node, c *redis.Client) {
		n.OnCommand(func(args []string) {
			if args[0] == "set" {
				n.OnCommand(nil)
				n.Hang()
			}
		})
		timesOut(t, "SET", c.Set(within(50*time.Millisecond), "k", "v", 0).Err())
		has(t, "while it hangs", n)
		n.Resume()
		time.Sleep(time.Millisecond)
		has(t, "after the resume", n, "k")

		n.OnCommand(func(args []string) { // it may do anything to the node
			n.OnCommand(nil)
			n.Set("seen", args[0], 0)
			n.Restart(true)
		})
		if err := c.Del(bg, "k").Err(); err == nil {
			t.Error("DEL: got nil, want a reset")
		}
		has(t, "after the DEL that met a restart", n, "k", "seen")

		n.OnCommand(func([]string) { n.OnCommand(nil); n.DropReplies(1) })
		is(t, "DEL", c.Del(bg, "k").Err(), syscall.ECONNRESET)
		has(t, "after the DEL", n, "seen")
	})
}

func TestHangInTheMidstOfAPipeline(t *testing.T) {
	one(t, func(n *redlocktest.Node, c *redis.Client) {
		n.OnCommand(func(args []string) {
			if args[1] == "y" {
				n.OnCommand(nil)
				n.Hang()
			}
		})
		time.AfterFunc(time.Second, n.Resume)
		start := time.Now()
		_, err := c.Pipelined(bg, func(p redis.Pipeliner) error {
			p.Set(bg, "x", 1, 0)
			p.Set(bg, "y", 1, 0)
			time.AfterFunc(time.Millisecond, func() { has(t, "while it hangs", n, "x") })
			return nil
		})
		if err != nil || time.Since(start) < time.Second {
			t.Errorf("got %v after %v, want success after 1s", err, time.Since(start))
		}
	})
}

func TestRecord(t *testing.T) {
	one(t, func(n *redlocktest.Node, c *redis.Client) {
		c.Ping(bg)
		want(t, "unrecorded", len(n.Log()), 0)
		n.Record(true)
		n.JumpClock(time.Hour)
		c.Set(bg, "k", "a b", 0)
		n.Record(false)
		c.Ping(bg)
		log := n.Log()
		if len(log) != 1 {
			t.Fatalf("log: got %v, want one command", log)
		}
		want(t, "command", strings.Join(log[0].Args, ","), "set,k,a b")
		want(t, "client", log[0].Client, 1)
		want(t, "clocks apart", log[0].NodeTime.Sub(log[0].At), time.Hour)
		want(t, "string", strings.SplitN(log[0].String(), " ", 2)[1], `client 1: set k "a b"`)
		n.Record(true)
		for range 1<<16 + 10 {
			c.Ping(bg)
		}
		c.Echo(bg, "last")
		log = n.Log()
		want(t, "bounded log", len(log), 1<<16)
		want(t, "last command", log[len(log)-1].Args[0], "echo")
	})
}

func TestConnections(t *testing.T) {
	redlocktest.Bubble(t, func(t *testing.T) {
		cl := redlocktest.New(t, 2)
		for _, c := range cl.Clients() {
			c.Ping(bg)
		}
		more := cl.Clients()[0]
		more.Ping(bg)
		want(t, "connections", cl.Connections(), 3)
		cl.Node(0).Hang()
		more.Close()
		want(t, "connections of a", cl.Node(0).Connections(), 1)
	})
}

func TestRawConnection(t *testing.T) {
	redlocktest.Bubble(t, func(t *testing.T) {
		n := redlocktest.New(t, 1).Node(0)
		c, err := n.Dial(bg)
		if err != nil {
			t.Fatal(err)
		}
		want(t, "remote address", c.RemoteAddr().String(), "node-a:6379")
		fmt.Fprint(c, "*1\r\n$4\r\nPI") // a command in two segments
		time.Sleep(time.Second)
		fmt.Fprint(c, "NG\r\n")
		buf := make([]byte, 100)
		k, err := c.Read(buf)
		want(t, "reply", string(buf[:k]), "+PONG\r\n")
		want(t, "error", err, nil)
		c.SetReadDeadline(time.Now().Add(time.Second))
		_, err = c.Read(buf)
		is(t, "read past the deadline", err, os.ErrDeadlineExceeded)
		c.SetDeadline(time.Time{})
		time.AfterFunc(time.Second, func() { c.SetReadDeadline(time.Now()) })
		_, err = c.Read(buf)
		is(t, "deadline set while reading", err, os.ErrDeadlineExceeded)
		c.SetDeadline(time.Time{})
		fmt.Fprint(c, "*1\r\n$4\r\nQUIT\r\n")
		all, err := io.ReadAll(c)
		want(t, "last words", string(all), "+OK\r\n")
		want(t, "error", err, nil)
		c.Close()
		_, err = c.Read(buf)
		is(t, "read after close", err, net.ErrClosed)
		_, err = c.Write(buf)
		is(t, "write after close", err, net.ErrClosed)

		c, _ = n.Dial(bg)
		time.AfterFunc(time.Second, func() { c.Close() })
		_, err = c.Read(buf)
		is(t, "closed while reading", err, net.ErrClosed)

		n.Partition()
		ctx, cancel := context.WithCancel(bg)
		time.AfterFunc(time.Second, cancel)
		_, err = n.Dial(ctx)
		is(t, "dial cancelled", err, context.Canceled)
		_, err = n.Dial(within(time.Second))
		timesOut(t, "dial", err)
	})
}

// history returns what the nodes saw of a busy run with every kind of fault.
func history(t *testing.T, seed uint64) (logs [][]redlocktest.Command) {
	redlocktest.Bubble(t, func(t *testing.T) {
		cl := redlocktest.NewSeeded(t, 3, seed)
		for i := range 3 {
			cl.Node(i).Record(true)
		}
		script := redis.NewScript(`return redis.call('INCR', KEYS[1])`)
		for who := range 4 {
			for i, c := range cl.Clients() {
				go func() {
					time.Sleep(time.Duration(who*1009+i*10007) * time.Nanosecond)
					for round := range 60 {
						ctx := within(30 * time.Millisecond)
						c.SetArgs(ctx, "k", fmt.Sprint(who, round), redis.SetArgs{Mode: "NX", Get: true, TTL: 20 * time.Millisecond})
						script.Run(ctx, c, []string{"n"})
						c.Pipelined(ctx, func(p redis.Pipeliner) error {
							p.Del(ctx, "k")
							p.Publish(ctx, "released", "x")
							return nil
						})
						time.Sleep(time.Duration(1+round%7) * time.Millisecond)
					}
				}()
			}
		}
		for round := range 10 {
			n := cl.Node(round % 3)
			time.Sleep(10*time.Millisecond + 37*time.Nanosecond)
			n.Hang()
			time.Sleep(40*time.Millisecond + 41*time.Nanosecond)
			n.Resume()
			n.Partition()
			time.Sleep(35*time.Millisecond + 43*time.Nanosecond)
			n.Heal()
			n.DropReplies(2)
			time.Sleep(10 * time.Millisecond)
			n.Restart(round%2 == 0)
		}
		time.Sleep(5 * time.Second)
		for i := range 3 {
			logs = append(logs, cl.Node(i).Log())
		}
	})
	return logs
}

func TestSameSeedSameHistory(t *testing.T) {
	first := history(t, 7)
	for i, log := range first {
		if len(log) < 300 {
			t.Fatalf("node %d saw only %d commands", i, len(log))
		}
	}
	for range 2 {
		again := history(t, 7)
		for i := range first {
			for j := range min(len(first[i]), len(again[i])) {
				if a, b := first[i][j].String(), again[i][j].String(); a != b {
					t.Fatalf("node %d, command %d: got %s, want %s", i, j, b, a)
				}
			}
		}
		if !reflect.DeepEqual(first, again) {
			t.Fatal("histories of one seed differ")
		}
	}
	if reflect.DeepEqual(first, history(t, 8)) {
		t.Error("histories of two seeds are equal")
	}
}

func TestBubbleFunc(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 5).Draw(rt, "n")
		redlocktest.BubbleFunc(t, func() {
			for _, c := range redlocktest.New(t, n).Clients() {
				if err := c.Ping(bg).Err(); err != nil {
					rt.Fatal(err)
				}
			}
			time.Sleep(time.Hour)
		})
	})
	defer func() {
		want(t, "panic", recover(), any("out"))
	}()
	redlocktest.BubbleFunc(t, func() {
		redlocktest.New(t, 2).Node(1).Partition()
		panic("out")
	})
}

// A user may have a bubble without Bubble: the t is the bubble's, so its Cleanup runs inside.
func TestPlainBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cl := redlocktest.New(t, 3)
		cl.Node(1).Hang()
		cl.Node(2).Partition()
		for _, c := range cl.Clients() {
			c.Ping(within(10 * time.Millisecond))
		}
	})
}

// Faults and commands run concurrently in real time, to find data races and deadlocks by lock order.
func TestFaultsUnderLoad(t *testing.T) {
	cl := redlocktest.New(t, 2)
	stop := make(chan struct{})
	var load sync.WaitGroup
	for range 2 {
		for i, c := range cl.Clients() {
			for range 4 {
				load.Go(func() {
					for {
						select {
						case <-stop:
							return
						default:
						}
						ctx, cancel := context.WithTimeout(bg, time.Millisecond)
						c.Eval(ctx, `redis.call('INFO') redis.call('PUBLISH', 'c', 'm') return redis.call('INCR', 'k')`, nil)
						cancel()
						cl.Node(i).TTL("k")
					}
				})
			}
			sub := c.Subscribe(bg, "c")
			load.Go(func() {
				for range sub.Channel() {
				}
			})
			load.Go(func() { <-stop; sub.Close() })
		}
	}
	for round := range 200 {
		n := cl.Node(round % 2)
		n.Hang()
		n.PartitionReplies()
		n.SetClockRate(2)
		n.JumpClock(-time.Second)
		n.Resume()
		n.Restart(round%3 == 0)
		n.DropReplies(1)
		n.LoseReplies(1)
		n.Refuse(round%5 == 0)
		n.Keys()
		n.Heal()
		n.Refuse(false)
		n.Log()
		n.Record(true)
		cl.Connections()
	}
	close(stop)
	load.Wait()
}

func TestCloseTwiceWithFaultsOn(t *testing.T) {
	redlocktest.Bubble(t, func(t *testing.T) {
		cl := redlocktest.New(t, 4)
		clients := cl.Clients()
		for _, c := range clients {
			c.Ping(bg)
		}
		cl.Node(0).Hang()
		cl.Node(1).Partition()
		cl.Node(2).Stop()
		cl.Node(3).PartitionReplies()
		for _, c := range clients {
			go c.Set(bg, "k", "v", 0)
			go c.Get(bg, "k")
		}
		time.Sleep(10 * time.Millisecond)
		cl.Close()
		cl.Close()
		is(t, "PING", clients[0].Ping(bg).Err(), redis.ErrClosed)
		_, err := cl.Node(0).Dial(bg)
		is(t, "dial", err, net.ErrClosed)
	})
}

// A Locker of the cluster is closed with it, also if the test has closed it before, and while no node replies.
func TestLockerIsClosedWithTheCluster(t *testing.T) {
	redlocktest.Bubble(t, func(t *testing.T) {
		c := redlocktest.New(t, 3)
		l, closed := c.Locker(redlock.Options{}), c.Locker(redlock.Options{})
		if _, err := l.TryAcquire(bg, "jobs/42", time.Minute); err != nil {
			t.Fatal(err)
		}
		closed.Close()
		for i := range c.Len() {
			c.Node(i).Hang()
		}
		c.Close()
		for _, l := range []*redlock.Locker{l, closed} {
			_, err := l.TryAcquire(bg, "jobs/42", time.Minute)
			is(t, "TryAcquire", err, redlock.ErrClosed)
		}
	})
	redlocktest.BubbleFunc(t, func() { // the bubble does not end while the Locker has goroutines
		l := redlocktest.New(t, 3).Locker(redlock.Options{})
		if _, err := l.TryAcquire(bg, "jobs/42", time.Minute); err != nil {
			t.Fatal(err)
		}
	})
}
