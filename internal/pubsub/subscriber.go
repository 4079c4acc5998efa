package pubsub

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/wire"

	"github.com/redis/go-redis/v9"
)

// A Client is a go-redis client that can subscribe.
type Client interface {
	Subscribe(ctx context.Context, channels ...string) *redis.PubSub
}

const (
	// pingEvery is how long a subscription may be silent before a PING is sent on it, and
	// pongWait how long the answer may take. A half-open connection is noticed after their
	// sum; go-redis itself takes 14 s and more. With a shorter pingEvery a silent
	// subscription costs more commands than the polls that it saves.
	pingEvery = 6 * time.Second
	pongWait  = time.Second

	// redialFirst and redialMax are the shortest and the longest pause before a lost
	// subscription is made again. Waiters poll in the meantime.
	redialFirst = 20 * time.Millisecond
	redialMax   = time.Second

	// redialRefused is the pause after a node refused the subscription, for example because
	// the user lacks the permission, or after its client panicked. Halved, the node's log has
	// twice as many refusals; doubled, a permission that is given takes a minute to help.
	redialRefused = 30 * time.Second
)

// A Listener receives what a Subscriber hears. i is the number that New was given. Its
// methods are called with no mutex held and must not block.
type Listener interface {
	// Announced reports a message on a channel.
	Announced(i int, channel, value string)
	// Subscribed reports that the node has confirmed the subscription to a channel, or,
	// with yes false, that a confirmed subscription is lost.
	Subscribed(i int, channel string, yes bool)
}

// speech is what is known of the permission to publish.
type speech uint8

const (
	untried speech = iota
	trying
	speaks
	mute
)

// A Subscriber keeps subscriptions to one node. It has goroutines only while a channel is
// wanted.
type Subscriber struct {
	index    int // of the node, passed to the listener
	node     Client
	listener Listener

	mu sync.Mutex // guards the fields below, except wake and Goroutines

	// The channels. toSubscribe and toUnsubscribe are what has changed in wanted since the
	// connection was last told; they may contain a channel that has changed back.
	wanted        map[string]bool // true: the node has confirmed the subscription
	toSubscribe   []string
	toUnsubscribe []string

	// What the current connection was asked. A node may refuse one SUBSCRIBE and go on: it
	// names no channel then, but it replies in order.
	asked [][]string           // the channels of each SUBSCRIBE that has not had all its replies
	apart map[string]bool      // channels that go in a SUBSCRIBE of their own: one beside them was refused, or they were
	aside map[string]time.Time // refused channels, and when they are asked for again

	// Whether our user may publish. If not, those who release locks as this user cannot tell us
	// of it, and a subscription is of no use: no channel is reported.
	speech  speech
	checkAt time.Time  // when it is tried again, if not
	checked chan error // the result of a try; has room for one

	// The connection. running is set while the goroutine run exists; it is cleared in the
	// same critical section in which run finds that nothing is wanted.
	running   bool
	lastHeard time.Time          // of the current connection: any message, even a pong
	cancel    context.CancelFunc // ends run
	closed    bool               // no goroutine is started any more

	wake       chan struct{}  // tells watch that wanted has changed; has room for one
	Goroutines sync.WaitGroup // counts run, for a caller that waits after Close
}

// New returns a Subscriber to node that reports to listener. It starts no goroutine and
// sends nothing until Listen is called.
func New(i int, node Client, listener Listener) *Subscriber {
	return &Subscriber{index: i, node: node, listener: listener, wanted: make(map[string]bool), wake: make(chan struct{}, 1)}
}

// Listen adds a channel to the wanted ones. It does not wait for the node: the Listener
// hears of the confirmation. Listen does nothing if the channel is wanted already or the
// Subscriber is closed.
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

// Ignore removes a channel from the wanted ones. The Listener hears no more confirmations
// for it, but may still get an announcement that was under way.
func (s *Subscriber) Ignore(channel string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.wanted[channel]; ok {
		delete(s.wanted, channel)
		delete(s.apart, channel)
		delete(s.aside, channel)
		s.toUnsubscribe = append(s.toUnsubscribe, channel)
		s.wakeWatch()
	}
}

// wakeWatch tells watch that the wanted channels have changed.
func (s *Subscriber) wakeWatch() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Close ends the connection and does not wait. The goroutines end with the connection or,
// while they dial, with the client's own timeouts.
func (s *Subscriber) Close() {
	s.mu.Lock()
	s.closed = true
	end := s.cancel
	s.mu.Unlock()
	if end != nil {
		end()
	}
}

