package redlocktest

import (
	"strings"
	"time"
)

// change applies a fault and wakes every goroutine that waits for a fault to end.
func (n *Node) change(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
	n.wake()
}

// wake wakes every reader and every dial. The caller holds mu.
func (n *Node) wake() {
	for c := range n.conns {
		for dir := range c.halves {
			c.halves[dir].cond.Broadcast()
		}
	}
	n.dialers.Broadcast()
}

// reset resets all connections. The caller holds mu.
func (n *Node) reset() {
	for c := range n.conns {
		c.kill(errReset)
	}
}

// Hang stops the server process, as SIGSTOP does: connections and bytes are still accepted, but nothing is executed or
// answered. Replies that have already been sent arrive.
func (n *Node) Hang() { n.change(func() { n.hung = true }) }

// Resume ends Hang. Everything that was sent meanwhile is executed, including commands on connections that the client has
// closed since. Resume does nothing on a node that does not hang.
func (n *Node) Resume() {
	n.change(func() {
		if n.hung {
			n.hung, n.opened[request] = false, time.Now()
		}
	})
}

// Delay sets how long requests and replies travel from now on; segments already on their way keep their time. A dial takes
// one of each. Zero is the default: about 0.1 ms in a bubble, no delay otherwise. In a bubble, up to 0.07 ms are added to
// each of them. Delay panics if a duration is negative.
func (n *Node) Delay(requests, replies time.Duration) {
	if requests < 0 || replies < 0 {
		panic("redlocktest: negative delay")
	}
	n.change(func() { n.delay = [2]time.Duration{requests, replies} })
}

// DropReplies makes the node execute the next count commands without a reply: instead, it resets the connection after it
// has executed everything that arrived in the same segment (usually the pipeline). The commands with which a client sets
// up a connection (HELLO, AUTH, SELECT, CLIENT) are answered and not counted. A count of zero cancels the fault.
func (n *Node) DropReplies(count int) { n.change(func() { n.drop = count }) }

// LoseReplies makes the node execute the next count commands without a reply: the connection remains open and its
// commands are executed, but the client receives nothing more on it. The commands with which a client sets up a connection
// (HELLO, AUTH, SELECT, CLIENT) are answered and not counted. A count of zero cancels the fault.
func (n *Node) LoseReplies(count int) { n.change(func() { n.lose = count }) }

// ResetSubscribers resets all connections that have or had a subscription, as a server does when subscribers read too
// slowly for its output buffers.
func (n *Node) ResetSubscribers() {
	n.change(func() {
		for c := range n.conns {
			if c.subscribed {
				c.kill(errReset)
			}
		}
	})
}

// MuteSubscribers makes every connection that has a subscription now half-open: the client receives nothing more on it.
// The node counts these connections as receivers for as long as the client keeps them.
func (n *Node) MuteSubscribers() {
	n.change(func() {
		for c := range n.conns {
			c.mute = c.mute || c.subscribed
		}
	})
}

// DelaySubscribers delays everything that is sent on connections with a subscription by d from now on, as if the
// subscribers read slowly; nothing is lost. It panics if d is negative.
func (n *Node) DelaySubscribers(d time.Duration) {
	if d < 0 {
		panic("redlocktest: negative delay")
	}
	n.change(func() { n.subscriberDelay = d })
}

// Refuse resets all connections and refuses dials if on is true; otherwise it accepts dials again. The server process and
// its memory are not affected.
func (n *Node) Refuse(on bool) {
	n.change(func() {
		n.refusing = on
		if on {
			n.reset()
		}
	})
}

// Partition cuts the node off from all clients in both directions. Nobody gets an error: segments are held, and dials hang
// until Heal or until their context is done.
func (n *Node) Partition() { n.change(func() { n.cut = [2]bool{true, true} }) }

// PartitionRequests cuts only the direction to the node: it receives nothing, but replies that it has sent still arrive.
func (n *Node) PartitionRequests() { n.change(func() { n.cut[request] = true }) }

// PartitionReplies cuts only the direction from the node: it executes every command, but its replies are held.
func (n *Node) PartitionReplies() { n.change(func() { n.cut[reply] = true }) }

