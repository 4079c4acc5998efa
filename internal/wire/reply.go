package wire

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// A Reply is the meaning of a node's answer to a question, or of its absence.
type Reply struct {
	Answer  Answer
	Fenced  bool      // yes, and the register rose from below the proposal to it; or no token was proposed
	Missing bool      // no: nothing is stored there
	Holder  string    // no: the value that is stored there
	Score   int64     // raise, inspect: the register as the node had it
	TTL     int64     // inspect, look, wait, turn: the remaining ttl, ms; -1: no ttl. turn, if queued: of the entry in front
	Before  int       // turn, wait: the number of entries before ours
	Queue   *[]string // inspect: the entries, first to last
	Clock   int64     // turn, wait: the node's time, µs since 1970; 0: not asked for
	Told    bool      // release: a waiter was notified
	Mute    bool      // release: the node refused to notify a waiter
	Stored  bool      // our value may be on the node because of this
	Sent    bool      // the question was sent; otherwise it was certainly not executed
	Silent  bool      // it was sent and not answered: it may be executed at any later time
	Refused bool      // it was answered by an error, and certainly not executed
	Err     *NodeError
}

// Refuses reports whether the node replied with an error that says something about the node
// and not about the lock's keys.
func (r *Reply) Refuses() bool {
	if r.Err == nil || !r.Sent || r.Silent || r.Answer != Unknown || r.Err.IsQuarantine() {
		return false
	}
	text := r.Err.Text
	for _, prefix := range []string{"FENCE ", "fence register: "} {
		text = strings.TrimPrefix(text, prefix)
	}
	return !strings.HasPrefix(text, "WRONGTYPE") && !strings.HasPrefix(text, "fence register is ")
}

// WantsOtherForm reports whether the node executed nothing, but would execute the question in
// its other form: with the script as text, or SET NX without GET. asText and plain say in
// which form it was sent.
func (r Reply) WantsOtherForm(q *Question, asText, plain bool) bool {
	switch {
	case r.Err == nil || r.Silent || !r.Sent:
		return false
	case q.Script != nil:
		return !asText && strings.HasPrefix(r.Err.Text, "NOSCRIPT")
	}
	return q.Kind == AskAcquire && !plain && strings.HasPrefix(r.Err.Text, "ERR syntax")
}

// Read returns the Reply to a question from the results of its commands. plain is as in
// Args; exec is the error of the whole pipeline.
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
			return q.readGrant(v, err)
		}
		return q.readAcquire(v, err, &cmds[1], plain, exec)
	case AskRaise:
		return readRaise(v, err)
	case AskAdopt:
		return q.readGrant(v, err)
	case AskInspect:
		return readInspect(v, err)
	case AskTurn:
		return q.readTurn(v, err)
	case askLook:
		return q.readHolder(readLook(v, err), cmds, exec)
	case AskWait:
		return q.readHolder(readWait(v, err), cmds, exec)
	case askAnnounce:
		if err != nil {
			return failed(askAnnounce, err)
		}
		return Reply{Answer: Yes, Sent: true}
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

// readAcquire reads SET K v NX GET PX (nil: ours; else the holder's value) and, if a token was
// proposed, ZADD GT CH (1: the register was below the proposal and equals it now).
func (q *Question) readAcquire(v any, err error, zadd *Command, plain bool, exec error) Reply {
	var r Reply
	switch {
	case err != nil && !errors.Is(err, redis.Nil):
		r = failed(AskAcquire, err)
		if q.Token == 0 {
			return r
		}
		if _, err := result(zadd, exec); r.Refused && err != nil {
			r.Refused = failed(AskAcquire, err).Refused // otherwise the register may have been raised
		} else {
			r.Refused = false
		}
		return r
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
		// If the value in the way is our own, the command was delivered twice by something
		// else (a proxy, a server listed twice). That is never a yes, but ours to remove.
		r.Stored = r.Holder == q.Value
		return r
	}
	r.Stored = true
	if q.Token == 0 {
		r.Fenced = true
		return r
	}
	moved, err := result(zadd, exec)
	switch {
	case err != nil: // the register is of another type, or the connection broke between the commands
		e, _ := Explain(err)
		return Reply{Answer: Unknown, Sent: true, Stored: true, Err: newFenceError(e)}
	case moved == int64(1):
		r.Fenced = true
	}
	return r
}

// newFenceError returns e as an error about the fence register.
func newFenceError(e *NodeError) *NodeError {
	return &NodeError{Text: "fence register: " + e.Text, Cause: e.Cause, Transient: e.Transient}
}

// readRaise reads the reply of lua/raise.lua.
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

