package redlock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/queue"
	"github.com/seed-ce352c9b/redlock/internal/wire"
	"github.com/seed-ce352c9b/redlock/internal/wire/wiretest"
	"github.com/seed-ce352c9b/redlock/internal/wrapped"

	"github.com/redis/go-redis/v9"
)

// says checks that an error is ours and has all the parts.
func says(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("accepted, want a refusal that says %q", parts)
		return
	}
	for _, p := range append(parts, "redlock: ") {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("got %q, want it to say %q", err, p)
		}
	}
	if s := err.Error(); strings.HasSuffix(s, ".") || strings.ContainsAny(s, "\n\x00") {
		t.Errorf("%q ends with a period or has control bytes", s)
	}
}

func TestOptionsThatContradictAreRefused(t *testing.T) {
	for _, c := range []struct {
		name string
		opt  Options
		says []string // the option, the value, and what would be right
	}{
		{"a negative drift", Options{Drift: -0.01}, []string{"Options.Drift", "-0.01", "at least 0", "less than 1"}},
		{"a drift of all the ttl", Options{Drift: 1}, []string{"Options.Drift", " 1:", "less than 1"}},
		{"a drift in percent", Options{Drift: 5}, []string{"Options.Drift", " 5:", "less than 1"}},
		{"a drift that is no number", Options{Drift: math.NaN()}, []string{"Options.Drift", "NaN", "less than 1"}},
		{"an infinite drift", Options{Drift: math.Inf(1)}, []string{"Options.Drift", "+Inf", "less than 1"}},
		{"a negatively infinite drift", Options{Drift: math.Inf(-1)}, []string{"Options.Drift", "-Inf", "less than 1"}},
		{"a negative grace", Options{Grace: -1}, []string{"Options.Grace", "-1ns", "not be negative", "0 means"}},
		{"a negative node timeout", Options{NodeTimeout: -1}, []string{"Options.NodeTimeout", "-1ns", "not be negative", "0 means"}},
		{"a negative restart guard", Options{RestartGuard: -time.Second}, []string{"Options.RestartGuard", "-1s", "not be negative", "0 means"}},
		{"a fence life of minutes", Options{FenceLife: time.Hour - 1}, []string{"Options.FenceLife", "59m59.9", "at least 1h", "at most 288h", "0 means 24h"}},
		{"a fence life beyond twelve days", Options{FenceLife: 12*24*time.Hour + 1}, []string{"Options.FenceLife", "288h0m0.000000001s", "at most 288h"}},
		{"a negative fence life", Options{FenceLife: -time.Hour}, []string{"Options.FenceLife", "-1h", "at least 1h"}},
		{"a prefix with a NUL", Options{KeyPrefix: "a\x00b"}, []string{"Options.KeyPrefix", `"a\x00b"`, "must not contain a NUL byte"}},
		{"a prefix that leaves no room for a key", Options{KeyPrefix: strings.Repeat("p", wire.MaxKeyBytes)}, []string{"Options.KeyPrefix", "65536 bytes", "65536"}},
		{"a name with a NUL", Options{Name: "web\x00"}, []string{"Options.Name", `"web\x00"`, "must not contain a NUL byte"}},
		{"a name beyond 1 KiB", Options{Name: strings.Repeat("n", maxLabelBytes+1)}, []string{"Options.Name", "1025 bytes", "at most 1024"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := c.opt.withDefaults()
			says(t, err, c.says...)
			if l, err := New(c.opt, newNode(t)); l != nil || err == nil {
				t.Errorf("New: got %v, %v", l, err)
			}
		})
	}
}

