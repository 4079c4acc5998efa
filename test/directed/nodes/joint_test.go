package nodes_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/harness"
	"github.com/seed-ce352c9b/redlock/internal/seam"
	"github.com/seed-ce352c9b/redlock/redlocktest"
)

// The joint script, lua/releases.lua, alone and in the lane. The verdicts of releases that travel in it are those of
// TestVerdictOfARelease.

// joint runs lua/releases.lua on the stage's only node for locks with these names, of which the first releases are released
// and the others rolled back, all with the value "ours" and with a register that is to be given a ttl.
func (s *stage) joint(releases int, names ...string) (any, error) {
	s.Helper()
	args := []string{"EVAL", harness.Script("releases"), fmt.Sprint(2*len(names) + releases)}
	args = append(args, names...)
	for _, name := range names[:releases] {
		args = append(args, "{"+name+"}:queue")
	}
	for _, name := range names {
		args = append(args, "{"+name+"}:fence")
	}
	args = append(args, fmt.Sprint(releases))
	for range names {
		args = append(args, "ours")
	}
	return s.Node(0).Do(args...)
}

func TestScriptReleases(t *testing.T) {
	names := []string{"a", "b", "c", "d", "e"}
	set := func(s *stage) {
		for i, value := range []string{"ours", "theirs", "", "ours", "a list"} {
			switch value {
			case "":
			case "a list":
				s.Do(0, "RPUSH", names[i], "ours")
			default:
				s.Node(0).Set(names[i], value, time.Minute)
			}
			s.Do(0, "ZADD", "{"+names[i]+"}:fence", "77", "f")
		}
	}
	onScript(t, "deletes ours and nothing else", func(s *stage) {
		set(s)
		got, err := s.joint(3, names...)
		if err != nil || got != "10010" {
			s.Errorf("joint: got %v, %v; want 10010", got, err)
		}
		var left []string
		for _, key := range s.Node(0).Keys() {
			if !strings.HasPrefix(key, "{") {
				left = append(left, key)
			}
		}
		if want := []string{"b", "e"}; !slices.Equal(left, want) {
			s.Errorf("afterwards: got the locks %v, want %v", left, want)
		}
		for _, name := range names {
			if got := s.Node(0).TTL("{" + name + "}:fence"); got != 25*time.Hour {
				s.Errorf("the register of %s lives for %v, want 25 hours", name, got)
			}
		}
		if got, err := s.joint(3, names...); err != nil || got != "00000" {
			s.Errorf("again: got %v, %v; want 00000", got, err)
		}
	})
	// An error in place of an answer means that all locks are as they were.
	for _, refused := range []string{"mget", "exists", "pttl", "pexpire", "del"} {
		onScript(t, "who may not "+refused+" has released nothing", func(s *stage) {
			set(s)
			s.Node(0).FailCommand(refused, "NOPERM User locks has no permissions to run the '"+refused+"' command")
			if got, err := s.joint(3, names...); err == nil || !strings.Contains(err.Error(), "NOPERM") {
				s.Errorf("joint: got %v, %v; want the error", got, err)
			}
			s.Node(0).FailCommand(refused, "")
			for i, want := range []string{"ours", "theirs", "", "ours"} {
				if got, _ := s.Node(0).Get(names[i]); got != want {
					s.Errorf("afterwards: %s holds %q, want %q", names[i], got, want)
				}
			}
		})
	}
	queue := func(s *stage, name string) {
		for i, place := range []string{"x", "y", "z"} {
			s.Do(0, "ZADD", "{"+name+"}:queue", fmt.Sprint(i), place, harness.EndOf(s.ms()+5000), place+"!")
		}
		s.Do(0, "ZADD", "{"+name+"}:queue", "0", "expired", harness.EndOf(s.ms()-1), "expired!")
	}
	crowd := func(s *stage, name string) { // too many to read at once
		for i := range 70 {
			s.Do(0, "ZADD", "{"+name+"}:queue", "0", fmt.Sprint("dead", i), harness.EndOf(s.ms()+5000), fmt.Sprint("dead", i, "!"))
		}
	}
	for _, refused := range []string{"time", "zrange", "zscore", "publish"} {
		onScript(t, "who may not "+refused+" has released all the same", func(s *stage) {
			set(s)
			queue(s, "a")
			crowd(s, "a")
			s.Node(0).FailCommand(refused, "NOPERM")
			want := "10010"
			if refused == "publish" {
				want = "30010"
			}
			if got, err := s.joint(3, names...); err != nil || got != want {
				s.Errorf("joint: got %v, %v; want %s", got, err, want)
			}
		})
	}
	onScript(t, "tells the first two of a queue, of what was released only", func(s *stage) {
		set(s)
		for _, name := range []string{"a", "b", "c", "d"} {
			queue(s, name)
		}
		var channels []string
		for _, name := range []string{"a", "b", "c", "d"} {
			for _, place := range []string{"expired", "x", "y", "z"} {
				channels = append(channels, "{"+name+"}:release:"+place)
			}
		}
		heard := s.listening(channels...)
		crowd(s, "a")
		if got, err := s.joint(3, names...); err != nil || got != "20010" {
			s.Errorf("joint: got %v, %v; want 20010", got, err)
		}
		got := heard()
		if want := []string{"{a}:release:x=1 ours", "{a}:release:y=2 ours"}; !slices.Equal(got, want) {
			s.Errorf("announced: got %q, want %q", got, want)
		}
	})
}

