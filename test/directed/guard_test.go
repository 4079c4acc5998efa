package directed_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

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
var forgetting = []struct {
	name string
	f    func(n *redlocktest.Node)
}{
	{"restarted without its data", func(n *redlocktest.Node) { n.Restart(false) }},
	{"restarted with data of an earlier second", func(n *redlocktest.Node) { n.Revert() }},
	{"restarted twice", func(n *redlocktest.Node) { n.Restart(false); n.Restart(true) }},
	{"flushed", func(n *redlocktest.Node) { n.Do("FLUSHALL") }},
	{"flushed, and restarted with its data", func(n *redlocktest.Node) { n.Do("FLUSHDB"); n.Restart(true) }},
	{"flushed, and restarted with data of an earlier second", func(n *redlocktest.Node) { n.Do("FLUSHDB"); n.Revert() }},
}

// With the guard nobody gets in beside a holder whose majority one node has left by
// forgetting; without it somebody does.
//
// Attacks 37, 38, 40, 49.
func TestANodeThatForgotGrantsNothingForTheGuard(t *testing.T) {
	for _, way := range forgetting {
		for _, fair := range []bool{false, true} {
			if fair && harness.Sparing {
				continue
			}
			for _, guard := range []time.Duration{guardAge, 0} {
				runStaged(t, fmt.Sprintf("%s, fair %v, guard %v", way.name, fair, guard), 3, func(t *testing.T, c *redlocktest.Cluster) {
					opt := underGuard
					opt.RestartGuard, opt.Fair = guard, fair
					a, b := guarded(t, c, opt, "a"), guarded(t, c, opt, "b")
					k := harness.Try(t, a, "earlier", guardAge) // the marks are made, and on the disk
					c.Node(0).Save()
					harness.Check(t, "release", k.Release(t.Context()), nil)
					c.Node(2).Fail("LOADING Redis is loading the dataset in memory") // a takes the other two
					k = harness.Try(t, a, "jobs/42", guardAge)
					time.Sleep(10 * time.Millisecond)
					c.Node(2).Fail("")
					way.f(c.Node(0))
					both, first := 0, time.Duration(0)
					start := time.Now()
					_, free := within(3*guardAge, func() bool {
						other, err := b.TryAcquire(t.Context(), "jobs/42", guardAge)
						if err != nil {
							time.Sleep(87 * time.Millisecond)
							return false
						}
						first = time.Since(start)
						if k.Valid() {
							both++
						}
						harness.Check(t, "release", other.Release(t.Context()), nil)
						return true
					})
					if !free {
						t.Fatal("nobody got in at all")
					}
					if guard == 0 && both == 0 {
						t.Error("without a guard nobody got in beside the holder: the test tests nothing")
					}
					if guard > 0 && both > 0 {
						t.Errorf("another got in after %v, the holder holds until %v", first, k.Until())
					}
					if guard > 0 && first > guardAge+2*time.Second {
						t.Errorf("the lock was free after %v, want little more than %v", first, guardAge)
					}
				})
			}
		}
	}
}

// guarded is a Locker of this name. (Two of one name and one seed would draw one value.)
func guarded(t *testing.T, c *redlocktest.Cluster, opt redlock.Options, name string) *redlock.Locker {
	t.Helper()
	opt.Name = name
	return lockerOn(t, opt, c.Clients())
}

