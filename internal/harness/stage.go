package harness

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/seam"
	"github.com/seed-ce352c9b/redlock/redlocktest"
)

// A Stage is a cluster in virtual time and the name of one lock, Job.
type Stage struct {
	*testing.T
	Cluster *redlocktest.Cluster
	Ctx     context.Context
	seed    uint64 // of the last Locker
}

const (
	Job         = "jobs/42"
	JobRegister = "{jobs/42}:fence"
	JobQueue    = "{jobs/42}:queue"
	OtherValue  = "other:00000000-0000-4000-8000-000000000000" // of another client of this library
	OneTrip     = 300 * time.Microsecond                       // more than a round trip takes where nothing delays it
	HeldLong    = 10 * time.Minute                             // a ttl that does not end while anybody waits

	grain = 2 * time.Millisecond // that every validity is shortened by
)

// parallel has the tests that were made parallel already.
var parallel sync.Map

// OnStage runs f in a bubble with n nodes that know all scripts. Stages share nothing, so their tests are parallel.
func OnStage(t *testing.T, n int, f func(s *Stage)) {
	t.Helper()
	if _, already := parallel.LoadOrStore(t, true); !already {
		t.Parallel()
	}
	redlocktest.Bubble(t, func(t *testing.T) {
		s := NewStage(t, n)
		for i := range n {
			s.LoadScripts(i)
			s.Node(i).Record(true)
		}
		f(s)
	})
}

// RunStage runs f as a subtest, on a stage of its own.
func RunStage(t *testing.T, name string, n int, f func(s *Stage)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { OnStage(t, n, f) })
}

// OnStageOf is OnStage for tests whose stages have more methods.
func OnStageOf[S ~struct{ *Stage }](t *testing.T, n int, f func(s *S)) {
	t.Helper()
	OnStage(t, n, func(s *Stage) { f(&S{s}) })
}

// RunStageOf is RunStage for such tests.
func RunStageOf[S ~struct{ *Stage }](t *testing.T, name string, n int, f func(s *S)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { OnStageOf(t, n, f) })
}

// Fairly runs f as two subtests, for Lockers without and with Options.Fair, each on a stage of its own.
func Fairly[S ~struct{ *Stage }](t *testing.T, n int, f func(s *S, fair bool)) {
	t.Helper()
	for _, fair := range []bool{false, true} {
		RunStageOf(t, fmt.Sprintf("fair=%v", fair), n, func(s *S) { f(s, fair) })
	}
}

// NewStage returns a stage with n nodes that know no script, for a test that is in a bubble.
func NewStage(t *testing.T, n int) *Stage {
	return &Stage{T: t, Cluster: redlocktest.New(t, n), Ctx: t.Context()}
}

// LoadScripts loads the scripts into a node, as they are in one that has been up for a while.
func (s *Stage) LoadScripts(i int) {
	for _, name := range Scripts() {
		if name == "guard" {
			continue // it is only ever sent in front of another
		}
		s.Do(i, "SCRIPT", "LOAD", Script(name))
	}
}

func (s *Stage) Node(i int) *redlocktest.Node { return s.Cluster.Node(i) }

// Do executes a command on a node, past network and faults.
func (s *Stage) Do(i int, args ...string) any {
	s.Helper()
	v, err := s.Node(i).Do(args...)
	if err != nil {
		s.Fatalf("node %d: %v: %v", i, args, err)
	}
	return v
}

// Locker returns a new client process that has connected to every node and measured the round trips.
func (s *Stage) Locker(opt redlock.Options) *redlock.Locker {
	s.Helper()
	return s.LockerWith(opt, nil, s.Cluster.Nodes())
}

// LockerWith is Locker with clocks and nodes.
func (s *Stage) LockerWith(opt redlock.Options, clocks *Clocks, nodes []redlock.Node) *redlock.Locker {
	s.Helper()
	l := s.Cold(opt, clocks, nodes)
	// With two connections to each node a command can overtake another.
	for _, err := range s.UseTwo(l) {
		if err != nil {
			s.Fatalf("warming up: %v", err)
		}
	}
	s.Record()
	return l
}

// Cold returns a client process that has not connected to any node.
func (s *Stage) Cold(opt redlock.Options, clocks *Clocks, nodes []redlock.Node) *redlock.Locker {
	s.Helper()
	s.seed++
	return newLocker(s, opt, clocks, s.seed, nodes)
}

// UseTwo has a Locker use two connections to each node, by a call that begins while another is under way.
func (s *Stage) UseTwo(l *redlock.Locker) [2]error {
	first := Background(func() error { return Second(l.Inspect(s.Ctx, "warm")) })
	time.Sleep(30 * time.Microsecond)
	second := Second(l.Inspect(s.Ctx, "warm"))
	return [2]error{<-first, second}
}

