//go:build !linux

package realredis

import "os/exec"

// spawn starts cmd. On this system nothing kills it with its parent: servers remain if this process is killed.
func spawn(cmd *exec.Cmd) error { return cmd.Start() }