// run keeps a connection, and dials a new one when it fails, while any channel is wanted.
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
		case heard && time.Since(began) >= redialMax: // a connection that is accepted and soon cut does not count as a success
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

// channels returns all wanted channels for a new connection. It returns nil, and clears
// running, if there are none or the Subscriber is closed: run must return then.
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

// holdConnection makes one connection and keeps it until it fails or no channel is wanted
// any more. It reports whether anything was heard on the connection, and whether the node
// refused, so that the next connection would fail as well.
func (s *Subscriber) holdConnection(ctx context.Context, channels []string) (heard, refused bool) {
	sub, err := s.subscribe(ctx, channels) // dials
	if err != nil {
		return false, true
	}
	// From here on go-redis would dial again by itself when the connection fails, and hold a
	// lock meanwhile that its other methods wait for. With a context that is done it cannot
	// dial; for everything else it only reads the context's deadline.
	noDial, done := context.WithCancel(ctx)
	done()
	s.mu.Lock()
	s.lastHeard = time.Time{}
	s.asked, s.apart, s.aside = [][]string{channels}, make(map[string]bool), make(map[string]time.Time)
	s.speech, s.checked = untried, make(chan error, 1)
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
	var unsubscribed []string
	for c, yes := range s.wanted {
		if yes {
			s.wanted[c] = false
			if s.speech == speaks {
				unsubscribed = append(unsubscribed, c)
			}
		}
	}
	heard = !s.lastHeard.IsZero()
	s.mu.Unlock()
	for _, c := range unsubscribed {
		s.listener.Subscribed(s.index, c, false)
	}
	return heard, refused
}

// isPermanent reports whether the error that ended a subscription would end the next one as
// well: a refusal that time does not heal, or a panic of the client.
func isPermanent(err error) bool {
	if _, panicked := err.(*wire.PanicError); panicked || err == nil {
		return panicked
	}
	why, said := wire.Explain(err)
	return said && !why.Transient
}

// receiveLoop reads what the node sends, and reports it to the listener, until the
// connection fails.
func (s *Subscriber) receiveLoop(noDial context.Context, sub subscription) error {
	for {
		m, err := sub.receive(noDial)
		if err != nil {
			if wire.RefusesChannel(err) && s.setAside() {
				continue
			}
			return err
		}
		s.mu.Lock()
		s.lastHeard = time.Now()
		confirmed := ""
		if c, ok := m.(*redis.Subscription); ok && c.Kind == wire.SubscribeConfirmed {
			s.replied(c.Channel)
			if yes, wanted := s.wanted[c.Channel]; wanted && !yes {
				s.wanted[c.Channel] = true
				if s.speech == speaks {
					confirmed = c.Channel
				} else {
					s.trySpeech(c.Channel)
				}
			}
		}
		s.mu.Unlock()
		if confirmed != "" {
			s.listener.Subscribed(s.index, confirmed, true)
		}
		if m, ok := m.(*redis.Message); ok && m.Payload != wire.TrialMessage {
			s.listener.Announced(s.index, m.Channel, m.Payload)
		}
	}
}

// trySpeech publishes a message that means nothing, unless that was done or its time has not
// come. It needs s.mu.
func (s *Subscriber) trySpeech(channel string) {
	node, ok := s.node.(interface {
		Process(ctx context.Context, cmd redis.Cmder) error
	})
	if s.speech == trying || s.speech == mute && time.Now().Before(s.checkAt) {
		return
	}
	s.speech = trying
	checked := s.checked
	s.Goroutines.Go(func() {
		var err error
		if ok {
			cmd := wire.TrialCommand(channel)
			err = try(func() error { return node.Process(context.Background(), &cmd) })
		}
		checked <- err
	})
}

// try returns what f returns, or its panic as an error.
func try(f func() error) (err error) {
	defer wire.RecoverTo(&err)
	return f()
}

// spoke acts on the result of trySpeech. Any result but a refusal counts as a permission: it is
// about to be known better.
func (s *Subscriber) spoke(err error) {
	refused := false
	if err != nil {
		e, said := wire.Explain(err)
		refused = said && strings.HasPrefix(e.Text, "NOPERM")
	}
	s.mu.Lock()
	if refused {
		s.speech, s.checkAt = mute, time.Now().Add(redialRefused)
		s.mu.Unlock()
		return
	}
	s.speech = speaks
	var confirmed []string
	for c, yes := range s.wanted {
		if yes {
			confirmed = append(confirmed, c)
		}
	}
	s.mu.Unlock()
	slices.Sort(confirmed)
	for _, c := range confirmed {
		s.listener.Subscribed(s.index, c, true)
	}
}

