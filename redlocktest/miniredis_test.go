package redlocktest_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ce352c9b/redlock/redlocktest"
)

// The commands that a lock needs are answered as by Redis 7.0.

func TestSetNXGet(t *testing.T) {
	one(t, func(n *redlocktest.Node, c *redis.Client) {
		set := func(key, value string) (any, error) {
			return c.Do(bg, "SET", key, value, "NX", "GET", "PX", 10000).Result()
		}
		if v, err := set("k", "one"); err != redis.Nil {
			t.Errorf("free: got %v, %v, want nil", v, err)
		}
		want(t, "ttl", n.TTL("k") > 9*time.Second, true)
		time.Sleep(5 * time.Second)
		if v, err := set("k", "two"); v != "one" || err != nil {
			t.Errorf("held: got %v, %v, want one", v, err)
		}
		v, _ := n.Get("k")
		want(t, "value", v, "one")
		want(t, "ttl unchanged", n.TTL("k") < 5*time.Second, true)
		n.Do("ZADD", "z", "1", "m")
		if v, err := set("z", "v"); !redis.HasErrorPrefix(err, "WRONGTYPE") {
			t.Errorf("sorted set: got %v, %v, want WRONGTYPE", v, err)
		}
		_, ok := n.Score("z", "m")
		want(t, "sorted set is still there", ok, true)
		time.Sleep(6 * time.Second)
		if v, err := set("k", "three"); err != redis.Nil {
			t.Errorf("expired: got %v, %v, want nil", v, err)
		}
	})
}

func TestZAddGTCH(t *testing.T) {
	one(t, func(n *redlocktest.Node, c *redis.Client) {
		const big = 1<<53 - 1
		for _, step := range []struct {
			score int64
			moved int64
		}{{1790000000123456, 1}, {1790000000123456, 0}, {1790000000123455, 0}, {1790000000123457, 1}, {big, 1}} {
			got, err := c.Do(bg, "ZADD", "{k}:fence", "GT", "CH", step.score, "f").Int64()
			if got != step.moved || err != nil {
				t.Errorf("ZADD GT CH %d: got %v, %v, want %v", step.score, got, err, step.moved)
			}
		}
		score, _ := n.Score("{k}:fence", "f")
		want(t, "score", int64(score), big)
		v, err := c.Do(bg, "ZSCORE", "{k}:fence", "f").Text()
		want(t, "text of the score", v, "9007199254740991")
		want(t, "error", err, nil)
		n.Set("s", "v", 0)
		if err := c.Do(bg, "ZADD", "s", "GT", "CH", 1, "f").Err(); !redis.HasErrorPrefix(err, "WRONGTYPE") {
			t.Errorf("a string: got %v, want WRONGTYPE", err)
		}
	})
}

// The texts are those of a redis-server 7.0.15, except for the reason why a script does not compile.
func TestScriptErrors(t *testing.T) {
	one(t, func(n *redlocktest.Node, c *redis.Client) {
		const wrongType = "WRONGTYPE Operation against a key holding the wrong kind of value"
		n.Set("s", "v", 0)
		for _, test := range []struct{ script, want string }{
			{"return redis.call('ZSCORE', KEYS[1], 'f')",
				wrongType + " script: e2207ab3a11e5de07680131aeabe008b23cf2d70, on @user_script:1."},
			{"local x\nreturn redis.call('ZSCORE', KEYS[1], 'f')",
				wrongType + " script: bca56ec3c83216dec0195a2e1f0d2ff652900f56, on @user_script:2."},
			{"return redis.pcall('ZSCORE', KEYS[1], 'f')", wrongType},
			{"return redis.error_reply('MINE it is')", "MINE it is"},
			{"error('no')", "ERR user_script:1: no script: eca06311a091a5f01b538c5e061dc50ec8826663, on @user_script:1."},
			{"return (", "ERR Error compiling script (new function): "},
		} {
			err := c.Eval(bg, test.script, []string{"s"}).Err()
			if err == nil || !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("%q: got %v, want %s", test.script, err, test.want)
			}
		}
	})
}

func TestInfoInScript(t *testing.T) {
	one(t, func(n *redlocktest.Node, c *redis.Client) {
		id, err := c.Eval(bg, `return string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')`, nil).Text()
		want(t, "run_id", id, info(t, c, "run_id"))
		want(t, "error", err, nil)
		role, _ := c.Eval(bg, `return string.match(redis.call('INFO', 'replication'), 'role:(%w+)')`, nil).Text()
		want(t, "role", role, "master")
		text, _ := c.Info(bg).Result()
		for _, section := range []string{"Server", "Clients", "Memory", "Persistence", "Replication"} {
			want(t, section, strings.Contains(text, "# "+section+"\r\n"), true)
		}
	})
}

