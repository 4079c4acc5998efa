package wire

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ce352c9b/redlock/internal/wire/wiretest"
)

type said = wiretest.Said

const (
	mine   = wiretest.Mine
	theirs = wiretest.Theirs
)

// allQuestions has one question of each kind.
func allQuestions() []Question {
	name, _ := NameKey("", "jobs/42")
	return []Question{
		AcquireQuestion(nil, name, mine, time.Second, 7), RaiseQuestion(name, mine, time.Second, 7), ExtendQuestion(name, mine, time.Second, 7),
		HealQuestion(name, mine, time.Second), ReleaseQuestion(name, mine, time.Second, Notice{Tell: 2, Place: theirs}), RollbackQuestion(name, mine, time.Second),
		AdoptQuestion(nil, name, theirs, mine, time.Second, 7), RestoreQuestion(name, theirs, mine, time.Second), ExpireRegisterQuestion(name, time.Second),
		InspectQuestion(name), TurnQuestion(nil, name, mine, time.Second, 7, theirs, 1800000000000001, true), WaitQuestion(name, theirs, false),
		LeaveQuestion(name, theirs, mine, 2), LookQuestion(name), AnnounceQuestion(name),
	}
}

var allKinds = func() (kinds []Kind) {
	for _, q := range allQuestions() {
		kinds = append(kinds, q.Kind)
	}
	return kinds
}()

func questionOf(k Kind) *Question { return &allQuestions()[slices.Index(allKinds, k)] }

// A got is what go-redis holds of one command afterwards.
type got struct {
	val any
	err error
}

// commands are commands as go-redis leaves them.
func commands(all ...got) []Command {
	cmds := make([]Command, len(all))
	for i, g := range all {
		cmds[i] = NewCommand([]any{"x"})
		if g.val != nil {
			cmds[i].SetVal(g.val)
		}
		if g.err != nil {
			cmds[i].SetErr(g.err)
		}
	}
	return cmds
}

func readAs(k Kind, plain bool, first, second got, exec error) Reply {
	return questionOf(k).Read(commands(first, second), plain, exec)
}

var (
	granted   = got{err: redis.Nil} // SET NX GET, where nothing was
	moved     = got{val: int64(1)}
	unmoved   = got{val: int64(0)}
	untouched = got{}
)

// shapes are what a server, a proxy or a broken connection may leave in a command.
var shapes = []got{
	untouched, {err: redis.Nil}, {val: "OK"}, {val: "ok"}, {val: ""}, {val: "QUEUED"}, {val: mine}, {val: theirs}, {val: "a foreign client's"},
	{val: int64(-2)}, {val: int64(-1)}, {val: int64(0)}, {val: int64(1)}, {val: int64(2)}, {val: int64(math.MaxInt64)},
	{val: 1.0}, {val: math.NaN()}, {val: true}, {val: false}, {val: map[any]any{"a": int64(1)}}, {val: errors.New("nested")},
	{val: []any{}}, {val: []any{nil}}, {val: []any{int64(1)}}, {val: []any{int64(1), int64(1)}}, {val: []any{int64(1), int64(0)}}, {val: []any{"1"}},
	{val: []any{int64(2)}}, {val: []any{int64(2), "1700000000000000"}}, {val: []any{int64(2), nil}}, {val: []any{int64(2), "word"}}, {val: []any{int64(2), "nan"}},
	{val: []any{int64(0)}}, {val: []any{int64(0), theirs}}, {val: []any{int64(0), int64(3)}}, {val: []any{int64(-1)}}, {val: []any{[]any{int64(1)}}},
	{val: []any{said("WRONGTYPE")}},
	{val: []any{theirs, int64(500), "7"}}, {val: []any{"", int64(-2), ""}}, {val: []any{theirs, int64(-1), 7.0}}, {val: []any{theirs, "500", "7"}}, {val: []any{theirs, int64(500), []any{}}},
	{err: said("ERR syntax error")}, {err: said("WRONGTYPE Operation against a key holding the wrong kind of value")}, {err: said("LOADING Redis is loading the dataset in memory")},
	{err: said("NOSCRIPT No matching script. Please use EVAL.")}, {err: said("")}, {err: fmt.Errorf("wrapped: %w", redis.Nil)}, {err: fmt.Errorf("wrapped: %w", said("READONLY x"))},
	{err: io.EOF}, {err: context.DeadlineExceeded}, {err: context.Canceled}, {err: readTimeout()}, {err: refused()}, {err: redis.ErrPoolTimeout},
	{val: "OK", err: io.ErrUnexpectedEOF}, {val: int64(1), err: io.ErrUnexpectedEOF}, {val: []any{int64(1), int64(1)}, err: readTimeout()},
}

func readTimeout() error {
	return &net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded}
}

func refused() error {
	return &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
}

// misleading are the errors that a node's must never match.
var misleading = []error{context.Canceled, context.DeadlineExceeded, ErrHeld, ErrNoQuorum, ErrLost, ErrClosed}

// checkReply states what holds of every reply, whatever the node answered.
func checkReply(t interface{ Errorf(string, ...any) }, q *Question, plain bool, r Reply) {
	bad := func(format string, args ...any) {
		t.Errorf("kind %d, plain=%v: %s: %+v (error %v)", q.Kind, plain, fmt.Sprintf(format, args...), r, r.Err)
	}
	switch r.Answer {
	case Yes, No:
		if r.Silent || !r.Sent {
			bad("an answer that never came")
		}
	case Unknown:
		if r.Err == nil {
			bad("unknown, and no reason")
		}
	default:
		bad("no answer is none of the three")
	}
	if r.Fenced && r.Answer != Yes {
		bad("a register moved where nothing was agreed")
	}
	if r.Fenced && q.Kind != AskAcquire && q.Kind != AskRaise && q.Kind != AskAdopt {
		bad("a register moved that was not asked to")
	}
	if r.Missing && q.Kind != AskInspect && r.Answer != No {
		bad("missing, and yet no no")
	}
	if r.Silent && !r.Sent {
		bad("silent before it was sent")
	}
	if r.Stored && !r.Sent {
		bad("stored before it was sent")
	}
	if r.Stored && !q.Kind.Stores() {
		bad("stored by a question that stores nothing")
	}
	if q.Kind.Stores() && !r.Stored && (r.Answer == Yes || r.Silent) {
		bad("our value may be there, and nobody is told")
	}
	if r.Score < 0 || r.Score >= MaxToken {
		bad("a register of %d", r.Score)
	}
	if r.Err != nil {
		for _, no := range misleading {
			if errors.Is(r.Err, no) {
				bad("its error matches %v", no)
			}
		}
	}
	if r.WantsOtherForm(q, false, plain) && (r.Answer != Unknown || r.Stored || r.Silent) {
		bad("sent again although it may have been executed")
	}
	if r.WantsOtherForm(q, true, true) {
		bad("sent again in the form that it had")
	}
}

func TestEveryReplyOfEveryShapeKeepsTheRules(t *testing.T) {
	for _, k := range allKinds {
		q := questionOf(k)
		for _, plain := range []bool{false, true} {
			if plain && k != AskAcquire {
				continue
			}
			for _, first := range shapes {
				for _, second := range shapes {
					for _, exec := range []error{nil, redis.Nil, io.EOF, said("WRONGPASS invalid username-password pair or user is disabled.")} {
						r := q.Read(commands(first, second), plain, exec)
						checkReply(t, q, plain, r)
					}
				}
			}
		}
	}
}

