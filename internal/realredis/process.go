package realredis

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// A process is a started redis-server, waited for in the background.
type process struct {
	cmd  *exec.Cmd
	log  string        // path of the file with both output streams
	done chan struct{} // closed when the process has ended and was reaped
}

func startProcess(cmd *exec.Cmd, log string) (*process, error) {
	f, err := os.Create(log)
	if err != nil {
		return nil, fmt.Errorf("realredis: %w", err)
	}
	defer f.Close() // the child has its own descriptor
	cmd.Stdout, cmd.Stderr = f, f
	if err := spawn(cmd); err != nil {
		return nil, fmt.Errorf("realredis: %w", err)
	}
	p := &process{cmd: cmd, log: log, done: make(chan struct{})}
	go func() {
		cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) kill() {
	p.cmd.Process.Kill() // fails only if the process has ended
	<-p.done
}

// whyDead returns why a process ended that was not killed: errPortTaken, or the last lines of its log.
func (p *process) whyDead() error {
	log, _ := os.ReadFile(p.log)
	text := strings.TrimSpace(string(log))
	if strings.Contains(text, "Failed listening on port") {
		return fmt.Errorf("%w: %s", errPortTaken, lastLines(text, 2))
	}
	return fmt.Errorf("realredis: %s ended (%v): %s", Binary, p.cmd.ProcessState, lastLines(text, 5))
}

func lastLines(s string, n int) string {
	lines := strings.Split(s, "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "; ")
}
