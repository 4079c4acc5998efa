package nodes_test

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ce352c9b/redlock/internal/harness"
	"github.com/seed-ce352c9b/redlock/redlocktest"
)

// eval runs one of the scripts on the stage's only node.
func (s *stage) eval(script string, args ...string) any {
	s.Helper()
	return s.Do(0, append([]string{"EVAL", harness.Script(script), "2", job, jobRegister}, args...)...)
}

// evalQueue is eval for the scripts that know the queue as well.
func (s *stage) evalQueue(script string, args ...string) any {
	s.Helper()
	return s.Do(0, append([]string{"EVAL", harness.Script(script), "3", job, jobRegister, jobQueue}, args...)...)
}

// release is eval for lua/release.lua, of a lock with a register.
func (s *stage) release(args ...string) any {
	s.Helper()
	return s.Do(0, append([]string{"EVAL", harness.Script("release"), "3", job, jobQueue, jobRegister}, args...)...)
}

func (s *stage) answers(what string, got any, want ...any) {
	s.Helper()
	if list, ok := got.([]any); ok {
		if !reflect.DeepEqual(list, want) {
			s.Errorf("%s: got %v, want %v", what, list, want)
		}
		return
	}
	if len(want) != 1 || got != want[0] {
		s.Errorf("%s: got %v (%T), want %v", what, got, got, want)
	}
}

// leaves checks the lock's key and ttl and the register and its life.
func (s *stage) leaves(what, value string, ttl time.Duration, register string, life time.Duration) {
	s.Helper()
	n := s.Node(0)
	if got, _ := n.Get(job); got != value {
		s.Errorf("%s: the lock holds %q, want %q", what, got, value)
	}
	if got := n.TTL(job); got != ttl {
		s.Errorf("%s: the lock has %v left, want %v", what, got, ttl)
	}
	score := ""
	if v := s.Do(0, "ZSCORE", jobRegister, "f"); v != nil {
		score = fmt.Sprint(v)
	}
	if score != register {
		s.Errorf("%s: the register stands at %q, want %q", what, score, register)
	}
	if got := n.TTL(jobRegister); got != life {
		s.Errorf("%s: the register lives for %v, want %v", what, got, life)
	}
}

func onScript(t *testing.T, name string, f func(s *stage)) {
	t.Run(name, func(t *testing.T) {
		redlocktest.Bubble(t, func(t *testing.T) {
			f(&stage{harness.NewStage(t, 1)})
		})
	})
}

const (
	sec = time.Second
	day = 24 * time.Hour
)

// A scriptState is what a node stores of the lock: its value ("": none) and ttl (0: it does not
// expire), the score of its register ("": none) and the register's ttl.
type scriptState struct {
	value    string
	ttl      time.Duration
	register string
	life     time.Duration
}

// A scriptCase is one call of a script: what the node stores before and afterwards, and the reply.
type scriptCase struct {
	name   string
	before scriptState
	reply  []any
	after  scriptState
}

func onScriptCases(t *testing.T, call func(s *stage) any, cases []scriptCase) {
	t.Helper()
	for _, c := range cases {
		onScript(t, c.name, func(s *stage) {
			s.store(c.before)
			s.answers("the reply", call(s), c.reply...)
			s.leaves("afterwards", c.after.value, c.after.ttl, c.after.register, c.after.life)
		})
	}
}

// store has the stage's only node store this of the lock.
func (s *stage) store(state scriptState) {
	s.Helper()
	if state.value != "" {
		s.Node(0).Set(job, state.value, state.ttl)
	}
	if state.register != "" {
		s.Do(0, "ZADD", jobRegister, state.register, "f")
	}
	if state.life > 0 {
		s.Do(0, "PEXPIRE", jobRegister, fmt.Sprint(state.life.Milliseconds()))
	}
}

// A queueCase is calls of a script that knows the queue, one after the other at one instant.
type queueCase struct {
	name   string
	before scriptState
	places string // before: of each its name, its ticket, and its end in ms from now on; without an end, or for ever
	calls  []queueCall
	after  scriptState
	queue  string // afterwards: the names, first to last
}

// A queueCall is a call for a place with a ticket.
type queueCall struct {
	place, ticket string
	reply         []any // with now for the node's time
}

const now = "the node's time"

func onQueueCases(t *testing.T, call func(s *stage, place, ticket string) any, cases []queueCase) {
	t.Helper()
	for _, c := range cases {
		onScript(t, c.name, func(s *stage) {
			s.store(c.before)
			for place := range strings.SplitSeq(c.places, ", ") {
				switch f := strings.Fields(place); {
				case len(f) == 2:
					s.Do(0, "ZADD", jobQueue, f[1], f[0])
				case len(f) == 3 && f[2] == "+inf":
					s.Do(0, "ZADD", jobQueue, f[1], f[0], "+inf", f[0]+"!")
				case len(f) == 3:
					ticket, _ := strconv.Atoi(f[1])
					end, _ := strconv.Atoi(f[2])
					s.place(f[0], ticket, s.ms()+end)
				}
			}
			for i, ask := range c.calls {
				reply := slices.Clone(ask.reply)
				if last := len(reply) - 1; reply[last] == now {
					reply[last] = s.us()
				}
				s.answers(fmt.Sprint("call ", i), call(s, ask.place, ask.ticket), reply...)
			}
			s.leaves("afterwards", c.after.value, c.after.ttl, c.after.register, c.after.life)
			var queue []any
			for _, place := range strings.Fields(c.queue) {
				queue = append(queue, place)
			}
			s.queues("afterwards", queue...)
		})
	}
}

func TestScriptsTellARegisterOfAnotherTypeFromALockOfAnotherType(t *testing.T) {
	for script, c := range map[string]struct {
		value, says string // what the lock holds, and the error
		args        []string
	}{
		"extend":  {"ours", "FENCE", []string{"2", job, jobRegister, "ours", "5000", "77", "86000000", "86400000"}},
		"acquire": {"", "FENCE", []string{"2", job, jobRegister, "ours", "5000", "77"}},
		"turn":    {"", "FENCE", []string{"3", job, jobRegister, jobQueue, "ours", "5000", "77", "", "", "2000", "15000", releaseChannel}},
		"adopt":   {"theirs", "WRONGTYPE", []string{"2", job, jobRegister, "theirs", "ours", "5000", "77", "86000000", "86400000"}},
	} {
		onScript(t, script, func(s *stage) {
			s.store(scriptState{value: c.value, ttl: 5 * sec})
			s.Do(0, "SET", jobRegister, "word")
			_, err := s.Node(0).Do(append([]string{"EVAL", harness.Script(script)}, c.args...)...)
			s.Says(err, c.says)
			harness.Check(s, "the lock's value", s.Values()[0], c.value)
			if left := s.Node(0).TTL(job); c.value != "" && left != 5*sec {
				s.Errorf("the lock has %v left, want it untouched", left)
			}
		})
	}
}

