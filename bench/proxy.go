package main

import (
	"net"
	"sync"
	"time"
)

// A slowLink is a TCP proxy in front of one node that delays every byte: a node far away, which still answers as many
// requests a second as before. Each direction takes half of the delay.
type slowLink struct {
	listener net.Listener
	backend  string
	delay    time.Duration
	mu       sync.Mutex
	conns    []net.Conn
	closed   bool
}

func newSlowLink(backend string, delay time.Duration) (*slowLink, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &slowLink{listener: l, backend: backend, delay: delay}
	go s.serve()
	return s, nil
}

func (s *slowLink) addr() string { return s.listener.Addr().String() }

func (s *slowLink) serve() {
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
		go delayed(server, client, s.delay/2)
		go delayed(client, server, s.delay/2)
	}
}

func (s *slowLink) close() {
	s.listener.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, c := range s.conns {
		c.Close()
	}
}

// delayed copies from src to dst, each chunk d after it came. Chunks wait in a queue and not in a sleeping reader: that
// would be a slow server, not a long way.
func delayed(dst, src net.Conn, d time.Duration) {
	type chunk struct {
		due   time.Time
		bytes []byte
	}
	queue := make(chan chunk, 4096)
	go func() {
		defer close(queue)
		buf := make([]byte, 64<<10)
		for {
			n, err := src.Read(buf)
			if n > 0 {
				queue <- chunk{time.Now().Add(d), append([]byte(nil), buf[:n]...)}
			}
			if err != nil {
				return
			}
		}
	}()
	for c := range queue {
		time.Sleep(time.Until(c.due))
		if _, err := dst.Write(c.bytes); err != nil {
			break
		}
	}
	dst.Close()
	src.Close() // ends the reader where the write failed
	for range queue {
	}
}
