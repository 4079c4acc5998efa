//go:build darwin || netbsd || openbsd || dragonfly

package main

import "syscall"

// dieWithParent: the kernel has no such thing here, the watchdog has to do.
func dieWithParent(*syscall.SysProcAttr) {}