func TestEveryScriptStatesItsContractAndRunsWithoutMemory(t *testing.T) {
	files, _ := filepath.Glob(filepath.Join(harness.ScriptDir(), "*.lua"))
	if len(files) != len(harness.Scripts())+1 { // queue.lua goes before others
		t.Errorf("scripts: got %d files, want %d and queue.lua", len(files), len(harness.Scripts()))
	}
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		lines := bufio.NewScanner(f)
		lines.Scan()
		if first := lines.Text(); !strings.HasPrefix(first, "-- ") { // #! would have it refused for want of memory
			t.Errorf("%s begins with %q, want its contract in a comment", name, first)
		}
		for lines.Scan() {
			if l := lines.Text(); strings.Contains(l, "tostring") {
				t.Errorf("%s prints a number by tostring, which real servers round: %q", name, l)
			}
		}
	}
}

func TestScriptExtend(t *testing.T) {
	extend := func(s *stage) any { return s.eval("extend", "ours", "5000", "77", "86000000", "86400000") }
	onScriptCases(t, extend, []scriptCase{
		{"ours: a new ttl, the register at our fence, with a ttl", scriptState{"ours", sec, "", 0}, []any{1}, scriptState{"ours", 5 * sec, "77", day}},
		{"no ttl is shortened", scriptState{"ours", 9 * sec, "77", 25 * time.Hour}, []any{1}, scriptState{"ours", 9 * sec, "77", 25 * time.Hour}},
		{"a key without a ttl gets one", scriptState{"ours", 0, "", 0}, []any{1}, scriptState{"ours", 5 * sec, "77", day}},
		{"the register is not lowered", scriptState{"ours", sec, "78", 0}, []any{1}, scriptState{"ours", 5 * sec, "78", day}},
		{"a register that is behind is raised", scriptState{"ours", sec, "76", 0}, []any{1}, scriptState{"ours", 5 * sec, "77", day}},
		{"a register's ttl that is long enough stays", scriptState{"ours", sec, "77", 86100 * sec}, []any{1}, scriptState{"ours", 5 * sec, "77", 86100 * sec}},
		{"another's: nothing changes", scriptState{"theirs", sec, "5", 0}, []any{0}, scriptState{"theirs", sec, "5", 0}},
		{"missing: nothing is made", scriptState{}, []any{-1}, scriptState{}},
		{"a value that only begins like ours is another's", scriptState{"ours2", sec, "", 0}, []any{0}, scriptState{"ours2", sec, "", 0}},
	})
}

func TestScriptRaise(t *testing.T) {
	const below, token, above = "1800000000123456", "1800000000123457", "1800000000123458"
	raise := func(s *stage) any { return s.eval("raise", "ours", token) }
	onScriptCases(t, raise, []scriptCase{
		{"below: it is the token now, and the lock's ttl stays", scriptState{"ours", sec, below, 0}, []any{1}, scriptState{"ours", sec, token, 0}},
		{"no register yet: it is the token now", scriptState{"ours", sec, "", 0}, []any{1}, scriptState{"ours", sec, token, 0}},
		{"equal, as after a second delivery: it was not below, and the reply has all its digits", scriptState{"ours", sec, token, 0}, []any{2, token}, scriptState{"ours", sec, token, 0}},
		{"above: it was not below, and is not lowered", scriptState{"ours", sec, above, 0}, []any{2, above}, scriptState{"ours", sec, above, 0}},
		{"another's: nothing changes", scriptState{"theirs", sec, "5", 0}, []any{0}, scriptState{"theirs", sec, "5", 0}},
		{"missing: nothing is made", scriptState{}, []any{-1}, scriptState{}},
	})
}

func TestScriptRelease(t *testing.T) {
	release := func(s *stage, channel, tells string) any {
		return s.release("ours", channel, "", tells, "86000000", "86400000")
	}
	onScriptCases(t, func(s *stage) any { return release(s, "x", "2") }, []scriptCase{
		{"ours: deleted, the register kept with a ttl", scriptState{"ours", sec, "77", 0}, []any{1}, scriptState{"", 0, "77", day}},
		{"another's: not deleted, the register with a ttl", scriptState{"theirs", sec, "77", 0}, []any{0}, scriptState{"theirs", sec, "77", day}},
		{"missing, as after a second delivery: the register with a ttl all the same", scriptState{"", 0, "77", 0}, []any{-1}, scriptState{"", 0, "77", day}},
		{"missing, and no register: nothing is made", scriptState{}, []any{-1}, scriptState{}},
		{"a longer ttl is not shortened", scriptState{"ours", sec, "77", 25 * time.Hour}, []any{1}, scriptState{"", 0, "77", 25 * time.Hour}},
	})
	onScript(t, "a key of another type is another's", func(s *stage) {
		s.Do(0, "RPUSH", job, "a list")
		s.Do(0, "ZADD", jobRegister, "77", "f")
		s.answers("release", release(s, "x", "2"), 0)
		s.answers("the list", s.Do(0, "LLEN", job), 1)
		if got := s.Node(0).TTL(jobRegister); got != day {
			s.Errorf("the register lives for %v, want a day", got)
		}
	})
	announced := func(s *stage, channel, tells string) []string {
		clients := s.Cluster.Clients()
		sub := clients[0].PSubscribe(s.Ctx, "*")
		defer sub.Close()
		if _, err := sub.Receive(s.Ctx); err != nil {
			s.Fatal(err)
		}
		s.place("w", 1, s.ms()+5000)
		release(s, channel, tells)
		var got []string
		for {
			select {
			case m := <-sub.Channel():
				got = append(got, m.Channel+" "+m.Payload)
			case <-time.After(time.Second):
				return got
			}
		}
	}
	for _, c := range []struct{ tells, value, want string }{
		{"2", "ours", "1 ours"}, {"2", "", "1 ours"}, {"2", "theirs", ""},
		{"attempt", "ours", "1? ours"}, {"attempt", "", ""}, {"attempt", "theirs", ""},
		{"handed", "ours", "1? ours"}, {"handed", "", "1? ours"}, {"handed", "theirs", ""},
	} {
		onScript(t, fmt.Sprintf("announces where the lock is free then: tells %s, the key has %q", c.tells, c.value), func(s *stage) {
			if c.value != "" {
				s.Node(0).Set(job, c.value, time.Minute)
			}
			got := strings.Join(announced(s, "{jobs/42}:release", c.tells), "; ")
			if want := "{jobs/42}:release:w " + c.want; c.want == "" && got != "" || c.want != "" && got != want {
				s.Errorf("announced: got %q, want %q", got, want)
			}
		})
	}
	onScript(t, "announces nothing without a channel", func(s *stage) {
		s.Node(0).Set(job, "ours", time.Minute)
		if got := announced(s, "", "2"); len(got) > 0 {
			s.Errorf("announced: got %q, want nothing", got)
		}
	})
	// A refusal says nothing about whose the key is, and comes before the deletion: an
	// error in place of an answer means that the lock is as it was.
	for _, refused := range []string{"get", "del", "pttl", "pexpire"} {
		for _, text := range []string{
			"NOPERM User locks has no permissions to run the '" + refused + "' command",
			"The user executing the script can't run this command or subcommand",
		} {
			onScript(t, "who may not "+refused+" is told: "+text[:7], func(s *stage) {
				s.Node(0).Set(job, "ours", time.Minute)
				s.Do(0, "ZADD", jobRegister, "77", "f")
				s.Node(0).FailCommand(refused, text)
				got, err := s.Node(0).Do("EVAL", harness.Script("release"), "3", job, jobQueue, jobRegister, "ours", "x")
				if err == nil || !strings.Contains(err.Error(), text) {
					s.Errorf("release: got %v, %v; want the error", got, err)
				}
				s.Node(0).FailCommand(refused, "")
				if got, _ := s.Node(0).Get(job); got != "ours" {
					s.Errorf("afterwards: the lock holds %q, want what it held", got)
				}
				s.answers("release, once it is allowed", release(s, "x", "2"), 1)
			})
		}
	}
	onScript(t, "who may not publish has released all the same", func(s *stage) {
		s.Node(0).Set(job, "ours", time.Minute)
		s.Node(0).FailCommand("publish", "NOPERM this user has no permissions to access one of the channels used as arguments")
		s.answers("release", release(s, "x", "2"), 1)
		s.leaves("afterwards", "", 0, "", 0)
	})
}

