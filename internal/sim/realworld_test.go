package sim

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/proxy"
	"github.com/seed-ce352c9b/redlock/internal/realredis"
)

// A realWorld executes one round in real time: five redis-server processes, a proxy for each pair of client and server, and all
// clients in this process, so that one clock orders all observations.
//
// A busy machine must not cause a violation. A claim is recorded from an instant after its acquisition has returned until one
// before its holder gives it up, so it is part of what the library promised, however late this process ran in between.
type realWorld struct {
	record
	t       *testing.T
	s       *Schedule
	servers []*realredis.Server
	admin   []*redis.Client // bypass the proxies
	clients []*realClient
	tardy   *tardiness
	lookers sync.WaitGroup // active reads of the nodes
	watched chan struct{}  // closed when announcements are no longer judged

	// mu of the record guards these.
	forgettings []forgetting
	proofs      []proof
	renewals    []renewal
	glimpses    []glimpse
	tellings    []telling
	faults      map[Strike]int
	deaf        [realNodes]instant // until when clients may have subscriptions to a node that are dead and not yet given up
}

// A forgetting is a loss of data by a node, within an interval: the exact instant is unknown.
type forgetting struct {
	node     int
	from, to instant
}

// A proof shows that a claim did not need the node that lost its data: at a later instant, a majority of the others stored it
// until its Until.
type proof struct {
	value      string
	forgetting int
	at         instant // before Until was read
}

// A renewal is a round of an extension that was decided.
type renewal struct {
	label, key  string
	start, seen instant
}

// A glimpse is what the nodes stored of a claim at some moment.
type glimpse struct {
	value    string
	until    instant // read before the nodes were
	taken    instant // when all had replied
	answered int
	without  int // number of these that certainly do not store it until then
	below    int // number of these that have a register below its fence
}

// A telling is a context that ended, or that had not ended by then.
type telling struct {
	at, until instant
	key       int
	who       string
	open      bool // it had not ended
}

// playReal executes a round and returns its world. The servers are in their initial state before and after it.
func playReal(t *testing.T, s *Schedule, servers []*realredis.Server, tardy *tardiness) *realWorld {
	w := &realWorld{
		record: newRecord(s), t: t, s: s, servers: servers, tardy: tardy, faults: map[Strike]int{}, watched: make(chan struct{}),
	}
	for _, srv := range servers {
		w.admin = append(w.admin, srv.Client(func(o *redis.Options) {
			o.ReadTimeout, o.DialTimeout, o.DialerRetries, o.MaxRetries, o.PoolSize, o.ContextTimeoutEnabled = time.Second, time.Second, 1, -1, 256, true
		}))
	}
	for i := range w.admin {
		w.command(i, "flushall")
	}
	for i := range s.Clients {
		w.clients = append(w.clients, w.newClient(i))
	}
	var tasks, faults, watchers sync.WaitGroup
	for i := range servers {
		watchers.Go(func() { w.monitor(i) })
	}
	watchers.Go(w.judgeSilence)
	for i := range s.Tasks {
		tasks.Go(func() { w.task(i) })
	}
	lanes := make([][]Fault, realNodes) // the faults of a node follow one another; those of a link are independent
	for _, f := range s.Faults {
		if f.Do == CutLink {
			lanes = append(lanes, []Fault{f})
		} else {
			lanes[f.Node] = append(lanes[f.Node], f)
		}
	}
	for _, list := range lanes {
		faults.Go(func() {
			for _, f := range list {
				time.Sleep(f.At - w.now())
				w.strike(f)
			}
		})
	}
	faults.Wait()
	w.struck("all faults are over")
	tasks.Wait()
	close(w.watched)
	watchers.Wait()
	w.revive()
	w.leftovers()
	w.lookers.Wait()
	for _, k := range w.live {
		k.Until = k.lock.Until().Sub(w.began)
	}
	w.closeLockers()
	w.h.Length = w.now()
	return w
}

