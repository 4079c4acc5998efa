package nodes_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/harness"
)

// far is a round trip that all else is small against.
const far = 20 * time.Millisecond

// carried is how many registers stand at a token or above.
func carried(s *stage, token int64) (n int) {
	for i := range s.Cluster.Len() {
		if s.Register(i) >= token {
			n++
		}
	}
	return n
}

func TestATokenThatAMajorityCarriesCostsNoFurtherRound(t *testing.T) {
	const hour, little = int64(3600e6), int64(30e3) // µs that another client's clock is ahead
	for _, c := range []struct {
		name   string
		ahead  []int
		by     int64
		first  bool // those that are ahead answer first, else last
		raises int
	}{
		{"no register is ahead", nil, 0, false, 0},
		{"a minority is, and answers last", []int{3, 4}, hour, false, 0},
		{"a minority is, and answers first: the others may be dead", []int{3, 4}, hour, true, 1},
		{"a majority is, by little", []int{0, 1, 2}, little, true, 1},
		{"all are, by little", []int{0, 1, 2, 3, 4}, little, true, 1},
		{"a majority is, by much: the first raise tells by how much", []int{0, 1, 2}, hour, true, 2},
		{"all are, by much", []int{0, 1, 2, 3, 4}, hour, true, 2},
	} {
		runStage(t, c.name, 5, func(s *stage) {
			var seen harness.Observer
			l := s.Locker(redlock.Options{Trace: seen.Trace()})
			high := harness.Micros() + c.by
			s.SetRegister(high, c.ahead...)
			s.Slow(far, s.All()...)
			if !c.first {
				s.Slow(far+time.Millisecond, c.ahead...)
			} else if len(c.ahead) < 3 {
				s.Slow(far-time.Millisecond, c.ahead...)
			}
			before := harness.Micros()
			began := time.Now()
			k := s.Take(l, 10*time.Second)
			took := time.Since(began)
			raises := seen.Count(redlock.OpRaise)
			want := time.Duration(1+c.raises) * far
			if raises != c.raises || took < want || took > want+2*oneTrip {
				s.Errorf("got %d raises and %v, want %d and %v", raises, took, c.raises, want)
			}
			if c.raises == 0 && k.Fence() != before {
				s.Errorf("token: got %d, want the time of the call, %d", k.Fence(), before)
			}
			if c.raises > 0 && len(c.ahead) >= 3 && k.Fence() <= high {
				s.Errorf("token: got %d, want above the registers, %d", k.Fence(), high)
			}
			if got := carried(s, k.Fence()); got < 3 {
				s.Errorf("registers at the token when the call returned: got %d, want a majority", got)
			}
		})
	}
}

// Attacks 8, 68.
func TestTokensGrowOverClientsWhoseClocksDiffer(t *testing.T) {
	for seed := range uint64(2) {
		runStage(t, fmt.Sprintf("seed %d", seed), 5, func(s *stage) {
			random := rand.New(rand.NewPCG(seed, 0))
			var lockers []*redlock.Locker
			for _, skew := range []time.Duration{0, time.Hour, -time.Hour, 87600 * time.Hour, -87600 * time.Hour, time.Millisecond, -time.Second} {
				lockers = append(lockers, s.LockerWith(redlock.Options{}, &harness.Clocks{WallAhead: skew}, s.Cluster.Nodes()))
			}
			last := int64(0)
			for i := range 25 {
				down := random.Perm(5)[:random.IntN(3)]
				s.Hang(down...)
				who := random.IntN(len(lockers))
				k := s.Acquire(lockers[who], 2*time.Second)
				if k.Fence() <= last {
					s.Errorf("acquisition %d, of client %d, without %v: got token %d after %d", i, who, down, k.Fence(), last)
				}
				last = k.Fence()
				if random.IntN(3) == 0 {
					time.Sleep(2 * time.Second) // left to expire
				} else {
					k.Release(s.Ctx)
				}
				s.Resume(down...)
				time.Sleep(time.Duration(random.IntN(500)) * time.Millisecond)
			}
		})
	}
}

