//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package main

import (
	"os"
	"os/signal"
	"runtime"
	"syscall"
)

// forwarded are the signals that end a wait and are passed on to the command.
var forwarded = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}

// A child is the command in a process group of its own, so that all it started can be
// signalled and nothing else is: in our group there may be a shell script and the
// other ends of a pipeline.
//
// A group of its own is a background job to the terminal, and what reads a terminal
// from the background is stopped. So the terminal is handed to the child when it is
// stopped for that, and not before: as long as it can do without, ctrl-C goes to
// the whole pipeline as if we were not there.
type child struct {
	pid   int
	ended chan int    // gets the exit status once, when it was reaped
	tty   *tty        // nil: we have no controlling terminal
	valid func() bool // whether the lock is held
	dog   *dog        // kills the group if we are killed
}

// startChild starts the command. ctrl-Z comes by signals, as what is forwarded does.
func startChild(path string, argv, env []string, signals chan<- os.Signal, valid func() bool) (*child, error) {
	dog, err := startDog() // first: without it nothing is started
	if err != nil {
		return nil, err
	}
	c := &child{ended: make(chan int, 1), valid: valid, dog: dog}
	started, prepared := make(chan error), make(chan struct{})
	go func() {
		// For good: where the kernel kills the child for us it does so when the thread
		// that started it ends, not the process. This one waits for the child.
		runtime.LockOSThread()
		err := c.start(path, argv, env)
		started <- err
		if err == nil {
			<-prepared
			c.wait()
		}
	}()
	if err := <-started; err != nil {
		dog.end()
		return nil, err
	}
	c.tty = openTTY()
	if c.tty != nil {
		// Without it taking the terminal back, from the background, would stop us. After the
		// start, because the command would inherit it.
		signal.Ignore(syscall.SIGTTOU)
		// ctrl-Z must stop the child before it stops us, who could not renew the lock that
		// the child goes on to rely on.
		if !signal.Ignored(syscall.SIGTSTP) {
			signal.Notify(signals, syscall.SIGTSTP)
		}
	}
	close(prepared)
	return c, nil
}

// start starts the process and has it watched.
func (c *child) start(path string, argv, env []string) error {
	sys := &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(sys)
	p, err := os.StartProcess(path, argv, &os.ProcAttr{
		Env:   env,
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
		Sys:   sys,
	})
	if err != nil {
		return err
	}
	c.pid = p.Pid
	c.dog.watch(c.pid)
	p.Release() // reaped by wait
	return nil
}

// unwatch is called when the child has ended and what is left of its group may stay.
func (c *child) unwatch() { c.dog.end() }

// wait reaps the child. Process.Wait does not tell of a child that is stopped.
func (c *child) wait() {
	for {
		var ws syscall.WaitStatus
		_, err := syscall.Wait4(c.pid, &ws, syscall.WUNTRACED, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil: // not our child any more: can not be
			c.end(exitFailed)
			return
		case ws.Stopped():
			c.stopped(ws.StopSignal())
		case ws.Signaled():
			c.end(exitSignal + int(ws.Signal()))
			return
		case ws.Exited():
			c.end(ws.ExitStatus())
			return
		}
	}
}

func (c *child) end(status int) {
	if c.tty != nil && c.tty.foreground() != syscall.Getpgrp() && c.tty.lent {
		c.tty.give(syscall.Getpgrp())
	}
	c.ended <- status
}

// stopped hands the terminal to a child that was stopped for lack of it, and stops with
// one that was suspended by ctrl-Z, so that the shell gets its turn.
func (c *child) stopped(sig syscall.Signal) {
	wants := sig == syscall.SIGTTIN || sig == syscall.SIGTTOU
	if c.tty == nil || !wants && sig != syscall.SIGTSTP {
		return // by somebody's SIGSTOP: theirs to continue; the lock is kept
	}
	us := syscall.Getpgrp()
	if wants && c.tty.foreground() == us {
		c.tty.give(c.pid)
		c.group(syscall.SIGCONT)
		return
	}
	had := c.tty.foreground() == c.pid
	target := os.Getpid()
	if had {
		// Only the child's group got the ctrl-Z; ours, a script perhaps, is to stop too.
		c.tty.give(us)
		target = 0
	}
	c.suspend(target)
	// The child is still stopped, and stays so if the lock was lost meanwhile: then the
	// loss, told within a second, ends it before it does anything more.
	if !c.valid() {
		return
	}
	if (had || wants) && c.tty.foreground() == us {
		c.tty.give(c.pid)
	}
	c.group(syscall.SIGCONT)
}

// suspend stops us, or with 0 our group, and returns when we were continued. Where there is
// no shell to continue us it does nothing, as the kernel does on ctrl-Z.
//
// By SIGSTOP: once SIGTSTP was caught, signal.Reset does not bring its default back.
func (c *child) suspend(target int) {
	if parent := os.Getppid(); parent == 0 || session(parent) != session(0) {
		return
	}
	cont := make(chan os.Signal, 1)
	signal.Notify(cont, syscall.SIGCONT)
	defer signal.Stop(cont)
	if syscall.Kill(target, syscall.SIGSTOP) == nil {
		<-cont // kill may return before all threads have stopped
	}
}

func (c *child) signal(s os.Signal) {
	if sig, ok := s.(syscall.Signal); ok {
		c.group(sig)
	}
}

// terminate asks all of the group to end; a stopped process hears it when continued.
func (c *child) terminate() {
	c.group(syscall.SIGTERM)
	c.group(syscall.SIGCONT)
}

func (c *child) kill() { c.group(syscall.SIGKILL) }

func (c *child) group(sig syscall.Signal) { syscall.Kill(-c.pid, sig) }

// leftovers reports whether any of the group still runs after the child was reaped.
func (c *child) leftovers() bool { return syscall.Kill(-c.pid, 0) == nil }
