package redlock_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/harness"
)

// This file follows the Redis page "Distributed Locks with Redis", one test per
// sentence that a client can keep or break. The section stands above each, with the
// sentence where it helps.

// Safety and Liveness Guarantees, 1: "Mutual exclusion. At any given moment, only
// one client can hold a lock."
//
// Attack 87.
func TestAtAnyMomentOnlyOneClientHoldsTheLock(t *testing.T) {
	harness.OnStage(t, 5, func(s *harness.Stage) { // of six that wait all hold it in the end, one at a time
		var wg sync.WaitGroup
		var inside atomic.Int32
		for range 6 {
			l := s.Locker(redlock.Options{})
			wg.Go(func() {
				k, err := l.Acquire(s.Ctx, job, 10*time.Second)
				if err != nil {
					s.Errorf("Acquire: got %v, want the lock", err)
					return
				}
				if n := inside.Add(1); n != 1 {
					s.Errorf("holders at once: got %d, want 1", n)
				}
				time.Sleep(20 * time.Millisecond)
				inside.Add(-1)
				s.Is("Release", k.Release(s.Ctx), nil)
			})
		}
		wg.Wait()
	})
}

// Safety and Liveness Guarantees, 2: "Deadlock free. Eventually it is always possible
// to acquire a lock, even if the client that locked a resource crashes or gets
// partitioned."
//
// Attack 18.
func TestALockWhoseHolderIsCutOffIsFreeAfterItsTTL(t *testing.T) {
	harness.OnStage(t, 5, func(s *harness.Stage) {
		clients := s.Cluster.Clients()
		gone := s.LockerWith(redlock.Options{}, nil, harness.Nodes(clients))
		b := s.Locker(redlock.Options{})
		began := time.Now()
		first := s.Take(gone, 2*time.Second)
		s.Cluster.Cut(clients...)
		k, err := b.Acquire(s.Ctx, job, time.Second)
		if err != nil {
			t.Fatalf("Acquire: got %v, want the lock", err)
		}
		waited := time.Since(began)
		if longest := 2*time.Second + 260*time.Millisecond; waited > longest {
			t.Errorf("waited: got %v, want at most the ttl and one pause, %v", waited, longest)
		}
		if time.Now().Before(first.Until()) {
			t.Errorf("taken %v before the other's Until", time.Until(first.Until()))
		}
		s.Is("Release", k.Release(s.Ctx), nil)
	})
}

// Correct Implementation with a Single Instance: "The command will set the key only
// if it does not already exist (NX option), with an expire of 30000 milliseconds (PX
// option). The key is set to a value […] This value must be unique across all clients
// and all lock requests." The Redlock Algorithm, 2: "using the same key name and
// random value in all the instances".
func TestTheKeyIsSetIfItDoesNotExistWithAnExpiryAndTheSameValueOnAllNodes(t *testing.T) {
	harness.OnStage(t, 5, func(s *harness.Stage) {
		k := s.Take(s.Locker(redlock.Options{}), 30*time.Second)
		time.Sleep(oneTrip)
		for i := range 5 {
			sets := s.Told(i, "acquire")
			if len(sets) != 1 {
				t.Fatalf("node %d was asked %d times, want once", i, len(sets))
			}
			want := []string{"set", job, k.Value().Secret(), "nx", "get", "px", "30000"}
			if got := sets[0].Args; !slices.Equal(got, want) {
				t.Errorf("node %d: got %q, want %q", i, got, want)
			}
		}
		s.Carry("after the acquisition", k.Value(), 0, 1, 2, 3, 4)
		if ttl := s.Node(0).TTL(job); ttl > 30*time.Second || ttl < 29*time.Second {
			t.Errorf("ttl on a node: got %v, want 30s", ttl)
		}
	})
}

