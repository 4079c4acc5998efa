//go:build unix

package realredis

import "syscall"

func (p *process) suspend() error {
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return p.suspended()
}

func (p *process) resume() error { return p.cmd.Process.Signal(syscall.SIGCONT) }
