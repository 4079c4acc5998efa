package calls_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/harness"
)

// inspect is Inspect of the stage's lock, to which a majority has to reply.
func (s *stage) inspect(l *redlock.Locker) redlock.Status {
	s.Helper()
	st, err := l.Inspect(s.Ctx, job)
	s.Is("Inspect", err, nil)
	return st
}

func TestInspectTellsWhoHoldsTheLock(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		a, b := s.Locker(redlock.Options{Name: "web-1"}), s.Locker(redlock.Options{})
		k := s.Take(a, 10*time.Second)
		time.Sleep(4 * time.Second)
		st := s.inspect(b)
		if !st.Held || st.Key != job || st.Value != k.Value() || st.Holder != "web-1" || st.Fence != k.Fence() {
			t.Errorf("got %+v, want held by web-1 with %s and %d", st, k.Value(), k.Fence())
		}
		if got, want := fmt.Sprint(k), fmt.Sprintf("lock %q, fence %d", job, k.Fence()); got != want {
			t.Errorf("the lock: got %s, want %s", got, want)
		}
		if st.Left > 6*time.Second || st.Left < 5990*time.Millisecond {
			t.Errorf("left: got %v, want 6s", st.Left)
		}
		if len(st.Nodes) != 3 || len(st.Round.Votes) != 3 {
			t.Fatalf("got %d nodes and %d votes, want 3", len(st.Nodes), len(st.Round.Votes))
		}
		for i, n := range st.Nodes {
			if n.Node != s.Node(i).Addr() || n.Value != k.Value() || n.Fence != k.Fence() || n.Err != nil || n.Left > 6*time.Second || n.Left <= 0 {
				t.Errorf("node %d: got %+v", i, n)
			}
		}
	})
}

func TestInspectChangesNothing(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		s.Take(l, 10*time.Second)
		time.Sleep(oneTrip)
		left, life := s.Node(0).TTL(job), s.Node(0).TTL(jobRegister)
		s.Record()
		for range 5 {
			l.Inspect(s.Ctx, job)
			l.Inspect(s.Ctx, "jobs/none")
		}
		if got := s.Node(0).TTL(job); got > left {
			t.Errorf("ttl: got %v after %v", got, left)
		}
		if got := s.Node(0).TTL(jobRegister); got > life {
			t.Errorf("the register's life: got %v after %v", got, life)
		}
		for _, c := range s.Node(0).Log() {
			if v := harness.Verb(c.Args); v != "inspect" && v != "pubsub" {
				t.Errorf("the node was told %s", c)
			}
		}
		if got := s.Node(1).Keys(); len(got) != 2 {
			t.Errorf("keys: got %v, want the lock's two", got)
		}
	})
}

func TestInspectOfWhatIsFree(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		st := s.inspect(l)
		if st.Held || !st.Value.IsZero() || st.Holder != "" || st.Left != 0 || st.Fence != 0 {
			t.Errorf("never held: got %+v, want nothing", st)
		}
		k := s.Take(l, time.Second)
		k.Release(s.Ctx)
		time.Sleep(time.Second)
		st = s.inspect(l)
		if st.Held || !st.Value.IsZero() || st.Left != 0 || st.Fence != k.Fence() {
			t.Errorf("released: got %+v, want nothing but the register at %d", st, k.Fence())
		}
		for _, n := range st.Nodes {
			if !n.Value.IsZero() || n.Left != 0 || n.Err != nil {
				t.Errorf("got %+v, want nothing", n)
			}
		}
	})
}

func TestInspectSaysHeldOnlyOfAMajority(t *testing.T) {
	onStage(t, 5, func(s *stage) {
		l := s.Locker(redlock.Options{})
		for i, value := range []string{"x", "x", "y", "y"} {
			s.Node(i).Set(job, value, time.Minute)
		}
		st := s.inspect(l)
		if st.Held || !st.Value.IsZero() || st.Left != 0 {
			t.Errorf("two and two: got %+v, want not held", st)
		}
		if st.Nodes[0].Value.Secret() != "x" || st.Nodes[3].Value.Secret() != "y" || !st.Nodes[4].Value.IsZero() {
			t.Errorf("nodes: got %+v", st.Nodes)
		}
		s.Node(4).Set(job, "y", time.Minute)
		st = s.inspect(l)
		if !st.Held || st.Value.Secret() != "y" || st.Holder != "" {
			t.Errorf("three hold y: got %+v, want held by y, which has no label", st)
		}
	})
}

