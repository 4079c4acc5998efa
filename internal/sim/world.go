package sim

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/seam"
	"github.com/seed-ce352c9b/redlock/redlocktest"
)

var newLocker = seam.NewLocker.(func(opt redlock.Options, steady, wall func() time.Time, seed uint64, nodes ...redlock.Node) (*redlock.Locker, error))

// With a single connection to a near node, no command could overtake another there.
func init() { *seam.MinBatches = 2 }

// A world executes one schedule. Its clients may use what it knows (who holds which lock, and until when): they are
// adversaries, and a real client could do the same by chance.
type world struct {
	record
	s        *Schedule
	c        *redlocktest.Cluster
	clients  []*client
	tasks    sync.WaitGroup
	faults   sync.WaitGroup
	watchers sync.WaitGroup // watchers of the nodes, which run until calm is closed
	calm     chan struct{}  // closed when there will be no more faults

	// mu of the record guards these.
	lost          map[string]instant // values that a majority no longer stores, and since when
	depth         map[string]int     // number of active faults, by kind and node
	drops         []int              // number of requests to drop, by node
	deafened      instant            // when a fault last began or ended that may leave subscriptions half-open, or take entries from queues
	death         instant            // when a client last died by a fault
	fickle        map[int][]func()   // by key: the callers that give up at the next release
	join          map[int][]joiner   // by key: the callers that queue just before the next release
	foreignValues map[string]bool    // values of foreign clients
	throws        map[[2]int]int     // number of active faults that make calls panic, by client and node
}

// Run executes a schedule in a bubble and returns its history. It does not judge. If trace is set, the history includes the
// number and a hash of all commands that the nodes receive.
func Run(t *testing.T, s *Schedule, trace bool) *History {
	t.Helper()
	var h *History
	redlocktest.BubbleFunc(t, func() {
		w := &world{
			s: s, c: redlocktest.NewSeeded(t, s.Nodes, s.Seed), record: newRecord(s), calm: make(chan struct{}),
			lost: map[string]instant{}, depth: map[string]int{}, fickle: map[int][]func(){}, join: map[int][]joiner{}, foreignValues: map[string]bool{}, throws: map[[2]int]int{}, death: -time.Hour, deafened: -time.Hour, drops: make([]int, s.Nodes),
		}
		h = w.h
		for i := range w.c.Len() {
			w.setUpNode(i)
		}
		tracers := w.hookNodes(trace)
		for i := range s.Clients {
			w.clients = append(w.clients, w.newClient(i))
		}
		for i := range s.Tasks {
			w.tasks.Go(func() { w.task(i) })
		}
		for i := range s.Faults {
			w.faults.Go(func() { w.fault(i) })
		}
		w.saveEverySecond()
		w.faults.Go(w.audit)
		if s.Edges {
			w.faults.Go(w.keepForeign)
			w.watchers.Go(w.watchStays)
		}
		if s.Several {
			w.watchers.Go(w.watchKept)
		}
		if !s.Unsafe { // keys may outlive their ttl
			w.faults.Go(w.watchWaiters)
		}
		w.tasks.Wait()
		w.faults.Wait()
		close(w.calm)
		w.watchers.Wait()
		w.removeForeign()
		w.revive()
		w.leftovers()
		w.closeLockers()
		h.Length = w.now()
		for _, k := range w.live {
			k.Until = k.lock.Until().Sub(w.began)
		}
		for i, tr := range tracers {
			h.Commands += tr.n
			h.Trace = mix(h.Trace, uint64(i), tr.sum.Sum64())
		}
	})
	return h
}

// spread returns a small offset for a time in the schedule, so that no two events happen at the same instant, where the
// scheduler would choose their order. A shrunk schedule is full of equal times.
func (w *world) spread(kind, i int) time.Duration {
	return time.Duration(mix(w.s.Seed, uint64(kind), uint64(i)) % 4093)
}

// mix is splitmix64's finalizer over a running sum.
func mix(vs ...uint64) uint64 {
	h := uint64(0)
	for _, v := range vs {
		h += v + 0x9e3779b97f4a7c15
		h ^= h >> 30
		h *= 0xbf58476d1ce4e5b9
		h ^= h >> 27
		h *= 0x94d049bb133111eb
		h ^= h >> 31
	}
	return h
}