// unmarked takes the marks away, which stay for good.
func unmarked(t *testing.T, c *redlocktest.Cluster) {
	t.Helper()
	for i := range c.Len() {
		if gone, err := c.Node(i).Do("DEL", guardMark); gone != 1 {
			t.Errorf("node %s: no mark (%v, %v)", c.Node(i).Name(), gone, err)
		}
	}
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
			staged(t, 1, func(t *testing.T, c *redlocktest.Cluster) {
				l := lockerOn(t, underGuard, c.Clients())
				harness.Check(t, "release", harness.Try(t, l, "earlier", time.Second).Release(t.Context()), nil)
				time.Sleep(time.Duration(ms) * time.Millisecond)
				c.Node(0).Restart(keep)
				start := time.Now()
				time.Sleep(100 * time.Millisecond)
				l.TryAcquire(t.Context(), "jobs/42", time.Second) // the connection is broken
				_, err := l.TryAcquire(t.Context(), "jobs/42", time.Second)
				harness.Check(t, "quarantined", quarantined(err), 1)
				time.Sleep(guardAge - 200*time.Millisecond)
				_, ok := within(time.Minute, func() bool {
					_, err := l.TryAcquire(t.Context(), "jobs/42", time.Second)
					if err == nil {
						return true
					}
					time.Sleep(13*time.Millisecond + time.Duration(ms)*time.Microsecond)
					return false
				})
				if took := time.Since(start); !ok || took < guardAge || took > guardAge+2100*time.Millisecond {
					t.Errorf("started %d ms past the second: granted after %v, want %v to two seconds more", ms, took, guardAge)
				}
			})
		}
	}
}

// What is refused is the grant: the vote says for how long, and what is held goes on.
func TestAQuarantinedNodeSaysSoAndServesHolders(t *testing.T) {
	staged(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		a, b := guarded(t, c, underGuard, "a"), guarded(t, c, underGuard, "b")
		k := harness.Try(t, a, "jobs/42", guardAge)
		time.Sleep(oneTrip) // until all nodes have it
		c.Node(0).Restart(false)
		c.Node(1).Restart(true)
		_, err := b.TryAcquire(t.Context(), "jobs/43", guardAge)
		harness.CheckIs(t, "two of three quarantined", err, redlock.ErrNoQuorum)
		harness.Check(t, "answers", quarantined(err), 2)
		if want := "node-a:6379 quarantined 1"; !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("got %v, want %q, ten or eleven seconds", err, want)
		}
		time.Sleep(time.Second)
		harness.Check(t, "Extend", k.Extend(t.Context()), nil) // node a gets it back
		time.Sleep(time.Second)
		harness.Check(t, "Extend", k.Extend(t.Context()), nil) // and counts
		v, _ := c.Node(0).Get("jobs/42")
		harness.Check(t, "on the quarantined node", v, k.Value())
		_, err = b.TryAcquire(t.Context(), "jobs/42", guardAge)
		harness.CheckIs(t, "held there again", err, redlock.ErrHeld)
		harness.Check(t, "Release", k.Release(t.Context()), nil)
		time.Sleep(guardAge)
		k = harness.Try(t, b, "jobs/42", guardAge)
		harness.Check(t, "Release", k.Release(t.Context()), nil)
		unmarked(t, c)
		harness.CheckClean(t, c, a, b)
	})
}

// A node that kept everything, and only lost its scripts, is the same server: no
// quarantine, one round trip more.
//
// Attack 41.
func TestAScriptFlushIsNoRestart(t *testing.T) {
	staged(t, 1, func(t *testing.T, c *redlocktest.Cluster) {
		l := lockerOn(t, underGuard, c.Clients())
		harness.Check(t, "release", harness.Try(t, l, "jobs/42", time.Second).Release(t.Context()), nil)
		c.Node(0).Do("SCRIPT", "FLUSH")
		c.Node(0).Record(true)
		harness.Check(t, "release", harness.Try(t, l, "jobs/42", time.Second).Release(t.Context()), nil)
		var forms []string
		for _, cmd := range c.Node(0).Log() {
			if w := harness.Verb(cmd.Args); w == "acquire" || strings.HasPrefix(cmd.Args[0], "eval") && strings.Contains(cmd.Args[1], "quarantined") || len(forms) == 0 {
				forms = append(forms, cmd.Args[0]+" "+cmd.Args[len(cmd.Args)-1])
			}
		}
		harness.Check(t, "sent", fmt.Sprint(forms), "[evalsha 1 eval 2]")
	})
}

