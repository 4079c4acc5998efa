package real_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ce352c9b/redlock"
)

// The permissions that docs/operations.md names are all that is needed: a user with no
// others does everything, and no server has refused anything.
func TestRealPermissionsOfTheDocs(t *testing.T) {
	r := realStart(t, 3)
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	var line []any
	for l := range strings.Lines(string(text)) {
		if strings.HasPrefix(l, "ACL SETUSER locks ") {
			for _, w := range strings.Fields(l) {
				line = append(line, w)
			}
		}
	}
	r.do(t, nil, line...)
	urls := r.urls("locks:secret")
	for _, fair := range []bool{false, true} {
		a, b := realOpen(t, redlock.Options{Fair: fair}, urls...), realOpen(t, redlock.Options{Fair: fair}, urls...)
		key := "jobs/42"
		k := realAcquire(t, a, key, time.Minute)
		if err := k.Extend(t.Context()); err != nil {
			t.Errorf("Extend: %v", err)
		}
		k, err := b.Adopt(t.Context(), key, k.Value(), time.Minute)
		if err != nil {
			t.Fatalf("Adopt: %v", err)
		}
		short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		a.Acquire(short, key, time.Minute) // leaves the queue again
		cancel()
		got := make(chan *redlock.Lock)
		go func() {
			k, err := a.Acquire(t.Context(), key, time.Minute)
			if err != nil {
				t.Errorf("Acquire: %v", err)
			}
			got <- k
		}()
		realUntil(t, 2*time.Second, "a queue", func() bool {
			st, err := b.Inspect(t.Context(), key)
			return err == nil && len(st.Queue) == 1
		})
		realRelease(t, k)
		if k := <-got; k != nil {
			realRelease(t, k)
		}
		// Another's register is ahead: a raise.
		r.do(t, nil, "zadd", "{jobs/43}:fence", time.Now().Add(time.Minute).UnixMicro(), "f")
		realRelease(t, realAcquire(t, a, "jobs/43", time.Minute))
		left := realAcquire(t, a, "jobs/44", time.Minute)
		left.LeaveUntil(t.Context(), left.Until())
		realUntil(t, 2*time.Second, "rest", func() bool { return realAtRest(a, 3) && realAtRest(b, 3) })
		r.do(t, nil, "del", "jobs/44")
		// An adoption that fails on two of three, and is undone on the third.
		given := r.acquireEverywhere(t, a, "jobs/45")
		r.do(t, []int{0, 1}, "del", given.Key())
		_, err = b.Adopt(t.Context(), given.Key(), given.Value(), time.Hour)
		realIs(t, "Adopt", err, redlock.ErrLost)
		realUntil(t, 2*time.Second, "the giver's value back", func() bool { return r.count(t, given.Key(), given.Value().Secret()) == 1 })
		realRelease(t, given)
	}
	for i, c := range r.admin {
		log, err := c.Do(t.Context(), "acl", "log").Slice()
		if err != nil || len(log) > 0 {
			t.Errorf("server %d refused: %v, %v", i, log, err)
		}
	}
}

// A permission that a release needs and does not have is an error, told in the server's
// words, and the release is owed: the lock is removed once the user may do it. It is
// never taken for another's lock, and never told as an error after the deletion.
func TestRealReleaseWithoutAPermissionIsToldAndOwed(t *testing.T) {
	r := realStart(t, 3)
	for _, denied := range []string{"get", "del", "pttl", "pexpire"} {
		t.Run(denied, func(t *testing.T) {
			t.Parallel()
			user := "without-" + denied
			r.do(t, nil, "acl", "setuser", user, "on", ">secret", "~*", "&*", "+@all")
			l := realOpen(t, redlock.Options{}, r.urls(user+":secret")...)
			// Not by an extension: it would give the registers a ttl, and the release would not need PEXPIRE.
			k := r.acquireEverywhere(t, l, "jobs/"+denied)
			key := k.Key()
			r.do(t, nil, "acl", "setuser", user, "-"+denied)
			err := k.Release(t.Context())
			if !errors.Is(err, redlock.ErrNoQuorum) || errors.Is(err, redlock.ErrLost) {
				t.Errorf("Release: got %v, want an error that is ErrNoQuorum and not ErrLost", err)
			}
			// 7.0 says "ERR The user executing the script can't", later servers NOPERM.
			var refusal redis.Error
			if !errors.As(err, &refusal) {
				t.Errorf("Release: got %v, want the servers' own error in it", err)
			}
			if n := r.count(t, key, k.Value().Secret()); n != 3 {
				t.Errorf("the lock after the release that was refused: on %d nodes, want 3", n)
			}
			r.do(t, nil, "acl", "setuser", user, "+"+denied)
			realUntil(t, 10*time.Second, "what is owed is paid", func() bool { return realAtRest(l, 3) && r.count(t, key, "") == 3 })
		})
	}
}