// A token must be above that of every holder before, so a node counts only if the
// value is ours there and, by the same delivery, its register moved to the token.

// Attack 67.
func TestARaiseDoesNotCountANodeThatIsNotOursAnyMore(t *testing.T) {
	for name, gone := range map[string]func(s *stage, i int){
		"another took it": func(s *stage, i int) { s.Node(i).Set(job, otherValue, time.Minute) },
		"it is gone":      func(s *stage, i int) { s.Node(i).Evict(job) },
	} {
		runStage(t, name, 3, func(s *stage) {
			l := s.Locker(redlock.Options{})
			high := harness.Micros() + 1e9
			s.SetRegister(high, 0, 1, 2)
			for _, i := range []int{1, 2} {
				s.Once(i, "raise", func() { gone(s, i) })
			}
			_, err := l.TryAcquire(s.Ctx, job, 10*time.Second)
			want := redlock.ErrNoQuorum
			if name == "another took it" {
				want = redlock.ErrHeld
			}
			s.Is("TryAcquire", err, want)
			for _, i := range []int{1, 2} {
				if got := s.Register(i); got != high {
					s.Errorf("node %d, not ours: its register was moved to %d, want %d", i, got, high)
				}
			}
			s.Clean(l)
		})
	}
}

// One register cannot give the same number to two: standing at it does not count.
//
// Attack 67.
func TestARegisterThatStandsAtTheProposalDoesNotCount(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		var h harness.Clocks
		l := s.LockerWith(redlock.Options{}, &h, s.Cluster.Nodes())
		h.Stop()
		now := h.Wall().UnixMicro()
		s.SetRegister(now, 0, 1) // of another that proposed in the same microsecond
		k := s.Take(l, 10*time.Second)
		if k.Fence() <= now {
			t.Errorf("token: got %d, want above %d, which another may have got", k.Fence(), now)
		}
	})
}

// A contender between the round that read the registers and the one that raises
// them.
//
// Attack 67.
func TestAContenderBetweenReadingAndRaisingCostsARoundAndNoToken(t *testing.T) {
	for name, by := range map[string]int64{"to the same token": 0, "beyond it": 5} {
		runStage(t, name, 3, func(s *stage) {
			var seen harness.Observer
			l := s.Locker(redlock.Options{Trace: seen.Trace()})
			s.SetRegister(harness.Micros()+1e9, 0, 1, 2)
			var met atomic.Int64
			for _, i := range []int{1, 2} {
				s.On(i, "raise", func(n int, args []string) {
					if n == 1 {
						var token int64
						fmt.Sscan(args[6], &token)
						met.Store(token + by)
						s.SetRegister(token+by, i)
					}
				})
			}
			k := s.Take(l, 10*time.Second)
			harness.Check(s, "raises", seen.Count(redlock.OpRaise), 2)
			if k.Fence() <= met.Load() || met.Load() == 0 {
				s.Errorf("token: got %d, want above the contender's %d", k.Fence(), met.Load())
			}
			if got := carried(s, k.Fence()); got < 2 {
				s.Errorf("registers at the token: got %d, want a majority", got)
			}
		})
	}
	runStage(t, "who comes between again and again fails an attempt, and the next one starts above", 3, func(s *stage) {
		var seen harness.Observer
		l := s.Locker(redlock.Options{Trace: seen.Trace()})
		s.SetRegister(harness.Micros()+1e9, 0, 1, 2)
		for _, i := range []int{1, 2} {
			s.On(i, "raise", func(n int, args []string) {
				if n <= 2 {
					var token int64
					fmt.Sscan(args[6], &token)
					s.SetRegister(max(token, s.Register(i))+5, i)
				}
			})
		}
		k := s.Acquire(l, 10*time.Second)
		harness.Check(s, "attempts", seen.Attempts(), 2)
		harness.Check(s, "raises", seen.Count(redlock.OpRaise), 2)
		s.Is("Release", k.Release(s.Ctx), nil)
		s.Clean(l)
	})
}