// TestScriptExtends: of each lock the joint script does what lua/extend.lua does (TestScriptExtend).
func TestScriptExtends(t *testing.T) {
	names := []string{"a", "b", "c", "d", "e", "f"}
	extends := func(s *stage) (any, error) {
		args := append([]string{"EVAL", harness.Script("extends"), fmt.Sprint(2 * len(names))}, names...)
		for _, name := range names {
			args = append(args, "{"+name+"}:fence")
		}
		for range names {
			args = append(args, "ours", "60000", "77")
		}
		return s.Node(0).Do(args...)
	}
	set := func(s *stage) {
		s.Node(0).Set("a", "ours", time.Second)
		s.Node(0).Set("b", "theirs", time.Second)
		s.Do(0, "RPUSH", "d", "ours")
		s.Node(0).Set("e", "ours", time.Hour)
		s.Node(0).Set("f", "ours", time.Second)
		s.Do(0, "ZADD", "{e}:fence", "99", "f")
		s.Node(0).Set("{f}:fence", "no register", time.Hour)
	}
	onScript(t, "ours are extended and nothing else", func(s *stage) {
		set(s)
		if got, err := extends(s); err != nil || got != "100010" {
			s.Errorf("extends: got %v, %v; want 100010", got, err)
		}
		for name, want := range map[string]time.Duration{"a": time.Minute, "b": time.Second, "c": 0, "d": 0, "e": time.Hour} {
			if got := s.Node(0).TTL(name); got != want {
				s.Errorf("%s has %v left, want %v", name, got, want)
			}
		}
		for name, want := range map[string]float64{"a": 77, "b": 0, "e": 99} {
			register := "{" + name + "}:fence"
			if got, _ := s.Node(0).Score(register, "f"); got != want {
				s.Errorf("the register of %s stands at %v, want %v", name, got, want)
			}
			if got := s.Node(0).TTL(register); want > 0 && got != 25*time.Hour {
				s.Errorf("the register of %s lives for %v, want 25 hours", name, got)
			}
		}
	})
	for _, refused := range []string{"mget", "pttl", "pexpire"} {
		onScript(t, "who may not "+refused+" is told", func(s *stage) {
			set(s)
			s.Node(0).FailCommand(refused, "NOPERM")
			if got, err := extends(s); err == nil {
				s.Errorf("extends: got %v, want the error", got)
			}
		})
	}
	onScript(t, "locks without a register between others", func(s *stage) {
		for _, name := range []string{"a", "b", "c", "d"} {
			s.Node(0).Set(name, "ours", time.Second)
		}
		s.Node(0).Set("d", "theirs", time.Second)
		args := []string{"EVAL", harness.Script("extends"), "6", "a", "b", "c", "d", "{b}:fence", "{d}:fence",
			"ours", "60000", "-", "ours", "60000", "77", "ours", "60000", "-", "ours", "60000", "78"}
		if got := s.Do(0, args...); got != "1110" {
			s.Errorf("extends: got %v, want 1110", got)
		}
		for i, want := range []time.Duration{time.Minute, time.Minute, time.Minute, time.Second} {
			if got := s.Node(0).TTL(string("abcd"[i])); got != want {
				s.Errorf("%c has %v left, want %v", "abcd"[i], got, want)
			}
		}
		if got := s.Node(0).Keys(); fmt.Sprint(got) != "[a b c d {b}:fence]" {
			s.Errorf("the node has %v, want one register", got)
		}
		if got := s.Do(0, "EVAL", harness.Script("extends"), "1", "a", "ours", "90000", "-"); got != "1" || s.Node(0).TTL("a") != 90*time.Second {
			s.Errorf("no register at all: got %v, and %v left, want 1 and 90 s", got, s.Node(0).TTL("a"))
		}
	})
	onScript(t, "without a fence the register must be there", func(s *stage) {
		for _, name := range []string{"a", "b"} {
			s.Node(0).Set(name, "ours", time.Second)
		}
		s.Do(0, "ZADD", "{a}:fence", "7", "f")
		args := []string{"EVAL", harness.Script("extends"), "4", "a", "b", "{a}:fence", "{b}:fence", "ours", "60000", "", "ours", "60000", ""}
		if got := s.Do(0, args...); got != "10" {
			s.Errorf("extends: got %v, want 10", got)
		}
		if got, _ := s.Node(0).Score("{a}:fence", "f"); got != 7 {
			s.Errorf("the register stands at %v, want 7", got)
		}
	})
	onScript(t, "who may not raise the register has extended nothing for sure", func(s *stage) {
		set(s)
		s.Node(0).FailCommand("zadd", "NOPERM")
		if got, err := extends(s); err != nil || got != "000000" {
			s.Errorf("extends: got %v, %v; want 000000", got, err)
		}
	})
}