// listening subscribes to channels of the stage's only node, one client to each: what is
// published on them until silence is what the result gives, in order.
func (s *stage) listening(channels ...string) (heard func() []string) {
	s.Helper()
	var all []<-chan *redis.Message
	for _, c := range channels {
		sub := s.Cluster.Clients()[0].Subscribe(s.Ctx, c)
		s.Cleanup(func() { sub.Close() })
		if _, err := sub.Receive(s.Ctx); err != nil {
			s.Fatal(err)
		}
		all = append(all, sub.Channel())
	}
	return func() (got []string) {
		time.Sleep(time.Second)
		for i, ch := range all {
			for len(ch) > 0 {
				m := <-ch
				got = append(got, strings.TrimPrefix(channels[i], "{jobs/42}:release")+"="+m.Payload)
			}
		}
		return got
	}
}

// place puts a place into the queue of the stage's only node.
func (s *stage) place(member string, ticket, over int) {
	s.Helper()
	s.Do(0, "ZADD", jobQueue, fmt.Sprint(ticket), member, harness.EndOf(over), member+"!")
}

// queues checks who stands in the queue of the stage's only node, first to last, and
// that these have an end and nobody else has one.
func (s *stage) queues(what string, want ...any) {
	s.Helper()
	var got, over []any
	for _, m := range s.Do(0, "ZRANGE", jobQueue, "0", "-1").([]any) {
		if place, ok := strings.CutSuffix(m.(string), "!"); ok {
			over = append(over, place)
		} else {
			got = append(got, m)
		}
	}
	if !slices.Equal(got, want) || len(over) != len(want) {
		s.Errorf("%s: got %v, want %v, and as many with an end: %v", what, got, want, over)
	}
}

// ticket checks the ticket of a place, to the last digit.
func (s *stage) ticket(place string, want int) {
	s.Helper()
	if got, _ := s.Node(0).Score(jobQueue, place); int(got) != want {
		s.Errorf("ticket of %s: got %d, want %d", place, int(got), want)
	}
}

func (s *stage) us() int { return int(s.Node(0).Now().UnixMicro()) }
func (s *stage) ms() int { return int(s.Node(0).Now().UnixMilli()) }

const releaseChannel = "{jobs/42}:release"

func TestScriptReleaseTellsTheQueue(t *testing.T) {
	release := func(s *stage, place, tell string) any {
		if place, ok := strings.CutSuffix(place, " stay"); ok {
			return s.release("ours", releaseChannel, place, tell, "86400000", "90000000", "12000")
		}
		return s.release("ours", releaseChannel, place, tell)
	}
	tells := func(name, place, tell string, reply int, before func(s *stage), want string, left ...any) {
		onScript(t, name, func(s *stage) {
			heard := s.listening(releaseChannel, releaseChannel+":a", releaseChannel+":b", releaseChannel+":c", releaseChannel+":d")
			s.Node(0).Set(job, "ours", sec)
			before(s)
			s.answers("release", release(s, place, tell), reply)
			s.leaves("afterwards", "", 0, "", 0)
			harness.Check(s, "announced", strings.Join(heard(), " "), want)
			if len(left) > 0 {
				s.queues("afterwards", left...)
			}
		})
	}
	four := func(s *stage) {
		for i, place := range []string{"d", "b", "c", "a"} { // not as the names are
			s.place(place, 10+i, s.ms()+5000)
		}
	}
	tells("nobody queues", "", "2", 1, func(*stage) {}, "")
	tells("the first two, in order", "", "2", 2, four, ":b=2 ours :d=1 ours", "d", "b", "c", "a")
	tells("the first", "", "1", 2, four, ":d=1 ours", "d", "b", "c", "a")
	tells("all, where there are no more", "", "9", 2, four, ":a=4 ours :b=2 ours :c=3 ours :d=1 ours", "d", "b", "c", "a")
	tells("nobody, though somebody queues", "", "0", 1, four, "", "d", "b", "c", "a")
	lapsed := func(s *stage) {
		four(s)
		s.place("d", 10, s.ms()-1)
		s.place("b", 11, s.ms()) // its last millisecond
		s.Do(0, "ZREM", jobQueue, "c!")
		s.place("e", 1, s.ms()-1000)
	}
	tells("those whose time is over are passed over", "", "2", 2, lapsed, ":a=2 ours :b=1 ours")
	tells("the end of a young ticket is not read, that of an older one is", "", "2", 2, func(s *stage) {
		four(s)
		s.place("d", s.us()-2000001, s.ms()-1)
		s.place("b", s.us()-2000000, s.ms()-1)
		s.place("c", s.us(), s.ms()-1)
		s.Do(0, "ZREM", jobQueue, "a", "a!")
	}, ":b=1 ours :c=2 ours")
	tells("but not by one that tells a single one", "", "1", 2, lapsed, ":d=1 ours")
	tells("those whom nobody hears are passed over", "", "2", 2, func(s *stage) {
		four(s)
		s.place("e", 1, s.ms()+5000)
		s.place("f", 12, s.ms()+5000)
	}, ":b=2 ours :d=1 ours", "e", "d", "b", "c", "f", "a")
	tells("nobody hears", "", "2", 1, func(s *stage) { s.place("e", 1, s.ms()+5000) }, "", "e")
	tells("however many", "", "2", 2, func(s *stage) {
		four(s)
		for i := range 100 {
			s.place(fmt.Sprint("dead", i), 1, s.ms()+5000)
		}
	}, ":b=2 ours :d=1 ours")
	tells("our place goes to the end, and the others are told", "d stay", "2", 2, four, ":b=1 ours :c=2 ours", "b", "c", "a", "d")
	tells("our place goes, and the others are told", "d", "2", 2, four, ":b=1 ours :c=2 ours", "b", "c", "a")
	tells("our place alone is not told, and goes", "d stay", "2", 1, func(s *stage) { s.place("d", 10, s.ms()+5000) }, "")
	tells("a place that is not there is made", "e stay", "2", 2, four, ":b=2 ours :d=1 ours", "d", "b", "c", "a", "e")
	tells("but not where nobody else queues", "e stay", "2", 1, func(*stage) {}, "")
	onScript(t, "our place gets the node's time, and an end", func(s *stage) {
		heard := s.listening(releaseChannel + ":b")
		s.place("d", 10, s.ms()+5000)
		s.place("b", 11, s.ms()+5000)
		s.Do(0, "PEXPIRE", jobQueue, "9000")
		s.Node(0).Set(job, "ours", sec)
		time.Sleep(123456 * time.Microsecond)
		s.answers("release", release(s, "d stay", "2"), 2)
		s.ticket("d", s.us())
		s.answers("its end", s.Do(0, "ZSCORE", jobQueue, "d!"), harness.EndOf(s.ms()+12000))
		if got := s.Node(0).TTL(jobQueue); got != 8876544*time.Microsecond {
			s.Errorf("life of the queue: got %v, want it as it was", got)
		}
		s.release("ours", releaseChannel, "d", "2", "1", "9", "12000", "15000")
		if got := s.Node(0).TTL(jobQueue); got != 15*sec {
			s.Errorf("life of the queue: got %v, want it anew", got)
		}
		heard()
	})
	// With a ticket the entry is that of the next caller of the Locker, which takes its turn like all others.
	next := func(name, tell, ticket string, before func(s *stage), reply int, want string, queue ...any) {
		onScript(t, "our next caller is queued: "+name, func(s *stage) {
			heard := s.listening(releaseChannel+":a", releaseChannel+":b", releaseChannel+":c", releaseChannel+":d")
			s.Node(0).Set(job, "ours", sec)
			before(s)
			s.Do(0, "PEXPIRE", jobQueue, "9000")
			s.answers("release", s.release("ours", releaseChannel, "c", tell, "86400000", "90000000", "2000", "15000", ticket), reply)
			s.queues("afterwards", queue...)
			s.answers("its end", s.Do(0, "ZSCORE", jobQueue, "c!"), harness.EndOf(s.ms()+2000))
			harness.Check(s, "life of the queue", s.Node(0).TTL(jobQueue), 15*sec)
			harness.Check(s, "announced", strings.Join(heard(), " "), want)
		})
	}
	next("nobody else queues", "1", "7", func(*stage) {}, 2, ":c=1 ours", "c")
	next("before the others", "1", "7", four, 2, ":c=1 ours", "c", "d", "b", "a")
	next("behind one", "2", "10", func(s *stage) { s.place("b", 9, s.ms()+5000) }, 2, ":b=1 ours :c=2 ours", "b", "c")
	next("behind one that alone is told", "1", "10", func(s *stage) { s.place("b", 9, s.ms()+5000) }, 2, ":b=1 ours", "b", "c")
	next("in place of the caller that had the lock", "1", "12", func(s *stage) {
		s.place("c", 3, s.ms()+1000)
		s.place("a", 11, s.ms()+5000)
	}, 2, ":a=1 ours", "a", "c")
	onScript(t, "another's lock: nobody is told, and our place goes to the end all the same", func(s *stage) {
		heard := s.listening(releaseChannel + ":a")
		s.Node(0).Set(job, "theirs", sec)
		s.place("d", 1, s.ms()+5000)
		s.place("a", 2, s.ms()+5000)
		s.answers("release", release(s, "d stay", "2"), 0)
		harness.Check(s, "announced", strings.Join(heard(), " "), "")
		s.queues("afterwards", "a", "d")
	})
	for _, place := range []string{"", "d"} {
		onScript(t, "a queue of another type does not stop a release: "+place, func(s *stage) {
			s.Node(0).Set(job, "ours", sec)
			s.Do(0, "SET", jobQueue, "word")
			s.answers("release", release(s, place, "2"), 1)
			s.leaves("afterwards", "", 0, "", 0)
		})
	}
	for _, refused := range []string{"time", "zadd", "zrange", "zrem"} {
		onScript(t, "what only the queue needs does not stop a release: no "+refused, func(s *stage) {
			s.Node(0).Set(job, "ours", sec)
			four(s)
			s.Node(0).FailCommand(refused, "NOPERM this user has no permissions to run the '"+refused+"' command")
			s.answers("release", release(s, "d", "2"), 1)
			s.Node(0).FailCommand(refused, "")
			s.leaves("afterwards", "", 0, "", 0)
		})
	}
	onScript(t, "who may not publish has released all the same, and nobody else is told in his place", func(s *stage) {
		heard := s.listening(releaseChannel+":d", releaseChannel+":b")
		s.Node(0).Set(job, "ours", sec)
		four(s)
		s.Node(0).FailCommand("publish", "NOPERM no channels")
		s.answers("release", release(s, "", "2"), 3)
		s.leaves("afterwards", "", 0, "", 0)
		if got := heard(); len(got) > 0 {
			s.Errorf("announced: got %q, want nothing", got)
		}
	})
}