// The validity is measured after the raise: rounds that each are in time may not be
// so together.
//
// Attack 67.
func TestALockWhoseTokenIsAgreedOnAfterTheValidityIsNotAcquired(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{NodeTimeout: 450 * time.Millisecond})
		s.SetRegister(harness.Micros()+1e9, 0, 1, 2)
		s.Slow(400*time.Millisecond, 0, 1, 2)
		for _, i := range []int{1, 2} {
			s.On(i, "raise", func(n int, args []string) { // one more round
				if n == 1 {
					s.SetRegister(harness.Micros()+2e9, i)
				}
			})
		}
		began := time.Now()
		_, err := l.TryAcquire(s.Ctx, job, time.Second)
		if took := time.Since(began); took < 1200*time.Millisecond {
			t.Fatalf("it took %v, want three rounds: the test tests nothing", took)
		}
		s.Is("TryAcquire", err, redlock.ErrNoQuorum)
		s.Says(err, "validity")
		s.Clean(l)
	})
	runStage(t, "the process slept during the raise", 3, func(s *stage) {
		var h harness.Clocks
		l := s.LockerWith(redlock.Options{}, &h, s.Cluster.Nodes())
		s.SetRegister(harness.Micros()+1e9, 0, 1, 2)
		s.Once(0, "raise", func() { h.MoveWall(time.Minute) })
		_, err := l.TryAcquire(s.Ctx, job, 10*time.Second)
		s.Is("TryAcquire", err, redlock.ErrNoQuorum)
		s.Clean(l)
	})
	runStage(t, "and Until counts from the acquire, not from the raise", 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		s.SetRegister(harness.Micros()+1e9, 0, 1, 2)
		s.Slow(400*time.Millisecond, 0, 1, 2)
		began := time.Now()
		k := s.Take(l, 10*time.Second)
		if got, want := k.Until().Sub(began), harness.ValidFor(10*time.Second, 1); got != want {
			s.Errorf("Until: got %v after the call, want %v", got, want)
		}
	})
}

// A value on some nodes and the token on others say nothing together.
func TestValueAndTokenAreCountedOnTheSameNodes(t *testing.T) {
	onStage(t, 5, func(s *stage) {
		var seen harness.Observer
		l := s.Locker(redlock.Options{Trace: seen.Trace()})
		high := harness.Micros() + 1e9
		s.SetRegister(high, 1, 2)    // ours, but ahead
		s.Foreign(time.Minute, 3, 4) // not ours, and their registers move
		k := s.Take(l, 10*time.Second)
		if got := seen.Count(redlock.OpRaise); got == 0 {
			t.Errorf("raises: got none, want some: only one node had both")
		}
		if k.Fence() <= high {
			t.Errorf("token: got %d, want above the registers of the nodes that are ours, %d", k.Fence(), high)
		}
	})
}

func TestANodeThatDiesBetweenAcquireAndRaiseIsReplacedByASlowerOne(t *testing.T) {
	for name, dies := range map[string]func(s *stage, i int){
		"stops": func(s *stage, i int) { s.Node(i).Stop() },
		"hangs": func(s *stage, i int) { s.Node(i).Hang() },
	} {
		runStage(t, name, 5, func(s *stage) {
			l := s.Locker(redlock.Options{})
			high := harness.Micros() + 500 // one raise is enough
			s.SetRegister(high, s.All()...)
			s.Slow(100*time.Millisecond, 3, 4)
			s.Once(0, "raise", func() { dies(s, 0) })
			var k *redlock.Lock
			s.Lasts("TryAcquire", 200*time.Millisecond, func() { k = s.Take(l, 10*time.Second) })
			if k.Fence() <= high {
				s.Errorf("token: got %d, want above %d", k.Fence(), high)
			}
			s.Is("Release", k.Release(s.Ctx), nil)
			s.Clean(l)
		})
	}
}

