//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package main

import "os"

// terminalSize reports no terminal on this system, so output is plain lines.
func terminalSize(*os.File) (columns, rows int, ok bool) { return 0, 0, false }
