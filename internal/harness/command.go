package harness

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/seed-ce352c9b/redlock/redlocktest"
)

// ScriptDir returns the folder of the library's scripts, in the working directory or the nearest directory above it.
// A mutant's changed scripts are found that way.
var ScriptDir = sync.OnceValue(func() string {
	dir, err := os.Getwd()
	if err != nil {
		panic(err)
	}
	for up := ""; ; dir, up = filepath.Dir(dir), dir {
		for _, folder := range []string{"lua", "internal/wire/lua"} {
			lua := filepath.Join(dir, folder)
			if _, err := os.Stat(lua); err == nil {
				return lua
			}
		}
		if up == dir {
			panic("no folder of scripts above the working directory")
		}
	}
})

// Script returns the text of one of the library's scripts, as its file has it.
func Script(name string) string {
	text, err := os.ReadFile(filepath.Join(ScriptDir(), name+".lua"))
	if err != nil {
		panic(err)
	}
	if name == "turn" || name == "wait" {
		return Script("queue") + string(text)
	}
	return string(text)
}

// Scripts returns the names of the library's scripts by their hash.
var Scripts = sync.OnceValue(func() map[string]string {
	names := make(map[string]string)
	for _, name := range []string{"extend", "extends", "release", "releases", "raise", "adopt", "restore", "inspect", "touch", "turn", "wait", "leave", "acquire", "guard"} {
		names[sha(Script(name))] = name
	}
	return names
})

func sha(script string) string {
	sum := sha1.Sum([]byte(script))
	return hex.EncodeToString(sum[:])
}

// Verb returns what a command does: "acquire", "heal" (or an acquire without GET, which reads the same), "rollback",
// or the name of a script; for other commands their own name.
func Verb(args []string) string {
	name := strings.ToLower(args[0])
	switch name {
	case "set":
		if slices.ContainsFunc(args, func(a string) bool { return strings.EqualFold(a, "get") }) {
			return "acquire"
		}
		return "heal"
	case "eval", "evalsha":
		id := args[1]
		if name == "eval" {
			id = sha(id)
		}
		script := Scripts()[id]
		if tell := Tell(args); script == "release" && (tell == "" || tell == "attempt" || tell == "handed") {
			return "rollback" // of an attempt
		}
		return script
	}
	return name
}

// Tell returns whom a command of lua/release.lua notifies: the number of waiters, "attempt", "handed", or "" if it announces
// nothing at all.
func Tell(args []string) string {
	keys, _ := strconv.Atoi(args[2])
	switch argv := args[3+keys:]; {
	case len(argv) < 2 || argv[1] == "":
		return ""
	case len(argv) > 3:
		return argv[3]
	}
	return "2"
}

// Verbs returns the verb of each command.
func Verbs(cmds []redlocktest.Command) (vs []string) {
	for _, c := range cmds {
		vs = append(vs, Verb(c.Args))
	}
	return vs
}

// ValueOf returns the value that a command of the library writes or compares.
func ValueOf(args []string) string {
	if strings.ToLower(args[0]) == "set" {
		return args[2]
	}
	keys, _ := strconv.Atoi(args[2])
	return args[3+keys]
}

// KeyOf returns the key of the lock that a command is about.
func KeyOf(args []string) string {
	switch name := strings.ToLower(args[0]); {
	case name == "set" && len(args) > 1:
		return args[1]
	case strings.HasPrefix(name, "eval") && len(args) > 3:
		return args[3]
	}
	return ""
}

// Heard returns the verbs of what a node has executed for a key, PINGs included. Record has to be on.
func Heard(n *redlocktest.Node, key string) (words []string) {
	for _, c := range n.Log() {
		switch w := Verb(c.Args); w {
		case "", "touch", "turn", "wait", "leave", "guard":
		default:
			if w == "ping" || KeyOf(c.Args) == key {
				words = append(words, w)
			}
		}
	}
	return words
}

// Count returns how many of the words are w.
func Count(words []string, w string) (n int) {
	for _, x := range words {
		if x == w {
			n++
		}
	}
	return n
}

// EndOf is the score by which a queue says when a place is over, in ms since 1970.
func EndOf[T int | int64](ms T) string { return fmt.Sprint(4_000_000_000_000_000 + int64(ms)) }

// About reports whether a command names the lock of a key or its fence register.
func About(args []string, key string) bool {
	return slices.Contains(args, key) || slices.Contains(args, "{"+key+"}:fence")
}

// On calls f before the node executes a command with this verb about the key; n counts these commands from 1. It
// replaces the node's earlier OnCommand.
func On(node *redlocktest.Node, verb, key string, f func(n int, args []string)) {
	var mu sync.Mutex
	n := 0
	node.OnCommand(func(args []string) {
		if !About(args, key) || Verb(args) != verb {
			return
		}
		mu.Lock()
		n++
		now := n
		mu.Unlock()
		f(now, args)
	})
}
