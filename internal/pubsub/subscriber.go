package pubsub

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/wire"

	"github.com/redis/go-redis/v9"
)

// Hearing of releases. While anybody waits for a lock, a Locker holds one
// subscription connection per node, shared by all its waiters. What is heard only
// wakes waiters, who then ask the nodes; nothing depends on its being heard.

// A subscriber is a Node that announcements can be heard from.
type Client interface {
	Subscribe(ctx context.Context, channels ...string) *redis.PubSub
}

const (
	// pingEvery is how long a subscription may be silent before it is asked for a
	// sign of life, and pongWait how long that is waited for: a half-open link is
	// noticed after their sum, where go-redis takes 14 s and more. Shorter, a silent
	// subscription costs more commands than the polls it saves.
	pingEvery = 6 * time.Second
	pongWait  = time.Second

	// redialFirst and redialMost are the pauses before a lost subscription is made
	// anew. Whoever waits meanwhile polls.
	redialFirst = 20 * time.Millisecond
	redialMost  = time.Second

	// redialRefused is the pause after a node said no, for want of a permission say, or
	// its client panicked.
	redialRefused = 30 * time.Second
)

// A Listener is told what node i says: announcements, and for which channels it has
// confirmed that they are heard from now on, or not any more.
type Listener interface {
	Announced(i int, channel, value string)
	Subscribed(i int, channel string, yes bool)
}

// An Subscriber listens to one node. Its goroutines run while there is a channel to
// listen to.
type Subscriber struct {
	i        int
	node     Client
	listener Listener

	mu      sync.Mutex
	want    map[string]bool // channels; true: the subscription was confirmed
	fresh   []string        // wanted since the last look, to be subscribed
	stale   []string        // not wanted any more
	running bool
	closed  bool
	last    time.Time // something was heard, be it a pong
	changed chan struct{}
	end     context.CancelFunc
	Over    sync.WaitGroup
}

func New(i int, node Client, tell Listener) *Subscriber {
	return &Subscriber{i: i, node: node, listener: tell, want: make(map[string]bool), changed: make(chan struct{}, 1)}
}

// Listen subscribes to a channel. It does not wait for anything.
func (e *Subscriber) Listen(channel string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, ok := e.want[channel]; ok || e.closed {
		return
	}
	e.want[channel] = false
	e.fresh = append(e.fresh, channel)
	if e.running {
		e.poke()
		return
	}
	e.running = true
	ctx, cancel := context.WithCancel(context.Background())
	e.end = cancel
	e.Over.Go(func() { e.run(ctx) })
}

// Ignore ends the subscription to a channel.
func (e *Subscriber) Ignore(channel string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, ok := e.want[channel]; ok {
		delete(e.want, channel)
		e.stale = append(e.stale, channel)
		e.poke()
	}
}

func (e *Subscriber) poke() {
	select {
	case e.changed <- struct{}{}:
	default:
	}
}

// Close ends the connection. The goroutines end with it, or with the client's own
// timeouts where they are dialling.
func (e *Subscriber) Close() {
	e.mu.Lock()
	e.closed = true
	end := e.end
	e.mu.Unlock()
	if end != nil {
		end()
	}
}

// run keeps a connection while there is a channel to listen to.
func (e *Subscriber) run(ctx context.Context) {
	pause := redialFirst
	for {
		channels := e.channels()
		if channels == nil {
			return
		}
		began := time.Now()
		switch heard, refused := e.subscribed(ctx, channels); {
		case refused:
			pause = redialRefused
		case heard && time.Since(began) >= redialMost: // else it is accepted only to be cut
			pause = redialFirst
		default:
			pause = min(2*pause, redialMost)
		}
		t := time.NewTimer(max(pause-time.Since(began), 0))
		select {
		case <-t.C:
		case <-ctx.Done():
		}
		t.Stop()
	}
}

// channels is all that is to be listened to; nil: nothing, and run is over.
func (e *Subscriber) channels() (all []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.fresh, e.stale = nil, nil
	if len(e.want) == 0 || e.closed {
		e.running = false
		return nil
	}
	for c := range e.want {
		all = append(all, c)
	}
	return all
}

// subscribed holds one connection until it fails or nothing is wanted any more. It
// reports whether anything was heard on it, and whether the node refused.
func (e *Subscriber) subscribed(ctx context.Context, channels []string) (heard, refused bool) {
	sub, err := e.subscribe(ctx, channels) // dials
	if err != nil {
		return false, true
	}
	// From here on it would dial anew behind our back, holding a lock that its other
	// methods wait for. With a ctx that is done it can not, and for all else it only asks
	// a ctx for its deadline.
	noDial, done := context.WithCancel(ctx)
	done()
	e.mu.Lock()
	e.last = time.Time{}
	e.mu.Unlock()
	broken := make(chan struct{})
	var why error
	go func() {
		defer close(broken)
		why = e.receive(noDial, sub)
	}()
	lost := e.watch(ctx, noDial, sub, broken)
	sub.close()
	<-broken
	refused = isPermanent(lost) || isPermanent(why)
	e.mu.Lock()
	var deaf []string
	for c, yes := range e.want {
		if yes {
			e.want[c] = false
			deaf = append(deaf, c)
		}
	}
	heard = !e.last.IsZero()
	e.mu.Unlock()
	for _, c := range deaf {
		e.listener.Subscribed(e.i, c, false)
	}
	return heard, refused
}

