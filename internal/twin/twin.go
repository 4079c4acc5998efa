// Package twin lets packages inside this module give redlocktest a Go function in place of a Lua script: a Lua state costs
// 140 µs, and a simulation executes millions of scripts. A twin is known by the SHA-1 of its script's text, so a script
// that was changed has none and runs as Lua. Nothing registers any unless internal/sim is linked in.
package twin

import (
	"sync"
	"sync/atomic"
)

// A Call executes one command on the node, as redis.call does. The reply is nil, an int, a string, or a []any of these.
type Call func(args ...string) (any, error)

// A Twin does what its script does and returns the script's reply. ok false says that it has changed nothing and
// that the script has to run after all: errors are worded by Lua, and not worth a second wording.
type Twin func(call Call, keys, argv []string) (reply any, ok bool)

var (
	all sync.Map // of Twin by sha
	off atomic.Bool
)

// Register has the script with this SHA-1 done by f.
func Register(sha string, f Twin) { all.Store(sha, f) }

// Enable switches twins on, as they are at first, or off, for all nodes of the process.
func Enable(on bool) { off.Store(!on) }

// Of is the twin of a script; nil: there is none.
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
