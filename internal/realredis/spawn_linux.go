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

// spawn starts cmd so that the kernel kills it when this process ends, even by SIGKILL, a panic or a test's timeout.
//
// The kernel sends the signal when the thread that forked exits, not the process (prctl(2)), and Go ends a thread when a
// goroutine returns that is locked to it. A server forked by such a thread would die in the middle of a test. So a single
// thread, which never ends, forks all servers. Its goroutine lives as long as the process; a test that counts goroutines
// from before the first server sees one more.
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

// suspended waits until the process has stopped: kill(2) returns before SIGSTOP has taken effect on another CPU, and
// a request sent at once might still be served.
func (p *process) suspended() error {
	stat := fmt.Sprintf("/proc/%d/stat", p.pid())
	deadline := time.Now().Add(startTimeout)
	for {
		b, err := os.ReadFile(stat)
		if err != nil {
			return err
		}
		// The format is "pid (comm) state"; comm may contain anything, so search from its last parenthesis (proc(5)).
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
