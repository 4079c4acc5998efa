// Package scripts has the Go twins of the library's scripts, and registers them where it is imported. It does not import the
// library: it knows what a script does only from the script's text. TestTwins compares whole histories with those of the scripts.
package scripts

import (
	"slices"
	"strconv"
	"strings"

	"github.com/seed-ce352c9b/redlock/internal/twin"
)

// A Script is one of the library's scripts in Go, which is six times as fast.
type Script struct {
	Name string // of the script's file, or of the files from which it is composed, joined by a plus sign
	SHA  string // of its text
	f    twin.Twin
}

// All are all twins.
var All = slices.Concat(Locks, Waiting, guards)

func init() {
	for _, s := range All {
		twin.Register(s.SHA, s.f)
	}
}

// Locks are the twins of the scripts that handle a lock.
var Locks = []Script{
	{"release", "986c64d6a44e9775ac1c254e99473e2c1e73734e", releaseTwin},
	{"releases", "7645fbc5b36ab77f2ba8fafacdc54d8e952869fe", releasesTwin},
	{"extends", "66b8a66746d5c320b6a961a17521b947b4f766cc", extendsTwin},
	{"extend", "e6b80a846c28d20cd01ac376e54e7b1cfa2eb837", extendTwin},
	{"raise", "dc8ceb045b46aaad4f411975cea3636faf27ed9c", raiseTwin},
	{"adopt", "516b4b202aeb3228bd2106d860a968b1451b5135", adoptTwin},
	{"restore", "6854a5658727e41566129bf30a5b54c6ac8c4b98", restoreTwin},
	{"touch", "c9a3a801b404c7f3d1c427d5cc598b46fc356f7a", touchTwin},
}

// check reports whether the lock and the sets beside it, its register and its queue, have the expected types; otherwise the
// script itself runs, because of its errors. held is the value of the lock's key.
func check(call twin.Call, lock string, sets ...string) (held any, ok bool) {
	for _, key := range sets {
		kind, err := call("TYPE", key)
		if err != nil || kind != "zset" && kind != "none" {
			return nil, false
		}
	}
	held, err := call("GET", lock)
	return held, err == nil
}

// number parses an argument of a script.
func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		panic("scripts: invalid argument of a script: " + text)
	}
	return n
}

// expireRegister sets the register's ttl if it is too short. argv[n] and argv[n+1] are the minimum and the new ttl in ms, with defaults if absent.
func expireRegister(call twin.Call, register string, argv []string, n int) {
	least, given := "86400000", "90000000"
	if len(argv) > n {
		least, given = argv[n], argv[n+1]
	}
	if left, _ := call("PTTL", register); left.(int) < number(least) {
		call("PEXPIRE", register, given)
	}
}

func releaseTwin(call twin.Call, keys, argv []string) (any, bool) {
	held, ok := check(call, keys[0], keys[2:]...)
	if !ok {
		return nil, false
	}
	verdict := -1
	switch held {
	case argv[0]:
		verdict = 1
	case nil:
	default:
		verdict = 0
	}
	most, ours, nth, attempt := 2, "", " ", false
	if len(argv) > 3 && argv[3] != "" {
		ours, attempt = argv[2], argv[3] == "attempt"
		if attempt || argv[3] == "handed" {
			nth = "? "
		} else {
			most = number(argv[3])
		}
	}
	if verdict == 0 || verdict == -1 && attempt {
		most = 0
	}
	announces := len(argv) > 1 && argv[1] != "" && (most > 0 || ours != "")
	var q *scriptQueue
	if announces {
		if q, ok = openQueue(call, keys[1]); !ok {
			return nil, false
		}
	}
	for _, register := range keys[2:] {
		expireRegister(call, register, argv, 4)
	}
	if verdict == 1 {
		call("DEL", keys[0])
	}
	if announces && q.announce(argv, ours, nth, most, verdict) && verdict == 1 {
		return 2, true
	}
	return verdict, true
}

// announce announces a release, moves or removes our own entry, and reports whether a waiter was notified.
func (q *scriptQueue) announce(argv []string, ours, nth string, most, verdict int) bool {
	if len(argv) > 8 {
		q.clock()
		lives, _ := q.call("PEXPIRE", q.key, argv[7])
		q.call("ZADD", q.key, argv[8], ours, q.ends(argv[6]), ours+"!")
		if lives == 0 {
			q.call("PEXPIRE", q.key, argv[7])
		}
	}
	all, _ := q.read(0, 4)
	if len(all) == 0 {
		return false
	}
	if len(argv) > 8 {
		ours = ""
	}
	notified := 0
	if most > 0 {
		notified = q.tell(argv[1], nth, argv[0], ours, most)
	}
	switch {
	case ours == "":
	case (notified > 0 || verdict == 0) && len(argv) > 6:
		q.clock()
		q.call("ZADD", q.key, strconv.Itoa(q.us), ours, q.ends(argv[6]), ours+"!")
		if len(argv) > 7 {
			q.call("PEXPIRE", q.key, argv[7])
		}
	default:
		q.call("ZREM", q.key, ours, ours+"!")
	}
	return notified > 0
}

