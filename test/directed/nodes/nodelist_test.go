package nodes_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/harness"
)

// Clients that were given other lists of nodes notice nothing. Lists that differ by one node, as they do while a node is added or
// taken away, still exclude each other: any majority of one list shares a node with any of the other. So no two clients hold the
// lock, and tokens grow whatever clocks say, also where a node is replaced in two steps, with every client moved before the
// second begins. Lists that differ by more need not, and docs/operations.md asks for the same everywhere.
//
// Attacks 54, 55.
func TestListsThatDifferByOneNodeExcludeEachOther(t *testing.T) {
	for n := 1; n <= harness.Rounds(3, 5); n++ { // the shorter list's length
		for without := range n + 1 {
			runStage(t, fmt.Sprintf("%d nodes and one without node %d", n+1, without), n+1, func(s *stage) {
				var late harness.Clocks
				late.MoveWall(-time.Hour)
				short := slices.DeleteFunc(s.All(), func(i int) bool { return i == without })
				a, b := s.LockerWith(redlock.Options{}, nil, s.pick(short)), s.LockerWith(redlock.Options{}, &late, s.Cluster.Nodes())
				exclude := func(l, other *redlock.Locker, list []int) {
					for _, m := range bareMajorities(list) {
						k := s.takeOn(l, time.Minute, m...)
						if got, err := other.TryAcquire(s.Ctx, job, time.Minute); err == nil {
							s.Errorf("held on %v: two hold it, with %d and %d", m, k.Fence(), got.Fence())
						}
						time.Sleep(time.Second)
						s.Is("Release", k.Release(s.Ctx), nil)
						time.Sleep(time.Second)
						then, err := other.TryAcquire(s.Ctx, job, time.Minute)
						if err != nil || then.Fence() <= k.Fence() {
							s.Fatalf("released on %v: got %v, %v; want it free, and a token above %d", m, then, err, k.Fence())
						}
						s.Is("Release", then.Release(s.Ctx), nil)
						time.Sleep(time.Second)
					}
				}
				exclude(a, b, short)
				exclude(b, a, s.All())
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
			runStage(t, fmt.Sprintf("%s, after %v, clocks %v apart", lists.name, tt.wait, tt.late), 6, func(s *stage) {
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
				k.LeaveUntil(s.Ctx, k.Until()) // nothing tells it from the lock of one that was killed
				s.Is("Close", old.Close(), nil)
				reach(lists.down[0], true)
				reach(lists.down[1], false)
				time.Sleep(tt.wait - time.Since(granted))
				then := s.Take(s.Cold(redlock.Options{}, &late, s.pick(lists.after)), ttl)
				if both := time.Now().Before(k.Until()); both != tt.both {
					s.Errorf("both within their Until: got %v, want %v", both, tt.both)
				}
				if grows := then.Fence() > k.Fence(); grows != tt.grows {
					s.Errorf("tokens %d and %d: grow %v, want %v", k.Fence(), then.Fence(), grows, tt.grows)
				}
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
		runStage(t, tt.name, 4, func(s *stage) {
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
				s.Errorf("two holders at once: got %v, want %v", got, tt.both)
			}
			time.Sleep(time.Minute) // and then it is a node like the others
			s.Node(0).Stop()
			s.Take(s.Cold(redlock.Options{RestartGuard: tt.guard}, nil, s.pick([]int{0, 1, 3})), ttl)
		})
	}
}