// Attacks 71, 98.
func TestRegistersThatNoTokenCanBeMadeFrom(t *testing.T) {
	const top = int64(1) << 53
	for _, c := range []struct {
		name  string
		set   []string // the command that puts it there, without the node
		fatal bool     // on a majority
		says  string
	}{
		{"2^53", []string{"ZADD", jobRegister, fmt.Sprint(top), "f"}, true, "2^53"},
		{"2^53 - 1", []string{"ZADD", jobRegister, fmt.Sprint(top - 1), "f"}, true, "2^53"},
		{"2^53 - 2", []string{"ZADD", jobRegister, fmt.Sprint(top - 2), "f"}, true, "2^53"},
		{"far beyond", []string{"ZADD", jobRegister, "1e300", "f"}, true, "2^53"},
		{"infinite", []string{"ZADD", jobRegister, "+inf", "f"}, true, "2^53"},
		{"negative", []string{"ZADD", jobRegister, "-17", "f"}, false, ""},
		{"minus infinite", []string{"ZADD", jobRegister, "-inf", "f"}, false, ""},
		{"a fraction", []string{"ZADD", jobRegister, "0.5", "f"}, false, ""},
		{"a word", []string{"SET", jobRegister, "word"}, true, "WRONGTYPE"},
		{"a list", []string{"RPUSH", jobRegister, "1"}, true, "WRONGTYPE"},
		{"a set with others", []string{"ZADD", jobRegister, "99e15", "not ours"}, false, ""},
	} {
		runStage(t, c.name, 5, func(s *stage) {
			l := s.Locker(redlock.Options{})
			for _, i := range []int{0, 1, 2} {
				if c.name == "a fraction" {
					c.set[2] = fmt.Sprintf("%d.5", harness.Micros()+1e6)
				}
				s.Do(i, c.set...)
			}
			before := make([]int64, 5)
			for i := range before {
				before[i] = s.Register(i)
			}
			k, err := l.TryAcquire(s.Ctx, job, 10*time.Second)
			if !c.fatal {
				if err != nil {
					s.Fatalf("got %v, want the lock", err)
				}
				if slices.Max(before) < top && k.Fence() <= slices.Max(before) {
					s.Errorf("token: got %d, want above %v", k.Fence(), before)
				}
				s.Is("Release", k.Release(s.Ctx), nil)
				s.Clean(l)
				return
			}
			s.Is("TryAcquire", err, redlock.ErrNoQuorum)
			s.Says(err, c.says)
			s.Clean(l)
		})
		if !c.fatal {
			continue
		}
		runStage(t, c.name+" on a minority", 5, func(s *stage) {
			l := s.Locker(redlock.Options{})
			s.Do(0, c.set...)
			s.Do(4, c.set...)
			s.Slow(time.Millisecond, 0, 4)
			k := s.Take(l, 10*time.Second)
			if k.Fence() > harness.Micros() || k.Fence() < harness.Micros()-1e6 {
				s.Errorf("token: got %d, want the time, %d", k.Fence(), harness.Micros())
			}
			s.Is("Extend", k.Extend(s.Ctx), nil)
			s.Is("Release", k.Release(s.Ctx), nil)
		})
	}
	runStage(t, "what does not heal ends Acquire", 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		for i := range 3 {
			s.Do(i, "SET", jobRegister, "word")
		}
		ctx := s.Timeout(time.Minute)
		s.Lasts("Acquire", 0, func() {
			_, err := l.Acquire(ctx, job, 10*time.Second)
			s.Is("Acquire", err, redlock.ErrNoQuorum)
		})
	})
}