func TestScriptLeave(t *testing.T) {
	leave := func(s *stage, place, tell string) any {
		return s.Do(0, "EVAL", harness.Script("leave"), "2", job, jobQueue, place, releaseChannel, tell, "news")
	}
	three := func(s *stage) {
		for i, place := range []string{"c", "b", "a"} {
			s.place(place, 10+i, s.ms()+5000)
		}
	}
	tells := func(name, tell string, before func(s *stage), want string, left ...any) {
		onScript(t, name, func(s *stage) {
			heard := s.listening(releaseChannel, releaseChannel+":a", releaseChannel+":b", releaseChannel+":c", releaseChannel+":p")
			s.place("p", 1, s.ms()+5000)
			before(s)
			s.answers("leave", leave(s, "p", tell), 1)
			harness.Check(s, "told", strings.Join(heard(), " "), want)
			s.queues("afterwards", left...)
		})
	}
	tells("the last one: nothing is left", "2", func(*stage) {}, "")
	tells("free: the first two who hear it", "2", three, ":b=2 news :c=1 news", "c", "b", "a")
	tells("free: the first", "1", three, ":c=1 news", "c", "b", "a")
	tells("free: the dead are passed over, however many", "2", func(s *stage) {
		s.place("a", 10, s.ms()+5000)
		for i := range 40 {
			s.place(fmt.Sprint("dead", i), 2, s.ms()+5000)
			s.Do(0, "ZADD", jobQueue, "2", fmt.Sprint("dead", i))
		}
		s.place("b", 11, s.ms()-1)
		s.place("c", 12, s.ms())
		for i := range 40 { // as they lapse
			s.Do(0, "ZADD", jobQueue, harness.EndOf(s.ms()+1), fmt.Sprint("dead", i, "!"))
		}
	}, ":a=1 news :c=2 news", deadOnes(40, "a", "b", "c")...)
	tells("held: nobody", "2", func(s *stage) {
		three(s)
		s.Node(0).Set(job, "theirs", sec)
	}, "", "c", "b", "a")
	tells("held by a key of another type: nobody", "2", func(s *stage) {
		three(s)
		s.Do(0, "RPUSH", job, "a list")
	}, "", "c", "b", "a")
	onScript(t, "who is not there leaves all the same", func(s *stage) {
		s.place("a", 1, s.ms()+5000)
		s.answers("leave", leave(s, "p", "2"), 1)
		s.queues("afterwards", "a")
	})
	onScript(t, "who may not publish has left all the same", func(s *stage) {
		s.place("p", 1, s.ms()+5000)
		three(s)
		s.Node(0).FailCommand("publish", "NOPERM no channels")
		s.answers("leave", leave(s, "p", "2"), 1)
		s.queues("afterwards", "c", "b", "a")
	})
}

// deadOnes is the places of the many dead, in the order of their names, and then others.
func deadOnes(n int, then ...any) (all []any) {
	for i := range n {
		all = append(all, fmt.Sprint("dead", i))
	}
	slices.SortFunc(all, func(a, b any) int { return strings.Compare(a.(string), b.(string)) })
	return append(all, then...)
}

