package sim

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ce352c9b/redlock"
)

// The edges of the library are where it meets code and data that are not its own: callbacks, contexts and clients of the user,
// foreign keys, permissions, and several callers of one Locker that adopt the same lock. Here all of these do what they rarely do
// elsewhere, at the worst moment. Their judges are in stays.go.

// A thrown is the value with which simulated code panics.
type thrown string

var errThrown = errors.New("sim: a callback panicked")

// recovered calls f. It returns errThrown if simulated code panics in f.
func recovered(f func() error) (err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case thrown:
			err = errThrown
		default:
			panic(p)
		}
	}()
	return f()
}

// maybePanic panics now and then, as a callback might, but only where the panic can be recovered: in a call from a task. The library
// also calls some callbacks on its own goroutines, where a panic ends the process. Which ones these are is up to the library, so
// maybePanic examines the stack.
func (c *client) maybePanic(what ...uint64) {
	if c.i >= len(c.w.s.Clients) {
		return
	}
	n := c.w.s.Clients[c.i].Panics
	if n > 0 && mix(append(what, c.w.s.Seed, uint64(c.i))...)%uint64(n) == 0 && recoverable() {
		panic(thrown("a callback"))
	}
}

// recoverable reports whether recovered is among the callers.
func recoverable() bool {
	pc := make([]uintptr, 64)
	frames := runtime.CallersFrames(pc[:runtime.Callers(2, pc)])
	for {
		f, more := frames.Next()
		if strings.HasSuffix(f.Function, "/sim.recovered") {
			return true
		}
		if !more {
			return false
		}
	}
}

// retry is an Options.Retry that resembles the default.
func (c *client) retry(attempt int) time.Duration {
	c.maybePanic(uint64(attempt), uint64(time.Now().UnixNano()))
	return min(10*ms<<min(attempt-1, 5), 250*ms)
}

// A hesitant context takes some time to report whether it is done. So events can happen between two steps of the library that
// otherwise take no time: a real scheduler may stop a goroutine anywhere.
type hesitant struct {
	context.Context
	key   uint64
	asked *atomic.Uint64
}

func (c hesitant) Err() error {
	time.Sleep(32 * jitter(c.key, c.asked.Add(1)))
	return c.Context.Err()
}

// hesitantly makes a context hesitant, in the schedules that need it.
func (d *taskRun) hesitantly(ctx context.Context) context.Context {
	if !d.w.s.Edges {
		return ctx
	}
	return hesitant{ctx, mix(d.w.s.Seed, uint64(d.i)), new(atomic.Uint64)}
}

// A joiner waits until a holder in its own process is about to release.
type joiner struct {
	client int
	come   chan struct{}
	leave  context.CancelFunc
}

// join queues behind a holder in its own process so shortly before the release that the release happens during the joiner's
// first attempt. It gives up at about the time at which the lock is handed over to it.
func (d *taskRun) join() {
	if !d.step() {
		return
	}
	ctx, stop := d.patience()
	defer stop()
	j := joiner{d.Client, make(chan struct{}), stop}
	d.w.mu.Lock()
	d.w.join[d.Key] = append(d.w.join[d.Key], j)
	d.w.mu.Unlock()
	select {
	case <-j.come:
	case <-ctx.Done():
		return
	}
	if !d.step() {
		return
	}
	var lock *redlock.Lock
	called := d.w.now()
	d.call("Acquire", func() (err error) {
		lock, err = d.c.locker().Acquire(d.hesitantly(ctx), keyName(d.Key), d.TTL)
		return err
	})
	if lock != nil {
		d.short(d.w.claim(d.c, d.i, d.Key, called, d.TTL, lock))
	}
}

