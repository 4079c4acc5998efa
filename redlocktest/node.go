package redlocktest

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
)

// A Node is one master of a [Cluster]. Its methods are an operator's hand in the machine room: they work at once, whatever
// faults are on, need no connection, and may be called from any goroutine, also from within [Node.OnCommand].
// Faults add up: a node can be slow, partitioned and hung at once, and each ends on its own.
type Node struct {
	name   string
	index  int
	seed   uint64
	bubble bool
	m      *miniredis.Miniredis
	srv    *server.Server
	clock  *clock
	serves sync.WaitGroup

	// exec makes the server single-threaded, as Redis is: one command at a time, and a restart falls between two. It is taken
	// before miniredis's own lock and before mu, and never waits for time to pass while held.
	exec     sync.Mutex
	current  *server.Peer // who is being served, to tell a script's calls from a client's; under exec
	operator *server.Peer // for commands from behind the scenes; under exec
	output   bytes.Buffer // what operator got; under exec
	disk     map[string]saved

	// mu guards what follows, all links and all connections. miniredis is never called under it: a script that asks for INFO
	// comes here with miniredis locked.
	mu      sync.Mutex
	conns   map[*conn]struct{}
	dialers *sync.Cond
	byHand  *link // for Dial
	closed  bool

	hung, down, refusing bool
	cut                  [2]bool
	opened               [2]time.Time
	delay                [2]time.Duration
	lag                  time.Duration // of what is said to subscribers
	drop, lose           int
	fail                 string
	failCommand          map[string]string
	hook                 func(args []string)

	starts  uint64
	since   time.Time // start of the process, by the node's clock
	flushes int       // since then

	recording bool
	log       []Command
	logged    int
}

func newNode(index int, seed uint64) (*Node, error) {
	n := &Node{
		name:        name(index),
		index:       index,
		seed:        seed,
		bubble:      inBubble(),
		m:           miniredis.NewMiniRedis(),
		clock:       newClock(),
		conns:       map[*conn]struct{}{},
		failCommand: map[string]string{},
	}
	n.dialers = sync.NewCond(&n.mu)
	n.byHand = &link{node: n}
	// Up for a day, so that nothing that distrusts young servers is in the way of a test that is about something else.
	n.since = n.clock.now().Add(-24 * time.Hour)
	n.m.ClockTTL(true)
	n.m.SetTime(n.clock.now())
	// The only way to start without a listener; the connection itself is of no use. Connections are served by serve.go
	// and not by miniredis, whose two goroutines per connection read ahead of what is executed.
	c, err := n.m.Dial()
	if err != nil {
		return nil, err
	}
	c.Close()
	n.srv = n.m.Server()
	n.srv.SetPreHook(n.preHook)
	n.operator = server.NewPeer(bufio.NewWriter(&n.output))
	return n, nil
}

// name counts a, b, … z, aa, ab, …
func name(i int) string {
	s := ""
	for i++; i > 0; i /= 26 {
		i--
		s = string(rune('a'+i%26)) + s
	}
	return s
}

// Name returns the node's name: a, b, c, … in the cluster's order.
func (n *Node) Name() string { return n.name }

// Addr returns the address that the node's clients have in their options and in errors, node-a:6379 for node a. It is a
// name on no network: use [Node.Dial] as the dialer of a client of your own.
func (n *Node) Addr() string { return "node-" + n.name + ":6379" }

// Dial opens a connection to the node, for clients other than those of [Cluster.Clients], as [net.Dialer] would:
// it fails with ECONNREFUSED, with a timeout when ctx's deadline comes first, or with ctx's error.
func (n *Node) Dial(ctx context.Context) (net.Conn, error) { return n.byHand.dial(ctx) }

// Now returns the time by the node's own clock.
func (n *Node) Now() time.Time { return n.clock.now() }

// Do executes a command on the node, past the network and all faults. It is not recorded and no hook sees it. The result is
// nil, an int, a string, or a []any of these. In a transaction or subscription, which belong to a connection, it is of no use.
func (n *Node) Do(args ...string) (any, error) {
	n.exec.Lock()
	defer n.exec.Unlock()
	n.tick()
	return n.do(args...)
}