// readGrant reads the replies of lua/acquire.lua and lua/adopt.lua.
func (q *Question) readGrant(v any, err error) Reply {
	if err != nil {
		return failed(q.Kind, err)
	}
	parts, ok := v.([]any)
	if !ok || len(parts) == 0 {
		return unexpected(q.Kind, v)
	}
	switch parts[0] {
	case int64(1):
		return Reply{Answer: Yes, Fenced: q.Token == 0 || len(parts) > 1 && parts[1] == int64(1), Stored: true, Sent: true}
	case int64(0):
		holder := ""
		if len(parts) > 1 {
			holder, _ = parts[1].(string)
		}
		return Reply{Answer: No, Holder: holder, Stored: holder == q.Value, Sent: true} // stored: as in readAcquire
	case int64(-1):
		return Reply{Answer: No, Missing: true, Err: ErrMissing, Sent: true}
	}
	return unexpected(q.Kind, v)
}

// readLook reads PTTL: -2 if there is no key, -1 if the key has no ttl.
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

// readHolder adds the holder to the reply to a question that also read the value (ReadHolder). A
// value that cannot be read is not told, and says nothing against the ttl.
func (q *Question) readHolder(r Reply, cmds []Command, exec error) Reply {
	if q.Cmds[1] != nil && r.Answer == No {
		if v, err := result(&cmds[1], exec); err == nil {
			r.Holder, _ = v.(string)
		}
	}
	return r
}

// readWait reads the reply of lua/wait.lua: PTTL, the number of entries before ours, and the
// node's time.
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

// readTurn reads the reply of lua/turn.lua: granted, held by another, or behind another entry.
func (q *Question) readTurn(v any, err error) Reply {
	if err != nil {
		return failed(AskTurn, err)
	}
	parts, ok := v.([]any)
	if !ok || len(parts) < 3 {
		return unexpected(AskTurn, v)
	}
	r := Reply{Sent: true}
	if parts[0] == int64(1) {
		r.Answer, r.Stored, r.Fenced = Yes, true, q.Token == 0 || parts[1] == int64(1)
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
		r.Stored = who == q.Value // as in readAcquire
	case int64(2):
		r.Err = NewNodeError("queued behind "+HolderName(who), nil)
	default:
		return unexpected(AskTurn, v)
	}
	return r
}

// readOwner reads the replies of the scripts that act only on our own value.
func readOwner(k Kind, v any, err error) Reply {
	if err != nil {
		r := failed(k, err)
		if strings.HasPrefix(r.Err.Text, "WRONGTYPE") { // certainly not our value
			r.Answer = No
		}
		return r
	}
	switch v {
	case int64(1):
		return Reply{Answer: Yes, Sent: true}
	case int64(2):
		if k == AskRelease {
			return Reply{Answer: Yes, Told: true, Sent: true}
		}
	case int64(3):
		if k == AskRelease {
			return Reply{Answer: Yes, Mute: true, Sent: true}
		}
	case int64(0):
		return Reply{Answer: No, Sent: true}
	case int64(-1):
		return Reply{Answer: No, Missing: true, Err: ErrMissing, Sent: true}
	}
	return unexpected(k, v)
}

// readInspect reads the reply of lua/inspect.lua.
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

const (
	// MaxToken is the greatest token, 2^53-1. A register is a double, which has all integers
	// up to 2^53 but not beyond.
	MaxToken = 1<<53 - 1

	// MaxClock is the greatest number that a clock may stand for, in µs since 1970 (the year
	// 2112). A register above it was written by somebody else, or raised after that.
	MaxClock = 1 << 52
)

// ReadScore reads a register. Redis sends it as a double, or below RESP3 and from scripts as
// text with all digits. It returns an error for what is not a number and for a register from
// which no greater token can be made.
func ReadScore(v any) (int64, *NodeError) {
	var f float64
	switch v := v.(type) {
	case string:
		var err error
		if f, err = strconv.ParseFloat(v, 64); err != nil {
			return 0, &NodeError{Text: "fence register is not a number: " + strconv.Quote(Clip(v))}
		}
	case float64:
		f = v
	case int64:
		f = float64(v)
	default:
		return 0, &NodeError{Text: fmt.Sprintf("fence register is a %T", v)}
	}
	if !(f < MaxToken) { // also NaN
		return 0, &NodeError{Text: fmt.Sprintf("fence register is %v, no greater token is possible below 2^53: see \"A register far ahead\" in docs/operations.md", f)}
	}
	if f < 0 {
		return 0, nil // whatever it was, every token is above it
	}
	return int64(f), nil
}
