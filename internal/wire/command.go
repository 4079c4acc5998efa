package wire

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// A Command is a go-redis command that go-redis never sends twice. After a lost reply
// go-redis would otherwise silently send it again; an acquired lock would then read as
// taken, and a successful release as not held. One Command in a pipeline disables
// retries for the whole pipeline.
//
// A nil reply, which means success for an acquire, is recorded in null instead of as an
// error: for an error in front of a pipeline go-redis would examine whether it should send
// the whole pipeline again, which costs more than the rest of the call.
type Command struct {
	redis.Cmd      // by value: a batch reuses the memory of the commands of an earlier one
	null      bool // the reply was nil
}

// NewCommand returns the command with these arguments, the first of which is its name.
func NewCommand(args []any) Command {
	return Command{Cmd: *redis.NewCmd(context.Background(), args...)}
}

// NoRetry returns true. go-redis calls it before it sends a command again.
func (*Command) NoRetry() bool { return true }

// SetVal sets the value of the command, as a hook of the client may do after a nil reply.
func (c *Command) SetVal(v any) {
	c.null = false
	c.Cmd.SetVal(v)
}

// SetErr records the error of the command. go-redis calls it after reading the reply.
func (c *Command) SetErr(err error) {
	switch {
	case err == redis.Nil:
		c.null, err = true, nil
	case err != nil: // a later error overrides a nil reply; a nil error does not: go-redis sets one at the end
		c.null = false
	}
	c.Cmd.SetErr(err)
}

// result returns the value or the error of one command; exec is the error of its
// pipeline. A command that go-redis never reached has neither, and result returns exec:
// if a connection cannot be set up, for example because the server refuses the password,
// go-redis leaves the commands untouched. Read as a nil reply, that would be a granted
// lock.
//
// If the client panicked, result trusts nothing that it had read before.
func result(c *Command, exec error) (any, error) {
	if _, panicked := exec.(*PanicError); panicked {
		return nil, exec
	}
	v, err := c.Val(), c.Err()
	switch {
	case c.null && v == nil:
		return nil, redis.Nil
	case c.null: // a hook of the client has set both, and either may be a grant
		return nil, errors.New("a nil reply that has a value")
	}
	if err == nil && v == nil {
		if exec == nil || errors.Is(exec, redis.Nil) {
			exec = errors.New("no reply")
		}
		return nil, exec
	}
	return v, err
}

// failed returns the Reply for an error: Unknown. If the error is one of the node's own and
// notExecuted says so, the command has stored nothing. A script that was refused a command
// may have executed others before it, such as one that created the register, which then has
// no ttl. So a clean-up follows; if it finds nothing, it does no harm.
func failed(k Kind, err error) Reply {
	e, said := Explain(err)
	r := Reply{Answer: Unknown, Err: e, Sent: !NeverSent(err)}
	r.Silent = r.Sent && !said
	// A proxy may report a lost reply as an error of its own; the command was executed then.
	r.Refused = said && notExecuted(e.Text) && !refusedInScript(e.Text)
	r.Stored = k.Stores() && (r.Silent || said && !r.Refused)
	return r
}

// unexpected returns the Reply for an answer that no Redis server gives: Unknown, and the
// command may have been executed.
func unexpected(k Kind, v any) Reply {
	return Reply{Answer: Unknown, Sent: true, Stored: k.Stores(), Err: NewNodeError(fmt.Sprintf("unexpected reply %T", v), nil)}
}
