//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package main

import (
	"os"
	"os/signal"
	"runtime"
	"syscall"
)

// forwardedSignals cancel the acquisition, and are forwarded to the command once it runs.
var forwardedSignals = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}

// A child is the command, in a process group of its own. So a signal reaches every process
// that the command started and no other: our own group may contain a shell script and the
// other ends of a pipeline.
//
// To the terminal, a separate group is a background job, and the kernel stops a background
// job that reads from the terminal. So the child becomes the foreground group when it is
// stopped for that reason, and not earlier: until it needs the terminal, ctrl-C reaches the
// whole pipeline as it would without redlock.
type child struct {
	pid   int
	ended chan int    // receives the exit status once, after the child was reaped
	tty   *tty        // nil if there is no controlling terminal
	valid func() bool // reports whether the lock is held
	dog   *watchdog   // kills the group if this process is killed
}

// startChild starts the command. From then on, ctrl-Z (SIGTSTP) is delivered to signals, like
// the forwarded signals. valid reports whether the lock is held.
func startChild(path string, argv, env []string, signals chan<- os.Signal, valid func() bool) (*child, error) {
	dog, err := startWatchdog() // first: no command without a watchdog
	if err != nil {
		return nil, err
	}
	c := &child{ended: make(chan int, 1), valid: valid, dog: dog}
	started, prepared := make(chan error), make(chan struct{})
	go func() {
		// Never unlocked: the kernel sends the parent-death signal when the thread that
		// started the child exits, not when the process does. This thread waits for the child.
		runtime.LockOSThread()
		err := c.start(path, argv, env)
		started <- err
		if err == nil {
			<-prepared
			c.wait()
		}
	}()
	if err := <-started; err != nil {
		dog.stop()
		return nil, err
	}
	c.tty = openTTY()
	if c.tty != nil {
		// If SIGTTOU were not ignored, it would stop us when we take the terminal back from
		// the background. Done after the start because the command would inherit it.
		signal.Ignore(syscall.SIGTTOU)
		// ctrl-Z must stop the child before it stops us: while we are stopped, nobody renews
		// the lock, on which the child would continue to rely.
		if !signal.Ignored(syscall.SIGTSTP) {
			signal.Notify(signals, syscall.SIGTSTP)
		}
	}
	close(prepared)
	return c, nil
}

// start starts the process and tells the watchdog its process group.
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
	p.Release() // wait reaps it
	return nil
}

// stopWatchdog is called when the child has ended and the rest of its group may continue.
func (c *child) stopWatchdog() { c.dog.stop() }

// wait reaps the child. It uses Wait4 because Process.Wait does not report a stopped child.
func (c *child) wait() {
	for {
		var ws syscall.WaitStatus
		_, err := syscall.Wait4(c.pid, &ws, syscall.WUNTRACED, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil: // not our child any more: cannot happen
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

// end takes the terminal back if the child had it, and reports the exit status.
func (c *child) end(status int) {
	if c.tty != nil && c.tty.foreground() != syscall.Getpgrp() && c.tty.lent {
		c.tty.setForeground(syscall.Getpgrp())
	}
	c.ended <- status
}

// stopped is called when the child was stopped by sig. If the child was stopped because it
// needs the terminal, it gets the terminal. If it was suspended by ctrl-Z, this process
// suspends itself too, so that the shell continues.
func (c *child) stopped(sig syscall.Signal) {
	wants := sig == syscall.SIGTTIN || sig == syscall.SIGTTOU
	if c.tty == nil || !wants && sig != syscall.SIGTSTP {
		return // somebody sent SIGSTOP and will send SIGCONT; the lock is kept
	}
	us := syscall.Getpgrp()
	if wants && c.tty.foreground() == us {
		c.tty.setForeground(c.pid)
		c.group(syscall.SIGCONT)
		return
	}
	had := c.tty.foreground() == c.pid
	target := os.Getpid()
	if had {
		// Only the child's group got the ctrl-Z; ours, perhaps a script, must stop too.
		c.tty.setForeground(us)
		target = 0
	}
	c.suspend(target)
	// The child is still stopped. If the lock was lost meanwhile, it remains stopped: the
	// loss is reported within a second and ends the child before it does anything more.
	if !c.valid() {
		return
	}
	if (had || wants) && c.tty.foreground() == us {
		c.tty.setForeground(c.pid)
	}
	c.group(syscall.SIGCONT)
}

// suspend stops the process target, or our process group if target is 0, and returns when
// this process is continued. If there is no shell that could continue it, suspend does
// nothing, as the kernel does on ctrl-Z.
//
// It sends SIGSTOP because signal.Reset does not restore the default action of SIGTSTP once
// that has been caught.
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

// signal sends s to the command's process group.
func (c *child) signal(s os.Signal) {
	if sig, ok := s.(syscall.Signal); ok {
		c.group(sig)
	}
}

// terminate asks the whole group to exit. SIGCONT lets a stopped process receive the SIGTERM.
func (c *child) terminate() {
	c.group(syscall.SIGTERM)
	c.group(syscall.SIGCONT)
}

func (c *child) kill() { c.group(syscall.SIGKILL) }

func (c *child) group(sig syscall.Signal) { syscall.Kill(-c.pid, sig) }

// groupAlive reports whether any process of the group still runs.
func (c *child) groupAlive() bool { return syscall.Kill(-c.pid, 0) == nil }