func TestJointExtensions(t *testing.T) {
	const ttl = 10 * time.Second
	extend := func(s *stage, a, b *redlock.Lock, want error) {
		s.Helper()
		s.Both("Extend", a.Extend, b.Extend, want)
	}
	two := func(s *stage, l *redlock.Locker) (a, b *redlock.Lock) {
		a, b = harness.Try(s, l, "a", ttl), harness.Try(s, l, "b", ttl)
		time.Sleep(time.Second)
		s.Record()
		return a, b
	}
	onJoint(t, "in one script", func(s *stage, l *redlock.Locker) {
		a, b := two(s, l)
		was := a.Until()
		extend(s, a, b, nil)
		time.Sleep(time.Millisecond)
		if got := a.Until().Sub(was); got < time.Second {
			s.Errorf("Until moved by %v, want a second", got)
		}
		if got := verbsOf(s, 0); !slices.Contains(got, "extends") || slices.Contains(got, "extend") {
			s.Errorf("sent: got %q, want the joint script only", got)
		}
	})
	onJoint(t, "a node that lost one of them tells so, and gets it back", func(s *stage, l *redlock.Locker) {
		a, b := two(s, l)
		s.Node(0).Evict("a")
		s.Node(0).Evict("{a}:fence")
		for range 2 {
			extend(s, a, b, nil)
			time.Sleep(time.Second)
		}
		if got, _ := s.Node(0).Get("a"); got != a.Value().Secret() {
			s.Errorf("the node holds %q, want ours", got)
		}
		if got, _ := s.Node(0).Score("{a}:fence", "f"); int64(got) < a.Fence() {
			s.Errorf("its register stands at %v, want the fence, %d", got, a.Fence())
		}
	})
	onJoint(t, "the registers are raised again where a node was healed, and every half hour", func(s *stage, l *redlock.Locker) {
		const ttl = 30 * time.Minute // the registers of a longer one are raised each time
		a, b := harness.Try(s, l, "a", ttl), harness.Try(s, l, "b", ttl)
		time.Sleep(time.Second)
		again := func(what string, healed, others bool) {
			s.Helper()
			s.Record()
			extend(s, a, b, nil)
			time.Sleep(time.Second)
			for i, want := range []bool{healed, others} {
				raised := slices.ContainsFunc(s.Node(i).Log(), func(c redlocktest.Command) bool {
					return harness.About(c.Args, "a") && strings.HasPrefix(harness.Verb(c.Args), "extend") && slices.Contains(c.Args, fmt.Sprint(a.Fence()))
				})
				if raised != want {
					s.Errorf("%s: node %d was sent the fence: got %v, want %v", what, i, raised, want)
				}
			}
		}
		again("the first time", true, true)
		again("the second time", false, false)
		s.Node(0).Evict("a")
		s.Do(0, "ZADD", "{a}:fence", "1", "f") // lower, and there
		again("by the extension that heals", true, false)
		again("after the heal", true, false)
		if got, _ := s.Node(0).Score("{a}:fence", "f"); int64(got) < a.Fence() {
			s.Errorf("the register of the healed node stands at %v, want the fence, %d", got, a.Fence())
		}
		again("and later", false, false)
		s.Node(0).Evict("{a}:fence")
		again("where the register is gone", true, false)
		time.Sleep(15 * time.Minute)
		again("after a quarter of an hour", false, false)
		time.Sleep(15 * time.Minute)
		again("after half an hour", true, true)
	})
	onJoint(t, "what is another's on a majority is lost, and the other lock is not", func(s *stage, l *redlock.Locker) {
		a, b := two(s, l)
		for i := range 2 {
			s.Node(i).Set("a", "another", time.Minute)
		}
		lost := harness.Background(func() error { return a.Extend(s.Ctx) })
		s.Is("Extend of the other", b.Extend(s.Ctx), nil)
		s.Is("Extend of the one", <-lost, redlock.ErrLost)
	})
	onJoint(t, "a node that refuses it is asked by the single script", func(s *stage, l *redlock.Locker) {
		a, b := two(s, l)
		s.FailCommand("mget", "NOPERM User locks has no permissions to run the 'mget' command", s.All()...)
		for range 2 {
			extend(s, a, b, nil)
		}
	})
	onJoint(t, "without replies nothing is extended", func(s *stage, l *redlock.Locker) {
		a, b := two(s, l)
		s.Hang(0, 1)
		was := a.Until()
		extend(s, a, b, redlock.ErrNoQuorum)
		if !a.Until().Equal(was) {
			s.Errorf("Until moved by %v", a.Until().Sub(was))
		}
		s.Resume(0, 1)
	})
}

