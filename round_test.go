package redlock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/clock"
	"github.com/seed-ce352c9b/redlock/internal/random"
	"github.com/seed-ce352c9b/redlock/internal/wire"
	"github.com/seed-ce352c9b/redlock/internal/wire/wiretest"

	"github.com/redis/go-redis/v9"
)

const ms = time.Millisecond

// heldVotes are n votes, the first k of which name the holder.
func heldVotes(n, k int, holder string) []Vote {
	votes := make([]Vote, n)
	for i := range votes {
		votes[i] = Vote{Node: string(rune('a' + i)), Answer: AnswerNo}
		if i < k {
			votes[i].Value = ValueOf(holder)
		}
	}
	return votes
}

func TestAQuorumErrorReads(t *testing.T) {
	web := wiretest.ValueOf("web-1:4123")
	held := []Vote{
		{Node: "a", Answer: AnswerYes, Took: 400 * time.Microsecond},
		{Node: "b", Answer: AnswerNo, Value: ValueOf(web)},
		{Node: "c", Answer: AnswerNo, Value: ValueOf(web)},
		{Node: "d", Answer: AnswerNo, Value: ValueOf(web)},
		{Node: "e", Answer: AnswerUnknown, Err: wire.TimeoutError(50 * ms)},
	}
	for _, c := range []struct {
		err  *QuorumError
		want string
	}{
		{&QuorumError{Round: Round{Op: OpAcquire, Key: "jobs/42", Need: 3, Votes: held}, Err: ErrHeld},
			`redlock: acquire "jobs/42": held by web-1:4123 (3 of 5 votes needed; a yes 0.4ms, b held, c held, d held, e timeout 50ms)`},
		{&QuorumError{Round: Round{Op: OpAcquire, Key: "jobs/42", Need: 3, Votes: held[:4]}, Err: ErrHeld},
			`redlock: acquire "jobs/42": held by web-1:4123 (3 of 4 votes needed; a yes 0.4ms, b held, c held, d held)`},
		{&QuorumError{Round: Round{Op: OpAcquire, Key: "k", Need: 2, Votes: []Vote{{Node: "a", Answer: AnswerNo, Value: ValueOf(web)}, {Node: "b", Answer: AnswerNo, Value: ValueOf(wiretest.ValueOf("other"))}, {Node: "c"}}}, Err: ErrHeld},
			`redlock: acquire "k": held (2 of 3 votes needed; a held, b held, c pending)`},
		{&QuorumError{Round: Round{Op: OpExtend, Key: "k", Need: 2, Votes: []Vote{{Node: "a", Answer: AnswerNo, Err: wire.ErrMissing}, {Node: "b", Answer: AnswerNo}, {Node: "c", Answer: AnswerYes, Took: 12345 * time.Microsecond}}}, Err: ErrLost},
			`redlock: extend "k": lost (2 of 3 votes needed; a missing, b held, c yes 12ms)`},
		{&QuorumError{Round: Round{Op: OpRelease, Key: "k", Need: 1, Votes: []Vote{{Node: "a", Answer: AnswerUnknown, Err: wire.ErrOwed}}}, Err: ErrNoQuorum, hint: "any remaining key expires by 15:04:05.000"},
			`redlock: release "k": no quorum, any remaining key expires by 15:04:05.000 (1 of 1 votes needed; a release pending)`},
		{&QuorumError{Round: Round{Op: OpLost, Key: "k", Need: 3}, Err: ErrLost, hint: "its validity of 988ms ended"},
			`redlock: lost "k": its validity of 988ms ended`},
		{&QuorumError{Round: Round{Op: OpLost, Key: "k", Need: 1, Votes: held[4:]}, Err: ErrLost, hint: "its validity of 988ms ended, the extension sent 655ms before got no majority"},
			`redlock: lost "k": its validity of 988ms ended, the extension sent 655ms before got no majority (1 of 1 votes needed; e timeout 50ms)`},
		{&QuorumError{Round: Round{Op: OpLost, Key: "k", Need: 1}, Err: ErrLost}, `redlock: lost "k": lost`},
		{&QuorumError{Round: Round{Op: OpAcquire, Key: "a\"b\n\x00", Need: 1, Votes: []Vote{{Node: "a", Answer: AnswerUnknown}}}, Err: ErrNoQuorum},
			`redlock: acquire "a\"b\n\x00": no quorum (1 of 1 votes needed; a unknown)`},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

func TestAQuorumErrorMatchesItsReasonAndItsVotes(t *testing.T) {
	e := &QuorumError{Round: Round{Op: OpAcquire, Key: "k", Need: 2, Votes: []Vote{
		{Node: "a", Answer: AnswerUnknown, Err: wire.NewNodeError("EOF", io.EOF)},
		{Node: "b", Answer: AnswerUnknown, Err: wire.NewNodeError("timeout 50ms", context.DeadlineExceeded)},
		{Node: "c", Answer: AnswerUnknown, Err: wire.NewNodeError("odd", ErrHeld)},
		{Node: "d", Answer: AnswerYes},
	}}, Err: ErrNoQuorum}
	wrapped := fmt.Errorf("my job: %w", e)
	for err, want := range map[error]bool{ErrNoQuorum: true, io.EOF: true, ErrHeld: false, ErrLost: false, ErrClosed: false, context.DeadlineExceeded: false, context.Canceled: false} {
		if got := errors.Is(wrapped, err); got != want {
			t.Errorf("errors.Is(%v): got %v, want %v", err, got, want)
		}
	}
	var q *QuorumError
	if !errors.As(wrapped, &q) || q != e || q.Round.Key != "k" {
		t.Errorf("errors.As: got %v", q)
	}
	if errs := e.Unwrap(); len(errs) != 4 || errs[0] != ErrNoQuorum {
		t.Errorf("Unwrap: got %v, want the reason and three votes' errors", errs)
	}
}

// Attack 86.
func TestTheCallersContextIsMatchedExactlyWhereItEndedTheCall(t *testing.T) {
	l := &Locker{now: clock.Real, closing: make(chan struct{})}
	e := &acquireCall{op: OpAcquire, name: &wire.LockKey{Key: "k"}, began: clock.Real(), attempt: 2}
	last := &QuorumError{Round: Round{Op: OpAcquire, Key: "k", Need: 1, Votes: []Vote{{Node: "a", Answer: AnswerUnknown, Err: wire.NewNodeError("timeout 50ms", context.DeadlineExceeded)}}}, Err: ErrNoQuorum}
	cause := errors.New("shutting down")
	cancelled, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	late, cancel2 := context.WithDeadline(t.Context(), time.Unix(1, 0))
	defer cancel2()
	for _, c := range []struct {
		name    string
		ctx     context.Context
		last    *QuorumError
		matches []error
		not     []error
	}{
		{"cancelled", cancelled, last, []error{context.Canceled, cause, ErrNoQuorum}, []error{context.DeadlineExceeded, ErrClosed, ErrHeld, ErrLost}},
		{"deadline", late, last, []error{context.DeadlineExceeded, ErrNoQuorum}, []error{context.Canceled, ErrClosed, ErrHeld, ErrLost}},
		{"before anything was sent", cancelled, nil, []error{context.Canceled, cause}, []error{ErrNoQuorum, ErrClosed}},
		{"closed", t.Context(), last, []error{ErrClosed, ErrNoQuorum}, []error{context.DeadlineExceeded, context.Canceled}},
	} {
		t.Run(c.name, func(t *testing.T) {
			e.last = c.last
			err := l.ended(c.ctx, e)
			for _, m := range c.matches {
				if !errors.Is(err, m) {
					t.Errorf("%v does not match %v", err, m)
				}
			}
			for _, m := range c.not {
				if errors.Is(err, m) {
					t.Errorf("%v matches %v", err, m)
				}
			}
			var q *QuorumError
			if errors.As(err, &q) != (c.last != nil) {
				t.Errorf("%v: the last round: got %v", err, q)
			}
			if c.last != nil && !strings.Contains(err.Error(), "attempt 2: no quorum (1 of 1 votes needed; a timeout 50ms)") {
				t.Errorf("%v does not tell the votes", err)
			}
			if !strings.HasPrefix(err.Error(), `redlock: acquire "k": `) {
				t.Errorf("%v does not say what was done", err)
			}
		})
	}
}

func TestAHolderIsNamedOnlyByAMajority(t *testing.T) {
	for n := 1; n <= 7; n++ {
		for k := 0; k <= n; k++ {
			r := Round{Need: majority(n), Votes: heldVotes(n, k, "x")}
			want := ""
			if 2*k > n {
				want = "x"
			}
			if got := r.Value(); got.Secret() != want {
				t.Errorf("%d of %d name it: got %q, want %q", k, n, got, want)
			}
		}
	}
	votes := heldVotes(5, 2, "y")
	for _, i := range []int{2, 3, 4} {
		votes[i].Value = ValueOf("x")
	}
	if got := (Round{Need: 3, Votes: votes}).Value(); got.Secret() != "x" {
		t.Errorf("behind two of another: got %q, want x", got)
	}
	t.Run("and by one value, not by one label", func(t *testing.T) {
		votes := heldVotes(3, 1, wiretest.ValueOf("web"))
		votes[1].Value = ValueOf("web:99999999-2222-4333-8444-555555555555")
		r := Round{Op: OpAcquire, Key: "k", Need: 2, Votes: votes}
		if got := r.Value(); !got.IsZero() {
			t.Errorf("two attempts of one process: got %q, want none", got)
		}
		if got := (&QuorumError{Round: r, Err: ErrHeld}).Error(); strings.Contains(got, "held by") {
			t.Errorf("got %q", got)
		}
	})
	for _, reason := range []error{ErrNoQuorum, ErrLost} { // which it is not the reason for
		e := &QuorumError{Round: Round{Op: OpExtend, Key: "k", Need: 2, Votes: heldVotes(3, 3, "x")}, Err: reason}
		if strings.Contains(e.Error(), "held by") {
			t.Errorf("got %q", e)
		}
	}
	if got := (Round{}).Value(); !got.IsZero() {
		t.Errorf("no votes: got %q", got)
	}
}

func TestHugeKeysAreClipped(t *testing.T) {
	key := strings.Repeat("k", wire.MaxKeyBytes)
	for _, err := range []error{
		&QuorumError{Round: Round{Op: OpAcquire, Key: key, Need: 1}, Err: ErrHeld},
		(&Locker{now: clock.Real}).ended(closedContext(t), &acquireCall{op: OpAcquire, name: &wire.LockKey{Key: key}}),
	} {
		if n := len(err.Error()); n > 400 || !strings.Contains(err.Error(), "kkk...") {
			t.Errorf("the error has %d bytes: %s", n, wire.Clip(err.Error()))
		}
	}
	for n, want := range map[int]int{0: 0, 199: 199, 200: 200, 201: 203, 100000: 203} {
		if got := len(wire.Clip(strings.Repeat("x", n))); got != want {
			t.Errorf("clip of %d bytes: got %d, want %d", n, got, want)
		}
	}
}

func closedContext(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

func TestTheLabelIsWhatStandsBeforeTheUUID(t *testing.T) {
	for _, c := range []struct {
		value, label string
		ours         bool
	}{
		{wiretest.ValueOf("web-1:4123"), "web-1:4123", true},
		{wiretest.ValueOf(""), "", true},
		{wiretest.ValueOf("a:b:c"), "a:b:c", true},
		{"", "", false},
		{"web", "", false},
		{"11111111-2222-4333-8444-555555555555", "", false}, // a uuid without a label, as other libraries store
		{"web_11111111-2222-4333-8444-555555555555", "", false},
		{"web:11111111_2222-4333-8444-555555555555", "", false},
		{"web:11111111-2222-4333-8444_555555555555", "", false},
		{"web:s3cr3t!!-2222-4333-8444-555555555555", "", false},
		{"web:11111111-2222-4333-8444-55555555555g", "", false},
	} {
		if got, is := ValueOf(c.value).Label(), wire.IsOurs(c.value); got != c.label || is != c.ours {
			t.Errorf("%q: got %q, ours=%v; want %q, %v", c.value, got, is, c.label, c.ours)
		}
	}
	src := random.New()
	for range 100 {
		if v := "l:" + src.UUID(); !wire.IsOurs(v) || ValueOf(v).Label() != "l" {
			t.Errorf("%q is not known as ours", v)
		}
	}
}

// A value is a secret of whoever stored it: with redsync's its lock is released.
func TestValuesAreNeverPrinted(t *testing.T) {
	const ours = "web-1:11111111-2222-4333-8444-555555555555"
	for _, secret := range []string{"c2VjcmV0LXRva2Vu==", `{"customer":"secret","card":"4111"}`, "sec:ret", "secret", "99999999-2222-4333-8444-555555555555", ours} {
		value := ValueOf(secret)
		vote := Vote{Node: "a", Answer: AnswerNo, Value: value}
		round := Round{Op: OpAcquire, Key: "k", Need: 1, Votes: []Vote{vote}}
		node := NodeStatus{Node: "a", Value: value, Left: -1, Fence: 3}
		status := Status{Key: "k", Held: true, Value: value, Holder: value.Label(), Left: -1, Fence: 3, Nodes: []NodeStatus{node}, Round: round}
		who := "another client"
		if secret == ours {
			who = "web-1"
		}
		for what, c := range map[string]struct {
			v    any
			says string
		}{
			"the error":        {&QuorumError{Round: round, Err: ErrHeld}, "held by " + who + " ("},
			"its copy":         {QuorumError{Round: round, Err: ErrHeld}, ""},
			"the round":        {round, "a held"},
			"the vote":         {vote, "a held"},
			"the status":       {status, `"k" held by ` + who + ", no ttl: not set by a lock library"},
			"a pointer":        {&status, who},
			"a node":           {node, "a held by " + who},
			"the nodes":        {status.Nodes, who},
			"those of a map":   {map[string]Status{"x": status}, who},
			"the value":        {value, who},
			"a value of a map": {map[Value]any{value: &[]any{value}}, who},
		} {
			for _, verb := range []string{"%v", "%+v", "%s"} {
				got := fmt.Sprintf(verb, c.v)
				if strings.Contains(got, secret) || strings.Contains(got, "secret") || !strings.Contains(got, c.says) {
					t.Errorf("%s of %s by %s: got %s, want %q and nothing of the value", what, value, verb, got, c.says)
				}
			}
		}
	}
}

func TestOpsAndAnswersHaveWords(t *testing.T) {
	for v, want := range map[fmt.Stringer]string{
		OpAcquire: "acquire", OpRaise: "raise", OpExtend: "extend", OpRelease: "release", OpRollback: "rollback", OpAdopt: "adopt", OpInspect: "inspect", OpLook: "look", OpUnqueue: "unqueue", OpAnnounce: "announce", OpLost: "lost", Op(0): "op(0)", Op(99): "op(99)",
		AnswerPending: "pending", AnswerYes: "yes", AnswerNo: "no", AnswerUnknown: "unknown", Answer(99): "answer(99)",
	} {
		if got := v.String(); got != want {
			t.Errorf("%T %d: got %q, want %q", v, v, got, want)
		}
	}
}

// Benchmarks of the inner parts: what a cycle costs without network, servers and
// go-redis's reading and writing. Whole cycles on real servers are in bench/.

// A yesHook answers every pipeline at once, as a node does that grants everything.
type yesHook struct{}

func (yesHook) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (yesHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (yesHook) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(_ context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			c := cmd.(*wire.Command)
			switch args := c.Args(); args[0] {
			case "set":
				c.SetErr(redis.Nil) // nothing was there
			case "evalsha":
				if locks, joint := jointLocks(args); joint {
					c.SetVal(strings.Repeat("1", locks)) // all deleted
				} else {
					c.SetVal(int64(1))
				}
			case "info":
				c.SetVal("")
			default:
				c.SetVal(int64(1))
			}
		}
		return nil
	}
}

// jointLocks returns how many locks a joint release is for: it has as many values, behind
// the number of releases, which is the only integer behind the keys.
func jointLocks(args []any) (locks int, joint bool) {
	keys, ok := args[2].(int)
	return len(args) - keys - 4, ok
}

func yesLocker(t testing.TB, nodes int) *Locker {
	var all []Node
	for range nodes {
		c := newNode(t)
		c.AddHook(yesHook{})
		all = append(all, c)
	}
	return mustNew(t, Options{}, all...)
}

// BenchmarkInnerCycle is acquire and release, and what they wait for is only us.
func BenchmarkInnerCycle(b *testing.B) {
	for _, nodes := range []int{1, 3, 5} {
		for _, callers := range []int{1, 64} {
			b.Run(fmt.Sprintf("nodes=%d/goroutines=%d", nodes, callers), func(b *testing.B) {
				l := yesLocker(b, nodes)
				var names atomic.Int64
				b.ReportAllocs()
				b.SetParallelism(max(callers/2, 1))
				b.RunParallel(func(pb *testing.PB) {
					key := fmt.Sprint("jobs/", names.Add(1))
					for pb.Next() {
						k, err := l.TryAcquire(context.Background(), key, 10*time.Second)
						if err != nil {
							b.Error(err)
							return
						}
						if err := k.Release(context.Background()); err != nil {
							b.Error(err)
							return
						}
					}
				})
			})
		}
	}
}

func BenchmarkInnerValue(b *testing.B) {
	s := random.New()
	b.ReportAllocs()
	for b.Loop() {
		_ = s.UUID()
	}
}

// TestFIPS: a process that may use approved algorithms only can import the package and
// take a lock. The runtime reads the setting when it starts, so another process has to.
func TestFIPS(t *testing.T) {
	if os.Getenv("REDLOCK_FIPS_CHILD") != "" {
		k, err := yesLocker(t, 1).TryAcquire(t.Context(), "jobs/42", time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if err := k.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestFIPS$", "-test.v")
	cmd.Env = append(os.Environ(), "GODEBUG=fips140=only", "REDLOCK_FIPS_CHILD=1")
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestFIPS") {
		t.Errorf("with GODEBUG=fips140=only: %v\n%s", err, out)
	}
}
