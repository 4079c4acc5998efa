package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-ce352c9b/redlock/internal/realredis"
)

// The kernel is a second line of defence: the watchdog may be killed first.
func TestTheKernelKillsTheCommandIfTheWatchdogIsDead(t *testing.T) {
	t.Parallel()
	c := testCluster(t)
	p := start(t, c.addrs(), "run", "k", "--", "sh", "-c", `trap "" HUP TERM; echo in; while read x; do echo "$x"; done`)
	p.line()
	dog := watchdogOf(t, p.cmd.Process.Pid)
	syscall.Kill(dog, syscall.SIGKILL)
	realredis.Eventually(t, "the watchdog is dead", func() bool { return aliveness(dog) != "running" })

	t.Log("the command continues undisturbed")
	fmt.Fprintln(p.in, "alive")
	p.says("alive")
	p.cmd.Process.Kill()
	p.endsQuietly()
}

// A run that ends leaves no watchdog.
func TestTheWatchdogEndsWithTheRun(t *testing.T) {
	t.Parallel()
	c := testCluster(t)
	begin := func(script string) (p *process, dog int) {
		p = start(t, c.addrs(), "run", "k", "--", "sh", "-c", script)
		p.line()
		return p, watchdogOf(t, p.cmd.Process.Pid)
	}
	for _, script := range []string{"echo in; read x", "echo in; read x; kill -9 $$"} {
		p, dog := begin(script)
		p.in.Close()
		p.status()
		if got := aliveness(dog); got != "gone" {
			t.Errorf("after %q the watchdog is %s", script, got)
		}
	}
	p, dog := begin("echo in; read x")
	p.cmd.Process.Kill()
	p.endsQuietly()
	realredis.Eventually(t, "the watchdog of a run that was killed is gone", func() bool { return aliveness(dog) != "running" })
}

// watchdogOf returns the process ID of the watchdog of a run.
func watchdogOf(t *testing.T, run int) (pid int) {
	t.Helper()
	realredis.Eventually(t, "there is a watchdog", func() bool {
		files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, f := range files {
			line, _ := os.ReadFile(f)
			if !bytes.HasSuffix(line, []byte("\x00"+watchdogCommand+"\x00")) {
				continue
			}
			n, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
			if _, parent := stat(n); parent == run {
				pid = n
				return true
			}
		}
		return false
	})
	return pid
}

// stat returns the state and the parent of a process; state is "" if there is no such process.
func stat(pid int) (state string, parent int) {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, ok := strings.Cut(string(b), ") ") // the name may contain anything
	if !ok {
		return "", 0
	}
	f := strings.Fields(rest)
	parent, _ = strconv.Atoi(f[1])
	return f[0], parent
}

// aliveness returns "running", "dead" (but not reaped) or "gone".
func aliveness(pid int) string {
	switch state, _ := stat(pid); state {
	case "":
		return "gone"
	case "Z", "X":
		return "dead"
	}
	return "running"
}
