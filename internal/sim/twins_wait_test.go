package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/harness"
	"github.com/seed-ce352c9b/redlock/internal/twin"
	"github.com/seed-ce352c9b/redlock/redlocktest"
)

// TestTwinsOfWaiting makes random calls of the scripts for waiting, with their twins and with the scripts: the replies, the
// announcements and the stored data must be the same.
func TestTwinsOfWaiting(t *testing.T) {
	defer twin.Enable(true)
	for seed := range uint64(20) {
		twin.Enable(true)
		fast := waitCalls(t, seed)
		twin.Enable(false)
		slow := waitCalls(t, seed)
		for i := range fast {
			if i >= len(slow) || fast[i] != slow[i] {
				t.Fatalf("seed %d, call %d:\n twin   %s\n script %s", seed, i, fast[i], slow[min(i, len(slow)-1)])
			}
		}
	}
}

// waitCalls makes a random sequence of calls and returns the result of each.
func waitCalls(t *testing.T, seed uint64) (told []string) {
	redlocktest.BubbleFunc(t, func() {
		r := rand.New(rand.NewPCG(seed, 1))
		cl := redlocktest.NewSeeded(t, 1, seed)
		c, n := cl.Clients()[0], cl.Node(0)
		shas := map[string]string{}
		for _, tw := range append(waitTwins, lockTwins[0]) {
			var err error
			if shas[tw.name], err = c.ScriptLoad(context.Background(), harness.Script(tw.name)).Result(); err != nil {
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
			switch r.IntN(9) {
			case 0, 1:
				sha, keys = shas["turn"], []string{"k0", "{k0}:fence", queue}
				args = []any{pick("v1", "v2"), "1500", fmt.Sprint(r.IntN(1000)), place, pick("", "3", "5", fmt.Sprint(n.Now().UnixMicro())), "2000", "15000", "ch", pick("", "1")}
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
				sha, keys = shas["release"], []string{"k0", "{k0}:fence", queue}
				args = [][]any{{"v1"}, {"v1", "ch"}, {"v2", "ch", place, "1"}, {"v1", "ch", place, "2", "1", "9", "12000"}, {"v2", "ch", "", "0"}, {"v1", "ch", place, "2", "1", "9", "12000", "15000"}, {"v1", "ch", place, pick("1", "2"), "1", "9", "2000", "15000", pick("3", "5")}, {"v1", "ch", place, "1", "1", "9", "2000", "15000", "4", "1"}}[r.IntN(8)]
			case 7:
				n.Do("ZADD", queue, pick("1", "4", "+inf", fmt.Sprint(endsAt+n.Now().UnixMilli()), fmt.Sprint(n.Now().UnixMicro())), place+pick("", "", "!"))
				if r.IntN(8) == 0 {
					for i := range 70 {
						n.Do("ZADD", queue, fmt.Sprint(i%5), fmt.Sprint("crowd", i), pick("9", fmt.Sprint(endsAt+n.Now().UnixMilli()+50)), fmt.Sprint("crowd", i, pick("!", "")))
					}
				}
				continue
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
