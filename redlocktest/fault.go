package redlocktest

import (
	"strings"
	"time"
)

// change applies a fault and wakes everybody who waits for one to end.
func (n *Node) change(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
	n.wake()
}

// wake needs mu.
func (n *Node) wake() {
	for c := range n.conns {
		for dir := range c.halves {
			c.halves[dir].cond.Broadcast()
		}
	}
	n.dialers.Broadcast()
}

// reset needs mu.
func (n *Node) reset() {
	for c := range n.conns {
		c.kill(errReset)
	}
}

// Hang stops the process, as SIGSTOP does: connections and bytes are still accepted, nothing is executed or answered.
// Replies that had left arrive.
func (n *Node) Hang() { n.change(func() { n.hung = true }) }

// Resume ends Hang. Everything that was sent meanwhile is executed, also what came on connections that the client has closed
// since. On a node that does not hang it does nothing.
func (n *Node) Resume() {
	n.change(func() {
		if n.hung {
			n.hung, n.opened[request] = false, time.Now()
		}
	})
}

// Delay sets how long requests and replies travel from now on; what is on its way keeps its time. Dials take one of
// each. Zero is the default: in a bubble some 0.1 ms, else nothing. In a bubble up to 0.07 ms are added to
// either. It panics on a negative duration.
func (n *Node) Delay(requests, replies time.Duration) {
	if requests < 0 || replies < 0 {
		panic("redlocktest: negative delay")
	}
	n.change(func() { n.delay = [2]time.Duration{requests, replies} })
}

// DropReplies has the next count commands that arrive executed but not answered: the connection is reset instead, after
// all that came in the same segment has been executed (its pipeline, as a rule). The commands by which a client sets up a
// connection (HELLO, AUTH, SELECT, CLIENT) are answered and not counted. Zero calls it off.
func (n *Node) DropReplies(count int) { n.change(func() { n.drop = count }) }

// LoseReplies has the next count commands that arrive executed but not answered: the connection stays, what is sent on
// it is executed, and nothing more is ever heard from it. The commands by which a client sets up a connection (HELLO,
// AUTH, SELECT, CLIENT) are answered and not counted. Zero calls it off.
func (n *Node) LoseReplies(count int) { n.change(func() { n.lose = count }) }

// ResetSubscribers resets all connections that have or had a subscription, as a server does whose subscribers read too
// slowly for its buffers.
func (n *Node) ResetSubscribers() {
	n.change(func() {
		for c := range n.conns {
			if c.heard {
				c.kill(errReset)
			}
		}
	})
}

// MuteSubscribers has nothing more heard on any connection that has a subscription now: half-open ones. The node counts
// them as receivers for as long as the client keeps them.
func (n *Node) MuteSubscribers() {
	n.change(func() {
		for c := range n.conns {
			c.mute = c.mute || c.heard
		}
	})
}

// DelaySubscribers has all that is said on connections with a subscription take d longer from now on, as if they were
// read slowly; nothing is lost. It panics on a negative duration.
func (n *Node) DelaySubscribers(d time.Duration) {
	if d < 0 {
		panic("redlocktest: negative delay")
	}
	n.change(func() { n.lag = d })
}

// Refuse resets all connections and refuses dials (on), or lets them in again. The process and its memory are untouched.
func (n *Node) Refuse(on bool) {
	n.change(func() {
		n.refusing = on
		if on {
			n.reset()
		}
	})
}

// Partition cuts the node off from all clients, both ways, without anybody being told: segments are held, and dials hang
// until Heal or their context's end.
func (n *Node) Partition() { n.change(func() { n.cut = [2]bool{true, true} }) }

// PartitionRequests cuts only the way to the node: it hears nothing, and what it had answered still arrives.
func (n *Node) PartitionRequests() { n.change(func() { n.cut[request] = true }) }

