package nodes_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/harness"
)

// Something on the way delivers an acquire once more when its lock is long over: the
// ghost keeps others out for its ttl, and gives nobody anything.
//
// Attacks 26, 27.
func TestASecondDeliveryAfterTheLockIsOverIsAGhost(t *testing.T) {
	const ttl = 2 * time.Second
	onStage(t, 3, func(s *stage) {
		a := s.Locker(redlock.Options{})
		b := s.LockerWith(redlock.Options{}, &harness.Clocks{WallAhead: time.Hour}, s.Cluster.Nodes())
		c := s.LockerWith(redlock.Options{}, &harness.Clocks{WallAhead: -time.Hour}, s.Cluster.Nodes()) // it lives by the registers
		old := s.Take(a, ttl)
		time.Sleep(oneTrip)
		again := func() {
			for i := range 3 {
				for _, cmd := range s.Told(i, "acquire", "zadd") {
					if cmd.Client == 1 {
						s.Do(i, cmd.Args...)
					}
				}
			}
		}
		again() // also while it is held
		s.Carry("delivered twice", old.Value(), s.All()...)
		time.Sleep(ttl)
		between := s.Take(b, time.Minute)
		time.Sleep(oneTrip)
		again()
		s.Carry("delivered again in another's time", between.Value(), s.All()...)
		if !between.Valid() {
			t.Error("the other's lock is not valid any more")
		}
		s.Is("Release", between.Release(s.Ctx), nil)
		time.Sleep(oneTrip)
		again()
		s.Carry("the ghost", old.Value(), s.All()...)
		if old.Valid() {
			t.Error("the old lock is valid again")
		}
		s.Is("the old Extend", old.Extend(s.Ctx), redlock.ErrLost)
		s.Is("the old Release", old.Release(s.Ctx), redlock.ErrLost)
		time.Sleep(ttl)
		k := s.Take(c, time.Minute)
		if k.Fence() <= between.Fence() || between.Fence() <= old.Fence() {
			t.Errorf("tokens: got %d, %d, %d; want them to grow", old.Fence(), between.Fence(), k.Fence())
		}
	})
}

// A warped connection brings what its peer sent once as something else.
type warped struct {
	net.Conn
	warp *warp
}

// A warp is armed for the next bytes that arrive on any connection of a node.
type warp struct {
	mu    sync.Mutex
	next  func(b []byte) (out []byte, cut bool) // nil: not armed
	ended map[*warped]bool
}

func (w *warped) Read(b []byte) (int, error) {
	w.warp.mu.Lock()
	over := w.warp.ended[w]
	w.warp.mu.Unlock()
	if over {
		w.Conn.Close()
		return 0, &net.OpError{Op: "read", Net: "tcp", Err: errors.New("connection reset by peer")}
	}
	n, err := w.Conn.Read(b)
	if err != nil {
		return n, err
	}
	w.warp.mu.Lock()
	defer w.warp.mu.Unlock()
	if f := w.warp.next; f != nil {
		w.warp.next = nil
		out, cut := f(b[:n])
		w.warp.ended[w] = cut
		n = copy(b, out)
	}
	return n, nil
}

// warpedNode is a client of the i-th node whose answers can be warped.
func (s *stage) warpedNode(i int) (redlock.Node, *warp) {
	w := &warp{ended: make(map[*warped]bool)}
	opt := *s.Cluster.Clients()[i].Options()
	opt.Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) {
		conn, err := s.Node(i).Dial(ctx)
		if err != nil {
			return nil, err
		}
		return &warped{conn, w}, nil
	}
	c := redis.NewClient(&opt)
	s.Cleanup(func() { c.Close() })
	return c, w
}

// What comes back is cut off, or is no answer at all: it says nothing of the lock, is
// never taken for the answer to something else, and costs that node's vote alone.
//
// Attack 31.
func TestABrokenAnswerIsOneNodesErrorAndNoOthersAnswer(t *testing.T) {
	text := func(out string) func([]byte) ([]byte, bool) {
		return func([]byte) ([]byte, bool) { return []byte(out), false }
	}
	for name, f := range map[string]func(b []byte) ([]byte, bool){
		"reset in the middle":  func(b []byte) ([]byte, bool) { return b[:len(b)/2], true },
		"reset at the start":   func(b []byte) ([]byte, bool) { return b[:1], true },
		"half, and then none":  func(b []byte) ([]byte, bool) { return b[:len(b)/2], false },
		"garbage":              text("\x00\xff what is this\r\n"),
		"another protocol":     text("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"),
		"a number":             text(":7\r\n:7\r\n"),
		"a list":               text("*2\r\n:1\r\n:1\r\n:1\r\n"),
		"a length that is not": text("$99999999\r\nshort\r\n"),
		"an error, then yes":   text("-ERR nobody has heard of it\r\n:1\r\n"),
		"one answer too many":  func(b []byte) ([]byte, bool) { return append([]byte("+OK\r\n"), b...), false },
	} {
		runStage(t, name, 3, func(s *stage) {
			nodes := s.Cluster.Nodes()
			var w *warp
			nodes[2], w = s.warpedNode(2)
			l := s.LockerWith(redlock.Options{}, nil, nodes)
			time.Sleep(oneTrip) // all answers have come
			s.Foreign(500*time.Millisecond, 1)
			w.mu.Lock()
			w.next = f
			w.mu.Unlock()
			k, err := l.TryAcquire(s.Ctx, job, 5*time.Second)
			if k != nil {
				s.Fatalf("acquired by one of three and an answer that is none")
			}
			if v := s.RoundOf(err).Votes[2]; v.Answer == redlock.AnswerYes || name != "one answer too many" && (v.Answer != redlock.AnswerUnknown || v.Err == nil) {
				s.Errorf("vote of a node whose answer was %s: got %v, %v; want unknown and why", name, v.Answer, v.Err)
			}
			time.Sleep(3 * time.Second)
			for n := range 30 { // if what is left of it were read later, these would tell
				key := fmt.Sprint("after/", n)
				k, err := l.TryAcquire(s.Ctx, key, time.Minute)
				if err != nil {
					s.Fatalf("lock %d afterwards: %v", n, err)
				}
				if _, ok := harness.Within(20*time.Millisecond, func() bool { v, _ := s.Node(2).Get(key); return v == k.Value().Secret() }); !ok {
					s.Errorf("lock %d afterwards: the node has not %q", n, k.Value().Secret())
				}
				if st, err := l.Inspect(s.Ctx, key); err != nil || st.Nodes[2].Value != k.Value() || st.Nodes[2].Err != nil {
					s.Errorf("lock %d afterwards: Inspect got %v, %+v", n, err, st.Nodes)
				}
				s.Is("Extend", k.Extend(s.Ctx), nil)
				s.Is("Release", k.Release(s.Ctx), nil)
			}
			s.Clean(l)
		})
	}
}

