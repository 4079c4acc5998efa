package wire

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// A NodeError says why the vote of one node is not a plain yes or no. It never matches a
// context error or an error of this library (errors.Is): that a node timed out says
// nothing about the caller's context.
type NodeError struct {
	Text      string
	Cause     error // nil if matching it would mislead
	Transient bool  // the error may go away by itself
}

func (e *NodeError) Error() string { return e.Text }
func (e *NodeError) Unwrap() error { return e.Cause }

// NewNodeError returns a transient NodeError. It drops a cause that matches a context error
// or an error of this library.
func NewNodeError(text string, cause error) *NodeError {
	for _, no := range []error{context.Canceled, context.DeadlineExceeded, ErrHeld, ErrNoQuorum, ErrLost, ErrClosed} {
		if errors.Is(cause, no) {
			cause = nil
		}
	}
	return &NodeError{Text: text, Cause: cause, Transient: true}
}

var (
	ErrMissing  = NewNodeError("missing", nil)         // the node has no such key
	ErrNotAsked = NewNodeError("not asked", nil)       // nothing was sent: it would be of no use
	ErrOwed     = NewNodeError("release pending", nil) // a clean-up is sent when the node has answered a PING
	ErrBusy     = NewNodeError("queue full", nil)      // the lane's queue has no room
	ErrLaneDone = NewNodeError("closed", nil)          // the lane is closed
)

// errorCodes lists the codes with which Redis errors begin and whether such an error may
// go away by itself. A server gives these errors only for commands that it has not
// executed: notExecuted relies on it. (redis-server 7.0. There the code comes first in
// the errors of a script, too; servers before 7.0 and miniredis put it somewhere in the
// text.) A script may have executed other commands before: see refusedInScript.
var errorCodes = []struct {
	code  string
	heals bool
}{
	{"WRONGTYPE", false}, {"NOAUTH", false}, {"WRONGPASS", false}, {"NOPERM", false}, {"READONLY", false},
	{"LOADING", true}, {"MASTERDOWN", true}, {"MISCONF", true}, {"NOREPLICAS", true}, {"BUSY", true},
	{"NOSCRIPT", true}, {"OOM", true}, {"CLUSTERDOWN", true}, {"TRYAGAIN", true}, {"MOVED", true}, {"ASK", true},
}

// scriptRefusals are parts of the errors for a command in a script that the user may not
// run. Most have no code such as NOPERM. They begin with "ERR ", except before 7.0 if a
// script passes them on.
var scriptRefusals = []string{
	"The user executing the script can't", // Redis 7.0 and before
	"ACL failure in script",               // Redis 7.2 and later, Valkey
}

// Explain classifies an error of go-redis. If said is true, it is an error reply of the node or
// of a proxy before it, and the function notExecuted says whether the command was certainly not
// executed. Otherwise something failed on the way to the node or back, and the command may have
// been executed, unless NeverSent reports that it was not.
func Explain(err error) (e *NodeError, said bool) {
	var re redis.Error
	if !errors.As(err, &re) {
		return NewNodeError(transportText(err), err), false
	}
	text := strings.TrimSpace(re.Error())
	if head, _, cut := strings.Cut(text, ", with args beginning with"); cut { // the arguments contain the lock's value
		text, err = head, cutReply(head)
	}
	e = NewNodeError(text, err)
	// Our scripts put FENCE in front of an error of the command on the fence register.
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
	if refusedInScript(text) {
		e.Transient = false
	}
	// Cut the place in the script: "script: 1b3c, on @user_script:8."
	if i := strings.LastIndex(e.Text, " script: "); i > 0 && strings.Contains(e.Text[i:], "@user_script") {
		e.Text = e.Text[:i]
	}
	if e.Text != "" {
		e.Text = quoteValue(e.Text)
	}
	return e, true
}

// A cutReply is a part of an error reply. It is a redis.Error, as the whole one is, which must not be
// in the chain of an error: callers print what they find there.
type cutReply string

func (r cutReply) Error() string { return string(r) }
func (cutReply) RedisError()     {}

// RefusesChannel reports whether a node refused a SUBSCRIBE because the user has no
// permission for one of its channels. The connection goes on.
func RefusesChannel(err error) bool {
	e, said := Explain(err)
	return said && strings.HasPrefix(e.Text, "NOPERM") && strings.Contains(e.Text, "channel")
}

// ErrMute is why a release could not be announced.
var ErrMute = &NodeError{Text: "PUBLISH is refused: allow the user of this client +publish and the channels of its keys"}

// notExecuted reports whether a server gives this error only for commands that it has not
// executed.
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

// refusedInScript reports whether a server gives this error for a command that a script may
// not run. It then executed nothing of that command, but what the script did before stays.
// The other errors come with the script's first command that writes, or with a key of
// another type, which our scripts touch before they store a value.
func refusedInScript(text string) bool {
	return slices.ContainsFunc(scriptRefusals, func(refusal string) bool { return strings.Contains(text, refusal) })
}

// transportText returns the text for an error between us and a node.
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

// NeverSent reports whether an error occurred before a byte was written to the node.
func NeverSent(err error) bool {
	var op *net.OpError
	var dns *net.DNSError
	return errors.As(err, &op) && op.Op == "dial" || errors.As(err, &dns) ||
		errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) || errors.Is(err, redis.ErrClosed)
}

// TimeoutError returns the error of a node that did not answer within d.
func TimeoutError(d time.Duration) *NodeError {
	return NewNodeError("timeout "+Short(d), nil)
}
