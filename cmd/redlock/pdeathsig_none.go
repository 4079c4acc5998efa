//go:build darwin || netbsd || openbsd || dragonfly

package main

import "syscall"

// dieWithParent does nothing: this kernel has no parent-death signal. Only the watchdog
// kills the child.
func dieWithParent(*syscall.SysProcAttr) {}