// startJoiners lets the joiners come before a release, and makes some of them give up around it.
func (w *world) startJoiners(d *taskRun) {
	w.mu.Lock()
	var mine []joiner
	w.join[d.Key] = slices.DeleteFunc(w.join[d.Key], func(j joiner) bool {
		if j.client == d.Client && len(mine) < 3 {
			mine = append(mine, j)
			return true
		}
		return false
	})
	w.mu.Unlock()
	if len(mine) == 0 {
		return
	}
	now := uint64(w.now())
	for i, j := range mine {
		close(j.come)
		if mix(now, uint64(i))%4 > 0 { // the others stay to receive the lock after those that give up
			time.AfterFunc(400*time.Microsecond+64*jitter(now, uint64(i), 1), j.leave)
		}
	}
	time.Sleep(400*time.Microsecond + 32*jitter(now))
}

// rush makes several callers adopt one value at once, most of them in the Locker that holds the lock, or at about the time at
// which its holder releases it. Their ttls differ greatly, and half of them cancel in the middle.
func (d *taskRun) rush() {
	giver := d.w.holder(d.Key)
	value, first := "", d.Client
	if giver != nil {
		value, first = giver.Value, giver.Client
	} else if value = d.w.foreignAt(d.Key); value == "" {
		return
	}
	if !d.step() {
		return
	}
	if giver != nil && d.Late == atRelease {
		ctx, stop := d.patience()
		d.w.mu.Lock()
		d.w.fickle[d.Key] = append(d.w.fickle[d.Key], stop)
		d.w.mu.Unlock()
		<-ctx.Done()
		stop()
		if d.w.now() >= giver.lock.Until().Sub(d.w.began) {
			return
		}
	}
	var all sync.WaitGroup
	for j := range d.Times {
		draw := func(what uint64) uint64 { return mix(d.w.s.Seed, uint64(d.i), uint64(j), what) }
		a := *d
		a.i = 1_000_000 + 100*d.i + j // so that it has sleeping times of its own
		a.Client = first
		if d.Late != andRelease && draw(1)%3 == 0 {
			a.Client = int(draw(2) % uint64(len(d.w.s.Clients)))
		}
		a.c = d.w.clients[a.Client]
		a.incarnation = a.c.incarnation()
		a.TTL = []time.Duration{d.TTL, min(d.TTL, 10*time.Second), time.Minute, longLife}[draw(3)%4]
		if draw(4)%2 == 0 {
			a.Wait = time.Duration(draw(5) % uint64(1200*time.Microsecond))
		}
		later := time.Duration(draw(6) % uint64(300*time.Microsecond))
		all.Go(func() {
			if a.sleep(later) {
				a.adoptFrom(giver, value)
			}
		})
	}
	all.Wait()
	if giver != nil && d.Late == andRelease && d.w.endIfHeld(giver) {
		d.w.cancelFickle(giver)
		d.releaseAndJudge(giver)
	}
}

// A rush may come at the release, or be in the holder's own process, which releases as soon as all adopters have failed.
const (
	atRelease = time.Duration(1 + iota)
	andRelease
)

// endIfHeld records that a holder releases, and returns false if the claim has already ended.
func (w *world) endIfHeld(k *holding) bool {
	now := w.now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, closed := w.closedAt[labelOf(k.Value)]; closed || k.Ended != never || k.Why == "left to expire" {
		return false
	}
	k.Ended, k.Why = now, "release"
	return true
}

// again releases, and releases again after the lock has expired: the second result must not know less than the first.
func (d *taskRun) again(k *holding) {
	if k == nil || !d.sleep(d.Hold) {
		return
	}
	d.write(k)
	d.release(k)
	time.Sleep(time.Until(k.lock.Until()) + ms)
	if d.step() {
		d.releaseAndJudge(k)
	}
}

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
	for _, c := range denied {
		n.FailCommand(c, noPermission)
	}
	return w.endWithLast("deny"+denied[0], f, func() {
		for _, c := range denied {
			n.FailCommand(c, "")
		}
	})
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
	args := []string{"SET", keyName(key), value, "NX"}
	if ttl > 0 {
		args = append(args, "PX", fmt.Sprint(ttl.Milliseconds()))
	}
	if _, err := w.c.Node(node).Do(args...); err != nil {
		panic("sim: " + err.Error())
	}
}

