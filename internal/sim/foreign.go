package sim

import (
	"fmt"
	"strconv"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/twin/scripts"
	"github.com/seed-ce352c9b/redlock/redlocktest"
)

// This file simulates foreign clients, which store values of their own at our keys, and users without permissions.

// permissions are the permissions that a node's user may lack: commands, as if they were missing in its ACL; nil means all commands.
var permissions = [][]string{{"GET"}, {"GET"}, {"PUBLISH"}, {"EVALSHA", "EVAL"}, {"ZADD"}, {"DEL"}, {"PTTL"}, {"PEXPIRE"}, {"SET"}, nil}

func (f Fault) permission() []string { return permissions[f.N%len(permissions)] }

const noPermission = "NOPERM this user has no permissions to run the command"

// deny removes a permission from the user of a node, or of all nodes, since ACLs are usually the same everywhere.
func (w *world) deny(f Fault) (end func()) {
	var ends []func()
	for i := range w.c.Len() {
		if one := f; f.All || i == f.Node%w.c.Len() {
			one.Node = i
			ends = append(ends, w.denyOne(one))
		}
	}
	return func() {
		for _, end := range ends {
			end()
		}
	}
}

func (w *world) denyOne(f Fault) (end func()) {
	n, denied := w.c.Node(f.Node), f.permission()
	if len(denied) == 0 {
		return w.fails(f, n, noPermission)
	}
	return w.failCommands(f, n, noPermission, denied...)
}

// foreign makes a client that knows nothing of this library lock the key on some nodes, where it is free.
func (w *world) foreign(f Fault) (end func()) {
	key := f.Key % w.s.Keys
	value := fmt.Sprintf("customer %d", w.now())
	w.mu.Lock()
	w.foreignValues[value] = true
	w.mu.Unlock()
	for i := range f.N {
		w.setForeign((f.Node+i)%w.c.Len(), key, value, f.By)
	}
	return func() {
		for i := range w.c.Len() {
			w.evictForeign(i, key, value)
		}
	}
}

func (w *world) setForeign(node, key int, value string, ttl time.Duration) {
	args := []string{"SET", w.s.keyName(key), value, "NX"}
	if ttl > 0 {
		args = append(args, "PX", fmt.Sprint(ttl.Milliseconds()))
	}
	if _, err := w.c.Node(node).Do(args...); err != nil {
		panic("sim: " + err.Error())
	}
}

func (w *world) evictForeign(node, key int, value string) {
	n := w.c.Node(node)
	if v, _ := n.Get(w.s.keyName(key)); v == value {
		n.Evict(w.s.keyName(key))
	}
}

// foreignAt returns a foreign value that is stored at the key, or "".
func (w *world) foreignAt(key int) string {
	for i := range w.c.Len() {
		if v, ok := w.c.Node(i).Get(w.s.keyName(key)); ok && w.isForeign(v) {
			return v
		}
	}
	return ""
}

func (w *world) isForeign(value string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.foreignValues[value]
}

// ordered is the prefix of the values of foreign keys.
const ordered = "an order of "

// keepForeign stores foreign values without a ttl, whenever they are free, at the keys that are not acquired at the end.
func (w *world) keepForeign() {
	for n := 0; w.now() < w.s.Ends(); n++ {
		for key := w.s.Keys - w.s.Alone; key < w.s.Keys; key++ {
			value := ordered + w.s.keyName(key)
			w.mu.Lock()
			w.foreignValues[value] = true
			w.mu.Unlock()
			for i := range w.c.Len() {
				w.setForeign(i, key, value, 0)
			}
		}
		time.Sleep(3*time.Second + w.spread(6, n))
	}
}

// forgeries are what somebody does who can write to the nodes but does not know the protocol. An entry is ahead of all others,
// and counts for a time or for ever.
var forgeries = []func(n *redlocktest.Node, queue, entry string, until time.Time){
	func(n *redlocktest.Node, queue, entry string, until time.Time) {
		n.Do("ZADD", queue, "1", entry)
		n.Do("ZADD", queue, fmt.Sprint(scripts.EndsAt+until.UnixMilli()), entry+"!")
	},
	func(n *redlocktest.Node, queue, entry string, _ time.Time) {
		n.Do("ZADD", queue, "+inf", entry)
		n.Do("ZADD", queue, "+inf", entry+"!")
	},
	func(n *redlocktest.Node, queue, _ string, _ time.Time) {
		if first, _ := n.Do("ZRANGE", queue, "0", "0"); first != nil && len(first.([]any)) > 0 {
			n.Do("ZREM", queue, first.([]any)[0].(string))
		}
	},
	func(n *redlocktest.Node, _, _ string, _ time.Time) {
		channels, err := n.Do("PUBSUB", "CHANNELS")
		if err != nil {
			return
		}
		for _, c := range channels.([]any) {
			n.Do("PUBLISH", c.(string), "1 forged")
		}
	},
}

// forge tampers with a queue, or announces a release that did not happen.
func (w *world) forge(f Fault) (end func()) {
	n := w.c.Node(f.Node)
	queue := w.s.queueName(f.Key)
	defer n.Do("PEXPIRE", queue, strconv.Itoa(int(queueLife.Milliseconds()))) // or the key stays if nobody queues any more
	forgeries[f.N](n, queue, fmt.Sprint("forged ", w.now()), n.Now().Add(f.For))
	return func() {}
}

// removeForeign removes all foreign values, and, as an operator would, the values that nobody else removes.
func (w *world) removeForeign() {
	if !w.s.Edges {
		return
	}
	time.Sleep(w.settled()) // failed adoptions are undone by then
	for i := range w.c.Len() {
		for key := range w.s.Keys {
			if v, _ := w.c.Node(i).Get(w.s.keyName(key)); w.isForeign(v) || w.isTorn(v) {
				w.evictForeign(i, key, v)
			}
		}
	}
}
