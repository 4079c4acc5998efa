package redlock_test

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/seam"
	"github.com/seed-ce352c9b/redlock/redlocktest"
)

// A stage is where the directed tests of the algorithm play: a cluster in virtual
// time, and one lock, jobs/42, that all is about.
type stage struct {
	*testing.T
	c     *redlocktest.Cluster
	ctx   context.Context
	seeds uint64
}

const (
	job         = "jobs/42"
	jobRegister = "{jobs/42}:fence"
	otherValue  = "other:00000000-0000-4000-8000-000000000000" // of another client of this library
	grain       = 2 * time.Millisecond                         // what every validity is shortened by
	oneTrip     = 300 * time.Microsecond                       // more than a round trip takes where nothing delays it
)

// besideOthers are the tests that run beside others already.
var besideOthers sync.Map

// onStage runs f in a bubble with n nodes that know all scripts. Stages share
// nothing, so they run beside each other.
func onStage(t *testing.T, n int, f func(s *stage)) {
	t.Helper()
	if _, already := besideOthers.LoadOrStore(t, true); !already {
		t.Parallel()
	}
	redlocktest.Bubble(t, func(t *testing.T) {
		s := &stage{T: t, c: redlocktest.New(t, n), ctx: t.Context()}
		for i := range n {
			s.teach(i)
			s.node(i).Record(true)
		}
		f(s)
	})
}

// luaNames are the scripts by their hash, read past the library.
var luaNames = sync.OnceValue(func() map[string]string {
	names := make(map[string]string)
	for _, name := range []string{"extend", "release", "raise", "adopt", "restore", "inspect", "touch", "turn", "wait", "leave", "acquire", "guard"} {
		sum := sha1.Sum([]byte(luaText(name)))
		names[hex.EncodeToString(sum[:])] = name
	}
	return names
})

func luaText(name string) string {
	text, err := os.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err)
	}
	return string(text)
}

// teach has a node know the scripts, as one does that has been up for a while.
func (s *stage) teach(i int) {
	for _, name := range luaNames() {
		s.do(i, "SCRIPT", "LOAD", luaText(name))
	}
}

func (s *stage) node(i int) *redlocktest.Node { return s.c.Node(i) }

// do executes a command on a node, past network and faults.
func (s *stage) do(i int, args ...string) any {
	s.Helper()
	v, err := s.node(i).Do(args...)
	if err != nil {
		s.Fatalf("node %d: %v: %v", i, args, err)
	}
	return v
}

// locker is a new client process that has met every node: connections are made,
// round trips measured.
func (s *stage) locker(opt redlock.Options) *redlock.Locker {
	s.Helper()
	return s.lockerWith(opt, nil, s.c.Nodes())
}

func (s *stage) lockerWith(opt redlock.Options, h *hands, nodes []redlock.Node) *redlock.Locker {
	s.Helper()
	l := s.cold(opt, h, nodes)
	// Twice, the second while the first is under way: with two connections to each
	// node a command can overtake another.
	first := background(func() error { _, err := l.Inspect(s.ctx, "warm"); return err })
	time.Sleep(30 * time.Microsecond)
	for _, err := range []error{second(l.Inspect(s.ctx, "warm")), <-first} {
		if err != nil {
			s.Fatalf("warming up: %v", err)
		}
	}
	for i := range s.c.Len() {
		s.node(i).Record(true)
	}
	return l
}

// cold is a client process that has dialled nobody yet.
func (s *stage) cold(opt redlock.Options, h *hands, nodes []redlock.Node) *redlock.Locker {
	s.Helper()
	s.seeds++
	var steady, wall func() time.Time
	if h != nil {
		steady, wall = h.steadyNow, h.wallNow
	}
	l, err := newSeamed(opt, steady, wall, s.seeds, nodes...)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { l.Close() }) // an error says that the test has closed it
	return l
}

// again has a locker replace its connections to nodes that were restarted: each
// costs an error, for a stage's connections are no file descriptors that could be
// looked at before use.
func (s *stage) again(l *redlock.Locker) {
	for range 4 {
		l.Inspect(s.ctx, "warm")
		time.Sleep(time.Second)
	}
}

// asLockerTakes gives single clients, which a test can cut off, as nodes.
func asLockerTakes(clients []*redis.Client) []redlock.Node {
	nodes := make([]redlock.Node, len(clients))
	for i, c := range clients {
		nodes[i] = c
	}
	return nodes
}

// take is TryAcquire where it has to succeed.
func (s *stage) take(l *redlock.Locker, ttl time.Duration) *redlock.Lock {
	s.Helper()
	k, err := l.TryAcquire(s.ctx, job, ttl)
	if err != nil {
		s.Fatalf("TryAcquire: got %v, want the lock", err)
	}
	return k
}