// Attacks 8, 98.
func TestClocksThatTellNoPlausibleTimeStillGiveTokens(t *testing.T) {
	year := func(y int) time.Duration { return time.Until(time.Date(y, 1, 1, 0, 0, 0, 0, time.UTC)) }
	for name, skew := range map[string]func() time.Duration{
		"before 1970": func() time.Duration { return year(1960) },
		"at 1970":     func() time.Duration { return year(1970) },
		"2111":        func() time.Duration { return year(2111) },
		"2113":        func() time.Duration { return year(2113) },
		"2290":        func() time.Duration { return year(2290) }, // its microseconds are above 2^53
	} {
		runStage(t, name, 3, func(s *stage) {
			truthful := s.Locker(redlock.Options{})
			odd := s.LockerWith(redlock.Options{}, &harness.Clocks{WallAhead: skew()}, s.Cluster.Nodes())
			last := int64(0)
			for i, l := range []*redlock.Locker{odd, odd, truthful, odd, truthful, truthful} {
				k := s.Take(l, 10*time.Second)
				if k.Fence() <= last || k.Fence() >= 1<<53 {
					s.Errorf("acquisition %d: got token %d after %d, want a greater one below 2^53", i, k.Fence(), last)
				}
				last = k.Fence()
				s.Is("Release", k.Release(s.Ctx), nil)
				time.Sleep(time.Second)
			}
			if last > 1<<52+1<<40 {
				s.Errorf("the odd clock used up the tokens: got %d", last)
			}
			// Other locks are not concerned.
			k, err := truthful.TryAcquire(s.Ctx, "jobs/43", time.Second)
			if err != nil || k.Fence() > harness.Micros() {
				s.Errorf("another lock: got token %v, %v; want the time", k, err)
			}
		})
	}
}

// Attacks 46, 68, 69.
func TestTokensGrowWhileAMajorityKeepsItsRegisters(t *testing.T) {
	onStage(t, 5, func(s *stage) {
		fast := s.LockerWith(redlock.Options{}, &harness.Clocks{WallAhead: time.Hour}, s.Cluster.Nodes())
		slow := s.LockerWith(redlock.Options{}, &harness.Clocks{WallAhead: -time.Hour}, s.Cluster.Nodes())
		last := s.Take(fast, time.Second).Fence()
		time.Sleep(10 * time.Millisecond)
		s.Node(0).FlushAll()
		s.Node(3).Restart(false)
		time.Sleep(2 * time.Second)
		// Whichever majority answers first.
		for _, far := range [][]int{{0, 3}, {1, 2}, {1, 4}, {2, 4}} {
			s.Slow(50*time.Millisecond, far...)
			k := s.Acquire(slow, time.Second)
			if k.Fence() <= last {
				t.Errorf("with %v far: got token %d after %d", far, k.Fence(), last)
			}
			last = k.Fence()
			k.Release(s.Ctx)
			s.Slow(0, far...)
			time.Sleep(time.Second)
		}
	})
	runStage(t, "where a node's clock jumps, and exclusion breaks", 3, func(s *stage) {
		a, b := s.Locker(redlock.Options{}), s.Locker(redlock.Options{})
		first := s.Take(a, time.Minute)
		for i := range 3 {
			s.Node(i).JumpClock(time.Hour)
		}
		second := s.Take(b, time.Minute)
		if !first.Valid() || second.Fence() <= first.Fence() {
			s.Errorf("tokens: got %d and then %d", first.Fence(), second.Fence())
		}
	})
}

