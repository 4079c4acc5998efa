package wire

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// A Reply is what a node's answer to a question means.
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

// Again reports that the node executed nothing but would in the other form: with
// the script's text, or without GET.
func (r Reply) WantsOtherForm(q *Question, asText, plain bool) bool {
	switch {
	case r.Err == nil || r.Silent || !r.Sent:
		return false
	case q.Script != nil:
		return !asText && strings.HasPrefix(r.Err.Text, "NOSCRIPT")
	}
	return q.Kind == AskAcquire && !plain && strings.HasPrefix(r.Err.Text, "ERR syntax")
}

// Read turns the commands' results into a reply. plain: as in args.
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
		return failed(AskAcquire, err)
	case plain && err != nil: // the nil reply: something is there
		r = Reply{Answer: No}
	case plain && v == "OK":
		r = Reply{Answer: Yes}
	case plain:
		return unexpected(AskAcquire, v)
	case err != nil: // the nil reply: there was nothing, now there is ours
		r = Reply{Answer: Yes}
	default:
		holder, ok := v.(string)
		if !ok {
			return unexpected(AskAcquire, v)
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
		return failed(AskRaise, err)
	}
	parts, ok := v.([]any)
	if !ok || len(parts) == 0 {
		return unexpected(AskRaise, v)
	}
	switch parts[0] {
	case int64(1):
		return Reply{Answer: Yes, Fenced: true, Sent: true}
	case int64(2):
		if len(parts) < 2 {
			return unexpected(AskRaise, v)
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
	return unexpected(AskRaise, v)
}

// readGrant reads what lua/acquire.lua and lua/adopt.lua say.
func readGrant(k Kind, v any, err error, value string) Reply {
	if err != nil {
		return failed(k, err)
	}
	parts, ok := v.([]any)
	if !ok || len(parts) == 0 {
		return unexpected(k, v)
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
	return unexpected(k, v)
}

// readLook reads PTTL: -2 for what is free, -1 for what has no end.
func readLook(v any, err error) Reply {
	if err != nil {
		return failed(askLook, err)
	}
	left, ok := v.(int64)
	switch {
	case !ok:
		return unexpected(askLook, v)
	case left == -2:
		return Reply{Answer: Yes, Sent: true}
	}
	return Reply{Answer: No, TTL: left, Sent: true}
}

// readWait reads what PTTL says, how many are before us, and the node's time.
func readWait(v any, err error) Reply {
	if err != nil {
		return failed(AskWait, err)
	}
	parts, ok := v.([]any)
	if !ok || len(parts) != 3 {
		return unexpected(AskWait, v)
	}
	r := readLook(parts[0], nil)
	before, ok1 := parts[1].(int64)
	clock, ok2 := parts[2].(int64)
	if !ok1 || !ok2 {
		return unexpected(AskWait, v)
	}
	r.Before, r.Clock = int(before), clock
	return r
}

func readTurn(v any, err error, value string) Reply {
	if err != nil {
		return failed(AskTurn, err)
	}
	parts, ok := v.([]any)
	if !ok || len(parts) < 3 {
		return unexpected(AskTurn, v)
	}
	r := Reply{Sent: true}
	if parts[0] == int64(1) {
		r.Answer, r.Stored, r.Fenced = Yes, true, parts[1] == int64(1)
		r.Clock, ok = parts[2].(int64)
		if !ok {
			return unexpected(AskTurn, v)
		}
		return r
	}
	who, ok1 := parts[1].(string)
	left, ok2 := parts[2].(int64)
	if len(parts) != 5 || !ok1 || !ok2 {
		return unexpected(AskTurn, v)
	}
	before, ok1 := parts[3].(int64)
	clock, ok2 := parts[4].(int64)
	if !ok1 || !ok2 {
		return unexpected(AskTurn, v)
	}
	r.Answer, r.TTL, r.Before, r.Clock = No, left, int(before), clock
	switch parts[0] {
	case int64(0):
		r.Holder = who
		r.Stored = who == value // as in readAcquire
	case int64(2):
		r.Err = NewNodeError("the turn of "+HolderName(who), nil)
	default:
		return unexpected(AskTurn, v)
	}
	return r
}

// readOwner reads the answer of the scripts that act only on our own value.
func readOwner(k Kind, v any, err error) Reply {
	if err != nil {
		r := failed(k, err)
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
	return unexpected(k, v)
}

func readInspect(v any, err error) Reply {
	if err != nil {
		return failed(AskInspect, err)
	}
	parts, ok := v.([]any)
	if !ok || len(parts) < 3 {
		return unexpected(AskInspect, v)
	}
	holder, ok1 := parts[0].(string)
	left, ok2 := parts[1].(int64)
	if !ok1 || !ok2 {
		return unexpected(AskInspect, v)
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

// MaxToken is the greatest token: 2^53-1, the last integer that a register, a
// double, counts by ones to.
const MaxToken = 1<<53 - 1

// ReadScore reads a register. Redis gives a double: as text below RESP3 and from
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
