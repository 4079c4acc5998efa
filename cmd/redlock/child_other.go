//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package main

import "os"

// forwardedSignals cancel the acquisition. They are not forwarded here: the console sends
// them to all its processes, including the command.
var forwardedSignals = []os.Signal{os.Interrupt}

// A child is the command. On this system the processes that it starts are not killed with it.
type child struct {
	p     *os.Process
	ended chan int // receives the exit status once, after the child has ended
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

// terminate kills the command: this system has no way to ask it to exit.
func (c *child) terminate() { c.kill() }

func (c *child) kill() { c.p.Kill() }

func (c *child) groupAlive() bool { return false }

func (c *child) stopWatchdog() {}

// runWatchdog is not used on this system: there is no process group to kill.
func runWatchdog() int { return exitUsage }