// A register lives about a day longer than the last word on its lock.
func TestARegisterOutlivesTheLastWordOnItsLockByAboutADay(t *testing.T) {
	const ttl = 10 * time.Second
	for name, f := range map[string]func(s *stage, l *redlock.Locker){
		"released": func(s *stage, l *redlock.Locker) { s.Take(l, ttl).Release(s.Ctx) },
		"extended": func(s *stage, l *redlock.Locker) { s.Take(l, ttl).Extend(s.Ctx) },
		"rolled back": func(s *stage, l *redlock.Locker) {
			s.Foreign(time.Second, 0, 1)
			l.TryAcquire(s.Ctx, job, ttl)
		},
		"held for a while": func(s *stage, l *redlock.Locker) { s.Take(l, ttl); time.Sleep(1600 * time.Millisecond) },
		"cancelled": func(s *stage, l *redlock.Locker) {
			ctx := s.Timeout(100 * time.Microsecond)
			l.TryAcquire(ctx, job, ttl)
		},
	} {
		runStage(t, name, 3, func(s *stage) {
			f(s, s.Locker(redlock.Options{}))
			time.Sleep(10 * time.Millisecond)
			for i := range 3 {
				if got := s.Node(i).TTL(jobRegister); got < 23*time.Hour || got > 25*time.Hour {
					s.Errorf("node %d: the register lives for %v more, want about a day", i, got)
				}
			}
			time.Sleep(26 * time.Hour)
			for i := range 3 {
				if keys := s.Node(i).Keys(); len(keys) > 0 {
					s.Errorf("node %d: got %v after more than a day, want nothing", i, keys)
				}
			}
		})
	}
}

// Registers that are ahead of every clock stay ahead for a while, and cost one round
// each time and no more: else a hot lock would pay for the raise as long as it is hot,
// and every raise would carry the registers farther ahead.
func TestALeadOfTheRegistersIsNotPaidForTwice(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		var seen harness.Observer
		l := s.Locker(redlock.Options{Trace: seen.Trace()})
		high := harness.Micros() + 1e6
		s.SetRegister(high, 0, 1, 2)
		last := high
		for range 100 {
			k := s.Take(l, 10*time.Second)
			if k.Fence() <= last {
				t.Fatalf("token: got %d after %d", k.Fence(), last)
			}
			last = k.Fence()
			s.Is("Release", k.Release(s.Ctx), nil)
		}
		if got := seen.Count(redlock.OpRaise); got > 2 {
			t.Errorf("raises: got %d, want the 2 of the first acquisition", got)
		}
		if lead := last - high; lead > 10_000 {
			t.Errorf("the registers went %dµs farther in 100 acquisitions, want their number and the headroom of one raise", lead)
		}
		time.Sleep(2 * time.Second) // the clock has passed them
		if k := s.Take(l, 10*time.Second); k.Fence() > harness.Micros() {
			t.Errorf("token: got %d, ahead of the clock's %d for no reason", k.Fence(), harness.Micros())
		}
	})
}

// What is remembered of the registers is a hint. It refuses nothing by itself: where they
// are removed, as the error says, the lock is to be had, by whoever remembers them, too.
func TestRegistersThatWereRemovedAreForgotten(t *testing.T) {
	const top = int64(1) << 53
	remove := func(s *stage) {
		for i := range 3 {
			s.Do(i, "DEL", jobRegister)
		}
	}
	byTheClock := func(s *stage, what string, l *redlock.Locker) {
		s.Helper()
		k := s.Take(l, 30*time.Second)
		if k.Fence() > harness.Micros() {
			s.Errorf("%s, registers removed: got token %d, want one of the clock, %d", what, k.Fence(), harness.Micros())
		}
		s.Is("Release", k.Release(s.Ctx), nil)
		time.Sleep(time.Second)
	}
	runStage(t, "a slow round near the end does not use the numbers up", 3, func(s *stage) {
		l := s.Locker(redlock.Options{NodeTimeout: 5 * time.Second})
		const room = 3_000_000
		s.SetRegister(top-room, 0, 1, 2)
		s.Slow(time.Second, 0, 1, 2)
		last := top - room
		for range 50 {
			k := s.Take(l, 30*time.Second)
			if k.Fence() <= last || k.Fence() > top-room/2 {
				s.Fatalf("token: got %d after %d, %d numbers before the end", k.Fence(), last, top-k.Fence())
			}
			last = k.Fence()
			s.Is("Release", k.Release(s.Ctx), nil)
			time.Sleep(5 * time.Second)
		}
		s.Slow(0, 0, 1, 2)
		remove(s)
		s.Is("Release", s.Take(l, 30*time.Second).Release(s.Ctx), nil)
	})
	runStage(t, "the last numbers", 3, func(s *stage) {
		a, b := s.Locker(redlock.Options{}), s.Locker(redlock.Options{})
		s.SetRegister(top-8, 0, 1, 2)
		s.Is("Release", s.Take(b, 30*time.Second).Release(s.Ctx), nil)
		var err error
		for n := 0; err == nil; n++ {
			if n > 8 {
				s.Fatal("more tokens than there are numbers")
			}
			time.Sleep(time.Second)
			var k *redlock.Lock
			if k, err = a.TryAcquire(s.Ctx, job, 30*time.Second); err == nil {
				s.Is("Release", k.Release(s.Ctx), nil)
			}
		}
		s.Is("TryAcquire at the end", err, redlock.ErrNoQuorum)
		s.Says(err, "delete {K}:fence")
		time.Sleep(time.Second)
		remove(s)
		byTheClock(s, "who was refused", a)
		byTheClock(s, "another who had met them", b)
		byTheClock(s, "the first again", a)
	})
}

