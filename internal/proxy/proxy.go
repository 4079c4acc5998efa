// Package proxy is a TCP proxy in front of one server, on the loopback interface, whose faults are switched on and off:
// it delays, holds and drops what passes, resets connections and refuses new ones. Tests over real servers and the
// command's demo use it.
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

// A Proxy stands between clients and one server, and is the network's faults: delay, silence, resets. Its methods may be
// called from several goroutines, and act on connections that stand and on those to come.
//
// What was sent is delivered in order, also when its sender has closed the connection since, as a network does; a reset
// drops what is under way. A chunk is what one read of a socket gives: for go-redis a pipeline, if it is short.
type Proxy struct {
	server string
	addr   string
	wg     sync.WaitGroup

	mu        sync.Mutex
	listener  net.Listener // nil while dials are refused
	closed    bool
	pairs     map[*pair]struct{}
	delay     [2]time.Duration
	held      [2]chan struct{} // closed when what is held may go; nil: nothing is
	countdown [3]int           // chunks of requests until a drop; 0: none is due
}

var errClosed = errors.New("the proxy is closed")

// The ways through a proxy.
const (
	requests = iota
	replies
)

// What becomes of the chunk of requests that a countdown meets.
const (
	dropRequest = iota // the connection is reset before it is delivered
	dropReply          // it is delivered, and the connection is reset when the reply comes
	loseReply          // it is delivered, and nothing more comes back; the connection stands
)

// A pair is a client's connection and the one to the server that goes with it.
type pair struct {
	p      *Proxy
	conn   [2]net.Conn // where requests go to: the server; replies: the client
	broken chan struct{}
	once   sync.Once

	mu   sync.Mutex
	mute int // dropReply or loseReply: what becomes of replies from now on
}

// Start listens for a server's clients, on the loopback interface.
func Start(server string) (*Proxy, error) {
	p := &Proxy{server: server, pairs: map[*pair]struct{}{}}
	// While it refuses, nothing of ours holds the address, and a server of another test on the same port would answer our
	// clients. So each proxy has an address of its own, where the system has more of them than 127.0.0.1.
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

// Addr is the proxy's host:port.
func (p *Proxy) Addr() string { return p.addr }

// listen needs p.mu, or that nobody else knows p.
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
		server, err := net.Dial("tcp", p.server)
		if err != nil {
			reset(client)
			continue
		}
		c := &pair{p: p, conn: [2]net.Conn{server, client}, broken: make(chan struct{})}
		p.mu.Lock()
		if p.listener != l { // refused meanwhile
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

// Delay makes requests and replies travel for that long, those that are read from now on.
func (p *Proxy) Delay(request, reply time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = [2]time.Duration{request, reply}
}

// Hold keeps requests, replies or both until it is called again without: a black hole whose ends notice nothing.
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

// DropRequest resets the connection that carries the n-th chunk of requests from now on, before the server has it. n is 1
// for the next one, 0 for none any more; so also for the other two.
func (p *Proxy) DropRequest(n int) { p.count(dropRequest, n) }

// DropReply delivers the n-th chunk of requests and resets its connection when the server has answered.
func (p *Proxy) DropReply(n int) { p.count(dropReply, n) }

// LoseReply delivers the n-th chunk of requests, and nothing more comes back on its connection, which stands.
func (p *Proxy) LoseReply(n int) { p.count(loseReply, n) }

func (p *Proxy) count(what, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.countdown[what] = n
}

// Break resets all connections that stand.
func (p *Proxy) Break() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.pairs {
		c.reset()
	}
}

// Refuse makes dials fail and resets what stands, or accepts again.
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

// Heal ends all that the other methods do to what comes, and lets go what is held.
func (p *Proxy) Heal() error {
	p.Delay(0, 0)
	p.Hold(false, false)
	for what := range p.countdown {
		p.count(what, 0)
	}
	return p.Refuse(false)
}

// Close resets all connections and returns when no goroutine of the proxy is left.
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

// met counts a chunk of requests and says what becomes of it; -1: nothing special.
func (p *Proxy) met() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	fate := -1
	for what := range p.countdown {
		if p.countdown[what] > 0 {
			if p.countdown[what]--; p.countdown[what] == 0 {
				fate = what
			}
		}
	}
	return fate
}

// wait returns when a chunk that was due may go, false: the connection is broken.
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

// carry takes one way's chunks from one connection to the other until either ends.
func (c *pair) carry(way int) {
	to, from := c.conn[way], c.conn[1-way]
	const most = 1024 // chunks under way; then the sender's socket fills up, as any does
	queue := make(chan chunk, most)
	go func() {
		defer close(queue)
		buf := make([]byte, 64<<10)
		for {
			n, err := from.Read(buf)
			if n > 0 {
				c.p.mu.Lock()
				due := time.Now().Add(c.p.delay[way])
				c.p.mu.Unlock()
				select {
				case queue <- chunk{bytes.Clone(buf[:n]), due}:
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
	if way == replies { // the server has closed the connection: so do we, behind its last words
		c.end(net.Conn.Close)
	} else if tcp, ok := to.(*net.TCPConn); ok {
		tcp.CloseWrite()
	}
	for range queue { // until the reader has seen that it is over
	}
}

// deliver writes a chunk; false: the connection is of no use any more.
func (c *pair) deliver(way int, to net.Conn, b []byte) bool {
	if way == requests {
		switch fate := c.p.met(); fate {
		case dropRequest:
			c.reset()
			return false
		case dropReply, loseReply:
			c.mu.Lock()
			c.mute = fate
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

// reset ends both connections without a goodbye.
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