// Attack 23.
func TestValuesAreUniqueOverAllClientsAndAllRequests(t *testing.T) {
	harness.OnStage(t, 3, func(s *harness.Stage) {
		s.Foreign(time.Minute, 0, 1)
		for range 4 {
			l, err := redlock.New(redlock.Options{Name: "same"}, s.Cluster.Nodes()...) // not seeded
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			for range 7 {
				l.TryAcquire(s.Ctx, job, time.Second)
				ctx, cancel := context.WithTimeout(s.Ctx, 20*time.Millisecond)
				l.Acquire(ctx, job, time.Second, redlock.WithLabel("same"))
				cancel()
			}
		}
		seen := make(map[string]bool)
		sets := s.Told(2, "acquire")
		for _, c := range sets {
			v := harness.ValueOf(c.Args)
			if seen[v] {
				t.Errorf("the value %s was used for two requests", v)
			}
			seen[v] = true
			if !strings.HasPrefix(v, "same:") || len(v) != len("same:")+36 {
				t.Errorf("value: got %q, want the label, a colon and a uuid", v)
			}
		}
		if len(sets) < 4*7 { // each TryAcquire asks
			t.Errorf("requests seen: got %d, want at least 28", len(sets))
		}
	})
}

// The Redlock Algorithm, 1 and 4: "It gets the current time" before anything is sent;
// "its validity time is considered to be the initial validity time minus the time
// elapsed". Is the Algorithm Asynchronous?: "minus some time […] to compensate for
// clock drift". So Until is the time of the call, plus the ttl, less the drift, less 2
// ms for rounding, however long the answers took.
//
// Attack 12.
func TestUntilCountsFromBeforeTheFirstRequest(t *testing.T) {
	ttls := []time.Duration{40 * time.Millisecond, 999 * time.Millisecond, 10 * time.Second, time.Hour, 1234567891 * time.Nanosecond, 24 * 24 * time.Hour}
	for _, percent := range []int64{1, 5, 50} {
		for _, ttl := range ttls {
			if percent == 50 && ttl < time.Second {
				continue // leaves hardly anything
			}
			for what, slow := range map[string]time.Duration{"prompt": 0, "slow": ttl / 20} {
				harness.RunStage(t, fmt.Sprintf("drift %d %%, ttl %v, %s replies", percent, ttl, what), 3, func(s *harness.Stage) {
					slow := min(slow, 900*time.Millisecond)
					l := s.Locker(redlock.Options{Drift: float64(percent) / 100})
					s.Slow(slow, 0, 1, 2)
					began := time.Now()
					k := s.Take(l, ttl)
					if took := time.Since(began); took < slow {
						s.Fatalf("the answers took %v, want %v: the test tests nothing", took, slow)
					}
					if got, want := k.Until(), began.Add(harness.ValidFor(ttl, percent)); !got.Equal(want) {
						s.Errorf("Until: got %v after the call, want %v", got.Sub(began), want.Sub(began))
					}
					k.Release(s.Ctx)
				})
			}
		}
	}
	harness.RunStage(t, "also before the dials", 3, func(s *harness.Stage) {
		s.Slow(100*time.Millisecond, 0, 1, 2)
		l := s.Cold(redlock.Options{}, nil, s.Cluster.Nodes())
		began := time.Now()
		k := s.Take(l, 10*time.Second)
		if got, want := k.Until().Sub(began), harness.ValidFor(10*time.Second, 1); got != want {
			s.Errorf("Until: got %v after the call, want %v", got, want)
		}
	})
	harness.RunStage(t, "also in a later attempt of Acquire, from that one", 3, func(s *harness.Stage) {
		var seen harness.Observer
		l := s.Locker(redlock.Options{Trace: redlock.Trace{Round: seen.Observe}})
		s.Foreign(time.Second, 0, 1)
		k, err := l.Acquire(s.Ctx, job, 10*time.Second)
		if err != nil {
			s.Fatal(err)
		}
		var last redlock.Round
		for _, r := range seen.Rounds() {
			if r.Op == redlock.OpAcquire {
				last = r
			}
		}
		if got, want := k.Until(), last.Start.Add(harness.ValidFor(10*time.Second, 1)); !got.Equal(want) || last.Attempt < 2 {
			s.Errorf("Until after attempt %d: got %v, want %v", last.Attempt, got, want)
		}
	})
}