// is checks an error: nil wants none.
func (s *stage) is(what string, err, want error) {
	s.Helper()
	switch {
	case want == nil && err != nil:
		s.Errorf("%s: got %q, want no error", what, err)
	case !errors.Is(err, want):
		s.Errorf("%s: got %v, want %v", what, err, want)
	}
	for _, e := range []error{redlock.ErrHeld, redlock.ErrNoQuorum, redlock.ErrLost, redlock.ErrClosed} {
		if e != want && want != nil && isOurs(want) && errors.Is(err, e) {
			s.Errorf("%s: got %v, which is %v as well as %v", what, err, e, want)
		}
	}
}

func isOurs(err error) bool { return strings.HasPrefix(err.Error(), "redlock: ") }

// says checks that an error's text has the parts.
func (s *stage) says(err error, parts ...string) {
	s.Helper()
	for _, p := range parts {
		if err == nil || !strings.Contains(err.Error(), p) {
			s.Errorf("got the error %v, want one that says %q", err, p)
		}
	}
}

// lasts checks how long f takes: from at least to at least and one undelayed round trip or two.
func (s *stage) lasts(what string, want time.Duration, f func()) {
	s.Helper()
	began := time.Now()
	f()
	if got := time.Since(began); got < want || got > want+2*oneTrip {
		s.Errorf("%s took: got %v, want %v", what, got, want)
	}
}

// values is what the nodes hold at the lock's key; "" for nothing.
func (s *stage) values() []string {
	all := make([]string, s.c.Len())
	for i := range all {
		all[i], _ = s.node(i).Get(job)
	}
	return all
}

// carry checks which nodes hold a value, and no others do.
func (s *stage) carry(what, value string, want ...int) {
	s.Helper()
	var got []int
	for i, v := range s.values() {
		if v == value {
			got = append(got, i)
		}
	}
	if !slices.Equal(got, want) {
		s.Errorf("%s: nodes that hold %s: got %v, want %v", what, value, got, want)
	}
}

func (s *stage) all() (is []int) {
	for i := range s.c.Len() {
		is = append(is, i)
	}
	return is
}

// mend ends all faults of a node.
func (s *stage) mend(i int) {
	n := s.node(i)
	n.OnCommand(nil)
	n.Resume()
	n.Heal()
	n.Delay(0, 0)
	n.DropReplies(0)
	n.LoseReplies(0)
	n.Fail("")
	n.FailCommand("set", "")
	n.FailCommand("zadd", "")
	n.Refuse(false)
	n.Start()
}

// clean mends all nodes and checks, after as long as clean-up may take, that no
// node holds a value of ours, that every register has a life, and that nothing is
// owed.
func (s *stage) clean(lockers ...*redlock.Locker) {
	s.Helper()
	for i := range s.c.Len() {
		s.mend(i)
	}
	time.Sleep(6 * time.Second) // the pools' pause between dials, a probe, the clients' timeouts, and the second look
	for i, v := range s.values() {
		if v != "" && v != otherValue {
			s.Errorf("node %d still holds %s, want nothing", i, v)
		}
		if _, there := s.node(i).Score(jobRegister, "f"); there && s.node(i).TTL(jobRegister) <= 0 {
			s.Errorf("the register of node %d has no life, want about a day", i)
		}
		for j, l := range lockers {
			if got := seam.Peek(l).Nodes[i].Owed; got != 0 {
				s.Errorf("locker %d owes node %d: got %d, want 0", j, i, got)
			}
		}
	}
	for j, l := range lockers {
		if got := seam.Peek(l).Leaving; got != 0 {
			s.Errorf("clean-ups under way of locker %d: got %d, want 0", j, got)
		}
	}
}

// verb is what a command of ours asks; else its name.
func verb(args []string) string {
	name := strings.ToLower(args[0])
	switch name {
	case "set":
		for _, a := range args {
			if strings.EqualFold(a, "get") {
				return "acquire"
			}
		}
		return "heal"
	case "eval", "evalsha":
		id := args[1]
		if name == "eval" {
			sum := sha1.Sum([]byte(args[1]))
			id = hex.EncodeToString(sum[:])
		}
		script := luaNames()[id]
		if script == "release" && args[2] == "2" {
			return "rollback"
		}
		return script
	}
	return name
}

// valueOf is the value that a command of ours is about.
func valueOf(args []string) string {
	if strings.ToLower(args[0]) == "set" {
		return args[2]
	}
	keys, _ := strconv.Atoi(args[2])
	return args[3+keys]
}