func releasesTwin(call twin.Call, keys, argv []string) (any, bool) {
	first := strings.Fields(argv[0])
	locks, queues := len(argv)-1, number(first[0])
	if queues > 0 { // waiters are notified one by one: only handled if there are none
		if n, err := call(append([]string{"EXISTS"}, keys[locks:locks+queues]...)...); err != nil || n != 0 {
			return nil, false
		}
	}
	all, err := call(append([]string{"MGET"}, keys[:locks]...)...)
	if err != nil {
		return nil, false
	}
	for _, register := range keys[locks+queues:] {
		expireRegister(call, register, first, 1)
	}
	done := make([]byte, locks)
	for i, held := range all.([]any) {
		done[i] = '0'
		if held == argv[i+1] {
			done[i] = '1'
			call("DEL", keys[i])
		}
	}
	return string(done), true
}

func extendTwin(call twin.Call, keys, argv []string) (any, bool) {
	held, ok := check(call, keys[0], keys[1:]...)
	switch {
	case !ok:
		return nil, false
	case held == nil:
		return -1, true
	case held != argv[0]:
		return 0, true
	}
	if left, _ := call("PTTL", keys[0]); left.(int) <= number(argv[1]) {
		call("PEXPIRE", keys[0], argv[1])
	}
	for _, register := range keys[1:] {
		call("ZADD", register, "GT", argv[2], "f")
		expireRegister(call, register, argv, 3)
	}
	return 1, true
}

func extendsTwin(call twin.Call, keys, argv []string) (any, bool) {
	locks := len(argv) / 3
	for _, register := range keys[locks:] {
		if kind, err := call("TYPE", register); err != nil || kind != "zset" && kind != "none" {
			return nil, false
		}
	}
	all, err := call(append([]string{"MGET"}, keys[:locks]...)...)
	if err != nil {
		return nil, false
	}
	done, registers := make([]byte, locks), keys[locks:]
	for i, held := range all.([]any) {
		own, fence := []string{keys[i]}, argv[3*i+2]
		if fence != "-" {
			own, registers = append(own, registers[0]), registers[1:]
		}
		done[i] = '0'
		switch {
		case held != argv[3*i]:
		case fence != "":
			extendTwin(call, own, slices.Concat(argv[3*i:3*i+3], argv[3*locks:]))
			done[i] = '1'
		default:
			extendTwin(call, own[:1], argv[3*i:3*i+2])
			if n, _ := call("EXISTS", own[1]); n == 1 {
				done[i] = '1'
			}
		}
	}
	return string(done), true
}

func raiseTwin(call twin.Call, keys, argv []string) (any, bool) {
	held, ok := check(call, keys[0], keys[1])
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
	held, ok := check(call, keys[0], keys[1])
	switch {
	case !ok:
		return nil, false
	case held == nil:
		return []any{-1}, true
	case held != argv[0]:
		return []any{0, held}, true
	}
	left, _ := call("PTTL", keys[0])
	ends, err := call("PEXPIRETIME", keys[0])
	if err != nil {
		return nil, false
	}
	if left.(int) < 0 {
		ends = 0
	}
	expireRegister(call, keys[1], argv, 4)
	members, _ := call("ZRANGE", keys[1], "0", "15")
	moved := any(0)
	if argv[3] != "" {
		if moved, err = call("ZADD", keys[1], "GT", "CH", argv[3], "f"); err != nil {
			return nil, false
		}
	}
	for _, member := range members.([]any) {
		if member != "f" && member != argv[0] {
			call("ZREM", keys[1], member.(string))
		}
	}
	call("ZADD", keys[1], strconv.Itoa(ends.(int)), argv[1])
	expireRegister(call, keys[1], argv, 4)
	if left.(int) < number(argv[2]) {
		call("SET", keys[0], argv[1], "PX", argv[2])
	} else {
		call("SET", keys[0], argv[1], "KEEPTTL")
	}
	return []any{1, moved}, true
}

func restoreTwin(call twin.Call, keys, argv []string) (any, bool) {
	held, ok := check(call, keys[0], keys[1])
	if !ok {
		return nil, false
	}
	q, ok := openQueue(call, keys[2])
	if !ok {
		return nil, false
	}
	expireRegister(call, keys[1], argv, 2)
	switch held {
	case nil:
		return -1, true
	case argv[0]:
	default:
		return 0, true
	}
	before, _ := call("PTTL", keys[0])
	least := before.(int)
	switch ends, _ := call("ZSCORE", keys[1], argv[0]); ends {
	case "0":
		call("SET", keys[0], argv[1])
		least = -1
	case nil:
		call("SET", keys[0], argv[1], "XX", "KEEPTTL")
	default:
		at, err := strconv.ParseFloat(ends.(string), 64)
		if err != nil {
			return nil, false
		}
		call("PEXPIREAT", keys[0], strconv.FormatFloat(at, 'f', 0, 64))
		call("SET", keys[0], argv[1], "XX", "KEEPTTL")
	}
	call("ZREM", keys[1], argv[0])
	if left, _ := call("PTTL", keys[0]); left.(int)+1 < least {
		q.notify(argv[4], "? ", argv[0], 2)
	}
	return 1, true
}

func touchTwin(call twin.Call, keys, argv []string) (any, bool) {
	expireRegister(call, keys[1], argv, 0)
	return 1, true
}