// Left ends when so many of the nodes that hold it have dropped it that the rest is
// no majority.
func TestLeftIsUntilNoMajorityIsLeft(t *testing.T) {
	for _, c := range []struct {
		name string
		ttls []time.Duration // 0: for ever
		want time.Duration
	}{
		{"five", []time.Duration{1 * time.Second, 5 * time.Second, 3 * time.Second, 2 * time.Second, 4 * time.Second}, 3 * time.Second},
		{"just a majority", []time.Duration{5 * time.Second, 2 * time.Second, 4 * time.Second}, 2 * time.Second},
		{"some for ever", []time.Duration{0, 0, time.Second, time.Second, 2 * time.Second}, 2 * time.Second},
		{"a majority for ever", []time.Duration{0, 0, 0, time.Second, time.Second}, -1},
	} {
		runStage(t, c.name, 5, func(s *stage) {
			l := s.Locker(redlock.Options{})
			for i, ttl := range c.ttls {
				s.Node(i).Set(job, otherValue, ttl)
			}
			st := s.inspect(l)
			if !st.Held || st.Left > c.want || c.want > 0 && st.Left < c.want-5*time.Millisecond || c.want < 0 && st.Left != c.want {
				s.Errorf("held %v, left: got %v, want %v", st.Held, st.Left, c.want)
			}
		})
	}
}

func TestInspectWithNodesThatDoNotAnswer(t *testing.T) {
	onStage(t, 5, func(s *stage) {
		l := s.Locker(redlock.Options{})
		k := s.Take(l, time.Minute)
		time.Sleep(oneTrip)
		s.Node(1).Hang()
		s.Node(3).Stop()
		began := time.Now()
		st, err := l.Inspect(s.Ctx, job)
		s.Is("with two that do not", err, nil)
		if took := time.Since(began); took > time.Second+oneTrip {
			t.Errorf("it took %v, want the node timeout at most", took)
		}
		if !st.Held || st.Value != k.Value() || st.Nodes[1].Err == nil || st.Nodes[3].Err == nil || st.Nodes[0].Err != nil {
			t.Errorf("got %+v, want held, and errors for nodes 1 and 3", st)
		}
		s.Node(4).Stop()
		st, err = l.Inspect(s.Ctx, job)
		s.Is("with three that do not", err, redlock.ErrNoQuorum)
		if st.Held || len(st.Nodes) != 5 || st.Nodes[0].Value != k.Value() || st.Fence != k.Fence() {
			t.Errorf("got %+v, want what is known all the same", st)
		}
	})
}

func TestInspectOfForeignKeys(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		s.Do(0, "RPUSH", job, "a list")
		s.Foreign(0, 1, 2)
		s.Do(1, "ZADD", jobRegister, "9007199254740992", "f")
		s.Do(2, "ZADD", jobRegister, "-5", "f")
		st, err := l.Inspect(s.Ctx, job)
		s.Is("Inspect", err, redlock.ErrNoQuorum) // a list and a register beyond all tokens are no answers
		if st.Nodes[0].Err == nil || st.Nodes[1].Err == nil || st.Nodes[2].Err != nil {
			t.Errorf("got %+v, want errors for nodes 0 and 1", st.Nodes)
		}
		if got := st.Nodes[2]; got.Left != -1 || got.Value.Secret() != otherValue || got.Fence != 0 {
			t.Errorf("node 2: got %+v, want a key that never expires, and no token", got)
		}
		s.Says(st.Nodes[0].Err, "WRONGTYPE")
		s.Says(st.Nodes[1].Err, "2^53")
	})
}

// A foreign client's empty string is a lock, and so is a ttl without measure.
func TestInspectOfStrangeStrings(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		for _, c := range []struct {
			value, ms string
			least     time.Duration
		}{{"", "60000", 59 * time.Second}, {"x", "9000000000000", 24 * time.Hour}} {
			for i := range 3 {
				s.Do(i, "SET", job, c.value, "PX", c.ms)
			}
			got, err := l.Inspect(s.Ctx, job)
			s.Is("Inspect", err, nil)
			if !got.Held || got.Value.Secret() != c.value || got.Left < c.least {
				t.Errorf("%q for %s ms: got %+v, want held for %v or more", c.value, c.ms, got, c.least)
			}
		}
	})
}

func TestAnInspectionThatIsCancelledReturnsAtOnce(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		s.Slow(200*time.Millisecond, 0, 1, 2)
		ctx := s.Timeout(50 * time.Millisecond)
		harness.Check(s, "time of Inspect", harness.Took(func() {
			s.Is("Inspect", harness.Second(l.Inspect(ctx, job)), context.DeadlineExceeded)
		}), 50*time.Millisecond)
		l.Close()
		s.Is("Inspect after Close", harness.Second(l.Inspect(s.Ctx, job)), redlock.ErrClosed)
	})
}

