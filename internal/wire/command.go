package wire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// This file is what is said to a node, word by word, and what its answers mean.
// It and node.go are all that knows go-redis.

// A kind is one thing that is asked of a node.
type kind uint8

const (
	AskAcquire kind = iota + 1
	AskRaise
	AskExtend
	AskHeal
	AskRelease
	AskRollback
	AskAdopt
	AskRestore // a failed adoption: the old value back
	AskTouch   // give the register a life
	AskInspect
	AskTurn  // an acquire that minds the queue
	AskWait  // a place in the queue
	AskLeave // and off it
	askLook  // how long is it still held?
)

// stores: the command may leave our value on the node.
func (k kind) Stores() bool {
	return k == AskAcquire || k == AskTurn || k == AskHeal || k == AskAdopt
}

// cleans: the command takes what we left from the node or limits its life, and is
// owed until it is answered.
func (k kind) Cleans() bool {
	return k == AskRelease || k == AskRollback || k == AskRestore || k == AskTouch
}

// A question is what is asked of every node alike; the nodes share its arguments,
// which nobody changes.
type Question struct {
	Kind     kind
	Cmds     [2][]any      // one or two commands, next to each other in one pipeline
	Script   *script       // of cmds[0], if it is one
	Value    string        // our value
	Back     string        // restore: the value that it puts back; adopt: the one that it replaces
	Bytes    int           // about how much goes over the wire
	TTL      time.Duration // how long what it leaves lives
	Patience               // for the answer
}

func (q *Question) add(args ...any) {
	for i := range q.Cmds {
		if q.Cmds[i] == nil {
			q.Cmds[i] = args
			break
		}
	}
	q.Bytes += 16
	for _, a := range args {
		if s, ok := a.(string); ok {
			q.Bytes += len(s) + 8
		}
	}
}

func (q *Question) eval(s *script, name *LockKey, args ...any) {
	q.evalOn(s, []any{name.args.full, name.args.fence}, args...)
}

func (q *Question) evalOn(s *script, keys []any, args ...any) {
	q.Script = s
	all := make([]any, 0, 3+len(keys)+len(args))
	all = append(all, "evalsha", s.shaArg, counts[len(keys)])
	q.add(append(append(all, keys...), args...)...)
}

// counts are numbers of keys, as arguments.
var counts = [...]any{"0", "1", "2", "3", "4", "5"}

// evalGrant is evalOn for a script that may grant the lock.
func (q *Question) evalGrant(g *Guard, s *script, keys []any, args ...any) {
	if g == nil {
		q.evalOn(s, keys, args...)
		return
	}
	q.evalOn(s.guarded, append(keys, g.Mark), append(args, Px(g.Age), markBelieved)...)
}

// args is the j-th command as it is sent; nil: there is none. asText: the script
// goes with its text, for a node that does not know it. plain: SET NX goes without
// GET, for a server before 7.0, which has no both. check: see guard.go.
func (q *Question) Args(j int, asText, plain, check bool) []any {
	args := q.Cmds[j]
	switch {
	case j > 0:
		return args
	case plain:
		return slices.Delete(slices.Clone(args), 4, 5) // without GET
	case asText:
		args = append([]any{"eval", q.Script.body}, args[2:]...)
		if q.Guarded() {
			args[len(args)-1] = markUnknown
		}
	case check:
		args = slices.Clone(args)
		args[len(args)-1] = markChecked
	}
	return args
}

// acquireQuestion is two plain commands, or a script where there is a guard.
func AcquireQuestion(g *Guard, name *LockKey, value string, ttl time.Duration, proposal int64) Question {
	q := Question{Kind: AskAcquire, Value: value, TTL: ttl}
	if g != nil {
		q.evalGrant(g, acquireScript, []any{name.args.full, name.args.fence}, value, Px(ttl), proposal)
		return q
	}
	q.add("set", name.args.full, value, "nx", "get", "px", Px(ttl))
	q.add("zadd", name.args.fence, "gt", "ch", proposal, "f")
	return q
}

func RaiseQuestion(name *LockKey, value string, ttl time.Duration, token int64) Question {
	q := Question{Kind: AskRaise, Value: value, TTL: ttl}
	q.eval(raiseScript, name, value, token)
	return q
}