// The greatest number that a clock may stand for, and the last token.
const (
	lastClock = int64(1) << 52
	lastToken = int64(1)<<53 - 2
)

// A register that no honest clock has written must not choose tokens as long as the others can be a majority: it would
// be carried to all nodes, and soon no numbers would be left.
func TestAMinorityOfIllRegistersChoosesNoToken(t *testing.T) {
	for _, n := range []int{3, 5} {
		for _, score := range []int64{lastClock + 1, lastToken - 1<<40, lastToken, lastToken + 1} {
			runStage(t, fmt.Sprintf("%d nodes, 2^53%+d", n, score-1<<53), n, func(s *stage) {
				ill := s.All()[:n/2]
				s.SetRegister(score, ill...)
				a := s.Locker(redlock.Options{})
				b := s.LockerWith(redlock.Options{}, &harness.Clocks{WallAhead: 50 * time.Millisecond}, s.Cluster.Nodes())
				last := int64(0)
				for range 20 {
					for _, l := range []*redlock.Locker{b, a} {
						k := s.Take(l, 10*time.Second)
						if k.Fence() <= last || k.Fence() > harness.Micros()+int64(time.Hour/time.Microsecond) {
							s.Fatalf("token: got %d after %d, want a greater one near the clocks, %d", k.Fence(), last, harness.Micros())
						}
						last = k.Fence()
						s.Is("Extend", k.Extend(s.Ctx), nil)
						s.Is("Release", k.Release(s.Ctx), nil)
						time.Sleep(10 * time.Millisecond)
					}
				}
				for i := range n {
					switch got := s.Register(i); {
					case i < n/2 && got != score:
						s.Errorf("node %d: the register was moved from %d to %d", i, score, got)
					case i >= n/2 && got > lastClock:
						s.Errorf("node %d: the register is at %d, which only the ill ones had", i, got)
					}
				}
			})
		}
	}
}

// If so many are that the others are no majority, the highest decides, for a token has to move a majority of them.
func TestAMajorityOfIllRegistersIsFollowed(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		s.SetRegister(lastClock+10, 0)
		s.SetRegister(lastClock+20, 1)
		k := s.Take(l, 10*time.Second)
		if k.Fence() <= lastClock+20 {
			s.Errorf("token: got %d, want above %d", k.Fence(), lastClock+20)
		}
	})
}

// A node whose register did not move to the token does not count, whatever the register is.
func TestAnIllRegisterDoesNotCount(t *testing.T) {
	for _, score := range []int64{lastClock + 1, lastToken} {
		onStage(t, 3, func(s *stage) {
			l := s.Locker(redlock.Options{})
			s.SetRegister(score, 0)
			s.Node(2).Stop()
			s.Is("TryAcquire with one ill register and one dead node of three", harness.Second(l.TryAcquire(s.Ctx, job, 10*time.Second)), redlock.ErrNoQuorum)
			if got := s.Register(1); got > lastClock {
				s.Errorf("the sound node's register is at %d, which only the ill one had", got)
			}
		})
	}
}
