package directed_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/harness"
)

// The attacks of docs/attacks.md that no other file plays.

// The process stands still between its last look at the clock and the return of the
// call: nobody can look later than that, and so what is returned says itself that it
// is over.
//
// Attack 2.
func TestALockThatIsReturnedTooLateIsNotValid(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		const ttl, pause = 10 * time.Second, 11 * time.Second
		var observed, stood atomic.Bool
		var readings atomic.Int32 // of the clock, behind Observe: the first is the last look
		l, err := harness.NewSeamed(redlock.Options{Observe: func(r redlock.Round) {
			if r.Op == redlock.OpAcquire {
				observed.Store(true)
			}
		}}, func() time.Time {
			now := time.Now()
			if observed.Load() && !stood.Load() && readings.Add(1) > 1 {
				now = now.Add(pause)
			}
			return now
		}, nil, 0, s.Cluster.Nodes()...)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		began := time.Now()
		k := s.Take(l, ttl)
		if readings.Load() < 2 {
			t.Fatal("nobody has read the clock behind the last look: the test tests nothing")
		}
		time.Sleep(pause)
		stood.Store(true)
		if got, want := k.Until(), began.Add(harness.ValidFor(ttl, 1)); !got.Equal(want) || k.Valid() {
			t.Errorf("Until: got %v after the call, valid %v; want %v and false", got.Sub(began), k.Valid(), want.Sub(began))
		}
		held, stop := k.KeepAlive(s.Ctx)
		defer stop()
		s.Is("the cause of a KeepAlive context", context.Cause(held), redlock.ErrLost)
		other := s.Take(s.Locker(redlock.Options{}), time.Minute)
		s.Is("Extend", k.Extend(s.Ctx), redlock.ErrLost)
		s.Is("Release", k.Release(s.Ctx), redlock.ErrLost)
		time.Sleep(2 * time.Second)
		s.Carry("the next holder's", other.Value(), s.All()...)
	})
}

// The longest ttl is longer than the day that a register outlives its lock by. It is
// counted from the last word on the lock all the same, so that whoever is next, and
// slow by hours, has the greater token.
//
// Attack 10.
func TestTokensGrowBehindALockOfTheLongestTTL(t *testing.T) {
	const longest = 24 * 24 * time.Hour
	for name, end := range map[string]func(s *stage, k *redlock.Lock){
		"left to expire": func(s *stage, k *redlock.Lock) { k.LeaveToExpire(); time.Sleep(longest) },
		"released": func(s *stage, k *redlock.Lock) {
			s.Is("Release", k.Release(s.Ctx), nil)
			time.Sleep(longest - 12*time.Hour)
		},
	} {
		t.Run(name, func(t *testing.T) {
			onStage(t, 3, func(s *stage) {
				fast := s.LockerWith(redlock.Options{}, &harness.Clocks{WallAhead: 30 * 24 * time.Hour}, s.Cluster.Nodes())
				k := s.Take(fast, longest)
				if got := s.Node(0).TTL(job); got > longest || got < longest-time.Minute {
					t.Errorf("the key lives for %v, want %v", got, longest)
				}
				end(s, k)
				time.Sleep(time.Millisecond)
				next := s.Take(s.Locker(redlock.Options{}), longest)
				if next.Fence() <= k.Fence() {
					t.Errorf("token: got %d after %d", next.Fence(), k.Fence())
				}
				next.Release(s.Ctx)
			})
		})
	}
}

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
		t.Run(name, func(t *testing.T) {
			onStage(t, 3, func(s *stage) {
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
					t.Fatalf("acquired by one of three and an answer that is none")
				}
				var q *redlock.QuorumError
				if !errors.As(err, &q) {
					t.Fatalf("TryAcquire: got %v, want a QuorumError", err)
				}
				if v := q.Round.Votes[2]; v.Answer == redlock.Yes || name != "one answer too many" && (v.Answer != redlock.Unknown || v.Err == nil) {
					t.Errorf("vote of a node whose answer was %s: got %v, %v; want unknown and why", name, v.Answer, v.Err)
				}
				time.Sleep(3 * time.Second)
				for n := range 30 { // if what is left of it were read later, these would tell
					key := fmt.Sprint("after/", n)
					k, err := l.TryAcquire(s.Ctx, key, time.Minute)
					if err != nil {
						t.Fatalf("lock %d afterwards: %v", n, err)
					}
					if _, ok := within(20*time.Millisecond, func() bool { v, _ := s.Node(2).Get(key); return v == k.Value() }); !ok {
						t.Errorf("lock %d afterwards: the node has not %q", n, k.Value())
					}
					if st, err := l.Inspect(s.Ctx, key); err != nil || st.Nodes[2].Value != k.Value() || st.Nodes[2].Err != nil {
						t.Errorf("lock %d afterwards: Inspect got %v, %+v", n, err, st.Nodes)
					}
					s.Is("Extend", k.Extend(s.Ctx), nil)
					s.Is("Release", k.Release(s.Ctx), nil)
				}
				s.Clean(l)
			})
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
		s.Carry("nobody got that", "", s.All()...)
		nodes[1] = s.Cluster.Nodes()[1]
		l = s.Cold(redlock.Options{}, nil, nodes)
		at = time.Now()
		s.Is("Release", s.Take(l, 10*time.Second).Release(s.Ctx), nil)
		if d := time.Since(at); d > 10*oneTrip { // with dials
			t.Errorf("with one of three: it took %v, want no time", d)
		}
	})
}