func TestOnlyTheNilReplyGrantsALock(t *testing.T) {
	for _, first := range shapes {
		for _, exec := range []error{nil, io.EOF, redis.Nil, said("NOAUTH Authentication required.")} {
			r := readAs(AskAcquire, false, first, moved, exec)
			want := first.val == nil && errors.Is(first.err, redis.Nil)
			if yes := r.Answer == Yes; yes != want {
				t.Errorf("SET NX GET answered %#v: got %v, want yes=%v", first, r.Answer, want)
			}
		}
	}
}

func TestWithoutGETOnlyOKGrantsALock(t *testing.T) {
	for _, first := range shapes {
		r := readAs(AskAcquire, true, first, moved, nil)
		if want := first.val == "OK" && first.err == nil; (r.Answer == Yes) != want {
			t.Errorf("SET NX answered %#v: got %v, want yes=%v", first, r.Answer, want)
		}
	}
}

func TestACommandThatWasNeverReachedIsUnknown(t *testing.T) {
	for _, k := range allKinds {
		for _, exec := range []error{nil, redis.Nil, io.EOF, said("WRONGPASS invalid username-password pair or user is disabled."), said("NOAUTH Authentication required."), refused()} {
			for _, plain := range []bool{false, true} {
				if r := readAs(k, plain && k == AskAcquire, untouched, untouched, exec); r.Answer != Unknown || r.Err == nil {
					t.Errorf("kind %d, the pipeline ended with %v: got %+v, want unknown", k, exec, r)
				}
			}
		}
	}
	r := readAs(AskAcquire, false, untouched, untouched, said("WRONGPASS invalid username-password pair or user is disabled."))
	if r.Err.Text != "WRONGPASS invalid username-password pair or user is disabled." || r.Err.Transient || r.Stored {
		t.Errorf("a password that is refused: got %+v, %+v", r, r.Err)
	}
}

func TestTheLastWordOnACommandCounts(t *testing.T) {
	// A client that sends a command once more, or fails a whole pipeline, has the
	// command's error set anew.
	for _, c := range []struct {
		last got
		want Answer
	}{{got{err: io.EOF}, Unknown}, {got{err: said("LOADING x")}, Unknown}, {got{val: theirs}, No}} {
		cmds := commands(got{err: redis.Nil}, moved)
		if c.last.val != nil {
			cmds[0].SetVal(c.last.val)
		}
		cmds[0].SetErr(c.last.err)
		if r := questionOf(AskAcquire).Read(cmds, false, nil); r.Answer != c.want {
			t.Errorf("a nil reply, then %#v: got %v, want %v", c.last, r.Answer, c.want)
		}
	}
}

// A hook of the client may set a value and then a nil reply, each of which is a grant in one form of an acquire.
func TestANilReplyWithAValueGrantsNothing(t *testing.T) {
	for _, plain := range []bool{false, true} {
		for _, val := range []any{"OK", theirs, int64(1)} {
			if r := readAs(AskAcquire, plain, got{val: val, err: redis.Nil}, moved, nil); r.Answer != Unknown || !r.Stored {
				t.Errorf("plain %v, %v and a nil reply: got %+v, want unknown, and maybe stored", plain, val, r)
			}
		}
	}
}

func TestAcquireReadsBothItsCommands(t *testing.T) {
	wrong := said("WRONGTYPE Operation against a key holding the wrong kind of value")
	for _, c := range []struct {
		name          string
		plain         bool
		first, second got
		want          Reply // without err
		err           string
	}{
		{"ours, and the register moved", false, granted, moved, Reply{Answer: Yes, Fenced: true, Stored: true, Sent: true}, ""},
		{"ours, the register was not below", false, granted, unmoved, Reply{Answer: Yes, Stored: true, Sent: true}, ""},
		{"ours, the register is of another type", false, granted, got{err: wrong}, Reply{Answer: Unknown, Stored: true, Sent: true}, "fence register: " + string(wrong)},
		{"ours, and the connection broke", false, granted, got{err: io.EOF}, Reply{Answer: Unknown, Stored: true, Sent: true}, "fence register: EOF"},
		{"ours, and the register never reached", false, granted, untouched, Reply{Answer: Unknown, Stored: true, Sent: true}, "fence register: no reply"},
		{"another's", false, got{val: theirs}, moved, Reply{Answer: No, Holder: theirs, Sent: true}, ""},
		{"a foreign client's", false, got{val: "redsync"}, moved, Reply{Answer: No, Holder: "redsync", Sent: true}, ""},
		{"our own, from a second delivery", false, got{val: mine}, moved, Reply{Answer: No, Holder: mine, Stored: true, Sent: true}, ""},
		{"an empty value", false, got{val: ""}, moved, Reply{Answer: No, Sent: true}, ""},
		{"a number", false, got{val: int64(1)}, moved, Reply{Answer: Unknown, Stored: true, Sent: true}, "unexpected reply int64"},
		{"without GET: ours", true, got{val: "OK"}, moved, Reply{Answer: Yes, Fenced: true, Stored: true, Sent: true}, ""},
		{"without GET: another's, or our own from a second delivery", true, got{err: redis.Nil}, moved, Reply{Answer: No, Sent: true}, ""},
		{"without GET: no answer", true, got{err: io.EOF}, got{err: io.EOF}, Reply{Answer: Unknown, Stored: true, Sent: true, Silent: true}, "EOF"},
		{"without GET: an error of the node", true, got{err: said("ERR syntax error")}, moved, Reply{Answer: Unknown, Sent: true}, "ERR syntax error"},
		{"an error of the node", false, got{err: said("OOM command not allowed when used memory > 'maxmemory'.")}, moved, Reply{Answer: Unknown, Sent: true}, "OOM command not allowed when used memory > 'maxmemory'."},
		{"no answer", false, got{err: io.EOF}, got{err: io.EOF}, Reply{Answer: Unknown, Stored: true, Sent: true, Silent: true}, "EOF"},
		{"no connection", false, got{err: refused()}, got{err: refused()}, Reply{Answer: Unknown}, "connect: connection refused"},
	} {
		t.Run(c.name, func(t *testing.T) {
			checkRead(t, readAs(AskAcquire, c.plain, c.first, c.second, nil), c.want, c.err)
		})
	}
}

func checkRead(t *testing.T, r, want Reply, text string) {
	t.Helper()
	e := r.Err
	r.Err = nil
	if !reflect.DeepEqual(r, want) {
		t.Errorf("got  %+v\nwant %+v", r, want)
	}
	if (e != nil) != (text != "") || e != nil && e.Text != text {
		t.Errorf("its error: got %v, want %q", e, text)
	}
}

