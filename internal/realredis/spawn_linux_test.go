package realredis

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// childEnv is set in the child process of TestNoneOutlivesUs, which starts a server and is then killed.
const childEnv = "REALREDIS_TEST_CHILD"

func TestNoneOutlivesUs(t *testing.T) {
	if os.Getenv(childEnv) != "" {
		s := Start(t, 1)[0]
		fmt.Printf("server %d %s\n", s.Pid(), s.Dir())
		select {}
	}
	t.Parallel()
	need(t)
	cmd := exec.Command(os.Args[0], "-test.run=^TestNoneOutlivesUs$")
	cmd.Env = append(os.Environ(), childEnv+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	var dir string
	for lines := bufio.NewScanner(out); pid == 0 && lines.Scan(); {
		fmt.Sscanf(lines.Text(), "server %d %s", &pid, &dir)
	}
	cmd.Process.Kill()
	cmd.Wait()
	if pid == 0 {
		t.Fatal("the child started no server")
	}
	defer os.RemoveAll(dir) // the killed process could not remove it
	Eventually(t, "the end of the server", func() bool { return !running(pid) })
}

// A thread that exits must not take servers with it, as it would if servers were forked by the caller's thread.
func TestServerOutlivesItsThread(t *testing.T) {
	t.Parallel()
	need(t)
	var s *Server
	var err error
	var tid int
	for s == nil && err == nil {
		done := make(chan struct{})
		go func() {
			defer close(done)
			runtime.LockOSThread()                          // and never unlocked: the thread ends with the goroutine
			if tid = syscall.Gettid(); tid != os.Getpid() { // but for the first one, which Go keeps
				s, err = start(false, nil)
			}
		}()
		<-done
	}
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	Eventually(t, "the end of the thread", func() bool {
		_, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", tid))
		return errors.Is(err, os.ErrNotExist)
	})
	if err := s.Client(once).Ping(t.Context()).Err(); err != nil {
		t.Error(err)
	}
}

// running returns false for a zombie, too: the process that inherits it here may not reap it.
func running(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return false
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(b), ") Z")
}