// Heal ends [Node.Partition] and the one-way partitions. The held segments are delivered, including those on connections
// that the client has closed since.
func (n *Node) Heal() {
	n.change(func() {
		for dir, cut := range n.cut {
			if cut {
				n.cut[dir], n.opened[dir] = false, time.Now()
			}
		}
	})
}

// Stop ends the server process: connections are reset, requests that it had not read are lost, dials are refused. A hung
// node no longer hangs. Keys and their ttls remain, as with an append-only file that is synced at every write, and the ttls
// continue to run while the node is down. Stop does nothing on a stopped node.
func (n *Node) Stop() {
	n.exec.Lock()
	defer n.exec.Unlock()
	n.stop()
}

// stop ends the server process. The caller holds exec.
func (n *Node) stop() {
	n.change(func() {
		n.down, n.hung = true, false
		n.reset()
	})
}

// Start ends Stop: it starts a new process with a new run_id, an uptime of zero, the same keys and no scripts. It does
// nothing on a running node.
func (n *Node) Start() {
	n.exec.Lock()
	defer n.exec.Unlock()
	n.start()
}

// start starts the server process if it is down. The caller holds exec.
func (n *Node) start() {
	if !look(n, func() bool { return n.down }) {
		return
	}
	n.tick()
	clear(n.noted)
	if _, err := n.do("SCRIPT", "FLUSH"); err != nil {
		panic("redlocktest: SCRIPT FLUSH: " + err.Error())
	}
	now := n.clock.now()
	n.change(func() {
		n.down, n.since, n.flushes = false, now, 0
		n.starts++
	})
}

// Restart is Stop and Start with no command in between. The data is kept or lost, as keepData says.
func (n *Node) Restart(keepData bool) {
	n.exec.Lock()
	defer n.exec.Unlock()
	n.stop()
	if !keepData {
		n.m.FlushAll()
	}
	n.start()
}

// Fail makes the node answer every command with the error err, without executing it; for example "LOADING Redis is loading
// the dataset in memory". An empty err ends this. HELLO and INFO are still executed, as on a real server that is loading.
func (n *Node) Fail(err string) { n.change(func() { n.fail = err }) }

// FailCommand makes the node answer the named command with the error err, without executing it, also if a script calls it.
// An empty err ends this. Fail takes precedence.
func (n *Node) FailCommand(name, err string) {
	n.change(func() { n.failCommand[strings.ToUpper(name)] = err })
}

// failure returns the error with which a client's command is answered, or "" if it is executed.
func (n *Node) failure(cmd string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.fail != "" && cmd != "HELLO" && cmd != "INFO" {
		return n.fail
	}
	return n.failCommand[cmd]
}

// SetClockRate makes the node's clock run at r times the speed of the test's clock from now on; 1 is the default. Ttls run
// by the node's clock. SetClockRate panics if r is negative.
func (n *Node) SetClockRate(r float64) {
	if r < 0 {
		panic("redlocktest: negative clock rate")
	}
	n.exec.Lock()
	defer n.exec.Unlock()
	n.tick()
	n.clock.setRate(r)
}

// JumpClock steps the node's clock by d. A server stores the time at which a key expires, not the remaining ttl, so a step
// forward shortens the ttls of all keys and a step back extends them.
func (n *Node) JumpClock(d time.Duration) {
	n.exec.Lock()
	defer n.exec.Unlock()
	n.tick()
	n.clock.jump(d)
	n.tick()
	if d < 0 { // miniredis stores the remaining ttl, and treats a step back as no time at all
		n.m.FastForward(d)
	}
}

// OnCommand makes the node call f with the name and the arguments of every command of every client before it is executed;
// nil ends this. f may do anything to the node except close it. What it does already applies to this command: "when the SET
// arrives, hang" leaves the SET unexecuted until Resume, and DropReplies(1) drops its reply. f is called from several
// goroutines, one per connection, and blocks only that connection.
func (n *Node) OnCommand(f func(args []string)) { n.change(func() { n.hook = f }) }
