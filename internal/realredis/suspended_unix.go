//go:build unix && !linux

package realredis

// suspended trusts that SIGSTOP takes effect soon; there is no portable way to see it.
func (p *process) suspended() error { return nil }