// Clients that were given other lists of nodes notice nothing. Lists that differ by one
// node, as they do while a node is added or taken away, still exclude each other: their
// majorities share a node. Lists that differ by more need not, and docs/operations.md
// asks for the same everywhere.
//
// Attacks 54, 55.
func TestListsThatDifferByOneNodeExcludeEachOther(t *testing.T) {
	for n := 1; n <= 6; n++ { // the shorter list's length
		for without := range n + 1 {
			onStage(t, n+1, func(s *stage) {
				long := s.Locker(redlock.Options{})
				all := s.Cluster.Nodes()
				short := s.LockerWith(redlock.Options{}, nil, slices.Concat(all[:without], all[without+1:]))
				members := slices.DeleteFunc(s.All(), func(i int) bool { return i == without })
				try := func(what string, first, second *redlock.Locker, bare []int) {
					t.Helper()
					for i := range n + 1 { // it has a bare majority of its list
						if !slices.Contains(bare, i) {
							s.Foreign(20*time.Millisecond, i)
						}
					}
					k := s.Take(first, time.Minute)
					time.Sleep(30 * time.Millisecond)
					s.Carry(what, k.Value(), bare...)
					if other, err := second.TryAcquire(s.Ctx, job, time.Minute); err == nil {
						t.Errorf("%d nodes, one list without %d, %s: two hold it, with %d and %d", n+1, without, what, k.Fence(), other.Fence())
					}
					time.Sleep(time.Second)
					s.Is("Release", k.Release(s.Ctx), nil)
					time.Sleep(time.Second)
					next, err := second.TryAcquire(s.Ctx, job, time.Minute)
					if err != nil || next.Fence() <= k.Fence() {
						t.Fatalf("%s, released: got %v, %v; want it free, and a greater token", what, next, err)
					}
					s.Is("Release", next.Release(s.Ctx), nil)
					time.Sleep(time.Second)
				}
				try("held by the short list", short, long, members[:n/2+1])
				try("held by the long list", long, short, s.All()[:(n+1)/2+1])
			})
		}
	}
}

// pick returns the nodes with these indices, as a new client process.
func (s *stage) pick(list []int) []redlock.Node {
	all := s.Cluster.Nodes()
	var nodes []redlock.Node
	for _, i := range list {
		nodes = append(nodes, all[i])
	}
	return nodes
}

// takeOn has a client acquire the lock on these nodes only: on all others somebody else is in
// the way for a moment.
func (s *stage) takeOn(l *redlock.Locker, ttl time.Duration, on ...int) *redlock.Lock {
	s.Helper()
	s.Foreign(20*time.Millisecond, slices.DeleteFunc(s.All(), func(i int) bool { return slices.Contains(on, i) })...)
	k := s.Take(l, ttl)
	time.Sleep(30 * time.Millisecond)
	s.Carry("the lock", k.Value(), on...)
	return k
}

