// Package proxy is a TCP proxy in front of one server, on the loopback interface, with faults that can be switched on and
// off: it delays, holds and drops data, resets connections and refuses new ones. Tests over real servers and the demo of
// the command use it.
package proxy

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// A Proxy forwards connections between clients and one server, and injects network faults. Its methods may be called from
// any goroutine, and affect existing connections as well as new ones.
//
// Data is delivered in order, as on a real network even after its sender has closed the connection; a reset drops data
// that is on its way. A chunk is the result of one read from a socket: for go-redis one pipeline, if it is short.
type Proxy struct {
	addr string
	wg   sync.WaitGroup

	mu        sync.Mutex
	server    string
	listener  net.Listener // nil while dials are refused
	closed    bool
	pairs     map[*pair]struct{}
	delay     [2]time.Duration
	onRequest func(chunk []byte) (time.Duration, []byte) // or nil
	held      [2]chan struct{}                           // closed when held data may be delivered; nil if nothing is held
	countdown [3]int                                     // chunks of requests until the fault happens; 0 if none is due
}

var errClosed = errors.New("proxy: closed")

// The two directions through a proxy.
const (
	requests = iota
	replies
)

// The faults that a countdown can inject into a chunk of requests.
const (
	dropRequest = iota // the connection is reset before the chunk is delivered
	dropReply          // the chunk is delivered, and the connection is reset when the reply comes
	loseReply          // the chunk is delivered, and the client receives nothing more; the connection remains open
)

// A pair is a client's connection and the corresponding connection to the server.
type pair struct {
	p      *Proxy
	conn   [2]net.Conn // the destination of requests (the server) and of replies (the client)
	broken chan struct{}
	once   sync.Once

	mu   sync.Mutex
	mute int // dropReply or loseReply: what happens to replies from now on
}

// Start starts a proxy for a server's clients, on the loopback interface.
func Start(server string) (*Proxy, error) {
	p := &Proxy{server: server, pairs: map[*pair]struct{}{}}
	// While the proxy refuses dials, it does not hold its address, and a server of another test could listen on the same
	// port and answer our clients. So each proxy has its own address, if the system has more of them than 127.0.0.1.
	p.addr = fmt.Sprintf("127.%d.%d.%d:0", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
	if err := p.listen(); err != nil {
		p.addr = "127.0.0.1:0"
		if err := p.listen(); err != nil {
			return nil, fmt.Errorf("proxy: %w", err)
		}
	}
	p.addr = p.listener.Addr().String()
	return p, nil
}

// Addr returns the proxy's host:port.
func (p *Proxy) Addr() string { return p.addr }

// listen starts to accept connections. The caller holds p.mu, unless no other goroutine knows p yet.
func (p *Proxy) listen() error {
	l, err := net.Listen("tcp", p.addr)
	if err != nil {
		return err
	}
	p.listener = l
	p.wg.Go(func() { p.accept(l) })
	return nil
}

func (p *Proxy) accept(l net.Listener) {
	for {
		client, err := l.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		addr := p.server
		p.mu.Unlock()
		server, err := net.Dial("tcp", addr)
		if err != nil {
			reset(client)
			continue
		}
		c := &pair{p: p, conn: [2]net.Conn{server, client}, broken: make(chan struct{})}
		p.mu.Lock()
		if p.listener != l || p.server != addr { // Refuse or Redirect was called meanwhile
			p.mu.Unlock()
			c.reset()
			continue
		}
		p.pairs[c] = struct{}{}
		p.mu.Unlock()
		p.wg.Go(func() {
			var ways sync.WaitGroup
			ways.Go(func() { c.carry(requests) })
			ways.Go(func() { c.carry(replies) })
			ways.Wait()
			c.reset()
			p.mu.Lock()
			delete(p.pairs, c)
			p.mu.Unlock()
		})
	}
}

// Delay sets how long requests and replies travel. It applies to data that is read from now on.
func (p *Proxy) Delay(request, reply time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = [2]time.Duration{request, reply}
}

// OnRequest calls f with each chunk of requests that is read from now on. f returns how long the chunk travels, in place of what
// Delay says, and the bytes that are delivered in its place. It may be called for several connections at once. A nil f ends
// this.
func (p *Proxy) OnRequest(f func(chunk []byte) (time.Duration, []byte)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.onRequest = f
}

// Redirect resets all existing connections and leads new ones to another server, like an address that moves in a failover.
func (p *Proxy) Redirect(server string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.server = server
	for c := range p.pairs {
		c.reset()
	}
}

// Hold holds requests, replies or both until a call releases them, like a black hole: neither end gets an error.
func (p *Proxy) Hold(request, reply bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for way, hold := range []bool{request, reply} {
		switch {
		case hold && p.held[way] == nil:
			p.held[way] = make(chan struct{})
		case !hold && p.held[way] != nil:
			close(p.held[way])
			p.held[way] = nil
		}
	}
}

// DropRequest resets the connection that carries the n-th chunk of requests from now on, before the server receives it. n
// is 1 for the next chunk; 0 cancels the fault. The same holds for DropReply and LoseReply.
func (p *Proxy) DropRequest(n int) { p.count(dropRequest, n) }

// DropReply delivers the n-th chunk of requests, and resets its connection when the server replies.
func (p *Proxy) DropReply(n int) { p.count(dropReply, n) }

// LoseReply delivers the n-th chunk of requests. Its client receives nothing more, but the connection remains open.
func (p *Proxy) LoseReply(n int) { p.count(loseReply, n) }

func (p *Proxy) count(what, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.countdown[what] = n
}

// Break resets all existing connections.
func (p *Proxy) Break() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.pairs {
		c.reset()
	}
}