func ExtendQuestion(name *LockKey, value string, ttl time.Duration, fence int64) Question {
	q := Question{Kind: AskExtend, Value: value, TTL: ttl}
	q.eval(extendScript, name, append([]any{value, Px(ttl), fence}, registerTTLArgs(ttl)...)...)
	return q
}

func HealQuestion(name *LockKey, value string, ttl time.Duration) Question {
	q := Question{Kind: AskHeal, Value: value, TTL: ttl}
	q.add("set", name.args.full, value, "nx", "px", Px(ttl))
	return q
}

// releaseQuestion tells the first few of the queue; tell says how many. Before that
// our own place goes to its end; "": we have none.
func ReleaseQuestion(name *LockKey, value string, ttl time.Duration, tell int, place string) Question {
	q := Question{Kind: AskRelease, Value: value, TTL: ttl}
	args := []any{value, name.args.channel}
	if life := registerTTLArgs(ttl); life != nil || place != "" || tell != TellWaiters {
		args = append(append(args, place, tell), life...)
	}
	q.evalOn(releaseScript, name.withQueue(), args...)
	return q
}

// rollbackQuestion is a release that announces nothing: nobody held the lock.
func RollbackQuestion(name *LockKey, value string, ttl time.Duration) Question {
	q := Question{Kind: AskRollback, Value: value, TTL: ttl}
	args := []any{value}
	if life := registerTTLArgs(ttl); life != nil {
		args = append(append(args, "", "", ""), life...)
	}
	q.eval(releaseScript, name, args...)
	return q
}

func AdoptQuestion(g *Guard, name *LockKey, old, value string, ttl time.Duration, proposal int64) Question {
	q := Question{Kind: AskAdopt, Value: value, Back: old, TTL: ttl}
	least, given := registerPX(ttl)
	q.evalGrant(g, adoptScript, []any{name.args.full, name.args.fence}, old, value, Px(ttl), proposal, least, given)
	return q
}

func RestoreQuestion(name *LockKey, old, value string, ttl time.Duration) Question {
	q := Question{Kind: AskRestore, Value: value, Back: old, TTL: ttl}
	least, given := registerPX(ttl)
	q.eval(restoreScript, name, value, old, least, given)
	return q
}

// registerTTLArgs is what the scripts that give a register its life are told of it: nothing, if it
// is the usual.
func registerTTLArgs(ttl time.Duration) []any {
	if ttl <= RegisterSlack {
		return nil
	}
	least, given := registerPX(ttl)
	return []any{least, given}
}

// touchQuestion gives the register a life.
func TouchQuestion(name *LockKey, ttl time.Duration) Question {
	q := Question{Kind: AskTouch, TTL: ttl}
	q.eval(touchScript, name, registerTTLArgs(ttl)...)
	return q
}

func InspectQuestion(name *LockKey) Question {
	q := Question{Kind: AskInspect}
	q.evalOn(inspectScript, name.withQueue())
	return q
}

// lookQuestion asks for what is left of the lock's ttl, and nothing else.
func LookQuestion(name *LockKey) Question {
	q := Question{Kind: askLook}
	q.add("pttl", name.args.full)
	return q
}

// A command is one go-redis command that is never sent twice: after a lost reply
// go-redis would silently send it again, an acquired lock would read as taken and
// a done release as not held. One such member switches it off for its pipeline.
//
// A nil reply, which is the good news of an acquire, is kept as such and not as an
// error: go-redis would look into an error in front of a pipeline for whether it
// should send all of it again, which costs more than the rest of the call.
type Command struct {
	redis.Cmd      // by value: a batch makes its commands where those of the one before were
	null      bool // the reply was nil
}

func NewCommand(args []any) Command {
	return Command{Cmd: *redis.NewCmd(context.Background(), args...)}
}

// NoRetry is asked by go-redis before it would send a command again.
func (*Command) NoRetry() bool { return true }

// SetErr is told by go-redis how reading the reply went.
func (c *Command) SetErr(err error) {
	switch {
	case err == redis.Nil:
		c.null, err = true, nil
	case err != nil: // takes it back; nil does not: go-redis says it once more at the end
		c.null = false
	}
	c.Cmd.SetErr(err)
}

