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
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9/logging"
)

// jobEnv holds the job of a worker. With it in the environment, this program is one of the processes that contend.
const jobEnv = "REDLOCK_BENCH_JOB"

// A job is the work of one process: each goroutine waits for the lock, holds it, releases it and rests, over and over.
type job struct {
	Contender  string
	Addrs      []string
	Key        string
	Goroutines int
	Hold, Rest time.Duration
	For        time.Duration
}

// A hold lasts from the return of acquire to the call of release, in nanoseconds of the wall clock, which all processes of a
// machine share.
type hold struct{ From, To int64 }

// An outcome is the report of a process.
type outcome struct {
	Holds  []hold
	Served []int // by goroutine
}

// contend does the job. It begins when a line arrives on stdin and writes the outcome to stdout.
func contend(text string) error {
	logging.Disable()
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		return err
	}
	cs, err := contenders(j.Addrs, j.Contender)
	if err != nil {
		return err
	}
	defer closeAll(cs)
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
				held, err := cs[0].wait(ctx, j.Key)
				if err != nil {
					continue // some contenders give up after a while
				}
				h := hold{From: time.Now().UnixNano()}
				pause(j.Hold)
				h.To = time.Now().UnixNano()
				cs[0].release(context.Background(), held)
				out.Served[g]++
				mu.Lock()
				out.Holds = append(out.Holds, h)
				mu.Unlock()
				time.Sleep(j.Rest)
			}
		})
	}
	wg.Wait()
	return json.NewEncoder(os.Stdout).Encode(out)
}

// crew runs n processes with the same job and collects their outcomes.
func crew(n int, j job) ([]outcome, error) {
	text, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmds := make([]*exec.Cmd, n)
	outs := make([]bytes.Buffer, n)
	starts := make([]io.WriteCloser, n)
	for i := range cmds {
		cmds[i] = exec.Command(self)
		cmds[i].Env = append(os.Environ(), jobEnv+"="+string(text))
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

// handovers returns how long each hand-over took, in milliseconds. Two holds at one time are an error, since then nothing was
// measured.
func handovers(got []outcome) (took []float64, err error) {
	var all []hold
	for _, o := range got {
		all = append(all, o.Holds...)
	}
	slices.SortFunc(all, func(a, b hold) int { return int(a.From - b.From) })
	for i := 1; i < len(all); i++ {
		d := time.Duration(all[i].From - all[i-1].To)
		if d < 0 {
			err = fmt.Errorf("two contenders held the lock at one time, for %v", -d)
		}
		took = append(took, ms(d))
	}
	return took, err
}
