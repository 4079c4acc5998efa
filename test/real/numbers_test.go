package real_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/harness"
)

func realSeamed(t testing.TB, opt redlock.Options, wall func() time.Time, nodes ...redlock.Node) *redlock.Locker {
	t.Helper()
	l, err := harness.NewSeamed(opt, nil, wall, harness.Seed(t), nodes...)
	return realLocker(t, l, err)
}

func realAhead(d time.Duration) func() time.Time {
	return func() time.Time { return time.Now().Add(d) }
}

// register is the score on every server; 0 where there is none.
func (r *realNodes) register(t testing.TB, name string) (scores []int64) {
	t.Helper()
	for i, c := range r.admin {
		f, err := c.ZScore(context.Background(), name, "f").Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			t.Fatalf("server %d: %v", i, err)
		}
		scores = append(scores, int64(f)) // exact: it is below 2^53
	}
	return scores
}

// Lua prints numbers above 1e15 with 14 digits: tokens must not go through that.
//
// Attack 72.
func TestRealExactTokens(t *testing.T) {
	r := realStart(t, 5)
	l := r.open(t, redlock.Options{})
	ahead := realSeamed(t, redlock.Options{}, realAhead(time.Hour), r.nodes()...)
	check := func(what string, k *redlock.Lock) {
		t.Helper()
		n := 0
		for _, s := range r.register(t, "{job}:fence") {
			if s == k.Fence() {
				n++
			}
		}
		if n < 3 {
			t.Errorf("%s: token %d is in %v", what, k.Fence(), r.register(t, "{job}:fence"))
		}
		s, err := l.Inspect(t.Context(), "job")
		if err != nil || s.Fence != k.Fence() {
			t.Errorf("%s: Inspect says %d, want %d; %v", what, s.Fence, k.Fence(), err)
		}
	}
	k := realAcquire(t, l, "job", time.Minute)
	check("acquired", k)
	k, err := l.Adopt(t.Context(), "job", k.Value(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	check("adopted", k)
	realRelease(t, k)
	k = realAcquire(t, ahead, "job", time.Minute)
	check("by a clock that is ahead", k)
	r.everywhere(t, k) // else its SET may reach a server after the other Locker's release, and stay there
	last := k.Fence()
	k, err = l.Adopt(t.Context(), "job", k.Value(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	last = realGrows(t, last, k)
	check("raised for an adoption", k)
	realRelease(t, k)
	k = realAcquire(t, l, "job", time.Minute)
	realGrows(t, last, k)
	check("raised", k)
	// An extension stores the exact token where it was lost.
	r.do(t, []int{0, 1, 2, 3}, "del", "{job}:fence")
	// (More than one, for the other Locker's release may have reached a node only after
	// the acquire: then the first extension heals it, and the next one counts.)
	// On a busy machine a failed attempt by the clock that is ahead may have left a greater token on a minority.
	defer func() {
		if t.Failed() {
			t.Logf("values %q, registers %v, token %d", r.get(t, "job"), r.register(t, "{job}:fence"), k.Fence())
		}
	}()
	realUntil(t, 3*time.Second, "all registers", func() bool {
		if err := k.Extend(t.Context()); err != nil {
			t.Error(err)
		}
		for _, s := range r.register(t, "{job}:fence") {
			if s < k.Fence() {
				return false
			}
		}
		return true
	})
	check("extended", k)
	realRelease(t, k)
	r.registersExpire(t, time.Minute)
}

// Attack 71.
func TestRealStrangeRegisters(t *testing.T) {
	r := realStart(t, 5)
	ctx := t.Context()
	minority, majority := []int{1, 4}, []int{0, 1, 4}
	for _, tt := range []struct {
		name string
		cmd  []any
		bad  bool // on a majority no token can be made
		over int64
	}{
		{"2^53-1", []any{"zadd", "K", "9007199254740991", "f"}, true, 0},
		{"2^53-2", []any{"zadd", "K", "9007199254740990", "f"}, true, 0},
		{"2^60", []any{"zadd", "K", "1152921504606846976", "f"}, true, 0},
		{"inf", []any{"zadd", "K", "inf", "f"}, true, 0},
		{"close to the end", []any{"zadd", "K", "9007199254730000", "f"}, false, 9007199254730000},
		{"negative", []any{"zadd", "K", "-5", "f"}, false, 0},
		{"-inf", []any{"zadd", "K", "-inf", "f"}, false, 0},
		{"a fraction", []any{"zadd", "K", "1.5", "f"}, false, 1},
		{"another member", []any{"zadd", "K", "7", "x"}, false, 0},
		{"a word", []any{"set", "K", "word"}, true, 0},
		{"a list", []any{"rpush", "K", "1"}, true, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := r.open(t, redlock.Options{}) // which knows nothing of the registers of the one before
			put := func(key string, on []int) {
				args := append([]any(nil), tt.cmd...)
				args[1] = "{" + key + "}:fence"
				r.do(t, on, args...)
			}
			put("few", minority)
			var last int64
			for range 3 {
				k, err := l.TryAcquire(ctx, "few", time.Minute)
				if err != nil {
					// The first tells how high the registers are.
					k, err = l.TryAcquire(ctx, "few", time.Minute)
				}
				if err != nil {
					t.Errorf("on a minority: %v", err)
					break
				}
				last = realGrows(t, last, k)
				if err := k.Extend(ctx); err != nil {
					t.Errorf("Extend: %v", err)
				}
				realRelease(t, k)
			}
			put("many", majority)
			limited, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
			k, err := l.Acquire(limited, "many", time.Minute)
			cancel()
			switch {
			case tt.bad && err == nil:
				t.Errorf("got token %d", k.Fence())
				k.Release(ctx)
			case tt.bad && !errors.Is(err, redlock.ErrNoQuorum):
				t.Errorf("got %v", err)
			case tt.bad:
				t.Logf("%v", err)
			case err != nil:
				t.Errorf("on a majority: %v", err)
			default:
				realGrows(t, tt.over, k)
				realRelease(t, k)
			}
			realUntil(t, 2*time.Second, "rest", func() bool { return realAtRest(l, 5) })
			for _, k := range []string{"few", "many"} {
				if n := r.count(t, k, ""); n != 5 {
					t.Errorf("left behind: %q", r.get(t, k))
				}
			}
			r.registersExpire(t, time.Minute)
			r.do(t, nil, "flushall")
		})
	}
}

// What becomes of a held lock whose registers somebody overwrote.
func TestRealRegistersOverwrittenWhileHeld(t *testing.T) {
	r := realStart(t, 3)
	l := r.open(t, redlock.Options{})
	ctx := t.Context()
	k := realAcquire(t, l, "job", time.Minute)
	r.everywhere(t, k)
	r.do(t, nil, "set", "{job}:fence", "word")
	if _, err := l.Adopt(ctx, "job", k.Value(), time.Minute); err == nil {
		t.Error("adopted without a token")
	}
	realUntil(t, 2*time.Second, "rest", func() bool { return realAtRest(l, 3) })
	if n := r.count(t, "job", k.Value().Secret()); n != 3 {
		t.Errorf("a failed adoption left the giver's value on %d of 3 nodes: %q", n, r.get(t, "job"))
	}
	if err := k.Extend(ctx); errors.Is(err, redlock.ErrLost) {
		t.Errorf("the value is ours on %d of 3 nodes, but Extend says %v", r.count(t, "job", k.Value().Secret()), err)
	}
	if err := k.Release(ctx); err != nil {
		t.Errorf("Release: %v", err)
	}
	r.do(t, nil, "del", "{job}:fence")
	r.clean(t, 2*time.Second)
}

func TestRealClocks(t *testing.T) {
	r := realStart(t, 5)
	year := 365 * 24 * time.Hour
	for _, tt := range []struct {
		name string
		wall func() time.Time
	}{
		{"2112", func() time.Time { return time.UnixMicro(1<<52 + 1) }},
		{"2200", realAhead(174 * year)},
		{"at the last token", func() time.Time { return time.UnixMicro(1<<53 - 1) }},
		{"beyond all tokens", func() time.Time { return time.UnixMicro(1 << 55) }},
		{"before 1970", func() time.Time { return time.Unix(-1000, 0) }},
		{"1970", func() time.Time { return time.Unix(0, 0) }},
		{"a year slow", realAhead(-year)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			odd := realSeamed(t, redlock.Options{Name: "odd"}, tt.wall, r.nodes()...)
			l := r.open(t, redlock.Options{Name: "right"})
			key := "job/" + tt.name
			var last int64
			for i, by := range []*redlock.Locker{odd, odd, l, odd, l, l, odd, odd} {
				k := realAcquire(t, by, key, time.Minute)
				last = realGrows(t, last, k)
				if k.Fence() > time.Now().Add(time.Hour).UnixMicro() {
					t.Errorf("step %d: token %d is far ahead of time", i, k.Fence())
				}
				if !k.Valid() {
					t.Errorf("step %d: not valid", i)
				}
				realRelease(t, k)
			}
			r.clean(t, 2*time.Second)
		})
	}
}

func TestRealExpiry(t *testing.T) {
	r := realStart(t, 5)
	l := r.open(t, redlock.Options{NodeTimeout: 150 * time.Millisecond}) // a tenth of these ttls is too little for a busy machine
	ctx := t.Context()
	k := realAcquire(t, l, "job", 300*time.Millisecond)
	next := realAcquire(t, l, "job", time.Minute)
	if k.Valid() || next.Fence() <= k.Fence() {
		t.Errorf("the old one is valid %v, tokens %d and %d", k.Valid(), k.Fence(), next.Fence())
	}
	realIs(t, "Extend", k.Extend(ctx), redlock.ErrLost)
	realIs(t, "Release", k.Release(ctx), redlock.ErrLost)
	if n := r.count(t, "job", next.Value().Secret()); n < 3 {
		t.Errorf("the next holder's key is on %d nodes", n)
	}
	realRelease(t, next)
	// Nobody looks after that one any more: its registers get an end all the same.
	realAcquire(t, l, "short", 200*time.Millisecond)
	r.clean(t, 5*time.Second)
	long := realAcquire(t, l, "long", time.Hour)
	r.outlived(t, long, 24*time.Hour+59*time.Minute)
	// What an extension leaves.
	k = realAcquire(t, l, "extended", time.Minute)
	r.outlived(t, k, 24*time.Hour) // that of its first second
	r.do(t, nil, "persist", "{extended}:fence")
	if err := k.Extend(ctx); err != nil {
		t.Error(err)
	}
	r.outlived(t, k, 24*time.Hour)
	realUntil(t, 10*time.Second, "an end of all registers", func() bool { return len(r.endless(25*time.Hour)) == 0 })
}

// outlived waits until the registers of a lock have at least so long to live wherever the lock
// is. Where it is not, on a minority that did not answer in time, there may be none.
func (r *realNodes) outlived(t testing.TB, k *redlock.Lock, least time.Duration) {
	t.Helper()
	var lives []time.Duration
	if !realWait(10*time.Second, func() bool {
		lives = nil
		for i, value := range r.get(t, k.Key()) {
			if value == k.Value().Secret() {
				lives = append(lives, r.admin[i].PTTL(context.Background(), "{"+k.Key()+"}:fence").Val())
			}
		}
		return len(lives) >= 3 && slices.Min(lives) >= least
	}) {
		t.Errorf("the registers of %s live for %v on the servers that have it, want %v on three or more", k.Key(), lives, least)
	}
}

// Failed attempts leave registers, too. Those must end.
func TestRealRegistersOfFailedAttempts(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		on   []int // nil: all
		cmd  []any
	}{
		{"a foreign key", nil, []any{"set", "job", "foreign"}},
		{"a foreign key with a ttl", nil, []any{"set", "job", "foreign", "px", "60000"}},
		{"a foreign value like ours", nil, []any{"set", "job", "web:3b3928c6-90a5-442f-a9ff-bb0f7b443eed"}},
		{"another library's hash", nil, []any{"hset", "job", "3b3928c6:1", "1"}},
		{"on a minority", []int{0, 1}, []any{"hset", "job", "3b3928c6:1", "1"}},
		{"no permission for SET", nil, []any{"acl", "setuser", "default", "-set"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := realStart(t, 5)
			l := r.open(t, redlock.Options{})
			r.do(t, tt.on, tt.cmd...)
			for range 3 {
				if k, err := l.TryAcquire(t.Context(), "job", time.Minute); err == nil {
					k.Release(t.Context())
				}
			}
			realUntil(t, 2*time.Second, "rest", func() bool { return realAtRest(l, 5) })
			r.registersExpire(t, time.Minute)
		})
	}
}

// Others who lock the same key by hand or by another library exclude us, and we them.
//
// Attack 91.
func TestRealOtherLibraries(t *testing.T) {
	const release = `if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) else return 0 end`
	for name, send := range map[string]struct{ acquire, extend string }{ // each returns 1 if it did it
		"by hand": {
			`return redis.call("set", KEYS[1], ARGV[1], "nx", "px", ARGV[2]) and 1 or 0`,
			`if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("pexpire", KEYS[1], ARGV[2]) else return 0 end`,
		},
		"node-redlock 5": { // for one of its keys
			`if redis.call("exists", KEYS[1]) == 1 then return 0 end redis.call("set", KEYS[1], ARGV[1], "PX", ARGV[2]) return 1`,
			`if redis.call("get", KEYS[1]) ~= ARGV[1] then return 0 end redis.call("set", KEYS[1], ARGV[1], "PX", ARGV[2]) return 1`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := realStart(t, 5)
			l := r.open(t, redlock.Options{})
			ctx := t.Context()
			on := func(script, value string) (yes int) {
				for _, c := range r.admin {
					n, err := c.Eval(ctx, script, []string{"job"}, value, 60000).Int()
					if err != nil {
						t.Fatal(err)
					}
					yes += n
				}
				return yes
			}
			var last int64
			for i := range 10 {
				theirs := fmt.Sprintf("theirs-%d", i)
				if n := on(send.acquire, theirs); n != 5 {
					t.Fatalf("they got %d of 5", n)
				}
				_, err := l.TryAcquire(ctx, "job", time.Minute)
				realIs(t, "TryAcquire", err, redlock.ErrHeld)
				if s, err := l.Inspect(ctx, "job"); err != nil || s.Value.Secret() != theirs || s.Holder != "" {
					t.Errorf("Inspect: %v, %+v", err, s)
				}
				realUntil(t, time.Second, "rest", func() bool { return realAtRest(l, 5) })
				if n := on(send.extend, theirs); n != 5 {
					t.Errorf("they extended %d of 5", n)
				}
				if n := on(release, theirs); n != 5 {
					t.Errorf("they gave back %d of 5", n)
				}
				k := realAcquire(t, l, "job", time.Minute)
				last = realGrows(t, last, k)
				if n := on(send.acquire, theirs); n > 2 {
					t.Errorf("they got %d of 5 of a held lock", n)
				}
				on(release, theirs)
				if n := on(send.extend, theirs); n != 0 {
					t.Errorf("they touched our key on %d of 5", n)
				}
				if !k.Valid() {
					t.Error("lost")
				}
				realIs(t, "Extend", k.Extend(ctx), nil)
				realRelease(t, k)
				realUntil(t, time.Second, "rest", func() bool { return realAtRest(l, 5) })
			}
			// Handed over from them to us.
			on(send.acquire, "theirs")
			k, err := l.Adopt(ctx, "job", redlock.ValueOf("theirs"), time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			realUntil(t, time.Second, "the adoption on all nodes", func() bool { return r.count(t, "job", k.Value().Secret()) == 5 })
			if n := on(release, "theirs"); n != 0 {
				t.Errorf("they gave back %d of 5 of an adopted lock", n)
			}
			realRelease(t, k)
			r.clean(t, time.Second)
			r.registersExpire(t, time.Minute)
		})
	}
}

// PEXPIRE by nothing deletes a key. No ttl comes to that, and the script would not do it
// either.
//
// Attack 61.
func TestRealExtensionByNothing(t *testing.T) {
	r := realStart(t, 1)
	l := r.open(t, redlock.Options{})
	ctx := t.Context()
	for _, ttl := range []time.Duration{0, -1, 1, time.Microsecond, time.Millisecond, -time.Hour} {
		if _, err := l.TryAcquire(ctx, "job", ttl); err == nil || errors.Is(err, redlock.ErrNoQuorum) {
			t.Errorf("ttl %v: got %v, want a refusal", ttl, err)
		}
	}
	if keys := r.admin[0].Keys(ctx, "*").Val(); len(keys) > 0 {
		t.Errorf("refused, and yet there is %v", keys)
	}
	k := realAcquire(t, l, "job", time.Minute)
	for _, px := range []string{"0", "-1", "-9223372036854775808", "1"} {
		v, err := r.admin[0].Eval(ctx, harness.Script("extend"), []string{"job", "{job}:fence"}, k.Value().Secret(), px, k.Fence(), 82860000, 86460000).Int()
		if v != 1 || err != nil {
			t.Errorf("by %s ms: got %d, %v; want 1", px, v, err)
		}
		if d := r.admin[0].PTTL(ctx, "job").Val(); d < 30*time.Second {
			t.Fatalf("by %s ms: %v of a minute are left", px, d)
		}
	}
	realRelease(t, k)
	r.clean(t, time.Second)
}
