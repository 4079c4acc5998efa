package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"time"
)

// A link is a TCP proxy in front of one node that delays every byte: a node far away, which still answers as many requests
// a second as before. Each direction takes half of the delay, whatever its length.
type link struct {
	listener net.Listener
	backend  string
	way      time.Duration // one direction
	post     chan letter
	done     chan struct{}

	mu     sync.Mutex
	conns  []net.Conn
	closed bool
}

// A letter is what was read at once, and where it goes.
type letter struct {
	due   time.Time
	to    net.Conn
	bytes []byte // none: the other end has closed
}

func newLink(backend string, delay time.Duration) (*link, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &link{listener: l, backend: backend, way: delay / 2, post: make(chan letter, 1<<14), done: make(chan struct{})}
	go s.serve()
	go s.deliver()
	return s, nil
}

func (s *link) addr() string { return s.listener.Addr().String() }

func (s *link) serve() {
	for {
		client, err := s.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", s.backend)
		if err != nil {
			client.Close()
			continue
		}
		s.mu.Lock()
		s.conns = append(s.conns, client, server)
		if s.closed {
			client.Close()
			server.Close()
		}
		s.mu.Unlock()
		go s.collect(client, server)
		go s.collect(server, client)
	}
}

// collect reads from one end and posts to the other. Letters wait in the post and not in a sleeping reader: that would be a
// slow server, not a long way.
func (s *link) collect(from, to net.Conn) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		l := letter{due: time.Now().Add(s.way), to: to}
		if n > 0 {
			l.bytes = append(l.bytes, buf[:n]...)
		}
		if n > 0 || err != nil {
			select {
			case s.post <- l:
			case <-s.done:
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// deliver is the way. All letters take equally long, so they arrive in the order in which they were sent, and one goroutine
// waits for all. It waits in the kernel, on a thread of its own: timers of the runtime are late by up to a millisecond.
func (s *link) deliver() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for {
		select {
		case l := <-s.post:
			if wait := time.Until(l.due); wait > 0 {
				pause(wait)
			}
			if len(l.bytes) == 0 {
				l.to.Close()
			} else if _, err := l.to.Write(l.bytes); err != nil {
				l.to.Close()
			}
		case <-s.done:
			return
		}
	}
}

func (s *link) close() {
	s.listener.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.closed = true
		close(s.done)
	}
	for _, c := range s.conns {
		c.Close()
	}
}

// Links run in a process of their own: their work is nobody's in the table.
type links struct {
	addrs []string
	cmd   *exec.Cmd
	stdin io.Closer
}

// startLinks puts a proxy in front of each backend.
func startLinks(backends []string, delays []time.Duration) (*links, error) {
	cmd, err := worker(job{Kind: kindLinks, Addrs: backends, Delays: delays})
	if err != nil {
		return nil, err
	}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	l := &links{cmd: cmd, stdin: stdin}
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &l.addrs)
	}
	if err != nil {
		l.close()
		return nil, fmt.Errorf("proxies: %w", err)
	}
	return l, nil
}

func (l *links) close() {
	l.stdin.Close()
	l.cmd.Wait()
}

// serveLinks is the life of that process: it ends with its stdin, and so with its parent.
func serveLinks(j job) error {
	runtime.GOMAXPROCS(2*len(j.Addrs) + runtime.NumCPU()) // a thread that waits in the kernel must not keep others from running
	var addrs []string
	for i, backend := range j.Addrs {
		l, err := newLink(backend, j.Delays[i])
		if err != nil {
			return err
		}
		defer l.close()
		addrs = append(addrs, l.addr())
	}
	if err := json.NewEncoder(os.Stdout).Encode(addrs); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}
