package redlocktest

import (
	"strings"
	"sync"
)

// parsed has the SHA-1 of each script that miniredis has loaded without an error, by the script's text. miniredis parses a
// script whenever it is loaded, which takes a hundred times as long as another command, and suites load the same few scripts
// into thousands of nodes: so a node only notes a script that is known to be good, and gives it to miniredis when a
// command names it.
var parsed sync.Map

// loadNoted is SCRIPT LOAD by the operator, for a script that some node has loaded before. It returns false if none has. The
// caller holds exec.
func (n *Node) loadNoted(args []string) (sha string, ok bool) {
	if !isLoad(args) {
		return "", false
	}
	known, ok := parsed.Load(args[2])
	if !ok {
		return "", false
	}
	sha = known.(string)
	n.noted[sha] = args[2]
	return sha, true
}

func isLoad(args []string) bool {
	return len(args) == 3 && strings.EqualFold(args[0], "SCRIPT") && strings.EqualFold(args[1], "LOAD")
}

// giveNoted gives miniredis the noted scripts that a command needs. The caller holds exec.
func (n *Node) giveNoted(args []string) {
	if len(n.noted) == 0 {
		return
	}
	switch strings.ToUpper(args[0]) {
	case "SCRIPT": // the script is an argument, or FLUSH has no argument
		for sha := range n.noted {
			n.give(sha)
		}
	case "EVALSHA", "EVALSHA_RO":
		if len(args) > 1 {
			n.give(args[1])
		}
	}
}

func (n *Node) give(sha string) {
	text, ok := n.noted[sha]
	if !ok {
		return
	}
	delete(n.noted, sha)
	if _, err := n.doNow("SCRIPT", "LOAD", text); err != nil {
		panic("redlocktest: SCRIPT LOAD: " + err.Error())
	}
}
