package redlocktest

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2/server"
)

// A session is the server's side of a connection.
type session struct {
	node *Node
	conn *conn
	peer *server.Peer

	muted      atomic.Bool // nothing more is sent; also read by miniredis's goroutine that sends published messages
	resets     bool        // the connection is reset after everything that has arrived is executed
	multi      bool
	subscribed bool
}

// accept creates a connection and serves it, or returns errRefused.
func (n *Node) accept(l *link, key uint64) (*conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, net.ErrClosed
	}
	if n.refusing || n.down {
		return nil, errRefused
	}
	c := newConn(l, key)
	n.conns[c] = struct{}{}
	s := &session{node: n, conn: c}
	s.peer = server.NewPeer(bufio.NewWriterSize(s, 1<<14))
	n.serves.Go(s.serve)
	return c, nil
}

// Write sends the peer's replies to the client.
func (s *session) Write(p []byte) (int, error) {
	if !s.muted.Load() {
		s.conn.send(p)
	}
	return len(p), nil
}

// Read receives commands. It is called when everything that had arrived is executed: this is when Redis sends its replies,
// those of a pipeline together.
func (s *session) Read(p []byte) (int, error) {
	s.peer.Flush()
	if s.resets {
		s.end(errReset)
	}
	return s.conn.receive(request, p)
}

func (s *session) end(err error) {
	s.node.mu.Lock()
	defer s.node.mu.Unlock()
	s.conn.kill(err)
}

func (s *session) serve() {
	r := bufio.NewReaderSize(s, 1<<14)
	for {
		args, err := readCommand(r)
		if err != nil || !s.execute(args) || s.peer.Closed() {
			break
		}
	}
	s.peer.Flush()
	s.end(io.EOF)
	s.unsubscribe()
	s.node.mu.Lock()
	defer s.node.mu.Unlock()
	s.conn.served = true
	s.conn.forget()
}

func readCommand(r *bufio.Reader) ([]string, error) {
	v, err := server.ParseReply(r) // a command has the form of a reply: an array of strings
	if err != nil {
		return nil, err
	}
	list, _ := v.([]any)
	args := make([]string, len(list))
	for i, v := range list {
		s, ok := v.(string)
		if !ok {
			return nil, server.ErrProtocol
		}
		args[i] = s
	}
	if len(args) == 0 {
		return nil, server.ErrProtocol
	}
	return args, nil
}

// unsubscribe ends the goroutines that miniredis started for a subscriber. For its own connections miniredis does this in
// a callback, which does not run for ours.
func (s *session) unsubscribe() {
	if !s.subscribed {
		return
	}
	s.muted.Store(true)
	s.node.exec.Lock()
	defer s.node.exec.Unlock()
	s.node.dispatch(s.peer, []string{"UNSUBSCRIBE"})
	s.node.dispatch(s.peer, []string{"PUNSUBSCRIBE"})
	s.peer.Flush()
}

// waitWhileHung waits while the server process is stopped, and reports whether the connection still exists afterwards.
func (s *session) waitWhileHung() bool {
	n, c := s.node, s.conn
	n.mu.Lock()
	waited := false
	for n.hung && !c.dead {
		waited = true
		c.halves[request].cond.Wait()
	}
	d := time.Duration(0)
	if waited && n.bubble { // not at the very instant of Resume: see head
		d = c.link.latency(request, c.key+3)
	}
	dead := c.dead
	n.mu.Unlock()
	time.Sleep(d)
	return !dead
}