// claim records an acquisition after it has returned.
func (w *realWorld) claim(c *realClient, task, key int, called instant, ttl time.Duration, lock *redlock.Lock) *holding {
	k := w.granted(c.i, task, key, called, ttl, lock)
	k.Registers = 1<<w.s.Nodes - 1 // on a majority of them; which one is unknown, so each loss of data ends an epoch
	w.mu.Lock()
	w.enterLocked(k)
	w.mu.Unlock()
	w.started(k)
	w.glimpse(k)
	return k
}

// glimpse checks in the background whether a majority stores the claim.
func (w *realWorld) glimpse(k *holding) {
	w.lookers.Go(func() {
		g := glimpse{value: k.Value, until: k.lock.Until().Sub(w.began)}
		seen := w.look(k.Key)
		g.taken = w.now()
		const grain = 2 * time.Millisecond // PTTL is in whole milliseconds
		for i := range seen {
			s := seen[i][0]
			switch {
			case !s.ok:
				continue
			case s.value != k.Value && s.had < g.until, s.value == k.Value && s.had+s.left+grain < g.until:
				g.without++
			}
			if s.register < k.Fence {
				g.below++
			}
			g.answered++
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.glimpses = append(w.glimpses, g)
	})
}

// A realClient is one process, as far as the nodes can tell.
type realClient struct {
	w       *realWorld
	i       int
	proxies []*proxy.Proxy

	mu      sync.Mutex
	lockers [2]*redlock.Locker // the second is fair
	links   []*redis.Client    // if the test created them
	life    int
	ending  bool
}

func (w *realWorld) newClient(i int) *realClient {
	c := &realClient{w: w, i: i}
	for _, srv := range w.servers {
		p, err := proxy.Start(srv.Addr())
		if err != nil {
			w.t.Fatal(err)
		}
		c.proxies = append(c.proxies, p)
	}
	c.start()
	return c
}

// start opens the process's Lockers: half of the clients use Open, half use New with go-redis's defaults.
func (c *realClient) start() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.life++
	var urls []string
	for _, p := range c.proxies {
		urls = append(urls, p.Addr())
	}
	conf := c.w.s.Clients[c.i]
	var nodes []redlock.Node
	if conf.Wall != 0 {
		c.links = nil
		for _, u := range urls {
			n := redis.NewClient(&redis.Options{Addr: u})
			c.links = append(c.links, n)
			nodes = append(nodes, n)
		}
	}
	for i := range c.lockers {
		opt := redlock.Options{Name: c.labelLocked(), NodeTimeout: conf.NodeTimeout, Fair: i == 1, FenceLife: otherLife * time.Duration(c.i%2), Trace: redlock.Trace{Round: c.observer(c.labelLocked())}}
		var err error
		if nodes == nil {
			c.lockers[i], err = redlock.Open(opt, urls...)
		} else {
			wall := func() time.Time { return time.Now().Add(conf.Wall) }
			c.lockers[i], err = newLocker(opt, nil, wall, mix(c.w.s.Seed, uint64(c.i), uint64(c.life), uint64(i)), nodes...)
		}
		if err != nil {
			panic(err)
		}
	}
	c.ending = false
}

func (c *realClient) labelLocked() string { return fmt.Sprintf("c%d.%d", c.i, c.life) }

func (c *realClient) locker(key int) *redlock.Locker {
	c.mu.Lock()
	defer c.mu.Unlock()
	if key >= realFair {
		return c.lockers[1]
	}
	return c.lockers[0]
}

// observer records when extensions are decided: the claim's Until has moved by then.
func (c *realClient) observer(label string) func(context.Context, redlock.Round) {
	return func(_ context.Context, r redlock.Round) {
		if r.Op != redlock.OpExtend {
			return
		}
		w := c.w
		w.mu.Lock()
		defer w.mu.Unlock()
		w.renewals = append(w.renewals, renewal{label: label, key: r.Key, start: r.Start.Sub(w.began), seen: w.now()})
	}
}