func TestPublishInScript(t *testing.T) {
	heard(t, func(cl *redlocktest.Cluster, sub *redis.PubSub, _ func(string) int) {
		n, c := cl.Node(0), cl.Clients()[0]
		publish := func() int64 {
			got, err := c.Eval(bg, `redis.call('PUBLISH', 'one', 'first') return redis.call('PUBLISH', 'one', 'second')`, nil).Int64()
			if err != nil {
				t.Fatal(err)
			}
			return got
		}
		want(t, "receivers", publish(), 1)
		hears(t, "the subscriber", sub, "first", "second")
		want(t, "ping", sub.Ping(bg, "x"), nil)
		if m, err := sub.Receive(bg); err != nil {
			t.Errorf("pong: got %v, %v", m, err)
		}
		sub.Subscribe(bg, "two")
		sub.PSubscribe(bg, "t*")
		sub.Unsubscribe(bg, "one")
		time.Sleep(time.Second)
		want(t, "receivers after unsubscribe", publish(), 0)
		n.Restart(true) // the subscriber's goroutines must end with its connection
		time.Sleep(time.Second)
		c.Ping(bg)
		want(t, "receivers after a restart", publish(), 0)
	})
}

func TestSubscriberOnAHungNode(t *testing.T) {
	heard(t, func(cl *redlocktest.Cluster, sub *redis.PubSub, publish func(string) int) {
		cl.Node(0).PartitionReplies()
		publish("held")
		_, err := sub.ReceiveTimeout(bg, time.Second)
		timesOut(t, "Receive", err)
		cl.Node(0).Heal()
		hears(t, "after the heal", sub, "held")
	})
}

func TestVersions(t *testing.T) {
	one(t, func(n *redlocktest.Node, c *redis.Client) {
		for _, proto := range []int{2, 3} {
			c := c.Conn() // a connection of its own, since it changes its protocol
			hello, err := c.Hello(bg, proto, "", "", "").Result()
			if err != nil {
				t.Fatal(err)
			}
			want(t, "server", hello["server"], any("redis"))
			want(t, "version", hello["version"], any("7.0.15"))
			want(t, "protocol", hello["proto"], any(int64(proto)))
			c.Close()
		}
	})
}

func TestExpire(t *testing.T) {
	one(t, func(n *redlocktest.Node, c *redis.Client) {
		n.Set("k", "v", time.Second)
		for _, step := range []struct {
			ms   int
			done int64
		}{{500, 0}, {2000, 1}, {1000, 0}} {
			got, err := c.Do(bg, "PEXPIRE", "k", step.ms, "GT").Int64()
			if got != step.done || err != nil {
				t.Errorf("PEXPIRE %d GT: got %v, %v, want %v", step.ms, got, err, step.done)
			}
		}
		time.Sleep(time.Second)
		got, err := c.Do(bg, "PTTL", "k").Int64()
		if got < 995 || got > 1000 || err != nil {
			t.Errorf("PTTL: got %v, %v, want 999 or so", got, err)
		}
	})
}

// A script that one node has parsed is only noted by the next, which must not show.
func TestAScriptIsLoadedUntilItIsFlushed(t *testing.T) {
	redlocktest.Bubble(t, func(t *testing.T) {
		cl := redlocktest.New(t, 3)
		for i, c := range cl.Clients() {
			n := cl.Node(i)
			sha, err := n.Do("SCRIPT", "LOAD", "return 42")
			want(t, "error of SCRIPT LOAD", err, nil)
			switch i {
			case 0:
				want(t, "EXISTS", c.ScriptExists(bg, sha.(string)).Val()[0], true)
			case 1:
				cmds, err := c.TxPipelined(bg, func(p redis.Pipeliner) error {
					p.EvalSha(bg, sha.(string), nil)
					return nil
				})
				want(t, "error of a transaction", err, nil)
				want(t, "in a transaction", cmds[0].(*redis.Cmd).Val(), any(int64(42)))
			}
			want(t, "EVALSHA", c.EvalSha(bg, sha.(string), nil).Val(), any(int64(42)))
			n.Do("SCRIPT", "LOAD", "return 42")
			want(t, "FLUSH", c.ScriptFlush(bg).Val(), "OK")
			want(t, "EXISTS after FLUSH", c.ScriptExists(bg, sha.(string)).Val()[0], false)
			n.Do("SCRIPT", "LOAD", "return 42")
			n.Restart(true)
			c.Ping(bg) // over the lost connection
			err = c.EvalSha(bg, sha.(string), nil).Err()
			want(t, "NOSCRIPT after a restart", redis.HasErrorPrefix(err, "NOSCRIPT"), true)
		}
		_, err := cl.Node(0).Do("SCRIPT", "LOAD", "return (")
		want(t, "a script with a fault is refused", err != nil, true)
	})
}