// The Redlock Algorithm, 2: "the client uses a timeout which is small compared to the
// total lock auto-release time".
func TestANodeThatDoesNotAnswerCostsASmallTimeout(t *testing.T) {
	for _, c := range []struct {
		ttl, timeout, want time.Duration
	}{
		{5 * time.Second, 0, 500 * time.Millisecond},
		{100 * time.Millisecond, 0, 10 * time.Millisecond},
		{time.Hour, 0, time.Second},
		{time.Hour, 50 * time.Millisecond, 50 * time.Millisecond},
	} {
		harness.RunStage(t, fmt.Sprintf("ttl %v, NodeTimeout %v", c.ttl, c.timeout), 3, func(s *harness.Stage) {
			l := s.Locker(redlock.Options{NodeTimeout: c.timeout})
			s.Node(1).Hang()
			s.Node(2).Partition()
			s.Lasts("a majority that hangs", c.want, func() {
				_, err := l.TryAcquire(s.Ctx, job, c.ttl)
				s.Is("TryAcquire", err, redlock.ErrNoQuorum)
				s.Says(err, "node-b:6379 timeout", "node-c:6379 timeout", "node-a:6379 yes")
				harness.CheckIsNot(s, "TryAcquire", err, context.DeadlineExceeded, context.Canceled)
			})
			s.Lasts("the next call, which knows that they are down", 0, func() {
				_, err := l.TryAcquire(s.Ctx, job, c.ttl)
				s.Is("TryAcquire", err, redlock.ErrNoQuorum)
				s.Says(err, "down: timeout")
			})
			s.Clean(l)
		})
	}
}

// Retry on Failure: "ideally the client should try to send the SET commands to the N
// instances at the same time using multiplexing". So the time is that of the slowest
// of the majority, not the sum; the same for extend and release.
func TestAllNodesAreAskedAtOnce(t *testing.T) {
	harness.OnStage(t, 5, func(s *harness.Stage) {
		l := s.Locker(redlock.Options{})
		for i := range 5 {
			s.Slow(time.Duration(i+1)*20*time.Millisecond, i)
		}
		var k *redlock.Lock
		began := time.Now()
		s.Lasts("TryAcquire", 60*time.Millisecond, func() { k = s.Take(l, 10*time.Second) })
		time.Sleep(700 * time.Millisecond)
		s.Lasts("Extend", 60*time.Millisecond, func() { s.Is("Extend", k.Extend(s.Ctx), nil) })
		time.Sleep(time.Second)
		s.Lasts("Release", 60*time.Millisecond, func() { s.Is("Release", k.Release(s.Ctx), nil) })
		for i := range 5 {
			// Half a round trip after the call: it left when the call was made.
			at := s.Told(i, "acquire")[0].At.Sub(began)
			if want := time.Duration(i+1) * 10 * time.Millisecond; at < want || at > want+oneTrip {
				t.Errorf("node %d was asked after %v, want %v", i, at, want)
			}
		}
	})
}

// The Redlock Algorithm, 3: "If and only if the client was able to acquire the lock in
// the majority of the instances (at least 3)". Safety and Liveness Guarantees, 3: "Fault
// tolerance. As long as the majority of Redis nodes are up, clients are able to acquire
// and release locks."
//
// Attack 52.
func TestTheLockIsAcquiredIfAndOnlyIfAMajorityIsOurs(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4, 5, 7} {
		for lost := range n + 1 {
			for why, refusal := range map[string]error{"are down": redlock.ErrNoQuorum, "hold another's": redlock.ErrHeld} {
				harness.RunStage(t, fmt.Sprintf("%d of %d %s", lost, n, why), n, func(s *harness.Stage) {
					l := s.Locker(redlock.Options{})
					others := s.All()[:lost]
					if why == "are down" {
						for _, i := range others {
							s.Node(i).Stop()
						}
						others = nil
					}
					s.Foreign(time.Minute, others...)
					if 2*(n-lost) > n { // of the nodes configured, never of those that answer
						k := s.Take(l, 10*time.Second)
						s.Is("Extend", k.Extend(s.Ctx), nil)
						s.Is("Release", k.Release(s.Ctx), nil)
					} else if k, err := l.TryAcquire(s.Ctx, job, 10*time.Second); k != nil {
						s.Errorf("got the lock %v, want none", k)
					} else {
						s.Is("TryAcquire", err, refusal)
					}
					s.Clean(l)
					s.Carry("afterwards", redlock.ValueOf(otherValue), others...)
				})
			}
		}
	}
}

