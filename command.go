package redlock

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
	askAcquire kind = iota + 1
	askRaise
	askExtend
	askHeal
	askRelease
	askRollback
	askAdopt
	askRestore // a failed adoption: the old value back
	askTouch   // give the register a life
	askInspect
	askTurn  // an acquire that minds the queue
	askWait  // a place in the queue
	askLeave // and off it
	askLook  // how long is it still held?
)

// stores: the command may leave our value on the node.
func (k kind) stores() bool {
	return k == askAcquire || k == askTurn || k == askHeal || k == askAdopt
}

// cleans: the command takes what we left from the node or limits its life, and is
// owed until it is answered.
func (k kind) cleans() bool {
	return k == askRelease || k == askRollback || k == askRestore || k == askTouch
}

// A question is what is asked of every node alike; the nodes share its arguments,
// which nobody changes.
type question struct {
	kind     kind
	cmds     [2][]any      // one or two commands, next to each other in one pipeline
	script   *script       // of cmds[0], if it is one
	value    string        // our value
	back     string        // restore: the value that it puts back; adopt: the one that it replaces
	bytes    int           // about how much goes over the wire
	ttl      time.Duration // how long what it leaves lives
	patience               // for the answer
}

func (q *question) add(args ...any) {
	for i := range q.cmds {
		if q.cmds[i] == nil {
			q.cmds[i] = args
			break
		}
	}
	q.bytes += 16
	for _, a := range args {
		if s, ok := a.(string); ok {
			q.bytes += len(s) + 8
		}
	}
}

func (q *question) eval(s *script, name *lockKey, args ...any) {
	q.evalOn(s, []any{name.args.full, name.args.fence}, args...)
}

func (q *question) evalOn(s *script, keys []any, args ...any) {
	q.script = s
	all := make([]any, 0, 3+len(keys)+len(args))
	all = append(all, "evalsha", s.shaArg, counts[len(keys)])
	q.add(append(append(all, keys...), args...)...)
}

// counts are numbers of keys, as arguments.
var counts = [...]any{"0", "1", "2", "3", "4", "5"}

// evalGrant is evalOn for a script that may grant the lock.
func (q *question) evalGrant(g *guard, s *script, keys []any, args ...any) {
	if g == nil {
		q.evalOn(s, keys, args...)
		return
	}
	q.evalOn(s.guarded, append(keys, g.mark), append(args, px(g.age), markBelieved)...)
}

// args is the j-th command as it is sent; nil: there is none. asText: the script
// goes with its text, for a node that does not know it. plain: SET NX goes without
// GET, for a server before 7.0, which has no both. check: see guard.go.
func (q *question) args(j int, asText, plain, check bool) []any {
	args := q.cmds[j]
	switch {
	case j > 0:
		return args
	case plain:
		return slices.Delete(slices.Clone(args), 4, 5) // without GET
	case asText:
		args = append([]any{"eval", q.script.body}, args[2:]...)
		if q.guarded() {
			args[len(args)-1] = markUnknown
		}
	case check:
		args = slices.Clone(args)
		args[len(args)-1] = markChecked
	}
	return args
}

// acquireQuestion is two plain commands, or a script where there is a guard.
func acquireQuestion(g *guard, name *lockKey, value string, ttl time.Duration, proposal int64) question {
	q := question{kind: askAcquire, value: value, ttl: ttl}
	if g != nil {
		q.evalGrant(g, acquireScript, []any{name.args.full, name.args.fence}, value, px(ttl), proposal)
		return q
	}
	q.add("set", name.args.full, value, "nx", "get", "px", px(ttl))
	q.add("zadd", name.args.fence, "gt", "ch", proposal, "f")
	return q
}

func raiseQuestion(name *lockKey, value string, ttl time.Duration, token int64) question {
	q := question{kind: askRaise, value: value, ttl: ttl}
	q.eval(raiseScript, name, value, token)
	return q
}

func extendQuestion(name *lockKey, value string, ttl time.Duration, fence int64) question {
	q := question{kind: askExtend, value: value, ttl: ttl}
	q.eval(extendScript, name, append([]any{value, px(ttl), fence}, life(ttl)...)...)
	return q
}