// isPermanent reports whether what ended a subscription would end the next one as well.
func isPermanent(err error) bool {
	if _, panicked := err.(*wire.PanicError); panicked || err == nil {
		return panicked
	}
	why, said := wire.Explain(err)
	return said && !why.Transient
}

// receive takes in what the node says until the connection fails.
func (e *Subscriber) receive(noDial context.Context, sub subscription) error {
	for {
		m, err := sub.receive(noDial)
		if err != nil {
			return err
		}
		e.mu.Lock()
		e.last = time.Now()
		confirmed := ""
		if s, ok := m.(*redis.Subscription); ok && s.Kind == "subscribe" {
			if yes, wanted := e.want[s.Channel]; wanted && !yes {
				e.want[s.Channel] = true
				confirmed = s.Channel
			}
		}
		e.mu.Unlock()
		if confirmed != "" {
			e.listener.Subscribed(e.i, confirmed, true)
		}
		if m, ok := m.(*redis.Message); ok {
			e.listener.Announced(e.i, m.Channel, m.Payload)
		}
	}
}

// watch tells the node what else to say, and asks a silent one for a sign of life. It
// returns when the connection is of no use any more, with what the client said of that.
func (e *Subscriber) watch(ctx, noDial context.Context, sub subscription, broken <-chan struct{}) error {
	asked := time.Now() // dialling is bound by the client's timeouts, an answer by ours
	look := time.NewTimer(pongWait)
	defer look.Stop()
	for {
		select {
		case <-broken:
			return nil
		case <-ctx.Done():
			return nil
		case <-e.changed:
			if more, err := e.change(noDial, sub); !more {
				return err
			}
		case <-look.C:
			e.mu.Lock()
			last := e.last
			e.mu.Unlock()
			now := time.Now()
			switch silent := now.Sub(last); {
			case last.Before(asked) && now.Sub(asked) >= pongWait:
				return nil // half-open
			case silent >= pingEvery:
				if err := sub.ping(noDial); err != nil {
					return err
				}
				asked = now
				look.Reset(pongWait)
			case last.Before(asked):
				look.Reset(pongWait - now.Sub(asked))
			default:
				look.Reset(pingEvery - silent)
			}
		}
	}
}

// change tells the node what is to be heard from now on. It reports whether there is
// anything, and the node was told.
func (e *Subscriber) change(noDial context.Context, sub subscription) (listen bool, err error) {
	e.mu.Lock()
	fresh := slices.DeleteFunc(e.fresh, func(c string) bool { _, wanted := e.want[c]; return !wanted })
	stale := slices.DeleteFunc(e.stale, func(c string) bool { _, wanted := e.want[c]; return wanted })
	e.fresh, e.stale = nil, nil
	listen = len(e.want) > 0
	e.mu.Unlock()
	if listen && len(stale) > 0 {
		err = sub.unsubscribe(noDial, stale)
	}
	if listen && err == nil && len(fresh) > 0 {
		err = sub.subscribe(noDial, fresh)
	}
	return listen && err == nil, err
}

// subscribe begins a subscription.
func (e *Subscriber) subscribe(ctx context.Context, channels []string) (sub subscription, err error) {
	defer wire.Recovered(&err)
	return subscription{e.node.Subscribe(ctx, channels...)}, nil
}

// A subscription is what a client made of it. Its methods return a panic as an error.
type subscription struct{ pubsub *redis.PubSub }

func (s subscription) receive(ctx context.Context) (m any, err error) {
	defer wire.Recovered(&err)
	return s.pubsub.Receive(ctx)
}

func (s subscription) ping(ctx context.Context) (err error) {
	defer wire.Recovered(&err)
	return s.pubsub.Ping(ctx)
}

func (s subscription) subscribe(ctx context.Context, channels []string) (err error) {
	defer wire.Recovered(&err)
	return s.pubsub.Subscribe(ctx, channels...)
}

func (s subscription) unsubscribe(ctx context.Context, channels []string) (err error) {
	defer wire.Recovered(&err)
	return s.pubsub.Unsubscribe(ctx, channels...)
}

func (s subscription) close() (err error) {
	defer wire.Recovered(&err)
	return s.pubsub.Close()
}

// Confirmed returns how many channels the node has confirmed subscriptions to.
func (e *Subscriber) Confirmed() (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, yes := range e.want {
		if yes {
			n++
		}
	}
	return n
}