// close closes the process's Lockers, which may be in use. It returns false if another caller is already closing them.
func (c *realClient) close() bool {
	c.mu.Lock()
	mine, lockers, links, label := !c.ending, c.lockers, c.links, c.labelLocked()
	c.ending = true
	c.mu.Unlock()
	if !mine {
		return false
	}
	w := c.w
	w.closing(label)
	var both sync.WaitGroup
	for _, l := range lockers {
		both.Go(func() {
			began := w.now()
			if err := l.Close(); !isVerdict(err) {
				w.wrong("I4", -1, "Close of c%d: %v", c.i, err)
			}
			w.mu.Lock()
			w.tellings = append(w.tellings, telling{at: w.now(), until: began + closeWithin, key: -1, who: fmt.Sprintf("Close of c%d", c.i)})
			w.mu.Unlock()
		})
	}
	both.Wait()
	for _, n := range links {
		n.Close()
	}
	return true
}

// closeWithin is two node timeouts, the longest that Close may take.
const closeWithin = 2 * time.Second

// die ends the process without a clean-up: nothing more of it reaches any node.
func (c *realClient) die() {
	c.w.struck("c%d dies", c.i)
	for _, p := range c.proxies {
		p.Refuse(true)
	}
	mine := c.close()
	for _, p := range c.proxies {
		if err := p.Refuse(false); err != nil {
			c.w.t.Errorf("%v", err)
		}
	}
	if !mine {
		return // the caller that closes it starts it again
	}
	c.w.struck("c%d starts again", c.i)
	c.start()
}

// command executes one of the operator's own commands, and repeats it until it is answered.
func (w *realWorld) command(node int, args ...any) any {
	const limit = 30 * time.Second
	for deadline := time.Now().Add(limit); ; time.Sleep(5 * time.Millisecond) {
		got, err := w.admin[node].Do(context.Background(), args...).Result()
		if err == nil || errors.Is(err, redis.Nil) {
			return got
		}
		if time.Now().After(deadline) {
			w.t.Errorf("%s: %v: %v", nodeName(node), args, err)
			return nil
		}
	}
}

// A sight is what a node stored at a key, at a moment between sent and had.
type sight struct {
	stored
	ok        bool
	sent, had instant
}

// look reads keys on all nodes that reply soon.
func (w *realWorld) look(keys ...int) [][]sight {
	const patience = 250 * time.Millisecond
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	all := make([][]sight, len(w.admin))
	var wg sync.WaitGroup
	for i, n := range w.admin {
		all[i] = make([]sight, len(keys))
		wg.Go(func() {
			p := n.TxPipeline()
			values, lefts, scores := make([]*redis.StringCmd, len(keys)), make([]*redis.DurationCmd, len(keys)), make([]*redis.FloatCmd, len(keys))
			for j, key := range keys {
				values[j], lefts[j], scores[j] = p.Get(ctx, w.s.keyName(key)), redis.NewDurationCmd(ctx, time.Millisecond, ownPTTL, w.s.keyName(key)), p.ZScore(ctx, w.s.registerName(key), "f")
				p.Process(ctx, lefts[j])
			}
			sent := w.now()
			_, err := p.Exec(ctx)
			had := w.now()
			for j := range keys {
				all[i][j] = sight{
					stored: stored{value: values[j].Val(), left: lefts[j].Val(), register: int64(scores[j].Val())},
					ok:     err == nil || errors.Is(err, redis.Nil), sent: sent, had: had,
				}
			}
		})
	}
	wg.Wait()
	return all
}

// names returns the keys of a node with their remaining ttls.
func (w *realWorld) names(node int) map[string]time.Duration {
	found := map[string]time.Duration{}
	names, _ := w.command(node, "keys", "*").([]any)
	for _, n := range names {
		ms, _ := w.command(node, ownPTTL, n).(int64)
		found[fmt.Sprint(n)] = time.Duration(ms) * time.Millisecond
	}
	return found
}