func healQuestion(name *lockKey, value string, ttl time.Duration) question {
	q := question{kind: askHeal, value: value, ttl: ttl}
	q.add("set", name.args.full, value, "nx", "px", px(ttl))
	return q
}

// releaseQuestion tells the first few of the queue; tell says how many. Before that
// our own place goes to its end; "": we have none.
func releaseQuestion(name *lockKey, value string, ttl time.Duration, tell int, place string) question {
	q := question{kind: askRelease, value: value, ttl: ttl}
	args := []any{value, name.args.channel}
	if life := life(ttl); life != nil || place != "" || tell != tellWaiters {
		args = append(append(args, place, tell), life...)
	}
	q.evalOn(releaseScript, name.withQueue(), args...)
	return q
}

// rollbackQuestion is a release that announces nothing: nobody held the lock.
func rollbackQuestion(name *lockKey, value string, ttl time.Duration) question {
	q := question{kind: askRollback, value: value, ttl: ttl}
	args := []any{value}
	if life := life(ttl); life != nil {
		args = append(append(args, "", "", ""), life...)
	}
	q.eval(releaseScript, name, args...)
	return q
}

func adoptQuestion(g *guard, name *lockKey, old, value string, ttl time.Duration, proposal int64) question {
	q := question{kind: askAdopt, value: value, back: old, ttl: ttl}
	least, given := registerPX(ttl)
	q.evalGrant(g, adoptScript, []any{name.args.full, name.args.fence}, old, value, px(ttl), proposal, least, given)
	return q
}

func restoreQuestion(name *lockKey, old, value string, ttl time.Duration) question {
	q := question{kind: askRestore, value: value, back: old, ttl: ttl}
	least, given := registerPX(ttl)
	q.eval(restoreScript, name, value, old, least, given)
	return q
}

// life is what the scripts that give a register its life are told of it: nothing, if it
// is the usual.
func life(ttl time.Duration) []any {
	if ttl <= registerSlack {
		return nil
	}
	least, given := registerPX(ttl)
	return []any{least, given}
}

// touchQuestion gives the register a life.
func touchQuestion(name *lockKey, ttl time.Duration) question {
	q := question{kind: askTouch, ttl: ttl}
	q.eval(touchScript, name, life(ttl)...)
	return q
}

func inspectQuestion(name *lockKey) question {
	q := question{kind: askInspect}
	q.evalOn(inspectScript, name.withQueue())
	return q
}