func TestScriptWait(t *testing.T) {
	wait := func(s *stage, place, ticket string) any {
		return s.Do(0, "EVAL", harness.Script("wait"), "2", job, jobQueue, place, ticket, "12000", "15000")
	}
	var free scriptState
	onQueueCases(t, wait, []queueCase{
		{"free", free, "", []queueCall{{"p", "", []any{-2, 0, now}}}, free, "p"},
		{"held for ever", scriptState{value: "theirs"}, "", []queueCall{{"p", "", []any{-1, 0, now}}}, scriptState{value: "theirs"}, "p"},
		{"places whose time is over are dropped, and those that would last for too long", free,
			"late 1 -1, future 3 15001, endless 5 +inf, without 4, longest 6 15000, just 7 0, behind 8 -1",
			[]queueCall{{"p", "", []any{-2, 3, now}}}, free, "longest just behind p"},
		{"new: nobody is dropped", free, "late 1 -1", []queueCall{{"p", "new", []any{-2, 1, now}}}, free, "late p"},
		{"a place of our own that is over counts again", free, "q 5 1000, p 1 -1", []queueCall{{"p", "", []any{-2, 0, now}}}, free, "p q"},
	})
	onScript(t, "held: queued at the node's time, told for how long and behind how many", func(s *stage) {
		time.Sleep(1234567 * time.Microsecond)
		s.Node(0).Set(job, "theirs", 9*sec)
		s.answers("wait", wait(s, "p", ""), 9000, 0, s.us())
		s.ticket("p", s.us())
		s.answers("its end", s.Do(0, "ZSCORE", jobQueue, "p!"), harness.EndOf(s.ms()+12000))
		time.Sleep(time.Millisecond)
		s.answers("wait", wait(s, "a", ""), 8999, 1, s.us())
		s.queues("in order of arrival", "p", "a")
		s.leaves("nothing is taken", "theirs", 8999*time.Millisecond, "", 0)
	})
	onScript(t, "held by a key of another type", func(s *stage) {
		s.Do(0, "RPUSH", job, "a list")
		s.answers("wait", wait(s, "p", ""), -1, 0, s.us())
	})
	onScript(t, "asked again: the ticket stays, the time begins anew", func(s *stage) {
		began := s.us()
		wait(s, "p", "")
		time.Sleep(time.Millisecond)
		wait(s, "q", "")
		time.Sleep(5 * time.Second)
		s.answers("wait", wait(s, "p", ""), -2, 0, s.us())
		s.ticket("p", began)
		s.answers("its end", s.Do(0, "ZSCORE", jobQueue, "p!"), harness.EndOf(s.ms()+12000))
		harness.Check(s, "life of the queue", s.Node(0).TTL(jobQueue), 15*sec)
		s.queues("afterwards", "p", "q")
		time.Sleep(15*time.Second + time.Millisecond)
		s.queues("unused")
	})
	onScript(t, "new: behind all others", func(s *stage) {
		for _, place := range []string{"p", "q"} {
			wait(s, place, "")
			time.Sleep(time.Millisecond)
		}
		s.answers("wait", wait(s, "p", "new"), -2, 1, s.us())
		s.ticket("p", s.us())
		s.queues("afterwards", "q", "p")
		s.answers("wait", wait(s, "r", "new"), -2, 2, s.us())
	})
	onScript(t, "many whose time is over, ends alone, and what stands behind them: neither stops a node", func(s *stage) {
		for i := range 150 {
			s.place(fmt.Sprint("dead", i), i%7, s.ms()-1)
			s.Do(0, "ZADD", jobQueue, "3", fmt.Sprint("low", i, "!"))
		}
		s.answers("wait", wait(s, "p", ""), -2, 0, s.us())
		s.queues("afterwards", "p")
		for i := range 150 {
			s.Do(0, "ZADD", jobQueue, harness.EndOf(s.ms()), fmt.Sprint("alone", i, "!"))
		}
		s.Do(0, "ZREM", jobQueue, "p", "p!")
		s.Do(0, "ZADD", jobQueue, "+inf", "behind")
		s.answers("wait", wait(s, "q", "7"), -2, 0, s.us())
	})
}

func TestScriptAdopt(t *testing.T) {
	adopt := func(s *stage, ms, token string) any {
		return s.eval("adopt", "theirs", "ours", ms, token, "86000000", "86400000")
	}
	// notes checks the members of the register but f, with their scores.
	notes := func(s *stage, want ...any) {
		s.Helper()
		var got []any
		for _, m := range s.Do(0, "ZRANGE", jobRegister, "0", "-1").([]any) {
			if m != "f" {
				got = append(got, m, s.Do(0, "ZSCORE", jobRegister, m.(string)))
			}
		}
		if !reflect.DeepEqual(got, want) {
			s.Errorf("notes in the register: got %v, want %v", got, want)
		}
	}
	// Where it is done the register notes when the old value would have expired, or that it had no end.
	onScriptCases(t, func(s *stage) any {
		old := s.Values()[0]
		ends := "0"
		if ttl := s.Node(0).TTL(job); ttl > 0 {
			ends = fmt.Sprint(s.ms() + int(ttl.Milliseconds()))
		}
		reply := adopt(s, "5000", "77")
		if old == "theirs" {
			notes(s, "ours", ends)
		} else {
			notes(s)
		}
		return reply
	}, []scriptCase{
		{"held: the new value, the ttl, the register moved and given a life", scriptState{"theirs", sec, "76", 0}, []any{1, 1}, scriptState{"ours", 5 * sec, "77", day}},
		{"the register stands at the token: done, and the reply says that it was not below", scriptState{"theirs", sec, "77", 0}, []any{1, 0}, scriptState{"ours", 5 * sec, "77", day}},
		{"the register stands above: the same", scriptState{"theirs", sec, "78", 0}, []any{1, 0}, scriptState{"ours", 5 * sec, "78", day}},
		{"a register's ttl that is long enough stays", scriptState{"theirs", sec, "76", 86100 * sec}, []any{1, 1}, scriptState{"ours", 5 * sec, "77", 86100 * sec}},
		{"never shortens a ttl", scriptState{"theirs", 9 * sec, "", 0}, []any{1, 1}, scriptState{"ours", 9 * sec, "77", day}},
		{"gives an end to a key that has none", scriptState{"theirs", 0, "", 0}, []any{1, 1}, scriptState{"ours", 5 * sec, "77", day}},
		{"a third one's: nothing is touched, and its value told", scriptState{"a third", sec, "5", 0}, []any{0, "a third"}, scriptState{"a third", sec, "5", 0}},
		{"missing: nothing is made", scriptState{}, []any{-1}, scriptState{}},
	})
	onScript(t, "a server before 7.0 has no PEXPIRETIME", func(s *stage) {
		s.Node(0).FailCommand("pexpiretime", "ERR Unknown Redis command called from script")
		s.Node(0).Set(job, "theirs", sec)
		s.answers("adopt", adopt(s, "5000", "77"), 1, 1)
		notes(s, "ours", fmt.Sprint(s.ms()+1000))
		s.Node(0).Set(job, "theirs", 0)
		s.answers("adopt", adopt(s, "5000", "78"), 1, 1)
		notes(s, "ours", "0")
	})
	onScript(t, "of earlier notes only that of the value that is replaced stays", func(s *stage) {
		s.Node(0).Set(job, "theirs", 9*sec)
		s.Do(0, "ZADD", jobRegister, "1", "older", "2", "theirs", "3", "oldest")
		adopt(s, "5000", "77")
		notes(s, "theirs", "2", "ours", fmt.Sprint(s.ms()+9000))
		s.leaves("afterwards", "ours", 9*sec, "77", day)
	})
	onScript(t, "a second delivery finds the new value, and touches nothing", func(s *stage) {
		s.Node(0).Set(job, "theirs", sec)
		adopt(s, "5000", "77")
		s.answers("adopt", adopt(s, "9000", "99"), 0, "ours")
		s.leaves("afterwards", "ours", 5*sec, "77", day)
		notes(s, "ours", fmt.Sprint(s.ms()+1000))
	})
}

