package sim

import (
	"time"

	"github.com/seed-ce352c9b/redlock/internal/proxy"
)

// strike injects a fault, and returns when it has ended. The faults of one node follow one another.
func (w *realWorld) strike(f Fault) {
	w.countFaults(+1, f)
	defer w.countFaults(-1, f)
	w.struck("%v", f)
	srv := w.servers[f.Node]
	last := func() { time.Sleep(f.For) }
	switch f.Do {
	case Hang:
		srv.Stop()
		last()
		srv.Cont()
	case Stop:
		w.kill(f, last)
	case Restart:
		w.kill(f, func() {})
	case Lose:
		w.forget(f.Node, func() { w.kill(f, last) })
	case Flush:
		w.forget(f.Node, func() { w.command(f.Node, "flushall") })
	case realPauseWrite:
		w.command(f.Node, "client", "pause", f.For.Milliseconds(), "write")
		last()
	case realPauseAll:
		w.command(f.Node, "client", "pause", f.For.Milliseconds(), "all")
		last()
	case realKillNormal:
		w.command(f.Node, "client", "kill", "type", "normal", "skipme", "yes")
	case realKillPubSub:
		w.command(f.Node, "client", "kill", "type", "pubsub")
	case realScriptFlush:
		w.command(f.Node, "script", "flush")
	case OOM:
		w.command(f.Node, "config", "set", "maxmemory", "1")
		last()
		w.command(f.Node, "config", "set", "maxmemory", "0")
	case Slow:
		w.links(f, func(p *proxy.Proxy) { p.Delay(f.By, f.Back) })
		last()
		w.links(f, func(p *proxy.Proxy) { p.Delay(0, 0) })
	case Cut, CutRequests, CutReplies, CutLink:
		w.links(f, func(p *proxy.Proxy) { p.Hold(f.Do != CutReplies, f.Do != CutRequests) })
		last()
		w.links(f, func(p *proxy.Proxy) { p.Hold(false, false) })
	case Refuse:
		w.refuse(f, true)
		last()
		w.refuse(f, false)
	case DropRequest:
		w.dropping(f, (*proxy.Proxy).DropRequest)
	case DropReply:
		w.dropping(f, (*proxy.Proxy).DropReply)
	case LoseReply:
		w.dropping(f, (*proxy.Proxy).LoseReply)
	case realReset:
		w.links(f, (*proxy.Proxy).Break)
	default:
		panic("sim: no real fault " + f.Do)
	}
	if f.For > 0 {
		w.struck("%s %s is over", f.Do, nodeName(f.Node))
	}
}

// countFaults counts the active faults, and at its beginning each by its kind.
func (w *realWorld) countFaults(open int, f Fault) {
	now := w.now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if open > 0 {
		w.faults[f.Do]++
	}
	w.open += open
	w.quiet = now
	if f.Do == LoseReply {
		w.deaf[f.Node] = now + heardAgain
	}
}

// kill kills a server's process and starts it again. Meanwhile the proxies refuse connections, as its port does: anybody can
// take the port then, for example a server of another test.
func (w *realWorld) kill(f Fault, meanwhile func()) {
	w.servers[f.Node].Kill()
	w.refuse(f, true)
	meanwhile()
	w.servers[f.Node].Restart()
	w.refuse(f, false)
}

func (w *realWorld) refuse(f Fault, refuse bool) {
	w.links(f, func(p *proxy.Proxy) {
		if err := p.Refuse(refuse); err != nil {
			w.t.Errorf("%v", err)
		}
	})
}

// dropping drops the n-th chunk of every client, repeatedly.
func (w *realWorld) dropping(f Fault, drop func(*proxy.Proxy, int)) {
	const every = 50 * time.Millisecond
	for over := w.now() + f.For; w.now() < over; time.Sleep(every) {
		w.links(f, func(p *proxy.Proxy) { drop(p, f.N) })
	}
	w.links(f, func(p *proxy.Proxy) { drop(p, 0) })
}

// links calls a function for each proxy that a fault concerns.
func (w *realWorld) links(f Fault, do func(*proxy.Proxy)) {
	for _, c := range w.clients {
		for node, p := range c.proxies {
			if node == f.Node && (f.Do != CutLink || c.i == f.Client) {
				do(p)
			}
		}
	}
}

// forget injects a fault by which a node loses its data, and determines which claims do not need that node.
func (w *realWorld) forget(node int, strike func()) {
	from := w.now()
	strike()
	f := forgetting{node: node, from: from, to: w.now()}
	w.struck("%s has forgotten everything", nodeName(node))
	w.mu.Lock()
	n := len(w.forgettings)
	w.forgettings = append(w.forgettings, f)
	var live []*holding
	for _, k := range w.live {
		if k.Ended == never {
			live = append(live, k)
		}
	}
	w.mu.Unlock()
	at := w.now()
	untils := make([]instant, len(live))
	for i, k := range live {
		untils[i] = k.lock.Until().Sub(w.began)
	}
	keys := make([]int, w.s.Keys)
	for i := range keys {
		keys[i] = i
	}
	seen := w.look(keys...)
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, k := range live {
		carry := 0
		for j := range seen {
			if s := seen[j][k.Key]; j != node && s.ok && s.value == k.Value && s.sent+s.left >= untils[i] {
				carry++
			}
		}
		if carry > w.s.Nodes/2 {
			w.proofs = append(w.proofs, proof{value: k.Value, forgetting: n, at: at})
		}
	}
}