// Refuse refuses dials and resets all existing connections, or accepts dials again. It fails if the proxy is closed, or if
// another process has taken its port meanwhile.
func (p *Proxy) Refuse(refuse bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return errClosed
	case refuse && p.listener != nil:
		p.listener.Close()
		p.listener = nil
		for c := range p.pairs {
			c.reset()
		}
	case !refuse && p.listener == nil:
		return p.listen()
	}
	return nil
}

// Heal ends all faults and delivers what is held. It fails as Refuse does.
func (p *Proxy) Heal() error {
	p.Delay(0, 0)
	p.Hold(false, false)
	p.OnRequest(nil)
	for what := range p.countdown {
		p.count(what, 0)
	}
	return p.Refuse(false)
}

// Close resets all connections and returns when all goroutines of the proxy have ended. Further calls do nothing.
func (p *Proxy) Close() {
	if err := p.Refuse(true); errors.Is(err, errClosed) {
		return
	}
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.Hold(false, false)
	p.wg.Wait()
}

// nextFault counts a chunk of requests and returns the fault for it, or -1 if there is none.
func (p *Proxy) nextFault() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	fault := -1
	for what := range p.countdown {
		if p.countdown[what] > 0 {
			if p.countdown[what]--; p.countdown[what] == 0 {
				fault = what
			}
		}
	}
	return fault
}

// wait returns true when a chunk that is due at the given time may be delivered, and false if the connection is broken.
func (c *pair) wait(way int, due time.Time) bool {
	if left := time.Until(due); left > 0 {
		t := time.NewTimer(left)
		defer t.Stop()
		select {
		case <-t.C:
		case <-c.broken:
			return false
		}
	}
	for {
		c.p.mu.Lock()
		held := c.p.held[way]
		c.p.mu.Unlock()
		if held == nil {
			return true
		}
		select {
		case <-held:
		case <-c.broken:
			return false
		}
	}
}

type chunk struct {
	bytes []byte
	due   time.Time
}

// arrived returns a chunk that was read, with the time at which it is delivered.
func (p *Proxy) arrived(way int, b []byte) chunk {
	p.mu.Lock()
	delay, f := p.delay[way], p.onRequest
	p.mu.Unlock()
	if way == requests && f != nil {
		delay, b = f(b)
	}
	return chunk{b, time.Now().Add(delay)}
}

// carry transfers chunks in one direction until either connection ends.
func (c *pair) carry(way int) {
	to, from := c.conn[way], c.conn[1-way]
	const most = 1024 // chunks on their way; beyond that, the sender's socket buffer fills up as usual
	queue := make(chan chunk, most)
	go func() {
		defer close(queue)
		buf := make([]byte, 64<<10)
		for {
			n, err := from.Read(buf)
			if n > 0 {
				select {
				case queue <- c.p.arrived(way, bytes.Clone(buf[:n])):
				case <-c.broken:
					return
				}
			}
			if err != nil {
				return
			}
		}
	}()
	for k := range queue {
		if !c.wait(way, k.due) || !c.deliver(way, to, k.bytes) {
			break
		}
	}
	if way == replies { // the server has closed the connection: close the client's, too, after the last reply
		c.end(net.Conn.Close)
	} else if tcp, ok := to.(*net.TCPConn); ok {
		tcp.CloseWrite()
	}
	for range queue { // until the reader has noticed the end
	}
}

// deliver writes a chunk. It returns false if the connection can no longer be used.
func (c *pair) deliver(way int, to net.Conn, b []byte) bool {
	if way == requests {
		switch fault := c.p.nextFault(); fault {
		case dropRequest:
			c.reset()
			return false
		case dropReply, loseReply:
			c.mu.Lock()
			c.mute = fault
			c.mu.Unlock()
		}
	} else {
		c.mu.Lock()
		mute := c.mute
		c.mu.Unlock()
		switch mute {
		case dropReply:
			c.reset()
			return false
		case loseReply:
			return true
		}
	}
	_, err := to.Write(b)
	return err == nil
}

// reset resets both connections (RST).
func (c *pair) reset() { c.end(reset) }

func (c *pair) end(how func(net.Conn) error) {
	c.once.Do(func() {
		close(c.broken)
		for _, conn := range c.conn {
			how(conn)
		}
	})
}

func reset(conn net.Conn) error {
	if tcp, ok := conn.(*net.TCPConn); ok {
		tcp.SetLinger(0)
	}
	return conn.Close()
}