// bareMajorities are the majorities of a list that could do without none of their nodes.
func bareMajorities(list []int) (all [][]int) {
	for set := range 1 << len(list) {
		var m []int
		for i, node := range list {
			if set&(1<<i) != 0 {
				m = append(m, node)
			}
		}
		if len(m) == len(list)/2+1 {
			all = append(all, m)
		}
	}
	return all
}

// A rolling deployment that replaces one node by another: {b,c} is a majority of {a,b,c}, {a,d}
// is one of {a,b,d}, and they share no node. docs/operations.md warns of it.
//
// Attack 55.
func TestANodeReplacedInOneStepGivesTwoHolders(t *testing.T) {
	onStage(t, 4, func(s *stage) {
		before, after := s.LockerWith(redlock.Options{}, nil, s.pick([]int{0, 1, 2})), s.LockerWith(redlock.Options{}, nil, s.pick([]int{0, 1, 3}))
		k := s.takeOn(before, time.Minute, 1, 2)
		other := s.Take(after, time.Minute)
		s.Carry("the other", other.Value(), 0, 3)
		if !k.Valid() || !other.Valid() {
			t.Errorf("valid: %v and %v, want both: the warning of docs/operations.md is in vain", k.Valid(), other.Valid())
		}
	})
}

// The same in two steps, with every client moved before the next begins: first the new node is
// added, then the old one is taken away. In each step any majority of one list shares a node
// with any of the other. So no two hold the lock, and tokens grow whatever clocks say.
//
// Attack 55.
func TestANodeReplacedInTwoStepsKeepsOneHolder(t *testing.T) {
	for _, n := range []int{1, 3, 5} {
		before, both := make([]int, n), make([]int, n+1)
		for i := range both {
			both[i] = i
		}
		copy(before, both)
		after := append(slices.Clone(before[:n-1]), n) // without the last of those before
		for _, step := range [][2][]int{{before, both}, {both, after}} {
			onStage(t, n+1, func(s *stage) {
				var late harness.Clocks
				late.MoveWall(-time.Hour)
				old, next := s.LockerWith(redlock.Options{}, nil, s.pick(step[0])), s.LockerWith(redlock.Options{}, &late, s.pick(step[1]))
				exclude := func(l, other *redlock.Locker, list []int) {
					for _, m := range bareMajorities(list) {
						k := s.takeOn(l, time.Minute, m...)
						if got, err := other.TryAcquire(s.Ctx, job, time.Minute); err == nil {
							t.Errorf("%v to %v, held on %v: two hold it, with %d and %d", step[0], step[1], m, k.Fence(), got.Fence())
						}
						time.Sleep(time.Second)
						s.Is("Release", k.Release(s.Ctx), nil)
						time.Sleep(time.Second)
						then, err := other.TryAcquire(s.Ctx, job, time.Minute)
						if err != nil || then.Fence() <= k.Fence() {
							t.Fatalf("%v to %v, released on %v: got %v, %v; want it free, and a token above %d", step[0], step[1], m, then, err, k.Fence())
						}
						s.Is("Release", then.Release(s.Ctx), nil)
						time.Sleep(time.Second)
					}
				}
				exclude(old, next, step[0])
				exclude(next, old, step[1])
			})
		}
	}
}