func TestScriptsAnswersAreRead(t *testing.T) {
	yes, no := Reply{Answer: Yes, Sent: true}, Reply{Answer: No, Sent: true}
	missing := Reply{Answer: No, Missing: true, Sent: true}
	strange := Reply{Answer: Unknown, Sent: true}
	for _, c := range []struct {
		name string
		k    Kind
		val  any
		want Reply
		err  string
	}{
		{"extend: ours", AskExtend, int64(1), yes, ""},
		{"extend: another's", AskExtend, int64(0), no, ""},
		{"extend: nothing there", AskExtend, int64(-1), missing, "missing"},
		{"extend: something else", AskExtend, int64(7), strange, "unexpected reply int64"},
		{"extend: text", AskExtend, "1", strange, "unexpected reply string"},
		{"extend: a list", AskExtend, []any{int64(1)}, strange, "unexpected reply []interface {}"},
		{"release: ours", AskRelease, int64(1), yes, ""},
		{"release: another's", AskRelease, int64(0), no, ""},
		{"release: nothing there", AskRelease, int64(-1), missing, "missing"},
		{"rollback: ours", AskRollback, int64(1), yes, ""},
		{"restore: done", AskRestore, int64(1), yes, ""},
		{"restore: another's", AskRestore, int64(0), no, ""},
		{"restore: nothing there", AskRestore, int64(-1), missing, "missing"},
		{"restore: a list", AskRestore, []any{int64(1)}, strange, "unexpected reply []interface {}"},
		{"raise: moved", AskRaise, []any{int64(1)}, Reply{Answer: Yes, Fenced: true, Sent: true}, ""},
		{"raise: not below", AskRaise, []any{int64(2), "1700000000123456"}, Reply{Answer: Yes, Score: 1700000000123456, Sent: true}, ""},
		{"raise: not below, and no score", AskRaise, []any{int64(2)}, strange, "unexpected reply []interface {}"},
		{"raise: a register at its end", AskRaise, []any{int64(2), "9007199254740991"}, strange, "fence register is 9.007199254740991e+15, no greater token is possible below 2^53: see \"A register far ahead\" in docs/operations.md"},
		{"raise: another's", AskRaise, []any{int64(0)}, no, ""},
		{"raise: nothing there", AskRaise, []any{int64(-1)}, missing, "missing"},
		{"raise: a number", AskRaise, int64(1), strange, "unexpected reply int64"},
		{"adopt: done and moved", AskAdopt, []any{int64(1), int64(1)}, Reply{Answer: Yes, Fenced: true, Stored: true, Sent: true}, ""},
		{"adopt: done, not moved", AskAdopt, []any{int64(1), int64(0)}, Reply{Answer: Yes, Stored: true, Sent: true}, ""},
		{"adopt: another's", AskAdopt, []any{int64(0), theirs}, Reply{Answer: No, Holder: theirs, Sent: true}, ""},
		{"adopt: nothing there", AskAdopt, []any{int64(-1)}, missing, "missing"},
		{"adopt: something else", AskAdopt, []any{int64(5)}, Reply{Answer: Unknown, Stored: true, Sent: true}, "unexpected reply []interface {}"},
		{"inspect: held", AskInspect, []any{theirs, int64(500), "7"}, Reply{Answer: Yes, Holder: theirs, TTL: 500, Score: 7, Sent: true}, ""},
		{"inspect: held without end", AskInspect, []any{"x", int64(-1), ""}, Reply{Answer: Yes, Holder: "x", TTL: -1, Sent: true}, ""},
		{"inspect: free", AskInspect, []any{"", int64(-2), "7"}, Reply{Answer: Yes, TTL: -2, Missing: true, Score: 7, Sent: true}, ""},
		{"inspect: too short", AskInspect, []any{theirs, int64(500)}, strange, "unexpected reply []interface {}"},
		{"inspect: the ttl as text", AskInspect, []any{theirs, "500", ""}, strange, "unexpected reply []interface {}"},
		{"inspect: a register that is a word", AskInspect, []any{theirs, int64(500), "word"}, strange, `fence register is not a number: "word"`},
		{"heal: stored", AskHeal, "OK", Reply{Answer: Yes, Stored: true, Sent: true}, ""},
		{"touch: done", AskExpireRegister, int64(1), yes, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			checkRead(t, readAs(c.k, false, got{val: c.val}, untouched, nil), c.want, c.err)
		})
	}
	t.Run("heal: somebody else came first", func(t *testing.T) {
		checkRead(t, readAs(AskHeal, false, got{err: redis.Nil}, untouched, redis.Nil), no, "")
	})
	for _, k := range []Kind{AskExtend, AskRelease, AskRollback, AskRestore} {
		t.Run(fmt.Sprintf("kind %d: a key of another type is surely not ours", k), func(t *testing.T) {
			for _, text := range []said{
				"WRONGTYPE Operation against a key holding the wrong kind of value script: 1b3c, on @user_script:2.",
				"ERR Error running script (call to f_1b3c): @user_script:2: WRONGTYPE Operation against a key holding the wrong kind of value",
				"ERR Error compiling script (new function): :1: WRONGTYPE Operation against a key holding the wrong kind of value",
			} {
				if r := readAs(k, false, got{err: text}, untouched, text); r.Answer != No || r.Err == nil || r.Err.Text != "WRONGTYPE Operation against a key holding the wrong kind of value" {
					t.Errorf("%s: got %+v, %v", text, r, r.Err)
				}
			}
		})
	}
}

type nodeError struct {
	text  string
	want  string // as shown; empty: as it is
	heals bool
}

// What Redis 7.0 says of itself, what 6.2 makes of it inside a script, and what
// miniredis does.
var nodeErrors = []nodeError{
	{"READONLY You can't write against a read only replica.", "", false},
	{"READONLY You can't write against a read only replica. script: 1b3c, on @user_script:5.", "READONLY You can't write against a read only replica.", false},
	{"ERR Error running script (call to f_1b3c): @user_script:5: @user_script: 5: -READONLY You can't write against a read only replica.", "READONLY You can't write against a read only replica.", false},
	{"LOADING Redis is loading the dataset in memory", "", true},
	{"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", "", true},
	{"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk. Commands that may modify the data set are disabled", "", true},
	{"ERR Error running script (call to f_1b3c): @user_script:5: @user_script: 5: -MISCONF Redis is configured to save RDB snapshots", "MISCONF Redis is configured to save RDB snapshots", true},
	{"NOREPLICAS Not enough good replicas to write.", "", true},
	{"NOREPLICAS Not enough good replicas to write. script: 1b3c, on @user_script:5.", "NOREPLICAS Not enough good replicas to write.", true},
	{"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.", "", true},
	{"NOPERM this user has no permissions to run the 'evalsha' command", "", false},
	{"NOPERM this user has no permissions to access one of the keys used as arguments", "", false},
	{"NOAUTH Authentication required.", "", false},
	{"WRONGPASS invalid username-password pair or user is disabled.", "", false},
	{"ERR invalid password", "", false},
	{"ERR max number of clients reached", "", true},
	{"WRONGTYPE Operation against a key holding the wrong kind of value", "", false},
	{"WRONGTYPE Operation against a key holding the wrong kind of value script: 1b3c, on @user_script:2.", "WRONGTYPE Operation against a key holding the wrong kind of value", false},
	{"ERR Error compiling script (new function): :1: WRONGTYPE Operation against a key holding the wrong kind of value", "WRONGTYPE Operation against a key holding the wrong kind of value", false},
	{"NOSCRIPT No matching script. Please use EVAL.", "", true},
	{"OOM command not allowed when used memory > 'maxmemory'.", "", true},
	{"OOM command not allowed when used memory > 'maxmemory'. script: 1b3c, on @user_script:1.", "OOM command not allowed when used memory > 'maxmemory'.", true},
	{"CLUSTERDOWN Hash slot not served", "", true},
	{"TRYAGAIN Multiple keys request during rehashing of slot", "", true},
	{"MOVED 3999 127.0.0.1:6381", "", true},
	{"ASK 3999 127.0.0.1:6381", "", true},
	{"ERR unknown command 'ZADD', with args beginning with: ", "ERR unknown command 'ZADD'", false},
	{"ERR unknown command 'evalsha', with args beginning with: 'sha' '2' 'k' '" + mine + "' ", "ERR unknown command 'evalsha'", false}, // a lock's value is a secret
	{"ERR syntax error", "", true},
	{"  LOADING padded \r\n", "LOADING padded", true},
}

