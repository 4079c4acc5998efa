package redlocktest

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// A segment is what one Write sent: bytes, or the end of the stream (err). The ends are segments too, because a cut or a
// slow link delays a FIN or a RST just as it delays bytes.
type segment struct {
	data []byte
	err  error
	key  uint64
	due  time.Time // the zero time means at once
}

// A half is one direction of a connection: a queue that its reader empties. No goroutine delivers segments; the reader
// checks whether the head of the queue may be delivered yet, and sleeps until it may or until a fault changes. So the
// effect of a fault on segments that are already on their way needs no code of its own.
type half struct {
	dir   direction
	queue []segment
	cond  *sync.Cond // on Node.mu
	timer *time.Timer
	armed time.Time
}

// wait sleeps until something changes or until at. Both readers that a half may have would wait for the same time
// (deadline and due belong to the half), so one timer is enough. The caller holds node.mu.
func (h *half) wait(at time.Time) {
	if !at.IsZero() && !at.Equal(h.armed) {
		d := time.Until(at)
		if h.timer == nil {
			h.timer = time.AfterFunc(d, func() {
				h.cond.L.Lock()
				h.armed = time.Time{}
				h.cond.Broadcast()
				h.cond.L.Unlock()
			})
		} else {
			h.timer.Reset(d)
		}
		h.armed = at
	}
	h.cond.Wait()
}

func (h *half) stop() {
	if h.timer != nil {
		h.timer.Stop()
	}
	h.cond.Broadcast()
}

// A link is the network between one client and one node.
type link struct {
	node   *Node
	client int  // number of the set of clients; 0 for connections made by Node.Dial
	gone   bool // the client's process has ended
	cut    [2]bool
	opened [2]time.Time
}

// A conn is a connection; its net.Conn methods are the client's end. node.mu guards all fields.
type conn struct {
	node   *Node
	link   *link
	halves [2]half

	// key identifies the connection by the command that was last sent on it, the length of that command, and when it was
	// sent. Latencies are a hash of key and not of a connection number: a client that sends two commands at the same
	// instant has two idle connections to choose from, and the scheduler decides which goroutine gets which one. In either
	// case the commands arrive in the same order. The key is not a hash of all bytes sent, because values may be random.
	key uint64

	subscribed bool // it has or had a subscription
	mute       bool // what the server sends on it is lost
	closed     bool // by the client
	dead       bool // the server's end is gone: reset, closed or restarted
	served     bool // the server's goroutine has ended
	deadline   [2]time.Time
}

func newConn(l *link, key uint64) *conn {
	c := &conn{node: l.node, link: l, key: key}
	for dir := range c.halves {
		c.halves[dir].dir = direction(dir)
		c.halves[dir].cond = sync.NewCond(&l.node.mu)
	}
	return c
}

// push queues a segment. The caller holds node.mu.
func (c *conn) push(dir direction, data []byte, err error) {
	h := &c.halves[dir]
	now := time.Now()
	key := c.key
	if c.node.bubble {
		key = mix(key, timeKey(now), uint64(len(data)))
		if dir == request && err == nil {
			key = mix(timeKey(now), uint64(len(data)), hashOf(data[:min(len(data), verbBytes)]))
			c.key = key
		}
	}
	if dir == reply && c.subscribed {
		now = now.Add(c.node.subscriberDelay)
	}
	h.queue = append(h.queue, segment{data: data, err: err, key: key, due: c.link.due(now, dir, key)})
	h.cond.Broadcast()
}

// head returns the next segment if it may be delivered now. Otherwise it returns the time at which to check again; the
// zero time means when something changes.
func (c *conn) head(h *half) (*segment, time.Time) {
	if len(h.queue) == 0 || c.link.blocked(h.dir, true) {
		return nil, time.Time{}
	}
	seg := &h.queue[0]
	if seg.due.IsZero() {
		return seg, time.Time{}
	}
	// A held segment does not arrive at the instant of the heal. Everything else that was held would arrive then too, and
	// the scheduler would choose the order. It is sent again at that instant, and travels for its usual time.
	if opened := c.link.lastOpened(h.dir); seg.due.Before(opened) {
		seg.due = c.link.due(opened, h.dir, seg.key+1)
	}
	if time.Now().Before(seg.due) {
		return nil, seg.due
	}
	return seg, time.Time{}
}