// Lists whose majorities need share no node are safe one after the other, with no client at work
// for the longest ttl between them: the second step of a replacement for a key that
// nobody has locked since the first, and the restart of everything with any other nodes. Tokens
// then stand on the clients' clocks: these must differ by less than that time.
//
// Attacks 55, 69.
func TestBetweenListsThatShareNothingTheLongestTTLHasToPass(t *testing.T) {
	const ttl = 10 * time.Second
	for _, lists := range []struct {
		name          string
		before, after []int
		down          [2][]int // out of reach for the clients before, and for those after
	}{
		{"a node replaced", []int{0, 1, 2}, []int{0, 1, 3}, [2][]int{{0}, {1}}},
		{"other nodes", []int{0, 1, 2}, []int{3, 4, 5}, [2][]int{}},
	} {
		for _, tt := range []struct {
			wait, late time.Duration // since the grant; the later clients' clocks against the earlier ones'
			both       bool
			grows      bool
		}{
			{ttl / 2, 0, true, true},
			{ttl, 0, false, true},
			{ttl, ttl - time.Second, false, true},
			{ttl, ttl + time.Second, false, false},
		} {
			t.Run(fmt.Sprintf("%s, after %v, clocks %v apart", lists.name, tt.wait, tt.late), func(t *testing.T) {
				onStage(t, 6, func(s *stage) {
					var late harness.Clocks
					late.MoveWall(-tt.late)
					reach := func(list []int, yes bool) {
						for _, i := range list {
							s.Node(i).Refuse(!yes)
						}
					}
					reach(lists.down[0], false)
					old := s.Cold(redlock.Options{}, nil, s.pick(lists.before))
					k := s.Take(old, ttl)
					granted := time.Now()
					time.Sleep(time.Second)
					k.LeaveToExpire() // nothing tells it from the lock of one that was killed
					s.Is("Close", old.Close(), nil)
					reach(lists.down[0], true)
					reach(lists.down[1], false)
					time.Sleep(tt.wait - time.Since(granted))
					then := s.Take(s.Cold(redlock.Options{}, &late, s.pick(lists.after)), ttl)
					if both := time.Now().Before(k.Until()); both != tt.both {
						t.Errorf("both within their Until: got %v, want %v", both, tt.both)
					}
					if grows := then.Fence() > k.Fence(); grows != tt.grows {
						t.Errorf("tokens %d and %d: grow %v, want %v", k.Fence(), then.Fence(), grows, tt.grows)
					}
				})
			})
		}
	}
}

// A node is replaced by an empty machine at its address, while a holder has it in a bare
// majority. It grants nothing too early under a RestartGuard, if its server was started after the
// old one had gone; or without a guard, if nothing answered there for the longest ttl.
//
// Attacks 49, 55.
func TestAnEmptyMachineAtTheSameAddress(t *testing.T) {
	const ttl = 10 * time.Second
	for _, tt := range []struct {
		name    string
		guard   time.Duration
		started bool          // its server was started at the switch
		away    time.Duration // nothing answers at the address for so long
		both    bool
	}{
		{"with a guard", ttl, true, 0, false},
		{"with a guard, and a server that has been up for long", ttl, false, 0, true},
		{"without a guard", 0, true, 0, true},
		{"without a guard, after the longest ttl", 0, true, ttl, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			onStage(t, 4, func(s *stage) {
				var at atomic.Int32 // which machine has the address of the third node
				at.Store(2)
				client := func() *redlock.Locker {
					i := -1
					clients := s.Cluster.ClientsWith(func(o *redis.Options) {
						if i++; i == 2 {
							o.Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) { return s.Node(int(at.Load())).Dial(ctx) }
						}
					})
					return s.Cold(redlock.Options{RestartGuard: tt.guard}, nil, harness.Nodes(clients[:3]))
				}
				time.Sleep(time.Hour) // all servers have been up for longer than any guard
				holder, other := client(), client()
				for _, l := range []*redlock.Locker{holder, other} {
					s.Is("Release", s.Take(l, ttl).Release(s.Ctx), nil)
					time.Sleep(time.Second)
				}
				s.Foreign(20*time.Millisecond, 0)
				k := s.Take(holder, ttl)
				s.Carry("the lock", k.Value(), 1, 2)
				s.Node(2).Stop()
				if tt.started {
					s.Node(3).Restart(false)
				}
				time.Sleep(tt.away)
				at.Store(3)
				got := false
				for time.Now().Before(k.Until()) && !got {
					next, err := other.TryAcquire(s.Ctx, job, ttl)
					if got = err == nil; got && tt.away == 0 {
						s.Carry("the other", next.Value(), 0, 3)
					}
					time.Sleep(100 * time.Millisecond)
				}
				if got != tt.both {
					t.Errorf("two holders at once: got %v, want %v", got, tt.both)
				}
				time.Sleep(time.Minute) // and then it is a node like the others
				s.Node(0).Stop()
				s.Take(s.Cold(redlock.Options{RestartGuard: tt.guard}, nil, s.pick([]int{0, 1, 3})), ttl)
			})
		})
	}
}

