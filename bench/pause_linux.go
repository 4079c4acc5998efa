package main

import (
	"syscall"
	"time"
)

// time.Sleep is not exact in a process that has nothing else to do: the runtime waits in whole milliseconds then, and a hold of
// one would be of up to two for those who do not poll meanwhile.
func init() {
	pause = func(d time.Duration) {
		t := syscall.NsecToTimespec(int64(d))
		for syscall.Nanosleep(&t, &t) == syscall.EINTR {
		}
	}
}
