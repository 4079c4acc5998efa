package realredis

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// spawn starts cmd so that the kernel kills it when we end, be it by SIGKILL, a panic or a test's timeout.
//
// The signal comes when the *thread* that forked ends, not the process (prctl(2)), and Go ends threads: that of a
// goroutine that returns while locked to it. A server forked there would die in the middle of a test. So all are forked
// by one thread that never ends; its goroutine stays until the process does, which a count of goroutines that
// begins before the first server will see.
func spawn(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	errc := make(chan error)
	forks() <- func() { errc <- cmd.Start() }
	return <-errc
}

var forks = sync.OnceValue(func() chan<- func() {
	ch := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range ch {
			f()
		}
	}()
	return ch
})

// suspended waits until the process stands still: kill(2) returns before SIGSTOP has taken effect on another CPU, and
// a request sent at once could still be served.
func (p *process) suspended() error {
	stat := fmt.Sprintf("/proc/%d/stat", p.pid())
	deadline := time.Now().Add(startTimeout)
	for {
		b, err := os.ReadFile(stat)
		if err != nil {
			return err
		}
		// pid (comm) state: comm may contain anything, so look behind its last parenthesis (proc(5)).
		s := string(b)
		if strings.HasPrefix(s[strings.LastIndexByte(s, ')')+1:], " T") {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not stopped within %v", startTimeout)
		}
		time.Sleep(100 * time.Microsecond)
	}
}