// granted has n callers take a lock each, at once, and returns the last arguments of
// the node's grants: what each does with the mark.
func granted(t *testing.T, l *redlock.Locker, node *redlocktest.Node, n int) (last []string) {
	t.Helper()
	harness.Check(t, "release", harness.Try(t, l, "warm", time.Second).Release(t.Context()), nil)
	node.Record(true)
	done := make(chan error, n)
	for i := range n {
		go func() {
			_, err := l.TryAcquire(t.Context(), "jobs/"+strconv.Itoa(i), time.Second)
			done <- err
		}()
	}
	for range n {
		harness.Check(t, "TryAcquire", <-done, nil)
	}
	for _, cmd := range node.Log() {
		if strings.HasPrefix(cmd.Args[0], "eval") && cmd.Args[2] == "3" {
			last = append(last, cmd.Args[len(cmd.Args)-1])
		}
	}
	harness.Check(t, "grants", len(last), n)
	return last
}

// Grants that travel in one batch are covered by the first; the next batch compares anew.
func TestTheFirstGrantOfABatchComparesTheMark(t *testing.T) {
	staged(t, 1, func(t *testing.T, c *redlocktest.Cluster) {
		const n = 40
		last := granted(t, lockerOn(t, underGuard, c.Clients()), c.Node(0), n)
		compared := len(last) - strings.Count(strings.Join(last, ""), "0")
		harness.Check(t, "compared or believed", strings.Trim(strings.Join(last, ""), "01"), "")
		if compared == 0 || compared > n/4 {
			t.Errorf("%d of %d grants compared the mark, want one a batch", compared, n)
		}
	})
}

// Of a Node that is no plain client nothing is known of its connections.
func TestBehindAnUnknownNodeEveryGrantComparesTheMark(t *testing.T) {
	staged(t, 1, func(t *testing.T, c *redlocktest.Cluster) {
		type wrapped struct{ redlock.Node }
		l, err := redlock.New(underGuard, wrapped{c.Clients()[0]})
		harness.Check(t, "New", err, nil)
		defer l.Close()
		const n = 10
		harness.Check(t, "last arguments", strings.Join(granted(t, l, c.Node(0), n), ""), strings.Repeat("1", n))
	})
}

// A server that tells nothing of itself is quarantined from first sight, and again where
// it has forgotten its scripts; not by a new connection.
//
// Attack 95.
func TestAServerThatTellsNothingIsQuarantinedFromFirstSight(t *testing.T) {
	staged(t, 1, func(t *testing.T, c *redlocktest.Cluster) {
		n := c.Node(0)
		n.FailCommand("INFO", "NOPERM this user has no permissions to run the 'info' command")
		granted := func(l *redlock.Locker) time.Duration {
			start := time.Now()
			if _, ok := within(3*guardAge, func() bool {
				k, err := l.TryAcquire(t.Context(), "jobs/42", time.Second)
				if err == nil {
					harness.Check(t, "release", k.Release(t.Context()), nil)
					return true
				}
				time.Sleep(50 * time.Millisecond)
				return false
			}); !ok {
				t.Fatal("never granted")
			}
			return time.Since(start).Round(time.Second)
		}
		l := lockerOn(t, underGuard, c.Clients())
		harness.Check(t, "at first sight", granted(l), guardAge)
		harness.Check(t, "then", granted(l), 0)
		harness.Check(t, "by another", granted(guarded(t, c, underGuard, "other")), 0)
		n.Restart(true)
		harness.Check(t, "after a restart", granted(l), guardAge)
		n.Do("SCRIPT", "FLUSH")
		harness.Check(t, "after a script flush", granted(l), guardAge)
	})
}

// Of two clients one may ask INFO and the other not: they do not take each other's marks
// for those of other servers.
func TestClientsWithAndWithoutINFOAgreeOnTheMark(t *testing.T) {
	staged(t, 1, func(t *testing.T, c *redlocktest.Cluster) {
		n := c.Node(0)
		a, b := guarded(t, c, underGuard, "a"), guarded(t, c, underGuard, "b")
		for range 5 {
			harness.Check(t, "release", harness.Try(t, a, "jobs/42", time.Second).Release(t.Context()), nil)
			before, _ := n.Get(guardMark)
			n.FailCommand("INFO", "NOPERM this user has no permissions to run the 'info' command")
			harness.Check(t, "release", harness.Try(t, b, "jobs/42", time.Second).Release(t.Context()), nil)
			n.FailCommand("INFO", "")
			after, _ := n.Get(guardMark)
			harness.Check(t, "the mark", after, before)
		}
	})
}