// After these, the command may have been executed, or a part of it: no server says them of one that it refuses, so they may be a
// proxy's word for a lost reply, or a script says them of a command that may not be its first.
var lateErrors = []nodeError{
	{"ERR something that nobody knows", "", true},
	{"ERR no ROOM for more", "", true}, {"ERR TASK failed", "", true}, {"ERR REMOVED meanwhile", "", true}, // a code inside a word is none
	// What a user may not do in a script, until 7.0 and from 7.2 on, and in Valkey: the script may have executed other commands before.
	{"ERR The user executing the script can't run this command or subcommand script: 1b3c, on @user_script:8.", "ERR The user executing the script can't run this command or subcommand", false},
	{"ERR The user executing the script can't access at least one of the keys mentioned in the command arguments script: 1b3c, on @user_script:1.", "ERR The user executing the script can't access at least one of the keys mentioned in the command arguments", false},
	{"ERR ACL failure in script: User locks has no permissions to run the 'zadd' command script: 1b3c, on @user_script:8.", "ERR ACL failure in script: User locks has no permissions to run the 'zadd' command", false},
	{"ERR ACL failure in script: No permissions to access a key script: on @user_script:1.", "ERR ACL failure in script: No permissions to access a key", false},
	{"NOPERM ACL failure in script: User locks has no permissions to run the 'get' command", "", false},
	// What a pcall in a script of ours passed on, before 7.0; and what a call does there.
	{"The user executing the script can't run this command or subcommand", "", false},
	{"ERR Error running script (call to f_1b3c): @user_script:8: @user_script: 8: The user executing the script can't run this command or subcommand", "", false},
	// What our scripts say of a register heals as if the register's command had said it.
	{"FENCE WRONGTYPE Operation against a key holding the wrong kind of value", "", false},
	{"FENCE NOPERM No permissions to access a key", "", false},
	{"FENCE NOPERM ACL failure in script: User locks has no permissions to run the 'zadd' command", "", false},
	{"FENCE ERR The user executing the script can't run this command or subcommand", "", false},
	{"FENCE ERR ACL failure in script: User locks has no permissions to run the 'zadd' command", "", false},
	{"FENCE OOM command not allowed when used memory > 'maxmemory'.", "", true},
	{"FENCE ERR something that nobody knows", "", true},
}

func TestWhatANodeSaysIsClassified(t *testing.T) {
	for i, c := range slices.Concat(nodeErrors, lateErrors) {
		t.Run(c.text, func(t *testing.T) {
			want := c.want
			if want == "" {
				want = strings.TrimSpace(c.text)
			}
			for _, err := range []error{said(c.text), fmt.Errorf("redis: while reading: %w", said(c.text))} {
				e, told := Explain(err)
				if !told || e.Transient != c.heals || e.Text != want {
					t.Errorf("got %q, said=%v, heals=%v; want %q, true, %v", e.Text, told, e.Transient, want, c.heals)
				}
				if e.Error() != e.Text {
					t.Errorf("shown as %q, want %q", e.Error(), e.Text)
				}
				var re redis.Error
				if !errors.As(e, &re) {
					t.Errorf("errors.As finds no redis.Error in %v", e)
				}
				for err := error(e); err != nil; err = errors.Unwrap(err) {
					if strings.Contains(err.Error(), mine) {
						t.Errorf("the chain of %v has the value: %T %v", e, err, err)
					}
				}
			}
			late := i >= len(nodeErrors) // the others are said of what was not executed: nothing is stored, nothing is on its way
			for _, k := range allKinds {
				if r := failed(k, said(c.text)); r.Stored != (k.Stores() && late) || r.Silent || !r.Sent || r.Answer != Unknown {
					t.Errorf("kind %d: got %+v", k, r)
				}
			}
		})
	}
}

// dnsError is what a name that does not resolve gives.
func dnsError() error {
	return &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "nowhere", IsNotFound: true}}
}

type timeoutCause struct{} // as net's own: it matches DeadlineExceeded

func (timeoutCause) Error() string        { return "i/o timeout" }
func (timeoutCause) Timeout() bool        { return true }
func (timeoutCause) Temporary() bool      { return true }
func (timeoutCause) Is(target error) bool { return target == context.DeadlineExceeded }