// unresolved is a node whose name does not resolve.
func (s *stage) unresolved(i int) redlock.Node {
	opt := *s.Cluster.Clients()[i].Options()
	opt.Dialer = func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "nowhere", IsNotFound: true}}
	}
	c := redis.NewClient(&opt)
	s.Cleanup(func() { c.Close() })
	return c
}

// Attacks 33, 96.
func TestNamesThatDoNotResolveAreToldAndDoNotMatterInAMinority(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		nodes := s.Cluster.Nodes()
		nodes[0], nodes[1] = s.unresolved(0), s.unresolved(1)
		l := s.Cold(redlock.Options{}, nil, nodes)
		at := time.Now()
		_, err := l.TryAcquire(s.Ctx, job, 10*time.Second)
		s.Is("TryAcquire", err, redlock.ErrNoQuorum)
		s.Says(err, "node-a:6379", "node-b:6379", "no such host")
		if d := time.Since(at); d > 5*oneTrip {
			t.Errorf("it took %v, want no time", d)
		}
		time.Sleep(time.Second)
		s.Carry("nobody got that", redlock.Value{}, s.All()...)
		nodes[1] = s.Cluster.Nodes()[1]
		l = s.Cold(redlock.Options{}, nil, nodes)
		at = time.Now()
		s.Is("Release", s.Take(l, 10*time.Second).Release(s.Ctx), nil)
		if d := time.Since(at); d > 10*oneTrip { // with dials
			t.Errorf("with one of three: it took %v, want no time", d)
		}
	})
}

// The nearest two of five far nodes die: what is left is as far as its third, and no
// farther.
//
// Attacks 32, 96.
func TestTheTwoNearestOfFiveFarNodesDie(t *testing.T) {
	far := []time.Duration{2 * time.Millisecond, 12 * time.Millisecond, 35 * time.Millisecond, 70 * time.Millisecond, 140 * time.Millisecond}
	for name, dies := range map[string]func(s *stage, i int){
		"stopped": func(s *stage, i int) { s.Node(i).Stop() },
		"hung":    func(s *stage, i int) { s.Node(i).Hang() },
		"cut off": func(s *stage, i int) { s.Node(i).Partition() },
	} {
		runStage(t, name, 5, func(s *stage) {
			for i, d := range far {
				s.Slow(d, i)
			}
			l := s.Locker(redlock.Options{})
			s.cycle(l, 10*time.Second)
			time.Sleep(time.Second)
			held := s.Take(l, 20*time.Second)
			time.Sleep(far[4])
			for i := range 2 {
				dies(s, i)
			}
			check := func(what string, f func() error) {
				s.Helper()
				var err error
				d := harness.Took(func() { err = f() })
				if err != nil || d < far[4] || d > far[4]+2*oneTrip {
					s.Errorf("%s with the two nearest %s: took %v, %v; want the farthest's %v", what, name, d, err, far[4])
				}
			}
			check("Extend", func() error { return held.Extend(s.Ctx) })
			time.Sleep(time.Second)
			check("Release", func() error { return held.Release(s.Ctx) })
			time.Sleep(2 * time.Second)
			for n := range 3 {
				var k *redlock.Lock
				key := fmt.Sprint("jobs/", n)
				check("TryAcquire", func() (err error) { k, err = l.TryAcquire(s.Ctx, key, 10*time.Second); return err })
				if k == nil {
					return
				}
				time.Sleep(time.Second)
				check("Extend", func() error { return k.Extend(s.Ctx) })
				time.Sleep(time.Second)
				check("Release", func() error { return k.Release(s.Ctx) })
				time.Sleep(time.Second)
			}
			s.Clean(l)
		})
		runStage(t, name+" before they were ever met", 5, func(s *stage) {
			for i, d := range far {
				s.Slow(d, i)
			}
			for i := range 2 {
				dies(s, i)
			}
			l := s.Cold(redlock.Options{}, nil, s.Cluster.Nodes())
			var k *redlock.Lock
			var err error
			d := harness.Took(func() { k, err = l.TryAcquire(s.Ctx, job, 10*time.Second) })
			if want := 6 * far[4]; err != nil || d > want { // a dial, what it is set up with, scripts
				s.Fatalf("TryAcquire: got %v after %v, want the lock within %v", err, d, want)
			}
			s.Is("Release", k.Release(s.Ctx), nil)
			s.Clean(l)
		})
	}
}
