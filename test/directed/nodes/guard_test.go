package nodes_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/harness"
	"github.com/seed-ce352c9b/redlock/redlocktest"
)

const (
	guardAge  = 10 * time.Second
	guardMark = "{redlock}:boot"
)

var underGuard = redlock.Options{RestartGuard: guardAge, NodeTimeout: 50 * time.Millisecond}

// forgetting is the ways in which a node forgets what it granted a moment ago and is
// back at once. Each is to be met with the guard, and to be felt without.
var forgetting = map[string]func(n *redlocktest.Node){
	"restarted without its data":                            func(n *redlocktest.Node) { n.Restart(false) },
	"restarted with data of an earlier second":              (*redlocktest.Node).Revert,
	"restarted twice":                                       func(n *redlocktest.Node) { n.Restart(false); n.Restart(true) },
	"flushed":                                               func(n *redlocktest.Node) { n.Do("FLUSHALL") },
	"flushed, and restarted with its data":                  func(n *redlocktest.Node) { n.Do("FLUSHDB"); n.Restart(true) },
	"flushed, and restarted with data of an earlier second": func(n *redlocktest.Node) { n.Do("FLUSHDB"); n.Revert() },
}

// With the guard nobody gets in beside a holder whose majority one node has left by
// forgetting; without it somebody does.
//
// Attacks 37, 38, 40, 49.
func TestANodeThatForgotGrantsNothingForTheGuard(t *testing.T) {
	for name, forgets := range forgetting {
		for _, fair := range []bool{false, true} {
			if fair && harness.Sparing {
				continue
			}
			for _, guard := range []time.Duration{guardAge, 0} {
				runStage(t, fmt.Sprintf("%s, fair %v, guard %v", name, fair, guard), 3, func(s *stage) {
					opt := underGuard
					opt.RestartGuard, opt.Fair = guard, fair
					a, b := s.guarded(opt), s.guarded(opt)
					k := harness.Try(s, a, "earlier", guardAge) // the marks are made, and on the disk
					s.Node(0).Save()
					s.Is("release", k.Release(s.Ctx), nil)
					s.Node(2).Fail(loading) // a takes the other two
					k = s.Take(a, guardAge)
					time.Sleep(10 * time.Millisecond)
					s.Node(2).Fail("")
					forgets(s.Node(0))
					free := s.granted(b, 3*guardAge, 87*time.Millisecond)
					if guard == 0 && !k.Valid() {
						s.Error("without a guard nobody got in beside the holder: the test tests nothing")
					}
					if guard > 0 && k.Valid() {
						s.Errorf("another got in after %v, the holder holds until %v", free, k.Until())
					}
					if guard > 0 && free > guardAge+2*time.Second {
						s.Errorf("the lock was free after %v, want little more than %v", free, guardAge)
					}
				})
			}
		}
	}
}

// granted tries until the lock is granted, which has to happen within the limit, releases it, and returns how long that took.
func (s *stage) granted(l *redlock.Locker, limit, pause time.Duration) (after time.Duration) {
	s.Helper()
	for began := time.Now(); time.Since(began) < limit; time.Sleep(pause) {
		if k, err := l.TryAcquire(s.Ctx, job, guardAge); err == nil {
			after = time.Since(began)
			s.Is("release", k.Release(s.Ctx), nil)
			return after
		}
	}
	s.Fatalf("not granted within %v", limit)
	return 0
}

// guarded returns a Locker that has not met any node.
func (s *stage) guarded(opt redlock.Options) *redlock.Locker {
	return s.Cold(opt, nil, s.Cluster.Nodes())
}

// unmarked takes the marks away, which stay for good.
func (s *stage) unmarked() {
	s.Helper()
	s.Each(func(n *redlocktest.Node) {
		if gone, err := n.Do("DEL", guardMark); gone != 1 {
			s.Errorf("node %s: no mark (%v, %v)", n.Name(), gone, err)
		}
	})
}

// quarantined is the nodes whose votes say so.
func quarantined(err error) int { return strings.Count(fmt.Sprint(err), " quarantined ") }