func TestScriptRestore(t *testing.T) {
	adopted := func(s *stage, ttl time.Duration) {
		s.Node(0).Set(job, "theirs", ttl)
		s.eval("adopt", "theirs", "ours", "5000", "77", "86000000", "86400000")
	}
	restore := func(s *stage) any {
		return s.evalQueue("restore", "ours", "theirs", "86000000", "86400000", releaseChannel)
	}
	after := func(d time.Duration) func(*stage) { return func(*stage) { time.Sleep(d) } }
	for _, c := range []struct {
		name    string
		ttl     time.Duration  // of the old value; the adopter's is 5 s
		between func(s *stage) // the adoption and the restore
		reply   int
		value   string        // afterwards
		left    time.Duration // of its ttl
		passed  time.Duration // of the register's ttl
	}{
		{"ours: the old value, with what is left of its shorter ttl", 3 * sec, after(2 * sec), 1, "theirs", sec, 2 * sec},
		{"ours: the old value, with what is left of its longer ttl", 9 * sec, after(2 * sec), 1, "theirs", 7 * sec, 2 * sec},
		{"a second delivery touches nothing", 3 * sec, func(s *stage) { restore(s) }, 0, "theirs", 3 * sec, 0},
		{"the old value would have expired: nothing", 3 * sec, after(3 * sec), 1, "", 0, 3 * sec},
		{"it had no end: it has none", 0, after(0), 1, "theirs", 0, 0},
		{"an extension of the adopter's in between changes nothing", 3 * sec, func(s *stage) {
			s.eval("extend", "ours", "60000", "77", "86000000", "86400000")
			time.Sleep(sec)
		}, 1, "theirs", 2 * sec, sec},
		{"the clock was set in between: as if it had stayed", 9 * sec, func(s *stage) { s.Node(0).JumpClock(2 * sec) }, 1, "theirs", 7 * sec, 2 * sec},
	} {
		onScript(t, c.name, func(s *stage) {
			adopted(s, c.ttl)
			c.between(s)
			s.answers("restore", restore(s), c.reply)
			s.leaves("afterwards", c.value, c.left, "77", day-c.passed)
			if v := s.Do(0, "ZSCORE", jobRegister, "ours"); v != nil {
				s.Errorf("the note stays in the register: %v", v)
			}
		})
	}
	onScript(t, "two adoptions that fail, undone in turn", func(s *stage) {
		adopted(s, 3*sec)
		s.eval("adopt", "ours", "a third", "60000", "78", "86000000", "86400000")
		time.Sleep(sec)
		s.answers("restore", s.evalQueue("restore", "a third", "ours", "86000000", "86400000", releaseChannel), 1)
		s.leaves("the first adopter's", "ours", 4*sec, "78", day-sec)
		s.answers("restore", restore(s), 1)
		s.leaves("the giver's", "theirs", 2*sec, "78", day-sec)
	})
	for what, lose := range map[string][]string{"was lost": {"DEL", jobRegister}, "is of another type": {"SET", jobRegister, "word", "PX", "86400000"}} {
		onScript(t, "the register "+what+": the ttl that is there", func(s *stage) {
			adopted(s, 3*sec)
			s.Do(0, lose...)
			s.answers("restore", restore(s), 1)
			harness.Check(s, "the lock's value", s.Values()[0], "theirs")
			harness.Check(s, "its ttl", s.Node(0).TTL(job), 5*sec)
		})
	}
	onScriptCases(t, restore, []scriptCase{
		{"another's: the register gets a ttl", scriptState{"a third", sec, "5", 0}, []any{0}, scriptState{"a third", sec, "5", day}},
		{"missing: the same, and nothing is made", scriptState{"", 0, "5", 0}, []any{-1}, scriptState{"", 0, "5", day}},
	})
	for _, refused := range []string{"pexpireat", "set"} {
		onScript(t, "refused "+refused+": never a value without an end, and done by the next", func(s *stage) {
			adopted(s, 3*sec)
			s.Node(0).FailCommand(refused, "NOPERM no "+refused)
			if v, err := s.Node(0).Do("EVAL", harness.Script("restore"), "3", job, jobRegister, jobQueue, "ours", "theirs", "86000000", "86400000", releaseChannel); err == nil {
				s.Errorf("restore: got %v, want an error", v)
			}
			harness.Check(s, "the lock has an end", s.Node(0).TTL(job) > 0, true)
			s.Node(0).FailCommand(refused, "")
			s.answers("restore", restore(s), 1)
			s.leaves("afterwards", "theirs", 3*sec, "77", day)
		})
	}
	for _, c := range []struct {
		name   string
		ttl    time.Duration // as above
		after  time.Duration
		refuse string
		want   string
	}{
		{"the lock ends sooner: the first two that listen are told", 3 * sec, 2 * sec, "", ":b=1? ours :d=2? ours"},
		{"the lock would have expired: likewise", 3 * sec, 3 * sec, "", ":b=1? ours :d=2? ours"},
		{"the lock has as long as before: nobody is told", 9 * sec, 2 * sec, "", ""},
		{"the lock has no end again: nobody is told", 0, 0, "", ""},
		{"nobody may publish", 3 * sec, 2 * sec, "publish", ""},
		{"nobody may ask for the time", 3 * sec, 2 * sec, "time", ""},
		{"nobody may read the queue", 3 * sec, 2 * sec, "zrange", ""},
	} {
		onScript(t, c.name, func(s *stage) {
			heard := s.listening(releaseChannel, releaseChannel+":a", releaseChannel+":b", releaseChannel+":c", releaseChannel+":d")
			adopted(s, c.ttl)
			time.Sleep(c.after)
			s.place("a", 9, s.ms()-1) // its time is over
			s.place("e", 10, s.ms()+5000)
			s.place("b", 11, s.ms()+5000)
			s.place("d", 12, s.ms()+5000)
			s.place("c", 13, s.ms()+5000)
			s.Node(0).FailCommand(c.refuse, "NOPERM")
			s.answers("restore", restore(s), 1)
			s.Node(0).FailCommand(c.refuse, "")
			harness.Check(s, "announced", strings.Join(heard(), " "), c.want)
		})
	}
}

