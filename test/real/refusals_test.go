package real_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/harness"
	"github.com/seed-ce352c9b/redlock/internal/realredis"
)

// A user who may run every command but one is granted nothing and queues nothing but what the reply tells.
//
// Attack 44.
func TestRealRefusals(t *testing.T) {
	t.Parallel()
	server := realredis.Start(t, 1, "--databases", "64")[0]
	used := 0
	harness.CheckRefusals(t, harness.Rounds(0, 1) > 0, func(t *testing.T, f func(t *testing.T, n harness.RefusingNode)) {
		used++ // the next question is asked in another database: all are about the same lock
		db, user := used, fmt.Sprint("user", used)
		t.Parallel()
		admin := server.Client(func(o *redis.Options) { o.DB, o.Protocol = db, 2 })
		do := func(commands ...[]string) (replies []any) {
			pipe := admin.Pipeline()
			for _, args := range commands {
				all := make([]any, len(args))
				for i, a := range args {
					all[i] = a
				}
				pipe.Do(t.Context(), all...)
			}
			cmds, err := pipe.Exec(t.Context())
			if err != nil {
				t.Fatalf("%v: %v", commands, err)
			}
			for _, cmd := range cmds {
				replies = append(replies, cmd.(*redis.Cmd).Val())
			}
			return replies
		}
		allow := func(rules ...string) { do(append([]string{"ACL", "SETUSER", user}, rules...)) }
		allow("on", ">secret", "~*", "&*", "+@all")
		refused := ""
		f(t, harness.RefusingNode{
			Do: do,
			Client: server.Client(func(o *redis.Options) {
				o.DB, o.Username, o.Password, o.Protocol = db, user, "secret", 2
			}),
			Refuse: func(command string) {
				if refused != "" {
					allow("+" + strings.ToLower(refused))
				}
				if command != "" {
					allow("-" + strings.ToLower(command))
				}
				refused = command
			},
		})
	})
}

// With Fair, a user who may not run a command of lua/turn.lua fails, and then nothing stays until its ttl ends, also if
// the Locker is closed: neither a lock nor, without a ttl, a queue.
//
// Attack 44.
func TestRealARefusedTurnLeavesNothing(t *testing.T) {
	r := realStart(t, 3)
	for _, denied := range []string{"get", "set", "zadd", "zrem", "zrange", "pttl", "pexpire", "time"} {
		t.Run(denied, func(t *testing.T) {
			t.Parallel()
			user := "without-" + denied
			r.do(t, nil, "acl", "setuser", user, "on", ">secret", "~*", "&*", "+@all", "-"+denied)
			l := realOpen(t, redlock.Options{Fair: true}, r.urls(user+":secret")...)
			free, held := "free/"+denied, "held/"+denied
			// A caller that waits has an entry, and leaves the queue when it gets the lock.
			r.do(t, nil, "set", held, "another's", "px", "100")
			var released []string // though maybe not everywhere
			for _, key := range []string{free, held} {
				limited, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
				k, err := l.Acquire(limited, key, time.Minute)
				if err == nil {
					k.LeaveUntil(t.Context(), time.Now())
				}
				cancel()
				// Without PEXPIRE no release or rollback is executed, whoever is granted the lock, at its last moment or before.
				if err == nil || denied == "pexpire" {
					released = append(released, key)
				}
			}
			l.Close()
			for _, key := range released {
				r.do(t, nil, "del", key)
			}
			for i, c := range r.admin {
				for _, key := range []string{free, held} {
					realUntil(t, 2*time.Second, "no lock "+key, func() bool { return c.Exists(t.Context(), key).Val() == 0 })
					if left := c.PTTL(t.Context(), "{"+key+"}:queue").Val(); left == -1 {
						t.Errorf("server %d: the queue of %s has no ttl", i, key)
					}
				}
			}
		})
	}
}