// A reply is what a node's answer to a question means.
type Reply struct {
	Answer  Answer
	Fenced  bool      // yes, and the register moved from below the proposal to it
	Missing bool      // no: nothing is stored there
	Holder  string    // no: the value that is
	Score   int64     // raise, inspect: the register as it was met
	TTL     int64     // inspect, look, turn: milliseconds to live
	Before  int       // turn, wait: how many queue before us
	Queue   *[]string // inspect: the places, first to last
	Clock   int64     // turn, wait: the node's time, µs since 1970
	Stored  bool      // our value may be on the node because of this
	Sent    bool      // it left for the node: only then may it have been executed
	Silent  bool      // it left, and no answer came: it may be executed any time later
	Err     *NodeError
}

// again reports that the node executed nothing but would in the other form: with
// the script's text, or without GET.
func (r Reply) Again(q *Question, asText, plain bool) bool {
	switch {
	case r.Err == nil || r.Silent || !r.Sent:
		return false
	case q.Script != nil:
		return !asText && strings.HasPrefix(r.Err.Text, "NOSCRIPT")
	}
	return q.Kind == AskAcquire && !plain && strings.HasPrefix(r.Err.Text, "ERR syntax")
}

// A nodeError is why one node's vote is no plain yes or no. It never matches a
// context error or one of our sentinels: a node that timed out says nothing about
// the caller's context.
type NodeError struct {
	Text      string
	Cause     error // nil where matching it would mislead
	Transient bool  // time may heal it
}

func (e *NodeError) Error() string { return e.Text }
func (e *NodeError) Unwrap() error { return e.Cause }

func NewNodeError(text string, cause error) *NodeError {
	for _, no := range []error{context.Canceled, context.DeadlineExceeded, ErrHeld, ErrNoQuorum, ErrLost, ErrClosed} {
		if errors.Is(cause, no) {
			cause = nil
		}
	}
	return &NodeError{Text: text, Cause: cause, Transient: true}
}

var (
	ErrMissing  = NewNodeError("missing", nil)
	ErrNotAsked = NewNodeError("not asked", nil)
	ErrOwed     = NewNodeError("no answer yet, owed", nil)
	ErrBusy     = NewNodeError("queue full", nil)
	ErrLaneDone = NewNodeError("closed", nil)
)

// healing lists the error codes of Redis that the causes of an answer begin with,
// and whether time heals them. (redis-server 7.0; a script's errors carry the code
// in front, servers before 7.0 and miniredis somewhere in the text.)
var healing = []struct {
	code  string
	heals bool
}{
	{"WRONGTYPE", false}, {"NOAUTH", false}, {"WRONGPASS", false}, {"NOPERM", false}, {"READONLY", false},
	{"LOADING", true}, {"MASTERDOWN", true}, {"MISCONF", true}, {"NOREPLICAS", true}, {"BUSY", true},
	{"NOSCRIPT", true}, {"OOM", true}, {"CLUSTERDOWN", true}, {"TRYAGAIN", true}, {"MOVED", true}, {"ASK", true},
}

// scriptRefusals are in the errors of a command that the user of a script may not run.
// Mostly they have no code of their own: NOPERM is missing there. "ERR " goes before
// them, but not before 7.0 where a script passes them on.
var scriptRefusals = []string{
	"The user executing the script can't", // Redis 7.0 and before
	"ACL failure in script",               // Redis 7.2 and later, Valkey
}

// explain classifies an error: what a node said (a Redis error reply: it was not
// executed), or what happened on the way (it may have been).
func Explain(err error) (e *NodeError, said bool) {
	var re redis.Error
	if !errors.As(err, &re) {
		return NewNodeError(wayError(err), err), false
	}
	text := strings.TrimSpace(re.Error())
	e = NewNodeError(text, err)
	// Our scripts put FENCE before what the register's command has said.
	cause := strings.TrimPrefix(text, "FENCE ")
	for _, h := range healing {
		if strings.HasPrefix(cause, h.code) {
			e.Transient = h.heals
			break
		}
		if i := strings.Index(cause, h.code+" "); i > 0 && strings.HasPrefix(cause, "ERR ") && (cause[i-1] == ' ' || cause[i-1] == '-') {
			e.Text, e.Transient = text[:len(text)-len(cause)]+cause[i:], h.heals
			break
		}
	}
	for _, refusal := range []string{"ERR unknown command", "ERR invalid password"} {
		if strings.HasPrefix(cause, refusal) {
			e.Transient = false
		}
	}
	for _, refusal := range scriptRefusals {
		if strings.Contains(text, refusal) {
			e.Transient = false
		}
	}
	// Where in the script it was: "script: 1b3c, on @user_script:8."
	if i := strings.LastIndex(e.Text, " script: "); i > 0 && strings.Contains(e.Text[i:], "@user_script") {
		e.Text = e.Text[:i]
	}
	e.Text, _, _ = strings.Cut(e.Text, ", with args beginning with") // a lock's value is among them
	if e.Text != "" {
		e.Text = quoteValue(e.Text)
	}
	return e, true
}