// A node counts from the guard after its start on, at the earliest: an uptime is told in
// seconds, each end of it rounded down, and all remainders of a second have to do.
//
// Attack 95.
func TestAStartIsNoEarlierThanTheUptimeSays(t *testing.T) {
	for ms := 0; ms < 1000; ms += 190 {
		for _, keep := range []bool{true, false} {
			onStage(t, 1, func(s *stage) {
				l := s.guarded(underGuard)
				s.Is("release", s.Take(l, time.Second).Release(s.Ctx), nil)
				time.Sleep(time.Duration(ms) * time.Millisecond)
				s.Node(0).Restart(keep)
				start := time.Now()
				time.Sleep(100 * time.Millisecond)
				l.TryAcquire(s.Ctx, job, time.Second) // the connection is broken
				_, err := l.TryAcquire(s.Ctx, job, time.Second)
				harness.Check(s, "quarantined", quarantined(err), 1)
				time.Sleep(guardAge - 200*time.Millisecond)
				s.granted(l, time.Minute, 13*time.Millisecond+time.Duration(ms)*time.Microsecond)
				if took := time.Since(start); took < guardAge || took > guardAge+2100*time.Millisecond {
					s.Errorf("started %d ms past the second: granted after %v, want %v to two seconds more", ms, took, guardAge)
				}
			})
		}
	}
}

// What is refused is the grant: the vote says for how long, and what is held goes on.
func TestAQuarantinedNodeSaysSoAndServesHolders(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		a, b := s.guarded(underGuard), s.guarded(underGuard)
		k := s.Take(a, guardAge)
		time.Sleep(oneTrip) // until all nodes have it
		s.Node(0).Restart(false)
		s.Node(1).Restart(true)
		_, err := b.TryAcquire(s.Ctx, "jobs/43", guardAge)
		s.Is("two of three quarantined", err, redlock.ErrNoQuorum)
		harness.Check(s, "answers", quarantined(err), 2)
		if want := "node-a:6379 quarantined 1"; !strings.Contains(fmt.Sprint(err), want) {
			s.Errorf("got %v, want %q, ten or eleven seconds", err, want)
		}
		time.Sleep(time.Second)
		s.Is("Extend", k.Extend(s.Ctx), nil) // node a gets it back
		time.Sleep(time.Second)
		s.Is("Extend", k.Extend(s.Ctx), nil) // and counts
		v, _ := s.Node(0).Get(job)
		harness.Check(s, "on the quarantined node", v, k.Value().Secret())
		_, err = b.TryAcquire(s.Ctx, job, guardAge)
		s.Is("held there again", err, redlock.ErrHeld)
		s.Is("Release", k.Release(s.Ctx), nil)
		time.Sleep(guardAge)
		k = s.Take(b, guardAge)
		s.Is("Release", k.Release(s.Ctx), nil)
		s.unmarked()
		s.Clean(a, b)
	})
}

// A node that kept everything, and only lost its scripts, is the same server: no
// quarantine, one round trip more.
//
// Attack 41.
func TestAScriptFlushIsNoRestart(t *testing.T) {
	onStage(t, 1, func(s *stage) {
		l := s.guarded(underGuard)
		s.Is("release", s.Take(l, time.Second).Release(s.Ctx), nil)
		s.Node(0).Do("SCRIPT", "FLUSH")
		s.Node(0).Record(true)
		s.Is("release", s.Take(l, time.Second).Release(s.Ctx), nil)
		var forms []string
		for _, cmd := range s.Node(0).Log() {
			if w := harness.Verb(cmd.Args); w == "acquire" || strings.HasPrefix(cmd.Args[0], "eval") && strings.Contains(cmd.Args[1], "quarantined") || len(forms) == 0 {
				forms = append(forms, cmd.Args[0]+" "+cmd.Args[len(cmd.Args)-1])
			}
		}
		harness.Check(s, "sent", fmt.Sprint(forms), "[evalsha 1 eval 2]")
	})
}

