//go:build linux || freebsd

package main

import "syscall"

// dieWithParent has the kernel kill the process when the thread that starts it ends:
// PR_SET_PDEATHSIG, or PROC_PDEATHSIG_CTL. It is not inherited by what the process
// starts, and does not survive the exec of a set-user-ID program.
func dieWithParent(sys *syscall.SysProcAttr) { sys.Pdeathsig = syscall.SIGKILL }
