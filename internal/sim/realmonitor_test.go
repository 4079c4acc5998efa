package sim

import (
	"bufio"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/seam"
	"github.com/seed-ce352c9b/redlock/internal/wire"
)

// monitor tells the judges of announcements what a server executes, until w.watched is closed. What it executes while the connection
// is broken is not seen.
func (w *realWorld) monitor(node int) {
	for {
		conn, err := net.Dial("tcp", w.servers[node].Addr())
		if err == nil {
			stop := make(chan struct{})
			go func() {
				select {
				case <-w.watched:
				case <-stop:
				}
				conn.Close()
			}()
			w.listen(node, conn)
			close(stop)
		}
		select {
		case <-w.watched:
			return
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// listen reads what MONITOR says: "+1795464000.123456 [0 127.0.0.1:40000] \"pttl\" \"k0\"". A script's own commands follow it, as
// those of "lua".
func (w *realWorld) listen(node int, conn net.Conn) {
	if _, err := conn.Write([]byte("MONITOR\r\n")); err != nil {
		return
	}
	var deletes [][2]string // by the last script, if it deletes what it finds
	for lines := bufio.NewReader(conn); ; {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		_, from, _ := strings.Cut(line, "[")
		from, words, ok := strings.Cut(from, "] ")
		args := unquoted(words)
		switch isScript := strings.HasSuffix(from, " lua"); {
		case !ok || len(args) == 0 || args[0] == ownPTTL:
		case !isScript:
			deletes = w.said.takesIn(args, w.now())
		case strings.EqualFold(args[0], "publish") && len(args) == 3:
			if a, ok := wire.ReadAnnouncement(args[2]); ok {
				for _, d := range deletes {
					if d[1] == a.Value {
						w.said.deleted(node, d[0], d[1], w.listens(node, args[1], d[0]), w.now())
					}
				}
			}
		}
	}
}

// ownPTTL is PTTL as the test itself asks for it: the library's, in lower case, is a look.
const ownPTTL = "PTTL"

// unquoted returns the words of a command as MONITOR prints them, in quotes.
func unquoted(text string) (words []string) {
	for text = strings.TrimSpace(text); text != ""; text = strings.TrimLeft(text, " ") {
		q, err := strconv.QuotedPrefix(text)
		if err != nil {
			return words
		}
		word, err := strconv.Unquote(q)
		if err != nil {
			return words
		}
		words, text = append(words, word), text[len(q):]
	}
	return words
}

// listens returns the client to whose entry a channel belongs, if it hears what the node publishes there.
func (w *realWorld) listens(node int, channel, name string) []int {
	w.mu.Lock()
	deaf := w.now() < w.deaf[node]
	w.mu.Unlock()
	for i, c := range w.clients {
		c.mu.Lock()
		label, lockers := c.labelLocked(), c.lockers
		c.mu.Unlock()
		if deaf || !strings.Contains(channel, ":"+label+":") {
			continue
		}
		if slices.ContainsFunc(lockers[:], func(l *redlock.Locker) bool { return seam.Peek(l).Nodes[node].Subscribed > 0 }) {
			return []int{i}
		}
	}
	return nil
}

// judgeSilence judges, until w.watched is closed, whether a lock that a waiter was told is free is asked for, and how often a lock is
// that nobody has.
func (w *realWorld) judgeSilence() {
	const often = 20 * time.Millisecond
	for tick := time.NewTicker(often); ; {
		select {
		case <-w.watched:
			tick.Stop()
			return
		case <-tick.C:
		}
		now := w.now()
		for key := range w.s.Keys {
			w.judgeTries(key)
			told, at := w.said.unasked(w.s.keyName(key), now, maxUnasked+w.allowance(now-2*time.Second, now))
			w.mu.Lock()
			told = slices.DeleteFunc(told, func(client int) bool { return !w.isWaiting(client, key, at-undisturbed) })
			calm := w.open == 0 && w.quiet < at-undisturbed
			w.mu.Unlock()
			if calm && len(told) > 0 {
				w.wrong("liveness", key, "%s was freed at %v, c%d was told of that by a majority, and nobody has asked for it since", w.s.keyName(key), at, told[0])
			}
		}
	}
}
