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
	redialMax   = time.Second

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
	index    int
	node     Client
	listener Listener

	mu            sync.Mutex
	wanted        map[string]bool // channels; true: the subscription was confirmed
	toSubscribe   []string        // wanted since the last look, to be subscribed
	toUnsubscribe []string        // not wanted any more
	running       bool
	closed        bool
	lastHeard     time.Time // something was heard, be it a pong
	wake          chan struct{}
	cancel        context.CancelFunc
	Goroutines    sync.WaitGroup
}

func New(i int, node Client, tell Listener) *Subscriber {
	return &Subscriber{index: i, node: node, listener: tell, wanted: make(map[string]bool), wake: make(chan struct{}, 1)}
}

// Listen subscribes to a channel. It does not wait for anything.
func (s *Subscriber) Listen(channel string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.wanted[channel]; ok || s.closed {
		return
	}
	s.wanted[channel] = false
	s.toSubscribe = append(s.toSubscribe, channel)
	if s.running {
		s.wakeWatch()
		return
	}
	s.running = true
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	s.Goroutines.Go(func() { s.run(ctx) })
}

// Ignore ends the subscription to a channel.
func (s *Subscriber) Ignore(channel string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.wanted[channel]; ok {
		delete(s.wanted, channel)
		s.toUnsubscribe = append(s.toUnsubscribe, channel)
		s.wakeWatch()
	}
}

func (s *Subscriber) wakeWatch() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Close ends the connection. The goroutines end with it, or with the client's own
// timeouts where they are dialling.
func (s *Subscriber) Close() {
	s.mu.Lock()
	s.closed = true
	end := s.cancel
	s.mu.Unlock()
	if end != nil {
		end()
	}
}

// run keeps a connection while there is a channel to listen to.
func (s *Subscriber) run(ctx context.Context) {
	pause := redialFirst
	for {
		channels := s.channels()
		if channels == nil {
			return
		}
		began := time.Now()
		switch heard, refused := s.holdConnection(ctx, channels); {
		case refused:
			pause = redialRefused
		case heard && time.Since(began) >= redialMax: // else it is accepted only to be cut
			pause = redialFirst
		default:
			pause = min(2*pause, redialMax)
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
func (s *Subscriber) channels() (all []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.toSubscribe, s.toUnsubscribe = nil, nil
	if len(s.wanted) == 0 || s.closed {
		s.running = false
		return nil
	}
	for c := range s.wanted {
		all = append(all, c)
	}
	return all
}

// subscribed holds one connection until it fails or nothing is wanted any more. It
// reports whether anything was heard on it, and whether the node refused.
func (s *Subscriber) holdConnection(ctx context.Context, channels []string) (heard, refused bool) {
	sub, err := s.subscribe(ctx, channels) // dials
	if err != nil {
		return false, true
	}
	// From here on it would dial anew behind our back, holding a lock that its other
	// methods wait for. With a ctx that is done it can not, and for all else it only asks
	// a ctx for its deadline.
	noDial, done := context.WithCancel(ctx)
	done()
	s.mu.Lock()
	s.lastHeard = time.Time{}
	s.mu.Unlock()
	broken := make(chan struct{})
	var why error
	go func() {
		defer close(broken)
		why = s.receiveLoop(noDial, sub)
	}()
	lost := s.watch(ctx, noDial, sub, broken)
	sub.close()
	<-broken
	refused = isPermanent(lost) || isPermanent(why)
	s.mu.Lock()
	var deaf []string
	for c, yes := range s.wanted {
		if yes {
			s.wanted[c] = false
			deaf = append(deaf, c)
		}
	}
	heard = !s.lastHeard.IsZero()
	s.mu.Unlock()
	for _, c := range deaf {
		s.listener.Subscribed(s.index, c, false)
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
func (s *Subscriber) receiveLoop(noDial context.Context, sub subscription) error {
	for {
		m, err := sub.receive(noDial)
		if err != nil {
			return err
		}
		s.mu.Lock()
		s.lastHeard = time.Now()
		confirmed := ""
		if c, ok := m.(*redis.Subscription); ok && c.Kind == wire.SubscribeConfirmed {
			if yes, wanted := s.wanted[c.Channel]; wanted && !yes {
				s.wanted[c.Channel] = true
				confirmed = c.Channel
			}
		}
		s.mu.Unlock()
		if confirmed != "" {
			s.listener.Subscribed(s.index, confirmed, true)
		}
		if m, ok := m.(*redis.Message); ok {
			s.listener.Announced(s.index, m.Channel, m.Payload)
		}
	}
}

// watch tells the node what else to say, and asks a silent one for a sign of life. It
// returns when the connection is of no use any more, with what the client said of that.
func (s *Subscriber) watch(ctx, noDial context.Context, sub subscription, broken <-chan struct{}) error {
	asked := time.Now() // dialling is bound by the client's timeouts, an answer by ours
	look := time.NewTimer(pongWait)
	defer look.Stop()
	for {
		select {
		case <-broken:
			return nil
		case <-ctx.Done():
			return nil
		case <-s.wake:
			if more, err := s.updateChannels(noDial, sub); !more {
				return err
			}
		case <-look.C:
			s.mu.Lock()
			last := s.lastHeard
			s.mu.Unlock()
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
func (s *Subscriber) updateChannels(noDial context.Context, sub subscription) (listen bool, err error) {
	s.mu.Lock()
	fresh := slices.DeleteFunc(s.toSubscribe, func(c string) bool { _, wanted := s.wanted[c]; return !wanted })
	stale := slices.DeleteFunc(s.toUnsubscribe, func(c string) bool { _, wanted := s.wanted[c]; return wanted })
	s.toSubscribe, s.toUnsubscribe = nil, nil
	listen = len(s.wanted) > 0
	s.mu.Unlock()
	if listen && len(stale) > 0 {
		err = sub.unsubscribe(noDial, stale)
	}
	if listen && err == nil && len(fresh) > 0 {
		err = sub.subscribe(noDial, fresh)
	}
	return listen && err == nil, err
}

// subscribe begins a subscription.
func (s *Subscriber) subscribe(ctx context.Context, channels []string) (sub subscription, err error) {
	defer wire.RecoverTo(&err)
	return subscription{s.node.Subscribe(ctx, channels...)}, nil
}

// A subscription is what a client made of it. Its methods return a panic as an error.
type subscription struct{ pubsub *redis.PubSub }

func (s subscription) receive(ctx context.Context) (m any, err error) {
	defer wire.RecoverTo(&err)
	return s.pubsub.Receive(ctx)
}

func (s subscription) ping(ctx context.Context) (err error) {
	defer wire.RecoverTo(&err)
	return s.pubsub.Ping(ctx)
}

func (s subscription) subscribe(ctx context.Context, channels []string) (err error) {
	defer wire.RecoverTo(&err)
	return s.pubsub.Subscribe(ctx, channels...)
}

func (s subscription) unsubscribe(ctx context.Context, channels []string) (err error) {
	defer wire.RecoverTo(&err)
	return s.pubsub.Unsubscribe(ctx, channels...)
}

func (s subscription) close() (err error) {
	defer wire.RecoverTo(&err)
	return s.pubsub.Close()
}

// Confirmed returns how many channels the node has confirmed subscriptions to.
func (s *Subscriber) Confirmed() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, yes := range s.wanted {
		if yes {
			n++
		}
	}
	return n
}
