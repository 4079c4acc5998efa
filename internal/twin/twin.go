// Package twin lets other packages of this module replace a Lua script by a Go function, its twin, when redlocktest
// executes it: a Lua state costs 140 µs, and a simulation executes millions of scripts. A twin is registered under the
// SHA-1 of its script's text, so a script that was changed has no twin and runs as Lua. Only package scripts below
// registers twins.
package twin

import (
	"sync"
	"sync/atomic"
)

// A Call executes one command on the node, as redis.call does. The reply is nil, an int, a string, or a []any of these.
type Call func(args ...string) (any, error)

// A Twin does what its script does and returns the script's reply. If ok is false, it has changed nothing, and the script
// itself must run: this is the case for errors, whose texts come from Lua and are not worth a second implementation.
type Twin func(call Call, keys, argv []string) (reply any, ok bool)

var (
	all sync.Map // sha -> Twin
	off atomic.Bool
)

// Register makes f the twin of the script with this SHA-1.
func Register(sha string, f Twin) { all.Store(sha, f) }

// Enable switches twins on (the default) or off, for all nodes of the process.
func Enable(on bool) { off.Store(!on) }

// Of returns the twin of a script, or nil if there is none.
func Of(sha string) Twin {
	if off.Load() {
		return nil
	}
	f, ok := all.Load(sha)
	if !ok {
		return nil
	}
	return f.(Twin)
}