// What says yes after the verdict stays, and is a reserve for what the others forget.
//
// Attack 56.
func TestGrantsThatComeAfterTheVerdictAreAReserve(t *testing.T) {
	onStage(t, 5, func(s *stage) {
		a, b := s.Locker(redlock.Options{}), s.Locker(redlock.Options{})
		s.Slow(80*time.Millisecond, 3, 4)
		var k *redlock.Lock
		s.Lasts("TryAcquire", 0, func() { k = s.Take(a, 10*time.Second) })
		s.Carry("at the verdict", k.Value(), 0, 1, 2)
		time.Sleep(100 * time.Millisecond)
		s.Carry("afterwards", k.Value(), s.All()...)
		s.Slow(0, 3, 4)
		s.Node(0).FlushAll()
		s.Node(2).FlushAll()
		_, err := b.TryAcquire(s.Ctx, job, time.Minute)
		s.Is("TryAcquire of another, with two of the first three empty", err, redlock.ErrHeld)
		time.Sleep(time.Second)
		s.Is("Extend", k.Extend(s.Ctx), nil)
		time.Sleep(oneTrip)
		s.Carry("healed", k.Value(), s.All()...)
		s.Is("Release", k.Release(s.Ctx), nil)
		s.Clean(a, b)
	})
}

// Where every register is lost tokens are what the clients' clocks make them: in order
// where these differ by less than the time since the last grant, to the microsecond.
//
// Attack 69.
func TestTokensAfterALossOfAllRegistersAreInOrderWithinTheClocks(t *testing.T) {
	const ttl = time.Second
	for _, late := range []time.Duration{time.Microsecond, 0, -time.Microsecond} {
		onStage(t, 3, func(s *stage) {
			var ha, hb harness.Clocks
			a, b := s.LockerWith(redlock.Options{}, &ha, s.Cluster.Nodes()), s.LockerWith(redlock.Options{}, &hb, s.Cluster.Nodes())
			ha.Stop() // so that both stand at whole microseconds
			hb.Stop()
			ha.Pass(hb.Wall().Sub(ha.Wall()))
			k := s.Take(a, ttl)
			for i := range 3 {
				s.Node(i).Stop()
				s.Node(i).FlushAll()
			}
			time.Sleep(2 * ttl) // they stay away, for longer than any ttl
			for i := range 3 {
				s.Node(i).Start()
			}
			s.Reconnect(b)
			hb.Pass(time.Hour) // since the grant, by a true clock
			hb.MoveWall(late - time.Hour)
			next := s.Take(b, ttl)
			if got, want := next.Fence()-k.Fence(), late.Microseconds(); got != want {
				t.Errorf("clocks that differ by %v less than the time since the grant: the token is %d above the one before, want %d", late, got, want)
			}
		})
	}
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
		t.Run(name, func(t *testing.T) {
			onStage(t, 5, func(s *stage) {
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
					t.Helper()
					var err error
					d := took(func() { err = f() })
					if err != nil || d < far[4] || d > far[4]+2*oneTrip {
						t.Errorf("%s with the two nearest %s: took %v, %v; want the farthest's %v", what, name, d, err, far[4])
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
		})
		t.Run(name+" before they were ever met", func(t *testing.T) {
			onStage(t, 5, func(s *stage) {
				for i, d := range far {
					s.Slow(d, i)
				}
				for i := range 2 {
					dies(s, i)
				}
				l := s.Cold(redlock.Options{}, nil, s.Cluster.Nodes())
				var k *redlock.Lock
				var err error
				d := took(func() { k, err = l.TryAcquire(s.Ctx, job, 10*time.Second) })
				if want := 6 * far[4]; err != nil || d > want { // a dial, what it is set up with, scripts
					t.Fatalf("TryAcquire: got %v after %v, want the lock within %v", err, d, want)
				}
				s.Is("Release", k.Release(s.Ctx), nil)
				s.Clean(l)
			})
		})
	}
}