func TestScriptInspect(t *testing.T) {
	none := []any(nil)
	inspect := func(s *stage) any { return s.evalQueue("inspect") }
	onScriptCases(t, inspect, []scriptCase{
		{"nothing there", scriptState{}, []any{"", -2, "", none}, scriptState{}},
		{"held", scriptState{"ours", 5 * sec, "1800000000123457", 0}, []any{"ours", 5000, "1800000000123457", none}, scriptState{"ours", 5 * sec, "1800000000123457", 0}},
		{"held without a ttl", scriptState{"theirs", 0, "", 0}, []any{"theirs", -1, "", none}, scriptState{"theirs", 0, "", 0}},
		{"free, the register stands", scriptState{"", 0, "77", 0}, []any{"", -2, "77", none}, scriptState{"", 0, "77", 0}},
	})
	onScript(t, "who queues, in order, but nobody whose place is over", func(s *stage) {
		s.place("b", 0, s.ms()+100)
		s.place("late", 1, s.ms()-1)
		s.place("a", 2, s.ms()+100)
		s.answers("inspect", inspect(s), "", -2, "", []any{"b", "a"})
	})
}

func TestScriptTouch(t *testing.T) {
	onScriptCases(t, func(s *stage) any { return s.eval("touch", "86000000", "86400000") }, []scriptCase{
		{"a register without a ttl", scriptState{"anybody's", sec, "77", 0}, []any{1}, scriptState{"anybody's", sec, "77", day}},
		{"a ttl that is too short by a millisecond", scriptState{"", 0, "77", 86000*sec - time.Millisecond}, []any{1}, scriptState{"", 0, "77", day}},
		{"a ttl that is long enough", scriptState{"", 0, "77", 86000 * sec}, []any{1}, scriptState{"", 0, "77", 86000 * sec}},
		{"a longer one", scriptState{"", 0, "77", 25 * time.Hour}, []any{1}, scriptState{"", 0, "77", 25 * time.Hour}},
		{"no register: nothing is made", scriptState{}, []any{1}, scriptState{}},
	})
}

// A life that nobody spells out is the usual: 25 hours, where there is less than 24.
func TestScriptsKnowTheUsualLife(t *testing.T) {
	for name, f := range map[string]func(s *stage) any{
		"release":  func(s *stage) any { return s.release("ours", "x") },
		"rollback": func(s *stage) any { return s.release("ours") },
		"extend":   func(s *stage) any { return s.eval("extend", "ours", "5000", "77") },
		"touch":    func(s *stage) any { return s.eval("touch") },
	} {
		for _, c := range []struct {
			life string
			want time.Duration
		}{{"", 25 * time.Hour}, {"86399999", 25 * time.Hour}, {"86400000", day}, {"90000000", 25 * time.Hour}, {"99000000", 99000 * sec}} {
			onScript(t, name+" "+c.life, func(s *stage) {
				s.Node(0).Set(job, "ours", sec)
				s.Do(0, "ZADD", jobRegister, "77", "f")
				if c.life != "" {
					s.Do(0, "PEXPIRE", jobRegister, c.life)
				}
				s.answers(name, f(s), 1)
				if got := s.Node(0).TTL(jobRegister); got != c.want {
					s.Errorf("the register lives for %v, want %v", got, c.want)
				}
			})
		}
	}
}

func TestScriptTurn(t *testing.T) {
	// The value, ttl and token of an acquire; a place and its ticket; how long a place
	// and a queue live.
	turn := func(s *stage, place, ticket string) any {
		return s.evalQueue("turn", "ours", "5000", "77", place, ticket, "2000", "15000", releaseChannel, "")
	}
	var free scriptState
	ours := scriptState{"ours", 5 * sec, "77", 0}
	theirs := scriptState{"theirs", 9 * sec, "", 0}
	onQueueCases(t, turn, []queueCase{
		{"free and nobody queues: ours, the register moved; nothing is queued without a ticket", scriptState{register: "76"}, "", []queueCall{{"", "", []any{1, 1, now}}}, ours, ""},
		{"the register stands there: ours, and says that it was not below", scriptState{register: "77"}, "", []queueCall{{"p", "10", []any{1, 0, 0}}}, ours, ""},
		{"the register stands above: the same", scriptState{register: "78"}, "", []queueCall{{"p", "10", []any{1, 0, 0}}}, scriptState{"ours", 5 * sec, "78", 0}, ""},
		{"free and we are first: ours, and the place goes", free, "p 9 100, later 11 100", []queueCall{{"p", "10", []any{1, 1, 0}}}, ours, "later"},
		{"free and we are first, but do not queue again: ours", free, "p 10 100", []queueCall{{"p", "", []any{1, 1, now}}}, ours, ""},
		{"free and our place is first, by a ticket that is not ours any more: another's turn", free, "p 1 100, first 9 1234", []queueCall{{"p", "10", []any{2, "first", 1234, 1, now}}}, free, "first p"},
		{"free and another is first: told who, and until when", free, "first 9 1234", []queueCall{
			{"p", "10", []any{2, "first", 1234, 1, now}},
			{"", "", []any{2, "first", 1234, 1, now}}, // without a place
		}, free, "first p"},
		{"held: told by whom, for how long, and whether another is before us", theirs, "first 9 1000", []queueCall{
			{"p", "10", []any{0, "theirs", 9000, 1, now}},
			{"p", "10", []any{0, "theirs", 9000, 1, now}},
			{"p", "8", []any{0, "theirs", 9000, 0, now}}, // earlier than that
			{"", "", []any{0, "theirs", 9000, 1, now}},
		}, theirs, "p first"},
		{"held for ever", scriptState{value: "theirs"}, "", []queueCall{{"", "", []any{0, "theirs", -1, 0, now}}}, scriptState{value: "theirs"}, ""},
		{"places whose time is over are dropped, and those that would last for too long", free, "late 1 -1, future 2 15001, endless 3 +inf, just 4 0", []queueCall{{"p", "10", []any{2, "just", 0, 1, now}}}, free, "just p"},
		{"one without an end does not stand in the way for ever", free, "forged 1, another 2", []queueCall{{"p", "10", []any{1, 1, now}}}, ours, ""},
		{"of equal tickets the smaller name goes first", theirs, "", []queueCall{
			{"b", "10", []any{0, "theirs", 9000, 0, now}},
			{"a", "10", []any{0, "theirs", 9000, 0, now}},
			{"c", "10", []any{0, "theirs", 9000, 1, now}},
		}, theirs, "a b c"},
		{"tickets keep all their digits", theirs, "", []queueCall{
			{"a", "1800000000123457", []any{0, "theirs", 9000, 0, now}},
			{"b", "1800000000123456", []any{0, "theirs", 9000, 0, now}},
		}, theirs, "b a"},
	})
	for _, c := range []struct{ name, held, announced string }{
		{"free and another is first: that one is told, and nobody else", "", ":first=1 ours"},
		{"held: nobody is told", "theirs", ""},
	} {
		onScript(t, c.name, func(s *stage) {
			heard := s.listening(releaseChannel, releaseChannel+":first", releaseChannel+":second", releaseChannel+":p")
			s.store(scriptState{value: c.held, ttl: 9 * sec})
			s.place("first", 9, s.ms()+1234)
			s.place("second", 10, s.ms()+1234)
			turn(s, "p", "11")
			harness.Check(s, "announced", strings.Join(heard(), " "), c.announced)
		})
	}
	onScript(t, "a place is refreshed, and queues live for as long as they are used", func(s *stage) {
		s.Node(0).Set(job, "theirs", time.Minute)
		turn(s, "p", "10")
		s.answers("its end", s.Do(0, "ZSCORE", jobQueue, "p!"), harness.EndOf(s.ms()+2000))
		time.Sleep(1500 * time.Millisecond)
		turn(s, "p", "10")
		s.answers("its end", s.Do(0, "ZSCORE", jobQueue, "p!"), harness.EndOf(s.ms()+2000))
		harness.Check(s, "life of the queue, as it was", s.Node(0).TTL(jobQueue), 13500*time.Millisecond)
		s.evalQueue("turn", "ours", "5000", "77", "p", "10", "2000", "15000", releaseChannel, "1")
		harness.Check(s, "life of the queue, anew", s.Node(0).TTL(jobQueue), 15*sec)
		turn(s, "", "")
		time.Sleep(15 * time.Second)
		s.queues("unused")
	})
	onScript(t, "never shortens or lowers anything", func(s *stage) {
		s.store(scriptState{"theirs", time.Minute, "99", 25 * time.Hour})
		turn(s, "p", "10")
		s.leaves("held", "theirs", time.Minute, "99", 25*time.Hour)
		s.Node(0).Evict(job)
		turn(s, "p", "10")
		s.leaves("free", "ours", 5*sec, "99", 25*time.Hour)
		s.answers("a second delivery", turn(s, "p", "10"), 0, "ours", 5000, 0, s.us())
		s.leaves("a second delivery", "ours", 5*sec, "99", 25*time.Hour)
	})
}

