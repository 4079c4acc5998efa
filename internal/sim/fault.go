package sim

import (
	"slices"
	"strconv"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/twin/scripts"
	"github.com/seed-ce352c9b/redlock/redlocktest"
)

// fault injects a fault and ends it.
func (w *world) fault(i int) {
	f := w.s.Faults[i]
	time.Sleep(f.At + w.spread(2, i) - w.now())
	w.struck("%v", f)
	w.countFaults(+1, f)
	defer w.countFaults(-1, f)
	end := w.strike(f)
	if end == nil {
		return
	}
	time.Sleep(f.For)
	w.struck("end of %v", f)
	end()
}

// heardThrough are the faults that leave subscriptions as they are, or end them in a way that is noticed at once.
var heardThrough = []Strike{Slow, DropRequest, DropReply, Refuse, Loading, ReadOnly, OOM, Wall}

// rejections are the errors with which a server, or what is taken for one, answers all that is asked of it: each class of error
// that time does not heal by itself, and each that it does.
var rejections = []string{
	"NOAUTH Authentication required.",
	"WRONGPASS invalid username-password pair or user is disabled.",
	noPermission,
	"READONLY You can't write against a read only replica.",
	"MOVED 866 127.0.0.1:6381",
	"CROSSSLOT Keys in request don't hash to the same slot",
	"ERR unknown command 'evalsha', with args beginning with: ", // a Sentinel
	"CLUSTERDOWN Hash slot not served",
	"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
	"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
	"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
	"LOADING Redis is loading the dataset in memory",
}

// countFaults counts the active faults.
func (w *world) countFaults(open int, f Fault) {
	now := w.now()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open += open
	w.quiet = now
	if !slices.Contains(heardThrough, f.Do) {
		w.deafened = now
	}
}

// strike begins a fault and returns the function that ends it, or nil if it has no end.
func (w *world) strike(f Fault) (end func()) {
	node := f.Node % w.c.Len()
	n, c := w.c.Node(node), w.clients[f.Client%len(w.s.Clients)]
	switch f.Do {
	case Slow:
		n.Delay(w.s.Latency+f.By, w.s.Latency+f.Back)
		return w.endWithLast("slow", f, func() { n.Delay(w.s.Latency, w.s.Latency) })
	case DropRequest:
		w.dropRequests(node, f.N)
		return func() { w.dropRequests(node, 0) }
	case DropReply:
		n.DropReplies(f.N)
		return func() { n.DropReplies(0) }
	case LoseReply:
		n.LoseReplies(f.N)
		return func() { n.LoseReplies(0) }
	case Cut:
		n.Partition()
		return w.endWithLast("cut", f, n.Heal)
	case CutRequests:
		n.PartitionRequests()
		return w.endWithLast("cut", f, n.Heal)
	case CutReplies:
		n.PartitionReplies()
		return w.endWithLast("cut", f, n.Heal)
	case CutLink:
		link := c.linkTo(node)
		w.c.Cut(link)
		f.Node = node + 1000*(1+c.i)
		return w.endWithLast("link", f, func() {
			if !c.isDead() && c.linkTo(node) == link {
				w.c.Mend(link)
			}
		})
	case Refuse:
		n.Refuse(true)
		return w.endWithLast("refuse", f, func() { n.Refuse(false) })
	case Hang:
		n.Hang()
		return w.endWithLast("hang", f, n.Resume)
	case Stop:
		n.Stop()
		return w.endWithLast("down", f, n.Start)
	case Restart:
		if w.up(f) {
			n.Restart(true)
		}
	case Loading:
		return w.fails(f, n, "LOADING Redis is loading the dataset in memory")
	case ReadOnly:
		return w.fails(f, n, "READONLY You can't write against a read only replica.")
	case Reject:
		return w.fails(f, n, rejections[f.N])
	case OOM:
		return w.failCommands(f, n, "OOM command not allowed when used memory > 'maxmemory'.", "SET", "ZADD")
	case Lose:
		w.forget(node, func() { n.Stop(); n.FlushAll() })
		return w.endWithLast("down", f, n.Start)
	case Revert:
		if w.up(f) {
			w.forget(node, n.Revert)
		}
	case Evict:
		w.forget(node, func() { n.Evict(w.s.keyName(f.Key % w.s.Keys)) })
	case EvictFence:
		w.forget(node, func() { n.Evict(w.s.registerName(f.Key % w.s.Keys)) })
	case EvictQueue:
		switch queue := w.s.queueName(f.Key % w.s.Keys); f.N {
		case 1:
			n.Do("ZREMRANGEBYSCORE", queue, strconv.FormatInt(scripts.EndsAt, 10), "+inf")
		case 2:
			n.Do("ZREMRANGEBYSCORE", queue, "-inf", strconv.FormatInt(scripts.EndsAt, 10))
		default:
			n.Evict(queue)
		}
	case Vanish, Kill:
		off := w.c.Cut
		if f.Do == Kill {
			off = w.c.Kill
		}
		if c.end("dies", off) {
			w.mu.Lock()
			w.death = w.now()
			w.mu.Unlock()
			return c.startAnother
		}
	case ResetSubs:
		n.ResetSubscribers()
	case MuteSubs:
		n.MuteSubscribers()
	case SlowSubs:
		n.DelaySubscribers(f.By)
		return w.endWithLast("slow-ears", f, func() { n.DelaySubscribers(0) })
	case NoPublish:
		return w.failCommands(f, n, "NOPERM this user has no permissions to access one of the channels", "PUBLISH")
	case NoSubscribe:
		return w.failCommands(f, n, noPermission, "SUBSCRIBE")
	case NoRegister:
		return w.everywhere(func(n int) func() {
			f.Node = n
			return w.failCommands(f, w.c.Node(n), "LOADING Redis is loading the dataset in memory", "ZADD")
		})
	case Unheard:
		const all = 1 << 20
		return w.everywhere(func(n int) func() {
			f.Node = n
			w.c.Node(n).LoseReplies(all)
			return w.endWithLast("unheard", f, func() { w.c.Node(n).LoseReplies(0) })
		})
	case Deny:
		return w.deny(f)
	case Foreign:
		return w.foreign(f)
	case Forge:
		return w.forge(f)
	case Throw:
		return w.throw(f)
	case Flush:
		w.forget(node, n.FlushAll)
	case Rate:
		n.SetClockRate(f.Rate)
		return w.endWithLast("rate", f, func() { n.SetClockRate(w.s.rate(f.Node % w.c.Len())) })
	case Jump:
		n.JumpClock(f.By)
	case Wall:
		w.setWall(c, f.By)
	case Pause:
		c.pause(f.For)
	default:
		panic("sim: no fault " + f.Do)
	}
	return nil
}