func TestWhatHappensOnTheWayIsUnknown(t *testing.T) {
	for _, c := range []struct {
		name string
		err  error
		sent bool
		text string
	}{
		{"refused", refused(), false, "connect: connection refused"},
		{"no such host", dnsError(), false, "no such host"},
		{"a dial that timed out", &net.OpError{Op: "dial", Net: "tcp", Err: timeoutCause{}}, false, "timeout ("},
		{"no connection to be had", redis.ErrPoolTimeout, false, redis.ErrPoolTimeout.Error()},
		{"too many connections", redis.ErrPoolExhausted, false, redis.ErrPoolExhausted.Error()},
		{"a closed client", redis.ErrClosed, false, redis.ErrClosed.Error()},
		{"a closed client, wrapped", fmt.Errorf("x: %w", redis.ErrClosed), false, redis.ErrClosed.Error()},
		{"end of stream", io.EOF, true, "EOF"},
		{"half a reply", io.ErrUnexpectedEOF, true, "unexpected EOF"},
		{"reset", &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)}, true, "connection reset by peer"},
		{"broken pipe", &net.OpError{Op: "write", Net: "tcp", Err: syscall.EPIPE}, true, "broken pipe"},
		{"no answer in time", readTimeout(), true, "timeout (read tcp: i/o timeout)"},
		{"no answer in time, as net says it", &net.OpError{Op: "read", Net: "tcp", Err: timeoutCause{}}, true, "timeout ("},
		{"a context's deadline", context.DeadlineExceeded, true, "timeout (context deadline exceeded)"},
		{"a context cancelled", context.Canceled, true, "context canceled"},
		{"garbage", errors.New(`redis: can't parse "x"`), true, `redis: can't parse "x"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			e, told := Explain(c.err)
			if told || !e.Transient || !strings.Contains(e.Text, c.text) {
				t.Errorf("got %q, said=%v, heals=%v; want %q in it, false, true", e.Text, told, e.Transient, c.text)
			}
			for _, k := range allKinds {
				r := failed(k, c.err)
				if r.Answer != Unknown || r.Sent != c.sent || r.Silent != c.sent || r.Stored != (c.sent && k.Stores()) {
					t.Errorf("kind %d: got %+v", k, r)
				}
			}
		})
	}
}

func TestNoNodesErrorMatchesAContextOrASentinel(t *testing.T) {
	var causes []error
	for _, e := range misleading {
		causes = append(causes, e, fmt.Errorf("x: %w", e), &net.OpError{Op: "read", Err: e}, errors.Join(io.EOF, e), errors.Join(e, io.EOF))
	}
	causes = append(causes, readTimeout(), &net.OpError{Op: "dial", Err: timeoutCause{}}, timeoutCause{}, os.ErrDeadlineExceeded, syscall.ETIMEDOUT)
	for _, cause := range causes {
		e, _ := Explain(cause)
		for _, made := range []*NodeError{e, newFenceError(e), NewNodeError("down: "+e.Text, e.Cause), TimeoutError(time.Second), ErrNotAsked, ErrOwed, ErrBusy, ErrLaneDone, ErrMissing} {
			for _, no := range misleading {
				if errors.Is(made, no) {
					t.Errorf("%v (of %T): matches %v", made, cause, no)
				}
			}
		}
		if !strings.Contains(e.Text, cause.Error()) && e.Text == "" {
			t.Errorf("%v: shown as %q", cause, e.Text)
		}
	}
	t.Run("but what does not mislead is found", func(t *testing.T) {
		e, _ := Explain(fmt.Errorf("x: %w", io.EOF))
		if !errors.Is(e, io.EOF) {
			t.Errorf("%v does not match io.EOF", e)
		}
		e, _ = Explain(refused())
		if !errors.Is(e, syscall.ECONNREFUSED) {
			t.Errorf("%v does not match ECONNREFUSED", e)
		}
		var re redis.Error
		if e, _ = Explain(said("LOADING x")); !errors.As(e, &re) {
			t.Errorf("%v is no redis.Error", e)
		}
	})
}

func TestOnlyWhatWasNotExecutedIsSentAgain(t *testing.T) {
	noScript, syntax := said("NOSCRIPT No matching script. Please use EVAL."), said("ERR syntax error")
	for _, k := range allKinds {
		q := questionOf(k)
		r := q.Read(commands(got{err: noScript}, unmoved), false, noScript)
		if want := q.Script != nil; r.WantsOtherForm(q, false, false) != want {
			t.Errorf("kind %d, NOSCRIPT: sent again=%v, want %v", k, !want, want)
		}
		if r.WantsOtherForm(q, true, false) {
			t.Errorf("kind %d: NOSCRIPT to the text itself is sent again", k)
		}
		r = q.Read(commands(got{err: syntax}, unmoved), false, syntax)
		if want := k == AskAcquire; r.WantsOtherForm(q, false, false) != want {
			t.Errorf("kind %d, a syntax error: sent again=%v, want %v", k, !want, want)
		}
		if r.WantsOtherForm(q, false, true) {
			t.Errorf("kind %d: a syntax error in the plain form is sent again", k)
		}
		for _, err := range []error{io.EOF, readTimeout(), refused()} {
			r := q.Read(commands(got{err: err}, got{err: err}), false, err)
			if r.WantsOtherForm(q, false, false) {
				t.Errorf("kind %d: sent again after %v", k, err)
			}
		}
	}
	// The words of an error are not enough: it must have come from the node.
	q := questionOf(AskExtend)
	if r := failed(AskExtend, errors.New("NOSCRIPT says a proxy's log")); r.WantsOtherForm(q, false, false) {
		t.Errorf("a text that no node said is sent again")
	}
}

func TestRegistersAreRead(t *testing.T) {
	for _, c := range []struct {
		name string
		val  any
		want int64
		err  string
	}{
		{"text", "1700000000123456", 1700000000123456, ""},
		{"text with an exponent", "1.700000000123456e+15", 1700000000123456, ""},
		{"a fraction", "7.9", 7, ""},
		{"a double", 1700000000123456.0, 1700000000123456, ""},
		{"an integer", int64(7), 7, ""},
		{"zero", "0", 0, ""},
		{"negative", "-5", 0, ""},
		{"negative double", -5.0, 0, ""},
		{"negative infinity", "-inf", 0, ""},
		{"negative integer", int64(math.MinInt64), 0, ""},
		{"the last but one", "9007199254740990", MaxToken - 1, ""},
		{"2^53-1", "9007199254740991", 0, "2^53"},
		{"2^53-1 as a double", float64(MaxToken), 0, "2^53"},
		{"2^53-1 as an integer", int64(MaxToken), 0, "2^53"},
		{"2^53", "9007199254740992", 0, "2^53"},
		{"the greatest integer", int64(math.MaxInt64), 0, "2^53"},
		{"huge", "1e300", 0, "2^53"},
		{"beyond doubles", "1e999", 0, "not a number"},
		{"infinity", "inf", 0, "2^53"},
		{"infinity as a double", math.Inf(1), 0, "2^53"},
		{"NaN", "nan", 0, "NaN"},
		{"NaN as a double", math.NaN(), 0, "NaN"},
		{"a word", "word", 0, `not a number: "word"`},
		{"empty", "", 0, `not a number: ""`},
		{"binary", "\x00\xff", 0, `not a number: "\x00\xff"`},
		{"very long", strings.Repeat("x", 100000), 0, "not a number"},
		{"nothing", nil, 0, "is a <nil>"},
		{"a list", []any{"7"}, 0, "is a []interface {}"},
		{"true", true, 0, "is a bool"},
	} {
		t.Run(c.name, func(t *testing.T) {
			score, e := ReadScore(c.val)
			if score != c.want || (e != nil) != (c.err != "") {
				t.Fatalf("got %d, %v; want %d, error=%q", score, e, c.want, c.err)
			}
			if e == nil {
				return
			}
			if !strings.HasPrefix(e.Text, "fence register") || !strings.Contains(e.Text, c.err) || len(e.Text) > 1000 {
				t.Errorf("got %q, want it to say %q", Clip(e.Text), c.err)
			}
			if e.Transient {
				t.Errorf("%q heals with time", e.Text)
			}
		})
	}
}

func TestWhatIsAskedWordByWord(t *testing.T) {
	sha := func(s *script) string { return "evalsha " + s.sha + " 2 jobs/42 {jobs/42}:fence" }
	queued := func(s *script) string {
		return "evalsha " + s.sha + " 3 jobs/42 {jobs/42}:fence {jobs/42}:queue"
	}
	waits := func(s *script) string {
		return "evalsha " + s.sha + " 2 jobs/42 {jobs/42}:queue"
	}
	releases := "evalsha " + releaseScript.sha + " 3 jobs/42 {jobs/42}:queue {jobs/42}:fence "
	for k, want := range map[Kind][]string{
		AskAcquire:        {"set jobs/42 " + mine + " nx get px 1000", "zadd {jobs/42}:fence gt ch 7 f"},
		AskRaise:          {sha(raiseScript) + " " + mine + " 7"},
		AskExtend:         {sha(extendScript) + " " + mine + " 1000 7"},
		AskHeal:           {"set jobs/42 " + mine + " nx px 1000"},
		AskRelease:        {releases + mine + " {jobs/42}:release " + theirs + " 2"},
		AskRollback:       {releases + mine},
		AskAdopt:          {sha(adoptScript) + " " + theirs + " " + mine + " 1000 7 86400000 90000000"},
		AskRestore:        {queued(restoreScript) + " " + mine + " " + theirs + " 86400000 90000000 {jobs/42}:release"},
		AskExpireRegister: {sha(touchScript)},
		AskInspect:        {queued(inspectScript)},
		AskTurn:           {queued(turnScript) + " " + mine + " 1000 7 " + theirs + " 1800000000000001 2000 15000 {jobs/42}:release 1"},
		AskWait:           {waits(waitScript) + " " + theirs + "  12000 15000"},
		AskLeave:          {waits(leaveScript) + " " + theirs + " {jobs/42}:release 2 " + mine},
		askLook:           {"pttl jobs/42"},
		askAnnounce:       {"publish {jobs/42}:release:leader "},
	} {
		q := questionOf(k)
		var said []string
		for j := range q.Cmds {
			if args := q.Args(j, false, false, false); args != nil {
				said = append(said, spoken(args))
			}
		}
		if !reflect.DeepEqual(said, want) {
			t.Errorf("kind %d:\ngot  %q\nwant %q", k, said, want)
		}
		if q.Script != nil {
			text := q.Args(0, true, false, false)
			if text[0] != "eval" || text[1] != q.Script.body || spoken(text[2:]) != spoken(q.Args(0, false, false, false)[2:]) {
				t.Errorf("kind %d: as text it is %q", k, spoken(text)[:40])
			}
		}
	}
	if got, want := spoken(questionOf(AskAcquire).Args(0, false, true, false)), "set jobs/42 "+mine+" nx px 1000"; got != want {
		t.Errorf("for servers without NX and GET: got %q, want %q", got, want)
	}
	t.Run("fractions of a millisecond are rounded up in all of them", func(t *testing.T) {
		name, _ := NameKey("", "k")
		q := AcquireQuestion(nil, name, mine, time.Second+1, 7)
		if got := spoken(q.Cmds[0]); !strings.HasSuffix(got, " px 1001") {
			t.Errorf("got %q", got)
		}
	})
	t.Run("go-redis sends none of it twice", func(t *testing.T) {
		if c := NewCommand([]any{"x"}); !c.NoRetry() {
			t.Errorf("a command is sent again by go-redis")
		}
	})
}

// Of a lock without a fence no question names the register, but those of an adoption, whose note
// lies there, and those that propose no token.
func TestWhatIsAskedWithoutAFence(t *testing.T) {
	name, _ := NameKey("", "jobs/42")
	name.Fenced = false
	g := &Guard{Age: time.Minute, Mark: "{redlock}:boot"}
	const long = 48 * time.Hour
	release := "evalsha " + releaseScript.sha + " 2 jobs/42 {jobs/42}:queue " + mine
	for _, c := range []struct {
		q    Question
		want string
	}{
		{AcquireQuestion(nil, name, mine, time.Second, 0), "set jobs/42 " + mine + " nx get px 1000"},
		{AcquireQuestion(g, name, mine, time.Second, 0), "evalsha " + acquireScript.guarded.sha + " 3 jobs/42 {jobs/42}:fence {redlock}:boot " + mine + " 1000  60000 0"},
		{TurnQuestion(nil, name, mine, time.Second, 0, theirs, 12, false), "evalsha " + turnScript.sha + " 3 jobs/42 {jobs/42}:fence {jobs/42}:queue " + mine + " 1000  " + theirs + " 12 2000 15000 {jobs/42}:release "},
		{AdoptQuestion(nil, name, theirs, mine, time.Second, 0), "evalsha " + adoptScript.sha + " 2 jobs/42 {jobs/42}:fence " + theirs + " " + mine + " 1000  86400000 90000000"},
		{RestoreQuestion(name, theirs, mine, time.Second), "evalsha " + restoreScript.sha + " 3 jobs/42 {jobs/42}:fence {jobs/42}:queue " + mine + " " + theirs + " 86400000 90000000 {jobs/42}:release"},
		{ExtendQuestion(name, mine, long, 0), "evalsha " + extendScript.sha + " 1 jobs/42 " + mine + " 172800000"},
		{ReleaseQuestion(name, mine, long, ToAll), release + " {jobs/42}:release"},
		{ReleaseQuestion(name, mine, long, Attempted), release + " {jobs/42}:release  attempt"},
		{ReleaseQuestion(name, mine, time.Second, Notice{}), release + " {jobs/42}:release  0"},
		{ReleaseQuestion(name, mine, time.Second, Notice{Tell: 2, Place: theirs, Stay: true}), release + " {jobs/42}:release " + theirs + " 2 86400000 90000000 12000"},
		{RollbackQuestion(name, mine, long), release},
	} {
		if got := spoken(c.q.Args(0, false, false, false)); got != c.want || c.q.Args(1, false, false, false) != nil {
			t.Errorf("\ngot  %q %q\nwant %q", got, c.q.Args(1, false, false, false), c.want)
		}
	}
	if got, want := spoken(new(ReleaseQuestion(name, mine, time.Second, Notice{})).Owed().Args(0, false, false, false)), release+" {jobs/42}:release"; got != want {
		t.Errorf("a release that handed the lock on, once it is owed: got %q, want %q", got, want)
	}
	t.Run("in one script with others", func(t *testing.T) {
		fenced, _ := NameKey("", "jobs/43")
		var j Joint
		j.Add(new(ReleaseQuestion(name, mine, long, ToAll)), false)
		j.Add(new(ReleaseQuestion(fenced, theirs, time.Second, ToAll)), false)
		j.Add(new(RollbackQuestion(name, mine, time.Second)), false)
		if got, want := spoken(j.Command(false).Args()), "evalsha "+releasesScript.sha+" 6 jobs/42 jobs/43 jobs/42 {jobs/42}:queue {jobs/43}:queue {jobs/43}:fence 2 "+mine+" "+theirs+" "+mine; got != want {
			t.Errorf("releases:\ngot  %q\nwant %q", got, want)
		}
		j.Reset()
		j.Add(new(ExtendQuestion(name, mine, long, 0)), true)
		j.Add(new(ExtendQuestion(fenced, theirs, time.Second, 7)), false)
		j.Add(new(ExtendQuestion(fenced, theirs, time.Second, 7)), true)
		if got, want := spoken(j.Command(false).Args()), "evalsha "+extendsScript.sha+" 5 jobs/42 jobs/43 jobs/43 {jobs/43}:fence {jobs/43}:fence "+mine+" 172800000 - "+theirs+" 1000 7 "+theirs+" 1000 "; got != want {
			t.Errorf("extensions:\ngot  %q\nwant %q", got, want)
		}
	})
	t.Run("every grant has what counts as its token", func(t *testing.T) {
		for _, q := range []Question{AcquireQuestion(nil, name, mine, time.Second, 0), AcquireQuestion(g, name, mine, time.Second, 0), AdoptQuestion(nil, name, theirs, mine, time.Second, 0), TurnQuestion(nil, name, mine, time.Second, 0, "", 0, false)} {
			granted := got{val: []any{int64(1), int64(0), int64(0)}}
			if q.Script == nil {
				granted = got{err: redis.Nil}
			}
			if r := q.Read(commands(granted, got{}), false, nil); r.Answer != Yes || !r.Fenced || !r.Stored {
				t.Errorf("kind %d: got %+v", q.Kind, r)
			}
		}
	})
}

// The register of a ttl beyond the usual has a life of its own, behind all that goes
// before it: with the usual one it would be over before the lock.
func TestTheLifeOfALongTTLIsSpelledOut(t *testing.T) {
	name, _ := NameKey("", "jobs/42")
	const ttl, life = 48 * time.Hour, "255600000 259200000"
	for what, c := range map[string]struct {
		q    Question
		want string
	}{
		"extend":                       {ExtendQuestion(name, mine, ttl, 7), mine + " 172800000 7 " + life},
		"release":                      {ReleaseQuestion(name, mine, ttl, Notice{Tell: NotifyCount}), mine + " {jobs/42}:release  2 " + life},
		"release, an entry that stays": {ReleaseQuestion(name, mine, ttl, Notice{Tell: 1, Place: theirs, Stay: true, Prolong: true}), mine + " {jobs/42}:release " + theirs + " 1 " + life + " 12000 15000"},
		"release, the next caller":     {ReleaseQuestion(name, mine, ttl, Notice{Tell: 1, Place: theirs, Ticket: 7}), mine + " {jobs/42}:release " + theirs + " 1 " + life + " 2000 15000 7"},
		"release, a place":             {ReleaseQuestion(name, mine, ttl, Notice{Tell: 0, Place: theirs}), mine + " {jobs/42}:release " + theirs + " 0 " + life},
		"rollback":                     {RollbackQuestion(name, mine, ttl), mine + "    " + life},
		"adopt":                        {AdoptQuestion(nil, name, theirs, mine, ttl, 7), theirs + " " + mine + " 172800000 7 " + life},
		"restore":                      {RestoreQuestion(name, theirs, mine, ttl), mine + " " + theirs + " " + life + " {jobs/42}:release"},
		"touch":                        {ExpireRegisterQuestion(name, ttl), life},
	} {
		args := c.q.Args(0, false, false, false)
		keys, _ := strconv.Atoi(args[2].(string))
		if got := spoken(args[3+keys:]); got != c.want {
			t.Errorf("%s: got %q, want %q", what, got, c.want)
		}
	}
}

// A release takes an entry for alive whose ticket is at most two seconds old.
func TestYoungEntriesHaveNotExpired(t *testing.T) {
	const believed = 2 * time.Second
	if !strings.Contains(releaseLua, fmt.Sprint("at + ", believed.Microseconds(), " >= us")) {
		t.Errorf("lua/release.lua no longer believes a ticket for %v", believed)
	}
	if TurnLife < believed || entryLife < believed {
		t.Errorf("an entry lives for %v or %v, a release believes its ticket for %v", TurnLife, entryLife, believed)
	}
}

func TestOwedQuestions(t *testing.T) {
	name, err := NameKey("", "jobs/42")
	if err != nil {
		t.Fatal(err)
	}
	const day = 24 * time.Hour
	for text, q := range map[string]Question{
		"plain":           ReleaseQuestion(name, mine, time.Second, ToAll),
		"of a long ttl":   ReleaseQuestion(name, mine, 2*day, ToAll),
		"of an attempt":   ReleaseQuestion(name, mine, time.Second, Attempted),
		"rollback":        RollbackQuestion(name, mine, time.Second),
		"of a register":   ExpireRegisterQuestion(name, time.Second),
		"failed adoption": RestoreQuestion(name, theirs, mine, time.Second),
	} {
		if q.Owed() != &q {
			t.Errorf("%s: another question once it is owed", text)
		}
	}
	said := func(q *Question) string { return spoken(q.Args(0, false, false, false)) }
	for _, ttl := range []time.Duration{time.Second, 2 * day} {
		plain := ReleaseQuestion(name, mine, ttl, ToAll)
		for text, n := range map[string]Notice{
			"hands the lock on":    {},
			"its entry goes":       {Tell: 1, Place: theirs},
			"its entry stays":      {Tell: NotifyCount, Place: theirs, Stay: true},
			"queues the next here": {Tell: 1, Place: theirs, Ticket: 7},
		} {
			q := ReleaseQuestion(name, mine, ttl, n)
			if before, got := said(&q), said(q.Owed()); got != said(&plain) || got == before || said(&q) != before {
				t.Errorf("%s, once it is owed: got %q, want %q", text, got, said(&plain))
			}
		}
		handed, attempted := ReleaseQuestion(name, mine, ttl, Handed), ReleaseQuestion(name, mine, ttl, Attempted)
		if got := said(handed.Owed()); got != said(&attempted) {
			t.Errorf("a handed attempt, once its end is owed: got %q, want %q", got, said(&attempted))
		}
	}
}

// Under a guard all grants are scripts that end in the mark, the age and what to do with
// the mark; all else is as ever.
func TestWhatIsAskedUnderAGuard(t *testing.T) {
	g := &Guard{Age: time.Minute - time.Microsecond, Mark: "{redlock}:boot"}
	name, _ := NameKey("", "jobs/42")
	for _, c := range []struct {
		q    Question
		s    *script
		body string
		want string
	}{
		{AcquireQuestion(g, name, mine, time.Second, 7), acquireScript, acquireLua, "3 jobs/42 {jobs/42}:fence {redlock}:boot " + mine + " 1000 7 60000 "},
		{AdoptQuestion(g, name, theirs, mine, time.Second, 7), adoptScript, adoptLua, "3 jobs/42 {jobs/42}:fence {redlock}:boot " + theirs + " " + mine + " 1000 7 86400000 90000000 60000 "},
		{TurnQuestion(g, name, mine, time.Second, 7, theirs, 12, false), turnScript, queueLua + turnLua, "4 jobs/42 {jobs/42}:fence {jobs/42}:queue {redlock}:boot " + mine + " 1000 7 " + theirs + " 12 2000 15000 {jobs/42}:release  60000 "},
	} {
		sha := c.s.guarded.sha
		if !c.q.Guarded() || c.q.Script.body != guardLua+c.body || c.s.underGuard || sha == c.s.sha {
			t.Errorf("%s: not its guarded script", c.s.name)
		}
		for _, f := range []struct {
			asText, check bool
			want          string
		}{
			{false, false, "evalsha " + sha + " " + c.want + "0"},
			{false, true, "evalsha " + sha + " " + c.want + "1"},
			{true, false, "eval " + guardLua + c.body + " " + c.want + "2"},
			{true, true, "eval " + guardLua + c.body + " " + c.want + "2"},
		} {
			if got := spoken(c.q.Args(0, f.asText, false, f.check)); got != f.want {
				t.Errorf("%s:\ngot  %q\nwant %q", c.s.name, got, f.want)
			}
		}
		if got := spoken(c.q.Args(0, false, false, false)); !strings.HasSuffix(got, " 0") {
			t.Errorf("%s: what the nodes share was changed: %q", c.s.name, got)
		}
		if c.q.Args(1, false, false, false) != nil {
			t.Errorf("%s: has a second command", c.s.name)
		}
	}
	for _, k := range allKinds {
		if questionOf(k).Guarded() {
			t.Errorf("kind %d is guarded", k)
		}
	}
}

func TestTheAnswersOfAGuardAreRead(t *testing.T) {
	g := &Guard{Age: time.Minute - time.Microsecond, Mark: "{redlock}:boot"}
	name, _ := NameKey("", "jobs/42")
	q := AcquireQuestion(g, name, mine, time.Second, 7)
	for _, c := range []struct {
		name string
		val  any
		want Reply
		text string
	}{
		{"ours", []any{int64(1), int64(1)}, Reply{Answer: Yes, Fenced: true, Stored: true, Sent: true}, ""},
		{"ours, not moved", []any{int64(1), int64(0)}, Reply{Answer: Yes, Stored: true, Sent: true}, ""},
		{"held", []any{int64(0), theirs}, Reply{Answer: No, Holder: theirs, Sent: true}, ""},
		{"our own value is there", []any{int64(0), mine}, Reply{Answer: No, Holder: mine, Stored: true, Sent: true}, ""},
		{"quarantined", []any{"quarantined", int64(11500)}, Reply{Answer: Unknown, Sent: true}, "quarantined 12s"},
		{"quarantined for little", []any{"quarantined", int64(120)}, Reply{Answer: Unknown, Sent: true}, "quarantined 120ms"},
		{"a word", []any{"quarantined", "x"}, Reply{Answer: Unknown, Stored: true, Sent: true}, "unexpected reply []interface {}"},
		{"another word", []any{"x", int64(1)}, Reply{Answer: Unknown, Stored: true, Sent: true}, "unexpected reply []interface {}"},
		{"nothing", []any{}, Reply{Answer: Unknown, Stored: true, Sent: true}, "unexpected reply []interface {}"},
		{"a number", int64(1), Reply{Answer: Unknown, Stored: true, Sent: true}, "unexpected reply int64"},
	} {
		t.Run(c.name, func(t *testing.T) {
			checkRead(t, q.Read(commands(got{val: c.val}, got{}), false, nil), c.want, c.text)
		})
	}
}

// Also for a foreign client's ttl of more milliseconds than a Duration has nanoseconds for:
// taken for a short one, a waiter would ask without pauses.
func TestExpiresInIsNeverShortForALongTTL(t *testing.T) {
	for ms, want := range map[int64]time.Duration{
		-1: MaxTTL, 0: time.Millisecond, 999: time.Second, 18446744073710: MaxTTL, math.MaxInt64: MaxTTL,
	} {
		if got := ExpiresIn(ms); got != want {
			t.Errorf("%d ms: got %v, want %v", ms, got, want)
		}
	}
}

func spoken(args []any) string {
	s := fmt.Sprintln(args...)
	return s[:len(s)-1]
}

func TestAServersIntroduction(t *testing.T) {
	for _, c := range []struct {
		name string
		info got
		exec error
		want *Identity
	}{
		{"redis", got{val: "# Server\r\nredis_version:7.0.15\r\nrun_id:0123abc\r\ntcp_port:6379\r\n"}, nil, &Identity{RunID: "0123abc"}},
		{"with bare newlines", got{val: "run_id:0123abc\n"}, nil, &Identity{RunID: "0123abc"}},
		{"without an end", got{val: "a:b\r\nrun_id:0123abc"}, nil, &Identity{RunID: "0123abc"}},
		{"another field that ends like it", got{val: "master_run_id:ff\r\n"}, nil, &Identity{}},
		{"no run_id", got{val: "# Server\r\n"}, nil, &Identity{}},
		{"empty", got{val: ""}, nil, &Identity{}},
		{"a number", got{val: int64(7)}, nil, &Identity{}},
		{"refused", got{err: said("NOPERM this user has no permissions to run the 'info' command")}, nil, &Identity{}},
		{"no answer", got{err: io.EOF}, io.EOF, nil},
		{"never reached", untouched, io.EOF, nil},
		{"never reached, and no reason", untouched, nil, nil},
		{"never reached for a wrong password", untouched, said("WRONGPASS x"), &Identity{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := ReadIdentity(&commands(c.info)[0], new(Command), c.exec); !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestAReplicasIntroduction(t *testing.T) {
	const server = "# Server\r\nrun_id:0123abc\r\n"
	for _, c := range []struct {
		name, replication string
		err               error
		want              string // of which master; "": it is none
	}{
		{"a master", "# Replication\r\nrole:master\r\nconnected_slaves:1\r\nslave0:ip=10.0.0.2,port=6379\r\n", nil, ""},
		{"a replica", "# Replication\r\nrole:slave\r\nmaster_host:10.0.0.1\r\nmaster_port:6379\r\n", nil, "10.0.0.1:6379"},
		{"in other words", "role:replica\r\nmaster_host:db-1\r\nmaster_port:6380\r\n", nil, "db-1:6380"},
		{"by IPv6", "role:slave\r\nmaster_host:::1\r\nmaster_port:6379\r\n", nil, "[::1]:6379"},
		{"one that can be written to on all sides", "role:active-replica\r\nmaster_host:db-1\r\n", nil, ""},
		{"nothing", "", nil, ""},
		{"refused", "", said("NOPERM this user has no permissions"), ""},
		{"lost", "", io.EOF, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmds := commands(got{val: server}, got{val: c.replication, err: c.err})
			info := ReadIdentity(&cmds[0], &cmds[1], c.err)
			if c.err == io.EOF { // it is asked again
				if info != nil {
					t.Errorf("got %+v, want none", info)
				}
				return
			}
			if info == nil || info.RunID != "0123abc" {
				t.Fatalf("got %+v, want the run_id", info)
			}
			switch e := info.Replica; {
			case (e != nil) != (c.want != ""):
				t.Errorf("got %v, want %q", e, c.want)
			case e != nil && (e.Text != "replica of "+c.want+": pass its master" || e.Transient):
				t.Errorf("got %v, heals %v", e, e.Transient)
			}
		})
	}
}

// What a server says that is no independent master gets a hint, unless it is behind a
// client that deals with it.
func TestAdvice(t *testing.T) {
	for _, c := range []struct {
		text  string
		kind  NodeKind
		want  string // what comes behind it; "": it stays as it is
		heals bool
	}{
		{"MOVED 3999 10.0.0.3:6379", KindSingle, inCluster, false},
		{"MOVED 3999 10.0.0.3:6379", KindUnknown, inCluster, true},
		{"MOVED 3999 10.0.0.3:6379", KindPipeliner, inCluster, true},
		{"MOVED 3999 10.0.0.3:6379", KindCluster, "", true},
		{"CROSSSLOT Keys in request don't hash to the same slot", KindSingle, inCluster, false},
		{"ASK 3999 10.0.0.3:6379", KindSingle, inCluster, true},
		{"TRYAGAIN Multiple keys request during rehashing of slot", KindSingle, inCluster, true},
		{"CLUSTERDOWN Hash slot not served", KindSingle, inCluster, true},
		{"CLUSTERDOWN Hash slot not served", KindCluster, "", true},
		{"READONLY You can't write against a read only replica.", KindSingle, "pass its master", false},
		{"READONLY You can't write against a read only replica.", KindCluster, "", false},
		{"ERR unknown command 'set'", KindSingle, "a Sentinel? pass the masters themselves", false},
		{"ERR unknown command 'zadd'", KindSingle, "", false},
		{"LOADING Redis is loading the dataset in memory", KindSingle, "", true},
		{"ERR something MOVED", KindSingle, "", true},
	} {
		e, _ := Explain(said(c.text))
		got, want := c.kind.Advise(e), c.text
		if c.want != "" {
			want = strings.TrimSuffix(c.text, ".") + ": " + c.want
		}
		if got.Text != want || got.Transient != c.heals || !errors.Is(got, said(c.text)) {
			t.Errorf("kind %d: got %q, heals %v; want %q, %v", c.kind, got.Text, got.Transient, want, c.heals)
		}
	}
	if got := KindSingle.Advise(nil); got != nil {
		t.Errorf("no error: got %v", got)
	}
}

// TestScriptSHAs: the constants by which EVALSHA names the scripts are those of their texts.
func TestScriptSHAs(t *testing.T) {
	all := []*script{acquireScript, extendScript, extendsScript, releaseScript, releasesScript, raiseScript, adoptScript, restoreScript, touchScript, inspectScript, turnScript, waitScript, leaveScript}
	for _, s := range all {
		if s.guarded != nil {
			all = append(all, s.guarded)
		}
	}
	if got, want := len(scriptSHA), len(all); got != want {
		t.Errorf("hashes: got %d, want one for each of %d scripts", got, want)
	}
	for _, s := range all {
		sum := sha1.Sum([]byte(s.body))
		if want := hex.EncodeToString(sum[:]); s.sha != want {
			t.Errorf("the text of a script has changed, or its hash: put this line into scriptSHA (script.go)\n\t%q: %q,", s.name, want)
		}
	}
}