// The Redlock Algorithm, 3: "and the total time elapsed to acquire the lock is less
// than lock validity time". Safety Arguments: "If a client locked the majority of
// instances using a time near, or greater, than the lock maximum validity time […] it
// will consider the lock invalid and will unlock the instances".
//
// Attack 1.
func TestAMajorityThatIsCompleteAfterTheValidityIsNoLock(t *testing.T) {
	const ttl = 10 * time.Second
	valid := harness.ValidFor(ttl, 1)
	for _, c := range []struct {
		name    string
		elapsed time.Duration
		won     bool
	}{
		{"a microsecond of validity is left", valid - time.Microsecond, true},
		{"exactly nothing is left", valid, false},
		{"the ttl is over", ttl, false},
		{"an hour later", time.Hour, false},
	} {
		harness.RunStage(t, c.name, 3, func(s *harness.Stage) {
			var h harness.Clocks // of a process that is stopped while the answers wait in its sockets
			l := s.LockerWith(redlock.Options{}, &h, s.Cluster.Nodes())
			h.Stop()
			began := h.Steady()
			s.Once(0, "acquire", func() { h.Pass(c.elapsed) })
			k, err := l.TryAcquire(s.Ctx, job, ttl)
			if c.won {
				if err != nil {
					s.Fatalf("got %v, want the lock", err)
				}
				if got := k.Until().Sub(began); got != valid || !k.Valid() {
					s.Errorf("Until: got %v after the call, valid: %v; want %v and true", got, k.Valid(), valid)
				}
				return
			}
			s.Is("TryAcquire", err, redlock.ErrNoQuorum)
			s.Says(err, "validity")
			s.Clean(l)
		})
	}
	harness.RunStage(t, "the machine was suspended, its steady clock stood still", 3, func(s *harness.Stage) {
		var h harness.Clocks
		l := s.LockerWith(redlock.Options{}, &h, s.Cluster.Nodes())
		s.Once(1, "acquire", func() { h.MoveWall(time.Minute) })
		_, err := l.TryAcquire(s.Ctx, job, ttl)
		s.Is("TryAcquire", err, redlock.ErrNoQuorum)
		s.Clean(l)
	})
}

// The Redlock Algorithm, 5: "If the client failed to acquire the lock for some reason
// […] it will try to unlock all the instances (even the instances it believed it was
// not able to lock)."
//
// Attacks 20, 21, 35.
func TestAFailedAttemptIsUnlockedOnAllNodesThatMayHoldIt(t *testing.T) {
	type fault func(s *harness.Stage, i int)
	for name, f := range map[string]fault{
		"said yes":                       func(s *harness.Stage, i int) {},
		"executed, the connection reset": func(s *harness.Stage, i int) { s.Once(i, "acquire", func() { s.Node(i).DropReplies(2) }) },
		"executed, the reply lost":       func(s *harness.Stage, i int) { s.Once(i, "acquire", func() { s.Node(i).LoseReplies(2) }) },
		"executed, the way back cut":     func(s *harness.Stage, i int) { s.Once(i, "acquire", s.Node(i).PartitionReplies) },
		"hung before it executed":        func(s *harness.Stage, i int) { s.Once(i, "acquire", s.Node(i).Hang) },
		"cut off before it heard of it":  func(s *harness.Stage, i int) { s.Node(i).Partition() },
		"slower than the timeout":        func(s *harness.Stage, i int) { s.Slow(1500*time.Millisecond, i) },
		"register of the wrong type":     func(s *harness.Stage, i int) { s.Do(i, "SET", jobRegister, "word", "PX", "100000") },
		"lock set, then an error on ZADD": func(s *harness.Stage, i int) {
			s.Node(i).FailCommand("zadd", "OOM command not allowed when used memory > 'maxmemory'.")
		},
	} {
		harness.RunStage(t, name, 5, func(s *harness.Stage) {
			l := s.Locker(redlock.Options{})
			s.Foreign(time.Minute, 0, 1)
			f(s, 2)
			f(s, 3)
			f(s, 4)
			for _, i := range []int{3, 4} { // so that the attempt fails in any case
				if name == "said yes" {
					s.Foreign(time.Minute, i)
				}
			}
			_, err := l.TryAcquire(s.Ctx, job, 5*time.Second)
			if err == nil {
				s.Fatal("TryAcquire: got the lock, want none")
			}
			time.Sleep(300 * time.Millisecond)
			s.Clean(l)
		})
	}
}