// notExecuted reports errors by which a server says that it has not executed a command.
func notExecuted(text string) bool {
	for _, h := range healing {
		if strings.HasPrefix(text, h.code) {
			return true
		}
	}
	for _, other := range []string{"ERR syntax", "ERR unknown", "ERR wrong number", "ERR max number", "ERR invalid", "CROSSSLOT", "NOPROTO", "DENIED"} {
		if strings.HasPrefix(text, other) {
			return true
		}
	}
	for _, refusal := range scriptRefusals {
		if strings.HasPrefix(text, "ERR "+refusal) {
			return true
		}
	}
	return false
}

// wayError words what happened between us and a node.
func wayError(err error) string {
	var timeout net.Error
	var op *net.OpError
	switch {
	case errors.As(err, &op) && op.Op == "dial" && op.Err != nil && !op.Timeout():
		return op.Err.Error() // "connect: connection refused"
	case errors.As(err, &timeout) && timeout.Timeout():
		return "timeout (" + err.Error() + ")"
	}
	return err.Error()
}

// neverLeft reports errors that came before a byte was written.
func NeverLeft(err error) bool {
	var op *net.OpError
	var dns *net.DNSError
	return errors.As(err, &op) && op.Op == "dial" || errors.As(err, &dns) ||
		errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) || errors.Is(err, redis.ErrClosed)
}

// result is one command's value or error. A command that go-redis never got to
// has neither, and then the pipeline's own error says why: where a connection can
// not be set up because the server refuses the password, for one, go-redis leaves
// the commands untouched. Taken for a nil reply, that would be a granted lock.
//
// Nothing is believed that a client read before it panicked.
func result(c *Command, exec error) (any, error) {
	if _, panicked := exec.(*PanicError); panicked {
		return nil, exec
	}
	v, err := c.Val(), c.Err()
	if c.null && v == nil {
		return nil, redis.Nil
	}
	if err == nil && v == nil {
		if exec == nil || errors.Is(exec, redis.Nil) {
			exec = errors.New("no reply")
		}
		return nil, exec
	}
	return v, err
}

// failure is the reply for an error: unknown. Where the node itself said the
// error, the command was not executed and has stored nothing.
func failure(k kind, err error) Reply {
	e, said := Explain(err)
	r := Reply{Answer: Unknown, Err: e, Sent: !NeverLeft(err)}
	r.Silent = r.Sent && !said
	// A proxy may word a lost reply as an error of its own: then it was executed.
	r.Stored = k.Stores() && (r.Silent || said && !notExecuted(e.Text))
	return r
}

// strange is the reply for an answer that no Redis server gives.
func strange(k kind, v any) Reply {
	return Reply{Answer: Unknown, Sent: true, Stored: k.Stores(), Err: NewNodeError(fmt.Sprintf("unexpected reply %T", v), nil)}
}

// read turns the commands' results into a reply. plain: as in args.
func (q *Question) Read(cmds []Command, plain bool, exec error) Reply {
	v, err := result(&cmds[0], exec)
	if q.Guarded() {
		if left, ok := readQuarantine(v); ok {
			return Reply{Answer: Unknown, Sent: true, Err: left}
		}
	}
	switch q.Kind {
	case AskAcquire:
		if q.Script != nil {
			return readGrant(AskAcquire, v, err, q.Value)
		}
		return readAcquire(v, err, &cmds[1], plain, exec, q.Value)
	case AskRaise:
		return readRaise(v, err)
	case AskAdopt:
		return readGrant(AskAdopt, v, err, q.Value)
	case AskInspect:
		return readInspect(v, err)
	case AskTurn:
		return readTurn(v, err, q.Value)
	case askLook:
		return readLook(v, err)
	case AskWait:
		return readWait(v, err)
	case AskHeal:
		switch {
		case errors.Is(err, redis.Nil):
			return Reply{Answer: No, Sent: true}
		case err == nil:
			return Reply{Answer: Yes, Sent: true, Stored: true}
		}
	}
	return readOwner(q.Kind, v, err)
}