// onJoint runs f with a Locker whose releases travel in the joint script even alone, on three nodes.
func onJoint(t *testing.T, name string, f func(s *stage, l *redlock.Locker)) {
	runStage(t, name, 3, func(s *stage) {
		l := s.Locker(redlock.Options{})
		seam.JoinFrom(l, 1)
		f(s, l)
	})
}

// takeTwo acquires two locks, begins the records anew, and returns a function that releases both at one instant.
func (s *stage) takeTwo(l *redlock.Locker) (release func(want error)) {
	a, b := harness.Try(s, l, "a", 10*time.Second), harness.Try(s, l, "b", 10*time.Second)
	time.Sleep(time.Millisecond)
	s.Record()
	return func(want error) {
		s.Helper()
		s.Both("Release", a.Release, b.Release, want)
		time.Sleep(time.Millisecond)
	}
}

func verbsOf(s *stage, i int) []string {
	vs := harness.Verbs(s.Node(i).Log())
	return slices.DeleteFunc(vs, func(v string) bool { return v == "info" || v == "ping" })
}

func TestJointReleases(t *testing.T) {
	free := func(s *stage) {
		s.Helper()
		for i := range s.Cluster.Len() {
			for _, key := range []string{"a", "b"} {
				if got, ok := s.Node(i).Get(key); ok {
					s.Errorf("node %d: %s holds %q", i, key, got)
				}
			}
		}
	}
	onJoint(t, "a release in one trip", func(s *stage, l *redlock.Locker) {
		s.takeTwo(l)(nil)
		free(s)
		for i := range 3 {
			for _, v := range verbsOf(s, i) {
				if v != "releases" {
					s.Errorf("node %d got %q, want only the joint script", i, v)
				}
			}
		}
	})
	for _, refused := range []string{"mget", "exists"} { // the single script does without
		onJoint(t, "a node that refuses "+refused+" is asked by the single script, and by no joint one for a minute", func(s *stage, l *redlock.Locker) {
			s.Node(1).FailCommand(refused, "NOPERM User locks has no permissions to run the '"+refused+"' command")
			for range 2 {
				s.takeTwo(l)(nil)
				free(s)
			}
			if got := verbsOf(s, 1); slices.Contains(got, "releases") || !slices.Contains(got, "release") {
				s.Errorf("the second time: got %q, want single releases only", got)
			}
			if got := verbsOf(s, 0); !slices.Contains(got, "releases") {
				s.Errorf("on another node: got %q, want the joint script", got)
			}
			s.Node(1).FailCommand(refused, "")
			time.Sleep(time.Minute)
			s.takeTwo(l)(nil)
			if got := verbsOf(s, 1); !slices.Contains(got, "releases") {
				s.Errorf("after a minute: got %q, want the joint script", got)
			}
		})
	}
	onJoint(t, "a node that does not know the script is sent its text, once", func(s *stage, l *redlock.Locker) {
		s.Do(1, "SCRIPT", "FLUSH")
		for n := range 3 {
			s.takeTwo(l)(nil)
			free(s)
			texts := 0
			for _, c := range s.Node(1).Log() {
				if strings.EqualFold(c.Args[0], "eval") && harness.Verb(c.Args) == "releases" {
					texts++
				}
			}
			if n == 2 && texts > 0 {
				s.Errorf("the third time: got %d texts of the joint script, want none", texts)
			}
		}
		if got := verbsOf(s, 1); !slices.Contains(got, "releases") {
			s.Errorf("in the end: got %q, want the joint script", got)
		}
	})
	onJoint(t, "what got no reply is owed", func(s *stage, l *redlock.Locker) {
		release := s.takeTwo(l)
		s.Hang(0, 1)
		release(redlock.ErrNoQuorum)
		for i := range 2 {
			if got := seam.Peek(l).Nodes[i].Owed; got != 2 {
				s.Errorf("owed to node %d: got %d, want 2", i, got)
			}
			s.Node(i).Resume()
		}
		time.Sleep(2 * time.Second)
		free(s)
	})
	onJoint(t, "what is lost with its connection is no yes, and owed", func(s *stage, l *redlock.Locker) {
		release := s.takeTwo(l)
		s.Each(func(n *redlocktest.Node) {
			var broken atomic.Bool
			n.OnCommand(func(args []string) {
				if harness.Verb(args) == "releases" && broken.CompareAndSwap(false, true) {
					n.Refuse(true)
					n.Refuse(false)
				}
			})
		}, 0, 1)
		release(redlock.ErrNoQuorum)
		time.Sleep(2 * time.Second)
		free(s)
	})
	onJoint(t, "an answer that no server gives is no answer, and the last", func(s *stage, l *redlock.Locker) {
		s.FailCommand("mget", "ERR the proxy lost the reply", 0, 1)
		s.takeTwo(l)(redlock.ErrNoQuorum)
		time.Sleep(2 * time.Minute)
		free(s)
		s.takeTwo(l)(nil)
	})
}