// Reconnect has a Locker replace its connections to nodes that were restarted. Each costs an error: a stage's
// connections are no file descriptors that a client could check before use. A client uses the connection again that it
// used last, so a dead one below a new one is found only by two calls at a time.
func (s *Stage) Reconnect(l *redlock.Locker) {
	for range 4 {
		s.UseTwo(l)
		time.Sleep(time.Second)
	}
}

// Take is TryAcquire of the stage's lock that has to succeed.
func (s *Stage) Take(l *redlock.Locker, ttl time.Duration) *redlock.Lock {
	s.Helper()
	return Try(s, l, Job, ttl)
}

// Acquire is Acquire of the stage's lock that has to succeed.
func (s *Stage) Acquire(l *redlock.Locker, ttl time.Duration) *redlock.Lock {
	s.Helper()
	k, err := l.Acquire(s.Ctx, Job, ttl)
	if err != nil {
		s.Fatalf("Acquire: got %v, want the lock", err)
	}
	return k
}

// TakeMany takes n locks for an hour, and waits until all nodes have replied.
func (s *Stage) TakeMany(l *redlock.Locker, prefix string, n int) (locks []*redlock.Lock) {
	s.Helper()
	for i := range n {
		locks = append(locks, Try(s, l, fmt.Sprint(prefix, i), time.Hour))
	}
	time.Sleep(time.Millisecond)
	return locks
}

// Keep returns a context of KeepAlive, which is stopped with the test.
func (s *Stage) Keep(k *redlock.Lock) context.Context {
	held, stop := k.KeepAlive(s.Ctx)
	s.Cleanup(stop)
	return held
}

// IsHeld fails the test unless the lock is valid, and its context of KeepAlive has not ended.
func (s *Stage) IsHeld(when string, k *redlock.Lock, held context.Context) {
	s.Helper()
	if held.Err() != nil || !k.Valid() {
		s.Errorf("%s: context %v, valid %v; want a lock that is held", when, context.Cause(held), k.Valid())
	}
}

// Both calls the methods of two locks at one instant, and fails the test unless their errors are want.
func (s *Stage) Both(what string, first, second func(ctx context.Context) error, want error) {
	s.Helper()
	other := Background(func() error { return first(s.Ctx) })
	s.Is(what, second(s.Ctx), want)
	s.Is(what, <-other, want)
}

// Timeout returns a context that ends after d, or with the test.
func (s *Stage) Timeout(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(s.Ctx, d)
	s.Cleanup(cancel)
	return ctx
}

// Is fails the test unless err is want; a nil want expects no error. If want is one of the library's errors, err must
// not be another of them as well.
func (s *Stage) Is(what string, err, want error) {
	s.Helper()
	if want == nil {
		CheckIs(s, what, err)
		return
	}
	CheckIs(s, what, err, want)
	if !strings.HasPrefix(want.Error(), "redlock: ") {
		return
	}
	for _, e := range []error{redlock.ErrHeld, redlock.ErrNoQuorum, redlock.ErrLost, redlock.ErrClosed} {
		if e != want {
			CheckIsNot(s, what, err, e)
		}
	}
}

// Says fails the test unless an error's text has all the parts.
func (s *Stage) Says(err error, parts ...string) {
	s.Helper()
	for _, p := range parts {
		if err == nil || !strings.Contains(err.Error(), p) {
			s.Errorf("got the error %v, want one that says %q", err, p)
		}
	}
}

// RoundOf returns the round that an error carries.
func (s *Stage) RoundOf(err error) redlock.Round {
	s.Helper()
	var q *redlock.QuorumError
	if !errors.As(err, &q) {
		s.Fatalf("got %v, want a *QuorumError in it", err)
	}
	return q.Round
}

// Lasts fails the test unless f takes want, and at most two undelayed round trips more.
func (s *Stage) Lasts(what string, want time.Duration, f func()) {
	s.Helper()
	began := time.Now()
	f()
	if got := time.Since(began); got < want || got > want+2*OneTrip {
		s.Errorf("%s took: got %v, want %v", what, got, want)
	}
}

// Ended waits until a context ends, at most limit, and returns when it ended.
func (s *Stage) Ended(ctx context.Context, limit time.Duration) time.Time {
	s.Helper()
	select {
	case <-ctx.Done():
	case <-time.After(limit):
		s.Errorf("the context had not ended after %v", limit)
	}
	return time.Now()
}

