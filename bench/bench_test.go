package main

import (
	"bufio"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/realredis"
)

// BenchmarkCycle is acquire and release on real servers, for profiles and for comparing two versions of ours with
// benchstat. Between contenders, go run . is the fairer judge: it interleaves them.
func BenchmarkCycle(b *testing.B) {
	servers := realredis.Start(b, 5)
	cs, err := contenders(servers)
	if err != nil {
		b.Fatal(err)
	}
	defer closeAll(cs)
	for _, c := range cs {
		if c.name == nameFailFast {
			continue // its own left-overs refuse it now and then, which is an error here
		}
		for _, g := range []int{1, 64} {
			b.Run(fmt.Sprintf("%s/goroutines=%d", c.name, g), func(b *testing.B) {
				b.ReportAllocs()
				work := make(chan int, g)
				var wg sync.WaitGroup
				for i := range g {
					key := fmt.Sprint("bench:", i)
					wg.Go(func() {
						for n := range work {
							for range n {
								if err := c.cycle(b.Context(), key); err != nil {
									b.Error(err)
									return
								}
							}
						}
					})
				}
				for i := range g {
					n := b.N / g
					if i < b.N%g {
						n++
					}
					work <- n
				}
				close(work)
				wg.Wait()
			})
		}
	}
}

// The proxy must delay without serialising, or the slow node would be a weak one.
func TestSlowLink(t *testing.T) {
	t.Parallel()
	s := realredis.Start(t, 1)[0]
	const delay, requests = 100 * time.Millisecond, 20
	l, err := newSlowLink(s.Addr(), delay)
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	conn, err := net.Dial("tcp", l.addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	start := time.Now()
	go func() {
		for range requests {
			fmt.Fprint(conn, "PING\r\n")
			time.Sleep(time.Millisecond) // chunks of their own
		}
	}()
	answers := bufio.NewReader(conn)
	for i := range requests {
		if line, err := answers.ReadString('\n'); line != "+PONG\r\n" {
			t.Fatalf("got %q, %v", line, err)
		}
		if took := time.Since(start); i == 0 && took < delay {
			t.Errorf("the first answer took %v, want at least %v", took, delay)
		}
	}
	if took := time.Since(start); took > requests/2*delay {
		t.Errorf("%d requests took %v, want little more than the %v of one", requests, took, delay)
	}
}