// Retry on Failure: "It is worth stressing how important it is for clients that fail to
// acquire the majority of locks, to release the (partially) acquired locks ASAP".
func TestWhatAFailedAttemptHoldsIsFreeARoundTripLater(t *testing.T) {
	harness.OnStage(t, 5, func(s *harness.Stage) {
		l := s.Locker(redlock.Options{})
		s.Foreign(time.Minute, 0, 1, 2)
		_, err := l.TryAcquire(s.Ctx, job, 10*time.Second)
		s.Is("TryAcquire", err, redlock.ErrHeld)
		time.Sleep(2 * oneTrip) // what of the acquire was still under way, and the rollback
		for _, i := range []int{3, 4} {
			if v, ok := s.Node(i).Get(job); ok {
				t.Errorf("node %d holds %s, want nothing", i, v)
			}
		}
		if got := s.Told(0, "rollback"); len(got) > 0 {
			t.Errorf("a node that said who holds it was told %v", got)
		}
	})
}

// Retry on Failure: "it should try again after a random delay in order to try to
// desynchronize multiple clients".
func TestAPauseBeforeTheNextAttemptIsRandom(t *testing.T) {
	harness.OnStage(t, 3, func(s *harness.Stage) {
		const longest = 100 * time.Millisecond
		s.Foreign(time.Minute, 0, 1, 2)
		var mu sync.Mutex
		var asked []int
		retry := func(attempt int) time.Duration {
			mu.Lock()
			defer mu.Unlock()
			asked = append(asked, attempt)
			return longest
		}
		l := s.Locker(redlock.Options{Retry: retry})
		ctx, cancel := context.WithTimeout(s.Ctx, 5*time.Second)
		defer cancel()
		_, err := l.Acquire(ctx, job, time.Second)
		s.Is("Acquire", err, context.DeadlineExceeded)
		s.Is("Acquire", err, redlock.ErrHeld)
		sets := s.Told(0, "acquire", "pttl", "wait") // it tries once, and looks from then on
		distinct := make(map[time.Duration]bool)
		for i := 2; i < len(sets); i++ { // the first look is as soon as releases are heard
			d := sets[i].At.Sub(sets[i-1].At)
			if d < longest/2 || d > longest+2*oneTrip {
				t.Errorf("pause %d: got %v, want between %v and %v", i, d, longest/2, longest)
			}
			distinct[d.Round(time.Millisecond)] = true
		}
		if len(sets) < 40 || len(distinct) < 15 {
			t.Errorf("got %d tries and looks with %d different pauses, want 50 or more and most of them different", len(sets), len(distinct))
		}
		for i, a := range asked {
			if a != i+1 {
				t.Fatalf("Retry was asked for the pauses after attempts %v, want 1, 2, 3 and so on", asked)
			}
		}
	})
}