// Values returns what each node holds at the lock's key; "" for nothing.
func (s *Stage) Values() []string {
	all := make([]string, s.Cluster.Len())
	for i := range all {
		all[i], _ = s.Node(i).Get(Job)
	}
	return all
}

// Carry fails the test unless the nodes in want, and no others, hold the value.
func (s *Stage) Carry(what string, value redlock.Value, want ...int) {
	s.Helper()
	var got []int
	for i, v := range s.Values() {
		if v == value.Secret() {
			got = append(got, i)
		}
	}
	if !slices.Equal(got, want) {
		s.Errorf("%s: nodes that hold %s: got %v, want %v", what, value.Secret(), got, want)
	}
}

// All returns the indexes of all nodes.
func (s *Stage) All() (is []int) {
	for i := range s.Cluster.Len() {
		is = append(is, i)
	}
	return is
}

// Each calls f for the given nodes, or for all.
func (s *Stage) Each(f func(n *redlocktest.Node), nodes ...int) {
	if nodes == nil {
		nodes = s.All()
	}
	s.visit(nodes, f)
}

// visit calls f for the given nodes.
func (s *Stage) visit(nodes []int, f func(n *redlocktest.Node)) {
	for _, i := range nodes {
		f(s.Node(i))
	}
}

// Record begins the record of every node anew.
func (s *Stage) Record() { s.Each(func(n *redlocktest.Node) { n.Record(true) }) }

// Empty fails the test if one of the given nodes, or of all, stores a lock.
func (s *Stage) Empty(what string, nodes ...int) {
	s.Helper()
	s.Each(func(n *redlocktest.Node) {
		if keys := LocksOn(n); len(keys) > 0 {
			s.Errorf("%s: node %s stores %v, want nothing", what, n.Name(), keys)
		}
	}, nodes...)
}

// Clean mends all nodes and checks that nothing is left, after as long as clean-up may take: the pools' pause between
// dials, a probe, the clients' timeouts, and the second look.
func (s *Stage) Clean(lockers ...*redlock.Locker) {
	s.Helper()
	s.Mend()
	time.Sleep(2 * time.Second)
	CheckClean(s, s.Cluster, lockers...)
}

// CheckClean waits four seconds for work in the background. Then it checks that nothing of ours is left on the nodes
// but registers with a ttl, that no release is pending, and that every node is used.
func CheckClean(t testing.TB, c *redlocktest.Cluster, lockers ...*redlock.Locker) {
	t.Helper()
	time.Sleep(4 * time.Second)
	for i := range c.Len() {
		n := c.Node(i)
		for _, key := range LocksOn(n) {
			if value, _ := n.Get(key); value != OtherValue {
				t.Errorf("node %s still holds %s = %q, want nothing", n.Name(), key, value)
				break
			}
		}
		for _, key := range n.Keys() {
			if strings.HasSuffix(key, ":fence") && n.TTL(key) <= 0 {
				t.Errorf("ttl of %s on node %s: got none, want one", key, n.Name())
			}
		}
	}
	for i, l := range lockers {
		state := seam.Peek(l)
		for j, n := range state.Nodes {
			Check(t, fmt.Sprintf("pending releases of locker %d on node %d", i, j), n.Owed, 0)
			Check(t, fmt.Sprintf("node %d is down for locker %d", j, i), n.Down, false)
		}
		Check(t, fmt.Sprintf("locks on the list of locker %d", i), state.Held, 0)
		Check(t, fmt.Sprintf("clean-ups in progress of locker %d", i), state.Leaving, 0)
	}
}

// LocksOn returns the keys of a node that are neither fence registers nor about to expire.
func LocksOn(n *redlocktest.Node) (keys []string) {
	for _, key := range n.Keys() {
		if !strings.HasSuffix(key, ":fence") && !Expires(key, n.TTL(key)) {
			keys = append(keys, key)
		}
	}
	return keys
}