// replied notes that the node has confirmed a subscription. It needs s.mu.
func (s *Subscriber) replied(channel string) {
	for i, group := range s.asked {
		at := slices.Index(group, channel)
		if at < 0 {
			continue
		}
		if s.asked[i] = slices.Delete(slices.Clone(group), at, at+1); len(s.asked[i]) == 0 {
			s.asked = slices.Delete(s.asked, i, i+1)
		}
		return
	}
}

// setAside deals with the refusal of a channel by the oldest SUBSCRIBE without a reply. If
// that has several channels, each is asked for apart; one alone is set aside for a while.
// It returns false if there is no such SUBSCRIBE.
func (s *Subscriber) setAside() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.asked) == 0 {
		return false
	}
	s.lastHeard = time.Now()
	group := s.asked[0]
	s.asked = s.asked[1:]
	for _, c := range group {
		if _, ok := s.wanted[c]; !ok {
			continue // nobody would forget it again
		}
		if s.apart[c] = true; len(group) == 1 {
			s.aside[c] = time.Now().Add(redialRefused)
		} else {
			s.toSubscribe = append(s.toSubscribe, c)
		}
	}
	s.wakeWatch()
	return true
}

// retryAside asks again for what was refused and whose pause is over.
func (s *Subscriber) retryAside() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if s.speech == mute {
		for c, yes := range s.wanted {
			if yes {
				s.trySpeech(c)
				break
			}
		}
	}
	for c, due := range s.aside {
		if !now.Before(due) {
			delete(s.aside, c)
			s.toSubscribe = append(s.toSubscribe, c)
			s.wakeWatch()
		}
	}
}

// watch sends changes of the wanted channels to the node, and a PING when the connection
// has been silent for pingEvery. It returns when the connection is of no further use: it
// failed, is half-open, or no channel is wanted; or ctx ended. The error is the client's.
func (s *Subscriber) watch(ctx, noDial context.Context, sub subscription, broken <-chan struct{}) error {
	asked := time.Now() // dialling is bounded by the client's timeouts, the answer by pongWait
	look := time.NewTimer(pongWait)
	defer look.Stop()
	for {
		select {
		case <-broken:
			return nil
		case <-ctx.Done():
			return nil
		case err := <-s.checked:
			s.spoke(err)
		case <-s.wake:
			if more, err := s.updateChannels(noDial, sub); !more {
				return err
			}
		case <-look.C:
			s.retryAside()
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

// updateChannels sends the changes of the wanted channels to the node. It reports whether
// the connection should be kept: a channel is wanted and the commands were sent.
func (s *Subscriber) updateChannels(noDial context.Context, sub subscription) (listen bool, err error) {
	s.mu.Lock()
	fresh := slices.DeleteFunc(s.toSubscribe, func(c string) bool { _, wanted := s.wanted[c]; return !wanted })
	stale := slices.DeleteFunc(s.toUnsubscribe, func(c string) bool { _, wanted := s.wanted[c]; return wanted })
	s.toSubscribe, s.toUnsubscribe = nil, nil
	listen = len(s.wanted) > 0
	var groups [][]string
	if fresh = slices.DeleteFunc(fresh, func(c string) bool {
		if s.apart[c] {
			groups = append(groups, []string{c})
		}
		return s.apart[c]
	}); len(fresh) > 0 {
		groups = append(groups, fresh)
	}
	if listen {
		s.asked = append(s.asked, groups...)
	}
	s.mu.Unlock()
	if listen && len(stale) > 0 {
		err = sub.unsubscribe(noDial, stale)
	}
	for _, group := range groups {
		if listen && err == nil {
			err = sub.subscribe(noDial, group)
		}
	}
	return listen && err == nil, err
}

// subscribe dials a connection and subscribes it to the channels.
func (s *Subscriber) subscribe(ctx context.Context, channels []string) (sub subscription, err error) {
	defer wire.RecoverTo(&err)
	return subscription{s.node.Subscribe(ctx, channels...)}, nil
}

// A subscription is a go-redis subscription whose methods return a panic of the client as an
// error.
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

// Confirmed returns the number of channels whose subscription the node has confirmed.
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
