package sim

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/harness"
	"github.com/seed-ce352c9b/redlock/internal/twin"
	"github.com/seed-ce352c9b/redlock/internal/twin/scripts"
	"github.com/seed-ce352c9b/redlock/redlocktest"
)

// TestTwinsOfWaiting makes random calls of the scripts for waiting, with their twins and with the scripts: the replies, the
// announcements and the stored data must be the same.
func TestTwinsOfWaiting(t *testing.T) { compareCalls(t, waitCalls) }

// TestTwinsOfLocks does so with the scripts of locks, also where a schedule of TestTwins seldom gets: what is missing, what has no
// ttl, adoptions that are undone.
func TestTwinsOfLocks(t *testing.T) { compareCalls(t, lockCalls) }

func compareCalls(t *testing.T, calls func(t *testing.T, seed uint64) []string) {
	defer twin.Enable(true)
	first := baseSeed(t, "")
	for seed := first; seed < first+20; seed++ {
		twin.Enable(true)
		fast := calls(t, seed)
		twin.Enable(false)
		slow := calls(t, seed)
		for i := range fast {
			if i >= len(slow) || fast[i] != slow[i] {
				t.Fatalf("seed %d, call %d:\n twin   %s\n script %s", seed, i, fast[i], slow[min(i, len(slow)-1)])
			}
		}
	}
}

// lockCalls makes a random sequence of calls and returns the result of each.
func lockCalls(t *testing.T, seed uint64) (told []string) {
	redlocktest.BubbleFunc(t, func() {
		r := rand.New(rand.NewPCG(seed, 2))
		cl := redlocktest.NewSeeded(t, 1, seed)
		c, n := cl.Clients()[0], cl.Node(0)
		shas := map[string]string{}
		for _, tw := range scripts.Locks {
			var err error
			if shas[tw.Name], err = c.ScriptLoad(context.Background(), harness.Script(tw.Name)).Result(); err != nil {
				t.Fatal(err)
			}
		}
		pick := func(list ...string) string { return list[r.IntN(len(list))] }
		ttl := func() string { return pick("500", "1500", "90000") }
		token := func() string { return fmt.Sprint(r.IntN(1000)) }
		for range 120 {
			lock := pick("k0", "k1")
			value := func() string {
				held, _ := n.Get(lock)
				return pick("v1", "v2", "v3", cmp.Or(held, "v1"))
			}
			register, queue := "{"+lock+"}:fence", "{"+lock+"}:queue"
			keys, name := []string{lock, register}, pick("release", "releases", "extend", "extends", "raise", "adopt", "adopt", "restore", "restore", "touch", "set", "other", "later")
			var args []any
			switch name {
			case "set":
				n.Do(append([]string{"SET", lock, value()}, [][]string{{}, {"PX", ttl()}, {"PX", ttl()}}[r.IntN(3)]...)...)
				continue
			case "other":
				n.Do("DEL", pick(lock, register, queue))
				switch r.IntN(16) {
				case 0:
					n.Do("SET", register, "x")
				case 1:
					n.Do("ZADD", lock, "1", "x")
				case 2:
					n.Do("ZADD", queue, "1", "p1", fmt.Sprint(scripts.EndsAt+n.Now().UnixMilli()+1000), "p1!")
				}
				continue
			case "later":
				time.Sleep(time.Duration(r.IntN(1000)) * time.Millisecond)
				continue
			case "release":
				keys, args = []string{lock, queue, register}[:2+r.IntN(2)], [][]any{{value()}, {value(), "ch"}}[r.IntN(2)]
			case "releases":
				queues := r.IntN(3)
				keys = append(append([]string{"k0", "k1"}, []string{"{k0}:queue", "{k1}:queue"}[:queues]...), []string{"{k0}:fence", "{k1}:fence"}[:r.IntN(3)]...)
				args = []any{fmt.Sprint(queues, pick("", " 100000 200000")), value(), value()}
			case "extend":
				args = [][]any{{value(), ttl(), token()}, {value(), ttl(), token(), "100000", "200000"}, {value(), ttl()}}[r.IntN(3)]
				if len(args) == 2 {
					keys = keys[:1]
				}
			case "extends":
				keys, args = []string{"k0", "k1"}, nil
				for _, lock := range keys[:2] {
					fence := pick("-", "", token())
					if args = append(args, value(), ttl(), fence); fence != "-" {
						keys = append(keys, "{"+lock+"}:fence")
					}
				}
				args = append(args, [][]any{nil, {"100000", "200000"}}[r.IntN(2)]...)
			case "raise":
				args = []any{value(), token()}
			case "adopt":
				args = []any{value(), value(), ttl(), pick(token(), token(), ""), "86400000", "90000000"}
			case "restore":
				keys, args = append(keys, queue), []any{value(), value(), "86400000", "90000000", "ch"}
			case "touch":
				args = [][]any{nil, {"100000000", "200000000"}}[r.IntN(2)]
			}
			reply, err := c.EvalSha(context.Background(), shas[name], keys, args...).Result()
			text := fmt.Sprint(name, keys, args, " → ", reply, err)
			for _, key := range []string{"k0", "k1"} {
				held, _ := n.Get(key)
				v, _ := n.Do("ZRANGE", "{"+key+"}:fence", "0", "-1", "WITHSCORES")
				text += fmt.Sprint(" ", held, n.TTL(key), v, n.TTL("{"+key+"}:fence"), n.TTL("{"+key+"}:queue"))
			}
			told = append(told, text)
		}
	})
	return told
}

