package redlock

import (
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
)

// A script runs inside a node as one step. The first line of each file states
// its contract. Scripts must not begin with a #! line: Redis refuses such a
// script when it is out of memory, and a release must not be refused then.
type script struct {
	name    string
	body    string
	sha     string
	shaArg  any     // as an argument
	guarded *script // what it is under a restart guard; nil: the same
	guards  bool    // it is what another is under a guard
}

func newScript(name, body string) *script {
	sum := sha1.Sum([]byte(body))
	sha := hex.EncodeToString(sum[:])
	return &script{name: name, body: body, sha: sha, shaArg: sha}
}

// newGrant is newScript for one that may grant a lock, which a guard may go before.
func newGrant(name, body string) *script {
	s := newScript(name, body)
	s.guarded = newScript("guarded "+name, guardLua+body)
	s.guarded.guards = true
	return s
}

var (
	//go:embed lua/guard.lua
	guardLua string
	//go:embed lua/acquire.lua
	acquireLua string
	//go:embed lua/extend.lua
	extendLua string
	//go:embed lua/release.lua
	releaseLua string
	//go:embed lua/raise.lua
	raiseLua string
	//go:embed lua/adopt.lua
	adoptLua string
	//go:embed lua/touch.lua
	touchLua string
	//go:embed lua/inspect.lua
	inspectLua string
	//go:embed lua/turn.lua
	turnLua string
	//go:embed lua/wait.lua
	waitLua string
	//go:embed lua/leave.lua
	leaveLua string

	acquireScript = newGrant("acquire", acquireLua) // only under a guard
	extendScript  = newScript("extend", extendLua)
	releaseScript = newScript("release", releaseLua)
	raiseScript   = newScript("raise", raiseLua)
	adoptScript   = newGrant("adopt", adoptLua)
	touchScript   = newScript("touch", touchLua)
	inspectScript = newScript("inspect", inspectLua)
	turnScript    = newGrant("turn", turnLua)
	waitScript    = newScript("wait", waitLua)
	leaveScript   = newScript("leave", leaveLua)
)