// about reports whether a command is about the stage's lock.
func about(args []string) bool {
	return slices.Contains(args, job) || slices.Contains(args, jobRegister)
}

// told is what node i was told about the lock, in order, as verbs.
func (s *stage) told(i int, verbs ...string) (cmds []redlocktest.Command) {
	for _, c := range s.node(i).Log() {
		if about(c.Args) && (len(verbs) == 0 || slices.Contains(verbs, verb(c.Args))) {
			cmds = append(cmds, c)
		}
	}
	return cmds
}

func verbs(cmds []redlocktest.Command) (vs []string) {
	for _, c := range cmds {
		vs = append(vs, verb(c.Args))
	}
	return vs
}

// on calls f for every command of this verb about the lock, before node i
// executes it. A node has one of these.
func (s *stage) on(i int, v string, f func(n int, args []string)) {
	var mu sync.Mutex
	n := 0
	s.node(i).OnCommand(func(args []string) {
		if !about(args) || verb(args) != v {
			return
		}
		mu.Lock()
		n++
		now := n
		mu.Unlock()
		f(now, args)
	})
}

// once is on for the first of them only.
func (s *stage) once(i int, v string, f func()) {
	s.on(i, v, func(n int, _ []string) {
		if n == 1 {
			f()
		}
	})
}

// slow has a round trip to node i take d.
func (s *stage) slow(d time.Duration, nodes ...int) {
	for _, i := range nodes {
		s.node(i).Delay(d/2, d-d/2)
	}
}

// strangers has another client hold the lock on these nodes.
func (s *stage) strangers(ttl time.Duration, nodes ...int) {
	for _, i := range nodes {
		s.node(i).Set(job, otherValue, ttl)
	}
}

// register is a node's fence register; 0: none.
func (s *stage) register(i int) int64 {
	score, _ := s.node(i).Score(jobRegister, "f")
	return int64(score)
}

func (s *stage) setRegister(score int64, nodes ...int) {
	for _, i := range nodes {
		s.do(i, "ZADD", jobRegister, strconv.FormatInt(score, 10), "f")
	}
}

// micros is the time as fencing tokens count it.
func micros() int64 { return time.Now().UnixMicro() }

// validFor is what the Redis page's step 4 leaves of a ttl, before the time
// elapsed is taken off. Written anew here, in whole numbers: a percent or another
// part of a hundred.
func validFor(ttl time.Duration, percent int64) time.Duration {
	drift := (int64(ttl)*percent + 99) / 100 // rounded up
	return ttl - time.Duration(drift) - grain
}

// hands set a Locker's clocks.
type hands struct {
	mu           sync.Mutex
	steady, wall time.Duration // ahead of the bubble's
	stopped      time.Time     // both stand still since then
}

func (h *hands) now(ahead *time.Duration) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.stopped.IsZero() {
		return h.stopped.Add(*ahead)
	}
	return time.Now().Add(*ahead)
}

func (h *hands) steadyNow() time.Time { return h.now(&h.steady) }
func (h *hands) wallNow() time.Time   { return h.now(&h.wall) }

func (h *hands) setWall(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wall += d
}

// stop has both clocks show one moment from now on, a whole microsecond, and pass
// move them.
func (h *hands) stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopped = time.Now().Truncate(time.Microsecond)
}

func (h *hands) pass(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopped = h.stopped.Add(d)
}

// suspend is what a machine sees that slept for d: its steady clock and its timers
// stood still, the wall clock and the nodes went on.
func (s *stage) suspend(h *hands, d time.Duration) {
	h.setWall(d)
	for i := range s.c.Len() {
		s.node(i).JumpClock(d)
	}
}

// A record keeps the rounds that an observer is given.
type record struct {
	mu     sync.Mutex
	rounds []redlock.Round
}

func (r *record) observe(round redlock.Round) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rounds = append(r.rounds, round)
}

// count is how many rounds asked this.
func (r *record) count(op redlock.Op) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, round := range r.rounds {
		if round.Op == op {
			n++
		}
	}
	return n
}

func (r *record) attempts() (most int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, round := range r.rounds {
		most = max(most, round.Attempt)
	}
	return most
}

// ended is when a context ended; it waits for that, but not beyond limit.
func (s *stage) ended(ctx context.Context, limit time.Duration) time.Time {
	s.Helper()
	select {
	case <-ctx.Done():
	case <-time.After(limit):
		s.Errorf("the context had not ended after %v", limit)
	}
	return time.Now()
}

// background calls f and gives its error once it returned.
func background(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return done
}

func second[T any](_ T, err error) error { return err }
