package lane

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/wire"
)

// This file is the prober: a goroutine that runs while the node is down or anything is
// owed to it. It sends PINGs until the node answers one. It then sends the owed commands
// (owed.go) and puts the node back into use. If the answer is an error, such as LOADING, the
// node is used and counts as refusing, and PINGs go on until it does what it is asked: else a
// Locker of which nobody wants anything would never learn that it works.

const (
	// probeFirst and probeMax are the shortest and the longest pause between PINGs to a
	// node that is down. They are short because the node should be used again within a
	// second of coming back.
	probeFirst = 10 * time.Millisecond
	probeMax   = 200 * time.Millisecond

	// maxFailedPings is how many PINGs in a row have to fail until a node is down whose
	// connections break. Halved, a server that has closed idle connections may be taken for
	// one; doubled, Close waits longer for a node with which nothing can be exchanged, as a
	// TLS port without TLS.
	maxFailedPings = 4

	// maxProbes bounds the PINGs without an answer. Each occupies a connection until
	// the client's own timeout.
	maxProbes = 3
)

// ensureProbe starts the prober if it is not running. It needs ln.mu.
func (ln *Lane) ensureProbe() {
	if !ln.probing && !ln.closed {
		select {
		case <-ln.probeWake: // left by the prober before: two PINGs would go out at one instant
		default:
		}
		ln.probing = true
		go ln.probeLoop()
	}
}

// wakeProbe ends the current pause of the prober, if it is running. It needs ln.mu.
func (ln *Lane) wakeProbe() {
	if ln.probing {
		select {
		case ln.probeWake <- struct{}{}:
		default:
		}
	}
}

// A pong is the result of one PING.
type pong struct {
	sent time.Time
	err  error
	took time.Duration
}

// probeLoop sends PINGs until the node is used, does not refuse them, and is owed nothing, or
// the lane closes. If a PING hangs, another one is sent beside it, up to maxProbes.
func (ln *Lane) probeLoop() {
	pongs := make(chan pong, maxProbes) // room for all, so that no sender blocks
	open, failed := 0, 0
	var failing time.Time // when the first PING left of those that failed in a row
	pause := probeFirst
	for {
		if open < maxProbes {
			open++
			go func(sent time.Time) {
				err := ping(ln.Node)
				pongs <- pong{sent: sent, err: err, took: time.Since(sent)}
			}(time.Now())
		}
		p, ok := ln.awaitPong(pongs, max(pause, ln.pingPatience()))
		if ok {
			open--
		}
		switch {
		case ok && p.alive():
			failed = 0
			done, wait := ln.resume(p)
			ln.tell()
			if done {
				return
			}
			pause = probeFirst
			ln.probePause(wait)
		default:
			pause = min(2*pause, probeMax)
			if ok { // the PING failed at once; otherwise awaitPong has waited that long
				ln.stillDown(p.err)
				if failed++; failed == 1 {
					failing = p.sent
				}
				if failed == maxFailedPings && !ln.pingsFailed(failing, p.err) {
					failed = 0
				}
				ln.probePause(pause)
			}
		}
		select {
		case <-ln.stopping:
			return
		default:
		}
	}
}

// ping sends one PING and waits for its answer.
func ping(node Client) (err error) {
	defer wire.RecoverTo(&err)
	c := wire.PingCommand()
	if err := node.Process(context.Background(), &c); err != nil {
		return err
	}
	return c.Err() // waits: a deferred auto-pipeliner has only queued the command so far
}

// alive reports whether the node replied. Error replies such as LOADING and NOAUTH count.
func (p pong) alive() bool {
	if p.err == nil {
		return true
	}
	_, said := wire.Explain(p.err)
	return said
}

// awaitPong waits for the result of any PING under way. ok is false if there was none
// within limit (or before a wake-up or the end).
func (ln *Lane) awaitPong(pongs <-chan pong, limit time.Duration) (p pong, ok bool) {
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case p = <-pongs:
		return p, true
	case <-t.C:
	case <-ln.probeWake: // the node answered something else: send another PING now
	case <-ln.stopping:
	}
	return p, false
}

// stillDown notes why a PING to a node that is down failed, which may say more than what took it
// out of use: a first connection that takes too long may be refused later. A timeout says less.
func (ln *Lane) stillDown(err error) {
	var late net.Error
	if errors.As(err, &late) && late.Timeout() {
		return
	}
	why, _ := wire.Explain(err)
	ln.mu.Lock()
	defer ln.mu.Unlock()
	if ln.down != nil {
		ln.isDown(ln.advise(why))
	}
}

// pingsFailed takes the node out of use if it has replied to nothing since the first of the
// PINGs left: then no connection to it works. Otherwise the PINGs met connections that are
// dead, or a proxy that does not know them.
func (ln *Lane) pingsFailed(since time.Time, err error) (down bool) {
	why, _ := wire.Explain(err)
	ln.mu.Lock()
	if ln.heard.After(since) {
		ln.mu.Unlock()
		return false
	}
	ready := ln.markDown(ln.advise(why), nil)
	ln.mu.Unlock()
	defer ln.tell()
	deliver(ready)
	return true
}

// pingPatience returns how long to wait for a PING before another one is sent: a few round
// trips, within the bounds of the pauses.
func (ln *Lane) pingPatience() time.Duration {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	return min(max(wire.RoundTrips*ln.rtt, probeFirst), probeMax)
}

// probePause waits until the pause has passed, the node has answered something, or the lane
// closes.
func (ln *Lane) probePause(pause time.Duration) {
	ln.mu.Lock()
	ln.pauseEnds = time.Now().Add(pause)
	ln.mu.Unlock()
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ln.probeWake:
	case <-ln.stopping:
	}
}

// resume acts on an answered PING: it sends what became owed before the PING left, and then
// puts the node back into use. It reports whether the prober is done and, if it is not,
// how long it has to wait before the next PING.
func (ln *Lane) resume(p pong) (done bool, wait time.Duration) {
	ln.mu.Lock()
	if ln.refusal.pings && p.err == nil {
		ln.endRefusal()
	}
	ln.mu.Unlock()
	for {
		ln.mu.Lock()
		batch := ln.dueNow(p.sent, time.Now())
		ln.mu.Unlock()
		if len(batch) == 0 {
			break
		}
		if !ln.sendDue(batch) {
			return false, probeFirst
		}
	}
	ln.mu.Lock()
	defer ln.mu.Unlock()
	if ln.down != nil {
		// The failure may be later than the PING, which then says nothing about it.
		if ln.stuck >= maxStuck || ln.downSince.After(p.sent) {
			return false, probeFirst
		}
		ln.change(func() {
			ln.down = nil
			ln.forgetRefusal()
			if p.err != nil {
				ln.refusedPing(p.err)
			}
		})
		if ln.rtt == 0 || p.took < ln.rtt {
			ln.rtt = max(p.took, 1)
		}
	}
	wait = ln.nextDue(time.Now()) // of a repetition, or of what became owed since the PING left
	switch {
	case ln.refusal.pings:
		return false, min(wait, probeMax)
	case ln.owed.len() > 0:
		return false, wait
	}
	ln.probing = false
	ln.notifyIdle()
	return true, 0
}