// PartitionReplies cuts only the way back: the node executes everything and nobody hears of it.
func (n *Node) PartitionReplies() { n.change(func() { n.cut[reply] = true }) }

// Heal ends [Node.Partition] and the one-way cuts. What was held is delivered, also from connections that the client has closed
// since.
func (n *Node) Heal() {
	n.change(func() {
		for dir, cut := range n.cut {
			if cut {
				n.cut[dir], n.opened[dir] = false, time.Now()
			}
		}
	})
}

// Stop ends the process: connections are reset, requests it had not read are lost, dials are refused. A hung node no longer hangs.
// Keys and their ttls stay, as with an append-only file that is synced at every write, and age while it is down. On a stopped node it does nothing.
func (n *Node) Stop() {
	n.exec.Lock()
	defer n.exec.Unlock()
	n.stop()
}

// stop needs exec.
func (n *Node) stop() {
	n.change(func() {
		n.down, n.hung = true, false
		n.reset()
	})
}

// Start ends Stop: a new process with a new run_id, an uptime of zero, the same keys and no scripts. On a running node it
// does nothing.
func (n *Node) Start() {
	n.exec.Lock()
	defer n.exec.Unlock()
	n.start()
}

// start needs exec.
func (n *Node) start() {
	if !n.isDown() {
		return
	}
	n.tick()
	if _, err := n.do("SCRIPT", "FLUSH"); err != nil {
		panic("redlocktest: SCRIPT FLUSH: " + err.Error())
	}
	now := n.clock.now()
	n.change(func() {
		n.down, n.since, n.flushes = false, now, 0
		n.starts++
	})
}

func (n *Node) isDown() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.down
}

// Restart is Stop and Start between two commands, with the data kept or lost.
func (n *Node) Restart(keepData bool) {
	n.exec.Lock()
	defer n.exec.Unlock()
	n.stop()
	if !keepData {
		n.m.FlushAll()
	}
	n.start()
}

// Fail has every command answered with this error and not executed, "LOADING Redis is loading the dataset in memory" for
// example; "" ends it. HELLO and INFO are executed, as a real server does that is loading.
func (n *Node) Fail(err string) { n.change(func() { n.fail = err }) }

// FailCommand has the command of this name answered with this error and not executed, also where a script calls it; "" ends it. Fail
// comes first.
func (n *Node) FailCommand(name, err string) {
	n.change(func() { n.failCommand[strings.ToUpper(name)] = err })
}

// failure returns the error that a client's command is answered with, "" for none.
func (n *Node) failure(cmd string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.fail != "" && cmd != "HELLO" && cmd != "INFO" {
		return n.fail
	}
	return n.failCommand[cmd]
}

// SetClockRate has the node's clock run at r times ours from now on; 1 is the truth. Ttls run by it. It panics on a
// negative rate.
func (n *Node) SetClockRate(r float64) {
	if r < 0 {
		panic("redlocktest: negative clock rate")
	}
	n.exec.Lock()
	defer n.exec.Unlock()
	n.tick()
	n.clock.setRate(r)
}

// JumpClock steps the node's clock. Since a server keeps the time at which a key expires, and not what remains, a
// step forward takes life from all keys and a step back gives it.
func (n *Node) JumpClock(d time.Duration) {
	n.exec.Lock()
	defer n.exec.Unlock()
	n.tick()
	n.clock.jump(d)
	n.tick()
	if d < 0 { // miniredis keeps what remains, and takes a step back for no time at all
		n.m.FastForward(d)
	}
}

// OnCommand has f called with the name and the arguments of every command of every client before it is executed; nil ends
// it. f may do anything to the node but close it: what it does holds for this command already, so that
// "when the SET arrives, hang" leaves the SET unexecuted until Resume, and DropReplies(1) drops its reply. f is called from several
// goroutines, one per connection, and holds up that connection only.
func (n *Node) OnCommand(f func(args []string)) { n.change(func() { n.hook = f }) }