// execute executes a command. It returns false if the connection is gone.
func (s *session) execute(args []string) bool {
	n := s.node
	cmd := strings.ToUpper(args[0])
	if !s.waitWhileHung() {
		return false
	}
	if hook := look(n, func() func([]string) { return n.hook }); hook != nil {
		hook(slices.Clone(args))
		if !s.waitWhileHung() {
			return false
		}
	}
	s.applyReplyFaults(cmd)
	if blocking[cmd] {
		// The command may wait for another one, so it must not hold exec. A restart while it waits does not undo it.
		n.srv.Dispatch(s.peer, args)
		return true
	}
	n.exec.Lock()
	defer n.exec.Unlock()
	if look(n, func() bool { return s.conn.dead }) {
		return false
	}
	n.record(Command{At: time.Now(), NodeTime: n.tick(), Client: s.conn.link.client, Args: args})
	if text := n.failure(cmd); text != "" {
		s.peer.WriteError(text)
		return true
	}
	switch cmd {
	case "MULTI":
		s.multi = true
	case "EXEC", "DISCARD":
		s.multi = false
	case "SUBSCRIBE", "PSUBSCRIBE":
		s.subscribed = true
		s.conn.markSubscribed()
	case "INFO":
		if !s.multi {
			s.peer.WriteBulk(n.info(args[1:]))
			return true
		}
	case "EVAL", "EVALSHA", "EVAL_RO", "EVALSHA_RO":
		if cmd == "EVALSHA" && !s.multi && s.twin(args) {
			return true
		}
		s.dispatchReworded(args, func(answer string) string { return scriptError(answer, sha(args)) })
		return true
	case "HELLO":
		s.dispatchReworded(args, helloVersion.Replace)
		return true
	}
	n.dispatch(s.peer, args)
	return true
}

var blocking = map[string]bool{
	"BLPOP": true, "BRPOP": true, "BRPOPLPUSH": true, "BLMOVE": true, "BLMPOP": true,
	"BZPOPMIN": true, "BZPOPMAX": true, "BZMPOP": true, "XREAD": true, "XREADGROUP": true, "WAIT": true,
}

// look returns what f reads of the state that n.mu guards.
func look[T any](n *Node, f func() T) T {
	n.mu.Lock()
	defer n.mu.Unlock()
	return f()
}

// markSubscribed records that a connection has a subscription.
func (c *conn) markSubscribed() {
	c.node.mu.Lock()
	defer c.node.mu.Unlock()
	c.subscribed = true
}

// applyReplyFaults suppresses the reply to the command if DropReplies or LoseReplies is on.
func (s *session) applyReplyFaults(cmd string) {
	switch cmd {
	case "HELLO", "AUTH", "SELECT", "CLIENT":
		return
	}
	n := s.node
	n.mu.Lock()
	drop, lose := n.drop > 0, n.lose > 0
	if drop {
		n.drop--
	}
	if lose {
		n.lose--
	}
	n.mu.Unlock()
	if drop || lose {
		s.peer.Flush() // the replies to earlier commands have been sent
		s.muted.Store(true)
	}
	s.resets = s.resets || drop
}

// dispatch executes a command for p. The caller holds exec.
func (n *Node) dispatch(p *server.Peer, args []string) {
	n.giveNoted(args)
	n.current = p
	n.srv.Dispatch(p, args)
	n.current = nil
}

// preHook sees every command, including those that a script calls. For the latter it supplies what miniredis lacks.
// miniredis is locked then, so preHook must not call it.
func (n *Node) preHook(p *server.Peer, cmd string, args ...string) bool {
	if cmd == "FLUSHALL" || cmd == "FLUSHDB" {
		n.change(func() { n.flushes++ })
	}
	if blocking[cmd] || p == n.current {
		return false
	}
	if text := look(n, func() string { return n.failCommand[cmd] }); text != "" {
		p.WriteError(text)
		return true
	}
	if cmd == "INFO" {
		p.WriteBulk(n.info(args))
		return true
	}
	return false
}

// dispatchReworded executes a command whose reply miniredis words differently from a real server. The caller holds exec.
func (s *session) dispatchReworded(args []string, reword func(answer string) string) {
	var out bytes.Buffer
	p := server.NewPeer(bufio.NewWriter(&out))
	p.Ctx, p.Resp3 = s.peer.Ctx, s.peer.Resp3
	s.node.dispatch(p, args)
	p.Flush()
	s.peer.Ctx, s.peer.Resp3 = p.Ctx, p.Resp3 // the command may have changed or created them
	s.peer.WriteRaw(reword(out.String()))
}
