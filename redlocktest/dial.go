package redlocktest

import (
	"context"
	"errors"
	"net"
	"os"
	"time"
)

// blocked reports whether segments in direction dir are held now. A hung server's kernel still accepts what arrives, so
// for a dial (process false) only the network counts. The caller holds node.mu.
func (l *link) blocked(dir direction, process bool) bool {
	n := l.node
	return l.cut[dir] || n.cut[dir] || process && dir == request && n.hung
}

// lastOpened returns when dir was last opened again, by a heal or a resume. The caller holds node.mu.
func (l *link) lastOpened(dir direction) time.Time {
	if l.opened[dir].After(l.node.opened[dir]) {
		return l.opened[dir]
	}
	return l.node.opened[dir]
}

// due returns when a segment that leaves at from arrives; the zero time means at once. The caller holds node.mu.
func (l *link) due(from time.Time, dir direction, key uint64) time.Time {
	d := l.latency(dir, key)
	if d == 0 {
		return time.Time{}
	}
	due := from.Add(d)
	if n := l.node; n.bubble {
		// Where segments of several senders meet, each sender has nanoseconds of its own: at a node the requests of different
		// clients, at a client the replies of different nodes. Otherwise, by chance, two of five replies would arrive at the
		// same instant once in a few thousand rounds.
		own := int64(l.client)
		if dir == reply {
			own = int64(n.index)
		}
		due = due.Add(time.Duration((own%slots - due.UnixNano()%slots + slots) % slots))
	}
	return due
}

// latency returns how long a segment travels. key identifies the segment: see conn.key. The caller holds node.mu.
func (l *link) latency(dir direction, key uint64) time.Duration {
	n := l.node
	d := n.delay[dir]
	if n.bubble {
		if d == 0 {
			d = bubbleBase
		}
		d += time.Duration(l.jitter(dir, key) % bubbleSpread)
	}
	return d
}

func (l *link) jitter(dir direction, key uint64) uint64 {
	return mix(l.node.seed, uint64(l.node.index), uint64(l.client), uint64(dir), key)
}

// dial is one TCP handshake: a request and its reply, subject to the same faults as data.
func (l *link) dial(ctx context.Context) (net.Conn, error) {
	n := l.node
	key := timeKey(time.Now())
	if err := l.travel(ctx, request, key); err != nil {
		return nil, l.dialError(err)
	}
	c, err := n.accept(l, key)
	if err == nil || errors.Is(err, errRefused) { // a refusal is a reply that has to travel, too
		if lost := l.travel(ctx, reply, key); lost != nil {
			err = lost
		}
	}
	if err != nil {
		if c != nil {
			c.Close()
		}
		return nil, l.dialError(err)
	}
	return c, nil
}

// travel waits as long as one segment travels, and longer while that direction is cut.
func (l *link) travel(ctx context.Context, dir direction, key uint64) error {
	n := l.node
	for again := uint64(0); ; again++ {
		n.mu.Lock()
		d := l.latency(dir, key+again)
		n.mu.Unlock()
		if err := sleep(ctx, d); err != nil {
			return err
		}
		held, err := l.open(ctx, dir)
		if err != nil || !held {
			return err
		}
	}
}

// open waits until dir is open, and reports whether it had to wait.
func (l *link) open(ctx context.Context, dir direction) (held bool, err error) {
	n := l.node
	n.mu.Lock()
	defer n.mu.Unlock()
	if l.blocked(dir, false) && !n.closed {
		stop := context.AfterFunc(ctx, func() {
			n.mu.Lock()
			n.dialers.Broadcast()
			n.mu.Unlock()
		})
		defer stop()
	}
	for l.blocked(dir, false) && !n.closed && !l.gone && ctx.Err() == nil {
		held = true
		n.dialers.Wait()
	}
	if n.closed || l.gone {
		return held, net.ErrClosed
	}
	return held, ctx.Err()
}

func sleep(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *link) dialError(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		err = os.ErrDeadlineExceeded // as net.Dialer does: a network timeout
	}
	return &net.OpError{Op: "dial", Net: "tcp", Addr: addr(l.node.Addr()), Err: err}
}
