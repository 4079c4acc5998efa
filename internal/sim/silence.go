package sim

import (
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/harness"
	"github.com/seed-ce352c9b/redlock/internal/seam"
)

// The judge of announcements. watchWaiters gives a waiter time to find a free lock by itself, and judges in a calm; this one judges
// what was announced, also soon after a fault.

// A freeing is the deletion of a value by the library. A majority of the nodes has deleted it since at, and announced that to a
// waiter; at is 0 until then.
type freeing struct {
	value string
	nodes uint64         // that deleted it, as bits
	told  map[int]uint64 // by client that was notified, if it has listened: these nodes
	at    instant
	over  bool // somebody has asked since, or it was judged
}

// maxUnasked bounds the time after which somebody asks for a lock that a waiter was told is free: what the network and the waiter need,
// and the longest of the pauses of package wait, for which a Locker that has had all its turns leaves the lock to others.
const maxUnasked = 150*time.Millisecond + 250*time.Millisecond

// notices takes in a command that a node is about to execute.
func (w *world) notices(node int, args []string) {
	switch verb := harness.Verb(args); verb {
	case "acquire", "turn", "wait", "pttl":
		name := harness.KeyOf(args)
		if verb == "pttl" {
			name = args[1]
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if f := w.freed[name]; f != nil && f.at != 0 {
			f.over = true
		}
	case "release", "rollback":
		if args[2] == "3" && (len(args) < 10 || args[9] != "0") {
			w.deletes(node, args[3], harness.ValueOf(args))
		}
	case "releases":
		keys, _ := strconv.Atoi(args[2])
		argv := args[3+keys:]
		queues, _ := strconv.Atoi(argv[0])
		for i := range queues {
			w.deletes(node, args[3+i], argv[1+i])
		}
	}
}

// deletes takes in that a node is asked to delete a value, and to announce that.
func (w *world) deletes(node int, name, value string) {
	if held, ok := w.c.Node(node).Get(name); !ok || held != value {
		return
	}
	told := w.firstTwo(node, name)
	w.mu.Lock()
	defer w.mu.Unlock()
	f := w.freed[name]
	if f == nil || f.value != value {
		f = &freeing{value: value, told: map[int]uint64{}}
		w.freed[name] = f
	}
	f.nodes |= 1 << node
	for _, client := range told {
		if f.told[client] |= 1 << node; w.isMajority(f.told[client]) && f.at == 0 {
			f.at = w.now()
		}
	}
}

func (w *world) isMajority(nodes uint64) bool { return bits.OnesCount64(nodes) > w.c.Len()/2 }

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

// judgeAnnounced judges a lock that a waiter was told is free, and that nobody has asked for since.
func (w *world) judgeAnnounced(key int) {
	const undisturbed = 150 * time.Millisecond
	name, now := w.s.keyName(key), w.now()
	w.mu.Lock()
	f := w.freed[name]
	if f == nil || f.at == 0 || f.over || now-f.at < maxUnasked+4*w.s.Latency {
		w.mu.Unlock()
		return
	}
	f.over = true
	at := f.at
	var told []int // clients that wait and have been told by a majority
	if w.open == 0 && (len(w.s.Faults) == 0 || w.quiet < at-undisturbed && w.deafened < at-heardAgain) {
		for task, m := range w.queue {
			client := w.s.Tasks[task].Client
			if m.since < at-undisturbed-6*w.s.Latency && !m.all && slices.Contains(m.keys, key) && w.isMajority(f.told[client]) {
				told = append(told, client)
			}
		}
	}
	w.mu.Unlock()
	slices.Sort(told)
	for _, client := range told {
		if !w.clients[client].stoodStill(w.began.Add(at - undisturbed)) {
			w.wrong("liveness", key, "%s was freed at %v, c%d was told of that by a majority, and nobody has asked for it since", name, at, client)
			return
		}
	}
}
