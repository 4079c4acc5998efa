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

// A dog is the watchdog as the run has it: a second process of this program that kills
// the command's process group when the run has died without a word (SIGKILL, the OOM
// killer). It knows from a pipe: the kernel closes our end, whatever ends us.
//
// It is in a session of its own, so that what is sent to our group or typed at the
// terminal does not end it, and has none of our files, so that nobody who waits for the
// end of our output waits for it.
type dog struct {
	p    *os.Process
	pipe *os.File
}

func startDog() (*dog, error) {
	path, err := ourselves()
	if err != nil {
		return nil, fmt.Errorf("its watchdog cannot be started: %v", err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("its watchdog cannot be started: %v", err)
	}
	defer r.Close()
	p, err := os.StartProcess(path, []string{os.Args[0], watchdogCommand}, &os.ProcAttr{
		Dir:   "/", // nobody's directory is kept from being unmounted
		Files: []*os.File{r, nil, nil},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		w.Close()
		return nil, fmt.Errorf("its watchdog cannot be started: %v", err)
	}
	return &dog{p: p, pipe: w}, nil
}

// ourselves is the program that is running, also if its file was replaced since.
func ourselves() (string, error) {
	if runtime.GOOS == "linux" {
		return "/proc/self/exe", nil
	}
	return os.Executable()
}

// watch names the group to be killed. If we die before this, nobody is: on Linux and
// FreeBSD the kernel kills the child.
func (d *dog) watch(pgrp int) { fmt.Fprintln(d.pipe, pgrp) }

// end ends the watchdog, which then kills nobody. It is not told to end but killed: no
// message could be sent and lost, or come late.
func (d *dog) end() {
	d.p.Kill()
	d.p.Wait()
	d.pipe.Close()
}

// watchdog is the other process. It returns when there is nothing to watch.
func watchdog() int {
	signal.Ignore(forwarded...)
	in := bufio.NewReader(os.Stdin)
	line, _ := in.ReadString('\n')
	pgrp, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil || pgrp <= 1 { // 1 would be everybody
		return exitUsage
	}
	io.Copy(io.Discard, in) // until the run has died
	syscall.Kill(-pgrp, syscall.SIGKILL)
	return 0
}
