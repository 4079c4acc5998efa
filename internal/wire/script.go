package wire

import _ "embed"

// A script runs on a node as one atomic step. The comment at the top of each file states
// its contract. Scripts must not begin with a #! line: Redis refuses such a script when it is
// out of memory, and a release must not be refused then.
type script struct {
	name       string
	body       string
	sha        string
	shaArg     any     // sha as an argument
	guarded    *script // its form under a restart guard; nil: it grants nothing and has none
	underGuard bool    // it is the guarded form of another script
}

// newScript returns the script of that name, whose SHA-1 must be in scriptSHA.
func newScript(name, body string) *script {
	sha := scriptSHA[name]
	return &script{name: name, body: body, sha: sha, shaArg: sha}
}

// scriptSHA has the SHA-1 of each script's text, by which EVALSHA names it. They are
// constants because a process that runs with GODEBUG=fips140=only must not compute a
// SHA-1. With a wrong one a server could run an older script that it still knows:
// TestScriptSHAs compares all with the files, and prints the lines to put here.
var scriptSHA = map[string]string{
	"acquire":         "0c4ceee497e0da412ae58e0534b16bf7188757d2",
	"guarded acquire": "c55ce0ecd19631c8ea225ab5023564afb5d1ccd7",
	"extend":          "e6b80a846c28d20cd01ac376e54e7b1cfa2eb837",
	"extends":         "66b8a66746d5c320b6a961a17521b947b4f766cc",
	"release":         "986c64d6a44e9775ac1c254e99473e2c1e73734e",
	"releases":        "7645fbc5b36ab77f2ba8fafacdc54d8e952869fe",
	"raise":           "dc8ceb045b46aaad4f411975cea3636faf27ed9c",
	"adopt":           "516b4b202aeb3228bd2106d860a968b1451b5135",
	"guarded adopt":   "a61874e0dbbdfa20e5f7841ca934d5b2735fc68b",
	"restore":         "6854a5658727e41566129bf30a5b54c6ac8c4b98",
	"touch":           "c9a3a801b404c7f3d1c427d5cc598b46fc356f7a",
	"inspect":         "fedd99c8d5cbd54024572c435cd7c9cd39dfcf0a",
	"turn":            "f0d74f2621e4ef06a1022b13b40378869d794e6e",
	"guarded turn":    "67a871876b1933d32bee7bdc8c065f89c8c2d4d6",
	"wait":            "b21ee5b5ccaba7a77dc8b520937fc84a598a03b6",
	"leave":           "5fddad4b79f1320518fc26ee34c080c782524d2e",
}

// newGrant is newScript for a script that may grant a lock. Its guarded form has
// lua/guard.lua in front.
func newGrant(name, body string) *script {
	s := newScript(name, body)
	s.guarded = newScript("guarded "+name, guardLua+body)
	s.guarded.underGuard = true
	return s
}

var (
	//go:embed lua/guard.lua
	guardLua string
	//go:embed lua/acquire.lua
	acquireLua string
	//go:embed lua/extend.lua
	extendLua string
	//go:embed lua/extends.lua
	extendsLua string
	//go:embed lua/release.lua
	releaseLua string
	//go:embed lua/releases.lua
	releasesLua string
	//go:embed lua/raise.lua
	raiseLua string
	//go:embed lua/adopt.lua
	adoptLua string
	//go:embed lua/restore.lua
	restoreLua string
	//go:embed lua/touch.lua
	touchLua string
	//go:embed lua/inspect.lua
	inspectLua string
	//go:embed lua/turn.lua
	turnLua string
	//go:embed lua/queue.lua
	queueLua string
	//go:embed lua/wait.lua
	waitLua string
	//go:embed lua/leave.lua
	leaveLua string

	acquireScript  = newGrant("acquire", acquireLua) // only under a guard
	extendScript   = newScript("extend", extendLua)
	extendsScript  = newScript("extends", extendsLua)
	releaseScript  = newScript("release", releaseLua)
	releasesScript = newScript("releases", releasesLua)
	raiseScript    = newScript("raise", raiseLua)
	adoptScript    = newGrant("adopt", adoptLua)
	restoreScript  = newScript("restore", restoreLua)
	touchScript    = newScript("touch", touchLua)
	inspectScript  = newScript("inspect", inspectLua)
	turnScript     = newGrant("turn", queueLua+turnLua)
	waitScript     = newScript("wait", queueLua+waitLua)
	leaveScript    = newScript("leave", leaveLua)
)
