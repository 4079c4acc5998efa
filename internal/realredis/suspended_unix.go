//go:build unix && !linux

package realredis

// suspended assumes that SIGSTOP takes effect soon; there is no portable way to detect it.
func (p *process) suspended() error { return nil }