// marksUsed has n callers take a lock each, at once, and returns the last arguments of
// the only node's grants: what each does with the mark.
func (s *stage) marksUsed(l *redlock.Locker, n int) string {
	s.Helper()
	s.Is("release", harness.Try(s, l, "warm", time.Second).Release(s.Ctx), nil)
	s.Record()
	s.many(l, "jobs/", n, 0)
	last := ""
	for _, cmd := range s.Node(0).Log() {
		if strings.HasPrefix(cmd.Args[0], "eval") && cmd.Args[2] == "3" {
			last += cmd.Args[len(cmd.Args)-1]
		}
	}
	harness.Check(s, "grants", len(last), n)
	return last
}

// Grants that travel in one batch are covered by the first; the next batch compares anew.
func TestTheFirstGrantOfABatchComparesTheMark(t *testing.T) {
	onStage(t, 1, func(s *stage) {
		const n = 40
		last := s.marksUsed(s.guarded(underGuard), n)
		harness.Check(s, "other than compared and believed", strings.Trim(last, "01"), "")
		if compared := strings.Count(last, "1"); compared == 0 || compared > n/4 {
			s.Errorf("%d of %d grants compared the mark, want one a batch", compared, n)
		}
	})
}

// Of a Node that is no plain client nothing is known of its connections.
func TestBehindAnUnknownNodeEveryGrantComparesTheMark(t *testing.T) {
	onStage(t, 1, func(s *stage) {
		const n = 10
		type wrapped struct{ redlock.Node }
		l := s.Cold(underGuard, nil, []redlock.Node{wrapped{s.Cluster.Clients()[0]}})
		harness.Check(s, "last arguments", s.marksUsed(l, n), strings.Repeat("1", n))
	})
}

// A server that tells nothing of itself is quarantined from first sight, and again where
// it has forgotten its scripts; not by a new connection.
//
// Attack 95.
func TestAServerThatTellsNothingIsQuarantinedFromFirstSight(t *testing.T) {
	onStage(t, 1, func(s *stage) {
		n := s.Node(0)
		n.FailCommand("INFO", "NOPERM this user has no permissions to run the 'info' command")
		l := s.guarded(underGuard)
		for _, c := range []struct {
			what string
			l    *redlock.Locker
			f    func()
			want time.Duration
		}{
			{"at first sight", l, func() {}, guardAge},
			{"then", l, func() {}, 0},
			{"by another", s.guarded(underGuard), func() {}, 0},
			{"after a restart", l, func() { n.Restart(true) }, guardAge},
			{"after a script flush", l, func() { n.Do("SCRIPT", "FLUSH") }, guardAge},
		} {
			c.f()
			harness.Check(s, "granted "+c.what, s.granted(c.l, 3*guardAge, 50*time.Millisecond).Round(time.Second), c.want)
		}
	})
}

// Of two clients one may ask INFO and the other not: they do not take each other's marks
// for those of other servers.
func TestClientsWithAndWithoutINFOAgreeOnTheMark(t *testing.T) {
	onStage(t, 1, func(s *stage) {
		n := s.Node(0)
		a, b := s.guarded(underGuard), s.guarded(underGuard)
		for range 5 {
			s.Is("release", s.Take(a, time.Second).Release(s.Ctx), nil)
			before, _ := n.Get(guardMark)
			n.FailCommand("INFO", "NOPERM this user has no permissions to run the 'info' command")
			s.Is("release", s.Take(b, time.Second).Release(s.Ctx), nil)
			n.FailCommand("INFO", "")
			after, _ := n.Get(guardMark)
			harness.Check(s, "the mark", after, before)
		}
	})
}

// holdingProxy connects clients to a node and goes on to do so while the node restarts:
// requests that were under way are answered with nothing.
func (s *stage) holdingProxy(n *redlocktest.Node) *redis.Client {
	opt := *s.Cluster.Clients()[0].Options()
	opt.PoolSize = 4
	opt.Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) {
		front, far := net.Pipe()
		go func() {
			defer far.Close()
			var back net.Conn
			buf := make([]byte, 64<<10)
			for {
				sent, err := far.Read(buf)
				if err != nil {
					if back != nil {
						back.Close()
					}
					return
				}
				for { // until a node takes it
					if back == nil {
						if back, err = n.Dial(context.Background()); err != nil {
							time.Sleep(time.Millisecond)
							continue
						}
						go io.Copy(far, back)
					}
					if _, err = back.Write(buf[:sent]); err == nil {
						break
					}
					back.Close()
					back = nil
				}
			}
		}()
		return front, nil
	}
	client := redis.NewClient(&opt)
	s.Cleanup(func() { client.Close() })
	return client
}