// revive acquires every key after the last fault.
func (w *realWorld) revive() {
	const bound = 30 * time.Second // go-redis's pause of a second between dials, the ttl of dead clients, a busy machine
	var all sync.WaitGroup
	for key := range w.s.Keys {
		all.Go(func() {
			over := w.now() + bound
			k := w.newTask(-1, Task{Client: key % len(w.clients), Key: key, TTL: realLong, Wait: bound}).revive()
			// A node may have been given up during a fault, and is used again only after it has answered a PING: so several attempts.
			for k != nil && k.lock.Release(context.Background()) != nil {
				if w.now() > over {
					w.wrong("liveness", key, "release on a healthy cluster: %v", k.lock.Release(context.Background()))
					return
				}
				time.Sleep(10 * time.Millisecond)
			}
		})
	}
	all.Wait()
}

// leftovers judges I4 at the nodes, after the last fault and the last release.
func (w *realWorld) leftovers() {
	// What living clients clean up, also where a node answered with errors: this is repeated after up to 16 s.
	const settled = 30 * time.Second
	w.gone("is not removed", settled, func(name string, left time.Duration, value string) bool {
		return realIsLock(name) && !w.mayStay(value)
	})
	// What dead clients and LeaveUntil have left: their longest ttl, and the time for which a server was stopped.
	const expired = 5 * time.Second
	w.gone("has not expired", expired+w.tardy.worst(0, never), func(name string, left time.Duration, _ string) bool { return realIsLock(name) })
	// The releases just now gave every register a ttl, and queue entries expire with theirs.
	w.gone("has no end, or is not documented", settled, func(name string, left time.Duration, _ string) bool {
		switch {
		case name == w.s.registerName(w.s.Keys-1):
			return true // nobody has ever asked for a fence
		case strings.HasSuffix(name, ":fence"), strings.HasSuffix(name, ":queue"):
			return left == -time.Millisecond // PTTL says -1
		}
		return true
	})
}

func realIsLock(name string) bool { return strings.HasPrefix(name, "k") }

// gone waits until no node has anything that is bad.
func (w *realWorld) gone(what string, limit time.Duration, bad func(name string, left time.Duration, value string) bool) {
	for deadline := w.now() + limit; ; time.Sleep(20 * time.Millisecond) {
		var found []string
		for i := range w.admin {
			for name, left := range w.names(i) {
				if left == -2*time.Millisecond { // PTTL: the key has disappeared meanwhile
					continue
				}
				value := ""
				if realIsLock(name) {
					value, _ = w.command(i, "get", name).(string)
				}
				if bad(name, left, value) && (value != "" || !realIsLock(name)) {
					found = append(found, fmt.Sprintf("%s has %s %s, for %v", nodeName(i), name, value, left))
				}
			}
		}
		if len(found) == 0 {
			return
		}
		if w.now() > deadline {
			w.wrong("I4", -1, "%v after the last release %d keys: %s %s", limit, len(found), strings.Join(found[:min(3, len(found))], "; "), what)
			return
		}
	}
}

// mayStay reports whether a value may remain: its process is gone, or its holder called LeaveUntil.
func (w *realWorld) mayStay(value string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, gone := w.closedAt[labelOf(value)]; gone {
		return true
	}
	k := w.live[value]
	return k != nil && k.Why == "left to expire"
}

// closeLockers closes everything; then no goroutine of the library or of a client may be left.
func (w *realWorld) closeLockers() {
	var all sync.WaitGroup
	for _, c := range w.clients {
		all.Go(func() {
			c.close()
			for _, p := range c.proxies {
				p.Close()
			}
		})
	}
	all.Wait()
	for _, n := range w.admin {
		n.Close()
	}
	const limit = 20 * time.Second // the clients' own timeouts are a few seconds
	for deadline := w.now() + limit; ; time.Sleep(20 * time.Millisecond) {
		left := realLeft()
		if len(left) == 0 {
			return
		}
		if w.now() > deadline {
			w.wrong("I4", -1, "%v after Close %d goroutines are left:\n%s", limit, len(left), strings.Join(left[:min(3, len(left))], "\n\n"))
			return
		}
	}
}
