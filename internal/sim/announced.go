package sim

import (
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/harness"
	"github.com/seed-ce352c9b/redlock/internal/seam"
)

// The judges of announcements, in both worlds: a release that waiters were told of is followed by a try, and attempts that fail
// do not make waiters try all the time. watchWaiters gives a waiter time to find a free lock by itself, and judges in a calm;
// these judge what was announced, also soon after a fault.

// announced is what the nodes announced to waiters, and what these asked for.
type announced struct {
	majority int

	mu    sync.Mutex
	freed map[string]*freeing // by key: what was deleted last
	tried map[trier][]attempt
	told  int // releases that a majority of the nodes told a client of
}

// A freeing is the deletion of a value by the library. A majority of the nodes has deleted it since at, and announced that to a
// waiter; at is 0 until then.
type freeing struct {
	value string
	told  map[int]uint64 // by client that was notified, if it listens: these nodes, as bits
	at    instant
	over  bool // somebody has asked since, or it was judged
}

// A trier is a process that asks for a key.
type trier struct{ key, label string }

// An attempt is a value with which somebody asked for a lock, and when it first reached a node.
type attempt struct {
	value string
	at    instant
}

func newAnnounced(nodes int) announced {
	return announced{majority: nodes/2 + 1, freed: map[string]*freeing{}, tried: map[trier][]attempt{}}
}

// takesIn takes in a command that a node executes. It returns the keys and values of the locks that the command deletes and
// announces, if the node has them.
func (a *announced) takesIn(args []string, now instant) (deletes [][2]string) {
	switch verb := harness.Verb(args); verb {
	case "acquire", "turn":
		a.tries(harness.KeyOf(args), harness.ValueOf(args), now)
		a.asks(harness.KeyOf(args))
	case "wait":
		a.asks(harness.KeyOf(args))
	case "pttl":
		a.asks(args[1])
	case "release", "rollback":
		if tell := harness.Tell(args); tell != "" && tell != "0" {
			deletes = append(deletes, [2]string{args[3], harness.ValueOf(args)})
		}
	case "releases":
		keys, _ := strconv.Atoi(args[2])
		argv := args[3+keys:]
		count, _, _ := strings.Cut(argv[0], " ")
		queues, _ := strconv.Atoi(count)
		for i := range queues {
			deletes = append(deletes, [2]string{args[3+i], argv[1+i]})
		}
	}
	return deletes
}

// asks takes in that somebody asks for a key.
func (a *announced) asks(key string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if f := a.freed[key]; f != nil && f.at != 0 {
		f.over = true
	}
}

// tries takes in an attempt.
func (a *announced) tries(key, value string, now instant) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := trier{key, labelOf(value)}
	all := a.tried[t]
	if slices.ContainsFunc(all, func(x attempt) bool { return x.value == value }) {
		return
	}
	for len(all) > 0 && all[0].at < now-triesWindow {
		all = all[1:]
	}
	a.tried[t] = append(all, attempt{value, now})
}

// deleted takes in that a node deletes a value, and announces that to these clients.
func (a *announced) deleted(node int, key, value string, told []int, now instant) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f := a.freed[key]
	if f == nil || f.value != value {
		f = &freeing{value: value, told: map[int]uint64{}}
		a.freed[key] = f
	}
	for _, client := range told {
		if f.told[client] |= 1 << node; a.isMajority(f.told[client]) && f.at == 0 {
			f.at = now
			a.told++
		}
	}
}

func (a *announced) isMajority(nodes uint64) bool { return bits.OnesCount64(nodes) >= a.majority }

// unasked returns the clients that were told, at an instant, that a key is free, if nobody has asked for it for that time since.
// It returns them once.
func (a *announced) unasked(key string, now, limit instant) (told []int, at instant) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f := a.freed[key]
	if f == nil || f.at == 0 || f.over || now-f.at < limit {
		return nil, 0
	}
	f.over = true
	for client, nodes := range f.told {
		if a.isMajority(nodes) {
			told = append(told, client)
		}
	}
	slices.Sort(told)
	return told, f.at
}

const (
	// undisturbed is how long before an announcement there must be no fault.
	undisturbed = 150 * time.Millisecond

	// maxUnasked bounds the time after which somebody asks for a lock that a waiter was told is free: what the network and the waiter
	// need, and the longest of the pauses of package wait, for which a Locker that has had all its turns leaves the lock to others.
	maxUnasked = 150*time.Millisecond + 250*time.Millisecond

	// maxTries bounds the attempts of one process for a key in triesWindow, while nobody has the lock: the first ones of its calls, and
	// one after each pause, twice if others are in the same position. Two waiters that woke each other would make some hundred.
	maxTries    = 40
	triesWindow = 250 * time.Millisecond
)

// stormOf returns a process that makes more than maxTries attempts for a key in triesWindow, and how many. It forgets them then.
func (a *announced) stormOf(key string, now instant) (label string, n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for t, all := range a.tried {
		if t.key != key {
			continue
		}
		n := 0
		for _, x := range all {
			if x.at >= now-triesWindow {
				n++
			}
		}
		if n > maxTries {
			delete(a.tried, t)
			return t.label, n
		}
	}
	return "", 0
}

// notices takes in a command that a node is about to execute.
func (w *world) notices(node int, args []string) {
	for _, d := range w.said.takesIn(args, w.now()) {
		if held, ok := w.c.Node(node).Get(d[0]); ok && held == d[1] {
			w.said.deleted(node, d[0], d[1], w.firstTwo(node, d[0]), w.now())
		}
	}
}

// firstTwo returns the clients of the first two entries of a node's queue, if they hear the node.
func (w *world) firstTwo(node int, name string) (clients []int) {
	reply, err := w.c.Node(node).Do("ZRANGE", "{"+name+"}:queue", "0", "1")
	entries, _ := reply.([]any)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		entry, _ := e.(string)
		for i, c := range w.clients {
			if strings.HasPrefix(entry, c.label()+":") && !c.isDead() {
				if at := seam.Peek(c.locker()).Nodes[node]; at.Subscribed > 0 {
					clients = append(clients, i)
				}
			}
		}
	}
	return clients
}

// judgeAnnounced judges a lock that a waiter was told is free, and that nobody has asked for since; and how often it is asked for.
func (w *world) judgeAnnounced(key int) {
	name, now := w.s.keyName(key), w.now()
	w.judgeTries(key)
	told, at := w.said.unasked(name, now, maxUnasked+4*w.s.Latency)
	w.mu.Lock()
	told = slices.DeleteFunc(told, func(client int) bool { return !w.isWaiting(client, key, at-undisturbed-6*w.s.Latency) })
	if w.open > 0 || len(w.s.Faults) > 0 && (w.quiet >= at-undisturbed || w.deafened >= at-heardAgain) {
		told = nil
	}
	w.mu.Unlock()
	for _, client := range told {
		if !w.clients[client].stoodStill(w.began.Add(at - undisturbed)) {
			w.wrong("liveness", key, "%s was freed at %v, c%d was told of that by a majority, and nobody has asked for it since", name, at, client)
			return
		}
	}
}

// judgeTries judges how often each process asks for a key that nobody has.
func (r *record) judgeTries(key int) {
	now := r.now()
	r.mu.Lock()
	k := r.latest[key]
	free := k == nil || k.End() < now-triesWindow
	r.mu.Unlock()
	if !free {
		return
	}
	if label, n := r.said.stormOf(r.h.Schedule.keyName(key), now); n > 0 {
		r.wrong("liveness", key, "%s made %d attempts in %v while nobody had the lock", label, n, triesWindow)
	}
}
