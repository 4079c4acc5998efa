//go:build !linux

package realredis

import "os/exec"

// spawn starts cmd. Nothing here kills a child with its parent: servers stay behind when the process is killed.
func spawn(cmd *exec.Cmd) error { return cmd.Start() }