// The next attempt must not meet what the one before left on a node: there it
// comes after the rollback.
//
// Attack 23.
func TestTheNextAttemptComesAfterItsOwnRollback(t *testing.T) {
	harness.OnStage(t, 5, func(s *harness.Stage) {
		var seen harness.Observer
		l := s.Locker(redlock.Options{Trace: redlock.Trace{Round: seen.Observe}, Retry: func(int) time.Duration { return time.Millisecond }})
		// Three nodes are held by another, which is decided at once. The answers of
		// the two slow ones and their rollbacks take a while.
		s.Foreign(time.Minute, 0, 1, 2)
		s.Slow(100*time.Millisecond, 3, 4)
		s.Once(2, "acquire", func() {
			time.AfterFunc(300*time.Microsecond, func() { s.Node(0).Evict(job); s.Node(1).Evict(job) })
		})
		k, err := l.Acquire(s.Ctx, job, 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if got := seen.Attempts(); got != 2 {
			t.Errorf("acquired with attempt %d, want 2: the attempt before stood in the way", got)
		}
		time.Sleep(time.Second)
		for _, i := range []int{3, 4} {
			var last string
			for _, c := range s.Told(i, "acquire", "rollback") {
				switch v := harness.ValueOf(c.Args); {
				case harness.Verb(c.Args) == "rollback":
					last = ""
				case last != "":
					t.Errorf("node %d was asked for %s before %s was rolled back", i, v, last)
				default:
					last = v
				}
			}
		}
		s.Carry("afterwards", k.Value(), 0, 1, 3, 4)
	})
}

// Releasing the Lock: it "can be performed whether or not the client believes it was
// able to successfully lock a given instance".
//
// Attack 66.
func TestAReleaseGoesToAllNodes(t *testing.T) {
	harness.OnStage(t, 5, func(s *harness.Stage) {
		l := s.Locker(redlock.Options{})
		s.Foreign(time.Minute, 0)                                 // says no
		s.Once(1, "acquire", func() { s.Node(1).DropReplies(2) }) // does not say
		s.Slow(50*time.Millisecond, 2)                            // had not said
		k := s.Take(l, 10*time.Second)
		s.Is("Release", k.Release(s.Ctx), nil)
		time.Sleep(time.Second)
		for i := range 5 {
			got := s.Told(i, "release")
			if len(got) == 0 || harness.ValueOf(got[0].Args) != k.Value().Secret() {
				t.Errorf("node %d was told %v, want the release of %s", i, harness.Verbs(s.Told(i)), k.Value().Secret())
			}
		}
		s.Carry("afterwards", redlock.ValueOf(otherValue), 0)
		s.Clean(l)
	})
}

// Safety Arguments: "we are sure that the first key to expire in the set will exist
// for at least MIN_VALIDITY=TTL-(T2-T1)-CLOCK_DRIFT."
//
// Attacks 7, 48.
func TestAMajorityCarriesTheKeyUntilUntilThoughTheNodesClocksAreFast(t *testing.T) {
	harness.OnStage(t, 5, func(s *harness.Stage) {
		for i := range 5 {
			s.Node(i).SetClockRate(1.01)
		}
		a := s.Locker(redlock.Options{})
		s.Node(4).Stop()
		s.Slow(90*time.Millisecond, 1, 2)
		k := s.Take(a, time.Minute)
		s.Slow(0, 1, 2)
		time.Sleep(time.Until(k.Until()) - time.Microsecond) // the wall clock's grain
		if !k.Valid() {
			t.Errorf("a microsecond before Until: not valid")
		}
		s.Carry("a microsecond before Until", k.Value(), 0, 1, 2, 3)
		time.Sleep(time.Microsecond)
		if k.Valid() {
			t.Errorf("after Until: valid")
		}
	})
	harness.RunStage(t, "and keeps others out until then", 3, func(s *harness.Stage) {
		for i := range 3 {
			s.Node(i).SetClockRate(1.01)
		}
		a, b := s.Locker(redlock.Options{}), s.Locker(redlock.Options{Retry: func(int) time.Duration { return time.Millisecond }})
		k := s.Take(a, 10*time.Second)
		time.Sleep(9500 * time.Millisecond)
		if _, err := b.Acquire(s.Ctx, job, 10*time.Second); err != nil {
			s.Fatal(err)
		}
		if early := time.Until(k.Until()); early > 0 {
			s.Errorf("the next holder was let in %v before Until", early)
		}
	})
}

// Performance, Crash Recovery and fsync: "we just need to make an instance, after a
// crash, unavailable for at least a bit more than the max TTL we use".
//
// Attack 37.
func TestANodeThatStaysAwayForTheTTLAfterACrashLetsNobodyIn(t *testing.T) {
	harness.OnStage(t, 5, func(s *harness.Stage) {
		a, b := s.Locker(redlock.Options{}), s.Locker(redlock.Options{})
		s.Node(3).Stop()
		s.Node(4).Stop()
		k := s.Take(a, 5*time.Second) // by a bare majority
		s.Node(3).Start()
		s.Node(4).Start()
		s.Node(2).Restart(false)
		s.Node(2).Stop()
		for k.Valid() {
			if _, err := b.TryAcquire(s.Ctx, job, 5*time.Second); err == nil {
				t.Fatalf("%v before the holder's Until another took the lock", time.Until(k.Until()))
			}
			time.Sleep(200 * time.Millisecond)
		}
		time.Sleep(200 * time.Millisecond)
		s.Node(2).Start()
		if _, err := b.Acquire(s.Ctx, job, 5*time.Second); err != nil {
			t.Errorf("after the ttl: got %v, want the lock", err)
		}
	})
}