func TestOptionsAtTheirBoundsAreAccepted(t *testing.T) {
	for name, opt := range map[string]Options{
		"almost all drift": {Drift: math.Nextafter(1, 0)},
		"the least drift":  {Drift: math.SmallestNonzeroFloat64},
		"negative zero":    {Drift: math.Copysign(0, -1)},
		"a long prefix":    {KeyPrefix: strings.Repeat("p", wire.MaxKeyBytes-1)},
		"a name of 1 KiB":  {Name: strings.Repeat("n", maxLabelBytes)},
		"a binary name":    {Name: "\xff\x01"},
		"the least life":   {FenceLife: time.Hour},
		"the longest life": {FenceLife: 12 * 24 * time.Hour},
	} {
		if _, err := opt.withDefaults(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestZeroOptionsMeanTheDefaults(t *testing.T) {
	opt, err := Options{}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	if opt.Drift != 0.01 {
		t.Errorf("Drift: got %v, want 0.01", opt.Drift)
	}
	if opt.Retry != nil {
		t.Error("Retry is set: its default depends on whether releases are heard, which a function of the attempt cannot")
	}
	if want := fmt.Sprintf(":%d", os.Getpid()); !strings.HasSuffix(opt.Name, want) || opt.Name == want {
		t.Errorf("Name: got %q, want host%s", opt.Name, want)
	}
	set, err := Options{Drift: 0.05, NodeTimeout: time.Second, Name: "me", KeyPrefix: "p:", Retry: func(int) time.Duration { return 7 }}.withDefaults()
	if err != nil || set.Drift != 0.05 || set.NodeTimeout != time.Second || set.Name != "me" || set.KeyPrefix != "p:" || set.Retry(3) != 7 {
		t.Errorf("what was set is changed: %+v, %v", set, err)
	}
}

func TestLabelsAreChecked(t *testing.T) {
	l := mustNew(t, Options{}, newNode(t))
	for _, c := range []struct {
		name, label string
		says        []string // empty: accepted
	}{
		{"plain", "web-1", nil},
		{"of 1 KiB", strings.Repeat("l", maxLabelBytes), nil},
		{"with colons", "a:b:c", nil},
		{"beyond 1 KiB", strings.Repeat("l", maxLabelBytes+1), []string{"the label", "1025 bytes", "at most 1024"}},
		{"with a NUL", "a\x00", []string{"the label", `"a\x00"`, "must not contain a NUL byte"}},
	} {
		e, err := l.newAcquireCall(OpAcquire, "k", time.Second, []AcquireOption{nil, WithLabel(c.label)})
		if c.says != nil {
			says(t, err, c.says...)
		} else if err != nil || e.label != c.label {
			t.Errorf("a label %s: got %+v, %v", c.name, e, err)
		}
	}
	if e, err := l.newAcquireCall(OpAcquire, "k", time.Second, nil); err != nil || e.label != l.opt.Name {
		t.Errorf("without WithLabel: got %+v, %v; want the label %q", e, err, l.opt.Name)
	}
}

func TestWhatCannotBeAskedIsRefusedBeforeAnythingIsSent(t *testing.T) {
	n := &deafNode{}
	l := mustNew(t, Options{}, n)
	refused := func(what any, k *Lock, err error) {
		t.Helper()
		if k != nil || err == nil || errors.Is(err, ErrNoQuorum) {
			t.Errorf("%v: got %v, %v; want an error that is no failed round", what, k, err)
		}
	}
	for _, ttl := range []time.Duration{0, -time.Second, 1, time.Millisecond, expiryGrain, wire.MaxTTL + 1, math.MaxInt64, math.MinInt64} {
		k, err := l.TryAcquire(t.Context(), "k", ttl)
		refused(ttl, k, err)
	}
	for _, key := range []string{"", "{a}:fence", strings.Repeat("k", wire.MaxKeyBytes+1)} {
		k, err := l.Acquire(t.Context(), key, time.Second)
		refused("key "+wire.Clip(key), k, err)
	}
	for _, value := range []string{"", strings.Repeat("v", wire.MaxKeyBytes+1)} {
		k, err := l.Adopt(t.Context(), "k", ValueOf(value), time.Second)
		refused("value "+wire.Clip(value), k, err)
	}
	if n.used {
		t.Errorf("the node was asked")
	}
}

// A deafNode notes that it was used.
type deafNode struct{ used bool }

func (n *deafNode) Process(context.Context, redis.Cmder) error { n.used = true; return errDeaf }
func (n *deafNode) Pipeline() redis.Pipeliner                  { n.used = true; return new(redis.Pipeline) }

var errDeaf = errors.New("deaf")

// newNode is a client that never dials.
func newNode(t testing.TB) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { c.Close() })
	return c
}

// mustNew returns a Locker that is closed with the test.
func mustNew(t testing.TB, opt Options, nodes ...Node) *Locker {
	t.Helper()
	l, err := New(opt, nodes...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// An oddNode is a Node by value whose field cannot be compared.
type oddNode struct {
	Node
	x any
}

func TestNodesThatMakeNoQuorumAreRefused(t *testing.T) {
	a, b := newNode(t), newNode(t)
	many := make([]Node, maxNodes+1)
	for i := range many {
		many[i] = &deafNode{}
	}
	var none *redis.Client
	var ring *redis.Ring
	for _, c := range []struct {
		name  string
		nodes []Node
		says  []string
	}{
		{"none", nil, []string{"no node", "at least one"}},
		{"a nil one", []Node{a, nil, b}, []string{"node 2 of 3 is nil"}},
		{"a nil client", []Node{a, none}, []string{"node 2 of 2 is nil"}},
		{"a nil ring", []Node{ring}, []string{"node 1 of 1 is nil"}},
		{"one client twice", []Node{a, b, a}, []string{"nodes 1 and 3 are the same client", "127.0.0.1:1", "every master once"}},
		{"65", many, []string{"65 nodes", "at most 64"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, err := New(Options{}, c.nodes...)
			if l != nil {
				t.Errorf("a Locker comes with the error")
			}
			says(t, err, c.says...)
		})
	}
	// But 64 are accepted, two clients of one address, and nodes that cannot be compared.
	for _, nodes := range [][]Node{many[:maxNodes], {a, b}, {a}, {oddNode{a, []int{1}}, oddNode{b, []int{1}}}} {
		mustNew(t, Options{}, nodes...)
	}
}

func TestAddressesThatAreNoneAreRefused(t *testing.T) {
	for _, c := range []struct {
		url  string
		says []string
	}{
		{"", []string{"empty URL", "host:port"}},
		{"nonsense", []string{`"nonsense"`, "want redis://host:port"}},
		{"host:", []string{`"host:"`, "want redis://host:port"}},
		{":", []string{`":"`, "want redis://host:port"}},
		{"a:b:c", []string{`"a:b:c"`, "want redis://host:port"}},
		{"http://h:1", []string{`"http://h:1"`, "scheme"}},
		{"redis://h:port", []string{`"redis://h:port"`, "port"}},
		{"redis://h:1/db", []string{`"redis://h:1/db"`, "database"}},
		{"redis://h:1?nonsense=1", []string{"redis://"}},
		{"unix://", []string{`"unix://"`, "path"}},
		{"a:1,b:1,c:1", []string{`"a:1,b:1,c:1" is a list`, "pass each node as a separate argument"}},
		{"a,b,c", []string{"pass each node as a separate argument"}},
		{"a,b,c:1", []string{"pass each node as a separate argument"}},
		{"redis://a:1,redis://b:1", []string{"pass each node as a separate argument"}},
		{"redis://a,b:1", []string{"pass each node as a separate argument"}},
		{"://", []string{`"://"`}},
	} {
		t.Run(c.url, func(t *testing.T) {
			l, err := Open(Options{}, "h:1", c.url)
			if l != nil {
				t.Errorf("a Locker comes with the error")
			}
			says(t, err, append(c.says, "node 2 of 2")...)
		})
	}
	l, err := Open(Options{})
	if l != nil {
		t.Errorf("without an address: a Locker comes with the error")
	}
	says(t, err, "no node")
}

func TestOneAddressTwiceIsRefused(t *testing.T) {
	for _, urls := range [][]string{
		{"h:1", "g:1", "h:1"},
		{"redis://h:1", "redis://h:1/2"},
		{"redis://user:hunter2@h:1", "redis://h:1"},
		{"redis://user:hunter2@h:1", "redis://user:hunter2@h:1"},
		{"redis://h:1", "rediss://h:1"},
		{":7", "localhost:7"},
		{"unix:///a", "unix:///a"},
		{"redis://h", "redis://h:6379"},
		{"h:1", "redis://h:1"},
		{":7", "redis://localhost:7"},
	} {
		t.Run(strings.Join(urls, " and "), func(t *testing.T) {
			l, err := Open(Options{}, urls...)
			if l != nil {
				l.Close()
			}
			says(t, err, fmt.Sprint("nodes 1 and ", len(urls)), "every master once")
			if strings.Contains(fmt.Sprint(err), "hunter2") {
				t.Errorf("the password is shown: %v", err)
			}
		})
	}
}

func TestOpenClosesWhatItMade(t *testing.T) {
	l, err := Open(Options{}, "h:1", "h:2", "h:3")
	if err != nil {
		t.Fatal(err)
	}
	if len(l.lanes) != 3 || len(l.owned) != 3 {
		t.Fatalf("%d lanes, %d clients: want 3 of each", len(l.lanes), len(l.owned))
	}
	if err := l.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	for _, ln := range l.lanes {
		ping := wire.NewCommand([]any{"ping"})
		if err := ln.Node.Process(t.Context(), &ping); !errors.Is(err, redis.ErrClosed) {
			t.Errorf("%s: got %v, want a closed client", ln.Name, err)
		}
	}
	if err := l.Close(); err != ErrClosed {
		t.Errorf("the second Close: got %v, want ErrClosed", err)
	}
}

// Wrappers of clients, beside those of package wrapped.
type (
	aroundNode   struct{ Node }
	aroundItself struct {
		Node
		*aroundItself
	}
	hidden struct{ node Node }
	// optionsOf is a wrapper as in the documentation: it hides all but tells what it is.
	optionsOf struct {
		hidden
		client *redis.Client
	}
)

func (h hidden) Process(ctx context.Context, cmd redis.Cmder) error { return h.node.Process(ctx, cmd) }
func (h hidden) Pipeline() redis.Pipeliner                          { return h.node.Pipeline() }
func (o optionsOf) Options() *redis.Options                         { return o.client.Options() }

// What a Node stands for is seen through wrappers, and decides what is refused, by what
// name it is called, and whether it is listened to.
func TestWrappedClientsAreRecognised(t *testing.T) {
	client := newNode(t)
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"shard-1": "127.0.0.1:1"}})
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:7001"}})
	pipeliner, err := client.AutoPipeline()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []io.Closer{ring, cluster, pipeliner} {
		defer c.Close()
	}
	itself := &aroundItself{Node: ring}
	itself.aroundItself = itself
	for _, c := range []struct {
		name    string
		node    Node
		kind    wire.NodeKind
		address string
		direct  bool
		heard   bool
	}{
		{"a client", client, wire.KindSingle, "127.0.0.1:1", true, true},
		{"a Ring", ring, wire.KindRing, "shard-1", false, false},
		{"a cluster", cluster, wire.KindCluster, "127.0.0.1:7001", false, true},
		{"an auto-pipeliner", pipeliner, wire.KindPipeliner, "node1", false, true},
		{"a wrapped client", wrapped.Client{Client: client}, wire.KindSingle, "127.0.0.1:1", false, true},
		{"a pointer to one", &wrapped.Client{Client: client}, wire.KindSingle, "127.0.0.1:1", false, true},
		{"a wrapped Ring", wrapped.Ring{Ring: ring}, wire.KindRing, "shard-1", false, false},
		{"a wrapped cluster", wrapped.Cluster{ClusterClient: cluster}, wire.KindCluster, "127.0.0.1:7001", false, true},
		{"a wrapped auto-pipeliner", wrapped.AutoPipeliner{AutoPipeliner: pipeliner}, wire.KindPipeliner, "node1", false, true},
		{"a client as a UniversalClient", wrapped.Any{UniversalClient: client}, wire.KindSingle, "127.0.0.1:1", false, true},
		{"a Ring as a UniversalClient", wrapped.Any{UniversalClient: ring}, wire.KindRing, "shard-1", false, false},
		{"a cluster as a UniversalClient", &wrapped.Any{UniversalClient: cluster}, wire.KindCluster, "127.0.0.1:7001", false, true},
		{"a wrapper in a wrapper", aroundNode{&wrapped.Any{UniversalClient: ring}}, wire.KindRing, "shard-1", false, false},
		{"a wrapper that embeds itself", itself, wire.KindRing, "shard-1", false, false},
		{"a Ring that says it is a client", wrapped.DisguisedRing{Ring: wrapped.Ring{Ring: ring}}, wire.KindRing, "liar:1", false, false},
		{"a wrapper that hides all but its options", optionsOf{hidden{client}, client}, wire.KindSingle, "127.0.0.1:1", false, false},
		{"a wrapper that hides all", hidden{ring}, wire.KindUnknown, "node1", false, false},
		{"a wrapper of nothing", wrapped.Ring{}, wire.KindRing, "node1", false, false},
		{"a wrapper of no interface", &wrapped.Any{}, wire.KindUnknown, "node1", false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := mustNew(t, Options{}, c.node)
			ln := l.lanes[0]
			heard, _ := l.queues.Subscription(0)
			if ln.Kind != c.kind || ln.Name != c.address || ln.Direct != c.direct || heard != c.heard {
				t.Errorf("got kind %d, name %s, direct %v, heard %v; want %d, %s, %v, %v", ln.Kind, ln.Name, ln.Direct, heard, c.kind, c.address, c.direct, c.heard)
			}
			_, err := l.newAcquireCall(OpAcquire, "a{b", time.Second, nil)
			if split := c.kind == wire.KindRing || c.kind == wire.KindUnknown; split {
				says(t, err, "a{b", "{tag}", "Ring", "node 1 ("+c.address+")")
			} else if err != nil {
				t.Errorf("a key with a lone brace: %v", err)
			}
			_, err = l.newAcquireCall(OpAcquire, "a{b}", time.Second, nil)
			if err != nil {
				t.Errorf("a key with a tag: %v", err)
			}
			l, err = New(Options{RestartGuard: time.Minute}, c.node)
			if l != nil {
				l.Close()
			}
			switch c.kind {
			case wire.KindRing, wire.KindCluster:
				says(t, err, "node 1 (", "RestartGuard", "several servers", fmt.Sprintf("%T", c.node))
			case wire.KindUnknown:
				says(t, err, "node 1 is a "+fmt.Sprintf("%T", c.node), "RestartGuard", "Options() *redis.Options")
			default:
				if err != nil {
					t.Errorf("under a guard: %v", err)
				}
			}
		})
	}
}