// A proxy that keeps its clients' connections hides a restart from them, but not from
// the scripts.
//
// Attack 95.
func TestARestartBehindAProxyIsNoticed(t *testing.T) {
	for _, keep := range []bool{true, false} {
		onStage(t, 1, func(s *stage) {
			n := s.Node(0)
			l := s.Cold(underGuard, nil, []redlock.Node{s.holdingProxy(n)})
			s.Is("release", s.Take(l, time.Second).Release(s.Ctx), nil)
			n.Restart(keep)
			var err error
			if _, ok := harness.Within(5*time.Second, func() bool {
				if _, err = l.TryAcquire(s.Ctx, job, time.Second); err == nil {
					s.Fatal("granted behind the proxy")
				}
				time.Sleep(20 * time.Millisecond)
				return quarantined(err) == 1
			}); !ok {
				s.Errorf("got %v, want quarantined", err)
			}
		})
	}
}

// Guards of different lengths share a node's mark: each counts for itself.
func TestGuardsOfDifferentLengthsShareTheMark(t *testing.T) {
	onStage(t, 1, func(s *stage) {
		long := underGuard
		long.RestartGuard = 3 * guardAge
		a, b := s.guarded(underGuard), s.guarded(long)
		s.Node(0).Restart(false)
		_, err := a.TryAcquire(s.Ctx, job, time.Second)
		harness.Check(s, "quarantined", quarantined(err), 1)
		time.Sleep(guardAge + time.Second)
		s.Is("release", s.Take(a, time.Second).Release(s.Ctx), nil)
		_, err = b.TryAcquire(s.Ctx, job, time.Second)
		harness.Check(s, "quarantined for longer", quarantined(err), 1)
		time.Sleep(2 * guardAge)
		s.Is("release", s.Take(b, time.Second).Release(s.Ctx), nil)
	})
}

// A node that came back with a lock that was given back in the second before must not
// hand it over: others may have it.
func TestAnAdoptionIsAGrant(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		a, b := s.guarded(underGuard), s.guarded(underGuard)
		k := s.Take(a, guardAge)
		s.Node(0).Save()
		s.Node(1).Save()
		s.Is("Release", k.Release(s.Ctx), nil)
		time.Sleep(100 * time.Millisecond)
		held := s.Take(b, guardAge)
		s.Node(0).Revert()
		s.Node(1).Revert()
		for range 2 { // the connections are broken
			a.Inspect(s.Ctx, job)
			time.Sleep(100 * time.Millisecond)
		}
		got, err := a.Adopt(s.Ctx, job, k.Value(), guardAge)
		if err == nil && held.Valid() {
			s.Errorf("%v was adopted while %v is held", got.Value().Secret(), held.Value().Secret())
		}
		harness.Check(s, "quarantined", quarantined(err), 2)
		time.Sleep(2 * guardAge)
		k = harness.Try(s, a, "jobs/43", guardAge)
		got, err = b.Adopt(s.Ctx, "jobs/43", k.Value(), guardAge) // as ever
		s.Is("Adopt", err, nil)
		s.Is("Release", got.Release(s.Ctx), nil)
	})
}

