package sim

import (
	"strconv"

	"github.com/seed-ce352c9b/redlock/internal/twin"
)

// The library's scripts in Go, six times as fast. Each is known by the SHA-1 of the text that it is the twin of;
// TestTwins compares whole histories with those of the real scripts.
var twins = []struct {
	name string
	sha  string
	f    twin.Twin
}{
	{"release", "73b1eb7a12cd22a7305dfe0f7a45de65ccb483af", releaseTwin},
	{"extend", "8df091ca900f9c03448b170ba75a1bce5cf32cc7", extendTwin},
	{"raise", "0d3f339a56510f7aa2cd5cdbd8a2cf680c1e08cc", raiseTwin},
	{"adopt", "fd0f06f1165049b81c35af400e786234aa14a05c", adoptTwin},
	{"touch", "8205f0efad223d211cbea1c4cf93e978f8fcbe3a", touchTwin},
}

func init() {
	for _, t := range twins {
		twin.Register(t.sha, t.f)
	}
}

// check is true if the keys have the types that they should: else the script runs, for the sake of its errors. It returns
// what the lock's key holds.
func check(call twin.Call, keys []string) (held any, ok bool) {
	kind, err := call("TYPE", keys[1])
	if err != nil || kind != "zset" && kind != "none" {
		return nil, false
	}
	held, err = call("GET", keys[0])
	return held, err == nil
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		panic("sim: a script's argument is " + text)
	}
	return n
}

// live gives the register a life if it has less than least.
func live(call twin.Call, register, least, given string) {
	if left, _ := call("PTTL", register); left.(int) < number(least) {
		call("PEXPIRE", register, given)
	}
}

func releaseTwin(call twin.Call, keys, argv []string) (any, bool) {
	held, ok := check(call, keys)
	if !ok {
		return nil, false
	}
	if argv[3] != "" && argv[5] != "0" { // waiters are to be told one by one: only if there are none
		queue, err := call("ZRANGE", keys[2], "0", "15")
		if places, ok := queue.([]any); err != nil || !ok || len(places) > 0 {
			return nil, false
		}
	}
	verdict := -1
	switch held {
	case argv[0]:
		call("DEL", keys[0])
		verdict = 1
	case nil:
	default:
		verdict = 0
	}
	live(call, keys[1], argv[1], argv[2])
	if argv[3] != "" {
		call("PUBLISH", argv[3], argv[0])
	}
	return verdict, true
}

func extendTwin(call twin.Call, keys, argv []string) (any, bool) {
	held, ok := check(call, keys)
	switch {
	case !ok:
		return nil, false
	case held == nil:
		return -1, true
	case held != argv[0]:
		return 0, true
	}
	if left, _ := call("PTTL", keys[0]); left.(int) >= 0 && left.(int) <= number(argv[1]) {
		call("PEXPIRE", keys[0], argv[1])
	}
	call("ZADD", keys[1], "GT", argv[2], "f")
	live(call, keys[1], argv[3], argv[4])
	return 1, true
}

func raiseTwin(call twin.Call, keys, argv []string) (any, bool) {
	held, ok := check(call, keys)
	switch {
	case !ok:
		return nil, false
	case held == nil:
		return []any{-1}, true
	case held != argv[0]:
		return []any{0}, true
	}
	if moved, _ := call("ZADD", keys[1], "GT", "CH", argv[1], "f"); moved == 1 {
		return []any{1}, true
	}
	score, _ := call("ZSCORE", keys[1], "f")
	return []any{2, score}, true
}

func adoptTwin(call twin.Call, keys, argv []string) (any, bool) {
	held, ok := check(call, keys)
	switch {
	case !ok:
		return nil, false
	case held == nil:
		return []any{-1}, true
	case held != argv[0]:
		return []any{0, held}, true
	}
	moved := any(0)
	if argv[3] != "" {
		moved, _ = call("ZADD", keys[1], "GT", "CH", argv[3], "f")
	}
	if left, _ := call("PTTL", keys[0]); left.(int) >= 0 && left.(int) < number(argv[2]) {
		call("SET", keys[0], argv[1], "PX", argv[2])
	} else {
		call("SET", keys[0], argv[1], "KEEPTTL")
	}
	return []any{1, moved}, true
}

func touchTwin(call twin.Call, keys, argv []string) (any, bool) {
	live(call, keys[1], argv[0], argv[1])
	return 1, true
}
