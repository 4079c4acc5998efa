//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package main

import (
	"os"
	"syscall"
	"unsafe"
)

// A tty is our controlling terminal.
type tty struct {
	f    *os.File
	lent bool // to the child's group; its wait alone touches it
}

// openTTY is nil if we have none.
func openTTY() *tty {
	f, err := os.OpenFile("/dev/tty", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil
	}
	return &tty{f: f}
}

// foreground is the process group that may read the terminal; 0 if it is gone.
func (t *tty) foreground() int {
	var pgrp int32
	if ioctl(t.f.Fd(), syscall.TIOCGPGRP, unsafe.Pointer(&pgrp)) != nil {
		return 0
	}
	return int(pgrp)
}

// give makes a process group the one that may read the terminal. SIGTTOU must be
// ignored. It fails if the group or the terminal is gone, and nothing is to be done then.
func (t *tty) give(pgrp int) {
	p := int32(pgrp)
	ioctl(t.f.Fd(), syscall.TIOCSPGRP, unsafe.Pointer(&p))
	t.lent = pgrp != syscall.Getpgrp()
}

// terminalSize is the size of the terminal that f is; ok is false if it is none.
func terminalSize(f *os.File) (columns, rows int, ok bool) {
	var size struct{ rows, columns, x, y uint16 }
	if ioctl(f.Fd(), syscall.TIOCGWINSZ, unsafe.Pointer(&size)) != nil {
		return 0, 0, false
	}
	return int(size.columns), int(size.rows), true
}

// session is the session of a process, 0 for ours; -1 if there is no such process.
func session(pid int) int {
	sid, _, errno := syscall.Syscall(syscall.SYS_GETSID, uintptr(pid), 0, 0)
	if errno != 0 {
		return -1
	}
	return int(sid)
}

func ioctl(fd, request uintptr, arg unsafe.Pointer) error {
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, fd, request, uintptr(arg)); errno != 0 {
		return errno
	}
	return nil
}