// Marks that no guard has written are not believed; those of a time to come neither.
func TestAMarkThatIsNoMarkIsMadeAnew(t *testing.T) {
	for _, mark := range []string{"", "x", "x y", "1 2 3", strings.Repeat("x", 1<<16), "\x00 12"} {
		onStage(t, 1, func(s *stage) {
			l := s.guarded(underGuard)
			s.Node(0).Do("SET", guardMark, mark)
			s.Is("release", s.Take(l, time.Second).Release(s.Ctx), nil) // up for long
			got, _ := s.Node(0).Get(guardMark)
			if got == mark || len(strings.Fields(got)) != 2 {
				s.Errorf("got mark %q", got[:min(len(got), 40)])
			}
			id, _, _ := strings.Cut(got, " ")
			s.Node(0).Do("SET", guardMark, id+" "+strconv.FormatInt(time.Now().Add(time.Hour).UnixMilli(), 10))
			s.Is("release", s.Take(l, time.Second).Release(s.Ctx), nil)
			s.Node(0).Do("DEL", guardMark)
			s.Node(0).Do("RPUSH", guardMark, "x")
			_, err := l.TryAcquire(s.Ctx, job, time.Second)
			s.Is("a mark of another type", err, redlock.ErrNoQuorum)
		})
	}
}

// The next in line gets the lock in one round here, too; and under Fair.
func TestALineUnderAGuard(t *testing.T) {
	for _, fair := range []bool{false, true} {
		onStage(t, 3, func(s *stage) {
			opt := underGuard
			opt.Fair = fair
			l := s.guarded(opt)
			k := s.Take(l, guardAge)
			var line sync.WaitGroup
			for range 5 {
				line.Go(func() {
					k, err := l.Acquire(s.Ctx, job, guardAge)
					s.Is("Acquire", err, nil)
					k.Release(s.Ctx)
				})
			}
			time.Sleep(time.Second)
			s.Is("Release", k.Release(s.Ctx), nil)
			line.Wait()
			time.Sleep(time.Minute)
			s.unmarked()
			s.Clean(l)
		})
	}
}

// A lock that outlives the quarantine is refused, and so are nodes that are several.
func TestWhatAGuardRefuses(t *testing.T) {
	single := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"x": "127.0.0.1:1"}})
	for _, c := range []io.Closer{single, cluster, ring} {
		defer c.Close()
	}
	l, err := redlock.New(underGuard, single)
	harness.CheckIs(t, "New", err)
	defer l.Close()
	_, err = l.TryAcquire(t.Context(), job, guardAge+time.Millisecond)
	if got := fmt.Sprint(err); !strings.Contains(got, "ttl 10.001s") || !strings.Contains(got, "RestartGuard, 10s") {
		t.Errorf("got %q, want both durations", got)
	}
	for _, n := range []redlock.Node{cluster, ring} {
		_, err := redlock.New(underGuard, single, n)
		if got := fmt.Sprint(err); !strings.Contains(got, "node 2 (") || !strings.Contains(got, "several servers") {
			t.Errorf("%T: got %q", n, got)
		}
	}
	_, err = l.TryAcquire(t.Context(), guardMark, time.Second)
	if err == nil || !strings.Contains(err.Error(), ":boot") {
		t.Errorf("a lock named as the mark: got %v", err)
	}
}

// A server that restarts once more after it has said that it does not know the script,
// and before it gets the script's text: check and grant are one step, so whichever
// server grants has been looked at.
//
// Attacks 39, 95.
func TestARestartBetweenTheTwoFormsOfAScriptIsNoticed(t *testing.T) {
	for _, proxy := range []bool{false, true} {
		runStage(t, fmt.Sprint("a proxy keeps the clients' connections: ", proxy), 1, func(s *stage) {
			n := s.Node(0)
			nodes := s.Cluster.Nodes()
			if proxy {
				nodes = []redlock.Node{s.holdingProxy(n)}
			}
			l := s.Cold(underGuard, nil, nodes)
			s.Is("release", harness.Try(s, l, "earlier", time.Second).Release(s.Ctx), nil)
			n.Save()
			n.Revert()
			texts, start := 0, time.Now()
			n.OnCommand(func(args []string) {
				if strings.EqualFold(args[0], "eval") && strings.Contains(args[1], "quarantined") && texts < 3 {
					texts++
					n.Revert()
					start = time.Now()
				}
			})
			s.granted(l, time.Minute, 50*time.Millisecond)
			if took := time.Since(start); took < guardAge {
				s.Errorf("granted %v after the last restart, want %v at least", took, guardAge)
			}
			if texts == 0 {
				s.Error("no restart came between: the test tests nothing")
			}
		})
	}
}
