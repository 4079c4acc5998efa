//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
)

// A watchdog is the run's handle to its watchdog: a second process of this program that
// kills the command's process group if the run dies without releasing the lock (SIGKILL, the
// OOM killer). The watchdog detects that by a pipe, of which the kernel closes our end,
// whatever the cause of our death.
//
// The watchdog runs in a session of its own, so signals to our process group or from the
// terminal do not reach it. It inherits none of our files, so it does not hold our output
// open for a reader that waits for end of file.
type watchdog struct {
	p    *os.Process
	pipe *os.File
}

// startWatchdog starts the watchdog process. It kills nothing until watch is called.
func startWatchdog() (*watchdog, error) {
	path, err := executable()
	if err != nil {
		return nil, fmt.Errorf("its watchdog cannot be started: %v", err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("its watchdog cannot be started: %v", err)
	}
	defer r.Close()
	p, err := os.StartProcess(path, []string{os.Args[0], watchdogCommand}, &os.ProcAttr{
		Dir:   "/", // no file system is kept from being unmounted
		Files: []*os.File{r, nil, nil},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		w.Close()
		return nil, fmt.Errorf("its watchdog cannot be started: %v", err)
	}
	return &watchdog{p: p, pipe: w}, nil
}

// executable returns the running program, even if its file has been replaced meanwhile.
func executable() (string, error) {
	if runtime.GOOS == "linux" {
		return "/proc/self/exe", nil
	}
	return os.Executable()
}

// watch tells the watchdog which process group to kill. If this process dies earlier, the
// watchdog kills nothing; on Linux and FreeBSD the kernel still kills the child.
func (d *watchdog) watch(pgrp int) { fmt.Fprintln(d.pipe, pgrp) }

// stop ends the watchdog without killing the group. It uses SIGKILL and not a message,
// because a message could be lost or arrive too late.
func (d *watchdog) stop() {
	d.p.Kill()
	d.p.Wait()
	d.pipe.Close()
}

// runWatchdog is the main function of the watchdog process. It returns the exit status when
// it has killed the group, or when it was told no group.
func runWatchdog() int {
	signal.Ignore(forwardedSignals...)
	in := bufio.NewReader(os.Stdin)
	line, _ := in.ReadString('\n')
	pgrp, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil || pgrp <= 1 { // kill(-1) would signal every process
		return exitUsage
	}
	io.Copy(io.Discard, in) // returns when the run has died
	syscall.Kill(-pgrp, syscall.SIGKILL)
	return 0
}
