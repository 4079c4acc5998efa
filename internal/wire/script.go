package wire

import _ "embed"

// A script runs on a node as one atomic step. The first line of each file states its
// contract. Scripts must not begin with a #! line: Redis refuses such a script when it is
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
	"acquire":         "4bb36acad777aac42c4cf17c88758cfd3151ad2d",
	"guarded acquire": "903f91a521d2e497f19f561676860e997eee932e",
	"extend":          "65708e478ffcd0bc773d14377dda89f560efae60",
	"extends":         "a18c450e39960752b9728957d4e451f361d6fcdc",
	"release":         "cdb5e945bc1f682b879e08e9c9d3d0d95cdc426c",
	"releases":        "f89cfc83c95e6d6df195335e9f2dec9fdec92c82",
	"raise":           "0d3f339a56510f7aa2cd5cdbd8a2cf680c1e08cc",
	"adopt":           "c7198562638d34363ce0252a880e7a4fb519005b",
	"guarded adopt":   "f6e1ee31587f46fa3d7df57f43283fad2b0672f6",
	"restore":         "fd6577085c3c95a3065576df769ee69b93cd11e3",
	"touch":           "b3cf9fe7de82aff07bca487df9dc5ae2f501a8f1",
	"inspect":         "779ff34b5f20c8d2cb99e052fc8ae58b33f44b09",
	"turn":            "1c10aa6b92eabdf6d0659e56b9ee0cdf04345423",
	"guarded turn":    "e4df9d647e65562e2b03bd8ecc58dbe88f03fd68",
	"wait":            "2af6dbcad885ca9bb223197c9641d03230b792d9",
	"leave":           "618f70b28fdbfba74022e72746ae7fcdac2cbcfa",
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