// TestAJointReleaseGoesBeforeWhatWasQueuedEarlier: another caller's attempt that is queued while the lock is held, and leaves
// together with the release, finds the lock free.
func TestAJointReleaseGoesBeforeWhatWasQueuedEarlier(t *testing.T) {
	onStage(t, 1, func(s *stage) {
		l := s.Locker(redlock.Options{})
		seam.JoinFrom(l, 1)
		k := s.Take(l, 10*time.Second)
		var tries []<-chan error
		for i := range 2 { // all that may be under way
			tries = append(tries, harness.Background(func() error { return harness.Second(l.Inspect(s.Ctx, fmt.Sprint("x", i))) }))
			time.Sleep(20 * time.Microsecond)
		}
		second := harness.Background(func() error { return harness.Second(l.TryAcquire(s.Ctx, harness.Job, 10*time.Second)) })
		time.Sleep(20 * time.Microsecond)
		s.Is("Release", k.Release(s.Ctx), nil)
		s.Is("TryAcquire", <-second, nil)
		for _, err := range tries {
			<-err
		}
	})
}

// TestOnlyPlainClientsJoin: any other client may split a pipeline or a script, even a wrapper of a plain one.
func TestOnlyPlainClientsJoin(t *testing.T) {
	type wrapper struct{ harness.Client }
	for name, wrap := range map[string]func(c *redis.Client) redlock.Node{
		"plain":   func(c *redis.Client) redlock.Node { return c },
		"wrapped": func(c *redis.Client) redlock.Node { return wrapper{c} },
	} {
		runStage(t, name, 1, func(s *stage) {
			l := s.LockerWith(redlock.Options{}, nil, []redlock.Node{wrap(s.Cluster.Clients()[0])})
			var locks []*redlock.Lock
			for i := range 64 {
				locks = append(locks, harness.Try(s, l, fmt.Sprint("jobs/", i), 10*time.Second))
			}
			s.Node(0).Record(true)
			var released []<-chan error
			for _, k := range locks {
				released = append(released, harness.Background(func() error { return k.Release(s.Ctx) }))
			}
			for _, err := range released {
				s.Is("Release", <-err, nil)
			}
			if got, want := slices.Contains(harness.Verbs(s.Node(0).Log()), "releases"), name == "plain"; got != want {
				s.Errorf("a joint script was sent: got %v, want %v", got, want)
			}
		})
	}
}