// holdingProxy connects clients to a node and goes on to do so while the node restarts:
// requests that were under way are answered with nothing.
func holdingProxy(t *testing.T, n *redlocktest.Node) *redis.Client {
	t.Helper()
	opt := &redis.Options{
		Addr: n.Addr(), Protocol: 2, MaxRetries: -1, DisableIdentity: true, PoolSize: 4,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
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
							go func(back net.Conn) {
								reply := make([]byte, 64<<10)
								for {
									got, err := back.Read(reply)
									if err != nil {
										return
									}
									if _, err := far.Write(reply[:got]); err != nil {
										return
									}
								}
							}(back)
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
		},
	}
	client := redis.NewClient(opt)
	t.Cleanup(func() { client.Close() })
	return client
}

// A proxy that keeps its clients' connections hides a restart from them, but not from
// the scripts.
//
// Attack 95.
func TestARestartBehindAProxyIsNoticed(t *testing.T) {
	for _, keep := range []bool{true, false} {
		staged(t, 1, func(t *testing.T, c *redlocktest.Cluster) {
			n := c.Node(0)
			client := holdingProxy(t, n)
			l, err := redlock.New(underGuard, client)
			harness.Check(t, "New", err, nil)
			defer l.Close()
			harness.Check(t, "release", harness.Try(t, l, "jobs/42", time.Second).Release(t.Context()), nil)
			before := client.PoolStats().Misses
			n.Restart(keep)
			_, ok := within(5*time.Second, func() bool {
				_, err = l.TryAcquire(t.Context(), "jobs/42", time.Second)
				if err == nil {
					t.Fatal("granted behind the proxy")
				}
				if quarantined(err) == 1 {
					return true
				}
				time.Sleep(20 * time.Millisecond)
				return false
			})
			if !ok {
				t.Errorf("got %v, want quarantined", err)
			}
			t.Logf("connections made: %d, then %d", before, client.PoolStats().Misses)
		})
	}
}

// Guards of different lengths share a node's mark: each counts for itself.
func TestGuardsOfDifferentLengthsShareTheMark(t *testing.T) {
	staged(t, 1, func(t *testing.T, c *redlocktest.Cluster) {
		long := underGuard
		long.RestartGuard = 3 * guardAge
		a, b := guarded(t, c, underGuard, "a"), guarded(t, c, long, "b")
		c.Node(0).Restart(false)
		_, err := a.TryAcquire(t.Context(), "jobs/42", time.Second)
		harness.Check(t, "quarantined", quarantined(err), 1)
		time.Sleep(guardAge + time.Second)
		harness.Check(t, "release", harness.Try(t, a, "jobs/42", time.Second).Release(t.Context()), nil)
		_, err = b.TryAcquire(t.Context(), "jobs/42", time.Second)
		harness.Check(t, "quarantined for longer", quarantined(err), 1)
		time.Sleep(2 * guardAge)
		harness.Check(t, "release", harness.Try(t, b, "jobs/42", time.Second).Release(t.Context()), nil)
	})
}

// A node that came back with a lock that was given back in the second before must not
// hand it over: others may have it.
func TestAnAdoptionIsAGrant(t *testing.T) {
	staged(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		a, b := guarded(t, c, underGuard, "a"), guarded(t, c, underGuard, "b")
		k := harness.Try(t, a, "jobs/42", guardAge)
		c.Node(0).Save()
		c.Node(1).Save()
		harness.Check(t, "Release", k.Release(t.Context()), nil)
		time.Sleep(100 * time.Millisecond)
		held := harness.Try(t, b, "jobs/42", guardAge)
		c.Node(0).Revert()
		c.Node(1).Revert()
		for range 2 { // the connections are broken
			a.Inspect(t.Context(), "jobs/42")
			time.Sleep(100 * time.Millisecond)
		}
		got, err := a.Adopt(t.Context(), "jobs/42", k.Value(), guardAge)
		if err == nil && held.Valid() {
			t.Errorf("%v was adopted while %v is held", got.Value(), held.Value())
		}
		harness.Check(t, "quarantined", quarantined(err), 2)
		time.Sleep(2 * guardAge)
		k = harness.Try(t, a, "jobs/43", guardAge)
		got, err = b.Adopt(t.Context(), "jobs/43", k.Value(), guardAge) // as ever
		harness.Check(t, "Adopt", err, nil)
		harness.Check(t, "Release", got.Release(t.Context()), nil)
	})
}