// readAcquire reads SET K v NX GET PX (nil: ours; else the holder's value) and
// ZADD GT CH (1: the register was below the proposal and is it now).
func readAcquire(v any, err error, zadd *Command, plain bool, exec error, value string) Reply {
	var r Reply
	switch {
	case err != nil && !errors.Is(err, redis.Nil):
		return failure(AskAcquire, err)
	case plain && err != nil: // the nil reply: something is there
		r = Reply{Answer: No}
	case plain && v == "OK":
		r = Reply{Answer: Yes}
	case plain:
		return strange(AskAcquire, v)
	case err != nil: // the nil reply: there was nothing, now there is ours
		r = Reply{Answer: Yes}
	default:
		holder, ok := v.(string)
		if !ok {
			return strange(AskAcquire, v)
		}
		r = Reply{Answer: No, Holder: holder}
	}
	r.Sent = true
	if r.Answer == No {
		// Our own value in the way was put there by a second delivery that somebody
		// else made (a proxy, a server listed twice): never a yes, but ours to remove.
		r.Stored = r.Holder == value
		return r
	}
	r.Stored = true
	moved, err := result(zadd, exec)
	switch {
	case err != nil: // a register of another type, or the connection broke in between
		e, _ := Explain(err)
		return Reply{Answer: Unknown, Sent: true, Stored: true, Err: newFenceError(e)}
	case moved == int64(1):
		r.Fenced = true
	}
	return r
}

func newFenceError(e *NodeError) *NodeError {
	return &NodeError{Text: "fence register: " + e.Text, Cause: e.Cause, Transient: e.Transient}
}

func readRaise(v any, err error) Reply {
	if err != nil {
		return failure(AskRaise, err)
	}
	parts, ok := v.([]any)
	if !ok || len(parts) == 0 {
		return strange(AskRaise, v)
	}
	switch parts[0] {
	case int64(1):
		return Reply{Answer: Yes, Fenced: true, Sent: true}
	case int64(2):
		if len(parts) < 2 {
			return strange(AskRaise, v)
		}
		score, e := ReadScore(parts[1])
		if e != nil {
			return Reply{Answer: Unknown, Sent: true, Err: e}
		}
		return Reply{Answer: Yes, Score: score, Sent: true}
	case int64(0):
		return Reply{Answer: No, Sent: true}
	case int64(-1):
		return Reply{Answer: No, Missing: true, Err: ErrMissing, Sent: true}
	}
	return strange(AskRaise, v)
}

// readGrant reads what lua/acquire.lua and lua/adopt.lua say.
func readGrant(k kind, v any, err error, value string) Reply {
	if err != nil {
		return failure(k, err)
	}
	parts, ok := v.([]any)
	if !ok || len(parts) == 0 {
		return strange(k, v)
	}
	switch parts[0] {
	case int64(1):
		return Reply{Answer: Yes, Fenced: len(parts) > 1 && parts[1] == int64(1), Stored: true, Sent: true}
	case int64(0):
		holder := ""
		if len(parts) > 1 {
			holder, _ = parts[1].(string)
		}
		return Reply{Answer: No, Holder: holder, Stored: holder == value, Sent: true} // stored: as in readAcquire
	case int64(-1):
		return Reply{Answer: No, Missing: true, Err: ErrMissing, Sent: true}
	}
	return strange(k, v)
}

// readLook reads PTTL: -2 for what is free, -1 for what has no end.
func readLook(v any, err error) Reply {
	if err != nil {
		return failure(askLook, err)
	}
	left, ok := v.(int64)
	switch {
	case !ok:
		return strange(askLook, v)
	case left == -2:
		return Reply{Answer: Yes, Sent: true}
	}
	return Reply{Answer: No, TTL: left, Sent: true}
}