func (c *conn) receive(dir direction, p []byte) (int, error) {
	c.node.mu.Lock()
	defer c.node.mu.Unlock()
	h := &c.halves[dir]
	for {
		switch {
		case dir == reply && c.closed:
			return 0, net.ErrClosed
		case dir == request && c.dead:
			return 0, io.EOF
		case len(p) == 0:
			return 0, nil
		}
		wake := c.deadline[dir]
		if dir == request {
			wake = time.Time{}
		} else if !wake.IsZero() && !time.Now().Before(wake) {
			return 0, os.ErrDeadlineExceeded
		}
		seg, due := c.head(h)
		if seg != nil {
			if seg.err != nil { // it stays in the queue: the end of a stream can be read repeatedly
				return 0, seg.err
			}
			n := copy(p, seg.data)
			seg.data = seg.data[n:]
			if len(seg.data) == 0 {
				h.queue[0] = segment{}
				h.queue = h.queue[1:]
			}
			return n, nil
		}
		if wake.IsZero() || !due.IsZero() && due.Before(wake) {
			wake = due
		}
		h.wait(wake)
	}
}

// send is the server's Write. Data for a client that has closed is dropped, as its kernel would drop it.
func (c *conn) send(p []byte) {
	c.node.mu.Lock()
	defer c.node.mu.Unlock()
	if !c.closed && !c.dead && !c.mute {
		c.push(reply, append([]byte(nil), p...), nil)
	}
}

// kill closes the server's end. The client sees the error end, after the replies that are on their way. Requests that the
// server has not read are lost with its socket. The caller holds node.mu.
func (c *conn) kill(end error) {
	if c.dead {
		return
	}
	c.dead = true
	c.halves[request].queue = nil
	c.halves[request].stop()
	if !c.closed {
		c.push(reply, nil, end)
	}
}

// forget removes a connection once both ends are closed; until then, faults have to wake either end. The caller holds
// node.mu.
func (c *conn) forget() {
	if c.closed && c.served {
		delete(c.node.conns, c)
	}
}

var (
	errReset   = os.NewSyscallError("read", syscall.ECONNRESET)
	errRefused = os.NewSyscallError("connect", syscall.ECONNREFUSED)
)

func (c *conn) opError(op string, err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err // every reader compares with io.EOF directly, without errors.Is
	}
	return &net.OpError{Op: op, Net: "tcp", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: err}
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.receive(reply, p)
	return n, c.opError("read", err)
}

// Write implements net.Conn. It never blocks: the buffers are unbounded, and what the server does not read stays in them.
func (c *conn) Write(p []byte) (int, error) {
	c.node.mu.Lock()
	defer c.node.mu.Unlock()
	if c.closed {
		return 0, c.opError("write", net.ErrClosed)
	}
	if d := c.deadline[request]; !d.IsZero() && !time.Now().Before(d) {
		return 0, c.opError("write", os.ErrDeadlineExceeded)
	}
	if c.dead {
		// Only a RST that has arrived makes a write fail. Until then the write succeeds and the data is lost.
		if seg, _ := c.head(&c.halves[reply]); seg != nil && seg.err != nil {
			return 0, c.opError("write", os.NewSyscallError("write", syscall.EPIPE))
		}
		return len(p), nil
	}
	c.push(request, append([]byte(nil), p...), nil)
	return len(p), nil
}

// Close implements net.Conn. What was written before is still delivered, followed by the end of the stream: the kernel
// continues to send after the process has closed.
func (c *conn) Close() error {
	c.node.mu.Lock()
	defer c.node.mu.Unlock()
	if c.closed {
		return c.opError("close", net.ErrClosed)
	}
	c.closeClient()
	return nil
}

// closeClient closes the client's end. The caller holds node.mu.
func (c *conn) closeClient() {
	c.closed = true
	c.halves[reply].queue = nil
	c.halves[reply].stop()
	if !c.dead {
		c.push(request, nil, io.EOF)
	}
	c.forget()
}

// LocalAddr implements net.Conn.
func (c *conn) LocalAddr() net.Addr { return addr("client") }

// RemoteAddr implements net.Conn.
func (c *conn) RemoteAddr() net.Addr { return addr(c.node.Addr()) }

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error { return c.setDeadline(t, request, reply) }

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(t time.Time) error { return c.setDeadline(t, reply) }

// SetWriteDeadline implements net.Conn.
func (c *conn) SetWriteDeadline(t time.Time) error { return c.setDeadline(t, request) }

func (c *conn) setDeadline(t time.Time, dirs ...direction) error {
	c.node.mu.Lock()
	defer c.node.mu.Unlock()
	if c.closed {
		return c.opError("set", net.ErrClosed)
	}
	if c.node.bubble && t.After(time.Now()) {
		// The context of a command ends exactly at the deadline that go-redis derived from it. Which of the two is seen first
		// decides whether the caller sends again. The scheduler must not make that choice, so the context always comes first.
		t = t.Add(time.Duration(1 + c.link.jitter(reply, c.key+2)%deadlineSpread))
	}
	for _, dir := range dirs {
		c.deadline[dir] = t
		if dir == reply {
			c.halves[dir].cond.Broadcast()
		}
	}
	return nil
}

type addr string

func (addr) Network() string  { return "tcp" }
func (a addr) String() string { return string(a) }