// Marks that no guard has written are not believed; those of a time to come neither.
func TestAMarkThatIsNoMarkIsMadeAnew(t *testing.T) {
	for _, mark := range []string{"", "x", "x y", "1 2 3", strings.Repeat("x", 1<<16), "\x00 12"} {
		staged(t, 1, func(t *testing.T, c *redlocktest.Cluster) {
			l := lockerOn(t, underGuard, c.Clients())
			c.Node(0).Do("SET", guardMark, mark)
			harness.Check(t, "release", harness.Try(t, l, "jobs/42", time.Second).Release(t.Context()), nil) // up for long
			got, _ := c.Node(0).Get(guardMark)
			if got == mark || len(strings.Fields(got)) != 2 {
				t.Errorf("got mark %q", clipped(got))
			}
			id, _, _ := strings.Cut(got, " ")
			c.Node(0).Do("SET", guardMark, id+" "+strconv.FormatInt(time.Now().Add(time.Hour).UnixMilli(), 10))
			harness.Check(t, "release", harness.Try(t, l, "jobs/42", time.Second).Release(t.Context()), nil)
			c.Node(0).Do("DEL", guardMark)
			c.Node(0).Do("RPUSH", guardMark, "x")
			_, err := l.TryAcquire(t.Context(), "jobs/42", time.Second)
			harness.CheckIs(t, "a mark of another type", err, redlock.ErrNoQuorum)
		})
	}
}

func clipped(s string) string { return s[:min(len(s), 40)] }

// The next in line gets the lock in one round here, too; and under Fair.
func TestALineUnderAGuard(t *testing.T) {
	for _, fair := range []bool{false, true} {
		staged(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
			opt := underGuard
			opt.Fair = fair
			l := lockerOn(t, opt, c.Clients())
			k := harness.Try(t, l, "jobs/42", guardAge)
			const n = 5
			done := make(chan time.Duration, n)
			for range n {
				go func() {
					k, err := l.Acquire(t.Context(), "jobs/42", guardAge)
					if err != nil {
						t.Errorf("Acquire: %v", err)
						return
					}
					done <- took(func() { k.Release(t.Context()) })
				}()
			}
			time.Sleep(time.Second)
			harness.Check(t, "Release", k.Release(t.Context()), nil)
			for range n {
				<-done
			}
			time.Sleep(time.Minute)
			unmarked(t, c)
			harness.CheckClean(t, c, l)
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
	harness.Check(t, "New", err, nil)
	defer l.Close()
	_, err = l.TryAcquire(t.Context(), "jobs/42", guardAge+time.Millisecond)
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
	for _, behind := range []string{"its clients' connections break", "a proxy keeps them"} {
		runStaged(t, behind, 1, func(t *testing.T, c *redlocktest.Cluster) {
			n := c.Node(0)
			var nodes []redlock.Node
			if strings.Contains(behind, "proxy") {
				nodes = []redlock.Node{holdingProxy(t, n)}
			} else {
				nodes = harness.Nodes(c.Clients())
			}
			l, err := redlock.New(underGuard, nodes...)
			harness.Check(t, "New", err, nil)
			defer l.Close()
			harness.Check(t, "release", harness.Try(t, l, "earlier", time.Second).Release(t.Context()), nil)
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
			_, ok := within(time.Minute, func() bool {
				_, err := l.TryAcquire(t.Context(), "jobs/42", time.Second)
				if err != nil {
					time.Sleep(50 * time.Millisecond)
				}
				return err == nil
			})
			if took := time.Since(start); !ok || took < guardAge {
				t.Errorf("granted %v after the last restart, want %v at least", took, guardAge)
			}
			if texts == 0 {
				t.Error("no restart came between: the test tests nothing")
			}
		})
	}
}
