package wire

import (
	"context"
	"errors"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// A NodeError is why one node's vote is no plain yes or no. It never matches a
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
var errorCodes = []struct {
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

// Explain classifies an error: what a node said (a Redis error reply: it was not
// executed), or what happened on the way (it may have been).
func Explain(err error) (e *NodeError, said bool) {
	var re redis.Error
	if !errors.As(err, &re) {
		return NewNodeError(transportText(err), err), false
	}
	text := strings.TrimSpace(re.Error())
	e = NewNodeError(text, err)
	// Our scripts put FENCE before what the register's command has said.
	cause := strings.TrimPrefix(text, "FENCE ")
	for _, h := range errorCodes {
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
	for _, h := range errorCodes {
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
func transportText(err error) string {
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

// NeverLeft reports errors that came before a byte was written.
func NeverSent(err error) bool {
	var op *net.OpError
	var dns *net.DNSError
	return errors.As(err, &op) && op.Op == "dial" || errors.As(err, &dns) ||
		errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) || errors.Is(err, redis.ErrClosed)
}

func TimeoutError(d time.Duration) *NodeError {
	return NewNodeError("timeout "+Short(d), nil)
}