// everywhere begins a fault on every node, and returns the function that ends it.
func (w *world) everywhere(begin func(node int) (end func())) (end func()) {
	var ends []func()
	for i := range w.c.Len() {
		ends = append(ends, begin(i))
	}
	return func() {
		for _, end := range ends {
			end()
		}
	}
}

func (w *world) fails(f Fault, n *redlocktest.Node, text string) func() {
	n.Fail(text)
	return w.endWithLast("fail", f, func() { n.Fail("") })
}

// failCommands makes the node answer these commands with an error.
func (w *world) failCommands(f Fault, n *redlocktest.Node, text string, commands ...string) func() {
	for _, command := range commands {
		n.FailCommand(command, text)
	}
	return w.endWithLast("fail "+commands[0], f, func() {
		for _, command := range commands {
			n.FailCommand(command, "")
		}
	})
}

// endWithLast makes overlapping faults of one kind on a node end with the last of them: the end of one fault must not start a node
// that another fault keeps down.
func (w *world) endWithLast(kind string, f Fault, end func()) func() {
	kind += nodeName(f.Node)
	w.mu.Lock()
	w.depth[kind]++
	w.mu.Unlock()
	return func() {
		w.mu.Lock()
		w.depth[kind]--
		over := w.depth[kind] == 0
		w.mu.Unlock()
		if over {
			end()
		}
	}
}

// up reports whether no other fault keeps the node down.
func (w *world) up(f Fault) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.depth["down"+nodeName(f.Node)] == 0
}

// dropRequests makes the connection break before each of the next count commands is executed.
func (w *world) dropRequests(node, count int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.drops[node] = count
}

// saveEverySecond saves the nodes' data to their disks, from which Revert restores it.
func (w *world) saveEverySecond() {
	if !w.s.strikes(Revert) {
		return
	}
	for i := range w.c.Len() {
		w.faults.Go(func() {
			n := w.c.Node(i)
			for w.now() < w.s.Ends() {
				time.Sleep(time.Second + w.spread(3, i))
				n.Save()
			}
		})
	}
}
