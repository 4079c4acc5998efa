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

// A Node is one master of a [Cluster]. Its methods act on the server directly, like an operator on the machine: they take
// effect at once, whatever faults are on, and need no connection. They may be called from any goroutine, including from
// within [Node.OnCommand]. Faults combine: a node can be slow, partitioned and hung at once, and each fault ends
// independently.
type Node struct {
	name   string
	index  int
	seed   uint64
	bubble bool
	m      *miniredis.Miniredis
	srv    *server.Server
	clock  *clock
	serves sync.WaitGroup

	// exec makes the server single-threaded, as Redis is: it executes one command at a time, and a restart happens between
	// two commands. It is acquired before miniredis's own lock and before mu, and its holder never waits for time to pass.
	exec     sync.Mutex
	current  *server.Peer // the peer being served, to tell a script's calls from a client's; under exec
	operator *server.Peer // for commands of Do, which bypass the network; under exec
	output   bytes.Buffer // the reply to operator; under exec
	disk     map[string]saved
	noted    map[string]string // scripts that the node knows and miniredis does not, by SHA-1; under exec

	// mu guards the fields below, all links and all connections. miniredis is never called while mu is held: a script that
	// calls INFO gets here with miniredis locked.
	mu      sync.Mutex
	conns   map[*conn]struct{}
	dialers *sync.Cond
	dialed  *link // of the connections made by Dial
	closed  bool

	hung, down, refusing bool
	cut                  [2]bool
	opened               [2]time.Time
	delay                [2]time.Duration
	subscriberDelay      time.Duration // of what is sent to subscribers
	drop, lose           int
	fail                 string
	failCommand          map[string]string
	hook                 func(args []string)

	starts  uint64
	since   time.Time // start of the server process, by the node's clock
	flushes int       // since the start of the process

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
		noted:       map[string]string{},
	}
	n.dialers = sync.NewCond(&n.mu)
	n.dialed = &link{node: n}
	// Up for a day, so that a check that distrusts recently started servers does not disturb tests of other things.
	n.since = n.clock.now().Add(-24 * time.Hour)
	n.m.ClockTTL(true)
	n.m.SetTime(n.clock.now())
	// Dial is the only way to start the server without a listener; the connection itself is not used. Connections are served
	// by serve.go and not by miniredis, whose two goroutines per connection read ahead of what is executed.
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

// name returns the name of node i: a, b, … z, aa, ab, …
func name(i int) string {
	s := ""
	for i++; i > 0; i /= 26 {
		i--
		s = string(rune('a'+i%26)) + s
	}
	return s
}

// Name returns the node's name: a, b, c, … in the order of the cluster.
func (n *Node) Name() string { return n.name }

// Addr returns the address that appears in the options and errors of the node's clients: node-a:6379 for node a. No
// network knows that name; a client that the test creates itself needs [Node.Dial] as its dialer.
func (n *Node) Addr() string { return "node-" + n.name + ":6379" }

// Dial opens a connection to the node, for clients other than those of [Cluster.Clients]. Like [net.Dialer], it fails with
// ECONNREFUSED, with a timeout if ctx's deadline passes first, or with ctx's error.
func (n *Node) Dial(ctx context.Context) (net.Conn, error) { return n.dialed.dial(ctx) }

// Now returns the time of the node's own clock.
func (n *Node) Now() time.Time { return n.clock.now() }

// Do executes a command on the node, bypassing the network and all faults. The command is not recorded, and no hook is
// called. The reply is nil, an int, a string, or a []any of these; the error is the server's error reply. Transactions and
// subscriptions, which belong to a connection, do not work.
func (n *Node) Do(args ...string) (any, error) {
	n.exec.Lock()
	defer n.exec.Unlock()
	n.tick()
	return n.do(args...)
}

// do executes a command as the operator. The caller holds exec.
func (n *Node) do(args ...string) (any, error) {
	if sha, ok := n.loadNoted(args); ok {
		return sha, nil
	}
	n.giveNoted(args)
	v, err := n.doNow(args...)
	if sha, ok := v.(string); ok && err == nil && isLoad(args) {
		parsed.Store(args[2], sha)
	}
	return v, err
}

// doNow has miniredis execute a command as the operator. The caller holds exec.
func (n *Node) doNow(args ...string) (any, error) {
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

// tick sets miniredis's clock to the node's and returns the time. The caller holds exec: if one tick overtook another,
// the keys would age twice.
func (n *Node) tick() time.Time {
	now := n.clock.now()
	n.m.SetTime(now)
	return now
}

// atRest returns what f reads from miniredis between two commands, by the node's clock.
func atRest[T any](n *Node, f func() T) T {
	n.exec.Lock()
	defer n.exec.Unlock()
	n.tick()
	return f()
}

// Keys returns the sorted names of all keys that have not expired by the node's clock.
func (n *Node) Keys() []string { return atRest(n, n.m.Keys) }

// Get returns the string at key; ok is false if there is no such key or its value is not a string.
func (n *Node) Get(key string) (value string, ok bool) {
	n.exec.Lock()
	defer n.exec.Unlock()
	n.tick()
	v, err := n.m.Get(key)
	return v, err == nil
}

// TTL returns the remaining ttl of key by the node's clock, to the nanosecond. It returns 0 if the key does not exist or
// does not expire.
func (n *Node) TTL(key string) time.Duration {
	return atRest(n, func() time.Duration { return n.m.TTL(key) })
}

// Score returns the score of a member of the sorted set at key; ok is false if there is no such member.
func (n *Node) Score(key, member string) (score float64, ok bool) {
	n.exec.Lock() // until the member is read: miniredis returns its own map
	defer n.exec.Unlock()
	n.tick()
	set, _ := n.m.SortedSet(key) // nil if it is none
	score, ok = set[member]
	return score, ok
}

// Set stores a string at key and overwrites whatever was there, as a foreign client would that knows nothing of locks. A
// ttl of 0 means that the key does not expire; other ttls are rounded up to whole milliseconds. Set panics if ttl is
// negative.
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

// Evict deletes key without any client's involvement, as a server that runs out of memory does. It reports whether the
// key existed.
func (n *Node) Evict(key string) bool {
	return atRest(n, func() bool { return n.m.Del(key) })
}

// FlushAll deletes all keys. Scripts remain, as on a real server, and INFO counts the flush.
func (n *Node) FlushAll() {
	n.exec.Lock()
	defer n.exec.Unlock()
	n.change(func() { n.flushes++ })
	n.m.FlushAll()
}

// Connections returns the number of connections that clients hold open to the node.
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

// runID returns the run_id. It changes with every start of the server process, and is the same in every run of the test.
func (n *Node) runID() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	a, b, c := mix(n.seed, uint64(n.index), n.starts), mix(n.seed, uint64(n.index), n.starts, 1), mix(n.seed, uint64(n.index), n.starts, 2)
	return fmt.Sprintf("%016x%016x%08x", a, b, uint32(c))
}

// close closes every connection and waits for the server's goroutines.
func (n *Node) close() {
	n.mu.Lock()
	n.closed = true
	for c := range n.conns {
		c.kill(net.ErrClosed)
		if !c.closed { // a client must not wait for a heal that will never come
			c.closed = true
			c.halves[reply].stop()
		}
	}
	n.dialers.Broadcast()
	n.mu.Unlock()
	n.serves.Wait()
	n.m.Close()
}
