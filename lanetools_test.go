package redlock_test

import (
	"context"
	"crypto/sha1"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/seam"
	"github.com/seed-ce352c9b/redlock/redlocktest"
)

// newSeamed is redlock.New with a steady clock, a wall clock (nil: the real ones) and a seed for everything random.
var newSeamed = seam.NewLocker.(func(opt redlock.Options, steady, wall func() time.Time, seed uint64, nodes ...redlock.Node) (*redlock.Locker, error))

// With one connection to a near node nothing could overtake anything there.
func init() { *seam.MinFlights = 2 }

// What the directed tests of nodes, releases and Close share. All of them run in
// virtual time.

// staged runs f in a bubble with a cluster of n nodes.
func staged(t *testing.T, n int, f func(t *testing.T, c *redlocktest.Cluster)) {
	t.Helper()
	redlocktest.Bubble(t, func(t *testing.T) { f(t, redlocktest.New(t, n)) })
}

// rounds is how often a test goes over something at random: few times in go test, and
// many with REDLOCK_LONG.
func rounds(short, long int) int {
	if os.Getenv("REDLOCK_LONG") != "" {
		return long
	}
	return short
}

// asNodes hands clients to a Locker.
func asNodes(clients []*redis.Client) []redlock.Node {
	nodes := make([]redlock.Node, len(clients))
	for i, c := range clients {
		nodes[i] = c
	}
	return nodes
}

// ownSeed returns a seed that no other Locker of the test has, and the same ones in every run
// of the test. With equal seeds, two Lockers with the same name store the same values: the nodes
// take one for the other, and a test passes, or fails, for that reason alone.
func ownSeed(t testing.TB) uint64 {
	seeds.Lock()
	defer seeds.Unlock()
	name := t.Name()
	next, known := seeds.next[name]
	if !known {
		h := fnv.New64a() // apart from the seeds of a subtest, which may use the Lockers of its parent
		io.WriteString(h, name)
		next = h.Sum64()
		t.Cleanup(func() {
			seeds.Lock()
			defer seeds.Unlock()
			delete(seeds.next, name)
		})
	}
	seeds.next[name] = next + 1
	return next
}

var seeds = struct {
	sync.Mutex
	next map[string]uint64 // by test
}{next: make(map[string]uint64)}

// The values are what the nodes tell Lockers apart by.
func TestTheLockersOfATestDrawDifferentValues(t *testing.T) {
	staged(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		drawn := make(map[string]bool)
		for range 4 {
			k := try(t, lockerOn(t, redlock.Options{Name: "same"}, c.Clients()), "job", time.Minute)
			if drawn[k.Value()] {
				t.Errorf("two Lockers stored %s, want a value for each", k.Value())
			}
			drawn[k.Value()] = true
			checkIs(t, "Release", k.Release(t.Context()))
		}
	})
}

// lockerOn makes a Locker that is closed with the test.
func lockerOn(t *testing.T, opt redlock.Options, clients []*redis.Client) *redlock.Locker {
	t.Helper()
	l, err := newSeamed(opt, nil, nil, ownSeed(t), asNodes(clients)...)
	if err != nil {
		t.Fatalf("New: got %v, want no error", err)
	}
	t.Cleanup(func() { l.Close() }) // an error says that the test has closed it already
	return l
}

// warmLocker is a Locker with clients of its own that has met every node: all
// connections are made and all scripts known.
func warmLocker(t *testing.T, c *redlocktest.Cluster, opt redlock.Options) *redlock.Locker {
	t.Helper()
	l := lockerOn(t, opt, c.Clients())
	warmUp(t, c, l)
	return l
}