// revive acquires every key after the last fault. This must succeed within the longest ttl, plus the pause of go-redis
// between two dials, plus the time that the library needs to notice.
func (w *world) revive() {
	w.useFreshKey()
	fresh := w.newClient(len(w.clients))
	w.clients = append(w.clients, fresh)
	const slack = 5 * time.Second
	ttl := w.s.longest()
	if w.s.Edges { // no holder dies that has adopted for longer
		ttl = min(ttl, time.Minute)
	}
	bound := ttl + ttl/10 + slack + w.quarantine()
	for key := range w.s.Keys - w.s.Alone {
		c := fresh
		for i := range w.clients { // a client from before the faults, if there is one: it has connections to nodes that were down
			if old := w.clients[(key+i)%len(w.clients)]; !old.isDead() {
				c = old
				break
			}
		}
		d := w.newTask(c, -1, Task{Client: c.i, Key: key, TTL: 2 * time.Second, Wait: bound})
		if k := d.revive(); k != nil {
			if err := k.lock.Release(context.Background()); err != nil {
				w.wrong("liveness", key, "release on a healthy cluster: %v", err)
			}
		}
	}
}

// quarantine returns how long a node may grant nothing, counted from the first request for a grant after it may have lost
// its memory: it counts by its own clock, from its start, which it derives from an uptime in whole seconds.
func (w *world) quarantine() time.Duration {
	if w.s.Guard == 0 {
		return 0
	}
	return w.s.Guard + w.s.Guard/10 + 2*time.Second
}

// useFreshKey acquires and releases a key that no client has used, so that what it leaves behind is checked, too.
func (w *world) useFreshKey() {
	c := w.newClient(len(w.clients))
	w.clients = append(w.clients, c)
	ttl := time.Minute
	if w.s.Guard > 0 {
		ttl = w.s.Guard
		// The last fault may have caused a quarantine, which begins with the next request for a grant.
		if lock, err := c.locker().TryAcquire(context.Background(), "once", ttl); err == nil {
			lock.Release(context.Background())
		}
		time.Sleep(w.quarantine())
	}
	lock, err := c.locker().TryAcquire(context.Background(), "once", ttl)
	if err != nil {
		w.wrong("liveness", -1, "acquire of an unused key: %v", err)
		return
	}
	if err := lock.Release(context.Background()); err != nil {
		w.wrong("liveness", -1, "release on a healthy cluster: %v", err)
	}
}

// judgeState judges that a Locker keeps nothing when all its locks are gone, and uses every node again.
func (w *world) judgeState(c *client) {
	state := seam.Peek(c.locker())
	if n := state.Held + state.Leaving; n != 0 {
		w.wrong("I4", -1, "c%d keeps %d locks and clean-ups", c.i, n)
	}
	for i, n := range state.Nodes {
		if n.Owed != 0 {
			w.wrong("I4", -1, "c%d has %d pending clean-ups for %s", c.i, n.Owed, nodeName(i))
		}
		if n.Down {
			w.wrong("I5", -1, "c%d does not use %s again", c.i, nodeName(i))
		}
	}
}

// isVerdict reports whether err is nil, or has only errors of locks that Close could not release: they were lost, or too
// few nodes replied. Whether anything stays for longer than it may is judged by the keys.
func isVerdict(err error) bool {
	switch e := err.(type) {
	case nil, *redlock.QuorumError:
		return true
	case interface{ Unwrap() []error }:
		return !slices.ContainsFunc(e.Unwrap(), func(err error) bool { return !isVerdict(err) })
	}
	return false
}

// closeLockers closes all Lockers, which must be quick and succeed.
func (w *world) closeLockers() {
	for _, c := range w.clients {
		if c.isDead() {
			continue
		}
		w.judgeState(c)
		began := w.now()
		if err := c.locker().Close(); !isVerdict(err) {
			w.wrong("I4", -1, "Close of c%d: %v", c.i, err)
		}
		if took := w.now() - began; took > 3*time.Second {
			w.wrong("I4", -1, "Close of c%d took %v", c.i, took)
		}
	}
}
