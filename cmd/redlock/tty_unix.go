//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package main

import (
	"os"
	"syscall"
	"unsafe"
)

// A tty is the controlling terminal of this process.
type tty struct {
	f    *os.File
	lent bool // the child's group is in the foreground; accessed by the child's wait alone
}

// openTTY opens the controlling terminal. It returns nil if there is none.
func openTTY() *tty {
	f, err := os.OpenFile("/dev/tty", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil
	}
	return &tty{f: f}
}

// foreground returns the foreground process group of the terminal, or 0 if the terminal is gone.
func (t *tty) foreground() int {
	var pgrp int32
	if ioctl(t.f.Fd(), syscall.TIOCGPGRP, unsafe.Pointer(&pgrp)) != nil {
		return 0
	}
	return int(pgrp)
}

// setForeground makes pgrp the foreground process group, which may read the terminal. The
// caller must ignore SIGTTOU. An error means that the group or the terminal is gone, which
// needs no action.
func (t *tty) setForeground(pgrp int) {
	p := int32(pgrp)
	ioctl(t.f.Fd(), syscall.TIOCSPGRP, unsafe.Pointer(&p))
	t.lent = pgrp != syscall.Getpgrp()
}

// terminalSize returns the size of the terminal f; ok is false if f is not a terminal.
func terminalSize(f *os.File) (columns, rows int, ok bool) {
	var size struct{ rows, columns, x, y uint16 }
	if ioctl(f.Fd(), syscall.TIOCGWINSZ, unsafe.Pointer(&size)) != nil {
		return 0, 0, false
	}
	return int(size.columns), int(size.rows), true
}

// session returns the session ID of a process, where 0 means this process. It returns -1 if
// there is no such process.
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