func TestScriptAcquire(t *testing.T) {
	acquire := func(s *stage) any { return s.eval("acquire", "ours", "5000", "77") }
	onScriptCases(t, acquire, []scriptCase{
		{"free: ours, and the register at the proposal", scriptState{}, []any{1, 1}, scriptState{"ours", 5 * sec, "77", 0}},
		{"free, the register not below: ours without the fence", scriptState{"", 0, "77", 25 * time.Hour}, []any{1, 0}, scriptState{"ours", 5 * sec, "77", 25 * time.Hour}},
		{"held: the holder, and nothing changes", scriptState{"theirs", sec, "", 0}, []any{0, "theirs"}, scriptState{"theirs", sec, "", 0}},
	})
}

// In front of a script that says 7.
func TestScriptGuard(t *testing.T) {
	run := func(s *stage, check string) any {
		s.Helper()
		return s.Do(0, "EVAL", harness.Script("guard")+"return 7", "2", job, guardMark, "ours", "10000", check)
	}
	mark := func(s *stage) (id string, since int64) {
		s.Helper()
		text, _ := s.Node(0).Get(guardMark)
		if n, err := fmt.Sscanf(text, "%s %d", &id, &since); n != 2 || err != nil || text != fmt.Sprint(id, " ", since) {
			s.Errorf("the mark is %q", text)
		}
		if s.Node(0).TTL(guardMark) != 0 {
			s.Errorf("the mark has a ttl")
		}
		return id, since
	}
	onScript(t, "up for long, and never seen before: a mark, and on", func(s *stage) {
		s.answers("guard", run(s, "0"), 7)
		if _, since := mark(s); since > int64(s.ms())-10000 {
			s.Errorf("marked as young as %d ms", int64(s.ms())-since)
		}
	})
	onScript(t, "up for a while: from its start on, and a second for what the uptime does not say", func(s *stage) {
		time.Sleep(300 * time.Millisecond)
		s.Node(0).Restart(true)
		started := int64(s.ms())
		time.Sleep(2500 * time.Millisecond)
		s.answers("guard", run(s, "0"), "quarantined", 10000-2000+1000)
		_, since := mark(s)
		if early := started - since; early > 0 || early < -2000 {
			s.Errorf("it started at %d, and the mark says %d", started, since)
		}
		time.Sleep(9000 * time.Millisecond)
		s.answers("afterwards", run(s, "0"), 7)
	})
	onScript(t, "the mark of another server: compared where it is said", func(s *stage) {
		run(s, "0")
		id, _ := mark(s)
		s.Node(0).Restart(true)
		s.answers("believed", run(s, "0"), 7)
		s.answers("compared", run(s, "1"), "quarantined", 10000)
		if now, _ := mark(s); now == id {
			s.Errorf("the mark is still of %s", id)
		}
		s.answers("believed", run(s, "0"), "quarantined", 10000)
	})
	onScript(t, "its own mark: nothing is written", func(s *stage) {
		run(s, "0")
		id, since := mark(s)
		time.Sleep(time.Hour)
		s.Node(0).FailCommand("SET", "OOM command not allowed when used memory > 'maxmemory'")
		s.answers("compared", run(s, "1"), 7)
		s.answers("unknown", run(s, "2"), 7)
		if i, n := mark(s); i != id || n != since {
			s.Errorf("the mark was %s %d and is %s %d", id, since, i, n)
		}
	})
	// tells is run on a server that tells something else: sub replaces what info says in a section.
	tells := func(s *stage, sub, check string) any {
		body := strings.Replace(harness.Script("guard")+"return 7", "  return type(info) == 'string'", sub+"\n  return type(info) == 'string'", 1)
		return s.Do(0, "EVAL", body, "2", job, guardMark, "ours", "10000", check)
	}
	for what, sub := range map[string]string{
		"a promoted replica":        "info = string.gsub(info, 'second_repl_offset:%-?%d+', 'second_repl_offset:4711')",
		"one that tells no uptime":  "info = string.gsub(info, 'uptime_in_seconds:%d+', 'uptime_in_seconds:')",
		"one flushed by FLUSHALL":   "if section == 'commandstats' then info = info .. 'cmdstat_flushall:calls=1' end",
		"one flushed by FLUSHDB":    "if section == 'commandstats' then info = info .. 'cmdstat_flushdb:calls=1' end",
		"one whose dbs are swapped": "if section == 'commandstats' then info = info .. 'cmdstat_swapdb:calls=1' end",
	} {
		onScript(t, what+": from now on", func(s *stage) { s.answers("guard", tells(s, sub, "0"), "quarantined", 10000) })
	}
	onScript(t, "a replica for a while, and master again, in one life of the process", func(s *stage) {
		run(s, "0")
		s.answers("compared", tells(s, "info = string.gsub(string.gsub(info, 'master_replid:%w+', 'master_replid:beef'), 'second_repl_offset:%-1', 'second_repl_offset:4711')", "1"), "quarantined", 10000)
	})
	onScript(t, "in quarantine: what is held by another goes on to the script", func(s *stage) {
		s.Node(0).Restart(false)
		s.answers("free", run(s, "1"), "quarantined", 11000-1000)
		s.Node(0).Set(job, "theirs", time.Minute)
		s.answers("another's", run(s, "1"), 7)
		s.Node(0).Set(job, "ours", time.Minute)
		s.answers("what is exchanged", run(s, "1"), "quarantined", 10000)
	})
	onScript(t, "a clock that was set back: the mark of a time to come is made anew", func(s *stage) {
		run(s, "0")
		_, before := mark(s)
		s.Node(0).JumpClock(-48 * time.Hour)
		run(s, "0")
		if _, since := mark(s); since > int64(s.ms()) || since == before {
			s.Errorf("the mark says %d at %d", since, s.ms())
		}
	})
}