// do needs exec.
func (n *Node) do(args ...string) (any, error) {
	n.output.Reset()
	n.current = n.operator
	n.srv.Dispatch(n.operator, args)
	n.current = nil
	n.operator.Flush()
	v, err := server.ParseReply(bufio.NewReader(&n.output))
	if s, ok := v.(server.Simple); ok {
		v = string(s)
	}
	return v, err
}

// tick brings miniredis's clock to the node's. It needs exec: two ticks that overtake each other would age the keys twice.
func (n *Node) tick() time.Time {
	now := n.clock.now()
	n.m.SetTime(now)
	return now
}

// Keys returns the names of all keys that have not expired by the node's clock, sorted.
func (n *Node) Keys() []string {
	n.exec.Lock()
	defer n.exec.Unlock()
	n.tick()
	return n.m.Keys()
}

// Get returns the string at key; false if there is none, or something that is no string.
func (n *Node) Get(key string) (string, bool) {
	n.exec.Lock()
	defer n.exec.Unlock()
	n.tick()
	v, err := n.m.Get(key)
	return v, err == nil
}

// TTL returns what remains of key's life by the node's clock, to the nanosecond. It is 0 for a key that is missing and
// for one that does not expire.
func (n *Node) TTL(key string) time.Duration {
	n.exec.Lock()
	defer n.exec.Unlock()
	n.tick()
	return n.m.TTL(key)
}

// Score returns the score of a member of the sorted set at key; false if there is no such member.
func (n *Node) Score(key, member string) (float64, bool) {
	n.exec.Lock()
	defer n.exec.Unlock()
	n.tick()
	set, err := n.m.SortedSet(key)
	if err != nil {
		return 0, false
	}
	score, ok := set[member]
	return score, ok
}

// Set stores a string as a stranger would who knows nothing of locks: whatever was at key is overwritten. A ttl of 0 is none;
// others are rounded up to the millisecond. It panics on a negative ttl.
func (n *Node) Set(key, value string, ttl time.Duration) {
	args := []string{"SET", key, value}
	if ttl != 0 {
		ms := (ttl + time.Millisecond - 1) / time.Millisecond
		args = append(args, "PX", strconv.FormatInt(int64(ms), 10))
	}
	if _, err := n.Do(args...); err != nil {
		panic("redlocktest: " + strings.Join(args, " ") + ": " + err.Error())
	}
}

// Evict deletes key behind everybody's back, as a server that ran out of memory does; it reports whether there was one.
func (n *Node) Evict(key string) bool {
	n.exec.Lock()
	defer n.exec.Unlock()
	n.tick()
	return n.m.Del(key)
}

// FlushAll deletes all keys. Scripts stay, as they do on a real server, which counts the flush in its INFO.
func (n *Node) FlushAll() {
	n.exec.Lock()
	defer n.exec.Unlock()
	n.change(func() { n.flushes++ })
	n.m.FlushAll()
}

// Connections returns how many connections clients hold open to the node.
func (n *Node) Connections() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	open := 0
	for c := range n.conns {
		if !c.closed {
			open++
		}
	}
	return open
}

// String returns the node's address.
func (n *Node) String() string { return n.Addr() }

// runID is new for every start of the process, and the same in every run of the test.
func (n *Node) runID() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	a, b, c := mix(n.seed, uint64(n.index), n.starts), mix(n.seed, uint64(n.index), n.starts, 1), mix(n.seed, uint64(n.index), n.starts, 2)
	return fmt.Sprintf("%016x%016x%08x", a, b, uint32(c))
}

// close ends every connection and waits for the server's goroutines.
func (n *Node) close() {
	n.mu.Lock()
	n.closed = true
	for c := range n.conns {
		c.kill(net.ErrClosed)
		if !c.closed { // a client must not wait for a heal that will not come
			c.closed = true
			c.halves[reply].stop()
		}
	}
	n.dialers.Broadcast()
	n.mu.Unlock()
	n.serves.Wait()
	n.m.Close()
}