// Locked returns the keys of the locks that are on any node.
func (s *Stage) Locked() (keys []string) {
	for i := range s.Cluster.Len() {
		for _, key := range LocksOn(s.Node(i)) {
			if !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
	}
	slices.Sort(keys)
	return keys
}

// Told returns the commands about the lock that a node received, in order: those with the verbs, or all.
func (s *Stage) Told(i int, verbs ...string) (cmds []redlocktest.Command) {
	for _, c := range s.Node(i).Log() {
		if About(c.Args, Job) && (len(verbs) == 0 || slices.Contains(verbs, Verb(c.Args))) {
			cmds = append(cmds, c)
		}
	}
	return cmds
}

// On is On for the stage's lock.
func (s *Stage) On(i int, verb string, f func(n int, args []string)) { On(s.Node(i), verb, Job, f) }

// Once is On for the first of these commands only.
func (s *Stage) Once(i int, verb string, f func()) {
	s.On(i, verb, func(n int, _ []string) {
		if n == 1 {
			f()
		}
	})
}

// Foreign has another client hold the lock on nodes.
func (s *Stage) Foreign(ttl time.Duration, nodes ...int) {
	for _, i := range nodes {
		s.Node(i).Set(Job, OtherValue, ttl)
	}
}

// Register returns a node's fence register; 0: none.
func (s *Stage) Register(i int) int64 {
	score, _ := s.Node(i).Score(JobRegister, "f")
	return int64(score)
}

// SetRegister sets the fence registers of nodes.
func (s *Stage) SetRegister(score int64, nodes ...int) {
	for _, i := range nodes {
		s.Do(i, "ZADD", JobRegister, strconv.FormatInt(score, 10), "f")
	}
}

// Micros returns the time as fencing tokens count it.
func Micros() int64 { return time.Now().UnixMicro() }

// ValidFor returns what step 4 of the Redis page leaves of a ttl before the elapsed time is subtracted, where the
// drift is a percentage. It computes in whole numbers, as the library does not.
func ValidFor(ttl time.Duration, percent int64) time.Duration {
	drift := (int64(ttl)*percent + 99) / 100 // rounded up
	return ttl - time.Duration(drift) - grain
}

// Clocks are a Locker's clocks.
type Clocks struct {
	mu                     sync.Mutex
	SteadyAhead, WallAhead time.Duration // of the bubble's
	stopped                time.Time     // both stand still since then
}

func (c *Clocks) now(ahead *time.Duration) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.stopped.IsZero() {
		return c.stopped.Add(*ahead)
	}
	return time.Now().Add(*ahead)
}

func (c *Clocks) Steady() time.Time { return c.now(&c.SteadyAhead) }
func (c *Clocks) Wall() time.Time   { return c.now(&c.WallAhead) }

// MoveWall moves the wall clock.
func (c *Clocks) MoveWall(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.WallAhead += d
}

// Stop has both clocks show the present moment, a whole microsecond, until Pass moves them.
func (c *Clocks) Stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = time.Now().Truncate(time.Microsecond)
}

// Pass moves clocks that were stopped.
func (c *Clocks) Pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = c.stopped.Add(d)
}

// Suspend is what a machine observes that slept for d: its steady clock and its timers stood still, the wall clock
// and the nodes went on.
func (s *Stage) Suspend(c *Clocks, d time.Duration) {
	c.MoveWall(d)
	for i := range s.Cluster.Len() {
		s.Node(i).JumpClock(d)
	}
}

// An Observer keeps what a Trace is given, in a bubble. Its methods first wait until all other
// goroutines block, since a caller may have its result before the Trace is called.
type Observer struct {
	mu     sync.Mutex
	rounds []redlock.Round
	ends   []EndedCall
	events []redlock.Event
}

// An EndedCall is what Trace.End is given.
type EndedCall struct {
	redlock.Call
	Err error
}

// Trace returns the Trace that the Observer keeps.
func (o *Observer) Trace() redlock.Trace {
	return redlock.Trace{Round: o.Observe, End: o.end, Event: o.event}
}

func (o *Observer) end(_ context.Context, call redlock.Call, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ends = append(o.ends, EndedCall{call, err})
}

func (o *Observer) event(e redlock.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.events = append(o.events, e)
}

// Ends returns the calls of a method that have ended.
func (o *Observer) Ends(method string) (ends []EndedCall) {
	synctest.Wait()
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, e := range o.ends {
		if e.Method == method {
			ends = append(ends, e)
		}
	}
	return ends
}

// Events returns the events of the given kinds, or all.
func (o *Observer) Events(kinds ...redlock.EventKind) (events []redlock.Event) {
	synctest.Wait()
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, e := range o.events {
		if len(kinds) == 0 || slices.Contains(kinds, e.Kind) {
			events = append(events, e)
		}
	}
	return events
}

func (o *Observer) Observe(_ context.Context, round redlock.Round) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.rounds = append(o.rounds, round)
}

// Rounds returns the rounds up to now.
func (o *Observer) Rounds() []redlock.Round {
	synctest.Wait()
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.rounds)
}

// Count returns the number of rounds of an operation.
func (o *Observer) Count(op redlock.Op) (n int) {
	for _, round := range o.Rounds() {
		if round.Op == op {
			n++
		}
	}
	return n
}

// Attempts returns the highest number of an attempt.
func (o *Observer) Attempts() (most int) {
	for _, round := range o.Rounds() {
		most = max(most, round.Attempt)
	}
	return most
}