// warmUp has the Locker meet every node, and begins the nodes' records anew.
func warmUp(t *testing.T, c *redlocktest.Cluster, l *redlock.Locker) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range 2 { // the first may end in timeouts, where nodes are far
		k, err := l.Acquire(ctx, "warm", time.Minute)
		if err != nil {
			t.Fatalf("Acquire of a free lock: got %v, want no error", err)
		}
		time.Sleep(time.Second)
		k.Extend(t.Context())
		time.Sleep(time.Second)
		k.Release(t.Context())
		time.Sleep(time.Second)
		l.Inspect(t.Context(), "warm")
	}
	for i := range c.Len() {
		if seam.Peek(l).Nodes[i].Down || seam.Peek(l).Nodes[i].Owed > 0 {
			t.Fatalf("after the warming-up: node %s is down: %v, owed %d; want used, 0", c.Node(i).Name(), seam.Peek(l).Nodes[i].Down, seam.Peek(l).Nodes[i].Owed)
		}
		c.Node(i).FlushAll()
		c.Node(i).Record(true)
	}
}

// check says what was got and what was wanted, where the two differ.
func check[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// checkIs is check for errors; want nil: none.
func checkIs(t testing.TB, what string, err error, want ...error) {
	t.Helper()
	if len(want) == 0 && err != nil {
		t.Errorf("%s: got %v, want no error", what, err)
	}
	for _, w := range want {
		if !errors.Is(err, w) {
			t.Errorf("%s: got %v, want an error that is %v", what, err, w)
		}
	}
}

// checkIsNot is the other half: an error must not claim what did not happen.
func checkIsNot(t testing.TB, what string, err error, wrong ...error) {
	t.Helper()
	for _, w := range wrong {
		if errors.Is(err, w) {
			t.Errorf("%s: got %v, which is also %v, want not that", what, err, w)
		}
	}
}

// took is how long f takes.
func took(f func()) time.Duration {
	began := time.Now()
	f()
	return time.Since(began)
}

// within waits, looking every millisecond, until ok or the limit, and reports how
// long that took and whether it came to ok.
func within(limit time.Duration, ok func() bool) (time.Duration, bool) {
	began := time.Now()
	for !ok() {
		if time.Since(began) >= limit {
			return limit, false
		}
		time.Sleep(time.Millisecond)
	}
	return time.Since(began), true
}

// try is TryAcquire where it has to succeed.
func try(t testing.TB, l *redlock.Locker, key string, ttl time.Duration) *redlock.Lock {
	t.Helper()
	k, err := l.TryAcquire(t.Context(), key, ttl)
	if err != nil {
		t.Fatalf("TryAcquire of a free lock: got %v, want no error", err)
	}
	return k
}

// locksOn lists the keys of a node that are no fence registers.
func locksOn(n *redlocktest.Node) (keys []string) {
	for _, key := range n.Keys() {
		if !strings.HasSuffix(key, ":fence") && !passing(key, n.TTL(key)) {
			keys = append(keys, key)
		}
	}
	return keys
}

// checkClean: nothing is left behind but registers with a life, nothing is owed,
// every node is used. It gives the background as long as a second look takes.
func checkClean(t testing.TB, c *redlocktest.Cluster, lockers ...*redlock.Locker) {
	t.Helper()
	time.Sleep(4 * time.Second)
	for i := range c.Len() {
		n := c.Node(i)
		if left := locksOn(n); len(left) > 0 {
			value, _ := n.Get(left[0])
			t.Errorf("keys left on node %s: got %d, the first %s = %q; want none", n.Name(), len(left), left[0], value)
		}
		for _, key := range n.Keys() {
			if strings.HasSuffix(key, ":fence") && n.TTL(key) <= 0 {
				t.Errorf("life of %s on node %s: got none, want a ttl", key, n.Name())
			}
		}
		for _, l := range lockers {
			check(t, "owed to node "+n.Name(), seam.Peek(l).Nodes[i].Owed, 0)
			check(t, "node "+n.Name()+" is down", seam.Peek(l).Nodes[i].Down, false)
		}
	}
	for _, l := range lockers {
		check(t, "locks on the Locker's list", seam.Peek(l).Held, 0)
		check(t, "clean-ups under way", seam.Peek(l).Leaving, 0)
	}
}

// word is what a command of ours is for: "acquire", "raise", "extend", "heal" (or
// an acquire without GET, which reads the same), "release", "rollback", "inspect",
// "adopt", "ping"; "" for what goes with another, and for what is not ours.
func word(args []string) string {
	switch name := strings.ToLower(args[0]); name {
	case "ping":
		return name
	case "set":
		if slices.ContainsFunc(args, func(a string) bool { return strings.EqualFold(a, "get") }) {
			return "acquire"
		}
		return "heal"
	case "eval", "evalsha":
		sha := args[1]
		if name == "eval" {
			sha = shaOf(sha)
		}
		if w := scriptNames()[sha]; w != "release" || args[2] != "2" {
			return w
		}
		return "rollback" // a release without a queue, which announces nothing
	}
	return ""
}

func shaOf(script string) string { return fmt.Sprintf("%x", sha1.Sum([]byte(script))) }

// scriptNames are the library's scripts by hash.
var scriptNames = sync.OnceValue(func() map[string]string {
	names := make(map[string]string)
	for _, name := range []string{"raise", "extend", "release", "adopt", "restore", "inspect"} {
		body, err := os.ReadFile("lua/" + name + ".lua")
		if err != nil {
			panic(err)
		}
		names[shaOf(string(body))] = name
	}
	return names
})

// keyOf is the lock that a command of ours is about.
func keyOf(args []string) string {
	switch name := strings.ToLower(args[0]); {
	case name == "set" && len(args) > 1:
		return args[1]
	case strings.HasPrefix(name, "eval") && len(args) > 3:
		return args[3]
	}
	return ""
}

// heard is what a node has executed for a key, PINGs included, by word. Record has
// to be on.
func heard(n *redlocktest.Node, key string) (words []string) {
	for _, c := range n.Log() {
		if w := word(c.Args); w == "ping" || w != "" && keyOf(c.Args) == key {
			words = append(words, w)
		}
	}
	return words
}

// count is how many of the words are w.
func count(words []string, w string) (n int) {
	for _, x := range words {
		if x == w {
			n++
		}
	}
	return n
}

// A tap is a go-redis hook around pipelines.
type tap func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error

func (tap) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (tap) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (h tap) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { return h(ctx, cmds, next) }
}