// Everything that reads bytes from outside is fed with any: keys from the caller,
// addresses from its configuration, replies, errors, values and registers from
// servers, proxies and other clients of the same keys. Each runs on its seeds in
// go test, and on more with -fuzz.

// FuzzStatus has nodes say anything to an inspection, a look, a turn.
func FuzzStatus(f *testing.F) {
	for k := range byte(4) {
		f.Add([]byte{k, 9, 4, 4, 1, 1, 99, 4, 4, 9, 1, 4, 2, 0})
		f.Add([]byte{k, 9, 3, 4, 4, 1, 254, 4, 4, 0, 9, 3, 4, 4, 1, 255, 4, 4, 0})
		f.Add([]byte{k, 9, 3, 3, 200, 1, 254, 4, 4})
		f.Add([]byte{k, 1, 254, 0, 1, 255, 0, 1, 5, 0})
	}
	f.Add([]byte("019\"1y0y0019\"1y000")) // was found by fuzzing
	f.Fuzz(func(t *testing.T, b []byte) {
		const nodes = 3
		d := &wiretest.Feed{Bytes: b}
		l := mustNew(t, Options{}, &deafNode{}, &deafNode{}, &deafNode{})
		name, _ := wire.NameKey("", "jobs/42")
		q := []wire.Question{
			wire.InspectQuestion(name), wire.LookQuestion(name),
			wire.TurnQuestion(nil, name, wiretest.Mine, time.Second, 7, wiretest.Theirs, 1800000000000001, false), wire.WaitQuestion(name, wiretest.Theirs, false),
		}[d.Byte()%4]
		k := q.Kind
		bl := l.newQuorumCall(OpInspect, name, q, l.now(), allAnswered)
		values := make(map[string]int)
		for i := range bl.Calls {
			cmds := []wire.Command{wire.NewCommand([]any{"x"}), wire.NewCommand([]any{"x"})}
			if v := d.Value(0); v != nil {
				cmds[0].SetVal(v)
			}
			if err := d.Err(); err != nil {
				cmds[0].SetErr(err)
			}
			c := &bl.Calls[i]
			c.Reply = c.Question.Read(cmds, false, nil)
			c.Took = time.Duration(i+1) * time.Millisecond
			if c.Reply.Answer == wire.Yes && k == wire.AskInspect && !c.Reply.Missing {
				values[c.Reply.Holder]++
			}
			bl.Vote(c)
		}
		st := statusOf(bl)
		if len(st.Nodes) != nodes || st.Fence < 0 || st.Fence >= wire.MaxToken {
			t.Errorf("got %+v", st)
		}
		if k == wire.AskInspect && st.Held != (values[st.Value.Secret()] >= 2) {
			t.Errorf("held %v by %q, which %d of %d nodes say", st.Held, st.Value, values[st.Value.Secret()], nodes)
		}
		queue.FreeIn(bl)
		if s := queue.Standing(bl); s.Answered && k != wire.AskTurn && k != wire.AskWait {
			t.Errorf("a standing by kind %d: %+v", k, s)
		}
		for _, v := range st.Round.Votes {
			if text := v.String(); strings.ContainsAny(text, "\n\r\x00") {
				t.Errorf("a vote is shown as %q", text)
			}
		}
	})
}

