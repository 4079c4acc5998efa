package main

import (
	"bytes"
	"cmp"
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
type hold struct {
	From, To int64
	process  int // set by inOrder
}

// An outcome is the report of a process.
type outcome struct {
	Holds  []hold
	Served []int // by goroutine
}

// contend does the job. It begins when stdin ends, and writes the outcome to stdout.
func contend(text string) {
	logging.Disable()
	var j job
	check(json.Unmarshal([]byte(text), &j))
	c := contenders(j.Addrs, j.Contender)[0]
	defer c.close()
	must(io.Copy(io.Discard, os.Stdin))
	ctx, cancel := context.WithTimeout(context.Background(), j.For)
	defer cancel()
	out := outcome{Served: make([]int, j.Goroutines)}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for g := range j.Goroutines {
		wg.Go(func() {
			for ctx.Err() == nil {
				held, err := c.wait(ctx, j.Key)
				if err != nil {
					continue // some contenders give up after a while
				}
				h := hold{From: time.Now().UnixNano()}
				pause(j.Hold)
				h.To = time.Now().UnixNano()
				c.release(context.Background(), held)
				out.Served[g]++
				mu.Lock()
				out.Holds = append(out.Holds, h)
				mu.Unlock()
				time.Sleep(j.Rest)
			}
		})
	}
	wg.Wait()
	check(json.NewEncoder(os.Stdout).Encode(out))
}

// pause sleeps, on Linux to within some tens of microseconds.
var pause = time.Sleep

// crew runs n processes with the same job and collects their outcomes.
func crew(n int, j job) []outcome {
	env := append(os.Environ(), jobEnv+"="+string(must(json.Marshal(j))))
	self := must(os.Executable())
	stdin, start, err := os.Pipe()
	check(err)
	defer stdin.Close()
	defer start.Close()
	cmds := make([]*exec.Cmd, n)
	outs := make([]bytes.Buffer, n)
	for i := range cmds {
		cmds[i] = &exec.Cmd{Path: self, Env: env, Stdin: stdin, Stdout: &outs[i], Stderr: os.Stderr}
		check(cmds[i].Start())
	}
	check(start.Close())
	all := make([]outcome, n)
	var errs []error
	for i, c := range cmds {
		errs = append(errs, cmp.Or(c.Wait(), json.Unmarshal(outs[i].Bytes(), &all[i])))
	}
	check(errors.Join(errs...))
	return all
}

// inOrder returns the holds of all processes as they began.
func inOrder(got []outcome) (all []hold) {
	for p, o := range got {
		for _, h := range o.Holds {
			all = append(all, hold{h.From, h.To, p})
		}
	}
	slices.SortFunc(all, func(a, b hold) int { return cmp.Compare(a.From, b.From) })
	return all
}

// handovers returns how long each hand-over took, in milliseconds. Two holds at one time are an error, since then nothing was
// measured.
func handovers(holds []hold) (took []float64, err error) {
	for i := 1; i < len(holds); i++ {
		d := time.Duration(holds[i].From - holds[i-1].To)
		if d < 0 {
			err = fmt.Errorf("two contenders held the lock at one time, for %v", -d)
		}
		took = append(took, ms(d))
	}
	return took, err
}