// readWait reads what PTTL says, how many are before us, and the node's time.
func readWait(v any, err error) Reply {
	if err != nil {
		return failure(AskWait, err)
	}
	parts, ok := v.([]any)
	if !ok || len(parts) != 3 {
		return strange(AskWait, v)
	}
	r := readLook(parts[0], nil)
	before, ok1 := parts[1].(int64)
	clock, ok2 := parts[2].(int64)
	if !ok1 || !ok2 {
		return strange(AskWait, v)
	}
	r.Before, r.Clock = int(before), clock
	return r
}

func readTurn(v any, err error, value string) Reply {
	if err != nil {
		return failure(AskTurn, err)
	}
	parts, ok := v.([]any)
	if !ok || len(parts) < 3 {
		return strange(AskTurn, v)
	}
	r := Reply{Sent: true}
	if parts[0] == int64(1) {
		r.Answer, r.Stored, r.Fenced = Yes, true, parts[1] == int64(1)
		r.Clock, ok = parts[2].(int64)
		if !ok {
			return strange(AskTurn, v)
		}
		return r
	}
	who, ok1 := parts[1].(string)
	left, ok2 := parts[2].(int64)
	if len(parts) != 5 || !ok1 || !ok2 {
		return strange(AskTurn, v)
	}
	before, ok1 := parts[3].(int64)
	clock, ok2 := parts[4].(int64)
	if !ok1 || !ok2 {
		return strange(AskTurn, v)
	}
	r.Answer, r.TTL, r.Before, r.Clock = No, left, int(before), clock
	switch parts[0] {
	case int64(0):
		r.Holder = who
		r.Stored = who == value // as in readAcquire
	case int64(2):
		r.Err = NewNodeError("the turn of "+HolderName(who), nil)
	default:
		return strange(AskTurn, v)
	}
	return r
}

// readOwner reads the answer of the scripts that act only on our own value.
func readOwner(k kind, v any, err error) Reply {
	if err != nil {
		r := failure(k, err)
		if strings.HasPrefix(r.Err.Text, "WRONGTYPE") { // surely not our value
			r.Answer = No
		}
		return r
	}
	switch v {
	case int64(1):
		return Reply{Answer: Yes, Sent: true}
	case int64(0):
		return Reply{Answer: No, Sent: true}
	case int64(-1):
		return Reply{Answer: No, Missing: true, Err: ErrMissing, Sent: true}
	}
	return strange(k, v)
}

func readInspect(v any, err error) Reply {
	if err != nil {
		return failure(AskInspect, err)
	}
	parts, ok := v.([]any)
	if !ok || len(parts) < 3 {
		return strange(AskInspect, v)
	}
	holder, ok1 := parts[0].(string)
	left, ok2 := parts[1].(int64)
	if !ok1 || !ok2 {
		return strange(AskInspect, v)
	}
	r := Reply{Answer: Yes, Holder: holder, TTL: left, Sent: true}
	if left == -2 {
		r.Missing = true
	}
	if parts[2] != "" {
		score, e := ReadScore(parts[2])
		if e != nil {
			return Reply{Answer: Unknown, Sent: true, Err: e}
		}
		r.Score = score
	}
	if len(parts) > 3 {
		var queue []string
		places, _ := parts[3].([]any)
		for _, p := range places {
			if s, ok := p.(string); ok {
				queue = append(queue, s)
			}
		}
		r.Queue = &queue
	}
	return r
}

// maxToken is the greatest token: 2^53-1, the last integer that a register, a
// double, counts by ones to.
const MaxToken = 1<<53 - 1

// readScore reads a register. Redis gives a double: as text below RESP3 and from
// scripts, with all its digits.
func ReadScore(v any) (int64, *NodeError) {
	var f float64
	switch v := v.(type) {
	case string:
		var err error
		if f, err = strconv.ParseFloat(v, 64); err != nil {
			return 0, &NodeError{Text: "fence register is no number: " + strconv.Quote(Clip(v))}
		}
	case float64:
		f = v
	case int64:
		f = float64(v)
	default:
		return 0, &NodeError{Text: fmt.Sprintf("fence register is a %T", v)}
	}
	if !(f < MaxToken) { // also NaN
		return 0, &NodeError{Text: fmt.Sprintf("fence register is %v, the last number before 2^53 or beyond: remove it", f)}
	}
	if f < 0 {
		return 0, nil // whatever it was, every token is above it
	}
	return int64(f), nil
}

func TimeoutError(d time.Duration) *NodeError {
	return NewNodeError("timeout "+Short(d), nil)
}
