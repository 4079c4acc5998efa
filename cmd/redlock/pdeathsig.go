//go:build linux || freebsd

package main

import "syscall"

// dieWithParent makes the kernel kill the process when the thread that starts it exits
// (PR_SET_PDEATHSIG or PROC_PDEATHSIG_CTL). The children of the process do not inherit
// this, and the setting does not survive the exec of a set-user-ID program.
func dieWithParent(sys *syscall.SysProcAttr) { sys.Pdeathsig = syscall.SIGKILL }
