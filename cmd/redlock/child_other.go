//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package main

import "os"

// forwarded are the signals that end a wait. Here they reach the command by itself:
// a console tells all its processes.
var forwarded = []os.Signal{os.Interrupt}

// A child is the command. Here what it starts is not ended with it.
type child struct {
	p     *os.Process
	ended chan int // gets the exit status once, when it has ended
}

func startChild(path string, argv, env []string, _ chan<- os.Signal, _ func() bool) (*child, error) {
	p, err := os.StartProcess(path, argv, &os.ProcAttr{
		Env:   env,
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
	})
	if err != nil {
		return nil, err
	}
	c := &child{p: p, ended: make(chan int, 1)}
	go func() {
		status := exitFailed
		if s, err := p.Wait(); err == nil {
			status = s.ExitCode()
		}
		c.ended <- status
	}()
	return c, nil
}

func (c *child) signal(os.Signal) {}

// terminate kills: there is no way to ask.
func (c *child) terminate() { c.kill() }

func (c *child) kill() { c.p.Kill() }

func (c *child) leftovers() bool { return false }

func (c *child) unwatch() {}

// watchdog is not used here: there is no process group to kill.
func watchdog() int { return exitUsage }