// lookQuestion asks for what is left of the lock's ttl, and nothing else.
func lookQuestion(name *lockKey) question {
	q := question{kind: askLook}
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
type command struct {
	redis.Cmd      // by value: a flight makes its commands where those of the one before were
	null      bool // the reply was nil
}

func newCommand(args []any) command {
	return command{Cmd: *redis.NewCmd(context.Background(), args...)}
}

// NoRetry is asked by go-redis before it would send a command again.
func (*command) NoRetry() bool { return true }

// SetErr is told by go-redis how reading the reply went.
func (c *command) SetErr(err error) {
	switch {
	case err == redis.Nil:
		c.null, err = true, nil
	case err != nil: // takes it back; nil does not: go-redis says it once more at the end
		c.null = false
	}
	c.Cmd.SetErr(err)
}

// A reply is what a node's answer to a question means.
type reply struct {
	answer  wireAnswer
	fenced  bool      // yes, and the register moved from below the proposal to it
	missing bool      // no: nothing is stored there
	holder  string    // no: the value that is
	score   int64     // raise, inspect: the register as it was met
	left    int64     // inspect, look, turn: milliseconds to live
	before  int       // turn, wait: how many queue before us
	queue   *[]string // inspect: the places, first to last
	clock   int64     // turn, wait: the node's time, µs since 1970
	stored  bool      // our value may be on the node because of this
	sent    bool      // it left for the node: only then may it have been executed
	silent  bool      // it left, and no answer came: it may be executed any time later
	err     *nodeError
}

// again reports that the node executed nothing but would in the other form: with
// the script's text, or without GET.
func (r reply) again(q *question, asText, plain bool) bool {
	switch {
	case r.err == nil || r.silent || !r.sent:
		return false
	case q.script != nil:
		return !asText && strings.HasPrefix(r.err.text, "NOSCRIPT")
	}
	return q.kind == askAcquire && !plain && strings.HasPrefix(r.err.text, "ERR syntax")
}

// A nodeError is why one node's vote is no plain yes or no. It never matches a
// context error or one of our sentinels: a node that timed out says nothing about
// the caller's context.
type nodeError struct {
	text  string
	cause error // nil where matching it would mislead
	heals bool  // time may heal it
}

func (e *nodeError) Error() string { return e.text }
func (e *nodeError) Unwrap() error { return e.cause }

func newNodeError(text string, cause error) *nodeError {
	for _, no := range []error{context.Canceled, context.DeadlineExceeded, errHeld, errNoQuorum, errLost, errClosed} {
		if errors.Is(cause, no) {
			cause = nil
		}
	}
	return &nodeError{text: text, cause: cause, heals: true}
}

var (
	errMissing  = newNodeError("missing", nil)
	errNotAsked = newNodeError("not asked", nil)
	errOwed     = newNodeError("no answer yet, owed", nil)
	errBusy     = newNodeError("queue full", nil)
	errLaneDone = newNodeError("closed", nil)
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
func explain(err error) (e *nodeError, said bool) {
	var re redis.Error
	if !errors.As(err, &re) {
		return newNodeError(wayError(err), err), false
	}
	text := strings.TrimSpace(re.Error())
	e = newNodeError(text, err)
	// Our scripts put FENCE before what the register's command has said.
	cause := strings.TrimPrefix(text, "FENCE ")
	for _, h := range healing {
		if strings.HasPrefix(cause, h.code) {
			e.heals = h.heals
			break
		}
		if i := strings.Index(cause, h.code+" "); i > 0 && strings.HasPrefix(cause, "ERR ") && (cause[i-1] == ' ' || cause[i-1] == '-') {
			e.text, e.heals = text[:len(text)-len(cause)]+cause[i:], h.heals
			break
		}
	}
	for _, refusal := range []string{"ERR unknown command", "ERR invalid password"} {
		if strings.HasPrefix(cause, refusal) {
			e.heals = false
		}
	}
	for _, refusal := range scriptRefusals {
		if strings.Contains(text, refusal) {
			e.heals = false
		}
	}
	// Where in the script it was: "script: 1b3c, on @user_script:8."
	if i := strings.LastIndex(e.text, " script: "); i > 0 && strings.Contains(e.text[i:], "@user_script") {
		e.text = e.text[:i]
	}
	e.text, _, _ = strings.Cut(e.text, ", with args beginning with") // a lock's value is among them
	if e.text != "" {
		e.text = quoteValue(e.text)
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
func neverLeft(err error) bool {
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
func result(c *command, exec error) (any, error) {
	if _, panicked := exec.(*panicError); panicked {
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
func failure(k kind, err error) reply {
	e, said := explain(err)
	r := reply{answer: saidUnknown, err: e, sent: !neverLeft(err)}
	r.silent = r.sent && !said
	// A proxy may word a lost reply as an error of its own: then it was executed.
	r.stored = k.stores() && (r.silent || said && !notExecuted(e.text))
	return r
}

// strange is the reply for an answer that no Redis server gives.
func strange(k kind, v any) reply {
	return reply{answer: saidUnknown, sent: true, stored: k.stores(), err: newNodeError(fmt.Sprintf("unexpected reply %T", v), nil)}
}

// read turns the commands' results into a reply. plain: as in args.
func (q *question) read(cmds []command, plain bool, exec error) reply {
	v, err := result(&cmds[0], exec)
	if q.guarded() {
		if left, ok := readQuarantine(v); ok {
			return reply{answer: saidUnknown, sent: true, err: left}
		}
	}
	switch q.kind {
	case askAcquire:
		if q.script != nil {
			return readGrant(askAcquire, v, err, q.value)
		}
		return readAcquire(v, err, &cmds[1], plain, exec, q.value)
	case askRaise:
		return readRaise(v, err)
	case askAdopt:
		return readGrant(askAdopt, v, err, q.value)
	case askInspect:
		return readInspect(v, err)
	case askTurn:
		return readTurn(v, err, q.value)
	case askLook:
		return readLook(v, err)
	case askWait:
		return readWait(v, err)
	case askHeal:
		switch {
		case errors.Is(err, redis.Nil):
			return reply{answer: saidNo, sent: true}
		case err == nil:
			return reply{answer: saidYes, sent: true, stored: true}
		}
	}
	return readOwner(q.kind, v, err)
}

// readAcquire reads SET K v NX GET PX (nil: ours; else the holder's value) and
// ZADD GT CH (1: the register was below the proposal and is it now).
func readAcquire(v any, err error, zadd *command, plain bool, exec error, value string) reply {
	var r reply
	switch {
	case err != nil && !errors.Is(err, redis.Nil):
		return failure(askAcquire, err)
	case plain && err != nil: // the nil reply: something is there
		r = reply{answer: saidNo}
	case plain && v == "OK":
		r = reply{answer: saidYes}
	case plain:
		return strange(askAcquire, v)
	case err != nil: // the nil reply: there was nothing, now there is ours
		r = reply{answer: saidYes}
	default:
		holder, ok := v.(string)
		if !ok {
			return strange(askAcquire, v)
		}
		r = reply{answer: saidNo, holder: holder}
	}
	r.sent = true
	if r.answer == saidNo {
		// Our own value in the way was put there by a second delivery that somebody
		// else made (a proxy, a server listed twice): never a yes, but ours to remove.
		r.stored = r.holder == value
		return r
	}
	r.stored = true
	moved, err := result(zadd, exec)
	switch {
	case err != nil: // a register of another type, or the connection broke in between
		e, _ := explain(err)
		return reply{answer: saidUnknown, sent: true, stored: true, err: newFenceError(e)}
	case moved == int64(1):
		r.fenced = true
	}
	return r
}

func newFenceError(e *nodeError) *nodeError {
	return &nodeError{text: "fence register: " + e.text, cause: e.cause, heals: e.heals}
}

func readRaise(v any, err error) reply {
	if err != nil {
		return failure(askRaise, err)
	}
	parts, ok := v.([]any)
	if !ok || len(parts) == 0 {
		return strange(askRaise, v)
	}
	switch parts[0] {
	case int64(1):
		return reply{answer: saidYes, fenced: true, sent: true}
	case int64(2):
		if len(parts) < 2 {
			return strange(askRaise, v)
		}
		score, e := readScore(parts[1])
		if e != nil {
			return reply{answer: saidUnknown, sent: true, err: e}
		}
		return reply{answer: saidYes, score: score, sent: true}
	case int64(0):
		return reply{answer: saidNo, sent: true}
	case int64(-1):
		return reply{answer: saidNo, missing: true, err: errMissing, sent: true}
	}
	return strange(askRaise, v)
}

// readGrant reads what lua/acquire.lua and lua/adopt.lua say.
func readGrant(k kind, v any, err error, value string) reply {
	if err != nil {
		return failure(k, err)
	}
	parts, ok := v.([]any)
	if !ok || len(parts) == 0 {
		return strange(k, v)
	}
	switch parts[0] {
	case int64(1):
		return reply{answer: saidYes, fenced: len(parts) > 1 && parts[1] == int64(1), stored: true, sent: true}
	case int64(0):
		holder := ""
		if len(parts) > 1 {
			holder, _ = parts[1].(string)
		}
		return reply{answer: saidNo, holder: holder, stored: holder == value, sent: true} // stored: as in readAcquire
	case int64(-1):
		return reply{answer: saidNo, missing: true, err: errMissing, sent: true}
	}
	return strange(k, v)
}

// readLook reads PTTL: -2 for what is free, -1 for what has no end.
func readLook(v any, err error) reply {
	if err != nil {
		return failure(askLook, err)
	}
	left, ok := v.(int64)
	switch {
	case !ok:
		return strange(askLook, v)
	case left == -2:
		return reply{answer: saidYes, sent: true}
	}
	return reply{answer: saidNo, left: left, sent: true}
}

// readWait reads what PTTL says, how many are before us, and the node's time.
func readWait(v any, err error) reply {
	if err != nil {
		return failure(askWait, err)
	}
	parts, ok := v.([]any)
	if !ok || len(parts) != 3 {
		return strange(askWait, v)
	}
	r := readLook(parts[0], nil)
	before, ok1 := parts[1].(int64)
	clock, ok2 := parts[2].(int64)
	if !ok1 || !ok2 {
		return strange(askWait, v)
	}
	r.before, r.clock = int(before), clock
	return r
}

func readTurn(v any, err error, value string) reply {
	if err != nil {
		return failure(askTurn, err)
	}
	parts, ok := v.([]any)
	if !ok || len(parts) < 3 {
		return strange(askTurn, v)
	}
	r := reply{sent: true}
	if parts[0] == int64(1) {
		r.answer, r.stored, r.fenced = saidYes, true, parts[1] == int64(1)
		r.clock, ok = parts[2].(int64)
		if !ok {
			return strange(askTurn, v)
		}
		return r
	}
	who, ok1 := parts[1].(string)
	left, ok2 := parts[2].(int64)
	if len(parts) != 5 || !ok1 || !ok2 {
		return strange(askTurn, v)
	}
	before, ok1 := parts[3].(int64)
	clock, ok2 := parts[4].(int64)
	if !ok1 || !ok2 {
		return strange(askTurn, v)
	}
	r.answer, r.left, r.before, r.clock = saidNo, left, int(before), clock
	switch parts[0] {
	case int64(0):
		r.holder = who
		r.stored = who == value // as in readAcquire
	case int64(2):
		r.err = newNodeError("the turn of "+holderName(who), nil)
	default:
		return strange(askTurn, v)
	}
	return r
}

// readOwner reads the answer of the scripts that act only on our own value.
func readOwner(k kind, v any, err error) reply {
	if err != nil {
		r := failure(k, err)
		if strings.HasPrefix(r.err.text, "WRONGTYPE") { // surely not our value
			r.answer = saidNo
		}
		return r
	}
	switch v {
	case int64(1):
		return reply{answer: saidYes, sent: true}
	case int64(0):
		return reply{answer: saidNo, sent: true}
	case int64(-1):
		return reply{answer: saidNo, missing: true, err: errMissing, sent: true}
	}
	return strange(k, v)
}

func readInspect(v any, err error) reply {
	if err != nil {
		return failure(askInspect, err)
	}
	parts, ok := v.([]any)
	if !ok || len(parts) < 3 {
		return strange(askInspect, v)
	}
	holder, ok1 := parts[0].(string)
	left, ok2 := parts[1].(int64)
	if !ok1 || !ok2 {
		return strange(askInspect, v)
	}
	r := reply{answer: saidYes, holder: holder, left: left, sent: true}
	if left == -2 {
		r.missing = true
	}
	if parts[2] != "" {
		score, e := readScore(parts[2])
		if e != nil {
			return reply{answer: saidUnknown, sent: true, err: e}
		}
		r.score = score
	}
	if len(parts) > 3 {
		var queue []string
		places, _ := parts[3].([]any)
		for _, p := range places {
			if s, ok := p.(string); ok {
				queue = append(queue, s)
			}
		}
		r.queue = &queue
	}
	return r
}

// maxToken is the greatest token: 2^53-1, the last integer that a register, a
// double, counts by ones to.
const maxToken = 1<<53 - 1

// readScore reads a register. Redis gives a double: as text below RESP3 and from
// scripts, with all its digits.
func readScore(v any) (int64, *nodeError) {
	var f float64
	switch v := v.(type) {
	case string:
		var err error
		if f, err = strconv.ParseFloat(v, 64); err != nil {
			return 0, &nodeError{text: "fence register is no number: " + strconv.Quote(clip(v))}
		}
	case float64:
		f = v
	case int64:
		f = float64(v)
	default:
		return 0, &nodeError{text: fmt.Sprintf("fence register is a %T", v)}
	}
	if !(f < maxToken) { // also NaN
		return 0, &nodeError{text: fmt.Sprintf("fence register is %v, the last number before 2^53 or beyond: remove it", f)}
	}
	if f < 0 {
		return 0, nil // whatever it was, every token is above it
	}
	return int64(f), nil
}

func timeoutError(d time.Duration) *nodeError {
	return newNodeError("timeout "+short(d), nil)
}