func (w *world) evictForeign(node, key int, value string) {
	n := w.c.Node(node)
	if v, _ := n.Get(keyName(key)); v == value {
		n.Evict(keyName(key))
	}
}

// foreignAt returns a foreign value that is stored at the key, or "".
func (w *world) foreignAt(key int) string {
	for i := range w.c.Len() {
		if v, ok := w.c.Node(i).Get(keyName(key)); ok && w.isForeign(v) {
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
			value := ordered + keyName(key)
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

// removeForeign removes all foreign values, and, as an operator would, the values that nobody else removes.
func (w *world) removeForeign() {
	if !w.s.Edges {
		return
	}
	time.Sleep(w.settled()) // failed adoptions are undone by then
	for i := range w.c.Len() {
		for key := range w.s.Keys {
			if v, _ := w.c.Node(i).Get(keyName(key)); w.isForeign(v) || w.isTorn(v) {
				w.evictForeign(i, key, v)
			}
		}
	}
}

// wrapNodes wraps a client's nodes as a user might: in a foreign type, and in one whose calls panic.
func (c *client) wrapNodes() {
	for i, n := range c.nodes {
		t := panickyNode{n, c, i}
		s, ok := n.(subscriber)
		wrapped := c.i < len(c.w.s.Clients) && c.w.s.Clients[c.i].Wrapped
		switch {
		case wrapped:
			c.nodes[i] = t // hides all methods but the two of redlock.Node
		case ok:
			c.nodes[i] = subscribingPanickyNode{t, s}
		default:
			c.nodes[i] = namedPanickyNode{t}
		}
	}
}

type subscriber interface {
	redlock.Node
	Options() *redis.Options
	Subscribe(ctx context.Context, channels ...string) *redis.PubSub
}

// A panickyNode is a node whose calls panic while a fault is active, before or after anything is sent.
type panickyNode struct {
	redlock.Node
	c *client
	i int
}

type namedPanickyNode struct{ panickyNode }

func (t namedPanickyNode) Options() *redis.Options { return t.Node.(pollingNode).Options() }

type subscribingPanickyNode struct {
	panickyNode
	sub subscriber
}

func (t subscribingPanickyNode) Options() *redis.Options { return t.sub.Options() }

func (t subscribingPanickyNode) Subscribe(ctx context.Context, channels ...string) *redis.PubSub {
	t.maybePanic()
	return t.sub.Subscribe(ctx, channels...)
}

func (t panickyNode) maybePanic() {
	w := t.c.w
	w.mu.Lock()
	on := w.throws[[2]int{t.c.i, t.i}] > 0
	w.mu.Unlock()
	if on && mix(w.s.Seed, uint64(t.c.i), uint64(t.i), uint64(w.now()))%4 == 0 {
		panic(thrown("a client"))
	}
}

func (t panickyNode) Process(ctx context.Context, cmd redis.Cmder) error {
	t.maybePanic()
	err := t.Node.Process(ctx, cmd)
	t.maybePanic()
	return err
}

func (t panickyNode) Pipeline() redis.Pipeliner { return &panickyPipeline{t.Node.Pipeline(), t} }

type panickyPipeline struct {
	redis.Pipeliner
	panickyNode
}

func (p *panickyPipeline) Process(ctx context.Context, cmd redis.Cmder) error {
	return p.Pipeliner.Process(ctx, cmd)
}

func (p *panickyPipeline) Pipeline() redis.Pipeliner { return p.Pipeliner.Pipeline() }

func (p *panickyPipeline) Exec(ctx context.Context) ([]redis.Cmder, error) {
	p.maybePanic()
	cmds, err := p.Pipeliner.Exec(ctx)
	p.maybePanic()
	return cmds, err
}

func (w *world) throw(f Fault) (end func()) {
	at := [2]int{f.Client % len(w.s.Clients), f.Node % w.c.Len()}
	add := func(n int) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.throws[at] += n
	}
	add(+1)
	return func() { add(-1) }
}
