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

// A realWorld plays one round in real time: five redis-server processes, a proxy before each for each client, and all
// clients in this process, so that what they saw is in the order of one clock.
//
// Nothing here may be blamed on a busy machine. A claim is noted from an instant after its acquisition had returned to one
// before its holder gave it up, so it is part of what the library promised, however late this process ran in between.
type realWorld struct {
	record
	t       *testing.T
	s       *Schedule
	servers []*realredis.Server
	admin   []*redis.Client // past the proxies
	clients []*realClient
	tardy   *tardiness
	lookers sync.WaitGroup // looks at the storage under way

	// These are guarded by mu, as the record is.
	lost        map[string]bool // values whose holders were told ErrLost
	forgettings []forgetting
	proofs      []proof
	renewals    []renewal
	glimpses    []glimpse
	tellings    []telling
	faults      map[Strike]int
}

// A forgetting is a node that lost its data within an interval: to the instant nobody can tell.
type forgetting struct {
	node     int
	from, to instant
}

// A proof is that a claim did not need the node that forgot: at an instant after it a majority of the others carried it
// until its Until.
type proof struct {
	value      string
	forgetting int
	at         instant // before Until was read
}

// A renewal is a decided round of an extension.
type renewal struct {
	label, key  string
	start, seen instant
}

// A glimpse is what the nodes had of a claim at a moment.
type glimpse struct {
	value    string
	until    instant // before the look
	taken    instant // when all had answered
	answered int
	without  int // of these do not keep it for that long, for sure
	below    int // of these have a register below its fence
}

// A telling is a context that ended, or that had not by then.
type telling struct {
	at, until instant
	key       int
	who       string
	open      bool // it had not
}

// playReal plays a round and gives what was seen. The servers are as good as new before and after it.
func playReal(t *testing.T, s *Schedule, servers []*realredis.Server, tardy *tardiness) *realWorld {
	w := &realWorld{
		record: newRecord(s), t: t, s: s, servers: servers, tardy: tardy,
		lost: map[string]bool{}, faults: map[Strike]int{},
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
	var tasks, faults sync.WaitGroup
	for i := range s.Tasks {
		tasks.Go(func() { w.task(i) })
	}
	lanes := make([][]Fault, realNodes) // those of one node, one after the other; those of a link each for itself
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
	w.revive()
	w.leftovers()
	w.lookers.Wait()
	for _, k := range w.live {
		k.Until = k.lock.Until().Sub(w.began)
	}
	w.shut()
	w.h.Length = w.now()
	return w
}

// A realClient is one process, as far as the nodes can see.
type realClient struct {
	w       *realWorld
	i       int
	proxies []*proxy.Proxy

	mu      sync.Mutex
	lockers [2]*redlock.Locker // the second is fair
	links   []*redis.Client    // if we made them
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

// start makes the process's Lockers: half of the clients by Open, half by New with go-redis's own defaults.
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
		opt := redlock.Options{Name: c.labelLocked(), NodeTimeout: conf.NodeTimeout, Fair: i == 1, Observe: c.observer(c.labelLocked())}
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

// observer notes when extensions are decided: the claim's Until has moved by then.
func (c *realClient) observer(label string) func(redlock.Round) {
	return func(r redlock.Round) {
		if r.Op != redlock.OpExtend {
			return
		}
		w := c.w
		w.mu.Lock()
		defer w.mu.Unlock()
		w.renewals = append(w.renewals, renewal{label: label, key: r.Key, start: r.Start.Sub(w.began), seen: w.now()})
	}
}

// close closes the process's Lockers, which may be in use. false: somebody else is at it.
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
			if err := l.Close(); err != nil {
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

// closeWithin is two node timeouts, which Close takes at most.
const closeWithin = 2 * time.Second

// die ends the process without a word: nothing more of it gets through to any node.
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
		return // who closes it starts it again
	}
	c.w.struck("c%d starts again", c.i)
	c.start()
}

// command runs one of the operator's own commands until it is answered.
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

// A sight is what a node had of a key, at a moment between sent and had.
type sight struct {
	stored
	ok        bool
	sent, had instant
}

// look reads keys on all nodes, as far as they answer soon.
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
				values[j], lefts[j], scores[j] = p.Get(ctx, keyName(key)), p.PTTL(ctx, keyName(key)), p.ZScore(ctx, registerName(key), "f")
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

// names lists what a node has, with the time that each has left.
func (w *realWorld) names(node int) map[string]time.Duration {
	found := map[string]time.Duration{}
	names, _ := w.command(node, "keys", "*").([]any)
	for _, n := range names {
		ms, _ := w.command(node, "pttl", n).(int64)
		found[fmt.Sprint(n)] = time.Duration(ms) * time.Millisecond
	}
	return found
}

// revive asks for every key once the faults are over.
func (w *realWorld) revive() {
	const bound = 30 * time.Second // a second for what go-redis does not dial sooner, the ttl of the dead, a busy machine
	var all sync.WaitGroup
	for key := range w.s.Keys {
		all.Go(func() {
			c := w.clients[key%len(w.clients)]
			ctx, cancel := context.WithTimeout(context.Background(), bound)
			defer cancel()
			called := w.now()
			lock, err := c.locker(key).Acquire(ctx, keyName(key), realLong)
			took := w.now() - called
			if err != nil {
				w.wrong("liveness", key, "%v after the last fault c%d still does not get the lock: %v", took, c.i, err)
				return
			}
			k := w.claim(c, -1, key, called, realLong, lock)
			w.mu.Lock()
			w.h.Revived = append(w.h.Revived, took)
			w.mu.Unlock()
			w.write(k)
			w.end(k, "release")
			// A node may have been given up while it was struck, and is used again only when it has answered a PING: so more than one try.
			for lock.Release(context.Background()) != nil {
				if ctx.Err() != nil {
					w.wrong("liveness", key, "the release of a healthy cluster: %v", lock.Release(context.Background()))
					return
				}
				time.Sleep(10 * time.Millisecond)
			}
		})
	}
	all.Wait()
}

// leftovers judges I4 at the nodes, once the faults are over and every lock is released.
func (w *realWorld) leftovers() {
	// What is cleaned up by those who live, also where a node answered by errors: that is tried again after up to 16 s.
	const settled = 30 * time.Second
	w.gone("is not removed", settled, func(name string, left time.Duration, value string) bool {
		return realIsLock(name) && !w.mayStay(value)
	})
	// What the dead leave, and those who left it to expire: their longest ttl, and the time that a stopped server adds to it.
	const expired = 5 * time.Second
	w.gone("has not expired", expired+w.tardy.worst(0, never), func(name string, left time.Duration, _ string) bool { return realIsLock(name) })
	// The releases just now gave every register a life, and what waiters leave goes with its ttl.
	w.gone("has no end, or is not documented", settled, func(name string, left time.Duration, _ string) bool {
		switch {
		case strings.HasSuffix(name, ":fence"), strings.HasSuffix(name, ":queue"), strings.HasSuffix(name, ":lapse"):
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
				if left == -2*time.Millisecond { // PTTL: gone meanwhile
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

// mayStay: its process is gone, or its holder left it to expire.
func (w *realWorld) mayStay(value string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, gone := w.shutAt[labelOf(value)]; gone {
		return true
	}
	k := w.live[value]
	return k != nil && k.Why == "left to expire"
}

// shut closes everything; no goroutine of the library or of a client is left then.
func (w *realWorld) shut() {
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