// Announcements on a channel that nobody waits on are ignored.
func TestAnUnknownChannelIsIgnored(t *testing.T) {
	l := mustNew(t, Options{}, &deafNode{})
	l.queues.Announced(0, "x", "1 a")
	l.queues.Subscribed(0, "x", true)
	if n, _ := l.queues.Size(); n != 0 {
		t.Errorf("got %d queues, want none", n)
	}
}

// Close can come between the wait of a new head of the queue and its first attempt. The
// error of that call has the last round of the head before it, and the call has none.
func TestCloseBeforeTheFirstAttemptOfANewHead(t *testing.T) {
	for _, fair := range []bool{false, true} {
		l := mustNew(t, Options{Fair: fair}, &deafNode{}, &deafNode{}, &deafNode{})
		e, err := l.newAcquireCall(OpAcquire, "jobs/42", time.Second, nil)
		if err != nil {
			t.Fatal(err)
		}
		l.join(e, false)
		votes := []Vote{{Node: "a", Answer: AnswerYes}, {Node: "b", Answer: AnswerNo, Value: ValueOf("x")}, {Node: "c", Answer: AnswerNo, Value: ValueOf("y")}} // a tie
		l.queues.KeepResult(&e.waiter, &QuorumError{Round: Round{Op: OpAcquire, Key: "jobs/42", Need: 2, Votes: votes}, Err: ErrHeld})
		l.Close()
		err = l.ended(t.Context(), e)
		if !errors.Is(err, ErrClosed) || !errors.Is(err, ErrHeld) {
			t.Fatalf("the error of the call: got %v, want ErrClosed and the last round", err)
		}
		l.tried(t.Context(), e, nil, err) // does not panic
	}
}