// A client of another library stores a token that releases its lock, and no ttl, say.
// Nothing that we print may have it.
func TestValuesOfOtherClientsAreNotTold(t *testing.T) {
	const secret = "c2VjcmV0LXRva2Vu"
	fairly(t, 3, func(s *stage, fair bool) {
		note := func(v any) {
			if text := fmt.Sprintf("%v %+v", v, v); strings.Contains(text, secret) {
				s.Errorf("the value is in %s", text)
			}
		}
		queues := func(ticket string) { // another client of this library, whose value is the secret
			for i := range 3 {
				s.Do(i, "ZADD", jobQueue, ticket, secret+"-waits")
				s.Do(i, "ZADD", jobQueue, harness.EndOf(s.Node(i).Now().Add(time.Second).UnixMilli()), secret+"-waits!")
			}
		}
		l := s.Locker(redlock.Options{Fair: fair, Trace: redlock.Trace{Round: func(_ context.Context, r redlock.Round) { note(r) }}})
		for i := range 3 {
			s.Node(i).Set(job, secret, time.Hour)
		}
		queues(fmt.Sprint(s.Node(0).Now().UnixMicro()))
		st := s.inspect(l)
		note(st)
		if !st.Held || st.Value.Secret() != secret || st.Holder != "" || st.Nodes[0].Value.Secret() != secret {
			s.Errorf("got %+v, want it held, by the raw value, and without a label", st)
		}
		if !slices.Equal(st.Queue, []string{""}) {
			s.Errorf("queue: got %q, want one without a label", st.Queue)
		}
		_, err := l.TryAcquire(s.Ctx, job, time.Second)
		s.Is("TryAcquire", err, redlock.ErrHeld)
		s.Says(err, "held by another client (")
		note(err)
		harness.Check(s, "the holder, as programs get it", s.RoundOf(err).Value().Secret(), secret)
		ctx := s.Timeout(time.Second)
		_, err = l.Acquire(ctx, job, time.Second)
		s.Is("Acquire", err, context.DeadlineExceeded)
		s.Says(err, "held by another client (")
		note(err)
		s.EvictKey(job, 0, 1, 2) // free, but for those who queue
		queues("1")
		if _, err = l.TryAcquire(s.Ctx, job, time.Second); fair {
			s.Says(err, "queued behind another client")
			note(err)
		}
	})
}

// A key without a ttl never becomes free by itself: whoever waits for it is told.
func TestAKeyWithoutTTLIsToldAsSuch(t *testing.T) {
	const told = "no ttl: not set by a lock library"
	for _, c := range []struct {
		name string
		ttls []time.Duration // 0: none
		want bool
	}{
		{"on all", []time.Duration{0, 0, 0, 0, 0}, true},
		{"on so many that no majority is left", []time.Duration{0, 0, 0, time.Hour, time.Hour}, true},
		{"on fewer", []time.Duration{0, 0, time.Hour, time.Hour, time.Hour}, false},
		{"on none", []time.Duration{time.Hour, time.Hour, time.Hour, time.Hour, time.Hour}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			fairly(t, 5, func(s *stage, fair bool) {
				l := s.Locker(redlock.Options{Fair: fair})
				for i, ttl := range c.ttls {
					s.Node(i).Set(job, "customer json", ttl)
				}
				ctx := s.Timeout(time.Second)
				_, err := l.Acquire(ctx, job, time.Second)
				s.Is("Acquire", err, redlock.ErrHeld)
				some := c.ttls[0] == 0 && c.ttls[4] != 0 // which of them a look hears first is chance
				if got := strings.Contains(err.Error(), "held by another client, "+told+" ("); got != c.want && !some {
					s.Errorf("got %v, want it to say %q: %v", err, told, c.want)
				}
				st := s.inspect(l)
				if (st.Left == -1) != c.want || strings.Contains(strings.Split(st.String(), " (")[0], told) != c.want {
					s.Errorf("got %v with %v left, want -1 and %q: %v", st, st.Left, told, c.want)
				}
			})
		})
	}
	runStage(t, "and not any more when it has one", 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		s.Foreign(0, s.All()...)
		ctx, stop := context.WithCancel(s.Ctx)
		waits := harness.Background(func() error { return harness.Second(l.Acquire(ctx, job, time.Second)) })
		time.Sleep(time.Second)
		s.Foreign(time.Hour, s.All()...)
		time.Sleep(10 * time.Second)
		stop()
		err := <-waits
		s.Is("Acquire", err, redlock.ErrHeld)
		if strings.Contains(err.Error(), told) {
			s.Errorf("got %v, though it has a ttl by now", err)
		}
	})
}

// Also where a first acquire was granted before both names had answered.
func TestInspectRefusesOneServerUnderTwoNames(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		clients := s.Cluster.Clients()
		again := s.Cluster.Clients()[0]
		again.AddHook(harness.Tap(func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
			time.Sleep(20 * time.Millisecond)
			return next(ctx, cmds)
		}))
		l := s.Cold(redlock.Options{}, nil, harness.Nodes([]*redis.Client{clients[0], clients[1], again}))
		k, err := l.TryAcquire(s.Ctx, job, 10*time.Second)
		s.Is("TryAcquire, by two servers that answered", err, nil)
		st, err := l.Inspect(s.Ctx, job)
		s.Says(err, "one server", "node-a:6379", "list every master once")
		if !st.Held || st.Value != k.Value() || len(st.Nodes) != 3 {
			t.Errorf("status: got %+v, want what is known", st)
		}
		s.Is("Release", k.Release(s.Ctx), nil)
		_, err = l.TryAcquire(s.Ctx, job, 10*time.Second)
		s.Says(err, "one server")
	})
}
