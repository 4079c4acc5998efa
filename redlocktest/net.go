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

// segment is what one Write sent: bytes, or the end of the stream (err). The ends are segments too, because a cut or a
// slow link holds back a FIN or a RST as it holds back bytes.
type segment struct {
	data []byte
	err  error
	key  uint64
	due  time.Time // the zero time: at once
}

// half is one direction of a connection: a queue that its reader empties. There is no goroutine that delivers; a reader
// asks whether the head of the queue may be delivered yet, and sleeps until it may or until a fault changed. So what a
// fault does to segments already on their way needs no code of its own.
type half struct {
	dir   direction
	queue []segment
	cond  *sync.Cond // on Node.mu
	timer *time.Timer
	armed time.Time
}

// wait sleeps until something changed or at has come. Both readers that a half could have would wait for the same at
// (deadline and due belong to the half), so one timer does.
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

// link is what lies between one client and one node.
type link struct {
	node   *Node
	client int  // which set of clients; 0 for connections dialled by hand
	gone   bool // the client's process has ended
	cut    [2]bool
	opened [2]time.Time
}

// conn is a connection; its methods of net.Conn are the client's end. Everything is guarded by node.mu.
type conn struct {
	node   *Node
	link   *link
	halves [2]half

	// key is what the connection is known by: which command was last sent on it, how long, and when. Latencies are a hash of
	// that and not of the connection's number: a client that sends two commands at one instant has two idle connections
	// to choose from, and which goroutine gets which is the scheduler's choice. Whichever it is, the commands arrive in
	// the same order. They are no hash of all that was sent: values may be random.
	key uint64

	heard    bool // it has a subscription
	mute     bool // what the server says on it is lost
	closed   bool // by the client
	dead     bool // the server's end is gone: reset, closed or restarted
	served   bool // the server's goroutine has ended
	deadline [2]time.Time
}

func newConn(l *link, key uint64) *conn {
	c := &conn{node: l.node, link: l, key: key}
	for dir := range c.halves {
		c.halves[dir].dir = direction(dir)
		c.halves[dir].cond = sync.NewCond(&l.node.mu)
	}
	return c
}

// push needs node.mu.
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
	if dir == reply && c.heard {
		now = now.Add(c.node.lag)
	}
	h.queue = append(h.queue, segment{data: data, err: err, key: key, due: c.link.due(now, dir, key)})
	h.cond.Broadcast()
}

// head returns the next segment if it may be delivered now, else the time to look again (zero: when something changes).
func (c *conn) head(h *half) (*segment, time.Time) {
	if len(h.queue) == 0 || c.link.blocked(h.dir, true) {
		return nil, time.Time{}
	}
	seg := &h.queue[0]
	if seg.due.IsZero() {
		return seg, time.Time{}
	}
	// What was held does not arrive at the instant of the heal, where everything else that was held would arrive too and the
	// scheduler would choose the order. It is sent again then, and takes its time again.
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
			if seg.err != nil { // stays: the end of a stream is read again and again
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

// send is the server's Write. What a client that has gone would have read is dropped, as its kernel would drop it.
func (c *conn) send(p []byte) {
	c.node.mu.Lock()
	defer c.node.mu.Unlock()
	if !c.closed && !c.dead && !c.mute {
		c.push(reply, append([]byte(nil), p...), nil)
	}
}

// kill ends the server's end; the client learns of it by end, after the replies that are on their way. Requests that the
// server had not read are lost with its socket. It needs node.mu.
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

// forget needs node.mu. A connection is known until both ends are gone: the faults have to wake either.
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
		return err // io.EOF is compared, not matched, by every reader there is
	}
	return &net.OpError{Op: op, Net: "tcp", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: err}
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.receive(reply, p)
	return n, c.opError("read", err)
}

// Write implements net.Conn. It never waits: the buffers are unbounded, and what the server does not read stays in them.
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
		// Only a RST that has arrived fails a write. Before that it succeeds and goes nowhere.
		if seg, _ := c.head(&c.halves[reply]); seg != nil && seg.err != nil {
			return 0, c.opError("write", os.NewSyscallError("write", syscall.EPIPE))
		}
		return len(p), nil
	}
	c.push(request, append([]byte(nil), p...), nil)
	return len(p), nil
}

// Close implements net.Conn. What was written before is still delivered, and then the end: the kernel goes on sending
// after the process has closed.
func (c *conn) Close() error {
	c.node.mu.Lock()
	defer c.node.mu.Unlock()
	if c.closed {
		return c.opError("close", net.ErrClosed)
	}
	c.leave()
	return nil
}

// leave ends the client's end. It needs node.mu.
func (c *conn) leave() {
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
		// A command's context ends at the very deadline that go-redis derived from it. Which of the two is seen first decides
		// whether its caller sends again, and must not be the scheduler's choice: the context is.
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