// A gauge counts pipelines.
type gauge struct {
	mu        sync.Mutex
	now, most int
	sizes     []int // commands in each
}

func (g *gauge) around(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
	g.mu.Lock()
	g.now++
	g.most = max(g.most, g.now)
	g.sizes = append(g.sizes, len(cmds))
	g.mu.Unlock()
	defer func() {
		g.mu.Lock()
		g.now--
		g.mu.Unlock()
	}()
	return next(ctx, cmds)
}

func (g *gauge) reset() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.most, g.sizes = g.now, nil
}

func (g *gauge) read() (most int, sizes []int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.most, slices.Clone(g.sizes)
}

// answersOf are the votes of the round that an error carries, in New's order.
func answersOf(err error) string {
	var q *redlock.QuorumError
	if !errors.As(err, &q) {
		return fmt.Sprintf("no votes in %v", err)
	}
	var all []string
	for _, v := range q.Round.Votes {
		all = append(all, v.Answer.String())
	}
	return strings.Join(all, " ")
}

// heldUp has the connection on which a command of this word for this key arrives
// wait for so long before it is executed, the first n times; others go on.
func heldUp(n *redlocktest.Node, w, key string, times int, d time.Duration) {
	var mu sync.Mutex
	n.OnCommand(func(args []string) {
		mu.Lock()
		hit := times > 0 && word(args) == w && keyOf(args) == key
		if hit {
			times--
		}
		mu.Unlock()
		if hit {
			time.Sleep(d)
		}
	})
}

// unanswered has the replies to commands of this word for this key dropped, the
// first n times: they are executed, and the connection is reset.
func unanswered(n *redlocktest.Node, w, key string, times int) {
	var mu sync.Mutex
	n.OnCommand(func(args []string) {
		mu.Lock()
		defer mu.Unlock()
		if times > 0 && word(args) == w && keyOf(args) == key {
			times--
			n.DropReplies(1)
		}
	})
}
