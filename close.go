package redlock

import (
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seed-ce352c9b/redlock/internal/lane"
)

// silentAfter is for how long a node may leave a question unanswered before Close takes
// it for silent, unless three of its round trips are more: a quarter of the node
// timeout. Halved, a node that stalls for a moment keeps locks that it would have
// released; doubled, a hung one delays the exit of each process that much.
func (l *Locker) silentAfter() time.Duration { return l.closeWait() / 8 }

// closeWait is how long Close waits at most: two node timeouts.
func (l *Locker) closeWait() time.Duration {
	if l.opt.NodeTimeout > 0 {
		return 2 * l.opt.NodeTimeout
	}
	return 2 * maxNodeTimeout
}

// Close ends waits and KeepAlive contexts with ErrClosed, releases what is still held,
// waits for that and for what is owed to nodes, and closes the clients that Open made.
// It takes at most two node timeouts (two seconds by default). Every later call on the
// Locker is ErrClosed, a second Close too, whatever else is wrong with the call; so are
// Extend and the cause of KeepAlive's contexts, and Release tells what came of the
// release that Close made. Connections of clients given to New are theirs to close.
//
// Once a majority of the nodes has answered, Close does not wait for a node that has
// left a question unanswered for a quarter of the node timeout or, if that is more, for
// three of its round trips. Such a node may keep what it had granted, or grant it when
// it wakes: it expires there with its ttl, and alone it keeps nobody from the lock.
func (l *Locker) Close() (err error) {
	l.made()
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return ErrClosed
	}
	l.closed = true
	close(l.closing)
	l.mu.Unlock()
	held := l.allHeld()
	for _, k := range held {
		k.endKeepAlive(ErrClosed)
	}
	limit := time.NewTimer(l.closeWait())
	defer limit.Stop()
	// One after the other: what the calls that were under way undo, and only then the
	// locks, for a failed adoption puts the old value back.
	calls := make(chan struct{})
	go func() { l.busy.Wait(); close(calls) }()
	select {
	case <-calls:
	case <-limit.C:
		limit.Reset(0)
	}
	l.renewRegisterTTLs()
	l.awaitIdle(limit)
	// Deferred: also if the caller's Observe panics, told of a release.
	var released []*quorumCall
	defer func() { err = l.shutDown(released, limit) }()
	lane.Each(0, len(held), func(i int) {
		if b := held[i].beginRelease(ErrClosed); b != nil {
			released = append(released, b)
		}
	})
	return nil
}

// shutDown waits for the releases, within the limit, and ends what is ours.
func (l *Locker) shutDown(released []*quorumCall, limit *time.Timer) error {
	for _, b := range released {
		select {
		case <-b.done:
		case <-limit.C:
			limit.Reset(0)
		}
	}
	l.awaitIdle(limit)
	deaf := l.queues.close()
	for _, ln := range l.lanes {
		ln.Close()
	}
	heard := make(chan struct{})
	go func() { deaf(); close(heard) }()
	select {
	case <-heard:
	case <-time.After(l.silentAfter()): // dialling; the clients' timeouts bound it
	case <-limit.C:
	}
	var clients errgroup.Group // each waits for its pool's connections
	for _, c := range l.owned {
		clients.Go(c.Close)
	}
	return clients.Wait()
}

// allHeld is every lock on the list.
func (l *Locker) allHeld() (all []*Lock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k := l.held.first; k != nil; k = k.entry.next {
		all = append(all, k)
	}
	return all
}

// awaitIdle waits until nothing is under way to the nodes that answer, or the limit.
// Once a majority of the nodes has answered everything, silent ones are not waited for.
func (l *Locker) awaitIdle(limit *time.Timer) {
	type rested struct {
		ln       *lane.Lane
		answered bool
	}
	idle := make(chan rested, len(l.lanes))
	busy := make(map[*lane.Lane]bool)
	for _, ln := range l.lanes {
		busy[ln] = true
		ln.WhenIdle(func(answered bool) { idle <- rested{ln, answered} })
	}
	answers := 0
	for len(busy) > 0 {
		var silent <-chan time.Time
		if answers >= majority(len(l.lanes)) {
			wait := time.Duration(0)
			for ln := range busy {
				wait = max(wait, ln.UntilSilent(l.silentAfter()))
			}
			if wait <= 0 {
				return
			}
			silent = time.After(wait)
		}
		select {
		case r := <-idle:
			delete(busy, r.ln)
			if r.answered {
				answers++
			}
		case <-silent: // or it has answered meanwhile
		case <-limit.C:
			limit.Reset(0) // for whoever waits after us
			return
		}
	}
}

// begin notes that a call is under way which may yet send something; false: the
// Locker is closed. Close waits for its end.
func (l *Locker) begin() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.busy.Add(1)
	}
	return !l.closed
}

func (l *Locker) end() { l.busy.Done() }

func (l *Locker) isClosed() bool {
	select {
	case <-l.closing:
		return true
	default:
		return false
	}
}

// expired reports that Until is over on the steady clock: the wall clock alone may
// be set back again, and then Close has to find the lock.
func (k *Lock) expired() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.state != stateHeld || k.l.now().at.Sub(k.start.at) >= k.valid
}