// waitCalls makes a random sequence of calls and returns the result of each.
func waitCalls(t *testing.T, seed uint64) (told []string) {
	redlocktest.BubbleFunc(t, func() {
		r := rand.New(rand.NewPCG(seed, 1))
		cl := redlocktest.NewSeeded(t, 1, seed)
		c, n := cl.Clients()[0], cl.Node(0)
		shas := map[string]string{}
		for _, tw := range append(scripts.Waiting, scripts.Locks...) {
			var err error
			if shas[tw.Name], err = c.ScriptLoad(context.Background(), harness.Script(tw.Name)).Result(); err != nil {
				t.Fatal(err)
			}
		}
		sub := cl.Clients()[0].Subscribe(context.Background(), "ch:p1", "ch:p3")
		defer sub.Close()
		heard := sub.Channel()
		queue := new(Schedule).queueName(0)
		pick := func(list ...string) string { return list[r.IntN(len(list))] }
		for range 120 {
			place := pick("p0", "p1", "p2", "p3", "p4")
			var sha string
			var keys []string
			var args []any
			switch r.IntN(10) {
			case 0, 1:
				sha, keys = shas["turn"], []string{"k0", "{k0}:fence", queue}
				args = []any{pick("v1", "v2"), "1500", pick(fmt.Sprint(r.IntN(1000)), fmt.Sprint(r.IntN(1000)), ""), place, pick("", "3", "5", fmt.Sprint(n.Now().UnixMicro())), "2000", "15000", "ch", pick("", "1")}
			case 2:
				sha, keys = shas["wait"], []string{"k0", queue}
				args = []any{place, pick("", "new"), "12000", "15000"}
			case 3:
				sha, keys = shas["leave"], []string{"k0", queue}
				args = []any{place, "ch", pick("0", "1", "2"), fmt.Sprint("value", r.IntN(100))}
			case 8:
				sha, keys = shas["inspect"], []string{"k0", "{k0}:fence", queue}
			case 4:
				n.Evict(pick("k0", queue))
				continue
			case 6:
				sha, keys = shas["release"], []string{"k0", queue, "{k0}:fence"}
				args = [][]any{{"v1"}, {"v1", "ch"}, {"v2", "ch", place, "1"}, {"v1", "ch", place, "2", "1", "9", "12000"}, {"v2", "ch", "", "0"}, {"v1", "ch", place, "2", "1", "9", "12000", "15000"}, {"v1", "ch", place, pick("1", "2"), "1", "9", "2000", "15000", pick("3", "5")}, {"v1", "ch", place, "1", "1", "9", "2000", "15000", "4", "1"}}[r.IntN(8)]
			case 7:
				n.Do("ZADD", queue, pick("1", "4", "+inf", fmt.Sprint(scripts.EndsAt+n.Now().UnixMilli()), fmt.Sprint(n.Now().UnixMicro())), place+pick("", "", "!"))
				if r.IntN(8) == 0 {
					for i := range 70 {
						n.Do("ZADD", queue, fmt.Sprint(i%5), fmt.Sprint("crowd", i), pick("9", fmt.Sprint(scripts.EndsAt+n.Now().UnixMilli()+50)), fmt.Sprint("crowd", i, pick("!", "")))
					}
				}
				continue
			case 9:
				sha, keys = shas["restore"], []string{"k0", "{k0}:fence", queue}
				args = []any{"v3", "v1", "86400000", "90000000", "ch"}
				c.EvalSha(context.Background(), shas["adopt"], keys[:2], "v1", "v3", pick("500", "90000"), "7", "86400000", "90000000")
				time.Sleep(time.Duration(r.IntN(2000)) * time.Millisecond)
			case 5:
				time.Sleep(time.Duration(r.IntN(2500)) * time.Millisecond)
				continue
			}
			reply, err := c.EvalSha(context.Background(), sha, keys, args...).Result()
			text := fmt.Sprint(args, " → ", reply, err)
			time.Sleep(10 * time.Millisecond)
			for len(heard) > 0 {
				m := <-heard
				text += fmt.Sprint(" ", m.Channel, " ", m.Payload)
			}
			stored := []string{fmt.Sprint(n.TTL("k0"))}
			for _, key := range []string{queue, "{k0}:fence"} {
				v, _ := n.Do("ZRANGE", key, "0", "-1", "WITHSCORES")
				stored = append(stored, fmt.Sprint(key, n.TTL(key), v))
			}
			slices.Sort(stored)
			told = append(told, text+fmt.Sprint(stored))
		}
	})
	return told
}
