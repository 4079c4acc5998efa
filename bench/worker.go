package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/seed-ce352c9b/redlock"
)

// This program is also each of the processes that contend: one with a job in its environment does that and nothing else.
const jobEnv = "REDLOCK_BENCH_JOB"

const (
	kindOurs      = "redlock"
	kindFair      = "redlock, fair"
	kindDeaf      = "redlock, deaf" // through nodes that cannot be subscribed to
	kindRedsync   = "redsync"
	kindRedislock = "redislock"

	kindLinks  = "links"  // proxies, see serveLinks
	kindCPU    = "cpu"    // a profile, see profileJob
	kindAllocs = "allocs" // another
)

// A job is what one process does: each goroutine acquires, holds, releases and rests, over and over.
type job struct {
	Kind       string
	Addrs      []string
	Key        string
	Goroutines int
	Hold, Rest time.Duration
	For        time.Duration
	Delays     []time.Duration `json:",omitempty"` // of links
}

// A hold is one of them, in nanoseconds of the wall clock, which all processes of a machine share: from the return of
// acquire to the call of release.
type hold struct{ From, To int64 }

// An outcome is what a process tells.
type outcome struct {
	Holds  []hold
	Served []int // by goroutine
}

// An obtain blocks until the lock is had or ctx is done.
type obtain func(ctx context.Context, key string) (release func(), err error)

func newWaiter(kind string, addrs []string) (obtain, func(), error) {
	switch kind {
	case kindOurs, kindFair, kindDeaf:
		clients := newClients(addrs)
		nodes := make([]redlock.Node, len(clients))
		for i, c := range clients {
			nodes[i] = c
			if kind == kindDeaf {
				nodes[i] = struct{ redlock.Node }{c}
			}
		}
		l, err := redlock.New(redlock.Options{Fair: kind == kindFair}, nodes...)
		if err != nil {
			return nil, nil, err
		}
		return func(ctx context.Context, key string) (func(), error) {
			k, err := l.Acquire(ctx, key, ttl)
			if err != nil {
				return nil, err
			}
			return func() { k.Release(context.Background()) }, nil
		}, func() { l.Close(); closeClients(clients) }, nil
	case kindRedsync:
		clients := newClients(addrs)
		pools := make([]redsyncredis.Pool, len(clients))
		for i, c := range clients {
			pools[i] = goredis.NewPool(c)
		}
		rs := redsync.New(pools...)
		return func(ctx context.Context, key string) (func(), error) {
			m := rs.NewMutex(key, redsync.WithExpiry(ttl))
			if err := m.LockContext(ctx); err != nil { // 32 tries
				return nil, err
			}
			return func() { m.UnlockContext(context.Background()) }, nil
		}, func() { closeClients(clients) }, nil
	case kindRedislock:
		client := redis.NewClient(&redis.Options{Addr: addrs[0]})
		l := redislock.New(client)
		return func(ctx context.Context, key string) (func(), error) {
			k, err := l.Obtain(ctx, key, ttl, &redislock.Options{RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond)})
			if err != nil {
				return nil, err
			}
			return func() { k.Release(context.Background()) }, nil
		}, func() { client.Close() }, nil
	}
	return nil, nil, fmt.Errorf("no kind %q", kind)
}

// doJob is the whole life of a worker.
func doJob(text string) error {
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		return err
	}
	redis.SetLogger(silent{})
	switch j.Kind {
	case kindLinks:
		return serveLinks(j)
	case kindCPU, kindAllocs:
		return profileJob(j)
	}
	return contend(j)
}

// contend begins when it is told to on stdin, and tells the outcome on stdout.
func contend(j job) error {
	acquire, done, err := newWaiter(j.Kind, j.Addrs)
	if err != nil {
		return err
	}
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), j.For)
	defer cancel()
	out := outcome{Served: make([]int, j.Goroutines)}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for g := range j.Goroutines {
		wg.Go(func() {
			for ctx.Err() == nil {
				release, err := acquire(ctx, j.Key)
				if err != nil {
					continue // some give up after a while
				}
				h := hold{From: time.Now().UnixNano()}
				pause(j.Hold)
				h.To = time.Now().UnixNano()
				release()
				out.Served[g]++
				mu.Lock()
				out.Holds = append(out.Holds, h)
				mu.Unlock()
				time.Sleep(j.Rest)
			}
		})
	}
	wg.Wait()
	done()
	return json.NewEncoder(os.Stdout).Encode(out)
}

// worker is a process with a job.
func worker(j job) (*exec.Cmd, error) {
	text, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), jobEnv+"="+string(text))
	return cmd, nil
}

// crew runs n processes with the same job and collects their outcomes.
func crew(n int, j job) ([]outcome, error) {
	cmds := make([]*exec.Cmd, n)
	outs := make([]bytes.Buffer, n)
	starts := make([]io.WriteCloser, n)
	var err error
	for i := range cmds {
		if cmds[i], err = worker(j); err != nil {
			return nil, err
		}
		cmds[i].Stdout, cmds[i].Stderr = &outs[i], os.Stderr
		if starts[i], err = cmds[i].StdinPipe(); err != nil {
			return nil, err
		}
		if err := cmds[i].Start(); err != nil {
			return nil, err
		}
	}
	for _, start := range starts {
		if _, err := start.Write([]byte("go\n")); err != nil {
			return nil, err
		}
	}
	all := make([]outcome, n)
	var errs []error
	for i, c := range cmds {
		if err := c.Wait(); err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, json.Unmarshal(outs[i].Bytes(), &all[i]))
	}
	return all, errors.Join(errs...)
}
