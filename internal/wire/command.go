package wire

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// This file is what is said to a node, word by word, and what its answers mean.
// It and node.go are all that knows go-redis.

// A Command is one go-redis command that is never sent twice: after a lost reply
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
func failed(k Kind, err error) Reply {
	e, said := Explain(err)
	r := Reply{Answer: Unknown, Err: e, Sent: !NeverSent(err)}
	r.Silent = r.Sent && !said
	// A proxy may word a lost reply as an error of its own: then it was executed.
	r.Stored = k.Stores() && (r.Silent || said && !notExecuted(e.Text))
	return r
}

// strange is the reply for an answer that no Redis server gives.
func unexpected(k Kind, v any) Reply {
	return Reply{Answer: Unknown, Sent: true, Stored: k.Stores(), Err: NewNodeError(fmt.Sprintf("unexpected reply %T", v), nil)}
}
